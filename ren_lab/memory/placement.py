"""Offsets for buffers whose live ranges are all known: the on-line walk, and placements that use the foresight.

A `Span` is a buffer reduced to what placement needs. Functions here return one offset per span, in the order of the
spans, such that spans whose live ranges meet do not overlap. Finding the lowest peak is NP-hard (dynamic storage
allocation, Garey and Johnson 1979, problem SR2), so several heuristics run in turn within a budget of work that is
counted, not timed, which keeps results reproducible:

- `tlsf`: walk the schedule, allocate at the first use, free after the last, with the allocator model. Also walked
  backwards (`tlsf, backwards`), which packs what is long-lived at the end instead of the beginning.
- `two ends`: in order of first use, each buffer at the end of the arena opposite to the newest buffer it meets. Exact
  for chains, where each buffer meets only its neighbours.
- `largest first` and `largest area first` (bytes times positions): the lowest gap that fits, the difficult ones first.

The last three are repeated with the buffers that stick out of the lower bound moved to the front of the order; a name
ending in "+ k" says that this was done k times.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from ren_lab.memory.tlsf import TLSF

# Budget in visits: one per pair of spans that meet, per span and per round. A visit takes 0.1 to 0.2 us.
_VISITS_PER_SPAN = 1_000
_VISITS_MOST = 2_500_000
_PATIENCE = 16  # rounds without a lower peak after which an order is given up


class Span(NamedTuple):
    """`size` bytes, live from position `first` to position `last`, both included."""

    size: int
    first: int
    last: int


def largest_live_bytes(spans: Sequence[Span]) -> int:
    """The most bytes live at one position: no arena can be smaller. 0 without spans."""
    change: dict[int, int] = {}
    for size, first, last in spans:
        change[first] = change.get(first, 0) + size
        change[last + 1] = change.get(last + 1, 0) - size
    return max(accumulate(change[position] for position in sorted(change)), default=0)


def best_offsets(spans: Sequence[Span], alignment: int) -> tuple[list[int], str]:
    """Offsets with the lowest peak found, and the name of what found them.

    Sizes must be multiples of `alignment`; then the offsets are too. The first plan that meets the lower bound ends
    the search, so a program that the walk packs perfectly costs O(n log n). Otherwise the work is bounded by
    1,000 visits per span and 2,500,000 in all; programs with more meeting pairs than that are only walked.
    """
    bound = largest_live_bytes(spans)
    best: tuple[int, list[int], str] | None = None
    for offsets, strategy in _candidates(spans, alignment, bound):
        peak = _peak(spans, offsets)
        if best is None or peak < best[0]:
            best = peak, offsets, strategy
        if peak <= bound:
            break
    assert best is not None  # the walk always yields
    return best[1], best[2]


def _candidates(spans: Sequence[Span], alignment: int, bound: int) -> Iterator[tuple[list[int], str]]:
    """Placements, the cheap ones first."""
    yield walk(spans, alignment), "tlsf"
    end = max((span.last for span in spans), default=0)
    yield walk([Span(size, end - last, end - first) for size, first, last in spans], alignment), "tlsf, backwards"

    budget = min(_VISITS_PER_SPAN * len(spans), _VISITS_MOST)
    pairs = count_meeting(spans)
    round_cost = len(spans) + 2 * pairs
    budget -= pairs
    if budget < round_cost:
        return
    meets = meeting(spans)

    def at_two_ends(order: Sequence[int]) -> list[int]:
        return place_at_two_ends(spans, meets, order, bound)

    def lowest(order: Sequence[int]) -> list[int]:
        return place_lowest(spans, meets, order)

    # The index ends every key, so the orders do not depend on how ties are sorted.
    def by_time(i: int) -> tuple[int, ...]:
        return spans[i].first, -spans[i].size, i

    def by_size(i: int) -> tuple[int, ...]:
        size, first, last = spans[i]
        return -size, first - last, first, i

    def by_area(i: int) -> tuple[int, ...]:
        size, first, last = spans[i]
        return -size * (last - first + 1), -size, first, i

    # The three take turns, so that a small budget does not go to the first alone.
    running = {
        name: _improve(spans, place, sorted(range(len(spans)), key=key), bound)
        for name, place, key in (
            ("two ends", at_two_ends, by_time),
            ("largest first", lowest, by_size),
            ("largest area first", lowest, by_area),
        )
    }
    rounds = 0
    while running:
        for name, improvement in tuple(running.items()):
            if budget < round_cost:
                return
            offsets = next(improvement, None)
            if offsets is None:
                del running[name]
                continue
            budget -= round_cost
            yield offsets, f"{name} + {rounds}" if rounds else name
        rounds += 1


def _improve(
    spans: Sequence[Span], place: Callable[[Sequence[int]], list[int]], order: list[int], bound: int
) -> Iterator[list[int]]:
    """Place again and again, with the spans that ended too high moved to the front of the order.

    Rounds take turns: first all spans that end above `bound`, then those at the peak alone.
    """
    lowest_peak = None
    stale = 0
    everything = True
    while stale < _PATIENCE:
        offsets = place(order)
        yield offsets
        peak = _peak(spans, offsets)
        if lowest_peak is None or peak < lowest_peak:
            lowest_peak, stale = peak, 0
        else:
            stale += 1
        limit = bound if everything else peak - 1
        everything = not everything
        high = [i for i in order if offsets[i] + spans[i].size > limit]
        chosen = set(high)
        order = high + [i for i in order if i not in chosen]


def walk(spans: Sequence[Span], alignment: int) -> list[int]:
    """Offsets that the allocator model gives when the schedule runs: allocate at `first`, free after `last`."""
    heap = TLSF(alignment)
    offsets = [0] * len(spans)
    dying = sorted(range(len(spans)), key=lambda i: (spans[i].last, i))
    dead = 0
    for i in sorted(range(len(spans)), key=lambda i: (spans[i].first, i)):
        while spans[dying[dead]].last < spans[i].first:
            heap.free(offsets[dying[dead]])
            dead += 1
        offsets[i] = heap.alloc(spans[i].size)
    return offsets


def count_meeting(spans: Sequence[Span]) -> int:
    """How many pairs of spans are live at a common position, in O(n log n)."""
    lasts = sorted(span.last for span in spans)
    pairs = ended = 0
    for started, first in enumerate(sorted(span.first for span in spans)):
        while lasts[ended] < first:
            ended += 1
        pairs += started - ended
    return pairs


def meeting(spans: Sequence[Span]) -> list[list[int]]:
    """For each span the others that are live at a common position, in time proportional to their number."""
    meets: list[list[int]] = [[] for _ in spans]
    live: list[int] = []
    for i in sorted(range(len(spans)), key=lambda i: (spans[i].first, i)):
        first = spans[i].first
        live = [other for other in live if spans[other].last >= first]
        meets[i] += live
        for other in live:
            meets[other].append(i)
        live.append(i)
    return meets


def place_lowest(spans: Sequence[Span], meets: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """Take the spans in `order`; each gets the lowest offset at which it overlaps none placed before."""
    offsets = [-1] * len(spans)  # -1: not placed
    sizes = [span.size for span in spans]
    for i in order:
        taken = sorted([(offsets[other], sizes[other]) for other in meets[i] if offsets[other] >= 0])
        offsets[i] = _lowest_gap(taken, sizes[i])
    return offsets


def place_at_two_ends(spans: Sequence[Span], meets: Sequence[Sequence[int]], order: Sequence[int], capacity: int) -> list[int]:
    """Take the spans in `order`; each goes to the end of the arena opposite to the newest span it meets.

    "Newest" is the placed span with the latest first use. The lower end is offset 0, the upper end `capacity`, and
    the nearest gap to the end is taken. A span that has no gap below `capacity` takes the lowest gap of all.
    """
    offsets = [-1] * len(spans)
    sizes = [span.size for span in spans]
    at_top = [False] * len(spans)
    for i in order:
        size = sizes[i]
        placed = [other for other in meets[i] if offsets[other] >= 0]
        taken = sorted([(offsets[other], sizes[other]) for other in placed])
        if placed:
            newest = max(placed, key=lambda other: (spans[other].first, other))
            at_top[i] = not at_top[newest]
        highest = _highest_gap(taken, size, capacity) if at_top[i] else None
        if highest is None:
            at_top[i] = False
            offsets[i] = _lowest_gap(taken, size)
        else:
            offsets[i] = highest
    return offsets


def _lowest_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest offset with `size` free bytes; `taken` are (offset, size), sorted, and may overlap each other."""
    end = 0
    for offset, length in taken:
        if offset - end >= size:
            break
        if (behind := offset + length) > end:
            end = behind
    return end


def _highest_gap(taken: Sequence[tuple[int, int]], size: int, capacity: int) -> int | None:
    """The highest offset with `size` free bytes below `capacity`, or None."""
    highest = None
    end = 0
    for offset, length in taken:
        if offset >= capacity:
            break
        if offset - end >= size:
            highest = offset - size
        if (behind := offset + length) > end:
            end = behind
    return capacity - size if capacity - end >= size else highest


def _peak(spans: Sequence[Span], offsets: Sequence[int]) -> int:
    return max((offset + span.size for offset, span in zip(offsets, spans)), default=0)
