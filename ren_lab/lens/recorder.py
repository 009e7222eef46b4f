"""`trace`: watch realizations and keep what they tell, within bounds."""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ren_lab.engine import Program
from ren_lab.events import (
    CompileEnded,
    CompileStarted,
    JitCalled,
    OperationDone,
    PassFailed,
    RunEnded,
    UnitFailed,
    UnitRan,
    observe,
)
from ren_lab.lens.display import html_bundle
from ren_lab.lens.records import Failure
from ren_lab.lens.trace import PassCollector, Seconds, Trace

_OPERATIONS = 10_000  # homomorphic operations that a recording keeps


class TraceBuilder:
    """An observer of one realization: hears its events, gives its `Trace`.

    Args:
        started: the event that opens the realization.
        limit: most rewrites to keep; None keeps all.
        jit: what a jitted function said before it.
    """

    def __init__(self, started: CompileStarted, limit: int | None = None, jit: JitCalled | None = None) -> None:
        self._started = started
        self._jit = jit
        self._collector = PassCollector(started.origins, limit)
        self._program: Program | None = None
        self._compile_seconds = 0.0
        self._timings: dict[int, tuple[float, float]] = {}
        self._run: tuple[float, float] | None = None
        self._failure: Failure | None = None

    def __call__(self, record: Any) -> None:
        """Take the next event of the realization."""
        if isinstance(record, UnitRan):
            self._timings[record.index] = (record.start, record.seconds)
        elif isinstance(record, RunEnded):
            self._run = (record.start, record.seconds)
        elif isinstance(record, CompileEnded):
            self._program, self._compile_seconds = record.program, record.seconds
        elif isinstance(record, PassFailed):
            fired = tuple(self._collector.pending)
            self._failure = Failure.of(record.error, "pass", record.number, record.name, graph=record.before, rewrites=fired)
        elif isinstance(record, UnitFailed):
            name = "" if self._program is None else self._program.units[record.index].item.name
            self._failure = Failure.of(record.error, "unit", record.index, name)
        else:
            self._collector(record)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._run is not None or self._failure is not None

    @property
    def rewrites_kept(self) -> int:
        """How many rewrites it holds."""
        return self._collector.kept

    @property
    def rewrites_dropped(self) -> int:
        """How many rewrites it did not keep."""
        return self._collector.dropped

    def trace(self, *, running: bool = True, error: BaseException | None = None) -> Trace:
        """The trace of what was heard.

        Args:
            running: whether the program was to run; then a missing end is a failure.
            error: what is known to have ended it.
        """
        failure = self._failure
        if running and not self.ended:
            failure = Failure.of(error, "compile" if self._program is None else "run")
        starts = [start for start, _ in self._timings.values()]
        started, run_seconds = self._run or (min(starts, default=None), None)
        if self._run is None and starts:  # broken off: up to the end of the last unit that ran
            run_seconds = max(start + seconds for start, seconds in self._timings.values()) - min(starts)
        return Trace(
            self._started.graph,
            self._started.options,
            cached=self._started.cached,
            origins=self._started.origins,
            passes=None if self._started.cached else self._collector.passes,
            trail=None if self._started.cached else self._collector.trail,
            program=self._program,
            timings=self._timings,
            seconds=Seconds(self._compile_seconds, run_seconds),
            started=started,
            error=failure,
            jit=self._jit,
        )


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """Everything that ran under one name: how often, how many seconds in all, and their share of the time of all units."""

    name: str
    calls: int
    seconds: float
    share: float


