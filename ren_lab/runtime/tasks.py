"""A task and its life: FREE, BUILDING, PENDING, READY, RUNNING, COMPLETED or FAILED, CONSUMED."""

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ren_lab.runtime.rings import Block, Ring
    from ren_lab.runtime.scopes import Scope
    from ren_lab.runtime.tensor_map import Group, Record


class TaskState(enum.Enum):
    """Where a task stands. A slot is FREE before a task takes it and again when it has been reclaimed."""

    FREE = "free"
    BUILDING = "building"  # its slot, bytes, edges and map entries are being reserved
    PENDING = "pending"  # it waits for producers
    READY = "ready"  # it waits for a worker
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"  # its kernel raised, or was skipped because something it consumes failed
    CONSUMED = "consumed"  # it has ended, so have its consumers and its scope; it may be reclaimed

    def __repr__(self) -> str:
        return self.name


class Task:
    """One submitted call. The engine's own record; users hold the task's id.

    `waiting` counts producers that have not ended; `refs` counts what keeps an ended task from being consumed: its scope,
    and its consumers that have not ended.
    """

    __slots__ = (
        "args",
        "block_count",
        "blocks_left",
        "consumers",
        "cost",
        "edges",
        "error",
        "failed",
        "fn",
        "followers",
        "groups",
        "id",
        "kind",
        "name",
        "outputs",
        "poisoned",
        "producers",
        "refs",
        "ring",
        "scope",
        "state",
        "touched",
        "waiting",
        "written",
    )

    def __init__(self, identity: int, fn: Callable[..., Any], args: Sequence[Any], scope: "Scope", name: str | None) -> None:
        self.id = identity
        self.fn: Callable[..., Any] | None = fn
        self.args: Sequence[Any] = args
        self.scope = scope
        self.ring: Ring = scope.ring
        self.name = name
        self.state = TaskState.BUILDING
        self.failed = False
        self.poisoned = False  # something it consumes has failed: it will not run
        self.error: BaseException | None = None
        self.waiting = 0
        self.refs = 1  # the scope's
        self.edges = 0  # entries of the dependency pool
        self.consumers: list[Task] = []  # tasks that need this one's data
        self.followers: list[Task] = []  # tasks that must only come after it
        self.producers: Sequence[Task] = ()  # tasks it keeps from being consumed
        self.groups: Sequence[Group] = ()
        self.written: Sequence[Record] = ()
        self.touched: Sequence[Block] = ()
        self.outputs: Sequence[Any] = ()  # arrays allocated with the task
        self.cost: int | None = None  # virtual nanoseconds, where the caller gave them
        self.kind: str | None = None
        self.block_count = 0  # blocks of an SPMD task, 0 for a plain call
        self.blocks_left = 1

    @property
    def held(self) -> bool:
        """Whether an open scope keeps it from being consumed."""
        return self.scope.open

    @property
    def ended(self) -> bool:
        """Whether it has completed or failed (or was consumed since)."""
        return self.state is TaskState.COMPLETED or self.state is TaskState.FAILED or self.state is TaskState.CONSUMED

    @property
    def label(self) -> str:
        """The name given to `submit`, or the kernel's."""
        return self.name or kernel_name(self.fn)

    def __repr__(self) -> str:
        return f"<task {self.id} {self.label}: {self.state.name}, ring {self.ring.index}>"


def kernel_name(fn: Any) -> str:
    """The name to show for a kernel."""
    while hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__
