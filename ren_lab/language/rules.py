"""What each operation accepts and gives: element types, shapes, bounds."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ren_lab.language import nodes as ir
from ren_lab.language.dtypes import BOOL, FP32, INDEX, INT32, DType
from ren_lab.language.linear import Linear, number, unknown
from ren_lab.language.values import (
    ArrayValue,
    ScalarValue,
    Shape,
    TensorValue,
    TileValue,
    Value,
    describe,
    index,
    same_extent,
    same_shape,
    shape_text,
)  # fmt: skip

if TYPE_CHECKING:
    from ren_lab.language.check_expr import ExprChecker

Rule = Callable[["ExprChecker", ir.Op, list[Value]], Value]
RULES: dict[str, Rule] = {}

FLOATS, INTS, NUMBERS, BITS = "floating point", "integers", "numbers", "integers or Booleans"
_KINDS = {FLOATS: "f", INTS: "iu", NUMBERS: "fiu", BITS: "iub", "anything": "fiub"}
LARGEST = 2**1023  # of the integers that are written where a floating-point number is wanted
MOST_BITS = 4096  # of a shift or a power; larger numbers are not meant
_EXTENT_RULE = "one extent per axis, each at least 1"


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of some operations."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _wanted(check: "ExprChecker", op: ir.Op, dtype: DType | None, kinds: str) -> None:
    if dtype is not None and dtype.kind not in _KINDS[kinds]:
        advice = "use pl.floor_div (//) for integers, or pl.cast" if op.name == "div" else "convert with pl.cast"
        check.fail(op, f"it takes {kinds}, not {dtype!r}", advice)


def common_dtype(check: "ExprChecker", op: ir.Op, values: list[Value]) -> DType | None:
    """The one element type of operands; Python numbers take that of the others."""
    typed: DType | None = None
    settled = True
    for value in values:
        if not isinstance(value, TileValue | TensorValue | ScalarValue):
            settled = False
        elif not (isinstance(value, ScalarValue) and (value.literal is not None or value.weak)):
            if value.dtype is None:
                settled = False
            elif typed is None:
                typed = value.dtype
            elif typed != value.dtype:
                check.fail(op, f"its operands are {typed!r} and {value.dtype!r}; nothing is promoted silently",
                           f"convert one: pl.cast(…, {typed!r})")  # fmt: skip
    scalars = [v for v in values if isinstance(v, ScalarValue)]
    literals = [v.literal for v in scalars if v.literal is not None]
    if typed is None:
        if not settled or not literals or any(v.weak for v in scalars):
            for written in literals if any(v.weak for v in scalars) else ():
                check_literal(check, op, written, FP32)
            return None
        return BOOL if all(isinstance(v, bool) for v in literals) else INDEX
    for written in literals:
        check_literal(check, op, written, typed)
    if not typed.is_float and any(v.weak for v in scalars):
        check.fail(op, f"a floating-point number meets {typed!r}", "convert one of them with pl.cast")
    return typed


def check_literal(check: "ExprChecker", op: ir.Op, written: Any, dtype: DType) -> None:
    """Raise where a Python number cannot take an element type."""
    if isinstance(written, bool):
        if dtype.kind != "b":
            check.fail(op, f"{written} meets {dtype!r}", "write a number, or use pl.sel")
    elif isinstance(written, float):
        if not dtype.is_float:
            check.fail(op, f"the number {written!r} meets {dtype!r}", "write an int, or convert the other operand with pl.cast")
    elif dtype.kind == "b":
        check.fail(op, f"the number {written} meets {dtype!r}", "write True or False, or convert with pl.cast")
    elif dtype.is_float and abs(written) > LARGEST:
        check.fail(op, f"the number {written} is outside {dtype!r}", "write a floating-point number")
    elif dtype.is_int and not dtype.limits[0] <= written <= dtype.limits[1]:
        check.fail(op, f"the number {written} is outside {dtype!r}, which holds {dtype.limits[0]} to {dtype.limits[1]}",
                   "use a wider type: pl.cast")  # fmt: skip


def _elementwise(check: "ExprChecker", op: ir.Op, values: list[Value], kinds: str, result: DType | None = None) -> Value:
    """Operands of one shape and type; scalars go with any shape."""
    if all(isinstance(v, ScalarValue) for v in values):
        dtype = INDEX if _mixed_integers(values) else common_dtype(check, op, values)
        _wanted(check, op, dtype, kinds)
        return _scalar(check, op, values, dtype, result)
    if _undecided(values):
        common_dtype(check, op, values)
        return Value()
    operands = check.tiles(op, values)
    dtype = common_dtype(check, op, operands)
    _wanted(check, op, dtype, kinds)
    return TileValue(_one_shape(check, op, [v for v in operands if isinstance(v, TileValue)]), result or dtype)


def _mixed_integers(values: list[Value]) -> bool:
    """Whether they are integer scalars of several widths. Those are exact numbers, and go together."""
    scalars = [v for v in values if isinstance(v, ScalarValue) and v.dtype is not None and v.dtype.is_int]
    return len(scalars) == len(values) and len({v.dtype for v in scalars if v.literal is None}) > 1


def _undecided(values: list[Value]) -> bool:
    """Whether it is not known yet if the result is a tile or a scalar."""
    return any(type(v) is Value for v in values) and not any(isinstance(v, TileValue | TensorValue) for v in values)


def _one_shape(check: "ExprChecker", op: ir.Op, tiles: list[TileValue]) -> Shape:
    shape: Shape = None
    for tile in tiles:
        if tile.shape is None:
            continue
        if same_shape(shape, tile.shape) is False:
            check.fail(op, f"its operands have shapes {shape_text(shape)} and {shape_text(tile.shape)}",
                       "give equal shapes, or repeat a column or row with pl.row_expand_… or pl.col_expand_…")  # fmt: skip
        if shape is None or any(a.value is None and b.value is not None for a, b in zip(shape, tile.shape)):
            shape = tile.shape
    return shape


def _scalar(check: "ExprChecker", op: ir.Op, values: list[Value], dtype: DType | None, result: DType | None) -> Value:
    check_second(check, op, op.name, values)
    if result is not None:
        return ScalarValue(result)
    if dtype is None and any(isinstance(v, ScalarValue) and v.weak for v in values):
        return ScalarValue(None, weak=all(isinstance(v, ScalarValue) and (v.weak or v.literal is not None) for v in values))
    if dtype is not None and dtype.is_int:
        signs = {"add": "+", "sub": "-", "mul": "*", "floor_div": "//", "rem": "%", "min": "min", "max": "max",
                 "maximum": "max", "minimum": "min"}  # fmt: skip
        forms = [v.form if isinstance(v, ScalarValue) and v.form is not None else unknown() for v in values]
        if op.name in signs:
            return ScalarValue(dtype, check.arithmetic.apply(signs[op.name], *forms))
        return ScalarValue(dtype, number(0) - forms[0] if op.name == "neg" else unknown())
    return ScalarValue(dtype)


def check_second(check: "ExprChecker", op: ir.Node, name: str, values: list[Value], construct: str | None = None) -> None:
    """Raise for a division by 0, and a shift or a power out of range, where the number is known and the code surely runs."""
    second = values[1] if len(values) > 1 else None
    form = second.form if isinstance(second, ScalarValue) else None
    if form is None or form.value is None or check.uncertain or check.quiet:
        return
    if name in ("floor_div", "rem") and form.value == 0:
        check.fail(op, "it divides by 0", "give another divisor, or guard it with an if")
    if name == "shr" and form.value < 0:
        check.fail(op, f"its second operand is {form.value}", "give 0 or more")
    if name in ("shl", "**") and not 0 <= form.value <= MOST_BITS:
        check.fail(op, f"its second operand is {form.value}", f"give 0 to {MOST_BITS}", construct)


def _register(names: str, kinds: str, result: DType | None = None) -> None:
    def elementwise(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
        return _elementwise(check, op, values, kinds, result)

    rule(*names.split())(elementwise)


_register("add sub mul maximum minimum neg abs relu", NUMBERS)
_register("div recip exp log sqrt rsqrt sin cos tanh", FLOATS)
_register("floor_div rem shl shr", INTS)
_register("and_ or_ xor not_", BITS)
_register("lt le gt ge", NUMBERS, BOOL)
_register("eq ne", "anything", BOOL)


@rule("min", "max")
def _scalar_extreme(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    for value in values:
        if isinstance(value, TileValue | TensorValue):
            check.fail(op, f"it takes scalars, not {describe(value)}",
                       f"use pl.{op.name}imum for elements, or pl.row_{op.name} and pl.col_{op.name} to reduce")  # fmt: skip
    scalars = [v if isinstance(v, ScalarValue) else ScalarValue(None) for v in values]
    if all(v.dtype is not None and v.dtype.is_int for v in scalars):  # integers of any width count as numbers
        return index(check.arithmetic.apply(op.name, *(v.form or unknown() for v in scalars)))
    return _elementwise(check, op, list(scalars), NUMBERS)


@rule("sel")
def _select(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    mask, *choices = check.tiles(op, values)
    if isinstance(mask, TileValue | ScalarValue) and mask.dtype not in (None, BOOL):
        check.fail(op, f"its mask is {describe(mask)}", "give a Boolean, such as pl.gt(a, b)")
    tiles = [v for v in (mask, *choices) if isinstance(v, TileValue)]
    if not tiles:
        if _undecided([mask, *choices]):
            return Value()
        return _scalar(check, op, choices, INDEX if _mixed_integers(choices) else common_dtype(check, op, choices), None)
    return TileValue(_one_shape(check, op, tiles), common_dtype(check, op, choices))


@rule("cast")
def _cast(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    dtype = op.attr("dtype")
    (value,) = values
    if isinstance(value, ScalarValue):
        both_ints = dtype.is_int and value.is_int
        return ScalarValue(dtype, (value.form if both_ints else unknown()) if dtype.is_int else None)
    if type(value) is Value:
        return value
    (tile,) = check.tiles(op, values)
    return TileValue(tile.shape if isinstance(tile, TileValue) else None, dtype)


# -- reductions and broadcasts ----------------------------------------------------------------------------------------------


def _matrix(check: "ExprChecker", op: ir.Op, value: Value) -> TileValue:
    (tile,) = check.tiles(op, [value])
    if isinstance(tile, ScalarValue):
        check.fail(op, f"it takes a tile, not {describe(tile)}", "give a tile of rank 2 or more")
    if not isinstance(tile, TileValue):
        return TileValue(None, None)
    if tile.shape is not None and len(tile.shape) < 2:
        check.fail(op, f"its operand has the shape {shape_text(tile.shape)}", "give rank 2 or more; pl.reshape adds an axis")
    return tile


@rule(*(f"{side}_{name}" for side in ("row", "col") for name in ("sum", "prod", "max", "min", "argmax", "argmin")))
def _reduce(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    tile = _matrix(check, op, values[0])
    _wanted(check, op, tile.dtype, NUMBERS)
    shape = tile.shape
    if shape is not None:
        one = number(1)
        shape = (*shape[:-1], one) if op.name.startswith("row") else (*shape[:-2], one, shape[-1])
    return TileValue(shape, INT32 if op.name.endswith(("argmax", "argmin")) else tile.dtype)


@rule(
    *(f"{side}_expand{name}" for side in ("row", "col") for name in ("", "_add", "_sub", "_mul", "_div", "_max", "_min", "_expdif"))
)
def _expand(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    tile, vector = (_matrix(check, op, value) for value in values)
    row = op.name.startswith("row")
    if tile.shape is not None and vector.shape is not None:
        one = number(1)
        wanted = (*tile.shape[:-1], one) if row else (*tile.shape[:-2], one, tile.shape[-1])
        if same_shape(wanted, vector.shape) is False:
            check.fail(
                op,
                f"the {'column' if row else 'row'} has the shape {shape_text(vector.shape)} beside {shape_text(tile.shape)}",
                f"give one of shape {shape_text(wanted)}, such as a {'row' if row else 'col'} reduction makes",
            )
    dtype = common_dtype(check, op, [tile, vector])
    _wanted(check, op, dtype, FLOATS if op.name.endswith(("_div", "_expdif")) else NUMBERS)
    return TileValue(tile.shape, dtype)


# -- linear algebra ---------------------------------------------------------------------------------------------------------


def _product(check: "ExprChecker", op: ir.Op, a: TileValue, b: TileValue) -> Shape:
    if a.shape is None or b.shape is None:
        return None
    x, y = list(a.shape), list(b.shape)
    if op.attr("a_trans"):
        x[-2:] = x[:-3:-1]
    if op.attr("b_trans"):
        y[-2:] = y[:-3:-1]
    if same_extent(x[-1], y[-2]) is False:
        check.fail(op, f"{shape_text(tuple(x))} times {shape_text(tuple(y))}: the inner extents differ",
                   "give [m, k] and [k, n]; a_trans and b_trans exchange an operand's axes")  # fmt: skip
    if same_shape(tuple(x[:-2]), tuple(y[:-2])) is False:
        check.fail(op, f"the stacks {shape_text(a.shape)} and {shape_text(b.shape)} differ", "give equal leading extents")
    return (*x[:-1], y[-1])


@rule("matmul")
def _matmul(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    a, b = (_matrix(check, op, value) for value in values)
    dtype = common_dtype(check, op, [a, b])
    _wanted(check, op, dtype, NUMBERS)
    out = op.attr("out_dtype") or dtype
    if dtype is not None and op.attr("out_dtype") is None and dtype.is_int and dtype.bits < 32:
        check.fail(op, f"products of {dtype!r} do not fit {dtype!r}", "say what to sum in: out_dtype=pl.INT32")
    if dtype is not None and dtype.is_float != (out is None or out.is_float):
        check.fail(
            op, f"out_dtype is {out!r} for operands of {dtype!r}", "keep to floats or to integers, and use pl.cast behind it"
        )
    return TileValue(_product(check, op, a, b), out)


@rule("matmul_acc")
def _matmul_acc(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    acc, a, b = (_matrix(check, op, value) for value in values)
    dtype = common_dtype(check, op, [a, b])
    shape = _product(check, op, a, b)
    if same_shape(acc.shape, shape) is False:
        check.fail(op, f"acc has the shape {shape_text(acc.shape)} and the product {shape_text(shape)}", "give equal shapes")
    if acc.dtype is not None and dtype is not None and (acc.dtype.is_float != dtype.is_float or acc.dtype.bits < dtype.bits):
        check.fail(op, f"acc is {acc.dtype!r} for operands of {dtype!r}", "accumulate in a type at least as wide: pl.cast(acc, …)")
    return TileValue(acc.shape or shape, acc.dtype)


# -- shape ------------------------------------------------------------------------------------------------------------------


def extents(check: "ExprChecker", op: ir.Op, position: int) -> tuple[Linear, ...]:
    """A list of extents, each at least 1."""
    forms = check.integers(op, op.args[position])
    for form in forms:
        if form.value is not None and form.value < 1:
            check.fail(op, f"an extent is {form.value}", f"give {_EXTENT_RULE}")
    if not forms:
        check.fail(op, "the shape is empty", f"give {_EXTENT_RULE}")
    return forms


def _like(check: "ExprChecker", op: ir.Op, value: Value, shape: Shape) -> Value:
    """A view of a tensor outside kernels, a tile inside."""
    if isinstance(value, TensorValue) and not check.in_kernel:
        return TensorValue(shape, value.dtype, value.roots)
    (tile,) = check.tiles(op, [value])
    return TileValue(shape, tile.dtype if isinstance(tile, TileValue) else None)


@rule("reshape")
def _reshape(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    shape = extents(check, op, 1)
    old = check.shape_of(op, values[0])
    if old is not None and all(extent.value is not None for extent in (*old, *shape)):
        before, after = (math.prod(extent.constant for extent in s) for s in (old, shape))
        if before != after:
            check.fail(
                op,
                f"{shape_text(old)} has {before} elements and {shape_text(shape)} has {after}",
                "give a shape of as many elements",
            )
    return _like(check, op, values[0], shape)


def axis_of(check: "ExprChecker", op: ir.Op, axis: int, rank: int) -> int:
    """An axis counted from 0."""
    if not -rank <= axis < rank:
        check.fail(op, f"axis {axis} of a value of rank {rank}", f"give {-rank} to {rank - 1}")
    return axis % rank


@rule("transpose")
def _transpose(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    shape = check.shape_of(op, values[0])
    if shape is not None:
        if len(shape) < 2:
            check.fail(op, f"its operand has the shape {shape_text(shape)}", "give rank 2 or more; pl.reshape adds an axis")
        order = list(shape)
        one, two = (axis_of(check, op, op.attr(name, default), len(order)) for name, default in (("axis1", -2), ("axis2", -1)))
        order[one], order[two] = order[two], order[one]
        shape = tuple(order)
    return _like(check, op, values[0], shape)


@rule("concat")
def _concat(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    a, b = check.tiles(op, values)
    dtype = common_dtype(check, op, [a, b])
    if not isinstance(a, TileValue) or not isinstance(b, TileValue):
        if isinstance(a, ScalarValue) or isinstance(b, ScalarValue):
            check.fail(op, "a scalar is joined", "give two tiles; pl.full makes one")
        return TileValue(None, dtype)
    if a.shape is None or b.shape is None:
        return TileValue(None, dtype)
    if len(a.shape) != len(b.shape):
        check.fail(op, f"its operands have shapes {shape_text(a.shape)} and {shape_text(b.shape)}", "give equal ranks")
    axis = axis_of(check, op, op.attr("axis", -1), len(a.shape))
    joined = list(a.shape)
    for k, (x, y) in enumerate(zip(a.shape, b.shape)):
        if k == axis:
            joined[k] = x + y
        elif same_extent(x, y) is False:
            check.fail(
                op,
                f"its operands have shapes {shape_text(a.shape)} and {shape_text(b.shape)}",
                f"let them differ along axis {axis} only",
            )
    return TileValue(tuple(joined), dtype)


# -- creation and scalars ---------------------------------------------------------------------------------------------------


@rule("create_tensor")
def _create_tensor(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    if check.in_kernel:
        check.fail(op, "a kernel cannot allocate: the heaps of the rings belong to the submitting side",
                   "create it outside the kernel, or use pl.create_tile or pl.full for a value inside")  # fmt: skip
    root = f"the tensor created at line {op.loc.line}"
    check.forget(root)
    return TensorValue(extents(check, op, 0), op.attr("dtype"), frozenset({root}))


@rule("create_tile", "full")
def _create(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    check.want_kernel(op)
    dtype = op.attr("dtype")
    if op.name == "full":
        value = values[1]
        if isinstance(value, TileValue | TensorValue):
            check.fail(op, f"its value is {describe(value)}", "give a scalar")
        common_dtype(check, op, [TileValue(None, dtype), value])
    return TileValue(extents(check, op, 0), dtype)


@rule("arange")
def _arange(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    check.want_kernel(op)
    dtype = op.attr("dtype", INT32)
    _wanted(check, op, dtype, NUMBERS)
    count = check.integer(op, values[0])
    if count.value is not None and count.value < 1:
        check.fail(op, f"the count is {count.value}", "give at least 1")
    return TileValue((number(1), count), dtype)


@rule("array")
def _array(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    if check.in_kernel:
        check.fail(op, "arrays live on the submitting side", "use a tile: pl.create_tile")
    length = check.integer(op, values[0])
    if length.value is not None and length.value < 1:
        check.fail(op, f"the length is {length.value}", "give at least 1")
    return ArrayValue(length, op.attr("dtype"))


@rule("dim")
def _dim(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    shape = check.shape_of(op, values[0])
    if shape is None:
        return index()
    return index(shape[axis_of(check, op, op.attr("axis"), len(shape))])


@rule("get_block_idx", "get_block_num")
def _block(check: "ExprChecker", op: ir.Op, values: list[Value]) -> Value:
    if check.block is None:
        check.fail(op, "there are no blocks here", "ask inside pl.spmd, or inside an InCore function")
    return index(check.block if op.name == "get_block_idx" else check.blocks)
