"""Pass 1, `simplify`: algebraic identities, ring rules, constant folding and copy elimination, to a fixed point.

Every rule keeps the ring and the domain of the value it replaces. A capital letter is a set of moduli; `a|S` are the
residues of `a` modulo those of S; `c`, `d` are constants.
"""

from ren_lab.ir import DType, LimbSelect, Match, Node, Op, const, const_value, is_const, rule, storage
from ren_lab.ring import RingSpec, convert_scalar
from ren_lab.schedule.passes import Pass, in_domain, is_subset, like, restrict


def _value(node: Node) -> int | None:
    return const_value(node) if is_const(node) else None


def _u32(op: Op, *src: Node, arg: object = None) -> Node:
    return Node(op, DType.U32, src, arg)


@rule(Op.ADD, Op.SUB, Op.MUL, Op.NEG)
def fold_constants(node: Node, match: Match) -> Node | None:
    """f(c, d) -> the constant f(c, d)"""
    if not all(map(is_const, node.src)):
        return None
    values = [const_value(s) for s in node.src]
    match node.op:
        case Op.ADD:
            value = values[0] + values[1]
        case Op.SUB:
            value = values[0] - values[1]
        case Op.MUL:
            value = values[0] * values[1]
        case _:
            value = -values[0]
    return like(node, value)


@rule(Op.NTT, Op.INTT, Op.ROTATE, Op.CONJUGATE, Op.AUTOMORPHISM)
def constant_is_fixed(node: Node, match: Match) -> Node | None:
    """f(c) -> c for a transform or an automorphism f"""
    return like(node, const_value(node.src[0])) if is_const(node.src[0]) else None


@rule(Op.ADD, Op.MUL)
def constant_right(node: Node, match: Match) -> Node | None:
    """c + a -> a + c;  c * a -> a * c"""
    a, b = node.src
    return _u32(node.op, b, a) if is_const(a) and not is_const(b) else None


@rule(Op.ADD)
def add_zero(node: Node, match: Match) -> Node | None:
    """a + 0 -> a"""
    return node.src[0] if _value(node.src[1]) == 0 else None


@rule(Op.SUB)
def sub_constant(node: Node, match: Match) -> Node | None:
    """a - c -> a + (-c);  c - a -> (-a) + c"""
    a, b = node.src
    if is_const(b):
        return _u32(Op.ADD, a, like(b, -const_value(b)))
    if is_const(a):
        return _u32(Op.ADD, _u32(Op.NEG, b), a)
    return None


@rule(Op.MUL)
def mul_unit(node: Node, match: Match) -> Node | None:
    """a * 0 -> 0;  a * 1 -> a;  a * -1 -> -a"""
    a, b = node.src
    value = _value(b)
    if value is None:
        return None
    if value == 0:
        return like(node, 0)
    if value == 1:
        return a
    return _u32(Op.NEG, a) if node.ring is not None and value == node.ring.q - 1 else None


@rule(Op.ADD)
def gather_constants(node: Node, match: Match) -> Node | None:
    """(a + c) + d -> a + (c + d);  (a + c) + b -> (a + b) + c"""
    a, b = node.src
    if a.op is Op.ADD and is_const(a.src[1]):
        if is_const(b):
            return _u32(Op.ADD, a.src[0], like(b, const_value(a.src[1]) + const_value(b)))
        if match.uses(a) <= 1:
            return _u32(Op.ADD, _u32(Op.ADD, a.src[0], b), a.src[1])
    return None


@rule(Op.MUL)
def gather_factors(node: Node, match: Match) -> Node | None:
    """(a * c) * d -> a * (c * d);  (-a) * c -> a * (-c)"""
    a, b = node.src
    if not is_const(b):
        return None
    if a.op is Op.MUL and is_const(a.src[1]):
        return _u32(Op.MUL, a.src[0], like(b, const_value(a.src[1]) * const_value(b)))
    if a.op is Op.NEG:
        return _u32(Op.MUL, a.src[0], like(b, -const_value(b)))
    return None


