"""Checks loops: what is known at the beginning of every turn, and what is known behind the last."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.check_expr import Env, ExprChecker
from ren_lab.language.linear import Symbol, loop_variable, unknown
from ren_lab.language.values import ScalarValue, TensorValue, TileValue, Unusable, Value, describe, index, join

_LEFT_LOOP = ("it is bound inside the loop and read behind it", "bind it before the loop, or hand it out with pl.yield_")
NOT_KNOWN = ("its bounds are not known when the program is written", "give numbers, or use pl.range")


class _Tried:
    """What trial runs of a loop have shown.

    Attributes:
        grown: names of which less is known in every turn than before the first.
        lost: those whose number or extents are given up.
        found: what is known of names behind a turn.
        bound: the names that the body binds.
        inner: the same of the loops in the body, in order.
    """

    __slots__ = ("bound", "found", "grown", "inner", "lost")

    def __init__(self) -> None:
        self.grown: set[str] = set()
        self.lost: set[str] = set()
        self.found: Env = {}
        self.bound: tuple[str, ...] | None = None
        self.inner: list[_Tried] = []


class LoopChecker(ExprChecker):
    """Checks loops; subclasses check what their bodies are made of."""

    def __init__(self, function: ir.Function, warned: set[Any] | None = None) -> None:
        super().__init__(function, warned)
        self._tried: list[_Tried] = []  # the loops of the body at hand, in order
        self._position = 0  # how many of them have been reached
        self._unrolled: frozenset[str] = frozenset()  # variables of the pl.unroll loops around this point

    def block_of(self, block: ir.Block) -> ir.Block:
        """Check a block."""
        raise NotImplementedError

    def for_loop(self, stmt: ir.For) -> ir.Stmt:
        """A loop over integers."""
        name = f"pl.{stmt.kind}"
        bounds = []
        for bound, what in ((stmt.start, "start"), (stmt.stop, "stop"), (stmt.step, "step")):
            value = self.expr(bound)
            if not (isinstance(value, ScalarValue) and value.is_int) and type(value) is not Value:
                self.fail(bound, f"its {what} is {describe(value)}", "give integer scalars", name)
            bounds.append(self.integer(bound, value, name))
        if bounds[2].value == 0:
            self.fail(stmt.step, "its step is 0", "give a step above or below 0", name)
        if stmt.kind == "unroll" and not self._known_when_written(stmt):
            self.fail(stmt, *NOT_KNOWN, name)
        variable, turns = loop_variable(*bounds)
        symbols = [variable.terms[0][0]] if variable.terms else []

        def begin() -> None:
            self.env[stmt.var] = index(variable)

        around = self._unrolled
        self._unrolled = around | {stmt.var} if stmt.kind == "unroll" else around - {stmt.var}
        body = self._loop(stmt, stmt.carried, begin, symbols, not turns)
        self._unrolled = around
        return replace(stmt, body=body)

    def _known_when_written(self, loop: ir.For) -> bool:
        """Whether the bounds of a loop are numbers, or become numbers when the loops around it are unrolled."""
        parts = [part for bound in (loop.start, loop.stop, loop.step) for part in (bound, *walk.all_exprs(bound))]
        return not any(isinstance(part, ir.Name) and part.id not in self._unrolled for part in parts)

    def while_loop(self, stmt: ir.While) -> ir.Stmt:
        """A loop under a condition."""
        body = self._loop(stmt, stmt.carried, lambda: self.condition(stmt.condition, "pl.cond"), [], True)
        return replace(stmt, body=body)

    def _loop(
        self,
        stmt: ir.For | ir.While,
        carried: tuple[tuple[str, ir.Expr], ...],
        begin: Callable[[], object],
        symbols: list[Symbol],
        uncertain: bool,
    ) -> ir.Block:
        before = self.env
        for name, _ in carried:
            if name in before and not isinstance(before[name], Unusable):
                self.fail(
                    stmt,
                    f"it carries {name!r}, which is bound already",
                    "give the carried value a name of its own",
                    _loop_name(stmt),
                )
        entry = dict(before)
        initial = {name: self.expr(value) for name, value in carried}
        entry.update(initial)
        live = {name for name, value in before.items() if not isinstance(value, Unusable)}
        tried = self._tried_here()
        if tried.bound is None:
            tried.bound = tuple(walk.bound_in(stmt.body))
        changing = [name for name in tried.bound if name in live] + list(initial)
        loops_while = isinstance(stmt, ir.While)
        self.uncertain += uncertain
        self.branches += loops_while
        self.loops.extend(symbols)
        body: ir.Block | None = None
        try:
            if changing:
                entry, body = self._steady(stmt, entry, changing, begin, tried)
            if body is None or not self.quiet:
                body = self._turn(stmt, entry, begin, tried)
            handed = self._yielded(stmt)
        finally:
            self.uncertain -= uncertain
            self.branches -= loops_while
            del self.loops[len(self.loops) - len(symbols) :]
        inner = self.env
        steady = [name for name in changing if name not in initial]
        after: Env = {name: entry[name] if name in steady else value for name, value in before.items()}
        for name in inner:
            if name not in after:
                after[name] = Unusable(*_LEFT_LOOP)
        if isinstance(stmt, ir.For):
            after[stmt.var] = Unusable(*_LEFT_LOOP)
        self.env = {**after, **handed}
        return body

    def _tried_here(self) -> "_Tried":
        """What earlier turns of the loop around this one have shown of it."""
        if self._position == len(self._tried):
            self._tried.append(_Tried())
        self._position += 1
        return self._tried[self._position - 1]

    def _turn(self, stmt: ir.For | ir.While, entry: Env, begin: Callable[[], object], tried: "_Tried") -> ir.Block:
        """Check the body once, for what is known at the beginning of a turn."""
        around = self._tried, self._position
        self._tried, self._position = tried.inner, 0  # the same loops are reached in the same order in every turn
        self.env = dict(entry)
        begin()
        body = self.block_of(stmt.body)
        self._tried, self._position = around
        return body

    def _steady(
        self, stmt: ir.For | ir.While, entry: Env, changing: list[str], begin: Callable[[], object], tried: "_Tried"
    ) -> tuple[Env, ir.Block | None]:
        """What is known of changing names at the beginning of every turn: trial runs until nothing more is lost.

        Also the body as the last run left it, where that run began with what is known of every turn. A loop inside others
        begins with what it lost when they were tried before, so that the work grows with the square of the depth.
        """
        written = set(self.written)
        entry = dict(entry)
        lost = tried.lost  # names whose number or extents are given up
        for name in [name for name in changing if name in tried.grown]:
            keeps = set() if name in lost else {name}
            entry[name] = self._either(stmt, name, entry[name], tried.found.get(name, Value()), keeps)
        for _ in range(len(changing) + 2):  # each run but the last gives up at least one name more
            self.written = set(written)
            self.quiet += 1
            body: ir.Block | None = self._turn(stmt, entry, begin, tried)
            found = {**self.env, **self._carried_on(stmt)}
            self.quiet -= 1
            steady = dict(entry)
            for name in changing:
                steady[name] = self._either(stmt, name, entry[name], found.get(name, Value()), lost)
                if steady[name] != entry[name]:
                    tried.grown.add(name)
            tried.found = found
            if steady == entry:
                break
            entry, body = steady, None
        if not self.quiet:
            self.written = written
        return entry, body

    def _either(self, stmt: ir.For | ir.While, name: str, begin: Value, end: Value, lost: set[str]) -> Value:
        """What is known of a name that has one value before a turn and another behind it."""
        joined = join(begin, end, self.arithmetic)
        if joined is None:
            what = f"{describe(begin)} before and {describe(end)} behind a turn of the loop at line {stmt.loc.line}"
            remedy = "keep the type of what a loop carries, or use another name"
            if isinstance(begin, ScalarValue) and type(begin.literal) is int and isinstance(end, ScalarValue) and not end.is_int:
                remedy = f"write {float(begin.literal)!r} where it begins, or convert one of them with pl.cast"
            if any(name == carried for carried, _ in stmt.carried):
                self.fail(stmt, f"{name!r} is {what}", remedy, _loop_name(stmt))
            return Unusable(f"it is {what}", remedy)  # which matters only if a turn reads it before it binds it
        if isinstance(joined, ScalarValue) and isinstance(begin, ScalarValue) and joined != begin:
            if name in lost:
                return begin
            lost.add(name)
            return replace(joined, form=None if joined.form is None else unknown(), literal=None)
        if (
            isinstance(joined, TensorValue | TileValue)
            and isinstance(begin, TensorValue | TileValue)
            and joined.shape != begin.shape
        ):
            if name in lost:
                return replace(joined, shape=begin.shape)
            lost.add(name)
        return joined

    def _carried_on(self, stmt: ir.For | ir.While) -> Env:
        last = walk.last_yield(stmt.body)
        if last is None or not stmt.carried:
            return {}
        return {name: self.expr(value) for (name, _), value in zip(stmt.carried, last.values)}

    def _yielded(self, stmt: ir.For | ir.While) -> Env:
        """Names that the loop hands out, with what is known of them behind it."""
        last = walk.last_yield(stmt.body)
        if last is None or not stmt.carried:
            return {}
        handed: Env = {}
        for target, value in zip(last.targets, last.values):
            found = self.expr(value)
            handed[target] = (
                replace(found, form=unknown(), literal=None) if isinstance(found, ScalarValue) and found.form else found
            )
        return handed


def _loop_name(stmt: ir.For | ir.While) -> str:
    return "pl.while_" if isinstance(stmt, ir.While) else f"pl.{stmt.kind}"
