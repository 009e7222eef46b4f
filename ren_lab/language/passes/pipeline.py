"""The order of the passes, and the record of what each did."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ren_lab.events import RuleFired
from ren_lab.language import nodes as ir
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
    """

    number: int
    name: str
    before: ir.Program = field(repr=False)
    after: ir.Program = field(repr=False)
    rewrites: tuple[RuleFired, ...] = field(repr=False)
    seconds: float

    @property
    def quiet(self) -> bool:
        """Whether the pass changed nothing."""
        return not self.rewrites

    @property
    def sentence(self) -> str:
        """What is to be seen, in one sentence."""
        count = len(self.rewrites)
        what = "nothing to do" if not count else f"{count} rewrite{'s' if count != 1 else ''}"
        return f"Pass {self.number}, {self.name}: {what}."

    def __str__(self) -> str:
        return f"{self.sentence}\n\n{self.after}"


def run_passes(program: ir.Program, passes: tuple[Pass, ...] = PASSES) -> tuple[ir.Program, tuple[PassRecord, ...]]:
    """The program behind all passes, and their records."""
    records = []
    for number, step in enumerate(passes, 1):
        fired: list[RuleFired] = []

        def fire(rule: Rule, old: Piece, new: Piece, fired: list[RuleFired] = fired) -> None:
            fired.append(RuleFired(rule.name, rule.equation, old, new))

        start = time.perf_counter()
        after = step.run(program, fire)
        seconds = time.perf_counter() - start
        records.append(PassRecord(number, step.name, program, after, tuple(fired), seconds))
        program = after
    return program, tuple(records)
