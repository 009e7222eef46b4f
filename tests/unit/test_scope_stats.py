"""Reading scope statistics: pairs, peaks, findings, sizing, cut files, nonsense, and the plot."""

import contextlib
import copy
import json
import warnings

import numpy as np
import pytest

from ren_lab.lens.scope_stats import Measures, ScopeStats
from ren_lab.runtime import RingCapacityError, RunConfig, Worker

META = {
    "version": 6,
    "fatal": False,
    "dropped": 0,
    "total": 0,
    "task_window_max": [16, 16, 16, 16],
    "heap_max": [4096] * 4,
    "dep_pool_max": [32] * 4,
    "tensormap_max": 64,
}


def sample(phase, site, depth, window=(0, 0), heap=(0, 0), deps=(0, 0), tensormap=0, rings=4, **more):
    return {
        "site": site,
        "phase": phase,
        "depth": depth,
        "ring": min(depth, rings - 1),
        "task_window_start": window[0],
        "task_window_end": window[1],
        "heap_start": heap[0],
        "heap_end": heap[1],
        "dep_pool_start": deps[0],
        "dep_pool_end": deps[1],
        "tensormap": tensormap,
        **more,
    }


def write(path, samples, tail="", **meta):
    first = {**META, "total": len(samples), **meta}
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in [first, *samples]) + "\n" + tail, encoding="utf-8")
    return path


def load(tmp_path, samples, **meta):
    return ScopeStats.load(write(tmp_path / "scope_stats.jsonl", samples, **meta))


def kinds(stats):
    return [finding.kind for finding in stats.findings()]


def finding(stats, kind):
    (found,) = [f for f in stats.findings() if f.kind == kind]
    return found


ONE = [
    sample("begin", "a.py:1", 0),
    sample("begin", "a.py:2", 1, (3, 5), (1024, 2048), (1, 4), 2),
    sample("end", "a.py:2", 1, (6, 21), (2048, 5120), (4, 14), 9),
    sample("end", "a.py:1", 0, tensormap=9),
]


def test_measures_of_a_pair_follow_their_formulas(tmp_path):
    inner, outer = load(tmp_path, ONE).pairs()
    assert (inner.site, inner.depth, inner.ring, inner.begin, inner.end, inner.tensormap) == ("a.py:2", 1, 1, 1, 2, 9)
    assert inner.task_window == Measures(scope_high_water=18, real_occupancy=15, scope_alloc=16)
    assert inner.heap == Measures(scope_high_water=4096, real_occupancy=3072, scope_alloc=3072)
    assert inner.dep_pool == Measures(scope_high_water=13, real_occupancy=10, scope_alloc=10)
    assert outer.site == "a.py:1" and outer.task_window == Measures(0, 0, 0)


def test_each_end_takes_the_latest_open_begin_of_its_ring_and_site(tmp_path):
    """A recursive scope: the same line at depths 3, 4 and 5, all in ring 3."""
    samples = [
        sample("begin", "r.py:9", 3, (0, 0)),
        sample("begin", "r.py:9", 4, (0, 1)),
        sample("begin", "r.py:9", 5, (0, 2)),
        sample("end", "r.py:9", 5, (0, 3)),
        sample("end", "r.py:9", 4, (0, 3)),
        sample("begin", "r.py:9", 4, (1, 3)),
        sample("end", "r.py:9", 4, (1, 4)),
        sample("end", "r.py:9", 3, (1, 4)),
    ]
    pairs = load(tmp_path, samples).pairs()
    assert [(pair.begin, pair.end) for pair in pairs] == [(2, 3), (1, 4), (5, 6), (0, 7)]
    assert [pair.task_window.scope_alloc for pair in pairs] == [1, 2, 1, 4]


def test_the_same_site_in_two_rings_is_paired_per_ring(tmp_path):
    samples = [
        sample("begin", "s.py:1", 0),
        sample("begin", "s.py:1", 1),
        sample("end", "s.py:1", 1),
        sample("end", "s.py:1", 0),
    ]
    assert [(pair.ring, pair.begin) for pair in load(tmp_path, samples).pairs()] == [(1, 1), (0, 0)]


