"""Device memory, and what has to happen before it may be used.

Three streams per device: kernels run on `compute`, data goes in on `uploads` and out on `downloads`, so that transfers go on
while kernels run. What keeps them in order:

- A block that a transfer fills or reads holds the transfer's event until a kernel is to use it: then `compute` waits for the event.
- A block is taken from the pool when it is first touched, for the stream that touches it first. The pool hands a block on in the
  order of that stream, so whoever else used the block is waited for when it goes back.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from ren_lab.backends.cuda.driver import Driver
from ren_lab.backends.cuda.errors import DeviceError

_STAGED_BYTES = 256 << 20
"""How much pinned memory may be on its way to the device before the next transfer waits."""

# Held while work is handed to streams that must not be mixed with others' work. One for all devices: transfers between two of
# them hand work to both, and a block of any device may go back in the middle of anything.
_lock = threading.RLock()


class Queues:
    """The streams of a device, and the transfers that are under way.

    Attributes:
        driver: of the device.
        compute, uploads, downloads: its streams.
        lock: held while work is handed to them that must not be mixed with others' work.
    """

    lock = _lock

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.compute, self.uploads, self.downloads = (driver.stream() for _ in range(3))
        self._staged: deque[tuple[Any, np.ndarray]] = deque()
        self._staged_bytes = 0
        self._reached: dict[int, bool] = {}

    def mark(self, stream: Any) -> Any:
        """An event that happens when a stream has done what it was given so far."""
        event = self.driver.event()
        self.driver.record(event, stream)
        return event

    def order(self, later: Any, earlier: Any) -> None:
        """What `later` is given from now on happens after what `earlier` was given so far."""
        self.driver.wait(later, self.mark(earlier))

    def settle(self, blocks: Iterable["Block"]) -> None:
        """`compute` waits for the transfers that blocks take part in; the caller holds the lock."""
        for block in blocks:
            if block.pending:
                pending = block.pending
                for event in pending:
                    self.driver.wait(self.compute, event)
                block.pending = block.pending[len(pending) :]

    def keep(self, array: np.ndarray, event: Any) -> None:
        """Hold pinned memory until an event has happened."""
        with self.lock:
            self._staged.append((event, array))
            self._staged_bytes += array.nbytes
            while self._staged:
                event, array = self._staged[0]
                if not self.driver.finished(event):
                    if self._staged_bytes <= _STAGED_BYTES or len(self._staged) == 1:
                        break
                    self.driver.synchronize(event)
                self._staged.popleft()
                self._staged_bytes -= array.nbytes

    @property
    def staged_bytes(self) -> int:
        """Pinned memory that is held for transfers."""
        return self._staged_bytes

    def fill(self, block: "Block", offset: int, words: np.ndarray) -> None:
        """Send an array into a block; the array is not referred to afterwards."""
        driver = self.driver
        staged = driver.pinned(words.nbytes)
        staged.view(words.dtype).reshape(words.shape)[...] = words
        with self.lock:
            if block.touched:  # whoever used it before comes first
                self.settle([block])
                self.order(self.uploads, self.compute)
            driver.upload(block.address(upload=True) + offset, staged, self.uploads)
            event = self.mark(self.uploads)
            block.pending += (event,)
            self.keep(staged, event)

    def fetch(self, block: "Block", offset: int, nbytes: int) -> np.ndarray:
        """uint8[nbytes]: a part of a block, in host memory of its own."""
        driver = self.driver
        staged = driver.pinned(nbytes)
        with self.lock:
            self.settle([block])
            self.order(self.downloads, self.compute)
            driver.download(staged, block.address() + offset, self.downloads)
            event = self.mark(self.downloads)
            block.pending += (event,)
        driver.synchronize(event)
        return staged.copy()

    def copy(self, target: "Block", target_offset: int, source: "Block", source_offset: int, nbytes: int) -> None:
        """Copy within the device, in the order of the kernels."""
        with self.lock:
            self.settle([source, target])
            self.driver.copy(target.address() + target_offset, source.address() + source_offset, nbytes, self.compute)

    def copy_peer(
        self, target: "Block", target_offset: int, others: "Queues", source: "Block", source_offset: int, nbytes: int
    ) -> None:
        """Copy from another GPU: directly where the driver allows it, else through pinned host memory. Waits for nothing here."""
        with self.lock:
            others.settle([source])
            sent = others.mark(others.compute)
            if target.touched:
                self.settle([target])
                self.order(self.uploads, self.compute)
            place, origin = target.address(upload=True) + target_offset, source.address() + source_offset
            if self.reaches(others):
                self.driver.wait(self.uploads, sent)
                self.driver.copy_peer(place, origin, others.driver.number, nbytes, self.uploads)
                event = read = self.mark(self.uploads)
            else:
                staged = others.driver.pinned(nbytes)
                others.driver.wait(others.downloads, sent)
                others.driver.download(staged, origin, others.downloads)
                read = others.mark(others.downloads)
                self.driver.wait(self.uploads, read)
                self.driver.upload(place, staged, self.uploads)
                event = self.mark(self.uploads)
                self.keep(staged, event)
            target.pending += (event,)
            source.pending += (read,)

    def reaches(self, others: "Queues") -> bool:
        """Whether this device reads another one's memory directly; asked once."""
        number = others.driver.number
        if number not in self._reached:
            self._reached[number] = self.driver.reaches(number)
        return self._reached[number]


