"""The rings as they are described: one test per statement."""

import json

import numpy as np
import pytest

from ren_lab.lens.scope_stats import ScopeStats
from ren_lab.runtime import RingCapacityError, RunConfig, ScopeMode, Worker

platforms = pytest.mark.parametrize("platform", ["sim", "cpu"])


def nothing(*arrays):
    pass


def copy(source, target):
    target[:] = source


def increment(source, target):
    target[:] = source + 1


def go(program, platform="sim", **fields):
    with Worker(RunConfig(platform=platform, **fields)) as worker:
        return worker.run(program)


def nested(orch, depth, body):
    """Run `body` at `depth`, the root being depth 0."""
    if orch.depth == depth:
        body()
        return
    with orch.scope():
        nested(orch, depth, body)


def tasks_per_ring(report):
    return [ring.tasks for ring in report.rings]


@platforms
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4, 7, 64])
def test_the_ring_of_a_task_is_the_smaller_of_its_depth_and_three(platform, depth):
    def program(orch):
        def body():
            assert orch.depth == depth and orch.ring == min(depth, 3)
            orch.submit(nothing)

        nested(orch, depth, body)

    expected = [0, 0, 0, 0]
    expected[min(depth, 3)] = 1
    assert tasks_per_ring(go(program, platform)) == expected


def test_depth_is_at_most_64():
    with pytest.raises(RuntimeError, match="depth 65.*at most 64"):
        go(lambda orch: nested(orch, 65, lambda: None))


@platforms
def test_each_ring_has_resources_of_its_own(platform):
    """Four full rings at once: nobody takes from another."""
    sizes = [4, 8, 16, 32]

    def program(orch, depth=0):
        for _ in range(sizes[depth]):
            orch.submit(nothing)
        if depth < 3:
            with orch.scope():
                program(orch, depth + 1)
        else:
            assert [slots for slots, _, _ in orch.usage()] == sizes

    report = go(program, platform, ring_task_window=sizes)
    assert [ring.task_peak for ring in report.rings] == sizes


@platforms
def test_a_task_in_a_deep_scope_is_reclaimed_without_waiting_for_a_long_lived_allocation(platform):
    def program(orch):
        orch.alloc((256,), np.float32)
        for _ in range(4):
            orch.submit(nothing)
        for _ in range(50):
            with orch.scope():
                scratch = orch.alloc((256,), np.float32)
                for _ in range(4):
                    orch.submit(nothing, outputs=[scratch])

    report = go(program, platform, ring_task_window=4, ring_heap=1024)
    assert tasks_per_ring(report) == [4, 200, 0, 0]
    assert report.rings[1].allocated_bytes == 50 * 1024 and report.rings[1].heap_peak_bytes == 1024


def test_reclamation_is_first_in_first_out_within_a_ring():
    """Younger tasks that could go wait for the oldest, and all go with it."""
    seen = []

    def program(orch):
        with orch.scope():
            with orch.scope():
                with orch.scope():
                    orch.submit(nothing, cost=1)  # ring 3, held by this scope
                    with orch.scope():
                        for _ in range(3):
                            orch.submit(nothing, cost=1)
                    orch.wait(range(4))
                    seen.append((orch.usage()[3][0], [orch.state(k).name for k in range(4)]))
                seen.append((orch.usage()[3][0], [orch.state(k).name for k in range(4)]))

    go(program)
    assert seen == [(4, ["COMPLETED", "CONSUMED", "CONSUMED", "CONSUMED"]), (0, ["CONSUMED"] * 4)]


@platforms
def test_a_flat_program_puts_everything_in_ring_0_and_maps_the_idle_rings_all_the_same(platform):
    def program(orch):
        for _ in range(10):
            orch.submit(nothing)

    report = go(program, platform)
    assert tasks_per_ring(report) == [10, 0, 0, 0]
    assert report.mapped_bytes == (256 * 2**20,) * 4 and report.total_mapped_bytes == 2**30


@platforms
def test_one_ring_reports_a_capacity_error_while_the_others_are_free(platform):
    def program(orch):
        for _ in range(65):
            orch.submit(nothing)

    with pytest.raises(RingCapacityError) as caught:
        go(program, platform, ring_task_window=64)
    error = caught.value
    assert (error.resource, error.ring, error.depth, error.used, error.capacity) == ("task_window", 0, 0, 64, 64)


@platforms
@pytest.mark.parametrize(
    ("resource", "fields"),
    [
        ("task_window", {"ring_task_window": 4}),
        ("heap", {"ring_heap": 4096}),
        ("dep_pool", {"ring_dep_pool": 4}),
    ],
)
def test_each_resource_runs_out_as_an_error_that_names_it(platform, resource, fields):
    def program(orch):
        x, y = np.zeros(4), np.zeros(4)
        orch.submit(nothing, outputs=[x])
        for _ in range(6):
            t = orch.alloc((256,), np.float32)
            orch.submit(nothing, inputs=[x], outputs=[t])
            orch.submit(nothing, inputs=[t], outputs=[y])

    field = next(iter(fields))
    with pytest.raises(
        RingCapacityError, match=rf"{resource} of ring 0.*raise {field} \(runtime_env\.{field}\) or split the scope"
    ):
        go(program, platform, **fields)


@platforms
def test_every_scope_from_depth_three_on_lands_on_ring_3_and_flattening_spreads_the_tasks(platform):
    def deep(orch):
        for depth in range(3, 9):
            nested(orch, depth, lambda: orch.submit(nothing))

    def flat(orch):
        for depth in range(6):
            nested(orch, depth % 4, lambda: orch.submit(nothing))

    assert tasks_per_ring(go(deep, platform)) == [0, 0, 0, 6]
    assert tasks_per_ring(go(flat, platform)) == [2, 2, 1, 1]