def test_peaks_name_use_capacity_and_site(tmp_path):
    peaks = {(peak.resource, peak.ring): peak for peak in load(tmp_path, ONE).peaks()}
    assert set(peaks) == {("task_window", 1), ("heap", 1), ("dep_pool", 1), ("tensormap", None)}
    window = peaks["task_window", 1]
    assert (window.occupancy, window.bound, window.capacity, window.site, window.scope_alloc) == (15, 16, 16, "a.py:2", 16)
    assert "ring 1 task_window: 15 (at most 16) of 16 at a.py:2" == str(window)


def test_unknown_fields_are_kept(tmp_path):
    stats = load(tmp_path, [sample("begin", "a:1", 0, core=3), sample("end", "a:1", 0)], vendor={"x": 1})
    assert stats.meta["vendor"] == {"x": 1} and stats.samples[0]["core"] == 3


@pytest.mark.parametrize("rings", [1, 2, 3])
def test_fewer_rings(tmp_path, rings):
    sizes = {field: META[field][:rings] for field in ("task_window_max", "heap_max", "dep_pool_max")}
    samples = [sample("begin", "a:1", 5, rings=rings), sample("end", "a:1", 5, (0, 16), rings=rings)]
    stats = load(tmp_path, samples, **sizes)
    assert stats.rings == rings and stats.pairs()[0].ring == rings - 1
    assert f"ring {rings - 1}" in str(finding(stats, "ceiling"))
    assert stats.sizing()["ring_task_window"] == [4] * (rings - 1) + [32] + [0] * (4 - rings)
    assert len(stats.plot().axes) == 4 and RunConfig(**stats.sizing())


def test_version_5_warns_and_its_wrapped_heap_is_counted_on(tmp_path):
    samples = [
        sample("begin", "a:1", 0, heap=(0, 0)),
        sample("begin", "b:1", 1, heap=(1024, 3072)),
        sample("end", "b:1", 1, heap=(3072, 1024)),  # wrapped once
        sample("begin", "b:1", 1, heap=(1024, 1024)),
        sample("end", "b:1", 1, heap=(1024, 512)),  # and again
        sample("end", "a:1", 0, heap=(0, 0)),
    ]
    with pytest.warns(UserWarning, match="version 5"):
        stats = load(tmp_path, samples, version=5)
    first, second, _ = stats.pairs()
    assert first.heap == Measures(4096, 2048, 2048)
    assert second.heap == Measures(3584, 3584, 3584)


