"""What a pass is, and small building blocks that several passes share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ren_lab.ir import DType, LimbSelect, Match, Node, Op, Rule, const, const_value, in_domain, is_const, transform
from ren_lab.options import Options
from ren_lab.ring import RingSpec


@dataclass(frozen=True, slots=True)
class Invariant:
    """A statement about single nodes: `broken(node)` says what is wrong with a node, or None."""

    statement: str
    broken: Callable[[Node], str | None]


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of the compilation, as data.

    Attributes:
        name: the public name.
        rules: the rewrites, in order of preference.
        prepare: computes facts of the whole graph that the rules ask for as `match.facts`.
        count_uses: the rules ask how often a node is used.
        once: the rules' answers are final, not rewritten again.
        gives: what holds after the pass.
        ends: invariants of earlier passes, by statement, that stop to hold here.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    prepare: Callable[[Node, Options], Any] | None = None
    count_uses: bool = False
    once: bool = False
    gives: tuple[Invariant, ...] = ()
    ends: tuple[Invariant, ...] = ()


def without_ops(*ops: Op) -> Invariant:
    """No node of these operations is left."""
    names = ", ".join(op.name for op in ops)
    gone = frozenset(ops)
    return Invariant(f"no {names}", lambda node: f"{node.op.name} is left" if node.op in gone else None)


def like(node: Node, value: int) -> Node:
    """The constant `value` in the ring, the domain and on the device of a node."""
    assert node.ring is not None and node.domain is not None and node.device is not None
    return const(value, node.ring, node.domain, node.device)


def restrict(node: Node, ring: RingSpec) -> Node:
    """The residues of a node modulo some of its moduli; those of a constant at once, so that it stays one."""
    if node.ring == ring:
        return node
    assert node.ring is not None and node.domain is not None
    if is_const(node):
        return const(const_value(node), ring, node.domain, node.device or "python")
    if node.op is Op.AS_RING and node.src[0].op in (Op.RESIDUES, Op.IMPULSE):
        body = node.src[0]
        values = body.src[0] if body.op is Op.IMPULSE else body
        chosen = Node(Op.RESIDUES, DType.U32, (), tuple(values.arg[i] for i in node.ring.limb_indices(ring)))
        return Node(Op.AS_RING, DType.U32, (body.with_src((chosen,)) if body.op is Op.IMPULSE else chosen,), (ring, node.domain))
    return Node(Op.TO_RING, DType.U32, (node,), ring)


def is_subset(node: Node) -> bool:
    """Whether a TO_RING only selects limbs."""
    source = node.src[0].ring
    return source is not None and source.contains(node.arg)


def limb_select(source: RingSpec, target: RingSpec) -> LimbSelect:
    """The index map that takes `target`'s limbs out of `source`."""
    return LimbSelect(target, source.limb_indices(target))


__all__ = ["Invariant", "Match", "Pass", "in_domain", "is_subset", "like", "limb_select", "restrict", "transform", "without_ops"]
