"""Which bytes an array touches, and whether two regions meet or one covers the other.

A region is a plain tuple `(low, high, form)`: the half-open range of byte addresses that holds it, and its form, which
is None where every byte of the range is touched and `(run, ((stride, count), ...))` otherwise: runs of `run` bytes,
repeated at the given strides, largest first. Equal regions are equal tuples, whatever the dtype, axis order or sign of
the strides they were written with. Addresses identify memory, so views of one array, and arrays of other libraries that
share it, meet as they should; whoever keeps a region must keep the array, or the address may be given out again.
"""

from functools import lru_cache
from typing import Any

import numpy as np

Levels = tuple[tuple[int, int], ...]  # (stride in bytes, count), largest stride first
Form = tuple[int, Levels] | None
Region = tuple[int, int, Form]

_MAX_WORK = 20_000  # candidate solutions of the exact test of two general regions; beyond it they are taken to meet


def region_of(array: Any) -> Region | None:
    """The region of a NumPy array, or None for an array without elements. `TypeError` for anything else."""
    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"a {type(array).__name__} is not an array: a task's inputs, outputs and inouts are NumPy arrays or views of "
            f"them (for a CPU tensor of torch give tensor.numpy()); bind other values in the function"
        )
    size = array.nbytes
    if not size:
        return None
    low = array.__array_interface__["data"][0]
    if array.flags.forc:
        return low, low + size, None
    below, above, form = _strided(array.shape, array.strides, array.itemsize)
    return low - below, low + above, form


@lru_cache(maxsize=8192)
def _strided(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int, Form]:
    """Bytes below and above the first element's address, and the form."""
    below = sum(-stride * (count - 1) for count, stride in zip(shape, strides, strict=True) if stride < 0)
    above = sum(stride * (count - 1) for count, stride in zip(shape, strides, strict=True) if stride > 0) + itemsize
    axes = sorted((abs(stride), count) for count, stride in zip(shape, strides, strict=True) if count > 1 and stride)
    run = itemsize
    levels: list[tuple[int, int]] = []  # smallest stride first
    for stride, count in axes:
        if not levels and stride <= run:  # neighbours touch or overlap: one longer run
            run += stride * (count - 1)
        elif levels and stride == levels[-1][0] * levels[-1][1]:
            levels[-1] = (levels[-1][0], levels[-1][1] * count)
        else:
            levels.append((stride, count))
    return below, above, (run, tuple(reversed(levels))) if levels else None


def overlaps(a: Region, a_array: np.ndarray | None, b: Region, b_array: np.ndarray | None) -> bool:
    """Whether two regions share a byte.

    Exact for regions of at most one stride, with equal strides or one of them contiguous, in constant time; other pairs
    are left to `numpy.shares_memory` and count as meeting when it would need more than a bounded search, or without arrays.
    """
    if a[0] >= b[1] or b[0] >= a[1]:
        return False
    if a == b or (a[2] is None and b[2] is None):
        return True
    run_a, levels_a = a[2] or (a[1] - a[0], ())
    run_b, levels_b = b[2] or (b[1] - b[0], ())
    if len(levels_a) <= 1 and len(levels_b) <= 1 and (not levels_a or not levels_b or levels_a[0][0] == levels_b[0][0]):
        stride = (levels_a or levels_b)[0][0]
        count_a = levels_a[0][1] if levels_a else 1
        count_b = levels_b[0][1] if levels_b else 1
        distance = b[0] - a[0]
        # run j of b meets run i of a where -run_b < distance + (j - i) * stride < run_a
        first = max((-run_b - distance) // stride + 1, 1 - count_a)
        last = min(-((distance - run_a) // stride) - 1, count_b - 1)
        return first <= last
    if a_array is None or b_array is None:
        return True
    try:
        return bool(np.shares_memory(a_array, b_array, max_work=_MAX_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def covers(outer: Region, inner: Region) -> bool:
    """Whether every byte of `inner` lies in `outer`; True only where that is certain.

    `inner`'s runs are written in the mixed radix of `outer`'s strides; when no digit overflows, each run of `inner` lies
    in a run of `outer`. This decides all boxes cut from one array; exotic layouts may be missed, which costs an edge
    more and never a result.
    """
    if inner[0] < outer[0] or inner[1] > outer[1]:
        return False
    if outer[2] is None or outer == inner:
        return True
    run, levels = outer[2]
    inner_run, inner_levels = inner[2] or (inner[1] - inner[0], ())
    offset = inner[0] - outer[0]
    digits = []
    for stride, count in levels:
        digit = min(offset // stride, count - 1)
        digits.append(digit)
        offset -= digit * stride
    for stride, count in inner_levels:
        for k, (outer_stride, _) in enumerate(levels):
            if not stride % outer_stride:
                digits[k] += stride // outer_stride * (count - 1)
                break
        else:
            offset += stride * (count - 1)
    return offset + inner_run <= run and all(digit < count for digit, (_, count) in zip(digits, levels, strict=True))
