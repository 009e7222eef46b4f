"""What a program talks to: it submits tasks, opens scopes and allocates arrays."""

import sys
from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from types import CodeType
from typing import Any, Protocol

import numpy as np

from ren_lab.functions import refuse_pieces
from ren_lab.runtime.arguments import Output, check_sequence, checked_options, flat_ids
from ren_lab.runtime.artifacts import KernelSaver
from ren_lab.runtime.config import MAX_SCOPE_DEPTH, RING_COUNT
from ren_lab.runtime.core import Core
from ren_lab.runtime.errors import ReclaimedError, RingCapacityError, TaskError
from ren_lab.runtime.memory import HeapMemory
from ren_lab.runtime.platforms import Lane
from ren_lab.runtime.regions import region_of
from ren_lab.runtime.rings import Block, Ring, rounded
from ren_lab.runtime.scopes import Scope, ScopeMode
from ren_lab.runtime.sites import scope_place, user_site
from ren_lab.runtime.statistics import ScopeStatsWriter
from ren_lab.runtime.tasks import Task, TaskState
from ren_lab.runtime.tensor_map import Arguments, Plan
from ren_lab.runtime.timeline import Recorder

_NONE: tuple[Any, ...] = ()  # a default that is told from what the caller gave without looking into it


class Executor(Protocol):
    """What runs tasks: threads or the simulator."""

    lanes: tuple[Lane, ...]
    lock: Any
    in_kernel: bool
    core: Core

    def now_ns(self) -> int: ...
    def charge_submit(self) -> None: ...
    def charge_scope(self) -> None: ...
    def dispatch(self, task: Task) -> None: ...
    def wait(self, goal: Callable[[], bool]) -> None: ...
    def settle(self) -> None: ...
    def close(self) -> None: ...
    def abort(self, stalled: bool) -> None: ...


