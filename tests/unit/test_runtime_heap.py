"""The heap of a ring: rounding, padding, reuse, and arrays whose bytes are gone."""

import numpy as np
import pytest

from ren_lab.runtime import Output, ReclaimedError, RingCapacityError, RunConfig, ScopeMode, Worker

platforms = pytest.mark.parametrize("platform", ["sim", "cpu"])
KIB = 1024


def nothing(*arrays):
    pass


def go(program, platform="sim", **fields):
    with Worker(RunConfig(platform=platform, **fields)) as worker:
        return worker.run(program)


def address(array):
    return array.__array_interface__["data"][0]


@platforms
@pytest.mark.parametrize(("nbytes", "taken"), [(0, 0), (1, KIB), (KIB, KIB), (KIB + 1, 2 * KIB), (5000, 5 * KIB)])
def test_each_allocation_is_rounded_up_to_1024(platform, nbytes, taken):
    def program(orch):
        with orch.scope():
            array = orch.alloc((nbytes,), np.uint8)
            assert array.nbytes == nbytes and orch.usage()[1][1] == taken
        with orch.scope():
            orch.submit(nothing, outputs=[Output((nbytes,), np.uint8), Output(3, np.uint8)])
            assert orch.usage()[1][1] == taken + KIB

    go(program, platform, ring_heap=8 * KIB)


def test_an_allocation_does_not_straddle_the_end_and_padding_counts(tmp_path):
    addresses = []

    def program(orch):
        with orch.scope(), orch.scope(), orch.scope():  # ring 3, where a deeper scope shares the ring
            with orch.scope():
                addresses.append(address(orch.alloc(2 * KIB, np.uint8)))
            with orch.scope():
                first = orch.alloc(3 * KIB, np.uint8)  # from 0: the heap is empty again
                addresses.append(address(first))
            keep = orch.alloc(3 * KIB, np.uint8)
            addresses.append(address(keep))
            with orch.scope():
                pass

    def straddling(orch):
        with orch.scope():
            with orch.scope():
                pass
        with orch.scope(), orch.scope(), orch.scope():
            outer = [orch.alloc(KIB, np.uint8)]
            with orch.scope():
                outer.append(orch.alloc(4 * KIB, np.uint8))
            assert orch.usage()[3][1] == 5 * KIB  # the inner one waits behind the outer one
            with pytest.raises(RingCapacityError, match="heap of ring 3"):
                orch.alloc(4 * KIB, np.uint8)  # 3 KiB are free, but they would have to be 3 KiB of padding
            orch.alloc(3 * KIB, np.uint8)

    go(program, ring_heap=8 * KIB)
    assert len(set(addresses)) == 1
    go(straddling, ring_heap=8 * KIB)


def test_padding_is_part_of_the_cumulative_figures():
    def program(orch):
        with orch.scope():  # one after the other in ring 1: oldest first
            orch.submit(nothing, outputs=[Output(5 * KIB, np.uint8)], cost=10**5)
        with orch.scope():
            orch.submit(nothing, outputs=[Output(2 * KIB, np.uint8)], cost=10**6)
        with orch.scope():
            orch.submit(nothing, outputs=[Output(3 * KIB, np.uint8)])  # waits for the first; skips the last KiB

    assert go(program, ring_heap=8 * KIB).rings[1].allocated_bytes == (5 + 2 + 1 + 3) * KIB


def test_an_empty_heap_starts_over_and_the_tail_it_skips_is_not_counted():
    def program(orch):
        for _ in range(10):
            with orch.scope():
                orch.alloc(5 * KIB, np.uint8)

    report = go(program, ring_heap=8 * KIB)
    assert report.rings[1].allocated_bytes == 50 * KIB and report.rings[1].heap_peak_bytes == 5 * KIB


