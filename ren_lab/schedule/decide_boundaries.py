"""Pass 5, `decide_boundaries`: BUFFERIZE marks exactly the values that need a buffer.

Needed by what they are: outputs, transforms, conversions, random draws, copies and what is copied, contiguous requests.
Needed by how they are used: a value that several kernels use, where reading it back costs less than computing it again;
and a part of an expression with more loads than one kernel may hold.

The cost of an element counts memory accesses; an arithmetic operation counts a quarter of one. A value with L loads and
A operations that k kernels use costs k*(L + A/4) when each computes it, and (L + A/4) + 1 + k when it is stored once.
"""

from ren_lab.ir import ELEMENTWISE, Boundary, DType, Match, Node, Op, is_const, rule, storage
from ren_lab.options import Options
from ren_lab.schedule.passes import Invariant, Pass, is_subset, limb_select

_OPERATION_COST = 0.25
_FUSIBLE = ELEMENTWISE | {Op.AUTOMORPHISM, Op.JOIN}
_REASON = {
    Op.NTT: "transform", Op.INTT: "transform", Op.TO_RNS: "conversion", Op.RESCALE: "conversion", Op.COPY: "copy",
}  # fmt: skip


def is_view(node: Node) -> bool:
    """Whether a TO_RING selects limbs that stand side by side, so that it can be a window of its source's buffer."""
    return (
        node.op is Op.TO_RING
        and is_subset(node)
        and node.src[0].ring is not None
        and limb_select(node.src[0].ring, node.arg).offset is not None
    )


def _forced(order: list[Node], sink: Node) -> dict[Node, Boundary]:
    roots: dict[Node, Boundary] = {}

    def need(node: Node, reason: str, pinned: bool = False) -> None:
        if storage(node) is None and not (is_const(node) and not pinned):
            assert node.device is not None
            if node not in roots or pinned and not roots[node].pinned:
                roots[node] = Boundary(reason, node.device, pinned)

    for node in order:
        if node.op is Op.CONTIGUOUS:
            assert node.device is not None
            if node.src[0] in roots:  # it has a buffer of its own already
                if node.arg:
                    need(node.src[0], "pinned", pinned=True)
            else:
                roots[node] = Boundary("pinned" if node.arg else "contiguous", node.device, node.arg)
        elif node.op in _REASON:
            need(node, _REASON[node.op])
            if node.op is Op.COPY:
                need(node.src[0], "copied")
        elif node.op is Op.TO_RING and not is_subset(node):
            need(node, "conversion")
        elif node.op is Op.AS_RING and node.src[0].op is Op.RANDOM:
            need(node, "random draw")
        elif node.op is Op.PERMUTE:
            need(node.src[0], "limbs put elsewhere")
        elif node.op is Op.JOIN:
            for part in node.src:
                need(part.src[0] if part.op is Op.TO_RING and is_subset(part) else part, "limbs put together")
    views = [o for o in sink.src if is_view(o) and not is_const(o.src[0])]
    for output in sink.src:
        if output.op is not Op.CONTIGUOUS and output not in views:
            need(output, "output")
    for view in views:
        need(view.src[0], "base of a view")
    return roots


def boundaries(graph: Node, options: Options) -> dict[Node, Boundary]:
    """The nodes that need a buffer, each with the reason."""
    order = graph.toposort()
    roots = _forced(order, graph)

    # Sources first: loads and operations of each expression, cut where a kernel would hold too many loads.
    loads: dict[Node, int] = {}
    operations: dict[Node, int] = {}

    def seen(node: Node) -> int:
        return 1 if node in roots or storage(node) is not None else loads[node]

    for node in order:
        if storage(node) is not None or node.op is Op.SINK:
            loads[node] = operations[node] = 0
            continue
        if node.op is Op.JOIN:  # each element is one of the operands'
            loads[node], operations[node] = 1, 0
            continue
        total = sum(map(seen, node.src))
        while total > options.max_kernel_loads:
            widest = max(node.src, key=seen)
            assert widest.device is not None
            roots[widest] = Boundary("kernel size", widest.device)
            total = sum(map(seen, node.src))
        loads[node] = total
        operations[node] = (node.op in _FUSIBLE) + sum(operations[s] for s in node.src if s not in roots)

    # Users first: which kernels compute each value, and through which index map.
    users: dict[Node, set[tuple[object, ...]]] = {}
    for node in reversed(order):
        if node.op is Op.SINK:
            continue
        kernels = users.get(node, set())
        if node in roots:
            kernels = {(node,)}
        elif len(kernels) > 1 and node.op in _FUSIBLE:
            once = loads[node] + _OPERATION_COST * operations[node]
            if len(kernels) * once > once + 1 + len(kernels):
                assert node.device is not None
                roots[node] = Boundary(_shared(kernels), node.device)
                kernels = {(node,)}
        if node.op in (Op.AUTOMORPHISM, Op.TO_RING):
            kernels = {(*kernel, node.arg) for kernel in kernels}
        for source in node.src:
            users.setdefault(source, set()).update(kernels)
    return roots


def _shared(uses: set[tuple[object, ...]]) -> str:
    """How often a value is used: a kernel that reads it through two index maps uses it twice."""
    kernels = len({use[0] for use in uses})
    users = f"{kernels} kernel{'s' * (kernels != 1)}"
    return f"shared by {users}" if kernels == len(uses) else f"used in {len(uses)} ways by {users}"


@rule(*Op)
def mark_boundary(node: Node, match: Match) -> Node | None:
    """a -> bufferize(a) where a needs a buffer;  contiguous(a) -> bufferize(a)"""
    boundary = match.facts.get(match.original)
    if node.op is Op.CONTIGUOUS:
        return node.src[0] if boundary is None else Node(Op.BUFFERIZE, DType.U32, node.src, boundary)
    return None if boundary is None else Node(Op.BUFFERIZE, DType.U32, (node,), boundary)


def _stored(node: Node) -> str | None:
    needs = (
        node.op in _REASON
        or node.op is Op.TO_RING and not is_subset(node)
        or node.op is Op.AS_RING and node.src[0].op is Op.RANDOM
    )  # fmt: skip
    if node.op is Op.BUFFERIZE:
        return None
    for source in node.src:
        if source.op is Op.CONTIGUOUS:
            return "CONTIGUOUS is left"
        if source.op in _REASON or source.op is Op.TO_RING and not is_subset(source):
            return f"{source.op.name} feeds {node.op.name} without a buffer"
    return "a COPY of something without a buffer" if needs and node.op is Op.COPY and not _held(node.src[0]) else None


def _held(node: Node) -> bool:
    return node.op is Op.BUFFERIZE or storage(node) is not None


stored = Invariant("transforms, conversions, draws, copies and contiguous requests are in buffers", _stored)

PASS = Pass("decide_boundaries", rules=(mark_boundary,), prepare=boundaries, once=True, gives=(stored,))
