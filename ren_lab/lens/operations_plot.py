"""Where levels, scales and precision go along a homomorphic program, by the user's lines."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ren_lab.events import OperationDone
from ren_lab.lens.theme import PLOT_FONT, format_origin, theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE_INCHES = (9.0, 5.6)  # 900 pixels wide at 100 dots per inch
_LABELS = 30  # lines of the program that are named below the axis


def operations_dict(operations: Sequence[OperationDone]) -> dict[str, Any]:
    """What the plot shows.

    Returns a dictionary with
        title: the finding, in a sentence;
        operations: for each its `name`, `level`, `log2_scale`, `precision_bits`, `noise_bits`, and `line` as "file:line";
        lines: runs of operations of one line, (first, last, "file:line").
    """
    rows = [
        {
            "name": o.name, "level": o.level, "log2_scale": o.log2_scale, "precision_bits": o.precision_bits,
            "noise_bits": o.noise_bits, "line": format_origin(o.origin),
        }
        for o in operations
    ]  # fmt: skip
    runs = []
    for line, group in groupby(enumerate(rows), key=lambda pair: pair[1]["line"]):
        places = [place for place, _ in group]
        runs.append((places[0], places[-1], line))
    return {"title": _title(rows), "operations": rows, "lines": runs}


def _title(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "No homomorphic operations were seen"
    last = rows[-1]
    lost = rows[0]["precision_bits"] - last["precision_bits"]
    worst = min(range(1, len(rows)), key=lambda i: rows[i]["precision_bits"] - rows[i - 1]["precision_bits"], default=0)
    ends = f"{len(rows)} operations end at level {last['level']} with {last['precision_bits']:.1f} bits of precision"
    if worst and rows[worst]["precision_bits"] < rows[worst - 1]["precision_bits"]:
        ends += f", {lost:.1f} fewer than at first; the largest loss is at {rows[worst]['line']} ({rows[worst]['name']})"
    return ends


def plot_operations(operations: Sequence[OperationDone], theme_name: str = "light") -> "Figure":
    """Level, scale and estimated precision after each operation, on a shared axis with the user's lines.

    Args:
        operations: as `Recording.operations` holds them.
        theme_name: "light" or "dark".
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    data, look = operations_dict(operations), theme(theme_name)
    rows = data["operations"]
    with rc_context({"font.family": PLOT_FONT, "font.size": 9.0, "text.color": look["ink"], "axes.labelcolor": look["ink"]}):
        figure = Figure(figsize=_SIZE_INCHES, dpi=100, facecolor=look["background"], layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(data["title"], x=0.01, ha="left", fontsize=10.5, fontweight="bold", wrap=True)
        if not rows:
            return figure
        axes = figure.subplots(3, 1, sharex=True)
        places = range(len(rows))
        panels = (
            ("level", "level", look["blue"]),
            ("log2_scale", "scale\n(log2)", look["orange"]),
            ("precision_bits", "estimated\nprecision (bits)", look["green"]),
        )
        for axis, (key, label, colour) in zip(axes, panels, strict=True):
            values = [row[key] for row in rows]
            axis.step(places, values, where="post", color=colour, linewidth=1.6)
            axis.plot(places, values, "o", color=colour, markersize=4)
            axis.annotate(f"{values[-1]:.4g}", (len(rows) - 1, values[-1]), xytext=(7, 0), textcoords="offset points", va="center")
            axis.set_ylabel(label)
            axis.set_facecolor(look["background"])
            axis.tick_params(colors=look["ink"])
            middle, room = (max(values) + min(values)) / 2, max(0.6 * (max(values) - min(values)), 0.6)
            axis.set_ylim(middle - room, middle + room)  # at least a bit high: smaller differences are no news
            axis.ticklabel_format(axis="y", useOffset=False)
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)
            for side in ("left", "bottom"):
                axis.spines[side].set_color(look["rule"])
            for first, _, _ in data["lines"][1:]:
                axis.axvline(first - 0.5, color=look["rule"], linewidth=0.7, zorder=0)
        axes[0].yaxis.set_major_locator(MaxNLocator(integer=True))
        axes[2].set_xlim(-0.5, max(len(rows) - 0.5, 1) + 0.5)
        _name_lines(axes[2], data["lines"])
        axes[2].set_xlabel("homomorphic operations in their order, by the line that asked for them")
    return figure


def _name_lines(axis: Any, lines: list[tuple[int, int, str]]) -> None:
    shown = lines[:: -(-len(lines) // _LABELS)]
    axis.set_xticks([(first + last) / 2 for first, last, _ in shown])
    slanted = sum(len(name) for _, _, name in shown) > 90
    axis.set_xticklabels([name for _, _, name in shown], rotation=30 if slanted else 0, ha="right" if slanted else "center")
