"""Rings, primes, constants and the conversion formula, against definitions in plain integers."""

import copy
import pickle
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ren_lab.ring import (
    Domain,
    RingSpec,
    automorphism_indices,
    bit_reversal,
    check_interval,
    check_sigma,
    check_weight,
    conversion,
    convert_scalar,
    find_primes,
    galois_element,
    is_prime,
    modulus,
    primitive_root,
    residues,
    root_powers,
    tables,
    to_montgomery,
)

R = 2**32
NEAR_TOP = oracle.largest_primes(2, 31, 4)


# Rings


def test_a_ring_knows_its_numbers():
    ring = RingSpec(n=8, moduli=(17, 97))
    assert (ring.n, ring.moduli, ring.q, ring.limbs) == (8, (17, 97), 1649, 2)
    assert repr(ring) == "RingSpec(n=8, moduli=(17, 97))"
    assert eval(repr(ring)) == ring
    assert ring.label == "n=2^3 × 2 limbs"
    assert RingSpec(8, (17,)).label == "n=2^3 × 1 limb"
    assert repr(Domain.COEFF) == "Domain.COEFF" and repr(Domain.NTT) == "Domain.NTT"


@pytest.mark.parametrize(
    "moduli",
    [(17, 97), [17, 97], (p for p in (17, 97)), np.array([17, 97]), np.array([17, 97], np.uint8), {17: 0, 97: 0}],
    ids=["tuple", "list", "generator", "int64 array", "uint8 array", "dict keys"],
)
def test_moduli_may_be_any_iterable_of_integers(moduli):
    ring = RingSpec(np.int64(8), moduli)
    assert ring == RingSpec(8, (17, 97))
    assert type(ring.n) is int and all(type(p) is int for p in ring.moduli)


@pytest.mark.parametrize(
    ("n", "moduli", "named"),
    [
        (6, (17,), ["n is 6", "power of two", "8"]),
        (1, (17,), ["n is 1", "from 2"]),
        (0, (17,), ["n is 0"]),
        (-8, (17,), ["n is -8"]),
        (2**18, (786433,), [str(2**18), "2^17"]),
        (8, (), ["empty"]),
        (8, (19,), ["modulus 19", "leaves 3", "16"]),
        (8, (17, 33), ["modulus 33", "not prime"]),
        (8, (17, 97, 17), ["modulus 17", "more than once"]),
        (8, (2,), ["modulus 2", "odd prime"]),
        (8, (1,), ["modulus 1", "odd prime"]),
        (8, (0,), ["modulus 0", "odd prime"]),
        (8, (-17,), ["modulus -17", "odd prime"]),
        (8, (2147483713,), ["2147483713", "2^31"]),
        (8, (2**31 + 1,), [str(2**31 + 1), "2^31"]),
    ],
    ids=str,
)
def test_bad_values_are_refused_by_name(n, moduli, named):
    with pytest.raises(ValueError) as error:
        RingSpec(n, moduli)
    for text in named:
        assert text in str(error.value)


@pytest.mark.parametrize(
    ("n", "moduli", "named"),
    [
        (8.0, (17,), "8.0"),
        (True, (17,), "True"),
        ("8", (17,), "'8'"),
        (None, (17,), "None"),
        (8, 17, "17"),
        (8, "17", "'17'"),
        (8, b"\x11", "bytes"),
        (8, (17.0,), "17.0"),
        (8, (17, True), "True"),
        (8, np.array([17.0]), "17.0"),
        (8, np.array([True]), "True"),
        (8, None, "None"),
    ],
    ids=str,
)
def test_foreign_types_are_refused_by_name(n, moduli, named):
    with pytest.raises(TypeError, match="integer") as error:
        RingSpec(n, moduli)
    assert named in str(error.value)


def test_equality_and_hash_follow_degree_moduli_and_order():
    ring = RingSpec(8, (17, 97))
    assert ring == RingSpec(8, (17, 97)) and hash(ring) == hash(RingSpec(8, (17, 97)))
    assert ring != RingSpec(8, (97, 17))
    assert ring != RingSpec(4, (17, 97))
    assert ring != RingSpec(8, (17,))
    assert ring != (8, (17, 97)) and (ring == "ring") is False
    assert {ring: 1}[RingSpec(8, [17, 97])] == 1
    assert tables(ring) is tables(RingSpec(8, (17, 97)))


