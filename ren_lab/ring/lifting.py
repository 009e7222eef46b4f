"""Conversion between bases: the centred representative of a value, lifted to other moduli without floating point."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ren_lab.ring.constants import read_only
from ren_lab.ring.spec import RingSpec


@dataclass(frozen=True, slots=True, eq=False)
class Conversion:
    """The constants that lift values from the basis of `src`, p_0 .. p_(k-1), to the moduli r_j of `dst`.

    With Q the product of the p_i and x the value, everything in u64:

        y_i = x * (Q/p_i)^-1 mod p_i                 in [0, p_i)
        t_i = (y_i * floor(2^63 / p_i)) >> 31        in [0, 2^32)
        e   = (t_0 + .. + t_(k-1) + 2^31 + k) >> 32
        v   = y_0 * Q/p_0 + .. + y_(k-1) * Q/p_(k-1) - e*Q          taken modulo each r_j

    v is congruent to x modulo Q, and it is the centred representative, except that it may be off by exactly Q where
    the centred representative c lies within k * 2^-32 * Q of Q/2 in absolute value. Proof: the sum of the y_i * Q/p_i
    is c + u*Q for an integer u, so e is right when it equals u. Put T_i = 2^32 * y_i/p_i. Cutting 2^63/p_i takes less
    than y_i/2^31 < 1 off T_i and the shift less than 1 more, so t_i - T_i is in (-2, 0], and the sum of the t_i plus k
    is the sum of the T_i plus some d in (-k, k]. The T_i sum to 2^32 * (u + c/Q), hence
    e = floor(u + c/Q + 1/2 + d/2^32). As c/Q + 1/2 is in (0, 1), e is u whenever c/Q + 1/2 is at least k/2^32
    away from both ends, and u - 1 or u + 1 at worst otherwise.

    For k = 1 it is always exact: |c| <= (Q-1)/2 keeps c/Q + 1/2 at least 1/(2Q) > 2^-32 from both ends, since
    Q < 2^31. By the same argument it is exact for every value when k*Q < 2^31.
    """

    src: RingSpec
    dst: RingSpec
    hat_inv: np.ndarray
    """uint32[k, 1]: (Q/p_i)^-1 mod p_i, plain, so that its Montgomery product with x*R is y_i, plain."""
    weight: np.ndarray
    """uint64[k, 1]: floor(2^63 / p_i)."""
    hat: np.ndarray
    """uint32[dst.limbs, k]: (Q/p_i) * R^2 mod r_j, whose Montgomery product with the plain y_i is in Montgomery form."""
    minus_q: np.ndarray
    """uint32[dst.limbs, 1]: -Q * R^2 mod r_j, to be multiplied by e."""

    @property
    def rounding(self) -> int:
        """2^31 + k, what is added to the sum of the t_i before the shift."""
        return (1 << 31) + self.src.limbs


@lru_cache(maxsize=1024)
def conversion(src: RingSpec, dst: RingSpec) -> Conversion:
    """The constants of the conversion from `src` to `dst`, two rings of one degree that may share moduli.

    Raises:
        ValueError: The degrees differ.
    """
    _check_same_degree(src, dst)
    q, hats = src.q, [src.q // p for p in src.moduli]
    return Conversion(
        src,
        dst,
        hat_inv=read_only(np.array([[pow(h, -1, p)] for h, p in zip(hats, src.moduli)], dtype=np.uint32)),
        weight=read_only(np.array([[(1 << 63) // p] for p in src.moduli], dtype=np.uint64)),
        hat=read_only(np.array([[(h << 64) % r for h in hats] for r in dst.moduli], dtype=np.uint32)),
        minus_q=read_only(np.array([[(-q << 64) % r] for r in dst.moduli], dtype=np.uint32)),
    )


def _check_same_degree(src: RingSpec, dst: RingSpec) -> None:
    if src.n != dst.n:
        raise ValueError(
            f"cannot convert from {src!r} to {dst!r}: n is {src.n} and {dst.n}, but both rings must have one degree;"
            " choose a target ring of the source's degree"
        )


def convert_scalar(value: int, src: RingSpec, dst: RingSpec) -> int:
    """The formula of `Conversion` on one integer: the result in [0, dst.q), equal residue for residue to the arrays'.

    `value` is any integer and is taken modulo `src.q`.

    Raises:
        ValueError: The degrees of the rings differ.
    """
    _check_same_degree(src, dst)
    q, lifted, total = src.q, 0, (1 << 31) + src.limbs
    for p in src.moduli:
        y = value * pow(q // p, -1, p) % p
        total += (y * ((1 << 63) // p)) >> 31
        lifted += y * (q // p)
    return (lifted - (total >> 32) * q) % dst.q
