"""The programs under docs/examples, against NumPy in double precision."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.runtime import RingCapacityError, RunConfig

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
BOUNDS = {"softmax": 1e-6, "layer_norm": 5e-6, "blocked_matmul": 2e-4, "attention": 2e-6}  # FP32 rounding of such sums


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(BOUNDS)


@pytest.mark.parametrize("name", BOUNDS)
def test_an_example_gives_what_numpy_gives(name):
    assert load(name).main() <= BOUNDS[name]


@pytest.mark.parametrize("name", BOUNDS)
def test_an_example_runs_from_the_command_line(name):
    run = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(ROOT)}
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("largest error ") and not run.stderr


@pytest.mark.parametrize("platform", ["sim", "a2a3", "cpu"])
def test_they_run_on_every_platform(platform):
    module = load("attention")
    q, k, v = module.inputs()
    out = np.empty_like(q)
    module.attention(q, k, v, out, config=RunConfig(platform=platform, workers=3))
    np.testing.assert_allclose(out, module.reference(q, k, v), atol=2e-6)


def test_softmax_compiles_once_for_all_numbers_of_rows():
    module = load("softmax")
    small, large = np.ones((16, module.COLS), np.float32), np.ones((64, module.COLS), np.float32)
    assert module.softmax.compile(small, small.copy()) is module.softmax.compile(large, large.copy())
    assert module.softmax.run(large, large.copy(), config=RunConfig(platform="sim")).tasks == 4


def test_attention_gives_the_bytes_of_a_block_back_before_the_next_but_one():
    module = load("attention")
    q, k, v = module.inputs()
    block = 2 * module.ROWS * module.LENGTH * 4
    report = module.attention.run(q, k, v, np.empty_like(q), config=RunConfig(platform="sim", ring_heap=block))
    assert report.rings[1].heap_peak_bytes == block and report.waits
    with pytest.raises(RingCapacityError, match="ring_heap"):
        module.attention(q, k, v, np.empty_like(q), config=RunConfig(platform="sim", ring_heap=block // 2))


def test_attention_multiplies_on_cube_cores():
    report = load("attention").show_rings()
    kinds = {span.name: report.lanes[span.lane].split()[0] for span in report.timeline.tasks}
    assert kinds == {"scores": "AIC", "weights": "AIV", "sums": "AIC"}


@pytest.mark.parametrize("name", BOUNDS)
def test_every_stage_of_an_example_parses_back(name):
    module = load(name)
    shapes = {
        "softmax": [(32, 64)] * 2,
        "layer_norm": [(16, 128), (1, 128), (1, 128), (16, 128)],
        "blocked_matmul": [(128, 256), (256, 96), (128, 96)],
        "attention": [(128, 32)] * 4,
    }
    half = name == "blocked_matmul"
    arrays = [np.ones(shape, np.float16 if half and k < 2 else np.float32) for k, shape in enumerate(shapes[name])]
    for record in getattr(module, name).lower(*arrays).passes:
        assert pl.parse(str(record.after)).ir == record.after