def test_version_6_does_not_warn(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(tmp_path, ONE)


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_file_cut_in_its_last_line_is_read_as_far_as_it_goes(tmp_path, cut):
    path = write(tmp_path / "s.jsonl", ONE)
    path.write_bytes(path.read_bytes()[: -1 - cut])
    stats = ScopeStats.load(path)
    assert stats.cut and len(stats.samples) == 3 and len(stats.pairs()) == 1
    assert "3 of 4 samples" in str(finding(stats, "cut")) and "a.py:2" in str(finding(stats, "cut"))
    assert finding(stats, "stopped").site == "a.py:1"


def test_a_cut_inside_a_character_is_a_cut(tmp_path):
    path = write(tmp_path / "s.jsonl", [sample("begin", "été.py:1", 0)])
    raw = path.read_bytes()
    path.write_bytes(raw[: raw.index("é".encode()) + 1])
    assert ScopeStats.load(path).cut


def test_where_a_stopped_run_stood(tmp_path):
    samples = [
        sample("begin", "main.py:1", 0),
        sample("begin", "main.py:5", 1),
        sample("end", "main.py:5", 1, (0, 3)),
        sample("begin", "main.py:9", 1, (0, 3)),
        sample("begin", "loop.py:2", 2),
    ]
    stats = load(tmp_path, samples, fatal=True)
    assert [s["site"] for s in stats.open_scopes()] == ["main.py:1", "main.py:9", "loop.py:2"]
    text = str(stats.findings()[0])
    assert "stopped inside the scope at loop.py:2 inside main.py:9 inside main.py:1 (depth 2, ring 2)" in text and "fatal" in text
    assert stats.sizing()["ring_task_window"] == [16] * 4  # nothing is known to be too small
    assert stats.error is None and stats.shortage is None and "sizing" not in kinds(stats)


def test_dropped_samples_make_peaks_lower_bounds_and_orphans_harmless(tmp_path):
    stats = load(tmp_path, ONE[2:], total=4, dropped=2)
    assert stats.pairs() == () and "lower bounds" in str(finding(stats, "cut"))
    assert [peak.occupancy for peak in stats.peaks() if peak.resource == "task_window"] == [15]


# -- findings ------------------------------------------------------------------------------------------------------------


def test_a_ceiling_with_idle_rings_asks_to_rebalance(tmp_path):
    stats = load(tmp_path, [sample("begin", "p.py:31", 0), sample("end", "p.py:31", 0, (0, 16))])
    found = stats.findings()[0]
    assert str(found) == (
        "ring 0 at its task-window ceiling (16 of 16) at p.py:31 while rings 1 to 3 are idle: rebalance scopes before resizing"
    )
    assert (found.kind, found.ring, found.resource, found.site) == ("ceiling", 0, "task_window", "p.py:31")
    assert "split" in kinds(stats) and "p.py:31" in str(finding(stats, "split"))
    assert "map 12 KiB of heap" in str(finding(stats, "idle"))


@pytest.mark.parametrize(
    ("resource", "use", "words"),
    [
        ("heap", {"heap": (0, 4096)}, "heap ceiling (4 KiB of 4 KiB)"),
        ("deps", {"deps": (0, 32)}, "dependency-pool ceiling (32 of 32)"),
    ],
)
def test_every_resource_has_its_ceiling(tmp_path, resource, use, words):
    stats = load(tmp_path, [sample("begin", "p.py:3", 0), sample("end", "p.py:3", 0, **use)])
    assert words in str(finding(stats, "ceiling"))


def test_a_full_tensor_map(tmp_path):
    stats = load(tmp_path, [sample("begin", "p.py:3", 0), sample("end", "p.py:3", 0, tensormap=64)])
    assert "tensor map is full (64 of 64 entries) at p.py:3" in str(finding(stats, "ceiling"))


def busy(depth, site, window=(0, 4)):
    return [sample("begin", site, depth), sample("end", site, depth, window, (0, 1024), (0, 4))]


def test_a_ceiling_in_a_busy_program_asks_for_size(tmp_path):
    samples = [*busy(0, "a:1"), *busy(1, "a:2"), *busy(3, "a:4")]
    for k in range(4):
        samples += [sample("begin", "b:1", 2, (0, 4 * k)), sample("end", "b:1", 2, (0, 4 * k + 4))]
    found = finding(load(tmp_path, samples), "ceiling")
    assert found.ring == 2 and "raise ring_task_window of ring 2" in str(found)


def test_streaming_is_fine(tmp_path):
    stats = load(tmp_path, [sample("begin", "s.py:4", 3), sample("end", "s.py:4", 3, (90, 100))])
    found = finding(stats, "streaming")
    assert found.site == "s.py:4" and "100 slots against 16 slots" in str(found) and "10 slots were held" in str(found)
    assert "ceiling" not in kinds(stats)


def test_an_imbalance_names_the_ring(tmp_path):
    stats = load(tmp_path, [sample("begin", "a:1", 3), sample("end", "a:1", 3, (0, 12))])
    assert "all 12 tasks landed in ring 3" in str(finding(stats, "imbalance")) and "flatten" in str(finding(stats, "imbalance"))
    spread = [line for depth in range(4) for line in busy(depth, f"a:{depth}")]
    assert kinds(load(tmp_path, spread))[0] == "healthy"


def test_depths_that_share_the_last_ring(tmp_path):
    stats = load(
        tmp_path,
        [*busy(3, "a:3"), sample("begin", "a:5", 5, (0, 4), (0, 1024), (0, 4)), sample("end", "a:5", 5, (0, 5), (0, 1024), (0, 4))],
    )
    assert "ring 3 carries depths 3 to 5 (the deepest at a:5)" in str(finding(stats, "saturated"))


MANY = [s for k in range(200) for s in (sample("begin", f"a:{k}", 2, (k, k)), sample("end", f"a:{k}", 2, (k, k + 1)))]


def test_an_oversized_resource_says_what_would_do(tmp_path):
    stats = load(tmp_path, [line for d in range(4) for line in busy(d, f"a:{d}")], task_window_max=[16384] * 4)
    texts = [str(f) for f in stats.findings() if f.kind == "oversized" and f.resource == "task_window"]
    assert len(texts) == 4 and "at most 4 of 16384 was in use (at a:2); ring_task_window 8 would do" in texts[2]


@pytest.mark.parametrize("window", [1, 3, 15, 16])
@pytest.mark.parametrize("deps", [0, 1, 31, 32])
@pytest.mark.parametrize("heap", [0, 1024, 4096])
def test_suggested_sizes_hold_the_run_and_satisfy_the_constraints(tmp_path, window, heap, deps):
    stats = load(tmp_path, [sample("begin", "a:1", 1), sample("end", "a:1", 1, (0, window), (0, heap), (0, deps))])
    config = RunConfig(**stats.sizing())
    assert config.task_windows[1] >= window and config.heaps[1] >= heap and config.dep_pools[1] >= deps
    if window == 16:
        assert config.task_windows[1] == 32


# -- nonsense ------------------------------------------------------------------------------------------------------------

BAD_META = [
    ("version", 7), ("version", 4), ("version", "6"), ("version", None), ("version", True),
    ("fatal", 0), ("fatal", None), ("dropped", -1), ("dropped", 1.0), ("dropped", True),
    ("total", "4"), ("total", 3), ("total", None),
    ("task_window_max", []), ("task_window_max", 16), ("task_window_max", [16, 16, 16, 0]), ("task_window_max", [16, 16, 16, "16"]),
    ("heap_max", [4096] * 3), ("dep_pool_max", None), ("tensormap_max", [64]), ("tensormap_max", -1),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), BAD_META, ids=str)
