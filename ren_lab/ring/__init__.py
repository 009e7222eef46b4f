"""Rings Z_q[X]/(X^n + 1) in residue number form, and every constant that is derived from one.

A ring is a degree n and a list of distinct NTT-friendly primes whose product is q. Data at rest is a
`uint32[limbs, n]` array, one row per prime, each residue c stored as c*R mod p with R = 2^32 (Montgomery form),
fully reduced. In the NTT domain, position i holds the value of the polynomial at psi^(2*brv(i) + 1), where psi is
`primitive_root(n, p)` and brv reverses the log2(n) bits of i.

The backends take their constants from here, so that they agree bit for bit.
"""

from ren_lab.ring.constants import (
    Modulus,
    R,
    RingTables,
    automorphism_indices,
    bit_reversal,
    galois_element,
    modulus,
    root_powers,
    to_montgomery,
)
from ren_lab.ring.draws import MAX_SIGMA, check_interval, check_sigma, check_weight
from ren_lab.ring.lifting import Conversion, conversion, convert_scalar
from ren_lab.ring.primes import MAX_DEGREE, MAX_MODULUS, find_primes, is_prime, primitive_root
from ren_lab.ring.spec import Domain, RingSpec, residues, tables, without

__all__ = [
    "MAX_DEGREE",
    "MAX_MODULUS",
    "MAX_SIGMA",
    "Conversion",
    "Domain",
    "Modulus",
    "R",
    "RingSpec",
    "RingTables",
    "automorphism_indices",
    "bit_reversal",
    "check_interval",
    "check_sigma",
    "check_weight",
    "conversion",
    "convert_scalar",
    "find_primes",
    "galois_element",
    "is_prime",
    "modulus",
    "primitive_root",
    "residues",
    "root_powers",
    "tables",
    "to_montgomery",
    "without",
]
