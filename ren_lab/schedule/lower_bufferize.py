"""Pass 6, `lower_bufferize`: BUFFERIZE(x) becomes BUFFER, STORE and AFTER, so that ordering is explicit.

The NTT of a lift, as key switching and division have it, is used up by one sum as a rule. It needs no buffer then: the kernel
of the sum transforms a row, then works on that row. Where two sums use the same transforms, one kernel computes both.
"""

from dataclasses import dataclass

from ren_lab.ir import ELEMENTWISE, BufferId, DType, Match, Node, Op, buffer, rule, shape_of
from ren_lab.options import Options
from ren_lab.schedule.decide_boundaries import stored
from ren_lab.schedule.passes import Pass, is_subset, without_ops

MOST_TRANSFORMS = 4
"""Transforms within one kernel; a thread keeps a row of each at hand."""

_MOST_OUTPUTS = 2  # of one kernel
_ROW_BY_ROW = ELEMENTWISE | {Op.NTT, Op.INTT, Op.JOIN}
_STORED = frozenset({Op.BUFFERIZE, Op.AS_RING, Op.COPY})  # what kernels read; constants among them


@dataclass(frozen=True, slots=True)
class Stores:
    """What becomes of each BUFFERIZE.

    Attributes:
        labels: names of the buffers: out0, out1, … for outputs and t0, t1, … for the rest, in the order of the schedule.
        fused: transforms without a buffer.
        together: those that one kernel fills, as one tuple under each of its members.
    """

    labels: dict[Node, str]
    fused: frozenset[Node]
    together: dict[Node, tuple[Node, ...]]


def plan_stores(graph: Node, options: Options) -> Stores:
    """Decide which transforms need no buffer and which buffers are filled together, and name the buffers."""
    order = graph.toposort()
    fused, together = _fuse(order, options) if options.fuse_transforms else (frozenset(), {})
    labels: dict[Node, str] = {}
    for output in graph.src:
        if output.op is Op.BUFFERIZE:
            labels.setdefault(output, f"out{len(labels)}")
    outputs = len(labels)
    for node in order:
        if node.op is Op.BUFFERIZE and node not in fused:
            labels.setdefault(node, f"t{len(labels) - outputs}")
    return Stores(labels, fused, together)


def _fuse(order: list[Node], options: Options) -> tuple[frozenset[Node], dict[Node, tuple[Node, ...]]]:
    users = _users_by_rows(order)
    loads = {node: _loads(node) for node in order if node.op is Op.BUFFERIZE}
    transforms = dict.fromkeys(loads, 0)  # within the kernel of each buffer
    together: dict[Node, tuple[Node, ...]] = {}
    fused: set[Node] = set()
    for node in loads:  # sources first
        kernels = users.get(node, ())
        if node.arg.pinned or transforms[node] or not 0 < len(kernels) <= _MOST_OUTPUTS or not _is_transform_of_lift(node.src[0]):
            continue
        if any(
            kernel in fused
            or kernel.arg.device != node.arg.device
            or transforms[kernel] == MOST_TRANSFORMS
            or loads[kernel] + loads[node] - 1 > options.max_kernel_loads
            for kernel in kernels
        ):
            continue
        groups = {together[kernel] for kernel in kernels if kernel in together}
        if groups:
            if len(groups) > 1 or not set(kernels) <= set(next(iter(groups))):
                continue
        elif len(kernels) > 1:
            if not _can_go_together(kernels, together):
                continue
            together.update(dict.fromkeys(kernels, kernels))
        for kernel in kernels:
            transforms[kernel] += 1
            loads[kernel] += loads[node] - 1
        fused.add(node)
    return frozenset(fused), together


def _users_by_rows(order: list[Node]) -> dict[Node, tuple[Node, ...]]:
    """For each buffer that is read row by row only, the buffers whose kernels read it, in the order of the graph."""
    position = {node: place for place, node in enumerate(order)}
    users: dict[Node, set[Node]] = {}
    elsewhere: set[Node] = set()  # read in another way as well
    for node in reversed(order):
        if node.op is Op.BUFFERIZE:
            kernels, by_rows = {node}, True
        else:
            kernels, by_rows = users.get(node, set()), node.op in _ROW_BY_ROW and node not in elsewhere
        for source in node.src:
            users.setdefault(source, set()).update(kernels)
            if not by_rows:
                elsewhere.add(source)
    return {
        node: tuple(sorted(kernels, key=position.__getitem__))
        for node, kernels in users.items()
        if node.op is Op.BUFFERIZE and node not in elsewhere
    }


