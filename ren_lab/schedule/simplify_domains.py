"""Pass 4, `simplify_domains`: no transform undoes another, and transforms stand where fewest are needed.

T stands for NTT or INTT and T' for its inverse. Equal transforms of one value are one node already.
"""

from ren_lab.ir import ELEMENTWISE, DType, Match, Node, Op, is_const, rule
from ren_lab.options import Options
from ren_lab.ring import RingSpec
from ren_lab.schedule.passes import Invariant, Pass, in_domain, is_subset, restrict, transform

_INVERSE = {Op.NTT: Op.INTT, Op.INTT: Op.NTT}
_NOT_LINEAR = frozenset(Op) - ELEMENTWISE
_MOST_KNOWN = 16  # operands and operations that are worth doing again to save a transform


@rule(Op.NTT, Op.INTT)
def transform_of_inverse(node: Node, match: Match) -> Node | None:
    """T(T'(a)) -> a;  T(c) -> c"""
    a = node.src[0]
    if a.op is _INVERSE[node.op]:
        return a.src[0]
    return in_domain(a, node.domain) if is_const(a) else None


@rule(Op.NTT, Op.INTT)
def transform_of_multiple(node: Node, match: Match) -> Node | None:
    """T(T'(a) * c) -> a * c;  T(-T'(a)) -> -a"""
    a = node.src[0]
    if a.op not in (Op.MUL, Op.NEG) or a.src[0].op is not _INVERSE[node.op]:
        return None
    if a.op is Op.NEG:
        return a.with_src((a.src[0].src[0],))
    return a.with_src((a.src[0].src[0], in_domain(a.src[1], node.domain))) if is_const(a.src[1]) else None


@rule(Op.NTT, Op.INTT)
def transform_of_sum(node: Node, match: Match) -> Node | None:
    """T(T'(a) + b) -> a + T(b) where b is constant or transformed, or where T'(a) serves nobody else"""
    total = node.src[0]
    if total.op not in (Op.ADD, Op.SUB):
        return None
    inverse = _INVERSE[node.op]
    held = [s.op is inverse for s in total.src]
    if not any(held):
        return None
    free = all(h or is_const(s) for h, s in zip(held, total.src, strict=True))
    alone = match.uses(total) <= 1 and any(h and match.uses(s) <= 1 for h, s in zip(held, total.src, strict=True))
    if not (free or alone):
        return None
    return total.with_src(tuple(in_domain(s, node.domain) for s in total.src))


@rule(Op.NTT, Op.INTT)
def transform_of_selection(node: Node, match: Match) -> Node | None:
    """T(a|S) -> T(a|R)|S where T(a|R) is computed anyway and R contains S"""
    base = _unselected(node.src[0])
    assert node.ring is not None
    wider = [r for r in match.facts.get((node.op, base), ()) if r.limbs > node.ring.limbs and r.contains(node.ring)]
    if not wider:
        return None
    return restrict(transform(node.op, restrict(base, max(wider, key=lambda r: r.limbs))), node.ring)


@rule(Op.NTT)
def transform_of_lift(node: Node, match: Match) -> Node | None:
    """NTT(to_ring(INTT(a), R)) -> join(a|S, NTT(to_ring(INTT(a), R - S))) where S are the moduli of R that a has"""
    lifted = node.src[0]
    if lifted.op is not Op.TO_RING or is_subset(lifted) or lifted.src[0].op is not Op.INTT:
        return None
    coefficients, ring = lifted.src[0], lifted.arg
    a = coefficients.src[0]
    assert a.ring is not None
    known = set(a.ring.moduli)
    kept = tuple(p for p in ring.moduli if p in known)
    if not kept:
        return None
    rest = Node(Op.TO_RING, DType.U32, (coefficients,), ring.without(kept))
    at_hand = restrict(a, RingSpec(ring.n, kept))
    return Node(Op.JOIN, DType.U32, (at_hand, Node(Op.NTT, DType.U32, (rest,))), ring)


@rule(Op.NTT, Op.INTT)
def transform_of_known(node: Node, match: Match) -> Node | None:
    """T(a*c + b - d) -> T(a)*c + T(b) - d where T(a) and T(b) are computed anyway"""
    total = node.src[0]
    if total.op not in ELEMENTWISE:
        return None
    done: dict[Node, Node] = {}
    for inner in total.toposort(stop=_NOT_LINEAR):
        known = None if inner is total else Node(node.op, DType.U32, (inner,)) if inner.domain is total.domain else None
        if is_const(inner):
            done[inner] = in_domain(inner, node.domain)
        elif known is not None and match.uses(known):
            done[inner] = known
        elif inner.op in ELEMENTWISE and all(s in done for s in inner.src) and (inner.op is not Op.MUL or is_const(inner.src[1])):
            done[inner] = inner.with_src(tuple(done[s] for s in inner.src))
        if len(done) > _MOST_KNOWN:
            return None
    if total not in done:
        return None
    for known in done.values():
        if known.op is node.op:
            match.count_use(known)
    return done[total]


@rule(Op.ADD, Op.SUB)
def sum_of_transforms(node: Node, match: Match) -> Node | None:
    """T(a) + T(b) -> T(a + b) where neither transform serves anybody else"""
    a, b = node.src
    if a.op is b.op and a.op in _INVERSE and a is not b and match.uses(a) <= 1 and match.uses(b) <= 1:
        for gone in (a, b):
            match.count_use(gone, -1)
        return transform(a.op, Node(node.op, DType.U32, (a.src[0], b.src[0])))
    return None


def _unselected(node: Node) -> Node:
    """What a selection of limbs takes them from; the node itself if it is none."""
    return node.src[0] if node.op is Op.TO_RING and is_subset(node) else node


def transformed_rings(graph: Node, options: Options) -> dict[tuple[Op, Node], list[RingSpec]]:
    """For each value that is transformed, in whole or for some of its limbs, the rings in which it is."""
    rings: dict[tuple[Op, Node], list[RingSpec]] = {}
    for node in graph.toposort():
        if node.op in _INVERSE and node.ring is not None:
            rings.setdefault((node.op, _unselected(node.src[0])), []).append(node.ring)
    return {key: found for key, found in rings.items() if len(found) > 1}


def _round_trip(node: Node) -> str | None:
    if node.op in _INVERSE and node.src[0].op is _INVERSE[node.op]:
        return f"{node.op.name} undoes {node.src[0].op.name}"
    return None


no_round_trips = Invariant("no NTT(INTT(x)) and no INTT(NTT(x))", _round_trip)

PASS = Pass(
    "simplify_domains",
    rules=(
        transform_of_inverse,
        transform_of_multiple,
        transform_of_sum,
        transform_of_selection,
        transform_of_lift,
        transform_of_known,
        sum_of_transforms,
    ),
    prepare=transformed_rings,
    count_uses=True,
    gives=(no_round_trips,),
)
