"""Plaintexts: encoded values, and values again."""

import dataclasses
import math
import numbers
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ren_lab.poly import Poly
from ren_lab.ring import RingSpec
from ren_lab.schemes.ckks import encoding, noise
from ren_lab.schemes.ckks.keys import CKKSContext, context
from ren_lab.schemes.ckks.noise import Estimate
from ren_lab.schemes.ckks.params import Level

_ROUNDING = 2.0**-40  # of the magnitude of a slot, which may be computed: that of exp(1j*x) can come out above 1
_DECODED_BITS = 120  # of the modulus: far more than values and scale need, and fewer limbs to transform


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Plaintext:
    """An encoded vector: a polynomial that holds n/2 slots times a scale.

    Attributes:
        poly: the polynomial, over the ring of the level.
        level: its level, as a ciphertext's.
        scale: what the slots are multiplied by.
        value: of a constant that stayed symbolic, otherwise None.
        estimate: range and precision.
    """

    poly: Poly
    level: int
    scale: float
    value: float | None = None
    estimate: Estimate = field(default=Estimate(noise.message(math.inf, False, 0.0)))

    @classmethod
    def const(cls, c: float, level: int | None = None) -> "Plaintext":
        """The real number `c` in every slot, kept symbolic: it takes no memory, and its value is part of a jitted call's key.

        Args:
            c: a finite real number.
            level: a level of the active context's parameters; the highest if None.

        Raises:
            TypeError: `c` is no real number.
            ValueError: `c` is not finite, or too large for the level.
            RuntimeError: no context is active.
        """
        ctx = context()
        at = _level(ctx, level)
        value = real_number(c)
        check_room(abs(value), at.scale, at.ring, f"the constant {c!r}")
        known = noise.Noise(value, value, 0.0, 0.25 / at.scale**2)
        return cls(Poly.const(round(value * at.scale), at.ring, ctx.device), at.index, at.scale, value, Estimate(known))

    def transformed(self) -> "Plaintext":
        """The same plaintext with its polynomial in the NTT domain, for one that meets many ciphertexts."""
        return dataclasses.replace(self, poly=self.poly.ntt())

    def realize(self) -> "Plaintext":
        """Compute the polynomial; returns self."""
        self.poly.realize()
        return self

    def __repr__(self) -> str:
        kind = f"constant {self.value:g}" if self.value is not None else f"{self.poly.ring.n // 2} slots"
        return f"<Plaintext: {kind}, level {self.level}, scale {_power(self.scale)}>"


def _power(scale: float) -> str:
    return f"2^{math.log2(abs(scale)):.2f}" if 0 < abs(scale) < math.inf else f"{scale}"


def real_number(c: Any) -> float:
    """A finite real number as a float; other things raise."""
    if isinstance(c, bool | np.bool_) or not isinstance(c, numbers.Real):
        raise TypeError(f"{c!r} of type {type(c).__name__} is no real number; give an int or a float, or encode(values)")
    value = float(c)
    if not math.isfinite(value):
        raise ValueError(f"{c!r} can't be encoded; values must be finite")
    return value


def _level(ctx: CKKSContext, level: int | None) -> Level:
    if level is None:
        return ctx.params.levels[-1]
    if isinstance(level, bool) or not isinstance(level, numbers.Integral) or not 0 <= level <= ctx.params.depth:
        raise ValueError(f"level is {level!r}; the parameters have levels 0 to {ctx.params.depth}")
    return ctx.params.levels[int(level)]


def check_room(bound: float, scale: float, ring: RingSpec, what: str) -> None:
    """Refuse what would wrap around the modulus."""
    half = ring.q / 2 if ring.q.bit_length() <= sys.float_info.max_exp else math.inf  # beyond all floats
    if not bound < half / abs(scale):
        raise ValueError(
            f"{what} does not fit at this level: magnitudes must stay below {half / abs(scale):.3g}; scale values down, "
            "or encode at a higher level"
        )


def encode(values: Any, *, msg_bound: float = 1.0, level: int | None = None) -> Plaintext:
    """Encode numbers into the slots of a plaintext.

    The error of each slot is about sqrt(n/12) / scale, from rounding coefficients to integers, and at most n/2 / scale, plus the
    floating-point error stated in `ren_lab.schemes.ckks.encoding`.

    Args:
        values: real or complex numbers, at most n/2 of them, in a sequence or a one-dimensional array; missing slots
            are 0. A single number fills all slots.
        msg_bound: a public bound of the magnitudes. It travels with ciphertexts, and precision is estimated from it.
        level: a level of the active context's parameters; the highest if None. Encoding at the level of use saves work.

    Raises:
        TypeError: `values` are no numbers.
        ValueError: a magnitude is beyond `msg_bound` or not finite, there are too many values, the array has more than one
            dimension, or the bound does not fit into the level's modulus.
        RuntimeError: no context is active.
    """
    ctx = context()
    at = _level(ctx, level)
    slots = as_slots(values, ctx.params.slot_count)
    bound = real_number(msg_bound)
    if bound < 0:
        raise ValueError(f"msg_bound is {msg_bound!r}; a bound of magnitudes is at least 0")
    if slots.size and not (size := float(np.max(np.abs(slots)))) <= bound * (1 + _ROUNDING):
        where = int(np.argmax(np.abs(slots)))
        raise ValueError(
            f"value {slots[where]} in slot {where} has magnitude {size!r}, beyond msg_bound = {bound:g}; raise msg_bound"
        )
    return encode_slots(ctx, slots, at, bound)


