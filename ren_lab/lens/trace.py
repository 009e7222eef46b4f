"""`Trace`: everything that is known about one compilation, and about the run if there was one."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

from ren_lab.engine import Program
from ren_lab.events import JitCalled, PassEnded, RuleFired
from ren_lab.ir import Node
from ren_lab.lens.display import html_bundle
from ren_lab.lens.provenance import Lines, Moment, Origin, Provenance
from ren_lab.lens.records import Failure, KernelRecord, PassRecord, UnitRecord
from ren_lab.memory import MemoryPlan
from ren_lab.options import Options
from ren_lab.schedule import PIPELINE, Schedule, ScheduledKernel, run_passes

_ONCE = {step.name: step.once for step in PIPELINE}


class Seconds(NamedTuple):
    """How long it took: `compile` to a program (or to fetch it from the cache), and `run`, None if it did not run."""

    compile: float
    run: float | None


class ScheduleView(Sequence[ScheduledKernel]):
    """The items of a schedule in the order they run.

    Attributes:
        schedule: the engine's schedule; None if the compilation broke off before there was one.
        seconds: for each item how long it ran, or None.
    """

    def __init__(self, schedule: Schedule | None, seconds: Sequence[float | None], lines: Callable[[], Lines]) -> None:
        self.schedule = schedule
        self.seconds = tuple(seconds)
        self._items = () if schedule is None else schedule.items
        self._lines = lines

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> ScheduledKernel: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ScheduledKernel, ...]: ...

    def __getitem__(self, index: int | slice) -> ScheduledKernel | tuple[ScheduledKernel, ...]:
        return self._items[index]

    def __iter__(self) -> Iterator[ScheduledKernel]:
        return iter(self._items)

    @property
    def graph(self) -> Node | None:
        """The graph after the last pass."""
        return None if self.schedule is None else self.schedule.graph

    @property
    def becomes(self) -> tuple[Node, ...]:
        """For each output what takes its place: a constant, a buffer, or a window of a buffer."""
        return () if self.schedule is None else self.schedule.becomes

    @property
    def lines(self) -> tuple[tuple[Origin, ...], ...]:
        """For each item the user's lines ("file", line) of what it does."""
        lines = self._lines()
        return tuple(lines.get(item.node, ()) for item in self._items)

    def view(self) -> Any:
        """The schedule as a `GraphView`. `ValueError` if there is no schedule."""
        from ren_lab.lens.schedule_view import schedule_graph

        if self.schedule is None:
            raise ValueError("there is no schedule: the compilation broke off before it; `trace.error` says where")
        timed = self.seconds if any(s is not None for s in self.seconds) else None
        return schedule_graph(self.schedule, seconds=timed, lines=self.lines)

    def to_graphviz(self) -> Any:
        """The schedule as a `graphviz.Digraph`: kernels, and the buffers that pass between them."""
        return self.view().to_graphviz()

    def __repr__(self) -> str:
        return f"<schedule of {len(self)} items>"

    def __str__(self) -> str:
        from ren_lab.lens.text import schedule_text

        return schedule_text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from ren_lab.lens.page import schedule_html

        return html_bundle(self, schedule_html)


class MemoryView:
    """A memory plan that can be drawn. Every attribute of the `MemoryPlan` is also its own."""

    def __init__(self, plan: MemoryPlan, schedule: Schedule | None = None) -> None:
        self.plan = plan
        self._schedule = schedule

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "plan":
            raise AttributeError(name)
        return getattr(self.plan, name)

    def plot(self) -> Any:
        """The arena over the schedule as a matplotlib `Figure`."""
        from ren_lab.lens.memory_plot import plot_memory

        return plot_memory(self.plan, self._schedule)

    def to_dict(self) -> dict[str, Any]:
        """What the plot shows, as plain data."""
        from ren_lab.lens.memory_plot import memory_dict

        return memory_dict(self.plan, self._schedule)

    def __repr__(self) -> str:
        return repr(self.plan)

    def __str__(self) -> str:
        return str(self.plan)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from ren_lab.lens.page import memory_html

        return html_bundle(self, memory_html)


