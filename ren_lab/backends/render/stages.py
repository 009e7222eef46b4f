"""A kernel body cut into stages that run one after the other.

A stage computes one expression at each (limb, coefficient) and may transform the rows of the result. Base conversions work on whole
columns, and are part of the expression that uses them: a block of columns is converted, then used. What no expression can hold (a
transform in the middle, a conversion of a conversion) is a stage of its own with a temporary buffer.
"""

from dataclasses import dataclass

from ren_lab.ir import ELEMENTWISE, Node, Op
from ren_lab.ring import RingSpec

CONVERSIONS = frozenset({Op.BASE_CONVERT, Op.TO_RNS})
TRANSFORMS = frozenset({Op.NTT, Op.INTT})


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes:
        target: the slot that is filled: 0, or a temporary behind the inputs.
        value: the expression.
        transform: NTT or INTT of the rows of `target` afterwards, or None.
        conversions: the conversions in the expression, operands first.
    """

    target: int
    value: Node
    transform: Op | None
    conversions: tuple[Node, ...]

    @property
    def ring(self) -> RingSpec:
        ring = self.value.ring
        assert ring is not None
        return ring


@dataclass(frozen=True, slots=True)
class Stages:
    """A kernel body in stages.

    Attributes:
        stages: in order; the last one fills slot 0.
        shapes: of every slot: output, inputs, temporaries; rows and columns.
        held: the values that stand in temporaries, and where.
        buffers: how many slots are the caller's; the others are temporaries.
    """

    stages: tuple[Stage, ...]
    shapes: tuple[tuple[int, int], ...]
    held: dict[Node, int]
    buffers: int


def operands(node: Node) -> tuple[Node, ...]:
    """The values that a value is computed from; none of a load or a constant."""
    return () if node.op in (Op.AS_RING, Op.TO_RNS) else node.src


def walk(root: Node, leaves: frozenset[Op], held: dict[Node, int]) -> list[Node]:
    """The values of an expression, operands first; `leaves` and held values are not entered."""
    order: dict[Node, None] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        below = () if node.op in leaves or node in held else operands(node)
        pending = [s for s in below if s not in order]
        if node in order or not pending:
            order[node] = None
            stack.pop()
        else:
            stack.extend(reversed(pending))
    return list(order)


def split(ast: Node) -> Stages:
    """The stages of a kernel body."""
    index, result = ast.src
    slots = {node.arg.number: node.arg.shape for node in ast.toposort() if node.op is Op.SLOT}
    shapes = [slots.get(number, (0, index.src[0].arg.shape[1])) for number in range(max(slots) + 1)]
    buffers = len(shapes)

    body = walk(result, frozenset(), {})
    inner = {n for c in body if c.op is Op.BASE_CONVERT for n in walk(c.src[0], frozenset(), {}) if n.op in CONVERSIONS}
    held: dict[Node, int] = {}
    stages = []
    for node in body:
        if node is not result and node.op not in TRANSFORMS and node not in inner:
            continue
        assert node.ring is not None
        target = 0
        if node is not result:
            target = len(shapes)
            shapes.append((node.ring.limbs, node.ring.n))
        value = node.src[0] if node.op in TRANSFORMS else node
        conversions = [n for n in walk(value, CONVERSIONS, held) if n.op in CONVERSIONS and n not in held]
        stages.append(Stage(target, value, node.op if node.op in TRANSFORMS else None, tuple(conversions)))
        if node is not result:
            held[node] = target
    return Stages(tuple(stages), tuple(shapes), held, buffers)


def check(node: Node) -> None:
    """Raise for an operation that no expression knows."""
    if node.op in ELEMENTWISE or node.op in CONVERSIONS or node.op in TRANSFORMS:
        return
    if node.op is Op.AS_RING and node.src[0].op in (Op.LOAD, Op.RESIDUES, Op.WHERE):
        return
    inner = f" of {node.src[0].op.name}" if node.op is Op.AS_RING else ""
    raise NotImplementedError(f"the renderer does not know {node.op.name}{inner} in a kernel")