def test_nonsense_in_the_first_line_is_refused_by_name(tmp_path, field, value):
    with pytest.raises(ValueError, match=rf"^line 1, {field}: "):
        load(tmp_path, ONE, **{field: value})


BAD_SAMPLES = [
    ("site", None), ("site", 7), ("phase", "middle"), ("phase", None), ("depth", -1), ("depth", 1.0), ("ring", 2), ("ring", None),
    ("task_window_end", 5), ("task_window_end", 100), ("task_window_start", 2),
    ("heap_end", 2000), ("heap_start", -1), ("heap_end", "x"),
    ("heap_end", 1 << 20), ("dep_pool_end", True), ("dep_pool_end", 3), ("tensormap", 65), ("tensormap", None),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), BAD_SAMPLES, ids=str)
def test_nonsense_in_a_sample_is_refused_by_line_and_field(tmp_path, field, value):
    samples = copy.deepcopy(ONE)
    samples[2][field] = value
    with pytest.raises(ValueError, match=r"^line 4, ") as caught:
        load(tmp_path, samples)
    assert field.rpartition("_")[0] in str(caught.value) or field in str(caught.value)


@pytest.mark.parametrize("field", sorted(ONE[0]))
def test_a_missing_field_is_refused(tmp_path, field):
    samples = copy.deepcopy(ONE)
    del samples[1][field]
    with pytest.raises(ValueError, match=rf"^line 3, {field}: "):
        load(tmp_path, samples)


@pytest.mark.parametrize(
    "content", ["", "\n", "not json\n", "[1]\n", '{"version": 6}\n', '"text"\n', "\x00\x01\n", "{\n}\n"], ids=repr
)
def test_a_file_of_another_kind_is_refused(tmp_path, content):
    path = tmp_path / "other.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match="line 1"):
        ScopeStats.load(path)


def test_a_broken_line_in_the_middle_is_refused(tmp_path):
    path = write(tmp_path / "s.jsonl", ONE)
    lines = path.read_text().split("\n")
    lines[2] = lines[2][:-5]
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="^line 3: not JSON"):
        ScopeStats.load(path)


