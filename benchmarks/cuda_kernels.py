"""Kernels on a GPU by its own clock: transforms, elementwise work and lifts, and what share of the memory's speed they reach.

Run `python benchmarks/cuda_kernels.py [--n 16] [--limbs 40] [--bits 30] [--device cuda]`. A kernel is launched many times in one
CUDA graph, so that Python takes no part. The bandwidth is what a kernel must read and write at least, once per pass, over its
time; the share is of what a copy within the device reaches in the same run. Without a GPU it says so.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from ren_lab.backends import DeviceUnavailable, backend
from ren_lab.backends.cuda.backend import CudaBackend
from ren_lab.backends.cuda.kernel import Kernel
from ren_lab.backends.cuda.storage import Block, Storage
from ren_lab.ir import Axis, DType, Node, Op, Slot
from ren_lab.ring import Domain, RingSpec, find_primes


def connected(device: str) -> CudaBackend | None:
    """The backend of a GPU; says what is missing and gives None where there is none."""
    try:
        made = backend(device)
    except DeviceUnavailable as missing:
        print(f"nothing was measured: {missing}")
        return None
    if not isinstance(made, CudaBackend):
        print(f"nothing was measured: {device} is no GPU")
        return None
    return made


def kernel_milliseconds(place: CudaBackend, kernel: Kernel, storages: Sequence[Storage], repeats: int = 50) -> float:
    """The time of one run of a kernel: a graph of `repeats` runs is launched three times, and the fastest counts."""
    driver, queues = place.driver, place.queues
    temporaries = [Block(queues, 4 * rows * columns) for rows, columns in kernel.temporaries]
    argument = kernel.argument(0, [*(s.address for s in storages), *(block.address() for block in temporaries)])
    with queues.lock:
        queues.settle(storage.block for storage in storages)
    stream = driver.stream()
    driver.begin_capture(stream)
    for _ in range(repeats):
        kernel.launch(argument, stream)
    graph = driver.end_capture(stream)
    driver.upload_graph(graph, queues.compute)
    best = float("inf")
    for _ in range(4):  # the first one warms up, and is the slowest
        begin, end = driver.event(timed=True), driver.event(timed=True)
        driver.record(begin, queues.compute)
        driver.launch_graph(graph, queues.compute)
        driver.record(end, queues.compute)
        driver.synchronize(end)
        best = min(best, driver.milliseconds(begin, end) / repeats)
    return best


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
    """Name, body, how many inputs, and how many rows are read and written at least in a pass."""
    a, b, c, d = (_load(i, ring, Domain.NTT) for i in range(1, 5))
    coefficients, limbs = _load(1, ring, Domain.COEFF), ring.limbs

    def node(op: Op, *src: Node, arg: object = None) -> Node:
        return Node(op, DType.U32, src, arg)

    return {
        "NTT": (node(Op.NTT, coefficients), 1, 2 * limbs),
        "INTT": (node(Op.INTT, a), 1, 2 * limbs),
        "a + b": (node(Op.ADD, a, b), 2, 3 * limbs),
        "a * b": (node(Op.MUL, a, b), 2, 3 * limbs),
        "a * b + c * d": (node(Op.ADD, node(Op.MUL, a, b), node(Op.MUL, c, d)), 4, 5 * limbs),
        f"lift to {target.limbs} limbs": (node(Op.BASE_CONVERT, coefficients, arg=target), 1, limbs + target.limbs),
    }


def _copy_speed(place: CudaBackend, nbytes: int) -> float:
    """GB/s of a copy within the device, read and written bytes counted."""
    driver, queues, blocks = place.driver, place.queues, [Block(place.queues, nbytes) for _ in range(2)]
    target, source = (block.address() for block in blocks)
    best = float("inf")
    for _ in range(5):
        begin, end = driver.event(timed=True), driver.event(timed=True)
        driver.record(begin, queues.compute)
        for _ in range(20):
            driver.copy(target, source, nbytes, queues.compute)
        driver.record(end, queues.compute)
        driver.synchronize(end)
        best = min(best, driver.milliseconds(begin, end) / 20)
    return 2 * nbytes / best / 1e6


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, nargs="+", default=[13, 14, 15, 16, 17], help="log2 of the degrees")
    parser.add_argument("--limbs", type=int, default=40)
    parser.add_argument("--bits", type=int, default=30, help="of the moduli, at most 31")
    parser.add_argument("--copied", type=int, default=256, help="MiB that are copied to measure the memory's speed")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    place = connected(options.device)
    if place is None:
        return
    copying = _copy_speed(place, options.copied << 20)
    print(f"{options.device}: {place.description}; a copy within it moves {copying:.0f} GB/s")
    for log_n in options.n:
        n = 2**log_n
        moduli = find_primes(n, options.bits, options.limbs + options.limbs // 2)
        ring, target = RingSpec(n, moduli[: options.limbs]), RingSpec(n, moduli[options.limbs :])
        rng = np.random.default_rng(0)
        for name, (value, inputs, rows) in _cases(ring, target).items():
            kernel = place.compile(_kernel(value))
            assert isinstance(kernel, Kernel) and value.ring is not None
            arrays = [rng.integers(0, min(ring.moduli), (ring.limbs, n), dtype=np.uint32) for _ in range(inputs)]
            storages = [place.allocate((value.ring.limbs, n)), *map(place.from_host, arrays)]
            taken = kernel_milliseconds(place, kernel, storages)
            passes = len(kernel.program.launches)
            speed = passes * rows * 4 * n / taken / 1e6
            print(
                f"  n=2^{log_n}, {ring.limbs} limbs of {options.bits} bits, {name:20s} {1e3 * taken:9.1f} us, {passes} passes, "
                f"{speed:6.0f} GB/s, {speed / copying:5.0%}"
            )


if __name__ == "__main__":
    main()
