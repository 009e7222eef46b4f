"""What lens shows in a notebook and saves as a page: plain data and pictures, put into HTML."""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ren_lab.lens import plain, theme
from ren_lab.lens.markup import (
    STYLE,
    Html,
    alert,
    bar,
    code,
    details,
    escape,
    figure_picture,
    fragment,
    graph_picture,
    pre,
    safely,
    table,
    time_text,
)  # fmt: skip
from ren_lab.lens.text import headline, item_line, lines_text, memory_text, schedule_headline, trace_headline
from ren_lab.lens.theme import format_count, format_seconds

if TYPE_CHECKING:
    from ren_lab.ir import Node
    from ren_lab.lens.recorder import Recording
    from ren_lab.lens.records import KernelRecord, PassRecord
    from ren_lab.lens.trace import MemoryView, ScheduleView, Trace
    from ren_lab.poly import Poly
    from ren_lab.ring import RingSpec
    from ren_lab.schedule import ScheduledKernel

_PAGE_ENDINGS = (".html", ".htm")
_PROGRAMS = 40
_DETAILED = 12  # realizations that the page of a recording shows in full

_PAGE_STYLE = """
html{color-scheme:light dark}
body{margin:0}
main{max-width:1320px;margin:0 auto;padding:12px 20px 60px}
nav{position:sticky;top:0;background:var(--ren-background);border-bottom:1px solid var(--ren-rule);padding:6px 0;z-index:1}
nav a,nav button{margin-right:14px;color:inherit}
nav button{font:inherit;background:none;border:1px solid var(--ren-rule);border-radius:4px;cursor:pointer}
section,details{scroll-margin-top:44px}
a{color:inherit}
h1{font-size:1.5em;margin:.4em 0}
""".strip()

_SCRIPT = """
const all=()=>document.querySelectorAll('main details');
document.getElementById('open').onclick=()=>{const s=all(),o=![...s].every(d=>d.open);s.forEach(d=>d.open=o)};
const reveal=()=>{
 let e=document.getElementById(location.hash.slice(1));
 while(e){if(e.tagName=='DETAILS')e.open=true;e=e.parentElement}
};
addEventListener('hashchange',reveal);reveal();
""".strip()


# passes


def _rewrites(data: dict[str, Any]) -> str:
    """The rules that fired, how often, and the first of the rewrites one by one."""
    if not data["count"]:
        return ""
    rules = table(["rule", "equation", "fired"], [(r["rule"], code(r["equation"]), r["count"]) for r in data["rules"]], {2})
    rows = [(r["rule"], code(r["old"]), code(r["new"])) for r in data["told"]]
    hidden = data["count"] - len(rows)
    rest = f'<p class="m">and {format_count(hidden, "more rewrite")}</p>' if hidden else ""
    return rules + details("One by one", table(["rule", "before", "after"], rows) + rest)


def _marks() -> str:
    told = " ".join(f"<b>{escape(style.badge)}</b> {escape(mark)}" for mark, style in theme.MARKS.items())
    return f'<p class="m">Marks in the corner of a node: {told}.</p>'


def _pass(data: dict[str, Any], picture: Callable[[], str]) -> str:
    body = _marks() + safely(picture) + _rewrites(data["rewrites"]) + details("Text form after the pass", pre(data["text"]))
    return f"<p>{escape(data['sentence'])}</p>{body}"


def _passes_table(passes: Sequence[dict[str, Any]], link: bool = False) -> str:
    rows = []
    for p in passes:
        name = Html(f'<a href="#pass-{p["number"]}">{escape(p["name"])}</a>') if link else p["name"]
        nodes = f"{p['nodes']['before']} → {p['nodes']['after']}"
        fired = "quiet" if p["quiet"] else str(p["rewrites"]["count"])
        rows.append(
            [p["number"], name, nodes, *(p[k] or "" for k in ("added", "removed", "changed")), fired, time_text(p["seconds"])]
        )
    return table(["", "pass", "nodes", "+ added", "− removed", "~ changed", "rewrites", "time"], rows, {0, 2, 3, 4, 5, 6, 7})


