"""The data that a pass stepper is made of: states, frames, cards, for traces, failures and other pipelines' records."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

import ren_lab as ren
import ren_lab.language as pl
from ren_lab.lens.pass_steps import FOLDS, PassSteps
from ren_lab.lens.records import Failure
from ren_lab.lens.schedule_steps import ScheduleSteps
from ren_lab.lens.stepping import plain_text, static_html
from ren_lab.lens.trace import Trace
from ren_lab.ring import find_primes

ring = ren.RingSpec(32, find_primes(32, 30, 3))


def lazy():
    x, y = ren.Poly(range(32), ring), ren.Poly([1, 2, 3], ring)
    product = (x * y).rotate(1) + 7
    return product.rescale(ring.moduli[-1:]).to_ring(ring) * x


@pytest.fixture(scope="module")
def trace():
    return lazy().explain()


@pytest.fixture(scope="module")
def steps(trace):
    return PassSteps.of(trace)


def drawn(frame) -> dict[str, str]:
    """From the key of each vertex of a frame's picture to its classes and place."""
    found = re.findall(r'<g class="(v [^"]*)" data-key="([^"]*)" transform="([^"]*)"', "".join(frame["pictures"]))
    return {key: (classes, place) for classes, key, place in found}


def test_the_outline_counts_what_each_pass_did(trace, steps):
    states = steps.outline["states"]
    assert [s["label"] for s in states] == ["0 input", *(f"{p.number} {p.name}" for p in trace.passes)]
    for listed, record in zip(states[1:], trace.passes, strict=True):
        counts = {mark: count for _, mark, count in listed["badges"]}
        assert counts.get("added", 0) == len(record.added)
        assert counts.get("removed", 0) == len(record.removed)
        assert counts.get("changed", 0) == len(record.changed)
        assert listed["quiet"] == record.quiet and listed["rewrites"] == len(record.rewrites)


@pytest.mark.parametrize("step", range(13))
def test_a_frame_draws_every_node_and_its_text(trace, steps, step):
    frame = steps.frame(step)
    json.dumps(frame)
    graph = trace.passes[0].before if step == 0 else trace.passes[step - 1].after
    there = drawn(frame)
    present = {key for key, (classes, _) in there.items() if "mark-removed" not in classes}
    assert len(present) == len(graph.toposort())
    listed = [(key, text) for key, _, text in frame["lines"]]
    assert [text for _, text in listed] == str(graph).splitlines()
    assert {key for key, _ in listed if key} == present
    if step:
        record = trace.passes[step - 1]
        for mark, nodes in (("added", record.added), ("changed", record.changed), ("removed", record.removed)):
            marked = [key for key, (classes, _) in there.items() if f"mark-{mark}" in classes]
            assert len(marked) == len(nodes) or (mark == "removed" and len(nodes) > 60)
            assert mark == "removed" or sum(m == mark for _, m, _ in frame["lines"]) == len(nodes)


def test_what_a_pass_keeps_stands_still(trace, steps):
    """Within passes that share a layout, a node that goes on is in the same place under the same key."""
    for step in (3, 4, 5):
        before, after = drawn(steps.frame(step - 1)), drawn(steps.frame(step))
        gone = {key for key, (classes, _) in before.items() if "mark-removed" in classes}
        both = (set(before) - gone) & set(after)
        assert len(both) >= len(trace.passes[step - 1].became) - 1
        assert all(before[key][1] == after[key][1] for key in both)


@pytest.mark.parametrize("number", [3, 5, 9])
def test_rewrites_lead_from_before_to_after(trace, steps, number):
    record = trace.passes[number - 1]
    for rewrite, fired in enumerate(record.rewrites, 1):
        frame = steps.frame(number, rewrite)
        assert fired.rule in frame["sentence"] and fired.equation in frame["sentence"]
        graph = record.steps[rewrite - 1]
        assert [text for _, _, text in frame["lines"]] == str(graph).splitlines()
    last, whole = drawn(steps.frame(number, len(record.rewrites))), drawn(steps.frame(number))
    present = {key for key, (classes, _) in whole.items() if "mark-removed" not in classes}
    there = {key for key, (classes, _) in last.items() if "mark-removed" not in classes}
    assert len(there) == len(present)
    assert sum(last[key][1] == whole[key][1] for key in there & present) >= 0.9 * len(present)


