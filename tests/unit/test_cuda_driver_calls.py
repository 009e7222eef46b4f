"""Every call of the driver, against a small imitation of CuPy that says what was asked of it, and on which device."""

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ren_lab.backends import DeviceUnavailable
from ren_lab.backends.cuda.driver import Driver, Function
from ren_lab.backends.cuda.errors import CompileError, DeviceError, LaunchError, OutOfMemory

PROPERTIES = {
    "name": b"Imitation 3000", "major": 9, "minor": 0, "multiProcessorCount": 7, "sharedMemPerBlockOptin": 99 << 10,
    "totalGlobalMem": 8 << 30,
}  # fmt: skip


# Functions of NVRTC, which no device is needed for.
_ANYWHERE = {
    "getVersion", "getSupportedArchs", "createProgram", "compileProgram", "getCUBIN", "getPTX", "getProgramLog", "destroyProgram",
}  # fmt: skip


class _RuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"cudaError {status}")


class _DriverError(RuntimeError):
    pass


class _NVRTCError(RuntimeError):
    pass


class Imitation:
    """Modules that stand for CuPy; `calls` holds (name, current device, arguments)."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.current = 5  # whatever the user's thread is on
        self.raises: dict[str, BaseException] = {}
        self.answers: dict[str, Any] = {
            "getDeviceCount": 3, "getDeviceProperties": PROPERTIES, "runtimeGetVersion": 13020, "driverGetVersion": 13000,
            "memGetInfo": (1000, 2000), "deviceCanAccessPeer": 1, "funcGetAttribute": 77, "getSupportedArchs": (80, 90),
            "getVersion": (13, 2), "getCUBIN": b"cubin", "getPTX": b"ptx", "getProgramLog": "the log", "createProgram": 11,
            "get_elapsed_time": 2.5, "free_bytes": 30, "used_bytes": 40, "end_capture": "a graph", "done": True,
        }  # fmt: skip

    def call(self, name: str) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, self.current, args, *([kwargs] if kwargs else [])))
            if name in self.raises:
                raise self.raises[name]
            return self.answers.get(name)

        return called

    def module(self, name: str, calls: list[str], **members: Any) -> types.ModuleType:
        made = types.ModuleType(name)
        vars(made).update({c: self.call(c) for c in calls}, **members)
        return made

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fake = self

        class Device:
            def __init__(self, number: int) -> None:
                self.number = number

            def __enter__(self) -> None:
                self.before, fake.current = fake.current, self.number

            def __exit__(self, *error: object) -> None:
                fake.current = self.before

        class Stream:
            ptr = 99

            def __init__(self, **settings: Any) -> None:
                fake.call("Stream")(**settings)

            def __enter__(self) -> None:
                fake.call("enter_stream")()

            def __exit__(self, *error: object) -> None:
                pass

            def __getattr__(self, name: str) -> Any:
                return fake.call(name)

        class Event:
            done = True

            def __init__(self, **settings: Any) -> None:
                fake.call("Event")(**settings)

            def __getattr__(self, name: str) -> Any:
                return fake.call(name)

        class Module:
            def load(self, image: bytes) -> None:
                fake.call("load")(image)

            def get_function(self, name: str) -> Any:
                fake.call("get_function")(name)

                class Handle:
                    ptr = 1234

                    def __call__(self, *args: Any, **kwargs: Any) -> None:
                        fake.call("launch")(*args, **kwargs)

                return Handle()

        runtime = self.module(
            "runtime",
            ["getDeviceCount", "getDeviceProperties", "runtimeGetVersion", "driverGetVersion", "memGetInfo", "memcpyAsync",
             "memcpyPeerAsync", "deviceCanAccessPeer", "deviceEnablePeerAccess", "setDevice"],
            is_hip=False, CUDARuntimeError=_RuntimeError, memcpyHostToDevice=1, memcpyDeviceToHost=2, memcpyDeviceToDevice=3,
        )  # fmt: skip
        api = self.module(
            "driver", ["funcSetAttribute", "funcGetAttribute"], CUDADriverError=_DriverError,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK=0,
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=1, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES=3,
        )  # fmt: skip
        nvrtc = self.module(
            "nvrtc",
            sorted(_ANYWHERE),
            NVRTCError=_NVRTCError,
        )  # fmt: skip
        function = self.module("function", [], Module=Module)
        cuda = self.module("cuda", ["get_elapsed_time", "alloc"], Device=Device, Stream=Stream, Event=Event, function=function)
        pool = self.module("pool", ["free_bytes", "used_bytes"])
        cupy = self.module("cupy", [], cuda=cuda, get_default_memory_pool=lambda: pool)
        self.answers["alloc"] = "memory"
        self.answers["empty_pinned"] = np.zeros(8, np.uint8)
        installed = {
            "cupy": cupy, "cupy.cuda": cuda, "cupyx": self.module("cupyx", ["empty_pinned"]),
            "cupy_backends": self.module("cupy_backends", []), "cupy_backends.cuda": self.module("backends_cuda", []),
            "cupy_backends.cuda.api": self.module("api", [], runtime=runtime, driver=api),
            "cupy_backends.cuda.libs": self.module("libs", [], nvrtc=nvrtc),
        }  # fmt: skip
        for name, module in installed.items():
            monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Imitation:
    made = Imitation()
    made.install(monkeypatch)
    return made


@pytest.fixture
def driver(fake: Imitation) -> Iterator[Driver]:
    made = Driver(2)
    del fake.calls[:]
    yield made
    assert fake.current == 5  # as it was, whatever happened
    assert all(current == 2 for name, current, *_ in fake.calls if name not in _ANYWHERE)


def test_the_device_is_described(driver: Driver) -> None:
    device = driver.device
    assert (driver.name, device.name, device.major, device.minor) == ("cuda:2", "Imitation 3000", 9, 0)
    assert (device.multiprocessors, device.shared_per_block, driver.memory_bytes) == (7, 99 << 10, 8 << 30)
    assert driver.argument_bytes == 32764 and driver.identity == "NVRTC 13.2 sm_90 -std=c++17"


def test_a_number_beyond_the_devices_is_refused(fake: Imitation) -> None:
    with pytest.raises(DeviceUnavailable, match=r"device 'cuda:3' is not there: this process sees devices 'cuda' to 'cuda:2'"):
        Driver(3)


def test_cupy_for_rocm_and_a_compiler_that_is_missing_are_refused(fake: Imitation) -> None:
    fake.raises["getSupportedArchs"] = RuntimeError("libnvrtc.so.13: no such file")
    with pytest.raises(DeviceUnavailable, match=r"needs NVRTC, which can't be loaded \(libnvrtc.*pip install"):
        Driver()
    sys.modules["cupy_backends.cuda.api"].runtime.is_hip = True
    with pytest.raises(DeviceUnavailable, match="this one is for ROCm"):
        Driver()


def test_streams_events_and_their_order(fake: Imitation, driver: Driver) -> None:
    stream, event = driver.stream(), driver.event()
    driver.event(timed=True)
    driver.record(event, stream)
    driver.wait(stream, event)
    driver.synchronize(event)
    assert driver.finished(event) is True and driver.milliseconds(event, event) == 2.5
    assert [call[0] for call in fake.calls] == [
        "Stream",
        "Event",
        "Event",
        "record",
        "wait_event",
        "synchronize",
        "get_elapsed_time",
    ]
    assert fake.calls[0][3] == {"non_blocking": True}
    assert [call[3] for call in fake.calls[1:3]] == [{"disable_timing": True}, {"disable_timing": False}]
    assert fake.calls[3][2] == (stream,) and fake.calls[4][2] == (event,)


def test_memory_and_copies(fake: Imitation, driver: Driver) -> None:
    stream = driver.stream()
    del fake.calls[:]
    assert driver.allocate(1000, stream) == "memory"
    state = driver.memory()
    assert (state.free, state.total, state.pooled, state.used) == (1000, 2000, 30, 40)
    host = driver.pinned(8)
    driver.upload(0x1000, host, stream)
    driver.download(host, 0x2000, stream)
    driver.copy(0x1000, 0x2000, 64, stream)
    driver.copy_peer(0x1000, 0x2000, 1, 64, stream)
    place = host.ctypes.data
    assert [call[0] for call in fake.calls[:2]] == ["enter_stream", "alloc"]
    assert fake.calls[-5][2] == ((8,), np.uint8)
    assert [call[2] for call in fake.calls[-4:]] == [
        (0x1000, place, 8, 1, 99), (place, 0x2000, 8, 2, 99), (0x1000, 0x2000, 64, 3, 99), (0x1000, 2, 0x2000, 1, 64, 99),
    ]  # fmt: skip


def test_peers_are_reached_where_the_driver_allows(fake: Imitation, driver: Driver) -> None:
    assert driver.reaches(1)
    assert [call[:3] for call in fake.calls] == [("deviceCanAccessPeer", 2, (2, 1)), ("deviceEnablePeerAccess", 2, (1,))]
    fake.raises["deviceEnablePeerAccess"] = _RuntimeError(704)  # somebody else did it before
    assert driver.reaches(1)
    fake.raises["deviceEnablePeerAccess"] = _RuntimeError(1)
    with pytest.raises(DeviceError, match="device 'cuda:2' failed: cudaError 1"):
        driver.reaches(1)
    fake.answers["deviceCanAccessPeer"] = 0
    assert not driver.reaches(1)


def test_no_room_on_the_device_or_for_pinned_memory(fake: Imitation, driver: Driver) -> None:
    for error in (MemoryError("Out of memory allocating"), _RuntimeError(2)):
        fake.raises["alloc"] = error
        with pytest.raises(OutOfMemory, match=r"'cuda:2' has no room for 0\.5 MiB: 0\.0 MiB of 0\.0 MiB are free"):
            driver.allocate(1 << 19, driver.stream())
    fake.raises["empty_pinned"] = _RuntimeError(2)
    with pytest.raises(MemoryError, match="the host can't pin 8 bytes"):
        driver.pinned(8)


def test_modules_and_functions(fake: Imitation, driver: Driver) -> None:
    module = driver.load(b"image")
    small = driver.function(module, "f", 48 << 10)
    assert "funcSetAttribute" not in [call[0] for call in fake.calls]
    large = driver.function(module, "g", 60 << 10)
    (asked,) = [call[2] for call in fake.calls if call[0] == "funcSetAttribute"]
    assert asked == (1234, 8, 60 << 10)
    assert (small.name, large.name, large.threads, large.static_shared, large.local) == ("f", "g", 77, 77, 77)
    assert [call[2] for call in fake.calls if call[0] == "funcGetAttribute"][:3] == [(0, 1234), (1, 1234), (3, 1234)]
    fake.answers["funcGetAttribute"] = 64 << 10  # somebody else asked for more: his launches must go on
    driver.function(module, "g", 60 << 10)
    assert [call[0] for call in fake.calls].count("funcSetAttribute") == 1
    fake.raises["load"] = _DriverError("CUDA_ERROR_INVALID_IMAGE")
    with pytest.raises(DeviceError, match="'cuda:2' failed: CUDA_ERROR_INVALID_IMAGE"):
        driver.load(b"")


def test_a_launch_passes_its_structure(fake: Imitation, driver: Driver) -> None:
    stream, argument = driver.stream(), np.zeros(1, [("frame", "u8")])
    function: Function = driver.function(driver.load(b""), "f")
    driver.launch(function, (3, 2, 1), 64, 100, argument, stream)
    name, _, args, named = fake.calls[-1]
    assert (name, args[:2], named) == ("launch", ((3, 2, 1), (64,)), {"shared_mem": 100, "stream": stream})
    assert args[2][0] is argument
    for error in (_DriverError("CUDA_ERROR_INVALID_VALUE"), _RuntimeError(9)):
        fake.raises["launch"] = error
        with pytest.raises(LaunchError, match=r"refused to launch f on \(3, 2, 1\) blocks of 64 threads with 100 bytes of shared"):
            driver.launch(function, (3, 2, 1), 64, 100, argument, stream)


def test_graphs(fake: Imitation, driver: Driver) -> None:
    stream = driver.stream()
    driver.begin_capture(stream)
    assert driver.end_capture(stream) == "a graph"
    graph = types.SimpleNamespace(upload=fake.call("upload"), launch=fake.call("launch_graph"))
    driver.upload_graph(graph, stream)
    driver.launch_graph(graph, stream)
    assert [call[0] for call in fake.calls] == ["Stream", "begin_capture", "end_capture", "upload", "launch_graph"]
    assert fake.calls[-1][2] == fake.calls[-2][2] == (stream,)
    fake.raises["end_capture"] = _RuntimeError(901)
    with pytest.raises(DeviceError, match="cudaError 901"):
        driver.end_capture(stream)


def test_compiling(fake: Imitation, driver: Driver) -> None:
    assert driver.compile("text") == b"cubin"
    assert [call[2] for call in fake.calls] == [
        ("text", "kernels.cu", (), ()), (11, ("-arch=sm_90", "-std=c++17")), (11,), (11,),
    ]  # fmt: skip
    assert [call[0] for call in fake.calls][-1] == "destroyProgram"
    fake.raises["compileProgram"] = _NVRTCError("NVRTC_ERROR_COMPILATION")
    with pytest.raises(CompileError) as caught:
        driver.compile("text")
    assert (caught.value.log, caught.value.source) == ("the log", "text")
    assert fake.calls[-1][0] == "destroyProgram"


def test_a_newer_device_gets_ptx(fake: Imitation, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.answers["getDeviceProperties"] = {**PROPERTIES, "major": 12}
    assert Driver().compile("text") == b"ptx"
    assert fake.calls[-3][2] == (11, ("-arch=compute_90", "-std=c++17"))
