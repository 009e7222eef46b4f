"""The GPU as the rest of the backend sees it: a small surface over CuPy, and the only module that touches it.

Streams, events, modules, functions and graphs are CuPy's objects, which nobody else looks into. Addresses are plain ints. Every
call works whatever the current device of the calling thread is, and leaves it as it was. What CuPy raises comes out as one
of `ren_lab.backends.cuda.errors`.
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ren_lab.backends.base import DeviceUnavailable
from ren_lab.backends.cuda.errors import CompileError, DeviceError, LaunchError, MemoryState, OutOfMemory
from ren_lab.backends.cuda.program import Device

INSTALL = "run `pip install 'cupy-cuda13x[ctk]'`, or 'cupy-cuda12x[ctk]' for a driver of CUDA 12; device 'cpu' works without"
# Of cudaError_t, which CuPy does not name.
_OUT_OF_MEMORY, _INSUFFICIENT_DRIVER, _NO_DEVICE, _PEER_ALREADY_ENABLED = 2, 35, 100, 704
_DEFAULT_SHARED = 48 << 10  # what a block may have without asking
FILE = "kernels.cu"
"""How sources are called in NVRTC's messages."""


class Memory(Protocol):
    """A piece of device memory, given back when nobody holds it."""

    @property
    def ptr(self) -> int:
        """Its address."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a loaded module.

    Attributes:
        handle: what the driver calls it.
        name: in the module.
        threads: the largest block that its registers allow.
        static_shared: bytes of shared memory that it has in any case.
        local: bytes of local memory per thread, for spilled registers.
    """

    handle: Any
    name: str
    threads: int
    static_shared: int
    local: int


