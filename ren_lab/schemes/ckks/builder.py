"""Parameters from what a program needs: depth, precision, security."""

import math

from ren_lab.ring.primes import checked_degree
from ren_lab.schemes.ckks import security
from ren_lab.schemes.ckks.params import HEADROOM_BITS, CKKSParams, choose_chain, finish
from ren_lab.schemes.ckks.primes import MAX_PRIME_BITS

MAX_DEPTH = 64
MAX_DIGITS = 6
_MAX_LOG2_SCALE = 58.0  # twice this leaves doubles enough room in encoding, and pairs of primes stay below 2^30 each
_MIN_LOG2_SCALE = 20.0


def needed_log2_scale(n: int, precision_bits: float) -> float:
    """The scale at which the rounding of a rescaled product leaves errors near 2^-precision_bits.

    Rounding gives each coefficient of b + a*s an error of variance (1 + 2n/3) / 12, hence the real part of each slot one of
    standard deviation sqrt(n/2 * (1 + 2n/3) / 12), about n/6. One bit is added, for what a product makes of its operands'
    errors.
    """
    return max(_MIN_LOG2_SCALE, math.ceil(precision_bits + math.log2(n / 6) + 1))


def transforms_per_product(params: CKKSParams) -> int:
    """How many single-limb transforms a relinearized and rescaled product at the highest level takes.

    Each limb is transformed back once for the digits; a lifted digit is transformed but for its own limbs, which are at hand.
    """
    moduli, special = params.levels[-1].ring.limbs, len(params.special)
    dropped = len(params.groups[-1]) if params.groups else 0
    digits = len(params.digit_moduli(params.depth))
    lifted = digits * (moduli + special) - moduli
    return moduli + lifted + 2 * (special + dropped) + 2 * (moduli - dropped)


def _scales(n: int, precision_bits: float) -> list[tuple[float, int]]:
    """Scales to try, as (log2, primes per level), cheapest first."""
    least = needed_log2_scale(n, precision_bits)
    single = [(s, 1) for s in [least + 0.5 * i for i in range(40)] if s <= MAX_PRIME_BITS - 0.5]
    pairs = [(max(least, 32.0) + i, 2) for i in range(30) if max(least, 32.0) + i <= _MAX_LOG2_SCALE]
    return single + pairs


def _at(n: int, depth: int, precision_bits: float, insecure: bool) -> tuple[CKKSParams | None, str]:
    """The best parameters of a degree at the smallest scale that works, or None and the reason."""
    scales = _scales(n, precision_bits)
    if not scales:
        return (
            None,
            f"rounding errors would need a scale of 2^{needed_log2_scale(n, precision_bits):g}, beyond 2^{_MAX_LOG2_SCALE:g}",
        )
    limit = math.inf if insecure else security.max_log2_qp(n)
    lacking = ""
    for log2_scale, size in scales:
        least = (depth + 1) * log2_scale + HEADROOM_BITS
        if least > limit:
            too_long = f"the levels alone would make log2(Q) {least:.0f} at scale 2^{log2_scale:g}, and {limit:.0f} is allowed"
            return None, f"{lacking}; {too_long}" if lacking else too_long
        try:
            chain = choose_chain(n, depth, log2_scale, size)
        except ValueError as error:
            lacking = str(error)
            continue
        found, narrowest = [], ""
        for digits in range(1, min(MAX_DIGITS, len(chain[0]) + size * depth) + 1):
            try:
                found.append(finish(n, chain, log2_scale, digits, insecure))
            except ValueError as error:
                narrowest = str(error).split(";")[0]
        if found:
            return min(found, key=transforms_per_product), ""
        return None, f"at scale 2^{log2_scale:g} and with up to {MAX_DIGITS} digits, {narrowest}"
    return None, lacking


def build(depth: int, precision_bits: float, security_bits: int, n: int | None, insecure: bool) -> CKKSParams:
    """See `CKKSParams.build`."""
    if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= MAX_DEPTH:
        raise ValueError(f"depth is {depth!r}; give the number of products in a row, an int from 0 to {MAX_DEPTH}")
    if not 1 <= precision_bits <= 40:
        raise ValueError(f"precision_bits is {precision_bits!r}; it can be 1 to 40, since values pass through 53-bit floats")
    if not insecure and security_bits != security.LEVEL_BITS:
        raise ValueError(
            f"security_bits is {security_bits!r}; the table of IACR ePrint 2024/463 used here is for {security.LEVEL_BITS}"
        )
    if insecure and n is None:
        raise ValueError("insecure=True needs a degree: give n, such as n=2**12")
    if n is not None:
        checked_degree(n)
    passed: list[str] = []
    for degree in security.DEGREES if n is None else (n,):
        params, reason = _at(degree, depth, precision_bits, insecure)
        if params is not None:
            return _explained(params, precision_bits, passed)
        passed.append(f"n = {degree} is not enough: {reason}")
    raise ValueError(
        f"no parameters give {depth} levels with {precision_bits:g} bits of precision"
        f"{'' if insecure else ' at 128-bit security'}; ask for fewer levels or less precision. " + ". ".join(passed)
    )


def _explained(params: CKKSParams, precision_bits: float, passed: list[str]) -> CKKSParams:
    needed, size = needed_log2_scale(params.n, precision_bits), len(params.groups[0]) if params.groups else 1
    notes = [
        f"scale: {precision_bits:g} bits of precision at this degree need 2^{needed:g}"
        + ("" if params.log2_scale == needed else f"; 2^{params.log2_scale:g} is the next one that the primes reach"),
        f"primes: {size} per level, the scale being {'within' if size == 1 else 'beyond'} what one prime below 2^30 reaches",
        f"digits: {params.digits}, the choice with the fewest transforms in a product, {transforms_per_product(params)} at the top",
    ]
    fields = (params.n, params.base, params.groups, params.special, params.digits, params.log2_scale, params.insecure)
    return CKKSParams(*fields, notes=(*notes, *passed))