def _pass_rows(passes: Sequence["PassRecord"]) -> list[dict[str, Any]]:
    """What the table of passes needs, without the graphs."""
    return [
        {
            "number": p.number, "name": p.name, "quiet": p.quiet, "seconds": p.seconds, "added": len(p.added),
            "removed": len(p.removed), "changed": len(p.changed), "rewrites": {"count": len(p.rewrites) + p.dropped_rewrites},
            "nodes": {"before": len(p.before.toposort()), "after": len(p.after.toposort())},
        }
        for p in passes
    ]  # fmt: skip


def pass_html(record: "PassRecord") -> str:
    """A pass in a notebook."""
    view = record.view()
    return fragment(_pass(plain.pass_dict(record, view), lambda: graph_picture(view)))


# schedules, kernels, memory


def _lines(lines: Sequence[Sequence[Any]]) -> str:
    return lines_text([(str(file), int(line)) for file, line in lines], 12)


def _items_table(items: Sequence[dict[str, Any]]) -> str:
    total = sum(item["seconds"] or 0.0 for item in items)
    rows = []
    for item in items:
        inputs = ", ".join(item["inputs"][:8]) + (" …" if len(item["inputs"]) > 8 else "")
        row = [item["index"], item["name"], item["kind"], ", ".join(item["outputs"]), inputs, item["device"], _lines(item["lines"])]
        if total:
            ran = item["seconds"] is not None
            row += [time_text(item["seconds"]), bar(item["seconds"] / total) if ran else "did not run"]
        rows.append(row)
    timed = ["time", "of all"] if total else []
    return table(["", "item", "kind", "writes", "reads", "device", "lines", *timed], rows, {0, 7})


def _programs(programs: Sequence[dict[str, Any]], kernels: Sequence[dict[str, Any]]) -> str:
    by_index = {kernel["index"]: kernel for kernel in kernels}
    out = []
    for program in programs[:_PROGRAMS]:
        runs = [by_index[index] for index in program["kernels"]]
        lines = sorted({(file, line) for run in runs for file, line in run["lines"]})
        times = [run["seconds"] for run in runs if run["seconds"] is not None]
        places = ", ".join(str(run["index"]) for run in runs[:12]) + (" …" if len(runs) > 12 else "")
        more = f"{program['kind']} on {program['device']}, kernel{'s' if len(runs) > 1 else ''} {places}"
        more += f", {format_seconds(sum(times))}" if times else ""
        source = program["source"]
        text = alert(source["failed"]) if isinstance(source, dict) else pre(source)
        body = (f"<p>From {escape(_lines(lines))}</p>" if lines else "") + text + details("Text form", pre(program["text"]))
        out.append(details(program["name"], body, more=more))
    if len(programs) > _PROGRAMS:
        out.append(f'<p class="m">and {format_count(len(programs) - _PROGRAMS, "more program")}</p>')
    return "".join(out)


def schedule_html(schedule: "ScheduleView") -> str:
    """A schedule in a notebook."""
    return fragment(f"<p>Schedule of {escape(schedule_headline(schedule))}</p>", safely(lambda: graph_picture(schedule.view())))


def item_html(item: "ScheduledKernel") -> str:
    """An item of a schedule in a notebook: what it fills and reads and, of a kernel, the graph of its body."""
    from ren_lab.lens.graph_view import graph_view

    head, body = f"<p>{escape(item.kind)} {escape(item_line(item))}</p>", item.ast
    return fragment(head, safely(lambda: graph_picture(graph_view(body)))) if body is not None else fragment(head)


