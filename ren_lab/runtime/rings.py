"""One ring: a task window, a heap and a dependency pool, each with its cursors, reclaimed first in, first out.

All cursors count upwards for ever: `head` is the allocation frontier, `tail` the released boundary, and head - tail is in
use. Only the heap has places: it keeps the frontier's offset beside its count.
"""

from collections import deque
from typing import TYPE_CHECKING

from ren_lab.runtime.config import HEAP_ALIGNMENT
from ren_lab.runtime.tasks import Task, TaskState

if TYPE_CHECKING:
    from ren_lab.runtime.scopes import Scope


def rounded(nbytes: int) -> int:
    """`nbytes` as the heap counts them: up to the next multiple of 1024."""
    return -(-nbytes // HEAP_ALIGNMENT) * HEAP_ALIGNMENT


class Block:
    """Bytes of a heap, owned by a scope, and by a task where they were allocated with it.

    `users` counts tasks that touch it and are not consumed yet, the owner among them. The block can be released when
    there are none and its scope has ended.
    """

    __slots__ = ("end", "heap", "offset", "scope", "users")

    def __init__(self, heap: "Heap", offset: int, end: int, scope: "Scope") -> None:
        self.heap = heap
        self.offset = offset  # bytes from the start of the ring's heap
        self.end = end  # the heap's head after this allocation
        self.scope = scope
        self.users = 0

    @property
    def held(self) -> bool:
        """Whether an open scope keeps it from being released."""
        return self.scope.open


class Heap:
    """A circular heap of `capacity` bytes; allocations do not straddle its end.

    What is skipped at the end to avoid that is padding, and counts as allocated by the block behind it, except in an
    empty heap, which starts over at offset 0 for free.
    """

    __slots__ = ("blocks", "capacity", "cursor", "head", "peak", "tail")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.head = 0
        self.tail = 0
        self.cursor = 0  # offset of the frontier, 0..capacity
        self.peak = 0
        self.blocks: deque[Block] = deque()

    @property
    def used(self) -> int:
        """Bytes in use, padding included."""
        return self.head - self.tail

    def footprint(self, nbytes: int) -> int:
        """What an allocation of `nbytes` (rounded) would take now: itself and its padding."""
        if self.head == self.tail or self.cursor + nbytes <= self.capacity:
            return nbytes
        return nbytes + self.capacity - self.cursor

    def reserve(self, nbytes: int, scope: "Scope") -> Block:
        """Allocate; the caller has made sure that `footprint` fits."""
        if self.head == self.tail:
            self.cursor = 0
        footprint = self.footprint(nbytes)
        assert self.used + footprint <= self.capacity
        offset = self.cursor if self.cursor + nbytes <= self.capacity else 0
        self.cursor = offset + nbytes
        self.head += footprint
        if self.head - self.tail > self.peak:
            self.peak = self.head - self.tail
        block = Block(self, offset, self.head, scope)
        self.blocks.append(block)
        return block

    def advance(self) -> bool:
        """Release blocks from the oldest on, as far as they can be; whether any was."""
        blocks = self.blocks
        before = self.tail
        while blocks and not blocks[0].users and not blocks[0].scope.open:
            self.tail = blocks.popleft().end
        return self.tail != before


class Ring:
    """Ring `index` of a run, with the sizes of its three resources."""

    __slots__ = (
        "dep_head",
        "dep_peak",
        "dep_pool",
        "dep_tail",
        "heap",
        "index",
        "task_head",
        "task_peak",
        "task_tail",
        "task_window",
        "tasks",
    )

    def __init__(self, index: int, task_window: int, heap: int, dep_pool: int) -> None:
        self.index = index
        self.task_window = task_window
        self.task_head = 0
        self.task_tail = 0
        self.task_peak = 0
        self.dep_pool = dep_pool
        self.dep_head = 0
        self.dep_tail = 0
        self.dep_peak = 0
        self.heap = Heap(heap)
        self.tasks: deque[Task] = deque()  # in use, oldest first

    @property
    def stuck(self) -> bool:
        """Whether no slot can be reclaimed before an open scope ends."""
        return bool(self.tasks) and self.tasks[0].scope.open

    def admit(self, task: Task) -> None:
        """Take a slot and `task.edges` entries; the caller has made sure that they are there."""
        self.tasks.append(task)
        self.task_head += 1
        in_use = self.task_head - self.task_tail
        if in_use > self.task_peak:
            self.task_peak = in_use
        if task.edges:
            self.dep_head += task.edges
            in_use = self.dep_head - self.dep_tail
            if in_use > self.dep_peak:
                self.dep_peak = in_use

    def pop_consumed(self) -> Task | None:
        """Give back the oldest task's slot and edges if it is consumed, and return it."""
        if self.tasks and self.tasks[0].state is TaskState.CONSUMED:
            task = self.tasks.popleft()
            self.task_tail += 1
            self.dep_tail += task.edges
            return task
        return None
