"""The arithmetic of the NumPy backend, against plain integers, on rings from the smallest to the largest legal moduli."""

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ren_lab.backends.python import arith, constmul
from ren_lab.ring import RingSpec, convert_scalar, primitive_root, residues

R = 2**32
EVERY_SECOND = slice(None, None, 2)


def mixed(n: int, limbs: int) -> tuple[int, ...]:
    """Small, medium and the largest moduli side by side, so that their bounds meet in one array."""
    pools = [oracle.largest_primes(n, 31, limbs), oracle.smallest_primes(n, limbs), oracle.largest_primes(n, 30, limbs)]
    chosen: list[int] = []
    while len(chosen) < limbs:
        chosen.append(next(p for p in pools[len(chosen) % 3] if p not in chosen))
    return tuple(chosen)


KINDS = {
    "smallest": oracle.smallest_primes,
    "30-bit": lambda n, limbs: oracle.largest_primes(n, 30, limbs),
    "31-bit": lambda n, limbs: oracle.largest_primes(n, 31, limbs),
    "mixed": mixed,
}


def rings(*shapes: tuple[int, int]) -> list:
    return [
        pytest.param(RingSpec(n, make(n, limbs)), id=f"n={n}/limbs={limbs}/{kind}")
        for n, limbs in shapes
        for kind, make in KINDS.items()
        if limbs > 1 or kind != "mixed"
    ]


