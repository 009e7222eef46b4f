"""What generated code calls: what could not be proven to be right when the program was compiled, and is checked as it runs."""

import math
from typing import Any

import numpy as np

from ren_lab.language.dtypes import DTYPES
from ren_lab.language.errors import LanguageError, Loc
from ren_lab.language.rules import MOST_BITS

_BOUNDS = "keep offset + extent within the shape, and offsets at 0 or more (nothing counts from the end)"
_GUARD = "give another number, or guard it with an if"
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
    made = array.reshape(shape) if min(shape) >= 0 and math.prod(shape) == array.size else None
    if made is None or not np.shares_memory(made, array):
        rule = f"{list(array.shape)} (strides {list(array.strides)}) has no view of shape {list(shape)}"
        raise LanguageError("pl.reshape", rule, "give a shape of as many elements, and contiguous memory", loc)
    return made


# -- numbers ----------------------------------------------------------------------------------------------------------------


def floor_div(a: int, b: int, loc: Loc) -> int:
    """`a // b`, checked."""
    if not b:
        raise LanguageError("`//`", f"it divides {a} by 0", _GUARD, loc)
    return a // b


def rem(a: int, b: int, loc: Loc) -> int:
    """`a % b`, checked."""
    if not b:
        raise LanguageError("`%`", f"it divides {a} by 0", _GUARD, loc)
    return a % b


def _second(sign: str, b: int, loc: Loc) -> int:
    if not 0 <= b <= MOST_BITS:
        raise LanguageError(f"`{sign}`", f"its second operand is {b}", f"give 0 to {MOST_BITS}, or guard it with an if", loc)
    return b


def shl(a: int, b: int, loc: Loc) -> int:
    """`a << b`, checked."""
    return a << _second("<<", b, loc)


def shr(a: int, b: int, loc: Loc) -> int:
    """`a >> b`, checked."""
    if b < 0:
        raise LanguageError("`>>`", f"its second operand is {b}", "give 0 or more, or guard it with an if", loc)
    return a >> b


def power(a: int, b: int, loc: Loc) -> int:
    """`a ** b`, checked."""
    return a ** _second("**", b, loc)


def ratio(a: Any, b: Any) -> Any:
    """`a / b`; by 0 it is an infinity or a NaN, for Python's floats, too."""
    try:
        return a / b
    except ZeroDivisionError:
        return float(np.divide(a, b))


def whole(value: Any, loc: Loc) -> int:
    """A number as an integer, rounded towards zero."""
    try:
        return int(value)
    except (ValueError, OverflowError):
        raise LanguageError("pl.cast", f"{value} is no integer", _GUARD, loc) from None


def floating(make: Any, value: int) -> Any:
    """An integer as a floating-point number that `make` makes; an infinity where it is too large."""
    try:
        return make(value)
    except OverflowError:
        return make(math.inf if value > 0 else -math.inf)


def fits(value: int, dtype: str, loc: Loc) -> int:
    """An integer that is to become an element of a type, checked."""
    low, high = DTYPES[dtype].limits
    if not low <= value <= high:
        rule = f"the number {value} is outside pl.{dtype}, which holds {low} to {high}"
        raise LanguageError("number", rule, "use a wider type: pl.cast", loc)
    return value


def turns(start: int, stop: int, step: int, loc: Loc) -> range:
    """The turns of a loop, checked."""
    if not step:
        raise LanguageError("loop", "its step is 0", "give a step above or below 0", loc)
    return range(start, stop, step)


# -- shapes -----------------------------------------------------------------------------------------------------------------


def sized(shape: tuple[int, ...], loc: Loc) -> tuple[int, ...]:
    """The shape of something new, checked."""
    if min(shape) < 1:
        raise LanguageError("shape", f"it is {list(shape)}", "give extents of at least 1, or guard it with an if", loc)
    return shape


def tile_reshaped(array: np.ndarray, shape: tuple[int, ...], loc: Loc) -> np.ndarray:
    """A tile in another shape, checked."""
    if min(shape) < 0 or math.prod(shape) != array.size:
        rule = f"{list(array.shape)} has {array.size} elements and {list(shape)} has {math.prod(shape)}"
        raise LanguageError("pl.reshape", rule, "give a shape of as many elements", loc)
    return array.reshape(shape)


def joined(a: np.ndarray, b: np.ndarray, axis: int, loc: Loc) -> np.ndarray:
    """Two tiles joined along an axis, checked."""
    if any(x != y for k, (x, y) in enumerate(zip(a.shape, b.shape)) if k != axis % a.ndim):
        rule = f"its operands have shapes {list(a.shape)} and {list(b.shape)}"
        raise LanguageError("pl.concat", rule, f"let them differ along axis {axis % a.ndim} only", loc)
    return np.concatenate((a, b), axis=axis)


def factors(a: np.ndarray, b: np.ndarray, loc: Loc) -> tuple[np.ndarray, np.ndarray]:
    """The operands of a matrix product, once their shapes are known to fit."""
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        rule = f"{list(a.shape)} times {list(b.shape)}: the {'inner' if a.shape[:-2] == b.shape[:-2] else 'leading'} extents differ"
        raise LanguageError("pl.matmul", rule, "give [m, k] and [k, n], in stacks of equal extents", loc)
    return a, b


def some(array: np.ndarray, axis: int, loc: Loc) -> np.ndarray:
    """An array of which one element per row or column is chosen: there must be one."""
    if not array.shape[axis]:
        rule = f"the operand has the shape {list(array.shape)}, and nothing is the largest or smallest of no elements"
        raise LanguageError("reduction", rule, _GUARD, loc)
    return array
