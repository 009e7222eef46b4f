"""The canonical embedding, against evaluation of the polynomial at the roots of unity, term by term."""

import cmath
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ren_lab.ring import RingSpec, find_primes
from ren_lab.schemes.ckks import CKKSParams, Plaintext, decode, encode, keygen
from ren_lab.schemes.ckks.encoding import centered_floats, coefficients_to_slots, rounded, slots_to_coefficients
from ren_lab.schemes.ckks.plaintext import check_room


def evaluate(coefficients, n):
    """m(zeta^(5^j)) for each slot j, from the definition."""
    out = []
    for j in range(n // 2):
        power = pow(5, j, 2 * n)
        out.append(sum(c * cmath.exp(1j * math.pi * (k * power % (2 * n)) / n) for k, c in enumerate(coefficients)))
    return out


def vector(seed, size, real=False):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, size) + (0 if real else 1j * rng.uniform(-1, 1, size))


@pytest.fixture(scope="module")
def ctx():
    return keygen(CKKSParams.build(depth=2, precision_bits=20, n=32, insecure=True))


@pytest.mark.parametrize("n", [2, 4, 16, 64])
def test_slots_are_values_at_powers_of_five(n):
    slots = vector(n, n // 2)
    coefficients = slots_to_coefficients(slots, n)
    np.testing.assert_allclose(evaluate(coefficients, n), slots, atol=1e-12)
    np.testing.assert_allclose(coefficients_to_slots(coefficients, n), slots, atol=1e-12)


@pytest.mark.parametrize("n", [2**10, 2**15])
def test_the_transform_error_is_within_the_stated_bound(n):
    slots = vector(3, n // 2)
    back = coefficients_to_slots(slots_to_coefficients(slots, n), n)
    assert np.max(np.abs(back - slots)) < 2 * 5 * math.log2(n) * 2**-53 * math.sqrt(2) * 8


@pytest.mark.parametrize("real", [True, False], ids=["real", "complex"])
def test_an_encoded_polynomial_has_the_values(ctx, real):
    n, slots = 32, vector(7, 16, real)
    with ctx:
        plaintext = encode(slots, msg_bound=2.0)
    values = np.array(evaluate(plaintext.poly.to_centered_list(), n)) / plaintext.scale
    assert np.max(np.abs(values - slots)) <= n / 2 / plaintext.scale
    np.testing.assert_allclose(decode(plaintext), values, atol=1e-12)


def test_few_values_none_and_a_single_number(ctx):
    with ctx:
        np.testing.assert_allclose(decode(encode([0.5, -1])), [0.5, -1] + [0] * 14, atol=1e-6)
        np.testing.assert_allclose(decode(encode([])), np.zeros(16), atol=1e-6)
        np.testing.assert_allclose(decode(encode(0.25)), np.full(16, 0.25), atol=1e-6)
        np.testing.assert_allclose(decode(encode(0.25j)), np.full(16, 0.25j), atol=1e-6)
        np.testing.assert_allclose(decode(encode(np.float32(0.25)), length=3), [0.25] * 3, atol=1e-6)
        np.testing.assert_allclose(decode(encode(np.arange(16, dtype=np.int8), msg_bound=15)), np.arange(16), atol=1e-6)
        assert decode(encode(1), length=0).shape == (0,)


def test_constants_stay_symbolic(ctx):
    with ctx:
        plaintext = Plaintext.const(0.75)
        assert plaintext.poly.is_realized and plaintext.value == 0.75
        np.testing.assert_allclose(decode(plaintext), np.full(16, 0.75), atol=1e-6)
        assert Plaintext.const(2, level=1).poly.ring == ctx.params.levels[1].ring


def test_levels_can_be_chosen(ctx):
    with ctx:
        for level in ctx.params.levels:
            plaintext = encode([0.5], level=level.index)
            assert plaintext.poly.ring == level.ring and plaintext.scale == level.scale
            assert abs(decode(plaintext)[0] - 0.5) < 1e-6


@pytest.mark.parametrize("size", [1.0, 500.0, 1e6])
def test_coefficients_of_any_size_are_exact(ctx, size):
    """Small ones are lifted from the base ring, others are not."""
    slots = size * vector(11, 16)
    with ctx:
        plaintext = encode(slots, msg_bound=2 * size)
    wanted = rounded(slots_to_coefficients(slots, 32) * plaintext.scale)
    assert plaintext.poly.to_centered_list() == wanted.tolist()
    assert (np.max(np.abs(wanted)) > ctx.params.levels[0].ring.q // 4) == (size > 500)


@pytest.mark.parametrize(
    ("values", "options", "error", "message"),
    [
        ([3.0], {}, ValueError, "msg_bound"),
        ([0.5, 1 + 1e-9], {}, ValueError, "slot 1"),
        ([0.8 + 0.8j], {}, ValueError, "beyond msg_bound"),
        ([float("nan")], {}, ValueError, "finite"),
        ([0.0, float("inf")], {}, ValueError, "slot 1"),
        ([complex(0, float("nan"))], {}, ValueError, "finite"),
        ([0.0] * 17, {}, ValueError, "16 slots"),
        ([[0.0]], {}, ValueError, "one dimension"),
        (["a"], {}, TypeError, "numbers"),
        ([True], {}, TypeError, "numbers"),
        ([None], {}, TypeError, "numbers"),
        ([0.0], {"level": 3}, ValueError, "levels 0 to 2"),
        ([0.0], {"level": -1}, ValueError, "levels 0 to 2"),
        ([0.0], {"msg_bound": -1.0}, ValueError, "at least 0"),
        ([0.0], {"msg_bound": float("nan")}, ValueError, "finite"),
        ([0.0], {"msg_bound": 1e6, "level": 0}, ValueError, "does not fit"),
    ],
    ids=str,
)
def test_what_cannot_be_encoded_is_refused(ctx, values, options, error, message):
    with ctx, pytest.raises(error, match=message):
        encode(values, **options)


@pytest.mark.parametrize(
    ("c", "error", "message"),
    [
        ("1", TypeError, "no real number"),
        (1j, TypeError, "no real number"),
        (True, TypeError, "no real number"),
        (float("inf"), ValueError, "finite"),
        (1e300, ValueError, "does not fit"),
    ],
    ids=str,
)
def test_bad_constants_are_refused(ctx, c, error, message):
    with ctx, pytest.raises(error, match=message):
        Plaintext.const(c)


@pytest.mark.parametrize("length", [-1, 17, 2.0, True])
def test_a_wrong_length_is_refused(ctx, length):
    with ctx, pytest.raises(ValueError, match="16 slots"):
        decode(encode([0.5]), length=length)


def test_decode_wants_a_plaintext():
    with pytest.raises(TypeError, match="Plaintext"):
        decode([0.5])


def test_large_values_are_rounded_without_losing_digits():
    values = np.array([0.5, 1.5, -2.5, 2.0**62, -(2.0**80) - 2.0**30])
    assert [int(c) for c in rounded(values)] == [0, 2, -2, 2**62, -(2**80) - 2**30]
    assert rounded(values[:3]).dtype == np.int64


@given(st.lists(st.integers(-(2**100), 2**100), min_size=1, max_size=8))
def test_residues_become_centred_floats(values):
    ring = RingSpec(8, find_primes(8, 29, 4))
    values = [min(max(v, -(ring.q // 2)), ring.q // 2) for v in values]
    residues = np.array([[v % p for v in values] for p in ring.moduli], dtype=np.uint32)
    for got, want in zip(centered_floats(residues, ring), values):
        assert abs(got - want) <= abs(want) * 4 * 2.0**-52


def test_a_modulus_beyond_all_floats_has_room_for_any_value():
    wide = RingSpec(16, find_primes(16, 30, 35))
    assert wide.q > 2**1024
    check_room(1e300, 2.0**50, wide, "a value")
    with pytest.raises(ValueError, match=r"magnitudes must stay below 4\.19e\+06"):
        check_room(1e300, 2.0**7, RingSpec(16, find_primes(16, 30, 1)), "a value")