class Orchestrator:
    """Hands tasks to one run; `Worker.run` passes it to the program. Only the thread that runs the program may use it."""

    def __init__(
        self,
        core: Core,
        executor: Executor,
        memory: HeapMemory,
        stats: ScopeStatsWriter | None,
        saver: KernelSaver | None,
        recorder: Recorder | None,
    ) -> None:
        self._core = core
        self._executor = executor
        self._memory = memory
        self._stats = stats
        self._saver = saver
        self._recorder = recorder
        self._scopes: list[Scope] = []
        self._current: Scope | None = None
        self._thread: int | None = get_ident()
        self._scope_count = 0
        self._waits: dict[tuple[str, int], int] = {}

    # -- where the program stands ---------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Depth of the innermost open scope, 0 for the root, -1 outside any."""
        return len(self._scopes) - 1

    @property
    def ring(self) -> int:
        """Ring that a task submitted now would use: min(depth, 3)."""
        return min(max(self.depth, 0), RING_COUNT - 1)

    def state(self, task_id: int) -> TaskState:
        """State of a task. A task that was reclaimed is CONSUMED; its slot is FREE for another."""
        self._check_caller("state")
        task = self._task(task_id)
        return TaskState.CONSUMED if task is None else task.state

    def usage(self) -> tuple[tuple[int, int, int], ...]:
        """(slots, heap bytes, edges) in use, of rings 0 to 3."""
        self._check_caller("usage")
        with self._executor.lock:
            return self._core.usage

    # -- scopes ---------------------------------------------------------------------------------------------------------

    def scope(
        self,
        mode: ScopeMode = ScopeMode.AUTO,
        name: str | None = None,
        *,
        site: str | None = None,
    ) -> Scope:
        """A scope one level deeper, to be entered with `with`; its tasks use ring min(depth, 3).

        Args:
            mode: AUTO infers dependencies; MANUAL uses only `deps=` and admits no scope inside it.
            name: shown in errors and timelines.
            site: "file:line" to name instead of the caller's line, for code that is generated.

        Raises:
            RuntimeError: inside a MANUAL scope, or deeper than 64.
            TypeError: `mode` is no `ScopeMode`.
        """
        self._check_caller("scope")
        if not isinstance(mode, ScopeMode):
            raise TypeError(f"mode is {mode!r}; use ScopeMode.AUTO or ScopeMode.MANUAL")
        frame = sys._getframe(1)
        return self._new_scope(mode, name, *((frame.f_code, frame.f_lineno) if site is None else (site, 0)))

    def _new_scope(self, mode: ScopeMode, name: str | None, where: CodeType | str, line: int) -> Scope:
        depth = len(self._scopes)
        if depth > MAX_SCOPE_DEPTH:
            raise RuntimeError(
                f"a scope at depth {depth} is one too deep: depth is at most {MAX_SCOPE_DEPTH}; depths from 3 on share "
                f"ring 3 anyway, so flatten the nesting"
            )
        if self._current is not None and self._current.mode is ScopeMode.MANUAL:
            outer = self._current
            raise RuntimeError(
                f"{mode.name} scope inside the MANUAL scope {scope_place(outer.site, outer.name)}: a MANUAL scope admits no scope "
                f"inside it; end it first, or make it AUTO"
            )
        return Scope(self, depth, self._core.rings[min(depth, RING_COUNT - 1)], mode, name, where, line)

    def _enter(self, scope: Scope) -> None:
        self._check_caller("scope")
        if scope.open or scope.depth != len(self._scopes):
            raise RuntimeError(f"{scope!r} was made elsewhere: write `with orch.scope():` where the scope begins")
        with self._executor.lock:
            self._executor.charge_scope()
            scope.open = True
            self._scopes.append(scope)
            self._current = scope
            self._scope_count += 1
            if self._stats is not None:
                self._stats.sample(scope, "begin")
            if self._recorder is not None:
                self._recorder.entered(scope, self._core)
        self._executor.settle()

    def _leave(self, scope: Scope, by_error: bool) -> None:
        if scope is not self._current:
            raise RuntimeError(
                f"the scope {scope_place(scope.site, scope.name)} is left, but it is not the innermost open one; leave scopes in "
                f"reverse order, each once, as `with` does"
            )
        with self._executor.lock:
            if not by_error:
                self._executor.charge_scope()
            if self._stats is not None:
                self._stats.sample(scope, "end", by_error)
            if self._recorder is not None and not by_error:
                self._recorder.left(scope, self._core)
            self._scopes.pop()
            self._current = self._scopes[-1] if self._scopes else None
            self._core.end_scope(scope)
        self._executor.settle()

    # -- tasks ----------------------------------------------------------------------------------------------------------

    def submit(
        self,
        fn: Callable[..., Any],
        inputs: Sequence[Any] = _NONE,
        outputs: Sequence[Any] = _NONE,
        inouts: Sequence[Any] = _NONE,
        deps: Iterable[Any] = _NONE,
        cost: float | None = None,
        *,
        kind: str | None = None,
        blocks: int | None = None,
        name: str | None = None,
        site: str | None = None,
    ) -> int:
        """Submit the call `fn(*inputs, *outputs, *inouts)` and return the task's id.

        The call is made once everything has ended that it must follow: in an AUTO scope the writers of what it reads, and
        the readers and writers of what it writes, as far as regions overlap; in any scope `deps`.

        Args:
            fn: the kernel. What it returns is ignored.
            inputs: arrays that it reads; views stand for the region they show.
            outputs: arrays that it writes without reading, or `Output(shape, dtype)` for arrays to be allocated
                with the task (`outputs_of` gives them); each takes its bytes rounded up to 1024 in the ring's heap.
            inouts: arrays that it reads and writes.
            deps: ids of earlier tasks, or sequences or arrays of ids; None among them is nothing.
            cost: how long the call takes on a simulator, in virtual nanoseconds, at least 0; without it the cost model
                goes by the bytes of the arguments. Threads ignore it.
            kind: "cube" or "vector" for the core it needs where a chip is modelled; None for any.
            blocks: make `blocks` calls, with `block=0 .. blocks-1`, in any order and at the same time; one task still.
            name: shown instead of the kernel's name.
            site: "file:line" for errors to name instead of the caller's line, for code that is generated.

        Raises:
            RingCapacityError: a resource is too small, and waiting cannot help. The submission has had no effect.
            ReclaimedError: an array of a ring heap is used after its scope ended.
            StalledRunError: it waited, and nothing ended for `timeout_s`.
            TypeError, ValueError: an argument is not what it must be.
        """
        if get_ident() != self._thread or self._executor.in_kernel or self._current is None:
            self._check_caller("submit")
        if not callable(fn):
            raise TypeError(f"the kernel is a {type(fn).__name__}; give a function of the arrays")
        refuse_pieces(fn, "the kernel", "give a plain function of the arrays")
        if cost is not None or kind is not None or blocks is not None:
            cost, kind, blocks = checked_options(cost, kind, blocks)
        reads: Arguments = {}
        writes: Arguments = {}
        args: list[Any] = []
        touched: list[Block] = []
        fresh: list[tuple[int, Output]] = []  # (position among the arguments, what to allocate)
        nbytes = 0
        if inputs is not _NONE:
            self._note("inputs", inputs, reads, None, args, touched)
        if outputs is not _NONE:
            nbytes = self._note_outputs(outputs, writes, args, touched, fresh)
        if inouts is not _NONE:
            self._note("inouts", inouts, reads, writes, args, touched)
        scope = self._current
        infer = scope.mode is ScopeMode.AUTO  # type: ignore[union-attr]
        executor = self._executor
        core = self._core
        ring = scope.ring  # type: ignore[union-attr]
        dep_ids = flat_ids(deps, self._core.next_id) if deps is not _NONE else ()
        if self._saver is not None:
            self._saver.save(fn)
        with executor.lock:
            executor.charge_submit()
            while True:
                plan = core.map.plan(reads, writes, infer)
                if dep_ids:
                    self._add_deps(plan, dep_ids)
                entries = plan.entries + len(fresh)
                lacking = core.lacking(ring, nbytes, len(plan.producers), entries)
                if lacking is None:
                    break
                self._wait_for(lacking, ring, nbytes, plan, entries, site)
            task = Task(core.next_id, fn, args, scope, name)  # type: ignore[arg-type]
            core.next_id += 1
            if cost is not None or kind is not None or blocks is not None:
                task.cost = cost  # type: ignore[assignment]
                task.kind = kind
                if blocks is not None:
                    task.block_count = task.blocks_left = blocks
            if fresh:
                self._allocate_outputs(task, plan, fresh, nbytes, writes, touched)
            if self._recorder is not None:
                self._recorder.admitted(task, plan, core)
            core.admit(task, plan, reads, writes, infer, touched)
            if self._recorder is not None:
                self._recorder.cursors(ring, core)
        executor.settle()
        return task.id

    def outputs_of(self, task_id: int) -> tuple[np.ndarray, ...]:
        """The arrays allocated with a task for the `Output`s it was given, in their order.

        Raises:
            ReclaimedError: the task's scope has ended, and with it the arrays.
        """
        self._check_caller("outputs_of")
        task = self._task(task_id)
        if task is None or not task.scope.open:
            where = ", and its scope has ended"
            if task is not None:
                where = f"; its scope {scope_place(task.scope.site, task.scope.name)} has ended"
            raise ReclaimedError(
                f"the outputs of task {task_id} are reclaimed{where}: submit what uses them inside the task's scope, or "
                f"allocate them in an enclosing one with orch.alloc"
            )
        return tuple(task.outputs)

    def alloc(self, shape: int | Sequence[int], dtype: Any = np.float32, *, site: str | None = None) -> np.ndarray:
        """An array in the heap of the current scope's ring, with arbitrary contents.

        Its bytes, rounded up to 1024, are taken at once, and given back in FIFO order once the scope has ended and the
        tasks that touch the array are consumed. It uses no slot. `site` is for errors, as in `submit`.

        Raises:
            RingCapacityError: the heap is too small, and waiting cannot help.
        """
        self._check_caller("alloc")
        spec = Output(shape, dtype)
        nbytes = rounded(spec.nbytes)
        scope = self._current
        assert scope is not None
        core = self._core
        ring = scope.ring
        with self._executor.lock:
            self._executor.charge_submit()
            while core.heap_is_full(ring.heap, nbytes):
                self._wait_for("heap", ring, nbytes, Plan(), 0, site)
            block = core.allocate(ring, nbytes, scope)
            scope.has_blocks = True
            array = self._array(block, ring, block.offset, spec)
            if self._recorder is not None:
                self._recorder.cursors(ring, core)
        self._executor.settle()
        return array

    def wait(self, *what: Any) -> None:
        """Wait until tasks have ended: ids, or sequences of ids; or until the writers of arrays have.

        A program that looks at values while it submits waits for them first. A NumPy array always stands for its data,
        also when it holds integers; for ids that are kept in one give `ids.tolist()`.

        Raises:
            TaskError: one of them failed.
        """
        self._check_caller("wait")
        core = self._core
        with self._executor.lock:
            tasks: list[Task] = []
            poisoned = False
            for item in what:
                if isinstance(item, np.ndarray):
                    poisoned |= self._writers(item, tasks)
                    continue
                ids = flat_ids((item,), core.next_id)
                poisoned |= any(identity in core.failed_ids for identity in ids)
                tasks.extend(core.tasks[identity] for identity in ids if identity in core.tasks)
            self._executor.wait(lambda: all(task.ended for task in tasks))
            if poisoned or any(task.failed for task in tasks):
                raise self._task_error()
        self._executor.settle()

    # -- the parts of a submission --------------------------------------------------------------------------------------

    def _note(
        self,
        role: str,
        arrays: Sequence[Any],
        reads: Arguments | None,
        writes: Arguments | None,
        args: list[Any],
        touched: list[Block],
    ) -> None:
        """Add arrays to the arguments and to the regions read and written."""
        if arrays.__class__ is not list and arrays.__class__ is not tuple:
            check_sequence(role, arrays)
        low, high = self._memory.low, self._memory.high
        for array in arrays:
            region = region_of(array)
            args.append(array)
            if region is None:
                continue
            if reads is not None:
                reads[region] = array
            if writes is not None:
                if not array.flags.writeable:
                    raise ValueError(f"an array of {role} is read-only; give one that the kernel may write")
                writes[region] = array
            if low <= region[0] < high:
                touched.append(self._memory.block_of(array))

    def _note_outputs(
        self,
        outputs: Sequence[Any],
        writes: Arguments,
        args: list[Any],
        touched: list[Block],
        fresh: list[tuple[int, Output]],
    ) -> int:
        """Like `_note`, with places left for arrays to be allocated; the bytes of those."""
        if outputs.__class__ is not list and outputs.__class__ is not tuple:
            check_sequence("outputs", outputs)
        nbytes = 0
        for output in outputs:
            if output.__class__ is Output:
                fresh.append((len(args), output))
                args.append(None)
                nbytes += rounded(output.nbytes)
            else:
                self._note("outputs", (output,), None, writes, args, touched)
        return nbytes

    def _allocate_outputs(
        self,
        task: Task,
        plan: Plan,
        fresh: list[tuple[int, Output]],
        nbytes: int,
        writes: Arguments,
        touched: list[Block],
    ) -> None:
        """Cut the task's own outputs from one block, and enter them as written."""
        block = self._core.allocate(task.ring, nbytes, task.scope)
        touched.append(block)
        offset = block.offset
        outputs = []
        for position, spec in fresh:
            array = self._array(block, task.ring, offset, spec)
            offset += rounded(spec.nbytes)
            task.args[position] = array  # type: ignore[index]
            outputs.append(array)
            region = region_of(array)
            if region is not None:
                writes[region] = array
                plan.writes.append(region)
                plan.entries += 1
        task.outputs = outputs

    def _array(self, block: Block, ring: Ring, offset: int, spec: Output) -> np.ndarray:
        array = self._memory.array(block, ring.index, offset, spec.shape, spec.dtype)
        region = region_of(array)
        if region is not None:
            self._core.map.forget(region, array)  # what consumed tasks did to these bytes is nobody's business now
        return array

    def _wait_for(self, resource: str, ring: Ring, nbytes: int, plan: Plan, entries: int, site: str | None) -> None:
        """Wait until something is given back; raise where that cannot make room.

        A resource is filled for good when its oldest holder is held by an open scope: scopes end in the thread that would
        wait. Otherwise the oldest holder's scope has ended and so all its consumers are known; they end, it is consumed,
        and the question is asked anew.
        """
        core = self._core
        scope = self._current
        assert scope is not None
        holder = scope
        if resource == "task_window":
            used, wanted, capacity = ring.task_head - ring.task_tail, 1, ring.task_window
            too_large, hopeless = False, ring.stuck
        elif resource == "heap":
            heap = ring.heap
            used, wanted, capacity = heap.used, nbytes, heap.capacity
            too_large = nbytes > capacity
            hopeless = not too_large and heap.blocks[0].held and (not ring.tasks or ring.stuck)
            if hopeless:
                holder = heap.blocks[0].scope
        elif resource == "dep_pool":
            used, capacity = ring.dep_head - ring.dep_tail, ring.dep_pool
            # producers that no open scope holds will be consumed, and need no edge then
            wanted = sum(producer.held for producer in plan.producers)
            too_large = wanted > capacity
            hopeless = ring.stuck and used + wanted > capacity
        else:
            used, wanted, capacity = core.map.used, entries, core.map.capacity
            too_large = wanted > capacity
            owners = [each for each in core.rings if each.tasks]
            hopeless = all(each.stuck for each in owners)
            if hopeless and owners and not too_large:
                ring = max(owners, key=lambda each: len(each.tasks))
        if too_large or hopeless:
            if hopeless and not too_large and resource != "heap":
                holder = ring.tasks[0].scope
            raise RingCapacityError(
                resource, ring.index, holder.depth, holder.site, holder.name, used, wanted, capacity, site or user_site()
            )
        key = (resource, ring.index)
        self._waits[key] = self._waits.get(key, 0) + 1
        start_ns = self._executor.now_ns() if self._recorder is not None else 0
        consumed = core.consumed
        self._executor.wait(lambda: core.consumed != consumed)
        if self._recorder is not None:
            self._recorder.waited(resource, ring, scope.site, start_ns)

    def _add_deps(self, plan: Plan, ids: list[int]) -> None:
        core = self._core
        for identity in ids:
            if identity in core.failed_ids:
                plan.poisoned = True
            task = core.tasks.get(identity)
            if task is not None and task.state is not TaskState.CONSUMED:
                plan.producers[task] = True

    def _writers(self, array: np.ndarray, tasks: list[Task]) -> bool:
        """Add the tasks that write the array; whether one that is gone has failed."""
        region = region_of(array)
        if region is None:
            return False
        tasks.extend(self._core.map.writers_of(region, array))
        return self._core.map.poisoned(region, array)

    def _task(self, task_id: int) -> Task | None:
        (identity,) = flat_ids((task_id,), self._core.next_id)
        return self._core.tasks.get(identity)

    def _task_error(self) -> TaskError:
        """The first error of the run so far."""
        assert self._core.first_error is not None
        task, error = self._core.first_error
        failure = TaskError(
            task.id,
            task.label,
            scope_place(task.scope.site, task.scope.name),
            error,
            self._core.errors,
            self._core.skipped,
        )
        failure.__cause__ = error
        return failure

    def _check_caller(self, action: str) -> None:
        if self._thread is None:
            raise RuntimeError(f"the run has ended: orch.{action} works only inside the program given to Worker.run")
        if self._executor.in_kernel or get_ident() != self._thread:
            raise RuntimeError(
                f"orch.{action} was called outside the program's thread (from a kernel?); one thread submits per run"
            )
        if self._current is None and action in ("submit", "alloc"):
            raise RuntimeError(f"orch.{action} outside any scope: this run has no root scope; open one with orch.scope()")

    def _close(self) -> None:
        """No more calls."""
        self._thread = None
