"""The GPU's benchmarks run to their end: on the stand-in for the driver, whose clock says nothing, and where there is no GPU."""

import importlib
import pathlib
import sys
from types import ModuleType

import cuda_recorder
import pytest

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(params=["cuda_kernels", "cuda_ckks"])
def benchmark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module(request.param)


SMALL = {
    "cuda_kernels": ["--n", "5", "6", "--limbs", "4", "--copied", "1"],
    "cuda_ckks": ["--n", "6", "--depth", "2", "--repeats", "2", "--insecure"],
}
LINES = {
    "cuda_kernels": ["a copy within it moves", "n=2^6, 4 limbs of 30 bits, NTT", "n=2^5, 4 limbs of 30 bits, lift to 2 limbs"],
    "cuda_ckks": ["multiply, relinearize, rescale", "2 steps, replayed", "kernels, graph", "median error of the chain"],
}


def test_it_measures(tmp_path, monkeypatch, benchmark: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    name, _ = cuda_recorder.device(tmp_path, monkeypatch)
    benchmark.main(["--device", name, *SMALL[benchmark.__name__]])
    printed = capsys.readouterr().out
    assert "NVIDIA H200, 141 GiB" in printed
    assert all(line in printed for line in LINES[benchmark.__name__])


def test_without_a_gpu_it_says_so(monkeypatch, benchmark: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    for device in ("cuda:99", "python"):
        benchmark.main(["--device", device])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("nothing was measured: device 'cuda:99'") and second == "nothing was measured: python is no GPU"