def _is_transform_of_lift(node: Node) -> bool:
    """Whether a value is NTT(f(to_ring(a, R), …)) with a TO_RING that converts; f is elementwise."""
    if node.op is not Op.NTT:
        return False
    inner = node.toposort(stop=_STORED)
    return any(s.op is Op.BUFFERIZE and s.src[0].op is Op.TO_RING and not is_subset(s.src[0]) for s in inner)


def _loads(buffered: Node) -> int:
    """How many values the kernel of a buffer reads."""
    return sum(node.op in _STORED for node in buffered.src[0].toposort(stop=_STORED))


def _can_go_together(kernels: tuple[Node, ...], together: dict[Node, tuple[Node, ...]]) -> bool:
    """Whether buffers may be filled at one moment: elementwise values of one ring, none of which waits for another."""
    first = kernels[0].src[0]
    if any(k.src[0].op not in ELEMENTWISE or k.ring != first.ring or k.domain is not first.domain for k in kernels):
        return False
    seen: set[Node] = set()
    stack = [source for k in kernels for source in k.src]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in kernels:
            return False
        for member in together.get(node, (node,)):
            stack.extend(member.src)
    return True


@rule(Op.BUFFERIZE)
def row_by_row(node: Node, match: Match) -> Node | None:
    """f(bufferize(NTT(a)), …) -> f(NTT(a), …) where a is a lift and f works row by row"""
    return node.src[0] if match.original in match.facts.fused else None


@rule(Op.BUFFERIZE)
def explicit_store(node: Node, match: Match) -> Node | None:
    """bufferize(a) -> after(b, store(b, a)) for a new buffer b"""
    value = node.src[0]
    target = buffer(BufferId(match.facts.labels[match.original], node.arg.device, shape_of(value), node.arg.pinned))
    store = Node(Op.STORE, DType.VOID, (target, value))
    held = Node(Op.AFTER, DType.U32, (target, store))
    return held if value.ring is None else Node(Op.AS_RING, DType.U32, (held,), (value.ring, value.domain))


@rule(Op.SINK)
def one_kernel(node: Node, match: Match) -> Node | None:
    """after(b, store(b, f)), after(c, store(c, g)) -> after(b, s), after(c, s) with s = group(store(b, f), store(c, g)),
    where f and g use the same transforms"""
    stores: Stores = match.facts
    groups = {frozenset(stores.labels[k] for k in kernels) for kernels in stores.together.values()}
    if not groups:
        return None
    group_of = {label: group for group in groups for label in group}
    members: dict[frozenset[str], list[Node]] = {}
    for inner in node.toposort():
        if inner.op is Op.STORE and inner.src[0].arg.label in group_of:
            members.setdefault(group_of[inner.src[0].arg.label], []).append(inner)
    match.moved = _regrouped(node, {store: tuple(group) for group in members.values() for store in group})
    return match.moved[node]


def _regrouped(graph: Node, group_of: dict[Node, tuple[Node, ...]]) -> dict[Node, Node]:
    """What each node of the graph becomes when each of the stores is replaced by the GROUP of all that go with it."""
    done: dict[Node, Node] = {}
    stack = [graph]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        members = group_of.get(node, (node,))
        pending = [s for member in members for s in member.src if s not in done]
        if pending:
            stack.extend(reversed(pending))
            continue
        made = [member.with_src(tuple([done[s] for s in member.src])) for member in members]
        if node in group_of:
            group = Node(Op.GROUP, DType.VOID, tuple(made))
            done.update(dict.fromkeys(members, group))
        else:
            done[node] = made[0]
        stack.pop()
    return done


PASS = Pass(
    "lower_bufferize",
    rules=(row_by_row, explicit_store, one_kernel),
    prepare=plan_stores,
    once=True,
    gives=(without_ops(Op.BUFFERIZE, Op.CONTIGUOUS),),
    ends=(stored,),
)
