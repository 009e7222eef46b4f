"""The user's source: the syntax tree of a function with true locations, and the names that it sees."""

import ast
import enum
import inspect
import linecache
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from ren_lab.language.errors import LanguageError, Loc

_MISSING = object()
_text_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a syntax tree comes from: line 1 of the text is line `line_shift` + 1 of the file."""

    file: str
    line_shift: int = 0

    def loc(self, node: ast.AST) -> Loc:
        """The place of a node."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None) or column
        shift = self.line_shift
        return Loc(self.file, line + shift, column + 1, end_line + shift, end_column + 1)


def function_tree(function: Callable[..., Any]) -> tuple[ast.FunctionDef, Source]:
    """The `def` of a function, and where it stands.

    Raises:
        LanguageError: there is no source, or it is no plain `def`.
    """
    code = function.__code__
    where = Loc(code.co_filename, code.co_firstlineno)
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise LanguageError(
            f"function {function.__name__}",
            "its source cannot be found, and the language reads source",
            "define it in a file or a notebook cell, or give the text to pl.parse",
            where,
        ) from None
    nested = lines[0][:1].isspace()
    try:
        tree: ast.stmt | None = ast.parse("".join(["if 1:\n" if nested else "", *lines])).body[0]
    except SyntaxError:
        tree = None  # a lambda in the middle of an expression
    if nested and isinstance(tree, ast.If):
        tree = tree.body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise LanguageError(
            f"function {function.__name__}", "it is not a plain `def`", "decorate a function that is written with `def`", where
        )
    return tree, Source(code.co_filename, first - 1 - nested)


def text_tree(text: str, filename: str | None) -> tuple[ast.Module, Source]:
    """The syntax tree of a program given as text. The text is kept, so that errors can show its lines.

    Raises:
        LanguageError: it is no Python.
    """
    name = filename or f"<pl text {next(_text_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        return ast.parse(text), Source(name)
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        raise LanguageError("syntax", f"{error.msg}", "write valid Python", Loc(name, line, column, line, column + 1)) from None
    except (ValueError, RecursionError, MemoryError) as error:  # zero bytes, and what is too deep for Python's parser
        rule = f"Python cannot read it: {error}"
        raise LanguageError("syntax", rule, "write valid Python, nested less deeply", Loc(name, 1)) from None


def names_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The names that a function's body sees: its closure, then its module."""
    return _Names(function)


class _Names(Mapping[str, Any]):
    """Looks up when asked, so that functions defined later are found at the first call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._globals = function.__globals__

    def __getitem__(self, name: str) -> Any:
        cell = self._cells.get(name)
        if cell is not None:
            try:
                return cell.cell_contents
            except ValueError:
                raise KeyError(name) from None
        return self._globals[name]

    def __iter__(self) -> Any:
        return iter({**self._globals, **self._cells})

    def __len__(self) -> int:
        return len({**self._globals, **self._cells})


def attribute(value: Any, name: str) -> Any:
    """`value.name` where looking it up runs no code of the user's: modules, classes, enums, namespaces, data classes.

    Raises:
        AttributeError: there is none, or it would have to be computed.
    """
    if isinstance(value, ModuleType):
        return getattr(value, name)
    if isinstance(value, enum.EnumMeta | SimpleNamespace):
        return getattr(value, name)
    found = inspect.getattr_static(value, name)
    if hasattr(type(found), "__get__") and not isinstance(found, type):
        if inspect.ismemberdescriptor(found):  # a slot: reading it runs no code of the user's
            return found.__get__(value)
        raise AttributeError(name)
    return found


def as_number(value: Any) -> Any:
    """A captured value as a plain Python number, truth value or None; `_MISSING` (see `is_number`) for anything else."""
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, enum.IntEnum | np.integer):
        return int(value)
    if isinstance(value, np.floating):
        return float(value)
    return _MISSING


def is_number(value: Any) -> bool:
    """Whether `as_number` found one."""
    return value is not _MISSING
