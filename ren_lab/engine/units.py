"""From a schedule to something that runs: memory plan, executable units, and the loop over them.

A program works on a frame, a list with one place per buffer: inputs are bound, planned intermediates are windows of the arenas,
the rest is allocated when it is first written and let go after its last use.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from ren_lab.backends import backend
from ren_lab.events import Emit, RunEnded, UnitFailed, UnitRan
from ren_lab.ir import BufferId, Node
from ren_lab.memory import BufferUse, MemoryPlan, plan_arenas
from ren_lab.schedule import Schedule, ScheduledKernel
from ren_lab.schedule.build_becomes_map import base_of


def _bases(schedule: Schedule) -> list[BufferId]:
    """The buffers that the outputs stand on."""
    return [base.arg for base in map(base_of, schedule.becomes) if base is not None]


def _live_ranges(schedule: Schedule) -> dict[BufferId, tuple[int, int]]:
    """First and last position at which each buffer is used; using a view is using its base."""
    ranges: dict[BufferId, tuple[int, int]] = {}
    base_of: dict[BufferId, BufferId] = {}
    for position, item in enumerate(schedule.items):
        if item.kind == "view":
            base_of[item.outputs[0]] = item.inputs[0]
        for ident in item.buffers:
            for touched in (ident, base_of.get(ident)):
                if touched is not None:
                    ranges[touched] = (ranges.get(touched, (position, 0))[0], position)
    return ranges


def outputs(schedule: Schedule) -> list[BufferId]:
    """The buffers that the schedule fills and its outputs stand on, in order, each once."""
    written = {ident for item in schedule.items for ident in item.outputs}
    return list(dict.fromkeys(base for base in _bases(schedule) if base in written))


def plan_memory(schedule: Schedule) -> MemoryPlan:
    """Live ranges of every buffer of the schedule, and arena offsets for those that need no identity of their own.

    Left out, each with its reason: final outputs, buffers that exist already, both ends of copies, views and their bases,
    and pinned buffers. A final output lives until the schedule ends.
    """
    written = {ident for item in schedule.items for ident in item.outputs}
    kept = set(outputs(schedule))
    moved: dict[BufferId, str] = {}
    for item in schedule.items:
        if item.kind in ("copy", "view"):
            moved.setdefault(item.outputs[0], item.kind)
            moved.setdefault(item.inputs[0], f"source of a {item.kind}")

    def reason(ident: BufferId) -> str | None:
        if ident in kept:
            return "final output"
        if ident not in written:
            return "already allocated"
        return "pinned" if ident.pinned else moved.get(ident)

    end = len(schedule.items) - 1
    return plan_arenas(
        [
            BufferUse(i.label, i.device, i.nbytes, first, end if i in kept else last, reason(i))
            for i, (first, last) in _live_ranges(schedule).items()
        ]
    )


@dataclass(frozen=True, slots=True)
class ExecUnit:
    """One step of a program.

    Attributes:
        item: the item of the schedule that it carries out.
        slots: the frame's places that it works on, outputs first.
        call: called with their storages; for a view, gives the window of its base.
        release: places that nobody uses afterwards.
    """

    item: ScheduledKernel
    slots: tuple[int, ...]
    call: Callable[..., Any] = field(repr=False)
    release: tuple[int, ...]


class Runner(Protocol):
    """Runs a whole program at once."""

    def bind(self, frame: list[Any], late: Collection[int] = ()) -> Callable[[], None]:
        """What runs it on a frame with storage in every place, one call at a time. The places in `late` may be empty now, and
        change from call to call; the others keep their storage."""


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled schedule: what runs, on what memory. It holds no storage and may run in several threads at once.

    Attributes:
        schedule, memory: what was compiled, and where its intermediates live.
        units: one per item of the schedule.
        places: the frame's layout, buffer to place.
        inputs: the buffers that must be bound, those that no unit writes.
        outputs: the buffers that are filled and that the schedule's outputs stand on.
        planned: (place, buffer, offset in bytes) of each buffer in an arena.
        loose: (place, buffer) of each buffer that is filled and lies in no arena, views aside.
    """

    schedule: Schedule
    memory: MemoryPlan
    units: tuple[ExecUnit, ...]
    places: dict[BufferId, int]
    inputs: tuple[BufferId, ...]
    outputs: tuple[BufferId, ...]
    planned: tuple[tuple[int, BufferId, int], ...] = field(repr=False)
    loose: tuple[tuple[int, BufferId], ...] = field(repr=False)
    _runners: list["Runner | None"] = field(default_factory=list, repr=False, compare=False)

    def frame(self, windows: bool = True) -> list[Any]:
        """A fresh frame: arenas allocated and their windows in place, everything else empty. Without `windows` each arena has only
        its first one, from which `runner` finds the others."""
        frame: list[Any] = [None] * len(self.places)
        arenas = {device: backend(device).allocate_arena(nbytes) for device, nbytes in self.memory.arenas.items() if nbytes}
        first: set[str] = set()
        for place, ident, offset in self.planned:
            if not windows and ident.device in first:
                continue
            first.add(ident.device)
            frame[place] = backend(ident.device).window(arenas[ident.device], offset, ident.shape)
        return frame

    @property
    def runner(self) -> "Runner | None":
        """What runs all units at once, where the device has such a thing; made when first asked for. A backend offers it as
        `plan_runner(program)`: a graph of launches, or one native call."""
        if not self._runners:
            devices = {ident.device for ident in self.places}
            make = getattr(backend(next(iter(devices))), "plan_runner", None) if len(devices) == 1 else None
            self._runners.append(make(self) if make else None)
        return self._runners[0]


