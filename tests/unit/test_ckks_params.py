"""Parameters of CKKS: the chains of primes, what is refused, and what the builder explains."""

import dataclasses
import math
from fractions import Fraction

import oracle
import pytest

from ren_lab.schemes.ckks import CKKSParams
from ren_lab.schemes.ckks.primes import choose_base, choose_groups, choose_special
from ren_lab.schemes.ckks.security import DEGREES, max_log2_qp, security_bits

DEFAULT = CKKSParams.default()
SMALL = CKKSParams.python_test()


def log2(x: Fraction) -> float:
    """log2 of a rational of any size."""
    shift = x.numerator.bit_length() - x.denominator.bit_length()
    return shift + math.log2(x / Fraction(2) ** shift)


def test_the_default_is_what_its_docstring_says():
    assert DEFAULT.n == 2**15 and DEFAULT.slot_count == 2**14
    assert len(DEFAULT.levels) == 11 and DEFAULT.digits == 3
    assert [p.bit_length() for p in DEFAULT.base] == [30, 30]
    assert all(len(g) == 2 and {p.bit_length() for p in g} <= {25, 26} for g in DEFAULT.groups)
    assert len(DEFAULT.special) == 8 and all(p.bit_length() >= 27 for p in DEFAULT.special)
    assert math.prod(DEFAULT.special) > max(math.prod(d) for d in DEFAULT.digit_moduli(10))
    assert DEFAULT.log2_qp <= 868 and DEFAULT.security_bits == 128 and not DEFAULT.insecure


def test_the_test_set_is_small_and_says_that_it_is_insecure():
    assert SMALL.n <= 2**10 and SMALL.depth >= 3 and SMALL.insecure and SMALL.security_bits == 0
    assert "insecure" in repr(SMALL) and "insecure" not in repr(DEFAULT) and "Insecure" in CKKSParams.python_test.__doc__


@pytest.mark.parametrize("params", [DEFAULT, SMALL, CKKSParams.build(depth=7, precision_bits=25)], ids=repr)
def test_scales_follow_from_the_groups_exactly(params):
    scale = Fraction(2) ** round(params.log2_scale) if params.log2_scale == round(params.log2_scale) else None
    assert scale is not None
    for level in reversed(params.levels):
        assert abs(level.log2_scale - log2(scale)) < 1e-9  # an error of 2^-52 doubles at each level
        assert abs(level.log2_scale - params.log2_scale) < 0.05
        if level.group:
            scale = scale * scale / math.prod(level.group)
    if params is DEFAULT:
        assert max(abs(v.log2_scale - 50) for v in params.levels) < 0.01


@pytest.mark.parametrize("params", [DEFAULT, SMALL], ids=repr)
def test_every_level_is_a_window_of_the_extended_ring(params):
    everything, k = params.extended_ring.moduli, len(params.special)
    assert everything[:k] == params.special
    for level in params.levels:
        assert level.moduli == everything[k : k + len(level.moduli)]
        assert params.extended_ring_at(level.index).moduli == everything[: k + len(level.moduli)]
        assert params.encryption_ring_at(level.index).moduli == everything[k - 1 : k + len(level.moduli)]
        assert sum(params.digit_moduli(level.index), ()) == level.moduli
    for lower, upper in zip(params.levels, params.levels[1:]):
        assert lower.moduli + upper.group == upper.moduli
    assert all(oracle.is_prime(p) and p % (2 * params.n) == 1 for p in everything) and len(set(everything)) == len(everything)


def test_lower_levels_use_the_same_digits_cut_short():
    top = DEFAULT.digit_moduli(DEFAULT.depth)
    for level in range(DEFAULT.depth):
        digits = DEFAULT.digit_moduli(level)
        assert all(d == t[: len(d)] for d, t in zip(digits, top)) and all(d == t for d, t in zip(digits[:-1], top))


def test_security_is_what_the_table_says():
    assert [max_log2_qp(n) for n in DEGREES] == [26, 53, 106, 214, 430, 868, 1747]
    assert security_bits(2**15, 868.0) == 128 and security_bits(2**15, 868.1) == 0
    assert max_log2_qp(2**9) == 0 and security_bits(2**17, 100) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"digits": 0}, "digits is 0"),
        ({"digits": 23}, "1 to 22"),
        ({"special": DEFAULT.special[:2]}, "special primes have a product"),
        ({"special": ()}, "at least one prime"),
        ({"base": DEFAULT.base[:1]}, "no value beyond 1 would fit"),
        ({"n": 2**14}, "430 bits at n = 16384"),
        ({"n": 2**9}, "does not cover n = 512"),
        ({"special": (*DEFAULT.special, DEFAULT.base[0])}, "more than once"),
        ({"special": (*DEFAULT.special, 15)}, "15"),
        ({"log2_scale": 40.0}, "drifts"),
    ],
    ids=str,
)
def test_what_breaks_a_rule_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(DEFAULT, **change)


