"""A matrix product in tiles: FP16 operands, FP32 sums, a task per tile of the result, the inner axis in blocks."""

import numpy as np

import ren_lab.language as pl
from ren_lab.runtime import RunConfig

M, N, K = 128, 96, 256
TM, TN, TK = 32, 32, 64  # extents of a tile


@pl.jit
def blocked_matmul(a: pl.Tensor[[M, K], pl.FP16], b: pl.Tensor[[K, N], pl.FP16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]):
    """c = a @ b."""
    for i in pl.parallel(M // TM):
        for j in pl.parallel(N // TN):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="tile"):
                row, column = i * TM, j * TN
                # the first block makes the sum, the others add to it; it never leaves the kernel before it is complete
                total = pl.matmul(a[row : row + TM, 0:TK], b[0:TK, column : column + TN], out_dtype=pl.FP32)
                for k in pl.range(1, K // TK):
                    x = pl.load(a, [row, k * TK], [TM, TK])
                    y = pl.load(b, [k * TK, column], [TK, TN])
                    total = pl.matmul_acc(total, x, y)
                c = pl.assemble(c, total, [row, column])
    return c


@pl.jit
def split_k(a: pl.Tensor[[M, K], pl.FP16], b: pl.Tensor[[K, N], pl.FP16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]):
    """The same with a task per block of the inner axis: the partial products meet in the ring heap."""
    parts = pl.create_tensor([K // TK, M, N], dtype=pl.FP32)
    for k in pl.parallel(K // TK):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="part"):
            product = pl.matmul(a[:, k * TK : (k + 1) * TK], b[k * TK : (k + 1) * TK, :], out_dtype=pl.FP32)
            parts[k, :, :] = product
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="sum_of_parts"):
        total = pl.full([M, N], pl.FP32, 0.0)
        for k in pl.range(K // TK):
            total = pl.add(total, parts[k, :, :])
        c[:] = total
    return c


def main() -> float:
    """The largest error of both."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((M, K)).astype(np.float16), rng.standard_normal((K, N)).astype(np.float16)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    errors = []
    for kernel in (blocked_matmul, split_k):
        c = kernel(a, b, np.empty((M, N), np.float32), config=RunConfig(platform="cpu"))
        errors.append(float(abs(c - expected).max()))
    return max(errors)


if __name__ == "__main__":
    print(f"largest error {main():.1e}")
