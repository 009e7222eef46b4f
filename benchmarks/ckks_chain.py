"""Ten steps of x = 2*x*x - 1 in CKKS, on any device: capture, times, errors.

Run `python benchmarks/ckks_chain.py [--params default] [--repeats 5] [--device NAME]`. Times are milliseconds, minimum/median.
Errors are measured on uniform inputs from [-1, 1]: "amplified" is the largest error / (1 + max |d x_end / d x_k|), which does not
depend on how steep the chain is. Single operations, and other libraries: `python benchmarks/peers`.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import ren_lab as ren
from ren_lab.schemes.ckks import Ciphertext, CKKSParams, decode, decrypt, encode, encrypt, keygen


def milliseconds(operation: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    operation()
    return 1e3 * (time.perf_counter() - start)


def errors(result: np.ndarray, values: np.ndarray, steps: int) -> str:
    """Median, largest and amplified error of a chain's result."""
    points = [values]
    for _ in range(steps):
        points.append(2 * points[-1] ** 2 - 1)
    slope, steepest = np.ones_like(values), np.zeros_like(values)
    for x in reversed(points[:-1]):
        slope = slope * 4 * x
        steepest = np.maximum(steepest, np.abs(slope))
    size = np.abs(result[: len(values)] - points[-1])
    return f"median {np.median(size):.2e}, largest {np.max(size):.2e}, amplified {np.max(size / (1 + steepest)):.2e}"


def main() -> None:
    """Read the command line, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--params", choices=["default", "python_test"], default="default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default=None)
    options = parser.parse_args()
    params = CKKSParams.default() if options.params == "default" else CKKSParams.python_test()
    values = np.random.default_rng(0).uniform(-1, 1, params.slot_count)

    def steps(x: Ciphertext) -> Ciphertext:
        for _ in range(params.depth):
            x = 2 * x * x - 1
        return x

    jitted = ren.jit(steps)
    with keygen(params, device=options.device) as ctx:
        print(f"{params!r} on {ctx.device}: {params.depth} steps of x = 2*x*x - 1")
        x = encrypt(encode(values)).realize()
        runs: dict[str, Callable[[], Ciphertext]] = {"eager": lambda: steps(x).realize(), "replayed": lambda: jitted(x)}
        print(f"first eager run     {milliseconds(runs['eager']):10.1f} ms")
        print(f"capture             {milliseconds(runs['replayed']):10.1f} ms")
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.repeats):
            for name, run in runs.items():
                times[name].append(milliseconds(run))
        for name, run in runs.items():
            print(f"{name:19} {min(times[name]):10.1f}/{statistics.median(times[name]):.1f} ms")
            print(f"  errors: {errors(np.real(decode(decrypt(run()))), values, params.depth)}")


if __name__ == "__main__":
    main()