def test_insecure_sets_need_the_flag():
    fields = (SMALL.n, SMALL.base, SMALL.groups, SMALL.special, SMALL.digits, SMALL.log2_scale)
    with pytest.raises(ValueError, match="insecure=True"):
        CKKSParams(*fields)
    assert CKKSParams(*fields, insecure=True) == SMALL


def test_parameters_compare_and_hash_by_value():
    assert dataclasses.replace(SMALL, notes=("other words",)) == SMALL
    assert hash(dataclasses.replace(SMALL)) == hash(SMALL)
    assert dataclasses.replace(SMALL, digits=SMALL.digits + 1) != SMALL


@pytest.mark.parametrize(
    ("depth", "precision", "n"), [(0, 10, 2**12), (2, 10, 2**13), (5, 15, 2**14), (10, 30, 2**15), (12, 30, 2**15), (25, 20, 2**16)]
)
def test_the_builder_finds_the_smallest_degree(depth, precision, n):
    params = CKKSParams.build(depth=depth, precision_bits=precision)
    assert params.n == n and params.depth == depth and params.security_bits == 128
    # rounding leaves errors of about n/6 over the scale
    assert params.log2_scale >= precision + math.log2(n / 6)
    text = params.explain()
    assert f"n = {n}" in text and "precision" in text and "digits" in text and "of at most" in text
    assert f"n = {n // 2} is not enough" in text


def test_the_builder_says_why_it_refuses():
    with pytest.raises(ValueError, match=r"n = 65536 is not enough: .*log2\(QP\) is .* allows 1747"):
        CKKSParams.build(depth=30, precision_bits=30)
    with pytest.raises(ValueError, match="n = 32768 is not enough"):
        CKKSParams.build(depth=16, precision_bits=20, n=2**15)
    # primes of 20 bits are rare at this degree
    with pytest.raises(ValueError, match="too few pairs of primes"):
        choose_groups(2**15, 10, 40.0, 2)
    assert CKKSParams.build(depth=10, precision_bits=20).log2_scale == 46  # 2^34 would do, and primes begin to suffice there


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": -1}, "depth"),
        ({"depth": True}, "depth"),
        ({"depth": 3, "precision_bits": 60}, "precision_bits"),
        ({"depth": 3, "security_bits": 192}, "security_bits"),
        ({"depth": 3, "insecure": True}, "give n"),
        ({"depth": 3, "precision_bits": 40, "n": 2**9, "insecure": True, "security_bits": 0}, None),
    ],
    ids=str,
)
def test_the_builder_checks_its_arguments(arguments, message):
    if message is None:
        assert CKKSParams.build(**arguments).insecure
    else:
        with pytest.raises(ValueError, match=message):
            CKKSParams.build(**arguments)


@pytest.mark.parametrize(("n", "size", "scale"), [(2**12, 1, 28.0), (2**12, 2, 45.0), (2**16, 2, 50.0), (16, 1, 25.0)])
def test_chosen_primes_are_distinct_and_keep_the_scale(n, size, scale):
    base = choose_base(n, scale + 10)
    assert 2 ** (scale + 10) <= math.prod(base)
    groups = choose_groups(n, 6, scale, size, exclude=base)
    special = choose_special(n, 100.0, exclude=base + sum(groups, ()))
    assert math.prod(special) >= 2**100
    moduli = base + sum(groups, ()) + special
    assert len(set(moduli)) == len(moduli) and all(oracle.is_prime(p) and p % (2 * n) == 1 for p in moduli)
    s = scale
    for group in reversed(groups):
        assert len(group) == size
        s = 2 * s - math.log2(math.prod(group))
        assert abs(s - scale) <= 0.05


@pytest.mark.parametrize("log2_scale", [math.nan, math.inf, -1.0, 0.0])
def test_a_scale_is_a_number_of_bits(log2_scale):
    with pytest.raises(ValueError, match="log2_scale is .*; give the number of bits of the scale"):
        dataclasses.replace(SMALL, log2_scale=log2_scale)
