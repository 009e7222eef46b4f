"""Elementwise expressions of a kernel body, as lines of text.

What stands before the loop over coefficients (rows, constants of a limb) and what stands in it are written apart; whoever writes
the loop, for processors or for threads of a GPU, puts the two in their places.
"""

from typing import Protocol

from ren_lab.backends.render.dialect import Dialect
from ren_lab.backends.render.parameters import Table, fold
from ren_lab.backends.render.stages import CONVERSIONS, Stages, check, walk
from ren_lab.ir import ELEMENTWISE, LimbSelect, Node, Op, join_rows, shape_of
from ren_lab.ring import RingSpec


class Places(Protocol):
    """What an expression asks of the writer of its kernel: where things are, and places for parameters.

    Attributes:
        dialect: what it writes.
        stages: of the kernel.
        n: the degree.
        formulas: of conversions.
    """

    dialect: Dialect
    stages: Stages
    n: int
    formulas: dict[Node, str]

    def number(self, value: int, meaning: str) -> str:
        """A number among the parameters."""

    def words(self, kind: str, key: object, meaning: str) -> str:
        """A table among the parameters."""

    def slot(self, number: int) -> str:
        """Where a buffer is."""

    def slot_name(self, number: int) -> str:
        """What a buffer is called in formulas."""

    def lifted(self, conversion: int, row: str) -> str:
        """What a conversion gives at (row, c)."""

    def at_hand(self, row: str) -> str:
        """What a row that stands somewhere already holds at c."""


