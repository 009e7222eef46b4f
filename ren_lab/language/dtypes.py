"""Element types. Nothing is promoted silently: mixing two of them asks for `pl.cast`."""

import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type.

    Attributes:
        name: its name in the language, such as "FP32".
        kind: "f" floating point, "i" signed, "u" unsigned, "b" Boolean, "t" task id.
        bits: bits that carry the value; a Boolean takes a whole byte of memory.

    >>> FP16.nbytes, FP16.numpy
    (2, dtype('float16'))
    """

    name: str
    kind: str
    bits: int

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        """Whether it is a signed or unsigned integer type."""
        return self.kind in "iu"

    @property
    def nbytes(self) -> int:
        """Bytes per element."""
        return max(1, self.bits // 8)

    def get_byte(self) -> int:
        """Bytes per element, under the name that kernels for other toolchains use."""
        return self.nbytes

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        if not self.is_int:
            raise ValueError(f"{self!r} has no integer limits; ask an integer type")
        return (0, 2**self.bits - 1) if self.kind == "u" else (-(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1)

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type. `BF16` comes from the package ml_dtypes, and `ImportError` says so where it is missing."""
        if self.name == "BF16":
            try:
                return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
            except ImportError:
                raise ImportError("pl.BF16 needs the package ml_dtypes: pip install ml_dtypes") from None
        if self.kind == "t":
            raise TypeError("pl.TASK_ID is no element type; keep task ids in pl.array.create(n, pl.TASK_ID)")
        return np.dtype(_NUMPY[self.name])

    def __repr__(self) -> str:
        return f"pl.{self.name}"


FP32 = DType("FP32", "f", 32)
FP16 = DType("FP16", "f", 16)
BF16 = DType("BF16", "f", 16)
INT8 = DType("INT8", "i", 8)
INT16 = DType("INT16", "i", 16)
INT32 = DType("INT32", "i", 32)
INT64 = DType("INT64", "i", 64)
UINT8 = DType("UINT8", "u", 8)
UINT16 = DType("UINT16", "u", 16)
UINT32 = DType("UINT32", "u", 32)
UINT64 = DType("UINT64", "u", 64)
BOOL = DType("BOOL", "b", 1)
INDEX = INT64  # what loop variables, extents and offsets are
TASK_ID = DType("TASK_ID", "t", 64)

DTYPES = {t.name: t for t in (FP32, FP16, BF16, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, BOOL)}

_NUMPY = {
    "FP32": "float32",
    "FP16": "float16",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "BOOL": "bool",
}
_BY_NUMPY = {name: DTYPES[key] for key, name in _NUMPY.items()} | {"bfloat16": BF16}


def from_numpy(dtype: Any) -> DType | None:
    """The element type of a NumPy type, or None where the language has none."""
    found = np.dtype(dtype)
    return _BY_NUMPY.get(found.name) if found.isnative else None
