"""A kernel body cut into steps: what one launch does, or the two of a long transform.

The stages of `ren_lab.backends.render.stages` are taken together where the result is the same with less traffic: values that are
computed from a transform's residues at their own place join the transform, and values of one ring that do not need one another
are computed side by side. Only so many loads join a transform as leave registers for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ren_lab.backends.render.stages import CONVERSIONS, Stage, Stages, split, walk
from ren_lab.ir import Node, Op
from ren_lab.ring import RingSpec

MOST_LOADS = 8
"""Values that are loaded along with a transform; with more, too few registers would be left, or too few threads would run."""

Outputs = tuple[tuple[int, Node], ...]
"""Slots, and the values they are filled with."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        ring: of every value that is computed.
        outputs: what is stored, one residue from those at the same place; the transform's value may be among the operands.
        conversions: the conversions in `outputs`, operands first; none in a step with a transform.
        transform: NTT or INTT, or None.
        node: the transform's value.
        value: what is transformed; None for what `target` holds already.
        target: the slot that a transform works in.
        keeps: whether the transform's value must be in `target` afterwards.
    """

    ring: RingSpec
    outputs: Outputs
    conversions: tuple[Node, ...] = ()
    transform: Op | None = None
    node: Node | None = None
    value: Node | None = None
    target: int = 0
    keeps: bool = True


def cut(ast: Node) -> tuple[Stages, list[Step]]:
    """The stages of a kernel body with every stored transform among the held values, and its steps in order."""
    stages = split(ast)
    stores = ast.src if ast.op is Op.GROUP else (ast,)
    nodes = {slot: store.src[1] for slot, store in enumerate(stores)} | {slot: node for node, slot in stages.held.items()}
    steps: list[Step] = []
    held: dict[Node, int] = {}
    for stage in stages.stages:
        node = nodes[stage.target]
        conversions = [n for n in walk(stage.value, CONVERSIONS, held) if n.op in CONVERSIONS and n not in held]
        stage = replace(stage, conversions=tuple(conversions))
        if stage.transform is not None:
            steps += _transform(stage, node, held)
        elif steps and (joined := _joined(steps[-1], stage, held)):
            steps[-1] = joined
        else:
            steps.append(Step(stage.ring, ((stage.target, stage.value),), stage.conversions))
        if stage.transform is not None or node in stages.held:
            held[node] = stage.target
    steps = [_settled(step, [s for s in steps if s is not step], stages.buffers) for step in steps]
    return replace(stages, held=held), steps


def _loads(body: Iterable[Node], held: dict[Node, int]) -> int:
    """How many values an expression loads at each place."""
    return sum(node in held or node.op is Op.JOIN or node.op is Op.AS_RING and node.src[0].op is Op.LOAD for node in body)


def _transform(stage: Stage, node: Node, held: dict[Node, int]) -> list[Step]:
    """A transform; conversions before it, and much else, are a step of their own."""
    step = Step(stage.ring, (), (), stage.transform, node, stage.value, stage.target)
    if not stage.conversions and _loads(walk(stage.value, CONVERSIONS | {Op.JOIN}, held), held) <= MOST_LOADS:
        return [step]
    return [Step(stage.ring, ((stage.target, stage.value),), stage.conversions), replace(step, value=None)]


def _joined(step: Step, stage: Stage, held: dict[Node, int]) -> Step | None:
    """A step with a stage that follows it; None where they must be apart."""
    if step.ring != stage.ring or bool(step.conversions) != bool(stage.conversions):
        return None
    body = walk(stage.value, CONVERSIONS | {Op.JOIN}, held)
    if step.node is not None:
        if step.node not in body or any(step.node in node.src for node in body if node.op is Op.JOIN):
            return None  # it does without, or needs other rows of it
        whole = {node for _, value in step.outputs for node in walk(value, CONVERSIONS | {Op.JOIN}, held)}
        if _loads({*body, *whole} - {step.node}, held) > MOST_LOADS:
            return None
    else:
        written = {slot for slot, _ in step.outputs}
        if any(held.get(node) in written for node in stage.value.toposort()):
            return None
    conversions = dict.fromkeys([*step.conversions, *stage.conversions])
    return replace(step, outputs=(*step.outputs, (stage.target, stage.value)), conversions=tuple(conversions))


def _settled(step: Step, others: Iterable[Step], buffers: int) -> Step:
    """A transform's step that knows whether somebody else needs its value."""
    if step.node is None:
        return step
    roots = [v for other in others for v in (other.value, *(value for _, value in other.outputs)) if v is not None]
    keeps = not step.outputs or step.target < buffers or any(step.node in root.toposort() for root in roots)
    return replace(step, keeps=keeps)