class Recording:
    """The realizations that a `trace()` block saw, oldest first.

    Attributes:
        max_realizations: how many are kept; the oldest give way. Totals count them all.
        max_rewrites: how many rewrites are kept, over all realizations; later ones are only counted.
    """

    def __init__(self, max_realizations: int = 1000, max_rewrites: int = 500_000) -> None:
        for name, value in (("max_realizations", max_realizations), ("max_rewrites", max_rewrites)):
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be an int of at least 1")
        self.max_realizations = max_realizations
        self.max_rewrites = max_rewrites
        self._kept: deque[tuple[Trace, int]] = deque()  # with the number of rewrites that each holds
        self._open: dict[int, TraceBuilder] = {}  # by thread: contexts may be copied into several
        self._called: dict[int, JitCalled] = {}  # by thread: a jitted call whose realization has not begun
        self._operations: deque[OperationDone] = deque(maxlen=_OPERATIONS)
        self._operations_seen = 0
        self._lock = threading.Lock()
        self._closed = False
        self._seen = self._failed = 0
        self._rewrites_kept = self._rewrites_dropped = 0
        self._compile_seconds = self._run_seconds = 0.0
        self._totals: dict[str, tuple[int, float]] = {}

    def __call__(self, record: Any) -> None:
        """Take an event; this is the observer."""
        if self._closed:
            return
        thread = threading.get_ident()
        if isinstance(record, OperationDone):
            self._operations.append(record)
            self._operations_seen += 1
        elif isinstance(record, JitCalled):
            self._called[thread] = record
        elif isinstance(record, CompileStarted):
            if thread in self._open:
                self._finish(thread)
            left = max(0, self.max_rewrites - self._rewrites_kept)
            self._open[thread] = TraceBuilder(record, left, self._called.pop(thread, None))
        elif thread in self._open:
            builder = self._open[thread]
            builder(record)
            if builder.ended:
                self._finish(thread)

    def close(self, error: BaseException | None = None) -> None:
        """Stop listening. What has not ended is kept as far as it came; `error` is what ended it."""
        here = threading.get_ident()
        for thread in list(self._open):
            self._finish(thread, error if thread == here else None)
        self._closed = True

    def _finish(self, thread: int, error: BaseException | None = None) -> None:
        builder = self._open.pop(thread, None)
        if builder is None:
            return
        trace = builder.trace(error=error)
        with self._lock:
            self._kept.append((trace, builder.rewrites_kept))
            if len(self._kept) > self.max_realizations:
                self._rewrites_kept -= self._kept.popleft()[1]
            self._seen += 1
            self._failed += trace.error is not None
            self._rewrites_kept += builder.rewrites_kept
            self._rewrites_dropped += builder.rewrites_dropped
            self._compile_seconds += trace.seconds.compile
            self._run_seconds += trace.seconds.run or 0.0
            for unit in trace.units:
                if unit.seconds is not None:
                    calls, seconds = self._totals.get(unit.item.name, (0, 0.0))
                    self._totals[unit.item.name] = (calls + 1, seconds + unit.seconds)

    @property
    def realizations(self) -> list[Trace]:
        """The traces, in the order in which the realizations ended."""
        return [trace for trace, _ in list(self._kept)]

    @property
    def count(self) -> int:
        """How many realizations were seen, those that were not kept included."""
        return self._seen

    @property
    def failed(self) -> int:
        """How many of them broke off."""
        return self._failed

    @property
    def seconds(self) -> Seconds:
        """Time of all compilations and of all runs."""
        return Seconds(self._compile_seconds, self._run_seconds)

    @property
    def operations(self) -> tuple[OperationDone, ...]:
        """The homomorphic operations that were asked for in the block, in their order."""
        return tuple(self._operations)

    def plot(self, theme: str = "light") -> Any:
        """Level, scale and estimated precision along the homomorphic operations, as a matplotlib `Figure`."""
        from ren_lab.lens.operations_plot import plot_operations

        return plot_operations(self.operations, theme)

    @property
    def dropped(self) -> str:
        """What did not fit, in words; empty if everything did."""
        parts = []
        if self._seen > len(self._kept):
            parts.append(
                f"the {self._seen - len(self._kept):,} oldest of {self._seen:,} realizations (raise max_realizations, "
                f"now {self.max_realizations:,})"
            )
        if self._rewrites_dropped:
            parts.append(f"{self._rewrites_dropped:,} rewrites (raise max_rewrites, now {self.max_rewrites:,})")
        if self._operations_seen > len(self._operations):
            parts.append(f"the oldest of {self._operations_seen:,} homomorphic operations")
        return "not kept: " + " and ".join(parts) if parts else ""

    @property
    def totals(self) -> tuple[KernelTotal, ...]:
        """Time per kernel name over all realizations, the longest first."""
        whole = sum(seconds for _, seconds in self._totals.values()) or 1.0
        rows = [KernelTotal(name, calls, seconds, seconds / whole) for name, (calls, seconds) in self._totals.items()]
        return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name)))

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        from ren_lab.lens.text import recording_headline

        return f"<Recording: {recording_headline(self)}>"

    def __str__(self) -> str:
        from ren_lab.lens.text import recording_text

        return recording_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, ready for `json.dumps`."""
        from ren_lab.lens.plain import recording_dict

        return recording_dict(self)

    def to_graphviz(self) -> Any:
        """The realizations in their order as a `graphviz.Digraph`; a single one shows its schedule."""
        from ren_lab.lens.plain import recording_graph

        return recording_graph(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page that needs no network; an existing file is replaced only when all is written."""
        from ren_lab.lens.page import page_target, recording_page, write_page

        target = page_target(path)
        write_page(target, recording_page(self))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from ren_lab.lens.page import recording_html

        return html_bundle(self, recording_html)


@contextlib.contextmanager
def trace(*, max_realizations: int = 1000, max_rewrites: int = 500_000) -> Iterator[Recording]:
    """Record every realization inside the block, on this thread and in this context.

    >>> import ren_lab as ren
    >>> ring = ren.RingSpec(n=8, moduli=(17, 97))
    >>> with ren.trace() as recording:
    ...     _ = (ren.Poly([1, 2], ring) * ren.Poly([3], ring)).realize()
    >>> len(recording.realizations)
    1

    Args:
        max_realizations: how many to keep; the oldest give way, and `recording.dropped` says so.
        max_rewrites: how many rewrites to keep, over all of them.
    """
    recording = Recording(max_realizations, max_rewrites)
    try:
        with observe(recording):
            yield recording
    except BaseException as error:
        recording.close(error)
        raise
    finally:
        recording.close()
