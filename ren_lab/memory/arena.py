"""Packs the intermediates of a schedule into one arena per device."""

from collections.abc import Sequence

from ren_lab.memory.placement import Span, best_offsets, largest_live_bytes
from ren_lab.memory.plan import BufferUse, MemoryPlan, PlannedBuffer

MAX_ALIGNMENT = 256  # bytes: what device allocators guarantee, so that a view is aligned like a buffer of its own
_MIN_ALIGNMENT = 8  # bytes: enough for every scalar type
_PADDING_SHARE = 32  # padding may raise the lower bound by one part in this many


def plan_arenas(uses: Sequence[BufferUse], alignment: int = MAX_ALIGNMENT) -> MemoryPlan:
    """Give every plannable buffer an offset into the arena of its device.

    Two buffers of one device whose inclusive live ranges meet never share a byte. Buffers with a `reason` are passed
    through. The answer depends on nothing but the arguments.

    Offsets are multiples of `alignment`, a power of two of at most 256 bytes. Arenas of small buffers, where padding
    would raise the lower bound by more than 1/32, use the largest smaller power of two that does not, and never less
    than 8 bytes (or `alignment`, if that is less); the plan's `alignments` says which.

    See `ren_lab.memory.placement` for the strategies, their order and the bounds on their work.
    Raises ValueError for other alignments and for names that occur twice.
    """
    if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError(f"alignment {alignment!r} is not a power of two from 1 to {MAX_ALIGNMENT}; pass one of 1, 2, 4, ... 256")
    wanted: dict[str, list[int]] = {}
    for index, use in enumerate(uses):
        if use.reason is None:
            wanted.setdefault(use.device, []).append(index)

    offsets: dict[int, int] = {}
    strategies: dict[str, str] = {}
    alignments: dict[str, int] = {}
    for device, indices in wanted.items():
        spans = [Span(uses[index].nbytes, uses[index].first, uses[index].last) for index in indices]
        step, spans = _align(spans, alignment)
        placed, strategies[device] = best_offsets(spans, step)
        alignments[device] = step
        offsets.update(zip(indices, placed))

    buffers = tuple(
        PlannedBuffer(use.name, use.device, use.nbytes, use.first, use.last, offsets.get(index), use.reason)
        for index, use in enumerate(uses)
    )
    return MemoryPlan(buffers, strategies, alignments)


def _align(spans: Sequence[Span], alignment: int) -> tuple[int, list[Span]]:
    """The alignment of an arena of at most `alignment`, and the spans with sizes rounded up to it."""
    bound = largest_live_bytes(spans)
    step = alignment
    while True:
        rounded = [Span(-(-size // step) * step, first, last) for size, first, last in spans]
        padding = largest_live_bytes(rounded) - bound
        if step <= _MIN_ALIGNMENT or padding * _PADDING_SHARE <= bound:
            return step, rounded
        step //= 2
