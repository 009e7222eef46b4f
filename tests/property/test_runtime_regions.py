"""Overlap, cover and the index against the plain sets of bytes that arrays touch."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ren_lab.runtime.range_index import RangeIndex
from ren_lab.runtime.regions import covers, overlaps, region_of


def bytes_of(array: np.ndarray) -> set[int]:
    """Every byte address the array touches, element by element."""
    start = array.__array_interface__["data"][0]
    touched: set[int] = set()
    for index in itertools.product(*(range(count) for count in array.shape)):
        first = start + sum(i * stride for i, stride in zip(index, array.strides, strict=True))
        touched.update(range(first, first + array.itemsize))
    return touched


@st.composite
def views(draw, bases):
    """A view of one of `bases`: sliced, stepped, reversed, transposed, and now and then broadcast or windowed."""
    view = draw(st.sampled_from(bases))
    for axis in range(view.ndim):
        size = view.shape[axis]
        first = draw(st.integers(0, size - 1))
        last = draw(st.integers(first + 1, size))
        step = draw(st.sampled_from([1, 1, 1, 2, 3, -1]))
        cut = slice(first, last, step) if step > 0 else slice(last - 1, first - 1 if first else None, -1)
        view = view[(slice(None),) * axis + (cut,)]
    if draw(st.booleans()):
        view = view.T
    if view.dtype == np.int32 and view.flags.c_contiguous and draw(st.booleans()):
        view = view.reshape(-1).view(np.int8)
    if draw(st.integers(0, 7)) == 0:
        view = np.broadcast_to(view, (2, *view.shape))
    if view.ndim == 1 and view.size > 2 and draw(st.integers(0, 3)) == 0:
        view = np.lib.stride_tricks.sliding_window_view(view, 2)
    return view


BASES = [
    np.zeros((6, 8), np.int32),
    np.zeros((3, 4, 5), np.int16),
    np.zeros(40, np.int8),
    np.zeros((5, 7), np.int32, order="F"),
]


@given(views(BASES), views(BASES))
@settings(max_examples=400, deadline=None)
def test_overlap_is_that_of_the_bytes(a, b):
    shared = bool(bytes_of(a) & bytes_of(b))
    assert overlaps(region_of(a), a, region_of(b), b) == shared
    assert overlaps(region_of(b), b, region_of(a), a) == shared


@given(views(BASES), views(BASES))
@settings(max_examples=400, deadline=None)
def test_cover_is_never_claimed_wrongly(a, b):
    if covers(region_of(a), region_of(b)):
        assert bytes_of(b) <= bytes_of(a)


@given(views(BASES))
@settings(max_examples=200, deadline=None)
def test_equal_bytes_written_in_other_axis_orders_are_equal_regions(a):
    low, high, form = region_of(a)
    touched = bytes_of(a)
    assert (low, high) == (min(touched), max(touched) + 1)
    assert (form is None) == (touched == set(range(low, high)))
    assert region_of(a.T) == region_of(a[::-1]) == region_of(a)


@st.composite
def boxes(draw):
    base = BASES[0]
    r0, c0 = draw(st.integers(0, 5)), draw(st.integers(0, 7))
    r1, c1 = draw(st.integers(r0 + 1, 6)), draw(st.integers(c0 + 1, 8))
    return base[r0:r1, c0:c1]


@given(boxes(), boxes())
@settings(max_examples=300, deadline=None)
def test_cover_of_boxes_of_one_array_is_always_found(a, b):
    assert covers(region_of(a), region_of(b)) == (bytes_of(b) <= bytes_of(a))


class Item:
    def __init__(self, array):
        self.array = array
        self.region = region_of(array)
        self.home = None


@given(st.lists(views(BASES), max_size=25), st.data())
@settings(max_examples=150, deadline=None)
def test_the_index_misses_nothing_and_forgets_what_is_removed(arrays, data):
    index = RangeIndex()
    items = [Item(array) for array in arrays]
    for item in items:
        index.add(item)
    gone = data.draw(st.sets(st.sampled_from(items))) if items else set()
    for item in gone:
        index.remove(item)
    query = data.draw(views(BASES))
    found = index.candidates(region_of(query))
    assert len(found) == len(set(found)) and not gone & set(found)
    for item in items:
        if item not in gone and overlaps(item.region, item.array, region_of(query), query):
            assert item in found
    for item in set(items) - gone:
        index.remove(item)
    assert not index._flat and not index._grids


def test_the_index_looks_at_few_tiles_of_a_large_matrix():
    matrix = np.zeros((2048, 2048), np.float32)
    index = RangeIndex()
    for row in range(0, 2048, 64):
        for column in range(0, 2048, 64):
            index.add(Item(matrix[row : row + 64, column : column + 64]))
    assert len(index.candidates(region_of(matrix[640:704, 640:704]))) <= 9
    assert len(index.candidates(region_of(matrix[:, 640:704]))) <= 3 * 32
    assert len(index.candidates(region_of(np.zeros(64)))) == 0
