"""A stand-in for `ren_lab.backends.cuda.driver.Driver`: no GPU, but streams, events, memory, modules and graphs that keep rules.

What is handed to a stream waits there. It runs when somebody waits for it, or when the schedule of the test pleases: nothing runs
before it must ("late"), each stream runs ahead of the others as far as its events allow ("early"), or chance decides (a
seed). Device memory is host memory, so programs run if the test says how (`run`). Pinned memory is spoilt once nobody holds it.
"""

import ctypes
import itertools
import pathlib
import random
import re
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cuda_emulation
import numpy as np
import pytest

from ren_lab.backends import backend, register
from ren_lab.backends.cuda import backend as backend_module
from ren_lab.backends.cuda.backend import CudaBackend
from ren_lab.backends.cuda.driver import Function
from ren_lab.backends.cuda.errors import CompileError, DeviceError, MemoryState, OutOfMemory
from ren_lab.backends.cuda.program import Device, Launch, Program
from ren_lab.backends.python.interpreter import compile_kernel
from ren_lab.backends.render import Table
from ren_lab.backends.render.parameters import TRANSFORM, twiddles
from ren_lab.ir import Node, Op
from ren_lab.ring import RingSpec

H200 = Device("NVIDIA H200", 9, 0, 132, 227 << 10)
_NAME = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(')
_UNIT = 512

SCHEDULES: tuple[str | int, ...] = ("late", "early", 1, 2)

Run = Callable[["RecordingDriver", str, str, np.ndarray, tuple[int, int, int], int, int], None]
"""Called with the name of a function, the source of its module, its argument, and grid, block and shared bytes."""


_order = threading.RLock()  # one thing at a time, on all devices


@dataclass(eq=False)
class Mark:
    """A point in a stream that events stand for."""

    stream: "Stream"
    passed: bool = False


@dataclass(eq=False)
class Event:
    mark: Mark | None = None


@dataclass(eq=False)
class Stream:
    name: str
    work: deque[Callable[[], None] | Mark | tuple[str, Mark]] = field(default_factory=deque)
    captured: list[Callable[[], None]] | None = None


@dataclass(eq=False)
class Graph:
    work: list[Callable[[], None]]


@dataclass(frozen=True)
class Module:
    source: str
    names: frozenset[str]


class Memory:
    """A piece of device memory; goes back to the pool of its stream."""

    def __init__(self, driver: "RecordingDriver", array: np.ndarray, stream: Stream) -> None:
        self.driver, self.array, self.stream = driver, array, stream
        self.ptr = array.ctypes.data
        driver.live_bytes += array.nbytes

    def __del__(self) -> None:
        self.driver.live_bytes -= self.array.nbytes
        self.driver.pool.setdefault((self.stream, self.array.nbytes), []).append(self.array)


class RecordingDriver:
    """As `Driver`.

    Args:
        schedule: "late", "early", or a seed.
        run: carries out a launch; None lets launches do nothing.
        memory_bytes: of the device.
        peers: the GPUs that can be reached directly.
        function: limits of each compiled function.

    Attributes:
        log: of the calls that reach the device: name and what matters about it.
        live_bytes: of device memory in use.
        arrays: the device's memory, used or pooled.
        fail: name of a call -> what it raises from now on; or (how many go well before, what it raises).
    """

    def __init__(
        self,
        number: int = 0,
        *,
        schedule: str | int = "late",
        run: Run | None = None,
        device: Device = H200,
        memory_bytes: int = 141 << 30,
        argument_bytes: int = 32764,
        peers: tuple[int, ...] = (),
        threads: int = 1024,
        static_shared: int = 0,
    ) -> None:
        self.number, self.name = number, f"cuda:{number}" if number else "cuda"
        self.device, self.memory_bytes, self.argument_bytes = device, memory_bytes, argument_bytes
        self.identity = "recorded"
        self.peers, self.threads, self.static_shared = peers, threads, static_shared
        self.log: list[tuple[Any, ...]] = []
        self.fail: dict[str, BaseException | tuple[int, BaseException]] = {}
        self.live_bytes = self.pinned_bytes = 0
        self.pool: dict[tuple[Stream, int], list[np.ndarray]] = {}
        self.streams: list[Stream] = []
        self.arrays: list[np.ndarray] = []
        self._run = run
        self.reschedule(schedule)

    def __repr__(self) -> str:
        return f"<RecordingDriver {self.name}, {self._schedule}>"

    def reschedule(self, schedule: str | int) -> None:
        """From now on work runs at another schedule."""
        self._schedule = schedule
        self._chance = random.Random(schedule) if isinstance(schedule, int) else None

    def calls(self, name: str) -> list[tuple[Any, ...]]:
        """What was recorded of one kind of call."""
        return [entry[1:] for entry in self.log if entry[0] == name]

    def _note(self, name: str, *what: Any) -> None:
        failure = self.fail.get(name)
        if isinstance(failure, tuple):
            left, failure = failure[0], failure[1]
            if left:
                self.fail[name] = (left - 1, failure)
                failure = None
        if failure is not None:
            raise failure
        self.log.append((name, *what))

    # ---- the order of things

    def _give(self, stream: Stream, work: Any) -> None:
        assert stream in self.streams, "a stream of another device"
        with _order:
            stream.work.append(work)
            if self._schedule == "early":
                for each in self.streams:
                    while self._step(each):
                        pass
            elif self._chance is not None:
                for _ in range(self._chance.randrange(4)):
                    self._step(self._chance.choice(self.streams))

    @staticmethod
    def _step(stream: Stream) -> bool:
        """Do the next thing of a stream, if it need not wait."""
        if not stream.work:
            return False
        work = stream.work[0]
        if isinstance(work, tuple) and not work[1].passed:
            return False
        stream.work.popleft()
        if isinstance(work, Mark):
            work.passed = True
        elif not isinstance(work, tuple):
            work()
        return True

    def _reach(self, mark: Mark) -> None:
        """Do what must be done before a mark is passed, and no more."""
        wanted = [mark]
        with _order:
            while wanted:
                mark = wanted[-1]
                if mark.passed:
                    wanted.pop()
                elif not self._step(mark.stream):
                    blocked = mark.stream.work[0]
                    assert isinstance(blocked, tuple) and blocked[1] not in wanted, "streams wait for each other"
                    wanted.append(blocked[1])

    def finish(self) -> None:
        """Do everything that was given."""
        for stream in self.streams:
            mark = Mark(stream)
            stream.work.append(mark)
            self._reach(mark)

    # ---- as Driver

    def stream(self) -> Any:
        made = Stream(("compute", "uploads", "downloads")[len(self.streams)] if len(self.streams) < 3 else "capture")
        self.streams.append(made)
        return made

    def event(self, timed: bool = False) -> Any:
        return Event()

    def record(self, event: Any, stream: Any) -> None:
        self._note("record", stream.name)
        assert stream.captured is None, "an event in a captured stream"
        event.mark = Mark(stream)
        self._give(stream, event.mark)

    def wait(self, stream: Any, event: Any) -> None:
        self._note("wait", stream.name, event.mark.stream.name)
        assert stream.captured is None, "a captured stream can't wait for what is not captured"
        self._give(stream, ("wait", event.mark))

    def finished(self, event: Any) -> bool:
        return event.mark.passed

    def synchronize(self, event: Any) -> None:
        self._note("synchronize", event.mark.stream.name)
        self._reach(event.mark)

    def milliseconds(self, begin: Any, end: Any) -> float:
        assert begin.mark.passed and end.mark.passed
        return 1.0

    def allocate(self, nbytes: int, stream: Any) -> Any:
        self._note("allocate", nbytes, stream.name)
        size = -(-max(nbytes, 1) // _UNIT) * _UNIT
        free = self.pool.get((stream, size))
        if free:
            return Memory(self, free.pop(), stream)
        if self.live_bytes + size > self.memory_bytes:
            raise OutOfMemory(self.name, nbytes, self.memory())
        block = np.full(size + _UNIT, 0xA5, np.uint8)
        skip = -block.ctypes.data % _UNIT
        array = block[skip : skip + size]
        self.arrays.append(array)
        return Memory(self, array, stream)

    def memory(self) -> MemoryState:
        pooled = sum(array.nbytes for arrays in self.pool.values() for array in arrays)
        return MemoryState(self.memory_bytes - self.live_bytes - pooled, self.memory_bytes, pooled, self.live_bytes)

    def pinned(self, nbytes: int) -> np.ndarray:
        self._note("pinned", nbytes)
        slab = np.empty(nbytes, np.uint8)
        held = (ctypes.c_char * nbytes).from_address(slab.ctypes.data)
        self.pinned_bytes += nbytes

        def released() -> None:
            slab[:] = 0xEE
            self.pinned_bytes -= nbytes
            _spoilt.append(slab)  # stays where it is: somebody may still read it, and is to see that it is spoilt

        weakref.finalize(held, released)
        return np.ndarray((nbytes,), np.uint8, held)

    def upload(self, address: int, source: np.ndarray, stream: Any) -> None:
        self._note("upload", source.nbytes, stream.name)
        self._move(address, source.ctypes.data, source.nbytes, stream, [self], [])

    def download(self, target: np.ndarray, address: int, stream: Any) -> None:
        self._note("download", target.nbytes, stream.name)
        self._move(target.ctypes.data, address, target.nbytes, stream, [], [self])

    def copy(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        self._note("copy", nbytes, stream.name)
        self._move(target, source, nbytes, stream, [self], [self])

    def reaches(self, number: int) -> bool:
        self._note("reaches", number)
        return number in self.peers

    def copy_peer(self, target: int, source: int, number: int, nbytes: int, stream: Any) -> None:
        self._note("copy_peer", nbytes, number, stream.name)
        assert number in self.peers
        self._move(target, source, nbytes, stream, [self], [])

    def compile(self, source: str) -> bytes:
        self._note("compile", source)
        if "REFUSED" in source:
            line = source[: source.index("REFUSED")].count("\n") + 1
            log = f'kernels.cu({line}): error: identifier "REFUSED" is undefined\n\n1 error detected.\n'
            raise CompileError(log, source, log)
        return source.encode()

    def load(self, image: bytes) -> Any:
        self._note("load", len(image))
        source = image.decode()
        names = frozenset(_NAME.findall(source))
        if not names:
            raise DeviceError(f"device {self.name!r} failed: no kernel image")
        return Module(source, names)

    def function(self, module: Any, name: str, shared: int = 0) -> Function:
        self._note("function", name, shared)
        if name not in module.names:
            raise DeviceError(f"device {self.name!r} failed: named symbol not found: {name}")
        return Function((module, name), name, self.threads, self.static_shared, 0)

    def launch(
        self, function: Function, grid: tuple[int, int, int], block: int, shared: int, argument: np.ndarray, stream: Any
    ) -> None:
        assert argument.shape == (1,) and argument.dtype.names == ("frame", "slot", "table", "number")
        self._note("launch", function.name, grid, block, shared, argument.tobytes(), stream.name)
        module, name = function.handle
        by_value = argument.copy()

        def work() -> None:
            if self._run is not None:
                self._run(self, name, module.source, by_value, grid, block, shared)

        if stream.captured is not None:
            stream.captured.append(work)
        else:
            self._give(stream, work)

    def begin_capture(self, stream: Any) -> None:
        self._note("begin_capture", stream.name)
        assert stream.captured is None and not stream.work
        stream.captured = []

    def end_capture(self, stream: Any) -> Any:
        made, stream.captured = Graph(stream.captured), None
        self._note("end_capture", stream.name, len(made.work))
        return made

    def upload_graph(self, graph: Any, stream: Any) -> None:
        self._note("upload_graph", stream.name)

    def launch_graph(self, graph: Any, stream: Any) -> None:
        self._note("launch_graph", stream.name)

        def work() -> None:
            for each in graph.work:
                each()

        self._give(stream, work)

    ending = staticmethod(sys.is_finalizing)

    # ---- memory

    def _move(
        self, target: int, source: int, nbytes: int, stream: Stream, written: "list[RecordingDriver]", read: "list[RecordingDriver]"
    ) -> None:
        for driver, address in [*((d, target) for d in written), *((d, source) for d in read)]:
            driver.words(address, nbytes)
        self._give(stream, lambda: ctypes.memmove(target, source, nbytes))

    def words(self, address: int, nbytes: int) -> np.ndarray:
        """uint8[nbytes]: the device's memory at an address."""
        for array in self.arrays:
            begin = address - array.ctypes.data
            if 0 <= begin and begin + nbytes <= array.nbytes:
                return array[begin : begin + nbytes]
        raise AssertionError(f"{nbytes} bytes at {address:#x} are not memory of {self.name}")


_spoilt: list[np.ndarray] = []


# --------------------------------------------------------------------------------------------------------------------
# Programs that run without being rendered: a launch interprets the kernel's body

_bodies: list[Node] = []


def stand_in(ast: Node, device: Device) -> Program:
    """A program of two launches: the first one computes the body into temporaries, the second one copies them to the outputs.

    Its text depends on the operations of the body alone.
    """
    nodes = ast.toposort()
    if any(node.op is Op.RANDOM for node in nodes):
        raise NotImplementedError("a draw")
    slots = {node.arg.number: node.arg.shape for node in nodes if node.op is Op.SLOT}
    shapes = tuple(slots.get(number, (0, 0)) for number in range(max(slots) + 1))
    _bodies.append(ast)
    outputs, ring = _results(ast)
    names = " ".join(node.op.name for node in nodes)
    code = "\n".join(
        f'/* {what} {names} */\nextern "C" __global__ void KERNEL_{i}(call k)\n{{\n}}'
        for i, what in enumerate(("compute", "deliver"))
    )
    launches = (Launch("KERNEL_0", (ring.limbs, 2, 1), 64, 0), Launch("KERNEL_1", (1, 1, 1), 32, 50 << 10))
    tables = (Table("p", ring), Table("ntt", ring))
    return Program(
        code,
        launches,
        (len(_bodies) - 1, ring.n),
        tables,
        ("number[0]: the body",),
        (*shapes, *shapes[:outputs]),
        len(shapes),
        ring.n,
    )


def _results(ast: Node) -> tuple[int, RingSpec]:
    """How many outputs a body has, and the ring of the first."""
    stores = ast.src if ast.op is Op.GROUP else (ast,)
    ring = stores[0].src[1].ring
    assert ring is not None
    return len(stores), ring


def interpret(
    driver: RecordingDriver, name: str, source: str, argument: np.ndarray, grid: tuple[int, int, int], block: int, shared: int
) -> None:
    """A launch of a program of `stand_in`."""
    comment = source[: source.index(f" {name}(")].rpartition("/* ")[2]
    frame, slots, numbers = int(argument["frame"][0]), argument["slot"][0].tolist(), argument["number"][0].tolist()
    if frame:
        addresses = driver.words(frame, 8 * (1 + max(slots))).view(np.uint64)
        slots = [int(addresses[slot]) for slot in slots]
    ast = _bodies[numbers[0]]
    shapes = {node.arg.number: node.arg.shape for node in ast.toposort() if node.op is Op.SLOT}
    _check_tables(driver, ast, argument["table"][0].tolist())

    def words(address: int, shape: tuple[int, int]) -> np.ndarray:
        return driver.words(address, 4 * shape[0] * shape[1]).view(np.uint32).reshape(shape)

    outputs, _ = _results(ast)
    buffers = len(slots) - outputs
    temporaries = [words(slots[buffers + i], shapes[i]) for i in range(outputs)]
    if comment.startswith("deliver"):
        for i, temporary in enumerate(temporaries):
            words(slots[i], shapes[i])[...] = temporary
    else:
        inputs = [words(slots[i], shapes[i]) if i in shapes else np.zeros((0, 0), np.uint32) for i in range(outputs, buffers)]
        compile_kernel(ast)(*temporaries, *inputs)


def _check_tables(driver: RecordingDriver, ast: Node, tables: list[int]) -> None:
    """The constants that a program was given are where it is told, and complete."""
    _, ring = _results(ast)
    assert driver.words(tables[0], 4 * ring.limbs).view(np.uint32).tolist() == list(ring.moduli)
    records = driver.words(tables[1], TRANSFORM.itemsize * ring.limbs).view(TRANSFORM)
    for record, p in zip(records, ring.moduli, strict=True):
        assert record["n"] == ring.n and record["p"] == p
        factors = driver.words(int(record["psi"]), 4 * ring.n).view(np.uint32)
        assert np.array_equal(factors, twiddles(ring.n, p, False))


# --------------------------------------------------------------------------------------------------------------------
# The real programs, run on the host

_emulated = cuda_emulation.Modules("")


def emulate(
    driver: RecordingDriver, name: str, source: str, argument: np.ndarray, grid: tuple[int, int, int], block: int, shared: int
) -> None:
    """A launch of a rendered program, from the text of its module. It may touch the device's memory and nothing else."""
    functions = tuple(Launch(function, (1, 1, 1), 1, 0) for function in _NAME.findall(source))
    library = _emulated.library(_emulated.announce(Program(source, functions, (), (), (), (), 0, 0)))
    known = np.array([(a.ctypes.data, a.ctypes.data + a.nbytes, True) for a in driver.arrays], cuda_emulation.RANGE)
    blocks, counts = np.array(grid, np.uint32), np.zeros(3, np.uint64)
    fault = library.emulate(
        getattr(library, f"run_{name}"), ctypes.c_void_p(argument.ctypes.data), ctypes.c_void_p(blocks.ctypes.data), block, shared,
        cuda_emulation.ORDERS["ascending"], 1, ctypes.c_void_p(known.ctypes.data), ctypes.c_int64(len(known)),
        ctypes.c_void_p(counts.ctypes.data),
    )  # fmt: skip
    assert not fault, f"{name}: {fault.decode()}"


# --------------------------------------------------------------------------------------------------------------------
# Devices

_numbers = itertools.count()


def device(
    cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch, rendered: bool = False, **settings: Any
) -> tuple[str, CudaBackend]:
    """A device of its own for a test: its name, and its backend. `rendered`: programs are the real ones, run by emulation."""
    kind = f"recorded{next(_numbers)}"
    if rendered:
        cuda_emulation.compiler()
    else:
        monkeypatch.setattr(backend_module, "program", stand_in)
    settings.setdefault("run", emulate if rendered else interpret)

    def make(number: int) -> CudaBackend:
        driver = RecordingDriver(number, **settings)
        made = CudaBackend(cache=cache, driver=driver)
        made.name = f"{kind}:{number}" if number else kind
        return made

    register(kind, make)
    made = backend(kind)
    assert isinstance(made, CudaBackend)
    return kind, made


def driver_of(made: CudaBackend) -> RecordingDriver:
    """What records the calls of a backend."""
    assert isinstance(made.driver, RecordingDriver)
    return made.driver