@platforms
def test_two_sibling_scopes_share_a_ring_and_a_nested_one_does_not(platform):
    def program(orch):
        for _ in range(2):
            with orch.scope():
                orch.submit(nothing)
        with orch.scope(), orch.scope():
            orch.submit(nothing)

    assert tasks_per_ring(go(program, platform)) == [0, 2, 1, 0]


@platforms
def test_moving_work_to_another_scope_leaves_the_dependencies_as_they_were(platform):
    x, y, z = np.zeros(64), np.zeros(64), np.zeros(64)

    def flat(orch):
        orch.submit(increment, [x], [y])
        orch.submit(increment, [y], [z])
        orch.submit(increment, [z], [x])

    def spread(orch):
        orch.submit(increment, [x], [y])
        with orch.scope():
            orch.submit(increment, [y], [z])
            with orch.scope():
                orch.submit(increment, [z], [x])

    go(flat, platform, workers=4)
    first = x.copy()
    x[:] = 0
    report = go(spread, platform, workers=4)
    np.testing.assert_array_equal(x, first)
    assert tasks_per_ring(report) == [1, 1, 1, 0] and sum(ring.edges for ring in report.rings) == 3


@platforms
def test_statistics_record_all_four_resources_per_scope_in_the_described_file(tmp_path, platform):
    x = np.zeros(4)

    def program(orch):
        with orch.scope():
            t = orch.alloc((256,), np.float32)
            orch.submit(nothing, outputs=[t])
            orch.submit(nothing, inputs=[t], outputs=[x])

    report = go(program, platform, enable_scope_stats=True, work_dir=tmp_path, ring_task_window=[8, 16, 32, 64])
    path = tmp_path / "dfx_outputs" / "scope_stats" / "scope_stats.jsonl"
    assert report.stats_path == path
    first, *rest = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert first == {
        "version": 6,
        "fatal": False,
        "dropped": 0,
        "total": 4,
        "task_window_max": [8, 16, 32, 64],
        "heap_max": [256 * 2**20] * 4,
        "dep_pool_max": [16384] * 4,
        "tensormap_max": 65536,
    }
    inner = rest[2]
    assert (inner["phase"], inner["ring"], inner["task_window_end"], inner["heap_end"]) == ("end", 1, 2, 1024)
    assert (inner["dep_pool_end"], inner["tensormap"]) == (1, 3)  # written t, its readers, written x


def test_a_peak_at_capacity_is_called_a_ceiling_and_one_ring_only_an_imbalance(tmp_path):
    def program(orch):
        for _ in range(16):
            orch.submit(nothing)

    full = go(program, enable_scope_stats=True, work_dir=tmp_path / "full", ring_task_window=16)
    roomy = go(program, enable_scope_stats=True, work_dir=tmp_path / "roomy")
    found = ScopeStats.load(full.stats_path).findings()
    assert found[0].kind == "ceiling" and "16 of 16" in str(found[0]) and "ring 0" in str(found[0])
    kinds = [finding.kind for finding in ScopeStats.load(roomy.stats_path).findings()]
    assert "ceiling" not in kinds and "imbalance" in kinds and "oversized" in kinds


@platforms
def test_the_second_fix_is_size_and_the_first_is_to_split_the_scope(tmp_path, platform):
    out = np.zeros((48, 4))

    def one_scope(orch):
        with orch.scope():
            for row in out:
                orch.submit(lambda v: v.fill(1), outputs=[row])

    def two_scopes(orch):
        for half in (out[:24], out[24:]):
            with orch.scope():
                for row in half:
                    orch.submit(lambda v: v.fill(1), outputs=[row])

    with pytest.raises(RingCapacityError, match=r"raise ring_task_window \(runtime_env.ring_task_window\) or split the scope"):
        go(one_scope, platform, ring_task_window=32)
    go(two_scopes, platform, ring_task_window=32)
    assert out.all()
    out[:] = 0
    report = go(one_scope, platform, ring_task_window=[0, 64, 0, 0], enable_scope_stats=True, work_dir=tmp_path)
    assert out.all()
    stats = ScopeStats.load(report.stats_path)
    assert stats.meta["task_window_max"] == [16384, 64, 16384, 16384]
    assert not any(finding.kind == "ceiling" for finding in stats.findings())


def test_the_root_scope_is_depth_0_and_always_recorded(tmp_path):
    report = go(lambda orch: None, enable_scope_stats=True, work_dir=tmp_path)
    samples = ScopeStats.load(report.stats_path).samples
    assert [(s["phase"], s["depth"], s["ring"]) for s in samples] == [("begin", 0, 0), ("end", 0, 0)]
    assert all(s["site"].startswith("test_runtime_page.py:") for s in samples)


def test_without_a_root_the_first_scope_is_depth_0_and_tasks_need_one(tmp_path):
    """How a compiler places the root only where it is needed."""

    def program(orch):
        assert orch.depth == -1
        with pytest.raises(RuntimeError, match="outside any scope"):
            orch.submit(nothing)
        with orch.scope(ScopeMode.AUTO, site="user.py:7"):
            orch.submit(nothing)

    with Worker(RunConfig(platform="sim", enable_scope_stats=True, work_dir=tmp_path)) as worker:
        report = worker.run(program, root=False)
    samples = ScopeStats.load(report.stats_path).samples
    assert [(s["site"], s["depth"]) for s in samples] == [("user.py:7", 0)] * 2
