"""The circular heap against a picture of it: a list of bytes that says who holds each."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from ren_lab.runtime.rings import Heap, rounded

KIB = 1024


@dataclass(eq=False)
class Owner:
    open: bool = True


@given(st.sampled_from([1, 2, 4, 8, 16]), st.lists(st.tuples(st.integers(1, 9 * KIB), st.integers(0, 9)), max_size=60))
def test_blocks_never_overlap_or_straddle_and_leave_in_order(capacity_kib, steps):
    heap = Heap(capacity_kib * KIB)
    live: list[tuple[object, int, Owner]] = []  # blocks in order of allocation, with their sizes
    allocated = 0
    for nbytes, which in steps:
        size = rounded(nbytes)
        if heap.used + heap.footprint(size) <= heap.capacity:
            empty, before, frontier = not live, heap.head, heap.cursor
            owner = Owner()
            block = heap.reserve(size, owner)
            assert 0 <= block.offset and block.offset + size <= heap.capacity
            for other, other_size, _ in live:
                assert block.offset + size <= other.offset or other.offset + other_size <= block.offset
            live.append((block, size, owner))
            if empty:
                assert block.offset == 0 and heap.head - before == size  # starts over, and skips for free
            elif block.offset == frontier:
                assert heap.head - before == size
            else:
                assert block.offset == 0 and heap.head - before == size + heap.capacity - frontier
            allocated += size
            assert heap.head >= allocated
        else:
            assert size > heap.capacity or live  # an empty heap takes whatever is not larger than it
        if live and which < 7:
            live[which % len(live)][2].open = False
            tail = heap.tail
            heap.advance()
            while live and not live[0][2].open:
                live.pop(0)
            assert heap.tail >= tail and (heap.tail == heap.head) == (not live)
        assert sum(size for _, size, _ in live) <= heap.used <= heap.capacity
