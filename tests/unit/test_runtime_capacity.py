"""A full resource is waited for as long as waiting can help, and is an error with all its particulars when it cannot."""

import re
import time

import numpy as np
import pytest

from ren_lab.runtime import Output, RingCapacityError, RunConfig, ScopeMode, Worker

platforms = pytest.mark.parametrize("platform", ["sim", "cpu"])


def nothing(*arrays):
    pass


def go(program, platform="sim", **fields):
    with Worker(RunConfig(platform=platform, **{"ring_heap": 1 << 16, **fields})) as worker:
        return worker.run(program)


def small_map(monkeypatch, entries):
    monkeypatch.setattr("ren_lab.runtime.core.TENSOR_MAP_ENTRIES", entries)


@platforms
def test_the_message_has_resource_ring_depth_lines_use_capacity_and_remedy(platform):
    def program(orch):
        with orch.scope():
            with orch.scope():
                for _ in range(9):
                    orch.submit(nothing)

    with pytest.raises(RingCapacityError) as caught:
        go(program, platform, ring_task_window=8)
    text = str(caught.value)
    assert "task_window of ring 2" in text and "8 of 8 slots" in text and "depth 2" in text
    assert text.endswith("raise ring_task_window (runtime_env.ring_task_window) or split the scope")
    scope_line, submit_line = program.__code__.co_firstlineno + 2, program.__code__.co_firstlineno + 4
    assert f"scope at test_runtime_capacity.py:{scope_line}" in text
    assert f"wanted by test_runtime_capacity.py:{submit_line}" in text


@platforms
def test_the_scope_that_holds_the_ring_is_named_rather_than_the_one_that_submits(platform):
    """Depths 3 and 4 share ring 3; the outer one has filled it."""

    def program(orch):
        with orch.scope(), orch.scope(), orch.scope(site="outer.py:3"):
            for _ in range(4):
                orch.submit(nothing)
            with orch.scope(site="inner.py:4"):
                orch.submit(nothing)

    with pytest.raises(RingCapacityError, match=r"scope at outer.py:3, depth 3") as caught:
        go(program, platform, ring_task_window=4)
    assert caught.value.site == "outer.py:3"


@platforms
@pytest.mark.parametrize("own_output", [False, True])
def test_a_request_larger_than_the_whole_heap_raises_at_once(platform, own_output):
    def program(orch):
        with orch.scope():  # nothing is held: waiting would not end
            if own_output:
                orch.submit(nothing, outputs=[Output(2049, np.int8)])
            else:
                orch.alloc(2049, np.int8)

    with pytest.raises(RingCapacityError, match="more than all 2048.*raise ring_heap") as caught:
        go(program, platform, ring_heap=2048)
    assert (caught.value.used, caught.value.requested, caught.value.capacity) == (0, 3072, 2048)