class Driver:
    """One GPU by CuPy.

    Args:
        number: which of the GPUs that the process sees.

    Attributes:
        name: "cuda", or "cuda:1".
        device: what launches depend on.
        memory_bytes: how much memory it has.
        argument_bytes: the largest argument of a kernel.
        identity: everything but the source that a compiled module depends on.

    Raises:
        DeviceUnavailable: CuPy, the driver or the device is not there, or too old; says what to do.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.name = f"cuda:{number}" if number else "cuda"
        self._cupy = cupy = _cupy(self.name)
        from cupy_backends.cuda.api import driver, runtime

        self._runtime, self._driver = runtime, driver
        count = _device_count(self.name, runtime)
        if number >= count:
            known = "device 'cuda'" if count == 1 else f"devices 'cuda' to 'cuda:{count - 1}'"
            raise DeviceUnavailable(f"device {self.name!r} is not there: this process sees {known}")
        self._device = cupy.cuda.Device(number)
        with self._errors():
            properties = runtime.getDeviceProperties(number)
        name = properties["name"]
        self.device = Device(
            name.decode() if isinstance(name, bytes) else name, properties["major"], properties["minor"],
            properties["multiProcessorCount"], properties["sharedMemPerBlockOptin"],
        )  # fmt: skip
        self.memory_bytes = int(properties["totalGlobalMem"])
        self.argument_bytes = 32764 if runtime.runtimeGetVersion() >= 12010 else 4096
        self._architecture, self._binary = architecture(self.name, self.device.major, self.device.minor)
        self.identity = f"NVRTC {nvrtc_version()} {self._architecture} {' '.join(OPTIONS)}"
        self._pool = cupy.get_default_memory_pool()

    # ---- streams and events

    def stream(self) -> Any:
        """A new stream that does not wait for the default one."""
        with self._errors(), self._device:
            return self._cupy.cuda.Stream(non_blocking=True)

    def event(self, timed: bool = False) -> Any:
        """A new event."""
        with self._errors(), self._device:
            return self._cupy.cuda.Event(disable_timing=not timed)

    def record(self, event: Any, stream: Any) -> None:
        """The event happens when the stream has done all that it was given."""
        with self._errors(), self._device:
            event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        """What the stream is given from now on happens after the event, which may be another device's."""
        with self._errors(), self._device:
            stream.wait_event(event)

    def finished(self, event: Any) -> bool:
        """Whether an event has happened."""
        with self._errors(), self._device:
            return bool(event.done)

    def synchronize(self, event: Any) -> None:
        """Wait here until an event has happened."""
        with self._errors(), self._device:
            event.synchronize()

    def milliseconds(self, begin: Any, end: Any) -> float:
        """The time between two timed events that have happened."""
        with self._errors(), self._device:
            return float(self._cupy.cuda.get_elapsed_time(begin, end))

    # ---- memory

    def allocate(self, nbytes: int, stream: Any) -> Memory:
        """Memory from CuPy's pool, aligned to 512 bytes, for use in the order of a stream.

        When nobody holds it any more, the pool gives it to the next one who asks for memory of the same stream.

        Raises:
            OutOfMemory: There is not so much.
        """
        try:
            with self._errors(), self._device, stream:
                return self._cupy.cuda.alloc(max(nbytes, 1))
        except MemoryError:
            raise OutOfMemory(self.name, nbytes, self.memory()) from None

    def memory(self) -> MemoryState:
        """How much memory is free."""
        with self._errors(), self._device:
            free, total = self._runtime.memGetInfo()
            return MemoryState(free, total, self._pool.free_bytes(), self._pool.used_bytes())

    def pinned(self, nbytes: int) -> np.ndarray:
        """uint8[nbytes] of host memory that the device can reach by itself."""
        import cupyx

        try:
            with self._errors(), self._device:
                return cupyx.empty_pinned((nbytes,), np.uint8)
        except MemoryError:
            raise MemoryError(
                f"the host can't pin {nbytes} bytes of memory for transfers with device {self.name!r}; free some, or raise the "
                "limit of locked memory"
            ) from None

    def upload(self, address: int, source: np.ndarray, stream: Any) -> None:
        """Copy pinned host memory to an address, in the order of a stream; the array must live until that is done."""
        with self._errors(), self._device:
            kind = self._runtime.memcpyHostToDevice
            self._runtime.memcpyAsync(address, source.ctypes.data, source.nbytes, kind, stream.ptr)

    def download(self, target: np.ndarray, address: int, stream: Any) -> None:
        """Copy from an address to pinned host memory, in the order of a stream."""
        with self._errors(), self._device:
            kind = self._runtime.memcpyDeviceToHost
            self._runtime.memcpyAsync(target.ctypes.data, address, target.nbytes, kind, stream.ptr)

    def copy(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        """Copy within the device, in the order of a stream."""
        with self._errors(), self._device:
            self._runtime.memcpyAsync(target, source, nbytes, self._runtime.memcpyDeviceToDevice, stream.ptr)

    def reaches(self, number: int) -> bool:
        """Whether this device may read the memory of another GPU directly; makes it possible where the driver allows."""
        with self._errors(), self._device:
            if not self._runtime.deviceCanAccessPeer(self.number, number):
                return False
            try:
                self._runtime.deviceEnablePeerAccess(number)
            except self._runtime.CUDARuntimeError as error:
                if error.status != _PEER_ALREADY_ENABLED:
                    raise
            return True

    def copy_peer(self, target: int, source: int, number: int, nbytes: int, stream: Any) -> None:
        """Copy from the memory of GPU `number` to this one's, in the order of a stream of this one."""
        with self._errors(), self._device:
            self._runtime.memcpyPeerAsync(target, self.number, source, number, nbytes, stream.ptr)

    # ---- programs

    def compile(self, source: str) -> bytes:
        """A module for this device, as machine code; as PTX for a device that is newer than NVRTC.

        Raises:
            CompileError: NVRTC refuses.
        """
        return compile_source(source, self._architecture, self._binary)

    def load(self, image: bytes) -> Any:
        """A compiled module, ready for use.

        Raises:
            DeviceError: It is none, or for another device.
        """
        with self._errors(), self._device:
            module = self._cupy.cuda.function.Module()
            module.load(image)
            return module

    def function(self, module: Any, name: str, shared: int = 0) -> Function:
        """A function that may be launched with up to `shared` bytes of dynamic shared memory.

        Raises:
            DeviceError: There is none of that name, or the device has not so much.
        """
        api = self._driver
        with self._errors(), self._device:
            self._runtime.setDevice(self.number)  # gives a new thread the device's context, without which the calls below fail
            handle = module.get_function(name)
            limit = api.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES  # of the function, whoever asks: never lowered
            if shared > _DEFAULT_SHARED and shared > api.funcGetAttribute(limit, handle.ptr):
                api.funcSetAttribute(handle.ptr, limit, shared)
            # Asking for attributes loads the function, which can't be done while a stream is captured.
            threads, static, local = (
                api.funcGetAttribute(which, handle.ptr)
                for which in (
                    api.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, api.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                    api.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                )
            )  # fmt: skip
        return Function(handle, name, threads, static, local)

    def launch(
        self, function: Function, grid: tuple[int, int, int], block: int, shared: int, argument: np.ndarray, stream: Any
    ) -> None:
        """Run a function in the order of a stream. `argument` is an array of one structure, passed by value.

        Raises:
            LaunchError: The driver refuses.
        """
        try:
            with self._device:
                function.handle(grid, (block,), (argument,), shared_mem=shared, stream=stream)
        except (self._driver.CUDADriverError, self._runtime.CUDARuntimeError) as error:
            raise LaunchError(
                f"device {self.name!r} refused to launch {function.name} on {grid} blocks of {block} threads with {shared} bytes "
                f"of shared memory: {error}"
            ) from None

    # ---- graphs

    def begin_capture(self, stream: Any) -> None:
        """From now on the stream does not run what it is given but writes it down."""
        with self._errors(), self._device:
            stream.begin_capture()

    def end_capture(self, stream: Any) -> Any:
        """The graph of what a stream has written down."""
        with self._errors(), self._device:
            return stream.end_capture()

    def upload_graph(self, graph: Any, stream: Any) -> None:
        """Prepare a graph on the device, so that its first launch is as quick as the others."""
        with self._errors(), self._device:
            graph.upload(stream)

    def launch_graph(self, graph: Any, stream: Any) -> None:
        """Run a graph in the order of a stream."""
        with self._errors(), self._device:
            graph.launch(stream)

    # Whether the interpreter is being taken down, when nothing may be asked of the GPU any more, and modules have lost their names.
    ending = staticmethod(sys.is_finalizing)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """CuPy's errors as ours."""
        try:
            yield
        except self._runtime.CUDARuntimeError as error:
            if error.status == _OUT_OF_MEMORY:
                raise MemoryError(str(error)) from None
            raise DeviceError(f"device {self.name!r} failed: {error}") from None
        except self._driver.CUDADriverError as error:
            raise DeviceError(f"device {self.name!r} failed: {error}") from None


# --------------------------------------------------------------------------------------------------------------------
# What there is


def _cupy(name: str) -> Any:
    try:
        import cupy
    except ImportError as error:
        raise DeviceUnavailable(f"device {name!r} needs CuPy, which can't be imported ({error}); {INSTALL}") from None
    from cupy_backends.cuda.api import runtime

    if runtime.is_hip:
        raise DeviceUnavailable(f"device {name!r} needs CuPy for CUDA, and this one is for ROCm; {INSTALL}")
    return cupy


def _device_count(name: str, runtime: Any) -> int:
    try:
        count = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        if error.status == _NO_DEVICE:
            count = 0
        elif error.status == _INSUFFICIENT_DRIVER:
            built, found = runtime.runtimeGetVersion(), runtime.driverGetVersion()
            needed = f"a driver for CUDA {built // 1000} or later (this CuPy is built for CUDA {version_text(built)})"
            if not found:
                raise DeviceUnavailable(f"device {name!r} needs {needed}, and there is no NVIDIA driver; install one") from None
            raise DeviceUnavailable(
                f"device {name!r} needs {needed}, and the driver here is for CUDA {version_text(found)}; install a newer driver, "
                f"or a CuPy for CUDA {found // 1000}"
            ) from None
        else:
            raise DeviceUnavailable(f"device {name!r} can't be used: {error}") from None
    if not count:
        raise DeviceUnavailable(f"device {name!r} is not there: the driver finds no GPU, or CUDA_VISIBLE_DEVICES hides it")
    return count


def version_text(version: int) -> str:
    """A version as CUDA numbers it, in writing: 13020 is 13.2."""
    return f"{version // 1000}.{version % 1000 // 10}"


# --------------------------------------------------------------------------------------------------------------------
# NVRTC, which needs no device

OPTIONS = ("-std=c++17",)
"""Of every call."""


def nvrtc_version() -> str:
    """The version of the compiler."""
    from cupy_backends.cuda.libs import nvrtc

    return ".".join(map(str, nvrtc.getVersion()))


def architecture(name: str, major: int, minor: int) -> tuple[str, bool]:
    """What to compile for on a device of a compute capability, and whether that gives machine code (PTX otherwise).

    Raises:
        DeviceUnavailable: NVRTC is not there, or knows the device no longer.
    """
    from cupy_backends.cuda.libs import nvrtc

    try:
        known = sorted(nvrtc.getSupportedArchs())
    except (RuntimeError, ImportError, OSError) as error:
        raise DeviceUnavailable(f"device {name!r} needs NVRTC, which can't be loaded ({error}); {INSTALL}") from None
    wanted = 10 * major + minor
    below = [a for a in known if a <= wanted]
    if not below:
        raise DeviceUnavailable(
            f"device {name!r} has compute capability {major}.{minor}, and NVRTC {nvrtc_version()} begins at "
            f"{known[0] // 10}.{known[0] % 10}; use an older CuPy"
        )
    if below[-1] // 10 == major:  # machine code runs on every later device of the same major
        return f"sm_{below[-1]}", True
    return f"compute_{below[-1]}", False


def compile_source(source: str, target: str, binary: bool) -> bytes:
    """CUDA C++ as machine code, or as PTX.

    Args:
        target: "sm_90" and the like for machine code, "compute_90" for PTX.
        binary: which of the two.

    Raises:
        CompileError: NVRTC refuses; the message is its log.
    """
    from cupy_backends.cuda.libs import nvrtc

    made = nvrtc.createProgram(source, FILE, (), ())
    try:
        try:
            nvrtc.compileProgram(made, (f"-arch={target}", *OPTIONS))
        except nvrtc.NVRTCError:
            log = nvrtc.getProgramLog(made)
            raise CompileError(log, source, log) from None
        return bytes(nvrtc.getCUBIN(made) if binary else nvrtc.getPTX(made))
    finally:
        nvrtc.destroyProgram(made)
