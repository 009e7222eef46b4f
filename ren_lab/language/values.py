"""What is known about values while a program is checked. None stands for what is not known yet."""

from dataclasses import dataclass, field
from typing import Any

from ren_lab.language.annotations import Annotation, CachePolicy
from ren_lab.language.dtypes import BOOL, INDEX, DType
from ren_lab.language.errors import Loc
from ren_lab.language.linear import Arithmetic, Linear, Symbol, number, unknown
from ren_lab.language.nodes import Node

Shape = tuple[Linear, ...] | None


@dataclass(frozen=True, slots=True)
class Value:
    """A value of which nothing is known."""


@dataclass(frozen=True, slots=True)
class TensorValue(Value):
    """Memory.

    Attributes:
        shape, dtype: its type.
        roots: what it may be (part of): parameters by name, created tensors by where they are created.
        origin: in a kernel, the name it had when the kernel began; None where that depends on a branch.
    """

    shape: Shape
    dtype: DType | None
    roots: frozenset[str]
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class TileValue(Value):
    """A value inside a kernel."""

    shape: Shape
    dtype: DType | None


@dataclass(frozen=True, slots=True)
class ScalarValue(Value):
    """A number.

    Attributes:
        dtype: its type; of a literal, the type it takes if nothing else decides.
        form: what is known of an integer.
        literal: the number, where it is written in the program: it takes the type of the other operand.
        weak: whether it is a floating-point number made of written ones only: it takes the type of the other operand, too.
    """

    dtype: DType | None
    form: Linear | None = None
    literal: Any = None
    weak: bool = False

    @property
    def is_int(self) -> bool:
        """Whether it is an integer, or may be one."""
        return not self.weak and (self.dtype is None or self.dtype.is_int)


@dataclass(frozen=True, slots=True)
class TaskValue(Value):
    """The id of a task, or of none."""


@dataclass(frozen=True, slots=True)
class ArrayValue(Value):
    """An array of scalars or task ids."""

    length: Linear
    dtype: DType


