"""The softmax of each row, a block of rows per task. The number of rows is known when it runs, not when it is compiled."""

import numpy as np

import ren_lab.language as pl
from ren_lab.runtime import RunConfig

ROWS = 16  # rows per task
COLS = 64
M = pl.dynamic("M")


@pl.jit
def softmax(a: pl.Tensor[[M, COLS], pl.FP32], out: pl.Out[pl.Tensor[[M, COLS], pl.FP32]]):
    """out = softmax of the rows of a."""
    for i in pl.parallel(M // ROWS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="softmax_rows"):
            x = pl.load(a, [i * ROWS, 0], [ROWS, COLS])
            e = pl.row_expand_expdif(x, pl.row_max(x))  # exp(x - max), so that nothing overflows
            pl.store(pl.row_expand_div(e, pl.row_sum(e)), [i * ROWS, 0], out)
    return out


def reference(a: np.ndarray) -> np.ndarray:
    """The same in NumPy, in double precision."""
    e = np.exp(a.astype(np.float64) - a.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def main() -> float:
    """The largest error over two sizes, one compiled program for both."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for rows in (64, 256):
        a = (10 * rng.standard_normal((rows, COLS))).astype(np.float32)
        out = softmax(a, np.empty_like(a), config=RunConfig(platform="cpu"))
        worst = max(worst, float(abs(out - reference(a)).max()))
    return worst


if __name__ == "__main__":
    print(f"largest error {main():.1e}")
