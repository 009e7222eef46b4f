"""The widgets without a browser: what goes to the script, what comes back, and what stands where no widget runs."""

import ast
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

import ren_lab as ren
from ren_lab.lens import stepper_page
from ren_lab.lens.pass_steps import PassSteps
from ren_lab.lens.records import Failure
from ren_lab.lens.theme import THEMES
from ren_lab.lens.trace import Trace
from ren_lab.ring import find_primes

pytest.importorskip("anywidget", reason="needs the extra `lab`")
traitlets = pytest.importorskip("traitlets")

from ren_lab.widgets import PassStepper, RingPlayer, ScheduleStepper  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
ring = ren.RingSpec(32, find_primes(32, 30, 3))


def lazy(rounds: int = 1):
    x, y = ren.Poly(range(32), ring), ren.Poly([1, 2, 3], ring)
    first = x
    for number in range(rounds):
        x = (x * y).rotate(1) + first * (number + 3)
    return x.rescale(ring.moduli[-1:]).to_ring(ring) * y


@pytest.fixture(scope="module")
def trace():
    with ren.trace() as recording:
        lazy().realize()
    return recording.realizations[-1]


@pytest.fixture
def sent(monkeypatch):
    """What a widget sends to its script."""
    messages: list[dict] = []
    monkeypatch.setattr(PassStepper, "send", lambda self, content, buffers=None: messages.append(content))
    return messages


def stats():
    from ren_lab.lens import ScopeStats

    sizes = {"task_window_max": [4], "heap_max": [1024], "dep_pool_max": [4], "tensormap_max": 8}
    zeros = {f"{r}_{e}": 0 for r in ("task_window", "heap", "dep_pool") for e in ("start", "end")}
    sample = {"site": "a.py:1", "depth": 0, "ring": 0, "tensormap": 0, **zeros}
    begin, end = {**sample, "phase": "begin"}, {**sample, "phase": "end", "task_window_end": 3}
    return ScopeStats({"version": 6, "fatal": False, "dropped": 0, "total": 2, **sizes}, [begin, end])


def test_the_state_can_be_set_and_is_checked(trace):
    stepper = PassStepper(trace, step=3)
    assert stepper.step == 3 and "inject_domains" in stepper.sentence
    stepper.rewrite = 2
    assert "rewrite 2 of" in stepper.sentence
    stepper.step = 1  # has no rewrites
    assert stepper.rewrite == 0
    for name, value, told in (
        ("step", 13, "0 to 12"),
        ("step", -1, "0 to 12"),
        ("rewrite", -1, "no rewrite -1"),
        ("fold", "size", "'kernel'"),
    ):
        with pytest.raises(traitlets.TraitError, match=told):
            setattr(stepper, name, value)
    with pytest.raises(traitlets.TraitError, match="there is no step 99"):
        PassStepper(trace, step=99)


def test_details_and_find_work_on_the_present_state(trace):
    stepper = PassStepper(trace, step=3)
    assert stepper.details() == {}
    found = stepper.find("rescale")
    stepper.selected = found[0]
    about = next(iter(stepper.details().values()))
    assert about["operation"] == "RESCALE" and about == next(iter(stepper.details(found[0]).values()))
    assert stepper.find("no such thing") == []


def test_a_question_of_the_script_is_answered(trace, sent):
    stepper = PassStepper(trace)
    stepper._asked(stepper, {"ask": "frame", "key": "k", "step": 5, "rewrite": 1, "fold": "", "focus": ""}, [])
    assert sent[-1]["key"] == "k" and sent[-1]["frame"] == PassSteps.of(trace).frame(5, 1)
    key = stepper._source.frame(5)["lines"][-1][0]
    stepper._asked(stepper, {"ask": "card", "key": "c", "selected": key, "step": 5}, [])
    assert sent[-1]["card"][0]["title"].startswith("SINK")
    count = len(sent)
    stepper._asked(stepper, {"ask": "nonsense"}, [])
    assert len(sent) == count


def test_frames_of_small_programs_go_along_at_once(trace):
    stepper = PassStepper(trace)
    assert set(stepper.frames) == {f"{step}|0||" for step in range(13)}
    json.dumps(stepper.frames)


