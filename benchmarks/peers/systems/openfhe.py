"""OpenFHE, by its own Python binding. How many threads it uses, `OMP_NUM_THREADS` says."""

from importlib.metadata import version
from typing import Any

import numpy as np
import openfhe

from peers.system import Setting, System

_DIGITS = 3


class Party:
    """A context and its keys, and ciphertexts of two vectors."""

    def __init__(self, setting: Setting, values: np.ndarray, technique: str, digits: int) -> None:
        parameters = openfhe.CCParamsCKKSRNS()
        parameters.SetRingDim(setting.n)
        parameters.SetBatchSize(setting.n // 2)
        parameters.SetMultiplicativeDepth(setting.depth)
        parameters.SetScalingModSize(setting.log2_scale)
        parameters.SetFirstModSize(setting.log2_first)
        parameters.SetNumLargeDigits(digits)
        parameters.SetScalingTechnique(getattr(openfhe.ScalingTechnique, technique))
        level = openfhe.SecurityLevel.HEStd_128_classic if setting.secure else openfhe.SecurityLevel.HEStd_NotSet
        parameters.SetSecurityLevel(level)
        context = self.context = openfhe.GenCryptoContext(parameters)
        for feature in ("PKE", "KEYSWITCH", "LEVELEDSHE"):
            context.Enable(getattr(openfhe.PKESchemeFeature, feature))
        self.values = values
        self.pair = self.keys()
        self.plain = self.encoded(values)
        self.x, self.y = self.encrypted(self.plain), self.encrypted(self.encoded(values[::-1].copy()))

    def keys(self) -> Any:
        """All keys; those for evaluation stay in tables of the library."""
        pair = self.context.KeyGen()
        self.context.EvalMultKeyGen(pair.secretKey)
        self.context.EvalRotateKeyGen(pair.secretKey, [1])
        return pair

    def encoded(self, values: np.ndarray) -> Any:
        """A plaintext."""
        return self.context.MakeCKKSPackedPlaintext(values)

    def encrypted(self, plain: Any) -> Any:
        """A ciphertext."""
        return self.context.Encrypt(self.pair.publicKey, plain)

    def opened(self, ciphertext: Any) -> list[float]:
        """The slots of a ciphertext."""
        plain = self.context.Decrypt(ciphertext, self.pair.secretKey)
        plain.SetLength(len(self.values))
        return plain.GetRealPackedValue()


class OpenFHE(System):
    """Single operations with manual rescaling, so that it is measured with its product; the chain with the automatic one."""

    def __init__(self, setting: Setting, values: np.ndarray, digits: int) -> None:
        self.depth = setting.depth
        manual = self.manual = Party(setting, values, "FIXEDMANUAL", digits)
        self.automatic = Party(setting, values, "FLEXIBLEAUTO", digits)
        context, x, y = manual.context, manual.x, manual.y
        tags = [party.pair.secretKey.GetKeyTag() for party in (manual, self.automatic)]
        self.kept = [(tag, context.GetEvalMultKeyVector(tag), context.GetEvalAutomorphismKeyMap(tag)) for tag in tags]
        bits = f"scale 2^{setting.log2_scale}, first modulus of {setting.log2_first} bits, {digits} digits"
        self.description = f"openfhe {version('openfhe')}; {bits}; single operations FIXEDMANUAL, the chain FLEXIBLEAUTO"
        self.operations = {
            "keys": manual.keys,
            "encode": lambda: manual.encoded(values),
            "encrypt": lambda: manual.encrypted(manual.plain),
            "decrypt and decode": lambda: manual.opened(x),
            "add": lambda: context.EvalAdd(x, y),
            "plaintext multiply": lambda: context.Rescale(context.EvalMult(x, manual.plain)),
            "multiply": lambda: context.Rescale(context.EvalMult(x, y)),
            "square": lambda: context.Rescale(context.EvalSquare(x)),
            "rotate": lambda: context.EvalRotate(x, 1),
            "chain": self._chain,
        }

    def _chain(self) -> Any:
        context, x = self.automatic.context, self.automatic.x
        for _ in range(self.depth):
            square = context.EvalSquare(x)
            x = context.EvalSub(context.EvalAdd(square, square), 1.0)
        return x

    def tidy(self) -> None:
        openfhe.ClearEvalMultKeys()  # every key that was ever made stays in the tables
        self.manual.context.ClearEvalAutomorphismKeys()
        for tag, relinearization, rotations in self.kept:
            self.manual.context.InsertEvalMultKey(relinearization, tag)
            self.manual.context.InsertEvalAutomorphismKey(rotations, tag)

    def opened(self, result: Any) -> np.ndarray:
        party = self.automatic if result.GetKeyTag() == self.kept[1][0] else self.manual
        return np.array(party.opened(result))


def make(setting: Setting, values: np.ndarray, threads: int) -> System:
    """OpenFHE with three digits, or one for each modulus where special primes for three would be too many."""
    try:
        return OpenFHE(setting, values, _DIGITS)
    except RuntimeError:
        return OpenFHE(setting, values, setting.depth + 1)
