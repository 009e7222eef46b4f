"""Folding: partitions of random graphs, checked by walking them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ren_lab.lens.folding import essential_edges, fold


@st.composite
def dags(draw, most=40):
    """Sources of each vertex; vertices are numbers in topological order."""
    count = draw(st.integers(1, most))
    return [draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else [] for i in range(count)]


def users_of(sources):
    users = {i: set() for i in range(len(sources))}
    for i, below in enumerate(sources):
        for source in below:
            users[source].add(i)
    return users


def reachable(edges):
    """Pairs joined by a path, by brute force."""
    pairs = set(edges)
    while True:
        more = {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs
        if not more:
            return pairs
        pairs |= more


@given(dags(), st.integers(1, 12), st.sets(st.integers(0, 40)), st.integers(1, 9))
def test_groups_partition_the_graph_in_topological_order(sources, limit, stops, lines):
    groups = fold(range(len(sources)), lambda i: sources[i], stops=stops.__contains__, site=lambda i: i // lines, limit=limit)
    assert 1 <= len(groups) <= limit
    assert sorted(member for group in groups for member in group.members) == list(range(len(sources)))
    where = {member: number for number, group in enumerate(groups) for member in group.members}
    assert all(where[source] <= where[i] for i, below in enumerate(sources) for source in below)
    assert all(list(group.members) == sorted(group.members) and set(group.roots) <= set(group.members) for group in groups)


@given(dags(), st.sets(st.integers(0, 40)))
def test_a_cone_is_left_through_its_last_item_only(sources, stops):
    users = users_of(sources)
    groups = fold(range(len(sources)), lambda i: sources[i], stops=stops.__contains__, limit=1000)
    for group in groups:
        for member in group.members:
            assert member == group.root or users[member] and users[member] <= set(group.members)
            assert member == group.root or member not in stops


@given(dags(), st.data())
def test_carried_items_go_with_what_carries_them(sources, data):
    carried = {i: data.draw(st.sampled_from(below)) for i, below in enumerate(sources) if below and data.draw(st.booleans())}
    groups = fold(range(len(sources)), lambda i: sources[i], stops=lambda i: False, carrier=carried.get, limit=1000)
    where = {member: number for number, group in enumerate(groups) for member in group.members}
    assert all(where[i] == where[base] for i, base in carried.items())
    assert len(where) == len(sources)


def test_what_only_one_kernel_needs_is_part_of_it():
    # 0 and 1 feed 2; 2 feeds two kernels 3 and 5; 4 feeds 5 alone
    sources = [[], [], [0, 1], [2], [], [2, 4], [3, 5]]
    groups = fold(range(7), lambda i: sources[i], stops={3, 5, 6}.__contains__)
    assert [group.members for group in groups] == [(0, 1, 2), (3,), (4, 5), (6,)]


def test_one_long_run_comes_apart_evenly():
    groups = fold(range(6000), lambda i: [i - 1] if i else [], stops=lambda i: False, limit=60)
    assert 25 <= len(groups) <= 60 and max(len(group.members) for group in groups) <= 400


def test_cuts_are_where_the_source_line_changes():
    # 30 kernels in a row, from three lines of 10
    groups = fold(range(30), lambda i: [i - 1] if i else [], stops=lambda i: True, site=lambda i: i // 10, limit=3)
    assert [group.members[0] for group in groups] == [0, 10, 20]
    # lines of 9, 11 and 10 kernels: the cuts move
    groups = fold(range(30), lambda i: [], stops=lambda i: True, site=lambda i: (i >= 9) + (i >= 20), limit=3)
    assert [group.members[0] for group in groups] == [0, 9, 20]
    # a change far from an even cut does not move it
    groups = fold(range(30), lambda i: [], stops=lambda i: True, site=lambda i: i >= 2, limit=3)
    assert [group.members[0] for group in groups] == [0, 10, 20]


def test_a_limit_must_leave_a_group():
    with pytest.raises(ValueError, match="folded to 0 groups.*at least 1"):
        fold([1], lambda i: [], stops=lambda i: False, limit=0)


@given(dags(12))
def test_essential_edges_say_the_same_with_fewer_edges(sources):
    edges = {(source, i) for i, below in enumerate(sources) for source in below}
    kept = essential_edges(edges)
    assert kept <= edges and reachable(kept) == reachable(edges)
    for edge in kept:
        assert edge not in reachable(kept - {edge})


def test_edges_against_the_order_are_kept():
    assert essential_edges([(2, 0), (0, 1), (1, 2), (0, 2)]) == {(2, 0), (0, 1), (1, 2)}
