"""Places of vertices: none overlap, a vertex keeps its place over a chain of pictures, and no layout program is no disaster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ren_lab import options
from ren_lab.lens import dot
from ren_lab.lens.drawing import draw, patched
from ren_lab.lens.layout import lay_out, lay_out_chain, layered, size
from ren_lab.lens.picture import Edge, GraphView, Vertex
from ren_lab.lens.theme import ROLES


def view(edges, count=None, marks=(), role="coefficient") -> GraphView:
    """A picture of vertices v0, v1, … with some edges by number."""
    count = max((n for edge in edges for n in edge), default=-1) + 1 if count is None else count
    vertices = tuple(Vertex(f"v{n}", f"OP{n}", "of some kind", role, mark=dict(marks).get(n)) for n in range(count))
    return GraphView("a title", vertices, tuple(Edge(f"v{a}", f"v{b}") for a, b in edges), count)


def overlaps(layout, keys) -> list[tuple[str, str]]:
    """Pairs of rectangles that share area: every pair is compared."""
    boxes = [(key, layout.places[key]) for key in keys]
    return [
        (a, b)
        for i, (a, p) in enumerate(boxes)
        for b, q in boxes[i + 1 :]
        if abs(p.x - q.x) < (p.width + q.width) / 2 - 0.5 and abs(p.y - q.y) < (p.height + q.height) / 2 - 0.5
    ]


def inside(layout) -> bool:
    return all(
        p.x - p.width / 2 >= 0
        and p.x + p.width / 2 <= layout.width
        and p.y - p.height / 2 >= 0
        and p.y + p.height / 2 <= layout.height
        for p in layout.places.values()
    )


pairs = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)).filter(lambda e: e[0] < e[1]), max_size=30, unique=True)


@given(pairs)
def test_layers_put_sources_above_and_nothing_on_top_of_another(edges):
    picture = view(edges, 15)
    layout = layered({v.key: size(v) for v in picture.vertices}, [(e.source, e.target) for e in picture.edges])
    assert overlaps(layout, layout.places) == []
    assert inside(layout)
    assert all(layout.places[e.source].y < layout.places[e.target].y for e in picture.edges)


@pytest.mark.parametrize("program", ["found", "absent"])
def test_a_layout_covers_all_pictures(program, monkeypatch):
    if program == "absent":
        monkeypatch.setattr(dot, "find_layout_program", lambda: None)
    elif dot.find_layout_program() is None:
        pytest.skip("no layout program")
    first, second = view([(0, 1), (1, 2)]), view([(0, 1), (1, 3), (3, 2)])
    layout = lay_out([first, second])
    assert set(layout.places) == {"v0", "v1", "v2", "v3"}
    assert overlaps(layout, layout.places) == [] and inside(layout)
    assert (layout.routes != {}) == (program == "found")


def test_a_layout_program_that_fails_is_replaced(monkeypatch, tmp_path):
    broken = tmp_path / "dot"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(dot, "find_layout_program", lambda: broken)
    assert set(lay_out([view([(0, 1)])]).places) == {"v0", "v1"}
    assert options.current() is not None


def test_neighbours_share_a_layout_until_it_would_be_mostly_empty():
    small = view([(0, 1), (1, 2)])
    similar = view([(0, 1), (1, 3), (3, 2)])
    large = view([(n, n + 1) for n in range(40)])
    layouts = lay_out_chain([small, similar, similar, large])
    assert layouts[0] is layouts[1] is layouts[2] and layouts[3] is not layouts[0]
    assert [{v.key for v in p.vertices} <= set(la.places) for p, la in zip([small, similar, similar, large], layouts)] == [True] * 4


@given(pairs, pairs)
def test_new_vertices_find_room_and_the_others_stay(edges, more):
    known = view(edges, 10 if all(b < 10 for _, b in edges) else 15)
    layout = layered({v.key: size(v) for v in known.vertices}, [(e.source, e.target) for e in known.edges])
    wider = view([(a, b + 3) for a, b in more], 18)
    covering = layout.covering(wider)
    assert {k: covering.places[k] for k in layout.places} == dict(layout.places)
    assert overlaps(covering, [v.key for v in wider.vertices]) == [] and inside(covering)


@pytest.mark.parametrize("role", ROLES)
def test_every_role_is_drawn_within_its_place(role):
    picture = view([(0, 1)], marks=[(0, "added"), (1, "removed")], role=role)
    svg = draw(picture, lay_out([picture]))
    assert svg.count("<g class=") == 2 + 2 + 1  # vertices, their badges, the edge
    assert f'class="v role-{role} mark-added" data-key="v0"' in svg and "−" in svg


def test_words_in_a_drawing_are_escaped():
    evil = Vertex('k"<', "<script>", "a & b", "buffer", lines=("<x>:1",))
    picture = GraphView("<t>", (evil,), (), 1)
    svg = draw(picture, lay_out([picture]))
    assert "<script>" not in svg and "&lt;script&gt;" in svg and 'data-key="k&quot;&lt;"' in svg


def test_a_patch_changes_classes_attributes_and_words():
    svg = '<svg><g class="v a" data-key="x"><text data-key="t">old</text></g><circle data-key="c" r="1"/></svg>'
    out = patched(svg, {"x": {"class": "now"}, "t": {"text": "a<b"}, "c": {"r": 2, "fill": "none"}, "absent": {"r": 1}})
    assert out == (
        '<svg><g class="v a now" data-key="x"><text data-key="t">a&lt;b</text></g><circle data-key="c" r="2" fill="none"/></svg>'
    )
