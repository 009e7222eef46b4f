"""The native CPU backend: kernels as C, compiled when first needed, kept in the user's cache, run on all cores."""

from ren_lab.backends.cpu.backend import CpuBackend
from ren_lab.backends.cpu.compiler import compiler_present

__all__ = ["CpuBackend", "compiler_present"]