class Expression:
    """Elementwise work of one ring, at (row, c): what stands before the loop over c, and what stands in it."""

    def __init__(
        self,
        writer: Places,
        ring: RingSpec,
        row: str,
        lifted: dict[Node, int] | None = None,
        at_hand: dict[Node, str] | None = None,
    ) -> None:
        self.writer, self.ring, self.row = writer, ring, row
        self.lifted = lifted or {}
        self.at_hand = at_hand or {}  # rows that stand somewhere already
        self.outer: list[str] = []
        self.inner: list[str] = []
        self.formula = ""
        self.formulas: list[str] = []
        self._moduli: dict[str, str] = {}

    def modulus(self) -> tuple[str, str]:
        """The names of p and of its inverse."""
        return self._modulus("p"), self._modulus("p_inv")

    def _modulus(self, kind: str) -> str:
        if kind not in self._moduli:
            meaning = "moduli" if kind == "p" else "their inverses modulo 2^32"
            self.outer.append(f"const word {kind} = splat({self.writer.words(kind, self.ring, meaning)}[{self.row}]);")
            self._moduli[kind] = kind
        return kind

    def value(self, root: Node) -> str:
        """Writes the expression; gives the name of its value."""
        return self.values([root])[0]

    def values(self, roots: list[Node]) -> list[str]:
        """Writes expressions that share what they have in common; gives the names of their values."""
        names: dict[Node, str] = {}
        formulas: dict[Node, str] = {}
        elsewhere = {*self.writer.stages.held, *self.at_hand}
        for node in dict.fromkeys(node for root in roots for node in walk(root, CONVERSIONS | {Op.JOIN}, elsewhere)):
            check(node)
            if node in self.at_hand:
                names[node] = self._let(self.writer.at_hand(self.at_hand[node]))
                formulas[node] = f"{node.op.name}(…)"
            elif node in self.writer.stages.held:
                names[node], formulas[node] = self._let(f"load({self._row(self.writer.stages.held[node])} + c)"), "held"
            elif node.op is Op.JOIN:
                names[node], formulas[node] = self._join(node)
            elif node in self.lifted:
                i = self.lifted[node]
                names[node] = self._let(self.writer.lifted(i, self.row))
                formulas[node] = self.writer.formulas[node]
            elif node.op in ELEMENTWISE:
                names[node] = self._operation(node, names)
                formulas[node] = _formula(node, [formulas[s] for s in node.src])
            else:
                names[node], formulas[node] = self._leaf(node, len(names))
        for root in roots:
            text = formulas[root][1:-1] if root.op in ELEMENTWISE else formulas[root]
            self.formulas.append(text if len(text) <= 90 else text[:87] + "...")
        self.formula = self.formulas[-1]
        return [names[root] for root in roots]

    def _let(self, text: str) -> str:
        name = f"v{len(self.inner)}"
        self.inner.append(f"const {self.writer.dialect.word} {name} = {text};")
        return name

    def plain_row(self, value: Node) -> str | None:
        """The name of the row that a value is read from just as it is; None for anything else."""
        held = self.writer.stages.held
        if value in held:
            self.formula = "held"
            return self._row(held[value])
        if value.op is Op.AS_RING and value.src[0].op is Op.LOAD and not _elements(value.src[0].src[0].src[2]):
            name, self.formula = self._load_row(value.src[0].src[0])
            return name
        return None

    def _row(self, slot: int) -> str:
        name = f"a{len(self.outer)}"
        self.outer.append(f"const u32 *{name} = {self.writer.slot(slot)} + {self.row} * n;")
        return name

    def _operation(self, node: Node, names: dict[Node, str]) -> str:
        inputs = [names[s] for s in node.src]
        if node.op is Op.DOT:
            return self._dot(inputs)
        if node.op is Op.MUL:
            constant = [s.op is Op.AS_RING and s.src[0].op is Op.RESIDUES for s in node.src]
            if constant[0] and not constant[1]:
                inputs.reverse()
            p, p_inv = self.modulus()
            return self._let(f"{'scale' if any(constant) else 'mul'}({inputs[0]}, {inputs[1]}, {p}, {p_inv})")
        return self._let(f"{node.op.name.lower()}({', '.join(inputs)}, {self._modulus('p')})")

    def _dot(self, inputs: list[str]) -> str:
        """A sum of products in 64 bits, folded as often as its bound demands and reduced once."""
        p, p_inv = self.modulus()
        pairs = list(zip(inputs[::2], inputs[1::2]))
        most = max(self.ring.moduli)
        per_fold, bits = fold(most - 1, len(pairs), most)
        total = ""
        for done, (a, b) in enumerate(pairs):
            total = f"more_products({total}, {a}, {b})" if total else f"products({a}, {b})"
            if bits and ((done + 1) % per_fold == 0 or done + 1 == len(pairs)):
                total = f"folded_sums({total}, {p}, {bits})"
        return self._let(f"reduced_sums({total}, {p}, {p_inv})")

    def _join(self, node: Node) -> tuple[str, str]:
        """Each row of a JOIN is a row of one of its operands: choose it once, then load."""
        writer = self.writer
        found, which_operand, at_row = join_parts(node, writer.stages.held)
        parts = [slot for slot in found if slot is not None]
        if len(parts) < len(found):
            raise NotImplementedError("the renderer knows a JOIN with transforms only where a stage works row by row")
        which = writer.words("words", which_operand, "which operand has the limb")
        at = writer.words("words", at_row, "its row there")
        elements = _join_elements(node, writer.stages.held)
        chosen = writer.slot(parts[-1])
        for number, slot in reversed(list(enumerate(parts[:-1]))):
            chosen = f"{which}[{self.row}] == {number} ? {writer.slot(slot)} : {chosen}"
        name = f"a{len(self.outer)}"
        self.outer.append(f"const u32 *{name} = ({chosen}) + (i64){at}[{self.row}] * n;")
        formula = f"join({', '.join(map(writer.slot_name, parts))})"
        return self._load_permuted(name, elements, formula)

    def _leaf(self, node: Node, number: int) -> tuple[str, str]:
        body, writer = node.src[0], self.writer
        if body.op is Op.LOAD:
            return self._load(body.src[0])
        residues = body if body.op is Op.RESIDUES else body.src[1]
        table = writer.words("words", residues.arg, "a residue per limb")
        if body.op is Op.RESIDUES:
            name = f"r{number}"
            self.outer.append(f"const {writer.dialect.word} {name} = splat({table}[{self.row}]);")
            return name, "c"
        column = writer.number(_column(body.src[0], writer.n), "the coefficient that is not zero")
        return self._let(f"impulse(c, {column}, {table}[{self.row}])"), "c at one coefficient"

    def _load_row(self, index: Node) -> tuple[str, str]:
        """The name of the row that an index names, and what to call it in a formula."""
        slot, row, _ = index.src
        writer, number = self.writer, slot.arg.number
        name = f"a{len(self.outer)}"
        formula = writer.slot_name(number)
        rows = _rows(row)
        if rows == tuple(range(rows[0], rows[0] + len(rows))):
            first = writer.number(rows[0], f"first row of {formula}")
            self.outer.append(f"const u32 *{name} = {writer.slot(number)} + ({first} + {self.row}) * n;")
        else:
            table = writer.words("words", rows, f"rows of {formula}")
            self.outer.append(f"const u32 *{name} = {writer.slot(number)} + (i64){table}[{self.row}] * n;")
        return name, formula

    def _load(self, index: Node) -> tuple[str, str]:
        name, formula = self._load_row(index)
        return self._load_permuted(name, _elements(index.src[2]), formula)

    def _load_permuted(self, name: str, elements: tuple[int, ...], formula: str) -> tuple[str, str]:
        """An element of a row, which is taken through the index map of automorphisms if there are any."""
        writer = self.writer
        if not elements:
            return self._let(f"load({name} + c)"), formula
        table = writer.words("order", (writer.n, elements), f"index map of {' and '.join(f'X -> X^{g}' for g in elements)}")
        order = f"order{len(self.outer)}"
        self.outer.append(f"const u32 *{order} = {table};")
        return self._let(f"gather({name}, {order} + c)"), f"permuted {formula}"


