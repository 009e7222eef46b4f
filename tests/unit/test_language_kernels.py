"""Every operation of kernels against NumPy."""

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.language.ops import OPS
from ren_lab.runtime import RunConfig

SIM = RunConfig(platform="sim")
NUMPY = {pl.FP32: np.float32, pl.FP16: np.float16, pl.INT8: np.int8, pl.INT16: np.int16, pl.INT32: np.int32, pl.INT64: np.int64,
         pl.UINT8: np.uint8, pl.UINT16: np.uint16, pl.UINT32: np.uint32, pl.UINT64: np.uint64, pl.BOOL: np.bool_}  # fmt: skip


def random(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype is np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(1, 100, shape).astype(dtype)
    return rng.uniform(0.5, 2.0, shape).astype(dtype)


def run(body, out_shape, out_dtype, *inputs):
    """Run `body`, an expression of the inputs a, b, c, in a kernel; the result is stored."""
    names = "abc"[: len(inputs)]
    params = ", ".join(f"{name}: pl.Tensor" for name in names)
    zeros = ", ".join("0" for _ in out_shape)
    text = f"""
import ren_lab.language as pl

@pl.jit
def program({params}, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.store({body}, [{zeros}], out)
"""
    out = np.zeros(out_shape, out_dtype)
    pl.parse(text)(*inputs, out, config=SIM)
    return out


def tolerance(dtype):
    return {np.float16: 2e-3, np.float32: 1e-6}.get(dtype, 0)


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floor_div": "//", "rem": "%", "lt": "<", "le": "<=", "gt": ">",
         "ge": ">=", "eq": "==", "ne": "!=", "and_": "&", "or_": "|", "xor": "^", "shl": "<<", "shr": ">>"}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int32, np.uint16, np.int64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic(name, dtype):
    a, b = random((8, 5), dtype, 1), random((8, 5), dtype, 2)
    expected = BINARY[name](a, b)
    np.testing.assert_array_equal(run(f"pl.{name}(a, b)", (8, 5), dtype, a, b), expected)
    np.testing.assert_array_equal(run(f"pl.{name}(a, 3)", (8, 5), dtype, a), BINARY[name](a, dtype(3)))
    if name in SIGNS:
        np.testing.assert_array_equal(run(f"a[:, :] {SIGNS[name]} b", (8, 5), dtype, a, b), expected)
        np.testing.assert_array_equal(run(f"3 {SIGNS[name]} a[:, :]", (8, 5), dtype, a), BINARY[name](dtype(3), a))


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=lambda d: d.__name__)
@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("exp", np.exp), ("log", np.log), ("sqrt", np.sqrt), ("sin", np.sin), ("cos", np.cos), ("tanh", np.tanh),
        ("neg", np.negative), ("abs", np.abs), ("recip", lambda x: 1 / x), ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("relu", lambda x: np.where(x > 0, x, 0)),
    ],
)  # fmt: skip
def test_functions(name, meaning, dtype):
    a = random((4, 6), dtype)
    if name in ("abs", "relu", "neg"):
        a = a - dtype(1)
    expected = meaning(a.astype(np.float64))
    np.testing.assert_allclose(run(f"pl.{name}(a)", (4, 6), dtype, a), expected, rtol=4 * tolerance(dtype), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=lambda d: d.__name__)
def test_division(dtype):
    a, b = random((4, 4), dtype, 1), random((4, 4), dtype, 2)
    np.testing.assert_array_equal(run("pl.div(a, b)", (4, 4), dtype, a, b), a / b)
    np.testing.assert_array_equal(run("1.0 / b[:, :]", (4, 4), dtype, a, b), dtype(1) / b)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8], ids=lambda d: d.__name__)
@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("floor_div", np.floor_divide),
        ("rem", np.remainder),
        ("and_", np.bitwise_and),
        ("or_", np.bitwise_or),
        ("xor", np.bitwise_xor),
    ],
)
def test_integers(name, meaning, dtype):
    a, b = random((5, 7), dtype, 1), random((5, 7), dtype, 2)
    np.testing.assert_array_equal(run(f"pl.{name}(a, b)", (5, 7), dtype, a, b), meaning(a, b))
    np.testing.assert_array_equal(run(f"a[:, :] {SIGNS[name]} b", (5, 7), dtype, a, b), meaning(a, b))


