"""Operators on ciphertexts against NumPy, their levels and factors, and their errors."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from schedules import transformed_limbs

import ren_lab as ren
from ren_lab.events import OperationDone
from ren_lab.ir import Op
from ren_lab.poly import Poly
from ren_lab.ring import Domain
from ren_lab.schemes.ckks import CKKSParams, Plaintext, decode, decrypt, encode, encrypt, keygen
from ren_lab.schemes.ckks.builder import transforms_per_product

PARAMS = CKKSParams.python_test()
TOP = PARAMS.depth
SLOTS = PARAMS.slot_count


@pytest.fixture(scope="module")
def ctx():
    with keygen(PARAMS) as ctx:
        yield ctx


def vector(seed, size=SLOTS, imaginary=False):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, size) + (1j * rng.uniform(-1, 1, size) if imaginary else 0)


def fresh(values, bound=1.0, **options):
    return encrypt(encode(values, msg_bound=bound, **options))


def check(ciphertext, wanted, tolerance=1e-4, level=None):
    if level is not None:
        assert ciphertext.level == level
    assert ciphertext.scale == PARAMS.levels[ciphertext.level].scale
    assert ciphertext.a.ring == ciphertext.b.ring == PARAMS.levels[ciphertext.level].ring
    np.testing.assert_allclose(decode(decrypt(ciphertext)), wanted, atol=tolerance)


X, Y, Z = vector(1), vector(2), vector(3, imaginary=True)


@pytest.mark.parametrize("other", [2, -3, 0, 1, np.int16(5), 2.0, Fraction(4, 2), 10**6], ids=repr)
def test_integer_factors_take_no_level(ctx, other):
    x, tolerance = fresh(X), 1e-4 * max(1, abs(float(other)))
    check(other * x, float(other) * X, tolerance, TOP)
    check(x * other, float(other) * X, tolerance, TOP)
    check(other * x - x, (float(other) - 1) * X, tolerance, TOP)
    assert (other * x).a.node is x.a.node or other == 0


@pytest.mark.parametrize("other", [0.5, -0.3, 1e-3, np.float32(0.25), Fraction(1, 3), 0.1 - 0.7j, 100.5, 1e-30], ids=repr)
def test_other_numbers_take_one_level(ctx, other):
    x, value = fresh(X), complex(other)
    check(x * other, value * X, 1e-4 * max(1, abs(value)), TOP - 1)
    check(other * x, value * X, 1e-4 * max(1, abs(value)), TOP - 1)


@pytest.mark.parametrize("other", [1j, -1j, 2 - 3j, 0j, np.complex64(1j)], ids=repr)
def test_gaussian_integers_take_no_level(ctx, other):
    check(fresh(Z, 2.0) * other, complex(other) * Z, level=TOP)


@pytest.mark.parametrize("other", [0, 1, -0.5, 3.25, 0.5 - 2j, np.float64(0.1), Fraction(1, 3)], ids=repr)
def test_numbers_are_added_and_subtracted(ctx, other):
    x, value = fresh(X), complex(other)
    check(x + other, X + value, level=TOP)
    check(other + x, X + value, level=TOP)
    check(x - other, X - value, level=TOP)
    check(other - x, value - X, level=TOP)


@pytest.mark.parametrize("make", [np.asarray, list, tuple], ids=["array", "list", "tuple"])
@pytest.mark.parametrize("imaginary", [False, True], ids=["real", "complex"])
def test_arrays_are_operands(ctx, make, imaginary):
    x, y = fresh(X), 3 * vector(9, 100, imaginary)
    full = np.zeros(SLOTS, complex)
    full[:100] = y
    check(x + make(y), X + full, level=TOP)
    check(make(y) - x, full - X, level=TOP)
    check(make(y) * x, X * full, level=TOP - 1)
    check((x * x) * make(y), X * X * full, level=TOP - 2)


@pytest.mark.parametrize("level", [TOP, TOP - 1, 1])
@pytest.mark.parametrize("below", [TOP, TOP - 2, 1])
def test_plaintexts_meet_ciphertexts_of_any_level(ctx, level, below):
    x, y = fresh(X).to_level(below), encode(Y, level=level)
    check(x + y, X + Y, level=min(level, below))
    check(y - x, Y - X, level=min(level, below))
    check(x * y, X * Y, level=min(level, below) - 1)


def test_a_plaintext_can_be_transformed_once(ctx):
    x, y = fresh(X).realize(), encode(Y).transformed().realize()
    check(x * y, X * Y, level=TOP - 1)
    check(x.to_level(2) * y + y, X * Y + Y, level=1)
    check(encrypt(y), Y, level=TOP)
    assert y.poly.domain is Domain.NTT and "to_rns" not in {i.kind for i in (x * y).b.explain().schedule}


def test_constants_and_decrypted_values_are_plaintexts(ctx):
    x = fresh(X)
    check(x * Plaintext.const(0.25), 0.25 * X, level=TOP - 1)
    check(x * Plaintext.const(-3), -3 * X, level=TOP)
    check(Plaintext.const(0.5) - x, 0.5 - X, level=TOP)
    check(x + decrypt(2 * x), 3 * X)
    check(encrypt(decrypt(-2 * x)) * x, -2 * X * X)


def test_sums_differences_and_negatives(ctx):
    x, y, z = fresh(X), fresh(Y), fresh(Z, 2.0)
    check(x + y, X + Y, level=TOP)
    check(x - z, X - Z, level=TOP)
    check(-z, -Z, level=TOP)
    check(+x, X, level=TOP)
    check(sum([x, y, z]), X + Y + Z, level=TOP)
    check(2 * x - 3 * y, 2 * X - 3 * Y, level=TOP)
    check(5 * x + 5 * y, 5 * X + 5 * Y, level=TOP)


def test_sums_of_a_ciphertext_with_itself(ctx):
    x = fresh(X)
    check(x + x, 2 * X)
    check(3 * x - x, 2 * X)
    assert (x + x).a.node is x.a.node and (3 * x - x).factor == 2
    nothing = x - x
    check(nothing, 0 * X)
    check((nothing + x) * (nothing + 1), X)
    check(nothing * nothing, 0 * X)
    check(nothing * x + 0.5, 0 * X + 0.5)


def test_near_equal_ciphertexts(ctx):
    x, again = fresh(X), fresh(X)
    check(x - again, 0 * X, 1e-5)
    check(x * 0.5 - again.to_level(TOP - 1) * Plaintext.const(1) + x * 0.5, 0 * X, 1e-5)
    check((x - again) * (x + again), 0 * X, 1e-5)


def test_products(ctx):
    x, y, z = fresh(X), fresh(Y), fresh(Z, 2.0)
    check(x * y, X * Y, level=TOP - 1)
    check(x * x, X * X, level=TOP - 1)
    check(z * z, Z * Z, level=TOP - 1)
    check(2 * x * x - 1, 2 * X * X - 1, level=TOP - 1)
    check((2 * x) * (3 * y), 6 * X * Y, level=TOP - 1)
    check(x / 2, X / 2, level=TOP - 1)
    check(0.5 * (2 * x), X, level=TOP)
    check(x * y * z, X * Y * Z, level=TOP - 2)


def test_operands_at_different_levels(ctx):
    x, y = fresh(X), fresh(Y)
    check(x**3 + y, X**3 + Y, level=TOP - 2)
    check(y - x * x, Y - X * X, level=TOP - 1)
    check((x * x * x) * y, X**3 * Y, level=TOP - 3)
    check(x.to_level(0) + y, X + Y, level=0)
    check(fresh(X, level=2) * y, X * Y, level=1)


def test_the_scale_is_matched_exactly():
    """A chain whose scale drifts: without the correcting integer, errors would be a thousandth."""
    p = CKKSParams.build(depth=2, precision_bits=25, n=2**10, insecure=True)
    with keygen(p):
        x, y = fresh(0.75), fresh(0.5)
        for got, wanted in ((x * x + y, 0.75**2 + 0.5), (x * x * y, 0.75**2 * 0.5), (x.to_level(0) + y, 1.25)):
            assert abs(decode(decrypt(got), length=1)[0] - wanted) < 2.0**-22
    drift = max(abs(v.log2_scale - p.log2_scale) for v in p.levels)
    assert drift > 2.0**-16  # so the test would notice


@pytest.mark.parametrize("exponent", [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 15, 16, 31, 32, 63, 64])
def test_powers_take_least_depth(ctx, exponent):
    values = np.sign(X) * np.abs(X) ** 0.25
    check(fresh(values) ** exponent, values**exponent, 3e-4, TOP - math.ceil(math.log2(exponent)))


@pytest.mark.parametrize("exponent", [0, -1, 2.0, True])
def test_other_powers_are_refused(ctx, exponent):
    with pytest.raises(ValueError, match="whole numbers from 1"):
        fresh(X) ** exponent


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 100, None])
def test_inner_sums(ctx, length):
    count = SLOTS if length is None else length
    wanted = sum(np.roll(X, -i) for i in range(count))
    check(fresh(X).sum(length), wanted, 1e-4 * count)


@pytest.mark.parametrize("length", [0, SLOTS + 1, -1, 2.0])
def test_other_sums_are_refused(ctx, length):
    with pytest.raises(ValueError, match=f"give 1 to {SLOTS}"):
        fresh(X).sum(length)


def test_rotations_after_products_and_of_factors(ctx):
    x, y = fresh(X), fresh(Z, 2.0)
    check((x * x).rotate(3), np.roll(X * X, -3), level=TOP - 1)
    check((2 * x).rotate(-1) - x, 2 * np.roll(X, 1) - X, level=TOP)
    check(y.to_level(0).rotate(1), np.roll(Z, -1), level=0)
    check(y.conjugate() * y, np.abs(Z) ** 2)
    check((y + y.conjugate()) * 0.5, Z.real)


def test_rotations_computed_together_share_the_transforms_of_digits(ctx):
    x = fresh(X).realize()

    def transforms(*ciphertexts):
        polys = [p for c in ciphertexts for p in (c.a, c.b)]
        return transformed_limbs(polys[0].explain(*polys[1:]).schedule)

    one, four = transforms(x.rotate(1)), transforms(*(x.rotate(k) for k in (1, 2, 3, 4)))
    lifted = sum(PARAMS.extended_ring.limbs - len(moduli) for moduli in PARAMS.digit_moduli(TOP))
    assert four == 4 * one - 3 * (lifted + PARAMS.levels[-1].ring.limbs)


@pytest.mark.parametrize("name", ["square", "product"])
def test_a_product_takes_the_transforms_of_one_division(ctx, name):
    """The divisions by special primes and by the level's group together transform each limb once."""
    x, y = fresh(X).realize(), fresh(Y).realize()
    product = x * x if name == "square" else x * y
    rescales = [node.arg for node in product.b.node.toposort() if node.op is Op.RESCALE]
    assert rescales == [PARAMS.special + PARAMS.groups[-1]]
    items = product.b.explain(product.a).schedule
    assert transformed_limbs(items) == transforms_per_product(PARAMS)