def test_an_end_without_a_begin_is_refused_in_a_complete_file_only(tmp_path):
    orphan = [ONE[0], ONE[2], ONE[3]]
    with pytest.raises(ValueError, match=r"^line 3, phase: an end at a.py:2 without a begin"):
        load(tmp_path, orphan)
    assert len(load(tmp_path, orphan, total=4).pairs()) == 1
    assert len(load(tmp_path, orphan, fatal=True).pairs()) == 1


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        ScopeStats.load(tmp_path / "no.jsonl")


# -- showing -------------------------------------------------------------------------------------------------------------


def texts(figure):
    found = [text.get_text() for axis in figure.axes for text in axis.texts]
    return found + [axis.get_ylabel() for axis in figure.axes]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_plot_has_an_axis_per_resource_capacity_lines_and_the_peaks_lines(tmp_path, theme):
    figure = load(tmp_path, ONE).plot(theme)
    assert len(figure.axes) == 4
    words = "\n".join(texts(figure))
    for part in (
        "task window",
        "heap",
        "dependency pool",
        "tensor map",
        "capacity 16 (rings 0 to 3)",
        "capacity 4 KiB",
        "capacity 64",
    ):
        assert part in words
    assert "ring 1: 15 at a.py:2" in words and "9 at a.py:2" in words
    limits = {axis.get_xlim() for axis in figure.axes}
    assert len(limits) == 1
    heights = [line.get_ydata()[0] for axis in figure.axes[:1] for line in axis.lines if len(set(line.get_ydata())) == 1]
    assert 16 in heights


def test_a_peak_at_capacity_is_marked_by_word_and_hatch(tmp_path):
    figure = load(tmp_path, [sample("begin", "p.py:31", 0), sample("end", "p.py:31", 0, (0, 16))]).plot()
    assert any("at capacity: ring 0: 16 at p.py:31" in text for text in texts(figure))
    assert any(patch.get_hatch() for patch in figure.axes[0].patches)
    assert "task-window ceiling" in figure.get_suptitle()


def test_sizes_that_differ_have_lines_of_their_own(tmp_path):
    figure = load(tmp_path, ONE, task_window_max=[8, 16, 32, 64]).plot()
    words = texts(figure)
    assert {"capacity 8 (ring 0)", "capacity 16 (ring 1)", "capacity 32 (ring 2)", "capacity 64 (ring 3)"} <= set(words)


@pytest.mark.parametrize(
    "samples",
    [[], ONE[:1], ONE[:2], MANY],
    ids=["no samples", "one begin", "open scopes", "many"],
)
def test_any_file_can_be_drawn_and_told(tmp_path, samples):
    stats = load(tmp_path, samples)
    figure = stats.plot()
    figure.savefig(tmp_path / "out.png")
    bundle = stats._repr_mimebundle_()
    assert "<img" in bundle["text/html"] and bundle["text/plain"] == str(stats) and "failed" not in bundle["text/html"]


def test_text_and_records(tmp_path):
    stats = load(tmp_path, ONE)
    assert "2 scopes, 4 samples, 4 rings; the run ended normally" in str(stats) and "- " in str(stats)
    first = stats.to_records()[0]
    assert first["site"] == "a.py:2" and first["task_window_high_water"] == 18 and first["heap_alloc"] == 3072
    assert all(isinstance(value, int | str) for value in first.values()) and len(first) == 13


def test_a_ring_in_which_the_run_stopped_is_not_idle(tmp_path):
    x, rows = np.zeros(4), np.zeros((9, 4))

    def program(orch):
        with orch.scope():
            for k in range(9):
                orch.submit(lambda a, b: None, inputs=[x], outputs=[rows[k]])

    config = RunConfig(platform="sim", ring_task_window=4, enable_scope_stats=True, work_dir=tmp_path)
    with Worker(config) as worker, pytest.raises(RingCapacityError):
        worker.run(program)
    stats = ScopeStats.load(tmp_path / "dfx_outputs" / "scope_stats" / "scope_stats.jsonl")
    idle = [f for f in stats.findings() if f.kind == "idle"]
    assert stats.open_scopes() and not any("ring 1" in str(f) or "0 to 3" in str(f) for f in idle)


