"""The memory plan as plain data and as a plot: one rectangle per buffer, its live range wide, its size high, at its offset.

Positions are those of the schedule. A buffer is live from the beginning of its first item to the end of its last, so a
rectangle reaches from `first - 1/2` to `last + 1/2`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ren_lab.lens import theme as themes
from ren_lab.lens.schedule_view import buffer_domains
from ren_lab.lens.theme import format_bytes, format_count, format_share
from ren_lab.memory import MemoryPlan, PlannedBuffer
from ren_lab.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_INCHES = 9.0  # 900 pixels at 100 dots per inch
_DPI = 100
_ROLES = ("coefficient", "ntt", "buffer")
_NAMED = 12  # buffers of the live set that are named
_NAME_LENGTH = 18
_LABELS = 150  # rectangles that are labelled
_FONT_SIZE = 8.0  # points
_CHARACTER_PIXELS = 0.68 * _FONT_SIZE * _DPI / 72  # average width, on the generous side
_LINE_PIXELS = 1.5 * _FONT_SIZE * _DPI / 72
_SLIM_PIXELS = 3.0
_INSET_PIXELS = 3.0  # from the outer to the inner border of a buffer in the NTT domain


def memory_dict(plan: MemoryPlan, schedule: Schedule | None = None) -> dict[str, Any]:
    """What the plot shows, as numbers, strings, lists and dictionaries. Sizes and offsets are in bytes.

    Returns a dictionary with
        title: the finding, in a sentence;
        positions: how many positions the schedule has;
        rectangles: the planned buffers (`name`, `device`, `first`, `last`, `offset`, `nbytes`, `domain` or None, `at_peak`);
        unplanned: the others, with `reason` instead of an offset;
        devices: for each arena `device`, `arena_bytes`, `lower_bound_bytes`, `position` of its peak, `live` at it (names,
            largest first), `live_bytes` and `extent_bytes` by position, `strategy`;
        peak: `bytes`, `position`, `kernel` there or None, `live` (names and sizes, largest first);
        lower_bound_bytes, overhead, unplanned_bytes: as in the plan;
        outside_bytes: the sum of the buffers outside the arenas;
        running_total: live bytes of planned buffers by position;
        fragmentation: the share of the occupied extent that is not live at the peak, 0 to 1;
        wasted_bytes: the same in bytes.
    """
    domains = {} if schedule is None else buffer_domains(schedule)
    last = max((buffer.last for buffer in plan.buffers), default=-1)
    positions = max(last + 1, 0 if schedule is None else len(schedule.items))
    peak = plan.peak_position
    devices = [_device_dict(plan, device, positions) for device in plan.arenas]
    extents = [sum(device["extent_bytes"][p] for device in devices) for p in range(positions)]
    running = [sum(device["live_bytes"][p] for device in devices) for p in range(positions)]
    at_peak = [] if peak is None else _largest_first(plan.live_at(peak))
    kernel = None
    if schedule is not None and peak is not None and peak < len(schedule.items):
        kernel = schedule.items[peak].name

    def domain(buffer: PlannedBuffer) -> str | None:
        found = domains.get(buffer.name)
        return None if found is None else found.name

    def common(buffer: PlannedBuffer) -> dict[str, Any]:
        return {
            "name": buffer.name, "device": buffer.device, "first": buffer.first, "last": buffer.last, "nbytes": buffer.nbytes,
            "domain": domain(buffer),
        }  # fmt: skip

    live = {buffer.name for buffer in at_peak}
    wasted = 0 if peak is None else extents[peak] - running[peak]
    return {
        "title": _title(plan, kernel),
        "positions": positions,
        "rectangles": [{**common(b), "offset": b.offset, "at_peak": b.name in live} for b in plan.planned],
        "unplanned": [{**common(b), "reason": b.reason} for b in plan.unplanned],
        "devices": devices,
        "peak": {
            "bytes": plan.peak_bytes,
            "position": peak,
            "kernel": kernel,
            "live": [{"name": b.name, "device": b.device, "nbytes": b.nbytes} for b in at_peak],
        },
        "lower_bound_bytes": plan.lower_bound_bytes,
        "overhead": plan.overhead,
        "unplanned_bytes": plan.unplanned_bytes,
        "outside_bytes": sum(b.nbytes for b in plan.unplanned),
        "running_total": running,
        "fragmentation": wasted / extents[peak] if peak is not None and extents[peak] else 0.0,
        "wasted_bytes": wasted,
    }


def _role(row: Mapping[str, Any]) -> str:
    """The role of a buffer: that of its domain, if it has one."""
    return themes.role_of("", row["domain"]) if row["domain"] else "buffer"


def _largest_first(buffers: Iterable[PlannedBuffer]) -> list[PlannedBuffer]:
    return sorted(buffers, key=lambda b: (-b.nbytes, b.first, b.name))


def _device_dict(plan: MemoryPlan, device: str, positions: int) -> dict[str, Any]:
    here = [buffer for buffer in plan.planned if buffer.device == device]
    live = _by_position(((b.first, b.last, b.nbytes) for b in here), positions)
    extent = _extents(here, positions)
    top = max(extent)
    # of equal extents the fullest position, of those the first
    position = max(range(positions), key=lambda p: (extent[p] == top, live[p], -p))
    return {
        "device": device,
        "arena_bytes": plan.arenas[device],
        "lower_bound_bytes": max(live),
        "position": position,
        "live": [b.name for b in _largest_first(b for b in here if b.first <= position <= b.last)],
        "live_bytes": live,
        "extent_bytes": extent,
        "strategy": plan.strategies.get(device, ""),
    }


def _by_position(ranges: Iterable[tuple[int, int, int]], positions: int) -> list[int]:
    """The sum of the values whose range holds each position."""
    change = [0] * (positions + 1)
    for first, last, value in ranges:
        change[first] += value
        change[last + 1] -= value
    return list(accumulate(change))[:positions]


def _extents(buffers: Sequence[PlannedBuffer], positions: int) -> list[int]:
    """The end of the highest live buffer at each position: the highest buffers first, each fills what is still open."""
    extent = [0] * positions
    after = list(range(positions + 1))  # the next position that is still open, with paths halved on the way

    def open_from(position: int) -> int:
        while after[position] != position:
            after[position] = after[after[position]]
            position = after[position]
        return position

    for buffer in sorted(buffers, key=lambda b: -(b.end or 0)):
        position = open_from(buffer.first)
        while position <= buffer.last:
            extent[position] = buffer.end or 0
            after[position] = position + 1
            position = open_from(position)
    return extent


def _title(plan: MemoryPlan, kernel: str | None) -> str:
    if plan.peak_position is None:
        if not plan.buffers:
            return "Nothing to plan: the schedule uses no buffers"
        return f"Nothing planned: {format_count(len(plan.buffers), 'buffer')}, none in an arena"
    above = plan.overhead - 1
    bound = f"{format_share(above)} above the lower bound" if above > 0 else "which is the lower bound"
    where = f"kernel {plan.peak_position}" + (f" ({kernel})" if kernel else "")
    several = f" over {len(plan.arenas)} devices" if len(plan.arenas) > 1 else ""
    return f"Peak {format_bytes(plan.peak_bytes)}{several} at {where}, {bound}"


def plot_memory(plan: MemoryPlan, schedule: Schedule | None = None, theme: str = "light") -> "Figure":
    """The plan as a matplotlib Figure, 900 pixels wide: an axes for each arena, and below one for the buffers outside.

    Args:
        plan: what to draw.
        schedule: gives the buffers the colours of their domains and the peak the name of its kernel.
        theme: "light" or "dark".
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    look = themes.theme(theme)
    data = memory_dict(plan, schedule)
    with rc_context({"font.family": themes.PLOT_FONT, "font.size": _FONT_SIZE, "hatch.linewidth": 0.5, "axes.linewidth": 0.6}):
        if not plan.buffers:
            figure = Figure(figsize=(_WIDTH_INCHES, 1.2), dpi=_DPI, facecolor=look["background"])
            figure.text(0.5, 0.5, data["title"], ha="center", va="center", color=look["ink"], fontsize=10)
            return figure
        return _Plot(data, look).figure


