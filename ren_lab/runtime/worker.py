"""`Worker`: runs programs on the ring runtime."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from ren_lab.events import emitter
from ren_lab.functions import code_of, refuse_pieces
from ren_lab.runtime.artifacts import SCOPE_STATS, KernelSaver, work_folder
from ren_lab.runtime.config import RunConfig, timeout_ns
from ren_lab.runtime.core import Core
from ren_lab.runtime.errors import StalledRunError
from ren_lab.runtime.memory import HeapMemory
from ren_lab.runtime.orchestrator import Executor, Orchestrator
from ren_lab.runtime.platforms import PLATFORMS
from ren_lab.runtime.scopes import ScopeMode
from ren_lab.runtime.simulator import CostModel, Simulator
from ren_lab.runtime.statistics import ScopeStatsWriter
from ren_lab.runtime.threads import ThreadExecutor
from ren_lab.runtime.timeline import Recorder, RingTotals, RunReport
from ren_lab.words import format_count


def checked_config(config: RunConfig | None) -> RunConfig:
    """`config`, or the default where it is None.

    Raises:
        TypeError: it is something else.
    """
    if config is None:
        return RunConfig()
    if isinstance(config, RunConfig):
        return config
    what = f"{config!r}" if isinstance(config, str) else f"a {type(config).__name__}"
    known = isinstance(config, str) and config in PLATFORMS
    example = f"RunConfig(platform={config!r})" if known else "a RunConfig, such as RunConfig(platform='sim')"
    raise TypeError(f"config is {what}; give {example}")


class Worker:
    """Runs programs one after the other under one `RunConfig`; a context manager.

    The four heaps are mapped when the first program runs and kept for the next, unless arrays cut from them are still
    alive: those keep the old mapping. Threads live as long as a run. Where the config names a `work_dir`, a run replaces the
    files that the run before it wrote there.

    >>> import numpy as np
    >>> x, y = np.arange(3.0), np.zeros(3)
    >>> def double(source, target):
    ...     target[:] = 2 * source
    >>> with Worker(RunConfig(platform="sim")) as worker:
    ...     report = worker.run(lambda orch: orch.submit(double, inputs=[x], outputs=[y]))
    >>> y.tolist(), report.completed
    ([0.0, 2.0, 4.0], 1)
    """

    def __init__(self, config: RunConfig | None = None, *, cost_model: CostModel | None = None) -> None:
        """`cost_model` sets what things cost in virtual time; only simulators look at it.

        Raises:
            ValueError: the platform is "cuda", which has no workers for Python kernels.
        """
        self.config = checked_config(config)
        self._platform = PLATFORMS[self.config.platform]
        if self._platform.executor == "streams":
            raise ValueError(
                f"platform {self.config.platform!r} runs executable units of the engine only, not Python kernels; use "
                f"'cpu' for threads or 'sim' for virtual time"
            )
        self._cost_model = CostModel() if cost_model is None else cost_model
        self._memory: HeapMemory | None = None
        self._closed = False
        self._running = False

    def __enter__(self) -> "Worker":
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the heaps back; the worker cannot be used again. Closing twice is harmless."""
        self._closed = True
        self._memory = None

    def run(
        self,
        program: Callable[[Orchestrator], Any],
        *,
        root: bool = True,
        site: str | None = None,
        timeline: bool = False,
    ) -> RunReport:
        """Call `program(orch)`, wait for its tasks, and report.

        Args:
            program: submits tasks through the `Orchestrator` it is given.
            root: open a scope at depth 0 around the program. Without it the program opens its own, the first of which is
                at depth 0, and may not submit outside one.
            site: "file:line" of the root scope instead of the program's first line.
            timeline: record who ran what when (`report.timeline`); also done when an observer listens.

        Raises:
            RuntimeError: the worker is closed, or is running a program already.
            TypeError: the program is no function, or a generator or a coroutine function.
            RingCapacityError, StalledRunError: see `Orchestrator.submit`.
            TaskError: kernels raised; everything that did not depend on them has run. It carries `report`.
            BaseException: whatever the program raises; tasks that have not started are dropped.
        """
        self._check_open()
        if self._running:
            raise RuntimeError("this Worker is running a program; use another Worker for a run inside a run")
        if not callable(program):
            raise TypeError(f"the program is a {type(program).__name__}; give a function of the orchestrator")
        refuse_pieces(program, "the program", "give a plain function that submits its tasks")
        self._running = True
        try:
            return self._run(program, root, _root_site(program) if site is None else (site, 0), timeline)
        finally:
            self._running = False

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this Worker is closed; make a new one")

    def _mapped(self) -> HeapMemory:
        if self._memory is None or not self._memory.unused:
            self._memory = HeapMemory(self.config.heaps)
        return self._memory

    def _executor(self, recorder: Recorder | None) -> Executor:
        lanes = self._platform.lanes(self.config.workers)
        if self._platform.executor == "threads":
            return ThreadExecutor(lanes, self.config.timeout_s, recorder)
        return Simulator(lanes, timeout_ns(self.config), recorder, self._cost_model)

    def _run(
        self,
        program: Callable[[Orchestrator], Any],
        root: bool,
        site: tuple[CodeType | str, int],
        timeline: bool,
    ) -> RunReport:
        emit = emitter()
        recorder = Recorder() if timeline or emit is not None else None
        memory = self._mapped()
        executor = self._executor(recorder)
        core = Core(self.config, executor.dispatch)
        executor.core = core
        if recorder is not None:
            recorder.now_ns = executor.now_ns
            core.on_reclaim = lambda ring: recorder.cursors(ring, core)
        folder = work_folder(self.config)
        saver = KernelSaver(folder, program) if folder is not None and self.config.save_kernels else None
        stats = ScopeStatsWriter(folder / SCOPE_STATS, core) if folder is not None and self.config.enable_scope_stats else None
        started = time.perf_counter()
        orch = Orchestrator(core, executor, memory, stats, saver, recorder)

        def report(result: Any) -> RunReport:
            lanes = tuple(lane.name for lane in executor.lanes)
            made = RunReport(
                platform=self.config.platform,
                lanes=lanes,
                result=result,
                tasks=core.next_id,
                completed=core.completed,
                failed=core.errors,
                skipped=core.skipped,
                scopes=orch._scope_count,
                waits=orch._waits,
                seconds=executor.now_ns() / 1e9,
                wall_seconds=time.perf_counter() - started,
                rings=_ring_totals(core),
                tensor_map_peak=core.map.peak,
                mapped_bytes=memory.heaps,
                work_dir=folder,
                stats_path=None if stats is None else stats.path,
                timeline=None if recorder is None else recorder.finish(lanes),
            )
            if emit is not None:
                emit(made)
            return made

        stopped_by: BaseException | None = None
        try:
            if root:
                with orch._new_scope(ScopeMode.AUTO, None, *site):
                    result = program(orch)
            else:
                result = program(orch)
            if stats is not None:
                stats.go_on()
            with executor.lock:
                executor.wait(lambda: not core.unfinished)
            executor.close()
            if core.first_error is not None:
                failure = orch._task_error()
                failure.report = report(None)
                raise failure
        except BaseException as error:
            stopped_by = error
            _explain(error, core, folder)
            executor.abort(isinstance(error, StalledRunError))
            raise
        finally:
            orch._close()
            if stats is not None:
                stats.close(stopped_by)
        return report(result)


def _root_site(program: Callable[..., Any]) -> tuple[CodeType | str, int]:
    """Where the program begins, or where `run` was called for one that is not Python."""
    code = code_of(program)
    if code is not None:
        return code, code.co_firstlineno
    frame = sys._getframe(2)
    return frame.f_code, frame.f_lineno


def _explain(error: BaseException, core: Core, folder: Path | None) -> None:
    """Say what else is known about a run that failed."""
    if core.first_error is not None and core.first_error[1] is not error.__cause__:
        task, first = core.first_error
        error.add_note(
            f"{format_count(core.errors, 'kernel')} had raised before; the first was task {task.id} ({task.label}): {first!r}"
        )
    if folder is not None:
        error.add_note(f"what was recorded until then is in {folder}")


def _ring_totals(core: Core) -> tuple[RingTotals, ...]:
    return tuple(
        RingTotals(
            task_window=ring.task_window,
            heap_bytes=ring.heap.capacity,
            dep_pool=ring.dep_pool,
            tasks=ring.task_head,
            allocated_bytes=ring.heap.head,
            edges=ring.dep_head,
            task_peak=ring.task_peak,
            heap_peak_bytes=ring.heap.peak,
            edge_peak=ring.dep_peak,
        )
        for ring in core.rings
    )
