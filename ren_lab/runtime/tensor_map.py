"""The tensor map: who last wrote each region, and who has read it since.

An entry is a region with its last writer, or a region with a group: all its readers between two writes, or the writers of
MANUAL scopes, which nobody has ordered. A group is one producer to whoever comes after it. A write that covers a region
replaces its entries. Entries are given back with the slots of their tasks, first in, first out, so a full map can be
waited for exactly when a ring can.

Regions come back: loops touch the same tiles again and again. So a record that has lost its last entry stays for a while
as a ghost, with its place in the index and the knowledge whether it is alone there, but without its array. A task that
meets only regions known to be alone needs no search at all.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from ren_lab.runtime.range_index import RangeIndex
from ren_lab.runtime.regions import Region, covers, overlaps
from ren_lab.runtime.tasks import Task, TaskState

Arguments = dict[Region, np.ndarray]

_MOST_GHOSTS = 16384  # a few MiB


class Group:
    """Tasks that stand for one producer.

    A task that waits for a group closes it to new members, so nobody ever waits for a later task.
    """

    __slots__ = ("consumers", "failed", "followers", "members", "record", "unconsumed", "unfinished", "writes")

    def __init__(self, record: "Record", writes: bool) -> None:
        self.record: Record | None = record  # None once a write has replaced it
        self.writes = writes
        self.members: dict[Task, None] = {}  # not reclaimed yet
        self.unfinished = 0
        self.unconsumed = 0
        self.failed = False
        self.consumers: list[Task] = []
        self.followers: list[Task] = []

    @property
    def held(self) -> bool:
        """Whether an open scope keeps a member from being consumed."""
        return any(member.scope.open for member in self.members)

    def close(self) -> None:
        """Let nobody join any more."""
        record = self.record
        if record is not None:
            if record.open_reads is self:
                record.open_reads = None
            elif record.open_writes is self:
                record.open_writes = None


class Record:
    """What is known about one region.

    `array` keeps the addresses from being given out again while there are entries; a ghost has None.
    """

    __slots__ = ("alone", "array", "groups", "home", "open_reads", "open_writes", "poison", "region", "writer")

    def __init__(self, region: Region, array: np.ndarray) -> None:
        self.region = region
        self.array: np.ndarray | None = array
        self.home = None  # of the index
        self.alone = False  # True only if no other record meets it
        self.writer: Task | None = None
        self.groups: list[Group] = []
        self.open_reads: Group | None = None
        self.open_writes: Group | None = None
        self.poison = False  # its last writer failed and is gone

    @property
    def entries(self) -> int:
        """Map entries it takes."""
        return len(self.groups) + (self.writer is not None)


class Plan:
    """What a submission would do to the map; computing it changes nothing.

    Attributes:
        producers: tasks and groups not consumed yet that must end first; True where their data is consumed.
        poisoned: whether data would be consumed that a failed task should have made.
        covered: records whose entries a write replaces.
        reads, writes: regions that get an entry.
        entries: how many more entries the map would hold.
    """

    __slots__ = ("covered", "entries", "poisoned", "producers", "reads", "writes")

    def __init__(self) -> None:
        self.producers: dict[Task | Group, bool] = {}
        self.poisoned = False
        self.covered: dict[Record, None] = {}
        self.reads: list[Region] = []
        self.writes: list[Region] = []
        self.entries = 0


class TensorMap:
    """At most `capacity` entries; the caller checks `used` before it commits."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.peak = 0
        self._exact: dict[Region, Record] = {}
        self._index = RangeIndex()
        self._ghosts: dict[Record, None] = {}  # oldest first

    def __len__(self) -> int:
        return self.used

    def plan(self, reads: Arguments, writes: Arguments, infer: bool) -> Plan:
        """Find the producers of a task that reads and writes these regions, and count its entries.

        A region that is both read and written stands in both. With `infer` off there are no producers, and writes join
        the region's entries instead of replacing them.
        """
        plan = Plan()
        exact = self._exact
        producers = plan.producers
        if infer:
            for region, array in reads.items():
                for record in self._meeting(region, array):
                    writer = record.writer
                    if writer is not None:
                        if writer.state is not TaskState.CONSUMED:
                            producers[writer] = True
                        if writer.failed:
                            plan.poisoned = True
                    for group in record.groups:
                        if group.writes:
                            if group.unconsumed:
                                producers[group] = True
                            if group.failed:
                                plan.poisoned = True
                    if record.poison:
                        plan.poisoned = True
            for region, array in writes.items():
                for record in self._meeting(region, array):
                    writer = record.writer
                    if writer is not None and writer.state is not TaskState.CONSUMED:
                        producers.setdefault(writer, False)
                    for group in record.groups:
                        if group.unconsumed:
                            producers.setdefault(group, False)
                    if covers(region, record.region) and record not in plan.covered:
                        plan.covered[record] = None
                        plan.entries -= record.entries
        for region in writes:
            if len(writes) > 1 and any(covers(other, region) for other in plan.writes):
                continue
            plan.writes.append(region)
            if infer:
                plan.entries += 1
            else:
                known = exact.get(region)
                plan.entries += known is None or known.open_writes is None or known.open_writes in producers
        for region in reads:
            if region in writes or any(covers(own, region) for own in plan.writes):
                continue  # its own write stands for the read
            plan.reads.append(region)
            known = exact.get(region)
            plan.entries += known is None or known.open_reads is None or known.open_reads in producers
        return plan

    def commit(self, task: Task, plan: Plan, reads: Arguments, writes: Arguments, infer: bool) -> None:
        """Do what `plan` says. The producers' groups are closed first, so that the task cannot join what it waits for."""
        for producer in plan.producers:
            if producer.__class__ is Group:
                producer.close()  # type: ignore[union-attr]
        for record in plan.covered:
            self._clear(record)
            if record.region not in plan.writes:
                self._drop(record)
        if plan.reads:
            task.groups = [self._join(task, self._record(region, reads[region]), False) for region in plan.reads]
        if plan.writes:
            records = [self._record(region, writes[region]) for region in plan.writes]
            if infer:
                for record in records:
                    record.writer = task
                task.written = records
            else:
                task.groups = [*task.groups, *(self._join(task, record, True) for record in records)]
        self.used += plan.entries
        if self.used > self.peak:
            self.peak = self.used

    def release(self, task: Task) -> None:
        """Give back what a reclaimed task still has in the map. Where it failed, later readers are still poisoned."""
        for record in task.written:
            if record.writer is task:
                record.writer = None
                record.poison = task.failed
                self.used -= 1
                self._retire_if_empty(record)
        for group in task.groups:
            del group.members[task]
            record_or_none = group.record
            if not group.members and record_or_none is not None:
                group.close()
                group.record = None
                record_or_none.groups.remove(group)
                record_or_none.poison |= group.writes and group.failed
                self.used -= 1
                self._retire_if_empty(record_or_none)
        task.written = task.groups = ()

    def writers_of(self, region: Region, array: np.ndarray) -> Iterable[Task]:
        """Tasks whose data the region holds and that are still on record."""
        for record in self._meeting(region, array):
            if record.writer is not None:
                yield record.writer
            for group in record.groups:
                if group.writes:
                    yield from group.members

    def poisoned(self, region: Region, array: np.ndarray) -> bool:
        """Whether a failed task that is gone should have written part of the region."""
        return any(record.poison for record in self._meeting(region, array))

    def forget(self, region: Region, array: np.ndarray) -> None:
        """Drop what is known of bytes that are about to be given to somebody else; all its tasks are consumed."""
        for record in self._meeting(region, array):
            if record.array is None:
                continue
            self.used -= record.entries
            self._clear(record)
            if record.region == region:
                self._retire_if_empty(record)
            else:
                self._drop(record)

    def _meeting(self, region: Region, array: np.ndarray) -> Sequence[Record]:
        """Records that share a byte with the region. Ghosts of other regions are laid to rest on the way."""
        known = self._exact.get(region)
        if known is not None and known.alone:
            return (known,)
        met: list[Record] = []
        for record in self._index.candidates(region):
            if known is not None and record is known:
                met.append(known)
            elif overlaps(record.region, record.array, region, array):
                if record.array is None:
                    self._drop(record)
                else:
                    met.append(record)
        if known is not None and len(met) == 1:
            known.alone = True
        return met

    def _record(self, region: Region, array: np.ndarray) -> Record:
        """The record of exactly this region, made where there is none."""
        known = self._exact.get(region)
        if known is not None:
            if known.array is None:
                known.array = array
                del self._ghosts[known]
            return known
        met = self._meeting(region, array)
        for other in met:
            other.alone = False
        record = Record(region, array)
        record.alone = not met
        self._exact[region] = record
        self._index.add(record)
        return record

    @staticmethod
    def _join(task: Task, record: Record, writes: bool) -> Group:
        group = record.open_writes if writes else record.open_reads
        if group is None:
            group = Group(record, writes)
            record.groups.append(group)
            if writes:
                record.open_writes = group
            else:
                record.open_reads = group
        group.members[task] = None
        group.unfinished += 1
        group.unconsumed += 1
        return group

    @staticmethod
    def _clear(record: Record) -> None:
        """Take all entries from the record; the caller counts them."""
        for group in record.groups:
            group.record = None
        record.groups = []
        record.open_reads = record.open_writes = record.writer = None
        record.poison = False

    def _drop(self, record: Record) -> None:
        del self._exact[record.region]
        self._index.remove(record)
        self._ghosts.pop(record, None)

    def _retire_if_empty(self, record: Record) -> None:
        """Make a record without entries a ghost, in the place of the oldest one where there are many."""
        if record.writer is None and not record.groups and not record.poison:
            record.array = None
            self._ghosts[record] = None
            if len(self._ghosts) > _MOST_GHOSTS:
                self._drop(next(iter(self._ghosts)))
