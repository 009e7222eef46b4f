"""Devices: where polynomials are kept and kernels run."""

from ren_lab.backends.base import (
    Backend,
    DeviceInfo,
    DeviceUnavailable,
    Runner,
    backend,
    default_device,
    device_name,
    devices,
    register,
)
from ren_lab.backends.cpu import CpuBackend
from ren_lab.backends.python.backend import PythonBackend


def _cuda(number: int) -> Backend:
    from ren_lab.backends.cuda.backend import CudaBackend  # asks for CuPy only when it is wanted

    return CudaBackend(number)


register("python", PythonBackend)
register("cpu", CpuBackend)
register("cuda", _cuda)

__all__ = [
    "Backend", "CpuBackend", "DeviceInfo", "DeviceUnavailable", "PythonBackend", "Runner", "backend", "default_device",
    "device_name", "devices", "register",
]  # fmt: skip
