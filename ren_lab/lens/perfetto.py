"""Timelines as Chrome trace JSON, which Perfetto (ui.perfetto.dev) and other tools open.

Only the events that every reader of the format treats alike are written: complete events `X`, counters `C` and metadata `M`, with
integer times and numeric ids (Trace Event Format, Google, 2016). Readers take times for microseconds. Where calls are
shorter than that, times are written in nanoseconds, and the names of the processes say that a microsecond shown is a nanosecond.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ren_lab.lens.text import lines_text
from ren_lab.lens.theme import format_bytes

if TYPE_CHECKING:
    from ren_lab.lens.trace import Trace
    from ren_lab.runtime import RunReport

Event = dict[str, Any]
Span = tuple[str, float, float, dict[str, Any]]  # name, start and length in seconds, arguments

COMPILE, RUN, RINGS = 1, 2, 3  # process ids
_SHORT = 5e-6  # seconds; with shorter calls, nanoseconds are written


class _Document:
    """Events in the making, on one scale."""

    def __init__(self, lengths: Iterable[float]) -> None:
        shortest = min((length for length in lengths if length > 0), default=1.0)
        self.scale = 1e9 if shortest < _SHORT else 1e6
        self.events: list[Event] = []

    def at(self, seconds: float) -> int:
        return round(seconds * self.scale)

    def process(self, pid: int, name: str) -> None:
        told = f"{name} (1 µs shown is 1 ns)" if self.scale == 1e9 else name
        self.events.append({"ph": "M", "pid": pid, "tid": 0, "ts": 0, "name": "process_name", "args": {"name": told}})

    def lane(self, pid: int, tid: int, name: str, spans: Sequence[Span]) -> None:
        """Calls one after the other; rounding never lets two overlap, and each is at least one unit long."""
        self.events.append({"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": "thread_name", "args": {"name": name}})
        free = 0
        for title, start, length, arguments in sorted(spans, key=lambda span: span[1]):
            begin = max(self.at(start), free)
            free = max(self.at(start + length), begin + 1)
            self.events.append(
                {"ph": "X", "pid": pid, "tid": tid, "ts": begin, "dur": free - begin, "name": title, "args": arguments}
            )

    def counter(self, pid: int, name: str, unit: str, values: Iterable[tuple[float, int]]) -> None:
        """What was in use over time; of several values at one time the last counts."""
        known = {self.at(seconds): value for seconds, value in values}
        for moment in sorted(known):
            self.events.append({"ph": "C", "pid": pid, "tid": 0, "ts": moment, "name": name, "args": {unit: known[moment]}})

    def finished(self) -> dict[str, Any]:
        order = sorted(self.events, key=lambda e: (e["ph"] != "M", e["ts"], e["pid"], e["tid"]))
        return {"traceEvents": order, "displayTimeUnit": "ns" if self.scale == 1e9 else "ms"}


def trace_events(trace: "Trace") -> dict[str, Any]:
    """A trace: the passes one after the other, then the items that ran, a lane for each device, with their arenas' use."""
    document = _Document([p.seconds for p in trace.passes] + [u.seconds for u in trace.units if u.seconds is not None])
    clock = 0.0
    spans: list[Span] = []
    for record in trace.passes:
        counts = {"rewrites": len(record.rewrites) + record.dropped_rewrites, "nodes": len(record.after.toposort())}
        spans.append((f"{record.number} {record.name}", clock, record.seconds, counts))
        clock += record.seconds
    if spans:
        document.process(COMPILE, "compilation, the passes back to back")
        document.lane(COMPILE, 1, "passes", spans)
    ran = [(unit, unit.start, unit.seconds) for unit in trace.units if unit.start is not None and unit.seconds is not None]
    if ran:
        begin = min(start for _, start, _ in ran) - clock  # the run stands behind the compilation
        document.process(RUN, "run")
        lines = trace.schedule.lines
        lanes: dict[str, list[Span]] = {}
        for unit, start, seconds in ran:
            told: dict[str, Any] = {
                "item": unit.index,
                "kind": unit.item.kind,
                "writes": ", ".join(b.label for b in unit.item.outputs),
                "seconds": seconds,
            }
            told["reads"] = ", ".join(b.label for b in unit.item.inputs[:8])
            if lines[unit.index]:
                told["lines"] = lines_text(lines[unit.index], 12)
            lanes.setdefault(unit.item.device, []).append((unit.item.name, start - begin, seconds, told))
        for tid, (device, spans) in enumerate(lanes.items(), 1):
            document.lane(RUN, tid, device, spans)
        memory = trace.memory.to_dict() if trace.memory is not None else {"devices": []}
        for arena in memory["devices"]:
            values = [(start - begin, arena["live_bytes"][unit.index]) for unit, start, _ in ran]
            last = max(start + seconds for _, start, seconds in ran) - begin
            capacity = format_bytes(arena["arena_bytes"])
            document.counter(RUN, f"arena of {arena['device']} ({capacity})", "bytes", [*values, (last, 0)])
    return document.finished()


