"""How good an estimate was: precision of a ciphertext, measured with the secret key."""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Precision:
    """Errors of decrypted slots.

    Attributes:
        source: what they were measured against.
        std: root of the mean square of the real part's error (of the imaginary parts, where those are all there is to go by).
        median, largest: of its magnitude.
    """

    source: str
    std: float
    median: float
    largest: float

    @classmethod
    def of(cls, errors: np.ndarray, source: str) -> "Precision":
        """From real errors, one per slot."""
        size = np.abs(errors)
        return cls(source, float(np.sqrt(np.mean(size**2))), float(np.median(size)), float(np.max(size)))


def bits(error: float) -> float:
    """-log2 of an error; infinite for none."""
    return -math.log2(error) if error else math.inf


def _bits(count: float) -> str:
    return "no error" if math.isinf(count) else f"{count:.1f} bits"


@dataclass(frozen=True, slots=True)
class Report:
    """A ciphertext's state: what is estimated, and where the secret key is at hand, what is true.

    Attributes:
        level, depth: its level, and the highest there is.
        log2_scale, log2_modulus: of its polynomials.
        bound: estimated bound of the values' magnitudes.
        capacity: magnitudes must stay below it.
        precision_bits: estimate, -log2 of the standard deviation of the real part's error in the worst slot.
        noise_bits: estimate, log2 of the standard deviation of a coefficient's error.
        measured: the errors, or None where there is no way to tell.
    """

    level: int
    depth: int
    log2_scale: float
    log2_modulus: float
    bound: float
    capacity: float
    precision_bits: float
    noise_bits: float
    measured: Precision | None

    def __str__(self) -> str:
        lines = [
            f"level      {self.level} of {self.depth}",
            f"scale      2^{self.log2_scale:.3f}, modulus 2^{self.log2_modulus:.1f}",
            f"values     within {self.bound:.4g} by estimate; magnitudes must stay below {self.capacity:.4g}",
            f"noise      {_bits(self.noise_bits)} in a coefficient by estimate",
            f"precision  {_bits(self.precision_bits)} by estimate (standard deviation, where it is largest)",
        ]
        if self.measured is None:
            lines.append("measured   nothing: that takes the secret key, and expected values unless the message is real")
        else:
            m = self.measured
            lines.append(
                f"measured   {_bits(bits(m.std))} (standard deviation over all slots), {_bits(bits(m.median))} (median), "
                f"{_bits(bits(m.largest))} (largest), against {m.source}"
            )
        return "\n".join(lines)
