"""What can be said of a function without calling it."""

import inspect
from types import CodeType
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
        if hasattr(function, "__func__"):
            function = function.__func__
        elif hasattr(function, "func"):
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
