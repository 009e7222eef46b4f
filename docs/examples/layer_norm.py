"""Layer normalization of each row, with a scale and a shift per column."""

import numpy as np

import ren_lab.language as pl
from ren_lab.runtime import RunConfig

ROWS, COLS = 8, 128
EPSILON = 1e-5


@pl.jit.inline
def normalized(x):
    """(x - mean) / sqrt(variance + EPSILON), row by row."""
    mean = pl.mul(pl.row_sum(x), 1.0 / COLS)
    centred = pl.row_expand_sub(x, mean)
    variance = pl.mul(pl.row_sum(pl.mul(centred, centred)), 1.0 / COLS)
    return pl.row_expand_mul(centred, pl.rsqrt(pl.add(variance, EPSILON)))


@pl.jit
def layer_norm(a: pl.Tensor, scale: pl.Tensor, shift: pl.Tensor, out: pl.Out[pl.Tensor]):
    """out = the rows of a, normalized, times scale, plus shift."""
    for i in pl.spmd(a.shape[0] // ROWS, name_hint="layer_norm_rows"):  # one task of as many blocks as there are groups of rows
        x = pl.load(a, [i * ROWS, 0], [ROWS, COLS])
        y = normalized(x)
        y = pl.col_expand_add(pl.col_expand_mul(y, scale), shift)
        pl.store(y, [i * ROWS, 0], out)
    return out


def reference(a: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """The same in NumPy, in double precision."""
    a = a.astype(np.float64)
    centred = a - a.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPSILON) * scale + shift


def main() -> float:
    """The largest error."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal((64, COLS), dtype=np.float32)
    scale, shift = rng.standard_normal((2, 1, COLS), dtype=np.float32)
    out = layer_norm(a, scale, shift, np.empty_like(a), config=RunConfig(platform="cpu"))
    return float(abs(out - reference(a, scale, shift)).max())


if __name__ == "__main__":
    print(f"largest error {main():.1e}")
