"""Control flow: what loops carry, what branches hand out, calls inside expressions, and numbers that are written."""

import math

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.runtime import RunConfig

HEAD = "import ren_lab.language as pl\n\nFLAG = True\n"
SIM = RunConfig(platform="sim")
PLACES = pytest.mark.parametrize("place", ["outside", "in a kernel"], ids=lambda p: p.replace(" ", "-"))


def run(body, place="outside", n=0, before="", results=("y",), dtype=np.int64):
    """What a body leaves in some names, computed on the submitting side or in a kernel, after a look at every stage."""
    lines = [" " + line for line in body.strip("\n").splitlines()]
    core = " with pl.at(level=pl.Level.CORE_GROUP):"
    stores = [f"  out[{k}] = {name}" for k, name in enumerate(results)]
    lines = [*lines, core, *stores] if place == "outside" else [core, *(" " + line for line in lines), *stores]
    text = f"{HEAD}{before}\n@pl.jit\ndef program(n: pl.Scalar, out: pl.Out[pl.Tensor]):\n" + "\n".join(lines) + "\n"
    program = pl.parse(text)
    out = np.zeros(len(results), dtype)
    program(n, out, config=SIM)
    for record in program.lower(n, out).passes:
        assert pl.parse(str(record.after)).ir == record.after, record.name
    return out.tolist()


# -- branches that hand out values ------------------------------------------------------------------------------------------


@PLACES
def test_a_branch_inside_a_loop_hands_out_its_own_values_and_not_the_loops(place):
    body = """
for i, (x,) in pl.range(3, init_values=(1,)):
    if i > 0:
        k = pl.yield_(5)
    else:
        k = pl.yield_(6)
    y = pl.yield_(x * 10 + k)
"""
    assert run(body, place) == [1655]


@PLACES
def test_a_branch_may_hand_out_more_values_than_the_loop_around_it_carries(place):
    body = """
for (x,) in pl.while_(init_values=(1,)):
    pl.cond(x < 100)
    if x % 2 == 0:
        a, b = pl.yield_(x * 3, 1)
    else:
        a, b = pl.yield_(x + 4, 2)
    y = pl.yield_(a + b)
"""
    x = 1
    while x < 100:
        x = x * 3 + 1 if x % 2 == 0 else x + 6
    assert run(body, place) == [x]


@PLACES
@pytest.mark.parametrize("n", range(-1, 8))
def test_an_elif_hands_out_what_the_other_branches_do(place, n):
    body = """
if 0 < n < 3:
    y = pl.yield_(n * 2)
elif n >= 5:
    if n == 6:
        y = pl.yield_(-6)
    else:
        y = pl.yield_(-1)
elif n == 4:
    y = pl.yield_(40)
else:
    y = pl.yield_(0)
"""
    assert run(body, place, n) == [n * 2 if 0 < n < 3 else 40 if n == 4 else -6 if n == 6 else -1 if n >= 5 else 0]


@PLACES
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("n", [1, 3, 5])
def test_branches_on_flags_among_others(place, flag, n):
    helper = """
@pl.jit.inline
def pick(n, flag):
    if n > 3:
        k = pl.yield_(1)
    elif flag:
        k = pl.yield_(2)
    else:
        k = pl.yield_(3)
    return k
"""
    body = f"""
if n > 2:
    k = pl.yield_(1)
elif FLAG:
    k = pl.yield_(2)
else:
    k = pl.yield_(3)
j = pick(n, {flag})
"""
    assert run(body, place, n, helper, ("k", "j")) == [1 if n > 2 else 2, 1 if n > 3 else 2 if flag else 3]


@pytest.mark.parametrize(
    "other",
    ["z = pl.yield_(2)", "pass", "if n > 3:\n        z = pl.yield_(2)\n    else:\n        z = pl.yield_(3)"],
    ids=["name", "none", "inner"],
)
def test_branches_that_hand_out_other_names_are_refused(other):
    with pytest.raises(pl.LanguageError, match="if: (its branches yield to|one branch yields)") as e:
        run(f"if n > 2:\n    y = pl.yield_(1)\nelse:\n    {other}")
    assert e.value.loc.text.strip() == "if n > 2:"


def test_a_written_condition_is_checked_on_both_sides_and_taken_in_its_pass():
    text = (
        HEAD
        + """
@pl.jit
def program(n: pl.Scalar, out: pl.Out[pl.Tensor]):
    if True:
        x = n
    else:
        x = n + 1
    if False:
        z = 1
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0] = x
"""
    )
    out = np.zeros(1, np.int64)
    program = pl.parse(text)
    program(7, out, config=SIM)
    record = program.lower(7, out).passes[1]
    assert out[0] == 7 and [f.rule for f in record.rewrites] == ["take_branch"] * 2 and "if True:" in str(record.before)


