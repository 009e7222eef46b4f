"""desilofhe on the processor. It has one set of parameters for each number of levels."""

from importlib.metadata import version
from typing import Any

import numpy as np
from desilofhe import Engine

from peers.system import Setting, System


class Desilofhe(System):
    """The parameters that the library has for the depth; only products of ciphertexts and of plaintexts take a level."""

    def __init__(self, setting: Setting, values: np.ndarray, threads: int) -> None:
        mode = "cpu" if threads == 1 else "parallel"
        engine = self.engine = Engine(max_level=setting.depth, mode=mode, thread_count=threads)
        if 2 * engine.slot_count != setting.n:
            raise ValueError(f"for {setting.depth} levels it has n = {2 * engine.slot_count} only, not {setting.n}")
        self.depth = setting.depth
        self.secret, public, self.relinearization, rotation = self._keys()
        plain = engine.encode(values)
        x, y = engine.encrypt(plain, public), engine.encrypt(engine.encode(values[::-1].copy()), public)
        self.x = x
        self.description = f"desilofhe {version('desilofhe')}; its own parameters for {setting.depth} levels, mode {mode}"
        self.operations = {
            "keys": self._keys,
            "encode": lambda: engine.encode(values),
            "encrypt": lambda: engine.encrypt(plain, public),
            "decrypt and decode": lambda: engine.decrypt(x, self.secret),
            "add": lambda: engine.add(x, y),
            "plaintext multiply": lambda: engine.multiply(x, plain),
            "multiply": lambda: engine.multiply(x, y, self.relinearization),
            "square": lambda: engine.square(x, self.relinearization),
            "rotate": lambda: engine.rotate(x, rotation),
            "chain": self._chain,
        }

    def _keys(self) -> tuple[Any, Any, Any, Any]:
        engine, secret = self.engine, self.engine.create_secret_key()
        public, relinearization = engine.create_public_key(secret), engine.create_relinearization_key(secret)
        return secret, public, relinearization, engine.create_fixed_rotation_key(secret, 1)

    def _chain(self) -> Any:
        engine, x = self.engine, self.x
        for _ in range(self.depth):
            square = engine.square(x, self.relinearization)
            x = engine.subtract(engine.add(square, square), 1.0)
        return x

    def opened(self, result: Any) -> np.ndarray:
        return np.real(np.array(self.engine.decrypt(result, self.secret)))


def make(setting: Setting, values: np.ndarray, threads: int) -> System:
    """desilofhe with as many threads."""
    return Desilofhe(setting, values, threads)
