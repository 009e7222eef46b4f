"""The NumPy transforms of ren_lab beside plain radix-2 transforms that reduce with `uint64 %`.

    python benchmarks/ntt_numpy.py [--rounds 25] [--limbs 8]

Two plain transforms are measured: one that reduces everything with `%`, and one that does so for products only and
reduces sums by a comparison. All of them work on the same residues, vectorized over limbs and blocks, with factors
computed beforehand, and their results are compared first. Each round measures every transform once, in turn; the table gives
medians over the rounds and ratios of medians. What is measured is the processor time of the one thread in which all of
this runs, which the other work of a busy machine distorts least.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from ren_lab.backends.python import arith
from ren_lab.ring import RingSpec, find_primes, root_powers

SIZES = ((2**10, 30), (2**12, 30), (2**13, 30), (2**13, 31), (2**14, 30), (2**15, 30))


def plain(a: np.ndarray, roots: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Forward transform, uint64[limbs, n] in and out, every reduction a remainder."""
    x, (limbs, n), m = a.copy(), a.shape, 1
    while m < n:
        pairs = x.reshape(limbs, m, 2, n // (2 * m))
        u, v = pairs[:, :, 0], pairs[:, :, 1] * roots[:, m : 2 * m, None] % p
        pairs[:, :, 0], pairs[:, :, 1] = (u + v) % p, (u + p - v) % p
        m *= 2
    return x


def one_remainder(a: np.ndarray, roots: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The same with a remainder for products only; sums are reduced by the smaller of x and x - p modulo 2^64."""
    x, (limbs, n), m = a.copy(), a.shape, 1
    while m < n:
        pairs = x.reshape(limbs, m, 2, n // (2 * m))
        u, v = pairs[:, :, 0], pairs[:, :, 1] * roots[:, m : 2 * m, None] % p
        total, difference = u + v, u - v
        np.minimum(total, total - p, out=pairs[:, :, 0])
        np.minimum(difference, difference + p, out=pairs[:, :, 1])
        m *= 2
    return x


def seconds(function: Callable[[], object]) -> float:
    """Processor time of one call."""
    start = time.thread_time()
    function()
    return time.thread_time() - start


def main() -> None:
    """Measures each size and prints a line for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25, help="measurements of each transform (default: %(default)s)")
    parser.add_argument("--limbs", type=int, default=8, help="moduli of the rings (default: %(default)s)")
    options = parser.parse_args()
    print(
        f"{'ring':>24}  {'ntt':>9}  {'intt':>9}  {'plain':>9}  {'one %':>9}   {'plain/ntt':>9}  {'one %/ntt':>9}  {'intt/ntt':>8}"
    )
    for n, bits in SIZES:
        ring = RingSpec(n, find_primes(n, bits, options.limbs))
        p = np.array(ring.moduli, np.uint64)[:, None]
        roots = np.stack([root_powers(n, q) for q in ring.moduli]).astype(np.uint64)
        wide = np.random.default_rng(n).integers(0, p, (ring.limbs, n), np.uint64)
        a, out, back = wide.astype(np.uint32), np.empty(wide.shape, np.uint32), np.empty(wide.shape, np.uint32)
        p = p[:, :, None]
        transforms: dict[str, Callable[[], object]] = {
            "ntt": lambda a=a, ring=ring, out=out: arith.ntt(a, ring, out),
            "intt": lambda out=out, ring=ring, back=back: arith.intt(out, ring, back),
            "plain": lambda a=wide, roots=roots, p=p: plain(a, roots, p),
            "one %": lambda a=wide, roots=roots, p=p: one_remainder(a, roots, p),
        }
        results = {name: np.array(run()) for name, run in transforms.items()}
        assert (results["ntt"] == results["plain"]).all() and (results["ntt"] == results["one %"]).all()
        assert (results["intt"] == a).all()
        times: dict[str, list[float]] = {name: [] for name in transforms}
        for _ in range(options.rounds):
            for name, run in transforms.items():
                times[name].append(seconds(run))
        median = {name: statistics.median(values) for name, values in times.items()}
        label = f"n=2^{n.bit_length() - 1} × {ring.limbs}, {bits} bits"
        print(
            f"{label:>24}  "
            + "  ".join(f"{median[name] * 1e3:6.2f} ms" for name in transforms)
            + f"   {median['plain'] / median['ntt']:8.2f}x  {median['one %'] / median['ntt']:8.2f}x"
            + f"  {median['intt'] / median['ntt']:7.2f}x"
        )


if __name__ == "__main__":
    main()
