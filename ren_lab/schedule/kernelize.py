"""Pass 12, `kernelize`: each top-level STORE is a KERNEL whose concrete buffers are SLOT parameters.

A STORE of a COPY stays what it is: copies and views are light items of the schedule, not kernels.
"""

from ren_lab.ir import DType, KernelSpec, Match, Node, Op, Slot, rule, substitute
from ren_lab.options import Options
from ren_lab.schedule.passes import Invariant, Pass

_ELSEWHERE = frozenset({Op.AFTER})  # what comes before a buffer is filled belongs to other kernels
_KINDS = {
    Op.NTT: "ntt", Op.INTT: "intt", Op.TO_RNS: "to_rns", Op.BASE_CONVERT: "convert", Op.LIFT: "convert", Op.RANDOM: "random",
}  # fmt: skip
_NAMED = {Op.ADD: "add", Op.SUB: "sub", Op.MUL: "mul", Op.NEG: "neg", Op.DOT: "dot", Op.JOIN: "join"} | _KINDS


def _spec(store: Node, shape: tuple[int, int]) -> KernelSpec:
    kind, words, permuted = "elementwise", [], False
    for node in store.toposort():
        kind = _KINDS.get(node.op, kind)
        if node.op in _NAMED and node.dtype is DType.U32 and _NAMED[node.op] not in words:
            words.append(_NAMED[node.op])
        permuted |= node.op is Op.PERMUTE
    if permuted:
        words.insert(0, "permute")
    if len(words) > 4:
        words = [*words[:2], "etc", *words[-1:]]
    return KernelSpec(f"{'_'.join(words) or 'load'}_{shape[0]}x{shape[1]}", kind, store)


def grouped(graph: Node, options: Options) -> frozenset[Node]:
    """The STOREs that are parts of a GROUP."""
    return frozenset(store for node in graph.toposort() if node.op is Op.GROUP for store in node.src)


@rule(Op.STORE, Op.GROUP)
def kernel(node: Node, match: Match) -> Node | None:
    """store(index(b, …), f(a, …)) -> kernel(b, a, …) with the buffers as slots;  group(stores) -> kernel(b, c, a, …)"""
    stores = node.src if node.op is Op.GROUP else (node,)
    if match.original in match.facts or any(store.src[1].op is Op.COPY for store in stores):
        return None
    slots: dict[Node, Node] = {}
    for target in (store.src[0].src[0] for store in stores):
        slots[target] = Node(Op.SLOT, DType.U32, (), Slot(len(slots), target.arg.shape))
    for value in (store.src[1] for store in stores):
        for inner in value.toposort(stop=_ELSEWHERE):
            if inner.op is Op.INDEX and inner.src[0] not in slots:
                held = inner.src[0].src[0] if inner.src[0].op is Op.AFTER else inner.src[0]
                slots[inner.src[0]] = Node(Op.SLOT, DType.U32, (), Slot(len(slots), held.arg.shape))
    return Node(Op.KERNEL, DType.VOID, tuple(slots), _spec(substitute(node, slots), next(iter(slots)).arg.shape))


def _loose(node: Node) -> str | None:
    if node.op is Op.STORE and node.src[1].op is not Op.COPY or node.op is Op.GROUP:
        return f"a {node.op.name} outside a KERNEL"
    if node.op is Op.KERNEL:
        for inner in node.arg.ast.toposort():
            if inner.op in (Op.BUFFER, Op.AFTER, Op.BUFFER_VIEW):
                return f"kernel {node.arg.name} names a concrete {inner.op.name}"
    return None


PASS = Pass(
    "kernelize",
    rules=(kernel,),
    prepare=grouped,
    once=True,
    gives=(Invariant("stores are kernels, and kernels name only slots", _loose),),
)
