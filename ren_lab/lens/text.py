"""Everything that lens shows, as text for a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ren_lab.ir import BufferId, Node, Op, format_arg
from ren_lab.lens.captions import second_line
from ren_lab.lens.provenance import Origin
from ren_lab.lens.theme import format_count, format_origin, format_seconds, format_share
from ren_lab.schedule import ScheduledKernel

if TYPE_CHECKING:
    from ren_lab.lens.recorder import Recording
    from ren_lab.lens.records import KernelRecord, PassRecord
    from ren_lab.lens.trace import ScheduleView, Trace

_MOST_ROWS = 40
_MOST_REWRITES = 20


def expression(node: Node, depth: int = 3) -> str:
    """A node and what is under it, `depth` operations deep: "INTT(NTT(in0))". Storage is called by its label."""
    if node.op in (Op.BUFFER, Op.RANDOM):
        return str(node.arg.label)
    if node.op is Op.CONST:
        return str(node.arg.value)
    if node.op is Op.KERNEL:
        return f"KERNEL {node.arg.name}"
    if node.op is Op.AS_RING and node.src[0].op in (Op.BUFFER, Op.CONST, Op.RANDOM):
        return expression(node.src[0], depth)
    argument = ""
    if isinstance(node.arg, int | str) or node.op is Op.RESCALE:
        argument = f"[{format_arg(node.arg)}]"
    if not node.src:
        return f"{node.op.name}{argument}"
    if depth <= 0:
        return f"{node.op.name}{argument}(…)"
    shown = [expression(source, depth - 1) for source in node.src[:4]]  # at most 4^depth terms
    return f"{node.op.name}{argument}({', '.join(shown)}{', …' if len(node.src) > 4 else ''})"


def brief(value: object) -> str:
    """A node as an expression two operations deep; anything else as text of at most 60 characters."""
    return expression(value, 2) if isinstance(value, Node) else _clip(" ".join(str(value).split()), 60)


def headline(node: Node) -> str:
    """One line about one node: what it does and the shortest thing that an expert asks for, such as "MUL n=2^13 × 8 limbs"."""
    return f"{node.op.name} {second_line(node)}".rstrip()


def sentence(text: str) -> str:
    """The text with a full stop, unless it ends in one or in an ellipsis."""
    return text if text.endswith((".", "…")) else f"{text}."


def lines_text(lines: Sequence[Origin], most: int = 6) -> str:
    """Source lines as people call them, at most `most`, by file: "a.py:3,7 b.py:2 and 4 more"."""
    files: dict[str, list[str]] = {}
    for origin in lines[:most]:
        file, _, number = format_origin(origin).rpartition(":")
        files.setdefault(file, []).append(number)
    told = " ".join(f"{file}:{','.join(numbers)}" for file, numbers in files.items())
    return f"{told} and {len(lines) - most} more" if len(lines) > most else told


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _columns(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset(), indent: str = "  ") -> list[str]:
    """Rows as aligned lines; the columns numbered in `right` stand to the right. Shorter rows are padded."""
    count = max(map(len, rows), default=0)
    padded = [[*row, *[""] * (count - len(row))] for row in rows]
    widths = [max(len(row[column]) for row in padded) for column in range(count)]
    return [
        (indent + "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths)))).rstrip()
        for row in padded
    ]


# passes


def pass_text(record: "PassRecord") -> str:
    """A pass: what it did, the rules that fired with their equations, and the graph after it."""
    out = [record.sentence]
    for fired in record.rewrites[:_MOST_REWRITES]:
        out.append(f"  {fired.rule}: {fired.equation}")
        out.append(f"      {_clip(expression(fired.old), 100)}  →  {_clip(expression(fired.new), 100)}")
    hidden = len(record.rewrites) - _MOST_REWRITES
    if hidden > 0:
        out.append(f"  … and {format_count(hidden, 'more rewrite')} in .rewrites")
    if record.dropped_rewrites:
        out.append(f"  … and {format_count(record.dropped_rewrites, 'rewrite')} that the recorder did not keep")
    return "\n".join([*out, str(record.after)])


def passes_text(passes: Sequence["PassRecord"]) -> str:
    """A table of passes: nodes before and after, added, removed, changed, rewrites and time."""
    rows = [["", "pass", "nodes", "+", "−", "~", "rewrites", "time"]]
    for record in passes:
        nodes = f"{len(record.before.toposort())} → {len(record.after.toposort())}"
        counts = [str(len(nodes) or "") for nodes in (record.added, record.removed, record.changed)]
        fired = len(record.rewrites) + record.dropped_rewrites
        what = ["", "", "", "quiet"] if record.quiet else [*counts, str(fired)]
        rows.append([str(record.number), record.name, nodes, *what, format_seconds(record.seconds)])
    return "\n".join(_columns(rows, frozenset({0, 2, 3, 4, 5, 6, 7})))


# schedules and kernels


def buffers_text(item: ScheduledKernel) -> str:
    """What an item writes and reads: "t0 ← in0, in1"."""

    def names(buffers: Sequence[BufferId]) -> str:
        told = ", ".join(b.label for b in buffers[:4])
        return f"{told} and {len(buffers) - 4} more" if len(buffers) > 4 else told

    return f"{names(item.outputs)} ← {names(item.inputs)}" if item.inputs else names(item.outputs)


def item_line(item: ScheduledKernel) -> str:
    """An item of a schedule in one short line: "mul_3x8192: t0 ← in0, in1 on cpu"."""
    return f"{item.name}: {_clip(buffers_text(item), 60)} on {item.device}"


def schedule_headline(items: Sequence[ScheduledKernel]) -> str:
    """How many items of which sort: "7 items: 5 kernels, 1 copy, 1 view"."""
    kinds = [item.kind if item.ast is None else "kernel" for item in items]
    counts = [(kinds.count(kind), kind, plural) for kind, plural in (("kernel", "kernels"), ("copy", "copies"), ("view", "views"))]
    told = ", ".join(format_count(count, kind, plural) for count, kind, plural in counts if count)
    return f"{format_count(len(items), 'item')}: {told or 'nothing to run'}"


def schedule_text(schedule: "ScheduleView", most: int | None = None) -> str:
    """A schedule, one line per item: position, name, buffers, device, time, the user's lines."""
    if schedule.schedule is None:
        return "no schedule: the compilation broke off before it"
    lines = schedule.lines
    shown = len(schedule) if most is None else most
    devices = {item.device for item in schedule}
    rows = []
    for position, item in enumerate(schedule[:shown]):
        seconds = schedule.seconds[position]
        rows.append(
            [
                str(position), item.name, _clip(buffers_text(item), 60), item.device if len(devices) > 1 else "",
                "" if seconds is None else format_seconds(seconds), lines_text(lines[position]),
            ]
        )  # fmt: skip
    if not any(row[3] for row in rows):
        rows = [row[:3] + row[4:] for row in rows]
    if not any(row[-2] for row in rows):
        rows = [row[:-2] + row[-1:] for row in rows]
    out = [f"schedule of {schedule_headline(schedule)}", *_columns(rows, frozenset({0}))]
    if len(schedule) > shown:
        out.append(f"  … and {format_count(len(schedule) - shown, 'more item')}: print(trace.schedule)")
    return "\n".join(out)


