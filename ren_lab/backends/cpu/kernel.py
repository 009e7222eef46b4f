"""One kernel, ready to be called; and whole programs as one call."""

import ctypes
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ren_lab.backends.cpu.library import Library
from ren_lab.backends.render import Rendered, Table
from ren_lab.backends.render.parameters import TRANSFORM, twiddles

_address_of = ctypes.addressof
_from_buffer = ctypes.c_char.from_buffer

ALIGNMENT = 64


def block(nbytes: int, alignment: int) -> np.ndarray:
    """uint8[nbytes], its content undefined, that begins at a multiple of `alignment`, a power of two."""
    made = np.empty(nbytes + alignment, np.uint8)
    skip = -address(made) % alignment
    return made[skip : skip + nbytes]


def aligned(shape: tuple[int, int]) -> np.ndarray:
    """uint32[shape], its content undefined, that begins at a cache line."""
    made = np.empty(4 * shape[0] * shape[1] + ALIGNMENT, np.uint8)
    return np.ndarray(shape, np.uint32, made, -address(made) % ALIGNMENT)


def address(array: np.ndarray) -> int:
    """Where the data of a contiguous array is."""
    try:
        return _address_of(_from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        if not array.flags.c_contiguous:
            raise ValueError(f"a storage of shape {array.shape} is not contiguous; copy it with np.ascontiguousarray") from None
        return array.ctypes.data  # closed for writing, or empty


class Constants:
    """A table in memory, and what it points at."""

    __slots__ = ("array", "kept", "address")

    def __init__(self, table: Table) -> None:
        array = table.array()
        self.kept: list[np.ndarray] = []
        if array.dtype == TRANSFORM:
            array = array.copy()
            for record in array:
                factors = twiddles(int(record["n"]), int(record["p"]), table.kind == "intt")
                self.kept.append(factors)
                record["psi"] = address(factors)
        self.array = array
        self.address = address(array)


@lru_cache(maxsize=1024)
def constants(table: Table) -> Constants:
    """The table in memory; equal tables are held once."""
    return Constants(table)


class Kernel:
    """A compiled kernel: call it with the output's array and the inputs' arrays, uint32[rows, n] each, contiguous.

    The output must not overlap an input. It may run in several threads at once.
    """

    __slots__ = ("rendered", "_library", "_key", "_function", "_threads", "_constants", "tables", "numbers", "_pointers", "_shapes")

    def __init__(self, rendered: Rendered, library: Library, threads: Callable[[], int]) -> None:
        self.rendered = rendered
        self._library = library
        self._key = library.announce(rendered)
        self._function: int | None = None
        self._threads = threads
        self._constants: tuple[Constants, ...] = ()
        self.tables = np.zeros(0, np.uint64)
        self.numbers = np.array(rendered.numbers, np.int64)
        self._pointers = ctypes.c_void_p * len(rendered.shapes)
        self._shapes = rendered.shapes[: rendered.buffers]

    @property
    def function(self) -> int:
        """Its address; compiled when first needed."""
        if self._function is None:
            with self._library.lock:  # one thread fills in the tables, once: others may run with them already
                if self._function is None:
                    function = self._library.address(self._key)
                    self._constants = tuple(map(constants, self.rendered.tables))
                    self.tables = np.array([c.address for c in self._constants], np.uint64)
                    self._function = function
        return self._function

    def prepare(self) -> None:
        """Do all that the first call would do besides its work."""
        self.function, self._library.support  # noqa: B018

    def temporaries(self) -> list[np.ndarray]:
        """Fresh arrays for the slots that are not the caller's."""
        return [aligned(shape) for shape in self.rendered.shapes[self.rendered.buffers :]]

    def __call__(self, *storages: np.ndarray) -> None:
        function = self.function
        for storage, shape in zip(storages, self._shapes, strict=True):
            if storage.shape != shape and shape[0]:
                raise ValueError(f"a kernel was given a storage of shape {storage.shape}; it works on {shape}")
        temporaries = self.temporaries()
        slots = self._pointers(*map(address, storages), *map(address, temporaries))
        self._library.support.invoke(function, slots, address(self.tables), address(self.numbers), self._threads())


STEP = np.dtype([("kernel", "u8"), ("place", "u8"), ("places", "i8"), ("table", "u8"), ("number", "u8")])
"""One step of a plan, laid out as `ren_step` in C."""


class Plan:
    """A list of kernels and copies over places of a frame, run by one call.

    Args:
        steps: (kernel, places of its buffers); for a copy (number of bytes, places of target and source).
        planned: (place, offset in bytes) of the windows of the arena.
        views: (place, place of its base, offset in bytes), bases first.
        places: how many the frame has.

    Attributes:
        places: how many the frame has.
        arguments: of `ren_run_plan`, up to the frame.
        scratch: shapes of temporaries of kernels, which follow the places of the frame.
        room: how many buffers the step with most of them has.
        direct: the places whose storage must be in the frame; the others are windows of these.
    """

    def __init__(
        self,
        steps: Sequence[tuple[Kernel | int, tuple[int, ...]]],
        planned: Sequence[tuple[int, int]],
        views: Sequence[tuple[int, int, int]],
        places: int,
        library: Library,
        threads: Callable[[], int],
    ) -> None:
        self.support, self.threads = library.support, threads
        self._kept: list[Any] = []
        self._steps = np.zeros(max(len(steps), 1), STEP)
        self.places = places
        self.scratch: list[tuple[int, int]] = []  # temporaries of kernels, shared by all that are as large
        self.room = 2  # of the step with most buffers
        for record, (kernel, where) in zip(self._steps, steps):
            if isinstance(kernel, Kernel):
                used = list(where)
                for rank, shape in enumerate(kernel.rendered.shapes[kernel.rendered.buffers :]):
                    if rank == len(self.scratch):
                        self.scratch.append(shape)
                    if shape[0] * shape[1] > self.scratch[rank][0] * self.scratch[rank][1]:
                        self.scratch[rank] = shape
                    used.append(places + rank)
                record["kernel"] = kernel.function
                record["table"], record["number"] = address(kernel.tables), address(kernel.numbers)
                self._kept.append(kernel)
            else:
                used = list(where)
                number = np.array([kernel], np.int64)
                record["number"] = address(number)
                self._kept.append(number)
            slots = np.array(used, np.int32)
            record["place"], record["places"] = address(slots), len(used)
            self._kept.append(slots)
            self.room = max(self.room, len(used))
        windows = [(place, planned[0][0], offset - planned[0][1]) for place, offset in planned[1:]] + list(views)
        self._windows = np.array(windows, np.int64).reshape(-1, 3)  # laid out as `ren_window`
        self.arguments = address(self._steps), len(steps), address(self._windows), len(windows)
        touched = {p for _, where in steps for p in where} | {base for _, base, _ in windows}
        self.direct = sorted(touched - {place for place, _, _ in windows})

    def bind(self, frame: list[Any], late: Collection[int] = ()) -> "BoundPlan":
        """What runs the plan on a frame. The storages of the places in `late` are looked up at each call, the others now."""
        return BoundPlan(self, frame, late)


class BoundPlan:
    """A plan on one frame, run by one call at a time."""

    __slots__ = ("_plan", "_frame", "_late", "_pointers", "_arguments", "_kept")

    def __init__(self, plan: Plan, frame: list[Any], late: Collection[int]) -> None:
        self._plan, self._frame = plan, frame
        self._late = [place for place in plan.direct if place in late]
        held = {place: frame[place] for place in plan.direct if place not in late}
        for rank, shape in enumerate(plan.scratch):
            held[plan.places + rank] = aligned(shape)
        self._pointers = (ctypes.c_uint64 * (plan.places + len(plan.scratch)))()
        for place, storage in held.items():
            self._pointers[place] = address(storage)
        self._arguments = (*plan.arguments, self._pointers, (ctypes.c_uint64 * plan.room)())
        self._kept = held

    def __call__(self) -> None:
        frame, pointers = self._frame, self._pointers
        for place in self._late:
            pointers[place] = address(frame[place])
        self._plan.support.run_plan(*self._arguments, self._plan.threads())
