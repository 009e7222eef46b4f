"""What a rendered kernel is called with besides its buffers: numbers, and tables of constants.

The text of a kernel holds no constant of a ring, so that all levels of a scheme share one compiled kernel; what varies is
passed in. A `Table` says what an array holds; the array is made when a backend asks for it.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ren_lab.backends.python.sampling import gaussian_thresholds
from ren_lab.ring import R, RingSpec, automorphism_indices, conversion, modulus, primitive_root, root_powers, tables


@dataclass(frozen=True, slots=True)
class Table:
    """An array of constants, by what it holds.

    Attributes:
        kind: "p", "p_inv", "words", "order", "into_y", "weight", "lift", "digits", "thresholds", "ntt" or "intt"; see `array`.
        key: what it is derived from.
    """

    kind: str
    key: Hashable

    def array(self) -> np.ndarray:
        """The constants, C order, read-only: uint32 unless said otherwise.

        p, p_inv: [limbs] of a ring. words: the key itself. order: [n], the index map of a chain of automorphisms.
        into_y, weight (uint64): [k] of a conversion. lift: [limbs, k + 1], factors of its y and of its estimate.
        digits: [limbs, count], factors of 32-bit digits. thresholds (uint64): of the Gaussian of a standard deviation.
        ntt, intt: one record per limb, `TRANSFORM`; its `psi` is to be filled in by the backend.
        """
        return _array(self)


TRANSFORM = np.dtype(
    [("n", "i8"), ("p", "u4"), ("p_inv", "u4"), ("n_inv", "u4"), ("psi1_n_inv", "u4"), ("psi", "u8")],
)
"""The constants of a transform of one limb, laid out as `ren_transform` in C; `psi` is the address of `twiddles(…)`."""


@lru_cache(maxsize=512)
def twiddles(n: int, p: int, inverse: bool) -> np.ndarray:
    """uint32[n], read-only: psi^brv(i) mod p in Montgomery form, or psi^-brv(i)."""
    plain = root_powers(n, p, inverse).astype(np.uint64)
    return _closed(((plain << np.uint64(32)) % np.uint64(p)).astype(np.uint32))  # below 2^63


def _closed(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@lru_cache(maxsize=1024)
def _array(table: Table) -> np.ndarray:
    key = table.key
    match table.kind:
        case "p":
            return _closed(tables(key).p.ravel().copy())  # type: ignore[arg-type]
        case "p_inv":
            return _closed(tables(key).p_inv.ravel().copy())  # type: ignore[arg-type]
        case "words":
            return _closed(np.array(key, np.uint32))
        case "order":
            return _closed(_order(*key).astype(np.uint32))  # type: ignore[misc]
        case "into_y":
            return _closed(conversion(*key).hat_inv.ravel().copy())  # type: ignore[misc]
        case "weight":
            return _closed(conversion(*key).weight.ravel().copy())  # type: ignore[misc]
        case "lift":
            constants = conversion(*key)  # type: ignore[misc]
            return _closed(np.concatenate([constants.hat, constants.minus_q], axis=1).copy())
        case "thresholds":
            return gaussian_thresholds(key)  # type: ignore[arg-type]
        case "digits":
            return _closed(_digit_factors(*key))  # type: ignore[misc]
        case "ntt" | "intt":
            of: Any = key if table.kind == "intt" else (key, None)
            return _closed(_transforms(of[0], table.kind == "intt", of[1]))
    raise ValueError(f"there is no table of kind {table.kind!r}")


def _order(n: int, elements: tuple[int, ...]) -> np.ndarray:
    """The index map of automorphisms, the first one applied to the position first."""
    order = np.arange(n)
    for element in elements:
        order = automorphism_indices(n, element)[order]
    return order


def _digit_factors(ring: RingSpec, count: int) -> np.ndarray:
    return np.array([[(1 << (32 * i)) * R * R % p for i in range(count)] for p in ring.moduli], np.uint32)


def _transforms(ring: RingSpec, inverse: bool, factors: tuple[int, ...] | None = None) -> np.ndarray:
    out = np.zeros(ring.limbs, TRANSFORM)
    n = ring.n
    for record, p, factor in zip(out, ring.moduli, factors or (R,) * ring.limbs, strict=True):
        n_inv = pow(n, -1, p) * factor * pow(R, -1, p)  # the factors are in Montgomery form
        # brv(1) = n/2
        first = pow(pow(primitive_root(n, p), n // 2, p), -1, p) if inverse else 1
        record["n"], record["p"], record["p_inv"] = n, p, modulus(p).p_inv
        record["n_inv"], record["psi1_n_inv"] = n_inv * R % p, first * n_inv * R % p
    return out


@dataclass(slots=True)
class Parameters:
    """The numbers and tables of one kernel, in the order in which its text refers to them."""

    numbers: list[int] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    legend: list[str] = field(default_factory=list)

    def number(self, value: int, meaning: str) -> int:
        """The place of a new number."""
        self.numbers.append(int(value))
        self.legend.append(f"number[{len(self.numbers) - 1}] = {value}: {meaning}")
        return len(self.numbers) - 1

    def table(self, kind: str, key: Hashable, meaning: str) -> int:
        """The place of a table. Tables that happen to be equal keep places of their own: the text must not depend on it."""
        self.tables.append(Table(kind, key))
        self.legend.append(f"table[{len(self.tables) - 1}]: {meaning}")
        return len(self.tables) - 1


def fold(bounds: int, terms: int, modulus_bound: int) -> tuple[int, int]:
    """How a sum of products is kept in 64 bits: (terms between two foldings, bits that a folding takes off).

    Args:
        bounds: the largest first factor, at most 2^32 - 1; the second ones are below `modulus_bound`.
        terms: how many there are.
        modulus_bound: at most 2^31.

    A folding brings a sum that is below 2^(32 + bits) * p below 2^32 * p. After it, as many terms may be added as keep the
    sum below 2^64; that is at least one, since (2^32 + 2^32) * 2^31 = 2^64.
    """
    room = ((1 << 64) - 1) // modulus_bound  # in units of p
    per_fold = min(terms, max(1, (room - R) // bounds)) if terms * bounds > room else terms
    largest = per_fold * bounds + (R if per_fold < terms else 0)
    bits = 0
    while R << bits < largest:
        bits += 1
    return per_fold, bits
