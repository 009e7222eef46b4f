"""Tasks: what is inferred, what is declared, ids and arrays of them, and blocks."""

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.runtime import RunConfig

N, TR, TC = 4, 4, 8
A = np.random.default_rng(3).standard_normal((N * TR, TC), dtype=np.float32)
BOTH = pytest.mark.parametrize("platform", ["sim", "cpu"])


def zeros():
    return np.zeros((N * TR, TC), np.float32)


def spans(kernel, *args, **fields):
    """Tasks of a run, by id: (name, producers)."""
    report = kernel.run(*args, config=RunConfig(**{"platform": "sim", **fields}), timeline=True)
    return {span.task_id: (span.name, span.producers) for span in report.timeline.tasks}


@pl.jit(auto_scope=False)
def pipeline(a: pl.Tensor, mid: pl.Out[pl.Tensor], out: pl.Out[pl.Tensor]):
    with pl.scope():
        for i in pl.range(N):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="first"):
                mid[i * TR : (i + 1) * TR, :] = pl.mul(a[i * TR : (i + 1) * TR, :], 2.0)
        for i in pl.range(N):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="second"):
                out[i * TR : (i + 1) * TR, :] = pl.add(mid[i * TR : (i + 1) * TR, :], 1.0)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="last"):
            out[0:1, :] = pl.col_sum(mid)


def test_each_pl_at_that_is_reached_is_one_task_and_overlap_makes_the_edges():
    found = spans(pipeline, A, zeros(), zeros())
    assert [found[k][0] for k in range(9)] == ["first"] * 4 + ["second"] * 4 + ["last"]
    assert all(found[k][1] == () for k in range(4))
    assert [found[k][1] for k in range(4, 8)] == [(k - 4,) for k in range(4, 8)]  # its own tile, not the whole tensor
    assert found[8][1] == (0, 1, 2, 3, 4)


@BOTH
def test_order_follows_the_memory_that_is_touched(platform):
    mid, out = zeros(), zeros()
    pipeline(A, mid, out, config=RunConfig(platform=platform, workers=4))
    np.testing.assert_array_equal(mid, A * 2)
    np.testing.assert_array_equal(out[1:], A[1:] * 2 + 1)


@pl.jit
def write_after_read(a: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = a
    with pl.at(level=pl.Level.CORE_GROUP):
        a[:] = pl.full([N * TR, TC], pl.FP32, 0.0)
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0, 0] = 7.0


def test_write_after_read_and_write_after_write_are_edges_too():
    found = spans(write_after_read, A.copy(), zeros())
    assert [found[k][1] for k in range(3)] == [(), (0,), (0,)]


# -- declared edges ---------------------------------------------------------------------------------------------------------


@pl.jit
def declared(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP) as first:
        out[0:1, :] = a[0:1, :]
    with pl.at(level=pl.Level.CORE_GROUP, deps=[first]) as second:
        out[1:2, :] = b[0:1, :]
    with pl.spmd(2, deps=[first, second]) as third:
        k = pl.tile.get_block_idx()
        out[2 + k : 3 + k, :] = a[0:1, :]
    for k in pl.spmd(2, deps=[third, None]):
        out[4 + k : 5 + k, :] = a[0:1, :]


def test_deps_are_added_to_what_is_inferred():
    found = spans(declared, A, A, zeros())
    assert [found[k][1] for k in range(4)] == [(), (0,), (0, 1), (2,)]


@pl.jit.incore
def copy_tile(a: pl.Tensor, out: pl.Out[pl.Tensor], i: pl.Scalar):
    out = pl.store(pl.load(a, [i * TR, 0], [TR, TC]), [i * TR, 0], out)
    return out


@pl.jit
def submitted(a: pl.Tensor, mid: pl.Out[pl.Tensor], out: pl.Out[pl.Tensor]):
    with pl.manual_scope():
        tids = pl.array.create(N, pl.TASK_ID)
        for i in pl.range(N):
            tids[i] = None
            mid, tid = pl.submit(copy_tile, a, mid, i)
            tids[i] = tid
        last = pl.submit(copy_tile, mid, out, 0, deps=[tids[0]])
        for i in pl.range(1, N):
            last = pl.submit(copy_tile, mid, out, i, deps=[last, tids])
    return out


def test_submit_returns_the_tasks_id_behind_the_results():
    found = spans(submitted, A, zeros(), zeros())
    assert found[4][1] == (0,)
    assert [found[k][1] for k in range(5, 8)] == [(0, 1, 2, 3, k - 1) for k in range(5, 8)]


