"""The operations of the language. They are read by the parser; calling one outside a parsed function raises.

A tile is a value inside a kernel; a tensor is memory. Where an operation wants a tile and is given a tensor, it reads the
whole tensor. Operands have one element type; a Python number takes the type of the other operand. Shapes are equal;
nothing is broadcast except by the `row_expand` and `col_expand` families and by scalars. Row means along the last axis,
column along the one before it.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ren_lab.language.annotations import CachePolicy
from ren_lab.language.dtypes import INT32, DType

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class OpSpec:
    """How an operation is written.

    Attributes:
        name: its name under `pl`.
        operands: names of the operands in order; those in `optional` may be left out; those in `lists` are written as
            lists, one entry per axis.
        attrs: names and defaults of what must be known when the program is written; `inspect.Parameter.empty` for none.
        signature: the Python signature by which calls are bound.
    """

    name: str
    operands: tuple[str, ...]
    optional: frozenset[str]
    lists: frozenset[str]
    attrs: dict[str, Any]
    signature: inspect.Signature


OPS: dict[str, OpSpec] = {}
_NAMES = """
sum row_sum col_sum, prod row_prod col_prod, mean row_sum col_sum, amax row_max col_max, amin row_min col_min,
argmax row_argmax col_argmax, argmin row_argmin col_argmin, clip maximum minimum, mod rem, where sel, select sel,
astype cast, dot matmul, mm matmul, iota arange, zeros create_tile full, ones full, empty create_tensor create_tile,
concatenate concat, cat concat, swapaxes transpose, power mul exp, pow mul exp, multiply mul, subtract sub, divide div,
broadcast_to row_expand col_expand, expand row_expand col_expand
"""
ELSEWHERE = {first: tuple(others) for first, *others in map(str.split, _NAMES.split(","))}
"""What operations of other libraries are called here."""


def operation(*, lists: tuple[str, ...] = (), attrs: tuple[str, ...] = ()) -> Callable[[_F], _F]:
    """Register a function as an operation. Its body is not used."""

    def register(function: _F) -> _F:
        name = function.__name__
        signature = inspect.signature(function)
        parameters = signature.parameters.values()
        operands = tuple(p.name for p in parameters if p.name not in attrs and p.kind is not p.VAR_POSITIONAL)
        optional = frozenset(p.name for p in parameters if p.default is not p.empty and p.name not in attrs)
        static = {p.name: p.default for p in parameters if p.name in attrs}
        OPS[name] = OpSpec(name, operands, optional, frozenset(lists), static, signature)

        def outside(*args: Any, **kwargs: Any) -> Any:
            raise TypeError(
                f"pl.{name} was called by Python; it has a meaning only in the body of a function that the language parses: "
                f"move it into one decorated with @pl.jit or @pl.jit.incore"
            )

        outside.__name__ = outside.__qualname__ = name
        outside.__doc__ = function.__doc__
        outside.__module__ = function.__module__
        outside.__signature__ = signature  # type: ignore[attr-defined]
        outside.ren_op = name  # type: ignore[attr-defined]
        return outside  # type: ignore[return-value]

    return register


# -- memory -----------------------------------------------------------------------------------------------------------------


@operation(lists=("offsets", "shape"), attrs=("cache",))
def load(tensor: Any, offsets: Any, shape: Any, *, cache: CachePolicy | None = None) -> Any:
    """The tile of `shape` that begins at `offsets` of a tensor, one entry per axis.

    Raises out-of-bounds accesses as errors. `cache` overrides what `pl.set_cache_policy` says, in both directions.
    """


@operation(lists=("offsets",))
def store(tile: Any, offsets: Any, tensor: Any) -> Any:
    """Write a tile into a tensor at `offsets`; the tensor is the result. Element types are equal."""


@operation(lists=("offsets",))
def assemble(target: Any, source: Any, offsets: Any) -> Any:
    """`target` with `source` written at `offsets`: in place for a tensor, a new tile for a tile."""


@operation(lists=("offsets",))
def read(tensor: Any, offsets: Any) -> Any:
    """One element as a scalar. Outside a kernel, submission waits for the tasks that write it."""


@operation(lists=("offsets",))
def write(tensor: Any, offsets: Any, value: Any) -> Any:
    """Write a scalar into one element of a tensor; the tensor is the result."""


@operation(lists=("shape", "offsets"))
def slice(tensor: Any, shape: Any, offsets: Any) -> Any:
    """The part of `shape` at `offsets`: a view of a tensor outside kernels, a tile inside."""


@operation(lists=("offsets", "shape"))
def region(tensor: Any, offsets: Any, shape: Any) -> Any:
    """Part of a tensor that a task touches, in the `reads=`, `writes=` and `updates=` of printed programs."""


@operation(attrs=("axis",))
def dim(tensor: Any, axis: int) -> Any:
    """The extent of an axis, as a scalar; also written `tensor.shape[axis]`."""


# -- creation ---------------------------------------------------------------------------------------------------------------


@operation(lists=("shape",), attrs=("dtype",))
def create_tensor(shape: Any, dtype: DType) -> Any:
    """A tensor in the heap of the ring of the scope it stands in, with arbitrary contents. Outside kernels only."""


@operation(lists=("shape",), attrs=("dtype",))
def create_tile(shape: Any, dtype: DType) -> Any:
    """A tile of zeros, for a kernel to fill."""


@operation(lists=("shape",), attrs=("dtype",))
def full(shape: Any, dtype: DType, value: Any) -> Any:
    """A tile in which every element is `value`."""


@operation(attrs=("dtype",))
def arange(count: Any, dtype: DType = INT32) -> Any:
    """The integers 0, 1, …, count - 1 as a tile of shape [1, count]."""


# -- elementwise ------------------------------------------------------------------------------------------------------------


@operation()
def add(a: Any, b: Any) -> Any:
    """a + b."""


@operation()
def sub(a: Any, b: Any) -> Any:
    """a - b."""


@operation()
def mul(a: Any, b: Any) -> Any:
    """a * b."""


@operation()
def div(a: Any, b: Any) -> Any:
    """a / b of floating-point operands."""


@operation()
def floor_div(a: Any, b: Any) -> Any:
    """The quotient of integers, rounded down."""


@operation()
def rem(a: Any, b: Any) -> Any:
    """The remainder of `floor_div`; it has the sign of `b`."""


@operation()
def maximum(a: Any, b: Any) -> Any:
    """The larger of a and b."""


@operation()
def minimum(a: Any, b: Any) -> Any:
    """The smaller of a and b."""


@operation()
def neg(a: Any) -> Any:
    """-a."""


@operation()
def abs(a: Any) -> Any:
    """The absolute value."""


@operation()
def recip(a: Any) -> Any:
    """1 / a."""


@operation()
def exp(a: Any) -> Any:
    """The exponential function."""


@operation()
def log(a: Any) -> Any:
    """The natural logarithm."""


@operation()
def sqrt(a: Any) -> Any:
    """The square root."""


@operation()
def rsqrt(a: Any) -> Any:
    """1 / sqrt(a)."""


@operation()
def sin(a: Any) -> Any:
    """The sine."""


@operation()
def cos(a: Any) -> Any:
    """The cosine."""


@operation()
def tanh(a: Any) -> Any:
    """The hyperbolic tangent."""


@operation()
def relu(a: Any) -> Any:
    """The larger of a and 0."""


@operation()
def and_(a: Any, b: Any) -> Any:
    """Bitwise and of integers, logical and of Booleans."""


@operation()
def or_(a: Any, b: Any) -> Any:
    """Bitwise or of integers, logical or of Booleans."""


@operation()
def xor(a: Any, b: Any) -> Any:
    """Bitwise exclusive or of integers or Booleans."""


@operation()
def not_(a: Any) -> Any:
    """Bitwise complement of integers, logical complement of Booleans."""


@operation()
def shl(a: Any, b: Any) -> Any:
    """a shifted left by b bits."""


@operation()
def shr(a: Any, b: Any) -> Any:
    """a shifted right by b bits."""


@operation()
def eq(a: Any, b: Any) -> Any:
    """a == b, a Boolean per element."""


@operation()
def ne(a: Any, b: Any) -> Any:
    """a != b, a Boolean per element."""


@operation()
def lt(a: Any, b: Any) -> Any:
    """a < b, a Boolean per element."""


@operation()
def le(a: Any, b: Any) -> Any:
    """a <= b, a Boolean per element."""


@operation()
def gt(a: Any, b: Any) -> Any:
    """a > b, a Boolean per element."""


@operation()
def ge(a: Any, b: Any) -> Any:
    """a >= b, a Boolean per element."""


@operation()
def sel(mask: Any, a: Any, b: Any) -> Any:
    """a where the Boolean mask holds, b elsewhere."""


@operation(attrs=("dtype",))
def cast(a: Any, dtype: DType) -> Any:
    """The value in another element type: floats round to nearest even, floats to integers round towards zero."""


# -- reductions and broadcasts ----------------------------------------------------------------------------------------------


@operation()
def row_sum(tile: Any, tmp: Any = None) -> Any:
    """Sums along rows: [m, n] to [m, 1]; narrow floats are summed in FP32. `tmp` is accepted and not needed."""


@operation()
def row_prod(tile: Any, tmp: Any = None) -> Any:
    """Products along rows: [m, n] to [m, 1]."""


@operation()
def row_max(tile: Any, tmp: Any = None) -> Any:
    """Largest elements of rows: [m, n] to [m, 1]."""


@operation()
def row_min(tile: Any, tmp: Any = None) -> Any:
    """Smallest elements of rows: [m, n] to [m, 1]."""


@operation()
def row_argmax(tile: Any, tmp: Any = None) -> Any:
    """Where the first largest element of each row stands: INT32, [m, n] to [m, 1]."""


@operation()
def row_argmin(tile: Any, tmp: Any = None) -> Any:
    """Where the first smallest element of each row stands: INT32, [m, n] to [m, 1]."""


@operation()
def col_sum(tile: Any, tmp: Any = None) -> Any:
    """Sums along columns: [m, n] to [1, n]; narrow floats are summed in FP32."""


@operation()
def col_prod(tile: Any, tmp: Any = None) -> Any:
    """Products along columns: [m, n] to [1, n]."""


@operation()
def col_max(tile: Any, tmp: Any = None) -> Any:
    """Largest elements of columns: [m, n] to [1, n]."""


@operation()
def col_min(tile: Any, tmp: Any = None) -> Any:
    """Smallest elements of columns: [m, n] to [1, n]."""


@operation()
def col_argmax(tile: Any, tmp: Any = None) -> Any:
    """Where the first largest element of each column stands: INT32, [m, n] to [1, n]."""


@operation()
def col_argmin(tile: Any, tmp: Any = None) -> Any:
    """Where the first smallest element of each column stands: INT32, [m, n] to [1, n]."""


@operation()
def row_expand(like: Any, column: Any) -> Any:
    """A column [m, 1] repeated to the shape [m, n] of `like`."""


@operation()
def row_expand_add(tile: Any, column: Any) -> Any:
    """tile + column, with the column [m, 1] repeated along rows."""


@operation()
def row_expand_sub(tile: Any, column: Any) -> Any:
    """tile - column, with the column [m, 1] repeated along rows."""


@operation()
def row_expand_mul(tile: Any, column: Any) -> Any:
    """tile * column, with the column [m, 1] repeated along rows."""


@operation()
def row_expand_div(tile: Any, column: Any) -> Any:
    """tile / column, with the column [m, 1] repeated along rows."""


@operation()
def row_expand_max(tile: Any, column: Any) -> Any:
    """The larger of tile and column, with the column [m, 1] repeated along rows."""


@operation()
def row_expand_min(tile: Any, column: Any) -> Any:
    """The smaller of tile and column, with the column [m, 1] repeated along rows."""


@operation()
def row_expand_expdif(tile: Any, column: Any) -> Any:
    """exp(tile - column), with the column [m, 1] repeated along rows."""


@operation()
def col_expand(like: Any, row: Any) -> Any:
    """A row [1, n] repeated to the shape [m, n] of `like`."""


@operation()
def col_expand_add(tile: Any, row: Any) -> Any:
    """tile + row, with the row [1, n] repeated along columns."""


@operation()
def col_expand_sub(tile: Any, row: Any) -> Any:
    """tile - row, with the row [1, n] repeated along columns."""


@operation()
def col_expand_mul(tile: Any, row: Any) -> Any:
    """tile * row, with the row [1, n] repeated along columns."""


@operation()
def col_expand_div(tile: Any, row: Any) -> Any:
    """tile / row, with the row [1, n] repeated along columns."""


@operation()
def col_expand_max(tile: Any, row: Any) -> Any:
    """The larger of tile and row, with the row [1, n] repeated along columns."""


@operation()
def col_expand_min(tile: Any, row: Any) -> Any:
    """The smaller of tile and row, with the row [1, n] repeated along columns."""


@operation()
def col_expand_expdif(tile: Any, row: Any) -> Any:
    """exp(tile - row), with the row [1, n] repeated along columns."""


# -- shape and linear algebra -----------------------------------------------------------------------------------------------


@operation(lists=("shape",))
def reshape(a: Any, shape: Any) -> Any:
    """The same elements in another shape: a view of a tensor outside kernels, a tile inside."""


@operation(attrs=("axis1", "axis2"))
def transpose(a: Any, axis1: int = -2, axis2: int = -1) -> Any:
    """Two axes exchanged: a view of a tensor outside kernels, a tile inside."""


@operation(attrs=("axis",))
def concat(a: Any, b: Any, axis: int = -1) -> Any:
    """Two tiles joined along an axis."""


@operation(attrs=("out_dtype", "a_trans", "b_trans"))
def matmul(a: Any, b: Any, *, out_dtype: DType | None = None, a_trans: bool = False, b_trans: bool = False) -> Any:
    """The matrix product of [m, k] and [k, n] (or of stacks of them); `a_trans`, `b_trans` exchange an operand's axes first.

    Floating-point products are accumulated in FP32 and rounded once to `out_dtype`, which is the operands' type where it is
    not given. Integers narrower than 32 bits need `out_dtype`.
    """


@operation(attrs=("a_trans", "b_trans"))
def matmul_acc(acc: Any, a: Any, b: Any, *, a_trans: bool = False, b_trans: bool = False) -> Any:
    """acc + a @ b, with the product in the element type of `acc`."""


# -- scalars and blocks -----------------------------------------------------------------------------------------------------


@operation()
def min(a: Any, b: Any) -> Any:
    """The smaller of two scalars."""


@operation()
def max(a: Any, b: Any) -> Any:
    """The larger of two scalars."""


@operation()
def get_block_idx() -> Any:
    """Which block of `pl.spmd` this is, from 0."""


@operation()
def get_block_num() -> Any:
    """How many blocks `pl.spmd` runs."""


@operation(attrs=("dtype",))
def array(length: Any, dtype: DType) -> Any:
    """`pl.array.create(length, dtype)`: an array of scalars or, with `pl.TASK_ID`, of task ids (none at first)."""
