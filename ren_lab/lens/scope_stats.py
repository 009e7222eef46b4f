"""Reads `scope_stats.jsonl`, ours or the real runtime's, and says what is in it.

Schema 6: line 1 is metadata, each later line a sample taken at a scope's entry (`begin`) or exit (`end`). Cursors count
upwards for ever; `…_end` is the allocation frontier (head) and `…_start` the released boundary (tail).
"""

import json
import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ren_lab.lens.theme import format_count
from ren_lab.runtime.artifacts import SCOPE_STATS
from ren_lab.runtime.statistics import STOPPED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESOURCES = ("task_window", "heap", "dep_pool")
_META_COUNTS = ("dropped", "total", "tensormap_max")
_META_SIZES = tuple(f"{resource}_max" for resource in RESOURCES)
_CURSORS = tuple(f"{resource}_{edge}" for resource in RESOURCES for edge in ("start", "end"))


@dataclass(frozen=True, slots=True)
class Measures:
    """One resource over one scope: slots, bytes or edges.

    Attributes:
        scope_high_water: end.head - begin.tail, an upper bound of what was in use while the scope was open; above the
            capacity when the scope streams.
        real_occupancy: end.head - end.tail, what is in use when the scope ends; within 0..capacity.
        scope_alloc: end.head - begin.head, what the scope allocated in all; can exceed the capacity.
    """

    scope_high_water: int
    real_occupancy: int
    scope_alloc: int


