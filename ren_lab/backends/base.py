"""What the engine asks of a device, and which devices there are.

A device name is a backend and, where there are several of it, a number: "python", "python:1". The number 0 is left out.
"""

import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ren_lab.ir import Node

Runner = Callable[..., None]


class DeviceUnavailable(RuntimeError):
    """A known device is not there; the message says what to install."""


class Backend(Protocol):
    """Storage and programs of one device. A storage is whatever the backend likes; its words are u32[rows, n]."""

    name: str

    def allocate(self, shape: tuple[int, int]) -> Any:
        """Fresh storage, its content undefined."""

    def allocate_arena(self, nbytes: int) -> Any:
        """One block of at least `nbytes` bytes, aligned to 256, for `window`."""

    def window(self, arena: Any, offset_bytes: int, shape: tuple[int, int]) -> Any:
        """The part of an arena that starts at a byte offset."""

    def view(self, base: Any, offset: int, shape: tuple[int, int]) -> Any:
        """The words of a storage from element `offset` on, without copying."""

    def compile(self, ast: Node) -> Runner:
        """The program of a kernel: called with one storage per slot, outputs first."""

    def source(self, ast: Node) -> str:
        """The text of that program, for people."""

    def from_host(self, words: np.ndarray) -> Any:
        """Storage with the words of an array; the array is not referred to afterwards."""

    def to_host(self, storage: Any) -> np.ndarray:
        """The words as an array of its own, or one that nobody writes to."""

    def overlaps(self, a: Any, b: Any) -> bool:
        """Whether two storages may share memory."""

    def copy_from(self, target: Any, source: Any, source_backend: "Backend") -> None:
        """Fill `target` with the words of a storage of another device, or of this one."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A line of the list of devices: whether it is there, and what it is or what it lacks."""

    name: str
    available: bool
    description: str


_backends: dict[str, Backend] = {}
_lock = threading.Lock()
_default: str | None = None  # found when first asked for

_factories: dict[str, Callable[[int], Backend]] = {}  # of the known kinds of device


def register(kind: str, factory: Callable[[int], Backend]) -> None:
    """Make a kind of device known: `factory(number)` gives its backend or raises `DeviceUnavailable`."""
    _factories[kind] = factory


def device_name(name: str) -> str:
    """The name as it is written everywhere: lower case, without ":0". Raises as `backend` does, but starts nothing."""
    if not isinstance(name, str):
        raise TypeError(f"a device is named by a string such as 'python', not by {name!r}")
    kind, colon, number = name.strip().lower().partition(":")
    if kind not in _factories or colon and not number.isdecimal():
        raise ValueError(
            f"unknown device {name!r}; the devices are {', '.join(sorted(_factories))}, or one of them with a number as 'python:1'"
        )
    return f"{kind}:{int(number)}" if number and int(number) else kind


def backend(name: str) -> Backend:
    """The backend of a device.

    Raises:
        ValueError: no such device is known.
        DeviceUnavailable: it is known and not there.
    """
    found = _backends.get(name)
    if found is None:
        name = device_name(name)
        with _lock:
            found = _backends.get(name)
            if found is None:
                kind, _, number = name.partition(":")
                found = _backends[name] = _factories[kind](int(number or 0))
    return found


def default_device() -> str:
    """The device of polynomials whose maker names none, when the options name none either: `cpu` where a compiler is found, else
    `python`; that there is none is said once, in a warning that tells how to get the faster one."""
    global _default
    if _default is None:
        try:
            _default = backend("cpu").name
        except DeviceUnavailable as error:
            _default = "python"
            frame, level = sys._getframe(), 1
            while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "ren_lab":
                frame, level = frame.f_back, level + 1
            warnings.warn(f"kernels run on NumPy: {error}", stacklevel=level)  # at the user's line
    return _default


def devices() -> list[DeviceInfo]:
    """Every kind of device that this version knows."""
    return list(map(_info, _factories))


def _info(kind: str) -> DeviceInfo:
    try:
        made = backend(kind)
    except DeviceUnavailable as error:
        return DeviceInfo(kind, False, str(error))
    return DeviceInfo(kind, True, getattr(made, "description", None) or str(type(made).__doc__).splitlines()[0])
