"""Pass 9, `lower_constants`: ring constants are explicit coefficient or NTT expressions.

`residues(c)` has the Montgomery residues of c at every coefficient; in the NTT domain that is the constant c, and as a factor
it is c in either domain. `impulse(residues(c))` has them at coefficient 0 and zero elsewhere: the constant c in coefficients.
"""

from ren_lab.ir import DType, Match, Node, Op, const_value, is_const, rule
from ren_lab.ring import Domain, residues
from ren_lab.schedule.passes import Invariant, Pass


def _residues(node: Node) -> Node:
    assert node.ring is not None
    return Node(Op.RESIDUES, DType.U32, (), residues(const_value(node), node.ring))


def _value(node: Node) -> Node:
    """The explicit expression of a constant as a summand."""
    body = _residues(node)
    if node.domain is Domain.COEFF:
        body = Node(Op.IMPULSE, DType.U32, (body,))
    return Node(Op.AS_RING, DType.U32, (body,), (node.ring, node.domain))


@rule(Op.MUL)
def double(node: Node, match: Match) -> Node | None:
    """a * 2 -> a + a"""
    a, b = node.src
    return Node(Op.ADD, DType.U32, (a, a)) if is_const(b) and const_value(b) == 2 and not is_const(a) else None


@rule(Op.MUL)
def constant_factor(node: Node, match: Match) -> Node | None:
    """a * c -> a * residues(c)"""
    a, b = node.src
    if not is_const(b):
        return None
    return node.with_src((a, Node(Op.AS_RING, DType.U32, (_residues(b),), (b.ring, b.domain))))


@rule(Op.MUL)
def factor_of_inverse(node: Node, match: Match) -> Node | None:
    """INTT(a) * residues(c) -> INTT(a, c), whose last step multiplies by c/n instead of 1/n"""
    a, b = node.src
    if a.op is not Op.INTT or a.arg is not None or b.op is not Op.AS_RING or b.src[0].op is not Op.RESIDUES:
        return None
    return Node(Op.INTT, DType.U32, a.src, b.src[0].arg)


@rule(Op.ADD, Op.SUB, Op.STORE)
def constant_summand(node: Node, match: Match) -> Node | None:
    """a + c -> a + residues(c) in the NTT domain;  a + c -> a + impulse(residues(c)) in coefficients"""
    if not any(map(is_const, node.src)):
        return None
    return node.with_src(tuple(_value(s) if is_const(s) else s for s in node.src))


def _symbolic(node: Node) -> str | None:
    if node.op is Op.SINK:  # an output that is a constant stays one and is never computed
        return None
    return f"{node.op.name} has a symbolic constant" if any(map(is_const, node.src)) else None


explicit_constants = Invariant("only outputs are symbolic constants", _symbolic)

PASS = Pass("lower_constants", rules=(double, constant_factor, factor_of_inverse, constant_summand), gives=(explicit_constants,))