@pytest.mark.parametrize("kind", ["pass", "schedule", "ring"])
def test_without_widgets_the_same_stands_as_picture_and_text(trace, kind):
    stepper = {
        "pass": lambda: PassStepper(trace, 3),
        "schedule": lambda: ScheduleStepper(trace, 2),
        "ring": lambda: RingPlayer(stats(), 1),
    }[kind]()
    data, _ = stepper._repr_mimebundle_()
    assert {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"} <= set(data)
    assert "<svg" in data["text/html"] and stepper.sentence.split(":")[0] in data["text/html"]
    assert stepper.sentence in data["text/plain"] == str(stepper)
    assert "<svg" in stepper.svg()
    assert not re.search(r"""(src|href)=["']?(https?:)?//|@import|url\(""", data["text/html"])


def test_a_view_that_fails_shows_its_failure(trace, monkeypatch):
    stepper = PassStepper(trace)
    monkeypatch.setattr(stepper._source, "frame", lambda *a, **k: 1 / 0)
    monkeypatch.setattr(PassStepper, "__str__", lambda self: "text")
    assert "ZeroDivisionError" in stepper._repr_mimebundle_()[0]["text/html"]


def test_large_programs_are_laid_out_in_the_background(sent, monkeypatch):
    from ren_lab.lens import pass_steps

    trace = lazy(3).explain()
    monkeypatch.setattr(pass_steps, "_SYNCHRONOUS", 50)
    stepper = PassStepper(trace)
    assert stepper.frames == {}
    assert stepper._source.frame(2)["pictures"]  # at once, with a layout of its own
    end = time.monotonic() + 30
    while stepper.progress < 1 and time.monotonic() < end:
        time.sleep(0.01)
    assert stepper.progress == 1.0 and {"refresh": True} in sent
    chain = stepper._source._layouts[""]
    assert stepper._source._view(2, 0, "", "")[1] is chain[2]


def test_a_recording_and_an_error_will_do(trace):
    with ren.trace() as recording:
        lazy(2).realize()
    assert PassStepper(recording).outline["states"][-1]["label"] == "12 kernelize"
    error = RuntimeError()
    error.trace = trace
    assert ScheduleStepper(error).outline["kind"] == "schedule"


def test_the_script_and_the_styles_fetch_nothing():
    script, style = stepper_page.front_end("stepper.js"), stepper_page.front_end("stepper.css")
    assert not re.search(r"https?://|\bimport\s*[({'\"]|\bfetch\(|XMLHttpRequest", script)
    assert "url(" not in style and "@import" not in style
    assert len(script) < 30_000  # it is stored with every notebook that shows a stepper


def test_the_data_of_a_page_answers_every_question_of_the_script(trace):
    steps = PassSteps.of(trace)
    data = stepper_page.steps_data(steps)
    for step, listed in enumerate(data["outline"]["states"]):
        for rewrite in range(listed["rewrites"] + 1):
            assert data["frames"][f"{step}|{rewrite}||"] == steps.frame(step, rewrite)
        for fold, _ in data["outline"]["folds"]:
            assert f"{step}|0|{fold}|" in data["frames"]
        for key, _, _ in steps.frame(step)["lines"]:
            if key:
                assert data["texts"][data["cards"][str(step)][key]] == steps.card(key, step)


def test_a_page_with_little_room_says_what_is_missing(trace):
    steps = PassSteps.of(trace)
    data = stepper_page.steps_data(steps, budget=30_000)
    count = len(data["outline"]["states"])
    assert 0 < count < 13 and f"only the first {count} of 13 steps" in data["outline"]["title"]
    assert all(listed["rewrites"] == 0 or f"{k}|1||" in data["frames"] for k, listed in enumerate(data["outline"]["states"]))


def test_importing_the_package_of_widgets_is_light():
    code = "import sys, ren_lab.widgets; print(sorted({'anywidget', 'ipywidgets', 'IPython', 'matplotlib'} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert ast.literal_eval(told) == []
    import ren_lab.widgets

    assert {"PassStepper", "ScheduleStepper", "RingPlayer"} <= set(dir(ren_lab.widgets))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = ren_lab.widgets.Nothing


# pictures as files


KINDS = {
    "pass": lambda trace: PassStepper(trace, 5),
    "schedule": lambda trace: ScheduleStepper(trace, 2),
    "ring": lambda trace: RingPlayer(stats(), 1),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_one_file_with_its_styles_inside(trace, kind, theme):
    stepper = KINDS[kind](trace)
    text = stepper.svg(theme)
    root = ElementTree.fromstring(text)  # one root, well-formed
    assert root.tag == f"{SVG}svg" and root.find(f"{SVG}title").text == stepper.sentence
    frame = stepper._source.frame(stepper.step)
    inner = root.findall(f"{SVG}svg")
    assert len(inner) == len(stepper.outline["pictures"]) + len(frame["pictures"])
    low = 0.0
    for picture in inner:  # one under the other, all within the whole
        x, y, width, height = (float(picture.attrib[name]) for name in ("x", "y", "width", "height"))
        assert y >= low and x >= 0 and x + width <= float(root.attrib["width"]) + 0.5
        low = y + height
    assert low <= float(root.attrib["height"]) + 0.5
    sheet = root.find(f"{SVG}style").text
    assert "var(" not in text and THEMES[theme]["background"] in text
    used = {name for element in root.iter() for name in element.attrib.get("class", "").split()}
    assert used & {"s", "arc"} and all(f".{name}" in sheet for name in used & {"s", "arc", "e", "live", "track", "o"})
    assert THEMES[theme]["blue"] in sheet
    assert not re.search(r"""(href|src)=|@import|url\(""", text)


def test_a_state_of_text_alone_has_no_picture_to_write():
    record = SimpleNamespace(number=1, name="tidy", before="a = 1", after="a = 2", rewrites=(), seconds=None)
    with pytest.raises(ValueError, match="step 1 has no picture, only text"):
        PassStepper([record], step=1).svg()
    with pytest.raises(ValueError, match="no theme 'blue'"):
        ScheduleStepper(lazy().explain()).svg("blue")


# what is set from Python


@pytest.mark.parametrize(
    "name, value, told",
    [
        ("selected", "zzz", "selected: no state has a vertex with the key 'zzz'"),
        ("focus", "zzz", "focus: no state has"),
        ("interval", -5, "at least 60"),
        ("interval", 0, "at least 60"),
        ("rewrite", 99, r"step 3 has no rewrite 99; give 0 \(the whole step\) to \d+$"),
    ],
)
def test_what_is_not_there_is_refused_and_the_state_stays(trace, name, value, told):
    stepper = PassStepper(trace, step=3)
    before = getattr(stepper, name)
    with pytest.raises(traitlets.TraitError, match=told):
        setattr(stepper, name, value)
    assert getattr(stepper, name) == before
    with pytest.raises(traitlets.TraitError, match=told):
        PassStepper(trace, **{"step": 3, name: value})


def test_a_vertex_stays_selected_in_states_that_do_not_have_it(trace):
    stepper = PassStepper(trace, step=12)
    late = stepper.find("KERNEL")[0]
    stepper.step = 0
    assert late not in {key for key, _, _ in stepper._source.frame(0)["lines"]}
    stepper.selected = late
    stepper.focus = stepper.selected
    stepper.focus, stepper.fold = "", "operation"
    group = next(key for key in stepper.find("") if key.startswith("operation-"))
    stepper.selected = group
    stepper.fold = ""
    stepper.focus = stepper.selected
    stepper.focus = stepper.selected = ""


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_is_found_can_be_selected_and_tells_its_details(trace, kind):
    stepper = KINDS[kind](trace)
    found = stepper.find("")
    assert found and len(found) == len(set(found))
    for key in found:
        stepper.selected = key
        assert stepper.details(), key


def test_a_stepper_begins_where_something_broke(trace):
    failure = Failure.of(ArithmeticError("no such boundary"), "pass", 5, "decide_boundaries", graph=trace.passes[4].before)
    broken = Trace(trace.graph, trace.options, passes=trace.passes[:4], error=failure)
    assert PassStepper(broken).step == 5 and "Broke off in pass 5" in PassStepper(broken).sentence
    assert PassStepper(broken, step=0).step == 0
    assert stepper_page.steps_data(PassSteps.of(broken))["outline"]["start"] == 5
    failed = Failure.of(ArithmeticError("overflow"), "unit", 3, trace.units[3].item.name)
    ran = Trace(trace.graph, trace.options, passes=trace.passes, program=trace.program, error=failed)
    assert ScheduleStepper(ran).step == 3 and "broke off here" in ScheduleStepper(ran).sentence
    assert PassStepper(trace).step == ScheduleStepper(trace).step == RingPlayer(stats()).step == 0


# other programs


def test_exported_pages_show_the_picture_with_the_option_that_is_documented(trace):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbconvert")
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    data, _ = PassStepper(trace, 3)._repr_mimebundle_()
    view = data["application/vnd.jupyter.widget-view+json"]
    cell = nbformat.v4.new_code_cell("passes", outputs=[nbformat.v4.new_output("execute_result", data, execution_count=1)])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    state = {view["model_id"]: {"model_name": "AnyModel", "model_module": "anywidget", "state": {}}}
    notebook.metadata["widgets"] = {
        "application/vnd.jupyter.widget-state+json": {"state": state, "version_major": 2, "version_minor": 0}
    }
    option = "ClearMetadataPreprocessor.enabled"
    assert f"--{option}=True" in (ROOT / "docs" / "widgets.md").read_text("utf-8")
    config = Config()
    setattr(config.ClearMetadataPreprocessor, option.partition(".")[2], True)
    page, _ = HTMLExporter(config=config).from_notebook_node(notebook)
    assert 'class="ren-graph"' in page and "Pass 3 of 12" in page and "widget-view" not in page