@BOTH
def test_arrays_of_task_ids_are_waited_for(platform):
    mid, out = zeros(), zeros()
    submitted(A, mid, out, config=RunConfig(platform=platform, workers=3))
    np.testing.assert_array_equal(out, A)


@pl.jit
def racing(a: pl.Tensor, mid: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
    with pl.manual_scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            mid[:] = pl.mul(a, 2.0)
        with pl.at(level=pl.Level.CORE_GROUP):
            out[0:1, :] = mid[a.shape[0] - 1 :, :]


def test_a_manual_scope_infers_nothing_and_a_missing_dep_is_a_race():
    found = spans(racing, A, zeros(), zeros())
    assert [found[k][1] for k in range(2)] == [(), ()]
    large = np.ones((4096, TC), np.float32)
    out = np.ones_like(large)
    racing(large, np.zeros_like(large), out, config=RunConfig(platform="sim"))
    assert not out[0].any()  # the small reader ends first and sees the old values


@pl.jit
def after_manual(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.manual_scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = a
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = pl.mul(out, 2.0)


def test_what_comes_behind_a_manual_scope_is_ordered_after_it():
    assert spans(after_manual, A, zeros())[1][1] == (0,)


@pl.jit
def submit_blocks(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.Scalar):
    tid = pl.submit(block_copy, a, out, blocks=n)
    with pl.at(level=pl.Level.CORE_GROUP, deps=[tid]):
        out[0, 0] = 1.0


@pl.jit.incore
def block_copy(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    k = pl.tile.get_block_idx()
    each = N * TR // pl.get_block_num()
    for r in pl.range(each):
        out[k * each + r, :] = a[k * each + r, :]


@BOTH
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_blocks_of_a_submitted_kernel(platform, blocks):
    out = zeros()
    submit_blocks(A, out, blocks, config=RunConfig(platform=platform))
    expected = A.copy()
    expected[0, 0] = 1
    np.testing.assert_array_equal(out, expected)


# -- spmd -------------------------------------------------------------------------------------------------------------------


@pl.jit
def spmd_loop(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.Scalar):
    for i in pl.spmd(n, name_hint="each"):
        out[i * TR : (i + 1) * TR, :] = pl.mul(a[i * TR : (i + 1) * TR, :], pl.cast(i, pl.FP32))
    return out


@pl.jit
def spmd_with(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.Scalar):
    with pl.spmd(n, name_hint="each"):
        i = pl.tile.get_block_idx()
        out[i * TR : (i + 1) * TR, :] = pl.mul(a[i * TR : (i + 1) * TR, :], pl.cast(i, pl.FP32))
    return out


@pl.jit
def spmd_kernel(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.Scalar):
    with pl.spmd(n):
        each(a, out)
    return out


@pl.jit.incore
def each(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    i = pl.tile.get_block_idx()
    out[i * TR : (i + 1) * TR, :] = pl.mul(a[i * TR : (i + 1) * TR, :], pl.cast(i, pl.FP32))


@BOTH
@pytest.mark.parametrize("kernel", [spmd_loop, spmd_with, spmd_kernel], ids=lambda k: k.__name__)
def test_both_forms_of_spmd(kernel, platform):
    out = zeros()
    kernel(A, out, 3, config=RunConfig(platform=platform))
    np.testing.assert_array_equal(out, A * np.repeat(np.float32([0, 1, 2, 0]), TR)[:, None])
    report = kernel.run(A, zeros(), 3, config=RunConfig(platform="sim"), timeline=True)
    assert report.tasks == 1 and [span.block for span in report.timeline.tasks] == [0, 1, 2]


@pl.jit
def idle_blocks(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.spmd(3) as tid:
        out[:] = pl.mul(a, 2.0)
    with pl.spmd(2, deps=[tid]):
        out[0, 0] = 7.0


@BOTH
def test_blocks_that_do_not_ask_which_they_are_all_do_the_same(platform):
    a, out = np.ones((4, 4), np.float32), np.zeros((4, 4), np.float32)
    report = idle_blocks.run(a, out, config=RunConfig(platform=platform, workers=4), timeline=True)
    assert out[0, 0] == 7 and (out.ravel()[1:] == 2).all() and report.tasks == 2
    assert sorted(span.block for span in report.timeline.tasks) == [0, 0, 1, 1, 2]


def test_blocks_run_on_a_chip_with_clusters():
    out = zeros()
    report = spmd_loop.run(A, out, 4, config=RunConfig(platform="a2a3"), timeline=True)
    lanes = {report.lanes[span.lane] for span in report.timeline.tasks}
    assert len(lanes) == 4 and all(lane.startswith("AIV") for lane in lanes)


@pl.jit
def product(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = pl.matmul(a, a, b_trans=True)


def test_matrix_products_run_on_cube_cores():
    out = np.zeros((N * TR, N * TR), np.float32)
    report = product.run(A, out, config=RunConfig(platform="a2a3"), timeline=True)
    assert report.lanes[report.timeline.tasks[0].lane].startswith("AIC")
    np.testing.assert_allclose(out, A @ A.T, rtol=1e-4, atol=1e-5)


# -- reading while submitting -----------------------------------------------------------------------------------------------


@pl.jit
def steered(a: pl.Tensor, count: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        count[0] = pl.cast(pl.read(a, [0, 0]) > 0.0, pl.INT32) + 2
    for i in pl.range(pl.read(count, [0])):
        if count[0] > 2:
            with pl.at(level=pl.Level.CORE_GROUP):
                out[i, :] = a[i, :]
        else:
            with pl.at(level=pl.Level.CORE_GROUP):
                out[i, :] = pl.mul(a[i, :], -1.0)
    return out


@BOTH
@pytest.mark.parametrize("sign", [1, -1])
def test_a_program_that_reads_an_element_waits_for_its_writers(platform, sign):
    a, count, out = np.abs(A) * sign, np.full(1, 1000, np.int32), zeros()  # before it is written it is no number of rows
    steered(a, count, out, config=RunConfig(platform=platform))
    rows = 3 if sign > 0 else 2
    np.testing.assert_array_equal(out[:rows], np.abs(A)[:rows])
    assert not out[rows:].any() and count[0] == rows


@pl.jit
def views(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    top, bottom = a[0 : TR * 2, :], a[TR * 2 :, :]
    turned = pl.transpose(pl.slice(out, [TR * 2, TC], [0, 0]))
    flat = pl.reshape(out, [N * TR * TC])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="writes_turned"):
        turned[:] = pl.transpose(pl.add(top, bottom))
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="writes_flat"):
        flat[0:2] = pl.full([2], pl.FP32, 5.0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="elsewhere"):
        flat[N * TR * TC - 2 :] = pl.full([2], pl.FP32, 6.0)


def test_views_outside_kernels_share_memory_and_order_tasks():
    out = zeros()
    found = spans(views, A, out)
    expected = np.zeros_like(A)
    expected[: TR * 2] = A[: TR * 2] + A[TR * 2 :]
    expected[0, :2] = 5
    expected[-1, -2:] = 6
    np.testing.assert_array_equal(out, expected)
    assert found[1][1] == (0,) and found[2][1] == ()


@pl.jit
def ping_pong(a: pl.InOut[pl.Tensor], b: pl.InOut[pl.Tensor], n: pl.Scalar):
    source, target = a, b
    for _ in pl.range(n):
        with pl.at(level=pl.Level.CORE_GROUP):
            target[:] = pl.add(source, 1.0)
        source, target = target, source
    return source


@BOTH
@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_names_may_change_which_tensor_they_mean(platform, n):
    a, b = zeros(), zeros()
    result = ping_pong(a, b, n, config=RunConfig(platform=platform))
    assert result is (b if n % 2 else a)
    assert (result == n).all()


@pl.jit
def reads_too_early(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = pl.add(a, 1.0)
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = pl.add(out, 1.0)


def test_reading_an_out_parameter_that_nothing_has_written_is_a_warning():
    with pytest.warns(pl.LanguageWarning, match=r"reads what nothing has written yet: 'out' is an Out.*pl\.InOut") as caught:

        @pl.jit
        def wrong(a: pl.Tensor, out: pl.Out[pl.Tensor]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.add(out, a)

    assert caught[0].filename == __file__ and len(caught) == 1
    with pytest.warns(pl.LanguageWarning, match="the tensor created at line"):

        @pl.jit
        def also_wrong(out: pl.Out[pl.Tensor]):
            tmp = pl.create_tensor([4, 4], dtype=pl.FP32)
            with pl.at(level=pl.Level.CORE_GROUP):
                out[0:4, 0:4] = tmp
