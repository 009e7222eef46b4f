"""What the language adds: to submission, to kernels, and once per program.

    python benchmarks/language_overhead.py [--tasks 20000] [--repeats 7]

- submitting: the same tasks through `pl` and through `orch.submit` by hand, in turn, on the simulator and on threads;
- kernels: the compiled kernel of a softmax, called directly, beside the same arithmetic written in NumPy, for tiles of
  several sizes;
- compiling: parsing and decoration, passes, and code, for programs of growing length, and a call that finds its program;
- nesting: the same for loops in loops whose bodies change names.

Two things that are compared run in turn; ratios are of medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ren_lab.language as pl
from ren_lab.runtime import RunConfig, Worker


def in_turn(repeats: int, *actions: Callable[[], Any]) -> list[float]:
    """Median seconds of each action; they take turns."""
    times: list[list[float]] = [[] for _ in actions]
    for action in actions:
        action()
    for _ in range(repeats):
        for action, found in zip(actions, times):
            start = time.perf_counter()
            action()
            found.append(time.perf_counter() - start)
    return [statistics.median(found) for found in times]


@pl.jit(auto_scope=False)
def many(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.Scalar):
    """A small task per row, 64 in a scope."""
    for i in pl.range(n // 64):
        with pl.scope():
            for j in pl.range(64):
                with pl.at(level=pl.Level.CORE_GROUP):
                    t = pl.load(a, [i * 64 + j, 0], [1, 16])
                    pl.store(pl.mul(t, 3.0), [i * 64 + j, 0], out)


def by_hand(a: np.ndarray, out: np.ndarray) -> Callable[[Any], None]:
    """The same tasks without the language."""

    def kernel(source: np.ndarray, target: np.ndarray) -> None:
        target[...] = source * 3.0

    def program(orch: Any) -> None:
        for i in range(len(a) // 64):
            with orch.scope():
                for j in range(i * 64, i * 64 + 64):
                    orch.submit(kernel, [a[j : j + 1]], [out[j : j + 1]])

    return program


def submitting(tasks: int, repeats: int) -> None:
    """Microseconds per task."""
    a = np.ones((tasks // 64 * 64, 16), np.float32)
    out = np.empty_like(a)
    print("submitting        language    by hand      ratio   (µs per task)")
    for platform in ("sim", "cpu"):
        config = RunConfig(platform=platform, workers=2)

        def direct(config: RunConfig = config) -> None:
            with Worker(config) as worker:
                worker.run(by_hand(a, out), root=False)

        language, hand = in_turn(repeats, lambda config=config: many(a, out, len(a), config=config), direct)
        print(f"  {platform:<12}{1e6 * language / len(a):>12.1f}{1e6 * hand / len(a):>11.1f}{language / hand:>11.2f}")


@pl.jit
def softmax(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    """One tile."""
    with pl.at(level=pl.Level.CORE_GROUP):
        x = pl.load(a, [0, 0], [a.shape[0], a.shape[1]])
        e = pl.row_expand_expdif(x, pl.row_max(x))
        pl.store(pl.row_expand_div(e, pl.row_sum(e)), [0, 0], out)


def plain_softmax(a: np.ndarray, out: np.ndarray) -> None:
    """The same arithmetic."""
    e = np.exp(a - a.max(axis=1, keepdims=True))
    out[...] = e / e.sum(axis=1, keepdims=True)


def kernels(repeats: int) -> None:
    """Microseconds per call."""
    print("kernels           language      NumPy      ratio   (µs per call)")
    for rows, cols in ((8, 16), (64, 128), (512, 512)):
        a = np.random.default_rng(0).standard_normal((rows, cols), dtype=np.float32)
        out = np.empty_like(a)
        calls = max(1, 200_000 // a.size)
        (kernel,) = softmax.compile(a, out).kernels.values()
        run = kernel.function

        def compiled(a: np.ndarray = a, out: np.ndarray = out, calls: int = calls, run: Any = run) -> None:
            for _ in range(calls):
                run(a, out)

        def plain(a: np.ndarray = a, out: np.ndarray = out, calls: int = calls) -> None:
            for _ in range(calls):
                plain_softmax(a, out)

        language, numpy = in_turn(repeats, compiled, plain)
        print(f"  {rows} x {cols:<9}{1e6 * language / calls:>10.1f}{1e6 * numpy / calls:>11.1f}{language / numpy:>11.2f}")


def long_program(blocks: int) -> str:
    """A program of so many kernels, each with a loop and a branch."""
    lines = ["import ren_lab.language as pl", "", "@pl.jit", "def program(a: pl.Tensor, out: pl.InOut[pl.Tensor], n: pl.Scalar):"]
    for k in range(blocks):
        lines += [
            "    for i in pl.range(n):",
            "        with pl.at(level=pl.Level.CORE_GROUP):",
            f"            t = pl.load(a, [i, {k % 8}], [1, 4])",
            "            for j in pl.range(3):",
            f"                t = pl.add(pl.mul(t, {k}.5), {k}.25)",
            "            if i < 2:",
            f"                pl.store(t, [i, {k % 8}], out)",
        ]
    return "\n".join(lines)


def compiling(repeats: int) -> None:
    """Milliseconds per program, and microseconds of a call that finds it compiled."""
    print("compiling          parsing     passes    compile   a call    (ms, the call in µs)")
    a = np.ones((16, 16), np.float32)
    out = np.empty_like(a)
    for blocks in (1, 10, 100):
        text = long_program(blocks)
        rounds = max(1, repeats // 3)
        parsing, lowering, compiling_ = in_turn(
            rounds, lambda: pl.parse(text), lambda: pl.parse(text).lower(a, out, 0), lambda: pl.parse(text).compile(a, out, 0)
        )
        program = pl.parse(text)
        config = RunConfig(platform="sim")
        (call,) = in_turn(repeats, lambda: program(a, out, 0, config=config))
        print(
            f"  {blocks:>4} kernels{1e3 * parsing:>12.1f}{1e3 * (lowering - parsing):>11.1f}"
            f"{1e3 * (compiling_ - parsing):>11.1f}{1e6 * call:>9.0f}"
        )


def deep_program(depth: int) -> str:
    """Loops in loops, each of which changes a name that the others read."""
    lines = [
        "import ren_lab.language as pl",
        "",
        "@pl.jit",
        "def program(a: pl.Tensor, out: pl.InOut[pl.Tensor], n: pl.Scalar):",
        " x = n",
    ]
    for k in range(depth):
        lines += [" " * (k + 1) + f"for i{k} in pl.range(n):", " " * (k + 2) + "x = x + 1"]
    lines += [" " * (depth + 1) + "with pl.at(level=pl.Level.CORE_GROUP):", " " * (depth + 2) + "out[:] = pl.mul(a, 2.0)"]
    return "\n".join(lines)


def nesting(repeats: int) -> None:
    """Milliseconds per program."""
    print("nesting            parsing    compile    (ms)")
    a = np.ones((16, 16), np.float32)
    out = np.empty_like(a)
    for depth in (1, 4, 16, 32):
        text = deep_program(depth)
        parsing, compiling_ = in_turn(max(1, repeats // 3), lambda: pl.parse(text), lambda: pl.parse(text).compile(a, out, 0))
        print(f"  {depth:>4} loops  {1e3 * parsing:>12.1f}{1e3 * (compiling_ - parsing):>11.1f}")


def main() -> None:
    """Everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    submitting(options.tasks, options.repeats)
    kernels(options.repeats)
    compiling(options.repeats)
    nesting(options.repeats)


if __name__ == "__main__":
    main()
