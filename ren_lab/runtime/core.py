"""The engine under both executors: admits tasks, links them, ends them, and gives back what they held.

Whoever calls holds the executor's lock. Nothing here waits or runs a kernel; tasks that become ready are handed to
`dispatch`. Every edge leads from an earlier task to a later one, so the graph cannot have a cycle.
"""

from collections.abc import Callable, Iterable

from ren_lab.runtime.config import RING_COUNT, TENSOR_MAP_ENTRIES, RunConfig
from ren_lab.runtime.rings import Block, Heap, Ring, rounded
from ren_lab.runtime.scopes import Scope
from ren_lab.runtime.sites import scope_place
from ren_lab.runtime.tasks import Task, TaskState
from ren_lab.runtime.tensor_map import Arguments, Group, Plan, TensorMap

_COMPLETED = TaskState.COMPLETED
_FAILED = TaskState.FAILED
_CONSUMED = TaskState.CONSUMED


class Core:
    """State of one run: four rings, the tensor map, and the tasks that are not reclaimed.

    Attributes:
        unfinished: tasks admitted that have not ended.
        ended: tasks that have ended, ever; grows with every sign of progress.
        consumed: tasks consumed and blocks released, ever; what a waiting submission looks at.
    """

    def __init__(self, config: RunConfig, dispatch: Callable[[Task], None]) -> None:
        sizes = zip(config.task_windows, config.heaps, config.dep_pools, strict=True)
        self.rings = [Ring(k, *size) for k, size in enumerate(sizes)]
        self.map = TensorMap(TENSOR_MAP_ENTRIES)
        self.dispatch = dispatch
        self.tasks: dict[int, Task] = {}  # not reclaimed
        self.next_id = 0
        self.failed_ids: set[int] = set()  # so that `deps=` on a failed task poisons after it is reclaimed, too
        self.unfinished = 0
        self.ended = 0
        self.consumed = 0
        self.completed = 0
        self.errors = 0  # kernels that raised
        self.skipped = 0
        self.first_error: tuple[Task, BaseException] | None = None
        self.on_reclaim: Callable[[Ring], None] | None = None  # told of every slot given back, for timelines

    # -- submission ---------------------------------------------------------------------------------------------------

    def lacking(self, ring: Ring, nbytes: int, edges: int, entries: int) -> str | None:
        """The first resource that a submission would overfill, or None when all of it fits."""
        if ring.task_head - ring.task_tail >= ring.task_window:
            return "task_window"
        if nbytes and self.heap_is_full(ring.heap, nbytes):
            return "heap"
        if edges > ring.dep_pool - (ring.dep_head - ring.dep_tail):
            return "dep_pool"
        if entries > 0 and self.map.used + entries > self.map.capacity:
            return "tensor_map"
        return None

    @staticmethod
    def heap_is_full(heap: Heap, nbytes: int) -> bool:
        """Whether `nbytes` (rounded) do not fit now."""
        return heap.used + heap.footprint(nbytes) > heap.capacity

    def admit(
        self,
        task: Task,
        plan: Plan,
        reads: Arguments,
        writes: Arguments,
        infer: bool,
        touched: list[Block],
    ) -> None:
        """Take everything the task was found to need, link it to its producers, and let it go if nothing is missing."""
        self.map.commit(task, plan, reads, writes, infer)
        task.edges = len(plan.producers)
        task.ring.admit(task)
        self.tasks[task.id] = task
        self.unfinished += 1
        task.scope.tasks.append(task)
        if touched:
            task.touched = touched
            for block in touched:
                block.users += 1
        task.poisoned |= plan.poisoned
        if plan.producers:
            self._link(task, plan)
        task.state = TaskState.PENDING
        if not task.waiting:
            if task.poisoned:
                self._skip(task)
                self.finish(task)
            else:
                task.state = TaskState.READY
                self.dispatch(task)

    @staticmethod
    def _link(task: Task, plan: Plan) -> None:
        kept = []
        for producer, data in plan.producers.items():
            if producer.__class__ is Group:
                waits = producer.unfinished > 0  # type: ignore[union-attr]
            else:
                producer.refs += 1  # type: ignore[union-attr]
                kept.append(producer)
                waits = not producer.ended  # type: ignore[union-attr]
            if waits:
                (producer.consumers if data else producer.followers).append(task)
                task.waiting += 1
            if data and producer.failed:
                task.poisoned = True
        task.producers = kept  # type: ignore[assignment]

    def allocate(self, ring: Ring, nbytes: int, scope: Scope) -> Block:
        """Reserve bytes (rounded here) that are known to fit."""
        return ring.heap.reserve(rounded(nbytes), scope)

    # -- the end of tasks and scopes ----------------------------------------------------------------------------------

    def finish(self, task: Task) -> None:
        """Note that `task` has run, or was skipped (`task.failed`), with all that follows from it."""
        stack = [task]
        while stack:
            task = stack.pop()
            failed = task.failed
            task.state = _FAILED if failed else _COMPLETED
            self.unfinished -= 1
            self.ended += 1
            if failed:
                self.failed_ids.add(task.id)
                if task.error is not None:
                    self.errors += 1
                    if self.first_error is None:
                        self.first_error = (task, task.error)
            else:
                self.completed += 1
            if task.consumers or task.followers:
                self._notify(task, failed, stack)
            for group in task.groups:
                group.unfinished -= 1
                group.failed |= failed
                if not group.unfinished and (group.consumers or group.followers):
                    self._notify(group, group.failed, stack)
            for producer in task.producers:
                producer.refs -= 1
                if not producer.refs and producer.ended:
                    self._consume(producer)
            task.producers = ()
            task.args = ()
            if not task.refs:
                self._consume(task)

    def _notify(self, producer: Task | Group, failed: bool, stack: list[Task]) -> None:
        """Tell those who wait for a producer that it has ended."""
        for data, waiters in ((True, producer.consumers), (False, producer.followers)):
            for task in waiters:
                if data and failed:
                    task.poisoned = True
                task.waiting -= 1
                if not task.waiting:
                    if task.poisoned:
                        self._skip(task)
                        stack.append(task)
                    else:
                        task.state = TaskState.READY
                        self.dispatch(task)
        producer.consumers = []
        producer.followers = []

    def _skip(self, task: Task) -> None:
        task.failed = True
        self.skipped += 1

    def end_scope(self, scope: Scope) -> None:
        """Drop the scope's references."""
        scope.open = False
        for task in scope.tasks:
            task.refs -= 1
            if not task.refs and task.ended:
                self._consume(task)
        scope.tasks = []
        if scope.has_blocks and scope.ring.heap.advance():
            self.consumed += 1

    def _consume(self, task: Task) -> None:
        task.state = _CONSUMED
        task.outputs = ()
        self.consumed += 1
        for group in task.groups:
            group.unconsumed -= 1
        for block in task.touched:
            block.users -= 1
            if not block.users:
                block.heap.advance()
        task.touched = ()
        ring = task.ring
        if ring.tasks[0] is task:
            self._reclaim(ring)

    def _reclaim(self, ring: Ring) -> None:
        while (task := ring.pop_consumed()) is not None:
            self.map.release(task)
            del self.tasks[task.id]
            if self.on_reclaim is not None:
                self.on_reclaim(ring)

    # -- looking ------------------------------------------------------------------------------------------------------

    def in_flight(self) -> Iterable[Task]:
        """Tasks that have not ended, oldest first."""
        return (task for task in self.tasks.values() if not task.ended)

    def describe_in_flight(self) -> tuple[str, ...]:
        """A line of text per task in flight, oldest first."""
        return tuple(
            f"task {task.id} ({task.label}): {task.state.value}, ring {task.ring.index}, "
            f"scope {scope_place(task.scope.site, task.scope.name)}"
            for task in self.in_flight()
        )

    @property
    def usage(self) -> tuple[tuple[int, int, int], ...]:
        """Slots, bytes and edges in use, per ring."""
        return tuple((r.task_head - r.task_tail, r.heap.used, r.dep_head - r.dep_tail) for r in self.rings)


assert RING_COUNT == 4  # records and pictures show exactly four