def test_rings_are_immutable_and_copy_without_their_tables():
    ring = RingSpec(8, (17, 97))
    with pytest.raises(FrozenInstanceError):
        ring.n = 16
    assert copy.copy(ring) == copy.deepcopy(ring) == ring
    _ = tables(ring).psi
    data = pickle.dumps(ring)
    assert len(data) < 200
    assert pickle.loads(data) == ring


def test_parts_of_a_ring():
    ring = RingSpec(8, (17, 97, 113))
    assert ring.contains(ring) and ring.contains(RingSpec(8, (113, 17)))
    assert not ring.contains(RingSpec(8, (17, 193))) and not ring.contains(RingSpec(4, (17,)))
    assert ring.limb_indices(RingSpec(8, (113, 17))) == (2, 0)
    with pytest.raises(ValueError, match="not contained"):
        ring.limb_indices(RingSpec(8, (193,)))
    assert ring.without([97]) == RingSpec(8, (17, 113))
    assert ring.without((113, 17)) == RingSpec(8, (97,))
    assert ring.without(()) == ring


@pytest.mark.parametrize(
    ("moduli", "error", "named"),
    [
        ((193,), ValueError, "193"),
        ((17, 17), ValueError, "17 is to be dropped twice"),
        ((97, 17), ValueError, "one must remain"),
        (17, TypeError, "17"),
        (("17",), TypeError, "'17'"),
    ],
    ids=str,
)
def test_impossible_drops_are_refused(moduli, error, named):
    with pytest.raises(error, match=named):
        RingSpec(8, (17, 97)).without(moduli)


# Primes


def test_primality_equals_trial_division():
    assert [p for p in range(-10, 20000) if is_prime(p)] == [p for p in range(20000) if oracle.is_prime(p)]
    for p in range(2**31 - 300, 2**31 + 300):
        assert is_prime(p) == oracle.is_prime(p)


@pytest.mark.parametrize(
    "p",
    [
        2047,
        1373653,
        25326001,
        3215031751,
        2152302898747,
        3474749660383,
        341550071728321,
        3825123056546413051,
        318665857834031151167461,
    ],
)
def test_strong_pseudoprimes_are_composite(p):
    assert not is_prime(p)


def test_primality_is_decided_or_refused():
    assert is_prime(2**61 - 1) and not is_prime((2**31 - 1) ** 2)
    with pytest.raises(ValueError, match="below"):
        is_prime(2**89 - 1)
    with pytest.raises(TypeError, match=r"17\.0"):
        is_prime(17.0)


@pytest.mark.parametrize(("n", "bits"), [(2, 3), (2, 8), (8, 7), (8, 12), (64, 16), (1024, 20), (4096, 17)])
def test_find_primes_lists_all_there_are(n, bits):
    everything = [p for p in range(2**bits - 1, 2 ** (bits - 1) - 1, -1) if p % (2 * n) == 1 and oracle.is_prime(p)]
    assert find_primes(n, bits, len(everything)) == tuple(everything)
    assert find_primes(n, bits, 0) == ()
    with pytest.raises(ValueError, match=f"only {len(everything)} exist"):
        find_primes(n, bits, len(everything) + 1)
    if len(everything) > 1:
        left = find_primes(n, bits, len(everything) - 1, exclude=everything[:1])
        assert left == tuple(everything[1:])
        with pytest.raises(ValueError, match=f"only {len(everything) - 1} exist besides the 1 excluded"):
            find_primes(n, bits, len(everything), exclude=everything[:1])


