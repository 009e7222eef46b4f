"""The native CPU backend: kernels as C, compiled when first needed, kept in the user's cache, run on all cores."""

from ren_lab.backends.cpu.backend import CpuBackend

__all__ = ["CpuBackend"]
