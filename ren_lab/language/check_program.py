"""Checks functions of a program in which every call is resolved."""

from dataclasses import replace

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.annotations import FunctionType
from ren_lab.language.check_calls import CallChecker, Summary
from ren_lab.language.errors import Loc
from ren_lab.language.values import Value


class ProgramChecker(CallChecker):
    """Checks a function of a specialized program. Warnings were given before."""

    def __init__(self, function: ir.Function, known: dict[str, Summary]) -> None:
        super().__init__(function)
        self.known = known

    def warn(self, construct: str, rule: str, remedy: str, loc: Loc) -> None:
        """Say nothing."""

    def resolve(self, stmt: ir.Call, args: list[Value]) -> Summary | None:
        """Look the function up, and check that the arguments fit."""
        found = self.known.get(stmt.callee)
        if found is None:
            self.refuse(stmt, "the program has no such function", "define it above its callers")
        self.annotated(stmt, found.function, args)
        return found

    def submits(self, call: ir.Call) -> bool:
        """Whether a function that is called submits or allocates."""
        found = self.known.get(call.callee)
        if found is None or found.function.type is not FunctionType.Inline:
            return True
        return walk.holds_tasks(found.function.body, self.submits)

    def checked(self) -> "ProgramChecker":
        """Check the whole function."""
        self.enter()
        self.function = replace(self.function, body=self.run())
        return self


def check_program(program: ir.Program) -> dict[str, ProgramChecker]:
    """Check every function of a program; the checkers by name.

    Raises:
        LanguageError: something does not fit.
    """
    known: dict[str, Summary] = {}
    checkers: dict[str, ProgramChecker] = {}
    for function in program.functions:
        checker = ProgramChecker(function, known).checked()
        known[function.name] = checker.summary()
        checkers[function.name] = checker
    return checkers
