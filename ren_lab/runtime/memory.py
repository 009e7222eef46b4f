"""The bytes behind the four heaps, and whose they are."""

import mmap
import weakref
from typing import Any

import numpy as np

from ren_lab.runtime.errors import ReclaimedError
from ren_lab.runtime.rings import Block


class HeapMemory:
    """One anonymous mapping with the heaps of rings 0 to 3 one behind the other.

    Pages cost nothing until they are touched. Arrays cut from it are plain NumPy arrays; views of them lead back to the
    array that was handed out, and that to its block, so that use after the end of the block's scope is noticed even when
    the bytes have a new owner.

    Attributes:
        low, high: address range of the mapping.
    """

    def __init__(self, heaps: tuple[int, ...]) -> None:
        self.heaps = heaps
        try:
            self._mapping = mmap.mmap(-1, sum(heaps))
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise MemoryError(
                f"cannot map ring heaps of {', '.join(f'{size:,}' for size in heaps)} bytes ({error}); a scalar ring_heap "
                f"counts four times: lower ring_heap"
            ) from error
        self._starts = [sum(heaps[:k]) for k in range(len(heaps))]
        whole = np.frombuffer(self._mapping, np.uint8)
        self.low = whole.__array_interface__["data"][0]
        self.high = self.low + whole.nbytes
        # id of a handed-out array -> (a reference that removes this entry when the array is gone, its block)
        self._handed: dict[int, tuple[weakref.ref[np.ndarray], Block]] = {}

    @property
    def unused(self) -> bool:
        """Whether no array cut from it is alive any more."""
        return not self._handed

    def array(self, block: Block, ring: int, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The array at `offset` bytes of the ring's heap; its contents are whatever was there."""
        array: np.ndarray = np.ndarray(shape, dtype, buffer=self._mapping, offset=self._starts[ring] + offset)
        key = id(array)
        handed = self._handed
        handed[key] = (weakref.ref(array, lambda _: handed.pop(key, None)), block)
        return array

    def block_of(self, array: np.ndarray) -> Block:
        """The block of an array whose address lies in the mapping; `ReclaimedError` once its scope has ended."""
        root: Any = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        known = self._handed.get(id(root))
        if known is None:
            raise ReclaimedError(
                "an array lies in a ring heap but was not made by orch.alloc or as a task's output (or it came through "
                "another library); use the array itself or NumPy views of it"
            )
        block = known[1]
        if not block.scope.open:
            scope = block.scope
            name = f"{scope.name!r} at {scope.site}" if scope.name else f"at {scope.site}"
            raise ReclaimedError(
                f"an array of shape {root.shape} is used after the scope {name} (depth {scope.depth}, ring "
                f"{scope.ring.index}) has ended, which owned its bytes: they may have been given out again; allocate it in "
                f"a scope that encloses all its uses"
            )
        return block
