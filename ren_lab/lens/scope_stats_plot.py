"""Draws scope statistics: one axis per resource, the scopes side by side on a shared axis, rings in their colours."""

import base64
import html
import io
from typing import TYPE_CHECKING, Any

from ren_lab.lens.scope_stats_findings import NAMES, ring_list
from ren_lab.lens.theme import (
    ALERT_COLOUR,
    ALERT_HATCH,
    PLOT_FONT,
    Theme,
    format_bytes,
    format_count,
    ring_colour,
    theme,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ren_lab.lens.scope_stats import ScopePair, ScopeStats

_SIZE_INCHES = (9.0, 9.2)  # 900 pixels wide at 100 dots per inch
_FEW = 60  # up to so many scopes each is drawn with its own markers
_FEW_TICKS = 10  # up to so many scopes each has its tick
_FAR = 4  # a capacity so many times above the data, or above another, asks for a logarithmic axis
_LINE_SHARE = 0.09  # height of a line of text, as a share of an axis
_TITLE_WIDTH = 104  # characters


def scope_stats_figure(stats: "ScopeStats", theme_name: str = "light") -> "Figure":
    """A figure with axes for task window, heap, dependency pool and tensor map; see `ScopeStats.plot`."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    look = theme(theme_name)
    with rc_context({"font.family": PLOT_FONT, "font.size": 9.0, "text.color": look["ink"], "axes.labelcolor": look["ink"]}):
        figure = Figure(figsize=_SIZE_INCHES, dpi=100, facecolor=look["background"], layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(NAMES), 1, sharex=True)
        for axis, resource in zip(axes, NAMES, strict=True):
            _style(axis, look)
            axis.set_ylabel(f"{NAMES[resource]}\n({_UNIT_LABELS[resource]})")
            if resource == "tensormap":
                _draw_tensor_map(axis, stats, look)
            else:
                _draw_resource(axis, stats, resource, look)
        axes[-1].set_xlabel("scopes, in the order in which they ended")
        count = len(stats.pairs())
        axes[-1].set_xlim(*_span(stats))
        ticks = range(count) if count <= _FEW_TICKS else MaxNLocator(integer=True).tick_values(0, count - 1)
        axes[-1].set_xticks([tick for tick in ticks if 0 <= tick < count])
        figure.suptitle(_title(stats), x=0.01, ha="left", fontsize=10.5, fontweight="bold")
        axes[0].set_title(
            "line: high water (at most in use)    filled: in use at exit    ◇: most at an exit    dots: allocated    digit: ring",
            loc="left",
            fontsize=8.5,
            color=look["muted"],
            pad=20.0,  # above the peak's line
        )
    return figure


_UNIT_LABELS = {"task_window": "slots", "heap": "bytes", "dep_pool": "edges", "tensormap": "entries"}


def _title(stats: "ScopeStats") -> str:
    found = stats.findings()
    text = str(found[0]) if found else "no samples"
    text = text[0].upper() + text[1:]
    return text if len(text) <= _TITLE_WIDTH else _folded(text)


def _folded(text: str) -> str:
    """At most two lines."""
    cut = text.rfind(" ", 0, _TITLE_WIDTH)
    rest = text[cut + 1 :]
    return text[:cut] + "\n" + (rest if len(rest) <= _TITLE_WIDTH else rest[: _TITLE_WIDTH - 1] + "…")


def _style(axis: "Axes", look: Theme) -> None:
    axis.set_facecolor(look["background"])
    for side, spine in axis.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(look["muted"])
    axis.tick_params(colors=look["muted"], labelcolor=look["ink"])
    axis.grid(axis="y", color=look["rule"], linewidth=0.5)
    axis.set_axisbelow(True)


def _draw_resource(axis: "Axes", stats: "ScopeStats", resource: str, look: Theme) -> None:
    pairs = stats.pairs()
    highest = 0
    peaks = {peak.ring: peak for peak in stats.peaks() if peak.resource == resource}
    capacities: dict[int, list[int]] = {}
    for ring in range(stats.rings):
        capacities.setdefault(stats.capacity(resource, ring), []).append(ring)
    for ring in range(stats.rings):
        if ring not in peaks:
            continue
        mine = [(x, getattr(pair, resource)) for x, pair in enumerate(pairs) if pair.ring == ring]
        if not mine:
            continue
        xs = [x for x, _ in mine]
        colour = look[ring_colour(min(ring, 3))]
        high = [measures.scope_high_water for _, measures in mine]
        live = [measures.real_occupancy for _, measures in mine]
        alloc = [measures.scope_alloc for _, measures in mine]
        highest = max(highest, *high, *alloc)
        few = len(mine) <= _FEW
        axis.fill_between(xs, live, color=look[f"{ring_colour(min(ring, 3))}_tint"], zorder=1)
        if few:
            axis.vlines(xs, 0, live, color=look[f"{ring_colour(min(ring, 3))}_tint"], linewidth=5, zorder=1)
        axis.plot(xs, high, color=colour, linewidth=1.3, marker="_" if few else None, markersize=9, zorder=3)
        axis.plot(xs, alloc, color=colour, linestyle="none", marker="o", markersize=3.5 if few else 1.5, zorder=4)
        axis.annotate(  # beside the bar of a peak, and below the line of a capacity
            str(ring),
            (xs[-1] + _bar_width(stats) / 2, high[-1]),
            xytext=(5, -2),
            textcoords="offset points",
            va="top" if high[-1] in capacities else "center",
            color=look["ink"],
            fontweight="bold",
        )
    _capacity_lines(axis, resource, capacities, highest, look)
    _mark_peak(axis, pairs, resource, peaks, stats, look)
    _say_empty(axis, bool(highest), stats, look)


def _draw_tensor_map(axis: "Axes", stats: "ScopeStats", look: Theme) -> None:
    entries = [pair.tensormap for pair in stats.pairs()]
    if entries:
        axis.fill_between(range(len(entries)), entries, color=look["grey_tint"])
        axis.plot(entries, color=look["muted"], linewidth=1.3, marker="_" if len(entries) <= _FEW else None, markersize=9)
        top = max(range(len(entries)), key=entries.__getitem__)
        if entries[top]:
            full = entries[top] >= stats.meta["tensormap_max"]
            _label(
                axis,
                top,
                entries[top],
                f"{entries[top]} at {stats.pairs()[top].site}",
                full,
                _bar_width(stats),
                look,
            )
    _capacity_lines(axis, "tensormap", {stats.meta["tensormap_max"]: []}, max(entries, default=0), look)
    _say_empty(axis, any(entries), stats, look)


def _capacity_lines(axis: "Axes", resource: str, capacities: dict[int, list[int]], highest: int, look: Theme) -> None:
    if max(capacities) > _FAR * min(max(highest, 1), *capacities):
        axis.set_yscale("symlog", base=2, linthresh=1024 if resource == "heap" else 1)
    axis.set_ylim(0, None)
    for capacity in capacities:
        axis.axhline(capacity, color=look["ink"], linewidth=0.9, linestyle=(0, (6, 3)), zorder=2)
    axis.set_ylim(0, max(axis.get_ylim()[1], max(capacities) * (2 if axis.get_yscale() == "symlog" else 1.15)))
    _ticks(axis, resource == "heap", max(max(capacities), highest))
    labels: list[tuple[int, float, str]] = []  # capacity, height as a share of the axis, words
    for capacity in sorted(capacities, reverse=True):
        rings = capacities[capacity]
        height = axis.transAxes.inverted().transform(axis.transData.transform((0, capacity)))[1]
        words = format_bytes(capacity) if resource == "heap" else format_count(capacity)
        words += f" ({ring_list(rings)})" if rings else ""
        if labels and labels[-1][1] - height < _LINE_SHARE:  # no room for a line of its own
            labels[-1] = (*labels[-1][:2], f"{labels[-1][2]}, {words}")
        else:
            labels.append((capacity, height, f"capacity {words}"))
    for capacity, _, words in labels:
        axis.annotate(
            words,
            (1.0, capacity),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=8,
        )


def _ticks(axis: "Axes", is_bytes: bool, top: int) -> None:
    """A few ticks at round values: powers of two on a logarithmic axis and for bytes."""
    axis.minorticks_off()
    if axis.get_yscale() == "symlog":
        lowest = 10 if is_bytes else 0
        step = max(1, -(-(top.bit_length() - lowest) // 5))
        ticks = [0, *(1 << k for k in range(lowest, top.bit_length(), step))]
    elif is_bytes:
        unit = 1 << max(0, (max(top, 4) // 4).bit_length() - 1)
        ticks = list(range(0, top + unit, unit))
    else:
        return
    axis.set_yticks(ticks, [format_bytes(tick) if is_bytes else format_count(tick) for tick in ticks])


def _mark_peak(
    axis: "Axes", pairs: "tuple[ScopePair, ...]", resource: str, peaks: dict[Any, Any], stats: "ScopeStats", look: Theme
) -> None:
    """Mark the highest occupancy, with the source line that made it."""
    best: tuple[int, int] | None = None
    for x, pair in enumerate(pairs):
        value = getattr(pair, resource).real_occupancy
        if value and (best is None or value > getattr(pairs[best[0]], resource).real_occupancy):
            best = (x, value)
    if best is None:
        return
    pair = pairs[best[0]]
    full = best[1] >= stats.capacity(resource, pair.ring)
    told = format_bytes if resource == "heap" else format_count
    bound = peaks[pair.ring].bound
    between = f" (in between at most {told(bound)})" if bound > best[1] else ""
    _label(axis, *best, f"ring {pair.ring}: {told(best[1])} at {pair.site}{between}", full, _bar_width(stats), look)


def _span(stats: "ScopeStats") -> tuple[float, float]:
    """The ends of the axis of scopes."""
    count = max(len(stats.pairs()), 2)
    return -0.6, count - 1 + max(0.6, 0.035 * count)  # room for the last digit


def _bar_width(stats: "ScopeStats") -> float:
    """Width of the bar of a peak, in scopes."""
    left, right = _span(stats)
    return min(0.6, 0.03 * (right - left))


def _label(axis: "Axes", x: int, y: int, text: str, full: bool, width: float, look: Theme) -> None:
    """Mark a point, and say what it is above the axis, where it hides nothing."""
    colour = look[ALERT_COLOUR] if full else look["ink"]
    if full:
        axis.bar([x], [y], width=width, fill=False, hatch=ALERT_HATCH, edgecolor=colour, linewidth=1.2, zorder=5)
        text = f"at capacity: {text}"
    axis.plot([x], [y], marker="D", markersize=6, color=colour, markerfacecolor="none", linestyle="none", zorder=6)
    axis.annotate(
        f"◇ {text}",
        (0.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 4),
        textcoords="offset points",
        va="bottom",
        fontsize=8.5,
    )


def _say_empty(axis: "Axes", used: bool, stats: "ScopeStats", look: Theme) -> None:
    if not used:
        ended = {pair.begin for pair in stats.pairs()}
        unknown = any(sample["phase"] == "begin" and k not in ended for k, sample in enumerate(stats.samples))
        text = "not known: no scope that used it has its end in the file" if unknown else "not used"
        axis.annotate(text, (0.01, 0.06), xycoords="axes fraction", color=look["muted"])


def scope_stats_html(stats: "ScopeStats") -> str:
    """The figure and the findings, for a notebook."""
    image = io.BytesIO()
    scope_stats_figure(stats).savefig(image, format="png")
    data = base64.b64encode(image.getvalue()).decode("ascii")
    words = "".join(f"<li>{html.escape(str(finding))}</li>" for finding in stats.findings())
    picture = f'<img src="data:image/png;base64,{data}" alt="{html.escape(_title(stats), quote=True)}" style="max-width:100%"/>'
    return f'<div class="ren-lab">{picture}<ul>{words}</ul></div>'