@dataclass(frozen=True, slots=True)
class ScopePair:
    """A scope from entry to exit, be it by the error that stopped the run.

    Attributes:
        site: source line, "basename:line".
        depth, ring: where it stood.
        begin, end: positions of its two samples.
        task_window, heap, dep_pool: what it did to its ring.
        tensormap: entries of the tensor map in use at exit.
    """

    site: str
    depth: int
    ring: int
    begin: int
    end: int
    task_window: Measures
    heap: Measures
    dep_pool: Measures
    tensormap: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that was in use of one resource of one ring (`ring` is None for the tensor map).

    Attributes:
        resource: "task_window", "heap", "dep_pool" or "tensormap".
        occupancy: the most in use at any sample: certain.
        bound: the most that may have been in use between samples: the highest high water, at most the capacity.
        capacity: the size of the resource.
        site: source line of the scope with the highest figure.
        scope_alloc: what that scope allocated.
    """

    resource: str
    ring: int | None
    occupancy: int
    bound: int
    capacity: int
    site: str
    scope_alloc: int

    def __str__(self) -> str:
        where = "tensor map" if self.ring is None else f"ring {self.ring} {self.resource}"
        bound = f" (at most {self.bound})" if self.bound > self.occupancy else ""
        return f"{where}: {self.occupancy}{bound} of {self.capacity} at {self.site}"


@dataclass(frozen=True, slots=True)
class Shortage:
    """The resource that was too small for the run to go on.

    Attributes:
        resource: "task_window", "heap", "dep_pool" or "tensormap".
        ring: the ring it is of; of the tensor map, the ring of the scope that holds it.
        used, requested, capacity: in use, wanted on top of it, and the whole, in slots, bytes, edges or entries.
        site: source line of the submission that could not go on.
    """

    resource: str
    ring: int
    used: int
    requested: int
    capacity: int
    site: str


def stopped_here(sample: dict[str, Any]) -> bool:
    """Whether a sample is the exit of a scope by the error that stopped the run."""
    return sample["phase"] == "end" and "stopped_by" in sample


class ScopeStats:
    """The statistics of one run.

    Attributes:
        meta: the first line as a dict, unknown fields included.
        samples: the samples as dicts, oldest first, unknown fields included.
        cut: whether the file ends in the middle of a line.
        source: the file, or None.
    """

    def __init__(
        self, meta: dict[str, Any], samples: Iterable[dict[str, Any]], *, cut: bool = False, source: Path | None = None
    ) -> None:
        """Check and keep; `load` reads a file.

        Raises:
            ValueError: something makes no sense; the message names the line and the field.
        """
        self.meta = meta
        self.samples = tuple(samples)
        self.cut = cut
        self.source = source
        _check_meta(meta)
        if meta["version"] == 5:
            warnings.warn(
                "scope statistics of version 5: its heap cursors wrap around, so heap figures are lower bounds; version 6 "
                "counts on",
                UserWarning,
                stacklevel=2,
            )
            self.samples = _unwrapped(self.samples, meta["heap_max"])
        _check_samples(meta, self.samples)
        self._pairs, self._open, unmatched = _pair(self.samples)
        if unmatched is not None and self.complete and not meta["fatal"]:
            raise ValueError(
                f"line {unmatched + 2}, phase: an end at {self.samples[unmatched]['site']} without a begin before it, in a "
                f"file that is complete"
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ScopeStats":
        """Read a file; one that is cut, even in the middle of its last line, is read as far as it goes.

        Args:
            path: the file, or the folder that it is in, or the work folder of the run that wrote it.

        Raises:
            ValueError: it is not a scope statistics file, or its figures contradict each other.
            OSError: it cannot be read, or a folder has none.
        """
        source = _file_of(Path(path))
        lines = source.read_bytes().split(b"\n")
        ends_whole = not lines[-1]
        if ends_whole:
            lines.pop()
        records: list[dict[str, Any]] = []
        cut = False
        for number, line in enumerate(lines, 1):
            if not line.strip() and not any(rest.strip() for rest in lines[number:]):
                break  # blank lines at the end say nothing
            try:
                record = json.loads(line)
            except ValueError as error:  # not JSON, or not UTF-8
                if number == len(lines) > 1 and not ends_whole:
                    cut = True
                    break
                raise ValueError(f"line {number}: not JSON in UTF-8 ({error}); is this a scope_stats.jsonl?") from None
            if not isinstance(record, dict):
                raise ValueError(f"line {number}: a {type(record).__name__}; every line is a JSON object")
            records.append(record)
        if not records:
            raise ValueError(f"{source.name}: line 1, version: the file is empty; line 1 must hold the metadata")
        if records[0].get("fatal") is True and not cut:
            records += _exits_beside(source)
        return cls(records[0], records[1:], cut=cut, source=source)

    # -- figures --------------------------------------------------------------------------------------------------------

    @property
    def rings(self) -> int:
        """How many rings the file describes."""
        return len(self.meta["task_window_max"])

    @property
    def complete(self) -> bool:
        """Whether every sample that was attempted is here."""
        return not self.cut and not self.meta["dropped"] and len(self.samples) >= self.meta["total"]

    def capacity(self, resource: str, ring: int | None = None) -> int:
        """Size of a resource; `ring` is of no account for "tensormap"."""
        sizes = self.meta[f"{resource}_max"]
        return sizes if resource == "tensormap" else sizes[ring]

    def pairs(self) -> tuple[ScopePair, ...]:
        """Scopes that ended, or that the run was stopped in and that were measured then, in the order in which they ended."""
        return self._pairs

    def open_scopes(self) -> tuple[dict[str, Any], ...]:
        """`begin` samples of scopes that never ended by themselves, outermost first: where a run stopped."""
        return tuple(self.samples[k] for k in self._open)

    @property
    def error(self) -> str | None:
        """Type of the exception that stopped the run, or None where there was none or the file does not tell."""
        name = self._reason().get("error")
        return name if isinstance(name, str) else None

    @property
    def shortage(self) -> Shortage | None:
        """The resource that was too small for the run to go on, or None where that was not why or the file does not tell."""
        reason = self._reason()
        resource, site = reason.get("resource"), reason.get("site")
        if resource not in (*RESOURCES, "tensormap") or not isinstance(site, str):
            return None
        if not all(_is_count(reason.get(field)) for field in ("ring", "used", "requested", "capacity")):
            return None
        if reason["ring"] >= self.rings:
            return None
        return Shortage(resource, reason["ring"], reason["used"], reason["requested"], reason["capacity"], site)

    def _reason(self) -> dict[str, Any]:
        for sample in reversed(self.samples):
            if stopped_here(sample):
                return sample["stopped_by"] if isinstance(sample["stopped_by"], dict) else {}
        return {}

    def peaks(self) -> tuple[Peak, ...]:
        """The peak of every resource of every ring that was used, and of the tensor map."""
        peaks = []
        for ring in range(self.rings):
            for resource in RESOURCES:
                peak = self._peak(resource, ring)
                if peak is not None:
                    peaks.append(peak)
        if self.samples:
            top = max(self.samples, key=lambda sample: sample["tensormap"])
            value = top["tensormap"]
            if value:
                peaks.append(Peak("tensormap", None, value, value, self.meta["tensormap_max"], top["site"], 0))
        return tuple(peaks)

    def _peak(self, resource: str, ring: int) -> Peak | None:
        capacity = self.capacity(resource, ring)
        head, tail = f"{resource}_end", f"{resource}_start"
        # (in use, upper bound, what the scope allocated, its site)
        seen = [(s[head] - s[tail], s[head] - s[tail], 0, s["site"]) for s in self.samples if s["ring"] == ring]
        for pair in self._pairs:
            if pair.ring == ring:
                measures = getattr(pair, resource)
                bound = min(measures.scope_high_water, capacity)
                seen.append((measures.real_occupancy, bound, measures.scope_alloc, pair.site))
        if not any(self.samples[-1 - k][head] for k, s in enumerate(reversed(self.samples)) if s["ring"] == ring):
            return None
        occupancy, _, alloc, site = max(seen, key=lambda item: (item[0], item[2], item[1]))
        bound = max(item[1] for item in seen)
        if not occupancy:
            _, _, alloc, site = max(seen, key=lambda item: item[1])
        return Peak(resource, ring, occupancy, bound, capacity, site, alloc)

    def findings(self) -> "tuple[Any, ...]":
        """What an expert would read off the plot, the most pressing first; each `str()` is a sentence."""
        from ren_lab.lens.scope_stats_findings import findings

        return findings(self)

    def sizing(self) -> dict[str, list[int]]:
        """Sizes that would have fitted this run, as arguments of `RunConfig`: `RunConfig(**stats.sizing())`.

        Of a run that was stopped nobody knows what it needs: the sizes are those that it had, and only what it ran out of, or
        filled, is raised, to twice its size or more.
        """
        from ren_lab.lens.scope_stats_findings import sizing

        return sizing(self)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat dict per pair, for data frames: site, depth, ring, each measure of each resource, and tensormap."""
        records = []
        for pair in self._pairs:
            record: dict[str, Any] = {"site": pair.site, "depth": pair.depth, "ring": pair.ring}
            for resource in RESOURCES:
                measures = getattr(pair, resource)
                record[f"{resource}_high_water"] = measures.scope_high_water
                record[f"{resource}_real_occupancy"] = measures.real_occupancy
                record[f"{resource}_alloc"] = measures.scope_alloc
            record["tensormap"] = pair.tensormap
            records.append(record)
        return records

    # -- showing --------------------------------------------------------------------------------------------------------

    def plot(self, theme: str = "light") -> "Figure":
        """High water, occupancy at exit and allocation per scope against capacity: one axis per resource, scopes shared.

        Args:
            theme: "light" or "dark".

        Returns:
            the matplotlib Figure; nothing is shown.
        """
        from ren_lab.lens.scope_stats_plot import scope_stats_figure

        return scope_stats_figure(self, theme)

    def __str__(self) -> str:
        state = ""  # of a file that is cut, or ends inside a scope, the findings tell more
        if self.meta["fatal"]:
            state = "; the run was stopped by a fatal error"
        elif not self.cut and not self.open_scopes():
            state = "; the run ended normally"
        here = len(self.samples)
        total = self.meta["total"]
        count = format_count(here, "sample") if here >= total else f"{here} of {format_count(total, 'sample')}"
        scopes, rings = format_count(len(self._pairs), "scope"), format_count(self.rings, "ring")
        lines = [f"scope statistics: {scopes}, {count}, {rings}{state}"]
        lines.extend(f"  {peak}" for peak in self.peaks())
        lines.extend(f"- {finding}" for finding in self.findings())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<ScopeStats: {format_count(len(self._pairs), 'scope')} in {format_count(self.rings, 'ring')}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        from ren_lab.lens.display import html_bundle
        from ren_lab.lens.scope_stats_plot import scope_stats_html

        return html_bundle(self, scope_stats_html)


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    for inside in (path / SCOPE_STATS, path / SCOPE_STATS.name):
        if inside.is_file():
            return inside
    raise FileNotFoundError(
        f"{path} is a folder without {SCOPE_STATS.as_posix()}; give a {SCOPE_STATS.name}, or the work folder of a run under "
        f"RunConfig(enable_scope_stats=True)"
    )