def kernel_html(kernel: "KernelRecord") -> str:
    """A kernel in a notebook: its graph and its program."""
    from ren_lab.lens.graph_view import graph_view

    told = [kernel.kind, f"on {kernel.device}", f"writes {', '.join(b.label for b in kernel.outputs)}"]
    told += [f"reads {', '.join(b.label for b in kernel.inputs[:8])}"] if kernel.inputs else []
    told += [format_seconds(kernel.seconds)] if kernel.seconds is not None else []
    told += [f"from {lines_text(kernel.lines, 12)}"] if kernel.lines else []
    head = f"<p><b>Kernel {kernel.index}, {escape(kernel.name)}</b>: {escape(', '.join(told))}</p>"
    return fragment(head, safely(lambda: graph_picture(graph_view(kernel.ast))), safely(lambda: pre(kernel.source)))


def _memory_picture(memory: "MemoryView") -> str:
    return safely(lambda: figure_picture(memory.plot()))


def memory_html(memory: "MemoryView") -> str:
    """A memory plan in a notebook."""
    return fragment(_memory(memory))


def _memory(memory: "MemoryView") -> str:
    text = "".join(f"<p>{escape(line)}</p>" for line in memory_text(memory).splitlines())
    return text + _memory_picture(memory) + details("Every buffer", pre(str(memory)))


# traces


def _failure(data: dict[str, Any] | None) -> str:
    if data is None:
        return ""
    out = alert(f"{data['kind'] or 'It broke off'} {data['where']}:\n{data['message']}")
    out += _rewrites(data["rewrites"])
    return out + (details("The graph that the pass was given", pre(data["text"])) if data["text"] else "")


def trace_html(trace: "Trace") -> str:
    """A trace in a notebook: passes as a table, the schedule, the memory plan."""
    parts = [f"<p><b>{escape(trace_headline(trace))}</b></p>", _failure(plain.failure_dict(trace.error))]
    if trace.passes:
        save = code(f"trace.save({chr(34)}x.html{chr(34)})")
        hint = f"""<p class="m">A pass by itself: {code("trace.passes[2]")}; everything as one page: {save}</p>"""
        parts.append(details("Passes", safely(lambda: _passes_table(_pass_rows(trace.passes))) + hint, opened=True))
    if trace.program is not None:
        more = schedule_headline(trace.schedule)
        parts.append(details("Schedule", safely(lambda: graph_picture(trace.schedule.view())), more=more, opened=True))
        if trace.seconds.run is not None:
            parts.append(details("Time of each item", safely(lambda: _items_table(plain.items_list(trace)))))
    if trace.memory is not None:
        memory = trace.memory
        parts.append(details("Memory plan", _memory(memory), opened=True))
    return fragment(*parts)


def _trace_sections(trace: "Trace", prefix: str = "") -> list[tuple[str, str, str]]:
    """The sections of a trace on a page: id, title, HTML."""
    views = plain.pass_views(trace)
    data = plain.trace_dict(trace, views)
    sections = []
    if data["error"]:
        sections.append((f"{prefix}failure", "Failure", _failure(data["error"])))
    if data["passes"]:
        again = "<p>The schedule came out of the cache; these are the passes that had made it.</p>" if data["cached"] else ""
        body = [again, _passes_table(data["passes"], link=not prefix)]
        body.append(details("What went in", safely(lambda: _input(trace)) + pre(data["input"]["text"])))
        for p, view in zip(data["passes"], views, strict=True):
            count = format_count(p["rewrites"]["count"], "rewrite")
            more = "quiet: nothing to do" if p["quiet"] else f"+{p['added']} −{p['removed']} ~{p['changed']}, {count}"
            title = f"{p['number']} {p['name']}"
            inner = "" if p["quiet"] else _pass(p, lambda view=view: graph_picture(view))  # type: ignore[misc]
            ident = "" if prefix else f"pass-{p['number']}"
            body.append(details(title, inner or f"<p>{escape(p['sentence'])}</p>", more=more, ident=ident))
        sections.append((f"{prefix}passes", "Passes", "".join(body)))
    if data["schedule"]:
        items = _items_table(data["schedule"]["items"])
        body = [f"<p>{escape(data['schedule']['headline'])}</p>", safely(lambda: graph_picture(trace.schedule.view())), items]
        sections.append((f"{prefix}schedule", "Schedule", "".join(body)))
        sections.append((f"{prefix}kernels", "Kernels", _programs(data["programs"], data["kernels"])))
    if trace.memory is not None:
        sections.append((f"{prefix}memory", "Memory", _memory(trace.memory)))
    return sections