def _call(item: ScheduledKernel) -> Callable[..., Any]:
    device = backend(item.device)
    if item.kind == "view":
        view = item.view
        assert view is not None
        return lambda base: device.view(base, view.offset, view.shape)
    if item.kind == "copy":
        source = backend(item.inputs[0].device)
        return lambda out, a: device.copy_from(out, a, source)
    assert item.ast is not None
    return device.compile(item.ast)


def make_exec_units(schedule: Schedule, memory: MemoryPlan) -> Program:
    """Lower every item of the schedule for its device. Kernels with the same body share one compiled program."""
    ranges = _live_ranges(schedule)
    written = {ident for item in schedule.items for ident in item.outputs}
    made = tuple(outputs(schedule))
    kept = set(made)
    # an output may be an input as it is
    places = {ident: place for place, ident in enumerate(dict.fromkeys([*ranges, *_bases(schedule)]))}

    by_label = {ident.label: ident for ident in places}
    planned = tuple((places[by_label[b.name]], by_label[b.name], b.offset) for b in memory.buffers if b.offset is not None)
    windows = {place for place, _, _ in planned}

    release: list[list[int]] = [[] for _ in schedule.items]
    for ident, (_, last) in ranges.items():
        if ident in written and ident not in kept and places[ident] not in windows:
            release[last].append(places[ident])

    compiled: dict[tuple[str, Node], Callable[..., Any]] = {}
    units = []
    for item, freed in zip(schedule.items, release, strict=True):
        if item.ast is None:
            call = _call(item)
        else:
            call = compiled.get((item.device, item.ast)) or _call(item)
            compiled[item.device, item.ast] = call
        units.append(ExecUnit(item, tuple(places[b] for b in item.buffers), call, tuple(freed)))
    inputs = tuple(ident for ident in places if ident not in written)
    filled = dict.fromkeys(ident for item in schedule.items if item.kind != "view" for ident in item.outputs)
    loose = tuple((places[ident], ident) for ident in filled if places[ident] not in windows)
    return Program(schedule, memory, tuple(units), places, inputs, made, planned, loose)


_MOST_AT_ONCE = 256  # units; more of them run one by one, so that they can be interrupted


def runs_at_once(program: Program) -> bool:
    """Whether a program's device runs it by one call, without a capture."""
    if not program.outputs or len(program.units) > _MOST_AT_ONCE:
        return False
    return getattr(backend(program.outputs[0].device), "runs_plans_at_once", False) and program.runner is not None


def run_at_once(program: Program, frame: list[Any]) -> None:
    """Run a program that `runs_at_once` on a frame whose inputs are bound."""
    device, runner = backend(program.outputs[0].device), program.runner
    assert runner is not None
    for place, ident in program.loose:
        frame[place] = device.allocate(ident.shape)
    runner.bind(frame)()


def _make_ready(program: Program) -> None:
    """Compile and load what is done at a first call as a rule, so that the times of units are those of their work."""
    for unit in program.units:
        prepare = getattr(unit.call, "prepare", None)
        if prepare is not None:
            prepare()


def run_exec_units(program: Program, frame: list[Any], emit: Emit | None = None) -> None:
    """Run the units in order on a frame whose inputs are bound.

    Raises:
        Exception: what a unit raises, with a note that names the unit. Inputs are untouched then, and so is everything
            that was computed before.
    """
    if emit is not None:
        _make_ready(program)
    start = time.perf_counter()
    for index, unit in enumerate(program.units):
        began = time.perf_counter() if emit is not None else 0.0
        slots = unit.slots
        try:
            if unit.item.kind == "view":
                frame[slots[0]] = unit.call(frame[slots[1]])
            else:
                for slot, ident in zip(slots, unit.item.outputs, strict=False):
                    if frame[slot] is None:
                        frame[slot] = backend(ident.device).allocate(ident.shape)
                unit.call(*[frame[s] for s in slots])
            wait = None if emit is None else getattr(backend(unit.item.device), "synchronize", None)
            if wait is not None:  # a unit that was only launched has not run yet
                wait()
        except BaseException as error:
            if isinstance(error, MemoryError):
                plan = program.memory
                error.add_note(
                    f"the program needs {plan.peak_bytes} bytes in arenas, of which at most {plan.lower_bound_bytes} are live at a "
                    f"time, and {sum(b.nbytes for b in plan.buffers if b.offset is None)} bytes outside"
                )
            error.add_note(
                f"while {unit.item.name} ran, item {index} of {len(program.units)} of the schedule, on {unit.item.device}"
            )
            if emit is not None:
                emit(UnitFailed(index, error))
            raise
        if emit is not None:
            emit(UnitRan(index, began, time.perf_counter() - began))
        for place in unit.release:
            frame[place] = None
    if emit is not None:
        emit(RunEnded(start, time.perf_counter() - start))
