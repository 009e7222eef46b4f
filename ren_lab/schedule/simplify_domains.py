"""Pass 4, `simplify_domains`: no transform undoes another, and transforms stand where fewest are needed.

T stands for NTT or INTT and T' for its inverse. Equal transforms of one value are one node already.
"""

from ren_lab.ir import DType, Match, Node, Op, is_const, rule
from ren_lab.schedule.passes import Invariant, Pass, in_domain, transform

_INVERSE = {Op.NTT: Op.INTT, Op.INTT: Op.NTT}


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


@rule(Op.ADD, Op.SUB)
def sum_of_transforms(node: Node, match: Match) -> Node | None:
    """T(a) + T(b) -> T(a + b) where neither transform serves anybody else"""
    a, b = node.src
    if a.op is b.op and a.op in _INVERSE and a is not b and match.uses(a) <= 1 and match.uses(b) <= 1:
        return transform(a.op, Node(node.op, DType.U32, (a.src[0], b.src[0])))
    return None


def _round_trip(node: Node) -> str | None:
    if node.op in _INVERSE and node.src[0].op is _INVERSE[node.op]:
        return f"{node.op.name} undoes {node.src[0].op.name}"
    return None


no_round_trips = Invariant("no NTT(INTT(x)) and no INTT(NTT(x))", _round_trip)

PASS = Pass(
    "simplify_domains",
    rules=(transform_of_inverse, transform_of_multiple, transform_of_sum, sum_of_transforms),
    count_uses=True,
    gives=(no_round_trips,),
)