def draw(ring: RingSpec, seed: int = 0, width: int | None = None) -> np.ndarray:
    """Residues that meet the bounds: a third are 0, 1, p//2, p//2 + 1, p-2 or p-1, the others anything."""
    rng = np.random.default_rng(seed)
    width = ring.n if width is None else width
    rows = []
    for p in ring.moduli:
        row = rng.integers(0, p, width)
        edges = np.array([0, 1, p // 2, p // 2 + 1, p - 2, p - 1])[rng.integers(0, 6, width)]
        rows.append(np.where(rng.random(width) < 1 / 3, edges, row))
    return np.array(rows, np.uint32)


def extremes(ring: RingSpec) -> list[np.ndarray]:
    top = np.array(ring.moduli, np.uint32)[:, None] - np.uint32(1)
    return [np.broadcast_to(np.uint32(c) * top, (ring.limbs, ring.n)).copy() for c in (0, 1)]


def assert_reduced(a: np.ndarray, ring: RingSpec) -> None:
    assert a.dtype == np.uint32
    assert (a < np.array(ring.moduli, np.uint32)[:, None]).all()


SMALL = rings((2, 1), (2, 3), (4, 2), (8, 1), (8, 8), (64, 3), (8, 64))


# Element by element

BINARY = {
    "add": (arith.add, lambda x, y, p: (x + y) % p),
    "sub": (arith.sub, lambda x, y, p: (x - y) % p),
    "mul": (arith.mul, lambda x, y, p: x * y * pow(R, -1, p) % p),
}


@pytest.mark.parametrize("ring", SMALL)
@pytest.mark.parametrize("name", BINARY)
def test_binary_operations_equal_integers(ring, name):
    function, meaning = BINARY[name]
    a, b = draw(ring, 1), draw(ring, 2)
    kept = a.copy(), b.copy()
    want = [
        [meaning(x, y, p) for x, y in zip(r, s, strict=True)] for r, s, p in zip(a.tolist(), b.tolist(), ring.moduli, strict=True)
    ]
    got = function(a, b, ring)
    assert got.tolist() == want and got.dtype == np.uint32
    assert (a == kept[0]).all() and (b == kept[1]).all()
    for first, second in ((a, b[:, :1]), (a[:, :1], b), (a[:, :1], b[:, :1])):
        wide = np.broadcast_arrays(first, second)
        assert function(first, second, ring).tolist() == function(wide[0].copy(), wide[1].copy(), ring).tolist()
    out = np.full_like(a, 7)
    assert function(a, b, ring, out) is out and out.tolist() == want
    for alias in (0, 1):
        operands = [a.copy(), b.copy()]
        function(*operands, ring, operands[alias])
        assert operands[alias].tolist() == want
        assert (operands[1 - alias] == kept[1 - alias]).all()


@pytest.mark.parametrize("ring", SMALL)
def test_unary_operations_equal_integers(ring):
    a = draw(ring, 3)
    kept = a.copy()
    c = -(10**25) + 12345
    meanings = {
        "neg": (lambda out: arith.neg(a, ring, out), lambda x, p: -x % p),
        "mul_scalar": (lambda out: arith.mul_scalar(a, residues(c, ring), ring, out), lambda x, p: x * c % p),
        "to_montgomery": (lambda out: arith.to_montgomery(a, ring, out), lambda x, p: x * R % p),
        "from_montgomery": (lambda out: arith.from_montgomery(a, ring, out), lambda x, p: x * pow(R, -1, p) % p),
    }
    for name, (function, meaning) in meanings.items():
        want = [[meaning(x, p) for x in row] for row, p in zip(a.tolist(), ring.moduli, strict=True)]
        out = np.empty_like(a)
        assert function(None).tolist() == want, name
        assert function(out) is out and out.tolist() == want, name
        assert (a == kept).all()
    b = a.copy()
    assert arith.neg(b, ring, b) is b and b.tolist() == arith.neg(a, ring).tolist()


@pytest.mark.parametrize("ring", rings((8192, 8), (65536, 2)))
def test_large_arrays_are_worked_off_in_parts(ring):
    """Arrays above the size of one part, against 64-bit remainders."""
    a, b = draw(ring, 4), draw(ring, 5)
    p = np.array(ring.moduli, np.uint64)[:, None]
    x, y = a.astype(np.uint64), b.astype(np.uint64)
    r_inv = np.array([pow(R, -1, int(v)) for v in p[:, 0]], np.uint64)[:, None]
    assert (arith.add(a, b, ring) == (x + y) % p).all()
    assert (arith.sub(a, b, ring) == (x + p - y) % p).all()
    assert (arith.neg(a, ring) == (p - x) % p).all()
    assert (arith.mul(a, b, ring) == x * y % p * r_inv % p).all()
    assert (arith.mul(a, b[:, :1], ring) == x * y[:, :1] % p * r_inv % p).all()
    out = a.copy()
    assert (arith.add(out, b, ring, out) == (x + y) % p).all()


def test_views_with_strides_are_operands_and_targets():
    ring = RingSpec(16, oracle.smallest_primes(16, 3))
    arena = np.zeros(4096, np.uint32)
    rows = arena[512 : 512 + 6 * 16].reshape(6, 16)
    limbs, columns = rows[EVERY_SECOND], np.zeros((3, 32), np.uint32)[:, EVERY_SECOND]
    a, b = draw(ring, 6), draw(ring, 7)
    limbs[...], columns[...] = a, b
    others = rows[1::2]
    for function in (arith.add, arith.sub, arith.mul):
        assert (function(limbs, columns, ring, others) == function(a, b, ring)).all()
        assert (limbs == a).all() and (columns == b).all()
    for function in (arith.ntt, arith.intt, arith.neg, arith.to_montgomery, arith.from_montgomery):
        for source in (limbs, columns):
            assert (function(source, ring, others) == function(source.copy(), ring)).all()
            assert (source == (a if source is limbs else b)).all()
    wide = RingSpec(16, oracle.largest_primes(16, 31, 3))
    assert (arith.base_convert(limbs, ring, wide, others) == arith.base_convert(a, ring, wide)).all()
    assert arena[:512].sum() == 0 and arena[512 + 6 * 16 :].sum() == 0


# The transform


@pytest.mark.parametrize("ring", rings((2, 1), (2, 3), (4, 2), (8, 1), (8, 8), (32, 3), (128, 5)))
def test_transforms_equal_the_definition(ring):
    for a in (draw(ring, 8), *extremes(ring)):
        kept = a.copy()
        values = arith.ntt(a, ring)
        assert values.tolist() == [
            oracle.ntt(row, primitive_root(ring.n, p), p) for row, p in zip(a.tolist(), ring.moduli, strict=True)
        ]
        assert (a == kept).all()
        kept = values.copy()
        assert (arith.intt(values, ring) == a).all() and (values == kept).all()
        assert arith.ntt(a, ring, a) is a and (a == values).all()
        assert arith.intt(values, ring, values) is values


@pytest.mark.parametrize("ring", rings((1024, 8), (1024, 11), (4096, 3), (8192, 3), (8192, 8), (32768, 2), (131072, 1)))
def test_large_transforms_equal_the_definition_where_it_is_evaluated(ring):
    bits = ring.n.bit_length() - 1
    rng = random.Random(ring.n)
    for a in (draw(ring, 9), extremes(ring)[1]):
        values = arith.ntt(a, ring)
        assert_reduced(values, ring)
        for limb in {0, ring.limbs - 1, rng.randrange(ring.limbs)}:
            p, row = ring.moduli[limb], a[limb].tolist()
            for i in {0, ring.n - 1, rng.randrange(ring.n)} if ring.n < 8192 else {rng.randrange(ring.n)}:
                root = pow(primitive_root(ring.n, p), 2 * oracle.bit_reverse(i, bits) + 1, p)
                assert values[limb, i] == oracle.evaluate(row, root, p)
        assert (arith.intt(values, ring) == a).all()
        assert (arith.ntt(arith.intt(a, ring), ring) == a).all()


@pytest.mark.parametrize("ring", rings((2, 2), (64, 3), (1024, 2), (8192, 2)))
def test_products_of_values_are_negacyclic_products(ring):
    a, b = draw(ring, 10), draw(ring, 11)
    for x, y in ((a, b), (a, a), (extremes(ring)[1], extremes(ring)[1])):
        product = arith.intt(arith.mul(arith.ntt(x, ring), arith.ntt(y, ring), ring), ring)
        for row, u, v, p in zip(product.tolist(), x.tolist(), y.tolist(), ring.moduli, strict=True):
            assert row == [c * pow(R, -1, p) % p for c in oracle.negacyclic_product(u, v, p)]


@given(
    st.integers(1, 40).flatmap(lambda n: st.tuples(*[st.lists(st.integers(-50, 10**20), min_size=n, max_size=n)] * 2)),
    st.integers(1, 2**70),
)
def test_the_oracles_product_is_the_schoolbook_one(operands, q):
    a, b = operands
    assert oracle.negacyclic_product(a, b, q) == oracle.negacyclic_product_schoolbook(a, b, q)


def test_threads_do_not_share_scratch():
    ring = RingSpec(4096, oracle.largest_primes(4096, 30, 3))
    inputs = [draw(ring, seed) for seed in range(16)]
    want = [arith.ntt(a, ring) for a in inputs]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda a: arith.intt(arith.ntt(a, ring), ring), inputs * 4))
        values = list(pool.map(lambda a: arith.ntt(a, ring), inputs * 4))
    assert all((g == a).all() for g, a in zip(got, inputs * 4, strict=True))
    assert all((v == w).all() for v, w in zip(values, want * 4, strict=True))


