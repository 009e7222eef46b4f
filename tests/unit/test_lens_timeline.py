"""The timeline of a run as data and as a plot."""

import numpy as np
import pytest

from ren_lab.lens import plot_timeline
from ren_lab.lens.timeline_plot import report_html, timeline_dict
from ren_lab.runtime import RunConfig, Worker


def add_one(x, y):
    y[:] = x + 1


def run(platform="sim", timeline=True, window=4, cost=5_000):
    x, rows = np.zeros(16), np.zeros((12, 16))

    def program(orch):
        orch.submit(add_one, inputs=[x], outputs=[rows[0]], cost=3 * cost)
        for k in range(1, 12):
            with orch.scope():
                block = orch.alloc((256,), np.float32)
                orch.submit(lambda v: v.fill(1), outputs=[block], cost=cost)
                orch.submit(add_one, inputs=[rows[0]], outputs=[rows[k]], cost=cost)

    with Worker(RunConfig(platform=platform, workers=3, ring_task_window=window)) as worker:
        return worker.run(program, timeline=timeline)


def test_the_data_is_that_of_the_report():
    report = run()
    data = timeline_dict(report)
    assert len(data["tasks"]) == report.tasks == 23 and len(data["lanes"]) == 3
    assert len(data["waits"]) == sum(report.waits.values()) > 0
    assert max(held for _, held in data["use"]["task_window"][1]) == report.rings[1].task_peak == 4
    assert max(held for _, held in data["use"]["heap"][1]) == report.rings[1].heap_peak_bytes
    assert 2 not in data["use"]["task_window"], "rings that were not used are left out"
    ran = sum(t["end"] - t["start"] for t in data["tasks"])
    assert data["busy"] == pytest.approx(ran / (3 * data["end"]))
    assert "23 kernel calls on 3 lanes" in data["title"] and "longest for the task window of ring 1" in data["title"]


def test_bars_of_one_lane_do_not_overlap():
    tasks = timeline_dict(run("cpu"))["tasks"]
    for lane in {t["lane"] for t in tasks}:
        spans = sorted((t["start"], t["end"]) for t in tasks if t["lane"] == lane)
        assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:]))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_plot_has_lanes_and_the_resources_that_were_used(theme):
    figure = plot_timeline(run(), theme)
    assert [axis.get_ylabel() for axis in figure.axes[1:]] == ["slots in use", "heap in use", "edges in use"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][0] == "program"
    assert len(figure.axes[0].patches) == 23 + len(timeline_dict(run())["waits"])


def test_without_a_timeline_it_says_how_to_get_one():
    report = run(timeline=False)
    with pytest.raises(ValueError, match="timeline=True"):
        plot_timeline(report)
    assert "23 tasks" in report_html(report) and "<img" not in report_html(report)


def test_one_call_on_one_lane_is_told_in_the_singular():
    with Worker(RunConfig(platform="sim", workers=1)) as worker:
        report = worker.run(lambda orch: orch.submit(lambda: None), timeline=True)
    assert timeline_dict(report)["title"].startswith("1 kernel call on 1 lane in ")
