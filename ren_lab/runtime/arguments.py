"""The arguments of a submission, checked."""

import math
import numbers
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


class Output:
    """In `outputs=`: an array of this shape and dtype that is allocated with the task, in its ring's heap."""

    __slots__ = ("dtype", "nbytes", "shape")

    def __init__(self, shape: int | Sequence[int], dtype: Any = np.float32) -> None:
        self.shape, self.dtype, self.nbytes = array_spec(shape, dtype)

    def __repr__(self) -> str:
        return f"Output({self.shape}, {self.dtype})"


def flat_ids(deps: Any, next_id: int) -> list[int]:
    """Task ids in `deps`, which may nest sequences and integer arrays; None counts as nothing.

    Raises:
        TypeError: something is no id.
        ValueError: an id that no submission has returned, below `next_id`.
    """
    ids: list[int] = []
    stack = [deps]
    while stack:
        item = stack.pop()
        if item is None:
            continue
        if isinstance(item, np.ndarray):
            item = item.tolist()
        if not isinstance(item, bool | np.bool_ | str | bytes | float):
            try:
                identity = operator.index(item)
            except TypeError:
                if isinstance(item, Iterable):
                    stack.extend(item)
                    continue
            else:
                if not 0 <= identity < next_id:
                    raise ValueError(f"there is no task {identity}; ids that submit has returned are below {next_id}")
                ids.append(identity)
                continue
        raise TypeError(f"{item!r} is no task id; use ids that submit has returned, or sequences of them")
    return ids


def check_sequence(role: str, arrays: Any) -> None:
    """Refuse what is not a sequence of arrays: a lone array would be taken apart, and an iterator be used up."""
    if isinstance(arrays, np.ndarray | Output) or not isinstance(arrays, Iterable):
        raise TypeError(f"{role} is one {type(arrays).__name__}; give a list of arrays: {role}=[…]")
    if not isinstance(arrays, Sequence):
        raise TypeError(f"{role} is a {type(arrays).__name__}; give a list or a tuple of arrays")


def checked_options(cost: Any, kind: Any, blocks: Any) -> tuple[int | None, str | None, int | None]:
    """`cost` in whole nanoseconds, `kind` and `blocks`, or `ValueError`."""
    if cost is not None:
        if isinstance(cost, bool) or not isinstance(cost, numbers.Real) or not 0 <= float(cost) < math.inf:
            raise ValueError(f"cost is {cost!r}; use virtual nanoseconds, at least 0 and finite")
        cost = round(float(cost))
    if kind not in (None, "cube", "vector"):
        raise ValueError(f"kind is {kind!r}; use 'cube', 'vector' or None for any")
    if blocks is not None:
        if isinstance(blocks, bool | np.bool_):
            raise ValueError(f"blocks is {blocks!r}; use an int, at least 1")
        blocks = operator.index(blocks)
        if blocks < 1:
            raise ValueError(f"blocks is {blocks}; use an int, at least 1")
    return cost, kind, blocks


def array_spec(shape: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape, dtype and bytes of an array to allocate; `TypeError` for dtypes of Python objects."""
    spec = np.dtype(dtype)
    if spec.hasobject:
        raise TypeError(f"dtype is {spec}; a ring heap holds plain bytes, not Python objects")
    sizes: tuple[int, ...]
    try:
        sizes = (operator.index(shape),)
    except TypeError:
        sizes = tuple(operator.index(size) for size in shape)
    if any(size < 0 for size in sizes):
        raise ValueError(f"shape is {sizes}; sizes are at least 0")
    return sizes, spec, math.prod(sizes) * spec.itemsize
