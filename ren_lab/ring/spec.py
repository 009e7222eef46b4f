"""RingSpec, the ring that a polynomial lives in, and Domain, what its rows hold."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ren_lab.ring.constants import RingTables
from ren_lab.ring.primes import check_modulus, checked_degree, integer


class Domain(enum.Enum):
    """What the rows of a polynomial hold: its coefficients, or its values at the roots of X^n + 1."""

    COEFF = "coeff"
    NTT = "ntt"

    __hash__ = object.__hash__  # that of an enum hashes its name, slowly

    def __repr__(self) -> str:
        return f"Domain.{self.name}"


@lru_cache(maxsize=4096)
def _validated(n: int, moduli: tuple[int, ...]) -> "RingTables":
    """The tables of a ring that obeys the rules; ValueError otherwise."""
    checked_degree(n)
    if not moduli:
        raise ValueError("moduli is empty, but a ring needs at least one modulus; find_primes(n, bits, count) finds some")
    for p in moduli:
        check_modulus(p, n)
    if len(set(moduli)) != len(moduli):
        twice = next(p for i, p in enumerate(moduli) if p in moduli[:i])
        raise ValueError(f"modulus {twice} is given more than once in {moduli}, but moduli must be distinct; drop one")
    return RingTables(n, moduli)


@dataclass(frozen=True, slots=True, eq=False)
class RingSpec:
    """The ring Z_q[X]/(X^n + 1) with q the product of `moduli`.

    Immutable, hashable, equal to every ring of the same degree and the same moduli in the same order.

    Args:
        n: Degree, a power of two from 2 to 2^17.
        moduli: Distinct odd primes below 2^31 with p % (2n) == 1; any iterable of integers; their order matters.

    Raises:
        TypeError: `n` or a modulus is not an integer (bool and float are not), or `moduli` is not iterable.
        ValueError: A rule above is broken; the message names the value, the rule and the remedy.

    >>> RingSpec(8, [17, 97])
    RingSpec(n=8, moduli=(17, 97))
    """

    n: int
    moduli: tuple[int, ...]
    q: int = field(init=False, repr=False)
    """The product of the moduli."""
    _hash: int = field(init=False, repr=False)
    _tables: "RingTables" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.moduli, (str, bytes, bytearray)) or not isinstance(self.moduli, Iterable):
            raise TypeError(
                f"moduli is {self.moduli!r} of type {type(self.moduli).__name__}, but it must be a sequence of integers;"
                " write (p,) for a single modulus"
            )
        n = integer(self.n, "n")
        moduli = tuple([integer(p, "a modulus") for p in self.moduli])
        constants = _validated(n, moduli)
        put = object.__setattr__
        put(self, "n", n)
        put(self, "moduli", moduli)
        put(self, "q", constants.q)
        put(self, "_hash", hash((n, moduli)))
        put(self, "_tables", constants)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, RingSpec):
            return NotImplemented
        return self._hash == other._hash and self.n == other.n and self.moduli == other.moduli

    def __reduce__(self) -> tuple[Any, ...]:
        return RingSpec, (self.n, self.moduli)  # a copy validates anew and carries no tables

    @property
    def limbs(self) -> int:
        """How many moduli the ring has: the rows of its arrays."""
        return len(self.moduli)

    @property
    def label(self) -> str:
        """A short name for displays, such as `n=2^13 × 8 limbs`."""
        return f"n=2^{self.n.bit_length() - 1} × {self.limbs} limb{'s' if self.limbs > 1 else ''}"

    def contains(self, other: "RingSpec") -> bool:
        """Whether `other` has the same degree and each of its moduli is one of ours, in any order."""
        return self.n == other.n and set(other.moduli) <= set(self.moduli)

    def limb_indices(self, other: "RingSpec") -> tuple[int, ...]:
        """The position in `self.moduli` of each modulus of `other`, in `other`'s order.

        Raises:
            ValueError: `other` is not contained in this ring.
        """
        if not self.contains(other):
            raise ValueError(
                f"{other!r} is not contained in {self!r}: the degrees must agree and every modulus must be one of"
                " the larger ring's; convert the basis instead"
            )
        return tuple([self.moduli.index(p) for p in other.moduli])

    def without(self, moduli: Iterable[int]) -> "RingSpec":
        """This ring less `moduli`, the others in their order.

        Raises:
            TypeError: `moduli` is not an iterable of integers.
            ValueError: A modulus is absent or given twice, or none would remain.
        """
        if isinstance(moduli, (str, bytes, bytearray)) or not isinstance(moduli, Iterable):
            raise TypeError(
                f"moduli is {moduli!r} of type {type(moduli).__name__}, but it must be a sequence of integers;"
                " write (p,) for a single modulus"
            )
        return without(self, tuple([integer(p, "a modulus") for p in moduli]))


@lru_cache(maxsize=1024)
def without(ring: RingSpec, dropped: tuple[int, ...]) -> RingSpec:
    """`ring.without(dropped)` of a tuple of integers."""
    for i, p in enumerate(dropped):
        if p not in ring.moduli:
            raise ValueError(f"modulus {p} cannot be dropped: it is not a modulus of {ring!r}; choose among {ring.moduli}")
        if p in dropped[:i]:
            raise ValueError(f"modulus {p} is to be dropped twice, but each can go only once; name it once")
    if len(dropped) == len(ring.moduli):
        raise ValueError(f"all moduli {ring.moduli} would be dropped, but one must remain; drop fewer")
    return RingSpec(ring.n, tuple([p for p in ring.moduli if p not in dropped]))


def tables(ring: RingSpec) -> RingTables:
    """The constants of `ring`, shared by all rings equal to it; an attribute read, so call it freely."""
    return ring._tables


def residues(c: int, ring: RingSpec) -> tuple[int, ...]:
    """The Montgomery residues of the integer `c`, one per limb: c * R mod p in [0, p)."""
    return tuple([(c << 32) % p for p in ring.moduli])