def join_parts(node: Node, held: dict[Node, int]) -> tuple[list[int | None], tuple[int, ...], tuple[int, ...]]:
    """Where the rows of a JOIN are: the slot of each operand, or None for one that is computed; and for each limb its operand and
    its row in the slot, or its limb there."""
    parts: list[int | None] = []
    places: dict[int, tuple[int, int]] = {}
    for number, (source, pairs) in enumerate(zip(node.src, join_rows(node))):
        rows: tuple[int, ...] | range = range(shape_of(source)[0])
        if source in held:
            parts.append(held[source])
        elif source.op is Op.AS_RING:
            slot, row, _ = source.src[0].src[0].src
            parts.append(slot.arg.number)
            rows = _rows(row)
        else:
            parts.append(None)
        places |= {limb: (number, rows[taken]) for limb, taken in pairs}
    picked = [places[limb] for limb in range(len(places))]
    return parts, tuple(number for number, _ in picked), tuple(row for _, row in picked)


def _join_elements(node: Node, held: dict[Node, int]) -> tuple[int, ...]:
    """The Galois elements of the automorphisms through which the operands of a JOIN are read."""
    found = {() if source in held else _elements(source.src[0].src[0].src[2]) for source in node.src}
    if len(found) > 1:
        raise NotImplementedError("the renderer does not know a JOIN whose operands are permuted differently")
    return found.pop()


def _formula(node: Node, parts: list[str]) -> str:
    """What an operation computes, for people."""
    match node.op:
        case Op.NEG:
            return f"(-{parts[0]})"
        case Op.DOT:
            return "(" + " + ".join(f"{a} * {b}" for a, b in zip(parts[::2], parts[1::2])) + ")"
    return "(" + {Op.ADD: " + ", Op.SUB: " - ", Op.MUL: " * "}[node.op].join(parts) + ")"


def _path(index: Node) -> tuple[Node, list[Node]]:
    """The axis under an index expression, and the steps from it to the expression."""
    path = []
    while index.op is not Op.GIDX:
        path.append(index)
        index = index.src[0]
    return index, path[::-1]


def _rows(row: Node) -> tuple[int, ...]:
    """The limbs that an index expression names."""
    axis, path = _path(row)
    rows = list(range(axis.arg.extent))
    for step in path:
        if step.op is Op.PERMUTE:
            assert isinstance(step.arg, LimbSelect)
            rows = [step.arg.indices[r] for r in rows]
        else:
            rows = [r + step.src[1].arg.value for r in rows]
    return tuple(rows)


def _elements(column: Node) -> tuple[int, ...]:
    """The Galois elements of the automorphisms on a coefficient index, innermost first."""
    return tuple([step.arg.galois for step in _path(column)[1]])


def _column(condition: Node, n: int) -> int:
    """The coefficient at which an EQ of an index with a constant holds."""
    index, wanted = condition.src
    order = Table("order", (n, _elements(index))).array().tolist()
    return order.index(wanted.arg.value)
