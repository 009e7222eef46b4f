"""A call that a guard accepts is one that the plan's key describes: random arguments, and others that differ in one place."""

import enum
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ren_lab as ren
from ren_lab.jit_guard import Guard
from ren_lab.jit_key import same_scalars, take_apart
from ren_lab.options import current
from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec

RING, SUB = RingSpec(8, (17, 97)), RingSpec(8, (97,))
Named = namedtuple("Named", "a b")


class Tag(enum.IntEnum):
    ONE = 1


class MyInt(int):
    pass


class MyList(list):
    pass


@dataclass
class Open:
    a: Any
    b: Any


@dataclass
class Single:
    a: Any


@dataclass(frozen=True, slots=True)
class Closed:
    a: Any
    b: Any


class Short(float):
    def __repr__(self) -> str:
        return f"{float(self):.1f}s"


class Unequal:
    """Compared by identity."""


class Changing:
    """Compared by a value that can change."""

    def __init__(self, k: int) -> None:
        self.k = k

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Changing) and other.k == self.k

    def __hash__(self) -> int:
        return self.k


X, Y, Z = (Poly([i, i + 1], RING).realize() for i in range(3))
BIG = RingSpec(8, (17, 97, 113))
POLYS = [
    X, Y, Z, X.ntt().realize(), Poly([1], SUB).realize(), X.to("python:1").realize(), Poly.of_settled(X.node),
    Poly([5], BIG).realize().to_ring(RingSpec(8, (97, 113))).realize(),  # a window of another buffer
    Poly.const(1, RING), Poly.const(2, RING), Poly.const(1, SUB), X.ntt() * 0,
]  # fmt: skip
for poly in POLYS:
    poly.realize()
NAN, OBJECT = float("nan"), Unequal()
STATIC = [
    0, 1, 2, True, False, 0.0, -0.0, 1.0, NAN, float("nan"), 1j, "a", b"a", None, Tag.ONE, MyInt(1), np.float32(1), np.int64(1),
    OBJECT, Unequal(), RING, RingSpec(8, (17, 97)), Domain.NTT, np.dtype("u4"), len, frozenset({1}), {1}, bytearray(b"a"),
    np.arange(3), np.arange(3), Short(1.0), Short(1.01), Changing(1), Changing(1), np.void(b"ab"), 10**30, int("1" + "0" * 30),
]  # fmt: skip
LEAVES = [*POLYS, *STATIC]
KEYS = {
    "ints": (1, 2, 3),
    "bools": (True, 2, 3),
    "floats": (1.0, 2, 3),
    "zero": (0.0, 2, 3),
    "minus": (-0.0, 2, 3),
    "tag": (Tag.ONE, 2, 3),
}
CONTAINERS = [*KEYS, list, tuple, dict, Named, Open, Single, Closed, MyList, deque, OrderedDict]

leaf = st.one_of(st.integers(0, len(POLYS) - 1), st.integers(len(POLYS), len(LEAVES) - 1))
tree = st.recursive(leaf, lambda t: st.tuples(st.sampled_from(CONTAINERS), st.lists(t, min_size=2, max_size=3)), max_leaves=6)


def made(spec: Any) -> Any:
    """A fresh value: leaves are the same objects each time, containers are new."""
    if isinstance(spec, int):
        return LEAVES[spec]
    kind, parts = spec
    values = [made(part) for part in parts]
    if kind in (dict, OrderedDict):
        return kind(zip("abc", values))
    if kind in KEYS:
        return dict(zip(KEYS[kind], values))
    if kind in (Named, Open, Closed):
        return kind(*values[:2])
    return Single(values[0]) if kind is Single else kind(values)


def changed(spec: Any, path: list[int], other: Any) -> Any:
    """A spec with one part replaced: that which `path` leads to."""
    if not path or isinstance(spec, int):
        return other
    kind, parts = spec
    where = path[0] % len(parts)
    return kind, [changed(p, path[1:], other) if i == where else p for i, p in enumerate(parts)]


