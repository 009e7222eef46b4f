"""Runs tasks under a virtual clock: the same values, and the same times on every machine.

The submitting program and the lanes share one clock in integer nanoseconds. A submission takes `submit_ns`, entering or
leaving a scope `scope_ns`. A task starts on the free lane with the lowest number as soon as it is ready (first come, first
served), and holds it for `launch_ns` plus its cost: what `submit` was told, or else the bytes of its arguments over
`bytes_per_ns`. Its kernel is run when it ends, so a task that lacks a dependency sees what it would see if it read late: a
race shows. A submission that waits moves the clock to the event that frees what it waits for.
"""

import heapq
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields

from ren_lab.runtime.core import Core
from ren_lab.runtime.errors import StalledRunError
from ren_lab.runtime.platforms import Lane
from ren_lab.runtime.tasks import Task, TaskState
from ren_lab.runtime.timeline import Recorder

_KINDS = ("any", "cube", "vector")


@dataclass(frozen=True, slots=True)
class CostModel:
    """What things cost in virtual time; round figures of the order that such devices show, not measurements of one.

    Attributes:
        submit_ns: of one submission or allocation, on the orchestrating core.
        scope_ns: of entering or leaving a scope.
        launch_ns: of starting a task (or a block of one) on a lane.
        bytes_per_ns: bandwidth of one lane, in bytes per nanosecond (GB/s), above 0.
    """

    submit_ns: int = 500
    scope_ns: int = 100
    launch_ns: int = 1000
    bytes_per_ns: float = 32.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = "above 0" if field.name == "bytes_per_ns" else "at least 0"
            if not math.isfinite(value) or value < 0 or (field.name == "bytes_per_ns" and not value):
                raise ValueError(f"{field.name} is {value!r}; use a finite number, {least}")
            if field.name != "bytes_per_ns" and value != int(value):
                raise ValueError(f"{field.name} is {value!r}; the virtual clock counts whole nanoseconds: use an int")

    def duration_ns(self, task: Task) -> int:
        """How long one call of the task holds its lane."""
        cost = task.cost
        if cost is None:
            nbytes = sum(array.nbytes for array in task.args)
            cost = math.ceil(nbytes / self.bytes_per_ns / (task.block_count or 1))
        return self.launch_ns + cost


class Simulator:
    """Executor of one run in virtual time. Everything happens on the submitting thread."""

    def __init__(self, lanes: tuple[Lane, ...], timeout_ns: float, recorder: Recorder | None, costs: CostModel) -> None:
        self.lanes = lanes
        self.lock = threading.Lock()  # for the interface's sake; nobody contends for it
        self.core: Core = None  # type: ignore[assignment]  # set by the worker before the first task
        self.in_kernel = False
        self._recorder = recorder
        self._timeout_ns = timeout_ns
        self._costs = costs
        self._now = 0
        self._sequence = 0
        # (end, sequence, lane, start, task, block)
        self._events: list[tuple[int, int, int, int, Task, int | None]] = []
        self._free = {kind: [k for k, lane in enumerate(lanes) if lane.kind == kind] for kind in _KINDS}
        self._ready: dict[str, deque[tuple[int, Task, int | None]]] = {kind: deque() for kind in _KINDS}
        self._uniform = all(lane.kind == "any" for lane in lanes)

    def now_ns(self) -> int:
        """The virtual clock."""
        return self._now

    def charge_submit(self) -> None:
        """Let a submission's time pass."""
        self._advance(self._now + self._costs.submit_ns)

    def charge_scope(self) -> None:
        """Let a scope boundary's time pass."""
        self._advance(self._now + self._costs.scope_ns)

    def dispatch(self, task: Task) -> None:
        """Queue a task that is ready, behind those that became ready before it."""
        kind = "any" if self._uniform or task.kind is None else task.kind
        ready = self._ready[kind]
        if task.block_count:
            for block in range(task.block_count):
                self._sequence += 1
                ready.append((self._sequence, task, block))
        else:
            self._sequence += 1
            ready.append((self._sequence, task, None))
        if not self.in_kernel:
            self._fill()

    def wait(self, goal: Callable[[], bool]) -> None:
        """Move the clock from event to event until `goal()`."""
        events = self._events
        while not goal():
            if not events or events[0][0] - self._now > self._timeout_ns:
                raise StalledRunError(self._timeout_ns / 1e9, self.core.describe_in_flight())
            self._step()

    def settle(self) -> None:
        """Nothing is ever left over."""

    def close(self) -> None:
        """Nothing to end."""

    def abort(self, stalled: bool) -> None:
        """Drop what has not ended."""
        self._events.clear()

    def _advance(self, to: int) -> None:
        events = self._events
        while events and events[0][0] <= to:
            self._step()
        self._now = to

    def _step(self) -> None:
        """The next end of a call: run its kernel, settle it, and give its lane to the next."""
        end, _, lane, start, task, block = heapq.heappop(self._events)
        self._now = end
        self.in_kernel = True  # also holds back `_fill` until all that becomes ready now stands in the queue
        try:
            try:
                if block is None:
                    task.fn(*task.args)  # type: ignore[misc]
                else:
                    task.fn(*task.args, block=block)  # type: ignore[misc]
            except Exception as error:  # an interrupt is no error of the kernel: it ends the run
                task.error = task.error or error
                task.failed = True
            if self._recorder is not None:
                self._recorder.ran(task, block, lane, start, end)
            task.blocks_left -= 1
            if not task.blocks_left:
                self.core.finish(task)
        finally:
            self.in_kernel = False
        heapq.heappush(self._free[self.lanes[lane].kind], lane)
        self._fill()

    def _fill(self) -> None:
        """Start ready calls on free lanes, oldest call first, lowest lane first."""
        if self._uniform:
            ready, free = self._ready["any"], self._free["any"]
            while ready and free:
                self._start(ready.popleft(), heapq.heappop(free))
            return
        while True:
            choice = self._oldest_startable()
            if choice is None:
                return
            kind, lane_kind = choice
            self._start(self._ready[kind].popleft(), heapq.heappop(self._free[lane_kind]))

    def _oldest_startable(self) -> tuple[str, str] | None:
        """(kind of the call, kind of the lane) of the oldest ready call that has a free lane."""
        best: tuple[int, str, str] | None = None
        for kind, ready in self._ready.items():
            if not ready:
                continue
            lanes = ("vector", "cube") if kind == "any" else (kind,)
            lane_kind = next((lane for lane in lanes if self._free[lane]), None)
            if lane_kind is not None and (best is None or ready[0][0] < best[0]):
                best = (ready[0][0], kind, lane_kind)
        return None if best is None else best[1:]

    def _start(self, call: tuple[int, Task, int | None], lane: int) -> None:
        sequence, task, block = call
        task.state = TaskState.RUNNING
        end = self._now + self._costs.duration_ns(task)
        heapq.heappush(self._events, (end, sequence, lane, self._now, task, block))
