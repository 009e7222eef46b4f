"""CKKS inside captured functions: what makes a plan, what varies across replays, and that replays equal eager runs."""

import numpy as np
import pytest

import ren_lab as ren
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec
from ren_lab.schemes.ckks import CKKSParams, Plaintext, decode, decrypt, encode, encrypt, keygen

PARAMS = CKKSParams.build(depth=3, precision_bits=18, n=64, insecure=True)
SLOTS = PARAMS.slot_count


@pytest.fixture(scope="module")
def ctx():
    with keygen(PARAMS) as ctx:
        yield ctx


def vector(seed):
    return np.random.default_rng(seed).uniform(-1, 1, SLOTS)


def fresh(seed, **options):
    return encrypt(encode(vector(seed), **options))


def close(ciphertext, wanted):
    np.testing.assert_allclose(np.real(decode(decrypt(ciphertext))), wanted, atol=1e-4)


def chain(x):
    for _ in range(3):
        x = 2 * x * x - 1
    return x


@pytest.mark.parametrize("prune", [False, True])
def test_replays_equal_eager_runs_bit_for_bit(ctx, prune):
    jitted = ren.jit(chain, prune=prune)
    for seed in range(3):
        x = fresh(seed)
        eager, replayed = chain(x), jitted(x)
        assert eager.a.tobytes() == replayed.a.tobytes() and eager.b.tobytes() == replayed.b.tobytes()
    assert len(jitted.plans) == 1 and jitted.plans[0].hits == 2


def test_plaintext_arguments_vary_and_constants_make_plans(ctx):
    f = ren.jit(lambda x, p: x * p + p)
    for seed in range(3):
        close(f(fresh(1), encode(vector(seed))), vector(1) * vector(seed) + vector(seed))
    assert len(f.plans) == 1
    for number in (0.25, -0.5):
        close(f(fresh(1), encode(number)), vector(1) * number + number)
    assert len(f.plans) == 1  # an encoded number is data like any other
    for number in (0.25, 0.5, 0.25):
        close(f(fresh(1), Plaintext.const(number)), vector(1) * number + number)
    assert len(f.plans) == 3


def test_none_among_the_leaves_is_one_value():
    ring = RingSpec(8, (17, 97))
    f = ren.jit(lambda pair: pair[0] + 1)
    for value in (None, None, 0, None):
        f([Poly([1], ring), value])
    assert len(f.plans) == 2


def test_levels_make_plans_and_factors_too(ctx):
    f = ren.jit(lambda x: x + 1)
    for x in (fresh(1), fresh(2), fresh(1).to_level(1), fresh(2, level=1)):
        f(x)
    assert len(f.plans) == 2
    close(f(2 * fresh(3)), 2 * vector(3) + 1)
    close(f(2 * fresh(4)), 2 * vector(4) + 1)
    assert len(f.plans) == 3


def test_one_ciphertext_twice_is_a_square(ctx):
    f = ren.jit(lambda x, y: x * y)
    x = fresh(1)
    close(f(x, x), vector(1) ** 2)
    close(f(x, fresh(2)), vector(1) * vector(2))
    close(f(fresh(3), fresh(4)), vector(3) * vector(4))
    y = fresh(5)
    close(f(y, y), vector(5) ** 2)
    assert len(f.plans) == 2


def test_numbers_are_frozen(ctx):
    f = ren.jit(lambda x, c: x * c)
    close(f(fresh(1), 0.5), 0.5 * vector(1))
    with pytest.raises(RuntimeError, match="non-Poly scalar arg changed"):
        f(fresh(1), 0.25)


@pytest.mark.parametrize("prune", [False, True])
def test_arrays_and_keys_in_the_body_are_captured(ctx, prune):
    weights = vector(9)
    f = ren.jit(lambda x: (x * weights).rotate(2) + weights, prune=prune)
    for seed in range(3):
        close(f(fresh(seed)), np.roll(vector(seed) * weights, -2) + weights)


def test_results_stay_when_the_function_is_called_again(ctx):
    f = ren.jit(lambda x: x * x)
    first, second = f(fresh(1)), f(fresh(2))
    close(first - second, vector(1) ** 2 - vector(2) ** 2)


def test_feedback(ctx):
    step = ren.jit(lambda x, y: x.rotate(1) + y)
    x, wanted = fresh(1), vector(1)
    for seed in range(4):
        x, wanted = step(x, fresh(seed)), np.roll(wanted, -1) + vector(seed)
    close(x, wanted)
    assert len(step.plans) == 1


def test_containers_of_ciphertexts(ctx):
    f = ren.jit(lambda pair: {"sum": pair[0] + pair[1], "all": [c * 2 for c in pair]})
    for seed in range(2):
        result = f((fresh(seed), fresh(seed + 1)))
        close(result["sum"], vector(seed) + vector(seed + 1))
        close(result["all"][1], 2 * vector(seed + 1))


def test_decryption_can_be_captured(ctx):
    f = ren.jit(lambda x: decrypt(x * x))
    for seed in range(2):
        np.testing.assert_allclose(np.real(decode(f(fresh(seed)))), vector(seed) ** 2, atol=1e-4)


def test_asking_for_values_inside_is_refused(ctx):
    for body in (lambda x: (decode(decrypt(x)), x)[1], lambda x: (x * x).realize(), lambda x: (x.report(), x)[1]):
        with pytest.raises(RuntimeError, match="realize should not be called in a jitted function"):
            ren.jit(body)(fresh(1))


def test_errors_inside_leave_nothing_behind(ctx):
    f = ren.jit(lambda x: x**16)
    with pytest.raises(ValueError, match=r"no level is left for the product at .*test_ckks_jit.py:\d+"):
        f(fresh(1))
    assert not f.plans
    close(fresh(1) + 1, vector(1) + 1)
