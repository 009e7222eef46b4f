"""The native transforms and conversions, against the NumPy backend and against the definition."""

import cpu_variants
import numpy as np
import oracle
import pytest

from ren_lab.backends import backend
from ren_lab.backends.python import arith
from ren_lab.backends.render import fold
from ren_lab.ir import Axis, DType, LimbSelect, Node, Op, Slot
from ren_lab.ring import Domain, RingSpec, find_primes, primitive_root

VARIANTS = list(cpu_variants.VARIANTS)


def _axis(name: str, extent: int) -> Node:
    return Node(Op.GIDX, DType.INDEX, (), Axis(name, extent))


def load(slot: int, shape: tuple[int, int], ring: RingSpec, domain: Domain, row: Node | None = None) -> Node:
    place = Node(Op.SLOT, DType.U32, (), Slot(slot, shape))
    row = row if row is not None else _axis("limb", shape[0])
    index = Node(Op.INDEX, DType.INDEX, (place, row, _axis("coefficient", shape[1])))
    return Node(Op.AS_RING, DType.U32, (Node(Op.LOAD, DType.U32, (index,)),), (ring, domain))


def kernel(value: Node) -> Node:
    """The body that stores a value."""
    assert value.ring is not None
    shape = (value.ring.limbs, value.ring.n)
    place = Node(Op.SLOT, DType.U32, (), Slot(0, shape))
    index = Node(Op.INDEX, DType.INDEX, (place, _axis("limb", shape[0]), _axis("coefficient", shape[1])))
    return Node(Op.STORE, DType.VOID, (index, value))


def run(device: str, value: Node, *inputs: np.ndarray) -> np.ndarray:
    """The value on a device, every byte of the output spoilt beforehand."""
    assert value.ring is not None
    place = backend(device)
    out = place.allocate((value.ring.limbs, value.ring.n))
    out[...] = 0xFFFF_FFFF
    place.compile(kernel(value))(out, *map(place.from_host, inputs))
    return out


