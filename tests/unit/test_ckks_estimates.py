"""Estimates of noise and precision: near the truth, outside of jit keys, recomputed at each replay; and reports."""

import math

import numpy as np
import pytest

import ren_lab as ren
from ren_lab.schemes.ckks import CKKSParams, decode, decrypt, encode, encrypt, keygen, noise
from ren_lab.schemes.ckks.noise import Estimate, Noise
from ren_lab.structure import Companion

PARAMS = CKKSParams.python_test()
SLOTS = PARAMS.slot_count


@pytest.fixture(scope="module")
def ctx():
    with keygen(PARAMS) as ctx:
        yield ctx


def fresh(values, bound=1.0):
    return encrypt(encode(values, msg_bound=bound))


def at_the_bound(seed):
    """Signs: every slot is as large as the bound, so that every slot is the worst one."""
    return np.random.default_rng(seed).choice([-1.0, 1.0], SLOTS)


X, Y = at_the_bound(1), at_the_bound(2)

PROGRAMS = {
    "fresh": (lambda x, y: x, lambda x, y: x),
    "sum": (lambda x, y: x + y, lambda x, y: x + y),
    "integer multiple": (lambda x, y: 7 * x, lambda x, y: 7 * x),
    "twice added": (lambda x, y: x + x + x, lambda x, y: 3 * x),
    "multiple": (lambda x, y: 0.3 * x, lambda x, y: 0.3 * x),
    "product": (lambda x, y: x * y, lambda x, y: x * y),
    "square": (lambda x, y: x * x, lambda x, y: x * x),
    "chebyshev": (lambda x, y: 2 * x * x - 1, lambda x, y: 2 * x * x - 1),
    "rotation": (lambda x, y: x.rotate(3), lambda x, y: np.roll(x, -3)),
    "array": (lambda x, y: x * Y + Y, lambda x, y: x * Y + Y),
    "lowered": (lambda x, y: x.to_level(1), lambda x, y: x),
    "difference of squares": (lambda x, y: (x - y) * (x + y), lambda x, y: x * x - y * y),
    "cubes": (lambda x, y: x**3 + y, lambda x, y: x**3 + y),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_estimates_are_near_the_truth(ctx, name):
    program, meaning = PROGRAMS[name]
    result = program(fresh(X), fresh(Y))
    errors = decode(decrypt(result)) - meaning(X, Y)
    std = math.sqrt(np.mean(errors.real**2))
    slack = 0.75 if name in ("difference of squares", "cubes") else 0.25  # not all slots are at the bound, errors are related
    assert result.precision_bits == pytest.approx(-math.log2(std), abs=slack)
    known = result.estimate.value
    assert known.imaginary == 0 and known.low - 1e-9 <= meaning(X, Y).min() and meaning(X, Y).max() <= known.high + 1e-9


def test_noise_bits_are_of_coefficients(ctx):
    x = fresh(X)
    secret = ctx.secret_key._poly.to_ring(x.a.ring)
    error = np.array((x.b + x.a * secret - encode(X).poly).to_centered_list(), float)
    assert x.noise_bits == pytest.approx(math.log2(np.std(error)), abs=0.3)
    assert (4 * x).noise_bits == pytest.approx(x.noise_bits)  # the factor is not in the polynomials yet


def test_real_chains_keep_tight_bounds(ctx):
    x = fresh(X)
    for _ in range(4):
        x = 2 * x * x - 1
        assert (x.estimate.value.low, x.estimate.value.high) == pytest.approx((-1, 1))


@pytest.mark.parametrize("seed", range(5))
def test_bounds_hold_for_complex_messages(ctx, seed):
    rng = np.random.default_rng(seed)
    x, y = (rng.uniform(-1, 1, SLOTS) + 1j * rng.uniform(-1, 1, SLOTS) for _ in range(2))
    a, b = fresh(x, 1.5), fresh(y, 1.5)
    factor = complex(*rng.integers(-3, 4, 2))
    for got, want in (
        (a * b, x * y), (a * a, x * x), (factor * a + b, factor * x + y), (a - b.conjugate(), x - np.conj(y)), (0.3j * a, 0.3j * x),
    ):  # fmt: skip
        known = got.estimate.value
        assert np.all(np.abs(want) <= known.bound + 1e-9) and np.all(np.abs(want.imag) <= known.imaginary + 1e-9)
        assert np.all(want.real >= known.low - 1e-9) and np.all(want.real <= known.high + 1e-9)


def test_estimates_are_recomputed_at_each_replay(ctx):
    bodies = []

    @ren.jit
    def f(x, y):
        bodies.append(1)
        return x * y, {"kept": x, "sum": y + x.rotate(1)}

    def both(x, y):
        product, rest = f(x, y)
        for got, wanted in ((product, x * y), (rest["kept"], x), (rest["sum"], y + x.rotate(1))):
            assert got.estimate.value == wanted.estimate.value
            assert got.estimate._recipe is None

    both(fresh(X), fresh(Y))
    both(fresh(0.25 * X, 0.25), fresh(3 * Y, 3.0))
    noisy = (fresh(X) * 1000).to_level(PARAMS.depth - 1) * 0.001
    both(noisy.to_level(2), fresh(Y).to_level(2))
    both(fresh(X).to_level(2), fresh(Y).to_level(2))
    assert len(bodies) == 2 and len(f.plans) == 2


def test_feedback_keeps_no_chain_of_estimates(ctx):
    step = ren.jit(lambda x: x.rotate(1) + 0.5)
    x = fresh(X)
    for _ in range(5):
        x = step(x)
    assert x.estimate._recipe is None
    assert len(step.plans) == 1


def test_estimates_from_closures_stay(ctx):
    y = fresh(Y)
    f = ren.jit(lambda x: (x + y, y))
    for bound in (1.0, 2.0):
        x = fresh(X, bound)
        total, same = f(x)
        assert total.estimate.value == (x + y).estimate.value and same.estimate.value == y.estimate.value


def test_an_estimate_is_a_companion():
    a, b = Estimate(Noise(0, 1, 0, 1.0)), Estimate(Noise(0, 2, 0, 2.0))
    assert isinstance(a, Companion) and Estimate.of(noise.added, a, b)._recipe is None
    stand_in = a.stand_in()
    twice = Estimate.of(noise.added, Estimate.of(noise.added, stand_in, b), stand_in)
    assert twice.value.variance == 4.0
    assert twice.given({stand_in: b}).value.variance == 6.0
    deep = stand_in
    for _ in range(20_000):
        deep = Estimate.of(noise.added, deep, stand_in)
    assert deep.given({stand_in: b}).value.variance == 2.0 * 20_001


def test_reports_compare_with_the_truth(ctx):
    x = fresh(X) * fresh(Y)
    report = x.report(X * Y)
    assert report.level == PARAMS.depth - 1 and report.depth == PARAMS.depth
    assert report.measured.std == pytest.approx(2.0**-report.precision_bits, rel=0.5)
    assert report.measured.median < report.measured.std < report.measured.largest
    errors = decode(decrypt(x)).real - X * Y
    assert report.measured.largest == pytest.approx(np.max(np.abs(errors)))
    assert report.capacity == pytest.approx(PARAMS.levels[-2].ring.q / 2 / x.scale)
    text = str(report)
    for word in ("level      5 of 6", "bits", "estimate", "measured", "expected values"):
        assert word in text
    wrong = x.report(X * Y + 0.5)
    assert wrong.measured.median == pytest.approx(0.5, abs=1e-3)


def test_reports_without_expected_values_look_at_imaginary_parts(ctx):
    real, mixed = fresh(X) * fresh(Y), fresh(1j * X)
    assert real.report().measured.std == pytest.approx(real.report(X * Y).measured.std, rel=0.3)
    assert mixed.report().measured is None and "nothing" in str(mixed.report())
    assert mixed.report(1j * X).measured is not None
    assert real.report((X * Y)[:10]).measured.largest <= real.report(X * Y).measured.largest
    with pytest.raises(ValueError, match="slots"):
        real.report(np.zeros(SLOTS + 1))


def test_representations_say_level_scale_and_precision(ctx):
    x = fresh(X)
    assert repr(3 * x).startswith("<Ciphertext: level 6, scale 2^29.00, times 3, about 2")
    assert "level 6" in repr(encode(X)) and "512 slots" in repr(encode(X))
    assert "precision" in repr(x.estimate) and repr(x - x)
    turned = encrypt(decrypt(-2 * x))  # its scale is negative
    assert "scale 2^28.00" in repr(turned) and turned.report(-2 * X).measured.largest < 1e-5