def test_shifts_and_complements():
    a = random((3, 3), np.int32)
    np.testing.assert_array_equal(run("pl.shl(a, 2)", (3, 3), np.int32, a), a << 2)
    np.testing.assert_array_equal(run("pl.shr(a, 1)", (3, 3), np.int32, a), a >> 1)
    np.testing.assert_array_equal(run("pl.not_(a)", (3, 3), np.int32, a), ~a)
    np.testing.assert_array_equal(run("~a[:, :]", (3, 3), np.int32, a), ~a)
    mask = random((3, 3), np.bool_)
    np.testing.assert_array_equal(run("pl.not_(a)", (3, 3), np.bool_, mask), ~mask)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal)],
)
def test_comparisons(name, meaning):
    a, b = random((6, 6), np.int32, 1) % 3, random((6, 6), np.int32, 2) % 3
    np.testing.assert_array_equal(run(f"pl.{name}(a, b)", (6, 6), np.bool_, a, b), meaning(a, b))
    np.testing.assert_array_equal(run(f"a[:, :] {SIGNS[name]} b", (6, 6), np.bool_, a, b), meaning(a, b))


def test_select():
    a, b, mask = random((4, 4), np.float32, 1), random((4, 4), np.float32, 2), random((4, 4), np.bool_)
    np.testing.assert_array_equal(run("pl.sel(c, a, b)", (4, 4), np.float32, a, b, mask), np.where(mask, a, b))
    np.testing.assert_array_equal(run("pl.sel(c, a, 0.5)", (4, 4), np.float32, a, b, mask), np.where(mask, a, np.float32(0.5)))


@pytest.mark.parametrize("target", NUMPY, ids=lambda t: t.name)
@pytest.mark.parametrize("source", [np.float32, np.int16, np.bool_], ids=lambda d: d.__name__)
def test_casts(source, target):
    a = random((4, 4), source) if source is np.bool_ else (random((4, 4), source) * 3).astype(source)
    np.testing.assert_array_equal(run(f"pl.cast(a, {target!r})", (4, 4), NUMPY[target], a), a.astype(NUMPY[target]))


def test_bfloat16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    a, b = random((8, 8), np.float32, 1).astype(bfloat16), random((8, 8), np.float32, 2).astype(bfloat16)
    np.testing.assert_array_equal(run("pl.mul(a, b)", (8, 8), bfloat16, a, b), a * b)
    np.testing.assert_array_equal(run("pl.add(a, 0.5)", (8, 8), bfloat16, a), a + bfloat16(0.5))
    np.testing.assert_array_equal(run("pl.cast(a, pl.FP32)", (8, 8), np.float32, a), a.astype(np.float32))
    wide = a.astype(np.float32)
    product = run("pl.matmul(a, b, out_dtype=pl.FP32)", (8, 8), np.float32, a, b)
    np.testing.assert_allclose(product, wide @ b.astype(np.float32), rtol=1e-6)
    np.testing.assert_array_equal(run("pl.row_sum(a)", (8, 1), bfloat16, a), wide.sum(1, keepdims=True).astype(bfloat16))
    np.testing.assert_array_equal(run("pl.row_max(a)", (8, 1), bfloat16, a), a.max(1, keepdims=True))
    np.testing.assert_allclose(run("pl.exp(a)", (8, 8), bfloat16, a).astype(np.float32), np.exp(wide), rtol=1e-2)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8], ids=lambda d: d.__name__)
