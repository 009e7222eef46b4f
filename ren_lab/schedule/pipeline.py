"""The twelve passes in order, and the schedule that they end in."""

import time
from dataclasses import dataclass

from ren_lab.events import Emit, PassEnded, PassFailed
from ren_lab.ir import BufferId, KernelSpec, Node, Op, View, rewrite
from ren_lab.options import Options
from ren_lab.schedule import (
    build_becomes_map,
    decide_boundaries,
    indexify,
    inject_domains,
    kernelize,
    lower_automorphisms,
    lower_bufferize,
    lower_constants,
    lower_ring_ops,
    make_buffer_views,
    simplify,
    simplify_domains,
)
from ren_lab.schedule.passes import Invariant, Pass

PIPELINE: tuple[Pass, ...] = (
    simplify.PASS,
    lower_ring_ops.PASS,
    inject_domains.PASS,
    simplify_domains.PASS,
    decide_boundaries.PASS,
    lower_bufferize.PASS,
    build_becomes_map.PASS,
    lower_automorphisms.PASS,
    lower_constants.PASS,
    make_buffer_views.PASS,
    indexify.PASS,
    kernelize.PASS,
)


class VerificationError(AssertionError):
    """A pass did not keep its promise; the message names the pass, the promise and the node."""


@dataclass(frozen=True, slots=True, repr=False)
class ScheduledKernel:
    """One item of a schedule.

    Attributes:
        kind: "ntt", "intt", "to_rns", "convert", "random", "elementwise", or the light ones "copy" and "view".
        name: what it does and on how much, as "mul_add_3x8192".
        buffers: the outputs first, then the inputs. A view has its base as its only input.
        ast: the body of a kernel, a STORE over SLOT nodes or a GROUP of them; None for light items.
        view: the window of a view item.
        node: the node of the final graph.
    """

    kind: str
    name: str
    buffers: tuple[BufferId, ...]
    device: str
    node: Node
    ast: Node | None = None
    view: View | None = None

    def __repr__(self) -> str:
        outputs, inputs = (", ".join(ident.label for ident in idents) for idents in (self.outputs, self.inputs))
        return f"<{self.name} on {self.device}: {outputs} ← {inputs}>"

    @property
    def outputs(self) -> tuple[BufferId, ...]:
        """What it fills: one buffer, or one per STORE of a GROUP."""
        return self.buffers[: self._filled]

    @property
    def inputs(self) -> tuple[BufferId, ...]:
        return self.buffers[self._filled :]

    @property
    def _filled(self) -> int:
        return len(self.ast.src) if self.ast is not None and self.ast.op is Op.GROUP else 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """Items in the order they run, and for each output of the graph what takes its place afterwards.

    `becomes` holds constants, buffers and windows of buffers, in terms of the labels of this schedule.
    """

    items: tuple[ScheduledKernel, ...]
    becomes: tuple[Node, ...]
    graph: Node


def verify(graph: Node, invariants: list[Invariant], name: str) -> None:
    """Check every node against every invariant; `VerificationError` names the first that is broken."""
    for node in graph.toposort():
        for invariant in invariants:
            wrong = invariant.broken(node)
            if wrong is not None:
                raise VerificationError(f"after {name} it must hold that {invariant.statement}, but {wrong} at {node!r}")


def run_passes(graph: Node, options: Options, emit: Emit | None = None) -> tuple[Node, tuple[Node, ...]]:
    """Run all twelve passes; returns the final graph and the becomes map."""
    becomes: tuple[Node, ...] = ()
    holding: list[Invariant] = []
    for number, step in enumerate(PIPELINE, 1):
        start = time.perf_counter()
        try:
            facts = step.prepare(graph, options) if step.prepare else None
            after, mapping = rewrite(graph, step.rules, facts=facts, count_uses=step.count_uses, once=step.once, emit=emit)
            if step is build_becomes_map.PASS:
                becomes = build_becomes_map.becomes_map(after)
            seconds = time.perf_counter() - start
            if options.verify:
                holding = [i for i in holding if i not in step.ends] + list(step.gives)
                verify(after, holding, step.name)
        except Exception as error:
            if emit is not None:
                emit(PassFailed(number, step.name, graph, error))
            raise
        if emit is not None:
            emit(PassEnded(number, step.name, graph, after, mapping, seconds))
        graph = after
    return graph, becomes


def schedule(graph: Node, options: Options, emit: Emit | None = None) -> Schedule:
    """Compile a SINK into a schedule.

    Args:
        graph: a SINK over every output that is asked for together.
        options: the settings; `verify` checks each pass's promise.
        emit: told what each pass did, or None.
    """
    final, becomes = run_passes(graph, options, emit)
    return Schedule(tuple(_items(final)), becomes, final)


def _items(final: Node) -> list[ScheduledKernel]:
    items = []
    for node in final.toposort():
        if node.op is Op.KERNEL:
            spec: KernelSpec = node.arg
            buffers = tuple(map(_identity, node.src))
            items.append(ScheduledKernel(spec.kind, spec.name, buffers, buffers[0].device, node, spec.ast))
        elif node.op is Op.STORE:
            target, copied = _identity(node.src[0]), _identity(node.src[1].src[0])
            items.append(ScheduledKernel("copy", f"copy_{copied.device}_to_{target.device}", (target, copied), target.device, node))
        elif node.op is Op.BUFFER_VIEW:
            base = _identity(node.src[0])
            shape = node.arg.shape
            ident = _window(base, node.arg)
            name = f"view_{shape[0]}x{shape[1]}"
            items.append(ScheduledKernel("view", name, (ident, base), base.device, node, view=node.arg))
    return items


def _window(base: BufferId, view: View) -> BufferId:
    """The name of a window: its base and which words of it."""
    end = view.offset + view.shape[0] * view.shape[1]
    return BufferId(f"{base.label}[{view.offset}:{end}]", base.device, view.shape)


def _identity(node: Node) -> BufferId:
    """The buffer that holds a value of the final graph."""
    if node.op is Op.AS_RING:
        node = node.src[0]
    if node.op is Op.BUFFER_VIEW:
        ident = _identity(node.src[0])
        return _window(ident, node.arg)
    if node.op is Op.AFTER:
        node = node.src[0]
    return node.arg
