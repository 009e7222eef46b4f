"""What an expert reads off the scope statistics, in words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ren_lab.lens.scope_stats import stopped_here
from ren_lab.lens.theme import format_bytes, format_count
from ren_lab.runtime.config import MAX_SCOPE_DEPTH

if TYPE_CHECKING:
    from ren_lab.lens.scope_stats import Peak, ScopeStats, Shortage

NAMES = {"task_window": "task window", "heap": "heap", "dep_pool": "dependency pool", "tensormap": "tensor map"}
FIELDS = {"task_window": "ring_task_window", "heap": "ring_heap", "dep_pool": "ring_dep_pool"}
_UNITS = {"task_window": "slot", "dep_pool": "edge", "tensormap": "entry"}
_LEAST = {"task_window": 4, "heap": 1024, "dep_pool": 4}
_MOST_DEP_POOL = 2**31 - 1
_OVERSIZED = 8  # a resource this many times its peak is called oversized
_LOPSIDED = 0.9  # share of all tasks in one ring that is called an imbalance


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation.

    Attributes:
        kind: "stopped", "cut", "ceiling", "split", "imbalance", "saturated", "near", "streaming", "idle", "oversized", "sizing"
            or "healthy".
        text: the sentence.
        ring: the ring it is about, where it is about one.
        resource: "task_window", "heap", "dep_pool" or "tensormap", where it is about one.
        site: the source line it is about, where it is about one.
    """

    kind: str
    text: str
    ring: int | None = None
    resource: str | None = None
    site: str | None = None

    def __str__(self) -> str:
        return self.text


def amount(resource: str, value: int) -> str:
    """A figure of a resource with its unit."""
    return (
        format_bytes(value)
        if resource == "heap"
        else format_count(value, _UNITS[resource], "entries" if resource == "tensormap" else None)
    )


def ring_list(rings: Sequence[int]) -> str:
    """Rings in words: "ring 2", "rings 1 to 3", "rings 0, 2 and 3"."""
    if len(rings) == 1:
        return f"ring {rings[0]}"
    if len(rings) > 2 and list(rings) == list(range(rings[0], rings[-1] + 1)):
        return f"rings {rings[0]} to {rings[-1]}"
    return f"rings {', '.join(map(str, rings[:-1]))} and {rings[-1]}"


def findings(stats: "ScopeStats") -> tuple[Finding, ...]:
    """All findings, the most pressing first."""
    idle = _idle_rings(stats)
    ceilings = list(_ceilings(stats, idle))
    found = [*_stopped(stats), *_cut(stats), *ceilings, *_split(stats, ceilings), *_imbalance(stats, idle)]
    found += [*_saturated(stats), *_near(stats), *_streaming(stats)]
    if not found and stats.samples:
        found.append(Finding("healthy", f"no ring came to its capacity in {format_count(len(stats.pairs()), 'scope')}"))
    return tuple(found + [*_idle(stats, idle), *_oversized(stats), *_sizing(stats)])


