"""Which tasks wait for which: inferred, declared, grouped, covered, and what each edge costs."""

import threading

import numpy as np
import pytest

from ren_lab.runtime import Output, RunConfig, ScopeMode, TaskState, Worker

platforms = pytest.mark.parametrize("platform", ["sim", "cpu"])


def nothing(*arrays, **options):
    pass


def go(program, platform="sim", timeline=True, **fields):
    with Worker(RunConfig(platform=platform, **fields)) as worker:
        return worker.run(program, timeline=timeline)


def producers_of(report):
    return {span.task_id: span.producers for span in report.timeline.tasks}


def edges(report):
    return sum(ring.edges for ring in report.rings)


@platforms
@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        ("outputs", "inputs", True),
        ("inputs", "outputs", True),
        ("outputs", "outputs", True),
        ("inouts", "inouts", True),
        ("inputs", "inputs", False),
    ],
    ids=["read after write", "write after read", "write after write", "update after update", "read after read"],
)
def test_directions_imply_order(platform, first, second, waits):
    x = np.zeros(8)

    def program(orch):
        orch.submit(nothing, **{first: [x]})
        orch.submit(nothing, **{second: [x]})

    report = go(program, platform)
    assert producers_of(report)[1] == ((0,) if waits else ())
    assert edges(report) == waits


REGIONS = {
    "same": (np.s_[:, :], np.s_[:, :], True),
    "rows apart": (np.s_[:2], np.s_[2:], False),
    "columns apart": (np.s_[:, :3], np.s_[:, 3:], False),
    "columns meet": (np.s_[:, :4], np.s_[:, 3:], True),
    "even and odd columns": (np.s_[:, ::2], np.s_[:, 1::2], False),
    "corner meets": (np.s_[:3, :3], np.s_[2:, 2:], True),
    "row and column": (np.s_[1], np.s_[:, 1], True),
    "reversed rows": (np.s_[::-1], np.s_[0], True),
}


@pytest.mark.parametrize("name", REGIONS)
def test_views_wait_for_each_other_where_they_share_memory(name):
    x = np.zeros((4, 6))
    a, b, meet = REGIONS[name]

    def program(orch):
        orch.submit(nothing, outputs=[x[a]])
        orch.submit(nothing, inputs=[x[b]])

    assert producers_of(go(program))[1] == ((0,) if meet else ())


def test_other_dtypes_shapes_and_owners_of_the_same_bytes_are_the_same_region():
    raw = bytearray(64)
    a = np.frombuffer(raw, np.float64)
    b = np.frombuffer(raw, np.uint8).reshape(8, 8)

    def program(orch):
        orch.submit(nothing, outputs=[a])
        orch.submit(nothing, inputs=[b])
        orch.submit(nothing, outputs=[b[7]])
        orch.submit(nothing, inputs=[a[7:]])

    assert producers_of(go(program)) == {0: (), 1: (0,), 2: (0, 1), 3: (0, 2)}


@platforms
def test_all_readers_between_two_writes_are_one_group_and_cost_a_later_write_one_edge(platform):
    x = np.zeros(8)

    def program(orch):
        for _ in range(5):
            orch.submit(nothing, inputs=[x])
        orch.submit(nothing, outputs=[x])
        for _ in range(3):
            orch.submit(nothing, inputs=[x])
        orch.submit(nothing, outputs=[x])

    report = go(program, platform)
    assert producers_of(report)[5] == (0, 1, 2, 3, 4)
    assert producers_of(report)[9] == (5, 6, 7, 8)
    assert edges(report) == 1 + 3 + 2  # a group; three readers; a writer and a group


def test_readers_of_different_regions_are_different_groups():
    x = np.zeros((4, 4))

    def program(orch):
        for row in x:
            orch.submit(nothing, inputs=[row])
            orch.submit(nothing, inputs=[row])
        orch.submit(nothing, outputs=[x])

    assert edges(go(program)) == 4


def test_a_covering_write_replaces_what_it_covers():
    x = np.zeros((4, 4))

    def program(orch):
        for row in x:
            orch.submit(nothing, outputs=[row])
        orch.submit(nothing, outputs=[x])
        orch.submit(nothing, inputs=[x])

    report = go(program)
    assert producers_of(report)[5] == (4,)
    assert report.tensor_map_peak == 4  # the four rows; then one writer; then that and its readers


