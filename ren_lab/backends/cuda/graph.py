"""A whole plan as one CUDA graph: captured at its second run, never changed, launched at each run from then on.

The kernels of the graph get their buffers from the plan's frame, an array of addresses in device memory: what a launch holds is
the frame's address and places in it. A replay therefore sends the frame's content, if it is another one than last time, and
launches the graph. At the first run, which may be the only one, the kernels are launched one by one.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ren_lab.backends.cuda.errors import MIB, DeviceError, OutOfMemory
from ren_lab.backends.cuda.kernel import Kernel
from ren_lab.backends.cuda.storage import Block, Queues, Storage

_FRAMES = 8
"""Frames that may be on their way to the device before a replay waits: replays run so far ahead of the GPU."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Device memory of a plan in bytes, for messages.

    Attributes:
        arena: the peak of its planned intermediates.
        live: the largest set of them that lives at once, which no plan can do without.
        outputs: its results.
        inputs: what it reads.
    """

    arena: int
    live: int
    outputs: int
    inputs: int

    def text(self, scratch: int) -> str:
        """In words; `scratch` are the bytes of temporaries within kernels."""
        return (
            f"the plan needs an arena of {self.arena / MIB:.1f} MiB (at most {self.live / MIB:.1f} MiB of it live at once), "
            f"{self.outputs / MIB:.1f} MiB for its outputs and {scratch / MIB:.1f} MiB for temporaries within kernels, besides the "
            f"{self.inputs / MIB:.1f} MiB that it reads"
        )


class Plan:
    """A list of kernels over places of a frame, run as one graph.

    Args:
        steps: (kernel, places of its buffers, what it is called in messages).
        planned: (place, offset in bytes) of the windows of the arena.
        views: (place, place of its base, offset in bytes), bases first.
        places: how many the frame has.
        needs: what it takes, for messages.
        queues: of the device.

    Attributes:
        runs, captures, replays, updates: how often it ran at all, the graph was captured and launched, and the frame was sent.
    """

    def __init__(
        self,
        steps: Sequence[tuple[Kernel, tuple[int, ...], str]],
        planned: Sequence[tuple[int, int]],
        views: Sequence[tuple[int, int, int]],
        places: int,
        needs: Needs,
        queues: Queues,
    ) -> None:
        self._steps, self._needs, self._queues = tuple(steps), needs, queues
        self._last: Any = None  # happens when the last replay is over
        self.runs = self.captures = self.replays = self.updates = 0
        self._places = places
        self._scratch: list[int] = []  # bytes of the temporaries of kernels, shared by all that come at the same rank
        self._slots: list[list[int]] = []
        for kernel, where, _ in self._steps:
            used = list(where)
            for rank, (rows, columns) in enumerate(kernel.temporaries):
                if rank == len(self._scratch):
                    self._scratch.append(0)
                self._scratch[rank] = max(self._scratch[rank], 4 * rows * columns)
                used.append(places + rank)
            self._slots.append(used)
        self._total = places + len(self._scratch)
        self._planned_at = np.array([place for place, _ in planned], np.intp)
        self._offsets = np.array([offset for _, offset in planned], np.uint64)
        self._views = tuple(views)
        held = {place for place, _ in planned} | {view for view, _, _ in views}
        touched = {place for _, where, _ in self._steps for place in where} | {base for _, base, _ in views}
        self._direct = sorted(touched - held)
        self._direct_at = np.array(self._direct, np.intp)
        self._lock = threading.Lock()
        self._graph: Any = None
        self._frame = Block(queues, 8 * max(1, self._total))
        self._sent: np.ndarray | None = None  # what the frame holds, once everything before has run
        self._staged: list[tuple[Any, np.ndarray]] = []  # pinned copies of frames, the one that was used longest ago first

    def bind(self, frame: Sequence[Storage], late: Collection[int] = ()) -> Callable[[], None]:
        """What runs the plan on a frame of storages, whatever is in its places by then.

        It raises `OutOfMemory`, which says what the plan needs, and what `Kernel.functions` raises.
        """
        return functools.partial(self._run, frame)

    def _run(self, frame: Sequence[Storage]) -> None:
        queues = self._queues
        try:
            with self._lock:
                if self._graph is None and self.runs:
                    self._capture()
                temporaries = [Block(queues, nbytes) for nbytes in self._scratch]
                wanted, blocks = self._addresses(frame, temporaries)
                launches = self._launches(0, wanted) if self._graph is None else []
                with queues.lock:
                    queues.settle(blocks)
                    if self._graph is None:
                        self._launch(launches, queues.compute)
                    else:
                        if self._sent is None or not np.array_equal(self._sent, wanted):
                            self._send(wanted)
                        queues.driver.launch_graph(self._graph, queues.compute)
                        self._last = queues.mark(queues.compute)
                        self.replays += 1
                self.runs += 1
        except OutOfMemory as error:
            if error.needs:
                raise
            raise OutOfMemory(error.device, error.nbytes, error.state, self._needs.text(sum(self._scratch))) from None

    def _addresses(self, frame: Sequence[Storage], temporaries: Sequence[Block]) -> tuple[np.ndarray, set[Block]]:
        """What the device's frame is to hold, and the blocks that transfers may have to do with: not the arena."""
        wanted = np.zeros(self._total, np.uint64)
        direct = [frame[place] for place in self._direct]
        blocks = {storage.block for storage in direct}
        wanted[self._direct_at] = [storage.address for storage in direct]
        if len(self._planned_at):
            arena = frame[self._planned_at[0]].address - int(self._offsets[0])
            wanted[self._planned_at] = self._offsets + np.uint64(arena)
        for place, base, delta in self._views:
            wanted[place] = wanted[base] + np.uint64(delta)
        wanted[self._places :] = [block.address() for block in temporaries]
        return wanted, blocks

    def _send(self, wanted: np.ndarray) -> None:
        """The frame's new content, in the order of the kernels."""
        queues, driver = self._queues, self._queues.driver
        if len(self._staged) < _FRAMES:
            array = driver.pinned(wanted.nbytes).view(np.uint64)
        else:
            event, array = self._staged.pop(0)
            driver.synchronize(event)
        array[:] = wanted
        self._sent = None  # until it is certain
        driver.upload(self._frame.address(), array, queues.compute)
        self._staged.append((queues.mark(queues.compute), array))
        self._sent = wanted
        self.updates += 1

    def _launches(self, frame: int, addresses: np.ndarray | None) -> list[tuple[Kernel, np.ndarray, str]]:
        """Each kernel with its argument: places in a frame, or addresses without one."""
        made = []
        for (kernel, _, name), slots in zip(self._steps, self._slots, strict=True):
            try:
                made.append((kernel, kernel.argument(frame, slots if addresses is None else addresses[slots].tolist()), name))
            except Exception as error:
                error.add_note(f"while the plan's kernel {name} was made ready on {self._queues.driver.name}")
                raise
        return made

    def _launch(self, launches: Sequence[tuple[Kernel, np.ndarray, str]], stream: Any) -> None:
        for kernel, argument, name in launches:
            try:
                kernel.launch(argument, stream)
            except Exception as error:
                error.add_note(f"while the plan's kernel {name} was launched on {self._queues.driver.name}")
                raise

    def _capture(self) -> None:
        """Write the launches down, on a stream of their own: nobody else's work gets in between."""
        queues, driver = self._queues, self._queues.driver
        launches = self._launches(self._frame.address(), None)
        stream = driver.stream()
        driver.begin_capture(stream)
        try:
            self._launch(launches, stream)
        except BaseException:
            with contextlib.suppress(DeviceError):
                driver.end_capture(stream)  # the stream must not stay open; what it holds is dropped
            raise
        graph = driver.end_capture(stream)
        driver.upload_graph(graph, queues.compute)
        self._graph = graph
        self.captures += 1

    def __del__(self) -> None:
        driver = self._queues.driver
        if self._last is not None and not driver.ending():
            with contextlib.suppress(DeviceError):
                driver.synchronize(self._last)  # the graph and its pinned frames are in use until then
