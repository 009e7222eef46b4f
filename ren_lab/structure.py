"""Walking the containers that hold polynomials: lists, deques, tuples, named tuples, dicts and dataclasses, nested as they like.

`flatten` lists the leaves of a value and describes the rest as a `Shape`; `Shape.build` puts other leaves into a fresh copy of
the same containers. Objects of other types are leaves, whatever they hold inside. A walk goes through shared containers once
per mention; a container that holds itself is an error.
"""

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple


class Leaf(NamedTuple):
    """A place for one leaf: `path` reads like the code that reaches it, such as "[0].a"."""

    path: str


class Companion:
    """Metadata beside polynomials that is no part of what a computation depends on, such as an estimate of noise.

    It is a leaf, but not part of a captured call's key. While a function is captured, it gets the `stand_in()` of each companion
    among its arguments; at every replay, those of the result tell their value `given` the arguments' real ones.
    """

    __slots__ = ()

    def stand_in(self) -> "Companion":
        """A fresh object that takes this one's place during a capture."""
        raise NotImplementedError

    def given(self, values: "Mapping[Companion, Companion]") -> "Companion":
        """This value, computed again with `values` in the place of stand-ins."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Shape:
    """A container: its type, the names or keys of its parts in order, and a shape or a leaf for each of them.

    `original` is the container itself, which `build` copies; it is no part of what makes two shapes equal.
    """

    kind: type
    names: tuple[Any, ...]
    parts: tuple["Shape | Leaf", ...]
    original: Any = dataclasses.field(compare=False, repr=False)

    def build(self, leaves: Iterator[Any]) -> Any:
        """A copy of the container with its leaves taken from `leaves`, in the order of `flatten`."""
        if kind_of(self.kind)[0] == "dataclass":  # all that it holds is among the parts
            whole: Any = object.__new__(self.kind)
            put = object.__setattr__  # of frozen ones too
            for (name,), part in zip(self.names, self.parts):
                put(whole, name, next(leaves) if type(part) is Leaf else build(part, leaves))
            return whole
        values = [build(part, leaves) for part in self.parts]
        made: Any
        held = [(n, v) for n, v in zip(self.names, values, strict=True) if not isinstance(n, Attribute)]
        items = [value for _, value in held]
        if issubclass(self.kind, tuple):
            made = self.kind(*items) if hasattr(self.kind, "_fields") else self.kind(items)
        else:
            made = copy.copy(self.original)
            if isinstance(made, list):
                made[:] = items
            elif isinstance(made, deque):
                made.clear()
                made.extend(items)
            else:
                made.update(held)
        for name, value in zip(self.names, values, strict=True):
            if isinstance(name, Attribute):
                object.__setattr__(made, name.name, value)
        return made

    def without_originals(self) -> "Shape":
        """The same shape, holding on to types and keys only; it can be compared but not built."""
        parts = tuple(p.without_originals() if isinstance(p, Shape) else p for p in self.parts)
        return Shape(self.kind, self.names, parts, None)


class Attribute(NamedTuple):
    """The name of a part that is an attribute of its container."""

    name: str


MAX_DEPTH = 200
_ABSENT = object()  # a field that was never set


@lru_cache(maxsize=1024)
def kind_of(kind: type) -> tuple[str, tuple[Attribute, ...]]:
    """How a value of a type is walked, and its attributes where it is a dataclass."""
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return "named", ()
    if issubclass(kind, list | tuple | deque):
        return "sequence", ()
    if issubclass(kind, dict):
        return "mapping", ()
    if dataclasses.is_dataclass(kind):
        return "dataclass", tuple(Attribute(field.name) for field in dataclasses.fields(kind))
    return "leaf", ()


def _parts(value: Any) -> tuple[tuple[Any, ...], list[Any], Callable[[Any], str]] | None:
    of: type = type(value)
    kind, attributes = kind_of(of)
    names: tuple[Any, ...]
    if kind == "leaf":
        return None
    if kind == "dataclass":
        names, values = attributes, [getattr(value, name, _ABSENT) for (name,) in attributes]
        if any(v is _ABSENT for v in values):
            names = tuple(n for n, v in zip(names, values, strict=True) if v is not _ABSENT)
            values = [v for v in values if v is not _ABSENT]
    elif kind == "named":
        names, values = tuple(value._fields), list(value)
    elif kind == "sequence":
        names, values = tuple(range(len(value))), list(value)
    else:
        names, values = tuple(value), list(value.values())
    # what a container carries besides its items or fields can decide about a computation, too
    more = [n for n in getattr(value, "__dict__", {}) if Attribute(n) not in names]
    if more:
        names, values = (*names, *map(Attribute, more)), [*values, *(value.__dict__[n] for n in more)]
    return names, values, _step_fields if hasattr(value, "_fields") else _step


def _step(name: Any) -> str:
    return f".{name.name}" if isinstance(name, Attribute) else f"[{name!r}]"


def _step_fields(name: Any) -> str:
    return f".{name.name if isinstance(name, Attribute) else name}"


def flatten(value: Any, path: str, leaves: list[tuple[str, Any]]) -> Shape | Leaf:
    """Append the leaves of a value to `leaves`, each with its path, and return the shape around them.

    Raises:
        ValueError: a container holds itself, or more than `MAX_DEPTH` lie inside one another.
    """
    return _flatten(value, path, leaves, [])


def _flatten(value: Any, path: str, leaves: list[tuple[str, Any]], inside: list[int]) -> Shape | Leaf:
    found = _parts(value)
    if found is None:
        leaves.append((path, value))
        return Leaf(path)
    if id(value) in inside:
        raise ValueError(f"the container at {path} holds itself; ren.jit walks finite structures only")
    if len(inside) == MAX_DEPTH:
        raise ValueError(f"containers are nested more than {MAX_DEPTH} deep, at {path[:80]}…; hand over flatter ones to ren.jit")
    names, values, step = found
    inside.append(id(value))
    parts = tuple(_flatten(v, path + step(n), leaves, inside) for n, v in zip(names, values, strict=True))
    inside.pop()
    return Shape(type(value), names, parts, value)


def build(shape: "Shape | Leaf", leaves: Iterator[Any]) -> Any:
    """The value of a shape with new leaves."""
    return shape.build(leaves) if isinstance(shape, Shape) else next(leaves)
