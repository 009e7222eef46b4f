"""Pass 2, `lower_ring_ops`: rotations and the conjugation become automorphisms with their Galois elements."""

from ren_lab.ir import DType, Match, Node, Op, rule
from ren_lab.ring import galois_element
from ren_lab.schedule.passes import Pass, in_domain, without_ops


def _galois(node: Node, element: int) -> Node:
    return Node(Op.AUTOMORPHISM, DType.U32, (node,), element)


@rule(Op.ROTATE)
def rotation(node: Node, match: Match) -> Node | None:
    """rotate(a, k) -> automorphism(a, 5^k mod 2n)"""
    assert node.ring is not None
    return _galois(node.src[0], galois_element(node.arg, node.ring.n))


@rule(Op.CONJUGATE)
def conjugation(node: Node, match: Match) -> Node | None:
    """conjugate(a) -> automorphism(a, 2n - 1)"""
    assert node.ring is not None
    return _galois(node.src[0], 2 * node.ring.n - 1)


@rule(Op.AUTOMORPHISM)
def automorphisms_compose(node: Node, match: Match) -> Node | None:
    """automorphism(automorphism(a, g), h) -> automorphism(a, g*h mod 2n);  automorphism(a, 1) -> a"""
    a = node.src[0]
    assert node.ring is not None
    if node.arg == 1:
        return in_domain(a, node.domain)
    return _galois(a.src[0], a.arg * node.arg % (2 * node.ring.n)) if a.op is Op.AUTOMORPHISM else None


PASS = Pass(
    "lower_ring_ops",
    rules=(rotation, conjugation, automorphisms_compose),
    gives=(without_ops(Op.ROTATE, Op.CONJUGATE),),
)