@pytest.mark.parametrize("what", ["sum", "prod", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize(("side", "axis"), [("row", 1), ("col", 0)])
def test_reductions(side, axis, what, dtype):
    a = random((6, 9), dtype)
    out_dtype = np.int32 if what.startswith("arg") else dtype
    if what in ("sum", "prod") and np.issubdtype(dtype, np.integer):
        expected = getattr(np, what)(a, axis=axis, keepdims=True, dtype=dtype)
    elif what in ("sum", "prod"):
        expected = getattr(np, what)(a.astype(np.float64), axis=axis, keepdims=True)
    else:
        expected = getattr(np, what)(a, axis=axis, keepdims=True)
    result = run(f"pl.{side}_{what}(a)", expected.shape, out_dtype, a)
    np.testing.assert_allclose(result, expected, rtol=tolerance(dtype))


def test_narrow_floats_are_summed_in_wide_ones():
    a = np.full((1, 4096), 1.0, np.float16)  # in FP16 the sum would stop at 2048
    assert run("pl.row_sum(a)", (1, 1), np.float16, a)[0, 0] == 4096


@pytest.mark.parametrize(
    ("what", "meaning"),
    [
        ("", lambda t, v: np.broadcast_to(v, t.shape)), ("_add", np.add), ("_sub", np.subtract), ("_mul", np.multiply),
        ("_div", np.divide), ("_max", np.maximum), ("_min", np.minimum), ("_expdif", lambda t, v: np.exp(t - v)),
    ],
)  # fmt: skip
def test_broadcasts(what, meaning):
    a = random((6, 9), np.float32)
    column, row = random((6, 1), np.float32, 1), random((1, 9), np.float32, 2)
    np.testing.assert_allclose(run(f"pl.row_expand{what}(a, b)", (6, 9), np.float32, a, column), meaning(a, column), rtol=1e-6)
    np.testing.assert_allclose(run(f"pl.col_expand{what}(a, b)", (6, 9), np.float32, a, row), meaning(a, row), rtol=1e-6)


def test_matrix_products():
    a, b = random((6, 4), np.float32, 1), random((4, 5), np.float32, 2)
    np.testing.assert_allclose(run("pl.matmul(a, b)", (6, 5), np.float32, a, b), a @ b, rtol=1e-6)
    np.testing.assert_allclose(run("a[:, :] @ b", (6, 5), np.float32, a, b), a @ b, rtol=1e-6)
    at, bt = a.T.copy(), b.T.copy()
    np.testing.assert_allclose(run("pl.matmul(a, b, a_trans=True)", (6, 5), np.float32, at, b), a @ b, rtol=1e-6)
    np.testing.assert_allclose(run("pl.matmul(a, b, b_trans=True)", (6, 5), np.float32, a, bt), a @ b, rtol=1e-6)
    np.testing.assert_allclose(run("pl.matmul(a, b, a_trans=True, b_trans=True)", (6, 5), np.float32, at, bt), a @ b, rtol=1e-6)
    stack_a, stack_b = random((3, 6, 4), np.float32, 3), random((3, 4, 5), np.float32, 4)
    np.testing.assert_allclose(run("pl.matmul(a, b)", (3, 6, 5), np.float32, stack_a, stack_b), stack_a @ stack_b, rtol=1e-6)


def test_products_are_accumulated_wide():
    a = np.full((1, 4096), 1.0, np.float16)
    assert run("pl.matmul(a, b, b_trans=True)", (1, 1), np.float16, a, a)[0, 0] == 4096
    wide = run("pl.matmul(a, b, b_trans=True, out_dtype=pl.FP32)", (1, 1), np.float32, a, a)
    assert wide.dtype == np.float32 and wide[0, 0] == 4096
    small = np.full((2, 2), 100, np.int8)
    assert (run("pl.matmul(a, b, out_dtype=pl.INT32)", (2, 2), np.int32, small, small) == 20000).all()


def test_accumulation_into_a_tile():
    a, b, c = random((6, 4), np.float32, 1), random((4, 5), np.float32, 2), random((6, 5), np.float32, 3)
    np.testing.assert_allclose(run("pl.matmul_acc(c, a, b)", (6, 5), np.float32, a, b, c), c + a @ b, rtol=1e-6)
    half = a.astype(np.float16), b.astype(np.float16)
    expected = c + half[0].astype(np.float32) @ half[1].astype(np.float32)
    np.testing.assert_allclose(run("pl.matmul_acc(c, a, b)", (6, 5), np.float32, *half, c), expected, rtol=1e-6)


def test_shapes():
    a, b = random((6, 4), np.float32, 1), random((6, 4), np.float32, 2)
    np.testing.assert_array_equal(run("pl.reshape(a, [3, 8])", (3, 8), np.float32, a), a.reshape(3, 8))
    np.testing.assert_array_equal(run("pl.transpose(a)", (4, 6), np.float32, a), a.T)
    np.testing.assert_array_equal(run("pl.transpose(a, 0, 1)", (4, 6), np.float32, a), a.T)
    np.testing.assert_array_equal(run("pl.concat(a, b)", (6, 8), np.float32, a, b), np.concatenate((a, b), -1))
    np.testing.assert_array_equal(run("pl.concat(a, b, axis=0)", (12, 4), np.float32, a, b), np.concatenate((a, b), 0))
    np.testing.assert_array_equal(run("pl.slice(a, [2, 3], [1, 1])", (2, 3), np.float32, a), a[1:3, 1:4])
    np.testing.assert_array_equal(run("a[1:3, 1:]", (2, 3), np.float32, a), a[1:3, 1:])
    np.testing.assert_array_equal(run("a[2, :]", (4,), np.float32, a), a[2])
    stack = random((2, 3, 4), np.float32)
    np.testing.assert_array_equal(run("pl.transpose(a, 0, 2)", (4, 3, 2), np.float32, stack), np.swapaxes(stack, 0, 2))


def test_created_tiles():
    a = random((4, 4), np.float32)
    np.testing.assert_array_equal(run("pl.full([4, 4], pl.FP32, 2.5)", (4, 4), np.float32, a), np.full((4, 4), 2.5))
    np.testing.assert_array_equal(run("pl.create_tile([4, 4], pl.INT32)", (4, 4), np.int32, a), np.zeros((4, 4)))
    np.testing.assert_array_equal(run("pl.arange(5)", (1, 5), np.int32, a), np.arange(5)[None, :])
    placed = run("pl.assemble(pl.full([4, 4], pl.FP32, 1.0), a[0:2, 0:2], [1, 2])", (4, 4), np.float32, a)
    expected = np.ones((4, 4), np.float32)
    expected[1:3, 2:4] = a[:2, :2]
    np.testing.assert_array_equal(placed, expected)


@pl.jit
def scalars(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.Scalar, x: pl.Scalar[pl.FP32]):
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.write(out, [0, 0], pl.read(a, [n, 0]))
        out[0, 1] = a[n - 1, n % 2] * x
        big = pl.max(n, 3) if x > 0.5 and not n == 7 else pl.min(n, 2)
        out[0, 2] = pl.cast(big, pl.FP32) + pl.sqrt(x)
        out[0, 3] = pl.cast(n // 2 + (n << 1) - (-n), pl.FP32)


def test_scalars_in_kernels():
    a, out = random((6, 4), np.float32), np.zeros((1, 4), np.float32)
    scalars(a, out, 5, 0.75, config=SIM)
    x = np.float32(0.75)
    np.testing.assert_array_equal(out, [[a[5, 0], a[4, 1] * x, np.float32(5) + np.sqrt(x), np.float32(2 + 10 + 5)]])


@pl.jit
def read_before_write(a: pl.InOut[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        top = pl.load(a, [0, 0], [1, 4])
        bottom = pl.load(a, [1, 0], [1, 4])
        pl.store(bottom, [0, 0], a)
        pl.store(top, [1, 0], a)


def test_a_tile_is_a_value_that_later_writes_do_not_change():
    a = random((2, 4), np.float32)
    expected = a[::-1].copy()
    read_before_write(a, config=SIM)
    np.testing.assert_array_equal(a, expected)


@pl.jit
def carried_over_a_write(a: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.load(a, [0, 0], [1, 4])
        for i in pl.range(3):
            s = pl.add(t, 0.0)
            view = t[:, 0:4]
            pl.store(pl.add(s, 1.0), [0, 0], a)
            pl.store(view, [i, 0], out)


def test_a_view_of_a_tile_is_a_value_too():
    a, out = random((1, 4), np.float32), np.zeros((3, 4), np.float32)
    first = a.copy()
    carried_over_a_write(a, out, config=SIM)
    np.testing.assert_array_equal(out, np.repeat(first, 3, axis=0))
    np.testing.assert_array_equal(a, first + 1)


@pl.jit
def tile_parts(out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.create_tile([4, 4], pl.FP32)
        keep = t
        t[0:2, :] = pl.full([2, 4], pl.FP32, 1.0)
        t[3, 3] = 5.0
        out[0:4, :] = t
        out[4:8, :] = keep


def test_writing_into_a_tile_makes_a_new_one():
    out = np.full((8, 4), 9, np.float32)
    tile_parts(out, config=SIM)
    expected = np.zeros((8, 4), np.float32)
    expected[:2] = 1
    expected[3, 3] = 5
    np.testing.assert_array_equal(out, expected)


def test_floating_point_exceptions_are_silent(recwarn):
    a = np.array([[0.0, -1.0, 1e30]], np.float32)
    out = run("pl.log(a)", (1, 3), np.float32, a)
    assert out[0, 0] == -np.inf and np.isnan(out[0, 1]) and not recwarn.list
    assert run("pl.mul(a, a)", (1, 3), np.float32, a)[0, 2] == np.inf and not recwarn.list


def test_kernels_are_compiled_numpy_code():
    kernel = scalars.compile(random((6, 4), np.float32), np.zeros((1, 4), np.float32), 1, 0.5).kernels
    (made,) = kernel.values()
    assert made.source.startswith(f"def {made.name}(") and callable(made.function)
    assert made.function.__code__.co_filename == __file__


@pytest.mark.parametrize("name", OPS)
def test_operations_have_docstrings_and_refuse_to_run(name):
    operation = getattr(pl, name) if name != "array" else pl.array.create
    assert operation.__doc__
    with pytest.raises(TypeError, match="called by Python"):
        operation()


@pl.jit
def widths(out: pl.Out[pl.Tensor], n: pl.Scalar[pl.INT32], m: pl.Scalar[pl.UINT8]):
    for i in pl.range(n - m):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i * n % 8, 0] = pl.cast(i * n + m, pl.INT32)


def test_integer_scalars_of_any_width_go_together():
    out = np.zeros((8, 1), np.int32)
    widths(out, 5, 2, config=SIM)
    assert out[:, 0].tolist() == [2, 0, 12, 0, 0, 7, 0, 0]