@pytest.mark.parametrize("k", [1.0, "1", None, True])
def test_rotations_are_by_integers(ctx, k):
    with pytest.raises(TypeError, match="give an int"):
        fresh(X).rotate(k)


@pytest.mark.parametrize("depth", [0, 1])
def test_the_smallest_rings(depth):
    params = CKKSParams.build(depth=depth, precision_bits=15, n=16, insecure=True)
    x = vector(4, 8, True)
    with keygen(params):
        ct = fresh(x, 2.0)
        for k in range(-17, 18):
            np.testing.assert_allclose(decode(decrypt(ct.rotate(k))), np.roll(x, -k), atol=1e-3)
        np.testing.assert_allclose(decode(decrypt(ct.conjugate())), np.conj(x), atol=1e-3)
        np.testing.assert_allclose(decode(decrypt(ct.sum())), np.full(8, np.sum(x)), atol=1e-3)
        if depth:
            np.testing.assert_allclose(decode(decrypt(ct * ct + ct)), x * x + x, atol=1e-3)
        with pytest.raises(ValueError, match=f"parameters have {depth} level"):
            ct * ct * ct


def test_running_out_of_levels_names_counts_and_line(ctx):
    x = fresh(X)
    for _ in range(TOP):
        x = x * x
    for use in (lambda: x * x, lambda: x * 0.5, lambda: x * encode(Y), lambda: x * Y, lambda: x**2):
        with pytest.raises(ValueError, match=rf"test_ckks_arithmetic.py:\d+: the parameters have {TOP} levels.* needs {TOP + 1};"):
            use()
    check(2 * x + x, 3 * X ** (2**TOP), 1e-2)
    with pytest.raises(ValueError, match="can go to levels 0 to 0"):
        x.to_level(1)


