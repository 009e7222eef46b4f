"""The native backend equals the NumPy backend bit for bit: random programs, whatever the vectors and the threads."""

import random
from collections.abc import Callable
from unittest.mock import patch

import cpu_variants
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ren_lab as ren
from ren_lab.backends.cpu.kernel import BoundPlan
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec

VARIANTS = list(cpu_variants.VARIANTS)


def primes(n: int, count: int, rng: random.Random) -> tuple[int, ...]:
    """NTT-friendly primes from the smallest one up to 31 bits."""
    found: list[int] = []
    low = 2 * n + 1
    while len(found) < count:
        bits = rng.choice([20, 25, 26, 29, 30, 31, 31])
        p = low if rng.random() < 0.2 else rng.randrange(2 ** max(bits, low.bit_length())) // (2 * n) * (2 * n) + 1
        if low <= p < 2**31 and p not in found and oracle.is_prime(p):
            found.append(p)
        elif p == low:
            low += 2 * n
    return tuple(found)


def moves(p: Poly, q: Poly, other: RingSpec, rng: random.Random) -> list[Callable[[], Poly]]:
    """What may come next."""
    n, ring = p.ring.n, p.ring
    c, k = rng.choice([1, -1, 5, rng.randrange(ring.q)]), rng.randrange(-n, n)
    chosen = rng.sample(ring.moduli, rng.randrange(1, ring.limbs + 1))
    dropped = chosen[: ring.limbs - 1][:4]
    return [
        lambda: p + q,
        lambda: p - q,
        lambda: p * q,
        lambda: p * q + p * p,
        lambda: -p,
        lambda: p + c,
        lambda: c - p,
        lambda: p * c,
        lambda: (p - p) + c,
        lambda: p.rotate(k),
        lambda: p.conjugate(),
        lambda: (p * q).rotate(k) + c,
        lambda: p.ntt(),
        lambda: p.intt(),
        lambda: p.contiguous(),
        lambda: p.pin(),
        lambda: p.to_ring(RingSpec(n, tuple(chosen))),
        lambda: p.to_ring(other),
        lambda: (p + q).to_ring(other),
        lambda: p.rescale(dropped) if dropped else p,
        lambda: (p.intt() - q).rescale(dropped).ntt() if dropped else p,
    ]


def program(seed: int, n: int, limbs: int, steps: int, device: str) -> list[bytes]:
    """The data at rest of everything that a random program computes; equal seeds make equal programs."""
    rng = random.Random(seed)
    ring = RingSpec(n, primes(n, limbs, rng))
    other = RingSpec(n, primes(n, rng.randrange(1, limbs + 3), rng))
    data = np.random.default_rng(seed)
    pool = [Poly(data.integers(-(2**62), 2**62, n), ring, device) for _ in range(2)]
    pool.append(Poly([rng.choice([0, 1, -1, rng.randrange(ring.q)]) for _ in range(n)], ring, device))
    for _ in range(steps):
        p = rng.choice(pool)
        q = rng.choice([x for x in pool if x.ring == p.ring])
        pool.append(rng.choice(moves(p, q, other, rng))())
    rng.shuffle(pool)
    pool[0].realize(*pool[1 : rng.randrange(1, len(pool) + 1)])
    return [p.tobytes() for p in pool]


@pytest.mark.parametrize("variant", ["native2", "avx2", "scalar"])
@given(seed=st.integers(0, 2**32), log_n=st.integers(1, 7), limbs=st.integers(1, 8), steps=st.integers(1, 20))
@settings(max_examples=5, deadline=None)
def test_random_programs_equal_numpy(variant: str, seed: int, log_n: int, limbs: int, steps: int) -> None:
    device = cpu_variants.device(variant)
    assert program(seed, 2**log_n, limbs, steps, device) == program(seed, 2**log_n, limbs, steps, "python")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("log_n", "limbs"), [(9, 16), (11, 5), (13, 3)], ids=lambda v: str(v))
def test_larger_programs_equal_numpy(variant: str, log_n: int, limbs: int) -> None:
    device = cpu_variants.device(variant)
    assert program(log_n, 2**log_n, limbs, 14, device) == program(log_n, 2**log_n, limbs, 14, "python")


@pytest.mark.parametrize("variant", ["native2", "scalar"])
@given(seed=st.integers(0, 2**32), log_n=st.integers(1, 6), limbs=st.integers(2, 5))
@settings(max_examples=3, deadline=None)
def test_replayed_plans_equal_numpy(variant: str, seed: int, log_n: int, limbs: int) -> None:
    """A captured plan, run as one native call, with views, permutations and outputs that are inputs of the next call."""
    n, rng = 2**log_n, random.Random(seed)
    ring = RingSpec(n, primes(n, limbs, rng))
    other = RingSpec(n, primes(n, limbs, rng))
    part = RingSpec(n, ring.moduli[rng.randrange(limbs - 1) :])

    def body(a: Poly, b: Poly) -> tuple[Poly, ...]:
        c = (a * b).rotate(3) + 7
        return c, c.to_ring(part) * 3, a, (c + a).to_ring(other), c.rescale(ring.moduli[:1]), a.contiguous() * b

    values = [[rng.randrange(ring.q) for _ in range(n)] for _ in range(2)]

    def replayed(device: str) -> list[bytes]:
        jitted = ren.jit(body)
        a, b = (Poly(v, ring, device) for v in values)
        seen = []
        for _ in range(3):
            out = jitted(a, b)
            seen += [p.tobytes() for p in out]
            a, b = out[0], out[2]
        return seen

    with patch.object(BoundPlan, "__call__", autospec=True, side_effect=BoundPlan.__call__) as native_call:
        natively = replayed(cpu_variants.device(variant))
    assert native_call.called
    assert natively == replayed("python")
