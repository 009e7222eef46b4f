"""What a notebook shows of the engine's classes, and that nothing is imported for those who do not look."""

import subprocess
import sys

import pytest

import ren_lab as ren
from ren_lab import lens
from ren_lab.lens import display, dot
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec

RING = RingSpec(n=8, moduli=(17, 97))


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config, ipython_dir=str(tmp_path_factory.mktemp("ipython")))
    assert lens.register_displays(shell)
    return shell


def shown(shell, thing):
    return shell.display_formatter.format(thing)[0]


def things():
    p = (Poly([1, 2], RING) * Poly([3], RING)).rotate(1)
    program = p.explain().program
    return {
        "Poly": p, "Node": p.node, "Schedule": program.schedule, "MemoryPlan": program.memory, "Program": program, "RingSpec": RING,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["Poly", "Node", "Schedule", "MemoryPlan", "Program", "RingSpec"])
def test_engine_classes_show_themselves(shell, name):
    thing = things()[name]
    bundle = shown(shell, thing)
    assert bundle["text/html"].startswith('<div class="ren-lab">') and "failed" not in bundle["text/html"]
    assert not hasattr(type(thing), "_repr_html_") and not hasattr(type(thing), "_repr_mimebundle_")


def test_what_is_told_of_a_ring_and_of_a_polynomial(shell):
    html = shown(shell, RING)["text/html"]
    assert all(f"{p:,}" in html for p in RING.moduli)
    lazy = Poly([1, 2], RING) * 3
    assert "lazy" in shown(shell, lazy)["text/html"] and not lazy.is_realized
    assert "realized" in shown(shell, lazy.realize())["text/html"]


def test_tuples_of_records_are_a_short_line_each(shell):
    trace = (Poly([1, 2], RING) * Poly([3], RING)).rotate(1).explain()
    items = trace.schedule[:]
    wanted = {
        trace.passes: [
            f"<pass {p.number} {p.name}: {len(p.rewrites)} rewrite{'s' * (len(p.rewrites) != 1)}, {len(p.after.toposort())} nodes>"
            for p in trace.passes
        ],
        trace.kernels: [f"<kernel {k.index} {k.name}: {k.outputs[0].label} ← " for k in trace.kernels],
        trace.units: [f"<unit {u.index} {u.item.name}: " for u in trace.units],
        items: [f"<item {item.name}: {item.outputs[0].label} ← " for item in items],
        next(p for p in trace.passes if p.name == "inject_domains").rewrites: ["<product_in_ntt: MUL("],
    }
    for records, starts in wanted.items():
        text = shown(shell, records)["text/plain"]
        lines = [line.strip(" ()") for line in text.splitlines()]
        assert len(lines) == len(records) and max(map(len, lines)) < 160
        for line, start in zip(lines, starts):
            assert line.startswith(start) and line.rstrip(",").endswith(">")
    assert "<svg" in shown(shell, trace.kernels[0].item)["text/html"]
    assert items[0].name in shown(shell, items[0])["text/html"]


def test_coefficients_are_not_shown(shell):
    secret = Poly([123454321] * 8, RingSpec(n=8, moduli=(1073741441,))).realize()
    assert secret.tolist()[0] == 123454321
    told = shown(shell, secret)
    assert all("123454321" not in text and "123,454,321" not in text for text in told.values())


def test_lens_objects_show_themselves(shell):
    with ren.trace() as recording:
        (Poly([1, 2], RING) * 3).realize()
    for thing in (recording, recording.realizations[0], recording.realizations[0].passes[0]):
        assert {"text/html", "text/plain"} <= set(shown(shell, thing))


def test_a_figure_is_shown_without_pyplot(shell):
    figure = things()["Program"]
    plot = lens.MemoryView(figure.memory, figure.schedule).plot()
    assert shown(shell, plot)["image/png"]


@pytest.mark.parametrize("layout", ["found", "missing"])
def test_a_digraph_is_shown_with_whatever_draws(shell, layout, capsys):
    graph = things()["Poly"].explain().to_graphviz()
    with ren.using(dot="/nowhere/dot" if layout == "missing" else None):
        html = shown(shell, graph)["text/html"]
        drawn = dot.find_layout_program() is not None
    assert ("<svg" in html) == drawn and ("digraph" in html) != drawn
    assert capsys.readouterr().err == ""


def test_a_view_that_fails_shows_its_failure(shell, monkeypatch, capsys):
    from ren_lab.lens import page

    def fail(thing):
        raise LookupError("no <such> colour")

    monkeypatch.setattr(page, "ring_html", fail)
    html = shown(shell, RING)["text/html"]
    assert "LookupError: no &lt;such&gt; colour" in html and "RingSpec" in html
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("part", ["str", "view"])
def test_text_and_picture_fail_apart(part):
    class Thing:
        def __str__(self):
            if part == "str":
                raise KeyError("text")
            return "the text"

    def view(thing):
        if part == "view":
            raise KeyError("picture")
        return "<p>the picture</p>"

    bundle = display.html_bundle(Thing(), view)
    failed, fine = ("text/plain", "text/html") if part == "str" else ("text/html", "text/plain")
    assert "KeyError" in bundle[failed] and "the " in bundle[fine] and "KeyError" not in bundle[fine]


def test_without_a_notebook_nothing_is_registered(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert lens.register_displays() is False
    assert "IPython" not in sys.modules


def test_registering_finds_the_running_shell(shell, monkeypatch):
    import IPython

    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    assert lens.register_displays()


CODE = """
import sys
import ren_lab as ren
from ren_lab import lens
ring = ren.RingSpec(n=8, moduli=(17, 97))
p = ren.Poly([1, 2], ring) * 3
with ren.trace() as recording:
    p.realize()
trace = (p + 1).explain()
str(recording), str(trace), repr(trace), trace.kernels[0].lines, trace.passes[0].added
print(sorted({name.partition(".")[0] for name in sys.modules} & {"IPython", "matplotlib", "graphviz", "ipywidgets", "anywidget"}))
"""


def test_looking_as_text_imports_no_views():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_public_names_are_there():
    for name in lens.__all__:
        if name != "ScopeStats":
            assert getattr(lens, name) is not None, name
    assert callable(lens.trace) and callable(lens.explain) and ren.trace is lens.trace
    assert set(lens.__all__) <= set(dir(lens))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lens.nothing


def test_scope_statistics_are_imported_when_asked_for():
    code = "import sys, ren_lab.lens as lens; assert 'ren_lab.lens.scope_stats' not in sys.modules; print(lens.ScopeStats.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "ScopeStats", done.stderr
