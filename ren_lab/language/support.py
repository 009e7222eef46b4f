"""What generated code calls: accesses that could not be proven to be within bounds when the program was compiled."""

from typing import Any

import numpy as np

from ren_lab.language.errors import LanguageError, Loc

_BOUNDS = "keep offset + extent within the shape, and offsets at 0 or more (nothing counts from the end)"
_LONGEST_ARRAY = 2**24  # entries; beyond it a program means a tensor
Item = int | slice


def _out(loc: Loc, shape: tuple[int, ...], offsets: tuple[int, ...], sizes: tuple[int, ...]) -> LanguageError:
    rule = f"the part {list(sizes)} at {list(offsets)} is out of bounds of {list(shape)}"
    return LanguageError("access", rule, _BOUNDS, loc)


def window(array: np.ndarray, offsets: tuple[int, ...], sizes: tuple[int, ...], loc: Loc) -> np.ndarray:
    """The part of an array, checked."""
    for extent, offset, size in zip(array.shape, offsets, sizes):
        if offset < 0 or size < 0 or offset + size > extent:
            raise _out(loc, array.shape, offsets, sizes)
    return array[tuple([slice(offset, offset + size) for offset, size in zip(offsets, sizes)])]


def put(array: np.ndarray, offsets: tuple[int, ...], tile: np.ndarray, loc: Loc) -> None:
    """Write a tile into an array, checked."""
    if tile.ndim != array.ndim:
        raise LanguageError("store", f"a tile {list(tile.shape)} goes into {list(array.shape)}", "give equal ranks", loc)
    window(array, offsets, tile.shape, loc)[...] = tile


def placed(tile: np.ndarray, offsets: tuple[int, ...], part: np.ndarray, loc: Loc) -> np.ndarray:
    """A copy of a tile with a part written into it."""
    result = tile.copy()
    put(result, offsets, part, loc)
    return result


def _spans(array: np.ndarray, items: tuple[Item, ...], loc: Loc) -> tuple[Item, ...]:
    """Subscripts with all ends given, checked."""
    result: list[Item] = []
    for extent, item in zip(array.shape, items):
        if isinstance(item, slice):
            low = 0 if item.start is None else item.start
            high = extent if item.stop is None else item.stop
            if low < 0 or high > extent or high < low:
                raise LanguageError("subscript", f"{low}:{high} is out of bounds of the extent {extent}", _BOUNDS, loc)
            result.append(slice(low, high))
        else:
            if not 0 <= item < extent:
                raise LanguageError("subscript", f"{item} is out of bounds of the extent {extent}", _BOUNDS, loc)
            result.append(item)
    return tuple(result)


def view(array: np.ndarray, items: tuple[Item, ...], loc: Loc) -> np.ndarray:
    """`array[items]`, checked."""
    return array[_spans(array, items, loc)]


def put_items(array: np.ndarray, items: tuple[Item, ...], value: Any, loc: Loc) -> None:
    """`array[items] = value`, checked."""
    where = _spans(array, items, loc)
    target = array[where]
    if isinstance(value, np.ndarray) and value.shape != target.shape:
        rule = f"{list(value.shape)} goes into a part of shape {list(target.shape)}"
        raise LanguageError("assignment", rule, "give equal shapes", loc)
    array[where] = value


def changed(tile: np.ndarray, items: tuple[Item, ...], value: Any, loc: Loc) -> np.ndarray:
    """A copy of a tile in which `tile[items]` is `value`."""
    result = tile.copy()
    put_items(result, items, value, loc)
    return result


def alike(loc: Loc, *operands: Any) -> tuple[Any, ...]:
    """The operands, once their shapes are known to be equal; scalars go with any shape."""
    shapes = {operand.shape for operand in operands if isinstance(operand, np.ndarray)}
    if len(shapes) > 1:
        rule = f"its operands have shapes {' and '.join(str(list(shape)) for shape in sorted(shapes))}"
        raise LanguageError("operation", rule, "give equal shapes", loc)
    return operands


def column(loc: Loc, tile: np.ndarray, vector: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """A tile and a vector that repeats along `axis`, once the vector's shape is known to fit."""
    wanted = list(tile.shape)
    wanted[axis] = 1
    if list(vector.shape) != wanted:
        rule = f"the vector has the shape {list(vector.shape)} beside {list(tile.shape)}"
        raise LanguageError("operation", rule, f"give one of shape {wanted}", loc)
    return tile, vector


def new_array(length: int, empty: Any, loc: Loc) -> list[Any]:
    """An array of scalars or task ids."""
    if not 1 <= length <= _LONGEST_ARRAY:
        raise LanguageError("pl.array.create", f"the length is {length}", f"give 1 to {_LONGEST_ARRAY:,}", loc)
    return [empty] * length


def checked_index(length: int, index: int, loc: Loc) -> int:
    """An index into an array of scalars or task ids, checked."""
    if not 0 <= index < length:
        raise LanguageError("subscript", f"{index} is out of bounds of the length {length}", _BOUNDS, loc)
    return index


def cut(array: np.ndarray, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> np.ndarray:
    """The part of an array that a task may touch, as far as it exists: what goes beyond is the kernel's error to report."""
    return array[tuple([slice(max(offset, 0), max(offset + size, 0)) for offset, size in zip(offsets, sizes)])]


def fetch(orch: Any, array: np.ndarray, items: tuple[int, ...], loc: Loc) -> Any:
    """One element, once the tasks that write it have ended."""
    _spans(array, items, loc)
    element = array[tuple([slice(item, item + 1) for item in items])]
    orch.wait(element)
    return element.item() if element.dtype.kind in "iub" else element.reshape(())[()]


def given(orch: Any, array: np.ndarray) -> np.ndarray:
    """What a function returns of a tensor it has created: a copy, since the tensor ends with its scope."""
    orch.wait(array)
    return array.copy()


def fit(loc: Loc, callee: str, *arguments: tuple[str, np.ndarray, tuple[int | str | None, ...]]) -> None:
    """Check that arguments have the extents that a function was compiled for; one name is one number."""
    extents: dict[str, int] = {}
    for name, array, shape in arguments:
        for want, have in zip(shape, array.shape):
            known = extents.setdefault(want, have) if isinstance(want, str) else want
            if known is not None and known != have:
                shown = ", ".join("?" if extent is None else str(extent) for extent in shape)
                where = f" with {want} = {known}" if isinstance(want, str) else ""
                rule = f"argument {name!r} has the shape {list(array.shape)} where [{shown}]{where} is declared"
                raise LanguageError(f"call of {callee}", rule, "give the declared shape", loc)


def block_count(count: int, loc: Loc) -> int:
    """A number of blocks, checked."""
    if count < 1:
        raise LanguageError("pl.spmd", f"it has {count} blocks", "give at least 1, or put it under an if", loc)
    return count


def reshaped(array: np.ndarray, shape: tuple[int, ...], loc: Loc) -> np.ndarray:
    """An array in another shape, sharing its memory."""
    made = array.reshape(shape) if np.prod(shape, dtype=int) == array.size else None
    if made is None or not np.shares_memory(made, array):
        rule = f"{list(array.shape)} (strides {list(array.strides)}) has no view of shape {list(shape)}"
        raise LanguageError("pl.reshape", rule, "give a shape of as many elements, and contiguous memory", loc)
    return made
