"""Pages and notebook outputs: complete, well formed, offline, and still there when something they need is not."""

import os
import re
import sys
from html.parser import HTMLParser

import pytest

import ren_lab as ren
from ren_lab import lens
from ren_lab.engine import clear_schedule_cache
from ren_lab.lens import dot, markup, page, plain
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec
from ren_lab.schedule import PIPELINE, Pass, pipeline

RING = RingSpec(n=8, moduli=(17, 97))
VOID = {"meta", "br", "hr", "img", "input", "link"}
ADDRESS = re.compile(r"(https?:)?//[\w.-]+\.\w+", re.IGNORECASE)

needs_layout = pytest.mark.skipif(dot.find_layout_program() is None, reason=f"no layout program: {dot.INSTALL}")


class Reader(HTMLParser):
    """What a browser would make of a page: sections, ids, links; it fails on tags that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.loads, self.tags, self.text = [], [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            elif name == "href":
                self.links.append(value)
            elif name in ("src", "srcset", "data", "action", "xlink:href"):
                self.loads.append(value)
            elif name.startswith("on"):
                raise AssertionError(f"a handler in an attribute: {name}")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-5:])
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def program():
    x, y = Poly([1, 2, 3, 4], RING), Poly([5, 6, 7, 8], RING)
    return ((x * y).rotate(1) + 7).to_ring(RingSpec(8, (17,)))


@pytest.fixture(scope="module")
def trace():
    clear_schedule_cache()
    with ren.trace() as recording:
        program().realize()
    return recording.realizations[0]


@pytest.fixture(scope="module")
def saved(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "trace.html"
    trace.save(path)
    return path.read_text(encoding="utf-8")


# pages


def test_the_page_has_every_part(trace, saved):
    read = Reader(saved)
    text = " ".join(read.text)
    assert {"passes", "schedule", "kernels", "memory"} <= set(read.ids)
    for step in PIPELINE:
        assert step.name in text
    for record in trace.passes:
        assert all(fired.equation in text for fired in record.rewrites)
        assert record.sentence in text
    for kernel in trace.kernels:
        assert kernel.name in text and kernel.source in text
    assert "quiet" in text and "test_lens_page.py:" in text
    assert str(trace.passes[-1].after) in text


def test_every_inner_link_leads_somewhere_and_ids_are_unique(saved):
    read = Reader(saved)
    inner = [link[1:] for link in read.links if link.startswith("#")]
    assert inner and set(inner) <= set(read.ids)
    own = [
        i
        for i in read.ids
        if not re.match(r"(g[0-9a-f]{8}-|[a-z]*\d|figure|axes|patch|text|line|matplotlib|xtick|ytick|legend)", i)
    ]
    assert len(set(own)) == len(own)


def test_the_page_asks_nothing_of_a_network(saved):
    read = Reader(saved)
    assert read.loads == [] or all(re.match(r"(#|data:)", value) for value in read.loads)
    assert all(link.startswith("#") for link in read.links)
    assert not {"link", "iframe", "img", "object", "embed"} & set(read.tags)
    without_namespaces = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", saved)
    assert ADDRESS.search(without_namespaces) is None
    assert not re.search(r"@import|\bfetch\(|XMLHttpRequest|\bimport\(|url\(\s*[\"']?(?!#)", saved)


def test_the_page_follows_the_readers_scheme(saved):
    assert "prefers-color-scheme: dark" in saved and "var(--ren-ink" in saved


@needs_layout
def test_pictures_are_inline(trace, saved):
    drawn = [record for record in trace.passes if not record.quiet]
    assert Reader(saved).tags.count("svg") == len(drawn) + 3  # what went in, the schedule, the memory plot


def test_two_pages_of_one_trace_are_the_same_text(trace, saved, tmp_path):
    trace.save(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == saved


def test_texts_are_escaped(tmp_path):
    clear_schedule_cache()
    code = compile("p = x * x + 1", "<img src=x onerror=alert(1)>.py", "exec")
    scope = {"x": Poly([1, 2], RING)}
    exec(code, scope)
    trace = scope["p"].explain()
    trace.save(tmp_path / "x.html")
    read = Reader((tmp_path / "x.html").read_text(encoding="utf-8"))
    assert "img" not in read.tags and "<img src=x onerror=alert(1)>.py:1" in " ".join(read.text)


def test_the_page_of_a_failure_says_where(monkeypatch, tmp_path):
    clear_schedule_cache()

    def fail(graph, options):
        raise ArithmeticError("no <luck>")

    monkeypatch.setattr(pipeline, "PIPELINE", (*PIPELINE[:4], Pass("decide_boundaries", prepare=fail), *PIPELINE[5:]))
    with ren.trace() as recording, pytest.raises(ArithmeticError):
        program().realize()
    recording.realizations[0].save(tmp_path / "x.html")
    read = Reader((tmp_path / "x.html").read_text(encoding="utf-8"))
    assert "in pass 5, decide_boundaries" in " ".join(read.text) and "no <luck>" in " ".join(read.text)
    assert {"failure", "passes"} <= set(read.ids) and "schedule" not in read.ids


def test_the_page_of_a_cached_trace_has_its_passes(tmp_path):
    clear_schedule_cache()
    program().explain()
    again = program().explain()
    assert again.cached
    again.save(tmp_path / "x.html")
    read = Reader((tmp_path / "x.html").read_text(encoding="utf-8"))
    assert "pass-12" in read.ids and "came out of the cache" in " ".join(read.text)


def test_the_page_of_a_recording_shows_each_program_once(tmp_path):
    clear_schedule_cache()
    with ren.trace() as recording:
        for _ in range(4):
            (Poly([1, 2], RING) * 3).realize()
        program().realize()
    recording.save(tmp_path / "x.html")
    read = Reader((tmp_path / "x.html").read_text(encoding="utf-8"))
    assert {i for i in read.ids if re.fullmatch(r"r\d+", i)} == {"r0", "r4"}
    assert "5 realizations" in " ".join(read.text) and {"order", "totals", "r4-passes", "r0-memory"} <= set(read.ids)


# what is missing


def test_without_a_layout_program_the_graphs_are_text(trace, tmp_path):
    with ren.using(dot="/nowhere/dot"):
        trace.save(tmp_path / "x.html")
        bundle = trace._repr_mimebundle_()
    read = Reader((tmp_path / "x.html").read_text(encoding="utf-8"))
    text = " ".join(read.text)
    assert "digraph" in text and "REN_LAB_DOT" in text and read.tags.count("svg") == 1  # the memory plot
    assert "digraph" in bundle["text/html"]


def test_without_matplotlib_the_page_says_so(trace, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    trace.save(tmp_path / "x.html")
    text = " ".join(Reader((tmp_path / "x.html").read_text(encoding="utf-8")).text)
    assert "pip install matplotlib" in text and "memory plan: peak" in text


def test_a_view_that_fails_leaves_the_others(trace, tmp_path, monkeypatch):
    def fail(*args, **more):
        raise ZeroDivisionError("drawn too thin")

    monkeypatch.setattr(page, "graph_picture", fail)
    trace.save(tmp_path / "x.html")
    text = " ".join(Reader((tmp_path / "x.html").read_text(encoding="utf-8")).text)
    assert "This view failed: ZeroDivisionError: drawn too thin" in text and trace.kernels[0].source in text


# files


def test_a_page_is_replaced_whole_or_not_at_all(trace, tmp_path, monkeypatch):
    path = tmp_path / "x.html"
    path.write_text("before")

    def refuse(*args):
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        with pytest.raises(OSError, match="disk full"):
            trace.save(path)
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["x.html"]
    trace.save(str(path))
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>") and os.listdir(tmp_path) == ["x.html"]


@pytest.mark.parametrize("name", ["x.pdf", "x.svg", "x.PNG", "x.dot", "x.html.gz"])
def test_what_is_not_a_page_is_not_written(trace, tmp_path, monkeypatch, name):
    told = r"does not end in \.html or \.htm.*Save 'x.*\.html'.*to_graphviz\(\)"
    with ren.trace() as recording:
        (Poly([1], RING) + 2).realize()
    with pytest.raises(ValueError, match=told):
        recording.save(tmp_path / name)
    monkeypatch.setattr(page, "trace_page", lambda *a: pytest.fail("the page was made before its name was looked at"))
    with pytest.raises(ValueError, match=told):
        trace.save(str(tmp_path / name))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["x.htm", "X.HTML", "x"])
def test_names_of_pages(tmp_path, name):
    page.write_page(tmp_path / name, "<p>")
    assert (tmp_path / name).read_text() == "<p>"


def test_a_missing_folder_is_named(trace, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist; create it, then save 'x.html' again"):
        trace.save(tmp_path / "none" / "x.html")


# notebook outputs


@pytest.mark.parametrize(
    "part",
    ["trace", "passes[2]", "passes[6]", "kernels[0]", "schedule", "memory"],
)
def test_parts_show_themselves(trace, part):
    thing = trace if part == "trace" else eval(f"trace.{part}", {"trace": trace})
    bundle = thing._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"} and bundle["text/plain"] == str(thing)
    read = Reader(bundle["text/html"])
    assert "failed" not in " ".join(read.text) and all(link.startswith("#") for link in read.links)


def test_a_recording_shows_itself():
    with ren.trace() as one:
        program().realize()
    with ren.trace() as two:
        program().realize()
        program().realize()
    assert "Memory plan" in one._repr_mimebundle_()["text/html"]
    read = Reader(two._repr_mimebundle_()["text/html"])
    assert "2 realizations" in " ".join(read.text) and "Time per kernel" in " ".join(read.text)
    Reader(lens.Recording()._repr_mimebundle_()["text/html"])


def test_long_tables_are_cut_and_say_so():
    text = markup.table(["n"], [[i] for i in range(700)], {0})
    assert text.count("<tr>") == 501 and "and 200 more rows" in text


def test_long_graphs_are_cut_and_say_so(monkeypatch, trace):
    monkeypatch.setattr(plain, "TEXT_LINES", 5)
    lines = plain.graph_text(trace.graph).splitlines()
    assert len(lines) == 6 and re.fullmatch(r"… and \d+ more lines", lines[-1])
