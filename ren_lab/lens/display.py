"""How things show themselves in a notebook.

What lens hands out has `_repr_mimebundle_`. The engine's classes have only `__repr__`, so their display is registered here, by
type, with a running IPython. A view that fails shows its failure, since IPython would hide it.
"""

import html
import io
import logging
import sys
from collections.abc import Callable
from typing import Any

View = Callable[[Any], str]


def failure_html(thing: Any, error: BaseException) -> str:
    """What stands in the place of a view that failed."""
    what = html.escape(f"The view of this {type(thing).__name__} failed: {type(error).__name__}: {error}")
    return f'<div class="ren-lab"><p role="alert" style="border-left:4px solid #D55E00;padding-left:8px">{what}</p></div>'


def html_bundle(thing: Any, view: View) -> dict[str, str]:
    """The MIME bundle of a thing: `str(thing)` as plain text and `view(thing)` as HTML; never raises."""
    try:
        plain = str(thing)
    except Exception as error:  # the text must not take the picture along
        plain = f"<{type(thing).__name__}: its text failed: {type(error).__name__}: {error}>"
    try:
        markup = view(thing)
    except Exception as error:
        markup = failure_html(thing, error)
    return {"text/plain": plain, "text/html": markup}


def _poly(thing: Any) -> str:
    from ren_lab.lens.page import poly_html

    return poly_html(thing)


def _node(thing: Any) -> str:
    from ren_lab.lens.page import node_html

    return node_html(thing)


def _schedule(thing: Any) -> str:
    from ren_lab.lens.page import schedule_html
    from ren_lab.lens.trace import ScheduleView

    return schedule_html(ScheduleView(thing, [None] * len(thing.items), dict))


def _plan(thing: Any) -> str:
    from ren_lab.lens.page import memory_html
    from ren_lab.lens.trace import MemoryView

    return memory_html(MemoryView(thing))


def _program(thing: Any) -> str:
    from ren_lab.lens.page import memory_html, schedule_html
    from ren_lab.lens.trace import MemoryView, ScheduleView

    schedule = ScheduleView(thing.schedule, [None] * len(thing.units), dict)
    return schedule_html(schedule) + memory_html(MemoryView(thing.memory, thing.schedule))


def _captured(thing: Any) -> str:
    from ren_lab.lens.page import trace_html

    return trace_html(thing.explain())


def _item(thing: Any) -> str:
    from ren_lab.lens.page import item_html

    return item_html(thing)


def _item_line(thing: Any, printer: Any, cycle: bool) -> None:
    from ren_lab.lens.text import item_line

    printer.text(f"<item {item_line(thing)}>")


def _rule_line(thing: Any, printer: Any, cycle: bool) -> None:
    from ren_lab.lens.text import brief

    printer.text(f"<{thing.rule}: {brief(thing.old)} → {brief(thing.new)}>")


def _report(thing: Any) -> str:
    from ren_lab.lens.timeline_plot import report_html

    return report_html(thing)


def _ring(thing: Any) -> str:
    from ren_lab.lens.page import ring_html

    return ring_html(thing)


def register_displays(ip: Any = None) -> bool:
    """Give the engine's classes their rich display in a notebook.

    Args:
        ip: the IPython shell; the running one if None. Does nothing, and imports nothing, where no IPython runs.

    Returns:
        whether there was a shell to register with.
    """
    if ip is None:
        get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
        ip = get_ipython() if get_ipython is not None else None
    if ip is None:
        return False
    # the note that fonts are being indexed, on a machine's first plot, would look like a fault under a cell
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    from ren_lab.engine import Program
    from ren_lab.events import RuleFired
    from ren_lab.ir import Node
    from ren_lab.jit import Plan
    from ren_lab.memory import MemoryPlan
    from ren_lab.poly import Poly
    from ren_lab.ring import RingSpec
    from ren_lab.runtime import RunReport
    from ren_lab.schedule import Schedule, ScheduledKernel

    views: dict[type, View] = {
        Poly: _poly, Node: _node, Schedule: _schedule, MemoryPlan: _plan, Program: _program, RingSpec: _ring,
        Plan: _captured, RunReport: _report, ScheduledKernel: _item,
    }  # fmt: skip
    formatter = ip.display_formatter.formatters["text/html"]
    for shown_type, view in views.items():
        formatter.for_type(shown_type, _guarded(view))
    # lists and tuples of these are shown by this formatter too, one line for each
    ip.display_formatter.formatters["text/plain"].for_type(ScheduledKernel, _item_line)
    ip.display_formatter.formatters["text/plain"].for_type(RuleFired, _rule_line)
    # graphviz would look for a program `dot` and raise where there is none
    for name in ("Digraph", "Graph"):
        ip.display_formatter.mimebundle_formatter.for_type_by_name("graphviz.graphs", name, _digraph)
    # `plot()` gives a Figure that pyplot knows nothing of; a notebook's own way of showing figures takes precedence
    ip.display_formatter.formatters["image/png"].for_type_by_name("matplotlib.figure", "Figure", _figure_png)
    return True


def _digraph(graph: Any) -> dict[str, str]:
    from ren_lab.lens.markup import digraph_picture, fragment

    bundle = html_bundle(graph, lambda drawn: fragment(digraph_picture(drawn)))
    return {"text/html": bundle["text/html"], "text/plain": f"<{type(graph).__name__} {graph.name or ''}>"}


def _figure_png(figure: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", facecolor=figure.get_facecolor())
    return out.getvalue()


def _guarded(view: View) -> View:
    def shown(thing: Any) -> str:
        return html_bundle(thing, view)["text/html"]

    return shown
