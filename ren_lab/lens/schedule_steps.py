"""The states of a schedule stepper: item by item through a schedule, with its place in the graph and the arena beside it."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from ren_lab.lens import theme
from ren_lab.lens.drawing import draw, open_svg
from ren_lab.lens.layout import lay_out
from ren_lab.lens.picture import GraphView
from ren_lab.lens.plain import attempt, graph_text
from ren_lab.lens.stepping import LINES_SHOWN, Frame, Section, section, state, within
from ren_lab.lens.text import lines_text, schedule_headline, sentence
from ren_lab.lens.theme import format_bytes, format_count, format_seconds, format_share

if TYPE_CHECKING:
    from ren_lab.lens.trace import Trace

_WIDTH, _HEIGHT, _LEFT, _TOP = 600.0, 130.0, 62.0, 22.0  # of an arena's picture, in pixels
_CHARACTER, _INSET = 6.2, 3.5
_BUFFERS_TOLD = 12
_FOLD_ABOVE = 160  # vertices of the schedule's graph


class ScheduleSteps:
    """A `lens.stepping.StepSource` over the items of a schedule. Step k is the moment at which item k runs.

    Args:
        trace: a `Trace`, a recording (its last realization is taken), or an exception that carries a trace.
    """

    def __init__(self, trace: Any) -> None:
        trace = getattr(trace, "trace", trace) if isinstance(trace, BaseException) else trace
        realizations = getattr(trace, "realizations", None)
        if realizations is not None:
            if not realizations:
                raise ValueError("the recording is empty; realize something inside `with ren.trace() as recording:`")
            trace = realizations[-1]
        if not hasattr(trace, "schedule") or not hasattr(trace, "units"):
            raise TypeError(f"a {type(trace).__name__} has no schedule; give a Trace or a Recording")
        self.trace: Trace = trace
        self._items = list(trace.schedule)
        self._lines = trace.schedule.lines
        self._seconds = list(trace.schedule.seconds)
        self._memory: dict[str, Any] = trace.memory.to_dict() if trace.memory is not None else {}
        self._kernels = {kernel.index: kernel for kernel in trace.kernels}
        self._texts: dict[Any, tuple[str, Any]] = {}

    @property
    def count(self) -> int:
        """How many items there are."""
        return len(self._items)

    @cached_property
    def _view(self) -> GraphView | None:
        if not self._items:
            return None
        from ren_lab.lens.schedule_view import schedule_graph

        schedule = self.trace.schedule
        assert schedule.schedule is not None
        timed = schedule.seconds if any(s is not None for s in schedule.seconds) else None
        view = schedule_graph(schedule.schedule, seconds=timed, lines=schedule.lines, fold_above=_FOLD_ABOVE)
        short = (replace(edge, label=edge.label.partition(" ·")[0]) for edge in view.edges)  # sizes are in the details
        return replace(view, edges=tuple(short))

    @cached_property
    def _home(self) -> dict[str, str]:
        """The vertex that shows each vertex of the unfolded graph, by key."""
        assert self._view is not None
        return {**{v.key: v.key for v in self._view.vertices}, **self._view.keys}

    @cached_property
    def outline(self) -> dict[str, Any]:
        longest = max((s for s in self._seconds if s is not None), default=0.0)
        error = self.trace.error
        states = []
        for index, item in enumerate(self._items):
            seconds = self._seconds[index]
            broke = error is not None and error.stage == "unit" and error.number == index
            note = item.kind if item.name != item.kind else ""
            if seconds is not None:
                note = format_seconds(seconds)
            share = seconds / longest if seconds is not None and longest else None
            states.append(state(f"{index} {item.name}", "broke off" if broke else note, alert=broke, bar=share))
        pictures = _arenas(self._memory) if self._memory.get("rectangles") else []
        pictures += [] if self._view is None else [draw(self._view, lay_out([self._view]))]
        start = error.number if error is not None and error.stage == "unit" else None
        title = f"Schedule of {schedule_headline(self._items)}" if self._items else "Nothing to run"
        if self.trace.memory is not None and self._memory.get("title"):
            title += f". {self._memory['title']}"
        return {
            "kind": "schedule", "title": title, "what": "item", "states": states, "folds": [], "pictures": pictures,
            "start": within(start or 0, self.count),
        }  # fmt: skip

    def frame(self, step: int, rewrite: int = 0, fold: str = "", focus: str = "") -> Frame:
        """One state as plain data; see `lens.stepping`. There is nothing smaller than an item, and one way to fold."""
        frame: Frame = {"sentence": self._sentence(step), "pictures": [], "patch": {}, "sections": [], "lines": []}
        error = self.trace.error
        if error is not None and (not self._items or error.stage != "unit" or error.number == step):
            frame["sections"].append(section("", warning=f"{error}\n{error.message}"))
        if not self._items:
            return frame
        step = within(step, self.count)
        frame["patch"] = self._patch(step)
        frame["sections"] += [section(f"Item {step}, {self._items[step].name}", rows=self._rows(step)), *self._live_section(step)]
        body, source = self._program(step)
        if source:
            frame["sections"].append(section("Source", text=source))
        if body:
            lines = body.splitlines()
            frame["lines"] = [["", "", line] for line in lines[:LINES_SHOWN]]
            if len(lines) > LINES_SHOWN:
                frame["lines"].append(["", "", f"… and {format_count(len(lines) - LINES_SHOWN, 'more line')}"])
        return frame

    def card(self, key: str, step: int, rewrite: int = 0, fold: str = "", focus: str = "") -> list[Section]:
        """What is known of an item or a buffer, wherever the stepper stands."""
        if key.startswith("item") and key[4:].isdigit() and int(key[4:]) < self.count:
            index = int(key[4:])
            return [section(f"Item {index}, {self._items[index].name}", rows=self._rows(index))]
        name = key.removeprefix("buffer-")
        for row in (*self._memory.get("rectangles", ()), *self._memory.get("unplanned", ())):
            if row["name"].replace(":", "-") == name:
                return [section(f"Buffer {row['name']}", rows=_buffer_rows(row))]
        vertex = next((v for v in (self._view.vertices if self._view else ()) if v.key == key), None)
        if vertex is None:
            return []
        rows = [("shows", vertex.second.replace("\n", "; ")), *(("", told) for told in vertex.details)]
        return [section(vertex.op, rows=rows + ([("lines", ", ".join(vertex.lines))] if vertex.lines else []))]

    # one state

    def _sentence(self, step: int) -> str:
        error = self.trace.error
        if not self._items:
            return f"There is no schedule: {error}" if error is not None else "Nothing to run: every output is there already."
        step = within(step, self.count)
        item = self._items[step]
        told = f"Item {step} of {self.count}, {item.name}"
        reads = ", ".join(b.label for b in item.inputs[:4]) + (", …" if len(item.inputs) > 4 else "")
        told += f": fills {' and '.join(b.label for b in item.outputs)}" + (f" from {reads}" if reads else "")
        seconds = self._seconds[step]
        if seconds is not None:
            total = sum(s for s in self._seconds if s is not None)
            told += f", took {format_seconds(seconds)}" + (f", {format_share(seconds / total)} of all" if total else "")
        if self._memory.get("running_total"):
            live = self._memory["running_total"][step]
            peak = self._memory["peak"]["bytes"]
            told += f"; {format_bytes(live)} live in the arena" + (f", the peak is {format_bytes(peak)}" if peak else "")
        if error is not None and error.stage == "unit" and error.number == step:
            told += f". It broke off here: {error.kind}"
        return sentence(told)

    def _rows(self, index: int) -> list[tuple[str, str]]:
        item = self._items[index]
        rows = [("kind", item.kind if item.ast is not None else f"{item.kind}, a light item"), ("device", item.device)]
        rows += [("writes", f"{b.label}, {format_bytes(b.nbytes)}") for b in item.outputs]
        rows += [("reads", f"{b.label}, {format_bytes(b.nbytes)}") for b in dict.fromkeys(item.inputs)][:_BUFFERS_TOLD]
        seconds = self._seconds[index]
        if seconds is not None:
            total = sum(s for s in self._seconds if s is not None)
            rows.append(("time", f"{format_seconds(seconds)}{f', {format_share(seconds / total)} of all' if total else ''}"))
        elif self.trace.seconds.run is not None:
            rows.append(("time", "did not run"))
        lines = self._lines[index]
        if lines:
            rows.append(("lines", lines_text(lines, 12)))
        return rows

    def _live(self, step: int) -> list[Mapping[str, Any]]:
        rows = self._memory.get("rectangles", ())
        return [row for row in rows if row["first"] <= step <= row["last"]]

    def _live_section(self, step: int) -> list[Section]:
        live = sorted(self._live(step), key=lambda row: -row["nbytes"])
        if not self._memory:
            return []
        rows = [(row["name"], f"{format_bytes(row['nbytes'])} at {format_bytes(row['offset'])}") for row in live[:_BUFFERS_TOLD]]
        if len(live) > _BUFFERS_TOLD:
            rows.append(("…", f"and {format_count(len(live) - _BUFFERS_TOLD, 'more')}"))
        return [section(f"Live in the arena: {format_count(len(live), 'buffer')}", rows=rows)]

    def _patch(self, step: int) -> dict[str, dict[str, Any]]:
        item = self._items[step]
        patch: dict[str, dict[str, Any]] = {}
        for index in range(step + 1, self.count):
            patch[self._home[f"item{index}"]] = {"class": "later"}
        for index in range(step):
            patch.setdefault(self._home[f"item{index}"], {"class": "done"})
        for row in self._live(step):
            patch[f"arena-{row['name']}"] = {"class": "live"}
        for buffer, what in (*((read, "reads") for read in item.inputs), *((filled, "writes") for filled in item.outputs)):
            patch[self._vertex(buffer.label)] = {"class": what}
            if f"arena-{buffer.label}" in patch:
                patch[f"arena-{buffer.label}"] = {"class": f"live {what}"}
        patch[self._home[f"item{step}"]] = {"class": "now"}
        if self._memory.get("positions"):
            for number in range(len(self._memory["devices"])):
                patch[f"cursor-{number}"] = {"transform": f"translate({_x(step, self._memory['positions']):.1f},0)"}
        return patch

    def _vertex(self, label: str) -> str:
        """The key of the vertex that shows a buffer, if one does."""
        key = f"buffer-{label.replace(':', '-')}"
        return self._home.get(key, key)

    def _program(self, step: int) -> tuple[str, str]:
        """The kernel's body and its program; several kernels share one."""
        kernel = self._kernels.get(step)
        if kernel is None:
            return "", ""
        known = self._texts.get((kernel.device, kernel.ast))
        if known is None:
            source = attempt(lambda: kernel.source)
            if isinstance(source, dict):
                source = f"no source: {source['failed']}"
            known = self._texts[kernel.device, kernel.ast] = graph_text(kernel.ast), source
        return known


