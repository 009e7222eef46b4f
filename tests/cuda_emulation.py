"""CUDA programs run on the host, from their own text: a backend for tests.

Every kernel runs three times, with the threads of a block in ascending, descending and random order between barriers, and with
the buffers' addresses in the argument or in a frame; all must give the same.
"""

import atexit
import ctypes
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from ren_lab.backends import backend, register
from ren_lab.backends.cpu.kernel import address, aligned, constants
from ren_lab.backends.cuda.program import Device, Program, header, program
from ren_lab.backends.python import sampling
from ren_lab.backends.python.backend import PythonBackend
from ren_lab.backends.python.interpreter import compile_kernel
from ren_lab.ir import Node, Op

DEVICE = Device("emulated device", 9, 0, 132, 232448)
SMALL = Device("small emulated device", 8, 0, 2, 101376)

RANGE = np.dtype([("begin", "u8"), ("end", "u8"), ("writable", "u8")])
"""Memory that a launch may touch, laid out as `emulation::range`."""

ORDERS = {"ascending": 0, "descending": 1, "random": 2}

_LARGE = 1 << 9  # rows from here on are worth a compiler that optimizes
_FLAGS = (
    "-std=c++17", "-fPIC", "-shared", "-fno-strict-aliasing", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-variable",
    "-Wno-unused-function",
)  # fmt: skip


@cache
def compiler() -> str:
    """A C++ compiler; skips the test where there is none."""
    for name in ("g++", "c++", "clang++"):
        if shutil.which(name):
            return name
    pytest.skip("there is no C++ compiler (g++, c++ or clang++), and CUDA programs are emulated with one")


