"""Functions: how they are found, specialized, cached and called; programs; dynamic extents; what a call gives back."""

import threading

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.runtime import RunConfig

SIM = RunConfig(platform="sim")
M = pl.dynamic("M")
A = np.random.default_rng(5).standard_normal((16, 8), dtype=np.float32)


def zeros(shape=(16, 8), dtype=np.float32):
    return np.zeros(shape, dtype)


executed = []


@pl.jit
def never_run(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    """Its text is kept."""
    if a.shape[0] > 4:
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.add(a, 1.0)
    return out


def test_bodies_are_parsed_and_not_executed(monkeypatch):
    monkeypatch.setattr(pl, "add", lambda *_: executed.append(1))
    out = zeros()
    assert never_run(A, out) is out  # on the default platform
    np.testing.assert_array_equal(out, A + 1)
    assert not executed and never_run.__doc__ == "Its text is kept." and never_run.__name__ == "never_run"
    assert repr(never_run).startswith("<@pl.jit never_run at test_language_functions.py:")


# -- kinds of functions -----------------------------------------------------------------------------------------------------


@pl.jit
def uses_what_comes_later(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    out = later(a, out)
    return out


@pl.jit.incore
def later(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    x = pl.load(a, [0, 0], [16, 8])
    y = twice(x)
    out = pl.store(y, [0, 0], out)
    return out


@pl.jit.inline
def twice(x):
    y = pl.add(x, x)
    return y


def test_functions_are_found_by_name_when_they_are_called():
    out = zeros()
    assert uses_what_comes_later(A, out, config=SIM) is out
    np.testing.assert_array_equal(out, A * 2)


def test_a_kernel_can_be_called_on_its_own():
    out = zeros()
    assert later(A, out, config=SIM) is out
    np.testing.assert_array_equal(out, A * 2)
    assert [ring.tasks for ring in later.run(A, out, config=SIM).rings] == [1, 0, 0, 0]


def test_an_inline_function_has_no_call_of_its_own():
    with pytest.raises(pl.LanguageError, match="no call of its own"):
        twice(A)


@pl.jit.opaque
def opaque(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(2):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i * 8 : (i + 1) * 8, :] = pl.mul(a[i * 8 : (i + 1) * 8, :], 3.0)
    return out


@pl.jit
def calls_opaque(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    out = opaque(a, out)
    return out


def test_an_opaque_function_is_one_kernel_whatever_it_holds():
    out = zeros()
    assert calls_opaque.run(A, out, config=SIM).tasks == 1
    np.testing.assert_array_equal(out, A * 3)
    (kernel,) = calls_opaque.compile(A, out).kernels
    assert kernel == "opaque"


@pl.jit
def chip(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(2):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i * 8 : (i + 1) * 8, :] = pl.add(a[i * 8 : (i + 1) * 8, :], 1.0)
    return out


@pl.jit.host
def host(a: pl.Tensor, mid: pl.Out[pl.Tensor], out: pl.Out[pl.Tensor]):
    mid = chip(a, mid)
    result = chip(mid, out)
    return result


def test_a_host_function_calls_entries():
    mid, out = zeros(), zeros()
    report = host.run(A, mid, out, config=SIM)
    assert report.result is out and [ring.tasks for ring in report.rings] == [0, 0, 4, 0]
    np.testing.assert_array_equal(out, A + 1 + 1)
    assert "level=pl.Level.HOST" in host.lower(A, mid, out).as_python()


@pl.program
class Adder:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(self, a, out):
        pl.store(pl.add(pl.load(a, [0, 0], [16, 8]), pl.load(out, [0, 0], [16, 8])), [0, 0], out)
        return out

    @pl.function(type=pl.FunctionType.Inline)
    def thrice(self, a, out):
        for _ in pl.range(3):
            out = self.kernel(a, out)
        return out

    @pl.function(type=pl.FunctionType.Orchestration)
    def orch(self, a, out):
        out = self.thrice(a, out)
        return out


def test_a_program_is_a_class_whose_functions_call_each_other_through_self():
    out = zeros()
    assert Adder(A, out, config=SIM) is out
    np.testing.assert_allclose(out, A * 3, rtol=1e-6)
    text = Adder.lower(A, out).as_python()
    assert "class Adder" in text and "out, _ = pl.submit(self.kernel, a, out" in text
    assert set(Adder.functions) == {"kernel", "thrice", "orch"} and Adder.as_python().startswith("import ren_lab.language as pl")


def test_directions_of_parameters_without_annotations_come_from_the_body():
    params = Adder.lower(A, zeros()).program["kernel"].params
    assert [p.annotation.direction and p.annotation.direction.name for p in params] == [None, "InOut"]


def test_a_program_needs_one_place_to_begin():
    with pytest.raises(pl.LanguageError, match="functions where a run could begin: one, two"):

        @pl.program
        class Two:
            @pl.function(type=pl.FunctionType.Orchestration)
            def one(self, a):
                pass

            @pl.function(type=pl.FunctionType.Orchestration)
            def two(self, a):
                pass

    with pytest.raises(TypeError, match="decorate a class"):
        pl.program(3)


@pl.jit.inline
def swap(x, y, n):
    local = pl.add(x, 1.0)
    t = pl.mul(local, n)
    return y, t


@pl.jit
def splices_twice(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.Scalar[pl.FP32]):
    with pl.at(level=pl.Level.CORE_GROUP):
        local = pl.load(a, [0, 0], [16, 8])
        t = pl.mul(local, 2.0)
        first, second = swap(local, t, n)
        third, fourth = swap(second, first, 0.5)
        pl.store(pl.add(pl.add(third, fourth), pl.add(local, t)), [0, 0], out)


def test_names_of_spliced_functions_do_not_capture_those_of_their_callers():
    out = zeros()
    splices_twice(A, out, 3.0, config=SIM)
    first, second = A * 2, (A + 1) * np.float32(3)
    third, fourth = first, (second + 1) * np.float32(0.5)
    np.testing.assert_allclose(out, third + fourth + A + A * 2, rtol=1e-6)


def test_recursion_is_an_error():
    text = """
import ren_lab.language as pl

@pl.program
class Loop:
    @pl.function(type=pl.FunctionType.Inline)
    def again(self, a):
        self.again(a)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(self, a):
        self.again(a)
"""
    with pytest.raises(pl.LanguageError, match="calls itself"):
        pl.parse(text)


# -- specialization ---------------------------------------------------------------------------------------------------------


@pl.jit
def any_rows(a: pl.Tensor[[M, 8], pl.FP32], out: pl.Out[pl.Tensor[[M, 8], pl.FP32]]):
    for i in pl.range(M // 4):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i * 4 : (i + 1) * 4, :] = pl.mul(a[i * 4 : (i + 1) * 4, :], 2.0)
    with pl.at(level=pl.Level.CORE_GROUP):
        out[M - 1, 0] = pl.cast(M, pl.FP32)
    return out


@pytest.mark.parametrize("platform", ["sim", "cpu"])
def test_a_dynamic_extent_compiles_nothing_anew(platform):
    compiled = any_rows.compile(A[:4], zeros((4, 8)))
    for rows in (4, 8, 16):
        out = zeros((rows, 8))
        assert any_rows.compile(A[:rows], out) is compiled
        any_rows(A[:rows], out, config=RunConfig(platform=platform))
        expected = A[:rows] * 2
        expected[-1, 0] = rows
        np.testing.assert_array_equal(out, expected)
    assert "M = pl.dynamic('M')" in compiled.as_python() and "pl.Tensor[[M, 8], pl.FP32]" in compiled.as_python()


def test_one_dynamic_extent_is_one_number_per_call():
    with pytest.raises(pl.LanguageError, match="extent M .* is 8, and that of 'a' is 4"):
        any_rows(A[:4], zeros((8, 8)))


def test_two_extents_of_one_name_are_two_extents():
    first, second = pl.dynamic("R"), pl.dynamic("R")

    @pl.jit
    def kernel(a: pl.Tensor[[first, 8], pl.FP32], b: pl.Tensor[[second, 8], pl.FP32], out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[0:1, :] = pl.add(pl.col_sum(a), pl.col_sum(b))

    out = zeros((1, 8))
    kernel(A[:4], A[:12], out, config=SIM)
    np.testing.assert_allclose(out[0], A[:4].sum(0) + A[:12].sum(0), rtol=1e-5)
    text = kernel.lower(A[:4], A[:12], out).as_python()
    assert "R = pl.dynamic('R')" in text and "R_1 = pl.dynamic('R_1')" in text and pl.parse(text)


def test_other_extents_and_types_are_compiled_once_each():
    out = zeros()
    first = never_run.compile(A, out)
    assert never_run.compile(A + 1, out) is first  # values do not matter
    assert never_run.compile(A[:8], out[:8]) is not first
    assert never_run.compile(A.astype(np.float16), out.astype(np.float16)) is not first


def test_strides_do_not_matter():
    big = np.zeros((32, 16), np.float32)
    view = big[::2, ::2]
    never_run(A, view, config=SIM)
    np.testing.assert_array_equal(view, A + 1)
    assert never_run.compile(A, view) is never_run.compile(A, zeros())


@pl.jit
def numbers(out: pl.Out[pl.Tensor], n: pl.Scalar, x: pl.Scalar[pl.FP32], flag: pl.Scalar[pl.BOOL]):
    if flag:
        with pl.at(level=pl.Level.CORE_GROUP):
            out[0, 0] = x * x
    else:
        with pl.at(level=pl.Level.CORE_GROUP):
            out[0, 0] = pl.cast(n, pl.FP32)


def test_numbers_are_given_at_each_call():
    out = zeros((1, 1))
    compiled = numbers.compile(out, 1, 1.0, True)
    numbers(out, 3, 1.1, True, config=SIM)
    assert out[0, 0] == np.float32(1.1) * np.float32(1.1)
    numbers(out, np.int64(7), 1, np.bool_(False), config=SIM)
    assert out[0, 0] == 7 and numbers.compile(out, 9, 2.0, False) is compiled


@pl.jit
def two_shapes(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    total(a, out, 0)
    total(b, out, 1)


@pl.jit.incore
def total(x: pl.Tensor, out: pl.Out[pl.Tensor], row: pl.Scalar):
    out[row : row + 1, 0:1] = pl.row_sum(pl.col_sum(x))


def test_a_kernel_is_specialized_per_kind_of_arguments():
    out = zeros((2, 1))
    two_shapes(A, A[:4], out, config=SIM)
    np.testing.assert_allclose(out[:, 0], [A.sum(), A[:4].sum()], rtol=1e-4)
    assert set(two_shapes.compile(A, A[:4], out).kernels) == {"total", "total_1"}
    assert set(two_shapes.compile(A, A, out).kernels) == {"total"}


def test_the_same_block_twice_is_one_kernel():
    text = """
import ren_lab.language as pl

@pl.jit
def program(out: pl.Out[pl.Tensor]):
    for i in pl.unroll(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[0, 0] = 1.0
"""
    assert len(pl.parse(text).compile(zeros()).kernels) == 1


def test_values_that_are_captured_are_those_at_decoration():
    size = 4
    sizes = (2, 8)

    class Config:
        rows = np.int64(2)

    @pl.jit
    def captures(out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[0 : Config.rows, :] = pl.full([sizes[0], sizes[-1]], pl.FP32, size * 0.5)

    size = 6
    out = zeros()
    captures(out, config=SIM)
    assert (out[:2] == 2).all() and not out[2:].any() and size == 6


def test_a_captured_flag_takes_its_branch_when_the_program_is_parsed():
    wide = False

    @pl.jit
    def chooses(a: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP):
            if wide:
                x = pl.yield_(pl.cast(a, pl.FP16))
            else:
                x = pl.yield_(pl.mul(a, 2.0))
            out[:] = x

    out = zeros()
    chooses(A, out, config=SIM)
    np.testing.assert_array_equal(out, A * 2)


# -- what a call gives back -------------------------------------------------------------------------------------------------


@pl.jit
def gives_back(a: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor], n: pl.Scalar):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = pl.add(a, 1.0)
    half = out[0:8, :]
    m = n + 1
    return out, half, m, a


@pytest.mark.parametrize("platform", ["sim", "cpu"])
def test_returned_tensors_are_the_ones_that_were_given(platform):
    a, out = A.copy(), zeros()
    first, half, m, last = gives_back(a, out, 4, config=RunConfig(platform=platform))
    assert first is out and last is a and m == 5
    assert half.base is out and half.shape == (8, 8)


@pl.jit
def gives_nothing(out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0, 0] = 1.0


def test_a_function_without_return_gives_none():
    assert gives_nothing(zeros(), config=SIM) is None


def test_run_gives_the_report():
    report = chip.run(A, zeros(), config=SIM, timeline=True)
    assert report.tasks == 2 and [span.name for span in report.timeline.tasks] == [next(iter(chip.compile(A, zeros()).kernels))] * 2


def test_an_exception_in_a_kernel_shows_the_users_line():
    text = """
import ren_lab.language as pl

@pl.jit
def program(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.Scalar):
    with pl.at(level=pl.Level.CORE_GROUP):
        x = pl.create_tile([n, 4], pl.FP32)
        out[0, 0] = 1.0
"""
    from ren_lab.runtime import TaskError

    with pytest.raises(TaskError) as e:
        pl.parse(text, "broken.py")(A, zeros(), 2**50, config=SIM)  # more than any machine has
    cause = e.value.__cause__
    frame = cause.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    assert isinstance(cause, MemoryError) and (frame.tb_frame.f_code.co_filename, frame.tb_lineno) == ("broken.py", 7)


def test_calls_from_several_threads():
    outs = [zeros() for _ in range(4)]
    threads = [
        threading.Thread(target=chip, args=(A, out), kwargs={"config": RunConfig(platform="cpu", workers=2)}) for out in outs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((out == A + 1).all() for out in outs)


# -- element types ----------------------------------------------------------------------------------------------------------


def test_element_types():
    assert repr(pl.FP32) == "pl.FP32" and pl.FP16.nbytes == 2 and pl.FP32.get_byte() == 4 and pl.BOOL.nbytes == 1
    assert pl.INT8.limits == (-128, 127) and pl.UINT16.limits == (0, 65535) and pl.INDEX is pl.INT64
    with pytest.raises(ValueError, match="no integer limits"):
        _ = pl.FP32.limits
    with pytest.raises(TypeError, match="no element type"):
        _ = pl.TASK_ID.numpy


def test_bf16_says_what_it_needs(monkeypatch):
    import sys

    from ren_lab.language.dtypes import DType

    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="pip install ml_dtypes"):
        _ = DType("BF16", "f", 16).numpy


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (lambda: pl.Tensor[4], TypeError, "a list of extents and an element type"),
        (lambda: pl.Tensor[[], pl.FP32], TypeError, "at least one extent"),
        (lambda: pl.Tensor[[4], 3], TypeError, "element type is 3"),
        (lambda: pl.Tensor[["M"], pl.FP32], TypeError, "the extent 'M' is a str"),
        (lambda: pl.Tensor[[0], pl.FP32], ValueError, "below 1"),
        (lambda: pl.Out[pl.Scalar], TypeError, "only tensors have directions"),
        (lambda: pl.Out[pl.InOut[pl.Tensor]], TypeError, "one direction is enough"),
        (lambda: pl.Scalar[4], TypeError, "element type"),
        (lambda: pl.Array[0, pl.INT32], ValueError, "at least 1"),
        (lambda: pl.dynamic("two words"), ValueError, "identifier"),
    ],
)
def test_annotations_refuse_nonsense(make, kind, says):
    with pytest.raises(kind, match=says):
        make()


def test_every_name_of_the_package_is_described():
    for name in pl.__all__:
        value = getattr(pl, name)
        assert value.__doc__ or isinstance(value, tuple | pl.DType), name


def test_annotations_may_be_strings(tmp_path, monkeypatch):
    (tmp_path / "late_annotations.py").write_text(
        "from __future__ import annotations\n"
        "import ren_lab.language as pl\n"
        "M = pl.dynamic('M')\n"
        "@pl.jit\n"
        "def f(a: pl.Tensor[[M, 8], pl.FP32], out: 'pl.Out[pl.Tensor]'):\n"
        "    with pl.at(level=pl.Level.CORE_GROUP):\n"
        "        out[:] = pl.add(a, 1.0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from late_annotations import f

    out = zeros()
    f(A, out, config=SIM)
    np.testing.assert_array_equal(out, A + 1)
    assert f.template.function.params[0].annotation.shape[0].name == "M"


@pl.jit
def tripled(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.store(pl.mul(pl.load(a, [0, 0], [4, 8]), 3.0), [0, 0], out)
    return out


def test_arguments_may_be_named():
    a, out = np.ones((4, 8), np.float32), np.zeros((4, 8), np.float32)
    tripled(out=out, a=a, config=RunConfig(platform="sim"))
    assert (out == 3).all()
    assert tripled.run(a, out=out, config=RunConfig(platform="sim")).tasks == 1
    assert tripled.compile(a, out=out) is tripled.compile(a, out)
    assert tripled.lower(out=out, a=a).as_python() == tripled.lower(a, out).as_python()


@pytest.mark.parametrize(
    ("args", "named", "words"),
    [((1, 2), {"b": 3}, "no parameter 'b'"), ((1,), {"a": 3}, "by position and by name"), ((), {"a": 3}, "was not given 'out'")],
)
def test_named_arguments_that_do_not_fit(args, named, words):
    with pytest.raises(TypeError, match=words):
        tripled(*args, **named)
