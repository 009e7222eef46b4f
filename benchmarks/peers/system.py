"""What is compared: parameters that all libraries share as nearly as they can, operations, and what is asked of a library."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

OURS = "ren_lab"

OPERATIONS = {
    "keys": "keys: secret, public, relinearization, one rotation",
    "encode": "encode",
    "encrypt": "encrypt",
    "decrypt and decode": "decrypt and decode",
    "add": "add",
    "plaintext multiply": "multiply by a plaintext, rescale",
    "multiply": "multiply, relinearize, rescale",
    "multiply, replayed": "multiply, relinearize, rescale, replayed",
    "square": "square, relinearize, rescale",
    "rotate": "rotate by 1",
    "rotate, replayed": "rotate by 1, replayed",
    "chain": "{depth} steps of x = 2x² − 1",
    "chain, replayed": "the steps, replayed",
}
"""Operations in the order in which they are measured, and what tables call them."""

BESIDE = {"chain, replayed": "chain", "multiply, replayed": "multiply", "rotate, replayed": "rotate"}
"""Operations that this package alone has, and the one of the others that each is compared with."""


@dataclass(frozen=True)
class Setting:
    """Parameters that libraries are asked for.

    Attributes:
        log_n: log2 of the rings' degree.
        depth: how many products in a row.
        log2_scale: of the scale, the size of the modulus of a level.
        secure: whether 128-bit security is asked for; otherwise it is a trial of the program, not of a library.
    """

    log_n: int
    depth: int
    log2_scale: int
    secure: bool = True

    @property
    def n(self) -> int:
        """The degree."""
        return 2**self.log_n

    @property
    def log2_first(self) -> int:
        """Bits of the modulus of the last level: ten more than the scale, or 60, the most that 64-bit libraries have."""
        return min(self.log2_scale + 10, 60)


SETTINGS = {
    setting.log_n: setting
    for setting in (Setting(10, 6, 29, secure=False), Setting(13, 2, 40), Setting(14, 6, 44), Setting(15, 10, 50))
}
"""By log2 of the degree: the deepest parameters at 128-bit security that all the libraries have. 10 is for trials."""


class System:
    """A library at work on two ciphertexts x and y, of `values` and of `values` in reverse.

    Attributes:
        description: its version and its parameters.
        operations: what it can do; each call does one operation once, completely, and gives the result.
    """

    description: str
    operations: dict[str, Callable[[], Any]]

    def opened(self, result: Any) -> np.ndarray:
        """The slots of a ciphertext, float64[n/2]."""
        raise NotImplementedError

    def tidy(self) -> None:
        """Called after a turn, outside of the measured time."""


def expected(operation: str, values: np.ndarray, depth: int) -> np.ndarray:
    """What an operation's ciphertext should hold; `KeyError` for operations that give none."""
    x, y = values, values[::-1]
    if operation.startswith("chain"):
        for _ in range(depth):
            x = 2 * x * x - 1
        return x
    return {
        "encrypt": x,
        "add": x + y,
        "plaintext multiply": x * x,
        "multiply": x * y,
        "square": x * x,
        "rotate": np.roll(x, -1),
    }[operation.removesuffix(", replayed")]
