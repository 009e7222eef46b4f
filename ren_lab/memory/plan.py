"""What the memory planner is asked, and what it answers."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from types import MappingProxyType

from ren_lab.words import BINARY_UNITS, format_bytes


@dataclass(frozen=True, slots=True)
class BufferUse:
    """A request: the buffer `name` of `nbytes` on `device` is used from position `first` to position `last`.

    Positions count the items of a schedule from 0, and both ends are included. `reason` is None for a buffer that may
    be planned; otherwise it says in words why it must stay out of the arena, such as "final output".
    Raises TypeError or ValueError for empty names, sizes below 1, negative positions and ranges that end before they
    begin.
    """

    name: str
    device: str
    nbytes: int
    first: int
    last: int
    reason: str | None = None

    def __post_init__(self) -> None:
        _check_request(self)


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """The answer to a `BufferUse`: a byte `offset` into the arena of `device`, or None and the `reason`."""

    name: str
    device: str
    nbytes: int
    first: int
    last: int
    offset: int | None
    reason: str | None

    def __post_init__(self) -> None:
        _check_request(self)
        if (self.offset is None) == (self.reason is None):
            raise ValueError(
                f"buffer {self.name!r} has offset {self.offset!r} and reason {self.reason!r}; give the offset of a "
                "planned buffer or the reason of an unplanned one, and None for the other"
            )
        if self.offset is not None:
            _check_int(self.name, "offset", self.offset, 0)

    @property
    def planned(self) -> bool:
        """Whether the buffer lives in an arena."""
        return self.offset is not None

    @property
    def end(self) -> int | None:
        """The first byte after the buffer in its arena, or None outside arenas."""
        return None if self.offset is None else self.offset + self.nbytes


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where each buffer of a schedule lives: one arena per device, and the buffers outside.

    `buffers` stands in the order of the requests. `strategies` and `alignments` (bytes) say, for each device with
    planned buffers, how its arena was packed. Raises ValueError, naming the two, if buffers of one device share a byte
    while both are live, or if two buffers have the same name.
    """

    buffers: tuple[PlannedBuffer, ...]
    strategies: Mapping[str, str] = field(default_factory=dict)
    alignments: Mapping[str, int] = field(default_factory=dict)

    arenas: Mapping[str, int] = field(init=False, compare=False)
    """Device -> bytes of its arena, the largest offset + nbytes there, in order of first appearance."""
    lower_bound_bytes: int = field(init=False, compare=False)
    """The largest live set of planned buffers, summed over the devices: no plan has a smaller peak."""
    peak_position: int | None = field(init=False, compare=False)
    """The first position at which the occupied extents of the arenas add up to the most (of equal extents, at which
    most bytes are live); None if nothing is planned."""
    by_name: Mapping[str, PlannedBuffer] = field(init=False, compare=False, repr=False)
    """The buffers by their names."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "buffers", tuple(self.buffers))
        by_name: dict[str, PlannedBuffer] = {}
        for buffer in self.buffers:
            if buffer.name in by_name:
                raise ValueError(f"two buffers are named {buffer.name!r}; a name must be unique in its plan, rename one")
            by_name[buffer.name] = buffer
        facts = _sweep(buffer for buffer in self.buffers if buffer.planned)
        for name, value in zip(("arenas", "lower_bound_bytes", "peak_position"), facts):
            object.__setattr__(self, name, value)
        for name in ("strategies", "alignments", "arenas"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        object.__setattr__(self, "by_name", MappingProxyType(by_name))

    @property
    def strategy(self) -> str:
        """How the arenas were packed: one name if it is the same on all devices, else "device: name, ..."."""
        names = set(self.strategies.values())
        if len(names) > 1:
            return ", ".join(f"{device}: {name}" for device, name in self.strategies.items())
        return names.pop() if names else "nothing to plan"

    @property
    def planned(self) -> tuple[PlannedBuffer, ...]:
        """The buffers that live in an arena."""
        return tuple(buffer for buffer in self.buffers if buffer.planned)

    @property
    def unplanned(self) -> tuple[PlannedBuffer, ...]:
        """The buffers left out, each with its reason."""
        return tuple(buffer for buffer in self.buffers if not buffer.planned)

    @property
    def peak_bytes(self) -> int:
        """Bytes of all arenas together: the largest offset + nbytes, summed over the devices."""
        return sum(self.arenas.values())

    @property
    def unplanned_bytes(self) -> int:
        """Bytes that the planned buffers would take without a plan, each in memory of its own."""
        return sum(buffer.nbytes for buffer in self.buffers if buffer.planned)

    @property
    def overhead(self) -> float:
        """`peak_bytes` divided by `lower_bound_bytes`: 1.0 is perfect, and 1.0 if nothing is planned."""
        return self.peak_bytes / self.lower_bound_bytes if self.lower_bound_bytes else 1.0

    def live_at(self, position: int, *, planned_only: bool = True) -> tuple[PlannedBuffer, ...]:
        """The buffers live at a schedule position, in plan order; with `planned_only=False` also those left out."""
        return tuple(
            buffer for buffer in self.buffers if buffer.first <= position <= buffer.last and (buffer.planned or not planned_only)
        )

    def __repr__(self) -> str:
        peak, bound = format_bytes(self.peak_bytes), format_bytes(self.lower_bound_bytes)
        return (
            f"MemoryPlan({len(self.planned)} of {len(self.buffers)} buffers planned, peak {peak}, "
            f"lower bound {bound}, strategy {self.strategy!r})"
        )

    def __str__(self) -> str:
        rows = [("buffer", "device", "size", "live", "offset")]
        for buffer in self.buffers:
            where = f"not planned: {buffer.reason}" if buffer.offset is None else _exact_bytes(buffer.offset)
            live = f"{buffer.first}..{buffer.last}"
            rows.append((buffer.name, buffer.device, _exact_bytes(buffer.nbytes), live, where))
        return "\n".join([*self._summary(), *_table(rows)])

    def _summary(self) -> list[str]:
        planned = self.planned
        if not planned:
            return [f"memory plan: none of {len(self.buffers)} buffers planned, no arena"]
        peak, bound, apart = map(format_bytes, (self.peak_bytes, self.lower_bound_bytes, self.unplanned_bytes))
        above = (self.overhead - 1) * 100
        relation = f"{above:.3g} % above the lower bound {bound}" if above else "the lower bound"
        lines = [
            f"memory plan: peak {peak} at position {self.peak_position}, {relation}",
            f"{len(planned)} of {len(self.buffers)} buffers planned, {apart} without reuse, packed by {self.strategy}",
        ]
        if len(self.arenas) > 1:
            lines.append("arenas: " + ", ".join(f"{device} {format_bytes(size)}" for device, size in self.arenas.items()))
        return lines


def _exact_bytes(nbytes: int) -> str:
    """`nbytes` without rounding, in the largest binary unit that divides it: 1536 -> "1536 B", 2048 -> "2 KiB"."""
    unit = 0
    while nbytes and nbytes % 1024 == 0 and unit < len(BINARY_UNITS) - 1:
        nbytes //= 1024
        unit += 1
    return f"{nbytes} {BINARY_UNITS[unit]}"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines of aligned columns; sizes and ranges stand to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = {"size", "live"}
    lines = []
    for row in rows:
        cells = [cell.rjust(width) if title in right else cell.ljust(width) for cell, width, title in zip(row, widths, rows[0])]
        lines.append("  ".join(cells).rstrip())
    return lines


def _check_request(request: BufferUse | PlannedBuffer) -> None:
    for what, text in (("name", request.name), ("device", request.device)):
        if not isinstance(text, str):
            raise TypeError(f"the {what} of a buffer is a str, not {text!r}")
        if not text:
            raise ValueError(f"the {what} of a buffer is empty; give each buffer a name and a device such as 'python'")
    _check_int(request.name, "nbytes", request.nbytes, 1)
    _check_int(request.name, "first", request.first, 0)
    _check_int(request.name, "last", request.last, 0)
    if request.last < request.first:
        raise ValueError(
            f"buffer {request.name!r} is last used at {request.last}, before its first use at {request.first}; "
            "last is inclusive and at least first"
        )
    if request.reason is not None and not isinstance(request.reason, str):
        raise TypeError(f"the reason of buffer {request.name!r} is words or None, not {request.reason!r}")
    if request.reason == "":
        raise ValueError(f"the reason of buffer {request.name!r} is empty; say why it is not planned, or pass None")


def _check_int(name: str, what: str, value: int, least: int) -> None:
    if type(value) is not int:
        raise TypeError(f"{what} of buffer {name!r} is {value!r}; it must be an int, convert it with int()")
    if value < least:
        raise ValueError(f"{what} of buffer {name!r} is {value}; it must be at least {least}")


class _Arena:
    """The live buffers of one device, by offset, while the schedule is swept."""

    __slots__ = ("buffers", "live_bytes", "most_live_bytes", "offsets", "size")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.buffers: list[PlannedBuffer] = []
        self.live_bytes = 0
        self.most_live_bytes = 0
        self.size = 0

    @property
    def extent(self) -> int:
        """The end of the highest live buffer."""
        return self.offsets[-1] + self.buffers[-1].nbytes if self.offsets else 0

    def add(self, buffer: PlannedBuffer, offset: int) -> None:
        at = bisect_left(self.offsets, offset)
        for other in self.buffers[max(at - 1, 0) : at + 1]:
            assert other.end is not None and other.offset is not None
            if other.offset < offset + buffer.nbytes and offset < other.end:
                raise ValueError(
                    f"buffers {other.name!r} and {buffer.name!r} share bytes of the arena of {buffer.device!r} at "
                    f"position {buffer.first}: {other.offset}..{other.end - 1} and "
                    f"{offset}..{offset + buffer.nbytes - 1}; give one of them another offset"
                )
        self.offsets.insert(at, offset)
        self.buffers.insert(at, buffer)
        self.size = max(self.size, offset + buffer.nbytes)
        self.live_bytes += buffer.nbytes
        self.most_live_bytes = max(self.most_live_bytes, self.live_bytes)

    def remove(self, offset: int) -> None:
        at = bisect_left(self.offsets, offset)
        del self.offsets[at]
        self.live_bytes -= self.buffers.pop(at).nbytes


def _sweep(planned: Iterable[PlannedBuffer]) -> tuple[dict[str, int], int, int | None]:
    """Arena sizes, lower bound and peak position of planned buffers; ValueError if two of them collide."""
    planned = list(planned)
    arenas = {buffer.device: _Arena() for buffer in planned}
    dying: list[tuple[int, str, int]] = []
    extent = live = 0
    highest = (0, 0)
    peak_position = None
    for buffer in sorted(planned, key=lambda buffer: buffer.first):
        assert buffer.offset is not None
        while dying and dying[0][0] < buffer.first:
            _, device, offset = heappop(dying)
            arena = arenas[device]
            extent -= arena.extent
            live -= arena.live_bytes
            arena.remove(offset)
            extent += arena.extent
            live += arena.live_bytes
        arena = arenas[buffer.device]
        extent -= arena.extent
        arena.add(buffer, buffer.offset)
        extent += arena.extent
        live += buffer.nbytes
        heappush(dying, (buffer.last, buffer.device, buffer.offset))
        # Within one position both only grow, so the last buffer to come decides for the position.
        if (extent, live) > highest:
            highest = (extent, live)
            peak_position = buffer.first
    sizes = {device: arena.size for device, arena in arenas.items()}
    return sizes, sum(arena.most_live_bytes for arena in arenas.values()), peak_position
