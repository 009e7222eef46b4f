"""Source lines of the user's code, the way errors and statistics name them."""

from types import CodeType

from ren_lab.events import place_name, user_line


def format_site(where: CodeType | str, line: int) -> str:
    """`basename:line` of a code object, "In[6]:2" in a notebook's cell, or `where` itself where it is a ready site."""
    return where if isinstance(where, str) else f"{place_name(where.co_filename)}:{line}"


def user_site() -> str:
    """`basename:line` of the innermost running frame that is not the package's own."""
    file, line = user_line()
    return f"{place_name(file)}:{line}"


def scope_place(site: str, name: str | None) -> str:
    """A scope's source line behind its name, where it has one: "'phase' at program.py:4", "at program.py:4"."""
    return f"{name!r} at {site}" if name else f"at {site}"
