"""CUDA programs, run on the host from their own text, equal the NumPy backend bit for bit, in whatever order threads run."""

import importlib.util
import pathlib
import random

import chacha
import cuda_emulation
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ren_lab.backends import backend
from ren_lab.backends.cuda.program import header, program
from ren_lab.backends.python import arith, sampling
from ren_lab.backends.python.sampling import insecure_seeded_randomness_for_tests
from ren_lab.ir import Axis, DType, LimbSelect, Node, Op, Slot
from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec, find_primes, primitive_root
from ren_lab.schemes.ckks import CKKSParams, encode, encrypt, keygen


def _random_programs():
    """The generator of random programs, from the native backend's test."""
    place = pathlib.Path(__file__).with_name("test_cpu_programs.py")
    spec = importlib.util.spec_from_file_location("programs_for_cuda", place)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made.program


random_program = _random_programs()


# --------------------------------------------------------------------------------------------------------------------
# Kernel bodies by hand


def axis(name: str, extent: int) -> Node:
    return Node(Op.GIDX, DType.INDEX, (), Axis(name, extent))


def index(slot: int, shape: tuple[int, int], row: Node | None = None) -> Node:
    place = Node(Op.SLOT, DType.U32, (), Slot(slot, shape))
    return Node(Op.INDEX, DType.INDEX, (place, row or axis("limb", shape[0]), axis("coefficient", shape[1])))


def load(slot: int, ring: RingSpec, domain: Domain, rows: int | None = None, row: Node | None = None) -> Node:
    at = index(slot, (rows or ring.limbs, ring.n), row)
    return Node(Op.AS_RING, DType.U32, (Node(Op.LOAD, DType.U32, (at,)),), (ring, domain))


def apply(op: Op, *src: Node, arg: object = None) -> Node:
    return Node(op, DType.U32, src, arg)


def body(*values: Node) -> Node:
    """Stores values, in the slots from 0 on."""
    stores = [
        Node(Op.STORE, DType.VOID, (index(slot, (value.ring.limbs, value.ring.n)), value))  # type: ignore[union-attr]
        for slot, value in enumerate(values)
    ]
    return stores[0] if len(stores) == 1 else Node(Op.GROUP, DType.VOID, tuple(stores))


def evaluated(node: Node, slots: dict[int, np.ndarray]) -> np.ndarray:
    """The value of an expression, each operation by its helper for whole arrays."""
    ring = node.ring
    assert ring is not None
    if node.op is Op.AS_RING:
        place, row, _ = node.src[0].src[0].src
        rows = list(row.arg.indices) if row.op is Op.PERMUTE else slice(None)
        return slots[place.arg.number][rows]
    if node.op is Op.TO_RNS:
        return arith.to_rns(slots[node.src[0].src[0].src[0].arg.number], ring)
    values = [evaluated(source, slots) for source in node.src]
    match node.op:
        case Op.ADD | Op.SUB | Op.MUL | Op.NEG | Op.NTT | Op.INTT:
            return getattr(arith, node.op.name.lower())(*values, ring)
        case Op.BASE_CONVERT:
            return arith.base_convert(values[0], node.src[0].ring, ring)
        case Op.DOT:
            total = np.zeros((ring.limbs, ring.n), np.uint32)
            for a, b in zip(values[::2], values[1::2]):
                total = arith.add(total, arith.mul(a, b, ring), ring)
            return total
        case Op.JOIN:
            of = {p: row for source, value in zip(node.src, values) for p, row in zip(source.ring.moduli, value)}
            return np.array([of[p] for p in ring.moduli])
    raise NotImplementedError(node.op)


def check(ast: Node, inputs: list[np.ndarray], device: cuda_emulation.Device = cuda_emulation.DEVICE) -> cuda_emulation.Kernel:
    """The program of a body gives what its operations give one by one. Inputs stand in the slots behind the outputs."""
    cuda_emulation.compiler()
    values = [store.src[1] for store in (ast.src if ast.op is Op.GROUP else (ast,))]
    kernel = cuda_emulation.Kernel(program(ast, device), len(values))
    got = [cuda_emulation.aligned(kernel.program.shapes[i]) for i in range(len(values))]
    kernel(*got, *map(backend(cuda_emulation.device()).from_host, inputs))
    slots = {len(values) + i: x for i, x in enumerate(inputs)}
    for out, value in zip(got, values):
        assert np.array_equal(out, evaluated(value, slots))
    return kernel