def test_blank_lines_at_the_end_say_nothing(tmp_path):
    x, y = np.zeros(4), np.zeros(4)
    config = RunConfig(platform="sim", enable_scope_stats=True, work_dir=tmp_path)
    with Worker(config) as worker:
        report = worker.run(lambda orch: orch.submit(lambda a, b: None, inputs=[x], outputs=[y]))
    text = report.stats_path.read_text()
    report.stats_path.write_text(text + "\n  \n")
    stats = ScopeStats.load(report.stats_path)
    assert len(stats.samples) == 2 and not stats.cut
    report.stats_path.write_text(text.replace("\n", "\n\n", 1))
    with pytest.raises(ValueError, match="line 2"):
        ScopeStats.load(report.stats_path)


@pytest.mark.parametrize(("tail", "head", "splits"), [(72, 80, False), (0, 8, True)], ids=["streams", "holds"])
def test_only_a_scope_that_holds_what_it_took_is_to_be_split(tmp_path, tail, head, splits):
    meta = {
        "version": 6, "fatal": False, "dropped": 0, "total": 2, "task_window_max": [8, 8, 8, 8], "heap_max": [1024] * 4,
        "dep_pool_max": [8] * 4, "tensormap_max": 64,
    }  # fmt: skip
    sample = {"site": "a.py:1", "depth": 0, "ring": 0, "tensormap": 0} | {
        f"{r}_{e}": 0 for r in ("task_window", "heap", "dep_pool") for e in ("start", "end")
    }
    end = sample | {"phase": "end", "task_window_start": tail, "task_window_end": head}
    path = tmp_path / "scope_stats.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (meta, sample | {"phase": "begin"}, end)))
    kinds = [f.kind for f in ScopeStats.load(path).findings()]
    assert "ceiling" in kinds and ("split" in kinds) is splits


# -- runs that were stopped, from the program to the advice --------------------------------------------------------------


def nothing(*arrays):
    pass


def measured(folder, program, **fields):
    """Statistics of a run of `program`, which may be stopped."""
    with Worker(RunConfig(platform="sim", enable_scope_stats=True, work_dir=folder, **fields)) as worker:
        with contextlib.suppress(RingCapacityError, KeyError):
            worker.run(program)
    return ScopeStats.load(folder)


def fill(resource, count):
    """A program that wants `count` of a resource of ring 1, and the line where it asks for them."""
    x, y = np.zeros(4), np.zeros((64, 4))

    def program(orch):
        with orch.scope(site="fill.py:2"):
            for k in range(count):
                if resource == "task_window":
                    orch.submit(nothing, inputs=[x], outputs=[y[k]], site="fill.py:5")
                elif resource == "heap":
                    orch.alloc(1024, np.int8, site="fill.py:5")
                else:
                    orch.submit(nothing, inouts=[x], site="fill.py:5")

    return program


SIZES = {"task_window": 16, "heap": 16384, "dep_pool": 16}


