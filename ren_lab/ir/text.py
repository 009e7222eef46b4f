"""The text form of a graph: one line per node, sources before users; `parse` reads it back to the same objects.

    R0 = RingSpec(n=8, moduli=(17, 97))
    %0 = BUFFER u32 () [BufferId('in0', 'python', (1, 8))]
    %1 = TO_RNS u32 (%0) [(R0, 1)]  # n=2^3 × 2 limbs COEFF
    %2 = NTT u32 (%1)               # n=2^3 × 2 limbs NTT

Rings are named once at the top. The body of a kernel is a block `K0 = {` … `}` above the graph that uses it.
"""

import ast
import inspect
import re
from typing import Any

from ren_lab.ir import op as ops
from ren_lab.ir.node import KernelSpec, Node
from ren_lab.ring import Domain, RingSpec

_ARGUMENT_CLASSES = {
    cls.__name__: cls
    for cls in (
        ops.BufferId, ops.Const, ops.Random, ops.Automorphism, ops.LimbSelect, ops.Boundary, ops.View, ops.Axis, ops.Slot,
        KernelSpec,
    )
}  # fmt: skip
_PARAMETERS = {cls: tuple(inspect.signature(cls).parameters.values()) for cls in _ARGUMENT_CLASSES.values()}
_LINE = re.compile(r"%(\d+) = (\w+) (\w+) \(([^)]*)\)(?: \[(.*)\])?\s*(?:#.*)?")


def print_graph(root: Node) -> str:
    """The text form of everything that `root` depends on."""
    printer = _Printer()
    body = printer.lines(root)
    rings = [f"{name} = {ring!r}" for ring, name in printer.rings.items()]
    return "\n".join([*rings, *printer.blocks, *body])


def format_arg(arg: Any, rings: dict[RingSpec, str] | None = None) -> str:
    """The text of an argument; rings are written in full unless `rings` names them."""
    printer = _Printer()
    if rings is None:
        printer.name_rings = False
    else:
        printer.rings = rings
    return printer.arg(arg)


class _Printer:
    def __init__(self) -> None:
        self.rings: dict[RingSpec, str] = {}
        self.kernels: dict[Node, str] = {}
        self.blocks: list[str] = []
        self.name_rings = True

    def lines(self, root: Node) -> list[str]:
        numbers: dict[Node, int] = {}
        out = []
        for node in root.toposort():
            numbers[node] = len(numbers)
            sources = ", ".join(f"%{numbers[s]}" for s in node.src)
            text = f"%{numbers[node]} = {node.op.name} {node.dtype.name.lower()} ({sources})"
            if node.arg is not None:
                text += f" [{self.arg(node.arg)}]"
            if node.ring is not None and node.domain is not None:
                text += f"  # {node.ring.label} {node.domain.name}"
            out.append(text)
        return out

    def arg(self, arg: Any) -> str:
        if isinstance(arg, RingSpec):
            return self.rings.setdefault(arg, f"R{len(self.rings)}") if self.name_rings else repr(arg)
        if isinstance(arg, Domain):
            return arg.name
        if isinstance(arg, Node):
            if arg not in self.kernels:
                body = self.lines(arg)
                self.kernels[arg] = name = f"K{len(self.kernels)}"
                self.blocks.append("\n".join([f"{name} = {{", *(f"  {line}" for line in body), "}"]))
            return self.kernels[arg]
        if type(arg) is tuple:
            return "(" + ", ".join(map(self.arg, arg)) + ("," if len(arg) == 1 else "") + ")"
        parameters = _PARAMETERS.get(type(arg))
        if parameters is not None:
            while parameters and getattr(arg, parameters[-1].name) == parameters[-1].default:
                parameters = parameters[:-1]
            return f"{type(arg).__name__}({', '.join(self.arg(getattr(arg, p.name)) for p in parameters)})"
        return repr(arg)


def parse(text: str) -> Node:
    """The graph that `print_graph` wrote: the last node of the text. `ValueError` names the line that can't be read.

    Nodes are interned, so reading a graph that is still alive gives back the same objects.
    """
    names: dict[str, Any] = {"COEFF": Domain.COEFF, "NTT": Domain.NTT}
    graph: dict[str, Node] = {}
    block: dict[str, Node] | None = None
    block_name = ""
    last: Node | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line:
            continue
        try:
            if line == "}":
                names[block_name], block, last = last, None, None
            elif line.endswith("= {"):
                block_name, block = line.split()[0], {}
            elif line.startswith("%"):
                match = _LINE.fullmatch(line)
                if match is None:
                    raise ValueError("expected '%number = OP dtype (sources) [argument]'")
                ident, op, dtype, sources, arg = match.groups()
                scope = graph if block is None else block
                src = tuple(scope[s.strip().removeprefix("%")] for s in sources.split(",") if s.strip())
                value = None if arg is None else _evaluate(ast.parse(arg, mode="eval").body, names)
                last = scope[ident] = Node(ops.Op[op], ops.DType[dtype.upper()], src, value)
            else:
                name, _, expression = line.partition(" = ")
                names[name] = _evaluate(ast.parse(expression, mode="eval").body, names)
        except (KeyError, SyntaxError, ValueError, TypeError) as error:
            raise ValueError(f"line {number} of the graph can't be read: {line!r}: {error}") from error
    if last is None:
        raise ValueError("the text holds no node; a graph has at least one line '%0 = …'")
    return last


def _evaluate(tree: ast.expr, names: dict[str, Any]) -> Any:
    """The value of an argument expression: constants, tuples, known names and argument classes, nothing else."""
    match tree:
        case ast.Constant(value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(value)) if isinstance(value, int | float):
            return -value
        case ast.Tuple(elements):
            return tuple(_evaluate(e, names) for e in elements)
        case ast.Name(name):
            return names[name]
        case ast.Call(ast.Name("RingSpec"), args, keywords):
            values = {str(k.arg): _evaluate(k.value, names) for k in keywords}
            return RingSpec(*(_evaluate(a, names) for a in args), **values)
        case ast.Call(ast.Name(name), args, []) if name in _ARGUMENT_CLASSES:
            return _ARGUMENT_CLASSES[name](*(_evaluate(a, names) for a in args))
    raise ValueError(f"{ast.unparse(tree)!r} is not an argument of a node")
