"""What a CKKS instance is built on: a degree, a chain of levels, special primes, digits.

The moduli of level l are the base primes and the prime groups of levels 1 to l. A product at level l is divided by its
group, which takes it to level l - 1. Key switching works modulo the special primes as well, and those stand first, so that
the moduli of every level, with or without the special ones, stand side by side in the largest ring.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from ren_lab.ring import RingSpec
from ren_lab.schemes.ckks import primes, security

HEADROOM_BITS = 9.9
"""How many bits the base primes have beyond the scale: values below 2^(HEADROOM_BITS - 1) in magnitude fit at level 0."""

SPECIAL_MARGIN_BITS = 4.0
"""How many bits the special primes have beyond the largest digit, which keeps key switching noise below that of rounding."""

ERROR_SIGMA = 3.2
"""Standard deviation of the errors in keys and encryptions."""


@dataclass(frozen=True, slots=True)
class Level:
    """A level: what ciphertexts at it are like.

    Attributes:
        index: its number; 0 is the last one, which allows no further product.
        ring: of the polynomials of a ciphertext at this level.
        group: the moduli by which a product at this level is divided, taking it to the next lower level; none at level 0.
        log2_scale: a ciphertext at this level holds its values times 2^log2_scale.
    """

    index: int
    ring: RingSpec
    group: tuple[int, ...]
    log2_scale: float

    @property
    def moduli(self) -> tuple[int, ...]:
        """The active moduli."""
        return self.ring.moduli

    @property
    def scale(self) -> float:
        """2^log2_scale."""
        return 2.0**self.log2_scale


@dataclass(frozen=True)
class CKKSParams:
    """Parameters of the scheme. `default()`, `python_test()` and `build(...)` make good ones.

    Args:
        n: degree of the rings, a power of two; there are n/2 slots.
        base: moduli of level 0, lowest in the chain.
        groups: the group of moduli of each level from 1 up.
        special: moduli that key switching adds; their product must exceed that of any digit.
        digits: into how many parts key switching cuts a polynomial of the highest level.
        log2_scale: logarithm of the scale of the highest level; those of the others follow from the groups.
        insecure: whether moduli beyond the table's are accepted.
        notes: why the parameters are what they are, a sentence per line.

    Raises:
        TypeError: a modulus is no integer.
        ValueError: a rule is broken, among them: moduli must be distinct NTT-friendly primes, scales may drift by one bit at
            most, level 0 must hold numbers of at least twice its scale, and unless `insecure`, log2(QP) must be within the
            table of `ren_lab.schemes.ckks.security`.
    """

    n: int
    base: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    special: tuple[int, ...]
    digits: int
    log2_scale: float
    insecure: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("base", "special", "notes"):
            put(self, name, tuple(getattr(self, name)))
        put(self, "groups", tuple(tuple(g) for g in self.groups))
        put(self, "log2_scale", float(self.log2_scale))
        if not 1 <= self.log2_scale <= 1000:  # not a number neither
            raise ValueError(f"log2_scale is {self.log2_scale!r}; give the number of bits of the scale, such as 40")
        if not self.base or not self.special or not all(self.groups):
            raise ValueError("base, special and every group need at least one prime; ren_lab.find_primes lists some")
        limbs = self.extended_ring.limbs - len(self.special)  # the ring checks degree and moduli
        if type(self.digits) is not int or not 1 <= self.digits <= limbs:
            raise ValueError(f"digits is {self.digits!r}; the {limbs} moduli can be cut into 1 to {limbs} digits")
        largest = max(math.prod(d) for d in self.digit_moduli(self.depth))
        if math.prod(self.special) <= largest:
            raise ValueError(
                f"the special primes have a product of 2^{math.log2(math.prod(self.special)):.1f}, the largest digit "
                f"2^{math.log2(largest):.1f}, and it must be smaller; add special primes or digits"
            )
        for level in self.levels:
            if abs(level.log2_scale - self.log2_scale) > 1:
                raise ValueError(
                    f"the scale drifts from 2^{self.log2_scale:.2f} to 2^{level.log2_scale:.2f} at level {level.index}; choose the "
                    "groups near the scale, as ren_lab.schemes.ckks.primes.choose_groups does"
                )
        if math.log2(self.levels[0].ring.q) < self.levels[0].log2_scale + 2:
            raise ValueError(
                f"the base has {math.log2(self.levels[0].ring.q):.1f} bits and the scale of level 0 is "
                f"2^{self.levels[0].log2_scale:.1f}; no value beyond 1 would fit, so make the base larger"
            )
        if not self.insecure and not self.security_bits:
            limit = security.max_log2_qp(self.n)
            allows = f"allows {limit} bits at n = {self.n}" if limit else f"does not cover n = {self.n}"
            raise ValueError(
                f"log2(QP) is {self.log2_qp:.1f}, but the table of IACR ePrint 2024/463 for 128-bit security {allows}; choose a "
                "larger n or fewer levels, or pass insecure=True for experiments without secrets"
            )

    # what follows from the fields

    @property
    def depth(self) -> int:
        """How many products in a row the parameters allow."""
        return len(self.groups)

    @property
    def slot_count(self) -> int:
        """How many complex numbers one ciphertext holds: n/2."""
        return self.n // 2

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The levels, `levels[0]` the last one, `levels[depth]` that of fresh ciphertexts; S_{l-1} = S_l^2 / q_l."""
        scales = [self.log2_scale]
        for group in reversed(self.groups):
            scales.append(2 * scales[-1] - math.log2(math.prod(group)))
        groups = ((), *self.groups)
        return tuple(
            Level(i, RingSpec(self.n, self.base + sum(groups[: i + 1], ())), groups[i], scales[self.depth - i])
            for i in range(self.depth + 1)
        )

    @cached_property
    def extended_ring(self) -> RingSpec:
        """The largest ring: special primes first, then the moduli of the highest level. Switching keys live in it."""
        return RingSpec(self.n, self.special + self.base + sum(self.groups, ()))

    @cached_property
    def special_ring(self) -> RingSpec:
        """The ring of the special primes."""
        return RingSpec(self.n, self.special)

    @cached_property
    def encryption_ring(self) -> RingSpec:
        """The ring of public keys: the last special prime, then the moduli of the highest level."""
        return self.encryption_ring_at(self.depth)

    def encryption_ring_at(self, level: int) -> RingSpec:
        """The last special prime, then the moduli of a level."""
        return self._encryption_rings[level]

    def extended_ring_at(self, level: int) -> RingSpec:
        """The special primes, then the moduli of a level."""
        return self._extended_rings[level]

    # Operations ask for these again and again; a ring takes longer to make than a node.

    @cached_property
    def _encryption_rings(self) -> tuple[RingSpec, ...]:
        return tuple(RingSpec(self.n, (self.special[-1], *level.moduli)) for level in self.levels)

    @cached_property
    def _extended_rings(self) -> tuple[RingSpec, ...]:
        return tuple(RingSpec(self.n, self.special + level.moduli) for level in self.levels)

    @cached_property
    def _digit_rings(self) -> tuple[tuple[RingSpec, ...], ...]:
        return tuple(tuple(RingSpec(self.n, d) for d in self.digit_moduli(level.index)) for level in self.levels)

    @cached_property
    def digit_ratios(self) -> tuple[float, ...]:
        """For each level the sum of (D/P)^2, with D the products of its digits and P that of the special primes."""
        p = math.prod(self.special)
        return tuple(sum((math.prod(d) / p) ** 2 for d in self.digit_moduli(level.index)) for level in self.levels)

    def digit_rings(self, level: int) -> tuple[RingSpec, ...]:
        """The rings of `digit_moduli`."""
        return self._digit_rings[level]

    def digit_moduli(self, level: int) -> tuple[tuple[int, ...], ...]:
        """How key switching cuts a polynomial at a level: runs of equally many moduli, the last one perhaps shorter."""
        size = -(-(self.extended_ring.limbs - len(self.special)) // self.digits)
        moduli = self.levels[level].moduli
        return tuple(moduli[i : i + size] for i in range(0, len(moduli), size))

    @property
    def log2_qp(self) -> float:
        """log2 of the product of all moduli, the special ones included."""
        return math.log2(self.extended_ring.q)

    @property
    def security_bits(self) -> int:
        """128 if the table of IACR ePrint 2024/463 grants it to degree and moduli, otherwise 0."""
        return security.security_bits(self.n, self.log2_qp)

    def __repr__(self) -> str:
        name = "CKKSParams" if self.security_bits else "CKKSParams(insecure)"
        return (
            f"<{name}: n = 2^{self.n.bit_length() - 1}, {self.depth} level{'s' * (self.depth != 1)}, scale 2^{self.log2_scale:g}, "
            f"{self.extended_ring.limbs - len(self.special)} + {len(self.special)} moduli, log2(QP) = {self.log2_qp:.0f}>"
        )

    def explain(self) -> str:
        """The parameters in words: what they are, and why where that is known."""
        limit = security.max_log2_qp(self.n)
        scales = [v.log2_scale for v in self.levels]
        base, special = math.log2(math.prod(self.base)), math.log2(math.prod(self.special))
        widest = max(map(len, self.digit_moduli(self.depth)))
        allowed = f"of at most {limit} for 128-bit security" if limit else "and the security table does not cover this degree"
        lines = [
            f"n = {self.n}: {self.slot_count} slots",
            f"{self.depth} levels with scales from 2^{min(scales):.4f} to 2^{max(scales):.4f}",
            f"base: {len(self.base)} moduli of {base:.1f} bits; values up to 2^{base - scales[0] - 1:.1f} fit at level 0",
            f"digits: {self.digits}, of at most {widest} moduli; special primes: {len(self.special)}, of {special:.1f} bits in all",
            f"log2(QP) = {self.log2_qp:.1f} {allowed}{'' if self.security_bits else ': insecure'}",
        ]
        return "\n".join([*lines, *self.notes])

    # ready-made ones

    @classmethod
    def default(cls) -> "CKKSParams":
        """Ten levels at scale 2^50 and 128-bit security, n = 2^15: 16384 slots.

        A base of two 30-bit primes, ten pairs of primes of 25 and 26 bits, three digits, eight special primes of 27 bits. Errors
        of a fresh encryption are near 2^-36, values at level 0 may reach 500.
        """
        return _default()

    @classmethod
    def python_test(cls) -> "CKKSParams":
        """Insecure, for tests and experiments: six levels at scale 2^29, n = 2^10, 512 slots, errors well below 1e-4."""
        return _python_test()

    @classmethod
    def build(
        cls,
        *,
        depth: int,
        precision_bits: float = 20,
        security_bits: int = 128,
        n: int | None = None,
        insecure: bool = False,
    ) -> "CKKSParams":
        """Parameters for a depth and a precision; `explain()` of the result says how they came about.

        Args:
            depth: how many products in a row, from 0 to 64.
            precision_bits: values of magnitude 1 keep errors around 2^-precision_bits after a product, from 1 to 40.
            security_bits: 128, the level of the table.
            n: the degree, or None for the smallest that works.
            insecure: accept any degree; needs `n`.

        Raises:
            ValueError: an argument is out of range, or no set of primes does it; the message says what stood in the way at
                each degree.
        """
        from ren_lab.schemes.ckks.builder import build  # it builds on this module

        return build(depth, precision_bits, security_bits, n, insecure)


Chain = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]


