"""The four rings as a program sees them, one statement after the other: placement, rebalancing, measuring, sizing, streaming."""

import json
import warnings

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.runtime import RingCapacityError, RunConfig

BOTH = pytest.mark.parametrize("platform", ["sim", "cpu"])
PARTS, TALL, WIDE = 4, 8, 16
ROWS = PARTS * TALL
A = np.random.default_rng(5).standard_normal((ROWS, WIDE), dtype=np.float32)
SIM = RunConfig(platform="sim")
TILE_BYTES = TALL * WIDE * 4


def run(kernel, platform="sim", **sizes):
    """A run of a kernel that makes 2 a + 1, with its report."""
    out = np.zeros_like(A)
    report = kernel.run(A, out, config=RunConfig(platform=platform, **sizes), timeline=True)
    np.testing.assert_allclose(out, A * 2 + 1, rtol=1e-6)
    return report


def stats(tmp_path, kernel, **sizes):
    """(metadata, samples) of the statistics of a run."""
    out = np.zeros_like(A)
    kernel(A, out, config=RunConfig(platform="sim", enable_scope_stats=True, save_kernels=True, work_dir=tmp_path, **sizes))
    lines = (tmp_path / "dfx_outputs" / "scope_stats" / "scope_stats.jsonl").read_text().splitlines()
    return json.loads(lines[0]), [json.loads(line) for line in lines[1:]]


# -- placement --------------------------------------------------------------------------------------------------------------


