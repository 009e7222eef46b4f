"""Random polynomials from ChaCha20, vectorized and without modulo bias.

The key stream is ChaCha20 (RFC 8439) under a key from the operating system, one fresh key per generator. Samplers return
finished data at rest, uint32[limbs, n] in Montgomery form; which residues come out for a given stream is not part of any
contract. Their running time depends on the values drawn, so they are no defence against someone who measures it.
"""

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import cache, lru_cache
from threading import Lock
from weakref import WeakSet

import numpy as np

from ren_lab.backends.python import arith, constmul
from ren_lab.ring import RingSpec, check_interval, check_sigma, check_weight, residues, tables

_LOW_WORD = np.uint64(0xFFFF_FFFF)
_SHIFT = np.uint64(32)


# --------------------------------------------------------------------------------------------------------------------
# Generators


class Generator:
    """A stream of random words: ChaCha20 under a fresh key from the operating system.

    May be shared by threads. A forked child draws under a key of its own. The key is replaced before the 32-bit block
    counter of the cipher could run out.
    """

    _BYTES_PER_KEY = 1 << 37  # half of what the block counter allows

    def __init__(self) -> None:
        self._renew()
        _generators.add(self)

    def _renew(self) -> None:
        self._lock = Lock()
        self._left = -1  # no key yet, even for no words

    def _next_key(self) -> bytes:
        return secrets.token_bytes(32)

    def words(self, count: int) -> np.ndarray:
        """The next `count` words of the stream, uint32[count], each uniform on [0, 2^32); read-only."""
        size = 4 * count
        with self._lock:
            if size > self._left:
                from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

                cipher = Cipher(algorithms.ChaCha20(self._next_key(), nonce=bytes(16)), mode=None)
                self._stream = cipher.encryptor()
                self._left = self._BYTES_PER_KEY
            self._left -= size
            stream = self._stream.update(bytes(size))
        return np.frombuffer(stream, dtype="<u4").astype(np.uint32, copy=False)


class InsecureSeededGenerator(Generator):
    """INSECURE, for tests only: a stream that follows from `seed`, so whoever knows the seed knows every draw.

    The words do not depend on how many are asked for at a time.
    """

    def __init__(self, seed: int | str | bytes) -> None:
        self._key = hashlib.sha256(f"insecure {type(seed).__name__} {seed!r}".encode()).digest()
        self._renew()  # not among the generators that a forked child gives new keys

    def _next_key(self) -> bytes:
        self._key = hashlib.sha256(self._key).digest()
        return self._key


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
    """INSECURE, for tests only: inside the `with` block, the current context draws from a stream that follows from `seed`.

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
    moduli = tables(ring).p.astype(np.uint64)
    return _store(_below(moduli, (ring.limbs, ring.n), gen or current_generator()), out)


def uniform_on_interval(
    ring: RingSpec, low: int, high: int, gen: Generator | None = None, out: np.ndarray | None = None
) -> np.ndarray:
    """Coefficients uniform on [low, high), taken modulo q; the bounds are integers of any size.

    Raises:
        TypeError, ValueError: See `ren_lab.ring.check_interval`.
    """
    low, high = check_interval(low, high)
    gen = gen or current_generator()
    bits = (high - low - 1).bit_length()
    count = max(1, -(-bits // 32))
    width = [(high - low) >> 32 * i & 0xFFFF_FFFF for i in range(count + 1)]  # 2^(32 * count) is a possible width
    top_mask = np.uint32((1 << bits - 32 * (count - 1)) - 1)
    digits = np.empty((count, ring.n), np.uint32)
    pending = np.arange(ring.n)
    while len(pending):
        drawn = gen.words(count * len(pending)).reshape(count, -1).copy()
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
    drawn = _below(np.array(3, np.uint64), (ring.n,), gen or current_generator())
    return _from_small(drawn.astype(np.int64) - 1, ring, out)


def sparse_ternary(ring: RingSpec, weight: int, gen: Generator | None = None, out: np.ndarray | None = None) -> np.ndarray:
    """Exactly `weight` coefficients are non-zero, each 1 or -1, uniform among all such polynomials.

    Raises:
        TypeError, ValueError: See `ren_lab.ring.check_weight`.
    """
    weight = check_weight(weight, ring.n)
    gen = gen or current_generator()
    values = np.zeros(ring.n, np.int64)
    signs = (gen.words(weight) & np.uint32(1)).astype(np.int64)
    values[_permutation(ring.n, gen)[:weight]] = 1 - 2 * signs
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
    drawn = (gen or current_generator()).words(2 * ring.n).view(np.uint64)
    values = np.searchsorted(thresholds, drawn, side="right") - len(thresholds) // 2
    return _from_small(values, ring, out)


def _store(values: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    if out is None:
        return values.astype(np.uint32)
    np.copyto(out, values, casting="unsafe")
    return out


def _from_small(values: np.ndarray, ring: RingSpec, out: np.ndarray | None) -> np.ndarray:
    """Integers of absolute value below 2^32, int64[n], into Montgomery form."""
    if out is None:
        out = np.empty((ring.limbs, len(values)), np.uint32)
    for row, p in zip(out, ring.moduli, strict=True):
        product = values * constmul.words([1 << 32], p)
        constmul.finish(product, np.array(p, np.int64))
        constmul.reduce_once(product, np.array(p, np.uint32), row)
    return out


def _below(bound: np.ndarray, shape: tuple[int, ...], gen: Generator) -> np.ndarray:
    """Integers uniform on [0, bound), uint64 of the given shape; `bound` is uint64 in [1, 2^32] and broadcasts to it.

    The high word of word * bound, drawn again where the low word is below 2^32 mod bound, which leaves floor(2^32 / bound)
    words for each result (Lemire, "Fast random integer generation in an interval", 2019).
    """
    surplus = np.uint64(1 << 32) % bound
    products = gen.words(int(np.prod(shape))).reshape(shape) * bound
    pending = np.nonzero((products & _LOW_WORD) < surplus)
    bound, surplus = np.broadcast_to(bound, shape), np.broadcast_to(surplus, shape)
    while len(pending[0]):
        again = gen.words(len(pending[0])) * bound[pending]
        products[pending] = again
        refused = (again & _LOW_WORD) < surplus[pending]
        pending = tuple([axis[refused] for axis in pending])
    products >>= _SHIFT
    return products


def _permutation(n: int, gen: Generator) -> np.ndarray:
    """A uniform permutation of range(n): the order of n random 64-bit keys, all drawn again where two are equal."""
    while True:
        keys = gen.words(2 * n).view(np.uint64)
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
