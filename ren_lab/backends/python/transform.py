"""The negacyclic number theoretic transform in NumPy.

Both directions run the radix-2 network of Longa and Naehrig's forward transform (2016): stage s has 2^s blocks, and in
each the pair (x, y) that stands half a block apart becomes (x + w*y, x - w*y) with the block's own factor w. Two choices
make it fast where every step is a NumPy call on a whole array:

* Constant geometry (Pease, 1968): a stage reads its x from the first half of the array and its y from the second half, and
  writes its results side by side. Each index bit that has been worked off moves from the top to the bottom, so after
  log2(n) stages every value stands where the in-place transform would have left it, and all arrays that a stage reads
  are contiguous, which is where NumPy runs at full speed.
* Values stay unreduced, signed, in 64 bits. `constmul` multiplies any |y| up to `operand_limit(p)` and returns the
  centred residue, so a stage adds at most (p-1)/2 to the bound of the values. Below 2^29 no reduction is ever needed
  on the way, below 2^30 none up to n = 2^13, and close to 2^31 one of half the values every third stage.

Limbs of small rings are transformed together: a group of G limbs is laid out as [n, G], the stages then leave it as
[G, n]. The inverse evaluates the polynomial whose coefficients are the n values at the powers of psi^-2: it is the same
network with other factors, between two bit reversals, followed by a product with n^-1 * psi^-j.
"""

from functools import lru_cache
from threading import local

import numpy as np

from ren_lab.backends.python import constmul
from ren_lab.ring import RingSpec, bit_reversal, root_powers

_GROUP = 8192
"""Limbs of rings up to a quarter of it are transformed together up to so many values; larger ones are long enough alone."""
_TILE = 2048
"""Factors of a stage are repeated to at least so many entries, so that a call works on rows of that length."""


