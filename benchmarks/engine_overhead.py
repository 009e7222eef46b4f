"""What the engine adds to the arithmetic, and what compiling costs.

Prints three tables: a product and its parts called directly, side by side in one run; compiling programs of growing size, first
and again; and the shares of the passes. Run it as `python benchmarks/engine_overhead.py`.
"""

import random
import statistics
import time
from collections.abc import Callable

import numpy as np

import ren_lab as ren
from ren_lab.backends.python import arith
from ren_lab.engine import clear_schedule_cache, compile_sink, sink_of
from ren_lab.events import PassEnded, emitter, observe
from ren_lab.options import current
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec, find_primes


def paired(first: Callable[[], object], second: Callable[[], object], rounds: int = 25) -> tuple[float, float, float]:
    """Median seconds of both, alternating, and the median of the ratios first / second."""
    a, b = [], []
    for _ in range(rounds):
        for function, times in ((first, a), (second, b)):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
    return statistics.median(a), statistics.median(b), statistics.median(x / y for x, y in zip(a, b, strict=True))


def product_and_parts() -> None:
    """(a*b).intt() of realized coefficients against its three transforms and product, with NumPy."""
    print("(a*b).intt() of realized coefficient operands against three transforms and a product, called directly")
    for n, limbs in ((2**12, 3), (2**13, 8), (2**14, 8)):
        ring = RingSpec(n, find_primes(n, 30, limbs))
        rng = np.random.default_rng(1)
        x, y = (Poly(rng.integers(0, 2**62, n), ring, device="python").realize() for _ in range(2))
        raw = [rng.integers(0, min(ring.moduli), (limbs, n), dtype=np.uint32) for _ in range(2)]

        def engine() -> None:
            (x * y).intt().realize()

        def parts() -> None:
            arith.intt(arith.mul(arith.ntt(raw[0], ring), arith.ntt(raw[1], ring), ring), ring)

        engine(), parts()
        whole, sum_of_parts, ratio = paired(engine, parts)
        print(
            f"  n=2^{n.bit_length() - 1} x {limbs} limbs: {whole * 1e3:7.2f} ms, "
            f"parts {sum_of_parts * 1e3:7.2f} ms, ratio {ratio:.3f}"
        )


def program(operations: int, ring: RingSpec, seed: int = 0) -> list[Poly]:
    """A random program; every operation is needed for one of its outputs."""
    rng = random.Random(seed)
    pool = [Poly([i + 1, i], ring) for i in range(4)]
    for i in range(operations):
        a, b = pool[-1], rng.choice(pool[-8:-1])
        pool.append([lambda: a + b, lambda: a * b, lambda: a.rotate(1 + i % 5) - b, lambda: a * 3 + b][rng.randrange(4)]())
    return pool[-1:]


def compiling() -> None:
    """Explain programs of growing size, then compile the same structure again."""
    print("\ncompiling random programs (no kernel runs)")
    ring = RingSpec(4096, find_primes(4096, 30, 3))
    for operations in (100, 1000, 10000):
        clear_schedule_cache()
        outputs = program(operations, ring)
        start = time.perf_counter()
        trace = ren.Poly.explain(*outputs)
        explained = time.perf_counter() - start
        clear_schedule_cache()
        sink = sink_of([p.node for p in outputs])
        start = time.perf_counter()
        compiled, _ = compile_sink(sink, current())
        first = time.perf_counter() - start
        again = min(_seconds(lambda: compile_sink(sink, current())) for _ in range(5))
        print(
            f"  {operations:6d} operations: explain {explained:6.3f} s, compile {first * 1e3:8.1f} ms, "
            f"again {again * 1e3:7.2f} ms (1/{first / again:.0f}), {len(compiled.units)} items, {len(trace.passes)} passes"
        )


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def passes() -> None:
    """Where the time of a compilation goes."""
    print("\nshares of the passes, 3,000 operations")
    clear_schedule_cache()
    outputs = program(3000, RingSpec(4096, find_primes(4096, 30, 3)), seed=1)
    seconds: dict[str, float] = {}
    with observe(lambda r: seconds.update({r.name: r.seconds}) if isinstance(r, PassEnded) else None):
        compile_sink(sink_of([p.node for p in outputs]), current(), emitter())
    total = sum(seconds.values())
    for name, s in seconds.items():
        print(f"  {name:20s} {s * 1e3:7.1f} ms {100 * s / total:5.1f} %")


def chain() -> None:
    """A chain of 20,000 additions: no recursion anywhere."""
    clear_schedule_cache()  # so that collections of garbage do not go through all that was compiled before
    ring = RingSpec(8, (17, 97))
    terms = [Poly([i], ring) for i in range(64)]
    total = terms[0]
    for i in range(20_000):
        total = total + terms[i % 64]
    start = time.perf_counter()
    total.realize()
    print(f"\na chain of 20,000 additions realizes in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    product_and_parts()
    compiling()
    passes()
    chain()
