"""The picture: for each operation, how many times as long as this package the others take."""

from pathlib import Path
from typing import Any

from peers.report import degree
from peers.system import BESIDE, OPERATIONS, OURS
from peers.turns import Comparison
from ren_lab.lens.theme import LIGHT, PLOT_FONT

_MARKS = {"OpenFHE": ("blue", "o"), "SEAL": ("orange", "s"), "desilofhe": ("green", "^")}
_SHORT = {
    "keys": "keys",
    "plaintext multiply": "multiply by plaintext",
    "multiply": "multiply",
    "multiply, replayed": "multiply, replayed",
    "square": "square",
    "rotate": "rotate",
    "rotate, replayed": "rotate, replayed",
    "chain": "chain",
    "chain, replayed": "chain, replayed",
}
_WIDTH, _ROW, _DPI = 9.0, 0.27, 100  # inches, inches per operation, 900 pixels in all


def finding(comparisons: list[Comparison]) -> str:
    """The sentence that the picture shows: how the longest chain fares."""
    last = max(comparisons, key=lambda c: (c.setting.log_n, c.threads))
    operation = next((op for op in (*BESIDE, "chain") if op in last.turns), None)
    ratios = [last.ratio(operation, name) for name in last.systems if name != OURS] if operation else []
    medians = sorted(ratio.median for ratio in ratios if ratio is not None)
    where = f"{degree(last.setting.log_n)}, {last.threads} thread{'s' * (last.threads != 1)}"
    if not medians:
        return f"No other library was measured at {where}"
    several = f"{medians[0]:.1f} to {medians[-1]:.1f}" if len(medians) > 1 else f"{medians[0]:.1f}"
    return f"{last.setting.depth} steps of x = 2x² − 1 take {several} times as long elsewhere ({where})"


def draw(comparisons: list[Comparison]) -> Any:
    """A matplotlib Figure: a panel for each comparison, a row for each operation, a mark with its quartiles for each library."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    degrees = sorted({c.setting.log_n for c in comparisons})
    threads = sorted({c.threads for c in comparisons})
    operations = [op for op in OPERATIONS if any(op in c.turns for c in comparisons)]
    height = 1.3 + len(threads) * (0.75 + _ROW * len(operations))
    figure = Figure(figsize=(_WIDTH, height), dpi=_DPI, facecolor=LIGHT["background"], layout="constrained")
    panels = figure.subplots(len(threads), len(degrees), sharex=True, sharey=True, squeeze=False)
    for panel in panels.flat:
        _frame(panel, operations)
    for comparison in comparisons:
        panel = panels[threads.index(comparison.threads)][degrees.index(comparison.setting.log_n)]
        heading = f"{degree(comparison.setting.log_n)}, {comparison.threads} thread{'s' * (comparison.threads != 1)}"
        panel.set_title(heading, fontsize=9, color=LIGHT["ink"], fontfamily=PLOT_FONT)
        _points(panel, comparison, operations)
    for panel in panels[-1]:
        panel.set_xlabel("times as long as ren_lab", fontsize=8, color=LIGHT["ink"])
    shown = [name for name in _MARKS if any(name in c.systems for c in comparisons)]
    handles = [Line2D([], [], linestyle="", marker=_MARKS[n][1], color=LIGHT[_MARKS[n][0]], label=n) for n in shown]
    figure.legend(handles=handles, loc="outside lower center", ncols=max(len(shown), 1), frameon=False, fontsize=9)
    figure.suptitle(finding(comparisons), fontsize=11, color=LIGHT["ink"], fontfamily=PLOT_FONT)
    return figure


def _frame(panel: Any, operations: list[str]) -> None:
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    panel.set_yticks(range(len(operations)), [_SHORT.get(op, op) for op in operations])
    panel.set_ylim(len(operations) - 0.5, -0.5)
    panel.tick_params(which="both", labelsize=8, colors=LIGHT["ink"], length=2)
    panel.tick_params(axis="y", length=0)
    panel.grid(color=LIGHT["rule"], linewidth=0.5)
    panel.set_axisbelow(True)
    panel.axvline(1.0, color=LIGHT["muted"], linewidth=1.0)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.spines["bottom"].set_color(LIGHT["muted"])


def _points(panel: Any, comparison: Comparison, operations: list[str]) -> None:
    """Marks of one comparison; those of one operation stand a little apart."""
    names = [name for name in _MARKS if name in comparison.systems]
    for rank, name in enumerate(names):
        colour, mark = _MARKS[name]
        shift = 0.22 * (rank - (len(names) - 1) / 2)
        for row, operation in enumerate(operations):
            ratio = comparison.ratio(operation, name)
            if ratio is None:
                continue
            panel.plot([ratio.low, ratio.high], [row + shift] * 2, color=LIGHT[colour], linewidth=1.2)
            panel.plot([ratio.median], [row + shift], marker=mark, markersize=5, color=LIGHT[colour], linestyle="")


def save(comparisons: list[Comparison], path: Path) -> None:
    """Draw and write a PNG."""
    draw(comparisons).savefig(path)