@pytest.mark.parametrize("bits", [28, 30, 31])
@pytest.mark.parametrize("n", [2, 8192, 131072])
def test_find_primes_of_working_size(n, bits):
    found = find_primes(n, bits, 8)
    assert found == oracle.largest_primes(n, bits, 8)
    assert RingSpec(n, found).limbs == 8


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ((8, 1, 1), ValueError, "bits is 1"),
        ((8, 32, 1), ValueError, "bits is 32"),
        ((8, 30, -1), ValueError, "count is -1"),
        ((12, 30, 1), ValueError, "n is 12"),
        ((8, 30.0, 1), TypeError, "30.0"),
        ((8, 30, None), TypeError, "None"),
    ],
    ids=str,
)
def test_find_primes_refuses_nonsense(arguments, error, named):
    with pytest.raises(error, match=named):
        find_primes(*arguments)


# Roots, automorphisms, Montgomery constants


@pytest.mark.parametrize("n", [2, 4, 8, 16, 4096, 131072])
def test_galois_elements_are_powers_of_five(n):
    period = n // 2
    assert galois_element(0, n) == galois_element(period, n) == galois_element(-period, n) == 1
    for k in (1, 2, 3, 17, -1, -5, 10**30):
        g = galois_element(k, n)
        assert g % 4 == 1 and 0 < g < 2 * n
        assert g * galois_element(-k, n) % (2 * n) == 1
        assert galois_element(k + 1, n) == g * 5 % (2 * n)
    if n <= 16:
        assert len({galois_element(k, n) for k in range(period)}) == period
    with pytest.raises(TypeError):
        galois_element(1.0, n)


PRIMES_BY_DEGREE = [(n, p) for n in (2, 4, 8, 1024, 8192) for p in oracle.smallest_primes(n, 2) + oracle.largest_primes(n, 31, 2)]


