"""The order of the passes, and the record of what each did."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import overload

from ren_lab.events import RuleFired
from ren_lab.language import nodes as ir
from ren_lab.language.errors import counted
from ren_lab.language.passes import (
    derive_dependencies,
    inline_functions,
    materialize_runtime_scopes,
    outline_incore,
    unroll_loops,
)
from ren_lab.language.passes.rule import Fire, Piece, Rule


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass as data.

    Attributes:
        name: its public name.
        holds: what is true of a program behind it.
        rules: what it is made of.
        run: the program it makes of a program, telling each rule that fires.
    """

    name: str
    holds: str
    rules: tuple[Rule, ...]
    run: Callable[[ir.Program, Fire], ir.Program]


PASSES = (
    Pass("inline_functions", "no Inline functions, and no calls inside kernels", inline_functions.RULES, inline_functions.run),
    Pass("unroll_loops", "no pl.unroll, and no branch on a constant", unroll_loops.RULES, unroll_loops.run),
    Pass("outline_incore", "every kernel is a function, and every task a call of one", outline_incore.RULES, outline_incore.run),
    Pass("derive_dependencies", "every task says what it touches", derive_dependencies.RULES, derive_dependencies.run),
    Pass("materialize_runtime_scopes", "every scope is written", materialize_runtime_scopes.RULES, materialize_runtime_scopes.run),
)


@dataclass(frozen=True, eq=False)
class PassRecord:
    """What one pass did to a program.

    Attributes:
        number: its place among the passes, from 1.
        name: its public name.
        before, after: the programs; `str()` is Python.
        rewrites: what fired, in order, each with `rule`, `equation`, `old` and `new`.
        seconds: how long it took.
        run: the pass itself.
    """

    number: int
    name: str
    before: ir.Program = field(repr=False)
    after: ir.Program = field(repr=False)
    rewrites: tuple[RuleFired, ...] = field(repr=False)
    seconds: float
    run: Callable[[ir.Program, Fire], ir.Program] = field(repr=False)

    @property
    def steps(self) -> "Steps":
        """The programs after each single rewrite."""
        return Steps(self)

    @property
    def added(self) -> tuple[ir.Function, ...]:
        """Functions of `after` that `before` does not have."""
        known = {function.name for function in self.before.functions}
        return tuple(function for function in self.after.functions if function.name not in known)

    @property
    def removed(self) -> tuple[ir.Function, ...]:
        """Functions of `before` that `after` does not have."""
        kept = {function.name for function in self.after.functions}
        return tuple(function for function in self.before.functions if function.name not in kept)

    @property
    def changed(self) -> tuple[ir.Function, ...]:
        """Functions of `after` that read otherwise in `before`."""
        old = {function.name: function for function in self.before.functions}
        return tuple(function for function in self.after.functions if function != old.get(function.name, function))

    @property
    def quiet(self) -> bool:
        """Whether the pass changed nothing."""
        return not self.rewrites

    @property
    def sentence(self) -> str:
        """What is to be seen, in one sentence."""
        head = f"Pass {self.number}, {self.name}: "
        if self.quiet:
            return head + "nothing to do."
        counts = ((self.added, "added"), (self.removed, "removed"), (self.changed, "changed"))
        told = [counted(len(self.rewrites), "rewrite"), *(f"{counted(len(f), 'function')} {what}" for f, what in counts if f)]
        return f"{head}{', '.join(told)}."

    def __str__(self) -> str:
        return f"{self.sentence}\n\n{self.after}"


class Steps(Sequence[ir.Program]):
    """The program after each single rewrite of a pass, made anew when it is asked for: `steps[i]` has rewrites 0 to i done."""

    def __init__(self, record: PassRecord) -> None:
        self._record = record

    def __len__(self) -> int:
        return len(self._record.rewrites)

    @overload
    def __getitem__(self, index: int) -> ir.Program: ...

    @overload
    def __getitem__(self, index: slice) -> list[ir.Program]: ...

    def __getitem__(self, index: int | slice) -> ir.Program | list[ir.Program]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        total = len(self)
        if not -total <= index < total:
            has = f"{counted(total, 'rewrite')}; give {-total} to {total - 1}" if total else "no rewrites"
            raise IndexError(f"there is no step {index}: the pass has {has}")
        left = count(index % total, -1)
        return self._record.run(self._record.before, lambda rule, old, new: next(left) >= 0)


def run_passes(program: ir.Program, passes: tuple[Pass, ...] = PASSES) -> tuple[ir.Program, tuple[PassRecord, ...]]:
    """The program behind all passes, and their records."""
    records = []
    for number, step in enumerate(passes, 1):
        fired: list[RuleFired] = []

        def fire(rule: Rule, old: Piece, new: Piece, fired: list[RuleFired] = fired) -> bool:
            fired.append(RuleFired(rule.name, rule.equation, old, new))
            return True

        start = time.perf_counter()
        after = step.run(program, fire)
        seconds = time.perf_counter() - start
        records.append(PassRecord(number, step.name, program, after, tuple(fired), seconds, step.run))
        program = after
    return program, tuple(records)
