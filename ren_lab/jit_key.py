"""What a call of a jitted function must have in common with an earlier one to replay its plan."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ren_lab.ir import Node, const_value, storage
from ren_lab.options import Options
from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec
from ren_lab.structure import Companion, Leaf, Shape, flatten

SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic)

_contributors: list[Callable[[], Any]] = []


def register_key(contributor: Callable[[], Any]) -> None:
    """Let a scheme add to every key: `contributor()` gives its active context, compared by identity, or None."""
    _contributors.append(contributor)


def same_contexts(known: "tuple[ById | None, ...]") -> bool:
    """Whether the active contexts are those of a key."""
    if len(known) != len(_contributors):
        return False
    for context, contributor in zip(known, _contributors):
        active = contributor()
        if active is not context if context is None or active is None else not context.stands_for(active):
            return False
    return True


class ById:
    """An object as part of a key: equal to itself only, and to nothing once it is gone."""

    __slots__ = ("_ident", "_ref")

    def __init__(self, value: Any) -> None:
        self._ident = id(value)
        try:
            self._ref: Callable[[], Any] = weakref.ref(value)
        except TypeError:  # not every object can be referred to weakly
            self._ref = lambda: value

    def stands_for(self, value: Any) -> bool:
        """Whether `value` is the object."""
        return value is not None and self._ref() is value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and self._ref() is not None and self._ref() is other._ref()

    def __hash__(self) -> int:
        return hash(self._ident)

    def __repr__(self) -> str:
        value = self._ref()
        return "a vanished object" if value is None else f"this {type(value).__name__}"


class PolySpec(NamedTuple):
    """What a polynomial argument contributes to the key.

    `value` is that of a constant, otherwise None. `same_as` is the number of the first argument with the same data.
    """

    path: str
    ring: RingSpec
    domain: Domain
    device: str
    value: int | None
    same_as: int


class Key(NamedTuple):
    """The key of a plan: nesting and leaves of the arguments, active scheme contexts, options."""

    structure: Shape | Leaf
    polynomials: tuple[PolySpec, ...]
    static: tuple[tuple[str, Any], ...]
    context: tuple[ById | None, ...]
    options: tuple[Any, ...]

    def differences(self, other: "Key") -> list[str]:
        """What sets this key apart from another one, in words."""
        if self.structure != other.structure:
            return ["the arguments are nested differently"]
        found = []
        for mine, theirs in zip(self.polynomials, other.polynomials, strict=False):
            for name, a, b in zip(PolySpec._fields, mine, theirs, strict=True):
                if a != b and name == "same_as":
                    told = _told_apart(self.polynomials[mine.same_as].path, other.polynomials[theirs.same_as].path)
                    found.append(f"first argument with the data of {mine.path} {told}")
                elif a != b:
                    found.append(f"{'constant' if name == 'value' else name} of {mine.path} {_told_apart(a, b)}")
        for (path, a), (_, b) in zip(self.static, other.static, strict=False):
            if a != b:
                found.append(f"{path} is {_word(a)}, not {_word(b)}")
        if self.context != other.context:
            found.append("another scheme context is active")
        if self.options != other.options:
            found.append("other options are in force")
        return found


def _told_apart(a: Any, b: Any) -> str:
    if isinstance(a, RingSpec):
        return f"is {a.label}, not {b.label}" if a.label != b.label else "has other moduli"
    return f"is {_word(a)}, not {_word(b)}"


def _word(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], type):
        value = value[1]
    if isinstance(value, Domain):
        return value.name
    return "none" if value is None else str(value) if isinstance(value, str) else repr(value)


class Contents:
    """What the arguments of a call hold, in the order of its leaves: polynomials, the nodes of their data, and companions.

    The data of a constant is its own node.
    """

    __slots__ = ("polys", "data", "companions")

    def __init__(self) -> None:
        self.polys: list[Poly] = []
        self.data: list[Node] = []
        self.companions: list[Companion] = []


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one call, taken apart: `leaves` are (path, value) in the order of `shape`."""

    shape: Shape | Leaf
    leaves: tuple[tuple[str, Any], ...]
    contents: Contents
    scalars: tuple[Any, ...]
    key: Key


def _static(value: Any) -> Any:
    """A non-polynomial leaf as part of a key: by type and value where it has one, otherwise by identity."""
    if isinstance(value, float | complex | np.generic):  # 0.0 == -0.0, and nan is no nan
        return type(value), repr(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return np.ndarray, (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, set | frozenset):
        return type(value), frozenset(map(_static, value))
    if isinstance(value, bytearray):
        return bytearray, bytes(value)
    try:
        hash(value)
    except TypeError:
        return type(value), ById(value)
    by_identity = value is not None and type(value).__hash__ is object.__hash__
    return type(value), ById(value) if by_identity else value


def take_apart(args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Call:
    """Find the polynomials of a call, compute them, and make the call's key.

    Raises:
        RuntimeError: there is none.
    """
    leaves: list[tuple[str, Any]] = []
    parts: list[Shape | Leaf] = []
    top: list[int] = []  # where the top-level scalars stand among the leaves
    names = (*range(len(args)), *kwargs) if kwargs else _numbers(len(args))
    for name, value in zip(names, (*args, *kwargs.values()), strict=True):
        if isinstance(value, SCALARS):
            top.append(len(leaves))
        parts.append(flatten(value, _path(name), leaves))
    contents = Contents()
    contents.polys = polys = [leaf for _, leaf in leaves if isinstance(leaf, Poly)]
    if not polys:
        raise RuntimeError("ren.jit: function must receive at least one Poly argument")
    polys[0].realize(*polys[1:])

    first: dict[Node, int] = {}
    specs: list[PolySpec] = []
    static: list[tuple[str, Any]] = []
    for i, (path, leaf) in enumerate(leaves):
        if isinstance(leaf, Poly):
            node = leaf.node
            held = storage(node)
            data = node if held is None else held
            contents.data.append(data)
            value = const_value(node) if held is None else None
            specs.append(PolySpec(path, leaf.ring, leaf.domain, leaf.device, value, first.setdefault(data, len(specs))))
        elif isinstance(leaf, Companion):
            contents.companions.append(leaf)
        elif i not in top:
            static.append((path, _static(leaf)))
    context = tuple([None if (c := contributor()) is None else ById(c) for contributor in _contributors])
    kept = tuple([part.without_originals() if isinstance(part, Shape) else part for part in parts])
    key = Key(Shape(tuple, names, kept, None), tuple(specs), tuple(static), context, options.compile_key)
    return Call(Shape(tuple, names, tuple(parts), None), tuple(leaves), contents, tuple([leaves[i][1] for i in top]), key)


@lru_cache(maxsize=1024)
def _path(name: int | str) -> str:
    return f"argument {name}"


@lru_cache(maxsize=256)
def _numbers(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def same_scalars(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether two tuples of scalars agree in type and value; 2, 2.0 and True are three values, and so are 0.0 and -0.0."""
    return len(a) == len(b) and all(
        type(x) is type(y) and (x == y and repr(x) == repr(y) or x is y) for x, y in zip(a, b, strict=True)
    )
