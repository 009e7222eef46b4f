"""Key switching and division, on polynomials alone.

A ciphertext (b, a) at a level with modulus q holds m = b + a*s. Hybrid key switching (Han and Ki, "Better Bootstrapping for
Approximate Homomorphic Encryption", CT-RSA 2020) brings a polynomial d that multiplies another secret t under s: the moduli are
cut into digits D_1, D_2, …; with P the product of the special primes, a switching key holds for each digit

    b_j + a_j*s = P * w_j * t + e_j  modulo P*q,  where w_j is 1 modulo the primes of D_j and 0 modulo the others,

and with d_j the centred residue of d modulo D_j, the sums of d_j*b_j and d_j*a_j hold P*d*t + sum of d_j*e_j. Dividing by P leaves
d*t and a small error. Since w_j is defined prime by prime, the key of the highest level serves all levels: its limbs for the
special primes and a level stand side by side.
"""

from dataclasses import dataclass

from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec
from ren_lab.schemes.ckks.params import ERROR_SIGMA, CKKSParams


@dataclass(frozen=True, slots=True, repr=False)
class SwitchingKey:
    """Pairs (b_j, a_j), one per digit of the highest level, realized in the NTT domain over the extended ring."""

    parts: tuple[tuple[Poly, Poly], ...]

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return sum(4 * p.ring.n * p.ring.limbs for part in self.parts for p in part)

    def __repr__(self) -> str:
        return f"<SwitchingKey: {len(self.parts)} digits, {self.nbytes / 2**20:.1f} MiB>"


def make_switching_key(params: CKKSParams, source: Poly, target: Poly) -> SwitchingKey:
    """The key that takes what `source` multiplies under the secret `target`, both over the extended ring.

    It is random and is computed at once. The secrets do not follow from it (ring learning with errors).
    """
    ring, p, device = params.extended_ring, params.special_ring.q, source.device
    parts = []
    for digit in params.digit_moduli(params.depth):
        a = Poly.uniform(ring, device).ntt()
        error = Poly.gaussian(ring, ERROR_SIGMA, device)
        parts.append((error - a * target + source * _selector(ring, digit, p), a))
    flat = [poly for part in parts for poly in part]
    flat[0].realize(*flat[1:])
    return SwitchingKey(tuple(parts))


def _selector(ring: RingSpec, digit: tuple[int, ...], p: int) -> int:
    """The integer modulo the product of all moduli that is `p` modulo those of `digit` and 0 modulo the others."""
    others = ring.q // RingSpec(ring.n, digit).q
    inside = ring.q // others
    return others * (p * pow(others, -1, inside) % inside)


def decompose(params: CKKSParams, level: int, d: Poly) -> list[Poly]:
    """The digits d_j of a polynomial, each lifted to the special primes and the moduli of the level.

    Coefficients of d_j are at most half the product of its moduli in magnitude. Equal calls give equal graphs, so
    several rotations of one ciphertext that are realized together share the transforms of its digits.
    """
    ring = params.extended_ring_at(level)
    return [d.to_ring(digit).to_ring(ring) for digit in params.digit_rings(level)]


def switched(params: CKKSParams, level: int, d: Poly, key: SwitchingKey) -> tuple[Poly, Poly]:
    """(b, a) over the special primes and the level's moduli with b + a*s = P*d*t + e, for d over the level's ring.

    Each coefficient of e is a sum of n products of an error and a digit's coefficient, per digit: its variance is
    P^2 times `noise.switching_variance`, and 8 standard deviations are exceeded with probability below 2^-49.
    """
    ring = params.extended_ring_at(level)
    b: Poly | None = None
    a: Poly | None = None
    for digit, (key_b, key_a) in zip(decompose(params, level, d), key.parts):
        with_b, with_a = digit * key_b.to_ring(ring), digit * key_a.to_ring(ring)
        b, a = with_b if b is None else b + with_b, with_a if a is None else a + with_a
    assert b is not None and a is not None
    return b, a


@dataclass(frozen=True, slots=True)
class Split:
    """A polynomial as a sum: `values` in the NTT domain plus `coefficients` in the coefficient domain.

    Dividing keeps the two apart, so that a chain of divisions takes the transforms of one division by all moduli at once: inverse
    ones of the limbs that are dropped, and forward ones of those that stay in the end.
    """

    values: Poly
    coefficients: Poly | None = None

    def __add__(self, other: Poly) -> "Split":
        """With a polynomial added to the part of its domain."""
        if other.domain is Domain.NTT:
            return Split(self.values + other, self.coefficients)
        return Split(self.values, other if self.coefficients is None else self.coefficients + other)

    def divided(self, moduli: tuple[int, ...]) -> "Split":
        """Divided by the product of some of its moduli and rounded to the nearest integer, over the others.

        As exact as `Poly.rescale`: the remainder is the centred one, or off by the product where it is within
        limbs * 2^-32 of half of it.
        """
        ring = self.values.ring
        dropped, kept = RingSpec(ring.n, moduli), ring.without(moduli)
        inverse = pow(dropped.q, -1, kept.q)
        rest = self.values.to_ring(dropped).intt()
        if self.coefficients is not None:
            rest = rest + self.coefficients.to_ring(dropped)
        lifted = rest.to_ring(kept)
        correction = -lifted if self.coefficients is None else self.coefficients.to_ring(kept) - lifted
        return Split(self.values.to_ring(kept) * inverse, correction * inverse)

    def joined(self) -> Poly:
        """The sum, in the NTT domain."""
        return self.values if self.coefficients is None else self.values + self.coefficients.ntt()
