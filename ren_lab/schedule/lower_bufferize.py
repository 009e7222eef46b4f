"""Pass 6, `lower_bufferize`: BUFFERIZE(x) becomes BUFFER, STORE and AFTER, so that ordering is explicit."""

from ren_lab.ir import BufferId, DType, Match, Node, Op, buffer, rule, shape_of
from ren_lab.options import Options
from ren_lab.schedule.decide_boundaries import stored
from ren_lab.schedule.passes import Pass, without_ops


def name_buffers(graph: Node, options: Options) -> dict[Node, str]:
    """Labels of the buffers to come: out0, out1, … for outputs and t0, t1, … for the rest, in the order of the schedule."""
    labels: dict[Node, str] = {}
    for output in graph.src:
        if output.op is Op.BUFFERIZE:
            labels.setdefault(output, f"out{len(labels)}")
    outputs = len(labels)
    for node in graph.toposort():
        if node.op is Op.BUFFERIZE:
            labels.setdefault(node, f"t{len(labels) - outputs}")
    return labels


@rule(Op.BUFFERIZE)
def explicit_store(node: Node, match: Match) -> Node | None:
    """bufferize(a) -> after(b, store(b, a)) for a new buffer b"""
    value = node.src[0]
    target = buffer(BufferId(match.facts[match.original], node.arg.device, shape_of(value), node.arg.pinned))
    store = Node(Op.STORE, DType.VOID, (target, value))
    held = Node(Op.AFTER, DType.U32, (target, store))
    return held if value.ring is None else Node(Op.AS_RING, DType.U32, (held,), (value.ring, value.domain))


PASS = Pass(
    "lower_bufferize",
    rules=(explicit_store,),
    prepare=name_buffers,
    once=True,
    gives=(without_ops(Op.BUFFERIZE, Op.CONTIGUOUS),),
    ends=(stored,),
)