@PLACES
def test_bounds_of_unrolled_loops_may_depend_on_outer_unrolled_ones(place):
    body = """
y = 0
for i in pl.unroll(1, 4):
    for j in pl.unroll(i, 2 * i + 1, i):
        y = y * 7 + i * j
"""
    y = 0
    for i in range(1, 4):
        for j in range(i, 2 * i + 1, i):
            y = y * 7 + i * j
    assert run(body, place) == [y]


@pytest.mark.parametrize(
    "body",
    ["for i in pl.range(3):\n    for j in pl.unroll(i):\n        y = j",
     "for i in pl.unroll(3):\n    i = i + n\n    for j in pl.unroll(i):\n        y = j",
     "for i in pl.unroll(3):\n    for i in pl.range(3):\n        for j in pl.unroll(i):\n            y = j"],
    ids=["of a loop at run time", "changed", "hidden"],
)  # fmt: skip
def test_other_bounds_of_unrolled_loops_are_refused(body):
    with pytest.raises(pl.LanguageError, match="pl.unroll: its bounds are not known when the program is written") as e:
        run("y = 0\n" + body)
    assert "for j in" in e.value.loc.text


# -- calls inside expressions -----------------------------------------------------------------------------------------------

SQUARE = "@pl.jit.inline\ndef square(x):\n    return x * x\n"


@PLACES
def test_calls_inside_expressions(place):
    body = """
a = square(square(n) + 1) - square(2)
y = pl.max(square(a), square(n))
if square(n) > 8 and n > 0:
    z = pl.yield_(square(y))
elif square(n) == 4:
    z = pl.yield_(4)
else:
    z = pl.yield_(square(square(n)))
w = 0
for i in pl.range(square(n), square(n) + square(2)):
    w += square(i)
"""
    for n in (3, 2, -1):
        a = (n * n + 1) ** 2 - 4
        y = max(a * a, n * n)
        z = y * y if n * n > 8 and n > 0 else 4 if n * n == 4 else n**4
        w = sum(i * i for i in range(n * n, n * n + 4))
        assert run(body, place, n, SQUARE, ("a", "y", "z", "w")) == [a, y, z, w]


def test_calls_inside_expressions_of_tiles_and_tensors():
    text = (
        HEAD
        + """
@pl.jit.inline
def scaled(t, k):
    return t * k

@pl.jit.incore
def doubled(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    y[:] = scaled(x[:, :], 2.0) + scaled(pl.row_max(x), 0.0) @ scaled(pl.col_max(x), 0.0)
    return y

@pl.jit
def program(a: pl.Tensor, tmp: pl.Out[pl.Tensor], out: pl.Out[pl.Tensor]):
    view = doubled(a, tmp)[0:2, :]
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0:2, :] = pl.add(scaled(view[:, :], 3.0), 1.0)
        pl.store(scaled(a[2:4, :], pl.read(scaled(a[:, :], 2.0), [0, 1])), [2, 0], out)
    return doubled(a, tmp)
"""
    )
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    tmp, out = np.zeros_like(a), np.zeros_like(a)
    program = pl.parse(text)
    assert program(a, tmp, out, config=SIM) is tmp
    np.testing.assert_array_equal(tmp, a * 2)
    np.testing.assert_array_equal(out, np.concatenate([a[:2] * 6 + 1, a[2:] * 2]))
    assert program.run(a, tmp, out, config=SIM).tasks == 3


def test_calls_are_made_before_the_statement_from_left_to_right():
    text = (
        HEAD
        + """
@pl.jit.inline
def bump(t):
    t[0] = t[0] * 10 + 1
    return t[0]

@pl.jit.inline
def double(t):
    t[0] = t[0] * 2
    return t[0]

@pl.jit
def program(t: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0] = bump(t) * 1000 + double(t)
"""
    )
    t, out = np.ones(1, np.int64), np.zeros(1, np.int64)
    pl.parse(text)(t, out, config=SIM)
    assert (t[0], out[0]) == (22, 11022)


# -- numbers that are written -----------------------------------------------------------------------------------------------


@PLACES
def test_integers_that_are_carried_meet_integers_of_any_width(place):
    text = """
for (x,) in pl.while_(init_values=(0,)):
    pl.cond(x < n and pl.max(x, n) == n and x != n)
    y = pl.yield_(x + 3)
z = n if y > n else y
w = pl.sel(y > n, y, n)
"""
    lines = "\n".join(("  " if place != "outside" else " ") + line for line in text.strip().splitlines())
    core = " with pl.at(level=pl.Level.CORE_GROUP):\n"
    stores = "".join(f"  out[{k}] = pl.cast({name}, pl.INT16)\n" for k, name in enumerate("yzw"))
    body = f"{lines}\n{core}{stores}" if place == "outside" else f"{core}{lines}\n{stores}"
    program = pl.parse(f"{HEAD}\n@pl.jit\ndef program(n: pl.Scalar[pl.INT32], out: pl.Out[pl.Tensor]):\n{body}")
    out = np.zeros(3, np.int16)
    program(10, out, config=SIM)
    assert out.tolist() == [12, 10, 12]