def test_a_partial_write_leaves_the_rest_to_the_earlier_writer():
    x = np.zeros((4, 4))

    def program(orch):
        orch.submit(nothing, outputs=[x])
        orch.submit(nothing, outputs=[x[1]])
        orch.submit(nothing, inputs=[x[0]])
        orch.submit(nothing, inputs=[x[1]])
        orch.submit(nothing, inputs=[x])

    # x[1] is still recorded as part of task 0's region: a region is not cut into pieces
    assert producers_of(go(program)) == {0: (), 1: (0,), 2: (0,), 3: (0, 1), 4: (0, 1)}


def test_a_write_with_holes_covers_only_what_it_touches():
    """The columns' address range holds the whole middle row, and their bytes do not."""
    x = np.zeros((4, 6))

    def program(orch):
        orch.submit(nothing, outputs=[x[1]])
        orch.submit(nothing, outputs=[x[:, :3]])
        orch.submit(nothing, inputs=[x[1, 3:]])
        orch.submit(nothing, outputs=[x[1:3]])
        orch.submit(nothing, inputs=[x[1, 3:]])

    assert producers_of(go(program)) == {0: (), 1: (0,), 2: (0,), 3: (0, 1, 2), 4: (3,)}


def test_a_partial_write_ends_the_group_of_readers():
    x = np.zeros((2, 4))

    def program(orch):
        orch.submit(nothing, inputs=[x])  # 0
        orch.submit(nothing, outputs=[x[0]])  # 1 waits for 0
        orch.submit(nothing, inputs=[x])  # 2 waits for 1, and is a reader after that write
        orch.submit(nothing, outputs=[x])  # 3 waits for both groups and for 1

    report = go(program)
    assert producers_of(report) == {0: (), 1: (0,), 2: (1,), 3: (0, 1, 2)}
    assert edges(report) == 1 + 1 + 3


def test_a_task_may_read_and_write_overlapping_regions():
    x = np.zeros(10)

    def program(orch):
        orch.submit(nothing, inputs=[x[:6]])
        orch.submit(nothing, inputs=[x[:6]], outputs=[x[4:]])
        orch.submit(nothing, inputs=[x[:6]], outputs=[x])
        orch.submit(nothing, outputs=[x, x[2:4]], inouts=[x[3:5]])

    assert producers_of(go(program)) == {0: (), 1: (0,), 2: (0, 1), 3: (2,)}


@platforms
def test_a_producer_in_two_roles_costs_one_edge(platform):
    x, y = np.zeros(8), np.zeros(8)

    def program(orch):
        first = orch.submit(nothing, outputs=[x, y])
        orch.submit(nothing, inputs=[x, y], inouts=[y], deps=[first, first])

    assert edges(go(program, platform)) == 1


@platforms
def test_a_consumed_producer_costs_nothing(platform):
    x = np.zeros(8)

    def program(orch):
        with orch.scope():
            orch.submit(nothing, outputs=[x])
            orch.wait(x)
        orch.submit(nothing, inputs=[x], deps=[0])

    assert edges(go(program, platform)) == 0


def test_an_edge_is_charged_to_the_consumers_ring():
    x = np.zeros(8)

    def program(orch):
        orch.submit(nothing, outputs=[x])
        with orch.scope(), orch.scope():
            orch.submit(nothing, inputs=[x])

    assert [ring.edges for ring in go(program).rings] == [0, 0, 1, 0]


@platforms
@pytest.mark.parametrize(
    "wrap",
    [
        lambda ids: ids,
        tuple,
        np.array,
        lambda ids: np.array(ids).reshape(2, 2),
        lambda ids: [ids[:2], None, np.array(ids[2:])],
        iter,
        lambda ids: [np.int32(k) for k in ids],
    ],
    ids=["list", "tuple", "array", "2-d array", "nested", "iterator", "numpy ints"],
)
def test_explicit_dependencies_are_added(platform, wrap):
    def program(orch):
        ids = [orch.submit(nothing) for _ in range(4)]
        orch.submit(nothing, deps=wrap(ids))

    report = go(program, platform)
    assert producers_of(report)[4] == (0, 1, 2, 3) and edges(report) == 4