def _term(node: Node) -> tuple[Node, int]:
    """Write a node as base * factor."""
    if node.op is Op.MUL and is_const(node.src[1]):
        return node.src[0], const_value(node.src[1])
    return node, 1


@rule(Op.ADD, Op.SUB)
def collect_terms(node: Node, match: Match) -> Node | None:
    """a*c + a*d -> a * (c + d);  a*c - a*d -> a * (c - d)"""
    (a, c), (b, d) = map(_term, node.src)
    if a is not b:
        return None
    value = c + d if node.op is Op.ADD else c - d
    assert node.ring is not None
    return like(node, 0) if value % node.ring.q == 0 else _u32(Op.MUL, a, like(a, value))


@rule(Op.NEG)
def neg_inward(node: Node, match: Match) -> Node | None:
    """-(-a) -> a;  -(a - b) -> b - a;  -(a * c) -> a * (-c)"""
    a = node.src[0]
    if a.op is Op.NEG:
        return a.src[0]
    if a.op is Op.SUB:
        return _u32(Op.SUB, a.src[1], a.src[0])
    if a.op is Op.MUL and is_const(a.src[1]):
        return _u32(Op.MUL, a.src[0], like(a.src[1], -const_value(a.src[1])))
    return None


@rule(Op.ADD, Op.SUB)
def sum_of_negative(node: Node, match: Match) -> Node | None:
    """a + (-b) -> a - b;  (-a) + b -> b - a;  a - (-b) -> a + b"""
    a, b = node.src
    if b.op is Op.NEG:
        return _u32(Op.SUB if node.op is Op.ADD else Op.ADD, a, b.src[0])
    if node.op is Op.ADD and a.op is Op.NEG and not is_const(b):
        return _u32(Op.SUB, b, a.src[0])
    return None


@rule(Op.MUL)
def product_of_negatives(node: Node, match: Match) -> Node | None:
    """(-a) * (-b) -> a * b"""
    a, b = node.src
    return _u32(Op.MUL, a.src[0], b.src[0]) if a.op is Op.NEG and b.op is Op.NEG else None