class Block:
    """A piece of device memory; there is none before it is touched.

    Attributes:
        nbytes: its size.
        pending: events to wait for before kernels use it.
        queues: of its device.
    """

    __slots__ = ("nbytes", "pending", "queues", "_memory", "_uploaded")

    def __init__(self, queues: Queues, nbytes: int) -> None:
        self.nbytes = nbytes
        self.pending: tuple[Any, ...] = ()
        self.queues = queues
        self._memory: Any = None
        self._uploaded = False

    @property
    def touched(self) -> bool:
        """Whether it has memory."""
        return self._memory is not None

    def address(self, upload: bool = False) -> int:
        """Where it is; memory is taken from the pool if need be, for a transfer to the device or for kernels.

        Raises:
            OutOfMemory: There is not so much.
        """
        if self._memory is None:
            with self.queues.lock:
                if self._memory is None:
                    queues = self.queues
                    self._uploaded = upload
                    self._memory = queues.driver.allocate(self.nbytes, queues.uploads if upload else queues.compute)
        return self._memory.ptr  # type: ignore[no-any-return]

    def __del__(self) -> None:
        if self._memory is None or self.queues.driver.ending():
            return
        queues = self.queues
        with queues.lock, contextlib.suppress(DeviceError):  # where events fail, nothing runs any more
            queues.settle([self])
            if self._uploaded:  # the pool gives it to another upload, before which kernels must have read it
                queues.order(queues.uploads, queues.compute)


class Constants:
    """A table of constants on the device.

    Attributes:
        address: where it is.
        kept: what has to stay where it is: the table's block, and what its entries point at.
    """

    __slots__ = ("address", "kept")

    def __init__(self, block: Block, *pointed_at: Any) -> None:
        self.address = block.address()
        self.kept = (block, *pointed_at)


class Storage:
    """uint32[shape] in device memory: a part of a block.

    Attributes:
        block: where it lies.
        offset: of its first byte in the block.
        shape: rows and columns.
    """

    __slots__ = ("block", "offset", "shape")

    def __init__(self, block: Block, offset: int, shape: tuple[int, int]) -> None:
        self.block, self.offset, self.shape = block, offset, shape

    @property
    def nbytes(self) -> int:
        """Its size."""
        return 4 * self.shape[0] * self.shape[1]

    @property
    def address(self) -> int:
        """Where it is."""
        return self.block.address() + self.offset

    @property
    def device(self) -> str:
        """The name of the device."""
        return self.block.queues.driver.name

    def __repr__(self) -> str:
        return f"<Storage: u32[{self.shape[0]}, {self.shape[1]}] on {self.device}>"