@dataclass(frozen=True, slots=True)
class Unusable(Value):
    """A name that must not be read here; `rule` and `remedy` say why and what to do."""

    rule: str
    remedy: str


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A read or a write of part of a tensor.

    Attributes:
        tensor: what it touches.
        write: whether it writes.
        offsets, sizes: the box, per axis.
        sure: whether it happens in every turn of the loops around it: no branch is in between.
        loops: the variables of those loops, outermost first; `attained` says that there is a turn.
        expr: the expression or the statement that does it.
        cache: what a read's own `cache=` says, or None.
        implicit: whether the read is part of an operation that is not a load.
        loc: where.
    """

    tensor: TensorValue
    write: bool
    offsets: tuple[Linear, ...]
    sizes: tuple[Linear, ...]
    sure: bool
    loops: tuple[Symbol, ...]
    expr: Node
    cache: CachePolicy | None
    implicit: bool
    loc: Loc = field(repr=False)


def index(form: Linear | None = None) -> ScalarValue:
    """An integer scalar of which `form` is known."""
    return ScalarValue(INDEX, unknown() if form is None else form)


def literal(value: Any) -> Value:
    """What is known of a constant."""
    if value is None:
        return TaskValue()
    if isinstance(value, bool):
        return ScalarValue(BOOL, None, value)
    if isinstance(value, int):
        return ScalarValue(INDEX, number(value), value)
    return ScalarValue(None, None, value, weak=True)


def shape_text(shape: Shape) -> str:
    """A shape for messages; extents that are not numbers are shown as ?."""
    if shape is None:
        return "[…]"
    return "[" + ", ".join("?" if extent.value is None else str(extent.value) for extent in shape) + "]"


def describe(value: Value) -> str:
    """A value for messages."""
    match value:
        case TensorValue(shape, dtype):
            return f"a tensor {shape_text(shape)}" + ("" if dtype is None else f" of {dtype!r}")
        case TileValue(shape, dtype):
            return f"a tile {shape_text(shape)}" + ("" if dtype is None else f" of {dtype!r}")
        case ScalarValue(dtype, _, written, weak):
            if written is not None:
                return f"the number {written!r}"
            if weak:
                return "a floating-point number"
            return "a scalar" if dtype is None else f"a scalar of {dtype!r}"
        case TaskValue():
            return "a task id, or None"
        case ArrayValue(_, dtype):
            return f"an array of {dtype!r}"
    return "a value of unknown type"


def same_extent(a: Linear, b: Linear) -> bool | None:
    """Whether two extents are equal; None where that shows only when it runs."""
    difference = (a - b).value
    return None if difference is None else difference == 0


def same_shape(a: Shape, b: Shape) -> bool | None:
    """Whether two shapes are equal; None where that shows only when it runs."""
    if a is None or b is None:
        return None
    if len(a) != len(b):
        return False
    answers = [same_extent(x, y) for x, y in zip(a, b)]
    return False if False in answers else None if None in answers else True


def join(a: Value, b: Value, arithmetic: Arithmetic) -> Value | None:
    """What is known of a value that is one of two; None where their types differ."""
    if a == b or type(a) is Value:
        return a
    if type(b) is Value:
        return b
    if isinstance(a, Unusable) or isinstance(b, Unusable):
        return a if isinstance(a, Unusable) else b
    match a, b:
        case TensorValue(), TensorValue():
            if not _same_type(a, b):
                return None
            origin = a.origin if a.origin == b.origin else None
            return TensorValue(_joined_shape(a.shape, b.shape), a.dtype or b.dtype, a.roots | b.roots, origin)
        case TileValue(), TileValue():
            return TileValue(_joined_shape(a.shape, b.shape), a.dtype or b.dtype) if _same_type(a, b) else None
        case ScalarValue(), ScalarValue():
            return _join_scalars(a, b, arithmetic)
        case TaskValue(), TaskValue():
            return a
        case ArrayValue(), ArrayValue() if a.dtype == b.dtype and same_extent(a.length, b.length) is not False:
            return a
    return None


def _same_type(a: TensorValue | TileValue, b: TensorValue | TileValue) -> bool:
    known = a.dtype is not None and b.dtype is not None
    return not (known and a.dtype != b.dtype) and same_shape(a.shape, b.shape) is not False


def _joined_shape(a: Shape, b: Shape) -> Shape:
    if a is None or b is None:
        return None
    return tuple(x if x == y else unknown() for x, y in zip(a, b))


def _join_scalars(a: ScalarValue, b: ScalarValue, arithmetic: Arithmetic) -> Value | None:
    if a.weak != b.weak:
        strong = b if a.weak else a
        if strong.dtype is not None and not strong.dtype.is_float:
            return None
        return ScalarValue(strong.dtype)
    if a.dtype is not None and b.dtype is not None and a.dtype != b.dtype:
        if not (a.dtype.is_int and b.dtype.is_int):
            return None
        return index(None if a.form is None or b.form is None else arithmetic.hull([a.form, b.form]))
    form = None if a.form is None or b.form is None else arithmetic.hull([a.form, b.form])
    literal = a.literal if type(a.literal) is type(b.literal) and repr(a.literal) == repr(b.literal) else None
    return ScalarValue(a.dtype or b.dtype, form, literal, a.weak)


def value_of(annotation: Annotation, extents: tuple[Linear, ...] | None, root: str) -> Value:
    """What a parameter of this annotation is at entry; `extents` are those of a tensor."""
    match annotation.kind:
        case "tensor":
            return TensorValue(extents, annotation.dtype, frozenset({root}), root)
        case "tile":
            return TileValue(extents, annotation.dtype)
        case "scalar":
            return ScalarValue(annotation.dtype, unknown() if annotation.dtype is None or annotation.dtype.is_int else None)
        case "task_id":
            return TaskValue()
        case "array":
            length = annotation.shape[0] if annotation.shape else None
            return ArrayValue(number(length) if isinstance(length, int) else unknown(), annotation.dtype or INDEX)
    return Value()