@pl.jit
def flat(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    """One kernel with a loop inside: nothing to wrap but the function."""
    with pl.at(level=pl.Level.CORE_GROUP):
        for part in pl.range(PARTS):
            tile = pl.load(a, [part * TALL, 0], [TALL, WIDE])
            pl.store(pl.add(pl.mul(tile, 2.0), 1.0), [part * TALL, 0], out)
    return out


@pl.program
class Looped:
    """A kernel of its own, called in a loop, in a program class."""

    @pl.function(type=pl.FunctionType.InCore)
    def step(self, a: pl.Tensor, part: pl.Scalar, out: pl.Out[pl.Tensor]):
        tile = pl.load(a, [part * TALL, 0], [TALL, WIDE])
        out = pl.store(pl.add(pl.mul(tile, 2.0), 1.0), [part * TALL, 0], out)
        return out

    @pl.function(type=pl.FunctionType.Orchestration)
    def steps(self, a, out):
        for part in pl.range(PARTS):
            out = self.step(a, part, out)
        return out


@pl.jit(auto_scope=False)
def rebalanced(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    """The first phase in ring 0, the second in ring 1."""
    with pl.scope():
        for part in pl.range(PARTS):
            with pl.at(level=pl.Level.CORE_GROUP):
                tile = pl.load(a, [part * TALL, 0], [TALL, WIDE])
                pl.store(pl.mul(tile, 2.0), [part * TALL, 0], out)
        with pl.scope():
            with pl.at(level=pl.Level.CORE_GROUP):
                for part in pl.range(PARTS):
                    tile = pl.load(out, [part * TALL, 0], [TALL, WIDE])
                    pl.store(pl.add(tile, 1.0), [part * TALL, 0], out)
    return out


@pl.jit(auto_scope=False)
def beside_one_another(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.mul(a, 2.0)
    with pl.scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.add(out, 1.0)
    return out


def test_the_compiler_wraps_the_function_and_each_body_of_a_loop_in_an_auto_scope():
    text = Looped.lower(A, np.zeros_like(A)).as_python()
    body = text[text.index("def steps") :].splitlines()
    assert [line.strip() for line in body[1:4]] == ["with pl.scope():", f"for part in pl.range({PARTS}):", "with pl.scope():"]
    assert "@pl.function(type=pl.FunctionType.Orchestration, auto_scope=False)" in text
    assert [ring.tasks for ring in run(Looped).rings] == [0, PARTS, 0, 0]


def test_what_the_compiler_places_is_what_one_would_write_by_hand():
    @pl.program
    class Looped:
        @pl.function(type=pl.FunctionType.InCore)
        def step(self, a: pl.Tensor, part: pl.Scalar, out: pl.Out[pl.Tensor]):
            tile = pl.load(a, [part * TALL, 0], [TALL, WIDE])
            out = pl.store(pl.add(pl.mul(tile, 2.0), 1.0), [part * TALL, 0], out)
            return out

        @pl.function(type=pl.FunctionType.Orchestration, auto_scope=False)
        def steps(self, a, out):
            with pl.scope():
                for part in pl.range(PARTS):
                    with pl.scope():
                        out = self.step(a, part, out)
                return out

    assert Looped.lower(A, np.zeros_like(A)).program == globals()["Looped"].lower(A, np.zeros_like(A)).program
    assert [ring.tasks for ring in run(Looped).rings] == [0, PARTS, 0, 0]


def test_a_flat_function_leaves_three_rings_idle_and_mapped():
    report = run(flat)
    assert [ring.tasks for ring in report.rings] == [1, 0, 0, 0] and all(report.mapped_bytes)


def test_ring_0_overflows_while_the_others_are_free_and_the_error_says_so():
    @pl.jit(auto_scope=False)
    def crowded(a: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.scope():
            for part in pl.range(ROWS):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[part, :] = pl.mul(a[part, :], 2.0)

    with pytest.raises(RingCapacityError, match="ring 0"):
        crowded(A, np.zeros_like(A), config=RunConfig(platform="sim", ring_task_window=16))


@pl.jit
def deep(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(2):
        for j in pl.range(2):
            for k in pl.range(2):
                for m in pl.range(2):
                    with pl.at(level=pl.Level.CORE_GROUP):
                        row = i * 8 + j * 4 + k * 2 + m
                        out[row, :] = pl.mul(a[row, :], 2.0)


@pl.jit(auto_scope=False)
def hoisted(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.scope():
        for i in pl.range(2):
            with pl.scope():
                for j in pl.range(2):
                    for k in pl.range(2):
                        for m in pl.range(2):
                            with pl.at(level=pl.Level.CORE_GROUP):
                                row = i * 8 + j * 4 + k * 2 + m
                                out[row, :] = pl.mul(a[row, :], 2.0)


@pl.jit
def flattened(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0, :] = pl.mul(a[0, :], 2.0)
    for row in pl.range(1, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[row, :] = pl.mul(a[row, :], 2.0)


def test_deep_nesting_piles_tasks_onto_ring_3_and_flattening_or_hoisting_spreads_them():
    for kernel, rings in ((deep, [0, 0, 0, 16]), (hoisted, [0, 16, 0, 0]), (flattened, [1, 15, 0, 0])):
        out = np.zeros_like(A)
        report = kernel.run(A, out, config=SIM)
        np.testing.assert_array_equal(out[:16], A[:16] * 2)
        assert [ring.tasks for ring in report.rings] == rings, kernel


# -- rebalancing ------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("kernel", [flat, Looped, rebalanced, beside_one_another], ids=lambda k: k.__name__)
def test_the_same_results_wherever_the_tasks_live(kernel, platform):
    run(kernel, platform)


def test_phases_in_nested_scopes_land_on_different_rings_and_in_sibling_scopes_on_one():
    assert [ring.tasks for ring in run(rebalanced).rings] == [PARTS, 1, 0, 0]
    assert [ring.tasks for ring in run(beside_one_another).rings] == [2, 0, 0, 0]


def test_rebalancing_does_not_change_which_tasks_wait_for_which():
    text = """
import ren_lab.language as pl

@pl.jit{how}
def chain(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    {scope}
        for i in pl.range(3):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[i, :] = pl.mul(a[i, :], 2.0)
        {inner}
            with pl.at(level=pl.Level.CORE_GROUP):
                out[0:2, :] = pl.add(out[1:3, :], 1.0)
    return out
"""
    tasks = []
    ways = [("", "if 1 > 0:", "if 1 > 0:"), ("(auto_scope=False)", "with pl.scope():", "if 1 > 0:"),
            ("(auto_scope=False)", "with pl.scope():", "with pl.scope():")]  # fmt: skip
    for how, scope, inner in ways:
        program, out = pl.parse(text.format(how=how, scope=scope, inner=inner)), np.zeros_like(A)
        report = program.run(A, out, config=SIM, timeline=True)
        np.testing.assert_allclose(out[:2], A[1:3] * 2 + 1, rtol=1e-6)
        assert [span.task_id for span in report.timeline.tasks if span.producers] == [3]  # the last one waits
        lines = [line.strip() for line in program.lower(A, out).as_python().splitlines()]
        tasks.append([line for line in lines if line.startswith("pl.submit")])
    assert tasks[0] == tasks[1] == tasks[2] and all("reads=[pl.region(" in task for task in tasks[0])


# -- reclamation ------------------------------------------------------------------------------------------------------------


@BOTH
def test_short_lived_allocations_of_a_deep_scope_do_not_wait_for_a_long_lived_one_above(platform):
    @pl.jit(auto_scope=False)
    def kept_above(a: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.scope():
            kept = pl.create_tensor([TALL, WIDE], dtype=pl.FP32)
            with pl.at(level=pl.Level.CORE_GROUP):
                kept[:] = pl.full([TALL, WIDE], pl.FP32, 1.0)
            for part in pl.range(PARTS):
                with pl.scope():
                    short = pl.create_tensor([TALL, WIDE], dtype=pl.FP32)
                    with pl.at(level=pl.Level.CORE_GROUP):
                        short[:] = pl.mul(pl.load(a, [part * TALL, 0], [TALL, WIDE]), 2.0)
                    with pl.at(level=pl.Level.CORE_GROUP):
                        pl.store(pl.add(short, kept), [part * TALL, 0], out)
        return out

    report = run(kept_above, platform, ring_heap=max(1024, TILE_BYTES))  # each ring holds one tile
    assert report.rings[0].heap_peak_bytes <= 1024 and report.rings[1].allocated_bytes == PARTS * 1024


@pytest.mark.parametrize(
    ("resource", "sizes"),
    [("task_window", {"ring_task_window": 4}), ("heap", {"ring_heap": 2048}), ("dep_pool", {"ring_dep_pool": 4})],
    ids=["task window", "heap", "dep pool"],
)
def test_each_resource_of_a_ring_runs_out_with_an_error_that_names_it(resource, sizes):
    @pl.jit(auto_scope=False)
    def greedy(a: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.scope():
            for part in pl.range(8):
                own = pl.create_tensor([TALL, WIDE], dtype=pl.FP32)
                with pl.at(level=pl.Level.CORE_GROUP):
                    own[:] = pl.load(a, [0, 0], [TALL, WIDE])
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[part, :] = own[part, :]
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.mul(out, 2.0)

    with pytest.raises(RingCapacityError) as e:
        greedy(A, np.zeros_like(A), config=RunConfig(platform="sim", **sizes))
    assert f"ring_{resource}" in str(e.value) and "split the scope" in str(e.value) and "test_language_memory.py" in str(e.value)


# -- measuring and sizing ---------------------------------------------------------------------------------------------------


def test_statistics_tell_slots_bytes_edges_and_map_entries_scope_by_scope(tmp_path):
    meta, samples = stats(tmp_path, rebalanced)
    assert [len(meta[key]) for key in ("task_window_max", "heap_max", "dep_pool_max")] == [4, 4, 4]
    ends = {sample["ring"]: sample for sample in samples if sample["phase"] == "end"}
    assert (ends[0]["task_window_end"], ends[1]["task_window_end"]) == (PARTS, 1)
    assert ends[1]["dep_pool_end"] == PARTS and ends[1]["tensormap"] > 0  # phase 2 waits for all of phase 1
    assert (tmp_path / "kernels").is_dir()


def test_a_scalar_sizes_all_four_rings_and_a_zero_in_a_list_leaves_one_as_it_is(tmp_path):
    meta, _ = stats(tmp_path / "scalar", flat, ring_heap=1 << 20)
    assert meta["heap_max"] == [1 << 20] * 4 and run(flat, ring_heap=1 << 20).total_mapped_bytes == 4 << 20
    meta, _ = stats(tmp_path / "list", flat, ring_task_window=[8192, 0, 131072, 524288], ring_dep_pool=[0, 8, 0, 4])
    assert meta["task_window_max"] == [8192, 16384, 131072, 524288] and meta["dep_pool_max"] == [16384, 8, 16384, 4]


@pytest.mark.parametrize(
    ("field", "value"),
    [("ring_task_window", 12), ("ring_task_window", 2), ("ring_heap", 512), ("ring_heap", 3072), ("ring_dep_pool", 3),
     ("ring_dep_pool", 2**31), ("ring_heap", [1024, 1024, 1024])],
)  # fmt: skip
def test_sizes_that_no_ring_can_have_are_refused_when_the_configuration_is_made(field, value):
    with pytest.raises(ValueError, match=field):
        RunConfig(platform="sim", **{field: value})


def test_a_peak_that_was_pinned_at_the_capacity_is_pinned_no_more_in_a_larger_ring(tmp_path):
    @pl.jit(auto_scope=False)
    def pinned(a: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.scope():
            for part in pl.range(ROWS):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[part, :] = pl.add(pl.mul(a[part, :], 2.0), 1.0)

    small, large = (run(pinned, ring_task_window=window).rings[0] for window in (ROWS, 2 * ROWS))
    assert small.task_peak == small.task_window == ROWS and large.task_peak == ROWS < large.task_window
    meta, _ = stats(tmp_path, pinned, ring_task_window=2 * ROWS)
    assert meta["task_window_max"] == [2 * ROWS] * 4


# -- streaming --------------------------------------------------------------------------------------------------------------


def test_a_weight_that_streams_is_declared_once_for_all_its_reads_and_nothing_else_bypasses():
    with pytest.warns(pl.LanguageWarning, match="BYPASS on 'weights' is carried, but there is no bypassing path"):

        @pl.jit
        def product(activations: pl.Tensor, weights: pl.Tensor, out: pl.Out[pl.Tensor]):
            with pl.at(level=pl.Level.CORE_GROUP):
                pl.set_cache_policy(weights, pl.CachePolicy.BYPASS)
                total = pl.matmul(activations, weights, out_dtype=pl.FP32)
                first = pl.load(weights, [0, 0], [WIDE, WIDE], cache=pl.CachePolicy.DEFAULT)
                out[:] = pl.add(total, pl.mul(pl.matmul(activations, first), 0.0))

    weights = np.eye(WIDE, dtype=np.float32) * 3
    out = np.zeros_like(A)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        product(A, weights, out, config=SIM)
    np.testing.assert_allclose(out, A * 3, rtol=1e-6)
    reads = [(read.tensor, read.policy.name, read.declared) for read in product.lower(A, weights, out).reads]
    assert sorted(set(reads)) == [
        ("activations", "DEFAULT", "default"),
        ("weights", "BYPASS", "scope"),
        ("weights", "DEFAULT", "load"),
    ]


@pytest.mark.parametrize("kernel", [flat, Looped, rebalanced, beside_one_another], ids=lambda k: k.__name__)
def test_bypassing_is_never_inferred(kernel):
    assert {read.policy for read in kernel.lower(A, np.zeros_like(A)).reads} == {pl.CachePolicy.DEFAULT}