def kernel_text(kernel: "KernelRecord") -> str:
    """A kernel: its buffers, its time, the user's lines, and its program."""
    head = f"kernel {kernel.index}, {kernel.name}: {buffers_text(kernel.item)} on {kernel.device}"
    if kernel.seconds is not None:
        head += f", {format_seconds(kernel.seconds)}"
    if kernel.lines:
        head += f", from {lines_text(kernel.lines, 12)}"
    return f"{head}\n{kernel.source}"


# traces


_OUTCOME = {True: "hit, ", False: "miss, ", None: ""}


def trace_headline(trace: "Trace") -> str:
    """A trace in one sentence; asks nothing that needs work."""
    parts = []
    if trace.jit is not None:
        parts.append(f"ren.jit {trace.jit.function}: {_OUTCOME[trace.jit.hit]}{trace.jit.why}")
    if trace.program is not None:
        parts.append(schedule_headline(trace.program.schedule.items))
        if trace.jit is None or trace.jit.hit is False:
            how = "fetched from the schedule cache" if trace.cached else "compiled"
            parts.append(f"{how} in {format_seconds(trace.seconds.compile)}")
    if trace.error is not None:
        parts.append(f"broke off: {trace.error}")
    elif trace.seconds.run is None:
        parts.append("not run")
    else:
        parts.append(f"ran in {format_seconds(trace.seconds.run)}")
    return "; ".join(parts)


def trace_text(trace: "Trace") -> str:
    """A trace: headline, table of passes, schedule, memory."""
    out = [trace_headline(trace)]
    if trace.passes:
        again = " (as they would run; the schedule came out of the cache)" if trace.cached else ""
        out += [f"passes{again}", passes_text(trace.passes)]
    if trace.error is not None:
        out += [f"{trace.error.kind or 'broken off'} {trace.error.where}", *(f"  {m}" for m in trace.error.message.splitlines())]
    if trace.program is not None:
        out.append(schedule_text(trace.schedule, _MOST_ROWS))
    if trace.memory is not None:
        out.append(memory_text(trace.memory))
    return "\n".join(out)


def memory_text(memory: object) -> str:
    """The first lines of a memory plan, without its table of buffers."""
    lines = str(memory).splitlines()
    table = next((i for i, line in enumerate(lines) if line.startswith("buffer ")), len(lines))
    return "\n".join(lines[:table])


# recordings


def recording_headline(recording: "Recording") -> str:
    """A recording in one sentence."""
    parts = [format_count(recording.count, "realization")]
    if recording.failed:
        parts.append(f"{recording.failed:,} broke off")
    if recording.count:
        seconds = recording.seconds
        parts.append(f"compiling took {format_seconds(seconds.compile)}, running {format_seconds(seconds.run or 0.0)}")
    if recording.dropped:
        parts.append(recording.dropped)
    return "; ".join(parts)


def recording_text(recording: "Recording") -> str:
    """A recording: headline, one line per realization, time per kernel name."""
    out = [recording_headline(recording)]
    traces = recording.realizations
    shown = traces[-_MOST_ROWS:]
    first = recording.count - len(shown)
    if len(traces) > len(shown):
        out.append(f"  … {format_count(len(traces) - len(shown), 'earlier realization')} in .realizations")
    out += _columns([[str(first + i), trace_headline(trace)] for i, trace in enumerate(shown)], frozenset({0}))
    totals = recording.totals
    if totals:
        rows = [["kernel", "calls", "time", "share"]]
        rows += [[t.name, f"{t.calls:,}", format_seconds(t.seconds), format_share(t.share)] for t in totals[:_MOST_ROWS]]
        out += ["time per kernel", *_columns(rows, frozenset({1, 2, 3}))]
        if len(totals) > _MOST_ROWS:
            out.append(f"  … and {format_count(len(totals) - _MOST_ROWS, 'more name')} in .totals")
    return "\n".join(out)
