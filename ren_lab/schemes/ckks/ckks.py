"""Ciphertexts: making them, opening them.

Encryption under the public key (b, a) works with one special prime p beyond the moduli of the level: v*(b, a) + (e0, e1)
is divided by p and rounded before the message is added. That leaves an error of rounding size instead of sums of n errors.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

from ren_lab.events import one_line
from ren_lab.poly import Poly
from ren_lab.schemes.ckks import noise
from ren_lab.schemes.ckks.evaluation import Arithmetic, announce, check_keys
from ren_lab.schemes.ckks.keys import SecretKey, context, keygen
from ren_lab.schemes.ckks.keyswitch import Split
from ren_lab.schemes.ckks.noise import Estimate
from ren_lab.schemes.ckks.params import ERROR_SIGMA
from ren_lab.schemes.ckks.plaintext import Plaintext, as_slots, decode, encode
from ren_lab.schemes.ckks.report import Precision, Report


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Ciphertext(Arithmetic):
    """An encrypted vector of n/2 complex numbers: factor * (b + a*s) / scale, up to a small error.

    Operators work inside `with ctx:`, lazily: they build the graphs of `a` and `b`. The other operand may be a ciphertext, a
    plaintext, a number, or a sequence or one-dimensional array of numbers, which is encoded on the way.

    Attributes:
        a, b: polynomials over the ring of the level.
        level: how many more products in a row are possible.
        scale: what the polynomials hold the values times of, the level's by nature.
        factor: an integer that is still to be multiplied in.
        key_id: of the keys it belongs to.
        estimate: range and precision; no part of a jitted call's key, and recomputed when it is replayed.
    """

    a: Poly
    b: Poly
    level: int
    scale: float
    factor: int
    key_id: int
    estimate: Estimate

    def realize(self) -> Self:
        """Compute the polynomials; returns self."""
        self.b.realize(self.a)
        return self

    def report(self, expected: Any = None) -> Report:
        """Level, scale, and precision: the estimate, and the truth where the active context holds the secret key.

        Args:
            expected: the values that the slots should hold; slots beyond them are left out. Without them, and where the
                message is real, errors are those of the imaginary parts, which are as large as those of the real parts.

        Raises:
            RuntimeError: no context is active.
            ValueError: the ciphertext belongs to other keys, or `expected` is nothing that could be encoded.
        """
        ctx = context()
        check_keys(ctx, self)
        known = self.estimate.value
        measured = None
        if ctx.secret_key is not None and (expected is not None or not known.imaginary):
            slots = decode(decrypt(self))
            if expected is None:
                measured = Precision.of(slots.imag, "the imaginary parts, which should be 0")
            else:
                wanted = as_slots(expected, len(slots))
                errors = slots[: len(wanted)] - wanted
                measured = Precision.of(errors.real, "the expected values")
        q = self.b.ring.q
        capacity = abs(q / 2 / self.scale * self.factor)
        fields = (self.level, ctx.params.depth, self.log2_scale, math.log2(q), known.bound, capacity)
        return Report(*fields, self.precision_bits, self.noise_bits, measured)

    def __repr__(self) -> str:
        factor = f", times {self.factor}" if self.factor != 1 else ""
        return f"<Ciphertext: level {self.level}, scale 2^{self.log2_scale:.2f}{factor}, " + (
            "exact>" if self.precision_bits == math.inf else f"about {self.precision_bits:.1f} bits of precision>"
        )


@one_line
def encrypt(plaintext: Plaintext, *, secret: SecretKey | None = None) -> Ciphertext:
    """Encrypt under the active context's public key, or under a secret key, which leaves an error a little smaller yet.

    Every call draws fresh randomness. Each coefficient of b + a*s - m has a standard deviation of sqrt((1 + 2n/3)/12), or 3.2 with
    the secret key, and exceeds 8 of them with probability below 2^-49.

    Raises:
        TypeError: `plaintext` is no Plaintext.
        ValueError: it was encoded under other parameters, or the secret key is not the active context's.
        RuntimeError: no context is active, or a jitted function is being captured.
    """
    if not isinstance(plaintext, Plaintext):
        raise TypeError(f"encrypt takes a Plaintext, not {type(plaintext).__name__}; write encrypt(encode(values, msg_bound=...))")
    ctx = context()
    params, m = ctx.params, plaintext.poly
    if plaintext.level > params.depth or m.ring != params.levels[plaintext.level].ring:
        raise ValueError(f"{plaintext!r} was encoded under other parameters than {params!r}; encode it inside this context")
    if secret is None:
        ring = params.encryption_ring_at(plaintext.level)
        v = Poly.ternary(ring, ctx.device)
        parts = []
        for key, summand in ((ctx.public_key.b, m), (ctx.public_key.a, None)):
            error = Poly.gaussian(ring, ERROR_SIGMA, ctx.device)
            hidden = Split(key.to_ring(ring) * v, error).divided(params.special[-1:])
            parts.append((hidden if summand is None else hidden + summand).joined())
        b, a = parts
        variance = noise.encryption_variance(params)
    elif secret is not ctx.secret_key:
        raise ValueError(f"{secret!r} is not the secret key of {ctx!r}; encrypt inside the context it belongs to")
    else:
        s = secret._poly.to_ring(m.ring)
        a = Poly.uniform(m.ring, ctx.device).ntt()
        b = Poly.gaussian(m.ring, ERROR_SIGMA, ctx.device) + m - a * s
        variance = ERROR_SIGMA**2
    in_slots = noise.slot_variance(params, variance, plaintext.scale)
    estimate = Estimate(noise.rounded(in_slots, plaintext.estimate.value))
    made = Ciphertext(a, b, plaintext.level, plaintext.scale, 1, ctx.key_id, estimate)
    announce("encrypt", made)
    return made


def decrypt(ciphertext: Ciphertext) -> Plaintext:
    """The plaintext in a ciphertext, with its error; lazy, as everything else.

    Who shares decrypted values of approximate numbers should know that their error tells about the secret (Li and Micciancio,
    "On the Security of Homomorphic Encryption on Approximate Numbers", EUROCRYPT 2021).

    Raises:
        TypeError: `ciphertext` is no Ciphertext.
        ValueError: it belongs to other keys.
        RuntimeError: no context is active, or it has no secret key.
    """
    if not isinstance(ciphertext, Ciphertext):
        raise TypeError(f"decrypt takes a Ciphertext, not {type(ciphertext).__name__}")
    ctx = context()
    check_keys(ctx, ciphertext)
    if ctx.secret_key is None:
        raise RuntimeError(f"{ctx!r} has no secret key; decrypt inside the context that keygen made")
    poly = ciphertext.b + ciphertext.a * ctx.secret_key._poly.to_ring(ciphertext.a.ring)
    scale = ciphertext.scale / ciphertext.factor
    return Plaintext(poly, ciphertext.level, scale, None, ciphertext.estimate)


__all__ = ["Ciphertext", "Plaintext", "decode", "decrypt", "encode", "encrypt", "keygen"]
