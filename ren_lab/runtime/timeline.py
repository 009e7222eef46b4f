"""What a run reports: totals always, and who ran what when if asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ren_lab.runtime.core import Core
from ren_lab.runtime.rings import Ring
from ren_lab.runtime.scopes import Scope
from ren_lab.runtime.tasks import Task
from ren_lab.runtime.tensor_map import Group, Plan
from ren_lab.words import format_bytes, format_count, format_seconds


@dataclass(frozen=True, slots=True)
class TaskSpan:
    """One call of a kernel. Times are nanoseconds from the start of the run, virtual on a simulator.

    Attributes:
        task_id: the task; `name` its kernel; `block` the block of an SPMD task, else None.
        lane: index of the lane it ran on.
        start_ns, end_ns: when it held the lane.
        ring, depth, site: its ring, and the depth and source line of its scope.
        producers: ids of the tasks it had to wait for or be ordered after.
        failed: whether the kernel raised.
    """

    task_id: int
    name: str
    block: int | None
    lane: int
    start_ns: int
    end_ns: int
    ring: int
    depth: int
    site: str
    producers: tuple[int, ...]
    failed: bool


@dataclass(frozen=True, slots=True)
class WaitSpan:
    """A submission that waited for `resource` of `ring` (back-pressure), at the scope `site`."""

    resource: str
    ring: int
    site: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class ScopeSpan:
    """A scope from entry to exit; `end_ns` is None for one in which the run stopped."""

    site: str
    name: str | None
    depth: int
    ring: int
    start_ns: int
    end_ns: int | None


@dataclass(frozen=True, slots=True)
class RingCursors:
    """Cursors of one ring at one moment; head - tail is in use. Heap in bytes."""

    time_ns: int
    ring: int
    task_window: tuple[int, int]  # (tail, head)
    heap: tuple[int, int]
    dep_pool: tuple[int, int]
    tensor_map: int  # entries in use


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that happened, each sequence in order of time."""

    lanes: tuple[str, ...]
    tasks: tuple[TaskSpan, ...]
    waits: tuple[WaitSpan, ...]
    scopes: tuple[ScopeSpan, ...]
    cursors: tuple[RingCursors, ...]


@dataclass(frozen=True, slots=True)
class RingTotals:
    """One ring over a run: sizes, what went through it, and the most that was in use at once."""

    task_window: int
    heap_bytes: int
    dep_pool: int
    tasks: int
    allocated_bytes: int  # padding included
    edges: int
    task_peak: int
    heap_peak_bytes: int
    edge_peak: int


@dataclass(frozen=True, slots=True, repr=False)
class RunReport:
    """What `Worker.run` returns.

    Attributes:
        platform: the platform's name.
        lanes: names of the workers.
        result: what the program returned.
        tasks, completed, failed, skipped: tasks submitted; ended well; raised; not run because of those.
        scopes: scopes entered, the root among them.
        waits: (resource, ring) -> how many submissions waited for it.
        seconds: length of the run on the platform's clock, virtual on a simulator.
        wall_seconds: length of the run on the wall clock.
        rings: totals of rings 0 to 3.
        tensor_map_peak: most map entries in use.
        mapped_bytes: heap bytes mapped per ring, used or not.
        work_dir: folder with the artifacts, or None when there are none.
        stats_path: the scope statistics, or None.
        timeline: who ran what when, if it was asked for.
    """

    platform: str
    lanes: tuple[str, ...]
    result: Any
    tasks: int
    completed: int
    failed: int
    skipped: int
    scopes: int
    waits: dict[tuple[str, int], int]
    seconds: float
    wall_seconds: float
    rings: tuple[RingTotals, ...]
    tensor_map_peak: int
    mapped_bytes: tuple[int, ...]
    work_dir: Path | None
    stats_path: Path | None
    timeline: Timeline | None

    @property
    def total_mapped_bytes(self) -> int:
        """All four heaps."""
        return sum(self.mapped_bytes)

    def __repr__(self) -> str:
        return f"<RunReport: {str(self).splitlines()[0]}>"

    def __str__(self) -> str:
        tasks, scopes, lanes = (
            format_count(self.tasks, "task"),
            format_count(self.scopes, "scope"),
            format_count(len(self.lanes), "lane"),
        )
        lines = [
            f"{tasks} in {scopes} on {self.platform} ({lanes}), {format_seconds(self.seconds)}",
            f"  {self.completed:,} completed, {self.failed:,} failed, {self.skipped:,} skipped",
        ]
        for k, ring in enumerate(self.rings):
            lines.append(
                f"  ring {k}: {format_count(ring.tasks, 'task')}, "
                f"peak {ring.task_peak:,} of {format_count(ring.task_window, 'slot')}, "
                f"{format_bytes(ring.heap_peak_bytes)} of {format_bytes(ring.heap_bytes)}, "
                f"{ring.edge_peak:,} of {format_count(ring.dep_pool, 'edge')}"
            )
        lines.extend(
            f"  {format_count(count, 'submission')} waited for {resource} of ring {ring}"
            for (resource, ring), count in sorted(self.waits.items())
        )
        if self.work_dir is not None:
            lines.append(f"  artifacts in {self.work_dir}")
        return "\n".join(lines)


