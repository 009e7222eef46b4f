"""CKKS at work: single operations, and ten steps of x = 2*x*x - 1, beside the peers that are installed.

Run `python benchmarks/ckks_chain.py [--params default] [--repeats 5] [--device NAME] [--peers]`. Times are milliseconds,
minimum and median. With `--peers`, systems take turns at every operation within one run, and ratios are those of medians;
peers are SEAL (`pip install tenseal`) and desilofhe, one thread each. Errors are measured on uniform inputs from [-1, 1]:
"amplified" is the largest error / (1 + max |d x_end / d x_k|), which does not depend on how steep the chain is.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import ren_lab as ren
from ren_lab.schemes.ckks import Ciphertext, CKKSParams, decode, decrypt, encode, encrypt, keygen

Operations = dict[str, Callable[[], object]]


class RenLab:
    """This package: eager, and captured once and replayed."""

    name = "ren_lab"

    def __init__(self, params: CKKSParams, values: np.ndarray, device: str | None) -> None:
        self.params, self.values, self.device = params, values, device
        self.ctx = keygen(params, rotations=[1], device=device)
        self.ctx.__enter__()
        self.x, self.y = (encrypt(encode(v)).realize() for v in (values, values[::-1].copy()))
        self.plain = encode(values).realize()
        self.factor = self.plain.transformed().realize()
        self.jitted = ren.jit(self._steps)

    def _steps(self, x: Ciphertext) -> Ciphertext:
        for _ in range(self.params.depth):
            x = 2 * x * x - 1
        return x

    def operations(self) -> Operations:
        x, y, plain = self.x, self.y, self.plain
        return {
            "keys": lambda: keygen(self.params, rotations=[1], device=self.device),
            "encode": lambda: encode(self.values).realize(),
            "encrypt": lambda: encrypt(plain).realize(),
            "decrypt + decode": lambda: decode(decrypt(x)),
            "add": lambda: (x + y).realize(),
            "plaintext multiply": lambda: (x * self.factor).realize(),
            "multiply": lambda: (x * y).realize(),
            "square": lambda: (x * x).realize(),
            "rotate": lambda: x.rotate(1).realize(),
        }

    def chains(self) -> Operations:
        return {"eager": lambda: self._steps(self.x).realize(), "replayed": lambda: self.jitted(self.x).realize()}

    def opened(self, result: object) -> np.ndarray:
        assert isinstance(result, Ciphertext)
        return np.real(decode(decrypt(result)))


class Seal:
    """SEAL, by the binding that TenSEAL ships: one 60-bit prime at each end, 50 bits for a level."""

    name = "SEAL"

    def __init__(self, params: CKKSParams, values: np.ndarray, device: str | None) -> None:
        import tenseal.sealapi as seal

        self.seal, self.values, self.depth, self.scale = seal, values.tolist(), params.depth, 2.0**params.log2_scale
        chain = [60, *[round(params.log2_scale)] * params.depth, 60]
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        parameters.set_poly_modulus_degree(params.n)
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(params.n, chain))
        security = seal.SEC_LEVEL_TYPE.TC128 if params.security_bits else seal.SEC_LEVEL_TYPE.NONE
        self.context = seal.SEALContext(parameters, True, security)
        self._keys()
        self.encoder = seal.CKKSEncoder(self.context)
        self.encryptor = seal.Encryptor(self.context, self.public)
        self.decryptor = seal.Decryptor(self.context, self.secret)
        self.evaluator = seal.Evaluator(self.context)
        self.plain, self.other = self._encoded(self.values), self._encoded(self.values[::-1])
        self.x, self.y = self._encrypted(self.plain), self._encrypted(self.other)

    def _keys(self) -> None:
        generator = self.seal.KeyGenerator(self.context)
        self.secret, self.public = generator.secret_key(), self.seal.PublicKey()
        generator.create_public_key(self.public)
        self.relinearization, self.galois = self.seal.RelinKeys(), self.seal.GaloisKeys()
        generator.create_relin_keys(self.relinearization)
        generator.create_galois_keys([3], self.galois)  # X -> X^3 rotates by one

    def _encoded(self, values: object) -> object:
        plain = self.seal.Plaintext()
        self.encoder.encode(values, self.scale, plain)
        return plain

    def _encrypted(self, plain: object) -> object:
        ciphertext = self.seal.Ciphertext()
        self.encryptor.encrypt(plain, ciphertext)
        return ciphertext

    def _call(self, method: Callable[..., None], *arguments: object) -> object:
        out = self.seal.Ciphertext()
        method(*arguments, out)
        return out

    def _finished(self, product: object, relinearize: bool = True) -> object:
        if relinearize:
            self.evaluator.relinearize_inplace(product, self.relinearization)
        self.evaluator.rescale_to_next_inplace(product)
        return product

    def operations(self) -> Operations:
        evaluator, x, y = self.evaluator, self.x, self.y
        return {
            "keys": self._keys,
            "encode": lambda: self._encoded(self.values),
            "encrypt": lambda: self._encrypted(self.plain),
            "decrypt + decode": lambda: self.opened(x),
            "add": lambda: self._call(evaluator.add, x, y),
            "plaintext multiply": lambda: self._finished(self._call(evaluator.multiply_plain, x, self.plain), False),
            "multiply": lambda: self._finished(self._call(evaluator.multiply, x, y)),
            "square": lambda: self._finished(self._call(evaluator.square, x)),
            "rotate": lambda: self._call(evaluator.rotate_vector, x, 1, self.galois),
        }

    def chains(self) -> Operations:
        def run() -> object:
            x = self.x
            for _ in range(self.depth):
                square = self._finished(self._call(self.evaluator.square, x))
                x = self._call(self.evaluator.add, square, square)
                one = self.seal.Plaintext()
                self.encoder.encode(1.0, x.parms_id(), x.scale, one)
                self.evaluator.sub_plain_inplace(x, one)
            return x

        return {"eager": run}

    def opened(self, result: object) -> np.ndarray:
        plain = self.seal.Plaintext()
        self.decryptor.decrypt(result, plain)
        return np.array(self.encoder.decode_double(plain))


class Desilofhe:
    """desilofhe on the CPU, with parameters of its own for the depth."""

    name = "desilofhe"

    def __init__(self, params: CKKSParams, values: np.ndarray, device: str | None) -> None:
        from desilofhe import Engine

        self.engine, self.values, self.depth = Engine(max_level=params.depth, mode="cpu", thread_count=1), values, params.depth
        self._keys()
        slots = self.engine.slot_count
        self.values = np.resize(values, slots)
        self.plain = self.engine.encode(self.values)
        self.x = self.engine.encrypt(self.plain, self.public)
        self.y = self.engine.encrypt(self.engine.encode(self.values[::-1].copy()), self.public)

    def _keys(self) -> None:
        self.secret = self.engine.create_secret_key()
        self.public = self.engine.create_public_key(self.secret)
        self.relinearization = self.engine.create_relinearization_key(self.secret)
        self.rotation = self.engine.create_fixed_rotation_key(self.secret, 1)

    def operations(self) -> Operations:
        engine, x, y = self.engine, self.x, self.y
        return {
            "keys": self._keys,
            "encode": lambda: engine.encode(self.values),
            "encrypt": lambda: engine.encrypt(self.plain, self.public),
            "decrypt + decode": lambda: engine.decrypt(x, self.secret),
            "add": lambda: engine.add(x, y),
            "plaintext multiply": lambda: engine.multiply(x, self.plain),
            "multiply": lambda: engine.multiply(x, y, self.relinearization),
            "square": lambda: engine.square(x, self.relinearization),
            "rotate": lambda: engine.rotate(x, self.rotation),
        }

    def chains(self) -> Operations:
        def run() -> object:
            x = self.x
            for _ in range(self.depth):
                square = self.engine.square(x, self.relinearization)
                x = self.engine.subtract(self.engine.add(square, square), 1.0)
            return x

        return {"eager": run}

    def opened(self, result: object) -> np.ndarray:
        return np.real(np.array(self.engine.decrypt(result, self.secret)))


def timed(systems: list, pick: str, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds by operation and system; systems take turns, after one round that is not counted."""
    table: dict[str, dict[str, list[float]]] = {}
    for number in range(repeats + 1):
        for system in systems:
            for name, operation in getattr(system, pick)().items():
                start = time.perf_counter()
                operation()
                if number:
                    seconds = time.perf_counter() - start
                    table.setdefault(name, {}).setdefault(system.name, []).append(1e3 * seconds)
    return table