def residues(ring: RingSpec, seed: int) -> np.ndarray:
    """uint32[limbs, n] in [0, p): both ends of the range, and random ones."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, p, ring.n) for p in ring.moduli]
    for row, p in zip(rows, ring.moduli):
        row[rng.integers(0, ring.n, ring.n // 4)] = p - 1
        row[rng.integers(0, ring.n, ring.n // 4)] = 0
    return np.array(rows, np.uint32)


def highest(ring: RingSpec) -> np.ndarray:
    return np.repeat(np.array(ring.moduli, np.uint32)[:, None] - 1, ring.n, axis=1)


def moduli(n: int, bits: int, count: int) -> tuple[int, ...]:
    return tuple(oracle.largest_primes(n, bits, count)) if n < 2**13 else tuple(find_primes(n, bits, count))


# --------------------------------------------------------------------------------------------------------------------
# Programs


@pytest.mark.parametrize(("device", "examples"), [("emulated", 10), ("emulated-small", 4)])
def test_random_programs_equal_numpy(device: str, examples: int) -> None:
    name = cuda_emulation.device(device)

    @given(seed=st.integers(0, 2**32), log_n=st.integers(1, 7), limbs=st.integers(1, 8), steps=st.integers(1, 12))
    @settings(max_examples=examples, deadline=None)
    def run(seed: int, log_n: int, limbs: int, steps: int) -> None:
        assert random_program(seed, 2**log_n, limbs, steps, name) == random_program(seed, 2**log_n, limbs, steps, "python")

    run()


@pytest.mark.parametrize(("log_n", "limbs"), [(9, 16), (14, 2)], ids=str)
def test_larger_programs_equal_numpy(log_n: int, limbs: int) -> None:
    """The second has transforms of two launches within its expressions."""
    device = cuda_emulation.device()
    assert random_program(log_n, 2**log_n, limbs, 9, device) == random_program(log_n, 2**log_n, limbs, 9, "python")


def test_ckks_equals_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, encryption with its draws, products, a rotation and a rescaled sum."""
    params = CKKSParams.build(depth=2, precision_bits=18, n=64, insecure=True)

    def run(device: str) -> list[bytes]:
        generator = sampling.InsecureSeededGenerator("ckks")  # keys are made outside of every context
        monkeypatch.setattr(sampling, "_shared", lambda: generator)
        with keygen(params, rotations=[3], device=device):
            x, y = (encrypt(encode(np.arange(params.slot_count) / 100 + i / 2)) for i in range(2))
            z = (x * y + x).rotate(3) * y
            return [p.tobytes() for p in (x.a, x.b, z.a, z.b)]

    assert run(cuda_emulation.device()) == run("python")


# --------------------------------------------------------------------------------------------------------------------
# Transforms


def both_ways(ring: RingSpec) -> list[Node]:
    return [apply(Op.NTT, load(1, ring, Domain.COEFF)), apply(Op.INTT, load(1, ring, Domain.NTT))]


@pytest.mark.parametrize("log_n", range(1, 18), ids=lambda k: f"n=2^{k}")
def test_transforms_equal_numpy(log_n: int) -> None:
    """Moduli on both sides of 2^30, where the arithmetic changes, up to 2^31; all values at the upper end as well."""
    n = 2**log_n
    one_each = [moduli(n, bits, 1)[0] for bits in (31, 30, max(20, log_n + 3))]
    ring = RingSpec(n, tuple(dict.fromkeys(one_each if log_n < 16 else one_each[:2])))
    for value in both_ways(ring):
        kernel = check(body(value), [residues(ring, log_n)])
        launches = len(kernel.program.launches)
        assert launches == (1 if log_n <= 13 else 2)
        each = 4 * n * ring.limbs * launches * len(kernel.orders)  # bytes: one load and one store per residue and launch
        assert kernel.counts[0] == kernel.counts[1] == each
        if log_n < 15:
            check(body(value), [highest(ring)])


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32, 64, 128], ids=lambda n: f"n={n}")
def test_the_transform_is_evaluation_at_the_roots(n: int) -> None:
    p = moduli(n, 31, 1)[0]
    ring = RingSpec(n, (p,))
    x, out = residues(ring, n), cuda_emulation.aligned((1, n))
    place = backend(cuda_emulation.device())
    place.compile(body(apply(Op.NTT, load(1, ring, Domain.COEFF))))(out, place.from_host(x))
    assert out[0].tolist() == oracle.ntt(x[0].tolist(), primitive_root(n, p), p)


