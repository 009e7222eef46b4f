"""The data that a ring player is made of, from a statistics file and from a run's report."""

import json
import re

import numpy as np
import pytest

from ren_lab.lens.ring_steps import MOST_STATES, RingSteps
from ren_lab.lens.scope_stats import ScopeStats
from ren_lab.lens.stepping import static_html
from ren_lab.runtime import RingCapacityError, RunConfig, Worker


def run(folder, **options):
    """Three scopes of four tasks on two simulated workers, with a small task window."""
    source, outputs = np.arange(8.0), [np.zeros(8) for _ in range(12)]

    def double(a, b):
        b[:] = 2 * a

    def program(orch):
        for i in range(3):
            with orch.scope():
                for j in range(4):
                    orch.submit(double, inputs=[source], outputs=[outputs[4 * i + j]])

    config = RunConfig("sim", workers=2, enable_scope_stats=True, work_dir=folder, ring_task_window=4, **options)
    with Worker(config) as worker:
        return worker.run(program, timeline=True)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def stats(report):
    return ScopeStats.load(report.stats_path)


def arcs(frame) -> dict[tuple[int, str], tuple[float, float]]:
    """(ring, resource) -> (share in use, where it begins), read from the patch."""
    out = {}
    for key, change in frame["patch"].items():
        match = re.fullmatch(r"arc-(\d)-(\w+)", key)
        if match:
            share = float(change["stroke-dasharray"].split()[0])
            out[int(match[1]), match[2]] = (share, -float(change["stroke-dashoffset"]))
    return out


def test_a_state_for_each_sample_with_the_cursors_as_arcs(stats):
    steps = RingSteps(stats)
    assert steps.count == len(stats.samples)
    for step, sample in enumerate(stats.samples):
        frame = steps.frame(step)
        json.dumps(frame)
        ring = sample["ring"]
        for resource in ("task_window", "heap", "dep_pool"):
            size = stats.meta[f"{resource}_max"][ring]
            share, begin = arcs(frame)[ring, resource]
            tail, head = sample[f"{resource}_start"], sample[f"{resource}_end"]
            assert share == pytest.approx((head - tail) / size, abs=1e-5)
            assert begin == pytest.approx(tail % size / size, abs=1e-5)
        assert sample["site"] in frame["sentence"]


def test_a_report_is_played_by_its_clock(report):
    steps = RingSteps(report)
    cursors = report.timeline.cursors
    assert 0 < steps.count <= len(cursors)
    peaks = [max(arcs(steps.frame(k))[ring, "task_window"][0] for k in range(steps.count)) for ring in range(4)]
    assert peaks == [pytest.approx(ring.task_peak / ring.task_window) for ring in report.rings]
    times = [m.time_ns for m in steps._moments]
    assert times == sorted(times)


def test_a_full_ring_is_said_in_words_and_marked(report):
    steps = RingSteps(report)
    full = [k for k in range(steps.count) if arcs(steps.frame(k))[1, "task_window"][0] == 1.0]
    assert full and all(steps.outline["states"][k]["alert"] for k in full)
    frame = steps.frame(full[0])
    assert frame["patch"]["arc-1-task_window"]["class"] == "full"
    assert frame["patch"]["told-1-task_window"]["text"] == "4 of 4 slots, full"


def test_the_path_of_a_file_will_do(report, stats):
    assert RingSteps(str(report.stats_path)).outline == RingSteps(stats).outline


def test_running_tasks_are_those_of_the_moment(report):
    steps = RingSteps(report)
    for step in range(0, steps.count, 3):
        now = steps._moments[step].time_ns
        expected = {t.task_id for t in report.timeline.tasks if t.start_ns <= now < t.end_ns}
        rows = next(part["rows"] for part in steps.frame(step)["sections"] if part["title"] == "Running")
        assert {int(re.search(r"task (\d+)", text)[1]) for _, text in rows if "task " in text and text != "no task"} == expected


def test_findings_stand_beside(stats):
    rows = next(part["rows"] for part in RingSteps(stats).frame(0)["sections"] if part["title"] == "Findings")
    assert [text for _, text in rows] == [str(finding) for finding in stats.findings()]


def test_a_card_has_the_cursors_of_a_ring(stats):
    assert dict(map(tuple, RingSteps(stats).card("ring-1", 3)[0]["rows"]))["  tail, head"]
    assert RingSteps(stats).card("ring-9", 3) == [] and RingSteps(stats).card("arc", 3) == []


def test_very_many_samples_are_thinned_and_that_is_said(stats):
    meta = {**stats.meta, "total": 2 * MOST_STATES + 10}
    sample = {**stats.samples[0], "phase": "begin"}
    many = ScopeStats(meta, [sample] * (2 * MOST_STATES + 10))
    steps = RingSteps(many)
    assert steps.count == MOST_STATES and "evenly chosen" in steps.outline["title"]


def test_a_file_without_samples_says_so(stats):
    steps = RingSteps(ScopeStats({**stats.meta, "total": 0}, []))
    assert steps.outline["states"] == [] and steps.frame(0)["sentence"] == "Nothing was recorded."


def test_what_recorded_nothing_is_refused(report):
    from dataclasses import replace

    with pytest.raises(ValueError, match="recorded neither a timeline nor scope statistics"):
        RingSteps(replace(report, timeline=None, stats_path=None))
    with pytest.raises(TypeError, match="a int has no rings to play"):
        RingSteps(3)


def test_the_static_view_turns_the_rings_too(stats):
    step = len(stats.samples) // 2
    frame = RingSteps(stats).frame(step)
    page = static_html(RingSteps(stats), step)
    assert f'stroke-dasharray="{frame["patch"]["arc-1-task_window"]["stroke-dasharray"]}"' in page
    assert frame["patch"]["told-1-heap"]["text"] in page


def test_a_work_folder_is_played_and_another_says_what_it_lacks(report, tmp_path):
    assert RingSteps(report.work_dir).count == RingSteps(report.stats_path).count
    with pytest.raises(FileNotFoundError, match="is a folder without"):
        RingSteps(str(tmp_path))


def test_where_a_run_stopped_its_last_moments_say_so(tmp_path):
    def program(orch):
        with orch.scope():
            for _ in range(5):
                orch.submit(lambda: None)

    config = RunConfig("sim", enable_scope_stats=True, work_dir=tmp_path, ring_task_window=4)
    with Worker(config) as worker, pytest.raises(RingCapacityError):
        worker.run(program)
    steps = RingSteps(tmp_path)
    assert [state["note"].split(",")[0] for state in steps.outline["states"]] == ["begins"] * 2 + ["the run stops inside it"] * 2
    assert "4 of 4 slots, full" in steps.frame(2)["sentence"]


def test_one_submission_that_waited_is_told_in_the_singular():
    def program(orch):
        for _ in range(5):
            with orch.scope():
                orch.submit(lambda: None, cost=10**6)

    with Worker(RunConfig("sim", workers=1, ring_task_window=4)) as worker:
        steps = RingSteps(worker.run(program, timeline=True))
    told = [row for part in steps.frame(0)["sections"] if part["title"] == "Findings" for row in part["rows"]]
    assert "1 submission waited for task_window of ring 1" in str(told)