def _exits_beside(source: Path) -> list[dict[str, Any]]:
    """What open scopes held when the run was stopped, if the runtime left that beside the file."""
    try:
        text = source.with_name(STOPPED).read_text(encoding="utf-8")
        exits = [json.loads(line) for line in text.splitlines()]
    except (OSError, ValueError):  # it only adds to what the file says
        return []
    return [sample for sample in exits if isinstance(sample, dict)]


# -- checks -------------------------------------------------------------------------------------------------------------


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_meta(meta: dict[str, Any]) -> None:
    version = meta.get("version")
    if version not in (5, 6) or isinstance(version, bool):
        raise ValueError(f"line 1, version: {version!r}; this reads versions 6 and 5 of scope statistics")
    if not isinstance(meta.get("fatal"), bool):
        raise ValueError(f"line 1, fatal: {meta.get('fatal')!r} is not true or false")
    for field in _META_COUNTS:
        if not _is_count(meta.get(field)):
            raise ValueError(f"line 1, {field}: {meta.get(field)!r} is not a count")
    rings = None
    for field in _META_SIZES:
        sizes = meta.get(field)
        if not isinstance(sizes, list) or not sizes or not all(_is_count(size) and size for size in sizes):
            raise ValueError(f"line 1, {field}: {sizes!r} is not a list of sizes above 0, one per ring")
        if rings is not None and len(sizes) != rings:
            raise ValueError(f"line 1, {field}: {len(sizes)} rings, but task_window_max has {rings}")
        rings = len(sizes)
    if meta["dropped"] > meta["total"] and not meta["fatal"]:
        raise ValueError(f"line 1, dropped: {format_count(meta['dropped'], 'sample')} lost of {meta['total']} attempted")


