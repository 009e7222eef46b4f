"""Finding out quickly whether a call of a jitted function is one that a plan was captured for.

`jit_key.take_apart` describes any call completely, which takes as long as a small program runs. A `Guard` goes through the
arguments once and compares them with what its plan expects. Where it says yes, `take_apart` would give the plan's key and the same
scalars. It may say no to such a call as well: where something must be computed first, and where an argument is of a rare kind.
"""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

import numpy as np

from ren_lab.ir import is_const, storage
from ren_lab.jit_key import SCALARS, ById, Call, Contents, PolySpec, same_contexts
from ren_lab.options import Options
from ren_lab.poly import Poly
from ren_lab.structure import Companion, Leaf, Shape, kind_of

Check = Callable[[Any, Contents], bool]


class Guard:
    """Recognizes calls of the kind of one that has been taken apart."""

    __slots__ = ("_positional", "_keywords", "_checks", "_same_data", "_distinct", "_contexts", "_options")

    def __init__(self, call: Call) -> None:
        assert isinstance(call.shape, Shape)
        names = call.shape.names
        self._keywords = tuple(name for name in names if isinstance(name, str))
        self._positional = len(names) - len(self._keywords)
        specs = iter(call.key.polynomials)
        static = iter(call.key.static)
        leaves = iter(call.leaves)
        self._checks: tuple[Check, ...] | None
        try:
            self._checks = tuple([_check(part, leaves, specs, static, True) for part in call.shape.parts])
        except _Unguarded:
            self._checks = None
        same_as = [spec.same_as for spec in call.key.polynomials]
        self._distinct = len(set(same_as))
        self._same_data = tuple((number, other) for number, other in enumerate(same_as) if number != other)
        self._contexts, self._options = call.key.context, call.key.options

    def accepts(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Contents | None:
        """What a call holds if it is of the kind, and None if it is not, or if that takes more than a look."""
        checks = self._checks
        if checks is None or len(args) != self._positional or tuple(kwargs) != self._keywords:
            return None
        found = Contents()
        if not _all(checks, (*args, *kwargs.values()) if kwargs else args, found):
            return None
        data = found.data
        if len(set(data)) != self._distinct or options.compile_key != self._options or not same_contexts(self._contexts):
            return None
        for number, other in self._same_data:
            if data[number] is not data[other]:
                return None
        return found


class _Unguarded(Exception):
    """An argument is of a kind that only `take_apart` compares."""


def _check(
    part: Shape | Leaf,
    leaves: Iterator[tuple[str, Any]],
    specs: Iterator[PolySpec],
    static: Iterator[tuple[str, Any]],
    top: bool = False,
) -> Check:
    """What an argument, or a part of one, is held against; takes its leaves from `leaves`, and what the key says of them."""
    if isinstance(part, Shape):
        return _container(part, tuple([_check(inner, leaves, specs, static) for inner in part.parts]))
    _, leaf = next(leaves)
    if isinstance(leaf, Poly):
        return _polynomial(leaf, next(specs))
    if isinstance(leaf, Companion):
        return _companion(type(leaf))
    return _value(leaf, None if top and isinstance(leaf, SCALARS) else next(static)[1])


def _polynomial(leaf: Poly, spec: PolySpec) -> Check:
    kind, ring, domain, device = type(leaf), spec.ring, spec.domain, leaf.node.device
    constant = leaf.node if is_const(leaf.node) else None

    def check(value: Any, found: Contents) -> bool:
        if type(value) is not kind:
            return False
        node = value._node
        data = node if constant is not None else storage(node)
        if data is None or constant is not None and node is not constant:
            return False
        if node.domain is not domain or node.ring is not ring and node.ring != ring or node.device != device:
            return False
        found.polys.append(value)
        found.data.append(data)
        return True

    return check


def _companion(kind: type) -> Check:
    def check(value: Any, found: Contents) -> bool:
        found.companions.append(value)
        return type(value) is kind

    return check


def _value(leaf: Any, known: Any) -> Check:
    """`known` is what the key says of a leaf inside a container, and None for a top-level scalar, which is frozen with its plan."""
    kind = type(leaf)
    if kind in (float, complex) or isinstance(leaf, np.number | np.bool_):
        text = repr(leaf)  # 0.0 == -0.0
        return lambda value, found: value is leaf or type(value) is kind and value == leaf and repr(value) == text
    if kind in (int, bool, str, bytes, type(None)):
        return lambda value, found: value is leaf or type(value) is kind and value == leaf
    if known is None:
        return lambda value, found: value is leaf
    if isinstance(known[1], ById):
        return lambda value, found: known[1].stands_for(value)
    if known[1] is not leaf:
        raise _Unguarded
    hashed = hash(leaf)  # of an object that can change, and then is another key
    return lambda value, found: value is leaf and hash(value) == hashed


def _container(shape: Shape, checks: tuple[Check, ...]) -> Check:
    kind: Any = shape.kind
    names = shape.names
    if kind is dict and all(type(name) is str for name in names):  # other keys may be equal and yet different: 1 and True

        def mapping(value: Any, found: Contents) -> bool:
            if type(value) is not dict or tuple(value) != names or any(type(name) is not str for name in value):
                return False
            return _all(checks, value.values(), found)

        return mapping
    has_dict = hasattr(shape.original, "__dict__")
    if kind in (list, tuple) or kind_of(kind)[0] == "named" and not has_dict:

        def sequence(value: Any, found: Contents) -> bool:
            return type(value) is kind and len(value) == len(checks) and _all(checks, value, found)

        return sequence
    known, attributes = kind_of(kind)
    if known != "dataclass" or names != attributes:
        raise _Unguarded
    fields = frozenset(name for (name,) in attributes)
    get: Callable[[Any], tuple[Any, ...]]
    if len(fields) > 1:
        get = attrgetter(*[name for (name,) in attributes])
    else:
        get = lambda value: tuple([getattr(value, name) for name in fields])  # noqa: E731

    def dataclass(value: Any, found: Contents) -> bool:
        if type(value) is not kind or has_dict and not value.__dict__.keys() <= fields:
            return False
        try:
            return _all(checks, get(value), found)
        except AttributeError:  # a field that was never set
            return False

    return dataclass


def _all(checks: Iterable[Check], values: Iterable[Any], found: Contents) -> bool:
    for check, value in zip(checks, values):
        if not check(value, found):
            return False
    return True