def test_a_card_tells_what_a_node_is_and_was(trace, steps):
    frame = steps.frame(3)
    record = trace.passes[2]
    node = next(n for n in record.after.toposort() if n.op.name == "RESCALE")
    key = next(k for k, _, text in frame["lines"] if " = RESCALE " in text)
    about, history = steps.card(key, 3)
    rows = dict(map(tuple, about["rows"]))
    assert rows["operation"] == "RESCALE" and rows["domain"] == node.domain.name and rows["shape"] == "2 × 32"
    assert rows["lines"].startswith("test_pass_steps.py:")
    assert [row[0] for row in history["rows"]] == [f"{m.number} {m.name}" for m in trace.history(node, 3) if m.kind != "kept"]
    assert steps.card("nothing of the kind", 3) == []


def test_a_removed_node_has_a_card_of_what_it_was(steps, trace):
    frame = steps.frame(9)
    gone = [key for key, (classes, _) in drawn(frame).items() if "mark-removed" in classes]
    assert len(gone) == len(trace.passes[8].removed) > 0
    assert "(removed)" in steps.card(gone[0], 9)[0]["title"]


@pytest.mark.parametrize("fold", [name for name, _ in FOLDS])
def test_every_fold_shows_every_node_once(trace, steps, fold):
    frame = steps.frame(6, fold=fold)
    view = steps._chain(6, fold)
    shown = sum(v.count for v in view.vertices if v.mark != "removed")
    assert len(trace.passes[5].after.toposort()) <= shown <= len(trace.passes[5].after.toposort()) + len(trace.passes[5].removed)
    assert set(drawn(frame)) == {v.key for v in view.vertices}


def test_an_unknown_fold_is_refused(steps):
    with pytest.raises(ValueError, match="there is no fold 'size'"):
        steps.frame(1, fold="size")


def test_a_focus_shows_a_neighbourhood(steps):
    whole = drawn(steps.frame(6))
    key = next(k for k, _, text in steps.frame(6)["lines"] if " = RESCALE " in text)
    near = drawn(steps.frame(6, focus=key))
    assert key in near and len(near) < len(whole)
    assert drawn(steps.frame(6, focus="nothing")) == whole


def test_a_failure_is_the_last_state():
    whole = lazy().explain()
    failure = Failure.of(ArithmeticError("no such boundary"), "pass", 5, "decide_boundaries", graph=whole.passes[4].before)
    steps = PassSteps.of(Trace(whole.graph, whole.options, passes=whole.passes[:4], error=failure))
    assert steps.count == 6 and steps.outline["states"][-1]["alert"]
    frame = steps.frame(5)
    assert "decide_boundaries" in frame["sentence"] and "no such boundary" in json.dumps(frame["sections"])
    assert len(drawn(frame)) == len(whole.passes[4].before.toposort())


@pytest.mark.parametrize("number", [1, 5])
def test_a_failure_comes_first_and_what_went_in_is_drawn(number):
    whole = lazy().explain()
    given = whole.passes[number - 1].before
    failure = Failure.of(ArithmeticError("no such boundary"), "pass", number, "x", graph=given)
    steps = PassSteps.of(Trace(whole.graph, whole.options, passes=whole.passes[: number - 1], error=failure))
    assert steps.outline["start"] == number == steps.count - 1
    for step, graph in ((0, whole.graph), (number, given)):
        frame = steps.frame(step)
        assert len(drawn(frame)) == len(graph.toposort()) == sum(bool(key) for key, _, _ in frame["lines"])
        for key in drawn(frame):
            assert dict(steps.card(key, step)[0]["rows"])["operation"] in {node.op.name for node in graph.toposort()}
    assert steps.frame(0)["sentence"].startswith("What went in.")


