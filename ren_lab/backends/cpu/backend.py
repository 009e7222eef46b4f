"""The native CPU: NumPy arrays for storage, C for kernels."""

import os
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ren_lab.backends.base import Backend, Runner
from ren_lab.backends.cpu.compiler import find_compiler
from ren_lab.backends.cpu.draw import DrawKernel, native_draw
from ren_lab.backends.cpu.kernel import Kernel, Plan, aligned, block
from ren_lab.backends.cpu.library import Library
from ren_lab.backends.python.backend import PythonBackend
from ren_lab.backends.python.interpreter import compile_kernel, source
from ren_lab.backends.render import C, Rendered, render
from ren_lab.ir import Node, Op
from ren_lab.options import current


@cache
def available_threads() -> int:
    """How many processors this process may use, when first asked."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_random(ast: Node) -> bool:
    """Whether a kernel draws: the renderer knows nothing of it."""
    return any(node.op is Op.RANDOM for node in ast.toposort())


class CpuBackend(PythonBackend):
    """Native code on the host's processors: kernels are rendered to C, compiled when first needed, and run on all cores.

    Storage is as in `PythonBackend`. Numbers above 0 ("cpu:1") are further address spaces on the same host.

    Args:
        number: of the device.
        cc: the compiler, as a command; None for the option `cc`, else the first that is found.
        words: "native" for the host's widest vectors, or "avx512", "avx2", "scalar".
        threads: how many work on a kernel; None for the option `threads`, else one per processor. Results do not depend on it.
        cache: directory of compiled kernels; None for the user's cache directory.
        extra_flags: for the compiler.

    Raises:
        DeviceUnavailable: There is no C compiler; says what to install.
    """

    runs_plans_at_once = True  # also those that are not captured

    def __init__(
        self,
        number: int = 0,
        *,
        cc: str | None = None,
        words: str = "native",
        threads: int | None = None,
        cache: Path | None = None,
        extra_flags: tuple[str, ...] = (),
    ) -> None:
        super().__init__(number)
        self.name = f"cpu:{number}" if number else "cpu"
        if threads is not None and threads < 1:
            raise ValueError(f"threads is {threads}; give at least 1, or None for one per processor")
        self._threads = threads
        self.compiler = find_compiler(cc or getattr(current(), "cc", None), words, extra_flags)
        self.library = Library(self.compiler, cache)
        self._rendered: Callable[[Node], Rendered] = lru_cache(maxsize=4096)(lambda ast: render(ast, C))
        self._kernel: Callable[[Node], Kernel] = lru_cache(maxsize=4096)(
            lambda ast: Kernel(self._rendered(ast), self.library, self.threads)
        )

    def threads(self) -> int:
        """How many threads work on a kernel now."""
        return self._threads or getattr(current(), "threads", None) or available_threads()

    def allocate(self, shape: tuple[int, int]) -> np.ndarray:
        return aligned(shape)

    def allocate_arena(self, nbytes: int) -> np.ndarray:
        return block(nbytes, 256)

    def from_host(self, words: np.ndarray) -> np.ndarray:
        made = self.allocate(np.atleast_2d(words).shape)  # type: ignore[arg-type]
        made[...] = words
        return made

    def compile(self, ast: Node) -> Runner:
        if not _is_random(ast):
            return self._kernel(ast)
        known = native_draw(ast)
        return DrawKernel(*known, self.library, self.threads) if known else compile_kernel(ast)

    def source(self, ast: Node) -> str:
        return source(ast) if _is_random(ast) else self._rendered(ast).text

    def copy_from(self, target: np.ndarray, source: Any, source_backend: Backend) -> None:
        target[...] = source if isinstance(source, np.ndarray) else source_backend.to_host(source)

    def plan_runner(self, program: Any) -> Plan | None:
        """Runs a whole program by one native call; None where a unit is nothing for it."""
        steps: list[tuple[Kernel | int, tuple[int, ...]]] = []
        views = []
        for unit in program.units:
            item = unit.item
            if item.device != self.name:
                return None
            if item.kind == "view":
                views.append((unit.slots[0], unit.slots[1], 4 * item.view.offset))
            elif item.kind == "copy":
                if item.inputs[0].device != self.name:
                    return None
                steps.append((item.outputs[0].nbytes, unit.slots))
            elif isinstance(unit.call, Kernel):
                steps.append((unit.call, unit.slots))
            else:
                return None
        planned = [(place, offset) for place, _, offset in program.planned]
        return Plan(steps, planned, views, len(program.places), self.library, self.threads)
