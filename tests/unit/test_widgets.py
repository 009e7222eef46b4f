"""The widgets without a browser: what goes to the script, what comes back, and what stands where no widget runs."""

import ast
import json
import re
import subprocess
import sys
import time

import pytest

import ren_lab as ren
from ren_lab.lens import stepper_page
from ren_lab.lens.pass_steps import PassSteps
from ren_lab.ring import find_primes

pytest.importorskip("anywidget", reason="needs the extra `lab`")
traitlets = pytest.importorskip("traitlets")

from ren_lab.widgets import PassStepper, RingPlayer, ScheduleStepper  # noqa: E402

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
        ("rewrite", -1, "or more"),
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
