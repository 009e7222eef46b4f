"""NVIDIA GPUs by CuPy: storage in device memory, kernels as CUDA programs, plans as CUDA graphs."""

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ren_lab.backends.base import Backend, Runner
from ren_lab.backends.cuda.driver import Driver
from ren_lab.backends.cuda.graph import Needs, Plan
from ren_lab.backends.cuda.kernel import HostKernel, Kernel
from ren_lab.backends.cuda.modules import Modules
from ren_lab.backends.cuda.program import Program, program
from ren_lab.backends.cuda.storage import Block, Constants, Queues, Storage
from ren_lab.backends.python.interpreter import compile_kernel, source
from ren_lab.backends.render import Table
from ren_lab.backends.render.parameters import TRANSFORM, twiddles
from ren_lab.ir import Node, Op

_FORMULA = re.compile(r"/\* (.*?) \*/")


class CudaBackend:
    """An NVIDIA GPU: kernels are rendered to CUDA, compiled when first needed, and replayed as CUDA graphs.

    Every call returns as soon as its work is handed to the GPU; what leaves the GPU (`to_host`) waits for it. Several threads may
    use one backend: their kernels run in the order of the calls.

    Args:
        number: of the GPU, among those that this process sees.
        cache: directory of compiled kernels; None for the user's cache directory.
        driver: what talks to the GPU; None for CuPy.

    Raises:
        DeviceUnavailable: CuPy, the driver or the GPU is not there; says what to do.
    """

    runs_plans_at_once = True  # also those that are not captured

    def __init__(self, number: int = 0, *, cache: Path | None = None, driver: Any = None) -> None:
        self.driver: Driver = Driver(number) if driver is None else driver
        self.name = self.driver.name
        self.queues = Queues(self.driver)
        self.modules = Modules(self.driver, cache)
        self._program: Callable[[Node], Program] = lru_cache(maxsize=4096)(lambda ast: program(ast, self.driver.device))
        self._kernel: Callable[[Program], Kernel] = lru_cache(maxsize=4096)(self._new_kernel)
        self._runner: Callable[[Node], Runner] = lru_cache(maxsize=4096)(self._new_runner)
        self._constants: Callable[[Table], Constants] = lru_cache(maxsize=4096)(self._new_constants)
        self._factors: Callable[[int, int, bool], Constants] = lru_cache(maxsize=1024)(
            lambda n, p, inverse: Constants(self._sent(twiddles(n, p, inverse)))
        )

    @property
    def description(self) -> str:
        """A line about the GPU."""
        device = self.driver.device
        return f"{device.name}, {self.driver.memory_bytes / 2**30:.0f} GiB, compute capability {device.major}.{device.minor}"

    # ---- storage

    def allocate(self, shape: tuple[int, int]) -> Storage:
        """Fresh storage; it takes memory when it is first used."""
        return Storage(Block(self.queues, 4 * shape[0] * shape[1]), 0, shape)

    def allocate_arena(self, nbytes: int) -> Block:
        """One block of memory; it takes it when it is first used."""
        return Block(self.queues, nbytes)

    def window(self, arena: Block, offset_bytes: int, shape: tuple[int, int]) -> Storage:
        """The part of an arena that starts at a byte offset."""
        made = Storage(arena, offset_bytes, shape)
        if not 0 <= offset_bytes <= arena.nbytes - made.nbytes:
            raise ValueError(f"a window of {made.nbytes} bytes from byte {offset_bytes} does not fit into {arena.nbytes} bytes")
        return made

    def view(self, base: Storage, offset: int, shape: tuple[int, int]) -> Storage:
        """The words of a storage from element `offset` on, without copying."""
        made = Storage(base.block, base.offset + 4 * offset, shape)
        if not 0 <= 4 * offset <= base.nbytes - made.nbytes:
            raise ValueError(
                f"a view of {made.nbytes // 4} words from word {offset} does not fit into a buffer of {base.nbytes // 4} words"
            )
        return made

    def from_host(self, words: np.ndarray) -> Storage:
        """Storage with the words of an array, on their way when this returns."""
        words = np.atleast_2d(np.asarray(words, np.uint32))
        made = self.allocate(words.shape)  # type: ignore[arg-type]
        self._send(made, words)
        return made

    def to_host(self, storage: Storage) -> np.ndarray:
        """The words as an array; waits for everything that computes them."""
        return self.queues.fetch(storage.block, storage.offset, storage.nbytes).view(np.uint32).reshape(storage.shape)

    def overlaps(self, a: Any, b: Any) -> bool:
        """Whether two storages may share memory."""
        if not (isinstance(a, Storage) and isinstance(b, Storage)) or a.block is not b.block:
            return False
        return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes

    def copy_from(self, target: Storage, source: Any, source_backend: Backend) -> None:
        """Fill `target`: within the GPU in the order of kernels, from anywhere else by a transfer that kernels may overtake."""
        if isinstance(source, Storage):
            if source.shape != target.shape:
                raise ValueError(f"a storage of shape {source.shape} does not fit into one of shape {target.shape}")
            other = source_backend.queues  # type: ignore[attr-defined]
            place, origin, nbytes = (target.block, target.offset), (source.block, source.offset), target.nbytes
            if other is self.queues:
                self.queues.copy(*place, *origin, nbytes)
            else:
                self.queues.copy_peer(*place, other, *origin, nbytes)
        else:
            self._send(target, source if isinstance(source, np.ndarray) else source_backend.to_host(source))

    def synchronize(self) -> None:
        """Wait until the GPU has done everything that it was given."""
        queues = self.queues
        for stream in (queues.uploads, queues.compute, queues.downloads):
            self.driver.synchronize(queues.mark(stream))

    def _send(self, target: Storage, words: np.ndarray) -> None:
        if words.shape != target.shape:
            raise ValueError(f"an array of shape {words.shape} does not fit into a storage of shape {target.shape}")
        self.queues.fill(target.block, target.offset, words)

    # ---- kernels

    def compile(self, ast: Node) -> Runner:
        return self._runner(ast)

    def source(self, ast: Node) -> str:
        return self._program(ast).text if self._runs_here(ast) else source(ast)

    def _runs_here(self, ast: Node) -> bool:
        """Whether there is a program for it; draws that need sorting are made by the host's samplers."""
        try:
            self._program(ast)
        except NotImplementedError:
            if any(node.op is Op.RANDOM for node in ast.toposort()):
                return False
            raise
        return True

    def _new_runner(self, ast: Node) -> Runner:
        if self._runs_here(ast):
            return self._kernel(self._program(ast))
        return HostKernel(compile_kernel(ast), self.to_host, self._send)

    def _new_kernel(self, made: Program) -> Kernel:
        formula = _FORMULA.search(made.code)
        return Kernel(made, self.modules, self.queues, self._constants, formula.group(1) if formula else "")

    def _sent(self, array: np.ndarray) -> Block:
        """A block with an array, which kernels may use from now on."""
        block = Block(self.queues, array.nbytes)
        self.queues.fill(block, 0, array)
        with self.queues.lock:
            self.queues.settle([block])
        return block

    def _new_constants(self, table: Table) -> Constants:
        array, factors = table.array(), []
        if array.dtype == TRANSFORM:
            array = array.copy()
            for record in array:
                found = self._factors(int(record["n"]), int(record["p"]), table.kind == "intt")
                record["psi"] = found.address
                factors.append(found)
        return Constants(self._sent(array), *factors)

    # ---- plans

    def plan_runner(self, program: Any) -> Plan | None:
        """Runs a whole program as one CUDA graph; None where a unit is nothing for it, as a draw or a transfer."""
        steps: list[tuple[Kernel, tuple[int, ...], str]] = []
        views = []
        for unit in program.units:
            item = unit.item
            if item.device != self.name:
                return None
            if item.kind == "view":
                views.append((unit.slots[0], unit.slots[1], 4 * item.view.offset))
            elif isinstance(unit.call, Kernel) and not unit.call.program.draws:
                steps.append((unit.call, unit.slots, item.name))
            else:
                return None
        if not steps:
            return None
        planned = [(place, offset) for place, _, offset in program.planned]
        buffers = program.memory.buffers
        needs = Needs(
            program.memory.peak_bytes, program.memory.lower_bound_bytes,
            sum(b.nbytes for b in buffers if b.reason == "final output"),
            sum(b.nbytes for b in buffers if b.reason == "already allocated"),
        )  # fmt: skip
        return Plan(steps, planned, views, len(program.places), needs, self.queues)
