"""What the machines tell to whoever watches, and the hooks that the package's face installs.

The engine calls `emitter()` once per run. Without a watcher that is None and costs one context-variable read; with one it is
a function that hands each record to every observer of the running context. Observers receive immutable values and
return nothing. One that raises is detached and reported as a warning, and the run goes on as if nobody had looked.
"""

import contextlib
import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

Emit = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class CompileStarted:
    """A graph goes into the passes, or is found in the schedule cache.

    `origins` maps nodes of `graph` to the user's source lines, ("file", line) each.
    """

    graph: Any
    options: Any
    cached: bool
    origins: Mapping[Any, tuple[tuple[str, int], ...]]


@dataclass(frozen=True, slots=True)
class RuleFired:
    """A rewrite rule replaced `old` by `new`."""

    rule: str
    equation: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class PassEnded:
    """Pass `number` (from 1) turned `before` into `after`; `mapping` takes each old node to what it became."""

    number: int
    name: str
    before: Any
    after: Any
    mapping: Mapping[Any, Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class PassFailed:
    """Pass `number` raised `error` while it worked on `before`."""

    number: int
    name: str
    before: Any
    error: BaseException


@dataclass(frozen=True, slots=True)
class CompileEnded:
    """Scheduling, memory planning and lowering are done: `program` is what will run."""

    program: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class UnitRan:
    """Executable unit `index` ran from `start` for `seconds` (both of `time.perf_counter`)."""

    index: int
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class UnitFailed:
    """Executable unit `index` raised `error`."""

    index: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Every unit of the program has run; `start` and `seconds` span them all."""

    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class JitCalled:
    """A jitted function was called: `hit` says whether a plan was there, `why` in words what decided that.

    `hit` is None where a plan shows itself outside of a call.
    """

    function: str
    hit: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class OperationDone:
    """A homomorphic operation of a scheme was asked for.

    Attributes:
        name: "add", "multiply", "multiply_plain", "rotate", "conjugate", "lower", "encrypt" and the like.
        level, log2_scale: of the result.
        precision_bits: the estimate for the worst slot of the result, -log2 of the standard deviation of its error.
        noise_bits: the estimate of log2 of the standard deviation of a coefficient's error.
        origin: the user's file and line.
    """

    name: str
    level: int
    log2_scale: float
    precision_bits: float
    noise_bits: float
    origin: tuple[str, int]


_observers: ContextVar[tuple[Emit, ...]] = ContextVar("ren_lab_observers", default=())


def emitter() -> Emit | None:
    """A function that tells the observers of this context, or None when there are none."""
    observers = _observers.get()
    if not observers:
        return None
    attached = list(observers)

    def emit(record: Any) -> None:
        for observer in tuple(attached):
            try:
                observer(record)
            except Exception as error:  # an observer must never change a run
                attached.remove(observer)
                warnings.warn(
                    f"observer {observer!r} raised {error!r} on {type(record).__name__} and is detached from this run",
                    RuntimeWarning,
                    stacklevel=2,
                )

    return emit


@contextlib.contextmanager
def observe(observer: Emit) -> Iterator[None]:
    """Let `observer` hear every run that starts inside the block, in this context only."""
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


_hooks: dict[str, Callable[..., Any]] = {}


def install_hook(name: str, function: Callable[..., Any]) -> None:
    """Give a lower layer a function of a higher one, by name (`explain`); the package's face does this once."""
    _hooks[name] = function


def place_name(file: str) -> str:
    """What people call a source file: its base name, and "In[6]" for a cell of a notebook that is running."""
    named = _hooks.get("place_name")
    return named(file) if named is not None else os.path.basename(file) or file


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Thread(threading.local):
    line: tuple[str, int] | None = None  # the user's, while an operation of many steps runs


_thread = _Thread()


def user_line() -> tuple[str, int]:
    """The file and line of the innermost running frame that is not the package's own."""
    if _thread.line is not None:
        return _thread.line
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def one_line(function: _Function) -> _Function:
    """Make an operation look for the user's line once, for all that it does; an observer that it calls has that line, too."""

    @functools.wraps(function)
    def operation(*args: Any, **kwargs: Any) -> Any:
        if _thread.line is not None:
            return function(*args, **kwargs)
        _thread.line = user_line()
        try:
            return function(*args, **kwargs)
        finally:
            _thread.line = None

    return operation  # type: ignore[return-value]


def hook(name: str) -> Callable[..., Any]:
    """The function installed under `name`; `RuntimeError` if the package's face has not been imported."""
    try:
        return _hooks[name]
    except KeyError:
        raise RuntimeError(f"no hook {name!r} is installed; `import ren_lab` installs it") from None