@pytest.mark.parametrize("level", [-1, TOP + 1, 1.0, True])
def test_levels_that_do_not_exist(ctx, level):
    with pytest.raises(ValueError, match=f"0 to {TOP}"):
        fresh(X).to_level(level)


@pytest.mark.parametrize(
    "other", [None, "1", {}, True, np.bool_(True), object(), b"1", Poly.const(1, PARAMS.levels[-1].ring)], ids=repr
)
@pytest.mark.parametrize("use", [lambda x, y: x + y, lambda x, y: y - x, lambda x, y: x * y], ids=["+", "-", "*"])
def test_other_types_are_refused(ctx, other, use):
    with pytest.raises(TypeError):
        use(fresh(X), other)


@pytest.mark.parametrize("other", [math.nan, math.inf, complex(0, math.nan), [math.nan], np.full(SLOTS + 1, 0.5)], ids=str)
def test_values_that_cannot_be_encoded(ctx, other):
    for use in (lambda x: x + other, lambda x: x * other):
        with pytest.raises(ValueError, match="finite|slots"):
            use(fresh(X))


def test_constants_that_do_not_fit(ctx):
    x = fresh(X).to_level(1)
    for use in (lambda: x + 1e12, lambda: x * (1e12 + 0.5), lambda: x + [1e12]):
        with pytest.raises(ValueError, match="does not fit at this level"):
            use()


