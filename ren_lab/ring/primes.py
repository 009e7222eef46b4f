"""The primes that moduli are chosen from, and the rules that degrees and moduli obey."""

import operator
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

MAX_DEGREE = 1 << 17
"""The largest degree n of a ring."""

MAX_MODULUS = 1 << 31
"""Every modulus is below this bound, so the sum of two residues fits in 32 bits and a product in 62."""


def integer(value: Any, what: str) -> int:
    """`value` as a Python int; anything that is not an integer, True and False included, is a TypeError."""
    if type(value) is int:
        return value
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{what} is {value!r} of type {type(value).__name__}, but it must be an integer; pass an int")


def is_prime(p: int) -> bool:
    """Whether `p` is prime, for p below 3.3 * 10^24.

    Miller-Rabin with the first thirteen primes as bases, which decides every number below 3317044064679887385961981
    (Sorenson and Webster, "Strong pseudoprimes to twelve prime bases", 2015).

    Raises:
        TypeError: `p` is not an integer.
        ValueError: `p` is too large for the test to be a proof.
    """
    return _is_prime(integer(p, "p"))


@lru_cache(maxsize=1 << 14)
def _is_prime(p: int) -> bool:
    if p >= 3317044064679887385961981:
        raise ValueError(f"p is {p}, but primality is decided below 3317044064679887385961981 only; pass a smaller p")
    bases: tuple[int, ...] = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
    if p < 2 or any(p % b == 0 for b in bases):
        return p in bases
    shift = ((p - 1) & (1 - p)).bit_length() - 1
    odd = (p - 1) >> shift
    if p < 3215031751:  # these four bases suffice below it (Jaeschke, 1993)
        bases = bases[:4]
    for b in bases:
        x = pow(b, odd, p)
        if x in (1, p - 1):
            continue
        for _ in range(shift - 1):
            x = x * x % p
            if x == p - 1:
                break
        else:
            return False
    return True


def find_primes(n: int, bits: int, count: int, *, exclude: Iterable[int] = ()) -> tuple[int, ...]:
    """The `count` largest primes p of exactly `bits` bits with p % (2n) == 1, largest first.

    Args:
        n: Degree of the ring, a power of two from 2 to 2^17.
        bits: Size of each prime, 2 to 31 bits: 2^(bits-1) <= p < 2^bits.
        count: How many primes, at least 0.
        exclude: Primes to leave out, such as those that another part of the modulus chain uses already.

    Raises:
        ValueError: An argument is out of range, or fewer than `count` such primes exist; the message says how many.

    >>> find_primes(4096, 30, 2)
    (1073692673, 1073668097)
    """
    n = checked_degree(n)
    bits, count = integer(bits, "bits"), integer(count, "count")
    if not 2 <= bits <= 31:
        raise ValueError(f"bits is {bits}, but moduli have 2 to 31 bits; choose a size in that range")
    if count < 0:
        raise ValueError(f"count is {count}, but it must be at least 0; pass how many primes you need")
    taken = frozenset(integer(p, "an excluded prime") for p in exclude)
    found: list[int] = []
    if count:
        for p in _friendly_primes(n, 1 << (bits - 1), 1 << bits):
            if p not in taken:
                found.append(p)
                if len(found) == count:
                    return tuple(found)
    if len(found) < count:
        besides = f" besides the {len(taken)} excluded" if taken else ""
        raise ValueError(
            f"{count} primes of {bits} bits with p % {2 * n} == 1 were asked for, but only {len(found)} exist{besides};"
            " ask for fewer, for another size, or choose a smaller n"
        )
    return ()


def _friendly_primes(n: int, low: int, high: int) -> Iterator[int]:
    """Primes p with low <= p < high and p % (2n) == 1, largest first."""
    top = (high - 2) // (2 * n) * (2 * n) + 1
    return (p for p in range(top, max(low, 2 * n + 1) - 1, -2 * n) if _is_prime(p))


def checked_degree(n: Any) -> int:
    """`n` as an int, if it is the degree of a ring; TypeError or ValueError otherwise."""
    n = integer(n, "n")
    if not 2 <= n <= MAX_DEGREE or n & (n - 1):
        raise ValueError(
            f"n is {n}, but the degree of a ring must be a power of two from 2 to {MAX_DEGREE} (2^17);"
            f" choose one, such as {min(max(2, 1 << max(n - 1, 1).bit_length()), MAX_DEGREE)}"
        )
    return n


def check_modulus(p: int, n: int) -> None:
    """ValueError, with the rule that is broken, unless `p` is a modulus for rings of degree `n`."""
    remedy = f"find_primes({n}, bits, count) lists suitable moduli"
    if p >= MAX_MODULUS:
        raise ValueError(f"modulus {p} is too large: moduli must be below 2^31 = {MAX_MODULUS}; {remedy}")
    if p < 3 or not p & 1:
        raise ValueError(f"modulus {p} is not an odd prime; {remedy}")
    if p % (2 * n) != 1:
        raise ValueError(
            f"modulus {p} leaves {p % (2 * n)} when divided by 2n = {2 * n}, but it must leave 1"
            f" for a transform of length n = {n} to exist; {remedy}"
        )
    if not _is_prime(p):
        raise ValueError(f"modulus {p} is not prime, but moduli must be odd primes; {remedy}")


@lru_cache(maxsize=4096)
def primitive_root(n: int, p: int) -> int:
    """The primitive 2n-th root of unity psi modulo the prime p that all transforms of length n use.

    psi = x^((p-1)/2n) mod p for the smallest quadratic non-residue x >= 2, so psi^n = x^((p-1)/2) = -1 mod p.

    Raises:
        ValueError: `p` is not an odd prime below 2^31 with p % (2n) == 1.
    """
    n = checked_degree(n)
    check_modulus(p, n)
    x = next(x for x in range(2, p) if pow(x, (p - 1) // 2, p) == p - 1)
    return pow(x, (p - 1) // (2 * n), p)
