"""The IR: programs of functions, functions of statements, statements of expressions. Everything is frozen.

Names may be bound again, as in Python; there is no SSA form. Two pieces of IR are equal when they would print as the same
Python; source locations take no part in that. Trees are as deep as the Python they came from, which Python's own parser
bounds, so walking them may recurse.
"""

from dataclasses import dataclass, field
from typing import Any

from ren_lab.language.annotations import Annotation, CachePolicy, Direction, FunctionType, Level
from ren_lab.language.errors import NOWHERE, Loc
from ren_lab.runtime import ScopeMode


@dataclass(frozen=True, slots=True)
class Node:
    """A piece of IR; `loc` is where it came from."""

    loc: Loc = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


class Expr(Node):
    """An expression."""

    __slots__ = ()


class Stmt(Node):
    """A statement."""

    __slots__ = ()


Block = tuple[Stmt, ...]


# -- expressions ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """A number, a truth value, or None. Compared by how it is written, so 1, 1.0 and True differ."""

    value: Any = field(compare=False)
    text: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", repr(self.value))


@dataclass(frozen=True, slots=True)
class Name(Expr):
    """A parameter or a local name."""

    id: str


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    """`-x`, `not x` or `~x`; `op` is "-", "not" or "~"."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """Arithmetic, bitwise operations and comparisons; `op` is Python's sign for it."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Logical(Expr):
    """`a and b and …` or `a or b or …`."""

    op: str
    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Choice(Expr):
    """`then if condition else other`."""

    condition: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True, slots=True)
class Sequence(Expr):
    """A list of expressions: offsets, shapes, dependencies."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Op(Expr):
    """A call of an operation, `pl.name(*args, **attrs)`.

    Attributes:
        args: one per operand of the operation; an optional operand that is left out is None.
        attrs: what is fixed when the program is written (element types, flags, policies), without those at their default.
    """

    name: str
    args: tuple[Expr | None, ...] = ()
    attrs: tuple[tuple[str, Any], ...] = ()

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute's value, or `default` where it is at its own."""
        return dict(self.attrs).get(name, default)


@dataclass(frozen=True, slots=True)
class Span(Expr):
    """`low:high` in a subscript; None for an end that is left out."""

    low: Expr | None
    high: Expr | None


@dataclass(frozen=True, slots=True)
class Subscript(Expr):
    """`base[items]`."""

    base: Expr
    items: tuple[Expr, ...]


# -- statements -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign(Stmt):
    """`target = value`, with the annotation `declared` where one is written."""

    target: str
    value: Expr
    declared: Annotation | None = None


@dataclass(frozen=True, slots=True)
class Unpack(Stmt):
    """`a, b = x, y`: all values are taken before a name is bound."""

    targets: tuple[str, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Put(Stmt):
    """`target[items] = value`."""

    target: str
    items: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Do(Stmt):
    """An expression that is written for its effect."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Call(Stmt):
    """A call of a function of the program, or a task that runs one.

    Attributes:
        callee: the function's name.
        args: its arguments.
        targets: names bound to what it returns.
        task_id: the name bound to the task's id.
        submit: whether it is written with `pl.submit`.
        deps: tasks it must follow besides those that are inferred.
        blocks: how many blocks run it at the same time; None for a plain task.
        regions: what the task touches, once dependencies are derived.
        own: whether it is written `self.callee(…)`, which only a function of the same program answers.
    """

    callee: str
    args: tuple[Expr, ...]
    targets: tuple[str, ...] = ()
    task_id: str | None = None
    submit: bool = False
    deps: tuple[Expr, ...] = ()
    blocks: Expr | None = None
    regions: "Regions | None" = None
    own: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Regions:
    """What a task touches: `Name`s of whole tensors and `pl.region(tensor, offsets, shape)`.

    Attributes:
        reads: read only.
        writes: written in full, without being read.
        updates: read and written, or written in part.
    """

    reads: tuple[Expr, ...] = ()
    writes: tuple[Expr, ...] = ()
    updates: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """`for var, (carried…) in pl.kind(start, stop, step, init_values=(…)):`; `kind` is range, parallel or unroll.

    `carried` pairs a name with its initial value; the body then ends in a `Yield` of as many values.
    """

    kind: str
    var: str
    start: Expr
    stop: Expr
    step: Expr
    body: Block
    carried: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, slots=True)
class While(Stmt):
    """`for (carried…) in pl.while_(init_values=(…)):` with `pl.cond(condition)` as its first statement."""

    condition: Expr
    body: Block
    carried: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class If(Stmt):
    """`if condition: then else: other`."""

    condition: Expr
    then: Block
    other: Block = ()


@dataclass(frozen=True, slots=True)
class Yield(Stmt):
    """`targets = pl.yield_(values)`: what a loop carries on, or what a branch hands out."""

    targets: tuple[str, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Scope(Stmt):
    """`with pl.scope():` or `with pl.manual_scope():`."""

    mode: ScopeMode
    body: Block
    name: str | None = None


@dataclass(frozen=True, slots=True)
class At(Stmt):
    """`with pl.at(level=…, deps=[…], name_hint=…) as task_id:`."""

    level: Level
    body: Block
    deps: tuple[Expr, ...] = ()
    name_hint: str | None = None
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class Spmd(Stmt):
    """`with pl.spmd(blocks, …) as task_id:` or, where `var` is given, `for var in pl.spmd(blocks, …):`."""

    blocks: Expr
    body: Block
    var: str | None = None
    deps: tuple[Expr, ...] = ()
    name_hint: str | None = None
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class SetCachePolicy(Stmt):
    """`pl.set_cache_policy(tensor, policy)`."""

    tensor: str
    policy: CachePolicy


@dataclass(frozen=True, slots=True)
class Return(Stmt):
    """`return values`, the last statement of a function."""

    values: tuple[Expr, ...] = ()


# -- functions and programs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Param(Node):
    """A parameter. `annotation` is None until an argument or the body has decided what it is."""

    name: str
    annotation: Annotation | None = None

    @property
    def writes(self) -> bool:
        """Whether it is declared as written."""
        return self.annotation is not None and self.annotation.direction is not None

    @property
    def reads(self) -> bool:
        """Whether its contents at entry may be read."""
        return self.annotation is None or self.annotation.direction is not Direction.Out


@dataclass(frozen=True, slots=True)
class Function(Node):
    """A function. `level` is None for the level its type implies. `str()` is Python."""

    name: str
    type: FunctionType
    params: tuple[Param, ...]
    body: Block
    auto_scope: bool = True
    level: Level | None = None

    def __str__(self) -> str:
        from ren_lab.language.printer import print_function

        return print_function(self)

    @property
    def is_kernel(self) -> bool:
        """Whether each call of it from an orchestration is one task."""
        return self.type in (FunctionType.InCore, FunctionType.Opaque)


@dataclass(frozen=True, slots=True)
class Program(Node):
    """Functions, the last of which is where a run begins. `str()` is Python that parses back to the same program."""

    name: str
    functions: tuple[Function, ...]

    @property
    def entry(self) -> Function:
        """Where a run begins."""
        return self.functions[-1]

    def __getitem__(self, name: str) -> Function:
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(name)

    def __str__(self) -> str:
        from ren_lab.language.printer import print_program

        return print_program(self)