def residues(ring: RingSpec, seed: int) -> np.ndarray:
    """uint32[limbs, n] in [0, p): both ends of the range, and random ones."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, p, ring.n) for p in ring.moduli]
    for row, p in zip(rows, ring.moduli, strict=True):
        row[rng.integers(0, ring.n, ring.n // 4)] = p - 1
        row[rng.integers(0, ring.n, ring.n // 4)] = 0
    return np.array(rows, np.uint32)


def modulus_near(n: int, bits: int) -> int:
    return oracle.largest_primes(n, bits, 1)[0] if n < 2**13 else find_primes(n, bits, 1)[0]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("log_n", [*range(1, 14), 15, 17], ids=lambda k: f"n=2^{k}")
def test_transforms_equal_numpy(variant: str, log_n: int) -> None:
    """Moduli on both sides of 2^30, where the arithmetic changes, up to 2^31; all values at the upper end as well."""
    device, n = cpu_variants.device(variant), 2**log_n
    moduli = dict.fromkeys([modulus_near(n, 31), modulus_near(n, 30), modulus_near(n, max(20, log_n + 3))])
    ring = RingSpec(n, tuple(moduli))
    highest = np.repeat(np.array(ring.moduli, np.uint32)[:, None] - 1, n, axis=1)
    for x in (residues(ring, log_n), highest):
        forward = run(device, Node(Op.NTT, DType.U32, (load(1, x.shape, ring, Domain.COEFF),)), x)
        assert np.array_equal(forward, arith.ntt(x, ring))
        inverse = run(device, Node(Op.INTT, DType.U32, (load(1, x.shape, ring, Domain.NTT),)), x)
        assert np.array_equal(inverse, arith.intt(x, ring))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", [2, 4, 8, 16, 32, 64, 128], ids=lambda n: f"n={n}")
def test_the_transform_is_evaluation_at_the_roots(variant: str, n: int) -> None:
    p = modulus_near(n, 31)
    ring = RingSpec(n, (p,))
    x = residues(ring, n)
    got = run(cpu_variants.device(variant), Node(Op.NTT, DType.U32, (load(1, x.shape, ring, Domain.COEFF),)), x)
    assert got[0].tolist() == oracle.ntt(x[0].tolist(), primitive_root(n, p), p)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bits", [20, 26, 31])
@pytest.mark.parametrize(("source", "target"), [(1, 1), (1, 6), (3, 5), (8, 4), (40, 3), (5, 21)], ids=str)
def test_conversions_equal_numpy(variant: str, bits: int, source: int, target: int) -> None:
    """Sums that stay below 2^64 and sums that are folded on the way; rows by fours and single ones."""
    n = 32
    moduli = oracle.largest_primes(n, bits, source + target)
    src, dst = RingSpec(n, moduli[:source]), RingSpec(n, moduli[source:])
    for x in (residues(src, 1), np.repeat(np.array(src.moduli, np.uint32)[:, None] - 1, n, axis=1)):
        value = Node(Op.BASE_CONVERT, DType.U32, (load(1, x.shape, src, Domain.COEFF),), dst)
        assert np.array_equal(run(cpu_variants.device(variant), value, x), arith.base_convert(x, src, dst))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bits", [20, 27, 31])
@pytest.mark.parametrize("count", [1, 2, 9, 70])
@pytest.mark.parametrize("n", [2, 64], ids=lambda n: f"n={n}")
def test_digits_are_the_residues_of_their_integers(variant: str, bits: int, count: int, n: int) -> None:
    ring = RingSpec(n, oracle.largest_primes(n, bits, 5))
    words = np.random.default_rng(count).integers(0, 2**32, (count, n), dtype=np.uint32)
    words[:, 0] = 0xFFFF_FFFF
    place = Node(Op.SLOT, DType.U32, (), Slot(1, words.shape))
    index = Node(Op.INDEX, DType.INDEX, (place, _axis("word", count), _axis("coefficient", n)))
    value = Node(Op.TO_RNS, DType.U32, (Node(Op.LOAD, DType.U32, (index,)),), (ring, count))
    integers = [sum(int(digit) << 32 * i for i, digit in enumerate(column)) for column in words.T]
    wanted = [[oracle.montgomery(v, p) for v in integers] for p in ring.moduli]
    assert run(cpu_variants.device(variant), value, words).tolist() == wanted


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", [4, 256], ids=lambda n: f"n={n}")
def test_bodies_beyond_what_schedules_make(variant: str, n: int) -> None:
    """Transforms and conversions within one another, their results used element by element, limbs picked out of order."""
    moduli = oracle.largest_primes(n, 31, 9)
    a, b, c = RingSpec(n, moduli[:3]), RingSpec(n, moduli[3:8]), RingSpec(n, (moduli[8], moduli[0]))
    x, y = residues(a, 1), residues(b, 2)
    picked = LimbSelect(a, (4, 0, 2))

    in_a = load(1, x.shape, a, Domain.COEFF)
    from_b = load(2, y.shape, a, Domain.COEFF, Node(Op.PERMUTE, DType.INDEX, (_axis("limb", 3),), picked))
    y_of_a = y[[4, 0, 2]] % np.array(a.moduli, np.uint32)[:, None]  # rows of other moduli, brought into range
    y = y.copy()
    y[[4, 0, 2]] = y_of_a
    total = Node(Op.SUB, DType.U32, (in_a, from_b))
    inner = Node(Op.BASE_CONVERT, DType.U32, (total,), b)
    outer = Node(Op.BASE_CONVERT, DType.U32, (Node(Op.NEG, DType.U32, (inner,)),), c)
    transformed = Node(Op.NTT, DType.U32, (outer,))
    value = Node(Op.INTT, DType.U32, (Node(Op.MUL, DType.U32, (transformed, transformed)),))

    t = arith.neg(arith.base_convert(arith.sub(x, y_of_a, a), a, b), b)
    t = arith.ntt(arith.base_convert(t, b, c), c)
    assert np.array_equal(run(cpu_variants.device(variant), value, x, y), arith.intt(arith.mul(t, t, c), c))


@pytest.mark.parametrize("bound", [1, 2**20, 2**26, 2**31 - 2, 2**32 - 1])
@pytest.mark.parametrize("modulus", [3, 2**20, 2**26, 2**30, 2**31], ids=lambda p: f"p<={p}")
@pytest.mark.parametrize("terms", [1, 2, 3, 64, 65, 5000])
def test_folded_sums_stay_below_2_to_the_64(bound: int, modulus: int, terms: int) -> None:
    """Followed with the largest values there are: the sum fits, and a folding leaves less than 2^32 * p."""
    per_fold, bits = fold(bound, terms, modulus)
    assert per_fold >= 1
    total, done = 0, 0
    while done < terms:
        some = min(per_fold, terms - done)
        total += some * bound * (modulus - 1)
        assert total < 2**64
        assert total < 2 ** (32 + bits) * modulus
        total = min(total, 2**32 * modulus - 1)
        done += some
