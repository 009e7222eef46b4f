"""What is written on a node: the shortest thing that an expert asks for, and everything else."""

from collections import Counter
from collections.abc import Iterable, Sequence

from ren_lab.ir import Automorphism, LimbSelect, Node, Op, const_value, is_const, shape_of, storage
from ren_lab.lens import theme

_OPS_NAMED = 4  # operations that a sentence names
_BOOKKEEPING = frozenset(
    {Op.AS_RING, Op.CONST, Op.BUFFER, Op.SINK, Op.AFTER, Op.RESIDUES, Op.IMPULSE, Op.INDEX, Op.GIDX, Op.SLOT, Op.EQ, Op.WHERE}
)


def second_line(node: Node) -> str:
    """The shortest thing that an expert asks for."""
    arg = node.arg
    ring = node.ring.label if node.ring is not None else ""
    match node.op:
        case Op.BUFFER:
            return f"{arg.label} · {theme.format_bytes(arg.nbytes)}"
        case Op.CONST:
            return _short_int(arg.value)
        case Op.RANDOM:
            return " ".join([arg.distribution, *map(str, arg.parameters)])
        case Op.AS_RING if is_const(node) and node.ring is not None:
            value = const_value(node)
            return _short_int(value if 2 * value <= node.ring.q else value - node.ring.q)
        case Op.TO_RING | Op.BASE_CONVERT | Op.LIFT if node.src[0].ring is not None and node.ring is not None:
            return f"{node.src[0].ring.limbs} → {theme.format_count(node.ring.limbs, 'limb')}"
        case Op.RESCALE if node.src[0].ring is not None:
            return f"drops {len(arg)} of {theme.format_count(node.src[0].ring.limbs, 'limb')}"
        case Op.ROTATE:
            return f"by {arg}"
        case Op.AUTOMORPHISM:
            return f"X → X^{arg}"
        case Op.PERMUTE if isinstance(arg, Automorphism):
            return f"X → X^{arg.galois}"
        case Op.PERMUTE if isinstance(arg, LimbSelect):
            return f"limbs {_ranges(arg.indices)}"
        case Op.COPY:
            return f"to {arg}"
        case Op.CONTIGUOUS:
            return "pinned" if arg else ring
        case Op.SINK:
            return theme.format_count(len(node.src), "output")
        case Op.BUFFERIZE:
            return str(arg.reason)
        case Op.STORE | Op.AFTER | Op.INDEX | Op.LOAD:
            return _place(node)
        case Op.BUFFER_VIEW:
            first = arg.offset // arg.shape[1]
            return f"{_place(node)}, limbs {_ranges(range(first, first + arg.shape[0]))}"
        case Op.RESIDUES:
            return theme.format_count(len(arg), "limb")
        case Op.GIDX:
            return f"{arg.name} < {arg.extent}"
        case Op.SLOT:
            return f"{arg.number} · {arg.shape[0]} × {arg.shape[1]}"
        case Op.KERNEL:
            return str(arg.name)
    return ring


def _place(node: Node) -> str:
    """The buffer or the slot that a node names."""
    while node.op in (Op.STORE, Op.LOAD, Op.INDEX, Op.AFTER, Op.BUFFER_VIEW):
        node = node.src[0]
    return str(node.arg.label) if node.op is Op.BUFFER else f"slot {node.arg.number}" if node.op is Op.SLOT else ""


def _short_int(value: int) -> str:
    """A number, or its magnitude if that is long."""
    sign = "\N{MINUS SIGN}" if value < 0 else ""
    return f"{sign}{abs(value)}" if abs(value) < 10**9 else f"about {sign}2^{abs(value).bit_length() - 1}"


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers with runs drawn together: 0, 1, 2, 5 -> "0–2, 5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def details(node: Node) -> tuple[str, ...]:
    """What else is known of a node, in lines."""
    lines = []
    if node.ring is not None and node.domain is not None:
        moduli = ", ".join(map(str, node.ring.moduli[:4])) + (", …" if node.ring.limbs > 4 else "")
        lines.append(f"{node.ring.label}, {node.domain.name}, moduli {moduli}")
    if node.device is not None:
        lines.append(f"on {node.device}")
    held = storage(node)
    if held is not None and node.op is not Op.BUFFER:
        limbs, n = shape_of(held)
        lines.append(f"in {_place(held) or held.arg}, {limbs} × {n} words")
    if node.op is Op.BUFFER:
        lines.append(f"{node.arg.shape[0]} × {node.arg.shape[1]} words" + (", pinned" if node.arg.pinned else ""))
    elif node.op is Op.KERNEL:
        lines.append(f"{node.arg.kind} kernel, {theme.format_count(len(node.src), 'buffer')}")
    elif node.op is Op.CONST:
        lines.append(f"value {node.arg.value}")
    elif node.op is Op.RESCALE:
        lines.append(f"divides by {' · '.join(map(str, node.arg))}")
    return tuple(lines)


def op_counts(nodes: Iterable[Node], most: int = _OPS_NAMED) -> str:
    """The operations of some nodes with their counts: "3 MUL, 2 ADD". What computes comes first, then what is frequent."""
    counts = sorted(Counter(node.op for node in nodes).items(), key=lambda c: (c[0] in _BOOKKEEPING, -c[1], c[0].name))
    named = [f"{theme.format_count(count)} {op.name}" for op, count in counts[:most]]
    return ", ".join(named) + (", …" if len(counts) > most else "")


def composition(order: Sequence[Node]) -> str:
    """A graph in a few words: how many nodes, and which."""
    return f"{theme.format_count(len(order), 'node')}: {op_counts(order)}"