class Trace:
    """One compilation and, if it ran, the run.

    Attributes:
        graph: what was compiled: a SINK whose data is renamed by first occurrence (in0, in1, …, draw0, …).
        options: the settings it was compiled under.
        cached: whether the schedule came out of the cache, so that no pass ran. `passes` then runs them once more.
        error: where and why it broke off; None if it did not.
        seconds: (`compile`, `run`).
        started: when the run began, by `time.perf_counter`; None if it did not.
        scope_stats: statistics of the ring runtime, where units ran on it; else None.
        jit: what a jitted function said of the call (`function`, `hit`, `why`); None outside of one.
    """

    def __init__(
        self,
        graph: Node,
        options: Options,
        *,
        cached: bool = False,
        origins: Lines | None = None,
        passes: Sequence[PassRecord] | None = None,
        trail: Provenance | None = None,
        program: Program | None = None,
        timings: Mapping[int, tuple[float, float]] | None = None,
        seconds: Seconds | None = None,
        started: float | None = None,
        error: Failure | None = None,
        scope_stats: Any = None,
        jit: JitCalled | None = None,
    ) -> None:
        self.graph = graph
        self.options = options
        self.cached = cached
        self.error = error
        self.seconds = Seconds(0.0, None) if seconds is None else seconds
        self.started = started
        self.scope_stats = scope_stats
        self.jit = jit
        self.program = program
        self._origins: Lines = origins or {}
        self._recorded = None if passes is None else (tuple(passes), trail or Provenance(self._origins, passes))
        self._timings = dict(timings or {})

    @cached_property
    def _compilation(self) -> tuple[tuple[PassRecord, ...], Provenance]:
        if self._recorded is not None:
            return self._recorded
        if self.program is None:
            return (), Provenance(self._origins, ())
        collected = PassCollector(self._origins)
        final, _ = run_passes(self.graph, self.options, collected)
        if final is not self.program.schedule.graph:
            raise RuntimeError(
                "the passes, run once more on the same graph, gave another schedule than the cached one; "
                "a rule depends on something besides the graph and the options"
            )
        return tuple(collected.passes), collected.trail

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        """The passes in order; up to the one that failed, if one did."""
        return self._compilation[0]

    @property
    def provenance(self) -> Provenance:
        """The user's lines behind each node, and what each came from and became."""
        return self._compilation[1]

    def lines(self, node: Node) -> tuple[Origin, ...]:
        """The user's lines ("file", line) behind a node of any of the graphs."""
        return self.provenance.lines(node)

    def history(self, node: Node, stage: int | None = None) -> tuple[Moment, ...]:
        """What a node came from and what it became, pass by pass; see `lens.provenance.Provenance.history`."""
        return self.provenance.history(node, stage)

    @cached_property
    def units(self) -> tuple[UnitRecord, ...]:
        """Every executable unit with its timing, None where it did not run."""
        if self.program is None:
            return ()
        never = (None, None)
        return tuple(UnitRecord(i, unit.item, *self._timings.get(i, never)) for i, unit in enumerate(self.program.units))

    @cached_property
    def schedule(self) -> ScheduleView:
        """What runs, in order."""
        plan = None if self.program is None else self.program.schedule
        return ScheduleView(plan, [unit.seconds for unit in self.units], lambda: self.provenance.all_lines)

    @cached_property
    def kernels(self) -> tuple[KernelRecord, ...]:
        """The kernels among the items of the schedule; copies and views are none."""
        return tuple(
            KernelRecord(unit.index, unit.item, unit.seconds, lambda: self.provenance)
            for unit in self.units
            if unit.item.ast is not None
        )

    @cached_property
    def memory(self) -> MemoryView | None:
        """Where the buffers live; None if the compilation broke off before memory was planned."""
        return None if self.program is None else MemoryView(self.program.memory, self.program.schedule)

    def summary(self) -> str:
        """The trace for a terminal: passes, schedule and memory in a few lines each."""
        from ren_lab.lens.text import trace_text

        return trace_text(self)

    __str__ = summary

    def __repr__(self) -> str:
        from ren_lab.lens.text import trace_headline

        return f"<Trace: {trace_headline(self)}>"

    def to_graphviz(self) -> Any:
        """The schedule as a `graphviz.Digraph`; without one, the graph that went in."""
        if self.program is not None:
            return self.schedule.to_graphviz()
        from ren_lab.lens.graph_view import graph_view

        return graph_view(self.graph).to_graphviz()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, ready for `json.dumps`."""
        from ren_lab.lens.plain import trace_dict

        return trace_dict(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page that needs no network; an existing file is replaced only when all is written.

        Args:
            path: a name that ends in .html or .htm. Single pictures in other formats come from `to_graphviz()` of the trace,
                of `passes[i]` and of `kernels[i]`.
        """
        from ren_lab.lens.page import page_target, trace_page, write_page

        target = page_target(path)
        write_page(target, trace_page(self))

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write the passes and the run as a timeline that Perfetto and Chrome open; see `lens.perfetto`."""
        from ren_lab.lens.perfetto import save_perfetto

        save_perfetto(self, path)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from ren_lab.lens.page import trace_html

        return html_bundle(self, trace_html)


class PassCollector:
    """An observer that turns what it hears of passes into records.

    Attributes:
        passes: the records so far.
        trail: the provenance over them.
        pending: rewrites of the pass that is running.
        dropped: how many rewrites were not kept, because `limit` were.
    """

    def __init__(self, origins: Lines, limit: int | None = None) -> None:
        self.passes: list[PassRecord] = []
        self.trail = Provenance(origins, self.passes)
        self.pending: list[RuleFired] = []
        self.dropped = 0
        self.kept = 0
        self._limit = limit
        self._dropped_here = 0

    def __call__(self, record: Any) -> None:
        if isinstance(record, RuleFired):
            if self._limit is None or self.kept < self._limit:
                self.kept += 1
                self.pending.append(record)
            else:
                self.dropped += 1
                self._dropped_here += 1
        elif isinstance(record, PassEnded):
            self.passes.append(
                PassRecord(
                    record.number, record.name, record.before, record.after, tuple(self.pending), record.seconds,
                    record.mapping, _ONCE.get(record.name, False), self._dropped_here, self.trail,
                )
            )  # fmt: skip
            self.pending, self._dropped_here = [], 0
