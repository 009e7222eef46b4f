"""Linear forms and ranges, against brute force over every value that symbols can have."""

import itertools
import operator

from hypothesis import given
from hypothesis import strategies as st

from ren_lab.language.linear import Arithmetic, Linear, Symbol, interval, is_attained, is_point, loop_variable, number, numeric, of
from ren_lab.language.nodes import Name
from ren_lab.language.printer import print_expr

OPS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "min": min, "max": max}
RANGES = [(0, 3), (-2, 2), (5, 5), (1, 4)]


def symbols():
    return [Symbol(low=number(low), high=number(high), attained=True) for low, high in RANGES]


trees = st.recursive(
    st.one_of(st.integers(-3, 3).map(lambda k: ("number", k)), st.integers(0, 3).map(lambda k: ("symbol", k))),
    lambda x: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), x, x),
        st.tuples(st.sampled_from(["//", "%"]), x, st.integers(1, 4).map(lambda k: ("number", k))),
    ),
    max_leaves=6,
)


def form(tree, known, arithmetic):
    match tree:
        case ("number", k):
            return number(k)
        case ("symbol", k):
            return of(known[k])
        case (op, a, b):
            return arithmetic.apply(op, form(a, known, arithmetic), form(b, known, arithmetic))
    raise AssertionError(tree)


def value(tree, values):
    match tree:
        case ("number", k):
            return k
        case ("symbol", k):
            return values[k]
        case (op, a, b):
            return OPS[op](value(a, values), value(b, values))
    raise AssertionError(tree)


def all_values(tree):
    return [value(tree, values) for values in itertools.product(*(range(low, high + 1) for low, high in RANGES))]


@given(trees)
def test_bounds_hold_and_attained_ones_are_reached(tree):
    made = form(tree, symbols(), Arithmetic())
    low, high = numeric(made)
    found = all_values(tree)
    assert low is None or low <= min(found)
    assert high is None or high >= max(found)
    if is_attained(made):
        assert (low, high) == (min(found), max(found))


@given(trees, trees)
def test_equal_forms_are_equal_numbers(one, other):
    arithmetic, known = Arithmetic(), symbols()
    difference = (form(one, known, arithmetic) - form(other, known, arithmetic)).value
    if difference is not None:
        assert {a - b for a, b in zip(all_values(one), all_values(other))} == {difference}


@given(trees)
def test_the_expression_of_points_computes_the_form(tree):
    names = ["p", "q", "r", "s"]
    points = [Symbol(expr=Name(name)) for name in names]
    made = form(tree, points, Arithmetic())
    assert interval(made) == (made, made) or not is_point(made)
    if is_point(made):
        text = print_expr(made.expr()).replace("pl.", "")
        for values in [(0, -2, 5, 1), (3, 2, 5, 4)]:
            assert eval(text, {"min": min, "max": max}, dict(zip(names, values))) == value(tree, values)


def test_lengths_cancel():
    i = of(Symbol(expr=Name("i")))
    assert ((i + number(1)).scaled(4) - i.scaled(4)).value == 4
    assert Linear() == number(0) == i - i and i.scaled(0) == number(0)


@given(st.integers(-5, 5), st.integers(-5, 5), st.sampled_from([-3, -2, -1, 1, 2, 3]))
def test_loop_variables(start, stop, step):
    variable, turns = loop_variable(number(start), number(stop), number(step))
    values = list(range(start, stop, step))
    assert turns == len(values)
    if values:
        assert numeric(variable) == (min(values), max(values)) and is_attained(variable)


def test_loop_variables_with_bounds_that_are_not_known():
    n = of(Symbol(expr=Name("n")))
    up, turns = loop_variable(number(2), n, number(1))
    assert turns is None and interval(up) == (number(2), n - number(1)) and not is_attained(up)
    down, _ = loop_variable(n, number(0), number(-2))
    assert interval(down) == (number(1), n)
    unknown, _ = loop_variable(number(0), n, n)
    assert interval(unknown) == (None, None)
