"""SEAL, by the binding `tenseal.sealapi` that TenSEAL ships. It has no threads of its own."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import tenseal.sealapi as seal

from peers.system import Setting, System


class Seal(System):
    """One prime of a level's size each, a larger one at either end; the last one is for key switching."""

    def __init__(self, setting: Setting, values: np.ndarray) -> None:
        self.values, self.depth, self.scale = values.tolist(), setting.depth, 2.0**setting.log2_scale
        chain = [setting.log2_first, *[setting.log2_scale] * setting.depth, setting.log2_first]
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        parameters.set_poly_modulus_degree(setting.n)
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(setting.n, chain))
        security = seal.SEC_LEVEL_TYPE.TC128 if setting.secure else seal.SEC_LEVEL_TYPE.NONE
        self.context = seal.SEALContext(parameters, True, security)
        if not self.context.parameters_set():
            raise ValueError(f"SEAL refuses {chain} at n = {setting.n}: {self.context.parameters_error_message()}")
        self.secret, self.public, self.relinearization, self.galois = self._keys()
        self.encoder = seal.CKKSEncoder(self.context)
        self.encryptor = seal.Encryptor(self.context, self.public)
        self.decryptor = seal.Decryptor(self.context, self.secret)
        evaluator = self.evaluator = seal.Evaluator(self.context)
        plain = self._encoded(self.values)
        x, y = self._encrypted(plain), self._encrypted(self._encoded(self.values[::-1]))
        self.x = x
        self.description = f"tenseal {version('tenseal')}; moduli of {chain} bits; one thread always"
        self.operations = {
            "keys": self._keys,
            "encode": lambda: self._encoded(self.values),
            "encrypt": lambda: self._encrypted(plain),
            "decrypt and decode": lambda: self._opened(x),
            "add": lambda: self._call(evaluator.add, x, y),
            "plaintext multiply": lambda: self._rescaled(self._call(evaluator.multiply_plain, x, plain)),
            "multiply": lambda: self._finished(self._call(evaluator.multiply, x, y)),
            "square": lambda: self._finished(self._call(evaluator.square, x)),
            "rotate": lambda: self._call(evaluator.rotate_vector, x, 1, self.galois),
            "chain": self._chain,
        }

    def _keys(self) -> tuple[Any, Any, Any, Any]:
        generator = seal.KeyGenerator(self.context)
        public, relinearization, galois = seal.PublicKey(), seal.RelinKeys(), seal.GaloisKeys()
        generator.create_public_key(public)
        generator.create_relin_keys(relinearization)
        generator.create_galois_keys([3], galois)  # X -> X^3 rotates by one
        return generator.secret_key(), public, relinearization, galois

    def _encoded(self, values: list[float]) -> Any:
        plain = seal.Plaintext()
        self.encoder.encode(values, self.scale, plain)
        return plain

    def _encrypted(self, plain: Any) -> Any:
        return self._call(self.encryptor.encrypt, plain)

    def _call(self, method: Callable[..., None], *arguments: Any) -> Any:
        out = seal.Ciphertext()
        method(*arguments, out)
        return out

    def _rescaled(self, product: Any) -> Any:
        self.evaluator.rescale_to_next_inplace(product)
        return product

    def _finished(self, product: Any) -> Any:
        self.evaluator.relinearize_inplace(product, self.relinearization)
        return self._rescaled(product)

    def _chain(self) -> Any:
        x = self.x
        for _ in range(self.depth):
            square = self._finished(self._call(self.evaluator.square, x))
            x = self._call(self.evaluator.add, square, square)
            one = seal.Plaintext()
            self.encoder.encode(1.0, x.parms_id(), x.scale, one)
            self.evaluator.sub_plain_inplace(x, one)
        return x

    def _opened(self, result: Any) -> list[float]:
        plain = seal.Plaintext()
        self.decryptor.decrypt(result, plain)
        return self.encoder.decode_double(plain)

    def opened(self, result: Any) -> np.ndarray:
        return np.array(self._opened(result))


def make(setting: Setting, values: np.ndarray, threads: int) -> System:
    """SEAL with the setting's parameters; `threads` has no effect."""
    return Seal(setting, values)
