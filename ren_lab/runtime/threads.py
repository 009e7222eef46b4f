"""Runs tasks on threads; NumPy's kernels release the interpreter lock, so they run at the same time.

A worker that has run a task appends it to `_done` and then tries the lock: whoever has the lock settles everything that is
done, so a worker never waits for the submitting thread, nor for another worker. Only when the submitting thread says that
it is about to sleep (`_waiting`) do workers insist on the lock, so that no wake-up is lost.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from ren_lab.runtime.core import Core
from ren_lab.runtime.errors import StalledRunError
from ren_lab.runtime.platforms import Lane
from ren_lab.runtime.tasks import Task, TaskState
from ren_lab.runtime.timeline import Recorder

_GRACE_S = 0.25  # how long the end of a stalled run waits for its threads
_RUNNING = TaskState.RUNNING


class ThreadExecutor:
    """Executor of one run. Threads are started when there is work for them, at most one per lane."""

    in_kernel = False  # kernels never run on the submitting thread

    def __init__(self, lanes: tuple[Lane, ...], timeout_s: float, recorder: Recorder | None) -> None:
        self.lanes = lanes
        self.lock = threading.Lock()
        self.core: Core = None  # type: ignore[assignment]  # set by the worker before the first task
        self._recorder = recorder
        self._timeout_s = timeout_s
        self._changed = threading.Condition(self.lock)
        self._queue: SimpleQueue[Any] = SimpleQueue()  # Task, (Task, block), or None to end a thread
        self._done: deque[Task] = deque()
        self._threads: list[threading.Thread] = []
        self._outstanding = 0  # calls handed out and not settled
        self._waiting = False
        self._goal: Callable[[], bool] = bool
        self._stopping = False
        self._broken: BaseException | None = None
        self._start_ns = time.perf_counter_ns()

    def now_ns(self) -> int:
        """Nanoseconds since the run began."""
        return time.perf_counter_ns() - self._start_ns

    def charge_submit(self) -> None:
        """Submission costs real time; nothing to add."""

    def charge_scope(self) -> None:
        """Scopes cost real time; nothing to add."""

    # -- called with the lock held -------------------------------------------------------------------------------------

    def dispatch(self, task: Task) -> None:
        """Queue a task that is ready, and start a thread for it where all are busy."""
        if self._stopping:
            return
        calls = task.block_count
        if calls:
            for block in range(calls):
                self._queue.put((task, block))
        else:
            calls = 1
            self._queue.put(task)
        self._outstanding += calls
        while len(self._threads) < min(self._outstanding, len(self.lanes)):
            index = len(self._threads)
            thread = threading.Thread(target=self._work, args=(index,), name=f"ren-{self.lanes[index].name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def wait(self, goal: Callable[[], bool]) -> None:
        """Sleep until `goal()`; `StalledRunError` if no task ends for the timeout."""
        self._goal = goal
        self._waiting = True
        try:
            ended = self.core.ended
            deadline = time.monotonic() + self._timeout_s
            while True:
                self._settle_locked()
                if self._broken is not None:
                    raise self._broken
                if goal():
                    return
                if self.core.ended != ended:
                    ended = self.core.ended
                    deadline = time.monotonic() + self._timeout_s
                left = deadline - time.monotonic()
                if left <= 0:
                    raise StalledRunError(self._timeout_s, self.core.describe_in_flight())
                self._changed.wait(None if math.isinf(left) else min(left, threading.TIMEOUT_MAX))
        finally:
            self._waiting = False
            self._goal = bool

    def _settle_locked(self) -> None:
        done = self._done
        core = self.core
        while done:
            task = done.popleft()
            self._outstanding -= 1
            if task.block_count:
                task.blocks_left -= 1
                if task.blocks_left:
                    continue
            core.finish(task)

    # -- called without the lock ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Settle what is done, unless somebody else is at it and will see it."""
        while self._done:
            # `_waiting` is set before the sleeper looks at `_done` for the last time, so a False seen here is safe
            if not self.lock.acquire(self._waiting):
                return
            try:
                self._settle_locked()
                if self._waiting and self._goal():
                    self._changed.notify()
            finally:
                self.lock.release()

    def _work(self, index: int) -> None:
        get = self._queue.get
        done = self._done
        recorder = self._recorder
        while (item := get()) is not None:
            if self._stopping:
                return
            task, block = item if item.__class__ is tuple else (item, None)
            task.state = _RUNNING
            start = self.now_ns() if recorder is not None else 0
            try:
                if block is None:
                    task.fn(*task.args)
                else:
                    task.fn(*task.args, block=block)
            except BaseException as error:  # a kernel may raise anything; it must not end the worker
                task.error = task.error or error
                task.failed = True
            if recorder is not None:
                recorder.ran(task, block, index, start, self.now_ns())
            done.append(task)
            if self._stopping:
                return
            task = item = None  # an idle worker keeps nobody's arrays alive
            try:
                self.settle()
            except BaseException as error:  # a fault of the engine: tell the submitting thread instead of dying here
                self._broken = error
                with self.lock:
                    self._changed.notify()

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the threads; all work is done."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def abort(self, stalled: bool) -> None:
        """End the threads after the kernels that are running, and drop what has not started.

        The wait is bounded, by `timeout_s` and after a stall by less: a kernel that blocks cannot be stopped, but its thread
        ends with it.
        """
        self._stopping = True
        try:
            while True:
                self._queue.get_nowait()
        except Empty:
            pass
        for _ in self._threads:
            self._queue.put(None)
        deadline = time.monotonic() + (_GRACE_S if stalled else self._timeout_s)
        for thread in self._threads:
            while thread.ident is None and time.monotonic() < deadline:
                time.sleep(0.001)  # an interrupt came while it was being started
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        self._threads.clear()
