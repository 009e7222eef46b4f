"""Causal self-attention of one head, a block of queries at a time: scores, softmax, weighted sum, each a task.

Scores and weights live in the ring heap, in the scope of the loop's body. A block's bytes are given back when its three tasks
have ended, so the heap need not hold the scores of all blocks. `show_rings` prints what the rings held.
"""

import numpy as np

import ren_lab.language as pl
from ren_lab.runtime import RunConfig, RunReport

LENGTH, WIDTH = 128, 32
ROWS = 16  # queries per block
SCALE = WIDTH**-0.5
HIDDEN = -1e30  # the score of a key that a query must not see


@pl.jit
def attention(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Out[pl.Tensor]):
    """out = what each query sees of the values."""
    for i in pl.range(LENGTH // ROWS):
        scores = pl.create_tensor([ROWS, LENGTH], dtype=pl.FP32)
        weights = pl.create_tensor([ROWS, LENGTH], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scores"):
            query = pl.load(q, [i * ROWS, 0], [ROWS, WIDTH])
            scores[:] = pl.mul(pl.matmul(query, k, b_trans=True), SCALE)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="weights"):
            positions = pl.full([ROWS, LENGTH], pl.INT32, 0)
            keys = pl.col_expand(positions, pl.arange(LENGTH))
            queries = pl.row_expand(positions, pl.add(pl.transpose(pl.arange(ROWS)), pl.cast(i * ROWS, pl.INT32)))
            x = pl.sel(keys <= queries, scores, HIDDEN)
            e = pl.row_expand_expdif(x, pl.row_max(x))
            weights[:] = pl.row_expand_div(e, pl.row_sum(e))
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="sums"):
            out[i * ROWS : (i + 1) * ROWS, :] = pl.matmul(weights, v)
    return out


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The same in NumPy, in double precision, all at once."""
    scores = q.astype(np.float64) @ k.T.astype(np.float64) * SCALE
    scores[np.triu_indices(LENGTH, 1)] = -np.inf
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ v


def inputs() -> list[np.ndarray]:
    """Queries, keys and values."""
    return list(np.random.default_rng(3).standard_normal((3, LENGTH, WIDTH), dtype=np.float32))


def main() -> float:
    """The largest error, with a heap that holds the scores and weights of two blocks."""
    q, k, v = inputs()
    config = RunConfig(platform="cpu", ring_heap=2 * 2 * ROWS * LENGTH * 4)
    out = attention(q, k, v, np.empty_like(q), config=config)
    return float(abs(out - reference(q, k, v)).max())


def show_rings() -> RunReport:
    """A run on the simulated chip, with its report: cube cores multiply, vector cores do the rest."""
    q, k, v = inputs()
    return attention.run(q, k, v, np.empty_like(q), config=RunConfig(platform="a2a3"), timeline=True)


if __name__ == "__main__":
    print(f"largest error {main():.1e}")
    print(show_rings())
