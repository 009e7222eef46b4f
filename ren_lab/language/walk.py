"""Walking over the IR: changing parts of it, listing them, and the names they bind."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

from ren_lab.language.nodes import (
    Assign,
    At,
    Block,
    Call,
    Expr,
    For,
    If,
    Name,
    Node,
    Op,
    Put,
    Regions,
    Return,
    Scope,
    SetCachePolicy,
    Spmd,
    Stmt,
    Unpack,
    While,
    Yield,
)

_N = TypeVar("_N", bound=Node)


def map_exprs(node: _N, change: Callable[[Expr], Expr]) -> _N:
    """The node with `change` applied to each expression it holds directly; the same object where nothing changes."""
    changes = {}
    for f in fields(node):
        old = getattr(node, f.name)
        new = _map_value(old, change)
        if new is not old:
            changes[f.name] = new
    return replace(node, **changes) if changes else node


def _map_value(value: Any, change: Callable[[Expr], Expr]) -> Any:
    if isinstance(value, Expr):
        return change(value)
    if isinstance(value, tuple) and value and not isinstance(value[0], Stmt):
        new = tuple(_map_value(item, change) for item in value)
        return value if all(a is b for a, b in zip(new, value)) else new
    if isinstance(value, Regions):
        parts = [_map_value(part, change) for part in (value.reads, value.writes, value.updates)]
        return Regions(*parts)
    return value


def transform(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with `change` applied to every part of it, innermost first."""
    return change(map_exprs(expr, lambda part: transform(part, change)))


def blocks_of(stmt: Stmt) -> tuple[tuple[str, Block], ...]:
    """The fields of a statement that are blocks."""
    match stmt:
        case If():
            return (("then", stmt.then), ("other", stmt.other))
        case For() | While() | Scope() | At() | Spmd():
            return (("body", stmt.body),)
    return ()


def map_blocks(stmt: Stmt, change: Callable[[Block], Block]) -> Stmt:
    """The statement with `change` applied to each of its blocks."""
    changes = {}
    for name, block in blocks_of(stmt):
        new = change(block)
        if len(new) != len(block) or any(a is not b for a, b in zip(new, block)):
            changes[name] = new
    return replace(stmt, **changes) if changes else stmt  # type: ignore[arg-type]


def statements(block: Block) -> Iterator[Stmt]:
    """Every statement of a block, outer ones first."""
    for stmt in block:
        yield stmt
        for _, inner in blocks_of(stmt):
            yield from statements(inner)


def direct_exprs(node: Node) -> Iterator[Expr]:
    """The expressions that a node holds directly."""
    found: list[Expr] = []

    def note(expr: Expr) -> Expr:
        found.append(expr)
        return expr

    map_exprs(node, note)
    return iter(found)


def all_exprs(node: Node) -> Iterator[Expr]:
    """The expressions of a node and all their parts, outer ones first; blocks are left out."""
    for expr in direct_exprs(node):
        yield expr
        yield from all_exprs(expr)


def bound_by(stmt: Stmt) -> tuple[str, ...]:
    """Names that the statement itself binds, its blocks left out."""
    match stmt:
        case Assign():
            return (stmt.target,)
        case Unpack() | Yield():
            return stmt.targets
        case Call():
            return stmt.targets if stmt.task_id is None else (*stmt.targets, stmt.task_id)
        case For():
            return (stmt.var, *(name for name, _ in stmt.carried))
        case While():
            return tuple(name for name, _ in stmt.carried)
        case At():
            return () if stmt.task_id is None else (stmt.task_id,)
        case Spmd():
            return tuple(name for name in (stmt.var, stmt.task_id) if name is not None)
        case Put():
            return (stmt.target,)  # a tile or an array is replaced by a changed one
    return ()


def bound_in(block: Block) -> dict[str, None]:
    """Names that are bound anywhere in a block, in order of first appearance."""
    return {name: None for stmt in statements(block) for name in bound_by(stmt)}


def names_in(block: Block) -> dict[str, None]:
    """Names that are used anywhere in a block, bound ones included, in order of first appearance."""
    found: dict[str, None] = {}
    for stmt in statements(block):
        for name in bound_by(stmt):
            found[name] = None
        if isinstance(stmt, SetCachePolicy):
            found[stmt.tensor] = None
        for expr in all_exprs(stmt):
            if isinstance(expr, Name):
                found[expr.id] = None
    return found


def last_yield(block: Block) -> Yield | None:
    """The yield at the end of a block, inside a scope or not."""
    while block:
        match block[-1]:
            case Yield() as found:
                return found
            case Scope(body=body):
                block = body
            case _:
                return None
    return None


def holds_tasks(block: Block, called: Callable[[Call], bool]) -> bool:
    """Whether a block submits or allocates; `called` says it of the functions that it calls."""
    for stmt in statements(block):
        if isinstance(stmt, At | Spmd | Scope) or isinstance(stmt, Call) and (stmt.submit or called(stmt)):
            return True
        if any(isinstance(expr, Op) and expr.name in ("create_tensor", "array") for expr in all_exprs(stmt)):
            return True
    return False


def returns(block: Block) -> bool:
    """Whether a block ends in a return, inside a scope or not."""
    while block:
        match block[-1]:
            case Return():
                return True
            case Scope(body=body):
                block = body
            case _:
                return False
    return False


def fresh_name(base: str, taken: "set[str] | dict[str, Any]") -> str:
    """`base`, or the first of base_1, base_2, … that is not taken."""
    name = base
    number = 0
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name
