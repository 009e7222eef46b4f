"""Pass 11, `indexify`: what a STORE computes is written with GIDX, INDEX and LOAD; a PERMUTE is part of an index.

A kernel runs over (limb, coefficient). NTT and INTT work on whole rows and conversions on whole columns of what stands under
them; operands of a conversion or a JOIN have limb axes of their own.
"""

from ren_lab.ir import ELEMENTWISE, Axis, Const, DType, LimbSelect, Match, Node, Op, rule, shape_of, storage
from ren_lab.schedule.passes import Invariant, Pass


def _axis(name: str, extent: int) -> Node:
    return Node(Op.GIDX, DType.INDEX, (), Axis(name, extent))


def _position(value: int) -> Node:
    return Node(Op.CONST, DType.INDEX, (), Const(value, ""))


def _load(node: Node, row: Node, column: Node) -> Node:
    """The element of a buffer, or of a window of one, at (row, column)."""
    held = storage(node)
    assert held is not None
    if held.op is Op.BUFFER_VIEW:
        base = held.src[0]
        first = held.arg.offset // held.arg.shape[1]
        if first:
            row = Node(Op.ADD, DType.INDEX, (row, _position(first)))
    else:
        base = node.src[0] if node.op is Op.AS_RING else node
    load = Node(Op.LOAD, DType.U32, (Node(Op.INDEX, DType.INDEX, (base, row, column)),))
    return load if node.ring is None else Node(Op.AS_RING, DType.U32, (load,), (node.ring, node.domain))


_Place = tuple[Node, Node, Node]  # a value and the row and column at which it is wanted


def _operands(value: Node, row: Node, column: Node) -> tuple[_Place, ...]:
    """Where a value wants its operands."""
    if value.op in ELEMENTWISE or value.op in (Op.NTT, Op.INTT):
        return tuple((s, row, column) for s in value.src)
    if value.op is Op.PERMUTE and isinstance(value.arg, LimbSelect):
        return ((value.src[0], Node(Op.PERMUTE, DType.INDEX, (row,), value.arg), column),)
    if value.op is Op.PERMUTE:
        return ((value.src[0], row, Node(Op.PERMUTE, DType.INDEX, (column,), value.arg)),)
    if value.op is Op.JOIN:
        return tuple((s, _axis("limb", shape_of(s)[0]), column) for s in value.src)
    if value.op in (Op.BASE_CONVERT, Op.LIFT):
        return ((value.src[0], _axis("limb", shape_of(value.src[0])[0]), column),)
    if value.op is Op.TO_RNS:
        return ((value.src[0], _axis("word", shape_of(value.src[0])[0]), column),)
    return ()


def indexed(value: Node, row: Node, column: Node) -> Node:
    """The value at (row, column), in terms of loads."""
    done: dict[_Place, Node] = {}
    stack: list[_Place] = [(value, row, column)]
    while stack:
        place = stack[-1]
        node, i, j = place
        if place in done:
            stack.pop()
            continue
        if storage(node) is not None:
            done[place] = _load(node, i, j)
            continue
        operands = _operands(node, i, j)
        pending = [p for p in operands if p not in done]
        if pending:
            stack.extend(reversed(pending))
        elif node.op is Op.PERMUTE:
            body = done[operands[0]]
            if isinstance(node.arg, LimbSelect):  # a load of some limbs of a buffer is in the smaller ring
                body = Node(Op.AS_RING, DType.U32, body.src, (node.ring, node.domain))
            done[place] = body
        elif operands:
            done[place] = node.with_src(tuple([done[p] for p in operands]))
        elif node.op is Op.AS_RING and node.src[0].op is Op.IMPULSE:
            at_zero = Node(Op.EQ, DType.BOOL, (j, _position(0)))
            body = Node(Op.WHERE, DType.U32, (at_zero, node.src[0].src[0]))
            done[place] = Node(Op.AS_RING, DType.U32, (body,), node.arg)
        else:  # RESIDUES and RANDOM depend on no other element
            done[place] = node
    return done[value, row, column]


@rule(Op.STORE)
def elementwise(node: Node, match: Match) -> Node | None:
    """store(b, f(a, …)) -> store(index(b, i, j), f(load(index(a, i', j')), …))"""
    target, value = node.src
    if value.op is Op.COPY or target.op is Op.INDEX:
        return None
    limbs, n = target.arg.shape
    row, column = _axis("limb", limbs), _axis("coefficient", n)
    place = Node(Op.INDEX, DType.INDEX, (target, row, column))
    return Node(Op.STORE, DType.VOID, (place, indexed(value, row, column)))


def _unindexed(node: Node) -> str | None:
    if node.op is Op.STORE and node.src[1].op is not Op.COPY and node.src[0].op is not Op.INDEX:
        return "a STORE has no INDEX"
    if node.op is Op.PERMUTE and node.dtype is not DType.INDEX:
        return "a PERMUTE is not part of an index"
    return None


PASS = Pass(
    "indexify",
    rules=(elementwise,),
    once=True,
    gives=(Invariant("stores and loads are indexed; a PERMUTE is part of an index", _unindexed),),
)
