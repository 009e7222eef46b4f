"""Pass 12, `kernelize`: each top-level STORE is a KERNEL whose concrete buffers are SLOT parameters.

A STORE of a COPY stays what it is: copies and views are light items of the schedule, not kernels.
"""

from ren_lab.ir import DType, KernelSpec, Match, Node, Op, Slot, rule, substitute
from ren_lab.schedule.passes import Invariant, Pass

_ELSEWHERE = frozenset({Op.AFTER})  # what comes before a buffer is filled belongs to other kernels
_KINDS = {
    Op.NTT: "ntt", Op.INTT: "intt", Op.TO_RNS: "to_rns", Op.BASE_CONVERT: "convert", Op.RANDOM: "random",
}  # fmt: skip
_NAMED = {Op.ADD: "add", Op.SUB: "sub", Op.MUL: "mul", Op.NEG: "neg"} | _KINDS


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


@rule(Op.STORE)
def kernel(node: Node, match: Match) -> Node | None:
    """store(index(b, …), f(a, …)) -> kernel(b, a, …) with the buffers as slots"""
    place, value = node.src
    if value.op is Op.COPY:
        return None
    target = place.src[0]
    slots = {target: Node(Op.SLOT, DType.U32, (), Slot(0, target.arg.shape))}
    for inner in value.toposort(stop=_ELSEWHERE):
        if inner.op is Op.INDEX and inner.src[0] not in slots:
            held = inner.src[0].src[0] if inner.src[0].op is Op.AFTER else inner.src[0]
            slots[inner.src[0]] = Node(Op.SLOT, DType.U32, (), Slot(len(slots), held.arg.shape))
    return Node(Op.KERNEL, DType.VOID, tuple(slots), _spec(substitute(node, slots), target.arg.shape))


def _loose(node: Node) -> str | None:
    if node.op is Op.STORE and node.src[1].op is not Op.COPY:
        return "a STORE outside a KERNEL"
    if node.op is Op.KERNEL:
        for inner in node.arg.ast.toposort():
            if inner.op in (Op.BUFFER, Op.AFTER, Op.BUFFER_VIEW):
                return f"kernel {node.arg.name} names a concrete {inner.op.name}"
    return None


PASS = Pass("kernelize", rules=(kernel,), once=True, gives=(Invariant("stores are kernels, and kernels name only slots", _loose),))