@pytest.mark.parametrize("n", [2, 64, 2**14], ids=lambda n: f"n={n}")
@pytest.mark.parametrize("forward", [True, False], ids=["NTT", "INTT"])
def test_what_is_around_a_transform_is_part_of_it(n: int, forward: bool) -> None:
    """Sums before it and products after it, its own value stored as well or not: as many launches as it has alone."""
    ring = RingSpec(n, moduli(n, 31, 1) + moduli(n, 29, 1))
    op, before, after = (Op.NTT, Domain.COEFF, Domain.NTT) if forward else (Op.INTT, Domain.NTT, Domain.COEFF)
    for outputs in (1, 2):
        first, second, third = (outputs + i for i in range(3))
        value = apply(op, apply(Op.SUB, load(first, ring, before), load(second, ring, before)))
        last = load(third, ring, after)
        made = apply(Op.ADD, apply(Op.MUL, value, last) if forward else apply(Op.NEG, value), last)
        ast = body(made) if outputs == 1 else body(made, value)
        kernel = check(ast, [residues(ring, seed) for seed in (1, 2, 3)])
        launches = len(kernel.program.launches)
        assert launches == (1 if n <= 2**13 else 2)
        per_residue = 3 + launches - 1, outputs + launches - 1
        assert (kernel.counts[:2] == [4 * n * ring.limbs * len(kernel.orders) * c for c in per_residue]).all()


# --------------------------------------------------------------------------------------------------------------------
# Sums of products


@pytest.mark.parametrize("device", [cuda_emulation.DEVICE, cuda_emulation.SMALL], ids=lambda d: d.name)
@pytest.mark.parametrize("bits", [20, 31])
@pytest.mark.parametrize(("source", "target"), [(1, 1), (1, 6), (3, 21), (40, 3), (5, 9)], ids=str)
def test_conversions_equal_numpy(device: cuda_emulation.Device, bits: int, source: int, target: int) -> None:
    """Sums that stay below 2^64 and sums that are folded on the way; one, two and four rows of the result for a thread."""
    n = 256
    some = moduli(n, bits, source + target)
    src, dst = RingSpec(n, some[:source]), RingSpec(n, some[source:])
    ast = body(apply(Op.BASE_CONVERT, load(1, src, Domain.COEFF), arg=dst))
    kernel = check(ast, [residues(src, 1)], device)
    check(ast, [highest(src)], device)
    if device is cuda_emulation.SMALL:  # with 8 groups of threads
        assert f"lifted0[{1 if target <= 8 else 2 if target <= 16 else 4}]" in kernel.program.code


@pytest.mark.parametrize("n", [512, 2**14], ids=lambda n: f"n={n}")
def test_conversions_of_many_columns(n: int) -> None:
    some = moduli(n, 30, 13)
    src, dst = RingSpec(n, some[:4]), RingSpec(n, some[4:])
    check(body(apply(Op.BASE_CONVERT, load(1, src, Domain.COEFF), arg=dst)), [residues(src, 1)], cuda_emulation.SMALL)


@pytest.mark.parametrize("bits", [20, 31])
@pytest.mark.parametrize(("n", "count"), [(2, 1), (2, 70), (64, 2), (64, 9), (64, 70), (4, 3500)], ids=str)
def test_digits_are_the_residues_of_their_integers(bits: int, n: int, count: int) -> None:
    """The last case takes more shared memory than a block has without asking."""
    ring = RingSpec(n, moduli(n, bits, 5))
    words = np.random.default_rng(count).integers(0, 2**32, (count, n), dtype=np.uint32)
    words[:, 0] = 0xFFFF_FFFF
    place = Node(Op.SLOT, DType.U32, (), Slot(1, words.shape))
    at = Node(Op.INDEX, DType.INDEX, (place, axis("word", count), axis("coefficient", n)))
    value = apply(Op.TO_RNS, Node(Op.LOAD, DType.U32, (at,)), arg=(ring, count))
    integers = [sum(int(digit) << 32 * i for i, digit in enumerate(column)) for column in words.T]
    device, out = backend(cuda_emulation.device()), cuda_emulation.aligned((5, n))
    device.compile(body(value))(out, device.from_host(words))
    assert out.tolist() == [[oracle.montgomery(v, p) for v in integers] for p in ring.moduli]


