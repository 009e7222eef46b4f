"""Named rules: a function whose docstring is its equation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ren_lab.language import nodes as ir
from ren_lab.language.printer import print_block, print_function


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewrite. `equation` is what traces show."""

    name: str
    equation: str
    function: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def rule(function: Callable[..., Any]) -> Rule:
    """Make a rule of a function; its docstring is the equation."""
    if not function.__doc__:
        raise ValueError(f"rule {function.__name__} has no docstring; write its equation there")
    return Rule(function.__name__, " ".join(function.__doc__.split()), function)


@dataclass(frozen=True, slots=True)
class Piece:
    """What stood, or stands, at the place of a rewrite; `str()` is Python."""

    code: ir.Block | ir.Function

    def __str__(self) -> str:
        return print_function(self.code) if isinstance(self.code, ir.Function) else print_block(self.code)


Fire = Callable[[Rule, Piece, Piece], bool]
"""Is told of a rewrite, and says whether it is to be made: the steps of a pass are the pass with its first rewrites only."""


def told(fire: Fire, what: Rule, old: ir.Block | ir.Function, new: ir.Block | ir.Function) -> bool:
    """Tell that a rule would replace one piece by another; whether it does."""
    return fire(what, Piece(old), Piece(new))