def as_slots(values: Any, slot_count: int) -> np.ndarray:
    """Numbers as a float64 or complex128 array of at most `slot_count` finite values; a single number becomes a full array."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(float)
    if array.dtype.kind not in "iufc":
        raise TypeError(f"values of type {type(values).__name__} ({array.dtype}) can't be encoded; give real or complex numbers")
    if array.ndim > 1:
        raise ValueError(f"the array has shape {array.shape}; give one dimension, array.ravel() if that is meant")
    if array.ndim == 0:
        array = np.full(slot_count, array)
    if array.size > slot_count:
        raise ValueError(
            f"{array.size} values are given, but a plaintext has {slot_count} slots; use several, or parameters of larger n"
        )
    array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    if not np.all(np.isfinite(array)):
        where = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"value {array[where]} in slot {where} can't be encoded; values must be finite")
    return array


def encode_slots(ctx: CKKSContext, slots: np.ndarray, level: Level, bound: float) -> Plaintext:
    """Encode checked slots; `bound` is the bound of magnitudes that the plaintext carries."""
    check_room(bound, level.scale, level.ring, f"a plaintext with magnitudes up to {bound:g}")
    n = ctx.params.n
    full = np.zeros(n // 2, slots.dtype)
    full[: slots.size] = slots
    integers = encoding.rounded(encoding.slots_to_coefficients(full, n) * level.scale)
    variance = noise.slot_variance(ctx.params, 1 / 12, level.scale)
    estimate = Estimate(noise.message(bound, slots.dtype.kind != "c", variance))
    base = ctx.params.levels[0].ring
    if max(-int(integers.min()), int(integers.max())) < base.q // 4:  # lifting them from there is exact, and less work
        poly = Poly(integers, base, ctx.device).to_ring(level.ring)
    else:
        poly = Poly(integers, level.ring, ctx.device)
    return Plaintext(poly, level.index, level.scale, None, estimate)


def decode(plaintext: Plaintext, length: int | None = None) -> np.ndarray:
    """The slots of a plaintext as complex128[length]; computes it.

    Magnitudes must be below 2^119 / scale, and below q/2 / scale where the level's modulus q has fewer bits. Floating-point
    errors are near log2(n) * 2^-53 of the largest magnitude.

    Args:
        plaintext: what `encode` or `decrypt` gave.
        length: how many slots to return, from 0 to n/2; all if None.

    Raises:
        TypeError: `plaintext` is no Plaintext.
        ValueError: `length` is out of range.
    """
    if not isinstance(plaintext, Plaintext):
        raise TypeError(f"decode takes a Plaintext, not {type(plaintext).__name__}; decrypt a ciphertext first")
    ring, moduli = plaintext.poly.ring, plaintext.poly.ring.moduli
    slot_count = ring.n // 2
    if length is None:
        length = slot_count
    if isinstance(length, bool) or not isinstance(length, int | np.integer) or not 0 <= length <= slot_count:
        raise ValueError(f"length is {length!r}; there are {slot_count} slots")
    size = plaintext.estimate.value.bound * abs(plaintext.scale)  # more of the modulus for values that are larger than usual
    bits = max(_DECODED_BITS, int(math.log2(size)) + 16 if 1 < size < math.inf else 0)
    enough = next((i for i in range(1, len(moduli)) if math.prod(moduli[:i]) >> bits), len(moduli))
    low = RingSpec(ring.n, moduli[:enough])
    coefficients = encoding.centered_floats(plaintext.poly.to_ring(low).numpy(), low)
    return encoding.coefficients_to_slots(coefficients / plaintext.scale, ring.n)[:length]


def lowered(ctx: CKKSContext, plaintext: Plaintext, level: int) -> Plaintext:
    """The same values at a lower level, at its nominal scale."""
    levels = ctx.params.levels
    if plaintext.level == level and plaintext.scale == levels[level].scale:
        return plaintext
    above = levels[level + 1]
    factor = round(levels[level].scale * math.prod(above.group) / plaintext.scale)
    poly = (plaintext.poly.to_ring(above.ring) * factor).rescale(above.group)
    variance = noise.slot_variance(ctx.params, 1 / 12, levels[level].scale)
    estimate = Estimate.of(partial(noise.rounded, variance), plaintext.estimate)
    return dataclasses.replace(plaintext, poly=poly, level=level, scale=levels[level].scale, estimate=estimate)
