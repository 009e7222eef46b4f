"""Timelines: complete, valid by rules that are checked here once more in another way, and refused where there is none."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ren_lab as ren
from ren_lab.lens.perfetto import _Document, events, save_perfetto, trace_events, validate
from ren_lab.ring import find_primes
from ren_lab.runtime import RunConfig, Worker

ring = ren.RingSpec(32, find_primes(32, 30, 3))


@pytest.fixture(scope="module")
def trace():
    with ren.trace() as recording:
        ((ren.Poly(range(32), ring) * ren.Poly([1, 2], ring)).rotate(1) + 3).realize()
    return recording.realizations[-1]


@pytest.fixture(scope="module")
def report():
    x, ys = np.arange(8.0), [np.zeros(8) for _ in range(6)]

    def double(a, b):
        b[:] = 2 * a

    def program(orch):
        for y in ys:
            orch.submit(double, inputs=[x], outputs=[y])

    with Worker(RunConfig("sim", workers=2)) as worker:
        return worker.run(program, timeline=True)


def calls(document, pid=None):
    return [e for e in document["traceEvents"] if e["ph"] == "X" and pid in (None, e["pid"])]


def test_a_trace_has_its_passes_its_items_and_its_arena(trace):
    document = trace_events(trace)
    assert validate(document) == []
    assert [e["name"] for e in calls(document, 1)] == [f"{p.number} {p.name}" for p in trace.passes]
    ran = calls(document, 2)
    assert [e["name"] for e in ran] == [unit.item.name for unit in trace.units]
    assert [e["args"]["seconds"] for e in ran] == [unit.seconds for unit in trace.units]
    live = [e["args"]["bytes"] for e in document["traceEvents"] if e["ph"] == "C"]
    assert live and live[-1] == 0
    assert max(live) == max(trace.memory.to_dict()["running_total"])


def test_times_are_true_to_the_scale(trace):
    document = trace_events(trace)
    scale = {"ns": 1e9, "ms": 1e6}[document["displayTimeUnit"]]
    for event, unit in zip(calls(document, 2), trace.units, strict=True):
        assert event["dur"] / scale == pytest.approx(unit.seconds, abs=2.1 / scale)


def test_a_run_has_a_lane_for_each_worker(report):
    document = events(report)
    assert validate(document) == []
    names = {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert names == set(report.timeline.lanes)
    got = sorted((e["tid"] - 1, e["ts"], e["ts"] + e["dur"]) for e in calls(document))
    assert got == sorted((t.lane, t.start_ns, t.end_ns) for t in report.timeline.tasks)
    process = next(e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name")
    assert "1 µs shown is 1 ns" in process
    slots = [e["args"]["slots"] for e in document["traceEvents"] if e["ph"] == "C" and "task_window" in e["name"]]
    assert max(slots) == report.rings[0].task_peak


spans = st.lists(st.tuples(st.floats(0, 1e-3), st.floats(0, 1e-4)), max_size=20)


@given(spans)
def test_calls_on_a_lane_never_overlap_and_are_never_empty(spans):
    document = _Document([length for _, length in spans])
    document.lane(1, 1, "lane", [("call", start, length, {}) for start, length in spans])
    done = document.finished()
    assert validate(done) == []
    taken = sorted((e["ts"], e["ts"] + e["dur"]) for e in calls(done))
    assert len(taken) == len(spans)
    assert all(a < b for a, b in taken) and all(first[1] <= second[0] for first, second in zip(taken, taken[1:], strict=False))


CALL = {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 10, "name": "a"}


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ([{**CALL, "ph": "B"}], "only X, C and M"),
        ([{**CALL, "ts": 0.5}], "ts is 0.5"),
        ([{**CALL, "ts": True}], "ts is True"),
        ([{**CALL, "pid": "main"}], "pid is 'main'"),
        ([{**CALL, "dur": 0}], "its length is 0"),
        ([{**CALL, "name": ""}], "no name"),
        ([CALL, CALL], "share a beginning"),
        ([CALL, {**CALL, "dur": 5}], "share a beginning"),
        ([CALL, {**CALL, "ts": 5, "dur": 5}], "share a beginning or an end"),
        ([CALL, {**CALL, "ts": 5}], "neither holds the other"),
        ([{"ph": "C", "pid": 1, "tid": 0, "ts": 0, "name": "c", "args": {"x": "1"}}], "a counter needs numbers"),
        ([{"ph": "M", "pid": 1, "tid": 0, "ts": 0, "name": "other", "args": {"name": "x"}}], "metadata must name"),
        ([3], "not an object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_validator_finds(bad, told):
    assert any(told in problem for problem in validate({"traceEvents": bad}))


def test_the_validator_accepts_nested_calls():
    assert validate({"traceEvents": [CALL, {**CALL, "ts": 2, "dur": 3}, {**CALL, "ts": 10}]}) == []
    assert validate([]) != []


def test_files_are_written_whole(trace, report, tmp_path):
    trace.to_perfetto(tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text("utf-8")) == trace_events(trace)
    save_perfetto(report, tmp_path / "r.json")
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["r.json", "x.json"]
    with pytest.raises(FileNotFoundError, match="does not exist"):
        trace.to_perfetto(tmp_path / "absent" / "x.json")


def test_what_did_not_run_has_its_passes_only():
    document = trace_events((ren.Poly([1, 2], ring) * 3).explain())
    assert validate(document) == [] and {e["pid"] for e in calls(document)} == {1}


def test_what_has_no_timeline_is_refused(report):
    from dataclasses import replace

    with pytest.raises(ValueError, match="timeline=True"):
        events(replace(report, timeline=None))
    with pytest.raises(TypeError, match="a str has no timeline"):
        events("x")