@pytest.mark.parametrize(("n", "p"), PRIMES_BY_DEGREE, ids=str)
def test_roots_of_unity(n, p):
    psi = primitive_root(n, p)
    assert 0 < psi < p and pow(psi, n, p) == p - 1
    bits = n.bit_length() - 1
    for inverse, root in ((False, psi), (True, pow(psi, -1, p))):
        powers = root_powers(n, p, inverse)
        assert powers.dtype == np.uint32 and not powers.flags.writeable
        for i in {0, 1, n // 2, (n // 2 + 1) % n, n - 1, n // 3}:
            assert powers[i] == pow(root, oracle.bit_reverse(i, bits), p)


def test_roots_need_a_suitable_modulus():
    with pytest.raises(ValueError, match="modulus 19"):
        primitive_root(8, 19)


@pytest.mark.parametrize("p", (3, 5, 17, 12289, *NEAR_TOP))
def test_montgomery_constants(p):
    m = modulus(p)
    assert m.p == p and m.p * m.p_inv % R == 1 and m.r == R % p and m.r2 == R * R % p
    for t in (0, 1, p - 1, p * R - 1, (p - 1) ** 2, 123456789 * p % (p * R)):
        reduced = (t >> 32) - ((t % R * m.p_inv % R) * p >> 32)
        assert -p < reduced < p and (reduced * R - t) % p == 0
    assert to_montgomery(-1, p) == oracle.montgomery(p - 1, p)
    assert to_montgomery(10**40, p) == oracle.montgomery(10**40, p)


def test_montgomery_constants_need_an_odd_modulus_below_two_to_the_31():
    for bad in (1, 4, 2**31 + 1):
        with pytest.raises(ValueError, match=str(bad)):
            modulus(bad)


def test_residues_are_in_montgomery_form():
    ring = RingSpec(8, (17, 97))
    for c in (0, 1, -1, 10**30, -(10**30)):
        assert residues(c, ring) == (c * R % 17, c * R % 97)


def test_tables_hold_what_they_say():
    ring = RingSpec(8, (17, 97, 2147483489))
    t = tables(ring)
    for name, value in {
        "p": lambda p: p,
        "p_inv": lambda p: pow(p, -1, R),
        "p_inv_high": lambda p: pow(p, -1, R) << 32,
        "r": lambda p: R % p,
        "r2": lambda p: R * R % p,
        "n_inv": lambda p: pow(8, -1, p) * R % p,
    }.items():
        column = getattr(t, name)
        assert column.tolist() == [[value(p)] for p in ring.moduli]
        assert column.dtype == (np.uint64 if name == "p_inv_high" else np.uint32)
        assert not column.flags.writeable and getattr(t, name) is column
    for name, sign in (("psi", 1), ("psi_inv", -1)):
        factors = getattr(t, name)
        assert factors.dtype == np.uint32 and not factors.flags.writeable
        assert factors.tolist() == [
            [oracle.montgomery(pow(primitive_root(8, p), sign * oracle.bit_reverse(i, 3), p), p) for i in range(8)]
            for p in ring.moduli
        ]


@pytest.mark.parametrize("n", [2, 4, 64, 2048])
def test_bit_reversal(n):
    order = bit_reversal(n)
    assert order.tolist() == [oracle.bit_reverse(i, n.bit_length() - 1) for i in range(n)]
    assert not order.flags.writeable and bit_reversal(n) is order


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_automorphisms_permute_values(n):
    p = oracle.smallest_primes(n, 3)[2]
    psi = primitive_root(n, p)
    a = [(7 * i * i + 3 * i + 1) % p for i in range(n)]
    values = np.array(oracle.ntt(a, psi, p))
    for g in {1, 3, 5, n - 1, 2 * n - 1, 5 - 4 * n}:
        indices = automorphism_indices(n, g)
        assert indices.dtype == np.intp and not indices.flags.writeable
        assert values[indices].tolist() == oracle.ntt(oracle.automorphism(a, g, p), psi, p)
    with pytest.raises(ValueError, match="g is 4"):
        automorphism_indices(n, 4)


# Conversion between bases


def in_band(value: int, ring: RingSpec) -> bool:
    """Whether the centred representative lies within limbs * 2^-32 * q of q/2."""
    distance = Fraction(ring.q, 2) - abs(oracle.centred(value, ring.q))
    return distance <= Fraction(ring.limbs * ring.q, R)


def assert_lifted(value: int, src: RingSpec, dst: RingSpec) -> int:
    """Checks one conversion; returns by how many times src.q it is off."""
    got, exact = convert_scalar(value, src, dst), oracle.centred(value, src.q)
    assert 0 <= got < dst.q
    off = next(m for m in (0, 1, -1) if (exact + m * src.q - got) % dst.q == 0)
    assert off == 0 or in_band(value, src)
    return off


@st.composite
def bases(draw):
    n = 2 ** draw(st.integers(1, 4))

    def ring() -> RingSpec:
        chosen = set()
        for _ in range(draw(st.integers(1, 8))):
            start = draw(st.integers(n.bit_length() + 1, 31).flatmap(lambda b: st.integers(2 * n + 1, max(2**b - 1, 2 * n + 1))))
            p = (start - 1) // (2 * n) * (2 * n) + 1
            while not oracle.is_prime(p) or p in chosen:
                p = p + 2 * n if p + 2 * n < 2**31 else 2 * n + 1
            chosen.add(p)
        return RingSpec(n, chosen)

    return ring(), ring()


@given(bases(), st.integers(), st.integers(-5, 5))
def test_conversions_are_exact_outside_the_band_and_off_by_q_at_most_inside(rings, value, near):
    src, dst = rings
    assert_lifted(value, src, dst)
    half, width = src.q // 2, src.limbs * src.q // R
    for centre in (half, half - width, half + width, 0):
        assert_lifted(centre + near, src, dst)


@pytest.mark.parametrize("limbs", [2, 3, 8, 40])
def test_the_band_is_real_and_no_wider_than_stated(limbs):
    """Within the band some values are off by exactly q, in each direction; at its edges none is."""
    # Moduli for which cutting 2^63/p costs most, so that the error of the estimate takes on both signs.
    moduli = sorted(oracle.largest_primes(4, 31, 600), key=lambda p: 2**63 % p / p)
    src, dst = RingSpec(4, moduli[-limbs:]), RingSpec(4, moduli[:2])
    half, width = src.q // 2, limbs * src.q // R
    inside = {assert_lifted(half - i, src, dst) for i in range(300)} | {assert_lifted(half + 1 + i, src, dst) for i in range(300)}
    assert inside == {-1, 0, 1}
    for edge in (half - width, half + 1 + width):
        outward = 1 if edge > half else -1
        for i in range(1, 300):
            assert not in_band(edge + outward * i, src)
            assert assert_lifted(edge + outward * i, src, dst) == 0


@pytest.mark.parametrize("p", (5, 13, 2013265921, *oracle.largest_primes(2, 31, 3)))
def test_one_limb_is_always_exact(p):
    src, dst = RingSpec(2, (p,)), RingSpec(2, (17, 29) if p != 17 else (29, 37))
    for value in {*range(min(p, 2000)), *range(p // 2 - 1000, p // 2 + 1000), *range(p - 100, p)}:
        assert assert_lifted(value, src, dst) == 0


@pytest.mark.parametrize("moduli", [(17, 97), (5, 13, 17), (29, 5, 13, 17), (5, 1009)], ids=str)
def test_small_bases_are_always_exact(moduli):
    n = 8 if moduli[0] == 17 else 2
    src, dst = RingSpec(n, moduli), RingSpec(n, oracle.largest_primes(8, 31, 2))
    assert src.q * src.limbs < 2**31
    for value in range(src.q):
        assert convert_scalar(value, src, dst) == oracle.centred(value, src.q) % dst.q


def test_conversion_constants():
    src, dst = RingSpec(8, (17, 97, 113)), RingSpec(8, (97, 193))
    c = conversion(src, dst)
    assert conversion(RingSpec(8, (17, 97, 113)), dst) is c
    q = src.q
    assert c.hat_inv.tolist() == [[pow(q // p, -1, p)] for p in src.moduli]
    assert c.weight.tolist() == [[2**63 // p] for p in src.moduli]
    assert c.hat.tolist() == [[q // p * R * R % r for p in src.moduli] for r in dst.moduli]
    assert c.minus_q.tolist() == [[-q * R * R % r] for r in dst.moduli]
    assert c.rounding == 2**31 + 3
    assert not any(a.flags.writeable for a in (c.hat_inv, c.weight, c.hat, c.minus_q))
    for convert in (conversion, lambda s, d: convert_scalar(1, s, d)):
        with pytest.raises(ValueError, match="n is 8 and 4"):
            convert(src, RingSpec(4, (17,)))


# Parameters of random draws


def test_intervals_weights_and_sigmas_in_range_pass():
    assert check_interval(-(10**40), np.int64(3)) == (-(10**40), 3)
    assert check_weight(0, 8) == 0 and check_weight(np.uint8(8), 8) == 8
    assert check_sigma(1) == 1.0 and check_sigma(np.float32(3.5)) == 3.5 and check_sigma(Fraction(1, 2)) == 0.5
    assert check_sigma(2**14) == 16384.0 and check_sigma(5e-324) == 5e-324


@pytest.mark.parametrize(
    ("check", "arguments", "error", "named"),
    [
        (check_interval, (3, 3), ValueError, "from 3 to 3"),
        (check_interval, (4, -4), ValueError, "from 4 to -4"),
        (check_interval, (0.0, 4), TypeError, "low is 0.0"),
        (check_interval, (0, True), TypeError, "high is True"),
        (check_weight, (9, 8), ValueError, "weight is 9"),
        (check_weight, (-1, 8), ValueError, "weight is -1"),
        (check_weight, (1.0, 8), TypeError, "weight is 1.0"),
        (check_sigma, (0,), ValueError, "sigma is 0"),
        (check_sigma, (-3.2,), ValueError, "sigma is -3.2"),
        (check_sigma, (float("nan"),), ValueError, "sigma is nan"),
        (check_sigma, (float("inf"),), ValueError, "sigma is inf"),
        (check_sigma, (10**400,), ValueError, "at most 16384"),
        (check_sigma, ("3",), TypeError, "sigma is '3'"),
        (check_sigma, (True,), TypeError, "sigma is True"),
        (check_sigma, (3 + 0j,), TypeError, "complex"),
    ],
    ids=lambda v: getattr(v, "__name__", str(v))[:20],
)
def test_nonsense_is_refused_by_name(check, arguments, error, named):
    with pytest.raises(error) as raised:
        check(*arguments)
    assert named in str(raised.value)
