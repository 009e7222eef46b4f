"""What stands in signatures and in keyword arguments: types of parameters, directions, levels, policies.

    def kernel(x: pl.Tensor[[M, 128], pl.FP16], out: pl.Out[pl.Tensor], scale: pl.Scalar[pl.FP32]): ...

These objects are read by the parser. They hold no data.
"""

import enum
from dataclasses import dataclass
from typing import Any

from ren_lab.language.dtypes import DType


class FunctionType(enum.Enum):
    """What a function is: `Orchestration` submits tasks, `InCore` is a kernel, `Inline` is spliced into its callers,
    `Opaque` is a kernel of its own whatever it holds."""

    Orchestration = "Orchestration"
    InCore = "InCore"
    Inline = "Inline"
    Opaque = "Opaque"


class Level(enum.Enum):
    """A level of the machine. `CORE_GROUP` makes kernels; the others are carried."""

    AIC = "AIC"
    AIV = "AIV"
    CORE_GROUP = "CORE_GROUP"
    DIE = "DIE"
    CHIP = "CHIP"
    HOST = "HOST"
    CLUSTER = "CLUSTER"
    GLOBAL = "GLOBAL"


class CachePolicy(enum.Enum):
    """How a read treats the last-level cache: `DEFAULT` goes through it, `BYPASS` declares a stream without reuse."""

    DEFAULT = "DEFAULT"
    BYPASS = "BYPASS"


class Direction(enum.Enum):
    """What a function does with a tensor that it does not only read."""

    Out = "Out"
    InOut = "InOut"


class DynVar:
    """An extent that is not known when a program is compiled; `pl.dynamic(name)` makes one.

    The same object in several places is the same extent. Two objects of one name are two extents.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"pl.dynamic({name!r}): the name is shown in programs; use a Python identifier such as 'M'")
        self.name = name

    def __repr__(self) -> str:
        return f"pl.dynamic({self.name!r})"


def dynamic(name: str) -> DynVar:
    """An extent that may differ from call to call; one compiled program serves them all.

    >>> M = dynamic("M")
    """
    return DynVar(name)


Extent = int | DynVar | str | None


@dataclass(frozen=True, slots=True)
class Annotation:
    """The value of an annotation.

    Attributes:
        kind: "tensor", "tile", "scalar", "task_id" or "array".
        shape: extents, or None where the argument decides. In a specialized program a dynamic extent is its name.
        dtype: element type, or None where the argument decides.
        direction: of a tensor that is written; None for one that is only read.
    """

    kind: str
    shape: tuple[Extent, ...] | None = None
    dtype: DType | None = None
    direction: Direction | None = None


def _shaped(kind: str, items: Any) -> Annotation:
    written = f"pl.{kind.capitalize()}[{items!r}]"
    if not isinstance(items, tuple) or len(items) != 2:
        raise TypeError(f"{written}: give a list of extents and an element type: pl.{kind.capitalize()}[[64, 128], pl.FP32]")
    shape, dtype = items
    if not isinstance(shape, list | tuple) or not shape:
        raise TypeError(f"{written}: the shape is {shape!r}; give a list of at least one extent, such as [64, 128]")
    if not isinstance(dtype, DType) or dtype.kind == "t":
        raise TypeError(f"{written}: the element type is {dtype!r}; give one such as pl.FP32")
    for extent in shape:
        known = isinstance(extent, int) and not isinstance(extent, bool)
        if not (known or extent is None or isinstance(extent, DynVar)):
            raise TypeError(f"{written}: the extent {extent!r} is a {type(extent).__name__}; use an int or pl.dynamic")
        if known and extent < 1:
            raise ValueError(f"{written}: the extent {extent} is below 1; use at least 1")
    return Annotation(kind, tuple(shape), dtype)


class Tensor:
    """A tensor in memory: `pl.Tensor` takes shape and element type from the argument, `pl.Tensor[[64, M], pl.FP32]` fixes
    them. Extents are ints, `pl.dynamic` objects, or None for "any"."""

    def __class_getitem__(cls, items: Any) -> Annotation:
        return _shaped("tensor", items)


class Tile:
    """A value inside a kernel, for annotating local names: `t: pl.Tile[[64, 64], pl.FP32] = pl.load(…)`."""

    def __class_getitem__(cls, items: Any) -> Annotation:
        return _shaped("tile", items)


class Scalar:
    """A number given by value: `pl.Scalar[pl.FP32]`; `pl.Scalar` takes the type from the argument."""

    def __class_getitem__(cls, dtype: Any) -> Annotation:
        if not isinstance(dtype, DType):
            raise TypeError(f"pl.Scalar[{dtype!r}]: give an element type such as pl.Scalar[pl.FP32]")
        return Annotation("task_id") if dtype.kind == "t" else Annotation("scalar", None, dtype)


class Array:
    """A short array of numbers or task ids on the submitting side: `pl.Array[16, pl.TASK_ID]`."""

    def __class_getitem__(cls, items: Any) -> Annotation:
        if not isinstance(items, tuple) or len(items) != 2 or not isinstance(items[1], DType):
            raise TypeError(f"pl.Array[{items!r}]: give a length and an element type: pl.Array[16, pl.TASK_ID]")
        if not isinstance(items[0], int) or isinstance(items[0], bool) or items[0] < 1:
            raise ValueError(f"pl.Array[{items!r}]: the length is {items[0]!r}; use an int, at least 1")
        return Annotation("array", (items[0],), items[1])


class TaskId:
    """The id of a task, as `pl.submit` returns it and `with pl.at(…) as tid` binds it."""


def as_annotation(value: Any) -> Annotation | None:
    """The annotation that an object stands for, bare classes included; None for anything else."""
    if isinstance(value, Annotation):
        return value
    return _BARE.get(value) if isinstance(value, type) else None


_BARE: dict[type, Annotation] = {
    Tensor: Annotation("tensor"),
    Tile: Annotation("tile"),
    Scalar: Annotation("scalar"),
    TaskId: Annotation("task_id"),
}


def _directed(direction: Direction, item: Any) -> Annotation:
    annotation = as_annotation(item)
    if annotation is None or annotation.kind != "tensor":
        raise TypeError(f"pl.{direction.name}[{item!r}]: only tensors have directions; write pl.{direction.name}[pl.Tensor]")
    if annotation.direction is not None:
        raise TypeError(f"pl.{direction.name}[pl.{annotation.direction.name}[…]]: one direction is enough; use pl.InOut for both")
    return Annotation("tensor", annotation.shape, annotation.dtype, direction)


class Out:
    """A tensor that is written and whose old contents are not read: `pl.Out[pl.Tensor]`."""

    def __class_getitem__(cls, item: Any) -> Annotation:
        return _directed(Direction.Out, item)


class InOut:
    """A tensor that is read and written: `pl.InOut[pl.Tensor]`."""

    def __class_getitem__(cls, item: Any) -> Annotation:
        return _directed(Direction.InOut, item)