# the arena


def _x(position: int, positions: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - 10) * position / max(positions, 1)


def _arenas(memory: Mapping[str, Any]) -> list[str]:
    return [_arena(memory, number, device) for number, device in enumerate(memory["devices"])]


def _arena(memory: Mapping[str, Any], number: int, device: Mapping[str, Any]) -> str:
    """One device's arena: a rectangle for each buffer, over the positions of the schedule, at its offset."""
    positions, top = memory["positions"], max(device["arena_bytes"], max(device["extent_bytes"], default=0), 1)
    column = (_WIDTH - _LEFT - 10) / max(positions, 1)
    bottom = _TOP + _HEIGHT

    def y(offset: float) -> float:
        return bottom - _HEIGHT * offset / top

    title = f"Arena of {device['device']}, {format_bytes(device['arena_bytes'])}"
    out = [open_svg(_WIDTH, bottom + 34, title).replace('"ren-graph"', '"ren-graph ren-arena"')]
    out.append(f'<text class="o" style="text-anchor:start" x="{_LEFT}" y="14">{escape(title)}</text>')
    for share in (0.0, 0.5, 1.0):
        height = y(top * share)
        out.append(f'<path class="axis" d="M{_LEFT - 4},{height:.1f}h4"/>')
        told = format_bytes(round(top * share)) if share else "0"
        out.append(f'<text style="text-anchor:end" x="{_LEFT - 7}" y="{height + 3.5:.1f}">{told}</text>')
    out.append(f'<path class="axis" d="M{_LEFT},{_TOP}V{bottom}H{_WIDTH - 10}"/>')
    out.append(
        f'<g class="cursor" data-key="cursor-{number}" transform="translate({_LEFT},0)">'
        f'<rect y="{_TOP}" width="{max(column, 2):.1f}" height="{_HEIGHT + 8}"/></g>'
    )
    for row in memory["rectangles"]:
        if row["device"] == device["device"]:
            out.append(_buffer(row, positions, column, y(row["offset"] + row["nbytes"]), y(row["offset"])))
    bound = y(device["lower_bound_bytes"])
    told = f"lower bound {format_bytes(device['lower_bound_bytes'])}"
    out.append(f'<path class="bound" d="M{_LEFT},{bound:.1f}H{_WIDTH - 10}"><title>{told}</title></path>')
    every = max(1, -(-positions // 12))
    for position in range(0, positions, every):
        out.append(f'<text x="{_x(position, positions) + column / 2:.1f}" y="{bottom + 14}">{position}</text>')
    out.append(f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{bottom + 29}">position in the schedule; dashed: lower bound</text></svg>')
    return "".join(out)


def _buffer(row: Mapping[str, Any], positions: int, column: float, upper: float, lower: float) -> str:
    """A buffer's rectangle; one in the NTT domain has a double border, as its node has."""
    role = theme.role_of("", row["domain"]) if row["domain"] else "buffer"
    x, wide, high = _x(row["first"], positions), column * (row["last"] - row["first"] + 1), lower - upper

    def rectangle(name: str, inset: float) -> str:
        size = f'width="{max(wide - 2 * inset, 1):.1f}" height="{max(high - 2 * inset, 1):.1f}"'
        return f'<rect class="{name}" x="{x + inset:.1f}" y="{upper + inset:.1f}" {size}/>'

    shape = rectangle("s", 0.7)
    if theme.ROLES[role].border == "double" and min(wide, high) > 4 * _INSET:
        shape += rectangle("i", _INSET)
    label = ""
    if high >= 12 and wide >= _CHARACTER * len(row["name"]) + 4:
        label = f'<text x="{x + wide / 2:.1f}" y="{(upper + lower) / 2 + 3.5:.1f}">{escape(row["name"])}</text>'
    keys = f'data-key="arena-{escape(row["name"])}" data-select="buffer-{escape(row["name"].replace(":", "-"))}"'
    told = f"{row['name']}: {'; '.join(' '.join(pair) for pair in _buffer_rows(row))}"
    return f'<g class="v role-{role}" {keys}><title>{escape(told)}</title>{shape}{label}</g>'


def _buffer_rows(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("size", format_bytes(row["nbytes"])), ("live", f"items {row['first']} to {row['last']}"), ("device", row["device"])]
    if row.get("domain"):
        rows.append(("domain", row["domain"]))
    if row.get("offset") is not None:
        rows.append(("offset", f"{row['offset']:,} bytes"))
    return rows + ([("not planned", row["reason"])] if row.get("reason") else [])


__all__ = ["ScheduleSteps"]
