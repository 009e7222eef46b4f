"""Pass 3, `inject_domains`: every operand stands in the domain that its user needs."""

from ren_lab.ir import DType, Match, Node, Op, is_const, is_scalar, rule
from ren_lab.options import Options
from ren_lab.ring import Domain, RingSpec
from ren_lab.schedule.passes import Invariant, Pass, in_domain, is_subset, like, restrict


def _with_operands_in(node: Node, domain: Domain | None) -> Node | None:
    src = tuple(in_domain(s, domain) for s in node.src)
    return None if src == node.src else node.with_src(src)


@rule(Op.ADD, Op.SUB)
def sum_in_one_domain(node: Node, match: Match) -> Node | None:
    """a + b -> NTT(a) + b where b is in the NTT domain"""
    return _with_operands_in(node, node.domain)


@rule(Op.MUL)
def product_in_ntt(node: Node, match: Match) -> Node | None:
    """a * b -> NTT(a) * NTT(b);  a * c -> a * c in a's domain"""
    return _with_operands_in(node, node.domain)


@rule(Op.AUTOMORPHISM)
def automorphism_in_ntt(node: Node, match: Match) -> Node | None:
    """automorphism(a, g) -> automorphism(NTT(a), g)"""
    return _with_operands_in(node, Domain.NTT)


@rule(Op.TO_RING)
def conversion_of_coefficients(node: Node, match: Match) -> Node | None:
    """to_ring(a, R) -> to_ring(INTT(a), R) where R has other moduli than a"""
    return None if is_subset(node) else _with_operands_in(node, Domain.COEFF)


@rule(Op.RESCALE)
def rescale_of_transformed(node: Node, match: Match) -> Node | None:
    """rescale(a, D) -> (a|K - NTT(to_ring(INTT(a|D), K))) * 1/D, or NTT(rescale(INTT(a), D)) where its users want coefficients"""
    a = node.src[0]
    if a.domain is not Domain.NTT:
        return None
    assert a.ring is not None and node.ring is not None
    if match.original in match.facts:
        return in_domain(Node(Op.RESCALE, DType.U32, (in_domain(a, Domain.COEFF),), node.arg), Domain.NTT)
    kept, dropped = node.ring, RingSpec(a.ring.n, node.arg)
    remainder = in_domain(restrict(a, dropped), Domain.COEFF)
    lifted = in_domain(Node(Op.TO_RING, DType.U32, (remainder,), kept), Domain.NTT)
    difference = Node(Op.SUB, DType.U32, (restrict(a, kept), lifted))
    return Node(Op.MUL, DType.U32, (difference, like(difference, pow(dropped.q, -1, kept.q))))


def rescales_wanted_in_coefficients(graph: Node, options: Options) -> frozenset[Node]:
    """The RESCALE nodes all of whose users need coefficients."""
    wanted: dict[Node, bool] = {}
    for node in graph.toposort():
        for source in node.src:
            if source.op is Op.RESCALE:
                coefficients = node.op is Op.INTT or node.op is Op.TO_RING and not is_subset(node)
                wanted[source] = wanted.get(source, True) and coefficients
    return frozenset(node for node, yes in wanted.items() if yes)


def _operands(node: Node) -> str | None:
    domains = [s.domain for s in node.src if not is_const(s)]
    match node.op:
        case Op.ADD | Op.SUB if len(set(domains)) > 1:
            return "a sum has operands in two domains"
        case Op.MUL if not any(map(is_scalar, node.src)) and node.ring is not None and set(domains) != {Domain.NTT}:
            return "a product has an operand outside the NTT domain"
        case Op.AUTOMORPHISM if domains != [Domain.NTT]:
            return "an automorphism has its operand outside the NTT domain"
        case Op.TO_RING if not is_subset(node) and domains != [Domain.COEFF]:
            return "a conversion has its operand outside the coefficient domain"
        case Op.RESCALE | Op.NTT if domains != [Domain.COEFF]:
            return f"{node.op.name} has its operand outside the coefficient domain"
        case Op.INTT if domains != [Domain.NTT]:
            return "INTT has its operand outside the NTT domain"
    return None


operands_in_domain = Invariant("each operand stands in the domain its user needs", _operands)

PASS = Pass(
    "inject_domains",
    rules=(sum_in_one_domain, product_in_ntt, automorphism_in_ntt, conversion_of_coefficients, rescale_of_transformed),
    prepare=rescales_wanted_in_coefficients,
    gives=(operands_in_domain,),
)
