"""The states of a ring player: how full the four rings were at each moment of a run, and where their cursors stood.

Each ring is drawn as what it is, a circle that the cursors go round: from the tail, the oldest thing still held, to the head, where
the next one goes.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ren_lab.lens.drawing import open_svg
from ren_lab.lens.scope_stats import RESOURCES, ScopeStats, stopped_here
from ren_lab.lens.stepping import Frame, Section, section, state, within
from ren_lab.lens.theme import format_bytes, format_count, format_seconds, format_share

MOST_STATES = 5000
_POINTS = 500  # of a line
_FULL_SCALE = 0.25
_WORDS = {"task_window": "slots", "heap": "bytes", "dep_pool": "edges", "tensormap": "entries"}
_NAMES = {"task_window": "task window", "heap": "heap", "dep_pool": "dependency pool", "tensormap": "tensor map"}
_RADII = {"task_window": 58.0, "heap": 45.5, "dep_pool": 33.0}
_DIAL, _STRIP, _LEFT, _WIDTH = 150.0, 46.0, 110.0, 600.0  # pixels

Cursors = tuple[int, int]  # tail, head


@dataclass(frozen=True, slots=True)
class Moment:
    """The rings at one moment.

    Attributes:
        what: what happened then, in a few words; `note` more, in a few.
        ring: where it happened.
        site: the scope's line, or empty.
        cursors: for each ring and each resource (tail, head).
        tensormap: entries in use.
        time_ns: since the run began, or None in a file of scope statistics, which has no clock.
    """

    what: str
    note: str
    ring: int
    site: str
    cursors: tuple[dict[str, Cursors], ...]
    tensormap: int
    time_ns: int | None = None


class RingSteps:
    """A `lens.stepping.StepSource` over the samples of a run.

    Args:
        source: a `ScopeStats`, the path of a scope statistics file or of a run's work folder, a `RunReport` with a timeline
            or with scope statistics, or a trace whose units ran on the rings.

    Raises:
        ValueError: the run recorded nothing.
        TypeError: it is none of these.
    """

    def __init__(self, source: Any) -> None:
        if isinstance(source, str | Path):
            source = ScopeStats.load(source)
        if getattr(source, "scope_stats", None) is not None:
            source = source.scope_stats
        self._findings: list[str] = []
        self._moments: list[Moment] = []
        if isinstance(source, ScopeStats):
            self._of_stats(source)
        elif hasattr(source, "timeline") and hasattr(source, "rings"):
            if source.timeline is None and source.stats_path is None:
                raise ValueError(
                    "this run recorded neither a timeline nor scope statistics; run it with `worker.run(program, timeline=True)` "
                    "or under `RunConfig(enable_scope_stats=True)`"
                )
            if source.timeline is None:
                self._of_stats(ScopeStats.load(source.stats_path))
            else:
                self._of_report(source)
        else:
            raise TypeError(f"a {type(source).__name__} has no rings to play; give a ScopeStats, its file, or a RunReport")
        total = len(self._moments)
        self._thinned = total > MOST_STATES
        if self._thinned:
            self._moments = [self._moments[i * total // MOST_STATES] for i in range(MOST_STATES)]
        self._total = total

    def _of_stats(self, stats: ScopeStats) -> None:
        self._clock = False
        self._capacity = [{name: stats.capacity(name, ring) for name in RESOURCES} for ring in range(stats.rings)]
        self._map_size = stats.capacity("tensormap")
        self._findings = [str(finding) for finding in stats.findings()]
        self._tasks: list[Any] = []
        self._waits: list[Any] = []
        now: list[dict[str, Cursors]] = [dict.fromkeys(RESOURCES, (0, 0)) for _ in range(stats.rings)]
        moments = []
        for sample in stats.samples:
            ring = sample["ring"]
            now[ring] = {name: (sample[f"{name}_start"], sample[f"{name}_end"]) for name in RESOURCES}
            phase = {"begin": "begins", "end": "ends"}[sample["phase"]]
            if stopped_here(sample):
                phase = "the run stops inside it"
            note = f"{phase}, depth {sample['depth']}, ring {ring}"
            moments.append(Moment(f"scope {sample['site']}", note, ring, sample["site"], tuple(now), sample["tensormap"]))
        self._moments = moments
        self._title = f"{format_count(len(stats.pairs()), 'scope')} in {format_count(stats.rings, 'ring')}"

    def _of_report(self, report: Any) -> None:
        self._clock = True
        self._capacity = [
            {"task_window": ring.task_window, "heap": ring.heap_bytes, "dep_pool": ring.dep_pool} for ring in report.rings
        ]
        self._map_size = 0
        line = report.timeline
        self._tasks = sorted(line.tasks, key=lambda task: task.start_ns)
        self._waits = list(line.waits)
        self._starts = [task.start_ns for task in self._tasks]
        now: list[dict[str, Cursors]] = [dict.fromkeys(RESOURCES, (0, 0)) for _ in report.rings]
        moments: list[Moment] = []
        for seen in line.cursors:
            before = now[seen.ring]
            now[seen.ring] = {"task_window": seen.task_window, "heap": seen.heap, "dep_pool": seen.dep_pool}
            if moments and before == now[seen.ring] and moments[-1].tensormap == seen.tensor_map:
                continue
            taken = seen.task_window[1] - before["task_window"][1]
            given = seen.task_window[0] - before["task_window"][0]
            what = "a task is submitted" if taken else f"{format_count(given, 'slot')} released" if given else "bytes or edges move"
            note = f"ring {seen.ring}, {format_seconds(seen.time_ns / 1e9)}"
            moments.append(Moment(what, note, seen.ring, "", tuple(now), seen.tensor_map, seen.time_ns))
        self._moments = moments
        waits = [
            f"{format_count(count, 'submission')} waited for {name} of ring {ring}"
            for (name, ring), count in sorted(report.waits.items())
        ]
        self._findings = waits
        self._title = f"{format_count(report.tasks, 'task')} on {format_count(len(report.lanes), 'lane')} of {report.platform}"

    @property
    def count(self) -> int:
        """How many moments there are."""
        return len(self._moments)

    @cached_property
    def outline(self) -> dict[str, Any]:
        states = []
        for number, moment in enumerate(self._moments):
            used = self._capacity[moment.ring]["task_window"]
            tail, head = moment.cursors[moment.ring]["task_window"]
            full = any(self._full(moment, moment.ring, name) for name in RESOURCES)
            states.append(state(f"{number} {moment.what}", moment.note, alert=full, bar=(head - tail) / used if used else None))
        pictures = [self._dials(), self._strips()] if states else []
        title = f"Rings: {self._title}"
        if self._thinned:
            title += f"; {format_count(MOST_STATES)} of {format_count(self._total, 'moment')} are shown, evenly chosen"
        return {"kind": "ring", "title": title, "what": "moment", "states": states, "folds": [], "pictures": pictures}

    def frame(self, step: int, rewrite: int = 0, fold: str = "", focus: str = "") -> Frame:
        """One state as plain data; see `lens.stepping`."""
        frame: Frame = {"sentence": "Nothing was recorded.", "pictures": [], "patch": {}, "sections": [], "lines": []}
        if self._moments:
            step = within(step, self.count)
            moment = self._moments[step]
            frame["sentence"] = self._sentence(step)
            frame["patch"] = self._patch(step)
            for ring in range(len(self._capacity)):
                rows = [(_NAMES[name], self._amount(moment, ring, name)) for name in RESOURCES]
                frame["sections"].append(section(f"Ring {ring}", rows=rows))
            if moment.time_ns is not None:
                frame["sections"].append(section("Running", rows=self._running(moment.time_ns)))
                waiting = [w for w in self._waits if w.start_ns <= moment.time_ns < w.end_ns]
                if waiting:
                    rows = [(_NAMES.get(w.resource, w.resource), f"of ring {w.ring}, at {w.site}") for w in waiting]
                    frame["sections"].append(section("A submission waits for", rows=rows))
        if self._findings:
            frame["sections"].append(section("Findings", rows=[("•", finding) for finding in self._findings]))
        return frame

    def card(self, key: str, step: int, rewrite: int = 0, fold: str = "", focus: str = "") -> list[Section]:
        """Cursors of one ring, whose keys are ring-0 to ring-3."""
        number = key.removeprefix("ring-")
        if not self._moments or not number.isdigit() or int(number) >= len(self._capacity):
            return []
        ring, moment = int(number), self._moments[within(step, self.count)]
        rows = []
        for name in RESOURCES:
            tail, head = moment.cursors[ring][name]
            told = (f"{v:,}" for v in (tail, head))
            rows += [(_NAMES[name], self._amount(moment, ring, name)), ("  tail, head", ", ".join(told))]
        return [section(f"Ring {ring}", rows=rows)]

    # words

    def _full(self, moment: Moment, ring: int, name: str) -> bool:
        tail, head = moment.cursors[ring][name]
        return head - tail >= self._capacity[ring][name]

    def _amount(self, moment: Moment, ring: int, name: str) -> str:
        tail, head = moment.cursors[ring][name]
        size, full = self._capacity[ring][name], ", full" if self._full(moment, ring, name) else ""
        if name == "heap":
            return f"{format_bytes(head - tail) if head > tail else 0} of {format_bytes(size)}{full}"
        return f"{head - tail:,} of {size:,} {_WORDS[name]}{full}"

    def _sentence(self, step: int) -> str:
        moment = self._moments[step]
        told = ", ".join(self._amount(moment, moment.ring, name) for name in RESOURCES)
        where = f"{moment.what} ({moment.note})"
        entries = f"; the tensor map holds {moment.tensormap:,}" + (
            f" of {self._map_size:,} entries" if self._map_size else " entries"
        )
        return f"Moment {step} of {self.count}, {where}: ring {moment.ring} holds {told}{entries}."

    def _running(self, time_ns: int) -> list[tuple[str, str]]:
        started = self._tasks[: bisect_right(self._starts, time_ns)]
        here = [task for task in started[-400:] if task.end_ns > time_ns]
        rows = [(f"lane {task.lane}", f"{task.name}, task {task.task_id}, ring {task.ring}") for task in here[:12]]
        return rows or [("", "no task")]

    # pictures

    def _dials(self) -> str:
        width = max(_DIAL * len(self._capacity), 300)
        out = [open_svg(width, 214, "The rings: outside slots, then heap bytes, inside dependency edges")]
        for ring, sizes in enumerate(self._capacity):
            out.append(f'<g class="v dial ring-{ring}" data-key="ring-{ring}" transform="translate({_DIAL * (ring + 0.5):g},78)">')
            for name, radius in _RADII.items():
                out.append(
                    f'<circle class="track" r="{radius:g}"><title>{_NAMES[name]}, {sizes[name]:,} {_WORDS[name]}</title></circle>'
                )
                out.append(
                    f'<circle class="arc" data-key="arc-{ring}-{name}" r="{radius:g}" pathLength="1" transform="rotate(-90)" '
                    f'stroke-dasharray="0 1" stroke-dashoffset="0"/>'
                )
            out.append(f'<text class="o" style="font-size:22px" y="8">{ring}</text>')
            for line, name in enumerate(RESOURCES):
                out.append(f'<text data-key="told-{ring}-{name}" y="{88 + 15 * line}"> </text>')
            out.append("</g>")
        return "".join(out) + "</svg>"

    def _strips(self) -> str:
        """Use over time, as a share of each ring's capacity: one strip for each resource."""
        height = (_STRIP + 20) * len(RESOURCES) + 26
        out = [open_svg(_WIDTH, height, "Use of each resource over the run, as a share of its capacity")]
        for row, name in enumerate(RESOURCES):
            top = 14 + (_STRIP + 20) * row
            peak = max(self._share(moment, ring, name) for moment in self._moments for ring in range(len(self._capacity)))
            scale = 1.0 if peak > _FULL_SCALE or not peak else peak  # little use of much room is drawn larger
            out.append(f'<path class="axis" d="M{_LEFT},{top}V{top + _STRIP}H{_WIDTH - 10}"/>')
            if scale == 1.0:
                out.append(f'<path class="bound" d="M{_LEFT},{top}H{_WIDTH - 24}"/>')
            told = "full" if scale == 1.0 else format_share(scale)
            out.append(f'<text style="text-anchor:end" x="{_LEFT - 6}" y="{top + 4}">{told}</text>')
            out.append(f'<text class="o" style="text-anchor:end" x="{_LEFT - 6}" y="{top + _STRIP / 2 + 6}">{_NAMES[name]}</text>')
            for ring in range(len(self._capacity)):
                points = self._line(ring, name, top, scale)
                if points:
                    out.append(f'<polyline class="line ring-{ring}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
                    x, y = min(points, key=lambda point: point[1])
                    out.append(f'<text class="o" x="{x:.1f}" y="{y - 3:.1f}">{ring}</text>')
        words = "time" if self._clock else "samples"
        out.append(f'<text x="{(_LEFT + _WIDTH) / 2:g}" y="{height - 8:g}">{words}; the digit is the ring</text>')
        cursor = f'<path d="M0,8V{height - 26:g}"/>'
        out.append(f'<g class="cursor" data-key="cursor" transform="translate({_LEFT},0)">{cursor}</g></svg>')
        return "".join(out)

    def _at(self, step: int) -> float:
        """Where a moment stands on the horizontal axis."""
        moment, last = self._moments[step], self._moments[-1]
        if self._clock and last.time_ns:
            share = (moment.time_ns or 0) / last.time_ns
        else:
            share = step / max(self.count - 1, 1)
        return _LEFT + (_WIDTH - _LEFT - 24) * share

    def _share(self, moment: Moment, ring: int, name: str) -> float:
        tail, head = moment.cursors[ring][name]
        return (head - tail) / self._capacity[ring][name]

    def _line(self, ring: int, name: str, top: float, scale: float) -> list[tuple[float, float]]:
        used = [self._share(moment, ring, name) for moment in self._moments]
        if not any(used):
            return []
        every = max(1, -(-len(used) // _POINTS))
        points = []
        for first in range(0, len(used), every):  # of each stretch its highest
            step = max(range(first, min(first + every, len(used))), key=used.__getitem__)
            points.append((self._at(step), top + _STRIP * (1 - min(used[step] / scale, 1))))
        return points

    def _patch(self, step: int) -> dict[str, dict[str, Any]]:
        moment = self._moments[step]
        patch: dict[str, dict[str, Any]] = {"cursor": {"transform": f"translate({self._at(step):.1f},0)"}}
        for ring, sizes in enumerate(self._capacity):
            for name in RESOURCES:
                tail, head = moment.cursors[ring][name]
                size = sizes[name]
                share = min((head - tail) / size, 1.0)
                full = self._full(moment, ring, name)
                arc: dict[str, Any] = {
                    "stroke-dasharray": f"{share:.5f} {1 - share:.5f}",
                    "stroke-dashoffset": f"{-(tail % size) / size:.5f}",
                }
                if full:
                    arc["class"] = "full"
                patch[f"arc-{ring}-{name}"] = arc
                patch[f"told-{ring}-{name}"] = {"text": self._amount(moment, ring, name)}
        return patch


__all__ = ["Moment", "RingSteps"]