def choose_chain(n: int, depth: int, log2_scale: float, size: int) -> Chain:
    """The base primes and the groups, of `size` primes each, of a chain of levels; `ValueError` if there are too few primes."""
    base = primes.choose_base(n, log2_scale + HEADROOM_BITS)
    return base, primes.choose_groups(n, depth, log2_scale, size, exclude=base)


def finish(n: int, chain: Chain, log2_scale: float, digits: int, insecure: bool = False) -> CKKSParams:
    """Parameters with chosen special primes; `ValueError` if there are too few primes, or for lack of security."""
    base, groups = chain
    moduli = base + sum(groups, ())
    width = -(-len(moduli) // digits)
    largest = max(math.log2(math.prod(moduli[i : i + width])) for i in range(0, len(moduli), width))
    special = primes.choose_special(n, largest + SPECIAL_MARGIN_BITS, exclude=moduli)
    return CKKSParams(n, base, groups, special, digits, log2_scale, insecure)


@lru_cache(maxsize=1)
def _default() -> CKKSParams:
    return finish(1 << 15, choose_chain(1 << 15, 10, 50.0, 2), 50.0, 3)


@lru_cache(maxsize=1)
def _python_test() -> CKKSParams:
    return finish(1 << 10, choose_chain(1 << 10, 6, 29.0, 1), 29.0, 2, insecure=True)