def show(table: dict[str, dict[str, list[float]]], systems: list) -> None:
    """Minimum/median of each, and the ratio of the first system's median to each other one's."""
    names = [s.name for s in systems]
    print(f"{'milliseconds':22}" + "".join(f"{name:>22}" for name in names))
    for operation, row in table.items():
        line = f"{operation:22}"
        for name in names:
            if name in row:
                line += f"{min(row[name]):>12.2f}/{statistics.median(row[name]):<9.2f}"
            else:
                line += " " * 22
        for name in names[1:]:
            if name in row and names[0] in row:
                line += f"  {statistics.median(row[names[0]]) / statistics.median(row[name]):.2f} x {name}"
        print(line)


def errors(result: np.ndarray, values: np.ndarray, steps: int) -> str:
    """Median, largest and amplified error of a chain's result."""
    points = [values]
    for _ in range(steps):
        points.append(2 * points[-1] ** 2 - 1)
    slope, steepest = np.ones_like(values), np.zeros_like(values)
    for x in reversed(points[:-1]):
        slope = slope * 4 * x
        steepest = np.maximum(steepest, np.abs(slope))
    size = np.abs(result[: len(values)] - points[-1])
    return f"median {np.median(size):.2e}, largest {np.max(size):.2e}, amplified {np.max(size / (1 + steepest)):.2e}"


def main() -> None:
    """Read the command line, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--params", choices=["default", "python_test"], default="default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default=None)
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    params = CKKSParams.default() if options.params == "default" else CKKSParams.python_test()
    values = np.random.default_rng(0).uniform(-1, 1, params.slot_count)
    systems = []
    for kind in (RenLab, Seal, Desilofhe) if options.peers else (RenLab,):
        try:
            systems.append(kind(params, values, options.device))
        except ImportError as error:
            print(f"{kind.name} is left out: {error}")
    ours = systems[0]
    print(f"{params!r} on {ours.ctx.device}")
    start = time.perf_counter()
    ours.jitted(ours.x).realize()
    print(f"capture of the chain: {1e3 * (time.perf_counter() - start):.0f} ms")
    print(f"\n{params.depth} steps of x = 2*x*x - 1")
    show(timed(systems, "chains", options.repeats), systems)
    for system in systems:
        for name, chain in system.chains().items():
            print(f"{system.name}, {name}: {errors(system.opened(chain()), values, params.depth)}")
    print("\nsingle operations at the highest level; products relinearized and rescaled")
    show(timed(systems, "operations", options.repeats), systems)


if __name__ == "__main__":
    main()
