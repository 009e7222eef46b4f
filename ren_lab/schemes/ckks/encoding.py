"""The canonical embedding: complex vectors as real polynomials, and back.

Slot j of a polynomial m of degree below n is m(zeta^(5^j)) with zeta = exp(i*pi/n), for 0 <= j < n/2. Those points and their
conjugates are all the roots of X^n + 1, so n/2 complex numbers fix a real polynomial and products of polynomials multiply
slots. X -> X^5 moves each slot one place down, which is how ciphertexts are rotated (Cheon, Kim, Kim and Song, "Homomorphic
Encryption for Arithmetic of Approximate Numbers", ASIACRYPT 2017).

The values at all odd powers of zeta together are a discrete Fourier transform of length n of the coefficients, twisted by
powers of zeta, so both directions take O(n log n). They work in double precision: for slots of magnitude up to M the error is
below 5 log2(n) * 2^-53 * M in each coefficient, and usually much smaller. Rounding adds at most 1/2 to a coefficient.
"""

from functools import lru_cache

import numpy as np

from ren_lab.ring import RingSpec


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@lru_cache(maxsize=8)
def _slot_places(n: int) -> tuple[np.ndarray, np.ndarray]:
    """intp[n/2] twice: where slot j and its conjugate stand among the values at zeta^(2t + 1), t = 0 .. n-1."""
    powers, power = [], 1
    for _ in range(n // 2):
        powers.append(power)
        power = power * 5 % (2 * n)
    places = (np.array(powers, np.intp) - 1) // 2
    return _read_only(places), _read_only(n - 1 - places)


@lru_cache(maxsize=8)
def _twist(n: int) -> np.ndarray:
    """complex128[n]: zeta^k."""
    return _read_only(np.exp(1j * np.pi / n * np.arange(n)))


def slots_to_coefficients(slots: np.ndarray, n: int) -> np.ndarray:
    """The real coefficients, float64[n], of the polynomial whose slots are complex[n/2]."""
    places, conjugates = _slot_places(n)
    values = np.empty(n, np.complex128)
    values[places] = slots
    values[conjugates] = np.conj(slots)
    return (np.fft.fft(values) * np.conj(_twist(n))).real / n


def coefficients_to_slots(coefficients: np.ndarray, n: int) -> np.ndarray:
    """The slots, complex128[n/2], of a polynomial with real coefficients float64[n]."""
    places, _ = _slot_places(n)
    return np.fft.ifft(coefficients * _twist(n))[places] * n


def rounded(coefficients: np.ndarray) -> np.ndarray:
    """The nearest integers of float64 values: int64, or Python integers where those do not suffice. No digit is lost."""
    nearest = np.rint(coefficients)
    if np.all(np.abs(nearest) < 2.0**63):
        return nearest.astype(np.int64)
    return np.array([int(c) for c in nearest.tolist()], dtype=object)


def centered_floats(residues: np.ndarray, ring: RingSpec) -> np.ndarray:
    """The integers v in (-q/2, q/2) that have the given residues, as float64[n] with relative error below limbs * 2^-52.

    Where |v| is that close to q/2, the sign may be wrong.

    Args:
        residues: uint32[limbs, n], in [0, p) for each modulus p of `ring`, not in Montgomery form.
        ring: its moduli.

    v mod q is written in mixed radix, digit by digit in exact integers (Garner, 1959). The digits of q - 1 - (v mod q) are their
    complements, so both candidates for |v| follow from one set of digits; the smaller one is |v|.
    """
    moduli = ring.moduli
    digits = _mixed_radix(residues, moduli)
    positive = _value(digits, moduli)
    negative = _value([np.uint64(p - 1) - digit for digit, p in zip(digits, moduli)], moduli) + 1
    return np.where(positive <= negative, positive, -negative)


def _mixed_radix(residues: np.ndarray, moduli: tuple[int, ...]) -> list[np.ndarray]:
    """The digits d_i in [0, p_i) of the integer d_0 + d_1 p_0 + d_2 p_0 p_1 + ... in [0, q) with residues uint32[limbs, n]."""
    digits: list[np.ndarray] = []
    for row, p in zip(residues, moduli):
        digit = row.astype(np.uint64)
        for d, before in zip(digits, moduli):
            above = -(-before // p) * p  # a multiple of p that is at least `before`, so that no difference is negative
            digit += np.uint64(above) - d
            digit *= np.uint64(pow(before, -1, p))  # below (2^31 + 2^32) * 2^31
            digit -= digit // np.uint64(p) * np.uint64(p)  # a division by one number is faster than a remainder
        digits.append(digit)
    return digits


def _value(digits: list[np.ndarray], moduli: tuple[int, ...]) -> np.ndarray:
    """float64[n]: what mixed-radix digits stand for."""
    value = digits[-1].astype(float)
    for digit, p in zip(reversed(digits[:-1]), reversed(moduli[:-1])):
        value *= p
        value += digit
    return value
