"""How long a user waits for kernels: those of one product at the default parameters, in a process that has compiled nothing."""

import dataclasses
import json
import sys
import time
from pathlib import Path

import numpy as np

from ren_lab.backends import CpuBackend, backend, register
from ren_lab.engine import compile_sink
from ren_lab.engine.compile import sink_of
from ren_lab.options import current
from ren_lab.schemes.ckks import CKKSContext, CKKSParams, encode, encrypt, keygen
from ren_lab.schemes.ckks.keyswitch import SwitchingKey

_DEVICE = "cpu"


def measure(cache: Path, params: CKKSParams) -> dict[str, float]:
    """Seconds until a product can run, with compiled kernels kept in `cache`.

    Keys and ciphertexts are made on the device `python`, so that the product's kernels are the first.

    Returns:
        `passes`: from the graph to a program; `compile`: until every kernel and what they share is ready, finding the compiler
        included; `run`: the product itself; `kernels`: how many different ones.
    """
    register(_DEVICE, lambda number: CpuBackend(number, cache=cache))
    ctx = keygen(params, device="python")
    with ctx:
        values = np.random.default_rng(0).uniform(-1, 1, params.slot_count)
        made = [encrypt(encode(v)).realize() for v in (values, values[::-1].copy())]
    start = time.perf_counter()
    library = backend(_DEVICE).library  # type: ignore[attr-defined]
    found = time.perf_counter() - start
    parts = tuple((b.to(_DEVICE).realize(), a.to(_DEVICE).realize()) for b, a in ctx.relinearization_key.parts)
    moved = CKKSContext(params, _DEVICE, ctx.key_id, ctx.public_key, SwitchingKey(parts), None, {})
    x, y = (dataclasses.replace(c, a=c.a.to(_DEVICE).realize(), b=c.b.to(_DEVICE).realize()) for c in made)
    with moved:
        start = time.perf_counter()
        product = x * y
        program, _ = compile_sink(sink_of([product.b.node, product.a.node]), current())
        passes = time.perf_counter() - start
        start = time.perf_counter()
        kernels = {unit.call for unit in program.units if unit.item.ast is not None}
        assert library.support
        for kernel in kernels:
            assert kernel.function  # type: ignore[attr-defined]
        compiled = time.perf_counter() - start
        start = time.perf_counter()
        product.realize()
        run = time.perf_counter() - start
    return {"passes": passes, "compile": found + compiled, "run": run, "kernels": len(kernels)}


def main() -> None:
    """Print what `measure` gives for the cache directory on the command line, as JSON."""
    print(json.dumps(measure(Path(sys.argv[1]), CKKSParams.default())))