@pytest.mark.parametrize("resource", SIZES)
def test_a_ring_that_ran_out_is_named_drawn_and_alone_raised(tmp_path, resource):
    field, size = f"ring_{resource}", SIZES[resource]
    stats = measured(tmp_path, fill(resource, 64), **{field: size})
    short = stats.shortage
    one = 1024 if resource == "heap" else 1
    assert (short.resource, short.ring, short.used, short.requested, short.capacity) == (resource, 1, size, one, size)
    assert (short.site, stats.error) == ("fill.py:5", "RingCapacityError")
    told = {"task_window": "16 of 16 slots", "heap": "16 KiB of 16 KiB", "dep_pool": "16 of 16 edges"}[resource]
    first = stats.findings()[0]
    assert (first.kind, first.ring, first.resource, first.site) == ("stopped", 1, resource, "fill.py:2")
    assert f"{told} in use" in str(first) and "fill.py:5" in str(first) and f"raise {field} of ring 1" in str(first)
    assert [(p.occupancy, p.site) for p in stats.peaks() if (p.resource, p.ring) == (resource, 1)] == [(size, "fill.py:2")]
    assert [sample["site"] for sample in stats.open_scopes()][1:] == ["fill.py:2"]
    words = texts(stats.plot())
    assert any("at capacity: ring 1: 16" in text for text in words)
    assert sum("not used" in text for text in words) == (3 if resource == "heap" else 2 - (resource == "dep_pool"))
    present = {f"ring_{name}": [stats.capacity(name, ring) for ring in range(4)] for name in SIZES}
    assert stats.sizing() == {**present, field: [size, 2 * size, size, size]}
    advice = str(finding(stats, "sizing"))
    assert "not known" in advice and "fit" not in advice and f"RunConfig({field}={[size, 2 * size, size, size]})" in advice


@pytest.mark.parametrize("resource", SIZES)
def test_raising_what_ran_out_again_and_again_comes_to_an_end(tmp_path, resource):
    sizes = {f"ring_{resource}": SIZES[resource]}
    for turn in range(3):
        stats = measured(tmp_path / str(turn), fill(resource, 64), **sizes)
        assert stats.meta["fatal"] is (turn < 2)
        sizes = stats.sizing()
    assert stats.shortage is None and stats.open_scopes() == ()
    assert not measured(tmp_path / "fitted", fill(resource, 64), **sizes).meta["fatal"]


def test_a_request_larger_than_the_heap_is_sized_by_the_request(tmp_path):
    stats = measured(tmp_path, lambda orch: orch.alloc(5000, np.float32), ring_heap=8192)
    assert stats.sizing()["ring_heap"] == [32768, 8192, 8192, 8192]
    text = str(stats.findings()[0])
    assert "one request is larger than ring 0's heap (0 B of 8 KiB in use, 20 KiB more wanted" in text
    assert text.endswith("raise ring_heap of ring 0 to at least 32768") and "split" not in text


def test_an_error_of_the_program_says_nothing_about_sizes(tmp_path):
    def program(orch):
        with orch.scope():
            orch.submit(nothing)
            raise KeyError("mine")

    stats = measured(tmp_path, program)
    assert stats.error == "KeyError" and stats.shortage is None and "it raised KeyError" in str(stats.findings()[0])
    assert "sizing" not in kinds(stats) and stats.sizing()["ring_task_window"] == [16384] * 4


@pytest.mark.parametrize(
    "reason",
    [None, 7, {}, {"error": 3}, {"resource": "heap", "ring": 9, "site": "a", "used": 0, "requested": 1, "capacity": 1}],
    ids=str,
)
def test_a_reason_that_is_not_understood_still_marks_where_the_run_stopped(tmp_path, reason):
    stats = load(tmp_path, [sample("begin", "a:1", 0), sample("end", "a:1", 0, (0, 3), stopped_by=reason)], fatal=True)
    assert stats.shortage is None and stats.error is None and len(stats.open_scopes()) == len(stats.pairs()) == 1
    assert finding(stats, "stopped").site == "a:1"


def test_scopes_whose_end_is_not_in_the_file_are_not_called_unused(tmp_path):
    figure = load(tmp_path, [sample("begin", "a:1", 0), sample("begin", "a:2", 1)], fatal=True).plot()
    assert sum("not known" in text for text in texts(figure)) == 4 and not any("not used" in text for text in texts(figure))