@PLACES
@pytest.mark.parametrize("dtype", [np.float16, np.float32], ids=lambda d: d.__name__)
def test_floats_that_are_written_take_the_type_of_what_they_meet_also_when_they_are_computed(place, dtype):
    body = """
x = 1.5
y = pl.exp(x) + pl.sqrt(x) * 2.0
for i, (z,) in pl.range(3, init_values=(1.0,)):
    w = pl.yield_(z / 2.0 + pl.rsqrt(y))
v = pl.max(w, 0.25) if n > 0 else 7.0
"""
    text = [" " + line for line in body.strip().splitlines()]
    core = " with pl.at(level=pl.Level.CORE_GROUP):"
    use = "  out[:] = a * v + pl.abs(-x)"
    lines = [*text, core, use] if place == "outside" else [core, *(" " + line for line in text), use]
    program = pl.parse(f"{HEAD}\n@pl.jit\ndef program(a: pl.Tensor, n: pl.Scalar, out: pl.Out[pl.Tensor]):\n" + "\n".join(lines))
    a = np.arange(4, dtype=dtype)
    if place == "outside" and dtype is np.float16:  # a scalar that a task is given has a type of its own
        with pytest.raises(pl.LanguageError, match="pl.FP16 and pl.FP32"):
            program(a, 1, np.zeros_like(a), config=SIM)
        return
    out = np.zeros_like(a)
    program(a, 1, out, config=SIM)
    y = math.exp(1.5) + math.sqrt(1.5) * 2
    z = 1.0
    for _ in range(3):
        z = z / 2 + 1 / math.sqrt(y)
    np.testing.assert_allclose(out, a.astype(np.float64) * max(z, 0.25) + 1.5, rtol=2e-3 if dtype is np.float16 else 1e-6)


@PLACES
def test_an_integer_that_is_too_large_for_a_float_becomes_an_infinity(place):
    assert run(
        "y = pl.cast(10 ** (n + 300), pl.FP32)\nz = pl.cast(-(10 ** (n + 400)), pl.FP32)", place, 100, "", ("y", "z"), np.float32
    ) == [
        np.inf,
        -np.inf,
    ]


def test_arrays_hold_integers_of_any_width():
    body = """
counts = pl.array.create(3, pl.INT32)
for i in pl.range(3):
    counts[i] = i * 5 + n
y = pl.cast(counts[0] * 10000 + counts[1] * 100 + counts[2], pl.INT64)
"""
    assert run(body, n=1) == [1 * 10000 + 6 * 100 + 11]


def test_names_that_generated_code_uses_are_free_for_programs():
    names = "np loc orch window put fits turns some sized joined whole floating ratio rem shl n_blocks range block min abs program"
    unique = names.split()
    body = "\n".join(f"{name} = n + {k}" for k, name in enumerate(unique))
    body += f"\ny = ({' + '.join(unique)}) // n % 1000\nfor some in pl.range(0, 4, n):\n    y = y + some"
    expected = (len(unique) * 3 + sum(range(len(unique)))) // 3 % 1000 + sum(range(0, 4, 3))
    assert run(body, "outside", 3) == run(body, "in a kernel", 3) == [expected]


def test_helpers_of_helpers_are_looked_at_for_the_place_they_belong_to():
    """Inline functions that compute, through others or not, that submit, and that do either depending on where they are."""
    text = (
        HEAD
        + """
@pl.jit.inline
def mean(t):
    return pl.row_sum(t) * 0.25

@pl.jit.inline
def centred(t):
    return pl.row_expand_sub(t, mean(t))

@pl.jit.inline
def fill(x, y):
    y[:] = centred(x[:, :])

@pl.jit.inline
def filled(x, y):
    fill(x, y)

@pl.jit.incore
def kernel(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    filled(x, y)
    return y

@pl.jit.inline
def either(x, y):
    kernel(x, y)

@pl.jit.inline
def inside(x, y):
    either(x, y)
    y[0, 0] = 5.0

@pl.jit
def program(a: pl.Tensor, one: pl.Out[pl.Tensor], two: pl.Out[pl.Tensor]):
    either(a, one)
    with pl.at(level=pl.Level.CORE_GROUP):
        inside(a, two)
"""
    )
    a = np.arange(16, dtype=np.float32).reshape(4, 4) ** 2
    one, two = np.zeros_like(a), np.zeros_like(a)
    pl.parse(text)(a, one, two, config=SIM)
    want = a - a.mean(1, keepdims=True)
    np.testing.assert_allclose(one, want)
    assert two[0, 0] == 5
    np.testing.assert_allclose(two[1:], want[1:])
