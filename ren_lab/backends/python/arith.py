"""Arithmetic on data at rest: vectorized over limbs and coefficients, the definition of every operation.

Arrays are uint32[limbs, n] in Montgomery form with R = 2^32, fully reduced, one row per modulus of the ring, unless a
function says otherwise. They may be views with any strides, such as some rows of a larger array. Inputs are never
modified; `out`, where it is given, is written and returned, and may be one of the inputs, but not overlap it otherwise.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from ren_lab.backends.python import constmul
from ren_lab.backends.python.transform import intt, ntt
from ren_lab.ring import RingSpec, conversion, tables

__all__ = [
    "add",
    "base_convert",
    "crt",
    "from_montgomery",
    "intt",
    "mul",
    "mul_scalar",
    "neg",
    "ntt",
    "pack_array",
    "pack_words",
    "sub",
    "to_montgomery",
    "to_rns",
]

_CHUNK = 1 << 15
"""Larger arrays are worked on some rows at a time, so that temporaries stay in the second-level cache."""

_SHIFT = np.array(32, np.uint64)


# --------------------------------------------------------------------------------------------------------------------
# Element by element. Both operands are uint32[limbs, width] or columns uint32[limbs, 1]; the width may differ from n.


def _by_rows(function: Callable[..., None], out: np.ndarray | None, *operands: np.ndarray) -> np.ndarray:
    """Calls `function(*operands, out)` on a few rows at a time; every array has one row per limb."""
    if out is None:
        out = np.empty((len(operands[0]), max(operands[0].shape[1], operands[1].shape[1])), np.uint32)
    if out.size <= _CHUNK:
        function(*operands, out)
        return out
    rows = max(1, _CHUNK // out.shape[1])
    for i in range(0, len(out), rows):
        function(*[x[i : i + rows] for x in operands], out[i : i + rows])
    return out


def add(a: np.ndarray, b: np.ndarray, ring: RingSpec, out: np.ndarray | None = None) -> np.ndarray:
    """a + b mod p, in [0, p). Operands broadcast along coefficients."""
    return _by_rows(_add, out, a, b, tables(ring).p)


def _add(a: np.ndarray, b: np.ndarray, p: np.ndarray, out: np.ndarray) -> None:
    total = a + b  # below 2p < 2^32
    np.minimum(total, total - p, out=out)  # the difference wraps to a larger number if the total is below p


def sub(a: np.ndarray, b: np.ndarray, ring: RingSpec, out: np.ndarray | None = None) -> np.ndarray:
    """a - b mod p, in [0, p). Operands broadcast along coefficients."""
    return _by_rows(_sub, out, a, b, tables(ring).p)


def _sub(a: np.ndarray, b: np.ndarray, p: np.ndarray, out: np.ndarray) -> None:
    difference = a - b  # if negative, wrapped to above 2^32 - p > p, and adding p wraps back
    np.minimum(difference, difference + p, out=out)


def neg(a: np.ndarray, ring: RingSpec, out: np.ndarray | None = None) -> np.ndarray:
    """-a mod p, in [0, p)."""
    return _by_rows(_neg, out, a, tables(ring).p)


def _neg(a: np.ndarray, p: np.ndarray, out: np.ndarray) -> None:
    negative = np.negative(a)  # 0, or wrapped to above 2^32 - p > p
    np.minimum(negative, negative + p, out=out)


def mul(a: np.ndarray, b: np.ndarray, ring: RingSpec, out: np.ndarray | None = None) -> np.ndarray:
    """The Montgomery product a * b / R mod p, in [0, p). Operands broadcast along coefficients."""
    constants = tables(ring)
    return _by_rows(_mul, out, a, b, constants.p, constants.p_inv_high)


def _mul(a: np.ndarray, b: np.ndarray, p: np.ndarray, p_inv_high: np.ndarray, out: np.ndarray) -> None:
    product = a.astype(np.uint64) * b.astype(np.uint64)  # below 2^62
    multiple = product * p_inv_high  # modulo 2^64: m * 2^32 with m = product * p^-1 mod 2^32
    multiple >>= _SHIFT
    multiple *= p
    product -= multiple  # a multiple of 2^32 in (-p * 2^32, p * 2^32), its high word in (-p, p)
    product >>= _SHIFT
    constmul.reduce_once(product, p, out)


def mul_scalar(a: np.ndarray, residues: Sequence[int], ring: RingSpec, out: np.ndarray | None = None) -> np.ndarray:
    """a * c mod p, in [0, p), for an integer c given by its Montgomery residues, one per limb."""
    return mul(a, np.array(residues, np.uint32)[:, None], ring, out)


def to_montgomery(a: np.ndarray, ring: RingSpec, out: np.ndarray | None = None) -> np.ndarray:
    """Plain residues in [0, p) into Montgomery form: a * R mod p."""
    return mul(a, tables(ring).r2, ring, out)


def from_montgomery(a: np.ndarray, ring: RingSpec, out: np.ndarray | None = None) -> np.ndarray:
    """Out of Montgomery form: a / R mod p, in [0, p)."""
    return mul(a, np.ones((ring.limbs, 1), np.uint32), ring, out)


# --------------------------------------------------------------------------------------------------------------------
# From one basis to another


class _Combination:
    """Sums of rows times constants modulo the primes of a ring: out[j] = sum over i of rows[i] * b[j][i] mod p_j.

    Args:
        bounds: The largest value of each row; rows are non-negative.
        factors: b, one sequence of integers per modulus.
        ring: Its moduli are the p_j.
    """

    def __init__(self, bounds: Sequence[int], factors: Sequence[Sequence[int]], ring: RingSpec) -> None:
        self.p = np.array(ring.moduli, np.int64)[:, None]
        self.p_out = tables(ring).p
        words = np.stack([constmul.words(row, p) for row, p in zip(factors, ring.moduli, strict=True)])
        self.words = np.ascontiguousarray(words.T)[:, :, None]  # int64[rows, limbs, 1]
        limit = constmul.operand_limit(max(ring.moduli))
        self.groups: list[range] = []  # rows whose products are added before they are reduced
        start, total = 0, 0
        for i, bound in enumerate(bounds):
            if total + bound > limit:
                self.groups.append(range(start, i))
                start, total = i, 0
            total += bound
        self.groups.append(range(start, len(bounds)))
        # Each group adds a centred residue; two of them are in (-p, p), and `most` of them may be multiplied by 1 again.
        self.most = limit // ((max(ring.moduli) - 1) // 2)
        self.one = None
        if len(self.groups) > 2:
            self.one = np.stack([constmul.words([1], p) for p in ring.moduli])
        self.width = max(4096, _CHUNK // (2 * ring.limbs))

    def apply(self, rows: np.ndarray, out: np.ndarray) -> None:
        """`rows` is int64[rows, width], `out` uint32[limbs, width]; rows are not modified."""
        for start in range(0, rows.shape[1], self.width):
            part = slice(start, start + self.width)
            self._apply(rows[:, part], out[:, part])

    def _apply(self, rows: np.ndarray, out: np.ndarray) -> None:
        result, held = None, 0  # the sum so far, and how many centred residues it holds
        for group in self.groups:
            total = rows[group[0]] * self.words[group[0]]
            for i in group[1:]:
                total += rows[i] * self.words[i]
            constmul.finish(total, self.p)
            if result is None:
                result = total
            else:
                if held == self.most:
                    self._centre(result)
                    held = 1
                result += total
            held += 1
        assert result is not None
        if held > 2:
            self._centre(result)
        constmul.reduce_once(result, self.p_out, out)

    def _centre(self, result: np.ndarray) -> None:
        assert self.one is not None
        result *= self.one
        constmul.finish(result, self.p)


@lru_cache(maxsize=256)
def _lifting(src: RingSpec, dst: RingSpec) -> tuple[np.ndarray, np.ndarray, _Combination]:
    """The words that take x into y, the moduli of `src`, int64[k, 1] each, and the combination of y and e."""
    constants = conversion(src, dst)
    into_y = np.stack(
        [constmul.words([int(h) * pow(1 << 32, -1, p)], p) for (h,), p in zip(constants.hat_inv, src.moduli, strict=True)]
    )
    rows = np.concatenate([constants.hat, constants.minus_q], axis=1).tolist()
    factors = [[h * pow(1 << 32, -1, r) for h in row] for row, r in zip(rows, dst.moduli, strict=True)]
    bounds = [p - 1 for p in src.moduli] + [src.limbs + 1]
    return into_y, np.array(src.moduli, np.int64)[:, None], _Combination(bounds, factors, dst)


def base_convert(a: np.ndarray, src: RingSpec, dst: RingSpec, out: np.ndarray | None = None, scaled: bool = False) -> np.ndarray:
    """The centred representative of each coefficient of `a`, lifted to the moduli of `dst`.

    The formula, its error and the proof are at `ren_lab.ring.Conversion`: exact, except that coefficients within
    k * 2^-32 * Q of Q/2 in absolute value, for k limbs, may come out off by Q.

    Args:
        a: uint32[src.limbs, n], coefficient domain, Montgomery form.
        src: The ring of `a`.
        dst: The ring of the result; it may share moduli with `src`.
        out: uint32[dst.limbs, n]; must not overlap `a`. A new array if None.
        scaled: `a` has been multiplied by (Q/p)^-1 modulo each p already, and is out of Montgomery form.

    Returns:
        `out`, in Montgomery form, in [0, p).
    """
    if out is None:
        out = np.empty((dst.limbs, a.shape[1]), np.uint32)
    into_y, p, combination = _lifting(src, dst)
    constants = conversion(src, dst)
    for start in range(0, a.shape[1], combination.width):
        part = slice(start, start + combination.width)
        x = a[:, part]
        rows = np.empty((src.limbs + 1, x.shape[1]), np.int64)
        y = rows[:-1]
        unsigned = y.view(np.uint64)
        if scaled:
            y[...] = x
        else:
            np.multiply(x, into_y, out=y)
            constmul.finish(y, p)
            np.minimum(unsigned, unsigned + p.view(np.uint64), out=unsigned)  # a negative y is huge, and y + p wraps back
        estimates = unsigned * constants.weight  # below 2^63
        estimates >>= np.uint64(31)
        rows[-1] = (estimates.sum(axis=0) + np.uint64(constants.rounding)) >> _SHIFT
        combination.apply(rows, out[:, part])
    return out


@lru_cache(maxsize=256)
def _from_words(ring: RingSpec, count: int) -> _Combination:
    factors = [[1 << (32 * i + 32) for i in range(count)] for _ in ring.moduli]
    return _Combination([(1 << 32) - 1] * count, factors, ring)


def to_rns(words: np.ndarray, ring: RingSpec, out: np.ndarray | None = None) -> np.ndarray:
    """Non-negative integers into Montgomery residues.

    Args:
        words: uint32[count, n]; column i holds the digits of integer i in base 2^32, least significant first.
        ring: The ring of the result.
        out: uint32[limbs, n]. A new array if None.

    Returns:
        `out`, in Montgomery form, in [0, p).
    """
    if out is None:
        out = np.empty((ring.limbs, words.shape[1]), np.uint32)
    _from_words(ring, len(words)).apply(words.astype(np.int64), out)
    return out


# --------------------------------------------------------------------------------------------------------------------
# Between residues or digits and Python integers


@lru_cache(maxsize=256)
def _crt_factors(ring: RingSpec) -> tuple[tuple[int, int], ...]:
    """(Q/p, (Q/p)^-1 mod p) for each modulus p."""
    return tuple([(ring.q // p, pow(ring.q // p, -1, p)) for p in ring.moduli])


def crt(residues: np.ndarray, ring: RingSpec) -> list[int]:
    """The n integers in [0, q) with the given plain residues, uint32[limbs, n], not in Montgomery form."""
    if ring.limbs == 1:
        return residues[0].tolist()
    total = np.zeros(residues.shape[1], dtype=object)
    for row, p, (hat, inverse) in zip(residues, ring.moduli, _crt_factors(ring), strict=True):
        y = row.astype(np.uint64) * np.uint64(inverse) % np.uint64(p)  # below 2^62
        total += y.astype(object) * hat
    return (total % ring.q).tolist()


def pack_words(ints: Sequence[int], q: int, limb_count: int) -> np.ndarray:
    """Python integers of any size, reduced modulo `q`, as digits in base 2^32.

    Args:
        ints: Integers, or an array of them with dtype object; the caller has made sure that nothing else is among them.
        q: The modulus, at least 1.
        limb_count: How many digits to write; q must be at most 2^(32 * limb_count).

    Returns:
        uint32[limb_count, len(ints)], least significant digit first.
    """
    values = np.array(ints, dtype=object)
    try:
        return pack_array(values.astype(np.int64), q, limb_count)
    except OverflowError:  # some are larger than 64 bits
        pass
    values = values % q
    return _digits(
        [(values >> 64 * i & 0xFFFF_FFFF_FFFF_FFFF).astype(np.uint64) for i in range(-(-limb_count // 2))],
        q,
        limb_count,
    )


def pack_array(values: np.ndarray, q: int, limb_count: int) -> np.ndarray:
    """The integers of a one-dimensional array of any integer type, reduced modulo `q`, as digits in base 2^32.

    Args:
        values: int8 to int64 or uint8 to uint64, shape (n,).
        q: The modulus, at least 1.
        limb_count: How many digits to write; q must be at most 2^(32 * limb_count).

    Returns:
        uint32[limb_count, n], least significant digit first.
    """
    if values.dtype.kind == "u":
        low = values.astype(np.uint64)
        return _digits([low % np.uint64(q) if q < 1 << 64 else low], q, limb_count)
    signed = values.astype(np.int64)
    if q < 1 << 63:
        return _digits([np.mod(signed, np.int64(q)).astype(np.uint64)], q, limb_count)
    # |v| <= 2^63 <= q: v itself, or q - |v| in words of 64 bits with a borrow
    low, negative = signed.astype(np.uint64), signed < 0
    words, borrow = [], np.where(negative, -low, 0)  # wraps to |v|
    for i in range(-(-limb_count // 2)):
        digit = np.uint64(q >> 64 * i & 0xFFFF_FFFF_FFFF_FFFF)
        words.append(np.where(negative, digit - borrow, low if i == 0 else np.uint64(0)))
        borrow = (borrow > digit).astype(np.uint64)
    return _digits(words, q, limb_count)


def _digits(words: Sequence[np.ndarray], q: int, limb_count: int) -> np.ndarray:
    """Words of 64 bits, least significant first, cut into `limb_count` digits of 32 bits; missing words are 0."""
    if q > 1 << 32 * limb_count:
        raise ValueError(
            f"q has {q.bit_length()} bits, but {limb_count} digits of 32 bits are to hold numbers below it; ask for more digits"
        )
    out = np.zeros((limb_count, len(words[0])), np.uint32)
    for i, word in enumerate(words):
        out[2 * i] = word & np.uint64(0xFFFF_FFFF)
        if 2 * i + 1 < limb_count:
            out[2 * i + 1] = word >> _SHIFT
    return out