class _Plot:
    """The drawing of one plan. All places are in inches, so that nothing depends on how a canvas measures text."""

    LEFT, RIGHT, GUTTER, TOP, BOTTOM, GAP = 0.75, 2.05, 0.08, 0.62, 0.5, 0.38

    def __init__(self, data: Mapping[str, Any], look: themes.Theme) -> None:
        from matplotlib.figure import Figure

        self.data, self.look = data, look
        devices, outside = data["devices"], data["unplanned"]
        heights = [3.3 if len(devices) == 1 else 2.4] * len(devices) + ([1.3] if outside else [])
        height = self.TOP + sum(heights) + self.GAP * (len(heights) - 1) + self.BOTTOM
        figure = self.figure = Figure(figsize=(_WIDTH_INCHES, height), dpi=_DPI, facecolor=look["background"])
        self.width = _WIDTH_INCHES - self.LEFT - self.RIGHT
        figure.text(0.12 / _WIDTH_INCHES, 1 - 0.2 / height, data["title"], color=look["ink"], va="center",
                    fontsize=min(11, 1050 / len(data["title"])), weight="bold")  # fmt: skip
        self._key(1 - 0.44 / height, 0.1 / height)

        shared = None
        below = height - self.TOP
        for index, tall in enumerate(heights):
            below -= tall
            place = (self.LEFT / _WIDTH_INCHES, below / height, self.width / _WIDTH_INCHES, tall / height)
            axes = figure.add_axes(place, sharex=shared, facecolor=look["background"])
            shared = shared or axes
            self.tall = tall
            self._dress(axes, last=index == len(heights) - 1)
            if index < len(devices):
                self._arena(axes, devices[index], named=len(devices) > 1)
            else:
                self._outside(axes)
            below -= self.GAP

    def _key(self, y: float, high: float) -> None:
        """What the colours and borders mean, those that occur, in a line from the left edge of the axes; figure fractions."""
        from matplotlib.patches import Rectangle

        rows = [*self.data["rectangles"], *self.data["unplanned"]]
        meanings = {"coefficient": "coefficients", "ntt": "NTT values", "buffer": "plain words"}
        if all(_role(row) == "buffer" for row in rows):  # nothing is known of domains
            return
        x = self.LEFT / _WIDTH_INCHES
        for role in _ROLES:
            if not any(_role(row) == role for row in rows):
                continue
            colour = themes.ROLES[role].colour
            pen: dict[str, Any] = {"facecolor": self.look[f"{colour}_tint"], "edgecolor": self.look[colour], "linewidth": 0.9}
            self.figure.add_artist(Rectangle((x, y - high / 2), 0.2 / _WIDTH_INCHES, high, **pen))
            if themes.ROLES[role].border == "double":
                inset_x, inset_y = _INSET_PIXELS / _DPI / _WIDTH_INCHES, high * 0.27
                pen |= {"facecolor": "none", "linewidth": 0.6}
                self.figure.add_artist(
                    Rectangle((x + inset_x, y - high / 2 + inset_y), 0.2 / _WIDTH_INCHES - 2 * inset_x, high - 2 * inset_y, **pen)
                )
            self.figure.text(x + 0.27 / _WIDTH_INCHES, y, meanings[role], color=self.look["ink"], va="center")
            x += (0.27 + len(meanings[role]) * _CHARACTER_PIXELS / _DPI + 0.2) / _WIDTH_INCHES

    def _dress(self, axes: "Axes", last: bool) -> None:
        from matplotlib.ticker import MaxNLocator

        look = self.look
        axes.set_xlim(-0.5, max(self.data["positions"], 1) - 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
        axes.tick_params(colors=look["muted"], labelcolor=look["ink"], length=3, labelbottom=last)
        for side, spine in axes.spines.items():
            spine.set_color(look["muted"])
            spine.set_visible(side in ("left", "bottom"))
        if last:
            axes.set_xlabel("position in the schedule (kernel)", color=look["ink"])

    def _scale(self, axes: "Axes", top: float, what: str) -> None:
        """Bytes upwards from 0 to `top`, with ticks at round numbers of a binary unit."""
        from matplotlib.ticker import FixedLocator, FuncFormatter

        axes.set_ylim(0, top)
        step = 1.0
        while top / step > 6:
            step *= 2
        axes.yaxis.set_major_locator(FixedLocator([step * i for i in range(int(top / step) + 1)]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(round(value)) if value else "0"))
        axes.set_ylabel(what, color=self.look["ink"])

    def _pixels(self, axes: "Axes") -> tuple[float, float]:
        """Pixels per position and per byte."""
        return self.width * _DPI / max(self.data["positions"], 1), self.tall * _DPI / axes.get_ylim()[1]

    def _rectangles(self, axes: "Axes", rows: Sequence[Mapping[str, Any]], hatched: bool) -> None:
        """One rectangle per row; the domain decides on colour and border."""
        from matplotlib.collections import PatchCollection
        from matplotlib.patches import Rectangle

        across, up = self._pixels(axes)
        for role in _ROLES:
            style = themes.ROLES[role]
            mine = [row for row in rows if _role(row) == role]
            boxes = [(row["first"] - 0.5, row["offset"], row["last"] - row["first"] + 1, row["nbytes"]) for row in mine]
            # The border of a slim box would hide what is inside, so it is filled with the full colour.
            for slim in (False, True):
                some = [Rectangle((x, y), w, h) for x, y, w, h in boxes if (min(w * across, h * up) < _SLIM_PIXELS) == slim]
                if some:
                    colour = self.look[style.colour]
                    fill = colour if slim else self.look[f"{style.colour}_tint"]
                    pen: dict[str, Any] = {"edgecolor": colour, "linewidth": 0.2 if slim else 0.9, "zorder": 2}
                    axes.add_collection(PatchCollection(some, facecolor=fill, **pen))
                    if hatched and not slim:  # on its own: in an SVG style sheets don't reach the ground of a hatching
                        axes.add_collection(PatchCollection(some, facecolor="none", hatch=themes.OUTSIDE_HATCH, **pen))
            inner = [
                Rectangle(
                    (x + _INSET_PIXELS / across, y + _INSET_PIXELS / up), w - 2 * _INSET_PIXELS / across, h - 2 * _INSET_PIXELS / up
                )
                for x, y, w, h in boxes
                if style.border == "double" and w * across > 4 * _INSET_PIXELS and h * up > 4 * _INSET_PIXELS
            ]
            if inner:
                line = self.look[style.colour]
                axes.add_collection(PatchCollection(inner, facecolor="none", edgecolor=line, linewidth=0.6, zorder=3))
        self._labels(axes, rows, hatched)

    def _labels(self, axes: "Axes", rows: Sequence[Mapping[str, Any]], hatched: bool) -> None:
        """The names of the buffers where they fit, the largest first."""
        across, up = self._pixels(axes)
        placed = 0
        for row in sorted(rows, key=lambda row: -(row["last"] - row["first"] + 1) * row["nbytes"]):
            width, height = (row["last"] - row["first"] + 1) * across - 8, row["nbytes"] * up - 4
            text = row["name"] if not hatched else f"{row['name']}: {row['reason']}"
            if hatched and len(text) * _CHARACTER_PIXELS > width:
                text = row["name"]
            if height < _LINE_PIXELS or len(text) * _CHARACTER_PIXELS > width:
                continue
            sized = f"{text} {format_bytes(row['nbytes'])}"
            if len(sized) * _CHARACTER_PIXELS <= width:
                text = sized
            behind = "background" if hatched else f"{themes.ROLES[_role(row)].colour}_tint"
            pad = {"boxstyle": "square,pad=0.15", "facecolor": self.look[behind], "edgecolor": "none"}
            axes.text(
                (row["first"] + row["last"]) / 2, row["offset"] + row["nbytes"] / 2, text, ha="center", va="center",
                color=self.look["ink"], bbox=pad, zorder=4,
            )  # fmt: skip
            placed += 1
            if placed == _LABELS:
                return

    def _arena(self, axes: "Axes", device: Mapping[str, Any], named: bool) -> None:
        look = self.look
        rows = [row for row in self.data["rectangles"] if row["device"] == device["device"]]
        size, bound = device["arena_bytes"], device["lower_bound_bytes"]
        self._scale(axes, size * 1.08, f"offset in the arena of {device['device']}" if named else "offset in the arena")
        self._rectangles(axes, rows, hatched=False)
        position = device["position"]
        frame: dict[str, Any] = {"facecolor": "none", "edgecolor": look["ink"], "linewidth": 0.9, "linestyle": ":", "zorder": 3.5}
        axes.axvspan(position - 0.5, position + 0.5, **frame)
        axes.plot([position], [size * 1.04], marker="v", color=look["ink"], markersize=5, zorder=5)
        self._line(axes, size, "-")
        if bound < size:
            self._line(axes, bound, "--")

        # Beside the arena: the values of the lines, as near to them as two texts may stand, then who is live at the peak.
        up = self._pixels(axes)[1]
        line = _LINE_PIXELS / up
        low = min(bound, size - line)
        self._beside(axes, size, f"peak {format_bytes(size)}" if bound < size else f"peak = bound {format_bytes(size)}", bold=True)
        if bound < size:
            self._beside(axes, low, f"lower bound {format_bytes(bound)}")
            below = low
        else:
            below = size
        sizes = {row["name"]: row["nbytes"] for row in rows}
        listed = [f"{_brief(name)}  {format_bytes(sizes[name])}" for name in device["live"]]
        free = int((self.tall * _DPI - (size * 1.08 - below) * up) / _LINE_PIXELS)
        head = f"live at kernel {position}: {format_bytes(device['live_bytes'][position])}"
        texts = [head, *_cut(listed, max(min(_NAMED, free - 3), 1))]
        axes.annotate(
            "\n".join(texts), (1, below / axes.get_ylim()[1]), (self.GUTTER * 72, -1.2 * _FONT_SIZE), xycoords="axes fraction",
            textcoords="offset points", va="top", ha="left", color=look["ink"], fontsize=_FONT_SIZE, linespacing=1.35,
            annotation_clip=False,
        )  # fmt: skip

    def _line(self, axes: "Axes", y: float, style: str) -> None:
        axes.axhline(y, color=self.look["ink"], linewidth=1.2, linestyle=style, zorder=5)

    def _beside(self, axes: "Axes", y: float, text: str, bold: bool = False) -> None:
        axes.annotate(
            text, (1, y / axes.get_ylim()[1]), (self.GUTTER * 72, 0), xycoords="axes fraction", textcoords="offset points",
            va="center", ha="left", color=self.look["ink"], fontsize=_FONT_SIZE, weight="bold" if bold else "normal",
            annotation_clip=False,
        )  # fmt: skip

    def _outside(self, axes: "Axes") -> None:
        """The buffers outside the arenas, stacked in the lowest free room: nothing here is shared."""
        rows = self.data["unplanned"]
        offsets, top = _stack(rows)
        self._scale(axes, top * 1.05, "outside")
        self._rectangles(axes, [{**row, "offset": offset} for row, offset in zip(rows, offsets, strict=True)], hatched=True)
        reasons: dict[str, list[int]] = {}
        for row in rows:
            reasons.setdefault(row["reason"], []).append(row["nbytes"])
        order = sorted(reasons.items(), key=lambda item: -sum(item[1]))
        texts = [f"{format_count(len(sizes))} {_brief(reason)}, {format_bytes(sum(sizes))}" for reason, sizes in order]
        free = int(self.tall * _DPI / _LINE_PIXELS)
        axes.annotate(
            "\n".join([f"outside, {format_bytes(self.data['outside_bytes'])}:", *_cut(texts, max(free - 2, 1))]), (1, 1),
            (self.GUTTER * 72, 0), xycoords="axes fraction", textcoords="offset points", va="top", ha="left",
            color=self.look["ink"], fontsize=_FONT_SIZE, linespacing=1.35, annotation_clip=False,
        )  # fmt: skip


def _brief(name: str) -> str:
    """A name that leaves room for a size beside the axes."""
    return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"


def _cut(texts: Sequence[str], most: int) -> list[str]:
    """At most `most` lines and one that counts the rest."""
    return list(texts) if len(texts) <= most + 1 else [*texts[:most], f"and {format_count(len(texts) - most)} more"]


def _stack(rows: Sequence[Mapping[str, Any]]) -> tuple[list[int], int]:
    """Heights at which to draw buffers one over the other, at each position in the order of first use; and the total height.

    A buffer stands on the running total of those before it that it meets, so nothing overlaps.
    """
    offsets = [0] * len(rows)
    live: list[tuple[int, int, int]] = []  # offset, end, last
    top = 0
    for index in sorted(range(len(rows)), key=lambda i: (rows[i]["first"], -rows[i]["nbytes"], i)):
        row = rows[index]
        live = sorted(item for item in live if item[2] >= row["first"])
        free = 0
        for offset, end, _ in live:
            if offset - free >= row["nbytes"]:
                break
            free = max(free, end)
        offsets[index] = free
        live.append((free, free + row["nbytes"], row["last"]))
        top = max(top, free + row["nbytes"])
    return offsets, top