class _Buffers:
    """Two arrays of a network with their halves and interleaved parts, and one for products; int64."""

    def __init__(self, size: int) -> None:
        self.product = np.empty(size // 2, np.int64)
        self.whole = np.empty(size, np.int64), np.empty(size, np.int64)
        self.parts = [(x[: size // 2], x[size // 2 :], x[0::2], x[1::2]) for x in self.whole]


class _Threads(local):
    """The buffers of each thread, by size."""

    def __init__(self) -> None:
        self.by_size: dict[int, _Buffers] = {}

    def get(self, size: int) -> _Buffers:
        buffers = self.by_size.get(size)
        if buffers is None:
            buffers = self.by_size[size] = _Buffers(size)
        return buffers


_buffers = _Threads()


class _Network:
    """The stages of one transform of a group of limbs, with their factors.

    Stage: factors (None where all are 1), modulus, and whether x is to be reduced, by `one`, beforehand.
    """

    def __init__(self, n: int, primes: tuple[int, ...], inverse: bool) -> None:
        self.n, self.primes, self.inverse = n, primes, inverse
        self.p = np.array(primes, np.uint32)[:, None] if len(primes) > 1 else np.array(primes[0], np.uint32)
        powers = [constmul.words_of_residues(root_powers(n, p, inverse), p) for p in primes]
        top = max(primes)  # its limit is the tightest
        limit, half = constmul.operand_limit(top), (top - 1) // 2
        bound = 2 * half  # values are in [0, p) at first
        self.stages = []
        m = 1
        while m < n:
            factors = None
            added = bound
            if m > 1 or not inverse:
                factors = self._spread([w[:m] if inverse else w[m : 2 * m] for w in powers])
                added = half
            last = 2 * m == n
            # after the last stage: a product in the inverse, (-p, p) in the forward direction
            tidy = bound + added > limit or (last and not inverse)
            one = self._spread([constmul.words([1], p).repeat(m) for p in primes]) if tidy else None
            self.stages.append((factors, self._moduli(m), one))
            bound = (half if tidy else bound) + added
            m *= 2
        if inverse:
            scale = [constmul.words_of_residues(self._scaled(n, p), p) for p in primes]
            self.scale = np.concatenate(scale)
            self.scale_p = np.array(primes).repeat(n) if len(primes) > 1 else np.array(primes[0])

    @staticmethod
    def _scaled(n: int, p: int) -> np.ndarray:
        return root_powers(n, p, True).astype(np.uint64) * np.uint64(pow(n, -1, p)) % np.uint64(p)  # below 2^62

    def _spread(self, rows: list[np.ndarray]) -> np.ndarray:
        """One row per limb, repeated as the stage's y run through it."""
        row = np.concatenate(rows)
        half = self.n * len(rows) // 2
        wanted = half if len(rows) > 1 else min(half, max(len(row), _TILE))
        return np.tile(row, wanted // len(row))

    def _moduli(self, m: int) -> np.ndarray:
        if len(self.primes) == 1:
            return np.array(self.primes[0], np.int64)
        return self._spread([np.full(m, p) for p in self.primes])

    def run(self, buffers: _Buffers) -> np.ndarray:
        """Applies the stages to the first array of `buffers`; the result is one of the two arrays."""
        here, there = buffers.parts
        product = buffers.product
        for factors, p, one in self.stages:
            top, bottom, _, _ = here
            if factors is not None:
                _multiply(bottom, factors, product)
                constmul.finish(product, p)
                bottom = product
            if one is not None:
                _multiply(top, one, top)
                constmul.finish(top, p)
            np.add(top, bottom, out=there[2])
            np.subtract(top, bottom, out=there[3])
            here, there = there, here
        return buffers.whole[len(self.stages) % 2]


def _multiply(a: np.ndarray, factors: np.ndarray, out: np.ndarray) -> None:
    step = len(factors)
    if step == len(a):
        np.multiply(a, factors, out=out)
    else:
        for start in range(0, len(a), step):
            np.multiply(a[start : start + step], factors, out=out[start : start + step])


@lru_cache(maxsize=256)
def _network(n: int, primes: tuple[int, ...], inverse: bool) -> _Network:
    return _Network(n, primes, inverse)


@lru_cache(maxsize=512)
def _groups(ring: RingSpec, inverse: bool) -> tuple[tuple[slice, _Network], ...]:
    """The groups of limbs that are transformed together; rings with a common prefix of moduli share most networks."""
    size = _GROUP // ring.n if 4 * ring.n <= _GROUP else 1
    starts = range(0, ring.limbs, size)
    return tuple([(slice(i, i + size), _network(ring.n, ring.moduli[i : i + size], inverse)) for i in starts])


def ntt(a: np.ndarray, ring: RingSpec, out: np.ndarray | None = None) -> np.ndarray:
    """The forward transform of each limb: entry i of the result is the value of the polynomial at psi^(2*brv(i) + 1).

    Args:
        a: uint32[limbs, n], Montgomery form, coefficients in [0, p).
        ring: The ring of `a`.
        out: Where to write, uint32[limbs, n]; may be `a`. A new array if None.

    Returns:
        `out`, in Montgomery form, values in [0, p), in bit-reversed order.
    """
    if out is None:
        out = np.empty(a.shape, np.uint32)
    for rows, network in _groups(ring, False):
        source, target = a[rows], out[rows]
        buffers = _buffers.get(source.size)
        np.copyto(buffers.whole[0].reshape(ring.n, len(source)), source.T)
        values = network.run(buffers).reshape(source.shape)
        constmul.reduce_once(values, network.p, target)
    return out


def intt(a: np.ndarray, ring: RingSpec, out: np.ndarray | None = None) -> np.ndarray:
    """The inverse of `ntt`, division by n included.

    Args:
        a: uint32[limbs, n], Montgomery form, values in [0, p), in bit-reversed order.
        ring: The ring of `a`.
        out: Where to write, uint32[limbs, n]; may be `a`. A new array if None.

    Returns:
        `out`, in Montgomery form, coefficients in [0, p).
    """
    if out is None:
        out = np.empty(a.shape, np.uint32)
    order = bit_reversal(ring.n)
    for rows, network in _groups(ring, True):
        source = a[rows].take(order, axis=1)
        buffers = _buffers.get(source.size)
        np.copyto(buffers.whole[0].reshape(ring.n, len(source)), source.T)
        values = network.run(buffers)
        np.multiply(values, network.scale, out=values)
        constmul.finish(values, network.scale_p)
        constmul.reduce_once(values.reshape(source.shape), network.p, source)
        np.take(source, order, axis=1, out=out[rows], mode="clip")
    return out
