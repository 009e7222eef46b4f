"""Pass 10, `make_buffer_views`: a TO_RING that selects limbs is a window of a buffer, or sinks into its consumer's loads."""

from ren_lab.ir import ELEMENTWISE, Automorphism, DType, LimbSelect, Match, Node, Op, rule, storage
from ren_lab.ring import RingSpec
from ren_lab.schedule.build_becomes_map import view_of
from ren_lab.schedule.passes import Pass, limb_select, restrict, without_ops


@rule(Op.TO_RING)
def window(node: Node, match: Match) -> Node | None:
    """b|S -> buffer_view(b, offset of S) where S stands side by side in the buffer b;  else permute(b, limbs of S)"""
    source = node.src[0]
    held = storage(source)
    if held is None:
        return None
    assert source.ring is not None
    select = limb_select(source.ring, node.arg)
    if select.offset is None:
        return Node(Op.PERMUTE, DType.U32, (source,), select)
    body = source.src[0] if held.op is Op.BUFFER else held  # keeps the AFTER of a buffer
    view = view_of(body, select.offset, (node.arg.limbs, node.arg.n))
    return Node(Op.AS_RING, DType.U32, (view,), (node.arg, source.domain))


@rule(Op.TO_RING)
def select_operands(node: Node, match: Match) -> Node | None:
    """f(a, b)|S -> f(a|S, b|S);  base_convert(a, R)|S -> base_convert(a, S);  join(a, b)|S -> join(a|S, b|S)"""
    a, ring = node.src[0], node.arg
    if a.op in ELEMENTWISE or a.op is Op.PERMUTE and isinstance(a.arg, Automorphism):
        return a.with_src(tuple(restrict(s, ring) for s in a.src))
    if a.op is Op.PERMUTE:
        assert a.ring is not None and a.src[0].ring is not None
        if not a.src[0].ring.contains(ring):
            places = [a.arg.indices[i] for i in a.ring.limb_indices(ring)]
            return Node(Op.PERMUTE, DType.U32, a.src, LimbSelect(ring, tuple(places)))
        return restrict(a.src[0], ring)
    if a.op in (Op.BASE_CONVERT, Op.LIFT):
        return Node(a.op, DType.U32, a.src, ring)
    if a.op is Op.JOIN:
        left, parts = ring.moduli, []
        for part in a.src:
            assert part.ring is not None
            taken = tuple(p for p in left if p in part.ring.moduli)
            left = tuple(p for p in left if p not in taken)
            if taken:
                parts.append(restrict(part, RingSpec(ring.n, taken)))
        return parts[0] if len(parts) == 1 else Node(Op.JOIN, DType.U32, tuple(parts), ring)
    return None


PASS = Pass("make_buffer_views", rules=(window, select_operands), gives=(without_ops(Op.TO_RING),))