@cache
def directory() -> pathlib.Path:
    """Where compiled programs are; `REN_LAB_TEST_CACHE` keeps them between runs."""
    kept = os.environ.get("REN_LAB_TEST_CACHE")
    if kept:
        pathlib.Path(kept).mkdir(parents=True, exist_ok=True)
        return pathlib.Path(kept)
    made = pathlib.Path(tempfile.mkdtemp(prefix="ren-lab-test-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class Modules:
    """Functions of programs by their text. All that were announced are compiled together when one is wanted.

    Args:
        common: what stands before the programs.
    """

    def __init__(self, common: str) -> None:
        self.common = common
        self._found: dict[str, ctypes.CDLL] = {}
        self._pending: dict[str, Program] = {}

    def announce(self, made: Program) -> str:
        key = digest(made.code)
        if key not in self._found:
            self._pending[key] = made
        return key

    def library(self, key: str) -> ctypes.CDLL:
        if key not in self._found:
            library = ctypes.CDLL(str(self._build()))
            library.emulate.restype = ctypes.c_char_p
            self._found |= dict.fromkeys(self._pending, library)
            self._pending.clear()
        return self._found[key]

    def _build(self) -> pathlib.Path:
        emulator = pathlib.Path(__file__).with_name("cuda_emulation.h").read_text(encoding="utf-8")
        parts = [emulator, self.common]
        for key, made in self._pending.items():
            parts.append(made.code.replace("KERNEL", f"k{key}"))
            for each in made.launches:
                name = each.function.replace("KERNEL", f"k{key}")
                parts.append(f'extern "C" void run_{name}(const void *words) {{ emulation::call({name}, words); }}')
        text = "\n".join(parts)
        optimized = "-O1" if any(made.n >= _LARGE for made in self._pending.values()) else "-O0"
        target = directory() / f"emulated-{digest(text)}.so"
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=directory()) as aside:
                source, built = pathlib.Path(aside, "kernels.cpp"), pathlib.Path(aside, "kernels.so")
                source.write_text(text, encoding="utf-8")
                command = [compiler(), *_FLAGS, optimized, str(source), "-o", str(built)]
                done = subprocess.run(command, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr[:4000]
                built.replace(target)
        return target


MODULES = Modules(header())
_lock = threading.Lock()


class Fault(Exception):
    """A program did what no program may: the message says where."""


@dataclass
class Kernel:
    """A program that can be called like any kernel, its outputs first.

    Attributes:
        outputs: how many of the buffers it fills.
        orders: of the threads between barriers; one run for each.
        counts: bytes of buffers read, of buffers written, and of constants read, by all calls and orders.
    """

    program: Program
    outputs: int = 1
    orders: Sequence[str] = tuple(ORDERS)
    modules: Modules = MODULES
    counts: np.ndarray = field(default_factory=lambda: np.zeros(3, np.uint64))

    def __post_init__(self) -> None:
        self.key = self.modules.announce(self.program)

    def __call__(self, *storages: np.ndarray) -> None:
        made = self.program
        assert len(storages) == made.buffers
        numbers = np.array(made.numbers, np.int64)
        for place in made.draws:
            draw = sampling.current_generator().draw()
            numbers[place : place + 5].view(np.uint64)[:] = [*np.frombuffer(draw.key, "<u8"), draw.number]
        results = []
        for run, order in enumerate(self.orders):
            outputs = [aligned(s.shape) for s in storages[: self.outputs]]
            for each in outputs:
                each[...] = 0xDEAD_BEEF
            self._run([*outputs, *storages[self.outputs :]], numbers, order, by_frame=run == 1)
            results.append(outputs)
        for order, outputs in zip(self.orders, results):
            for a, b in zip(outputs, results[0]):
                if not np.array_equal(a, b):
                    raise Fault(f"with threads in {order} order the result is another one\n{made.text}")
        for storage, output in zip(storages, results[0]):
            storage[...] = output

    def _run(self, storages: list[np.ndarray], numbers: np.ndarray, order: str, by_frame: bool) -> None:
        library, made = self.modules.library(self.key), self.program
        temporaries = [aligned(shape) for shape in made.shapes[made.buffers :]]
        for each in temporaries:
            each[...] = 0xFFFF_FFFF
        buffers = [*storages, *temporaries]
        frame = np.array([7, *(address(b) for b in buffers[::-1])], np.uint64)
        tables = [constants(table) for table in made.tables]
        argument = np.zeros(1, made.call)
        argument["frame"] = frame.ctypes.data if by_frame else 0
        argument["slot"] = [len(buffers) - i if by_frame else address(b) for i, b in enumerate(buffers)]
        argument["table"][0, : len(tables)] = [table.address for table in tables]
        argument["number"] = numbers

        arrays = [*buffers, frame, *(array for table in tables for array in (table.array, *table.kept))]
        writable = {*range(self.outputs), *range(made.buffers, len(buffers))}
        known = np.array([(address(a), address(a) + a.nbytes, i in writable) for i, a in enumerate(arrays)], RANGE)
        with _lock:
            for launch in made.launches:
                name = launch.function.replace("KERNEL", f"k{self.key}")
                grid = np.array(launch.grid, np.uint32)
                fault = library.emulate(
                    getattr(library, f"run_{name}"), ctypes.c_void_p(argument.ctypes.data), ctypes.c_void_p(grid.ctypes.data),
                    launch.block, launch.shared, ORDERS[order], 1, ctypes.c_void_p(known.ctypes.data), ctypes.c_int64(len(known)),
                    ctypes.c_void_p(self.counts.ctypes.data),
                )  # fmt: skip
                if fault:
                    raise Fault(f"{launch.function}: {fault.decode()}\n{made.text}")


class EmulatedBackend(PythonBackend):
    """Kernels are CUDA programs, run on the host; storage is as in `PythonBackend`."""

    def __init__(self, name: str, device: Device) -> None:
        super().__init__()
        self.name, self.device = name, device
        self.made: dict[Node, Kernel] = {}

    def allocate(self, shape: tuple[int, int]) -> np.ndarray:
        return aligned(shape)

    def from_host(self, words: np.ndarray) -> np.ndarray:
        made = self.allocate(np.atleast_2d(words).shape)  # type: ignore[arg-type]
        made[...] = words
        return made

    def compile(self, ast: Node) -> Callable[..., Any]:
        if ast not in self.made:
            try:
                made = program(ast, self.device)
            except NotImplementedError:
                if any(node.op is Op.RANDOM for node in ast.toposort()):
                    return compile_kernel(ast)
                raise
            self.made[ast] = Kernel(made, len(ast.src) if ast.op is Op.GROUP else 1)
        return self.made[ast]


DEVICES = {"emulated": DEVICE, "emulated-small": SMALL}
"""Devices by name. The names are kinds of device that only tests know."""


def device(name: str = "emulated") -> str:
    """The name of an emulated device, made when first asked for; skips the test where there is no C++ compiler."""
    compiler()
    _make(name)
    return name


@cache
def _make(name: str) -> None:
    made = EmulatedBackend(name, DEVICES[name])
    register(name, lambda number: made)
    assert backend(name) is made