def report_events(report: "RunReport") -> dict[str, Any]:
    """A run on the rings: a lane for each worker, and for each ring what was in use of it.

    Raises:
        ValueError: the run has no timeline.
    """
    line = report.timeline
    if line is None:
        raise ValueError("this run recorded no timeline; run it with `worker.run(program, timeline=True)`")
    document = _Document([(task.end_ns - task.start_ns) / 1e9 for task in line.tasks])
    document.process(RUN, f"workers of {report.platform}")
    for number, name in enumerate(line.lanes):
        spans: list[Span] = []
        for task in line.tasks:
            if task.lane == number:
                told = {"task": task.task_id, "ring": task.ring, "depth": task.depth, "site": task.site, "failed": task.failed}
                if task.block is not None:
                    told["block"] = task.block
                told["after"] = ", ".join(map(str, task.producers[:16]))
                spans.append((task.name, task.start_ns / 1e9, (task.end_ns - task.start_ns) / 1e9, told))
        document.lane(RUN, number + 1, name, spans)
    document.process(RINGS, "rings")
    for ring in range(len(report.rings)):
        seen = [cursors for cursors in line.cursors if cursors.ring == ring]
        for resource, unit in (("task_window", "slots"), ("heap", "bytes"), ("dep_pool", "edges")):
            values = [(c.time_ns / 1e9, getattr(c, resource)[1] - getattr(c, resource)[0]) for c in seen]
            if any(value for _, value in values):
                document.counter(RINGS, f"ring {ring} {resource}", unit, values)
    return document.finished()


def events(source: Any) -> dict[str, Any]:
    """The document of a trace or of a run's report; `TypeError` for anything else."""
    if hasattr(source, "passes") and hasattr(source, "units"):
        return trace_events(source)
    if hasattr(source, "timeline") and hasattr(source, "rings"):
        return report_events(source)
    raise TypeError(f"a {type(source).__name__} has no timeline; give a Trace or a RunReport")


def save_perfetto(source: Any, path: str | os.PathLike[str]) -> None:
    """Write the timeline of a trace or of a run's report; an existing file is replaced only when all is written.

    Raises:
        FileNotFoundError: the folder does not exist.
        TypeError, ValueError: as for `events` and `report_events`.
    """
    from ren_lab.lens.page import write_whole

    document = events(source)
    problems = validate(document)
    assert not problems, problems[:3]
    write_whole(path, json.dumps(document, ensure_ascii=False))


def validate(document: Any) -> list[str]:
    """What is wrong with a document, in sentences; empty for one that tools read alike."""
    found = document.get("traceEvents") if isinstance(document, Mapping) else None
    if not isinstance(found, list):
        return ["the document is not an object with a list `traceEvents`"]
    problems: list[str] = []
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, event in enumerate(found):
        bad = _event_problems(event)
        problems += [f"event {number}: {problem}" for problem in bad]
        if not bad and event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for (pid, tid), calls in lanes.items():
        calls.sort(key=lambda call: (call[0], -call[1]))
        for (a, b), (c, d) in pairwise(calls):
            if (a, b) == (c, d) or a == c or b == d and c < b:
                problems.append(f"process {pid}, lane {tid}: two calls share a beginning or an end, at {c}")
            elif c < b < d:
                problems.append(
                    f"process {pid}, lane {tid}: the calls {a} to {b} and {c} to {d} overlap and neither holds the other"
                )
    return problems


def _event_problems(event: Any) -> list[str]:
    def whole(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0

    if not isinstance(event, Mapping):
        return ["it is not an object"]
    kind = event.get("ph")
    if kind not in ("X", "C", "M"):
        return [f"its kind is {kind!r}; only X, C and M are read alike"]
    out = [f"{field} is {event.get(field)!r}, not a whole number" for field in ("ts", "pid", "tid") if not whole(event.get(field))]
    if not isinstance(event.get("name"), str) or not event.get("name"):
        out.append("it has no name")
    arguments = event.get("args", {})
    if not isinstance(arguments, Mapping):
        return [*out, "its args are not an object"]
    if kind == "X" and (not whole(event.get("dur")) or not event["dur"]):
        out.append(f"its length is {event.get('dur')!r}, not a whole number above 0")
    if kind == "C" and (not arguments or not all(isinstance(v, int | float) for v in arguments.values())):
        out.append("a counter needs numbers")
    if kind == "M" and (event.get("name") not in ("process_name", "thread_name") or not isinstance(arguments.get("name"), str)):
        out.append("metadata must name a process or a thread")
    return out


__all__ = ["events", "report_events", "save_perfetto", "trace_events", "validate"]
