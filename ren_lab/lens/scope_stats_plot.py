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
_FAR = 4  # a capacity so many times above the data asks for a logarithmic axis
_TITLE_WIDTH = 108  # characters


def scope_stats_figure(stats: "ScopeStats", theme_name: str = "light") -> "Figure":
    """A figure with axes for task window, heap, dependency pool and tensor map; see `ScopeStats.plot`."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

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
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        axes[-1].set_xlim(-0.6, max(len(stats.pairs()), 2) - 0.4)
        figure.suptitle(_title(stats), x=0.01, ha="left", fontsize=10.5, fontweight="bold")
        axes[0].set_title(
            "line: high water    filled: in use at exit    dots: allocated    digit: ring",
            loc="left",
            fontsize=8.5,
            color=look["muted"],
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
        axis.annotate(
            str(ring),
            (xs[-1], high[-1]),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            color=look["ink"],
            fontweight="bold",
        )
    capacities: dict[int, list[int]] = {}
    for ring in range(stats.rings):
        capacities.setdefault(stats.capacity(resource, ring), []).append(ring)
    _capacity_lines(axis, resource, capacities, highest, look)
    _mark_peak(axis, pairs, resource, peaks, stats, look)
    _say_empty(axis, bool(highest), look)


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
                top > len(entries) / 2,
                look,
            )
    _capacity_lines(axis, "tensormap", {stats.meta["tensormap_max"]: []}, max(entries, default=0), look)
    _say_empty(axis, any(entries), look)


def _capacity_lines(axis: "Axes", resource: str, capacities: dict[int, list[int]], highest: int, look: Theme) -> None:
    if max(capacities) > _FAR * max(highest, 1):
        axis.set_yscale("symlog", base=2, linthresh=1024 if resource == "heap" else 1)
    axis.set_ylim(0, None)
    for capacity, rings in capacities.items():
        value = format_bytes(capacity) if resource == "heap" else format_count(capacity)
        axis.axhline(capacity, color=look["ink"], linewidth=0.9, linestyle=(0, (6, 3)), zorder=2)
        text = f"capacity {value}" + (f" ({ring_list(rings)})" if rings else "")
        axis.annotate(
            text,
            (1.0, capacity),
            xycoords=("axes fraction", "data"),
            xytext=(-3, 2),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8,
        )
    axis.set_ylim(0, max(axis.get_ylim()[1], max(capacities) * (2 if axis.get_yscale() == "symlog" else 1.15)))
    _ticks(axis, resource == "heap", max(max(capacities), highest))


def _ticks(axis: "Axes", is_bytes: bool, top: int) -> None:
    """A few ticks at round values: powers of two on a logarithmic axis and for bytes."""
    axis.minorticks_off()
    if axis.get_yscale() == "symlog":
        lowest = 10 if is_bytes else 0
        step = max(1, -(-(top.bit_length() - lowest) // 5))
        ticks = [0, *(1 << k for k in range(lowest, top.bit_length() + 1, step))]
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
    value = format_bytes(best[1]) if resource == "heap" else format_count(best[1])
    _label(axis, *best, f"ring {pair.ring}: {value} at {pair.site}", full, best[0] > len(pairs) / 2, look)


def _label(axis: "Axes", x: int, y: int, text: str, full: bool, right: bool, look: Theme) -> None:
    colour = look[ALERT_COLOUR] if full else look["ink"]
    if full:
        axis.bar([x], [y], width=0.6, fill=False, hatch=ALERT_HATCH, edgecolor=colour, linewidth=1.2, zorder=5)
        text = f"at capacity: {text}"
    axis.plot([x], [y], marker="D", markersize=6, color=colour, markerfacecolor="none", linestyle="none", zorder=6)
    axis.annotate(
        text,
        (x, y),
        xytext=(-9 if right else 9, -11),
        textcoords="offset points",
        ha="right" if right else "left",
        fontsize=8.5,
        zorder=7,
        bbox={"facecolor": look["background"], "edgecolor": "none", "pad": 1.0, "alpha": 0.85},
    )


def _say_empty(axis: "Axes", used: bool, look: Theme) -> None:
    if not used:
        axis.annotate("not used", (0.01, 0.06), xycoords="axes fraction", color=look["muted"])


def scope_stats_html(stats: "ScopeStats") -> str:
    """The figure and the findings, for a notebook."""
    image = io.BytesIO()
    scope_stats_figure(stats).savefig(image, format="png")
    data = base64.b64encode(image.getvalue()).decode("ascii")
    words = "".join(f"<li>{html.escape(str(finding))}</li>" for finding in stats.findings())
    picture = f'<img src="data:image/png;base64,{data}" alt="{html.escape(_title(stats), quote=True)}" style="max-width:100%"/>'
    return f'<div class="ren-lab">{picture}<ul>{words}</ul></div>'
