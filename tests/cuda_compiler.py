"""NVRTC without a device: cubins of CUDA programs, and what the assembler says about them."""

import ctypes
import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Report:
    """What the assembler says of a function: registers of a thread, and bytes a thread has in local memory or spills there."""

    registers: int
    stack: int
    spilled: int
    shared: int


@cache
def library() -> ctypes.CDLL:
    """NVRTC, from the wheel `nvidia-cuda-nvrtc` or from a CUDA toolkit; skips the test where there is neither."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or []) if spec else []
    wheels = sorted((str(f) for folder in folders for f in Path(folder).glob("*/lib/libnvrtc.so.*")), reverse=True)
    for name in [*wheels, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    pytest.skip("NVRTC is not installed (pip install nvidia-cuda-nvrtc)")


def compiled(source: str, architecture: str) -> dict[str, Report]:
    """Compile to a cubin; gives the report of each function."""
    nvrtc, handle = library(), ctypes.c_void_p()
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(handle), source.encode(), b"kernels.cu", 0, None, None)
    assert made == 0, made
    try:
        options = [b"--gpu-architecture=" + architecture.encode(), b"--std=c++17", b"--ptxas-options=-v"]
        status = nvrtc.nvrtcCompileProgram(handle, len(options), (ctypes.c_char_p * len(options))(*options))
        size = ctypes.c_size_t()
        assert nvrtc.nvrtcGetProgramLogSize(handle, ctypes.byref(size)) == 0
        log = ctypes.create_string_buffer(size.value)
        assert nvrtc.nvrtcGetProgramLog(handle, log) == 0
        text = log.value.decode()
        assert status == 0, text
        assert nvrtc.nvrtcGetCUBINSize(handle, ctypes.byref(size)) == 0
        assert size.value > 0
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(handle))
    return reports(text)


_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def reports(log: str) -> dict[str, Report]:
    """What `ptxas -v` says, by function."""
    found = {}
    for part in re.split(r"Compiling entry function '", log)[1:]:
        frame, registers, shared = (
            _FRAME.search(part),
            re.search(r"Used (\d+) registers", part),
            re.search(r"(\d+) bytes smem", part),
        )
        assert frame is not None and registers is not None, part
        stack, stores, loads = map(int, frame.groups())
        found[part.split("'")[0]] = Report(int(registers[1]), stack, stores + loads, int(shared[1]) if shared else 0)
    return found