def test_no_sentence_has_a_stop_after_an_ellipsis(trace, steps):
    kinds = [*map(steps.frame, range(steps.count)), *map(ScheduleSteps(trace).frame, range(len(trace.schedule)))]
    assert "…" in steps.frame(0)["sentence"]
    assert not any("…." in frame["sentence"] or ".." in frame["sentence"] for frame in kinds)


def test_an_exception_that_carries_a_trace_will_do(trace):
    error = RuntimeError("broken")
    error.trace = trace
    assert PassSteps.of(error).count == 13


def test_records_of_another_pipeline_are_shown_as_text():
    def record(number, name, before, after):
        return SimpleNamespace(number=number, name=name, before=before, after=after, rewrites=(), seconds=None)

    steps = PassSteps.of([record(1, "parse", "a = 1\nb = 2", "a = 1\nc = <3>"), record(2, "check", "c", "c")])
    assert steps.outline["states"][1]["badges"] == [["+", "added", 1], ["−", "removed", 1]]
    assert steps.outline["states"][2]["quiet"] and steps.outline["folds"] == []
    frame = steps.frame(1)
    assert frame["pictures"] == [] and ["", "removed", "b = 2"] in frame["lines"] and ["", "added", "c = <3>"] in frame["lines"]
    assert "&lt;3&gt;" in static_html(steps, 1) or "<3>" not in static_html(steps, 1)
    assert "Pass 1 of 2, parse" in plain_text(steps, 1)


def test_nothing_that_has_passes_is_refused():
    with pytest.raises(TypeError, match="a int has no passes"):
        PassSteps.of(3)
    with ren.trace() as recording:
        pass
    with pytest.raises(ValueError, match="the recording is empty"):
        PassSteps.of(recording)


def test_no_passes_at_all_still_say_so():
    steps = PassSteps([])
    assert "nothing was compiled" in steps.frame(0)["sentence"]


def test_looking_changes_nothing(trace):
    before = [str(p.after) for p in trace.passes]
    steps = PassSteps.of(trace)
    steps.prepare()
    for step in range(steps.count):
        for key, _, _ in steps.frame(step)["lines"][-3:]:
            steps.card(key, step)
    assert [str(p.after) for p in trace.passes] == before
    assert lazy().explain().schedule.schedule is trace.schedule.schedule  # out of the same cache


def test_progress_grows_to_one(trace):
    told: list[float] = []
    PassSteps.of(trace).prepare(told.append)
    assert told == sorted(told) and told[-1] == 1.0


def test_the_static_view_has_the_picture_and_the_words(steps):
    page = static_html(steps, 3)
    assert steps.frame(3)["sentence"].split(":")[0] in page and page.count("<svg") == 1 and "inject_domains" in page


LOOPS = """
import ren_lab.language as pl


@pl.jit
def main(a: pl.InOut[pl.Tensor]):
    for i in pl.range(2):
        with pl.at(pl.Level.CORE_GROUP):
            a[:] = pl.add(a[:], 1.0)
    for i in pl.range(3):
        with pl.at(pl.Level.CORE_GROUP):
            a[:] = pl.mul(a[:], 2.0)
"""


def test_text_is_shown_rewrite_by_rewrite_where_a_pipeline_keeps_what_stands_between():
    program = pl.parse(LOOPS, "main.py").lower(np.zeros(4, np.float32))
    record = next(record for record in program.passes if len(record.rewrites) > 1)
    steps = PassSteps.of(program.passes)
    marked = []
    for rewrite in range(len(record.rewrites) + 1):
        lines = steps.frame(record.number, rewrite)["lines"]
        marked.append({(mark, text.strip()) for _, mark, text in lines if mark})
    whole, *single = marked
    added = [{text for mark, text in step if mark == "added"} for step in single]
    assert all(added) and all(step != whole for step in marked[1:])
    assert {text for mark, text in whole if mark == "added"} <= set().union(*added)
