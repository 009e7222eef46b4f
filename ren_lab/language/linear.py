"""What is known about integers while a program is checked: linear forms over symbols, and the ranges of symbols.

A `Symbol` stands for one number. A point is a number that the caller knows (a parameter, an extent, the block count), with
the expression that gives it. Any other symbol has a range: bounds that are linear in points, or None where nothing is
known. With both, lengths such as (i + 1) * 4 - i * 4 cancel to 4, and the offsets of a loop become a range.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ren_lab.language.folding import binary
from ren_lab.language.nodes import Const, Expr, Op

_serial = count()


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """One unknown number, equal only to itself.

    Attributes:
        expr: of a point, the expression that gives it.
        low, high: of any other symbol, the least and the largest value it can have; None where unknown.
        attained: whether both bounds are values it takes whenever it takes any.
        step: of a loop's variable, by how much it grows per turn, where that is known.
    """

    expr: Expr | None = None
    low: "Linear | None" = None
    high: "Linear | None" = None
    attained: bool = False
    step: int | None = None
    order: int = field(default_factory=lambda: next(_serial))


Terms = tuple[tuple[Symbol, int], ...]


@dataclass(frozen=True, slots=True)
class Linear:
    """`constant + sum of coefficient * symbol`, in normal form: no zero coefficients, symbols in order of creation."""

    constant: int = 0
    terms: Terms = ()

    @property
    def value(self) -> int | None:
        """The number it is, or None where it depends on symbols."""
        return None if self.terms else self.constant

    def __add__(self, other: "Linear") -> "Linear":
        return _combined(self, other, 1)

    def __sub__(self, other: "Linear") -> "Linear":
        return _combined(self, other, -1)

    def scaled(self, factor: int) -> "Linear":
        """The form times a number."""
        if not factor:
            return Linear()
        return Linear(self.constant * factor, tuple((symbol, k * factor) for symbol, k in self.terms))

    def expr(self) -> Expr:
        """The expression that gives it, where all symbols are points."""
        result: Expr | None = None
        for symbol, k in self.terms:
            assert symbol.expr is not None, "a range has no expression"
            size = symbol.expr if k in (1, -1) else binary("*", symbol.expr, Const(abs(k)))
            if result is None:
                result = size if k > 0 else binary("-", Const(0), size)
            else:
                result = binary("+" if k > 0 else "-", result, size)
        if result is None:
            return Const(self.constant)
        if self.constant:
            result = binary("+" if self.constant > 0 else "-", result, Const(abs(self.constant)))
        return result


def _combined(a: Linear, b: Linear, sign: int) -> Linear:
    if not a.terms and not b.terms:
        return Linear(a.constant + sign * b.constant)
    sums = dict(a.terms)
    for symbol, k in b.terms:
        sums[symbol] = sums.get(symbol, 0) + sign * k
    terms = sorted(((s, k) for s, k in sums.items() if k), key=lambda term: term[0].order)
    return Linear(a.constant + sign * b.constant, tuple(terms))


def number(value: int) -> Linear:
    """A constant."""
    return Linear(int(value))


def of(symbol: Symbol) -> Linear:
    """A symbol as a form."""
    return Linear(0, ((symbol, 1),))


def unknown() -> Linear:
    """A number of which nothing is known."""
    return of(Symbol())


def ranged(low: Linear | None, high: Linear | None, attained: bool = False) -> Linear:
    """A number between two bounds, which are themselves reduced to their own bounds."""
    low = None if low is None else interval(low)[0]
    high = None if high is None else interval(high)[1]
    if low is not None and low == high:
        return low
    return of(Symbol(low=low, high=high, attained=attained))


def interval(form: Linear) -> tuple[Linear | None, Linear | None]:
    """The least and the largest value of a form, linear in points; None for a side that is not known."""
    low: Linear | None = number(form.constant)
    high: Linear | None = low
    for symbol, k in form.terms:
        if symbol.expr is not None:
            ends: tuple[Linear | None, Linear | None] = (of(symbol), of(symbol))
        else:
            ends = (symbol.low, symbol.high)
        if k < 0:
            ends = (ends[1], ends[0])
        low = None if low is None or ends[0] is None else low + ends[0].scaled(k)
        high = None if high is None or ends[1] is None else high + ends[1].scaled(k)
    return low, high


def numeric(form: Linear) -> tuple[int | None, int | None]:
    """The least and the largest value of a form where they are numbers; None for a side that is not."""
    low, high = interval(form)
    return None if low is None else low.value, None if high is None else high.value


def is_attained(form: Linear) -> bool:
    """Whether the form takes both of its bounds: its symbols vary freely of one another and take theirs."""
    return all(symbol.expr is not None or symbol.attained for symbol, _ in form.terms)


def is_point(form: Linear) -> bool:
    """Whether its value can be written as an expression of points."""
    return all(symbol.expr is not None for symbol, _ in form.terms)


class Arithmetic:
    """Integer operations that are not linear. The same operation on the same operands gives the same symbol."""

    def __init__(self) -> None:
        self._known: dict[Any, Linear] = {}

    def apply(self, op: str, a: Linear, b: Linear) -> Linear:
        """`a op b` for "+", "-", "*", "//", "%", "min" and "max"; nothing is known of other operations."""
        if op == "+":
            return a + b
        if op == "-":
            return a - b
        if op == "*" and (a.value is not None or b.value is not None):
            return b.scaled(a.value) if a.value is not None else a.scaled(b.value or 0)
        key = (op, a, b)
        if key not in self._known:
            self._known[key] = self._made(op, a, b)
        return self._known[key]

    def _made(self, op: str, a: Linear, b: Linear) -> Linear:
        if a.value is not None and b.value is not None:
            x, y = a.value, b.value
            if op in ("//", "%") and not y:
                return unknown()
            match op:
                case "//":
                    return number(x // y)
                case "%":
                    return number(x % y)
                case "min":
                    return number(min(x, y))
                case "max":
                    return number(max(x, y))
                case "**" if 0 <= y <= 64:
                    return number(x**y)
            return unknown()
        divides = op in ("//", "%")
        # a divisor that might be 0 is left to the kernel, which may guard it
        if is_point(a) and is_point(b) and (op in ("*", "min", "max") or divides and (b.value or 0) > 0):
            x_expr, y_expr = a.expr(), b.expr()
            made = Op(op, (x_expr, y_expr)) if op in ("min", "max") else binary(op, x_expr, y_expr)
            return of(Symbol(expr=made))
        (a_low, a_high), (b_low, b_high) = interval(a), interval(b)
        if op == "//" and b.value is not None and b.value > 0:
            return ranged(self._bound(op, a_low, b), self._bound(op, a_high, b))
        if op == "%" and b.value is not None and b.value > 0:
            return ranged(number(0), number(b.value - 1))
        if op in ("min", "max"):
            lows = [x for x in (a_low, b_low) if x is not None]
            highs = [x for x in (a_high, b_high) if x is not None]
            low = self._extreme(op, lows, 2 if op == "min" else 1)
            high = self._extreme(op, highs, 1 if op == "min" else 2)
            return ranged(low, high)
        if op == "*":
            corners = [x for x in (a_low, a_high, b_low, b_high) if x is not None and x.value is not None]
            if len(corners) == 4:
                values = [x.constant * y.constant for x in corners[:2] for y in corners[2:]]
                return ranged(number(min(values)), number(max(values)))
        return unknown()

    def _bound(self, op: str, end: Linear | None, other: Linear) -> Linear | None:
        return None if end is None else self.apply(op, end, other)

    def _extreme(self, op: str, ends: list[Linear], needed: int) -> Linear | None:
        """min or max of bounds, None where fewer are known than it takes."""
        if len(ends) < needed:
            return None
        result = ends[0]
        for end in ends[1:]:
            result = self.apply(op, result, end)
        return result

    def hull(self, forms: Iterable[Linear]) -> Linear:
        """A number that is one of several."""
        forms = list(forms)
        if all(form == forms[0] for form in forms):
            return forms[0]
        ends = [interval(form) for form in forms]
        lows = [low for low, _ in ends if low is not None]
        highs = [high for _, high in ends if high is not None]
        return ranged(self._extreme("min", lows, len(forms)), self._extreme("max", highs, len(forms)))


def loop_variable(start: Linear, stop: Linear, step: Linear) -> tuple[Linear, int | None]:
    """The variable of a loop, and the number of its turns where that is known."""
    if step.value is None or not step.value:
        return unknown(), None
    first_low, first_high = interval(start)
    stop_low, stop_high = interval(stop)
    size = step.value
    turns = None
    if start.value is not None and stop.value is not None:
        turns = len(range(start.value, stop.value, size))
        last = start.value + (turns - 1) * size
        ends = (number(min(start.value, last)), number(max(start.value, last)))
        return of(Symbol(None, *ends, attained=turns > 0, step=size)), turns
    if size > 0:
        low, high = first_low, None if stop_high is None else stop_high - number(1)
    else:
        low, high = None if stop_low is None else stop_low + number(1), first_high
    return of(Symbol(None, low, high, attained=False, step=size)), turns