def sizing(stats: "ScopeStats") -> dict[str, list[int]]:
    """Sizes that would have fitted the run: the bound of each peak, a quarter more, up to the next size that is allowed.

    What came to its capacity is doubled instead; rings without use get the smallest size. A file with fewer than four rings
    gets the default (0) for the rest. Where the run was stopped, or samples are missing, nothing shrinks: what there is only
    tells what is too small.
    """
    peaks = {(peak.resource, peak.ring): peak for peak in stats.peaks()}
    short = stats.shortage
    sizes: dict[str, list[int]] = {}
    for resource, field in FIELDS.items():
        sizes[field] = []
        for ring in range(min(stats.rings, 4)):
            capacity = stats.capacity(resource, ring)
            peak = peaks.get((resource, ring))
            if short is not None and (short.resource, short.ring) == (resource, ring):
                wanted = max(2 * capacity, short.used + short.requested)
            elif peak is not None and _at_capacity(peak):
                wanted = 2 * capacity
            elif not _whole(stats):  # peaks are lower bounds
                wanted = capacity
            else:
                wanted = 0 if peak is None else min(peak.bound + peak.bound // 4, max(capacity, peak.bound))
            sizes[field].append(_allowed(resource, wanted))
        sizes[field] += [0] * (4 - len(sizes[field]))
    return sizes


def _allowed(resource: str, wanted: int) -> int:
    """The smallest size that `RunConfig` takes and that is at least `wanted`."""
    wanted = max(wanted, _LEAST[resource])
    if resource == "dep_pool":
        return min(wanted, _MOST_DEP_POOL)
    return 1 << (wanted - 1).bit_length()


def _whole(stats: "ScopeStats") -> bool:
    """Whether the file shows all of a run that came to its end."""
    return stats.complete and not stats.meta["fatal"] and not stats.open_scopes()


def _idle_rings(stats: "ScopeStats") -> list[int]:
    used = {peak.ring for peak in stats.peaks()} | {sample["ring"] for sample in stats.open_scopes()}
    return [ring for ring in range(stats.rings) if ring not in used]


def _stopped(stats: "ScopeStats") -> Iterator[Finding]:
    still_open = stats.open_scopes()
    if still_open:
        inner = still_open[-1]
        path = " inside ".join(sample["site"] for sample in reversed(still_open[-4:]))
        short = stats.shortage
        why = "a fatal error was latched" if stats.meta["fatal"] else "its end was not recorded"
        if short is not None:
            why = _ran_out(short)
        elif stats.error is not None:
            why = f"it raised {stats.error}"
        yield Finding(
            "stopped",
            f"the run stopped inside the scope at {path} (depth {inner['depth']}, ring {inner['ring']}): {why}",
            ring=inner["ring"] if short is None else short.ring,
            resource=None if short is None else short.resource,
            site=inner["site"],
        )
    elif stats.meta["fatal"]:
        yield Finding("stopped", "a fatal error was latched, with no scope open; the last figures are diagnostic only")


def _ran_out(short: "Shortage") -> str:
    """What was too small, by which figures, and what helps."""
    name = "the tensor map" if short.resource == "tensormap" else f"ring {short.ring}'s {NAMES[short.resource]}"
    figures = (
        f"{_plain(short.resource, short.used)} of {amount(short.resource, short.capacity)} in use, "
        f"{_plain(short.resource, short.requested)} more wanted at {short.site}"
    )
    field = FIELDS.get(short.resource)
    if short.requested > short.capacity:
        remedy = "give one task fewer arrays"
        if field is not None:
            remedy = f"raise {field} of ring {short.ring} to at least {_allowed(short.resource, short.requested)}"
        return f"one request is larger than {name} ({figures}): {remedy}"
    remedy = "split the scope" if field is None else f"split the scope, or raise {field} of ring {short.ring}"
    return f"{name} ran out ({figures}): {remedy}"


def _cut(stats: "ScopeStats") -> Iterator[Finding]:
    here, total, dropped = len(stats.samples), stats.meta["total"], stats.meta["dropped"]
    if stats.cut or here < total - dropped:
        # a file that was never closed says total 0
        is_here = "is" if here == 1 else "are"
        of = f"{here} of {format_count(total, 'sample')}" if total > here else f"only the first {format_count(here, 'sample')}"
        last = f", the last at {stats.samples[-1]['site']}" if stats.samples else ""
        yield Finding("cut", f"the file is cut: {of} {is_here} here{last}; peaks are lower bounds")
    if dropped:
        lost = f"{format_count(dropped, 'sample')} of {total} {'was' if dropped == 1 else 'were'} lost"
        yield Finding("cut", f"{lost} in collection; peaks are lower bounds")


def _ceilings(stats: "ScopeStats", idle: list[int]) -> Iterator[Finding]:
    for peak in stats.peaks():
        if not _at_capacity(peak):
            continue
        name = NAMES[peak.resource]
        if peak.ring is None:
            yield Finding(
                "ceiling",
                f"the tensor map is full ({peak.occupancy} of {peak.capacity} entries) at {peak.site}: split the scope",
                resource=peak.resource,
                site=peak.site,
            )
            continue
        count = f"{_plain(peak.resource, peak.occupancy)} of {_plain(peak.resource, peak.capacity)}"
        text = f"ring {peak.ring} at its {name.replace(' ', '-')} ceiling ({count}) at {peak.site}"
        if idle:
            verb = "is" if len(idle) == 1 else "are"
            text += f" while {ring_list(idle)} {verb} idle: rebalance scopes before resizing"
        elif peak.scope_alloc * 2 > peak.capacity:
            text += f": split the scope, or raise {FIELDS[peak.resource]}"
        else:
            text += f": several scopes fill it together; raise {FIELDS[peak.resource]} of ring {peak.ring}"
        yield Finding("ceiling", text, peak.ring, peak.resource, peak.site)


def _at_capacity(peak: "Peak") -> bool:
    """Whether all of a resource was in use at a sample. A high water that comes up to it, or goes beyond, only bounds the use."""
    return peak.occupancy >= peak.capacity


def _near(stats: "ScopeStats") -> Iterator[Finding]:
    """Resources that may have been full between samples: a high water comes up to the capacity, and no sample does."""
    for peak in stats.peaks():
        if peak.ring is None or _at_capacity(peak):
            continue
        mine = (pair for pair in stats.pairs() if pair.ring == peak.ring)
        pair = next((pair for pair in mine if getattr(pair, peak.resource).scope_high_water == peak.capacity), None)
        if pair is not None:
            size, verb = _plain(peak.resource, peak.capacity), "was" if peak.resource == "heap" else "were"
            yield Finding(
                "near",
                f"ring {peak.ring} may have reached the end of its {NAMES[peak.resource]} while the scope at {pair.site} was open: "
                f"at most {size} of {size} {verb} in use then, and {_plain(peak.resource, peak.occupancy)} for certain; "
                f"`report.waits` says whether a submission waited",
                peak.ring,
                peak.resource,
                pair.site,
            )


def _split(stats: "ScopeStats", ceilings: list[Finding]) -> Iterator[Finding]:
    """One scope that alone fills most of a ring which came to its ceiling."""
    for ceiling in ceilings:
        if ceiling.ring is None or ceiling.resource is None:
            continue
        resource, capacity = ceiling.resource, stats.capacity(ceiling.resource, ceiling.ring)
        mine = [pair for pair in stats.pairs() if pair.ring == ceiling.ring]
        # a scope that took more than there is gave most of it back on the way: it streams, even if it ends with a full ring
        mine = [pair for pair in mine if getattr(pair, resource).scope_alloc <= capacity]
        # of one in which the run stopped it is not known how much more it would have taken
        mine = [pair for pair in mine if not stopped_here(stats.samples[pair.end])]
        if not mine:
            continue
        largest = max(mine, key=lambda pair: getattr(pair, resource).scope_alloc)
        measures = getattr(largest, resource)
        if measures.scope_alloc * 2 > capacity and measures.real_occupancy * 2 > capacity:
            yield Finding(
                "split",
                f"one scope, at {largest.site}, takes {amount(resource, measures.scope_alloc)} of ring {ceiling.ring}'s "
                f"{NAMES[resource]} of {amount(resource, capacity)} and holds all of it until it ends: two scopes of half the "
                f"size would need half",
                ceiling.ring,
                resource,
                largest.site,
            )


def _tasks_of(stats: "ScopeStats") -> list[int]:
    heads = [0] * stats.rings
    for sample in stats.samples:
        heads[sample["ring"]] = max(heads[sample["ring"]], sample["task_window_end"])
    return heads


def _imbalance(stats: "ScopeStats", idle: list[int]) -> Iterator[Finding]:
    tasks = _tasks_of(stats)
    total = sum(tasks)
    if stats.rings < 2 or total < 8:  # nothing to balance in a handful of tasks
        return
    busiest = max(range(stats.rings), key=lambda ring: tasks[ring])
    if tasks[busiest] < _LOPSIDED * total:
        return
    rest = [ring for ring in range(stats.rings) if ring != busiest]
    whole = tasks[busiest] == total
    advice = "open scopes around parts of the work"
    if busiest == stats.rings - 1:
        advice = "flatten the nesting"
    elif busiest:
        advice = "submit part of the work one scope further out or further in"
    count, others = ("all", "none") if whole else (f"{tasks[busiest]} of", str(total - tasks[busiest]))
    yield Finding(
        "imbalance",
        f"{count} {total} tasks landed in ring {busiest}, {others} in {ring_list(rest)}: the ring follows the scope depth, so "
        f"{advice} before you enlarge anything",
        ring=busiest,
        resource="task_window",
    )


def _saturated(stats: "ScopeStats") -> Iterator[Finding]:
    """Depths beyond the last ring that all share it."""
    last = stats.rings - 1
    depths = sorted({sample["depth"] for sample in stats.samples if sample["ring"] == last})
    if len(depths) > 1 and depths[-1] <= MAX_SCOPE_DEPTH:
        deepest = next(sample["site"] for sample in stats.samples if sample["depth"] == depths[-1])
        yield Finding(
            "saturated",
            f"ring {last} carries depths {depths[0]} to {depths[-1]} (the deepest at {deepest}): all depths from {last} on share "
            f"one ring; flatten the nesting to spread them",
            ring=last,
            site=deepest,
        )


def _streaming(stats: "ScopeStats") -> Iterator[Finding]:
    """Scopes that pushed more through a resource than it holds, and left room in it."""
    for ring in range(stats.rings):
        for resource, name in NAMES.items():
            if resource == "tensormap":
                continue
            capacity = stats.capacity(resource, ring)
            streams = [p for p in stats.pairs() if p.ring == ring and getattr(p, resource).scope_high_water > capacity]
            calm = [p for p in streams if getattr(p, resource).real_occupancy < capacity]
            if calm:
                pair = max(calm, key=lambda p: getattr(p, resource).scope_high_water)
                measures = getattr(pair, resource)
                verb = "was" if measures.real_occupancy == 1 or resource == "heap" else "were"
                yield Finding(
                    "streaming",
                    f"the scope at {pair.site} streams through ring {ring}'s {name}: a high water of "
                    f"{amount(resource, measures.scope_high_water)} against {amount(resource, capacity)}, of which "
                    f"{amount(resource, measures.real_occupancy)} {verb} held at its end: it gives back what it takes, and is not "
                    f"too large for the ring (`report.waits` says whether it waited)",
                    ring,
                    resource,
                    pair.site,
                )


def _idle(stats: "ScopeStats", idle: list[int]) -> Iterator[Finding]:
    if idle and stats.samples:
        cost = format_bytes(sum(stats.capacity("heap", ring) for ring in idle))
        verb, maps, them = ("is", "maps", "it") if len(idle) == 1 else ("are", "map", "them")
        # what a run that was stopped would have put there is not known
        shrink = f", or shrink {them} with ring_heap" if _whole(stats) else ""
        yield Finding(
            "idle",
            f"{ring_list(idle)} {verb} idle and still {maps} {cost} of heap: place scopes at those depths{shrink}",
            ring=idle[0] if len(idle) == 1 else None,
            resource="heap",
        )


def _oversized(stats: "ScopeStats") -> Iterator[Finding]:
    if not stats.complete or stats.meta["fatal"]:
        return
    for peak in stats.peaks():
        if peak.ring is None or peak.bound * _OVERSIZED > peak.capacity or peak.capacity <= _LEAST[peak.resource]:
            continue
        fits = _allowed(peak.resource, peak.bound + peak.bound // 4)
        if fits * 2 <= peak.capacity:
            yield Finding(
                "oversized",
                f"ring {peak.ring}'s {NAMES[peak.resource]} is oversized: at most {_plain(peak.resource, peak.bound)} of "
                f"{_plain(peak.resource, peak.capacity)} was in use (at {peak.site}); {FIELDS[peak.resource]} {fits} would do",
                peak.ring,
                peak.resource,
                peak.site,
            )


def _plain(resource: str, value: int) -> str:
    return format_bytes(value) if resource == "heap" else str(value)


def _sizing(stats: "ScopeStats") -> Iterator[Finding]:
    if not stats.samples:
        return
    sizes = sizing(stats)
    present = {field: [stats.capacity(resource, ring) for ring in range(stats.rings)] for resource, field in FIELDS.items()}
    if all(sizes[field][: stats.rings] == present[field] for field in sizes):
        return
    if _whole(stats):
        arguments = ", ".join(f"{field}={values}" for field, values in sizes.items())
        yield Finding("sizing", f"sizes that would fit this run: RunConfig({arguments})")
        return
    raised = {field: values for field, values in sizes.items() if values[: stats.rings] != present[field]}
    arguments = ", ".join(f"{field}={values}" for field, values in raised.items())
    why = "samples are missing" if stats.complete is False and not stats.meta["fatal"] else "the run was stopped"
    what = "was full" if stats.shortage is None else "it ran out of"
    yield Finding(
        "sizing",
        f"{why}, so what it needs is not known: raise what {what}, RunConfig({arguments}), and measure again",
    )
