"""Random expressions of integer scalars: folded, on the submitting side and in kernels they give what a plain evaluation gives.

What has no value (a division by 0, a shift or a power out of range) is a `LanguageError`, if it is computed at all.
"""

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ren_lab.language as pl
from ren_lab.runtime import RunConfig

MOST = 4096  # of a shift
MODULUS = 1_000_003  # results are compared modulo this: they may be longer than any element type


SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "<<": operator.lshift,
         ">>": operator.rshift, "&": operator.and_, "|": operator.or_, "^": operator.xor, "**": operator.pow}  # fmt: skip


class Wrong(Exception):
    """The expression has no value."""


@st.composite
def numbers(draw, depth=3):
    """("const", k), ("var", name), ("bin", sign, x, y), ("call", name, x, y), ("neg", x), ("if", condition, x, y)."""
    kind = draw(
        st.sampled_from(["const", "var"] if not depth else ["const", "var", "bin", "bin", "bin", "power", "call", "neg", "if"])
    )
    if kind == "const":
        return "const", draw(st.integers(-3, 9))
    if kind == "var":
        return "var", draw(st.sampled_from("nm"))
    x = draw(numbers(depth - 1))
    if kind == "power":
        return "bin", "**", x, draw(st.sampled_from([("const", 0), ("const", 2), ("const", 3), ("var", "m")]))
    if kind == "neg":
        return "neg", x
    y = draw(numbers(depth - 1))
    if kind == "if":
        return "if", draw(conditions(depth - 1)), x, y
    if kind == "call":
        return "call", draw(st.sampled_from(["min", "max"])), x, y
    return "bin", draw(st.sampled_from(["+", "-", "*", "//", "%", "<<", ">>", "&", "|", "^"])), x, y


@st.composite
def conditions(draw, depth):
    """("cmp", sign, x, y), ("not", c), ("logic", "and" or "or", c, d)."""
    kind = draw(st.sampled_from(["cmp", "cmp", "not", "logic"] if depth else ["cmp"]))
    if kind == "cmp":
        return "cmp", draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="])), draw(numbers(depth)), draw(numbers(depth))
    if kind == "not":
        return "not", draw(conditions(depth - 1))
    return "logic", draw(st.sampled_from(["and", "or"])), draw(conditions(depth - 1)), draw(conditions(depth - 1))


def text(x):
    match x:
        case ("const", k):
            return f"({k})"
        case ("var", name):
            return name
        case ("bin" | "cmp" | "logic", sign, left, right):
            return f"({text(left)} {sign} {text(right)})"
        case ("call", name, left, right):
            return f"pl.{name}({text(left)}, {text(right)})"
        case ("neg", inner):
            return f"(-{text(inner)})"
        case ("not", inner):
            return f"(not {text(inner)})"
        case ("if", condition, then, other):
            return f"({text(then)} if {text(condition)} else {text(other)})"
    raise AssertionError(x)


def value(x, names):
    match x:
        case ("const", k):
            return k
        case ("var", name):
            return names[name]
        case ("cmp", sign, left, right):
            a, b = value(left, names), value(right, names)
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[sign]
        case ("logic", sign, left, right):
            return (value(left, names) and value(right, names)) if sign == "and" else (value(left, names) or value(right, names))
        case ("not", inner):
            return not value(inner, names)
        case ("if", condition, then, other):
            return value(then if value(condition, names) else other, names)
        case ("neg", inner):
            return -value(inner, names)
        case ("call", name, left, right):
            return {"min": min, "max": max}[name](value(left, names), value(right, names))
        case ("bin", sign, left, right):
            a, b = value(left, names), value(right, names)
            if sign in ("//", "%") and not b or sign in ("<<", ">>", "**") and b < 0 or sign in ("<<", "**") and b > MOST:
                raise Wrong
            return SIGNS[sign](a, b)
    raise AssertionError(x)


OUTSIDE = """
import ren_lab.language as pl

@pl.jit
def program(n: pl.Scalar, m: pl.Scalar, out: pl.Out[pl.Tensor]):
    x = {} % {}
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0] = x
"""
INSIDE = """
import ren_lab.language as pl

@pl.jit
def program(n: pl.Scalar, m: pl.Scalar, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        x = {} % {}
        out[0] = x
"""
FOLDED = """
import ren_lab.language as pl

n = {n}
m = {m}

@pl.jit
def program(n_: pl.Scalar, m_: pl.Scalar, out: pl.Out[pl.Tensor]):
    x = {{}} % {{}}
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0] = x
"""


@given(numbers(), st.integers(-3, 7), st.integers(0, 3))
@settings(max_examples=60)
def test_integers_are_exact_wherever_they_are_computed(tree, n, m):
    names = {"n": n, "m": m}
    try:
        expected = value(tree, names) % MODULUS
    except Wrong:
        expected = None
    for form in (OUTSIDE, INSIDE, FOLDED.format(**names)):
        out = np.full(1, -1, np.int64)
        source = form.format(text(tree), MODULUS)
        if expected is None:
            with pytest.raises(pl.LanguageError) as error:
                pl.parse(source)(n, m, out, config=RunConfig(platform="sim"))
            assert "x = " in error.value.loc.text and out[0] == -1
        else:
            pl.parse(source)(n, m, out, config=RunConfig(platform="sim"))
            assert out[0] == expected
