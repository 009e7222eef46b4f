"""CPU tensors of torch as arguments, written in place. Skipped where torch is not installed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.runtime import RunConfig

ROOT = Path(__file__).resolve().parents[2]
BOTH = pytest.mark.parametrize("platform", ["sim", "cpu"])


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pl.jit
def scaled(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            t = pl.load(a, [i * 8, 0], [8, 16])
            pl.store(pl.mul(t, 2.0), [i * 8, 0], out)
    return out


@BOTH
def test_tensors_are_written_in_place(torch, platform):
    a, out = torch.randn(32, 16), torch.zeros(32, 16)
    result = scaled(a, out, config=RunConfig(platform=platform))
    assert result is out
    torch.testing.assert_close(out, a * 2.0)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_element_types(torch, name):
    if name == "bfloat16":
        pytest.importorskip("ml_dtypes")
    dtype = getattr(torch, name)
    a, out = torch.randn(32, 16).to(dtype), torch.zeros(32, 16, dtype=dtype)
    scaled(a, out, config=RunConfig(platform="sim"))
    torch.testing.assert_close(out, a * 2.0)


def test_tensors_and_arrays_mix(torch):
    a = np.random.default_rng(0).standard_normal((32, 16), dtype=np.float32)
    out = torch.zeros(32, 16)
    scaled(a, out, config=RunConfig(platform="sim"))
    np.testing.assert_array_equal(out.numpy(), a * 2)
    assert scaled.compile(a, out) is scaled.compile(torch.from_numpy(a), a.copy())


def test_views_share_memory(torch):
    a, big = torch.randn(32, 16), torch.zeros(64, 32)
    scaled(a, big[::2, ::2], config=RunConfig(platform="sim"))
    torch.testing.assert_close(big[::2, ::2], a * 2)
    assert not big[1::2].any()


def test_what_has_no_view_is_refused(torch):
    a, out = torch.randn(32, 16), torch.zeros(32, 16)
    with pytest.raises(pl.LanguageError, match=r"argument 'a': .*requires gradients.*tensor\.detach\(\)"):
        scaled(a.requires_grad_(), out)
    with pytest.raises(pl.LanguageError, match=r"argument 'out': .*device meta; move it: tensor\.cpu\(\)"):
        scaled(a.detach(), out.to("meta"))
    with pytest.raises(pl.LanguageError, match="no NumPy view"):
        scaled(a.detach().to_sparse(), out)
    with pytest.raises(pl.LanguageError, match="float64"):
        scaled(a.detach().double(), out)


def test_the_language_does_not_import_torch():
    code = "import sys, ren_lab.language; sys.exit('torch' in sys.modules or 'ml_dtypes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0
