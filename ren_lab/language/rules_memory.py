"""What operations on memory accept: loads, stores, views, subscripts."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ren_lab.language import nodes as ir
from ren_lab.language.dtypes import DType
from ren_lab.language.errors import counted
from ren_lab.language.linear import Linear, number, unknown
from ren_lab.language.rules import check_literal, extents
from ren_lab.language.values import (
    ArrayValue,
    ScalarValue,
    TaskValue,
    TensorValue,
    TileValue,
    Value,
    describe,
    same_shape,
    shape_text,
)  # fmt: skip

if TYPE_CHECKING:
    from ren_lab.language.check_expr import ExprChecker

Rule = Callable[["ExprChecker", ir.Op, list[Value]], Value]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of some operations."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _tensor(check: "ExprChecker", op: ir.Op, value: Value, role: str) -> TensorValue | None:
    if isinstance(value, TensorValue):
        return value
    if type(value) is Value:
        return None
    check.fail(op, f"{role} is {describe(value)}", "give a tensor: a parameter, or what pl.create_tensor makes")


@rule("load")
def _load(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    check.want_kernel(op)
    tensor = _tensor(check, op, values[0], "its source")
    offsets, sizes = check.integers(op, op.args[1]), extents(check, op, 2)
    if len(offsets) != len(sizes):
        check.fail(op, f"it has {counted(len(offsets), 'offset')} and {counted(len(sizes), 'extent')}", "give one of each per axis")
    if tensor is None:
        return TileValue(sizes, None)
    check.box(op, "pl.load", tensor.shape, offsets, sizes)
    check.note(tensor, False, offsets, sizes, op, op.attr("cache"), False, op.loc)
    return TileValue(sizes, tensor.dtype)


def _stored(check: "ExprChecker", op: ir.Op, tensor: TensorValue | TileValue | None, value: Value, role: str) -> TileValue:
    """What is stored, as a tile whose element type and rank fit."""
    if isinstance(value, ScalarValue):
        check.fail(op, f"{role} is {describe(value)}", "give a tile, such as pl.full makes, or write one element with pl.write")
    (tile,) = check.tiles(ir.Op(op.name, (_arg(op, role),), loc=op.loc), [value])
    if not isinstance(tile, TileValue):
        return TileValue(None, None)
    if tensor is not None:
        if tensor.dtype is not None and tile.dtype is not None and tensor.dtype != tile.dtype:
            check.fail(op, f"a tile of {tile.dtype!r} goes into {tensor.dtype!r}; nothing is converted silently",
                       f"convert it: pl.cast(…, {tensor.dtype!r})")  # fmt: skip
        if tensor.shape is not None and tile.shape is not None and len(tensor.shape) != len(tile.shape):
            check.fail(
                op,
                f"a tile {shape_text(tile.shape)} goes into {shape_text(tensor.shape)}",
                "give equal ranks; pl.reshape adds axes",
            )
    return tile


def _arg(op: ir.Op, role: str) -> ir.Expr | None:
    return op.args[1] if op.name == "assemble" else op.args[0]


def _write_box(
    check: "ExprChecker", op: ir.Op, tensor: TensorValue, offsets: tuple[Linear, ...], tile: TileValue, name: str
) -> None:
    if tile.shape is None:
        if tensor.shape is not None and len(offsets) != len(tensor.shape):
            check.fail(op, f"{counted(len(offsets), 'offset')} for the shape {shape_text(tensor.shape)}", "give one per axis")
        check.note(tensor, True, offsets, (), op, None, False, op.loc, name)
        return
    if len(offsets) != len(tile.shape):
        check.fail(op, f"{counted(len(offsets), 'offset')} for a tile {shape_text(tile.shape)}", "give one per axis")
    check.box(op, name, tensor.shape, offsets, tile.shape)
    check.note(tensor, True, offsets, tile.shape, op, None, False, op.loc, name)


@rule("store")
def _store(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    check.want_kernel(op)
    tensor = _tensor(check, op, values[2], "its target")
    offsets = check.integers(op, op.args[1])
    tile = _stored(check, op, tensor, values[0], "its tile")
    if tensor is None:
        return Value()
    _write_box(check, op, tensor, offsets, tile, "pl.store")
    return tensor


@rule("assemble")
def _assemble(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    check.want_kernel(op)
    target, source = values[0], values[1]
    offsets = check.integers(op, op.args[2])
    if not isinstance(target, TensorValue | TileValue) and type(target) is not Value:
        check.fail(op, f"its target is {describe(target)}", "give a tensor or a tile")
    known = target if isinstance(target, TensorValue | TileValue) else None
    tile = _stored(check, op, known, source, "its source")
    if isinstance(target, TensorValue):
        _write_box(check, op, target, offsets, tile, "pl.assemble")
    elif isinstance(target, TileValue) and tile.shape is not None:
        check.box(op, "pl.assemble", target.shape, offsets, tile.shape)
    return target


@rule("slice")
def _slice(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    sizes, offsets = extents(check, op, 1), check.integers(op, op.args[2])
    if len(offsets) != len(sizes):
        check.fail(op, f"it has {counted(len(offsets), 'offset')} and {counted(len(sizes), 'extent')}", "give one of each per axis")
    return part(check, op, "pl.slice", values[0], offsets, sizes)


def part(
    check: "ExprChecker", expr: ir.Expr, name: str, value: Value, offsets: tuple[Linear, ...], sizes: tuple[Linear, ...]
) -> Value:
    """Part of a tensor (a view outside kernels, a tile inside) or of a tile."""
    if type(value) is Value:
        return value
    if not isinstance(value, TensorValue | TileValue):
        check.fail(expr, f"its operand is {describe(value)}", "take parts of tensors and tiles", name)
    check.box(expr, name, value.shape, offsets, sizes)
    if isinstance(value, TileValue):
        return TileValue(sizes, value.dtype)
    if not check.in_kernel:
        return TensorValue(sizes, value.dtype, value.roots)
    check.note(value, False, offsets, sizes, expr, None, True, expr.loc, name)
    return TileValue(sizes, value.dtype)


@rule("region")
def _region(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    tensor = _tensor(check, op, values[0], "its tensor")
    check.integers(op, op.args[1])
    check.integers(op, op.args[2])
    return tensor or Value()


@rule("read")
def _read(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    return element(check, op, "pl.read", values[0], check.integers(op, op.args[1]))


def element(check: "ExprChecker", expr: ir.Expr, name: str, value: Value, offsets: tuple[Linear, ...]) -> Value:
    """One element of a tensor or a tile."""
    if type(value) is Value:
        return value
    if not isinstance(value, TensorValue | TileValue):
        check.fail(expr, f"its operand is {describe(value)}", "read elements of tensors and tiles", name)
    ones = tuple(number(1) for _ in offsets)
    check.box(expr, name, value.shape, offsets, ones)
    if isinstance(value, TensorValue):
        check.note(value, False, offsets, ones, expr, None, True, expr.loc, name)
    dtype = value.dtype
    return ScalarValue(dtype, unknown() if dtype is None or dtype.is_int else None)


@rule("write")
def _write(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    check.want_kernel(op)
    tensor = _tensor(check, op, values[0], "its target")
    offsets = check.integers(op, op.args[1])
    value = values[2]
    if isinstance(value, TileValue | TensorValue):
        check.fail(op, f"its value is {describe(value)}", "give a scalar, or store a tile with pl.store")
    if tensor is None:
        return Value()
    check_scalar(check, op, value, tensor.dtype)
    ones = tuple(number(1) for _ in offsets)
    check.box(op, "pl.write", tensor.shape, offsets, ones)
    check.note(tensor, True, offsets, ones, op, None, False, op.loc)
    return tensor


def check_scalar(check: "ExprChecker", op: ir.Op, value: Value, dtype: DType | None) -> None:
    """Raise where a scalar cannot become an element of this type without conversion."""
    if not isinstance(value, ScalarValue) or dtype is None:
        return
    if value.literal is not None:
        check_literal(check, op, value.literal, dtype)
    elif value.weak and not dtype.is_float:
        check.fail(op, f"{describe(value)} goes into {dtype!r}", f"convert it: pl.cast(…, {dtype!r})")
    elif value.dtype is not None and value.dtype != dtype:
        check.fail(
            op,
            f"a scalar of {value.dtype!r} goes into {dtype!r}; nothing is converted silently",
            f"convert it: pl.cast(…, {dtype!r})",
        )


# -- subscripts -------------------------------------------------------------------------------------------------------------


def spans(
    check: "ExprChecker", expr: ir.Node, items: tuple[ir.Expr, ...], value: TensorValue | TileValue, name: str
) -> tuple[tuple[Linear, ...], tuple[Linear, ...], tuple[bool, ...]]:
    """Offsets, sizes and "is an index, so that the axis is dropped" of a subscript."""
    shape = value.shape
    if shape is not None and len(items) > len(shape):
        check.fail(expr, f"{counted(len(items), 'subscript')} for the shape {shape_text(shape)}", "give at most one per axis", name)
    offsets, sizes, dropped = [], [], []
    rank = len(items) if shape is None else len(shape)
    for axis in range(rank):
        item = items[axis] if axis < len(items) else ir.Span(None, None)
        extent = unknown() if shape is None else shape[axis]
        if isinstance(item, ir.Span):
            low = number(0) if item.low is None else check.integer(expr, check.expr(item.low), name)
            high = extent if item.high is None else check.integer(expr, check.expr(item.high), name)
            size = high - low
            if size.value is not None and size.value < 1:
                check.fail(expr, f"the slice of axis {axis} holds {counted(size.value, 'element')}", "let it hold at least 1", name)
            offsets.append(low)
            sizes.append(size)
            dropped.append(False)
        else:
            offsets.append(check.integer(expr, check.expr(item), name))
            sizes.append(number(1))
            dropped.append(True)
    return tuple(offsets), tuple(sizes), tuple(dropped)


def subscript(check: "ExprChecker", expr: ir.Subscript) -> Value:
    """`value[items]`: an element where all are indices, otherwise a part."""
    value = check.expr(expr.base)
    if isinstance(value, ArrayValue):
        return _array_item(check, expr, value)
    if type(value) is Value:
        for item in expr.items:
            for inner in (item.low, item.high) if isinstance(item, ir.Span) else (item,):
                if inner is not None:
                    check.expr(inner)
        return value
    if not isinstance(value, TensorValue | TileValue):
        check.fail(expr, f"{describe(value)} has no subscripts", "take parts of tensors, tiles and arrays", "subscript")
    offsets, sizes, dropped = spans(check, expr, expr.items, value, "subscript")
    if all(dropped) and value.shape is not None:
        return element(check, expr, "subscript", value, offsets)
    if all(dropped):  # an element or a part: the rank decides
        if isinstance(value, TensorValue):
            check.note(value, False, offsets, (), expr, None, True, expr.loc, "subscript")
        return Value()
    made = part(check, expr, "subscript", value, offsets, sizes)
    assert isinstance(made, TensorValue | TileValue)
    kept = tuple(size for size, drop in zip(sizes, dropped) if not drop)
    if value.shape is None:
        return replace(made, shape=None)
    return replace(made, shape=kept)


def array_index(check: "ExprChecker", expr: ir.Node, items: tuple[ir.Expr, ...], value: ArrayValue) -> None:
    """Check the subscript of an array."""
    if len(items) != 1 or isinstance(items[0], ir.Span):
        check.fail(expr, "an array has one index", "write a[i]", "subscript")
    check.box(expr, "subscript", (value.length,), (check.integer(expr, check.expr(items[0]), "subscript"),), (number(1),))


def _array_item(check: "ExprChecker", expr: ir.Subscript, value: ArrayValue) -> Value:
    array_index(check, expr, expr.items, value)
    if value.dtype.kind == "t":
        return TaskValue()
    return ScalarValue(value.dtype, unknown() if value.dtype.is_int else None)


def put(check: "ExprChecker", stmt: ir.Put) -> Value:
    """`target[items] = value`; what the target is known to be behind it."""
    where = ir.Name(stmt.target, loc=stmt.loc)
    target = check.facts[id(stmt)] = check.expr(where)
    value = check.expr(stmt.value)
    op = ir.Op("assemble", (where, stmt.value), loc=stmt.loc)
    if isinstance(target, ArrayValue):
        array_index(check, stmt, stmt.items, target)
        is_task = isinstance(value, TaskValue)
        if type(value) is not Value and is_task != (target.dtype.kind == "t"):
            check.fail(stmt, f"{describe(value)} goes into {describe(target)}", "store what the array holds", "assignment")
        both_ints = isinstance(value, ScalarValue) and value.is_int and target.dtype.is_int  # exact numbers, whatever their width
        if not is_task and not both_ints:
            check_scalar(check, op, value, target.dtype)
        return target
    check.want_kernel(op)
    if type(target) is Value:
        return target
    if not isinstance(target, TensorValue | TileValue):
        check.fail(stmt, f"{describe(target)} has no parts", "assign to parts of tensors, tiles and arrays", "assignment")
    offsets, sizes, dropped = spans(check, stmt, stmt.items, target, "assignment")
    check.box(stmt, "assignment", target.shape, offsets, sizes)
    if isinstance(value, ScalarValue) and all(dropped):
        check_scalar(check, op, value, target.dtype)
    else:
        kept = tuple(size for size, drop in zip(sizes, dropped) if not drop)
        _check_put(check, op, target, value, kept if target.shape is not None else None)
    if isinstance(target, TensorValue):
        check.note(target, True, offsets, sizes, stmt, None, False, stmt.loc, "assignment")
    return target


def _check_put(
    check: "ExprChecker", op: ir.Op, target: TensorValue | TileValue, value: Value, kept: tuple[Linear, ...] | None
) -> None:
    if isinstance(value, ScalarValue):
        check.fail(op, f"{describe(value)} goes into a part of {describe(target)}", "fill it with pl.full", "assignment")
    (tile,) = check.tiles(ir.Op("assemble", (op.args[1],), loc=op.loc), [value])
    if not isinstance(tile, TileValue):
        return
    if target.dtype is not None and tile.dtype is not None and target.dtype != tile.dtype:
        check.fail(op, f"a tile of {tile.dtype!r} goes into {target.dtype!r}; nothing is converted silently",
                   f"convert it: pl.cast(…, {target.dtype!r})", "assignment")  # fmt: skip
    if kept is not None and same_shape(kept, tile.shape) is False:
        check.fail(op, f"{shape_text(tile.shape)} goes into a part of shape {shape_text(kept)}", "give equal shapes", "assignment")
