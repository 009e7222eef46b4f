"""What the driver asks of CuPy and NVRTC, where they are installed; no GPU is needed."""

import ast
import inspect
import re
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_recorder import H200

from ren_lab.backends import DeviceUnavailable
from ren_lab.backends.cuda import driver
from ren_lab.backends.cuda.backend import CudaBackend
from ren_lab.backends.cuda.errors import CompileError
from ren_lab.backends.cuda.modules import _joined
from ren_lab.backends.cuda.program import program
from ren_lab.ir import DType, Node, Op
from ren_lab.ring import Domain, RingSpec

cupy = pytest.importorskip("cupy", reason="CuPy is not installed (pip install 'cupy-cuda13x' nvidia-cuda-nvrtc)")


def _objects() -> dict[str, object]:
    from cupy_backends.cuda.api import driver as api
    from cupy_backends.cuda.api import runtime
    from cupy_backends.cuda.libs import nvrtc

    return {
        "self._runtime": runtime, "runtime": runtime, "self._driver": api, "api": api, "nvrtc": nvrtc, "cupy": cupy,
        "self._cupy": cupy, "cupy.cuda": cupy.cuda, "self._cupy.cuda": cupy.cuda, "self._cupy.cuda.function": cupy.cuda.function,
        "self._pool": cupy.get_default_memory_pool(), "stream": cupy.cuda.Stream, "event": cupy.cuda.Event,
        "self._device": cupy.cuda.Device, "module": cupy.cuda.function.Module, "graph": cupy.cuda.graph.Graph,
    }  # fmt: skip


def _uses() -> set[tuple[str, str]]:
    """Every attribute that the driver takes from one of CuPy's objects."""
    known = _objects()
    tree = ast.parse(inspect.getsource(driver))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {(ast.unparse(node.value), node.attr) for node in attributes if ast.unparse(node.value) in known}


def test_cupy_has_everything_that_the_driver_uses() -> None:
    known, uses = _objects(), _uses()
    instance_attributes = {("stream", "ptr"), ("event", "ptr")}
    assert len(uses) > 40
    assert [(where, name) for where, name in uses - instance_attributes if not hasattr(known[where], name)] == []


CALLS = {
    "memcpyAsync": 5, "memcpyPeerAsync": 6, "deviceCanAccessPeer": 2, "deviceEnablePeerAccess": 1, "getDeviceProperties": 1,
    "funcSetAttribute": 3, "funcGetAttribute": 2, "createProgram": 4, "compileProgram": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_have_as_many_arguments_as_cupy_takes(name: str) -> None:
    found = {n: o for o in _objects().values() for n in (name,) if hasattr(o, n)}[name]
    signature = str(getattr(found, name).__doc__).split(" -> ")[0]
    parameters = re.findall(r"[(,] ?([^,()]+)", signature)
    tree = ast.parse(inspect.getsource(driver))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == name]
    assert calls and {len(call.args) for call in calls} == {len(parameters)} == {CALLS[name]}


@pytest.mark.parametrize(
    ("capability", "wanted"),
    [((9, 0), ("sm_90", True)), ((8, 0), ("sm_80", True)), ((8, 9), ("sm_89", True)), ((99, 0), (None, False))],
    ids=str,
)
def test_the_architecture_is_the_best_that_the_compiler_knows(capability, wanted) -> None:
    target, binary = driver.architecture("cuda", *capability)
    assert binary is wanted[1] and (wanted[0] is None or target == wanted[0])
    assert target.startswith("sm_" if binary else "compute_")


def test_a_gpu_that_the_compiler_no_longer_knows_is_refused() -> None:
    with pytest.raises(DeviceUnavailable, match=r"compute capability 3\.5, and NVRTC \d+\.\d+ begins at"):
        driver.architecture("cuda", 3, 5)


def _kernel(op: Op) -> Node:
    from test_cpu_transform import kernel, load

    ring = RingSpec(64, (257, 641))
    shape = (ring.limbs, ring.n)
    return kernel(Node(op, DType.U32, (load(1, shape, ring, Domain.NTT), load(2, shape, ring, Domain.NTT))))


def test_kernels_are_compiled_together_to_one_module() -> None:
    made = {f"key{i}": program(_kernel(op), H200) for i, op in enumerate((Op.ADD, Op.MUL))}
    source, places = _joined(made)
    image = driver.compile_source(source, "sm_90", True)
    assert image[:4] == b"\x7fELF" and all(f"ren_key{i}_0".encode() in image for i in range(2))
    lines = source.splitlines()
    for key, (first, last) in places.items():
        code = made[key].code.replace("KERNEL", f"ren_{key}").splitlines()
        assert lines[first - 1 : last][: len(code)] == code
    assert b".entry ren_key0_0" in driver.compile_source(source, "compute_90", False)


def test_what_the_compiler_refuses_comes_with_its_log_and_its_place() -> None:
    made = {f"key{i}": program(_kernel(op), H200) for i, op in enumerate((Op.ADD, Op.MUL))}
    source, places = _joined(made)
    first, last = places["key1"]
    lines = source.splitlines()
    at = next(i for i in range(first, last) if "store(" in lines[i])
    lines[at] = lines[at].replace("store(", "stores(")
    with pytest.raises(CompileError) as caught:
        driver.compile_source("\n".join(lines), "sm_90", True)
    assert f'kernels.cu({at + 1}): error: identifier "stores" is undefined' in caught.value.log


def test_a_process_without_a_gpu_is_told_so() -> None:
    try:
        made = CudaBackend()
    except DeviceUnavailable as missing:
        assert re.search("driver|GPU", str(missing))
    else:
        assert made.description


def test_arguments_go_by_value() -> None:
    """CuPy passes an array of one structure as the structure itself: the call gets as far as the missing device, or function."""
    from cupy_backends.cuda.api import driver as api
    from cupy_backends.cuda.api import runtime

    function = cupy.cuda.function.Function.__new__(cupy.cuda.function.Function)
    stream = SimpleNamespace(ptr=0)
    argument = np.zeros(1, program(_kernel(Op.ADD), H200).call)
    with pytest.raises((runtime.CUDARuntimeError, api.CUDADriverError)):
        function((1, 1, 1), (1,), (argument,), shared_mem=0, stream=stream)
    with pytest.raises(TypeError, match="size one"):
        function((1, 1, 1), (1,), (np.zeros(2, argument.dtype),), shared_mem=0, stream=stream)
