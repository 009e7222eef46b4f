"""What can be set from outside: one frozen object, read from the environment in this module and nowhere else.

Options travel as arguments and are part of every cache key they influence. `current()` gives the options of the running
context; `using(verify=True)` changes them for a block and for nothing else.
"""

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace

_FALSE = {"", "0", "no", "off", "false"}


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of one realization.

    Attributes:
        device: default device of new polynomials; None for `cpu` where a compiler is found, else `python` (`REN_DEVICE`).
        verify: check after every pass what the pass promises (`REN_VERIFY=1`); slower, for tests and for suspicion.
        source_lines: remember the user's source line of each operation (`REN_SOURCE_LINES=0` turns it off).
        max_kernel_loads: most buffer loads that one fused kernel may hold, at least 2.
        fuse_transforms: let the kernel that uses up the NTT of a lift compute it, row by row; False gives each transform a kernel
            and a buffer of its own.
        schedule_cache_size: how many compiled schedules are kept, least recently used first to go; 0 keeps none.
        threads: how many threads native kernels use, at least 1; all cores if None (`REN_THREADS`).
        cc: the C compiler for native kernels, or None to look for one (`CC`).
        dot: path of the layout program for graphs, or None to look for one (`REN_LAB_DOT`).
    """

    device: str | None = None
    verify: bool = False
    source_lines: bool = True
    max_kernel_loads: int = 32
    fuse_transforms: bool = True
    schedule_cache_size: int = 256
    threads: int | None = None
    cc: str | None = None
    dot: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_kernel_loads", "schedule_cache_size"):
            if type(getattr(self, name)) is not int:
                raise TypeError(f"{name} is {getattr(self, name)!r} of type {type(getattr(self, name)).__name__}; give an int")
        if self.max_kernel_loads < 2:
            raise ValueError(f"max_kernel_loads is {self.max_kernel_loads}; a kernel needs at least 2 loads: give 2 or more")
        if self.threads is not None and (type(self.threads) is not int or self.threads < 1):
            raise ValueError(f"threads is {self.threads!r}; give an int of 1 or more, or None for all cores")
        if self.schedule_cache_size < 0:
            raise ValueError(f"schedule_cache_size is {self.schedule_cache_size}; give 0 (keep none) or more")

    @property
    def compile_key(self) -> tuple[object, ...]:
        """The part that changes what the passes produce."""
        return (self.max_kernel_loads, self.fuse_transforms)


def _number(text: str | None, name: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise ValueError(f"{name} is {text!r}; set it to a number of at least 1, or unset it")
    return int(text)


def from_environment() -> Options:
    """Options with the values that environment variables give."""
    env = os.environ.get
    return Options(
        device=env("REN_DEVICE") or None,
        verify=env("REN_VERIFY", "0").lower() not in _FALSE,
        source_lines=env("REN_SOURCE_LINES", "1").lower() not in _FALSE,
        threads=_number(env("REN_THREADS"), "REN_THREADS"),
        cc=env("CC") or None,
        dot=env("REN_LAB_DOT") or None,
    )


_current: ContextVar[Options | None] = ContextVar("ren_lab_options", default=None)
_process_default: Options | None = None


def current() -> Options:
    """The options in force: those of the innermost `using`, otherwise the environment's, read once per process."""
    global _process_default
    options = _current.get()
    if options is not None:
        return options
    if _process_default is None:
        _process_default = from_environment()
    return _process_default


@contextlib.contextmanager
def using(**changes: object) -> Iterator[Options]:
    """Run a block under changed options: `with using(verify=True): ...`. Unknown names raise `TypeError`."""
    known = {field.name for field in fields(Options)}
    for name in changes:
        if name not in known:
            raise TypeError(f"there is no option {name!r}; the options are {', '.join(sorted(known))}")
    options = replace(current(), **changes)  # type: ignore[arg-type]
    token = _current.set(options)
    try:
        yield options
    finally:
        _current.reset(token)