class Recorder:
    """Collects a timeline. Appending to lists is all it does while the run is on."""

    def __init__(self) -> None:
        self.now_ns = lambda: 0  # the executor's clock, set by the worker
        self._tasks: dict[int, tuple[str, int, int, str, tuple[int, ...]]] = {}
        self._spans: list[tuple[int, int | None, int, int, int, bool]] = []
        self._waits: list[WaitSpan] = []
        self._scopes: list[tuple[Scope, int]] = []
        self._scope_ends: dict[Scope, int] = {}
        self._cursors: list[RingCursors] = []

    def admitted(self, task: Task, plan: Plan, core: Core) -> None:
        """A task has its slot."""
        producers: list[int] = []
        for producer in plan.producers:
            if isinstance(producer, Group):
                producers.extend(member.id for member in producer.members)
            else:
                producers.append(producer.id)
        scope = task.scope
        known = (task.label, task.ring.index, scope.depth, scope.site, tuple(sorted(set(producers) - {task.id})))
        self._tasks[task.id] = known
        self.cursors(task.ring, core)

    def ran(self, task: Task, block: int | None, lane: int, start_ns: int, end_ns: int) -> None:
        """A call has ended."""
        self._spans.append((task.id, block, lane, start_ns, end_ns, task.failed))

    def waited(self, resource: str, ring: Ring, site: str, start_ns: int) -> None:
        """A submission has waited until now."""
        self._waits.append(WaitSpan(resource, ring.index, site, start_ns, self.now_ns()))

    def entered(self, scope: Scope, core: Core) -> None:
        """A scope has begun."""
        self._scopes.append((scope, self.now_ns()))
        self.cursors(scope.ring, core)

    def left(self, scope: Scope, core: Core) -> None:
        """A scope has ended."""
        self._scope_ends[scope] = self.now_ns()
        self.cursors(scope.ring, core)

    def cursors(self, ring: Ring, core: Core) -> None:
        """Note where the ring's cursors stand."""
        self._cursors.append(
            RingCursors(
                self.now_ns(),
                ring.index,
                (ring.task_tail, ring.task_head),
                (ring.heap.tail, ring.heap.head),
                (ring.dep_tail, ring.dep_head),
                core.map.used,
            )
        )

    def finish(self, lanes: tuple[str, ...]) -> Timeline:
        """The timeline of what was collected."""
        tasks = []
        for identity, block, lane, start_ns, end_ns, failed in sorted(self._spans, key=lambda span: (span[3], span[0])):
            name, ring, depth, site, producers = self._tasks[identity]
            tasks.append(TaskSpan(identity, name, block, lane, start_ns, end_ns, ring, depth, site, producers, failed))
        scopes = tuple(
            ScopeSpan(scope.site, scope.name, scope.depth, scope.ring.index, start_ns, self._scope_ends.get(scope))
            for scope, start_ns in self._scopes
        )
        return Timeline(lanes, tuple(tasks), tuple(self._waits), scopes, tuple(self._cursors))
