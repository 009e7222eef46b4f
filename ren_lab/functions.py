"""Small helps around functions and locks, for all layers."""

import functools
import inspect
import os
from types import CodeType, MethodType
from typing import Any

_PIECES = {
    inspect.CO_GENERATOR: "a generator function",
    inspect.CO_COROUTINE: "a coroutine function",
    inspect.CO_ASYNC_GENERATOR: "an asynchronous generator function",
}
_ANY_PIECES = sum(_PIECES)


def code_of(function: Any) -> CodeType | None:
    """The code object behind a function, method, partial or callable object, or None for what is not Python."""
    for _ in range(16):  # bounds wrappers of wrappers
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
        if isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        else:  # an object whose class is callable; the slots of built-in classes have no code
            function = getattr(function, "__call__", None)  # noqa: B004
    return None


def refuse_pieces(function: Any, what: str, remedy: str) -> None:
    """`TypeError` for a function whose call only makes a generator or a coroutine: its body would not run."""
    code = getattr(function, "__code__", None) or code_of(function)
    if code is not None and code.co_flags & _ANY_PIECES:
        kind = next(kind for flag, kind in _PIECES.items() if code.co_flags & flag)
        raise TypeError(f"{what} is {kind}, whose body does not run in one piece; {remedy}")


def keep_over_fork(lock: Any) -> None:
    """Let no child be forked while another thread holds the lock: nobody would ever release the child's copy."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
