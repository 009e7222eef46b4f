"""Random programs equal the oracle in Python integers, whatever is shared, realized or looked at in between."""

import random
from collections.abc import Callable
from typing import Any

import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ren_lab as ren
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec

Value = list[int]


def primes(n: int, count: int, rng: random.Random) -> tuple[int, ...]:
    """NTT-friendly primes from the smallest one up to 31 bits."""
    found: list[int] = []
    low = 2 * n + 1
    while len(found) < count:
        p = low if rng.random() < 0.3 else rng.randrange(2 ** rng.randrange(low.bit_length(), 32)) // (2 * n) * (2 * n) + 1
        if low <= p < 2**31 and p not in found and oracle.is_prime(p):
            found.append(p)
        elif p == low:
            low += 2 * n
    return tuple(found)


def band(value: int, q: int, limbs: int) -> bool:
    """Whether the lift of a residue may be off by q: it lies within limbs * 2^-32 * q of q/2."""
    centred = oracle.centred(value, q)
    return abs(2 * abs(centred) - q) * 2**31 <= limbs * q


class Program:
    """A random program, built twice: as polynomials and as lists of integers."""

    def __init__(self, seed: int, n: int, limbs: int, steps: int) -> None:
        rng = self.rng = random.Random(seed)
        self.n = n
        self.ring = RingSpec(n, primes(n, limbs, rng))
        self.other = RingSpec(n, primes(n, rng.randrange(1, limbs + 2), rng))
        self.pool: list[tuple[Poly, Value, RingSpec]] = []
        for _ in range(3):
            value = [rng.randrange(self.ring.q) for _ in range(n)]
            self.pool.append((Poly([c + rng.randrange(-3, 3) * self.ring.q for c in value], self.ring), value, self.ring))
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        rng, n = self.rng, self.n
        p, v, ring = rng.choice(self.pool)
        p2, v2, _ = rng.choice([t for t in self.pool if t[2] == ring])
        q = ring.q
        c = rng.choice([0, 1, -1, 2, 5, q - 1, rng.randrange(q)])
        constant = [c % q] + [0] * (n - 1)
        k = rng.randrange(-2 * n, 2 * n)
        moves: list[Callable[[], tuple[Poly, Value, RingSpec] | None]] = [
            lambda: (p + p2, oracle.add(v, v2, q), ring),
            lambda: (p - p2, oracle.sub(v, v2, q), ring),
            lambda: (p * p2, oracle.negacyclic_product(v, v2, q), ring),
            lambda: (-p, oracle.sub([0] * n, v, q), ring),
            lambda: (p + c, oracle.add(v, constant, q), ring),
            lambda: (c - p, oracle.sub(constant, v, q), ring),
            lambda: (c * p, [c * a % q for a in v], ring),
            lambda: (p + Poly.const(c, ring), oracle.add(v, constant, q), ring),
            lambda: ((p - p) + c, constant, ring),
            lambda: (p.rotate(k), oracle.automorphism(v, pow(5, k % max(n // 2, 1), 2 * n), q), ring),
            lambda: (p.conjugate(), oracle.automorphism(v, 2 * n - 1, q), ring),
            lambda: (p.ntt(), v, ring),
            lambda: (p.intt(), v, ring),
            lambda: (p.contiguous(), v, ring),
            lambda: (p.pin(), v, ring),
            lambda: ((p.to("python:1") * 3).to("python"), [3 * a % q for a in v], ring),
            self.select(p, v, ring),
            self.convert(p, v, ring),
            self.rescale(p, v, ring),
        ]
        made = rng.choice(moves)()
        if made is not None:
            self.pool.append(made)
        if rng.random() < 0.1:
            p.realize(p2)

    def select(self, p: Poly, v: Value, ring: RingSpec) -> Callable[[], Any]:
        chosen = self.rng.sample(ring.moduli, self.rng.randrange(1, ring.limbs + 1))
        if self.rng.random() < 0.5:
            start = self.rng.randrange(ring.limbs)
            chosen = list(ring.moduli[start : start + len(chosen)])
        target = RingSpec(self.n, tuple(chosen))
        return lambda: (p.to_ring(target), [a % target.q for a in v], target)

    def convert(self, p: Poly, v: Value, ring: RingSpec) -> Callable[[], Any]:
        target = self.other
        if not ring.contains(target) and any(band(a, ring.q, ring.limbs) for a in v):
            return lambda: None  # either answer is allowed; tests of the band are elsewhere
        lifted = v if ring.contains(target) else [oracle.centred(a, ring.q) for a in v]
        return lambda: (p.to_ring(target), [a % target.q for a in lifted], target)

    def rescale(self, p: Poly, v: Value, ring: RingSpec) -> Callable[[], Any]:
        if ring.limbs < 2:
            return lambda: None
        dropped = self.rng.sample(ring.moduli, self.rng.randrange(1, min(ring.limbs, 4)))
        target = ring.without(dropped)
        product = ring.q // target.q
        if len(dropped) > 1 and any(band(a % product, product, len(dropped)) for a in v):
            return lambda: None
        return lambda: (p.rescale(dropped), [oracle.rescale(a, product) % target.q for a in v], target)

    def check(self) -> None:
        outputs = [p for p, _, _ in self.pool]
        self.rng.shuffle(outputs)
        outputs[0].realize(*outputs[1 : self.rng.randrange(1, len(outputs) + 1)])
        for p, value, ring in self.pool:
            domain = p.domain
            assert p.ring == ring
            assert p.tolist() == value
            assert p.domain is domain


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32), log_n=st.integers(1, 5), limbs=st.integers(1, 8), steps=st.integers(1, 24), observed=st.booleans(),
    verify=st.booleans(),
)  # fmt: skip
def test_random_programs_equal_the_oracle(seed: int, log_n: int, limbs: int, steps: int, observed: bool, verify: bool) -> None:
    with ren.using(verify=verify):
        if observed:
            with ren.trace() as recording:
                Program(seed, 2**log_n, limbs, steps).check()
            assert recording.realizations
        else:
            Program(seed, 2**log_n, limbs, steps).check()


@pytest.mark.parametrize("log_n", [8, 10], ids=lambda k: f"n=2^{k}")
@pytest.mark.parametrize("seed", range(2))
def test_larger_programs_equal_the_oracle(log_n: int, seed: int) -> None:
    Program(seed, 2**log_n, 4, 8).check()


def test_small_kernels_change_nothing() -> None:
    for seed in range(6):
        with ren.using(max_kernel_loads=2, verify=True, schedule_cache_size=0):
            Program(seed, 8, 3, 20).check()


@given(seed=st.integers(0, 2**32), limbs=st.integers(2, 6), bits=st.integers(20, 31))
@settings(max_examples=60, deadline=None)
def test_near_half_of_q_a_lift_is_one_of_the_two_candidates(seed: int, limbs: int, bits: int) -> None:
    """On purpose inside the band of limbs * 2^-32 * q around q/2, and just outside of it, where the lift is exact."""
    rng = random.Random(seed)
    moduli = oracle.largest_primes(8, bits, limbs + 2)
    ring, target = RingSpec(8, moduli[:limbs]), RingSpec(8, moduli[limbs:])
    q = ring.q
    width = limbs * q >> 32
    inside = [(q // 2 + rng.randrange(-width, width + 1)) % q for _ in range(4)]
    outside = [q // 2 - width - 1 - i for i in range(2)] + [q // 2 + width + 2 + i for i in range(2)]
    got = Poly(inside + outside, ring).to_ring(target).tolist()
    for value, lifted in zip(inside, got[:4], strict=True):
        assert lifted in {value % target.q, (value - q) % target.q}
    for value, lifted in zip(outside, got[4:], strict=True):
        assert lifted == oracle.centred(value, q) % target.q