@rule(Op.ROTATE)
def rotations_compose(node: Node, match: Match) -> Node | None:
    """rotate(rotate(a, j), k) -> rotate(a, j + k);  rotate(a, 0) -> a"""
    a = node.src[0]
    assert node.ring is not None
    period = max(node.ring.n // 2, 1)
    if node.arg % period == 0:
        return in_domain(a, node.domain)
    if a.op is Op.ROTATE:
        return _u32(Op.ROTATE, a.src[0], arg=(a.arg + node.arg) % period)
    return None


@rule(Op.CONJUGATE)
def conjugate_twice(node: Node, match: Match) -> Node | None:
    """conjugate(conjugate(a)) -> a"""
    a = node.src[0]
    return in_domain(a.src[0], node.domain) if a.op is Op.CONJUGATE else None


@rule(Op.TO_RING)
def same_ring(node: Node, match: Match) -> Node | None:
    """to_ring(a, its own ring) -> a"""
    return node.src[0] if node.src[0].ring == node.arg else None


@rule(Op.TO_RING)
def ring_of_constant(node: Node, match: Match) -> Node | None:
    """to_ring(c, R) -> the constant c lifted into R"""
    a = node.src[0]
    if not is_const(a):
        return None
    assert a.ring is not None
    value = const_value(a)
    return like(node, value if a.ring.contains(node.arg) else convert_scalar(value, a.ring, node.arg))


@rule(Op.RESCALE)
def rescale_constant(node: Node, match: Match) -> Node | None:
    """rescale(c, D) -> the constant (c - lift(c mod D)) / D"""
    a = node.src[0]
    if not is_const(a):
        return None
    assert a.ring is not None and node.ring is not None
    dropped = RingSpec(a.ring.n, node.arg)
    value = const_value(a)
    lift = convert_scalar(value % dropped.q, dropped, node.ring)
    return like(node, (value - lift) * pow(dropped.q, -1, node.ring.q))


@rule(Op.TO_RING)
def select_early(node: Node, match: Match) -> Node | None:
    """f(a, b)|S -> f(a|S, b|S);  to_ring(a, R)|S -> to_ring(a, S);  rescale(a, D)|S -> rescale(a|S+D, D), if used once"""
    a, ring = node.src[0], node.arg
    if not is_subset(node) or match.uses(a) > 1:
        return None
    match a.op:
        case Op.ADD | Op.SUB | Op.MUL | Op.NEG | Op.NTT | Op.INTT | Op.ROTATE | Op.CONJUGATE:
            return a.with_src(tuple(restrict(s, ring) for s in a.src))
        case Op.TO_RNS:
            return _u32(Op.TO_RNS, *a.src, arg=(ring, a.arg[1]))
        case Op.RESCALE:
            source = RingSpec(ring.n, ring.moduli + a.arg)
            return _u32(Op.RESCALE, restrict(a.src[0], source), arg=a.arg)
        case Op.TO_RING:
            inner = a.src[0]
            if is_subset(a) or inner.ring is None or not inner.ring.contains(ring):
                return _u32(Op.TO_RING, inner, arg=ring)
    return None


@rule(Op.MUL)
def multiple_of_lift(node: Node, match: Match) -> Node | None:
    """to_ring(a, R) * c -> (limbs of a in R's places) * c where c is 0 modulo every modulus that R adds"""
    lifted, c = node.src
    if lifted.op is not Op.TO_RING or not is_const(c):
        return None
    a, ring = lifted.src[0], lifted.arg
    if a.ring is None or not ring.contains(a.ring) or any(const_value(c) % p for p in ring.moduli if p not in a.ring.moduli):
        return None
    # what stands in the added limbs does not matter: it is multiplied by 0
    own = {p: i for i, p in enumerate(a.ring.moduli)}
    placed = _u32(Op.PERMUTE, a, arg=LimbSelect(ring, tuple([own.get(p, 0) for p in ring.moduli])))
    return in_domain(_u32(Op.MUL, placed, like(placed, const_value(c))), node.domain)


@rule(Op.COPY)
def needless_copy(node: Node, match: Match) -> Node | None:
    """copy(a, its own device) -> a;  copy(copy(a, d), e) -> copy(a, e);  copy(c, d) -> c"""
    a = node.src[0]
    if is_const(a):
        assert a.ring is not None and a.domain is not None
        return const(const_value(a), a.ring, a.domain, node.arg)
    if a.device == node.arg:
        return a
    return _u32(Op.COPY, a.src[0], arg=node.arg) if a.op is Op.COPY else None


@rule(Op.CONTIGUOUS)
def needless_contiguous(node: Node, match: Match) -> Node | None:
    """contiguous(a) -> a where a is a buffer of its own already;  contiguous(contiguous(a)) -> contiguous(a)"""
    a = node.src[0]
    if a.op is Op.CONTIGUOUS:
        return _u32(Op.CONTIGUOUS, a.src[0], arg=a.arg or node.arg)
    held = storage(a)
    if held is not None and held.op is Op.BUFFER and held.arg.pinned >= node.arg:
        return a
    return None


PASS = Pass(
    "simplify",
    rules=(
        fold_constants, constant_is_fixed, constant_right, add_zero, sub_constant, mul_unit, gather_constants, gather_factors,
        collect_terms, neg_inward, sum_of_negative, product_of_negatives, rotations_compose, conjugate_twice, same_ring,
        ring_of_constant, rescale_constant, select_early, multiple_of_lift, needless_copy, needless_contiguous,
    ),
    count_uses=True,
)  # fmt: skip
