"""The ways in which the native backend is built and run, as devices of their own, for tests."""

import atexit
import os
import pathlib
import shutil
import tempfile
from functools import cache

import pytest

from ren_lab.backends import DeviceUnavailable, backend, register
from ren_lab.backends.cpu import CpuBackend

# Name of the device, words, threads. The names are kinds of device that only tests know.
VARIANTS = {
    "native2": ("native", 2),
    "native1": ("native", 1),
    "avx2": ("avx2", 2),
    "scalar": ("scalar", 2),
}


@cache
def directory() -> pathlib.Path:
    """One cache of compiled kernels for a run of the tests; `REN_LAB_TEST_CACHE` keeps it between runs."""
    kept = os.environ.get("REN_LAB_TEST_CACHE")
    if kept:
        return pathlib.Path(kept)
    made = pathlib.Path(tempfile.mkdtemp(prefix="ren-lab-test-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _flags() -> set[str]:
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return set()
    return set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())


def make(name: str) -> CpuBackend:
    """The backend of a variant; skips the test where it can't be built or run."""
    words, threads = VARIANTS[name]
    if words == "avx2" and "avx2" not in _flags():
        pytest.skip(f"this processor has no {words}")
    try:
        made = CpuBackend(words=words, threads=threads, cache=directory())
    except DeviceUnavailable as missing:
        pytest.skip(str(missing))
    made.name = name
    return made


@cache
def device(name: str) -> str:
    """The name of the device of a variant, made when first asked for."""
    made = make(name)
    register(name, lambda number: made)
    assert backend(name) is made
    return name
