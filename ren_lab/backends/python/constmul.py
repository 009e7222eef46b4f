"""Products by constants modulo p in signed 64-bit words, the workhorse of the transform and of base conversion.

After Plantard ("Efficient word size modular arithmetic", IEEE TETC, 2021), in a signed form. For an odd p < 2^31 and a
constant b, let b' be the centred representative of -b * 2^64 mod p, so |b'| <= (p-1)/2, and store the word

    w = b' * p^-1 mod 2^64.

For an integer a with |a * b'| < 2^62, the product takes two multiplications and no comparison:

    T = a*w mod 2^64, as a signed word;      k = ((T >> 32) * p + 3*2^30) >> 32        (shifts round down)

k is exactly the centred representative of a*b mod p, so |k| <= (p-1)/2. Proof: T*p = a*b' + k'*2^64 for some integer
k', which is congruent to -a*b' * 2^-64 = a*b modulo p; and |k'| <= (|T|*p + |a*b'|) / 2^64 < p/2 + 1/4, so it is the
centred one. With T0 the low 32 bits of T, the shifted sum is (T*p - T0*p + 3*2^62) / 2^64 rounded down, which is k' plus
the floor of (a*b' - T0*p + 3*2^62) / 2^64. As 0 <= T0*p < 2^63, that numerator is above -2^62 - 2^63 + 3*2^62 = 0 and
below 2^62 + 3*2^62 = 2^64, so the floor is 0.

The same proof covers a sum of products: add the a*w of several terms modulo 2^64 and finish once, as long as the sum of
the |a * b'| stays below 2^62.
"""

from collections.abc import Iterable

import numpy as np

_SHIFT = np.array(32, np.int64)
_ROUND = np.array(3 << 30, np.int64)


def operand_limit(p: int) -> int:
    """The largest |a| that may be multiplied by any constant modulo `p`: |a| * (p-1)/2 < 2^62.

    It is above 2^32, that is 2p, for every p < 2^31; above 8p for p < 2^30; and it doubles with each bit less.
    """
    return ((1 << 63) - 1) // (p - 1)


def words(constants: Iterable[int], p: int) -> np.ndarray:
    """int64[len]: the word w of each constant modulo `p`; constants are any integers."""
    b = np.array([(-int(c) << 64) % p for c in constants], dtype=np.int64)
    return _times_inverse(b, p)


def words_of_residues(residues: np.ndarray, p: int) -> np.ndarray:
    """int64[len]: the word w of each residue of an unsigned array with entries in [0, p)."""
    # -b * 2^64 as two steps of 32 bits, each below 2^63
    b = (np.uint64(p) - residues.astype(np.uint64) << np.uint64(32)) % np.uint64(p)
    return _times_inverse(((b << np.uint64(32)) % np.uint64(p)).astype(np.int64), p)


def _times_inverse(b: np.ndarray, p: int) -> np.ndarray:
    b[b > p // 2] -= p
    return b * np.uint64(pow(p, -1, 1 << 64)).astype(np.int64)  # wraps


def finish(total: np.ndarray, p: np.ndarray) -> None:
    """Turns a sum of a*w, int64, into the centred representative of the sum of the a*b, in place.

    `p` is int64 and broadcasts; a scalar of shape () or an array of the sum's own shape is fastest.
    """
    np.right_shift(total, _SHIFT, out=total)
    np.multiply(total, p, out=total)
    np.add(total, _ROUND, out=total)
    np.right_shift(total, _SHIFT, out=total)


def reduce_once(x: np.ndarray, p: np.ndarray, out: np.ndarray) -> None:
    """`out`, uint32, becomes x mod p in [0, p), for int64 `x` in (-p, p); `p` is uint32 and broadcasts."""
    np.copyto(out, x, casting="unsafe")  # modulo 2^32: a negative x is above 2^31
    np.minimum(out, out + p, out=out)  # and x + p then wraps to a smaller number, while x + p > x otherwise