@platforms
def test_a_full_heap_of_ended_scopes_only_waits(platform):
    total = np.zeros(1)

    def program(orch):
        for k in range(40):
            with orch.scope():
                scratch = orch.alloc(256, np.float32)
                orch.submit(lambda v, k=k: v.fill(k), outputs=[scratch])
                orch.submit(lambda v, s: s.__iadd__(v[:1]), inputs=[scratch], inouts=[total])

    go(program, platform, ring_heap=2 * KIB, workers=4)
    assert total[0] == sum(range(40))


@platforms
def test_bytes_stay_until_all_tasks_that_touch_them_are_consumed(platform):
    """Also in a MANUAL scope, where nothing else ties a reader to them."""
    got = np.zeros(256, np.float32)

    def program(orch):
        with orch.scope(ScopeMode.MANUAL):
            scratch = orch.alloc(256, np.float32)
            first = orch.submit(lambda v: v.fill(7), outputs=[scratch])
            orch.submit(lambda v, out: np.copyto(out, v), inputs=[scratch], outputs=[got], deps=[first], cost=10**7)
        with orch.scope():
            other = orch.alloc(256, np.float32)
            orch.submit(lambda v: v.fill(-1), outputs=[other])

    go(program, platform, ring_heap=KIB, workers=4)
    assert (got == 7).all()


@platforms
def test_outputs_are_allocated_with_their_task(platform):
    seen = np.zeros(5)

    def program(orch):
        with orch.scope():
            task = orch.submit(lambda a, b: (a.fill(2), b.fill(3)), outputs=[Output((2, 3)), Output(5, "f8")])
            a, b = orch.outputs_of(task)
            assert a.shape == (2, 3) and a.dtype == np.float32 and b.dtype == np.float64
            assert address(b) - address(a) == KIB
            orch.submit(lambda a, b, out: np.copyto(out, b * a[0, 0]), inputs=[a, b], outputs=[seen])

    report = go(program, platform)
    assert seen.tolist() == [6] * 5 and report.rings[1].edges == 1


@platforms
@pytest.mark.parametrize("use", ["inputs", "outputs", "inouts"])
@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[1:, ::2], lambda a: a.view(np.uint8).T], ids=["whole", "view", "dtype"])
def test_a_reclaimed_output_is_refused_by_the_name_of_its_scope(platform, use, view):
    def program(orch):
        with orch.scope(name="phase one"):
            lost = orch.alloc((4, 4))
            orch.submit(nothing, outputs=[lost])
        with orch.scope():
            orch.alloc((4, 4))  # may have the same bytes
            with pytest.raises(ReclaimedError, match=r"phase one.*test_runtime_heap.py:\d+.*depth 1, ring 1"):
                orch.submit(nothing, **{use: [view(lost)]})

    assert go(program, platform, ring_heap=2 * KIB).tasks == 1


@platforms
def test_outputs_of_a_task_are_gone_with_its_scope(platform):
    def program(orch):
        with orch.scope():
            task = orch.submit(nothing, outputs=[Output(3)])
            (array,) = orch.outputs_of(task)
        with pytest.raises(ReclaimedError, match="task 0"):
            orch.outputs_of(task)
        with pytest.raises(ReclaimedError):
            orch.submit(nothing, inputs=[array])

    go(program, platform)


def test_a_kept_array_survives_the_next_run_of_the_worker():
    with Worker(RunConfig(platform="sim", ring_heap=4 * KIB)) as worker:

        def program(orch):
            array = orch.alloc(4)
            orch.submit(lambda v: v.fill(9), outputs=[array])
            return array

        kept = worker.run(program).result
        other = worker.run(program).result
        kept[:] = 1
        assert other.tolist() == [9] * 4 and kept.tolist() == [1] * 4
        place = address(other)
        del other, kept
        assert address(worker.run(program).result) == place  # nobody looks any more: the mapping is used again


@pytest.mark.parametrize(("shape", "dtype"), [((2,), object), ((-1,), np.int8), ("ab", np.int8), (2.5, np.int8)], ids=str)
def test_what_cannot_be_allocated_is_refused(shape, dtype):
    def program(orch):
        with pytest.raises((TypeError, ValueError)):
            orch.alloc(shape, dtype)

    go(program)