def _check_samples(meta: dict[str, Any], samples: tuple[dict[str, Any], ...]) -> None:
    """Refuse what no runtime writes. After a fatal error figures are diagnostic only, so they may contradict each other."""
    rings = len(meta["task_window_max"])
    if len(samples) + meta["dropped"] > meta["total"] and not meta["fatal"]:
        raise ValueError(f"line 1, total: {meta['total']}, but {len(samples)} in the file and {meta['dropped']} dropped make more")
    before: dict[tuple[int, str], int] = {}
    for number, sample in enumerate(samples, 2):
        site, phase = sample.get("site"), sample.get("phase")
        if not isinstance(site, str):
            raise ValueError(f"line {number}, site: {site!r} is not text")
        if phase not in ("begin", "end"):
            raise ValueError(f"line {number}, phase: {phase!r} is neither begin nor end")
        for field in ("depth", "ring", *_CURSORS, "tensormap"):
            if not _is_count(sample.get(field)):
                raise ValueError(f"line {number}, {field}: {sample.get(field)!r} is not a count")
        ring, depth = sample["ring"], sample["depth"]
        if ring != min(depth, rings - 1):
            raise ValueError(f"line {number}, ring: {ring} at depth {depth}; with {rings} rings it is {min(depth, rings - 1)}")
        for resource in RESOURCES:
            start, end = sample[f"{resource}_start"], sample[f"{resource}_end"]
            if end < start:
                raise ValueError(f"line {number}, {resource}_end: {end} is before {resource}_start, {start}")
            capacity = meta[f"{resource}_max"][ring]
            if meta["fatal"]:
                continue
            if end - start > capacity:
                raise ValueError(f"line {number}, {resource}_end: {end - start} in use of {capacity}")
            for field in (f"{resource}_start", f"{resource}_end"):
                if sample[field] < before.get((ring, field), 0):
                    raise ValueError(f"line {number}, {field}: {sample[field]} after {before[ring, field]}; cursors only grow")
                before[ring, field] = sample[field]
        if sample["tensormap"] > meta["tensormap_max"] and not meta["fatal"]:
            raise ValueError(f"line {number}, tensormap: {sample['tensormap']} entries of {meta['tensormap_max']}")