@pytest.mark.parametrize("terms", [1, 2, 3, 9])
@pytest.mark.parametrize("bits", [20, 31])
def test_products_are_summed_before_they_are_reduced(terms: int, bits: int) -> None:
    n = 16
    ring = RingSpec(n, moduli(n, bits, 2))
    dot = apply(Op.DOT, *[load(1 + i, ring, Domain.NTT) for i in range(2 * terms)])
    check(body(dot), [residues(ring, i) for i in range(2 * terms)])
    check(body(dot), [highest(ring)] * (2 * terms))


# --------------------------------------------------------------------------------------------------------------------
# Bodies beyond what schedules make


@pytest.mark.parametrize("n", [4, 256], ids=lambda n: f"n={n}")
def test_transforms_and_conversions_within_one_another(n: int) -> None:
    some = moduli(n, 31, 9)
    a, b, c = RingSpec(n, some[:3]), RingSpec(n, some[3:8]), RingSpec(n, (some[8], some[0]))
    picked = Node(Op.PERMUTE, DType.INDEX, (axis("limb", 3),), LimbSelect(a, (4, 0, 2)))
    x, y = residues(a, 1), residues(b, 2)
    y[[4, 0, 2]] %= np.array(a.moduli, np.uint32)[:, None]  # rows that are read as ones of other moduli
    total = apply(Op.SUB, load(1, a, Domain.COEFF), load(2, a, Domain.COEFF, 5, picked))
    inner = apply(Op.BASE_CONVERT, total, arg=b)
    outer = apply(Op.BASE_CONVERT, apply(Op.NEG, inner), arg=c)
    transformed = apply(Op.NTT, outer)
    check(body(apply(Op.INTT, apply(Op.MUL, transformed, transformed))), [x, y])


@pytest.mark.parametrize("n", [8, 128], ids=lambda n: f"n={n}")
def test_several_outputs_share_what_they_have_in_common(n: int) -> None:
    """Key switching in small: digits are lifted, transformed and summed with two keys, and an output is used by the next one."""
    some = moduli(n, 31, 6)
    digit, ring = RingSpec(n, some[:2]), RingSpec(n, some[2:])
    lifted = [apply(Op.NTT, apply(Op.BASE_CONVERT, load(2 + i, digit, Domain.COEFF), arg=ring)) for i in range(2)]
    keys = [load(4 + i, ring, Domain.NTT) for i in range(4)]
    sums = [apply(Op.DOT, lifted[0], keys[2 * i], lifted[1], keys[2 * i + 1]) for i in range(2)]
    inputs = [residues(digit, 1), residues(digit, 2), *(residues(ring, 3 + i) for i in range(4))]
    kernel = check(body(*sums), inputs)
    assert len(kernel.program.launches) == 4  # two conversions and two transforms, the last with both sums
    a, b = load(2, ring, Domain.NTT), load(3, ring, Domain.NTT)
    first = apply(Op.MUL, a, b)
    kernel = check(body(first, apply(Op.ADD, first, a)), inputs[2:4])
    assert len(kernel.program.launches) == 1


def test_joined_rows_come_from_where_they_are() -> None:
    n, some = 16, moduli(16, 31, 5)
    whole = RingSpec(n, some)
    parts = RingSpec(n, some[1:3]), RingSpec(n, (some[4], some[0], some[3]))
    transformed = apply(Op.NTT, load(2, parts[1], Domain.COEFF))
    joined = apply(Op.JOIN, load(1, parts[0], Domain.NTT), transformed, arg=whole)
    value = apply(Op.MUL, joined, load(3, whole, Domain.NTT))
    check(body(value), [residues(parts[0], 1), residues(parts[1], 2), residues(whole, 3)])


# --------------------------------------------------------------------------------------------------------------------
# Draws