def check(first: list[Any], second: list[Any], names: tuple[str, ...]) -> bool:
    """Whether the guard of the first call accepts the second one; if so, the second has the key of the first."""

    def call(values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        count = max(len(values) - len(names), 0)
        return tuple(values[:count]), dict(zip(names, values[count:]))

    known = take_apart(*call(first), current())
    args, kwargs = call(second)
    found = Guard(known).accepts(args, kwargs, current())
    if found is None:
        return False
    wanted = take_apart(args, kwargs, current())
    assert wanted.key == known.key
    assert same_scalars(wanted.scalars, known.scalars)
    assert list(map(id, found.polys)) == list(map(id, wanted.contents.polys))
    assert found.data == wanted.contents.data and found.companions == wanted.contents.companions
    return True


NAMES = st.sampled_from([(), ("y",), ("y", "z")])


@given(st.lists(tree, min_size=1, max_size=3), st.lists(st.integers(0, 2), max_size=3), tree, NAMES, st.integers(0, 2))
@settings(max_examples=600, deadline=None)
@example([0, STATIC.index(0.0) + len(POLYS)], [], STATIC.index(0.0) + len(POLYS) + 1, (), 1)
def test_what_a_guard_accepts_has_the_key(specs: list[Any], path: list[int], other: Any, names: tuple[str, ...], n: int) -> None:
    specs = [0, *specs]  # at least one polynomial
    variant = list(specs)
    variant[n % len(specs)] = changed(specs[n % len(specs)], path, other)
    if not any(isinstance(v, Poly) for v in map(made, [variant[0]])):
        variant.append(0)
    check(list(map(made, specs)), list(map(made, variant)), names)
    check(list(map(made, specs)), list(map(made, specs)), names)


COMMON = [0, 3, *(len(POLYS) + STATIC.index(v) for v in (1, "a", None)), len(POLYS) + 5]


@given(st.lists(st.recursive(
    st.sampled_from(COMMON),
    lambda t: st.tuples(st.sampled_from([list, tuple, dict, Named, Open, Single, Closed]), st.lists(t, min_size=2, max_size=3)),
    max_leaves=6,
), min_size=1, max_size=3), NAMES)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_calls_of_common_kinds_are_accepted(specs: list[Any], names: tuple[str, ...]) -> None:
    specs = [0, *specs]
    assert check(list(map(made, specs)), list(map(made, specs)), names)


def accepts(first: Any, second: Any) -> bool:
    return check([X, first], [X, second], ())


def test_attributes_beside_fields_tell_calls_apart() -> None:
    plain, more, less = Open(Y, 1), Open(Y, 1), Open(Y, 1)
    more.extra = 2  # type: ignore[attr-defined]
    del less.b
    assert accepts(plain, Open(Y, 1))
    assert not accepts(plain, more) and not accepts(plain, less) and not accepts(more, plain)
    assert not accepts(plain, Open(Y, True)) and not accepts(plain, Open(Y, 1.0)) and not accepts(plain, Closed(Y, 1))


def test_sharing_tells_calls_apart() -> None:
    again = Poly.of_settled(X.node)
    assert accepts([X, Y], [X, Y]) and accepts([X, Y], [again, Z])
    assert (
        not accepts([X, Y], [Y, X]) and not accepts([X, Y], [Y, Y]) and not accepts([Y, Y], [Y, Z]) and not accepts([Y, Y], [X, X])
    )


def test_what_must_be_computed_is_left_to_the_key() -> None:
    assert not accepts(Y, Y + 1)
    other = (Y + 1).realize()
    assert accepts(Y, other)


def test_options_and_contexts_tell_calls_apart() -> None:
    guard = Guard(take_apart((X,), {}, current()))
    assert guard.accepts((X,), {}, current()) is not None
    with ren.using(max_kernel_loads=4):
        assert guard.accepts((X,), {}, current()) is None
    assert guard.accepts((X,), {"y": 1}, current()) is None and guard.accepts((), {}, current()) is None


def test_an_object_that_is_gone_is_not_taken_for_another() -> None:
    thing = Unequal()
    guard = Guard(take_apart((X, [thing]), {}, current()))
    assert guard.accepts((X, [thing]), {}, current()) is not None
    del thing
    for _ in range(50):  # one of them may get the same address
        assert guard.accepts((X, [Unequal()]), {}, current()) is None
    assert guard.accepts((X, [None]), {}, current()) is None


@pytest.mark.parametrize("value", [1, 2.5, "a", None, True], ids=repr)
def test_a_frozen_scalar_still_raises_when_it_changes(value: Any) -> None:
    f = ren.jit(lambda x, s: x + 1)
    f(X, value), f(X, value)
    assert f.plans[0].hits == 1
    with pytest.raises(RuntimeError, match="non-Poly scalar arg changed"):
        f(X, "another")
    f(X, value)
    assert f.plans[0].hits == 2


def test_an_object_that_changed_its_value_is_another_one() -> None:
    thing = Changing(1)
    guard = Guard(take_apart((X, thing), {}, current()))
    assert guard.accepts((X, thing), {}, current()) is not None
    thing.k = 3
    assert guard.accepts((X, thing), {}, current()) is None
    step = ren.jit(lambda x, t: x * t.k)
    assert [step(X, thing).tolist()[1], setattr(thing, "k", 5), step(X, thing).tolist()[1]] == [3, None, 5]


@pytest.mark.parametrize(
    "first, second", [({1: X}, {True: X}), ({0.0: X}, {-0.0: X}), ({1: X}, {1.0: X}), ({Tag.ONE: X}, {1: X})], ids=repr
)
def test_keys_that_are_equal_and_yet_different_tell_calls_apart(first: Any, second: Any) -> None:
    assert not check([first], [second], ())
    named = ren.jit(lambda d: (next(iter(d.values())), [repr(k) for k in d]))
    assert [named(first)[1], named(second)[1]] == [[repr(k) for k in first], [repr(k) for k in second]]
