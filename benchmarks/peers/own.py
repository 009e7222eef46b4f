"""Where this package's time goes: a replay against the arithmetic that its plan holds, and against its native call.

The arithmetic is counted from the kernels of the plan. What each piece of it costs is measured on a kernel that does this and
nothing else, on data of the same size, in the same run.
"""

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ren_lab.backends import backend
from ren_lab.ir import Axis, DType, Node, Op, Slot
from ren_lab.jit import Plan
from ren_lab.ring import Domain, RingSpec

_CONSTANTS = {"CONST", "RESIDUES", "IMPULSE"}
_FREE = _CONSTANTS | {
    "ADD", "AS_RING", "EQ", "GIDX", "GROUP", "INDEX", "JOIN", "LOAD", "NEG", "PERMUTE", "SLOT", "STORE", "SUB", "WHERE",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """Work of one kind and size.

    Attributes:
        kind: "transforms", "conversion products" or "inner and tensor products".
        shape: what makes two pieces equally long, such as numbers of limbs.
        count: transforms of a limb; products per coefficient.
    """

    kind: str
    shape: tuple[Any, ...]
    count: int


def pieces(ast: Node) -> list[tuple[Piece, Node]]:
    """The arithmetic of a kernel's body, each piece with a kernel body that does it alone.

    Products by constants, sums and permutations count as nothing: they could all be part of something else. A conversion takes a
    product for each limb, and one more for each pair of a limb and a new modulus.

    Raises:
        ValueError: an operation is not known here, so the account would be wrong.
    """
    found: list[tuple[Piece, Node]] = []
    sums: dict[tuple[RingSpec, Op, Node | None], list[tuple[Node, Node]]] = {}  # products by themselves together, sums each
    for node in ast.toposort():
        kind = node.op.name
        if kind in ("NTT", "INTT"):
            ring = _ring(node)
            alone = Node(node.op, DType.U32, (_loaded(1, ring, Domain.COEFF if kind == "NTT" else Domain.NTT),), node.arg)
            found.append((Piece("transforms", (kind, ring.limbs), ring.limbs), _stored(alone)))
        elif kind in ("BASE_CONVERT", "LIFT"):
            source, target = _ring(node.src[0]), _ring(node)
            new = len(set(target.moduli) - set(source.moduli))
            alone = Node(node.op, DType.U32, (_loaded(1, source, Domain.COEFF),), node.arg)
            piece = Piece("conversion products", (source.limbs, target.limbs, new), source.limbs * (new + 1))
            found.append((piece, _stored(alone)))
        elif kind in ("MUL", "DOT"):
            pairs = [pair for pair in zip(node.src[::2], node.src[1::2], strict=True) if not any(map(_constant, pair))]
            if pairs:
                sums.setdefault((_ring(node), node.op, None if kind == "MUL" else node), []).extend(pairs)
        elif kind not in _FREE:
            raise ValueError(f"the account does not know what {kind} costs; add it to {__name__}.pieces")
    return found + [_products(ring, op, pairs) for (ring, op, _), pairs in sums.items()]


def _products(ring: RingSpec, op: Op, pairs: list[tuple[Node, Node]]) -> tuple[Piece, Node]:
    """A sum of products; an operand that occurs twice is loaded once, as in the kernel that they are from."""
    slots: dict[Node, int] = {}
    pattern = tuple(tuple(slots.setdefault(operand, len(slots) + 1) for operand in pair) for pair in pairs)
    loads = [_loaded(slot, ring, Domain.NTT) for slot in range(len(slots) + 1)]
    if op is Op.MUL:
        total, *others = [Node(op, DType.U32, (loads[a], loads[b])) for a, b in pattern]
        for other in others:
            total = Node(Op.ADD, DType.U32, (total, other))
    else:
        total = Node(op, DType.U32, tuple(loads[slot] for pair in pattern for slot in pair))
    return Piece("inner and tensor products", (op.name, ring.limbs, pattern), ring.limbs * len(pairs)), _stored(total)


def _ring(node: Node) -> RingSpec:
    assert node.ring is not None
    return node.ring


def _constant(node: Node) -> bool:
    while node.op is Op.AS_RING:
        node = node.src[0]
    return node.op.name in _CONSTANTS


def _place(slot: int, ring: RingSpec) -> Node:
    place = Node(Op.SLOT, DType.U32, (), Slot(slot, (ring.limbs, ring.n)))
    axes = [Node(Op.GIDX, DType.INDEX, (), axis) for axis in (Axis("limb", ring.limbs), Axis("coefficient", ring.n))]
    return Node(Op.INDEX, DType.INDEX, (place, *axes))


def _loaded(slot: int, ring: RingSpec, domain: Domain) -> Node:
    return Node(Op.AS_RING, DType.U32, (Node(Op.LOAD, DType.U32, (_place(slot, ring),)),), (ring, domain))


def _stored(value: Node) -> Node:
    return Node(Op.STORE, DType.VOID, (_place(0, _ring(value)), value))


@contextlib.contextmanager
def _watched(device: str, name: str) -> Iterator[list[float]]:
    """The seconds of each call of a native function while the block runs; nothing is added on devices without native calls."""
    support = getattr(getattr(backend(device), "library", None), "support", None)
    seconds: list[float] = []
    if support is None:
        yield seconds
        return
    function = getattr(support, name)

    def watched(*arguments: Any) -> None:
        start = time.perf_counter()
        function(*arguments)
        seconds.append(time.perf_counter() - start)

    setattr(support, name, watched)
    try:
        yield seconds
    finally:
        setattr(support, name, function)


class Bench:
    """Kernels bound to arrays that they share. A call runs one of them, after a first run has brought its data near.

    Args:
        device: where they run.
        inside: where the seconds of native calls are found, if there are any; the way there through Python is left out then.
    """

    def __init__(self, device: str, inside: list[float]) -> None:
        self._backend, self._inside = backend(device), inside
        self._arrays: dict[tuple[int, int, int], Any] = {}
        self._random = np.random.default_rng(0)

    def bind(self, body: Node) -> Callable[[], float]:
        """A function that gives the seconds of one run of the kernel."""
        slots = sorted({node.arg for node in body.toposort() if node.op is Op.SLOT}, key=lambda slot: slot.number)
        run, arrays = self._backend.compile(body), [self._array(slot) for slot in slots]

        def seconds() -> float:
            run(*arrays)
            self._inside.clear()
            start = time.perf_counter()
            run(*arrays)
            took = time.perf_counter() - start
            return self._inside[0] if self._inside else took

        return seconds

    def _array(self, slot: Slot) -> Any:
        key = (slot.number, *slot.shape)
        if key not in self._arrays:
            self._arrays[key] = self._backend.from_host(
                self._random.integers(0, 2, slot.shape, dtype=np.uint32)  # residues of every modulus; their size is no matter
            )
        return self._arrays[key]


def account(plan: Plan, replay: Callable[[], Any], rounds: int) -> dict[str, Any]:
    """The arithmetic of a plan, its measured costs, and the measured replay; replays and single kernels alternate.

    Returns:
        `replay`: median seconds; `kernels`: how many the plan runs; `parts`: for each kind of piece `count` and `seconds`, medians
        of its kernels times how often they are needed, summed.
    """
    needed: Counter[Piece] = Counter()
    bodies: dict[Piece, Node] = {}
    for item in plan.kernels:
        for piece, body in pieces(item.ast) if item.ast is not None else ():
            needed[piece] += 1
            bodies.setdefault(piece, body)
    device = plan.kernels[0].device
    whole: list[float] = []
    with _watched(device, "invoke") as inside:
        bench = Bench(device, inside)
        calls = {piece: bench.bind(body) for piece, body in bodies.items()}
        alone: dict[Piece, list[float]] = {piece: [] for piece in calls}
        for _ in range(rounds + 1):
            replay()
            start = time.perf_counter()
            replay()
            whole.append(time.perf_counter() - start)
            for piece, call in calls.items():
                alone[piece].append(call())
    parts: dict[str, dict[str, float]] = {}
    for piece, times in needed.items():
        part = parts.setdefault(piece.kind, {"count": 0, "seconds": 0.0})
        part["count"] += times * piece.count
        part["seconds"] += times * statistics.median(alone[piece][1:])
    return {"replay": statistics.median(whole[1:]), "kernels": len(plan.kernels), "parts": parts}


def overhead(replay: Callable[[], Any], calls: int) -> dict[str, Any]:
    """What replayed calls take beyond the native call in each of them.

    Returns:
        `native`, the median, and `beyond`, minimum and median, in seconds; None where the plan is not one native call.
    """
    beyond, natives = [], []
    replay()
    with _watched("cpu", "run_plan") as inside:
        for _ in range(calls):
            inside.clear()
            start = time.perf_counter()
            result = replay()
            took = time.perf_counter() - start
            del result
            if not inside:
                return {"native": None, "beyond": None}
            natives.append(inside[0])
            beyond.append(took - inside[0])
    return {"native": statistics.median(natives), "beyond": [min(beyond), statistics.median(beyond)]}
