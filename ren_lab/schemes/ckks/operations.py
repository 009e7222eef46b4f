"""What homomorphic operations tell to whoever watches, and the user's lines they name."""

import sys
from dataclasses import dataclass

_PACKAGE = __file__.rsplit("schemes", 1)[0]


@dataclass(frozen=True, slots=True)
class OperationDone:
    """A homomorphic operation was asked for; observers of `ren_lab.events` hear of it.

    Attributes:
        name: "add", "multiply", "multiply_plain", "rotate", "conjugate", "lower", "encrypt" and the like.
        level, log2_scale: of the result.
        precision_bits: the estimate for the worst slot of the result, -log2 of the standard deviation of its error.
        noise_bits: the estimate of log2 of the standard deviation of a coefficient's error.
        origin: the user's file and line.
    """

    name: str
    level: int
    log2_scale: float
    precision_bits: float
    noise_bits: float
    origin: tuple[str, int]


def user_line() -> tuple[str, int]:
    """The nearest file and line outside of this package on the calling stack."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