def test_a_scale_of_ones_own_is_brought_back(ctx):
    """Half the scale is twice the value; the next operation makes it nominal again, which takes a level."""
    x = fresh(X)
    doubled = dataclasses.replace(x, scale=x.scale / 2)
    np.testing.assert_allclose(decode(decrypt(doubled)), 2 * X, atol=1e-4)
    check(doubled + x, 3 * X, level=TOP - 1)
    check(doubled * x, 2 * X * X, level=TOP - 2)
    check(doubled * 0.3, 0.6 * X, level=TOP - 1)
    check(doubled + [0.5] * SLOTS, 2 * X + 0.5, level=TOP - 1)


def test_everything_is_lazy_until_asked_for(ctx):
    x = fresh(X).realize()
    y = (x * x + 1).rotate(1)
    assert x.a.is_realized and x.b.is_realized and not y.a.is_realized
    assert y.realize() is y and y.a.is_realized and y.b.is_realized


def test_observers_hear_of_operations_and_lines(ctx):
    heard = []
    x = fresh(X)
    with ren.events.observe(heard.append):
        y = 2 * x * x - 1
        y.rotate(1)
    operations = [r for r in heard if isinstance(r, OperationDone)]
    assert [r.name for r in operations] == ["multiply_plain", "multiply", "add_plain", "rotate"]
    assert [r.level for r in operations] == [TOP, TOP - 1, TOP - 1, TOP - 1]
    assert all(r.origin[0] == __file__ for r in operations) and operations[3].origin[1] == operations[0].origin[1] + 1
    assert operations[1].log2_scale == PARAMS.levels[TOP - 1].log2_scale
    assert operations[1].precision_bits < operations[0].precision_bits


@pytest.mark.slow
def test_the_ten_step_chain_at_the_default_parameters():
    params = CKKSParams.default()
    points = [np.random.default_rng(0).uniform(-1, 1, params.slot_count)]
    for _ in range(10):
        points.append(2 * points[-1] ** 2 - 1)
    slope, steepest = np.ones(params.slot_count), np.zeros(params.slot_count)
    for x in reversed(points[:-1]):
        slope = slope * 4 * x
        steepest = np.maximum(steepest, np.abs(slope))
    with keygen(params):
        x = fresh(points[0])
        for _ in range(10):
            x = 2 * x * x - 1
        errors = np.abs(np.real(decode(decrypt(x))) - points[-1])
        assert x.level == 0
        assert np.median(errors) < 1e-7
        assert np.max(errors / (1 + steepest)) < 1e-9
        assert x.precision_bits == pytest.approx(-math.log2(np.max(errors)), abs=3)


@pytest.mark.parametrize("size", [1e6, 1e20, 1e30])
def test_large_values_come_back_as_they_are(ctx, size):
    """Decoding reads as much of the modulus as the values need."""
    np.testing.assert_allclose(decode(decrypt(fresh(X) + size), length=len(X)).real, X + size, rtol=1e-12, atol=1e-4)


def test_levels_powers_and_rotations_may_be_integers_of_numpy(ctx):
    x = fresh(X)
    check(x ** np.int64(2), X * X, level=TOP - 1)
    check(x.to_level(np.int32(0)), X, level=0)
    check(x.rotate(np.uint8(1)), np.roll(X, -1), level=TOP)
    assert encode(X, level=np.int64(1)).level == 1
    with pytest.raises(TypeError, match=r"a rotation is 1\.5 of type float"):
        keygen(PARAMS, rotations=[1.5])
