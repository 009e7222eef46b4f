"""Random polynomials from ChaCha20, vectorized and without modulo bias.

A generator hands out draws. A draw has a stream of its own: ChaCha20 (RFC 8439) under the generator's key, which comes from the
operating system, with the number of the draw in the nonce. Samplers return finished data at rest, uint32[limbs, n] in
Montgomery form.

Residues that are uniform, ternary or Gaussian are each a function of key, draw and index (row * n + column) alone. An index has
64 bits of the stream, which give its value or are refused, with a probability below 2^-33; then the 64 bits in the same place of
the next round, a part of the nonce, are taken. So they can be computed in any order and anywhere, with equal results: here, in C
(`backends/cpu/native/sampling.h` is the same definition, index by index), or on a graphics processor. Intervals and ternary
polynomials of a given weight read their stream from its beginning, on the host.

Timing. In the native code for uniform, ternary and Gaussian draws (sigma <= 13), no branch and no address depends on a value
that is handed out; those that depend on refused bits say nothing about the bits that replace them. Gaussian draws of a larger
sigma, all those of device `python`, and the other two kinds search or sort: they are no defence against someone who measures
their time.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, lru_cache
from threading import Lock
from weakref import WeakSet

import numpy as np

from ren_lab.backends.python import arith, constmul
from ren_lab.ring import RingSpec, check_interval, check_sigma, check_weight, residues

_LOW_WORD = np.uint64(0xFFFF_FFFF)
_SHIFT = np.uint64(32)
_ABREAST, _PER_BLOCK = 16, 8  # neighbouring indices in as many blocks; indices that a block serves
_GROUP = _ABREAST * _PER_BLOCK


# --------------------------------------------------------------------------------------------------------------------
# Generators


@dataclass(frozen=True, slots=True)
class Draw:
    """The stream of one draw, in rounds: ChaCha20 under `key`, with the nonce `number` (64 bits) and round (32 bits).

    The 64 bits of index i are a pair of words of block 16 * (i // 128) + i % 16: of its eight pairs, pair i % 128 // 16. An index
    is below 2^35, so that the block is below 2^32; limbs * n stays far below, since there are no more primes.

    Attributes:
        key: 32 bytes.
        number: below 2^64. No two draws share key and number.
    """

    key: bytes = field(repr=False)
    number: int

    def stream(self, round: int = 0, block: int = 0) -> Callable[[int], np.ndarray]:
        """A function that reads on in a round, from a block on: given a count it gives the next words, read-only uint32[count]."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        nonce = block.to_bytes(4, "little") + self.number.to_bytes(8, "little") + round.to_bytes(4, "little")
        update = Cipher(algorithms.ChaCha20(self.key, nonce), mode=None).encryptor().update
        return lambda count: np.frombuffer(update(bytes(4 * count)), dtype="<u4").astype(np.uint32, copy=False)

    def bits(self, count: int) -> np.ndarray:
        """What the indices below `count` have in round 0, uint64[count]."""
        groups = -(-count // _GROUP)
        pairs = self.stream()(2 * _GROUP * groups).view(np.uint64).reshape(groups, _ABREAST, _PER_BLOCK)
        return pairs.transpose(0, 2, 1).reshape(-1)[:count]

    def bits_at(self, index: int, round: int) -> int:
        """What an index has in any round, below 2^64."""
        words = self.stream(round, index // _GROUP * _ABREAST + index % _ABREAST)(2 * _PER_BLOCK)
        return int(words.view(np.uint64)[index % _GROUP // _ABREAST])


class Generator:
    """Hands out draws under a fresh key from the operating system.

    May be shared by threads. A forked child draws under a key of its own. A key serves at most 2^32 draws.
    """

    _DRAWS_PER_KEY = 1 << 32

    def __init__(self) -> None:
        self._renew()
        _generators.add(self)

    def _renew(self) -> None:
        self._lock = Lock()
        self._key = b""
        self._drawn = self._DRAWS_PER_KEY  # no key yet

    def _next_key(self) -> bytes:
        return secrets.token_bytes(32)

    def draw(self) -> Draw:
        """A draw that nobody else gets."""
        with self._lock:
            if self._drawn >= self._DRAWS_PER_KEY:
                self._key, self._drawn = self._next_key(), 0
            self._drawn += 1
            return Draw(self._key, self._drawn - 1)


class InsecureSeededGenerator(Generator):
    """INSECURE, for tests only: draws that follow from `seed`, so whoever knows the seed knows every one of them.

    The same draws give the same values on every device.
    """

    def __init__(self, seed: int | str | bytes) -> None:
        self._seed = hashlib.sha256(f"insecure {type(seed).__name__} {seed!r}".encode()).digest()
        self._renew()  # not among the generators that a forked child gives new keys

    def _next_key(self) -> bytes:
        self._seed = hashlib.sha256(self._seed).digest()
        return self._seed


_generators: WeakSet[Generator] = WeakSet()
_chosen: ContextVar[Generator | None] = ContextVar("chosen_generator", default=None)


def _renew_all() -> None:
    for generator in _generators:  # in a forked child, which has one thread
        generator._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


@cache
def _shared() -> Generator:
    return Generator()


def current_generator() -> Generator:
    """The generator that draws in the current context: the seeded one inside
    `insecure_seeded_randomness_for_tests`, and otherwise one that the whole process shares."""
    return _chosen.get() or _shared()


@contextmanager
def insecure_seeded_randomness_for_tests(seed: int | str | bytes) -> Iterator[Generator]:
    """INSECURE, for tests only: inside the `with` block, what the current context draws follows from `seed`.

    Other threads are not affected. Yields the generator.
    """
    token = _chosen.set(InsecureSeededGenerator(seed))
    try:
        yield current_generator()
    finally:
        _chosen.reset(token)


# --------------------------------------------------------------------------------------------------------------------
# Samplers. `gen` is `current_generator()` if None; `out` is uint32[limbs, n], a new array if None, and is returned.


def uniform(ring: RingSpec, gen: Generator | None = None, out: np.ndarray | None = None) -> np.ndarray:
    """Coefficients uniform on [0, q).

    Each residue is uniform on [0, p) and independent, by the Chinese remainder theorem, in Montgomery form or not.
    """
    draw = (gen or current_generator()).draw()
    if out is None:
        out = np.empty((ring.limbs, ring.n), np.uint32)
    bits = draw.bits(ring.limbs * ring.n).reshape(ring.limbs, ring.n)
    for i, p in enumerate(ring.moduli):
        np.copyto(out[i], _below(p, bits[i], draw, i * ring.n), casting="unsafe")
    return out


def uniform_on_interval(
    ring: RingSpec, low: int, high: int, gen: Generator | None = None, out: np.ndarray | None = None
) -> np.ndarray:
    """Coefficients uniform on [low, high), taken modulo q; the bounds are integers of any size.

    Raises:
        TypeError, ValueError: See `ren_lab.ring.check_interval`.
    """
    low, high = check_interval(low, high)
    words = (gen or current_generator()).draw().stream()
    bits = (high - low - 1).bit_length()
    count = max(1, -(-bits // 32))
    width = [(high - low) >> 32 * i & 0xFFFF_FFFF for i in range(count + 1)]  # 2^(32 * count) is a possible width
    top_mask = np.uint32((1 << bits - 32 * (count - 1)) - 1)
    digits = np.empty((count, ring.n), np.uint32)
    pending = np.arange(ring.n)
    while len(pending):
        drawn = words(count * len(pending)).reshape(count, -1).copy()
        drawn[-1] &= top_mask  # below 2^bits, less than twice the width
        digits[:, pending] = drawn
        less, equal = np.full(len(pending), width[count] > 0), np.full(len(pending), width[count] == 0)
        for digit, bound in zip(drawn[::-1], width[count - 1 :: -1], strict=True):
            less |= equal & (digit < bound)
            equal &= digit == bound
        pending = pending[~less]
    out = arith.to_rns(digits, ring, out)
    return arith.add(out, np.array(residues(low, ring), np.uint32)[:, None], ring, out)


def ternary(ring: RingSpec, gen: Generator | None = None, out: np.ndarray | None = None) -> np.ndarray:
    """Coefficients uniform on {-1, 0, 1}."""
    draw = (gen or current_generator()).draw()
    return _from_small(_below(3, draw.bits(ring.n), draw, 0).astype(np.int64) - 1, ring, out)


def sparse_ternary(ring: RingSpec, weight: int, gen: Generator | None = None, out: np.ndarray | None = None) -> np.ndarray:
    """Exactly `weight` coefficients are non-zero, each 1 or -1, uniform among all such polynomials.

    Raises:
        TypeError, ValueError: See `ren_lab.ring.check_weight`.
    """
    weight = check_weight(weight, ring.n)
    words = (gen or current_generator()).draw().stream()
    values = np.zeros(ring.n, np.int64)
    signs = (words(weight) & np.uint32(1)).astype(np.int64)
    values[_permutation(ring.n, words)[:weight]] = 1 - 2 * signs
    return _from_small(values, ring, out)


def gaussian(ring: RingSpec, sigma: float, gen: Generator | None = None, out: np.ndarray | None = None) -> np.ndarray:
    """Coefficients from the discrete Gaussian: x with probability proportional to exp(-x^2 / (2 sigma^2)).

    By inversion of the cumulative distribution with 64 random bits. The tail of mass below 2^-64, beyond about
    9.2 sigma, is cut off, and the statistical distance to the exact distribution is at most 2^-62 + 9.2 sigma * 2^-64.

    Args:
        sigma: 0 < sigma <= 2^14.

    Raises:
        TypeError, ValueError: See `ren_lab.ring.check_sigma`.
    """
    thresholds = gaussian_thresholds(check_sigma(sigma))
    bits = (gen or current_generator()).draw().bits(ring.n)
    values = np.searchsorted(thresholds, bits, side="right") - len(thresholds) // 2
    return _from_small(values, ring, out)


def _from_small(values: np.ndarray, ring: RingSpec, out: np.ndarray | None) -> np.ndarray:
    """Integers of absolute value below 2^32, int64[n], into Montgomery form."""
    if out is None:
        out = np.empty((ring.limbs, len(values)), np.uint32)
    for row, p in zip(out, ring.moduli, strict=True):
        product = values * constmul.words([1 << 32], p)
        constmul.finish(product, np.array(p, np.int64))
        constmul.reduce_once(product, np.array(p, np.uint32), row)
    return out


def _below(bound: int, bits: np.ndarray, draw: Draw, first: int) -> np.ndarray:
    """Integers uniform on [0, bound), uint64[n], for the indices from `first` on and their bits; 1 < bound < 2^32.

    The high part of x * bound / 2^64 for the 64 bits x, which are refused where the low part is below 2^64 mod bound. That
    leaves floor(2^64 / bound) of them for each result (Lemire, "Fast random integer generation in an interval", 2019).
    """
    factor = np.uint64(bound)
    upper = (bits >> _SHIFT) * factor
    upper += ((bits & _LOW_WORD) * factor) >> _SHIFT
    doubtful = np.flatnonzero((upper & _LOW_WORD) == 0)  # the low part may be below 2^64 mod bound, which is below 2^32
    upper >>= _SHIFT
    for place in doubtful.tolist():
        product, round = int(bits[place]) * bound, 0
        while product % 2**64 < 2**64 % bound:
            round += 1
            product = draw.bits_at(first + place, round) * bound
        upper[place] = product >> 64
    return upper


def _permutation(n: int, words: Callable[[int], np.ndarray]) -> np.ndarray:
    """A uniform permutation of range(n): the order of n random 64-bit keys, all drawn again where two are equal."""
    while True:
        keys = words(2 * n).view(np.uint64)
        order = np.argsort(keys)
        ordered = keys[order]
        if (ordered[1:] != ordered[:-1]).all():
            return order


# --------------------------------------------------------------------------------------------------------------------
# The discrete Gaussian

_BITS = 256  # of the fixed-point numbers below


def _exp_minus(y: Fraction) -> int:
    """exp(-y) * 2^256 for y >= 0, with an error below 2^-240 after scaling."""
    if y > 256:
        return 0  # exp(-256) < 2^-369
    halvings = int(y).bit_length() + 1
    x = (y.numerator << _BITS + 64) // (y.denominator << halvings)  # y / 2^halvings <= 1/2, with 64 more bits
    total = term = 1 << _BITS + 64
    k = 1
    while term:
        term = (term * x >> _BITS + 64) // k
        total += -term if k & 1 else term
        k += 1
    for _ in range(halvings):
        total = total * total >> _BITS + 64
    return total >> 64


@lru_cache(maxsize=32)
def gaussian_thresholds(sigma: float) -> np.ndarray:
    """uint64[2T], read-only: entry i is 2^64 * P(X <= i - T), rounded, for the discrete Gaussian X cut at |X| <= T.

    T is the least bound with P(|X| > T) < 2^-64. A draw is the number of thresholds that are not above a uniform 64-bit
    integer, minus T. Computed in integers, each exp(-x^2 / (2 sigma^2)) to more than 200 bits.
    """
    y = 1 / (2 * Fraction(sigma) ** 2)
    density, ratio, step = [1 << _BITS], _exp_minus(y), _exp_minus(2 * y)
    while density[-1]:  # exp(-(x+1)^2 y) = exp(-x^2 y) * exp(-(2x+1) y)
        density.append(density[-1] * ratio >> _BITS)
        ratio = ratio * step >> _BITS
    total = 2 * sum(density) - density[0]
    tail, bound = 0, len(density) - 1
    while bound and (tail + 2 * density[bound]) << 64 < total:
        tail += 2 * density[bound]
        bound -= 1
    total -= tail
    cumulative, thresholds = 0, []
    for x in range(-bound, bound):
        cumulative += density[abs(x)]
        thresholds.append(min(((cumulative << 65) // total + 1) >> 1, (1 << 64) - 1))
    array = np.array(thresholds, dtype=np.uint64)
    array.flags.writeable = False
    return array
