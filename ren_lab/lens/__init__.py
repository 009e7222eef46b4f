"""The workbench: it looks at everything, and nothing that it looks at knows of it.

`trace` records realizations, `explain` compiles without computing; both give a `Trace` with every pass, the schedule, the kernels
and the memory plan, as text, graphs, plots and one offline page.
"""

from typing import TYPE_CHECKING, Any

from ren_lab.lens.display import register_displays
from ren_lab.lens.explain import explain, explain_plan
from ren_lab.lens.provenance import Moment, Provenance, continuity
from ren_lab.lens.recorder import KernelTotal, Recording, trace
from ren_lab.lens.records import Failure, KernelRecord, PassRecord, UnitRecord
from ren_lab.lens.trace import MemoryView, ScheduleView, Seconds, Trace

if TYPE_CHECKING:
    from ren_lab.lens.scope_stats import ScopeStats
    from ren_lab.lens.timeline_plot import plot_timeline


def __getattr__(name: str) -> Any:
    """What the ring runtime needs is imported when it is first asked for."""
    if name == "ScopeStats":
        from ren_lab.lens.scope_stats import ScopeStats

        return ScopeStats
    if name == "plot_timeline":
        from ren_lab.lens.timeline_plot import plot_timeline

        return plot_timeline
    raise AttributeError(f"module 'ren_lab.lens' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Failure", "KernelRecord", "KernelTotal", "MemoryView", "Moment", "PassRecord", "Provenance", "Recording", "ScheduleView",
    "ScopeStats", "Seconds", "Trace", "UnitRecord", "continuity", "explain", "explain_plan", "plot_timeline", "register_displays",
    "trace",
]  # fmt: skip
