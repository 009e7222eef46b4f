"""The allocator model against a heap kept byte by byte."""

import doctest
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ren_lab.memory import TLSF, tlsf

SECOND_LEVEL = 32


class ByteHeap:
    """Who owns each unit of the arena, and nothing else: the definition that the allocator is held against."""

    def __init__(self, alignment):
        self.alignment = alignment
        self.owner = []  # per unit: the offset of the block that was handed out there, or None

    def units(self, nbytes):
        return (nbytes + self.alignment - 1) // self.alignment

    def take(self, offset, nbytes):
        assert offset % self.alignment == 0
        first, length = offset // self.alignment, self.units(nbytes)
        self.owner += [None] * (first + length - len(self.owner))
        assert self.owner[first : first + length] == [None] * length, "bytes handed out twice"
        self.owner[first : first + length] = [offset] * length

    def give(self, offset):
        self.owner = [None if owner == offset else owner for owner in self.owner]

    def runs(self):
        """(offset, size, free) of the blocks, free ones as large as can be."""
        found = []
        for unit, owner in enumerate(self.owner):
            if found and found[-1][2] is owner:
                found[-1][1] += 1
            else:
                found.append([unit, 1, owner])
        return [(start * self.alignment, length * self.alignment, owner is None) for start, length, owner in found]


def size_class(units):
    """The class by its definition: exact below 32, then every power of two cut into 32 equal parts."""
    if units < SECOND_LEVEL:
        return 0, units
    low, first = SECOND_LEVEL, 1
    while units >= 2 * low:
        low, first = 2 * low, first + 1
    return first, (units - low) * SECOND_LEVEL // low


def check(heap, reference):
    blocks = heap.blocks()
    # An owner's run is one block, since equal neighbours in the reference are one allocation or one free run.
    assert [(b.offset, b.size, b.free) for b in blocks] == reference.runs()
    assert heap.peak_bytes == len(reference.owner) * reference.alignment
    assert heap.used_bytes == sum(owner is not None for owner in reference.owner) * reference.alignment
    assert not any(low.free and high.free for low, high in pairwise(blocks))

    lists = heap.free_lists()
    assert sorted(offset for offsets in lists.values() for offset in offsets) == [b.offset for b in blocks if b.free]
    sizes = {b.offset: b.size for b in blocks}
    for key, offsets in lists.items():
        assert offsets
        for offset in offsets:
            assert size_class(sizes[offset] // reference.alignment) == key
    first_level, second_levels = heap.bitmaps()
    assert first_level == sum(1 << first for first in {first for first, _ in lists})
    assert second_levels == {
        first: sum(1 << second for other, second in lists if other == first) for first in {first for first, _ in lists}
    }


@settings(max_examples=150, deadline=None)
@given(data=st.data(), alignment=st.sampled_from([1, 8, 64, 256]))
def test_random_traffic_agrees_with_a_heap_kept_byte_by_byte(data, alignment):
    heap, reference, live = TLSF(alignment), ByteHeap(alignment), []
    sizes = st.one_of(st.integers(1, 8 * alignment), st.integers(1, 300 * alignment), st.just(67 * alignment))
    for _ in range(data.draw(st.integers(1, 40), label="steps")):
        if live and data.draw(st.booleans(), label="free"):
            offset = live.pop(data.draw(st.integers(0, len(live) - 1), label="which"))
            heap.free(offset)
            reference.give(offset)
        else:
            nbytes = data.draw(sizes, label="nbytes")
            free_before = [size for _, size, free in reference.runs() if free]
            before = heap.peak_bytes
            offset = heap.alloc(nbytes)
            reference.take(offset, nbytes)
            live.append(offset)
            if heap.peak_bytes > before:  # fewer than 16 blocks per list here, so all of them are compared
                assert all(size < nbytes for size in free_before), "the arena grew although a free block fits"
        check(heap, reference)
    for offset in live:
        heap.free(offset)
        reference.give(offset)
    check(heap, reference)
    assert [b.free for b in heap.blocks()] == [True], "freeing everything leaves one block"


@pytest.mark.parametrize("units", [1, 31, 32, 33, 63, 64, 65, 66, 1000, 4095, 4096, 123457, 2**40 + 1])
def test_size_classes(units):
    assert TLSF(256).size_class(256 * units) == size_class(units)


def test_the_last_block_is_extended_when_it_is_free():
    heap = TLSF(64)
    heap.alloc(64)
    tail = heap.alloc(128)
    heap.free(tail)
    assert heap.alloc(320) == tail
    assert heap.peak_bytes == 64 + 320


@pytest.mark.parametrize("limbs", [8, 67, 100, 131])
def test_a_block_of_exactly_the_size_is_reused(limbs):
    # 67, 100 and 131 do not begin a size class, so a search that starts one class up would miss them.
    heap = TLSF(256)
    block, fence = heap.alloc(limbs * 256), heap.alloc(256)
    larger, _ = heap.alloc(400 * 256), heap.alloc(256)
    heap.free(block)
    heap.free(larger)
    assert fence == limbs * 256
    assert heap.alloc(limbs * 256) == block


def test_a_block_is_split_and_merged_with_both_neighbours():
    heap = TLSF(256)
    low, middle, high, _ = (heap.alloc(512) for _ in range(4))
    heap.free(low)
    heap.free(high)
    heap.free(middle)
    assert [(b.offset, b.size, b.free) for b in heap.blocks()] == [(0, 1536, True), (1536, 512, False)]
    assert heap.alloc(256) == 0
    assert [(b.offset, b.size, b.free) for b in heap.blocks()][1] == (256, 1280, True)


def test_long_lists_stay_usable():
    heap = TLSF(1)
    kept = [heap.alloc(nbytes) for _ in range(100) for nbytes in (64, 1)]
    for offset in kept[::2]:
        heap.free(offset)
    peak = heap.peak_bytes
    for _ in range(100):
        heap.alloc(64)
    assert heap.peak_bytes == peak


@pytest.mark.parametrize("nbytes", [0, -1, 1.5, True, "8", None])
def test_sizes_that_are_none(nbytes):
    heap = TLSF()
    with pytest.raises(ValueError, match="at least 1"):
        heap.alloc(nbytes)
    assert heap.blocks() == () and heap.used_bytes == 0


@pytest.mark.parametrize("alignment", [0, -8, 3, 100, 2.0, True, None])
def test_alignments_that_are_none(alignment):
    with pytest.raises(ValueError, match="power of two"):
        TLSF(alignment)


def test_freeing_what_is_not_allocated():
    heap = TLSF(256)
    offset = heap.alloc(1000)
    heap.alloc(1)
    for wrong in (1, 256, 10**6, -256):
        with pytest.raises(ValueError, match="was not returned by alloc"):
            heap.free(wrong)
    heap.free(offset)
    with pytest.raises(ValueError, match="is free already"):
        heap.free(offset)
    assert heap.used_bytes == 256


def test_the_example_in_the_docstring():
    outcome = doctest.testmod(tlsf)
    assert outcome.attempted and not outcome.failed
