"""Random functions over random structures: jitted equals plain, over many calls with held, dropped and fed-back results."""

import random
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ren_lab as ren
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec

RING = RingSpec(8, (17, 97, 113))
SMALL = RingSpec(8, (97,))


@dataclass
class Pair:
    left: Poly
    right: Poly
    tag: int = 0


def poly(rng: random.Random) -> Poly:
    return Poly([rng.randrange(RING.q) for _ in range(8)], RING)


def make_function(seed: int) -> Any:
    """A random function of (Poly, Pair, dict of lists): a random expression graph per result."""

    def function(x: Poly, pair: Pair, more: dict[str, list[Poly]]) -> Any:
        rng = random.Random(seed)
        pool = [x, pair.left, pair.right, *more["k"], constant(x.device)]
        for _ in range(rng.randrange(1, 12)):
            a, b = rng.choice(pool), rng.choice(pool)
            match rng.randrange(8):
                case 0:
                    pool.append(a + b)
                case 1:
                    pool.append(a * b)
                case 2:
                    pool.append(a - b * 3)
                case 3:
                    pool.append(a.rotate(rng.randrange(4)))
                case 4:
                    pool.append(a.to_ring(SMALL).to_ring(RING))
                case 5:
                    pool.append(a.rescale((17,)).to_ring(RING))
                case 6:
                    pool.append((a * pair.tag).contiguous())
                case 7:
                    pool.append(-a + 5)
        chosen = [rng.choice(pool) for _ in range(3)]
        return Pair(chosen[0], pool[-1], pair.tag + 1), (chosen[1], {"z": chosen[2]})

    return function


DEVICES = [d.name for d in ren.devices() if d.available]


@lru_cache
def constant(device: str) -> Poly:
    """A polynomial that functions reach through their closure."""
    return Poly([3, 1, 4, 1, 5], RING, device=device).realize()


def values(result: Any) -> list[list[int]]:
    pair, (second, named) = result
    assert isinstance(pair, Pair)
    return [p.tolist() for p in (pair.left, pair.right, second, named["z"])] + [[pair.tag]]


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), prune=st.booleans())
def test_jitted_equals_plain_over_many_calls(device: str, seed: int, prune: bool) -> None:
    with ren.using(device=device):
        many_calls(seed, prune)


def many_calls(seed: int, prune: bool) -> None:
    rng = random.Random(seed)
    plain = make_function(seed)
    jitted = ren.jit(plain, prune=prune)
    held: list[tuple[Any, list[list[int]]]] = []
    state = poly(rng)
    for call in range(6):
        shared = poly(rng)
        x, left = (shared, shared) if seed % 3 == 0 else (state, poly(rng))
        args = (x, Pair(left, poly(rng), call % 2), {"k": [poly(rng), state]})
        want = values(plain(*args))
        got = jitted(*args)
        if call % 2:
            assert values(got) == want
        if call % 3 == 0:
            held.append((got, want))
        state = got[0].right  # feed a result back
    for got, want in held:  # nothing that is still in reach was overwritten
        assert values(got) == want
    assert len(jitted.plans) <= 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("threads", [2, 4])
def test_threads_share_a_plan_without_mixing_results(threads: int, device: str) -> None:
    plain = make_function(7)
    jitted = ren.jit(plain)
    wrong: list[Any] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        with ren.using(device=device):
            for _ in range(30):
                args = (poly(rng), Pair(poly(rng), poly(rng)), {"k": [poly(rng)]})
                if values(jitted(*args)) != values(plain(*args)):
                    wrong.append(number)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong
