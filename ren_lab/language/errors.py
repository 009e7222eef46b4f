"""What the language says when a program is wrong: where, which construct, which rule, and what to do about it."""

import functools
import linecache
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ren_lab.events import place_name


@dataclass(frozen=True, slots=True)
class Loc:
    """A stretch of the user's source.

    Attributes:
        file: path of the file, or the name a notebook gives to a cell.
        line, end_line: from 1.
        column, end_column: from 1; `end_column` is that of the first character behind.
        via: for code that was spliced from another function, the place that called it.
    """

    file: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0
    via: "Loc | None" = None

    @property
    def site(self) -> str:
        """`basename:line`, the way scope statistics name places."""
        return f"{place_name(self.file)}:{self.line}"

    @property
    def text(self) -> str:
        """The source line; empty where the source is not at hand."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def called_from(self, call: "Loc") -> "Loc":
        """The same place, reached through `call`."""
        return replace(self, via=call if self.via is None else self.via.called_from(call))

    def within(self, file: str) -> "Loc":
        """The innermost place on the way here that lies in `file`; the place itself where there is none."""
        loc: Loc | None = self
        while loc is not None:
            if loc.file == file:
                return loc
            loc = loc.via
        return self

    def __str__(self) -> str:
        file = self.file if os.path.exists(self.file) else place_name(self.file)  # a notebook's cell is no file
        return f"{file}:{self.line}:{self.column}"


NOWHERE = Loc("<no source>", 0, 0)


class LanguageError(Exception):
    """A program breaks a rule of the language.

    The message begins with "file:line:column", names the construct, the rule and the remedy, and shows the source line
    with the construct underlined.

    Attributes:
        construct: what the error is about, such as "pl.store".
        rule: what is wrong, with the offending value.
        remedy: what to do about it.
        loc: where.
    """

    def __init__(self, construct: str, rule: str, remedy: str, loc: Loc) -> None:
        super().__init__(_message(construct, rule, remedy, loc))
        self.construct = construct
        self.rule = rule
        self.remedy = remedy
        self.loc = loc

    @property
    def file(self) -> str:
        """The file that is wrong."""
        return self.loc.file

    @property
    def line(self) -> int:
        """The line that is wrong, from 1."""
        return self.loc.line

    @property
    def column(self) -> int:
        """The column at which the construct begins, from 1."""
        return self.loc.column


class LanguageWarning(UserWarning):
    """A program is legal and probably not what was meant."""


_F = TypeVar("_F", bound=Callable[..., Any])


def told_briefly(function: _F) -> _F:
    """Let language errors leave `function` without the frames of the compiler, which say nothing to the user."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LanguageError as error:
            raise error.with_traceback(None) from error.__cause__

    return wrapper  # type: ignore[return-value]


@contextmanager
def depth_told(construct: str, loc: Loc) -> Iterator[None]:
    """Let a walk that recurses too deeply end in a `LanguageError`: what functions splice in adds to their own nests."""
    try:
        yield
    except RecursionError:
        rule = "its statements, with those of the functions that it calls, are nested too deeply"
        remedy = "move inner loops and branches into kernels (@pl.jit.incore), or flatten them"
        raise LanguageError(construct, rule, remedy, loc) from None


def counted(count: int, what: str) -> str:
    """A number of things in words: "1 value", "2 values"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def warn(construct: str, rule: str, remedy: str, loc: Loc) -> None:
    """Issue a `LanguageWarning` that is attributed to the user's line."""
    # A registry of its own: Python would otherwise show a warning once per place and process.
    warnings.warn_explicit(_message(construct, rule, remedy, loc), LanguageWarning, loc.file, max(loc.line, 1), registry={})


def _message(construct: str, rule: str, remedy: str, loc: Loc) -> str:
    lines = [f"{loc}: {construct}: {rule}; {remedy}"]
    source = loc.text
    if source.strip():
        shown = source.lstrip()
        start = loc.column - 1 - (len(source) - len(shown))
        width = loc.end_column - loc.column if loc.end_line == loc.line else len(source) - loc.column + 1
        lines.append(f"    {shown}")
        if start >= 0:
            lines.append("    " + " " * start + "^" * max(1, width))
    via = loc.via
    while via is not None:
        lines.append(f"  in a function called at {via}")
        via = via.via
    return "\n".join(lines)
