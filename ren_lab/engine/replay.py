"""A captured program made ready to run again and again.

A `Replay` owns workspaces: arenas and temporaries of one program, with every call whose arguments never change bound to them
beforehand. A run takes one workspace for itself, binds inputs and outputs, runs a flat list of calls, and lets the inputs go.
Two threads that replay one plan get two workspaces.

A device may do better: `program.runner` runs the whole program on a frame, as a graph of launches or one native call.
"""

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ren_lab.backends import backend
from ren_lab.engine.storage import new_buffer, storage_of
from ren_lab.engine.units import ExecUnit, Program, run_exec_units
from ren_lab.events import Emit
from ren_lab.ir import BufferId, Node

_KEPT_WORKSPACES = 4
_KEPT_OUTPUTS = 4


class _Workspace:
    """One program's memory, and its calls bound to it: `run` does them."""

    __slots__ = ("frame", "calls", "late", "bound", "at_once")

    def __init__(self, program: Program, constants: Mapping[int, Any], bound: frozenset[int]) -> None:
        frame = program.frame()
        for place, storage in constants.items():
            frame[place] = storage
        for ident, place in program.places.items():  # temporaries outside the arena are kept as well
            if frame[place] is None and place not in bound:
                frame[place] = backend(ident.device).allocate(ident.shape)
        self.frame = frame
        self.at_once: Callable[[], None] | None = None
        if program.runner is not None:
            self.at_once = program.runner.bind(frame, bound)
            return
        self.bound = tuple(bound)
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.late: list[tuple[int, Callable[..., Any], tuple[int, ...]]] = []
        for unit in program.units:
            if unit.item.kind == "view":
                self._bind_view(unit, bound)
                continue
            if any(slot in bound for slot in unit.slots):
                self.late.append((len(self.calls), unit.call, unit.slots))
                self.calls.append((unit.call, ()))
            else:
                self.calls.append((unit.call, tuple(frame[s] for s in unit.slots)))

    def _bind_view(self, unit: ExecUnit, bound: frozenset[int]) -> None:
        view, base = unit.slots
        if base in bound or self.frame[base] is None:
            frame, call = self.frame, unit.call

            def open_window() -> None:
                frame[view] = call(frame[base])

            self.calls.append((open_window, ()))
        else:
            self.frame[view] = unit.call(self.frame[base])

    def run(self) -> None:
        if self.at_once is not None:
            self.at_once()
            return
        frame, calls = self.frame, self.calls
        for index, call, slots in self.late:
            calls[index] = (call, tuple([frame[s] for s in slots]))
        try:
            for call, arguments in calls:
                call(*arguments)
        finally:
            for index, call, _ in self.late:
                calls[index] = (call, ())
            for place in self.bound:
                frame[place] = None


class OutputPool:
    """Storage for the outputs of a plan: an earlier one if nobody can reach it any more, otherwise a new one."""

    __slots__ = ("_entries", "_idents", "_lock")

    def __init__(self, idents: Sequence[BufferId]) -> None:
        self._idents = idents
        self._entries: list[list[tuple[weakref.ref[Node], Any]]] = [[] for _ in idents]
        self._lock = threading.Lock()

    def take(self) -> list[Any]:
        """For each output a storage that no live node stands for."""
        taken = []
        with self._lock:
            for entries in self._entries:
                free = next((i for i, (node, _) in enumerate(entries) if node() is None), None)
                taken.append(None if free is None else entries.pop(free)[1])
        for i, ident in enumerate(self._idents):
            if taken[i] is None:
                taken[i] = backend(ident.device).allocate(ident.shape)
        return taken

    def give(self, filled: Sequence[Any]) -> list[Node]:
        """A BUFFER node for each filled storage; once nobody holds the node, the storage may be taken again."""
        nodes = [new_buffer(i.device, i.shape, storage, i.pinned) for i, storage in zip(self._idents, filled, strict=True)]
        with self._lock:
            for entries, node, storage in zip(self._entries, nodes, filled, strict=True):
                if len(entries) < _KEPT_OUTPUTS:
                    entries.append((weakref.ref(node), storage))
        return nodes


class Replay:
    """Runs one program on changing inputs.

    Args:
        program: what to run.
        inputs: the buffers that each run binds, in order.
        constants: the BUFFER nodes that stand for the other buffers that no unit writes; they stay alive with it.
        reuse_outputs: fill the same output buffers at each run, whoever still holds them.
    """

    def __init__(
        self, program: Program, inputs: Sequence[BufferId], constants: Mapping[BufferId, Node], reuse_outputs: bool = False
    ) -> None:
        self.program = program
        self.inputs = tuple(inputs)
        self.outputs = program.outputs
        held = {program.places[ident]: node for ident, node in constants.items() if ident in program.places}
        self._held = tuple(held.values())  # whoever made them gives their storage to others once they are gone
        self._constants = {place: storage_of(node) for place, node in held.items()}
        self._input_places = [program.places[ident] for ident in self.inputs]
        self._output_places = [program.places[ident] for ident in self.outputs]
        self._bound = frozenset([*self._input_places, *self._output_places])
        self._pool = OutputPool(self.outputs)
        self._fixed: list[Node] | None = None
        self._fixed_storage: list[Any] = []
        self._reuse = reuse_outputs
        self._idle: list[_Workspace] = []
        self._lock = threading.RLock()

    @property
    def runner(self) -> str:
        """What runs the plan: "graph" of the backend, or the "flat" list of calls."""
        return "graph" if self.program.runner else "flat"

    def run(self, storages: Sequence[Any], emit: Emit | None = None) -> list[Node]:
        """Run on input storages, one per entry of `inputs`; returns the BUFFER nodes of the outputs, in their order."""
        if self._reuse:
            with self._lock:  # one set of outputs, so one run at a time
                return self._run_reusing(storages, emit)
        filled = self._pool.take()
        self._fill(storages, filled, emit)
        return self._pool.give(filled)

    def _run_reusing(self, storages: Sequence[Any], emit: Emit | None) -> list[Node]:
        if self._fixed is None:
            self._fixed_storage = [backend(i.device).allocate(i.shape) for i in self.outputs]
        guarded = []
        for ident, storage in zip(self.inputs, storages, strict=True):
            device = backend(ident.device)
            if any(device.overlaps(storage, out) for out in self._fixed_storage):  # a feedback loop reads before it writes
                copied = device.allocate(ident.shape)
                device.copy_from(copied, storage, device)
                storage = copied
            guarded.append(storage)
        self._fill(guarded, self._fixed_storage, emit)
        if self._fixed is None:
            self._fixed = [
                new_buffer(i.device, i.shape, s, i.pinned) for i, s in zip(self.outputs, self._fixed_storage, strict=True)
            ]
        return self._fixed

    def _fill(self, storages: Sequence[Any], filled: Sequence[Any], emit: Emit | None) -> None:
        with self._lock:
            workspace = self._idle.pop() if self._idle else None
        if workspace is None:
            workspace = _Workspace(self.program, self._constants, self._bound)
        frame = workspace.frame
        for place, storage in zip(self._input_places, storages, strict=True):
            frame[place] = storage
        for place, storage in zip(self._output_places, filled, strict=True):
            frame[place] = storage
        try:
            if emit is not None:
                run_exec_units(self.program, list(frame), emit)
            else:
                workspace.run()
        finally:
            for place in self._bound:
                frame[place] = None
        with self._lock:
            if len(self._idle) < _KEPT_WORKSPACES:
                self._idle.append(workspace)
