"""Pass 8, `lower_automorphisms`: automorphisms are index maps; conversions, rescaling and reductions are explicit arithmetic."""

from ren_lab.ir import Automorphism, DType, Match, Node, Op, is_scalar, rule
from ren_lab.ring import R, RingSpec
from ren_lab.schedule.passes import Pass, is_subset, like, restrict, without_ops


@rule(Op.AUTOMORPHISM)
def permutation(node: Node, match: Match) -> Node | None:
    """automorphism(a, g) -> permute(a, i -> index of the root that is g times root i's exponent)"""
    assert node.ring is not None
    return Node(Op.PERMUTE, DType.U32, node.src, Automorphism(node.ring.n, node.arg))


@rule(Op.TO_RING)
def lift_of_transformed(node: Node, match: Match) -> Node | None:
    """to_ring(after(b, store(b, INTT(a))), R) -> lift(after(b, store(b, INTT(a) * (Q/p)^-1 / 2^32)), R) where nobody else reads b
    and R has other moduli than a"""
    held = node.src[0]
    if is_subset(node) or held.op is not Op.AS_RING or held.src[0].op is not Op.AFTER:
        return None
    after = held.src[0]
    target, store = after.src
    if store.op is not Op.STORE or store.src[1].op is not Op.INTT or any(match.uses(n) > 1 for n in (held, after, store)):
        return None
    ring, value = held.ring, store.src[1]
    assert ring is not None
    # the integer that is (Q/p)^-1 / R modulo each p: what is stored are the residues of a * (Q/p)^-1, out of Montgomery form
    factor = sum((ring.q // p) * pow((ring.q // p) ** 2 * R, -1, p) for p in ring.moduli)
    scaled = Node(Op.MUL, DType.U32, (value, like(value, factor)))
    filled = after.with_src((target, store.with_src((target, scaled))))
    return Node(Op.LIFT, DType.U32, (held.with_src((filled,)),), node.arg)


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


_MOST_PRODUCTS = 16  # of one sum: what 64 bits hold of products below 2^60


def _products(node: Node, match: Match) -> tuple[Node, ...] | None:
    """The factors of a sum of products that nobody else uses."""
    if match.uses(node) > 1:
        return None
    if node.op is Op.DOT or node.op is Op.MUL and not any(map(is_scalar, node.src)):
        return node.src
    return None


@rule(Op.ADD)
def sum_of_products(node: Node, match: Match) -> Node | None:
    """a*b + c*d -> dot(a, b, c, d), which is reduced once;  dot(a, b, …) + c*d -> dot(a, b, …, c, d)"""
    factors: tuple[Node, ...] = ()
    for source in node.src:
        found = _products(source, match)
        if found is None or len(factors) + len(found) > 2 * _MOST_PRODUCTS:
            return None
        factors += found
    return Node(Op.DOT, DType.U32, factors)


PASS = Pass(
    "lower_automorphisms",
    rules=(permutation, lift_of_transformed, base_conversion, rescaling, sum_of_products),
    count_uses=True,
    gives=(without_ops(Op.AUTOMORPHISM, Op.RESCALE),),
)
