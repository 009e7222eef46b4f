"""Choosing the primes of a modulus chain.

Rescaling a product at level l divides it by q_l, the product of the level's primes, so scales obey S_{l-1} = S_l^2 / q_l. The
distance d_l = log2(S_l) - s from a wanted scale 2^s doubles at every level, d_{l-1} = 2 d_l - (log2(q_l) - s), and a
choice of q_l near 2^(s + 2 d_l) brings it back. That is what the choice below does from the top down, each time with the best
primes that are left.
"""

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from ren_lab.ring import find_primes, is_prime

TOLERANCE_BITS = 0.05
"""How far, in bits, the scale of a level may lie from the wanted one."""

MAX_PRIME_BITS = 30
"""Chosen primes stay below 2^30, where kernels can postpone reductions: 4p fits in 32 bits."""

_CANDIDATES = 256
_WINDOWS_BITS = (1.0, 2.0, 3.0)


@lru_cache(maxsize=64)
def _near(n: int, log2_size: float, window_bits: float) -> tuple[int, ...]:
    """Primes p < 2^30 with p % 2n == 1 and |log2(p) - log2_size| at most `window_bits`, nearest first; at most 256."""
    step = 2 * n
    centre = round(2**log2_size) // step
    found: list[int] = []
    for distance in range(1 << 20):
        low, high = (centre - distance) * step + 1, (centre + distance + 1) * step + 1
        ends = [low > max(step, 2 ** (log2_size - window_bits)), high < 2 ** min(MAX_PRIME_BITS, log2_size + window_bits)]
        if len(found) >= _CANDIDATES or not any(ends):
            break
        found += [p for p, inside in zip((low, high), ends) if inside and is_prime(p)]
    return tuple(sorted(found, key=lambda p: abs(math.log2(p) - log2_size)))


def choose_groups(
    n: int, depth: int, log2_scale: float, size: int, exclude: Iterable[int] = (), tolerance_bits: float = TOLERANCE_BITS
) -> tuple[tuple[int, ...], ...]:
    """The primes of levels 1 to `depth`, `size` (1 or 2) for each, such that scales stay near 2^log2_scale.

    Chosen greedily from the top level down, on whose scale the others depend; the top level's is exactly 2^log2_scale.
    Primes of similar size are preferred.

    Raises:
        ValueError: the primes do not suffice; the message says how many levels they give.
    """
    taken = frozenset(exclude)
    groups: list[tuple[int, ...]] = []
    for window_bits in _WINDOWS_BITS:
        near = [p for p in _near(n, log2_scale / size, window_bits) if p not in taken]
        groups = max(groups, _greedy(near, depth, log2_scale, size, tolerance_bits), key=len)
        if len(groups) == depth:
            return tuple(reversed(groups))
    kind = "pairs of primes" if size == 2 else "primes"
    raise ValueError(
        f"at n = {n} there are too few {kind} with p % {2 * n} == 1 for {depth} levels at scales near 2^{log2_scale:g}: "
        f"they give {len(groups)} within {tolerance_bits:g} bits"
    )


def _greedy(left: list[int], depth: int, log2_scale: float, size: int, tolerance_bits: float) -> list[tuple[int, ...]]:
    """The groups of the levels from the top down, as many as there are primes for."""
    drift = 0.0
    groups: list[tuple[int, ...]] = []
    while len(groups) < depth and len(left) >= size:
        logs = np.log2(np.array(left, dtype=float))
        distance = np.abs((logs[:, None] + logs if size == 2 else logs[:, None]) - (log2_scale + 2 * drift))
        if size == 2:
            distance[np.tril_indices(len(left))] = np.inf
        i, j = np.unravel_index(np.argmin(distance), distance.shape)
        if distance[i, j] > tolerance_bits:
            break
        group = (left[i], left[j]) if size == 2 else (left[i],)
        drift = 2 * drift - (math.log2(math.prod(group)) - log2_scale)
        groups.append(tuple(sorted(group)))
        left = [p for p in left if p not in group]
    return groups


def choose_base(n: int, log2_product: float, exclude: Iterable[int] = ()) -> tuple[int, ...]:
    """The smallest pair of primes of equal size (or a single one where it suffices) with a product of at least 2^log2_product.

    Raises:
        ValueError: no pair of primes below 2^31 is that large.
    """
    taken = tuple(exclude)
    for count in (1, 2):
        for bits in range(max(2, math.ceil(log2_product / count)), 32):
            try:
                chosen = find_primes(n, bits, count, exclude=taken)
            except ValueError:
                continue
            if math.log2(math.prod(chosen)) >= log2_product:
                return chosen
    raise ValueError(f"at n = {n} no two primes with p % {2 * n} == 1 below 2^31 have a product of 2^{log2_product:g}")


def choose_special(n: int, log2_product: float, exclude: Iterable[int] = ()) -> tuple[int, ...]:
    """The fewest primes of one size, at most 30 bits, with a product of at least 2^log2_product, and those as small as possible.

    Raises:
        ValueError: there are not enough primes.
    """
    taken = tuple(exclude)
    for count in range(math.ceil(log2_product / MAX_PRIME_BITS), 65):
        for bits in range(max(2, math.ceil(log2_product / count)), MAX_PRIME_BITS + 1):
            try:
                chosen = find_primes(n, bits, count, exclude=taken)
            except ValueError:
                continue
            if math.log2(math.prod(chosen)) >= log2_product:
                return chosen
    raise ValueError(f"at n = {n} there are too few primes of at most {MAX_PRIME_BITS} bits for a product of 2^{log2_product:g}")