@pytest.mark.parametrize("deps", [[1], [-1], [99], [[5]]], ids=str)
def test_an_id_that_was_never_returned_is_refused(deps):
    def program(orch):
        orch.submit(nothing)
        with pytest.raises(ValueError, match="no task .* below 1"):
            orch.submit(nothing, deps=deps)

    go(program)


@pytest.mark.parametrize("deps", [[True], ["0"], [0.0], [object()], 1.5, [{"a"}]], ids=str)
def test_what_is_no_id_is_refused(deps):
    def program(orch):
        orch.submit(nothing)
        with pytest.raises(TypeError, match="no task id"):
            orch.submit(nothing, deps=deps)

    go(program)


def test_a_manual_scope_infers_nothing_inside_and_is_seen_from_outside():
    x = np.zeros(8)

    def program(orch):
        orch.submit(nothing, outputs=[x])  # 0
        with orch.scope(ScopeMode.MANUAL):
            orch.submit(nothing, inputs=[x], cost=10**6)  # 1
            a = orch.submit(nothing, outputs=[x], cost=10**6)  # 2
            orch.submit(nothing, outputs=[x], deps=[a], cost=10**6)  # 3
        orch.submit(nothing, inputs=[x])  # 4: after every writer, since nobody has ordered them
        orch.submit(nothing, outputs=[x])  # 5: and after every reader

    assert producers_of(go(program)) == {0: (), 1: (), 2: (), 3: (2,), 4: (0, 2, 3), 5: (0, 1, 2, 3, 4)}


def test_writers_of_a_manual_scope_are_one_group_per_region():
    x = np.zeros(8)

    def program(orch):
        with orch.scope(ScopeMode.MANUAL):
            for _ in range(100):
                orch.submit(nothing, outputs=[x])
            assert orch.usage()[1][2] == 0
        orch.submit(nothing, inputs=[x])

    report = go(program)
    assert report.tensor_map_peak == 2 and edges(report) <= 1


@pytest.mark.parametrize("inner", ScopeMode, ids=lambda mode: mode.name)
def test_no_scope_inside_a_manual_one(inner):
    def program(orch):
        with orch.scope(ScopeMode.MANUAL), orch.scope(inner):
            pass

    with pytest.raises(RuntimeError, match=rf"{inner.name} scope inside the MANUAL scope at test_runtime_dependencies.py:\d+"):
        go(program)


def test_a_manual_scope_inside_an_automatic_one_is_allowed():
    def program(orch):
        with orch.scope(ScopeMode.AUTO), orch.scope(ScopeMode.MANUAL) as scope:
            assert scope.mode is ScopeMode.MANUAL and scope.depth == 2

    go(program)
    with pytest.raises(TypeError, match="ScopeMode"):
        go(lambda orch: orch.scope("manual"))


@platforms
def test_independent_tasks_are_not_ordered(platform):
    outs = np.zeros((6, 8))
    x = np.zeros(8)

    def program(orch):
        for row in outs:
            orch.submit(nothing, inputs=[x], outputs=[row])

    assert set(producers_of(go(program, platform)).values()) == {()}


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_independent_tasks_run_at_the_same_time_on_threads(workers):
    meeting = threading.Barrier(workers, timeout=30)
    outs = np.zeros((workers, 4))

    def program(orch):
        for row in outs:
            orch.submit(lambda v: v.fill(1 + meeting.wait() * 0), outputs=[row])

    go(program, "cpu", workers=workers)
    assert outs.all()


@platforms
def test_arguments_arrive_in_the_order_inputs_outputs_inouts(platform):
    a, b, c, d = (np.full(2, float(k)) for k in range(4))
    got = []

    def program(orch):
        orch.submit(lambda *arrays: got.extend(arrays), inputs=[a, b], outputs=(c,), inouts=[d])

    go(program, platform, timeline=False)
    assert [id(array) for array in got] == [id(array) for array in (a, b, c, d)]


