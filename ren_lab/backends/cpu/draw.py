"""Random draws in native code."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ren_lab.backends.cpu.kernel import address
from ren_lab.backends.cpu.library import Library
from ren_lab.backends.python.sampling import current_generator, gaussian_thresholds
from ren_lab.ir import Node, Op
from ren_lab.ring import R, RingSpec, check_sigma, tables

DRAW = np.dtype(
    [
        ("key", "u4", 8), ("number", "u8"), ("n", "i8"), ("limbs", "i8"), ("kind", "i8"), ("bound", "i8"), ("threshold", "u8"),
        ("p", "u8"), ("p_inv", "u8"), ("square", "u8"), ("centred", "u8"),
    ]
)  # fmt: skip
"""A draw, laid out as `ren_draw` in C."""

_UNIFORM, _BELOW, _REACHED = range(3)


class DrawKernel:
    """A kernel that fills its output with a draw: call it with the output's array, uint32[limbs, n], contiguous.

    Equal to the sampler of the same name in `backends/python/sampling.py`, bit for bit. It may run in several threads at once.
    """

    __slots__ = ("_library", "_threads", "_shape", "_kept", "_record")

    def __init__(
        self, ring: RingSpec, distribution: str, parameters: tuple[Any, ...], library: Library, threads: Callable[[], int]
    ) -> None:
        self._library, self._threads = library, threads
        self._shape = (ring.limbs, ring.n)
        self._record = np.zeros(1, DRAW)
        record = self._record[0]
        record["n"], record["limbs"] = ring.n, ring.limbs
        kept = {"p": tables(ring).p.ravel(), "p_inv": tables(ring).p_inv.ravel()}
        centre = 0
        if distribution == "uniform":
            record["kind"] = _UNIFORM
        elif distribution == "ternary":
            record["kind"], record["bound"], centre = _BELOW, 3, 1
        else:
            thresholds = gaussian_thresholds(check_sigma(*parameters))
            record["kind"], record["bound"], centre = _REACHED, len(thresholds), len(thresholds) // 2
            kept["threshold"] = thresholds
        kept["square"] = np.array([R * R % p for p in ring.moduli], np.uint32)
        kept["centred"] = np.array([centre * R % p for p in ring.moduli], np.uint32)
        self._kept = {name: np.ascontiguousarray(table) for name, table in kept.items()}
        for name, table in self._kept.items():
            record[name] = address(table)

    def __call__(self, out: np.ndarray) -> None:
        if out.shape != self._shape:
            raise ValueError(f"a draw was given a storage of shape {out.shape}; it fills {self._shape}")
        draw = current_generator().draw()
        record = self._record.copy()
        record["key"], record["number"] = np.frombuffer(draw.key, "<u4"), draw.number
        self._library.support.draw_into(address(out), address(record), self._threads())


def native_draw(ast: Node) -> tuple[RingSpec, str, tuple[Any, ...]] | None:
    """(ring, distribution, parameters) of a kernel that is one draw which native code knows, and nothing else; otherwise None."""
    value = ast.src[1] if ast.op is Op.STORE else ast
    if value.op is not Op.AS_RING or value.src[0].op is not Op.RANDOM:
        return None
    random = value.src[0].arg
    if random.distribution not in ("uniform", "ternary", "gaussian"):
        return None
    assert value.ring is not None
    return value.ring, random.distribution, random.parameters
