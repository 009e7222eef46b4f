"""Arguments of a call: NumPy arrays, CPU tensors of torch, and numbers; what they make of the parameters' annotations."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from ren_lab.language import nodes as ir
from ren_lab.language.annotations import Annotation, DynVar
from ren_lab.language.dtypes import BF16, BOOL, FP32, INDEX, DType, from_numpy
from ren_lab.language.errors import LanguageError, counted
from ren_lab.language.rules import LARGEST
from ren_lab.language.source import as_number, is_number


@dataclass(frozen=True, slots=True)
class Bound:
    """Arguments that fit a function.

    Attributes:
        annotations: of the parameters, with everything that arguments decide; dynamic extents stay open.
        values: what the program is given: arrays and numbers.
    """

    annotations: tuple[Annotation, ...]
    values: tuple[Any, ...]


def in_order(function: ir.Function, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Positional and named arguments in the order of the parameters, as Python takes them.

    Raises:
        TypeError: a name is no parameter's, or its parameter has its argument already.
    """
    if not named:
        return tuple(args)
    names = [param.name for param in function.params]
    for name in named:
        if name not in names:
            raise TypeError(f"{function.name}() has no parameter {name!r}; its parameters are {', '.join(names)}")
        if name in names[: len(args)]:
            raise TypeError(f"{function.name}() was given {name!r} by position and by name; give it once")
    missing = [name for name in names[len(args) :] if name not in named]
    if missing:
        raise TypeError(f"{function.name}() was not given {', '.join(map(repr, missing))}; it takes {', '.join(names)}")
    return (*args, *(named[name] for name in names[len(args) :]))


def bind(function: ir.Function, args: Sequence[Any]) -> Bound:
    """Check arguments against parameters.

    Raises:
        TypeError: there are too many or too few.
        LanguageError: one does not fit; the error names the parameter's line.
    """
    if len(args) != len(function.params):
        names = ", ".join(param.name for param in function.params)
        raise TypeError(f"{function.name}() takes {counted(len(function.params), 'argument')} ({names}) and was given {len(args)}")
    extents: dict[DynVar, tuple[int, str]] = {}
    pairs = [_bind(function, param, arg, extents) for param, arg in zip(function.params, args)]
    return Bound(tuple(a for a, _ in pairs), tuple(v for _, v in pairs))


def _fail(param: ir.Param, rule: str, remedy: str) -> NoReturn:
    raise LanguageError(f"argument {param.name!r}", rule, remedy, param.loc)


def _bind(function: ir.Function, param: ir.Param, arg: Any, extents: dict[DynVar, tuple[int, str]]) -> tuple[Annotation, Any]:
    wanted = param.annotation
    number = as_number(arg)
    if is_number(number) and number is not None:
        return _number(param, wanted, number)
    array = as_array(param, arg)
    if wanted is not None and wanted.kind != "tensor":
        _fail(param, f"it is a {type(arg).__name__} where a {wanted.kind} is wanted", "give a number")
    dtype = from_numpy(array.dtype)
    if dtype is None:
        _fail(param, f"its element type is {array.dtype}, which the language does not have",
              "convert it, such as array.astype(numpy.float32)")  # fmt: skip
    if not array.ndim or not array.size:
        _fail(param, f"its shape is {list(array.shape)}", "give at least one axis, and extents of at least 1")
    if wanted is None:
        wanted = Annotation("tensor")
    if wanted.dtype is not None and wanted.dtype != dtype:
        _fail(
            param,
            f"its element type is {dtype!r} where {wanted.dtype!r} is declared",
            f"convert it: array.astype({wanted.dtype.numpy.name!r})",
        )
    shape = wanted.shape
    if shape is None:
        shape = array.shape
    elif len(shape) != array.ndim:
        _fail(param, f"its rank is {array.ndim} where {len(shape)} is declared", "give an array of that rank")
    for axis, (extent, have) in enumerate(zip(shape, array.shape)):
        if isinstance(extent, DynVar):
            first, name = extents.setdefault(extent, (have, param.name))
            if first != have:
                _fail(
                    param,
                    f"its extent {extent.name} (axis {axis}) is {have}, and that of {name!r} is {first}",
                    "give equal extents",
                )
        elif extent is not None and extent != have:
            _fail(param, f"its shape is {list(array.shape)} where {_shown(shape)} is declared", "give an array of that shape")
    shape = tuple(have if extent is None else extent for extent, have in zip(shape, array.shape))
    if wanted.direction is not None and not array.flags.writeable:
        _fail(param, "the array is read-only, and the function writes it", "give one that may be written")
    return replace(wanted, shape=shape, dtype=dtype), array


def _shown(shape: Sequence[Any]) -> str:
    return "[" + ", ".join("?" if x is None else getattr(x, "name", str(x)) for x in shape) + "]"


def _number(param: ir.Param, wanted: Annotation | None, value: Any) -> tuple[Annotation, Any]:
    if wanted is not None and wanted.kind != "scalar":
        _fail(param, f"it is the number {value!r} where a {wanted.kind} is wanted", "give an array")
    dtype = None if wanted is None else wanted.dtype
    if dtype is None:
        dtype = BOOL if isinstance(value, bool) else INDEX if isinstance(value, int) else FP32
    return Annotation("scalar", None, dtype), converted(param, value, dtype)


def converted(param: ir.Param, value: Any, dtype: DType) -> Any:
    """A Python number as a scalar of a type: integers stay exact Python numbers."""
    if isinstance(value, bool) != (dtype.kind == "b"):
        _fail(param, f"it is {value!r} where pl.Scalar[{dtype!r}] is wanted", "give a number of that type")
    if dtype.is_int:
        if not isinstance(value, int):
            _fail(param, f"it is {value!r} where pl.Scalar[{dtype!r}] is wanted", "give an int")
        low, high = dtype.limits
        if not low <= value <= high:
            _fail(
                param, f"it is {value}, and {dtype!r} holds {low} to {high}", "give a number in that range, or declare a wider type"
            )
        return value
    if dtype.is_float and type(value) is int and abs(value) > LARGEST:
        _fail(param, f"it is an int of {value.bit_length()} bits, and {dtype!r} is a floating-point type", "give a float")
    return dtype.numpy.type(value) if dtype.is_float else value


def as_array(param: ir.Param, arg: Any) -> np.ndarray:
    """The NumPy array that is, or shares the memory of, an argument."""
    if isinstance(arg, np.ndarray):
        return arg
    if type(arg).__module__.partition(".")[0] == "torch" and hasattr(arg, "numpy"):
        return _from_torch(param, arg)
    _fail(param, f"it is a {type(arg).__name__}", "give a NumPy array, a CPU tensor of torch, or a number")


def _from_torch(param: ir.Param, tensor: Any) -> np.ndarray:
    if tensor.device.type != "cpu":
        _fail(param, f"the tensor is on the device {tensor.device}", "move it: tensor.cpu()")
    if tensor.requires_grad:
        _fail(param, "the tensor requires gradients, which are not computed here", "give tensor.detach()")
    torch = sys.modules["torch"]  # somebody has imported it, or there would be no tensor
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(BF16.numpy)
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError) as error:
        _fail(param, f"the tensor has no NumPy view ({error})", "give a dense CPU tensor")