def test_a_high_water_at_the_capacity_is_no_ceiling(tmp_path):
    """Five scopes of six tasks: in use were six at every exit, and what was in use between is only bounded."""
    x, rows = np.zeros(8), np.zeros((30, 8))

    def program(orch):
        for k in range(0, 30, 6):
            with orch.scope():
                for row in rows[k : k + 6]:
                    orch.submit(nothing, inputs=[x], outputs=[row])

    stats = measured(tmp_path, program, ring_task_window=8)
    (peak,) = [peak for peak in stats.peaks() if peak.resource == "task_window"]
    assert (peak.occupancy, peak.bound) == (6, 8)
    assert "ceiling" not in kinds(stats) and "healthy" not in kinds(stats)
    near = finding(stats, "near")
    assert "may have reached" in str(near) and "at most 8 of 8" in str(near) and "6 for certain" in str(near)
    assert stats.sizing()["ring_task_window"][1] == 8


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_the_advice_against_an_imbalance_can_be_followed(tmp_path, depth):
    text = str(finding(load(tmp_path, busy(depth, "a:1", (0, 12))), "imbalance"))
    out, deeper = "further out" in text or "flatten" in text, "open scopes" in text or "further in" in text
    assert (out, deeper) == (depth > 0, depth < 3)


# -- folders -------------------------------------------------------------------------------------------------------------


def test_a_work_folder_stands_for_the_file_in_it(tmp_path):
    path = tmp_path / "dfx_outputs" / "scope_stats" / "scope_stats.jsonl"
    path.parent.mkdir(parents=True)
    write(path, ONE)
    assert [ScopeStats.load(given).source for given in (tmp_path, path.parent, path)] == [path] * 3


def test_a_folder_without_statistics_says_what_it_lacks(tmp_path):
    write(tmp_path / "other.jsonl", ONE)
    with pytest.raises(FileNotFoundError, match="is a folder without dfx_outputs/scope_stats/scope_stats.jsonl; give") as caught:
        ScopeStats.load(tmp_path)
    assert "Errno" not in str(caught.value)


# -- what lies where in the plot -----------------------------------------------------------------------------------------


def pictures(tmp_path):
    one = load(tmp_path, [sample("begin", "p.py:31", 0), sample("end", "p.py:31", 0, (0, 16), (0, 2048), (0, 3), 5)])
    streams = []
    for k in range(50):
        streams.append(sample("begin", "s.py:9", 2, (0, k // 4), deps=(k, k + 3)))
        streams.append(sample("end", "s.py:9", 2, (0, (k + 1) // 4), deps=(k + 1, k + 4)))
    many = load(tmp_path, streams, task_window_max=[64, 4, 16, 4], dep_pool_max=[4, 4, 7, 4])
    return {"one scope at capacity": one, "two scopes": load(tmp_path, ONE), "many": many}


@pytest.mark.parametrize("which", ["one scope at capacity", "two scopes", "many"])
def test_no_words_lie_on_data_lines_or_other_words(tmp_path, which):
    figure = pictures(tmp_path)[which].plot()
    figure.canvas.draw()
    for axis in figure.axes:
        boxes = [text.get_window_extent() for text in axis.texts if text.get_text() != "not used"]
        for k, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[k + 1 :]), [text.get_text() for text in axis.texts]
        for line in axis.lines:
            if line.get_linestyle() == "--" and len(set(line.get_ydata())) == 1:  # a capacity: the whole width
                y = axis.transData.transform((0, line.get_ydata()[0]))[1]
                inside = [box for box in boxes if box.x0 < axis.bbox.x1]
                assert not any(box.y0 < y < box.y1 for box in inside)
            for x, y in axis.transData.transform(np.column_stack([line.get_xdata(orig=False), line.get_ydata(orig=False)])):
                if line.get_marker() not in (None, "None", ""):
                    assert not any(box.contains(x, y) for box in boxes)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 11, 200])
def test_ticks_are_scopes(tmp_path, count):
    samples = [line for k in range(count) for line in busy(0, f"a:{k}", (4 * k, 4 * k + 4))]
    figure = load(tmp_path, samples, fatal=True).plot()
    left, right = figure.axes[-1].get_xlim()
    shown = [tick for tick in figure.axes[-1].get_xticks() if left <= tick <= right]
    assert shown and all(tick == int(tick) and 0 <= tick < count for tick in shown)


def test_a_peaks_words_tell_the_bound_beside_what_is_certain(tmp_path):
    words = "\n".join(texts(load(tmp_path, ONE).plot()))
    assert "ring 1: 15 at a.py:2 (in between at most 16)" in words and "ring 1: 10 at a.py:2 (in between at most 13)" in words
