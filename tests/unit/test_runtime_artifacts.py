"""What a run leaves on disk and what it reports: statistics, sources, timelines, events."""

import contextlib
import functools
import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from ren_lab import events
from ren_lab.runtime import RingCapacityError, RunConfig, RunReport, TaskError, Worker, statistics

platforms = pytest.mark.parametrize("platform", ["sim", "cpu"])


def nothing(*arrays):
    pass


def go(program, platform="sim", timeline=False, **fields):
    with Worker(RunConfig(platform=platform, ring_heap=1 << 16, **fields)) as worker:
        return worker.run(program, timeline=timeline)


def read(report_or_folder):
    path = getattr(report_or_folder, "stats_path", None) or report_or_folder / "dfx_outputs/scope_stats/scope_stats.jsonl"
    meta, *samples = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    return meta, samples


SAMPLE_FIELDS = [
    "site", "phase", "depth", "ring", "task_window_start", "task_window_end", "heap_start", "heap_end",
    "dep_pool_start", "dep_pool_end", "tensormap",
]  # fmt: skip


@platforms
def test_samples_have_the_fields_of_the_format_in_order(tmp_path, platform):
    def program(orch):
        with orch.scope():
            orch.submit(nothing)

    meta, samples = read(go(program, platform, enable_scope_stats=True, work_dir=tmp_path))
    assert list(meta) == ["version", "fatal", "dropped", "total", "task_window_max", "heap_max", "dep_pool_max", "tensormap_max"]
    assert [list(sample) for sample in samples] == [SAMPLE_FIELDS] * 4
    line = program.__code__.co_firstlineno
    assert [sample["site"] for sample in samples] == [f"test_runtime_artifacts.py:{k}" for k in (line, line + 1, line + 1, line)]


