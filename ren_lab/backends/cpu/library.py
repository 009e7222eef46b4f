"""Rendered kernels become functions: looked up in the cache, and what is missing is compiled together, once.

A kernel is compiled when it is first wanted, and then every kernel that has been asked for until then is, in one call of the
compiler: all kernels of a program, as a rule.
"""

import ctypes
import threading
from collections.abc import Sequence
from pathlib import Path

from ren_lab.backends.cpu.cache import Cache
from ren_lab.backends.cpu.compiler import Compiler, digest, shared_sources
from ren_lab.backends.render import C, Rendered

_SHORTEST_ROW = 16
"""Rows shorter than the longest word are worked on one residue at a time."""


class Support:
    """The library that all kernels share.

    Attributes:
        invoke: (kernel, slots, tables, numbers, threads), all addresses but the last.
        run_plan: (steps, their number, windows, their number, frame, room for slots, threads).
        draw_into: (storage, draw, threads).
        lanes: residues in a word of this build.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, count = ctypes.c_void_p, ctypes.c_int64
        self.invoke = library.ren_invoke
        self.invoke.argtypes, self.invoke.restype = (pointer, pointer, pointer, pointer, count), None
        self.run_plan = library.ren_run_plan
        self.run_plan.argtypes = (pointer, count, pointer, count, pointer, pointer, count)
        self.run_plan.restype = None
        self.draw_into = library.ren_draw_into
        self.draw_into.argtypes, self.draw_into.restype = (pointer, pointer, count), None
        library.ren_lanes.restype = ctypes.c_int
        self.lanes = int(library.ren_lanes())


class Library:
    """Functions of rendered kernels.

    Args:
        compiler: what builds them.
        directory: of the cache; None for the user's.

    Attributes:
        lock: held while kernels are compiled, and while what belongs to one is put together.
    """

    def __init__(self, compiler: Compiler, directory: Path | None = None) -> None:
        self.compiler = compiler
        self.cache = Cache(directory)
        self._common = digest(shared_sources(), compiler.identity)
        self._addresses: dict[str, int] = {}
        self._pending: dict[str, Rendered] = {}
        self.lock = threading.RLock()
        self._support: Support | None = None

    @property
    def support(self) -> Support:
        """The shared library, built when first needed."""
        with self.lock:
            if self._support is None:
                key = digest(self._common, "support")
                library = self.cache.find(key, "ren_invoke")
                if library is None:
                    library = self._build('#include "support.c"\n', False, [key])
                self._support = Support(library)
            return self._support

    def announce(self, kernel: Rendered) -> str:
        """A kernel will be wanted; gives its key."""
        scalar = kernel.n < _SHORTEST_ROW
        key = digest(self._common, "scalar" if scalar else "", kernel.code)
        with self.lock:
            if key not in self._addresses:
                self._pending[key] = kernel
        return key

    def address(self, key: str) -> int:
        """The address of the function of an announced kernel."""
        with self.lock:
            found = self._addresses.get(key)
            if found is None:
                self._compile_pending()
                found = self._addresses[key]
            return found

    def _compile_pending(self) -> None:
        missing = []
        for key in list(self._pending):
            library = self.cache.find(key, _symbol(key))
            if library is None:
                missing.append(key)
            else:
                self._found(key, library)
        for scalar in (False, True):
            some = {key: self._pending[key] for key in missing if (self._pending[key].n < _SHORTEST_ROW) is scalar}
            missing = [key for key in missing if key not in some]
            if some:
                texts = [kernel.code.replace("KERNEL", _symbol(key)) for key, kernel in some.items()]
                library = self._build("\n".join([C.header, *texts]), scalar, list(some))
                for key in some:
                    self._found(key, library)

    def _found(self, key: str, library: ctypes.CDLL) -> None:
        address = ctypes.cast(getattr(library, _symbol(key)), ctypes.c_void_p).value
        assert address is not None
        self._addresses[key] = address
        del self._pending[key]

    def _build(self, source: str, scalar: bool, keys: Sequence[str]) -> ctypes.CDLL:
        with self.cache.temporary(".so") as target:
            self.compiler.build(source, target, scalar)
            return self.cache.add(target, keys)


def _symbol(key: str) -> str:
    return f"ren_{key}"
