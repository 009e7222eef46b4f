"""Expressions whose constant parts are computed as they are built."""

from collections.abc import Callable
from typing import Any

from ren_lab.language.errors import NOWHERE, Loc
from ren_lab.language.nodes import Binary, Choice, Const, Expr, Logical, Unary
from ren_lab.language.walk import transform

_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}
_MAX_FOLDED_BITS = 4096  # larger powers and shifts are not constants anybody means


def binary(op: str, left: Expr, right: Expr, loc: Loc = NOWHERE) -> Expr:
    """`left op right`, folded where both are numbers and the result is one."""
    if isinstance(left, Const) and isinstance(right, Const) and left.value is not None and right.value is not None:
        a, b = left.value, right.value
        huge = op in ("**", "<<") and isinstance(b, int) and abs(b) > _MAX_FOLDED_BITS
        try:
            value = None if huge else _FOLD[op](a, b)
        except (ArithmeticError, TypeError, ValueError):
            value = None  # left as it is written; whoever evaluates it reports what is wrong with it
        if isinstance(value, bool | int | float):
            return Const(value, loc=loc)
    return Binary(op, left, right, loc=loc)


def unary(op: str, operand: Expr, loc: Loc = NOWHERE) -> Expr:
    """`op operand`, folded where it is a number."""
    if isinstance(operand, Const) and operand.value is not None:
        value = operand.value
        if op == "-":
            return Const(-value, loc=loc)
        if op == "not" and isinstance(value, bool):
            return Const(not value, loc=loc)
        if op == "~" and type(value) is int:
            return Const(~value, loc=loc)
    return Unary(op, operand, loc=loc)


def refold(expr: Expr) -> Expr:
    """The expression with all constant parts folded, as the parser would have built it."""

    def again(part: Expr) -> Expr:
        match part:
            case Binary():
                return binary(part.op, part.left, part.right, part.loc)
            case Unary():
                return unary(part.op, part.operand, part.loc)
            case Choice(condition=Const(value=bool() as chosen)):
                return part.then if chosen else part.other
            case Logical() if all(isinstance(x, Const) and isinstance(x.value, bool) for x in part.operands):
                values = [x.value for x in part.operands if isinstance(x, Const)]
                return Const(all(values) if part.op == "and" else any(values), loc=part.loc)
        return part

    return transform(expr, again)
