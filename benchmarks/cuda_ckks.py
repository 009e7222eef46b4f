"""CKKS on a GPU: single operations and ten steps of x = 2*x*x - 1, eager and replayed, and a replay beside the sum of its kernels.

Run `python benchmarks/cuda_ckks.py [--n 16] [--repeats 20] [--device cuda]`: once with the default parameters, once with 20 levels
at n = 2^16. Times are milliseconds, minimum/median. Work is handed to the GPU and waited for at the end of each repeat, which the
time contains. Without a GPU it says so.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from cuda_kernels import connected, kernel_milliseconds

import ren_lab as ren
from ren_lab.backends.cuda.backend import CudaBackend
from ren_lab.backends.cuda.kernel import Kernel
from ren_lab.schemes.ckks import Ciphertext, CKKSParams, decode, decrypt, encode, encrypt, keygen


def _timed(place: CudaBackend, operation: Callable[[], object], repeats: int) -> str:
    """Minimum/median of a repeated operation, everything that it starts included."""
    taken = []
    for number in range(repeats + 2):
        start = time.perf_counter()
        kept = operation()
        place.synchronize()
        if number > 1:
            taken.append(1e3 * (time.perf_counter() - start))
        del kept
    return f"{min(taken):8.3f}/{statistics.median(taken):.3f}"


def _kernel_sum(place: CudaBackend, function: object, x: Ciphertext) -> float:
    """The sum of the times of a captured function's kernels, each measured alone, in milliseconds."""
    (plan,) = function.plans  # type: ignore[attr-defined]
    program = plan.program
    frame = program.frame()
    for ident, number in program.places.items():
        if frame[number] is None:
            frame[number] = place.from_host(np.zeros(ident.shape, np.uint32))
    total, known = 0.0, {}
    for unit in program.units:
        if unit.item.kind == "view":
            frame[unit.slots[0]] = unit.call(frame[unit.slots[1]])
        else:
            assert isinstance(unit.call, Kernel)
            if unit.call not in known:  # kernels are equal where what they run is
                known[unit.call] = kernel_milliseconds(place, unit.call, [frame[s] for s in unit.slots], 20)
            total += known[unit.call]
    return total


def _graph_milliseconds(place: CudaBackend, operation: Callable[[], object], repeats: int) -> float:
    """The GPU's own time of one replay among many that follow each other."""
    driver, queues = place.driver, place.queues
    operation()
    begin, end = driver.event(timed=True), driver.event(timed=True)
    driver.record(begin, queues.compute)
    kept = [operation() for _ in range(repeats)]
    driver.record(end, queues.compute)
    driver.synchronize(end)
    del kept
    return driver.milliseconds(begin, end) / repeats


def _measure(place: CudaBackend, params: CKKSParams, repeats: int) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, params.slot_count)
    start = time.perf_counter()
    with keygen(params, rotations=[1], device=place.name):
        place.synchronize()
        print(f"{params!r}\n  {'keys, first compilation included':34s} {1e3 * (time.perf_counter() - start):8.1f}")
        x, y = (encrypt(encode(v)).realize() for v in (values, values[::-1].copy()))
        plain = encode(values).realize()
        factor = plain.transformed().realize()

        def steps(x: Ciphertext) -> Ciphertext:
            for _ in range(min(10, params.depth)):
                x = 2 * x * x - 1
            return x

        product, chain = ren.jit(lambda x, y: x * y), ren.jit(steps)
        rows: dict[str, Callable[[], object]] = {
            "encode": lambda: encode(values).realize(),
            "encrypt": lambda: encrypt(plain).realize(),
            "decrypt and decode": lambda: decode(decrypt(x)),
            "add": lambda: (x + y).realize(),
            "multiply by a plaintext, rescale": lambda: (x * factor).realize(),
            "multiply, relinearize, rescale": lambda: (x * y).realize(),
            "the same, replayed": lambda: product(x, y).realize(),
            "rotate": lambda: x.rotate(1).realize(),
            f"{min(10, params.depth)} steps, eager": lambda: steps(x).realize(),
            f"{min(10, params.depth)} steps, replayed": lambda: chain(x).realize(),
        }
        for name, operation in rows.items():
            print(f"  {name:34s} {_timed(place, operation, repeats)}")
        for name, function, arguments in (("multiply", product, (x, y)), ("chain", chain, (x,))):
            alone = _kernel_sum(place, function, x)
            replay = _graph_milliseconds(place, lambda: function(*arguments).realize(), repeats)
            (plan,) = function.plans
            graph = plan.replay.runner
            print(f"  {name}: {len(plan.kernels)} kernels, {graph}, {replay:.3f} replayed, {alone:.3f} alone, {replay / alone:.3f}")
        expected = values
        for _ in range(min(10, params.depth)):
            expected = 2 * expected**2 - 1
        error = np.abs(np.real(decode(decrypt(chain(x))))[: len(values)] - expected)
        print(f"  median error of the chain: {np.median(error):.1e}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=16, help="log2 of the larger degree")
    parser.add_argument("--depth", type=int, default=20, help="levels at the larger degree")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--insecure", action="store_true", help="accept any degree, and skip the default parameters")
    options = parser.parse_args(arguments)
    place = connected(options.device)
    if place is None:
        return
    print(f"{options.device}: {place.description}")
    if not options.insecure:
        _measure(place, CKKSParams.default(), options.repeats)
    larger = CKKSParams.build(depth=options.depth, precision_bits=20, n=2**options.n, insecure=options.insecure)
    _measure(place, larger, options.repeats)


if __name__ == "__main__":
    main()