@pytest.mark.parametrize("n", [2, 32, 128, 1024], ids=lambda n: f"n={n}")
def test_draws_equal_numpy(n: int) -> None:
    """Rows shorter than a group of indices and longer ones; more limbs than one thread writes; few thresholds and many."""
    rings = RingSpec(n, moduli(n, 31, 3)), RingSpec(n, moduli(n, 31, 19))

    def drawn(device: str) -> list[bytes]:
        with insecure_seeded_randomness_for_tests(n):
            made = [Poly.uniform(ring, device) for ring in rings] + [Poly.ternary(rings[1], device)]
            made += [Poly.gaussian(rings[0], sigma, device) for sigma in (3.2, 100.0)] + [Poly.sparse_ternary(rings[0], 1, device)]
            return [p.realize().tobytes() for p in made]

    assert drawn(cuda_emulation.device()) == drawn("python")


@pytest.mark.parametrize("kind", ["uniform", "ternary"])
def test_refused_numbers_are_drawn_from_the_next_round(kind: str) -> None:
    """With bits that are refused when the lowest two are zero, which happens all the time."""
    accepted = "return (u32)upper != 0 || (u32)lower >= (0 - (u64)bound) % bound;"
    assert header().count(accepted) == 1
    modules = cuda_emulation.Modules(header().replace(accepted, "return (low & 3) != 0;"))
    n = 256
    ring = RingSpec(n, moduli(n, 31, 2))
    poly = getattr(Poly, kind)(ring, cuda_emulation.device())
    random_node = next(node for node in poly.node.toposort() if node.op is Op.RANDOM)
    ast = body(Node(Op.AS_RING, DType.U32, (random_node,), (ring, Domain.COEFF)))
    kernel, out = cuda_emulation.Kernel(program(ast, cuda_emulation.DEVICE), modules=modules), cuda_emulation.aligned((2, n))
    cuda_emulation.compiler()
    with insecure_seeded_randomness_for_tests(kind):
        kernel(out)
    with insecure_seeded_randomness_for_tests(kind) as generator:
        draw = generator.draw()

    def number(at: int, bound: int) -> int:
        round = 0
        while (x := chacha.bits(draw.key, draw.number, at, round)) & 3 == 0:
            round += 1
        return x * bound >> 64

    if kind == "uniform":
        wanted = [[number(j * n + c, p) for c in range(n)] for j, p in enumerate(ring.moduli)]
    else:
        wanted = [[oracle.montgomery(number(c, 3) - 1, p) for c in range(n)] for p in ring.moduli]
    assert out.tolist() == wanted


# --------------------------------------------------------------------------------------------------------------------
# The emulator itself


def faulty(old: str, new: str, n: int = 1024) -> cuda_emulation.Kernel:
    """A transform whose text has a fault."""
    cuda_emulation.compiler()
    assert old in header()
    ring = RingSpec(n, moduli(n, 30, 1))
    made = program(body(apply(Op.NTT, load(1, ring, Domain.COEFF))), cuda_emulation.DEVICE)
    return cuda_emulation.Kernel(made, modules=cuda_emulation.Modules(header().replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    __syncthreads();", "", "the result is another one"),
        ("    __syncthreads();", "    if (threadIdx.x) __syncthreads();", "wait at a barrier"),
        ("store(at + c, x); }", "store(at + c + 4, x); }", "out of bounds"),
        ("store(at + c, x); }", "store(at + (c + 4) % 1024 + 1, x); }", "misaligned"),
        ("store(at + c, x); }", "store(at + (c ^ 4), x); }", None),
        ("return COLUMNS ? a +", "return 64 + COLUMNS ? a + 64 +", "behind its"),
    ],
    ids=["no barrier", "a barrier for some", "out of bounds", "misaligned", "wrong place", "too little shared memory"],
)
def test_faults_are_seen(old: str, new: str, message: str | None) -> None:
    kernel = faulty(old, new)
    ring = RingSpec(1024, moduli(1024, 30, 1))
    x, out = residues(ring, random.Random(1).randrange(100)), cuda_emulation.aligned((1, 1024))
    place = backend(cuda_emulation.device())
    if message is None:
        kernel(out, place.from_host(x))
        assert not np.array_equal(out, arith.ntt(x, ring))
    else:
        with pytest.raises(cuda_emulation.Fault, match=message):
            kernel(out, place.from_host(x))
