"""A kernel body cut into stages that run one after the other.

A stage computes one expression at each (limb, coefficient) and may transform the rows of the result. Base conversions work on whole
columns, and are part of the expression that uses them: a block of columns is converted, then used. What no expression can hold (a
transform in the middle, a conversion of a conversion) is a stage of its own with a temporary buffer.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from ren_lab.ir import CONVERSIONS, ELEMENTWISE, Node, Op
from ren_lab.ring import RingSpec

TRANSFORMS = frozenset({Op.NTT, Op.INTT})


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes:
        target: the slot that is filled: 0, or a temporary behind the inputs.
        value: the expression.
        transform: NTT or INTT of the rows of `target` afterwards, or None.
        conversions: the conversions in the expression, operands first.
        factors: of an INTT that multiplies as well: Montgomery residues, one per limb.
        rows: transforms in the expression whose rows are used as soon as they are there, operands first.
        also: further slots that are filled along with `target`, and their expressions.
    """

    target: int
    value: Node
    transform: Op | None
    conversions: tuple[Node, ...] = ()
    factors: tuple[int, ...] | None = None
    rows: tuple[Node, ...] = ()
    also: tuple[tuple[int, Node], ...] = ()

    @property
    def ring(self) -> RingSpec:
        ring = self.value.ring
        assert ring is not None
        return ring


@dataclass(frozen=True, slots=True)
class Stages:
    """A kernel body in stages.

    Attributes:
        stages: in order; the last ones fill the outputs.
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


def walk(root: Node, leaves: frozenset[Op], held: Collection[Node]) -> list[Node]:
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


def split(ast: Node, row_by_row: bool = False) -> Stages:
    """The stages of a kernel body.

    Args:
        ast: a STORE or a GROUP of them.
        row_by_row: leave transforms in the middle of expressions where there are no conversions (`Stage.rows`); otherwise each
            is a stage of its own.
    """
    stores = ast.src if ast.op is Op.GROUP else (ast,)
    values = [store.src[1] for store in stores]
    results = {value: values.index(value) for value in values}
    slots = {node.arg.number: node.arg.shape for node in ast.toposort() if node.op is Op.SLOT}
    width = stores[0].src[0].src[0].arg.shape[1]
    shapes = [slots.get(number, (0, width)) for number in range(max(slots) + 1)]
    buffers = len(shapes)

    body = list(dict.fromkeys(node for result in results for node in walk(result, frozenset(), {})))
    if row_by_row and not any(node.op in CONVERSIONS for node in body):
        first = next(iter(results))
        rows = tuple(node for node in body if node.op in TRANSFORMS and node not in results)
        if first.op in TRANSFORMS:
            stage = Stage(0, first.src[0], first.op, factors=first.arg, rows=rows)
        else:
            stage = Stage(0, first, None, rows=rows, also=tuple(enumerate(values))[1:])
        if first.op not in TRANSFORMS or len(values) == 1:
            return Stages((stage,), tuple(shapes), {}, buffers)
    inner = {n for c in body if c.op in (Op.BASE_CONVERT, Op.LIFT) for n in walk(c.src[0], frozenset(), {}) if n.op in CONVERSIONS}
    held: dict[Node, int] = {}
    stages = []
    for node in body:
        if node not in results and node.op not in TRANSFORMS and node not in inner:
            continue
        assert node.ring is not None
        target = results.get(node, len(shapes))
        if node not in results:
            shapes.append((node.ring.limbs, node.ring.n))
        value = node.src[0] if node.op in TRANSFORMS else node
        conversions = [n for n in walk(value, CONVERSIONS, held) if n.op in CONVERSIONS and n not in held]
        transform, factors = (node.op, node.arg) if node.op in TRANSFORMS else (None, None)
        stages.append(Stage(target, value, transform, tuple(conversions), factors))
        if node not in results:
            held[node] = target
        stages += [replace(stages[-1], target=number) for number in range(target + 1, len(values)) if values[number] is node]
    return Stages(tuple(stages), tuple(shapes), held, buffers)


def check(node: Node) -> None:
    """Raise for an operation that no expression knows."""
    if node.op in ELEMENTWISE or node.op in CONVERSIONS or node.op in TRANSFORMS or node.op is Op.JOIN:
        return
    if node.op is Op.AS_RING and node.src[0].op in (Op.LOAD, Op.RESIDUES, Op.WHERE):
        return
    inner = f" of {node.src[0].op.name}" if node.op is Op.AS_RING else ""
    raise NotImplementedError(f"the renderer does not know {node.op.name}{inner} in a kernel")
