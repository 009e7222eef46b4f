"""Random expressions on ciphertexts equal the same expressions on arrays, eagerly and jitted."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ren_lab as ren
from ren_lab.schemes.ckks import CKKSParams, decode, decrypt, encode, encrypt, keygen

PARAMS = CKKSParams.build(depth=4, precision_bits=18, n=64, insecure=True)
SLOTS = PARAMS.slot_count


@pytest.fixture(scope="module")
def ctx():
    return keygen(PARAMS)


def inputs(seed):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, SLOTS), rng.uniform(-1, 1, SLOTS) + 1j * rng.uniform(-1, 1, SLOTS), rng.uniform(0.5, 1, 5)]


numbers = st.sampled_from([0, 1, -1, 2, -3, 0.5, -0.25, 1.75, 1j, -2 + 1j, 0.5 - 0.5j])
steps = st.one_of(
    st.tuples(st.sampled_from(["+", "-", "*"]), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.sampled_from(["+c", "c-", "*c"]), st.integers(0, 9), numbers),
    st.tuples(st.sampled_from(["+a", "*a"]), st.integers(0, 9), st.integers(0, 99)),
    st.tuples(st.just("rotate"), st.integers(0, 9), st.integers(-70, 70)),
    st.tuples(st.just("conjugate"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("sum"), st.integers(0, 9), st.integers(1, 5)),
    st.tuples(st.just("lower"), st.integers(0, 9), st.integers(0, 4)),
)


def run(program, values, encrypted):
    """The values of a program's last three steps; on ciphertexts, steps that need a level too many are left out on both sides."""
    pool = list(values)
    for name, i, other in program:
        x = pool[i % len(pool)]
        match name:
            case "+":
                y = x + pool[other % len(pool)]
            case "-":
                y = x - pool[other % len(pool)]
            case "*":
                y = x * pool[other % len(pool)]
            case "+c":
                y = x + other
            case "c-":
                y = other - x
            case "*c":
                y = x * other
            case "+a" | "*a":
                array = np.random.default_rng(other).uniform(-1, 1, SLOTS)
                y = x + array if name == "+a" else array * x
            case "rotate":
                y = x.rotate(other) if encrypted else np.roll(x, -other)
            case "conjugate":
                y = x.conjugate()
            case "sum":
                y = x.sum(other) if encrypted else sum(np.roll(x, -k) for k in range(other))
            case _:
                y = x.to_level(min(other, x.level)) if encrypted else x
        pool.append(y)
    return tuple(pool[-3:])


def legal(program):
    """The program with only such steps as levels and sizes allow, and the tolerance of its results."""
    levels, sizes, errors = [PARAMS.depth] * 3, [1.0, 1.5, 1.0], [1.0] * 3
    kept = []
    for name, i, other in program:
        i %= len(levels)
        level, size, error = levels[i], sizes[i], errors[i]
        if name in ("+", "-", "*"):
            j = other % len(levels)
            both = min(level, levels[j])
            level, size, error = (
                (both - 1, size * sizes[j], size * errors[j] + sizes[j] * error + 1)
                if name == "*"
                else (both, size + sizes[j], error + errors[j])
            )
        elif name in ("+c", "c-"):
            size += abs(other)
        elif name in ("*c", "*a"):
            level -= name == "*a" or other != complex(round(complex(other).real), round(complex(other).imag))
            factor = abs(other) if name == "*c" else 1.0
            size, error = size * max(factor, 1), error * max(factor, 1) + 1
        elif name == "sum":
            size, error = size * other, error * other * 3
        elif name == "lower":
            level, error = min(level, other), error + 1
        else:
            size, error = size + name.startswith("+"), error + 1
        if level < 0 or size > 100:
            continue
        kept.append((name, i, other))
        levels.append(level), sizes.append(size), errors.append(error)
    return kept, max(errors) * 16 * PARAMS.n / 6 / PARAMS.levels[-1].scale


@settings(max_examples=60)
@given(st.lists(steps, min_size=1, max_size=12), st.integers(0, 2**32))
def test_ciphertexts_compute_what_arrays_compute(ctx, program, seed):
    program, tolerance = legal(program)
    padded = [np.pad(v, (0, SLOTS - len(v))) for v in inputs(seed)]
    with ctx:
        encrypted = [encrypt(encode(v, msg_bound=1.5)) for v in inputs(seed)]
        got = run(program, encrypted, True)
        for ciphertext, wanted in zip(got, run(program, padded, False)):
            np.testing.assert_allclose(decode(decrypt(ciphertext)), wanted, atol=tolerance, rtol=0)
            assert ciphertext.scale == PARAMS.levels[ciphertext.level].scale
            known = ciphertext.estimate.value
            assert np.all(np.abs(wanted) <= known.bound + 1e-9)
            assert math.isfinite(known.variance)


@settings(max_examples=15)
@given(st.lists(steps, min_size=1, max_size=8), st.integers(0, 2**32))
def test_jitted_expressions_replay(ctx, program, seed):
    program, tolerance = legal(program)
    jitted = ren.jit(lambda *xs: run(program, xs, True))
    with ctx:
        for s in (seed, seed + 1):
            padded = [np.pad(v, (0, SLOTS - len(v))) for v in inputs(s)]
            results = jitted(*(encrypt(encode(v, msg_bound=1.5)) for v in inputs(s)))
            for ciphertext, wanted in zip(results, run(program, padded, False)):
                np.testing.assert_allclose(decode(decrypt(ciphertext)), wanted, atol=tolerance, rtol=0)
    assert len(jitted.plans) == 1
