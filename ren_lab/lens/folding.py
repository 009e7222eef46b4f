"""Folds a large graph to a few groups that still read from top to bottom.

First every item joins the item that it serves alone: what only one kernel needs is part of that kernel. These are the
fanout-free cones of logic synthesis (J. Cong and Y. Ding, "On area/depth trade-off in LUT-based FPGA technology mapping",
1994). Groups of cones are acyclic: whatever leaves a cone leaves it from its last item. If there are still too many, cones that
follow one another are joined, by preference where the user's source line stays the same; stretches of a topological order
are acyclic as well.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FOLD_TO = 60  # groups that a reader can still follow


@dataclass(frozen=True, slots=True)
class Group(Generic[K]):
    """Some items that are drawn as one.

    Attributes:
        members: in the order in which they were given.
        roots: the last item of each cone in the group, in order; one unless cones were joined.
    """

    members: tuple[K, ...]
    roots: tuple[K, ...]

    @property
    def root(self) -> K:
        """The item that the group ends in."""
        return self.roots[-1]


def fold(
    order: Sequence[K],
    sources: Callable[[K], Iterable[K]],
    *,
    stops: Callable[[K], bool],
    carrier: Callable[[K], K | None] = lambda item: None,
    site: Callable[[K], Any] = lambda item: None,
    limit: int = FOLD_TO,
) -> list[Group[K]]:
    """Partition items into at most `limit` groups, in topological order.

    Args:
        order: the items, sources before users.
        sources: the items that an item uses; those outside `order` are ignored.
        stops: whether an item ends its cone even if only one other uses it, as a kernel does.
        carrier: the source that an item is one thing with, as a buffer's state is one with the store that gave it. What else
            the item uses should come before its carrier; groups may be out of order otherwise.
        site: where an item comes from, such as its source line, or None; groups are joined within a site by preference.
        limit: at least 1.
    """
    if limit < 1:
        raise ValueError(f"a graph can't be folded to {limit} groups; give a limit of at least 1")
    # twice the even share: a program that is one cone comes apart into a readable number of pieces
    cones = _cones(order, sources, stops, carrier, max(2 * len(order) // limit, 8))
    if len(cones) <= limit:
        return cones

    # `limit` stretches of the same length, each cut moved to where the site changes if that is nearer than half a stretch
    sites = [site(cone.root) for cone in cones]
    changes = [i for i in range(1, len(cones)) if sites[i] != sites[i - 1]]
    stretch = len(cones) / limit
    cuts = {0, len(cones)}
    for number in range(1, limit):
        even = number * stretch
        at = bisect_left(changes, even)
        near = min(changes[max(at - 1, 0) : at + 1], key=lambda change: abs(change - even), default=0)
        cuts.add(near if abs(near - even) < stretch / 2 else round(even))
    joined = [cones[start:end] for start, end in pairwise(sorted(cuts))]
    place = {item: position for position, item in enumerate(order)}
    return [
        Group(
            tuple(sorted((item for cone in part for item in cone.members), key=place.__getitem__)),
            tuple(cone.root for cone in part),
        )
        for part in joined
    ]


def _cones(
    order: Sequence[K],
    sources: Callable[[K], Iterable[K]],
    stops: Callable[[K], bool],
    carrier: Callable[[K], K | None],
    size: int,
) -> list[Group[K]]:
    """The cones in topological order; none grows over `size` items, those that are carried not counted."""
    body: dict[K, K] = {}  # each item to the one that it is carried by, often itself
    for item in order:
        base = carrier(item)
        body[item] = item if base is None or base not in body else body[base]

    root: dict[K, K] = {}
    room: dict[K, int] = {}
    users: dict[K, set[K]] = {}
    for item in reversed(order):
        here = body[item]
        if here == item:
            served = {root.get(user) for user in users.pop(item, ())}
            only = served.pop() if len(served) == 1 else None
            end = item if only is None or stops(item) or room.get(only, size) == 0 else only
            root[item] = end
            room[end] = room.get(end, size) - 1
        for source in sources(item):
            below = body.get(source)
            if below is not None and below != here:
                users.setdefault(below, set()).add(here)

    members: dict[K, list[K]] = {item: [] for item in order if root.get(item) == item}
    for item in order:
        members[root[body[item]]].append(item)
    return [Group(tuple(items), (cone,)) for cone, items in members.items()]


def essential_edges(edges: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """The edges of an acyclic graph that no longer path makes superfluous: its transitive reduction.

    Vertices are numbered in topological order. Edges that run against it are kept.
    """
    targets: dict[int, set[int]] = {}
    kept = set()
    for source, target in edges:
        if source < target:
            targets.setdefault(source, set()).add(target)
        else:
            kept.add((source, target))
    reached: dict[int, int] = {}  # vertex -> bits of the vertices below it, itself included
    for source in sorted(targets, reverse=True):
        below = 0
        for target in sorted(targets[source]):
            if not below >> target & 1:
                kept.add((source, target))
            below |= reached.get(target, 0) | 1 << target
        reached[source] = below | 1 << source
    return kept