@pytest.mark.parametrize("p", [3, 5, 17, 12289, 2**29 - 3, 2**30 - 35, 2**31 - 1, *oracle.largest_primes(8192, 31, 2)], ids=str)
def test_products_by_constants_are_centred_up_to_the_limit(p):
    limit = constmul.operand_limit(p)
    assert limit > R and limit * (p // 2) < 2**62 <= (limit + 2) * (p - 1)
    rng = random.Random(p)
    a = np.array([0, 1, -1, limit, -limit, limit - 1, 1 - limit] + [rng.randint(-limit, limit) for _ in range(500)])
    for b in {1, 2 % p, p - 1, p // 2, p // 2 + 1, rng.randrange(p), rng.randrange(p), 0}:
        total = a * constmul.words([b], p)
        constmul.finish(total, np.array(p))
        assert total.tolist() == [oracle.centred(int(x) * b, p) for x in a]
    assert (constmul.words(range(p - 3, p), p) == constmul.words_of_residues(np.arange(p - 3, p), p)).all()


# From one basis to another

TARGETS = {**KINDS, "others of 31 bits": lambda n, limbs: oracle.largest_primes(n, 31, 64 + limbs)[64:]}
CONVERSIONS = [
    pytest.param(RingSpec(n, KINDS[i](n, k)), RingSpec(n, TARGETS[j](n, d)), id=f"n={n}/limbs={k}->{d}/{i}->{j}")
    for n, k, d in ((2, 1, 1), (4, 1, 5), (4, 3, 2), (8, 8, 9), (8, 64, 3), (8, 3, 64))
    for i, j in (
        ("smallest", "31-bit"),
        ("31-bit", "smallest"),
        ("31-bit", "31-bit"),  # they share moduli
        ("31-bit", "others of 31 bits"),
        ("mixed", "30-bit"),
        ("30-bit", "mixed"),
    )
]


def integers(ring: RingSpec, seed: int) -> list[int]:
    """Values in [0, q): anything, small of either sign, around q/2 and at the edges of the conversion band."""
    rng, q = random.Random(seed), ring.q
    width = ring.limbs * q // R
    centres = [0, q // 2, q // 2 - width, q // 2 + width, q - 1]
    return [(rng.randrange(q) if rng.random() < 0.3 else rng.choice(centres) + rng.randint(-3, 3)) % q for _ in range(ring.n)]


def montgomery_rows(values: list[int], ring: RingSpec) -> np.ndarray:
    return np.array([[oracle.montgomery(v, p) for v in values] for p in ring.moduli], np.uint32)


@pytest.mark.parametrize(("src", "dst"), CONVERSIONS)
def test_conversions_equal_the_formula_on_integers(src, dst):
    for seed in range(40 // src.n):
        values = integers(src, seed)
        a = montgomery_rows(values, src)
        kept = a.copy()
        lifted = [convert_scalar(v, src, dst) for v in values]
        out = np.empty((dst.limbs, dst.n), np.uint32)
        assert arith.base_convert(a, src, dst, out) is out
        assert (out == montgomery_rows(lifted, dst)).all()
        assert (arith.base_convert(a, src, dst) == out).all() and (a == kept).all()


def test_wide_conversions_are_worked_off_in_parts():
    src, dst = RingSpec(16384, oracle.largest_primes(16384, 31, 3)), RingSpec(16384, oracle.largest_primes(16384, 30, 12))
    values = integers(src, 1)
    a = montgomery_rows(values, src)
    assert (arith.base_convert(a, src, dst) == montgomery_rows([convert_scalar(v, src, dst) for v in values], dst)).all()


# Digits, residues and integers


@pytest.mark.parametrize("ring", SMALL + rings((1024, 5), (16384, 3)))
def test_integers_go_in_and_come_out(ring):
    values = integers(ring, 12)
    count = -(-ring.q.bit_length() // 32)
    words = arith.pack_words([v + (i % 5 - 2) * ring.q for i, v in enumerate(values)], ring.q, count)
    assert words.dtype == np.uint32 and words.shape == (count, ring.n)
    assert [sum(int(d) << 32 * i for i, d in enumerate(column)) for column in words.T] == values
    at_rest = arith.to_rns(words, ring)
    assert (at_rest == montgomery_rows(values, ring)).all()
    plain = arith.from_montgomery(at_rest, ring)
    assert plain.tolist() == [[v % p for v in values] for p in ring.moduli]
    assert (arith.to_montgomery(plain, ring) == at_rest).all()
    back = arith.crt(plain, ring)
    assert back == values == [oracle.crt(column, ring.moduli) for column in plain.T.tolist()]
    assert all(type(v) is int for v in back)


@pytest.mark.parametrize("ring", SMALL)
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_digits_need_not_be_reduced(ring, count):
    rng = random.Random(count)
    values = [rng.choice([0, 1, R**count - 1, rng.randrange(R**count)]) for _ in range(ring.n)]
    words = np.array([[v >> 32 * i & R - 1 for v in values] for i in range(count)], np.uint32)
    kept = words.copy()
    out = np.empty((ring.limbs, ring.n), np.uint32)
    assert arith.to_rns(words, ring, out) is out
    assert (out == montgomery_rows(values, ring)).all() and (words == kept).all()


MODULI = {
    "17": 17,
    "2^31-1": 2**31 - 1,
    "2^63-25": 2**63 - 25,
    "2^63": 2**63,
    "2^64-59": 2**64 - 59,
    "2^64": 2**64,
    "2^64+13": 2**64 + 13,
    "2^100-15": 2**100 - 15,
    "3^200": 3**200,
}


@pytest.mark.parametrize("q", MODULI.values(), ids=MODULI.keys())
@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, ">i4", ">u8"], ids=str
)
def test_arrays_of_any_integer_type_are_packed(q, dtype):
    limits = np.iinfo(dtype)
    edges = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 17]
    edges += [v for v in (-1, -2, -17, q - 1, q, q + 1, -q, 1 - q) if limits.min <= v <= limits.max]
    values = np.array(edges, dtype)
    kept = values.copy()
    for count in {-(-(q - 1).bit_length() // 32), 8, 11}:
        if q <= 1 << 32 * count:
            for view in (values, np.repeat(values, 3)[::3]):
                words = arith.pack_array(view, q, count)
                assert words.shape == (count, len(edges)) and words.dtype == np.uint32
                assert [sum(int(d) << 32 * i for i, d in enumerate(column)) for column in words.T] == [v % q for v in edges]
    assert (values == kept).all()


@pytest.mark.parametrize("q", MODULI.values(), ids=MODULI.keys())
@pytest.mark.parametrize("large", [False, True], ids=["64-bit", "larger"])
def test_sequences_of_integers_are_packed(q, large):
    values = [0, 1, -1, q, q - 1, 1 - q, -(2**63), 2**63 - 1]
    values = [v for v in values if -(2**63) <= v < 2**63] if not large else [*values, 2**63, 2**64, -(10**60), q**3 + 5]
    count = -(-(q - 1).bit_length() // 32)
    for ints in (values, tuple(values), np.array(values, dtype=object)):
        words = arith.pack_words(ints, q, count)
        assert [sum(int(d) << 32 * i for i, d in enumerate(column)) for column in words.T] == [v % q for v in values]
    if large:
        assert ints.tolist() == values


def test_too_few_digits_are_refused():
    for pack, values in ((arith.pack_words, [1]), (arith.pack_array, np.array([1]))):
        assert pack(values, 2**32, 1).tolist() == [[1]]
        with pytest.raises(ValueError, match="33 bits, but 1 digits"):
            pack(values, 2**32 + 1, 1)


@given(st.data())
def test_programs_of_helpers_equal_integers(data):
    """A few operations in a row on one array, in and out of the NTT domain, in a ring of random moduli."""
    n = 2 ** data.draw(st.integers(1, 5), label="log2(n)")
    pool = sorted({*oracle.smallest_primes(n, 6), *oracle.largest_primes(n, 30, 4), *oracle.largest_primes(n, 31, 4)})
    ring = RingSpec(n, data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=8, unique=True), label="moduli"))
    q = ring.q
    values = data.draw(st.lists(st.integers(0, q - 1), min_size=n, max_size=n), label="a")
    others = data.draw(st.lists(st.integers(0, q - 1), min_size=n, max_size=n), label="b")
    a, b = montgomery_rows(values, ring), montgomery_rows(others, ring)
    for op in data.draw(st.lists(st.sampled_from(["add", "sub", "neg", "mul", "scale"]), max_size=6), label="ops"):
        if op == "add":
            arith.add(a, b, ring, a)
            values = oracle.add(values, others, q)
        elif op == "sub":
            arith.sub(b, a, ring, a)
            values = oracle.sub(others, values, q)
        elif op == "neg":
            arith.neg(a, ring, a)
            values = [-v % q for v in values]
        elif op == "scale":
            arith.mul_scalar(a, residues(q // 3, ring), ring, a)
            values = [v * (q // 3) % q for v in values]
        else:
            arith.intt(arith.mul(arith.ntt(a, ring), arith.ntt(b, ring), ring), ring, a)
            values = oracle.negacyclic_product(values, others, q)
        assert_reduced(a, ring)
    assert arith.crt(arith.from_montgomery(a, ring), ring) == values


def primes_below(bound, count, n=16):
    candidates = range((bound - 2) // (2 * n) * 2 * n + 1, 0, -2 * n)
    return tuple(itertools.islice(filter(oracle.is_prime, candidates), count))


# Just below a power of two, 2^64 modulo a prime is small, and so are the products that reduce a sum: take others as well.
@pytest.mark.parametrize("bound", [2**29, 2**30 - 10**8, 1_500_000_000, 2_000_000_000, 2**31], ids=lambda b: f"primes<{b}")
@pytest.mark.parametrize("count", [2, 8, 12, 33, 70])
def test_many_digits_of_full_size(bound, count):
    """Sums of many centred residues are reduced before they leave the range of a product."""
    ring = RingSpec(16, primes_below(bound, 3))
    rng = np.random.default_rng(count)
    words = rng.integers(0, 2**32, (count, 4096), dtype=np.uint32)
    words[:, :4] = 2**32 - 1
    got = arith.to_rns(words, ring)
    values = [sum(int(w) << 32 * i for i, w in enumerate(column)) for column in words.T]
    assert got.tolist() == [[oracle.montgomery(v, p) for v in values] for p in ring.moduli]


@pytest.mark.parametrize("limbs", [9, 24, 64])
@pytest.mark.parametrize("bound", [2**29, 2_000_000_000], ids=lambda b: f"primes<{b}")
def test_lifts_from_many_limbs_of_full_size(bound, limbs):
    moduli = primes_below(bound, limbs + 3)
    src, dst = RingSpec(16, moduli[3:]), RingSpec(16, moduli[:3])
    rng = random.Random(limbs)
    values = [rng.randrange(src.q) for _ in range(252)] + [0, 1, src.q - 1, src.q // 3]
    a = np.array([[oracle.montgomery(v, p) for v in values] for p in src.moduli], np.uint32)
    got = arith.base_convert(a, src, dst)
    assert got.tolist() == [[oracle.montgomery(oracle.centred(v, src.q), p) for v in values] for p in dst.moduli]