@pytest.mark.parametrize(
    ("nbytes", "heap", "least"), [(20000, 8192, 32768), (1025, 1024, 2048), (16384, 8192, 16384), (8193, 8192, 16384)], ids=str
)
def test_a_request_larger_than_the_heap_says_which_size_takes_it(nbytes, heap, least):
    """To split a scope makes no request smaller, so that is not advised."""

    def program(orch):
        orch.alloc(nbytes, np.int8)

    with pytest.raises(RingCapacityError, match=rf"raise ring_heap \(runtime_env.ring_heap\) to at least {least}, or ") as caught:
        go(program, ring_heap=heap)
    assert " or split the scope" not in str(caught.value)
    with pytest.raises(RingCapacityError):
        go(program, ring_heap=least // 2)
    go(program, ring_heap=least)


@pytest.mark.parametrize("name", [None, "phase"])
@pytest.mark.parametrize("resource", ["task_window", "heap", "dep_pool"])
def test_a_scopes_name_stands_beside_its_line(resource, name):
    x, y = np.zeros(4), np.zeros(4)

    def program(orch):
        for _ in range(5):
            orch.submit(nothing, inputs=[x])
        with orch.scope(name=name, site="here.py:7"):
            for _ in range(9):
                if resource == "heap":
                    orch.alloc(1024, np.int8)
                else:
                    orch.submit(
                        nothing, inputs=[x] if resource == "task_window" else [], inouts=[y] if resource == "dep_pool" else []
                    )

    sizes = {"task_window": [64, 4, 4, 4], "heap": 4096, "dep_pool": 4}
    with pytest.raises(RingCapacityError, match=f"{resource} of ring 1") as caught:
        go(program, **{f"ring_{resource}": sizes[resource]})
    assert (f"(scope {name!r} at here.py:7, depth 1)" if name else "(scope at here.py:7, depth 1)") in str(caught.value)
    assert caught.value.name == name and caught.value.line.startswith("test_runtime_capacity.py:")


@platforms
def test_more_held_producers_than_the_whole_pool_raise_at_once(platform):
    parts = np.zeros((6, 4))

    def program(orch):
        for row in parts:
            orch.submit(nothing, outputs=[row])
        with orch.scope():
            orch.submit(nothing, inputs=[parts])

    with pytest.raises(RingCapacityError, match="dep_pool of ring 1.*more than all 5") as caught:
        go(program, platform, ring_dep_pool=5)
    assert caught.value.requested == 6
    go(program, platform, ring_dep_pool=6)


@platforms
def test_producers_that_no_open_scope_holds_are_waited_for_and_counted_again(platform):
    parts = np.zeros((40, 4))

    def program(orch):
        with orch.scope():
            for row in parts:
                orch.submit(lambda v: v.fill(1), outputs=[row], cost=10**6)
        orch.submit(nothing, inputs=[parts])

    report = go(program, platform, ring_dep_pool=4)
    assert parts.all() and report.rings[0].edges <= 4


@platforms
@pytest.mark.parametrize("window", [4, 8, 64])
def test_a_full_window_of_ended_scopes_only_waits(platform, window):
    outs = np.zeros((300, 2))

    def program(orch):
        for k in range(0, 300, 3):
            with orch.scope():
                for row in outs[k : k + 3]:
                    orch.submit(lambda v: v.fill(1), outputs=[row])

    report = go(program, platform, ring_task_window=window, workers=3)
    assert outs.all() and report.rings[1].task_peak <= window


def test_back_pressure_is_reported(capsys):
    def program(orch):
        for _ in range(20):
            with orch.scope():
                orch.submit(nothing, cost=10**6)

    report = go(program, ring_task_window=4, workers=1)
    assert report.waits == {("task_window", 1): 16}
    assert "16 submissions waited for task_window of ring 1" in str(report)


@platforms
def test_a_submission_that_failed_has_had_no_effect_and_the_program_may_go_on(platform):
    x = np.zeros(4)

    def program(orch):
        with orch.scope():
            for _ in range(4):
                orch.submit(nothing, inputs=[x])
            before = orch.usage()
            with pytest.raises(RingCapacityError):
                orch.submit(nothing, outputs=[x, Output(4)])
            assert orch.usage() == before
        orch.submit(lambda v: v.fill(1), outputs=[x])

    report = go(program, platform, ring_task_window=4)
    assert x.all() and report.tasks == report.completed == 5


@platforms
def test_an_error_that_leaves_a_scope_ends_it(platform):
    def program(orch):
        with pytest.raises(RingCapacityError):
            with orch.scope():
                for _ in range(5):
                    orch.submit(nothing)
        assert orch.depth == 0
        with orch.scope():
            for _ in range(4):
                orch.submit(nothing)

    assert go(program, platform, ring_task_window=4).completed == 8


@platforms
def test_an_allocation_of_an_open_scope_counts_as_held(platform):
    def program(orch):
        with orch.scope():
            orch.alloc(1024, np.int8, site="here.py:1")
            orch.alloc(1024, np.int8)
            orch.alloc(1024, np.int8, site="here.py:3")

    with pytest.raises(RingCapacityError, match=r"heap of ring 1: 2048 of 2048 bytes.*here.py:3"):
        go(program, platform, ring_heap=2048)


@platforms
def test_waiting_for_bytes_goes_on_while_the_oldest_task_may_go(platform):
    """The heap's oldest block is held, but the ring's oldest task is not: only when both are is it an error."""
    ended = []

    def slow():
        time.sleep(0.05)
        ended.append(1)

    def program(orch):
        with orch.scope(), orch.scope(), orch.scope():
            with orch.scope():
                orch.submit(slow, cost=10**6)
            orch.submit(nothing, outputs=[Output(2048, np.int8)])
            orch.alloc(1, np.int8)

    with pytest.raises(RingCapacityError, match="raise ring_heap"):
        go(program, platform, ring_heap=2048)
    assert ended


@platforms
def test_the_tensor_map_runs_out_by_splitting_the_scope(platform, monkeypatch):
    small_map(monkeypatch, 16)
    x = np.zeros((40, 4))

    def one_scope(orch):
        with orch.scope():
            for row in x:
                orch.submit(nothing, outputs=[row])

    def many_scopes(orch):
        for row in x:
            with orch.scope():
                orch.submit(nothing, outputs=[row])

    with pytest.raises(RingCapacityError, match=r"tensor map: 16 of 16 entries.*ring 1.*: split the scope$") as caught:
        go(one_scope, platform)
    assert (caught.value.resource, caught.value.ring, caught.value.depth) == ("tensor_map", 1, 1)
    report = go(many_scopes, platform)
    assert report.tasks == 40 and report.tensor_map_peak <= 16


@platforms
def test_the_tensor_map_is_waited_for_while_any_ring_with_entries_can_go_on(platform, monkeypatch):
    small_map(monkeypatch, 8)
    x = np.zeros((16, 4))

    def program(orch):
        for row in x[:4]:
            orch.submit(nothing, outputs=[row])  # held by the root
        for row in x[4:]:
            with orch.scope():
                orch.submit(nothing, outputs=[row], cost=10**6)

    assert go(program, platform).tensor_map_peak <= 8


@platforms
def test_a_covering_write_fits_into_a_full_map(platform, monkeypatch):
    small_map(monkeypatch, 8)
    x = np.zeros((8, 4))

    def program(orch):
        for row in x:
            orch.submit(nothing, outputs=[row])
        for row in x:
            orch.submit(nothing, outputs=[row])
        orch.submit(nothing, outputs=[x])
        for _ in range(7):
            orch.submit(nothing, inputs=[x])

    assert go(program, platform).tensor_map_peak == 8


@platforms
def test_one_task_with_more_regions_than_the_map_raises_at_once(platform, monkeypatch):
    small_map(monkeypatch, 8)
    x = np.zeros((9, 4))

    def program(orch):
        orch.submit(nothing, outputs=list(x))

    with pytest.raises(RingCapacityError, match="more than all 8"):
        go(program, platform)


def test_the_map_counts_its_entries_exactly(monkeypatch):
    """Entries in use as the statistics see them, against what each step should add or take."""
    counts = []
    x = np.zeros((4, 4))

    def program(orch):
        def step(**arguments):
            orch.submit(nothing, **arguments)
            counts.append(orch._core.map.used)

        with orch.scope(ScopeMode.AUTO):
            step(outputs=[x])  # a writer
            step(inputs=[x])  # a group
            step(inputs=[x])  # joins it
            step(outputs=[x[0]])  # a second writer; the group is closed
            step(inputs=[x])  # a new group
            step(inouts=[x[0]])  # replaces the second writer
            step(inputs=[x[1], x[1]], outputs=[x[1]])  # a third writer; its own read is covered
            step(outputs=[x])  # replaces everything
        counts.append(orch._core.map.used)

    go(program)
    assert counts[:-1] == [1, 2, 2, 3, 4, 4, 5, 1]


@pytest.mark.parametrize("platform", ["sim", "cpu"])
def test_nothing_is_left_behind(platform):
    """Slots, bytes, edges, entries and tasks are all given back when a run ends."""
    x = np.zeros((64, 8))
    kept = []

    def program(orch):
        kept.append(orch._core)
        for k in range(200):
            with orch.scope():
                t = orch.alloc(64)
                orch.submit(nothing, inputs=[x[k % 60 : k % 60 + 3]], outputs=[t])
                orch.submit(nothing, inputs=[t, x[:, k % 8]], outputs=[x[k % 64]])
        with orch.scope(), orch.scope(), orch.scope():
            orch.submit(nothing)  # keeps the slots of ring 3, while its bytes are given out again and again
            for _ in range(200):
                with orch.scope():
                    task = orch.submit(nothing, outputs=[Output(200), Output(300)])
                    orch.submit(nothing, inputs=orch.outputs_of(task))

    go(program, platform)
    core = kept[0]
    assert core.usage == ((0, 0, 0),) * 4 and not core.tasks
    assert core.map.used == 0 and all(record.array is None for record in core.map._exact.values())


@pytest.mark.parametrize("platform", ["sim", "cpu"])
def test_a_sixteenth_of_the_described_stress_goes_through_the_default_window(platform):
    """64 scopes of 128 x 4 tasks and one more; the whole has 256 x 4 scopes."""
    x = np.zeros(4)
    counts = np.zeros(64, np.int64)

    def program(orch):
        for k in range(64):
            with orch.scope():
                for _ in range(128 * 4):
                    orch.submit(nothing, inputs=[x])
                orch.submit(lambda v: v.__iadd__(1), inouts=[counts[k : k + 1]])

    report = go(program, platform)
    assert report.tasks == 64 * 513 and (counts == 1).all() and report.rings[1].task_peak <= 16384


@platforms
def test_one_scope_of_many_writers_of_one_region_needs_a_slot_and_an_edge_each(platform):
    x = np.zeros(4, np.int64)

    def program(orch):
        with orch.scope():
            for _ in range(5000):
                orch.submit(lambda v: v.__iadd__(1), inouts=[x])

    report = go(program, platform, ring_task_window=8192, ring_dep_pool=8192)
    assert x[0] == 5000 and report.rings[1].edges == 4999 and report.tensor_map_peak == 1
    with pytest.raises(RingCapacityError, match="dep_pool of ring 1"):
        go(program, platform, ring_task_window=8192, ring_dep_pool=4096)


@platforms
def test_twenty_thousand_readers_and_then_a_writer_fit_the_defaults(platform):
    x = np.zeros(4)
    seen = []

    def program(orch):
        for _ in range(20):
            with orch.scope():
                for _ in range(1000):
                    orch.submit(lambda v: seen.append(v[0]), inputs=[x])
        orch.submit(lambda v: v.fill(1), outputs=[x])

    report = go(program, platform)
    assert len(seen) == 20000 and not any(seen) and x[0] == 1 and report.rings[0].edges <= 1


def test_the_error_is_picked_apart_by_its_attributes():
    def program(orch):
        for _ in range(5):
            orch.submit(nothing)

    with pytest.raises(RingCapacityError) as caught:
        go(program, ring_task_window=4)
    error = caught.value
    assert isinstance(error, RuntimeError)
    assert re.fullmatch(r"test_runtime_capacity.py:\d+", error.site)
    assert (error.requested, error.used, error.capacity, error.ring, error.depth) == (1, 4, 4, 0, 0)


@pytest.mark.slow
@platforms
def test_525312_tasks_go_through_the_default_window(platform):
    """256 x 4 scopes, each of 128 x 4 tasks and one more."""
    x = np.zeros(4)
    rows = list(np.zeros((128 * 4, 4)))
    rounds = np.zeros(1, np.int64)

    def program(orch):
        for _ in range(256 * 4):
            with orch.scope():
                for row in rows:
                    orch.submit(nothing, [x], [row])
                orch.submit(lambda v: v.__iadd__(1), inouts=[rounds])

    report = go(program, platform)
    assert report.tasks == report.completed == 525_312 and rounds[0] == 1024
