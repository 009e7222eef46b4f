"""Walking the containers that hold polynomials: lists, tuples, named tuples, dicts and dataclasses, nested as they like.

`flatten` lists the leaves of a value and describes the rest as a `Shape`; `Shape.build` puts other leaves into a fresh copy of
the same containers. Objects of other types are leaves, whatever they hold inside. A walk goes through shared containers once
per mention; a container that holds itself is an error.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
        values = [part.build(leaves) if isinstance(part, Shape) else next(leaves) for part in self.parts]
        if issubclass(self.kind, tuple):
            return self.kind(*values) if hasattr(self.kind, "_fields") else self.kind(values)
        made = copy.copy(self.original)
        if isinstance(made, list):
            made[:] = values
        elif isinstance(made, dict):
            made.update(zip(self.names, values, strict=True))
        else:
            for name, value in zip(self.names, values, strict=True):
                object.__setattr__(made, name, value)  # frozen dataclasses too
        return made

    def without_originals(self) -> "Shape":
        """The same shape, holding on to types and keys only; it can be compared but not built."""
        parts = tuple(p.without_originals() if isinstance(p, Shape) else p for p in self.parts)
        return Shape(self.kind, self.names, parts, None)


def _parts(value: Any) -> tuple[tuple[Any, ...], list[Any], Callable[[Any], str]] | None:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(value._fields), list(value), lambda name: f".{name}"
    if isinstance(value, list | tuple):
        return tuple(range(len(value))), list(value), lambda name: f"[{name}]"
    if isinstance(value, Mapping) and isinstance(value, dict):
        return tuple(value), list(value.values()), lambda name: f"[{name!r}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = tuple(f.name for f in dataclasses.fields(value) if hasattr(value, f.name))
        return names, [getattr(value, name) for name in names], lambda name: f".{name}"
    return None


def flatten(value: Any, path: str, leaves: list[tuple[str, Any]]) -> Shape | Leaf:
    """Append the leaves of a value to `leaves`, each with its path, and return the shape around them.

    Raises:
        ValueError: a container holds itself.
    """
    return _flatten(value, path, leaves, [])


def _flatten(value: Any, path: str, leaves: list[tuple[str, Any]], inside: list[int]) -> Shape | Leaf:
    found = _parts(value)
    if found is None:
        leaves.append((path, value))
        return Leaf(path)
    if id(value) in inside:
        raise ValueError(f"the container at {path} holds itself; ren.jit walks finite structures only")
    names, values, step = found
    inside.append(id(value))
    parts = tuple(_flatten(v, path + step(n), leaves, inside) for n, v in zip(names, values, strict=True))
    inside.pop()
    return Shape(type(value), names, parts, value)


def build(shape: "Shape | Leaf", leaves: Iterator[Any]) -> Any:
    """The value of a shape with new leaves."""
    return shape.build(leaves) if isinstance(shape, Shape) else next(leaves)