def _input(trace: "Trace") -> str:
    from ren_lab.lens.graph_view import graph_view

    return graph_picture(graph_view(trace.graph, origins=trace.provenance.stages[0]))


def _steppers(trace: "Trace") -> str:
    """The steppers of a trace: passes, schedule and, where units ran on the rings, the rings."""
    from ren_lab.lens.pass_steps import PassSteps
    from ren_lab.lens.ring_steps import RingSteps
    from ren_lab.lens.schedule_steps import ScheduleSteps
    from ren_lab.lens.stepper_page import stepper_html, stepper_script

    pieces = []
    if trace.passes or trace.error is not None:
        pieces.append(safely(lambda: stepper_html(PassSteps.of(trace), "pass-steps")))
    if trace.program is not None:
        pieces.append(safely(lambda: stepper_html(ScheduleSteps(trace), "schedule-steps")))
    if trace.scope_stats is not None:
        pieces.append(safely(lambda: stepper_html(RingSteps(trace.scope_stats), "ring-steps", interval=150)))
    return "".join(f'<div style="margin:10px 0">{piece}</div>' for piece in pieces) + stepper_script()


def _page(title: str, lead: str, sections: Sequence[tuple[str, str, str]], style: str = "") -> str:
    links = "".join(f'<a href="#{ident}">{escape(name)}</a>' for ident, name, _ in sections)
    body = "".join(f'<section id="{ident}"><h2>{escape(name)}</h2>{inner}</section>' for ident, name, inner in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{theme.style_sheet()}\n{STYLE}\n{_PAGE_STYLE}\n{style}</style></head>"
        f'<body class="ren-lab"><main><h1>{escape(title)}</h1><p>{escape(lead)}</p>'
        f'<nav aria-label="Sections">{links}<button id="open" type="button">open or close all</button></nav>{body}</main>'
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def trace_page(trace: "Trace") -> str:
    """A trace as one page."""
    outputs = format_count(len(trace.graph.src), "output")
    sections = _trace_sections(trace)
    sections.insert(1 if trace.error is not None else 0, ("steps", "Step through", safely(lambda: _steppers(trace))))
    from ren_lab.lens.stepper_page import stepper_styles

    return _page(f"Trace of {outputs}", trace_headline(trace), sections, stepper_styles())


# recordings


def _recording_tables(recording: "Recording") -> tuple[str, str]:
    data = plain.recording_dict(recording)
    first = recording.count - len(recording)
    rows = [(first + i, r["headline"]) for i, r in enumerate(data["realizations"])]
    totals = [(t["name"], f"{t['calls']:,}", time_text(t["seconds"]), bar(t["share"])) for t in data["totals"]]
    return (
        table(["", "realization"], rows, {0}),
        table(["kernel", "calls", "time", "of all"], totals, {1, 2}) if totals else "",
    )


def recording_html(recording: "Recording") -> str:
    """A recording in a notebook; of a single realization, its trace."""
    from ren_lab.lens.text import recording_headline

    head = f"<p><b>{escape(recording_headline(recording))}</b></p>"
    traces = recording.realizations
    if len(traces) == 1 and recording.count == 1:
        return head + trace_html(traces[0])
    listed, totals = _recording_tables(recording)
    hint = '<p class="m">Each realization shows itself: <code>recording.realizations[0]</code></p>'
    parts = [head, details("Realizations", listed + hint, opened=len(traces) <= 20)]
    if totals:
        parts.append(details("Time per kernel", totals, opened=True))
    return fragment(*parts)


def recording_page(recording: "Recording") -> str:
    """A recording as one page: all realizations in a table, and in full the first of each program."""
    from ren_lab.lens.text import recording_headline

    traces = recording.realizations
    listed, totals = _recording_tables(recording)
    sections = [("order", "In order", safely(lambda: graph_picture(plain.recording_view(recording))) + listed)]
    if totals:
        sections.append(("totals", "Time per kernel", totals))
    shown: dict[Any, int] = {}
    for number, trace in enumerate(traces):
        shown.setdefault(number if trace.program is None else id(trace.program), number)
    first = recording.count - len(traces)
    for number in list(shown.values())[:_DETAILED]:
        prefix = f"r{first + number}-"
        inner = "".join(details(title, body, ident=ident) for ident, title, body in _trace_sections(traces[number], prefix))
        lead = f"<p>{escape(trace_headline(traces[number]))}</p>"
        sections.append((f"r{first + number}", f"Realization {first + number}", lead + inner))
    if len(shown) > _DETAILED:
        rest = format_count(len(shown) - _DETAILED, "more program")
        sections.append(("rest", "Not shown", f"<p>{rest}: save their traces one by one</p>"))
    return _page("Recording", recording_headline(recording), sections)


# what the engine's classes show


def node_html(node: "Node") -> str:
    """A graph in a notebook."""
    from ren_lab.lens.graph_view import graph_view

    return fragment(
        f"<p>{escape(headline(node))}</p>",
        safely(lambda: graph_picture(graph_view(node))),
        details("Text form", pre(plain.graph_text(node))),
    )


def poly_html(poly: "Poly") -> str:
    """A polynomial in a notebook: what it is, and while it is lazy the graph that would compute it. Never its coefficients."""
    rows = [
        ("ring", f"{poly.ring.label}, q of {poly.ring.q.bit_length()} bits"),
        ("domain", poly.domain.name),
        ("device", poly.device),
        ("state", "realized" if poly.is_realized else f"lazy, {format_count(len(poly.node.toposort()), 'node')}"),
    ]
    listed = table(["Poly", ""], rows)
    if poly.is_realized:
        return fragment(listed)
    from ren_lab.lens.graph_view import graph_view

    return fragment(listed, safely(lambda: graph_picture(graph_view(poly.node))))


def ring_html(ring: "RingSpec") -> str:
    """A ring in a notebook: degree, modulus and the table of its primes."""
    rows = [(i, f"{p:,}", p.bit_length()) for i, p in enumerate(ring.moduli)]
    head = f"<p>Z<sub>q</sub>[X]/(X<sup>{ring.n}</sup> + 1), q of {ring.q.bit_length()} bits: {escape(ring.label)}</p>"
    return fragment(head, table(["limb", "modulus", "bits"], rows, {0, 1, 2}))


# files


def page_target(path: str | os.PathLike[str]) -> Path:
    """Where a page is to be written; asked before it is made, which may take seconds.

    Raises:
        ValueError: its name has an ending that is not .html or .htm.
        FileNotFoundError: the folder does not exist.
    """
    target = Path(path)
    if target.suffix.lower() not in ("", *_PAGE_ENDINGS):
        raise ValueError(
            f"{target.name!r} does not end in {' or '.join(_PAGE_ENDINGS)}: what is saved here is one HTML page with every picture "
            f"inside. Save {target.stem + '.html'!r}. A single picture as DOT is `trace.passes[i].to_graphviz().source`; as SVG, "
            "PDF or PNG, with Graphviz installed, `trace.passes[i].to_graphviz().render(format=...)`; a stepper's `svg()` is SVG"
        )
    return _in_folder(target)


def _in_folder(target: Path) -> Path:
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} does not exist; create it, then save {target.name!r} again")
    return target


def write_page(path: str | os.PathLike[str], text: str) -> None:
    """Write a page so that its file is either the old one or the new one, never a part.

    Raises:
        ValueError, FileNotFoundError: as for `page_target`.
        OSError: it can't be written; nothing is left behind.
    """
    write_whole(page_target(path), text)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a file of any kind in the same way.

    Raises:
        FileNotFoundError: the folder does not exist.
        OSError: it can't be written; nothing is left behind.
    """
    target = _in_folder(Path(path))
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
