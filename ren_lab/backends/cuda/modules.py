"""Programs become functions on a device: looked up in the cache, and what is missing is compiled together, once.

A program is compiled when it is first wanted, and then every program that has been asked for until then is, in one call of NVRTC:
all kernels of a schedule, as a rule. Texts hold no constant of a ring, so that programs share them, and each text is
compiled once per user.
"""

import hashlib
import re
import threading
from pathlib import Path
from typing import Any

from ren_lab.backends.cache import Cache
from ren_lab.backends.cuda.driver import FILE, Driver, Function
from ren_lab.backends.cuda.errors import CompileError, DeviceError, LaunchError, numbered
from ren_lab.backends.cuda.program import Launch, Program, header

_FAULT = re.compile(re.escape(FILE) + r"\((\d+)\): (?:catastrophic |internal )?error")


def digest(*parts: str) -> str:
    """A name for texts: 32 hexadecimal digits of their SHA-256."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def symbol(key: str) -> str:
    """What stands for KERNEL in the text of a program."""
    return f"ren_{key}"


class Modules:
    """Functions of programs on one device.

    Args:
        driver: of the device.
        directory: of the cache; None for the user's.
    """

    def __init__(self, driver: Driver, directory: Path | None = None) -> None:
        self.driver = driver
        self.cache: Cache[Any] = Cache(".cubin", self._open, directory, self._holds)
        self._common = digest(header(), driver.identity)
        self._modules: dict[str, Any] = {}
        self._pending: dict[str, tuple[Program, str]] = {}
        self._lock = threading.RLock()

    def announce(self, program: Program, formula: str = "") -> str:
        """A program will be wanted; gives its key. `formula` says what it computes, for messages."""
        key = digest(self._common, program.code)
        with self._lock:
            if key not in self._modules:
                self._pending[key] = (program, formula)
        return key

    def functions(self, key: str, program: Program, formula: str = "") -> list[Function]:
        """The functions of a program that was announced with these arguments, one per launch.

        Raises:
            CompileError: A text is refused; shows it.
            LaunchError: The device can't run one of the launches.
        """
        with self._lock:
            if key not in self._modules:
                self._pending[key] = (program, formula)  # again, if it was refused before
                self._compile_pending()
            module = self._modules[key]
            found = []
            for launch in program.launches:
                self._check(launch, program)
                found.append(self.driver.function(module, launch.function.replace("KERNEL", symbol(key)), launch.shared))
                self._check_function(launch, found[-1])
            return found

    def _check(self, launch: Launch, program: Program) -> None:
        """Whether a launch keeps within the device's limits."""
        device, name = self.driver.device, self.driver.name
        if launch.shared > device.shared_per_block:
            raise LaunchError(
                f"{launch.function} wants {launch.shared} bytes of shared memory for a block, and device {name!r} ({device.name}) "
                f"has {device.shared_per_block}; use a smaller ring degree, or device 'cpu'"
            )
        if program.call.itemsize > self.driver.argument_bytes:
            raise LaunchError(
                f"the argument of {launch.function} is {program.call.itemsize} bytes long, and device {name!r} takes "
                f"{self.driver.argument_bytes}; lower the option max_kernel_loads, or use device 'cpu'"
            )

    def _check_function(self, launch: Launch, function: Function) -> None:
        """Whether the compiled function leaves room for its block."""
        device, name = self.driver.device, self.driver.name
        if launch.block > function.threads:
            raise LaunchError(
                f"{function.name} is to run in blocks of {launch.block} threads, and its registers allow {function.threads} on "
                f"device {name!r} ({device.name}); use device 'cpu'"
            )
        if launch.shared + function.static_shared > device.shared_per_block:
            raise LaunchError(
                f"{function.name} wants {launch.shared} + {function.static_shared} bytes of shared memory for a block, and device "
                f"{name!r} ({device.name}) has {device.shared_per_block}; use a smaller ring degree, or device 'cpu'"
            )

    # ---- compiling

    def _compile_pending(self) -> None:
        for key, (program, _) in list(self._pending.items()):
            module = self.cache.find(key, program.launches[0].function.replace("KERNEL", symbol(key)))
            if module is not None:
                self._modules[key] = module
                del self._pending[key]
        if not self._pending:
            return
        wanted = dict(self._pending)
        source, places = _joined({key: program for key, (program, _) in wanted.items()})
        try:
            image = self.driver.compile(source)
        except CompileError as refused:
            raise self._explained(refused, source, places) from None
        try:
            with self.cache.temporary(".cubin") as built:
                built.write_bytes(image)
                module = self.cache.add(built, list(wanted))
        except OSError:  # no room, or worse: the module serves this process alone
            module = self.driver.load(image)
        for key in wanted:
            self._modules[key] = module
            del self._pending[key]

    def _explained(self, refused: CompileError, source: str, places: dict[str, tuple[int, int]]) -> CompileError:
        """The error with the text of the kernel it is about. That kernel is pending no longer, so others can still be compiled."""
        fault = _FAULT.search(refused.log)
        line = int(fault.group(1)) if fault else 0
        for key, (first, last) in places.items():
            if first <= line <= last:
                program, formula = self._pending.pop(key)
                what = f"the kernel {formula}" if formula else "a kernel"
                parameters = "\n".join(program.legend)
                shown = f"{parameters}\n{numbered(source, first, last, refused.log)}"
                break
        else:
            what = "the sources that all kernels share"
            shown = numbered(source, max(1, line - 10), line + 10, refused.log)
        return CompileError(
            f"NVRTC refused {what} for device {self.driver.name!r} ({self.driver.identity}). This is a fault of the renderer; "
            f"device 'cpu' works without it. Its log:\n{refused.log.rstrip()}\nThe source:\n{shown}",
            source,
            refused.log,
        )

    def _open(self, path: Path, data: bytes) -> Any:
        try:
            return self.driver.load(data)
        except DeviceError as error:
            raise OSError(f"{path} is no module for device {self.driver.name!r}: {error}") from None

    def _holds(self, module: Any, name: str) -> bool:
        try:
            self.driver.function(module, name)
        except DeviceError:
            return False
        return True


def _joined(programs: dict[str, Program]) -> tuple[str, dict[str, tuple[int, int]]]:
    """One source for programs, and in which lines each stands."""
    parts, places = [header()], {}
    line = header().count("\n") + 2
    for key, program in programs.items():
        code = program.code.replace("KERNEL", symbol(key))
        parts.append(code)
        places[key] = (line, line + code.count("\n"))
        line += code.count("\n") + 1
    return "\n".join(parts), places