def _unwrapped(samples: tuple[dict[str, Any], ...], sizes: list[int]) -> tuple[dict[str, Any], ...]:
    """Version 5's heap offsets as counts that grow: each step is the shortest one forward."""
    last: dict[int, tuple[int, int]] = {}  # ring -> (tail, head) so far
    fixed = []
    for number, sample in enumerate(samples, 2):
        ring: Any = sample.get("ring")
        start: Any = sample.get("heap_start")
        end: Any = sample.get("heap_end")
        if not _is_count(ring) or not _is_count(start) or not _is_count(end) or ring >= len(sizes):
            fixed.append(sample)  # the general check names the field
            continue
        size = sizes[ring]
        if max(start, end) > size:
            raise ValueError(f"line {number}, heap_end: offset {max(start, end)} in a heap of {size} bytes")
        tail_before, head_before = last.get(ring, (0, 0))
        head = head_before + (end - head_before) % size
        tail = head - (end - start) % size
        if tail < tail_before:
            head, tail = head + size, tail + size
        last[ring] = (tail, head)
        fixed.append({**sample, "heap_start": tail, "heap_end": head})
    return tuple(fixed)


def _pair(samples: tuple[dict[str, Any], ...]) -> tuple[tuple[ScopePair, ...], tuple[int, ...], int | None]:
    """Pairs, positions of begins without an end of their own, and the position of the first end without a begin."""
    waiting: dict[tuple[int, str], list[int]] = {}
    pairs = []
    unmatched = None
    for position, end in enumerate(samples):
        key = (end["ring"], end["site"])
        if end["phase"] == "begin":
            waiting.setdefault(key, []).append(position)
            continue
        stack = waiting.get(key)
        if not stack:
            unmatched = position if unmatched is None else unmatched
            continue
        first = stack.pop()
        begin = samples[first]
        measures = {
            resource: Measures(
                scope_high_water=end[f"{resource}_end"] - begin[f"{resource}_start"],
                real_occupancy=end[f"{resource}_end"] - end[f"{resource}_start"],
                scope_alloc=end[f"{resource}_end"] - begin[f"{resource}_end"],
            )
            for resource in RESOURCES
        }
        pairs.append(ScopePair(end["site"], end["depth"], end["ring"], first, position, tensormap=end["tensormap"], **measures))
    still_open = [position for stack in waiting.values() for position in stack]
    still_open += [pair.begin for pair in pairs if stopped_here(samples[pair.end])]
    return tuple(pairs), tuple(sorted(still_open)), unmatched
