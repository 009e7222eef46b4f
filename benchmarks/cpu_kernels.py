"""The native backend's kernels against the NumPy backend's, side by side in one run, for each width of vectors and thread count.

Minima and the ratio of medians; the two alternate. Run it as `python benchmarks/cpu_kernels.py [--n 15] [--limbs 8] [--bits 30]`.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from ren_lab.backends import PythonBackend
from ren_lab.backends.cpu import CpuBackend
from ren_lab.backends.cpu.backend import available_threads
from ren_lab.ir import Axis, DType, Node, Op, Slot
from ren_lab.ring import Domain, RingSpec, find_primes


def _load(slot: int, ring: RingSpec, domain: Domain) -> Node:
    place = Node(Op.SLOT, DType.U32, (), Slot(slot, (ring.limbs, ring.n)))
    axes = [Node(Op.GIDX, DType.INDEX, (), axis) for axis in (Axis("limb", ring.limbs), Axis("coefficient", ring.n))]
    load = Node(Op.LOAD, DType.U32, (Node(Op.INDEX, DType.INDEX, (place, *axes)),))
    return Node(Op.AS_RING, DType.U32, (load,), (ring, domain))


def _kernel(value: Node) -> Node:
    ring = value.ring
    assert ring is not None
    return Node(Op.STORE, DType.VOID, (_load(0, ring, Domain.NTT).src[0].src[0], value))


def _cases(ring: RingSpec, target: RingSpec) -> dict[str, tuple[Node, int, int]]:
    """Name, body, how many inputs, and how many results it counts per limb and coefficient."""
    a, b, c, d = (_load(i, ring, Domain.NTT) for i in range(1, 5))
    coefficients = _load(1, ring, Domain.COEFF)
    log_n = ring.n.bit_length() - 1

    def node(op: Op, *src: Node, arg: object = None) -> Node:
        return Node(op, DType.U32, src, arg)

    return {
        "NTT": (node(Op.NTT, coefficients), 1, log_n * ring.limbs // 2),
        "INTT": (node(Op.INTT, a), 1, log_n * ring.limbs // 2),
        "a + b": (node(Op.ADD, a, b), 2, ring.limbs),
        "a * b": (node(Op.MUL, a, b), 2, ring.limbs),
        "a * b + c * d": (node(Op.ADD, node(Op.MUL, a, b), node(Op.MUL, c, d)), 4, ring.limbs),
        f"lift to {target.limbs} limbs": (
            node(Op.BASE_CONVERT, coefficients, arg=target), 1, target.limbs * (ring.limbs + 1) + 2 * ring.limbs
        ),
    }  # fmt: skip


def _paired(functions: list[Callable[[], object]], seconds: float) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in functions]
    for function in functions:
        function()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for function, taken in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, nargs="+", default=[13, 15], help="log2 of the degrees")
    parser.add_argument("--limbs", type=int, default=8)
    parser.add_argument("--bits", type=int, default=30, help="of the moduli, at most 31")
    parser.add_argument("--seconds", type=float, default=0.4, help="per case")
    options = parser.parse_args()

    python = PythonBackend()
    native = {
        f"{words}, {t} threads": CpuBackend(words=words, threads=t) for words, t in (("scalar", 1), ("avx2", 1), ("native", 1))
    }
    every = available_threads()
    if every > 1:
        native[f"native, {every} threads"] = CpuBackend(threads=every)
    print("minimum; ns per unit (butterfly, element, product of a lift); ratio of medians NumPy / native")
    for log_n in options.n:
        moduli = find_primes(2**log_n, options.bits, 2 * options.limbs)
        ring, target = RingSpec(2**log_n, moduli[: options.limbs]), RingSpec(2**log_n, moduli[options.limbs :])
        rng = np.random.default_rng(0)
        for name, (value, inputs, units) in _cases(ring, target).items():
            print(f"n=2^{log_n}, {ring.limbs} limbs of {options.bits} bits: {name}")
            body = _kernel(value)
            arrays = [rng.integers(0, min(ring.moduli), (ring.limbs, ring.n), dtype=np.uint32) for _ in range(inputs)]
            calls: dict[str, Callable[[], object]] = {}
            for label, place in {"NumPy": python, **native}.items():
                storages = [place.allocate((value.ring.limbs, ring.n)), *map(place.from_host, arrays)]  # type: ignore[union-attr]
                calls[label] = lambda run=place.compile(body), storages=storages: run(*storages)
            times = dict(zip(calls, _paired(list(calls.values()), options.seconds), strict=True))
            base = statistics.median(times["NumPy"])
            for label, taken in times.items():
                each = min(taken) / (units * ring.n) * 1e9
                print(f"  {label:20s} {min(taken) * 1e6:10.1f} us {each:8.3f} ns {base / statistics.median(taken):8.1f} x")


if __name__ == "__main__":
    main()