@platforms
def test_cursors_are_cumulative_and_within_the_models_bounds(tmp_path, platform):
    """heads: what was allocated; tails: never ahead of what has ended, never behind what must have."""

    def program(orch):
        for _ in range(30):
            with orch.scope():
                t = orch.alloc(256, np.float32)
                orch.submit(nothing, outputs=[t])
                orch.submit(nothing, inputs=[t])

    fields = {"ring_task_window": 8, "enable_scope_stats": True, "work_dir": tmp_path}
    _, samples = read(go(program, platform, workers=2, **fields))
    inner = [sample for sample in samples if sample["ring"] == 1]
    for k, sample in enumerate(inner):
        done = k // 2 + k % 2
        assert sample["task_window_end"] == 2 * done and sample["heap_end"] == 1024 * done and sample["dep_pool_end"] == done
        assert max(0, 2 * done - 8) <= sample["task_window_start"] <= 2 * (k // 2)
        assert sample["heap_start"] <= 1024 * (k // 2) and sample["dep_pool_start"] * 2 == sample["task_window_start"]


@pytest.mark.parametrize("failure", ["capacity", "kernel", "program"])
def test_a_failed_run_keeps_what_was_recorded_and_says_so(tmp_path, failure):
    def raise_it():
        raise ArithmeticError("kernel")

    def program(orch):
        with orch.scope():
            orch.submit(nothing)
        with orch.scope():
            if failure == "kernel":
                orch.submit(raise_it)
            elif failure == "program":
                raise KeyError("program")
            else:
                for _ in range(5):
                    orch.submit(nothing)

    with pytest.raises((RingCapacityError, RuntimeError, KeyError)):
        go(program, ring_task_window=4, enable_scope_stats=True, work_dir=tmp_path)
    meta, samples = read(tmp_path)
    assert meta["fatal"] is True and meta["total"] == len(samples)
    assert all(list(sample) == SAMPLE_FIELDS for sample in samples)
    phases = [sample["phase"] for sample in samples]
    # where a submission breaks off the scopes around it have no end; a failed kernel is noticed after the last scope
    assert phases == (
        ["begin", "begin", "end", "begin", "end", "end"] if failure == "kernel" else ["begin", "begin", "end", "begin"]
    )
    beside = tmp_path / "dfx_outputs/scope_stats/stopped.jsonl"
    assert beside.exists() is (failure != "kernel")
    exits = [json.loads(line) for line in beside.read_text().splitlines()] if beside.exists() else []
    line = program.__code__.co_firstlineno + 10
    reasons = {
        "capacity": {
            "error": "RingCapacityError",
            "resource": "task_window",
            "ring": 1,
            "site": f"test_runtime_artifacts.py:{line}",
            "used": 4,
            "requested": 1,
            "capacity": 4,
        },
        "program": {"error": "KeyError"},
        "kernel": None,
    }
    assert [sample["stopped_by"] for sample in exits] == [reasons[failure]] * len(exits)
    if failure == "capacity":
        assert exits[0]["task_window_end"] - exits[0]["task_window_start"] == 4
    go(lambda orch: None, enable_scope_stats=True, work_dir=tmp_path)
    assert not beside.exists()  # it told of the run before


def test_an_exception_that_the_program_survives_leaves_a_whole_file(tmp_path):
    def program(orch):
        for _ in range(2):
            try:
                with orch.scope():
                    with orch.scope():
                        raise KeyError
            except KeyError:
                pass
        with orch.scope():
            pass

    meta, samples = read(go(program, enable_scope_stats=True, work_dir=tmp_path))
    assert meta["fatal"] is False and meta["total"] == len(samples) == 12
    depths = [(sample["phase"], sample["depth"]) for sample in samples]
    once = [("begin", 1), ("begin", 2), ("end", 2), ("end", 1)]
    assert depths == [("begin", 0), *once, *once, ("begin", 1), ("end", 1), ("end", 0)]


@pytest.mark.parametrize("kernel_fails", [False, True])
def test_an_exit_that_the_program_survived_is_written_though_no_scope_follows(tmp_path, kernel_fails):
    """Without a root scope nothing is sampled after the last one; what stops the run later did not stop it there."""

    def program(orch):
        with contextlib.suppress(KeyError), orch.scope():
            if kernel_fails:
                orch.submit(lambda: 1 / 0)
            raise KeyError

    config = RunConfig(platform="sim", ring_heap=1024, enable_scope_stats=True, work_dir=tmp_path)
    with Worker(config) as worker, contextlib.suppress(TaskError):
        worker.run(program, root=False)
    meta, samples = read(tmp_path)
    assert (meta["fatal"], meta["total"]) == (kernel_fails, 2)
    assert [list(sample) for sample in samples] == [SAMPLE_FIELDS] * 2


def test_a_run_replaces_what_another_left_in_the_same_folder(tmp_path):
    for scopes in (5, 2):
        report = go(
            lambda orch, scopes=scopes: [orch.scope().__enter__().__exit__(None, None, None) for _ in range(scopes)],
            enable_scope_stats=True,
            work_dir=tmp_path,
        )
        assert len(read(report)[1]) == 2 * scopes + 2


def test_a_file_can_be_read_while_the_run_is_on(tmp_path):
    """Samples stream: the file is a valid, fatal one from the start."""
    seen = []

    def program(orch):
        for _ in range(2000):
            with orch.scope():
                pass
        seen.append((tmp_path / "dfx_outputs/scope_stats/scope_stats.jsonl").read_text().splitlines())

    go(program, enable_scope_stats=True, work_dir=tmp_path)
    (lines,) = seen
    assert json.loads(lines[0])["fatal"] is True and len(lines) > 1000


def test_samples_that_cannot_be_written_are_counted_and_do_not_end_the_run(tmp_path, monkeypatch):
    def program(orch):
        writer = orch._stats
        real = writer._file

        class Full:
            def write(self, data):
                raise OSError("disk full")

        writer._file = Full()
        with orch.scope():
            pass
        writer._file = real

    meta, samples = read(go(program, enable_scope_stats=True, work_dir=tmp_path))
    assert (meta["dropped"], meta["total"], len(samples)) == (2, 4, 2)


def test_statistics_that_are_off_cost_a_scope_one_branch(tmp_path):
    """No code of the statistics runs, so none of it can allocate."""

    def program(orch):
        for _ in range(10):
            with orch.scope():
                pass

    def calls(**fields):
        seen = []
        sys.setprofile(lambda frame, event, _: seen.append(event) if frame.f_code.co_filename == statistics.__file__ else None)
        try:
            go(program, **fields)
        finally:
            sys.setprofile(None)
        return len(seen)

    assert calls() == 0
    assert calls(enable_scope_stats=True, work_dir=tmp_path) > 20


@platforms
def test_sources_of_the_program_and_of_each_kernel_are_saved(tmp_path, platform):
    x = np.zeros(4)

    def generated(v):
        pass

    generated.__ren_source__ = "def generated(v):\n    ...  # from a compiler"

    def program(orch):
        for k in range(3):
            orch.submit(lambda v, k=k: v.fill(k), outputs=[x])
        orch.submit(nothing, inputs=[x])
        orch.submit(functools.partial(nothing, 1), inputs=[x])
        orch.submit(generated, inputs=[x])
        orch.submit(np.copyto, outputs=[x], inouts=[np.zeros(4)])

    report = go(program, platform, save_kernels=True, work_dir=tmp_path)
    assert report.work_dir == tmp_path and report.stats_path is None
    saved = {path.name: path.read_text() for path in (tmp_path / "kernels").iterdir()}
    assert set(saved) == {"lambda.py", "nothing.py", "generated.py", "copyto.py"}
    assert "v.fill(k)" in saved["lambda.py"] and saved["nothing.py"].startswith("def nothing(*arrays):")
    assert saved["generated.py"] == "def generated(v):\n    ...  # from a compiler\n"
    assert saved["copyto.py"].startswith("# no source")
    assert (tmp_path / "program.py").read_text().startswith("def program(orch):\n    for k in range(3):")
    assert not list(tmp_path.rglob("*.part"))


def test_kernels_of_one_name_get_files_of_their_own(tmp_path):
    def make(k):
        if k:

            def kernel():
                """Second."""
        else:

            def kernel():
                """First."""

        return kernel

    go(lambda orch: [orch.submit(make(k % 2)) for k in range(4)], save_kernels=True, work_dir=tmp_path)
    assert sorted(path.name for path in (tmp_path / "kernels").iterdir()) == ["kernel.py", "kernel_2.py"]


def test_without_a_folder_each_run_gets_a_fresh_one_and_says_where(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Worker(RunConfig(platform="sim", ring_heap=1024, enable_scope_stats=True)) as worker:
        folders = [worker.run(lambda orch: None).work_dir for _ in range(3)]
    assert len(set(folders)) == 3 and all(folder.parent == tmp_path / "ren_runs" for folder in folders)
    assert all((folder / "dfx_outputs/scope_stats/scope_stats.jsonl").is_file() for folder in folders)


def test_without_artifacts_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = go(lambda orch: orch.submit(nothing), work_dir=tmp_path / "never")
    assert report.work_dir is None and not list(tmp_path.iterdir())


@platforms
def test_the_report_adds_up(platform):
    def program(orch):
        t = orch.alloc(300)
        with orch.scope():
            for _ in range(3):
                orch.submit(nothing, inouts=[t])
        return "done"

    report = go(program, platform, workers=2)
    assert report.result == "done" and report.platform == platform and report.lanes == ("worker 0", "worker 1")
    assert (report.tasks, report.completed, report.failed, report.skipped, report.scopes) == (3, 3, 0, 0, 2)
    assert report.rings[0].allocated_bytes == 2048 and report.rings[1].edges == 2 and report.rings[1].task_peak <= 3
    assert report.mapped_bytes == (65536,) * 4 and report.timeline is None and report.seconds > 0
    assert "3 tasks in 2 scopes" in str(report)


@pytest.mark.parametrize(
    ("seconds", "nbytes", "told"),
    [
        (0.0, 0, ("0 s", "0 B of 256 MiB")),
        (2.608e-06, 1536, ("2.61 µs", "1.5 KiB of 256 MiB")),
        (0.00790017, 1023, ("7.9 ms", "1023 B of 256 MiB")),
        (0.9996, 1 << 20, ("1 s", "1 MiB of 256 MiB")),
        (123.4, (1 << 28) - 1, ("123 s", "256 MiB of 256 MiB")),
    ],
    ids=str,
)
def test_the_report_tells_times_and_sizes_in_units_that_can_be_read(seconds, nbytes, told):
    report = go(lambda orch: None)
    ring = replace(report.rings[0], heap_bytes=1 << 28, heap_peak_bytes=nbytes)
    text = str(replace(report, seconds=seconds, rings=(ring, *report.rings[1:])))
    assert text.splitlines()[0].endswith(f", {told[0]}") and told[1] in text


def test_one_of_a_thing_is_told_in_the_singular(tmp_path):
    def program(orch):
        orch.submit(nothing, cost=10**6)

    def waiting(orch):
        for _ in range(5):
            with orch.scope():
                orch.submit(nothing, cost=10**6)

    def failing(orch):
        x = np.zeros(4)
        first = orch.submit(lambda v: 1 / 0, outputs=[x])
        orch.submit(nothing, inputs=[x])
        with contextlib.suppress(TaskError):
            orch.wait(first)
        raise KeyError

    text = str(go(program, workers=1))
    assert text.startswith("1 task in 1 scope on sim (1 lane), ") and "ring 0: 1 task, peak 1 of " in text
    assert "  1 submission waited for task_window of ring 1" in str(go(waiting, ring_task_window=4, workers=1))
    with pytest.raises(TaskError, match="; 1 that consumes what failed was skipped"):
        go(lambda orch: [x := np.zeros(4), orch.submit(lambda v: 1 / 0, outputs=[x]), orch.submit(nothing, inputs=[x])])
    with pytest.raises(KeyError) as caught:
        go(failing)
    assert any(note.startswith("1 kernel had raised before") for note in caught.value.__notes__)


@platforms
def test_a_timeline_says_who_ran_what_when(platform):
    x = np.zeros(4)

    def program(orch):
        with orch.scope(name="inner"):
            first = orch.submit(nothing, outputs=[x], name="make")
            orch.submit(nothing, inputs=[x], deps=[first])

    line = go(program, platform, timeline=True, workers=2).timeline
    make, use = sorted(line.tasks, key=lambda span: span.task_id)
    assert (make.name, make.ring, make.depth, make.producers) == ("make", 1, 1, ())
    assert (use.name, use.producers) == ("nothing", (0,)) and use.start_ns >= make.end_ns >= make.start_ns
    assert [(scope.name, scope.depth, scope.ring) for scope in line.scopes] == [(None, 0, 0), ("inner", 1, 1)]
    assert all(scope.end_ns >= scope.start_ns for scope in line.scopes)
    times = [moment.time_ns for moment in line.cursors]
    assert times == sorted(times)
    assert max(moment.task_window[1] - moment.task_window[0] for moment in line.cursors if moment.ring == 1) in (1, 2)


@platforms
def test_no_two_tasks_hold_a_lane_at_once(platform):
    outs = np.zeros((40, 4))

    def program(orch):
        for row in outs:
            orch.submit(nothing, outputs=[row])

    by_lane = {}
    for span in go(program, platform, timeline=True, workers=3).timeline.tasks:
        by_lane.setdefault(span.lane, []).append((span.start_ns, span.end_ns))
    for held in by_lane.values():
        held.sort()
        assert all(first[1] <= second[0] for first, second in zip(held, held[1:]))


def test_observers_hear_the_report_with_its_timeline_and_change_nothing():
    heard = []
    x = np.zeros(4)

    def program(orch):
        orch.submit(lambda v: v.fill(3), outputs=[x])

    with events.observe(heard.append):
        go(program)
    (report,) = heard
    assert isinstance(report, RunReport) and len(report.timeline.tasks) == 1 and (x == 3).all()
    go(program)
    assert len(heard) == 1
