"""What everything means, in plain Python integers. Imports nothing of the package, so it shares no code with it.

Polynomials are lists of n coefficients, the constant one first.
"""

from collections.abc import Sequence
from functools import cache
from itertools import takewhile


@cache
def _divisors(bits: int) -> list[int]:
    """The primes below 2^bits, by the sieve of Eratosthenes."""
    composite = bytearray(1 << bits)
    found = []
    for d in range(2, 1 << bits):
        if not composite[d]:
            found.append(d)
            composite[d * d :: d] = b"\1" * len(range(d * d, 1 << bits, d))
    return found


def is_prime(p: int) -> bool:
    """By trial division, for p < 2^32."""
    assert p < 1 << 32
    return p > 1 and all(p % d for d in takewhile(lambda d: d * d <= p, _divisors(16)))


def add(a: Sequence[int], b: Sequence[int], q: int) -> list[int]:
    return [(x + y) % q for x, y in zip(a, b, strict=True)]


def sub(a: Sequence[int], b: Sequence[int], q: int) -> list[int]:
    return [(x - y) % q for x, y in zip(a, b, strict=True)]


def negacyclic_product(a: Sequence[int], b: Sequence[int], q: int) -> list[int]:
    """a * b modulo X^n + 1 and q, read off one product of large integers (Kronecker substitution)."""
    n = len(a)
    assert len(b) == n
    a, b = [x % q for x in a], [y % q for y in b]
    size = ((q - 1) ** 2 * n).bit_length() // 8 + 1  # bytes that hold any coefficient of the product over the integers
    packed = [int.from_bytes(b"".join(c.to_bytes(size, "little") for c in poly), "little") for poly in (a, b)]
    product = (packed[0] * packed[1]).to_bytes(2 * n * size, "little")
    full = [int.from_bytes(product[k * size : (k + 1) * size], "little") for k in range(2 * n)]
    return [(low - high) % q for low, high in zip(full[:n], full[n:], strict=True)]


def negacyclic_product_schoolbook(a: Sequence[int], b: Sequence[int], q: int) -> list[int]:
    """a * b modulo X^n + 1 and q: the sum over all pairs of terms, with X^n = -1."""
    n = len(a)
    out = [0] * n
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[(i + j) % n] += x * y if i + j < n else -x * y
    return [c % q for c in out]


def automorphism(a: Sequence[int], g: int, q: int) -> list[int]:
    """a(X^g) modulo X^n + 1 and q, for odd g."""
    n = len(a)
    out = [0] * n
    for i, c in enumerate(a):
        exponent = i * g % (2 * n)
        out[exponent % n] += c if exponent < n else -c
    return [c % q for c in out]


def centred(value: int, q: int) -> int:
    """The integer congruent to `value` modulo q in (-q/2, q/2]."""
    value %= q
    return value - q if 2 * value > q else value


def rescale(value: int, divisor: int) -> int:
    """value / divisor, rounded to the nearest integer; an odd divisor leaves no ties."""
    return (2 * value + divisor) // (2 * divisor)


def crt(residues: Sequence[int], moduli: Sequence[int]) -> int:
    """The integer in [0, product of the moduli) with the given residues, one modulus after the other."""
    value, product = 0, 1
    for r, p in zip(residues, moduli, strict=True):
        value += product * ((r - value) * pow(product, -1, p) % p)
        product *= p
    return value


def evaluate(a: Sequence[int], x: int, p: int) -> int:
    """a(x) mod p, by Horner's rule."""
    value = 0
    for c in reversed(a):
        value = (value * x + c) % p
    return value


def bit_reverse(i: int, bits: int) -> int:
    return int(format(i, f"0{bits}b")[::-1], 2) if bits else 0


def ntt(a: Sequence[int], psi: int, p: int) -> list[int]:
    """The values of a at psi^(2*brv(i) + 1), in the order of i, straight from that definition."""
    n = len(a)
    bits = n.bit_length() - 1
    return [evaluate(a, pow(psi, 2 * bit_reverse(i, bits) + 1, p), p) for i in range(n)]


def montgomery(value: int, p: int) -> int:
    """The Montgomery form of an integer, value * 2^32 mod p."""
    return value * 2**32 % p


def smallest_primes(n: int, count: int) -> tuple[int, ...]:
    """The smallest primes p with p % (2n) == 1, from 2n + 1 on."""
    found: list[int] = []
    p = 2 * n + 1
    while len(found) < count:
        if is_prime(p):
            found.append(p)
        p += 2 * n
    return tuple(found)


def largest_primes(n: int, bits: int, count: int) -> tuple[int, ...]:
    """The largest primes p < 2^bits with p % (2n) == 1, largest first."""
    found: list[int] = []
    p = (2**bits - 2) // (2 * n) * (2 * n) + 1
    while len(found) < count and p > 2 * n:
        if is_prime(p):
            found.append(p)
        p -= 2 * n
    return tuple(found)
