"""Pass 8, `lower_automorphisms`: automorphisms are index maps; conversions and rescaling are explicit arithmetic."""

from ren_lab.ir import Automorphism, DType, Match, Node, Op, rule
from ren_lab.ring import RingSpec
from ren_lab.schedule.passes import Pass, is_subset, like, restrict, without_ops


@rule(Op.AUTOMORPHISM)
def permutation(node: Node, match: Match) -> Node | None:
    """automorphism(a, g) -> permute(a, i -> index of the root that is g times root i's exponent)"""
    assert node.ring is not None
    return Node(Op.PERMUTE, DType.U32, node.src, Automorphism(node.ring.n, node.arg))


@rule(Op.TO_RING)
def base_conversion(node: Node, match: Match) -> Node | None:
    """to_ring(a, R) -> base_convert(a, R) where R has other moduli than a"""
    return None if is_subset(node) else Node(Op.BASE_CONVERT, DType.U32, node.src, node.arg)


@rule(Op.RESCALE)
def rescaling(node: Node, match: Match) -> Node | None:
    """rescale(a, D) -> (a|K - base_convert(a|D, K)) * 1/D where K are the moduli that stay"""
    a, kept = node.src[0], node.ring
    assert kept is not None
    dropped = RingSpec(kept.n, node.arg)
    lifted = Node(Op.BASE_CONVERT, DType.U32, (restrict(a, dropped),), kept)
    difference = Node(Op.SUB, DType.U32, (restrict(a, kept), lifted))
    return Node(Op.MUL, DType.U32, (difference, like(node, pow(dropped.q, -1, kept.q))))


PASS = Pass(
    "lower_automorphisms",
    rules=(permutation, base_conversion, rescaling),
    gives=(without_ops(Op.AUTOMORPHISM, Op.RESCALE),),
)
