"""How close the arena planner comes to the lower bound, and how long it takes, on the shapes of real programs.

Run `python benchmarks/arena.py [--repeats 5]`. Ratio is peak over lower bound, and "tlsf" the ratio of the allocator
model walking the schedule, without the other strategies; milliseconds are medians of whole calls of `plan_arenas`.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence

from ren_lab.memory import TLSF, BufferUse, format_bytes, plan_arenas

N = 2**15
LIMB_BYTES = 4 * N  # one residue polynomial, uint32[n]


class Program:
    """Records a program in which every operation writes one new buffer and is one position of the schedule."""

    def __init__(self) -> None:
        self.limbs: list[int] = []
        self.last: list[int] = []

    def emit(self, limbs: int, *operands: int) -> int:
        """Add an operation that reads `operands` and writes `limbs` limbs; return the number of the result."""
        position = len(self.limbs)
        for operand in operands:
            self.last[operand] = position
        self.limbs.append(limbs)
        self.last.append(position)
        return position

    def uses(self, *outputs: int) -> list[BufferUse]:
        """The requests, with `outputs` kept out of the arena."""
        end = len(self.limbs) - 1
        return [
            BufferUse(f"b{i}", "python", limbs * LIMB_BYTES, i, end, "final output")
            if i in outputs
            else BufferUse(f"b{i}", "python", limbs * LIMB_BYTES, i, last)
            for i, (limbs, last) in enumerate(zip(self.limbs, self.last))
        ]


def chain(length: int, limbs: Sequence[int]) -> list[BufferUse]:
    """Each operation reads the result before it; `limbs` is repeated along the chain."""
    program = Program()
    value = program.emit(limbs[0])
    for i in range(1, length):
        value = program.emit(limbs[i % len(limbs)], value)
    return program.uses(value)


def reduction(leaves: int, limbs: int, depth_first: bool) -> list[BufferUse]:
    """The sum of `leaves` values by halves, computed level by level or as early as possible."""
    program = Program()
    if not depth_first:
        values = [program.emit(limbs) for _ in range(leaves)]
        while len(values) > 1:
            sums = [program.emit(limbs, a, b) for a, b in zip(values[::2], values[1::2])]
            values = sums + values[2 * len(sums) :]
        return program.uses(values[0])
    waiting: list[tuple[int, int]] = []  # (height, value)
    for _ in range(leaves):
        height, value = 0, program.emit(limbs)
        while waiting and waiting[-1][0] == height:
            value = program.emit(limbs, waiting.pop()[1], value)
            height += 1
        waiting.append((height, value))
    value = waiting.pop()[1]
    while waiting:
        value = program.emit(limbs, waiting.pop()[1], value)
    return program.uses(value)


def butterfly(width: int, limbs: int) -> list[BufferUse]:
    """log2(width) stages, in each of which every value is combined with its partner."""
    program = Program()
    values = [program.emit(limbs) for _ in range(width)]
    distance = 1
    while distance < width:
        values = [program.emit(limbs, values[i], values[i ^ distance]) for i in range(width)]
        distance *= 2
    return program.uses(*values)


def switch_keys(program: Program, value: int, limbs: int, special: int, digits: int) -> tuple[int, int]:
    """Hybrid key switching: digits lifted into limbs + special, summed against the key, divided by the special part."""
    coefficients = program.emit(limbs, value)
    sums: list[int] = []
    for _ in range(digits):
        lifted = program.emit(limbs + special, program.emit(limbs + special, coefficients))
        sums = [program.emit(limbs + special, lifted, *sums[part : part + 1]) for part in range(2)]
    parts = []
    for total in sums:
        dropped = program.emit(special, total)
        correction = program.emit(limbs, program.emit(limbs, dropped))
        parts.append(program.emit(limbs, total, correction))
    return parts[0], parts[1]


def multiply(
    program: Program, left: tuple[int, int], right: tuple[int, int], limbs: int, special: int, digits: int
) -> tuple[int, int]:
    """CKKS product of `limbs` limbs, relinearized and rescaled to limbs - 1."""
    products = (
        program.emit(limbs, left[0], right[0]),
        program.emit(limbs, left[0], right[1], left[1], right[0]),
    )
    switched = switch_keys(program, program.emit(limbs, left[1], right[1]), limbs, special, digits)
    parts = []
    for product, correction in zip(products, switched):
        total = program.emit(limbs, product, correction)
        parts.append(program.emit(limbs - 1, total, program.emit(1, total)))
    return parts[0], parts[1]


def squarings(depth: int, special: int, digits: int) -> list[BufferUse]:
    """x = x * x again and again, one limb fewer each time."""
    program = Program()
    value = program.emit(depth + 1), program.emit(depth + 1)
    for limbs in range(depth + 1, 1, -1):
        value = multiply(program, value, value, limbs, special, digits)
    return program.uses(*value)


def power_series(depth: int, special: int, digits: int) -> list[BufferUse]:
    """All powers up to 2^depth, kept until one weighted sum of them: long-lived values of many sizes."""
    program = Program()
    top = depth + 2
    powers = {1: (program.emit(top), program.emit(top))}
    level = {1: top}
    for exponent in range(2, 2**depth + 1):
        half = exponent // 2
        limbs = min(level[half], level[exponent - half])
        powers[exponent] = multiply(program, powers[half], powers[exponent - half], limbs, special, digits)
        level[exponent] = limbs - 1
    least = min(level.values())
    total = [program.emit(least, part) for part in powers[1]]
    for exponent in range(2, 2**depth + 1):
        total = [program.emit(least, old, part) for old, part in zip(total, powers[exponent])]
    return program.uses(*total)


def matrix_product(giants: int, babies: int, limbs: int, special: int, digits: int) -> list[BufferUse]:
    """Baby-step giant-step product of an encrypted vector: rotated inputs live to the end, inner sums do not."""
    program = Program()
    source = program.emit(limbs), program.emit(limbs)

    def rotate(value: tuple[int, int]) -> tuple[int, int]:
        permuted = [program.emit(limbs, part) for part in value]
        switched = switch_keys(program, permuted[1], limbs, special, digits)
        return program.emit(limbs, permuted[0], switched[0]), switched[1]

    steps = [source, *(rotate(source) for _ in range(babies - 1))]
    total: list[int] = []
    for _ in range(giants):
        inner: list[int] = []
        for step in steps:
            terms = [program.emit(limbs, part) for part in step]
            inner = [program.emit(limbs, *inner[part : part + 1], terms[part]) for part in range(2)]
        outer = rotate((inner[0], inner[1]))
        total = [program.emit(limbs, *total[part : part + 1], outer[part]) for part in range(2)]
    return program.uses(*total)


def random_program(operations: int, most_limbs: int, distance: float) -> list[BufferUse]:
    """Operands lie `distance` operations back on average; sizes are uniform in 1 to `most_limbs`."""
    rng = random.Random(f"{operations} {most_limbs} {distance}")
    program = Program()
    for position in range(operations):
        operands = {position - 1 - int(rng.expovariate(1 / distance)) for _ in range(2)}
        program.emit(rng.randint(1, most_limbs), *(operand for operand in operands if operand >= 0))
    return program.uses(operations - 1)


SHAPES: dict[str, Callable[[], list[BufferUse]]] = {
    "chain, 8 limbs": lambda: chain(1_000, [8]),
    "chain, 7 and 8 limbs": lambda: chain(1_000, [8, 7, 8, 8, 7]),
    "chain, lifted and dropped": lambda: chain(1_000, [24, 32, 32, 8, 24, 24]),
    "reduction, level by level": lambda: reduction(500, 8, depth_first=False),
    "reduction, depth first": lambda: reduction(500, 8, depth_first=True),
    "butterfly, 64 values": lambda: butterfly(64, 8),
    "10 squarings, 3 digits": lambda: squarings(10, special=4, digits=3),
    "24 squarings, 4 digits": lambda: squarings(24, special=6, digits=4),
    "16 powers and their sum": lambda: power_series(4, special=3, digits=3),
    "matrix product, 8 x 8": lambda: matrix_product(8, 8, limbs=12, special=4, digits=3),
    "matrix product, 32 x 32": lambda: matrix_product(32, 32, limbs=24, special=6, digits=4),
    "random, 300, near operands": lambda: random_program(300, 24, distance=2),
    "random, 1000, far operands": lambda: random_program(1_000, 24, distance=100),
    "random, 10000, near operands": lambda: random_program(10_000, 24, distance=2),
    "random, 10000, far operands": lambda: random_program(10_000, 24, distance=30),
    "random, 10000, very far": lambda: random_program(10_000, 24, distance=1_000),
    "chain, 10000, 20 to 24 limbs": lambda: chain(10_000, random.Random(1).choices(range(20, 25), k=997)),
}


def walked_bytes(uses: Sequence[BufferUse]) -> int:
    """The arena of the allocator model when the schedule of one device runs once."""
    heap = TLSF()
    starting: dict[int, list[BufferUse]] = {}
    for use in uses:
        if use.reason is None:
            starting.setdefault(use.first, []).append(use)
    live: list[tuple[int, int]] = []  # (last, offset)
    for position in sorted(starting):
        for last, offset in live:
            if last < position:
                heap.free(offset)
        live = [(last, offset) for last, offset in live if last >= position]
        live += [(use.last, heap.alloc(use.nbytes)) for use in starting[position]]
    return heap.peak_bytes


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="calls per program, of which the median counts")
    repeats = max(1, parser.parse_args().repeats)
    print(f"n = {N}, {format_bytes(LIMB_BYTES)} per limb, medians of {repeats}")
    titles = ("buffers", "no reuse", "bound", "peak", "ratio", "tlsf", "ms")
    print(f"{'program':30}" + "".join(f"{title:>10}" for title in titles) + "  strategy")
    for name, shape in SHAPES.items():
        uses = shape()
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            plan = plan_arenas(uses)
            seconds.append(time.perf_counter() - start)
        sizes = (plan.unplanned_bytes, plan.lower_bound_bytes, plan.peak_bytes)
        print(
            f"{name:30}{len(uses):10}"
            + "".join(f"{format_bytes(size):>10}" for size in sizes)
            + f"{plan.overhead:10.3f}{walked_bytes(uses) / plan.lower_bound_bytes:10.3f}"
            + f"{1e3 * statistics.median(seconds):10.1f}  {plan.strategy}",
            flush=True,
        )


if __name__ == "__main__":
    main()
