"""Storage on the host, and kernels interpreted with NumPy."""

from typing import Any

import numpy as np

from ren_lab.backends.base import Backend, Runner
from ren_lab.backends.python.interpreter import compile_kernel, source
from ren_lab.ir import Node

_ALIGNMENT = 256


class PythonBackend:
    """NumPy on the host: interprets kernels, and defines what each operation means.

    Numbers above 0 ("python:1") are further address spaces on the same host, for the study of transfers.
    """

    def __init__(self, number: int = 0) -> None:
        self.name = f"python:{number}" if number else "python"

    def allocate(self, shape: tuple[int, int]) -> np.ndarray:
        return np.empty(shape, np.uint32)

    def allocate_arena(self, nbytes: int) -> np.ndarray:
        block = np.empty(nbytes + _ALIGNMENT, np.uint8)
        skip = -block.ctypes.data % _ALIGNMENT
        return block[skip : skip + nbytes]

    def window(self, arena: np.ndarray, offset_bytes: int, shape: tuple[int, int]) -> np.ndarray:
        nbytes = 4 * shape[0] * shape[1]
        return arena[offset_bytes : offset_bytes + nbytes].view(np.uint32).reshape(shape)

    def view(self, base: np.ndarray, offset: int, shape: tuple[int, int]) -> np.ndarray:
        count = shape[0] * shape[1]
        if not 0 <= offset <= base.size - count:
            raise ValueError(f"a view of {count} words from word {offset} does not fit into a buffer of {base.size} words")
        return base.reshape(-1)[offset : offset + count].reshape(shape)

    def compile(self, ast: Node) -> Runner:
        return compile_kernel(ast)

    def source(self, ast: Node) -> str:
        return source(ast)

    def from_host(self, words: np.ndarray) -> np.ndarray:
        return np.array(words, np.uint32, order="C", ndmin=2)

    def to_host(self, storage: np.ndarray) -> np.ndarray:
        return storage.copy()

    def overlaps(self, a: Any, b: Any) -> bool:
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)

    def copy_from(self, target: np.ndarray, source: Any, source_backend: Backend) -> None:
        target[...] = source if isinstance(source, np.ndarray) else source_backend.to_host(source)