@platforms
def test_blocks_are_one_task_of_several_calls(platform):
    out = np.zeros(7)

    def program(orch):
        task = orch.submit(lambda v, block: v.__setitem__(block, block + 1), inouts=[out], blocks=7)
        after = orch.submit(nothing, inputs=[out])
        assert (task, after) == (0, 1)

    report = go(program, platform, workers=3)
    assert out.tolist() == [1, 2, 3, 4, 5, 6, 7] and report.tasks == 2
    spans = [span for span in report.timeline.tasks if span.task_id == 0]
    assert sorted(span.block for span in spans) == list(range(7))
    after = next(span for span in report.timeline.tasks if span.task_id == 1)
    assert after.start_ns >= max(span.end_ns for span in spans)


@platforms
def test_states_go_from_pending_to_consumed(platform):
    x = np.zeros(4)
    gate = threading.Event()
    seen = []

    def program(orch):
        with orch.scope():
            first = orch.submit(lambda v: gate.wait(30), outputs=[x])
            second = orch.submit(nothing, inputs=[x])
            seen.append(orch.state(second))
            gate.set()
            orch.wait(second)
            seen.extend([orch.state(first), orch.state(second)])
        seen.append(orch.state(first))

    gate.set() if platform == "sim" else None
    go(program, platform)
    assert seen == [TaskState.PENDING, TaskState.COMPLETED, TaskState.COMPLETED, TaskState.CONSUMED]


@platforms
def test_wait_lets_a_program_look_at_values(platform):
    x = np.zeros(3)
    seen = []

    def program(orch):
        with orch.scope(ScopeMode.MANUAL):
            orch.submit(lambda v: v.fill(5), outputs=[x], cost=10**6)
            orch.wait(x)
            seen.append(x[0])
            task = orch.submit(lambda v: v.fill(6), outputs=[x])
            orch.wait([task])
            seen.append(x[0])

    go(program, platform)
    assert seen == [5, 6]


@platforms
def test_an_array_of_integers_is_waited_for_as_data(platform):
    """Its values would pass for ids."""
    x = np.zeros(2, np.int64)
    seen = []

    def program(orch):
        orch.submit(nothing)
        orch.submit(lambda v: v.fill(7), outputs=[x], cost=10**6)
        orch.wait(x[1:])
        seen.append(x[1])

    go(program, platform)
    assert seen == [7]


BAD_ARGUMENTS = [
    ({"inputs": np.zeros(3)}, TypeError, "give a list"),
    ({"inputs": iter([np.zeros(3)])}, TypeError, "list or a tuple"),
    ({"inputs": [[1, 2]]}, TypeError, "NumPy arrays"),
    ({"outputs": [3.0]}, TypeError, "NumPy arrays"),
    ({"outputs": Output(3)}, TypeError, "give a list"),
    ({"outputs": [np.broadcast_to(np.zeros(1), 4)]}, ValueError, "read-only"),
    ({"inouts": [np.broadcast_to(np.zeros(1), 4)]}, ValueError, "read-only"),
    ({"cost": -1}, ValueError, "cost"),
    ({"cost": float("inf")}, ValueError, "cost"),
    ({"cost": True}, ValueError, "cost"),
    ({"kind": "tensor"}, ValueError, "kind"),
    ({"blocks": 0}, ValueError, "blocks"),
    ({"blocks": True}, ValueError, "blocks"),
]


@pytest.mark.parametrize(("arguments", "error", "words"), BAD_ARGUMENTS, ids=lambda value: str(value)[:40])
def test_bad_arguments_are_refused_at_the_call(arguments, error, words):
    def program(orch):
        with pytest.raises(error, match=words):
            orch.submit(nothing, **arguments)

    assert go(program).tasks == 0


def test_a_kernel_must_be_callable():
    def program(orch):
        with pytest.raises(TypeError, match="kernel"):
            orch.submit(None)

    go(program)


def test_arrays_without_elements_order_nothing():
    x = np.zeros((0, 4))

    def program(orch):
        orch.submit(nothing, outputs=[x])
        orch.submit(nothing, inputs=[x])

    assert producers_of(go(program))[1] == ()
