"""How much error a ciphertext is expected to carry, beside which range its values can have.

Estimates start from public bounds, assume errors to be independent, centred and normal, and follow the worst slot: an error e
of x becomes 2*m*e in x^2 for a message m at its bound. They are no guarantee. Variances are those of the complex error of
a slot, in units of the values; the real part has half of it. A coefficient error of variance V in a polynomial at scale S is a slot
error of variance n*V/S^2. Average-case analysis after Costache, Curtis, Hales, Murphy, Ogilvie and Player, "On the
precision loss in approximate homomorphic encryption", SAC 2023.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ren_lab.schemes.ckks.params import ERROR_SIGMA, CKKSParams
from ren_lab.structure import Companion


@dataclass(frozen=True, slots=True)
class Noise:
    """What is known of a message without decrypting it.

    Attributes:
        low, high: bounds of the real part of every slot.
        imaginary: bound of the magnitude of the imaginary part; 0 for real messages.
        variance: of the error of the worst slot.
    """

    low: float
    high: float
    imaginary: float
    variance: float

    @property
    def bound(self) -> float:
        """Bound of the magnitude of every slot."""
        return math.hypot(max(abs(self.low), abs(self.high)), self.imaginary)

    @property
    def precision_bits(self) -> float:
        """-log2 of the standard deviation of the error of the real part; infinite without error."""
        return -0.5 * math.log2(self.variance / 2) if self.variance else math.inf


def message(bound: float, real: bool, variance: float) -> Noise:
    """Any message with slots of magnitude up to `bound`."""
    return Noise(-bound, bound, 0.0 if real else bound, variance)


def added(x: Noise, y: Noise) -> Noise:
    """x + y."""
    return Noise(x.low + y.low, x.high + y.high, x.imaginary + y.imaginary, x.variance + y.variance)


def scaled(factor: complex, variance: float, x: Noise) -> Noise:
    """factor * x, with an error of `variance` on top."""
    real, imaginary = complex(factor).real, abs(complex(factor).imag)
    ends = sorted((real * x.low, real * x.high))
    spread = imaginary * x.imaginary
    turned = abs(real) * x.imaginary + imaginary * max(abs(x.low), abs(x.high))
    return Noise(ends[0] - spread, ends[1] + spread, turned, abs(factor) ** 2 * x.variance + variance)


def rounded(variance: float, x: Noise) -> Noise:
    """x with an error of `variance` on top."""
    return Noise(x.low, x.high, x.imaginary, x.variance + variance)


def moved(variance: float, x: Noise) -> Noise:
    """A rotation or the conjugate of x, with an error of `variance` on top; slots left empty hold 0."""
    return Noise(min(x.low, 0.0), max(x.high, 0.0), x.imaginary, x.variance + variance)


def product(variance: float, x: Noise, y: Noise) -> Noise:
    """x * y, with an error of `variance` on top."""
    error = x.bound**2 * y.variance + y.bound**2 * x.variance + x.variance * y.variance + variance
    if x.imaginary or y.imaginary:
        size = x.bound * y.bound
        return Noise(-size, size, size, error)
    ends = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    return Noise(min(ends), max(ends), 0.0, error)


def square(factor: float, variance: float, x: Noise) -> Noise:
    """factor * x^2, with an error of `variance` on top: a real square is not negative, and both errors are the same one."""
    error = factor**2 * (4 * x.bound**2 * x.variance + 2 * x.variance**2) + variance
    if x.imaginary:
        size = abs(factor) * x.bound**2
        return Noise(-size, size, size, error)
    least = 0.0 if x.low <= 0 <= x.high else min(x.low**2, x.high**2)
    ends = sorted((factor * least, factor * x.bound**2))
    return Noise(ends[0], ends[1], 0.0, error)


class Estimate(Companion):
    """A `Noise` that knows how to be computed again from others: it travels with ciphertexts through jitted functions.

    What a replay gives is computed when somebody looks: a replay is quick, and its estimate is a formula of many steps.
    """

    __slots__ = ("_value", "_recipe", "_pending", "_waiting")

    def __init__(self, value: Noise, recipe: tuple[Callable[..., Noise] | None, tuple["Estimate", ...]] | None = None) -> None:
        self._value: Noise | None = value
        self._recipe = recipe  # only below a stand-in, so that long programs keep no chains
        self._pending: tuple[Estimate, Mapping[Companion, Companion]] | None = None  # a formula, and values for its stand-ins
        self._waiting = 0  # how many formulas in a row wait below

    @classmethod
    def of(cls, function: Callable[..., Noise], *sources: "Estimate") -> "Estimate":
        """`function` of the sources' noises."""
        replayed = any(s._recipe is not None for s in sources)
        return cls(function(*[s.value for s in sources]), (function, sources) if replayed else None)

    @property
    def value(self) -> Noise:
        """What is known."""
        pending = self._pending
        if self._value is None and pending is not None:  # within _MOST_WAITING calls of itself
            self._value = _evaluated(*pending)
            self._pending, self._waiting = None, 0
        assert self._value is not None
        return self._value

    def stand_in(self) -> "Estimate":
        """See `Companion`."""
        return Estimate(self.value, (None, ()))

    def given(self, values: Mapping[Companion, Companion]) -> "Estimate":
        """See `Companion`."""
        made = Estimate.__new__(Estimate)
        made._value, made._recipe, made._pending = None, None, (self, values)
        made._waiting = 1
        for value in values.values():
            if isinstance(value, Estimate) and value._waiting >= made._waiting:
                made._waiting = value._waiting + 1
        if made._waiting >= _MOST_WAITING:
            made.value  # noqa: B018
        return made

    def __repr__(self) -> str:
        return f"<Estimate: values within {self.value.bound:.3g}, {self.value.precision_bits:.1f} bits of precision>"


_MOST_WAITING = 64  # replays whose results feed one another and that nobody looked at


def _evaluated(formula: Estimate, values: Mapping[Companion, Companion]) -> Noise:
    """The noise that a formula gives with values in the place of its stand-ins."""
    done: dict[Companion, Noise] = {stand_in: v.value for stand_in, v in values.items() if isinstance(v, Estimate)}
    stack = [formula]
    while stack:
        estimate = stack[-1]
        function, sources = estimate._recipe or (None, ())
        pending = [s for s in sources if s not in done]
        if estimate not in done and pending:
            stack.extend(pending)
            continue
        if estimate not in done:
            done[estimate] = estimate.value if function is None else function(*[done[s] for s in sources])
        stack.pop()
    return done[formula]


# Variances of what the scheme adds, per coefficient. A uniform ternary secret s has 2n/3 coefficients that are not zero.


def rounding_variance(n: int) -> float:
    """Of b + a*s when b and a are rounded to integers: (1 + 2n/3) / 12."""
    return (1 + 2 * n / 3) / 12


def encryption_variance(params: CKKSParams) -> float:
    """Of an encryption under the public key: v*e + e0 + e1*s, divided by a special prime p, and rounding."""
    n = params.n
    return ERROR_SIGMA**2 * (4 * n / 3 + 1) / params.special[-1] ** 2 + rounding_variance(n)


def switching_variance(params: CKKSParams, level: int) -> float:
    """Of key switching, divided by the special primes but not rounded: sum over digits D of n * sigma^2 * D^2/12 / P^2."""
    return params.n * ERROR_SIGMA**2 * params.digit_ratios[level] / 12


def slot_variance(params: CKKSParams, coefficient_variance: float, scale: float) -> float:
    """The variance of a slot's error, for one of a coefficient at a scale."""
    return params.n * coefficient_variance / scale**2
