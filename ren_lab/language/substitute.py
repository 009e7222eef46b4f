"""Renaming and replacing in blocks: what splicing and unrolling are made of."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ren_lab.language import folding, walk
from ren_lab.language import nodes as ir
from ren_lab.language.errors import Loc

Relocate = Callable[[Loc], Loc]


def substitute(
    block: ir.Block, names: Mapping[str, str], values: Mapping[str, ir.Expr], relocate: Relocate | None = None
) -> ir.Block:
    """The block with names renamed and others replaced by values; constants fold. A replaced name is bound nowhere in it."""

    def in_expr(expr: ir.Expr) -> ir.Expr:
        changed = walk.map_exprs(expr, in_expr)
        if relocate is not None:
            changed = replace(changed, loc=relocate(changed.loc))
        if isinstance(changed, ir.Name):
            if changed.id in values:
                return replace(values[changed.id], loc=changed.loc)
            return replace(changed, id=names.get(changed.id, changed.id))
        return changed

    def in_block(inner: ir.Block) -> ir.Block:
        return tuple(in_stmt(stmt) for stmt in inner)

    def in_stmt(stmt: ir.Stmt) -> ir.Stmt:
        changed = walk.map_blocks(stmt, in_block)
        changed = walk.map_exprs(changed, lambda expr: folding.refold(in_expr(expr)))
        changed = renamed(changed, lambda name: names.get(name, name))
        return changed if relocate is None else replace(changed, loc=relocate(changed.loc))

    return in_block(block)


def renamed(stmt: ir.Stmt, name: Callable[[str], str]) -> ir.Stmt:
    """The statement with the names it binds (or writes through) renamed; its expressions and blocks are left."""

    def optional(old: str | None) -> str | None:
        return None if old is None else name(old)

    changes: dict[str, Any] = {}
    match stmt:
        case ir.Assign() | ir.Put():
            changes = {"target": name(stmt.target)}
        case ir.Unpack() | ir.Yield():
            changes = {"targets": tuple(name(target) for target in stmt.targets)}
        case ir.Call():
            changes = {"targets": tuple(name(target) for target in stmt.targets), "task_id": optional(stmt.task_id)}
        case ir.For():
            changes = {"var": name(stmt.var), "carried": tuple((name(n), value) for n, value in stmt.carried)}
        case ir.While():
            changes = {"carried": tuple((name(n), value) for n, value in stmt.carried)}
        case ir.At():
            changes = {"task_id": optional(stmt.task_id)}
        case ir.Spmd():
            changes = {"var": optional(stmt.var), "task_id": optional(stmt.task_id)}
        case ir.SetCachePolicy():
            changes = {"tensor": name(stmt.tensor)}
    same = all(getattr(stmt, field) == value for field, value in changes.items())
    return stmt if same else replace(stmt, **changes)


def unshared(function: ir.Function) -> ir.Function:
    """The function with every expression and statement an object of its own."""

    def expr(old: ir.Expr) -> ir.Expr:
        changed = walk.map_exprs(old, expr)
        return replace(old) if changed is old else changed

    def stmt(old: ir.Stmt) -> ir.Stmt:
        changed = walk.map_exprs(walk.map_blocks(old, block), expr)
        return replace(old) if changed is old else changed

    def block(old: ir.Block) -> ir.Block:
        return tuple(stmt(s) for s in old)

    return replace(function, body=block(function.body))
