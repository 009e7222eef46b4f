"""Parameters of random draws, checked before anything is drawn."""

from numbers import Real

import numpy as np

from ren_lab.ring.primes import integer

MAX_SIGMA = 1 << 14
"""The largest standard deviation of a discrete Gaussian draw."""


def check_interval(low: int, high: int) -> tuple[int, int]:
    """`low` and `high` as ints, if the interval [low, high) holds an integer.

    Raises:
        TypeError: A bound is not an integer.
        ValueError: The interval is empty.
    """
    low, high = integer(low, "low"), integer(high, "high")
    if low >= high:
        raise ValueError(f"the interval from {low} to {high} (excluded) is empty; choose high above low")
    return low, high


def check_weight(weight: int, n: int) -> int:
    """`weight` as an int, if a polynomial of degree below `n` can have that many non-zero coefficients.

    Raises:
        TypeError: `weight` is not an integer.
        ValueError: `weight` is not in [0, n].
    """
    weight = integer(weight, "weight")
    if not 0 <= weight <= n:
        raise ValueError(f"weight is {weight}, but it counts non-zero coefficients out of n = {n}; choose 0 to {n}")
    return weight


def check_sigma(sigma: float) -> float:
    """`sigma` as a float, if it is a standard deviation with 0 < sigma <= 2^14.

    Raises:
        TypeError: `sigma` is not a real number.
        ValueError: `sigma` is NaN or out of range.
    """
    if isinstance(sigma, (bool, np.bool_)) or not isinstance(sigma, Real):
        raise TypeError(
            f"sigma is {sigma!r} of type {type(sigma).__name__}, but a standard deviation is a real number; pass a float"
        )
    if not 0 < sigma <= MAX_SIGMA:
        raise ValueError(f"sigma is {sigma!r}, but it must be above 0 and at most {MAX_SIGMA}; choose it there, 3.2 being usual")
    return float(sigma)
