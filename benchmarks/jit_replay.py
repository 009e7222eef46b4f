"""What replay costs: against the bare kernels, in memory, beyond the native call, and against running eagerly.

Run it as `python benchmarks/jit_replay.py`. Ratios are of medians, measured alternating in one run.
"""

import contextlib
import functools
import gc
import resource
import statistics
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from peers.own import overhead

import ren_lab as ren
from ren_lab.backends import backend
from ren_lab.engine import clear_schedule_cache
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec, find_primes
from ren_lab.schemes.ckks import CKKSParams, encode, encrypt, keygen


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def replay_against_kernels() -> None:
    """A plan of 50 NumPy kernels at n = 8 against the same kernels, bound to their arrays, called in a loop."""
    ring = RingSpec(8, (17, 97))

    @ren.jit
    def fifty(x: Poly, y: Poly) -> Poly:
        for _ in range(50):
            x = (x * y + 1).contiguous()
        return x

    x, y = (Poly(c, ring, device="python").ntt().realize() for c in ([1, 2, 3], [4, 5]))
    fifty(x, y)
    (plan,) = fifty.plans
    program = plan.program
    frame = program.frame()
    for ident in program.places:
        place = program.places[ident]
        if frame[place] is None:
            frame[place] = backend(ident.device).allocate(ident.shape)
            frame[place][...] = 1
    calls = [(unit.call, [frame[s] for s in unit.slots]) for unit in program.units]

    def bare() -> None:
        for call, arguments in calls:
            call(*arguments)

    bound, replayed = [], []
    for _ in range(2000):
        bound.append(_seconds(bare))
        replayed.append(_seconds(lambda: fifty(x, y)))
    a, b = statistics.median(bound) * 1e6, statistics.median(replayed) * 1e6
    print(
        f"{len(calls)} NumPy kernels at n=8: bare loop {a:.1f} us, replay {b:.1f} us, "
        f"that is {b / a:.3f} x, or 1.15 x {b - 1.15 * a:+.1f} us"
    )

    for _ in range(200):
        fifty(x, y)
    gc.collect()
    tracemalloc.start()
    before, rss = tracemalloc.get_traced_memory()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10_000):
        fifty(x, y)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rss
    print(f"10,000 replays: Python memory {after - before:+d} bytes, peak resident set {grown:+d} KiB")


def beyond_the_native_call() -> None:
    """What Python adds to the native call of a replay: recognizing the call, binding, and making the results."""
    if not any(device.name == "cpu" and device.available for device in ren.devices()):
        print("\nthere is no C compiler, so replays make no native call")
        return
    ring = RingSpec(2**10, find_primes(2**10, 30, 3))
    rng = np.random.default_rng(1)
    x, y = (Poly(rng.integers(0, 2**60, 2**10), ring, device="cpu").ntt().realize() for _ in range(2))
    product = ren.jit(lambda x, y: (x * y).rotate(1) + x)
    nowhere = contextlib.nullcontext()
    calls = [("product and rotation of polynomials, n=2^10 x 3 limbs", nowhere, functools.partial(product, x, y), 2000)]
    for params, count in ((CKKSParams.python_test(), 2000), (CKKSParams.default(), 60)):
        with keygen(params, device="cpu") as ctx:
            c = encrypt(encode(rng.uniform(-1, 1, params.slot_count))).realize()
        steps = ren.jit(lambda c, depth=params.depth: functools.reduce(lambda c, _: 2 * c * c - 1, range(depth), c))
        name = f"{params.depth} steps on a ciphertext, n=2^{params.n.bit_length() - 1}"
        calls.append((name, ctx, functools.partial(steps, c), count))
    print("\nbeyond the native call, minimum/median in us, and the call itself")
    for name, where, call, count in calls:
        with where:
            call()
            found = overhead(call, count)
        least, median = found["beyond"]
        print(f"  {name:56} {least * 1e6:5.0f}/{median * 1e6:.0f}   {found['native'] * 1e6:8.0f}")


def chain() -> None:
    """x = 2*x*x - 1, ten times, at n = 2^12."""
    ring = RingSpec(4096, find_primes(4096, 30, 3))
    rng = np.random.default_rng(1)

    def fresh() -> Poly:
        return Poly(rng.integers(0, 2**60, 4096), ring).realize()

    def steps(x: Poly) -> Poly:
        for _ in range(10):
            x = 2 * x * x - 1
        return x

    clear_schedule_cache()
    jitted = ren.jit(steps)
    print("\nx = 2*x*x - 1 ten times, n=2^12 x 3 limbs")
    x = fresh()
    print(f"  eager, first       {_seconds(lambda: steps(x).realize()) * 1e3:8.2f} ms")
    eager = [_seconds(lambda x=fresh(): steps(x).realize()) for _ in range(30)]
    print(f"  eager, again       {statistics.median(eager) * 1e3:8.2f} ms (schedule cache)")
    clear_schedule_cache()
    x = fresh()
    print(f"  capture            {_seconds(lambda: jitted(x)) * 1e3:8.2f} ms")
    replayed = [_seconds(lambda x=fresh(): jitted(x)) for _ in range(30)]
    print(f"  replay             {statistics.median(replayed) * 1e3:8.2f} ms")


if __name__ == "__main__":
    replay_against_kernels()
    beyond_the_native_call()
    chain()
