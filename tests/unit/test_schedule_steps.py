"""The data that a schedule stepper is made of: what runs, what is live, what is read and written at each item."""

import json
import re

import pytest

import ren_lab as ren
from ren_lab.lens.records import Failure
from ren_lab.lens.schedule_steps import ScheduleSteps
from ren_lab.lens.stepping import plain_text, static_html
from ren_lab.lens.trace import Trace
from ren_lab.ring import find_primes

ring = ren.RingSpec(32, find_primes(32, 30, 3))


def lazy():
    x, y = ren.Poly(range(32), ring), ren.Poly([1, 2, 3], ring)
    return ((x * y).rotate(1) + 7).rescale(ring.moduli[-1:]).to_ring(ring) * y


@pytest.fixture(scope="module")
def trace():
    with ren.trace() as recording:
        lazy().realize()
    return recording.realizations[-1]


@pytest.fixture(scope="module")
def steps(trace):
    return ScheduleSteps(trace)


def test_there_is_a_state_for_each_item_with_its_share_of_the_longest(trace, steps):
    states = steps.outline["states"]
    assert [s["label"] for s in states] == [f"{i} {item.name}" for i, item in enumerate(trace.schedule)]
    longest = max(trace.schedule.seconds)
    assert [s["bar"] for s in states] == [pytest.approx(s / longest, abs=1e-4) for s in trace.schedule.seconds]


def test_each_item_shows_what_lives_and_what_it_touches(trace, steps):
    pictures = "".join(steps.outline["pictures"])
    drawn = set(re.findall(r'data-key="([^"]*)"', pictures))
    for step, item in enumerate(trace.schedule):
        patch = steps.frame(step)["patch"]
        assert set(patch) - drawn <= {f"buffer-{b.label}" for b in (*item.inputs, *item.outputs)}  # those between items are edges
        live = {key for key, change in patch.items() if key.startswith("arena-") and "live" in change.get("class", "")}
        expected = {f"arena-{b.name}" for b in trace.memory.plan.planned if b.first <= step <= b.last}
        assert expected <= live
        assert patch[f"item{step}"] == {"class": "now"}
        assert all(patch[f"item{k}"] == {"class": "later"} for k in range(step + 1, len(trace.schedule)))
        assert all(patch[f"item{k}"] == {"class": "done"} for k in range(step))


def test_a_frame_tells_buffers_time_lines_and_source(trace, steps):
    kernel = trace.kernels[2]
    frame = steps.frame(kernel.index)
    json.dumps(frame)
    rows = [tuple(row) for row in frame["sections"][0]["rows"]]
    names = [name for name, _ in rows]
    assert names.count("reads") == len(set(kernel.inputs)) and "time" in names and "lines" in names
    assert any(value.startswith(f"{kernel.outputs[0].label}, ") for name, value in rows if name == "writes")
    assert {"title": "Source", "text": kernel.source} in frame["sections"]
    assert [line for _, _, line in frame["lines"]] == str(kernel.ast).splitlines()
    assert f"Item {kernel.index} of {len(trace.schedule)}" in frame["sentence"]


def test_every_planned_buffer_is_a_rectangle_of_its_size_and_life(trace, steps):
    found = re.findall(r'data-key="arena-([^"]*)"[^>]*><title>[^<]*</title><rect class="s" x="([^"]*)" y="[^"]*" width="([^"]*)"',
                       "".join(steps.outline["pictures"]))  # fmt: skip
    planned = {b.name: b for b in trace.memory.plan.planned}
    assert {name for name, _, _ in found} == set(planned)
    widths = {(planned[name].last - planned[name].first + 1): float(width) for name, _, width in found}
    unit = [(width + 1.4) / lives for lives, width in widths.items()]
    assert max(unit) - min(unit) < 0.2


def test_cards_of_items_and_buffers(trace, steps):
    assert "Item 1" in steps.card("item1", 0)[0]["title"]
    planned = trace.memory.plan.planned[0]
    rows = dict(map(tuple, steps.card(f"buffer-{planned.name}", 0)[0]["rows"]))
    assert rows["live"] == f"items {planned.first} to {planned.last}"
    assert steps.card("item999", 0) == [] and steps.card("", 0) == []


def test_a_long_schedule_is_folded_and_each_item_has_its_place():
    x, y = ren.Poly(range(32), ring), ren.Poly([1, 2, 3], ring)
    first, *others = [(x * y).rotate(k) + k for k in range(90)]
    steps = ScheduleSteps(first.explain(*others))
    drawn = set(re.findall(r'data-key="([^"]*)"', "".join(steps.outline["pictures"])))
    view = steps._view
    assert view.folded and len(view.vertices) <= 160
    for step in range(0, steps.count, 7):
        now = [key for key, change in steps.frame(step)["patch"].items() if change.get("class") == "now"]
        assert len(now) == 1 and now[0] in drawn


def test_where_an_item_broke_is_shown(trace):
    failure = Failure.of(MemoryError("no room"), "unit", 1, trace.schedule[1].name)
    broken = Trace(trace.graph, trace.options, program=trace.program, timings={0: (0.0, 0.5)}, error=failure)
    steps = ScheduleSteps(broken)
    assert [s["alert"] for s in steps.outline["states"]][:3] == [False, True, False]
    assert "It broke off here: MemoryError" in steps.frame(1)["sentence"]
    assert any("no room" in part.get("warning", "") for part in steps.frame(1)["sections"])


def test_nothing_to_run_says_so():
    done = ren.Poly([1], ring).realize()
    steps = ScheduleSteps(done.explain())
    assert steps.count == 0
    assert "Nothing to run" in steps.frame(0)["sentence"]
    assert "Nothing to run" in static_html(steps, 0) and "Nothing to run" in plain_text(steps, 0)


def test_what_has_no_schedule_is_refused():
    with pytest.raises(TypeError, match="a str has no schedule"):
        ScheduleSteps("x")


def test_the_static_view_marks_the_item(steps):
    page = static_html(steps, 2)
    assert re.search(r'class="v role-\w+ now" data-key="item2"', page)
