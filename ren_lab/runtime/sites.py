"""Source lines of the user's code, the way errors and statistics name them."""

from types import CodeType
from typing import Any

from ren_lab.events import place_name, user_line


def format_site(where: CodeType | str, line: int) -> str:
    """`basename:line` of a code object, "In[6]:2" in a notebook's cell, or `where` itself where it is a ready site."""
    return where if isinstance(where, str) else f"{place_name(where.co_filename)}:{line}"


def user_site() -> str:
    """`basename:line` of the innermost running frame that is not the package's own."""
    file, line = user_line()
    return f"{place_name(file)}:{line}"


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
