"""The text of a program after each pass of the language. Run this file to write it anew, and read the difference first."""

import pathlib

import numpy as np

import ren_lab.language as pl

GOLDEN = pathlib.Path(__file__).with_name("language_passes.txt")

PROGRAM = """
import ren_lab.language as pl

TILE = 4
M = pl.dynamic("M")


@pl.jit.inline
def scaled(x, factor):
    y = pl.mul(x, factor)
    return y


@pl.jit.incore
def total(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    out[0:1, :] = pl.col_sum(x)
    return out


@pl.jit
def program(a: pl.Tensor[[M, 8], pl.FP32], w: pl.Tensor, out: pl.Out[pl.Tensor], sums: pl.Out[pl.Tensor], n: pl.Scalar):
    tmp = pl.create_tensor([M, 8], dtype=pl.FP32)
    for i in pl.range(M // TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="first") as tid:
            pl.set_cache_policy(w, pl.CachePolicy.DEFAULT)
            t = pl.load(a, [i * TILE, 0], [TILE, 8])
            for k in pl.unroll(2):
                t = scaled(t, 2.0)
            pl.store(pl.matmul(t, w), [i * TILE, 0], tmp)
        if i < n:
            with pl.at(level=pl.Level.CORE_GROUP, deps=[tid]):
                out[i * TILE:(i + 1) * TILE, :] = pl.exp(tmp[i * TILE:(i + 1) * TILE, :])
    with pl.manual_scope():
        for j in pl.spmd(2, name_hint="edges"):
            out[j * (M - 1), 0] = 0.0
    sums = total(out[0:TILE, :], sums)
    return out, sums
"""


def text() -> str:
    """Every stage, with the rules that fired, and the code that runs."""
    arrays = [np.zeros(shape, np.float32) for shape in ((16, 8), (8, 8), (16, 8), (1, 8))]
    compiled = pl.parse(PROGRAM, "program.py").compile(*arrays, 3)
    parts = [f"# before\n\n{compiled.passes[0].before}"]
    for record in compiled.passes:
        rules = "".join(f"- {r.rule}: {r.equation}\n" for r in record.rewrites)
        parts.append(f"# {record.number} {record.name}\n\n{rules}\n{record.after}")
    parts.append(f"# code\n\n{compiled.source}")
    parts.extend(kernel.source for kernel in compiled.kernels.values())
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def test_the_stages_read_as_they_did() -> None:
    assert text() == GOLDEN.read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.write_text(text(), encoding="utf-8")
