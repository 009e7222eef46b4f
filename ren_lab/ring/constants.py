"""What is derived from a degree and its moduli: Montgomery constants, roots of unity and index maps; arrays are read-only."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ren_lab.ring.primes import MAX_MODULUS, checked_degree, integer, primitive_root

R = 1 << 32
"""The Montgomery radix."""


@dataclass(frozen=True, slots=True)
class Modulus:
    """The Montgomery constants of one odd modulus p < 2^31, for R = 2^32 (Montgomery, 1985).

    Reduction of T in [0, p*R): with m = (T mod R) * p_inv mod R, T - m*p is a multiple of R and
    t = T/R - m*p/R (the two high words subtracted) lies in (-p, p) with t = T / R mod p; add p where t is negative.
    """

    p: int
    p_inv: int
    """p^-1 mod R."""
    r: int
    """R mod p, the Montgomery form of 1."""
    r2: int
    """R^2 mod p, which takes a residue into Montgomery form."""


@lru_cache(maxsize=4096)
def modulus(p: int) -> Modulus:
    """The Montgomery constants of the odd modulus `p` < 2^31."""
    if not p & 1 or not 3 <= p < MAX_MODULUS:
        raise ValueError(f"modulus {p} must be odd and from 3 to {MAX_MODULUS - 1}; choose such a modulus")
    return Modulus(p, pow(p, -1, R), R % p, R * R % p)


def to_montgomery(c: int, p: int) -> int:
    """c * R mod p in [0, p), for any integer c."""
    return (c << 32) % p


def galois_element(k: int, n: int) -> int:
    """5^k mod 2n, the exponent of the automorphism X -> X^(5^k) that rotates slots by k places.

    `k` is any integer, and the result is cyclic in k with period n/2 (1 for n = 2, where 5 is 1 mod 4).
    """
    k, n = integer(k, "k"), checked_degree(n)
    return pow(5, k % (n // 2), 2 * n)


def read_only(array: np.ndarray) -> np.ndarray:
    """The array itself, closed for writing, so that it can be shared by all who ask for it."""
    array.flags.writeable = False
    return array


@lru_cache(maxsize=32)
def bit_reversal(n: int) -> np.ndarray:
    """intp[n], read-only: entry i is i with its log2(n) bits reversed."""
    out = np.zeros(1, dtype=np.intp)
    while len(out) < n:
        out = np.concatenate([2 * out, 2 * out + 1])
    return read_only(out)


@lru_cache(maxsize=128)
def automorphism_indices(n: int, g: int) -> np.ndarray:
    """intp[n], read-only: the index map of X -> X^g, g odd, on NTT-domain data in bit-reversed order.

    `out[i] = in[idx[i]]` computes it: position i holds the value at psi^e with e = 2*brv(i) + 1, the value of
    a(X^g) there is the value of a at psi^(g*e), and that stands at position brv((g*e mod 2n - 1) / 2).

    Raises:
        ValueError: `g` is even, so that X -> X^g is no automorphism.
    """
    n, g = checked_degree(n), integer(g, "g")
    if not g & 1:
        raise ValueError(f"g is {g}, but X -> X^g is an automorphism for odd g only; pass an odd exponent")
    brv = bit_reversal(n)
    exponents = (2 * brv + 1) * (g % (2 * n)) % (2 * n)  # below (2n)^2 <= 2^36
    return read_only(brv[(exponents - 1) // 2])


@lru_cache(maxsize=256)
def root_powers(n: int, p: int, inverse: bool = False) -> np.ndarray:
    """uint32[n], read-only: entry i is psi^brv(i) mod p, or psi^-brv(i), plain (not in Montgomery form).

    This is the order in which the in-place transforms of Longa and Naehrig ("Speeding up the number theoretic
    transform for faster ideal lattice-based cryptography", 2016) read their twiddle factors.
    """
    psi = primitive_root(n, p)
    step = pow(psi, -1, p) if inverse else psi
    powers = np.ones(1, dtype=np.uint64)
    while len(powers) < n:  # brv order: the odd multiples of half the stride follow all the even ones
        stride = n // (2 * len(powers))
        powers = np.concatenate([powers, powers * np.uint64(pow(step, stride, p)) % np.uint64(p)])  # below 2^62
    return read_only(powers.astype(np.uint32))


class RingTables:
    """The stacked constants of one ring, each derived when it is first used; arrays are read-only.

    Columns are `[limbs, 1]`, so that they broadcast along coefficients.
    """

    def __init__(self, n: int, moduli: tuple[int, ...]) -> None:
        self.n = n
        self.moduli = moduli
        self.q = math.prod(moduli)

    def _column(self, values: Iterable[int], dtype: type[np.unsignedinteger] = np.uint32) -> np.ndarray:
        return read_only(np.array(list(values), dtype=dtype)[:, None])

    @cached_property
    def constants(self) -> tuple[Modulus, ...]:
        """The Montgomery constants of each limb."""
        return tuple([modulus(p) for p in self.moduli])

    @cached_property
    def p(self) -> np.ndarray:
        """uint32[limbs, 1]: the moduli."""
        return self._column(self.moduli)

    @cached_property
    def p_inv(self) -> np.ndarray:
        """uint32[limbs, 1]: p^-1 mod 2^32."""
        return self._column(c.p_inv for c in self.constants)

    @cached_property
    def p_inv_high(self) -> np.ndarray:
        """uint64[limbs, 1]: 2^32 * (p^-1 mod 2^32); T times it, mod 2^64, has (T mod R) * p_inv mod R in its high word."""
        return self._column((c.p_inv << 32 for c in self.constants), np.uint64)

    @cached_property
    def r(self) -> np.ndarray:
        """uint32[limbs, 1]: R mod p, the Montgomery form of 1."""
        return self._column(c.r for c in self.constants)

    @cached_property
    def r2(self) -> np.ndarray:
        """uint32[limbs, 1]: R^2 mod p."""
        return self._column(c.r2 for c in self.constants)

    @cached_property
    def n_inv(self) -> np.ndarray:
        """uint32[limbs, 1]: n^-1 in Montgomery form."""
        return self._column(to_montgomery(pow(self.n, -1, p), p) for p in self.moduli)

    def _twiddles(self, inverse: bool) -> np.ndarray:
        plain = np.stack([root_powers(self.n, p, inverse) for p in self.moduli]).astype(np.uint64)
        plain <<= np.uint64(32)  # below 2^63
        plain %= self.p
        return read_only(plain.astype(np.uint32))

    @cached_property
    def psi(self) -> np.ndarray:
        """uint32[limbs, n]: psi^brv(i) in Montgomery form, the twiddle factors of the forward transform."""
        return self._twiddles(inverse=False)

    @cached_property
    def psi_inv(self) -> np.ndarray:
        """uint32[limbs, n]: psi^-brv(i) in Montgomery form, the twiddle factors of the inverse transform."""
        return self._twiddles(inverse=True)
