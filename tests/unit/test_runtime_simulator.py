"""Virtual time: what things cost, who runs where, and that nothing depends on the machine."""

import math

import numpy as np
import pytest

from ren_lab.runtime import CostModel, RunConfig, ScopeMode, Worker

FREE = CostModel(submit_ns=0, scope_ns=0, launch_ns=0, bytes_per_ns=1.0)


def nothing(*arrays, **options):
    pass


def go(program, costs=FREE, **fields):
    with Worker(RunConfig(**{"platform": "sim", "ring_heap": 1 << 16, **fields}), cost_model=costs) as worker:
        return worker.run(program, timeline=True)


def spans(report):
    return {span.task_id: (span.start_ns, span.end_ns, span.lane) for span in report.timeline.tasks}


def test_a_task_starts_on_the_lowest_free_lane_first_come_first_served():
    def program(orch):
        for cost in (10, 4, 6, 3):
            orch.submit(nothing, cost=cost)

    assert spans(go(program, workers=2)) == {0: (0, 10, 0), 1: (0, 4, 1), 2: (4, 10, 1), 3: (10, 13, 0)}


def test_a_task_waits_for_its_producers_and_independent_ones_overlap():
    x, y, z = np.zeros(1), np.zeros(1), np.zeros(1)

    def program(orch):
        orch.submit(nothing, outputs=[x], cost=5)
        orch.submit(nothing, inputs=[x], outputs=[y], cost=7)
        orch.submit(nothing, outputs=[z], cost=20)
        orch.submit(nothing, inputs=[y, z], cost=1)

    report = go(program)
    assert {k: (start, end) for k, (start, end, _) in spans(report).items()} == {0: (0, 5), 1: (5, 12), 2: (0, 20), 3: (20, 21)}
    assert report.seconds == 21e-9


def test_the_cost_model_adds_submission_scopes_launch_and_bytes():
    costs = CostModel(submit_ns=100, scope_ns=10, launch_ns=1000, bytes_per_ns=4.0)
    x = np.zeros(16, np.uint8)

    def program(orch):  # the root scope: 10
        orch.submit(nothing, inputs=[x], outputs=[x])  # submitted at 110; 32 bytes
        with orch.scope():  # at 120
            orch.submit(nothing, inputs=[x[:5]])  # submitted at 220; 5 bytes: 2 ns, rounded up

    report = go(program, costs)
    assert spans(report) == {0: (110, 1118, 0), 1: (1118, 2120, 0)}
    assert report.seconds == 2120e-9


def test_waiting_for_a_slot_moves_the_clock_to_the_event_that_frees_it():
    def program(orch):
        for _ in range(6):
            with orch.scope():
                orch.submit(nothing, cost=100)

    report = go(program, workers=1, ring_task_window=4)
    assert [(wait.start_ns, wait.end_ns) for wait in report.timeline.waits] == [(0, 100), (100, 200)]
    assert spans(report)[5] == (500, 600, 0)


def test_a_race_shows_as_a_late_read():
    """Kernels run when their task ends, so a short reader without a dependency is ahead of a long writer."""
    x, seen = np.zeros(1), []

    def race(orch, declare):
        with orch.scope(ScopeMode.MANUAL):
            first = orch.submit(lambda v: v.fill(1), outputs=[x], cost=1000)
            orch.submit(lambda v: seen.append(v[0]), inputs=[x], cost=1, deps=[first] if declare else [])

    go(lambda orch: race(orch, False))
    x[:] = 0
    go(lambda orch: race(orch, True))
    assert seen == [0, 1]


def test_kinds_choose_the_cores_of_a_chip():
    def program(orch):
        for kind in ("cube", "vector", None):
            for _ in range(3):
                orch.submit(nothing, kind=kind, cost=10)

    report = go(program, platform="a2a3", workers=1)
    lanes = report.timeline.lanes
    ran_on = [lanes[lane] for _, (_, _, lane) in sorted(spans(report).items())]
    assert ran_on[:3] == ["AIC 0"] * 3 and set(ran_on[3:6]) == {"AIV 0", "AIV 1"}
    assert report.seconds == 30e-9  # three cube tasks one after the other; the six others on what is free
    everywhere = go(program, workers=9)
    assert everywhere.seconds == 10e-9


def test_blocks_spread_over_the_cores():
    x = np.zeros(64, np.uint8)

    def program(orch):
        orch.submit(nothing, inouts=[x], blocks=8)

    assert go(program, workers=4).seconds == 16e-9  # 8 bytes each, two rounds
    assert go(program, platform="a2a3").seconds == 8e-9


def random_program(orch):
    rng = np.random.default_rng(5)
    x = np.zeros((12, 16), np.int64)
    for _ in range(60):
        with orch.scope():
            scratch = orch.alloc(16, np.int64)
            for _ in range(rng.integers(1, 6)):
                r = rng.integers(0, 11)
                orch.submit(lambda a, b: b.__iadd__(a.sum()), inputs=[x[r]], inouts=[x[r + 1 :, :: rng.integers(1, 4)]])
            orch.submit(lambda a, b: b.fill(a.sum()), inputs=[x], outputs=[scratch])
    return x


@pytest.mark.parametrize("platform", ["sim", "a2a3", "a5sim"])
def test_two_runs_are_identical_to_the_byte(tmp_path, platform):
    files, timelines, results = [], [], []
    for k in range(2):
        with Worker(
            RunConfig(platform=platform, ring_task_window=16, enable_scope_stats=True, work_dir=tmp_path / str(k))
        ) as worker:
            report = worker.run(random_program, timeline=True)
        files.append(report.stats_path.read_bytes())
        timelines.append(report.timeline)
        results.append(report.result)
        hold = [bytearray(1000 * k) for _ in range(50)]  # other addresses in the second run
    assert files[0] == files[1] and timelines[0] == timelines[1]
    np.testing.assert_array_equal(*results)
    assert hold


def test_values_do_not_depend_on_the_platform_or_the_number_of_workers():
    with Worker(RunConfig(platform="cpu", workers=1)) as worker:
        expected = worker.run(random_program).result
    for platform, workers in [("cpu", 2), ("cpu", 8), ("sim", 1), ("sim", 5), ("a5", None)]:
        with Worker(RunConfig(platform=platform, workers=workers)) as worker:
            np.testing.assert_array_equal(worker.run(random_program).result, expected)


@pytest.mark.parametrize(
    ("field", "value"),
    [("submit_ns", -1), ("scope_ns", math.inf), ("launch_ns", 0.5), ("bytes_per_ns", 0), ("bytes_per_ns", math.nan)],
)
def test_a_cost_model_refuses_nonsense(field, value):
    with pytest.raises(ValueError, match=field):
        CostModel(**{field: value})
