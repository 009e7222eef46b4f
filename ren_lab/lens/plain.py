"""Traces and recordings as plain data: dictionaries, lists, strings and numbers, ready for JSON.

Pages and widgets are made from this data, and tests look at it. A part whose view failed holds {"failed": why}.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ren_lab.events import RuleFired
from ren_lab.ir import Node
from ren_lab.lens.provenance import Origin
from ren_lab.lens.text import expression, lines_text, schedule_headline, trace_headline
from ren_lab.lens.theme import format_count, format_seconds

if TYPE_CHECKING:
    from ren_lab.lens.graph_view import GraphView
    from ren_lab.lens.recorder import Recording
    from ren_lab.lens.records import Failure, KernelRecord, PassRecord
    from ren_lab.lens.trace import Trace

REWRITES_TOLD = 200  # of one pass, one by one; all are counted by rule
TEXT_LINES = 2_000  # of one graph's text form
REALIZATIONS_DRAWN = 40


def attempt(make: Callable[[], Any]) -> Any:
    """What `make` gives, or {"failed": why}: one view that fails must not take the others along."""
    try:
        return make()
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def pass_views(trace: "Trace", **options: Any) -> list["GraphView"]:
    """The marked graph of each pass; a node that goes on has the same key in all of them. Options as for `pass_graph`."""
    from ren_lab.lens.graph_view import graph_view, pass_graph

    views: list[GraphView] = []
    keys = None
    for record in trace.passes:
        if keys is None:
            keys = graph_view(record.before).keys
        view = pass_graph(
            record.before, record.after, record.mapping, added=record.added, removed=record.removed, changed=record.changed,
            origins=record.lines, keys=keys, **options,
        )  # fmt: skip
        views.append(view)
        keys = view.keys
    return views


def graph_text(graph: Node) -> str:
    """The text form of a graph, cut after 2,000 lines."""
    lines = str(graph).splitlines()
    hidden = len(lines) - TEXT_LINES
    return "\n".join([*lines[:TEXT_LINES], f"… and {format_count(hidden, 'more line')}"] if hidden > 0 else lines)


def lines_list(lines: Sequence[Origin]) -> list[list[Any]]:
    """Source lines as lists [file, line]."""
    return [[file, line] for file, line in lines]


def rewrites_dict(rewrites: Sequence[RuleFired], dropped: int = 0) -> dict[str, Any]:
    """Rewrites: how often each rule fired, and the first 200 of them one by one."""
    rules: dict[tuple[str, str], int] = {}
    for fired in rewrites:
        rules[fired.rule, fired.equation] = rules.get((fired.rule, fired.equation), 0) + 1
    return {
        "count": len(rewrites) + dropped,
        "rules": [{"rule": rule, "equation": equation, "count": n} for (rule, equation), n in rules.items()],
        "told": [
            {"rule": f.rule, "equation": f.equation, "old": expression(f.old), "new": expression(f.new)}
            for f in rewrites[:REWRITES_TOLD]
        ],
    }


def pass_dict(record: "PassRecord", view: Any = None) -> dict[str, Any]:
    """A pass. `view` is its `GraphView` if there is one already."""
    return {
        "number": record.number,
        "name": record.name,
        "sentence": record.sentence,
        "quiet": record.quiet,
        "seconds": record.seconds,
        "nodes": {"before": len(record.before.toposort()), "after": len(record.after.toposort())},
        "added": len(record.added),
        "removed": len(record.removed),
        "changed": len(record.changed),
        "rewrites": rewrites_dict(record.rewrites, record.dropped_rewrites),
        "graph": attempt((view if view is not None else record.view()).to_dict),
        "text": graph_text(record.after),
    }


def failure_dict(failure: "Failure | None") -> dict[str, Any] | None:
    """Where and why something broke off, or None."""
    if failure is None:
        return None
    return {
        "stage": failure.stage, "number": failure.number, "name": failure.name, "kind": failure.kind, "message": failure.message,
        "where": failure.where, "rewrites": rewrites_dict(failure.rewrites),
        "text": None if failure.graph is None else graph_text(failure.graph),
    }  # fmt: skip


def kernel_dict(kernel: "KernelRecord") -> dict[str, Any]:
    """A kernel, without its program, which several may share."""
    return {
        "index": kernel.index, "name": kernel.name, "kind": kernel.kind, "device": kernel.device, "seconds": kernel.seconds,
        "outputs": [b.label for b in kernel.outputs], "inputs": [b.label for b in kernel.inputs], "lines": lines_list(kernel.lines),
    }  # fmt: skip


def programs_list(trace: "Trace") -> list[dict[str, Any]]:
    """The distinct kernel programs, each with its text and with the positions of the kernels that run it."""
    programs: dict[tuple[str, Node], dict[str, Any]] = {}
    for kernel in trace.kernels:
        known = programs.get((kernel.device, kernel.ast))
        if known is None:
            source = attempt(lambda kernel=kernel: kernel.source)  # type: ignore[misc]
            known = programs[kernel.device, kernel.ast] = {
                "name": kernel.name, "kind": kernel.kind, "device": kernel.device, "kernels": [], "source": source,
                "text": graph_text(kernel.ast),
            }  # fmt: skip
        known["kernels"].append(kernel.index)
    return list(programs.values())


def items_list(trace: "Trace") -> list[dict[str, Any]]:
    """The items of the schedule with their timings."""
    lines = trace.schedule.lines
    return [
        {
            "index": unit.index, "name": unit.item.name, "kind": unit.item.kind, "device": unit.item.device,
            "outputs": [b.label for b in unit.item.outputs], "inputs": [b.label for b in unit.item.inputs], "start": unit.start,
            "seconds": unit.seconds, "lines": lines_list(lines[unit.index]),
        }
        for unit in trace.units
    ]  # fmt: skip


def trace_dict(trace: "Trace", views: Sequence["GraphView"] | None = None) -> dict[str, Any]:
    """A trace. `views` are those of its passes if they have been made already."""
    views = pass_views(trace) if views is None else views
    return {
        "headline": trace_headline(trace),
        "cached": trace.cached,
        "jit": None if trace.jit is None else {"function": trace.jit.function, "hit": trace.jit.hit, "why": trace.jit.why},
        "error": failure_dict(trace.error),
        "seconds": {"compile": trace.seconds.compile, "run": trace.seconds.run},
        "started": trace.started,
        "input": {"nodes": len(trace.graph.toposort()), "text": graph_text(trace.graph)},
        "passes": [pass_dict(record, view) for record, view in zip(trace.passes, views, strict=True)],
        "schedule": None
        if trace.program is None
        else {
            "headline": schedule_headline(trace.schedule),
            "items": items_list(trace),
            "graph": attempt(lambda: trace.schedule.view().to_dict()),
        },
        "kernels": [kernel_dict(kernel) for kernel in trace.kernels],
        "programs": programs_list(trace),
        "memory": None if trace.memory is None else attempt(trace.memory.to_dict),
    }


def recording_dict(recording: "Recording") -> dict[str, Any]:
    """A recording: a line per realization, and the time per kernel name. Not the traces themselves."""
    return {
        "count": recording.count,
        "failed": recording.failed,
        "dropped": recording.dropped,
        "seconds": {"compile": recording.seconds.compile, "run": recording.seconds.run},
        "realizations": [
            {
                "headline": trace_headline(trace), "cached": trace.cached, "error": failure_dict(trace.error),
                "items": len(trace.schedule), "seconds": {"compile": trace.seconds.compile, "run": trace.seconds.run},
            }
            for trace in recording.realizations
        ],
        "totals": [{"name": t.name, "calls": t.calls, "seconds": t.seconds, "share": t.share} for t in recording.totals],
    }  # fmt: skip


def recording_view(recording: "Recording") -> "GraphView":
    """The realizations in their order: one vertex for each stretch that ran the same program."""
    from ren_lab.lens.graph_view import Edge, GraphView, Vertex

    stretches: list[list[Trace]] = []
    for trace in recording.realizations:
        last = stretches[-1][0] if stretches else None
        same = last is not None and last.program is trace.program and last.error is None and trace.error is None
        if same:
            stretches[-1].append(trace)
        else:
            stretches.append([trace])
    hidden = stretches[:-REALIZATIONS_DRAWN]
    vertices = []
    if hidden:
        vertices.append(Vertex("earlier", "…", f"{format_count(sum(map(len, hidden)), 'earlier realization')}", "more"))
    number = recording.count - len(recording) + sum(map(len, hidden))
    for stretch in stretches[len(hidden) :]:
        first, count = stretch[0], len(stretch)
        name = f"realization {number}" if count == 1 else f"realizations {number} to {number + count - 1}"
        seconds = sum(trace.seconds.run or 0.0 for trace in stretch)
        what = schedule_headline(first.schedule).partition(":")[0]
        second = f"broke off {first.error.where}" if first.error is not None else f"{what}, {format_seconds(seconds)}"
        lines = tuple(dict.fromkeys(o for k in first.kernels for o in k.lines)) if not first.cached else ()
        told = (lines_text(lines),) if lines else ()
        vertices.append(
            Vertex(f"r{number}", name, second, "boundary", (trace_headline(first),), count=count, lines=told,
                   mark="changed" if first.error is not None else None)
        )  # fmt: skip
        number += count
    edges = tuple(Edge(a.key, b.key, "ordering") for a, b in zip(vertices, vertices[1:], strict=False))
    told_count = format_count(recording.count, "realization")
    title = f"{told_count}, {format_seconds(recording.seconds.run or 0.0)} of running"
    return GraphView(title, tuple(vertices), edges, recording.count)


def recording_graph(recording: "Recording") -> Any:
    """As `Recording.to_graphviz`."""
    traces = recording.realizations
    if len(traces) == 1:
        return traces[0].to_graphviz()
    return recording_view(recording).to_graphviz()
