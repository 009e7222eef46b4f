"""This package, on the device `cpu`. How many threads it uses, `REN_THREADS` says."""

from typing import Any

import numpy as np

import ren_lab as ren
from peers import own
from peers.system import Setting, System
from ren_lab.schemes.ckks import Ciphertext, CKKSParams, decode, decrypt, encode, encrypt, keygen

DEVICE = "cpu"


def parameters(setting: Setting) -> CKKSParams:
    """The parameters that a user would get for the setting."""
    ready = CKKSParams.default() if setting.secure else CKKSParams.python_test()
    if (ready.n, ready.depth, ready.log2_scale) == (setting.n, setting.depth, setting.log2_scale):
        return ready
    precision_bits = setting.log2_scale - int(np.ceil(np.log2(setting.n / 6))) - 1  # see `needed_log2_scale` of the builder
    made = CKKSParams.build(depth=setting.depth, precision_bits=precision_bits, n=setting.n, insecure=not setting.secure)
    if made.log2_scale != setting.log2_scale:
        raise ValueError(f"{made!r} was built for a scale of 2^{setting.log2_scale}; choose another scale in SETTINGS")
    return made


class RenLab(System):
    """Eager operations, each realized by itself; and some of them and the chain captured once and replayed."""

    def __init__(self, setting: Setting, values: np.ndarray) -> None:
        params = self.params = parameters(setting)
        self.context = keygen(params, rotations=[1], device=DEVICE)
        self.context.__enter__()
        x, y = (encrypt(encode(v)).realize() for v in (values, values[::-1].copy()))
        self.x = x
        plain = encode(values).realize()
        factor = plain.transformed().realize()
        self.jitted = ren.jit(self._chain)
        product, rotation = ren.jit(lambda a, b: a * b), ren.jit(lambda a: a.rotate(1))
        self.description = f"{repr(params)[1:-1]}, {params.digits} digits; device {DEVICE}"
        self.operations = {
            "keys": lambda: keygen(params, rotations=[1], device=DEVICE),
            "encode": lambda: encode(values).realize(),
            "encrypt": lambda: encrypt(plain).realize(),
            "decrypt and decode": lambda: decode(decrypt(x)),
            "add": lambda: (x + y).realize(),
            "plaintext multiply": lambda: (x * factor).realize(),
            "multiply": lambda: (x * y).realize(),
            "multiply, replayed": lambda: product(x, y),
            "square": lambda: (x * x).realize(),
            "rotate": lambda: x.rotate(1).realize(),
            "rotate, replayed": lambda: rotation(x),
            "chain": lambda: self._chain(x).realize(),
            "chain, replayed": lambda: self.jitted(x),
        }

    def _chain(self, x: Ciphertext) -> Ciphertext:
        for _ in range(self.params.depth):
            x = 2 * x * x - 1
        return x

    def opened(self, result: Any) -> np.ndarray:
        return np.real(decode(decrypt(result)))

    def account(self, rounds: int) -> dict[str, Any]:
        """`own.account` of a replay of the chain, as plain data."""
        self.jitted(self.x)
        (plan,) = self.jitted.plans
        return own.account(plan, lambda: self.jitted(self.x), rounds)

    def overhead(self, calls: int) -> dict[str, Any]:
        """`own.overhead` of a replay of the chain, as plain data."""
        return own.overhead(lambda: self.jitted(self.x), calls)


def make(setting: Setting, values: np.ndarray, threads: int) -> System:
    """This package; the number of threads is in the environment."""
    return RenLab(setting, values)
