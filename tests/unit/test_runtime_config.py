"""RunConfig: what it takes, what it refuses, and what its refusals say."""

import math
import pathlib

import numpy as np
import pytest

from ren_lab.runtime import RunConfig, Worker

FIELDS = {"ring_task_window": "task_windows", "ring_heap": "heaps", "ring_dep_pool": "dep_pools"}
DEFAULTS = {"ring_task_window": 16384, "ring_heap": 256 * 2**20, "ring_dep_pool": 16384}
SIZES = {"ring_task_window": 64, "ring_heap": 4096, "ring_dep_pool": 77}
each_field = pytest.mark.parametrize("field", FIELDS)


@each_field
@pytest.mark.parametrize("unset", [None, 0, [0, 0, 0, 0], (None, 0, None, 0), np.zeros(4, np.int64)], ids=repr)
def test_zero_and_none_are_the_default(field, unset):
    assert getattr(RunConfig(**{field: unset}), FIELDS[field]) == (DEFAULTS[field],) * 4


@each_field
@pytest.mark.parametrize("kind", [int, np.int32, np.int64, np.uint64], ids=lambda kind: kind.__name__)
def test_a_scalar_of_any_integer_type_sizes_all_four_rings(field, kind):
    assert getattr(RunConfig(**{field: kind(SIZES[field])}), FIELDS[field]) == (SIZES[field],) * 4


@each_field
@pytest.mark.parametrize("make", [list, tuple, np.array], ids=lambda make: make.__name__)
def test_four_entries_size_the_rings_one_by_one(field, make):
    size = SIZES[field]
    config = RunConfig(**{field: make([size, 0, 0, size])})
    assert getattr(config, FIELDS[field]) == (size, DEFAULTS[field], DEFAULTS[field], size)
    assert config == RunConfig(**{field: [size, 0, 0, size]})
    assert hash(config) == hash(RunConfig(**{field: (size, None, 0, size)}))


BAD = {
    "ring_task_window": [3, 2, 1, -4, 6, 100],
    "ring_heap": [1, 512, 1000, 1025, 3072, -1024],
    "ring_dep_pool": [3, 1, -1, 2**31],
}
NEVER = [True, False, np.True_, "16", b"16", 16.0, math.nan, object()]


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in BAD.items() for value in values])
def test_a_size_out_of_range_names_field_ring_and_rule(field, value):
    with pytest.raises(ValueError, match=rf"{field} is {value} for all four rings; use .+at least|from 4 to 2147483647"):
        RunConfig(**{field: value})
    for ring in range(4):
        entries = [0, 0, 0, 0]
        entries[ring] = value
        with pytest.raises(ValueError, match=rf"{field}\[{ring}\] is {value} for ring {ring}; use "):
            RunConfig(**{field: entries})


@each_field
@pytest.mark.parametrize("value", NEVER, ids=repr)
def test_what_is_no_integer_is_refused(field, value):
    with pytest.raises(ValueError, match=field):
        RunConfig(**{field: value})
    with pytest.raises(ValueError, match=rf"{field}\[2\].*ring 2"):
        RunConfig(**{field: [0, 0, value, 0]})


@each_field
@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_any_other_number_of_entries_is_refused(field, count):
    with pytest.raises(ValueError, match=f"{field} has {count} entries"):
        RunConfig(**{field: [SIZES[field]] * count})


@pytest.mark.parametrize("field", ["ring_dep_pool"])
def test_bounds_themselves_are_allowed(field):
    assert RunConfig(ring_dep_pool=[4, 2**31 - 1, 5, 6]).dep_pools == (4, 2**31 - 1, 5, 6)
    assert RunConfig(ring_task_window=4).task_windows == (4,) * 4
    assert RunConfig(ring_heap=1024).heaps == (1024,) * 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("platform", "abacus"),
        ("platform", None),
        ("platform", ["cpu"]),
        ("workers", 0),
        ("workers", -1),
        ("workers", True),
        ("workers", 2.0),
        ("enable_scope_stats", 1),
        ("save_kernels", "yes"),
        ("work_dir", 7),
        ("timeout_s", 0),
        ("timeout_s", -1.0),
        ("timeout_s", math.nan),
        ("timeout_s", True),
        ("timeout_s", "60"),
        ("timeout_s", None),
    ],
)
def test_other_fields_refuse_nonsense_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        RunConfig(**{field: value})


def test_the_fields_and_their_order():
    config = RunConfig("sim", 3, True, False, "out", 8, 2048, 9, 1.5)
    assert (config.platform, config.workers, config.enable_scope_stats, config.save_kernels) == ("sim", 3, True, False)
    assert config.work_path == pathlib.Path("out") and config.timeout_s == 1.5
    with pytest.raises(AttributeError):
        config.workers = 4


def test_environment_variables_are_not_read(monkeypatch):
    for name in ("PTO2_RING_TASK_WINDOW", "PTO2_RING_HEAP", "PTO2_RING_DEP_POOL"):
        monkeypatch.setenv(name, "64")
    config = RunConfig()
    assert (config.task_windows[0], config.heaps[0], config.dep_pools[0]) == tuple(DEFAULTS.values())


@pytest.mark.parametrize(("platform", "clusters"), [("a2a3", 24), ("a2a3sim", 24), ("a5", 36), ("a5sim", 36)])
def test_a_chip_has_its_published_cores(platform, clusters):
    with Worker(RunConfig(platform=platform, ring_heap=1024)) as worker:
        lanes = worker.run(lambda orch: None).lanes
    assert sum(lane.startswith("AIC") for lane in lanes) == clusters
    assert sum(lane.startswith("AIV") for lane in lanes) == 2 * clusters
    assert len(lanes) == 3 * clusters
    with Worker(RunConfig(platform=platform, workers=2, ring_heap=1024)) as worker:
        assert len(worker.run(lambda orch: None).lanes) == 6
    with pytest.raises(ValueError, match="workers"):
        RunConfig(platform=platform, workers=clusters + 1)


def test_streams_run_no_python_kernels():
    config = RunConfig(platform="cuda")
    with pytest.raises(ValueError, match="cuda.*engine.*cpu"):
        Worker(config)


def test_a_heap_that_cannot_be_mapped_says_which_field_to_lower():
    with Worker(RunConfig(platform="sim", ring_heap=2**62)) as worker, pytest.raises(MemoryError, match="lower ring_heap"):
        worker.run(lambda orch: None)
