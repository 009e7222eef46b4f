"""From a kernel body to C.

The text holds no constant of a ring: limb counts, moduli, factors and index maps are parameters (`Parameters`), so kernels
that differ only in these are one text, compiled once. `KERNEL` stands for the symbol that the backend gives it.

A stage becomes a function that does one item: a piece of a row (elementwise work), a whole row (with a transform), or a block of
columns (with conversions). The runtime hands the items out to threads.
"""

from dataclasses import dataclass

from ren_lab.backends.render.dialect import Dialect
from ren_lab.backends.render.expression import Expression, join_parts
from ren_lab.backends.render.parameters import Parameters, Table, fold
from ren_lab.backends.render.stages import Stage, Stages, split, walk
from ren_lab.ir import Node, Op, shape_of
from ren_lab.ring import RingSpec

MAX_COLUMNS = 512
"""Columns that a conversion works on together."""

_TRANSFORM_COST, _CONVERSION_COST = 8, 1  # word operations per value, in units of an elementwise operation


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of a kernel and what it is called with.

    Attributes:
        code: C source without a header; `KERNEL` is the name to be given.
        numbers, tables: its parameters.
        legend: what each of them is, a line each.
        shapes: of the slots: output, inputs, temporaries.
        buffers: how many of the slots the caller provides.
        n: the degree.
    """

    code: str
    numbers: tuple[int, ...]
    tables: tuple[Table, ...]
    legend: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...]
    buffers: int
    n: int

    @property
    def text(self) -> str:
        """The source for people: the code with its parameters explained."""
        legend = [f" * {line}" for line in self.legend]
        return "\n".join(["/*", *legend, " */", self.code.replace("KERNEL_", "stage_").replace("KERNEL", "kernel")])


def render(ast: Node, dialect: Dialect) -> Rendered:
    """The source of a kernel body.

    Raises:
        NotImplementedError: it holds something that only the interpreter knows, such as a random draw.
    """
    stages = split(ast, dialect.row_by_row)
    writer = Writer(stages, dialect)
    calls = []
    for stage in stages.stages:
        calls += writer.stage(stage)
    entry = "EXPORT KERNEL(const ren_call *k)\n{\n" + "".join(f"    {call}\n" for call in calls) + "}\n"
    made = writer.parameters
    return Rendered(
        "\n".join([*writer.functions, entry]), tuple(made.numbers), tuple(made.tables), tuple(made.legend), stages.shapes,
        stages.buffers, writer.n,
    )  # fmt: skip


class Writer:
    """Writes the functions of the stages, and collects the parameters."""

    def __init__(self, stages: Stages, dialect: Dialect) -> None:
        self.stages, self.dialect = stages, dialect
        self.n = stages.shapes[0][1]
        self.parameters = Parameters()
        self.functions: list[str] = []
        self.formulas: dict[Node, str] = {}  # of conversions
        self.parameters.number(self.n, "n")

    def number(self, value: int, meaning: str) -> str:
        return f"k->number[{self.parameters.number(value, meaning)}]"

    def words(self, kind: str, key: object, meaning: str) -> str:
        return f"words_of(k, {self.parameters.table(kind, key, meaning)})"  # type: ignore[arg-type]

    def slot(self, number: int) -> str:
        """Where a buffer is."""
        return f"k->slot[{number}]"

    def lifted(self, conversion: int, row: str) -> str:
        """What a conversion gives at (row, c)."""
        return f"load(lifted{conversion} + ({row} - first) * width + (c - begin))"

    def at_hand(self, row: str) -> str:
        """What stands somewhere already, at c."""
        return f"load({row} + c)"

    def slot_name(self, number: int) -> str:
        return "out" if number == 0 else f"in{number}" if number < self.stages.buffers else f"held{number}"

    def stage(self, stage: Stage) -> list[str]:
        """Writes the functions of a stage; gives the calls that run them."""
        if stage.conversions:
            calls = [self.columns(stage)]
            if stage.transform is not None:
                calls.append(self.rows(stage, transform_only=True))
            return calls
        return [self.row_by_row(stage) if stage.rows or stage.also else self.rows(stage)]

    def function(self, lines: list[str], items: int, cost: int, what: str) -> str:
        name = f"KERNEL_{len(self.functions)}"
        head = [f"/* {what} */", f"static void {name}(const ren_call *k, i64 item)", "{"]
        self.functions.append("\n".join([*head, *("    " + line if line else "" for line in lines), "}", ""]))
        count, work = self.number(items, f"items of stage {len(self.functions) - 1}"), self.number(cost, "their operations")
        return f"k->rt->run({name}, k, {count}, {work});"

    # ---- a piece of a row

    def rows(self, stage: Stage, transform_only: bool = False) -> str:
        """Elementwise work on pieces of rows; or on whole rows that are transformed next."""
        ring, n, out = stage.ring, self.n, self.slot_name(stage.target)
        target = f"u32 *{out} = k->slot[{stage.target}] + j * n;"
        expression = Expression(self, ring, "j")
        lines, parts, cost, pieces, source = ["const i64 n = k->number[0];"], [], 0, 1, out
        if stage.transform is None:
            pieces = n // min(n, self.dialect.row_chunk)
            lines += [
                f"const i64 pieces = {self.number(pieces, 'pieces of a row')}, length = n / pieces;",
                "const i64 j = item / pieces, begin = item % pieces * length, end = begin + length;",
            ]
        elif transform_only:
            lines += ["const i64 j = item;"]
        else:
            row = expression.plain_row(stage.value)
            if row is not None:  # the transform reads it where it is
                source, transform_only = row, True
            lines += ["const i64 j = item;" if row is not None else "const i64 j = item, begin = 0, end = n;"]
        if not transform_only:
            result = expression.value(stage.value)
            cost = len(expression.inner) * n * ring.limbs
            parts.append(f"{out} = {expression.formula}")
        lines += [target, *expression.outer]
        if not transform_only:
            lines += [f"for (i64 c = begin; c < end; c += {self.dialect.lanes}) {{"]
            lines += [f"    {line}" for line in expression.inner]
            lines += [f"    store({out} + c, {result});", "}"]
        if stage.transform is not None:
            lines += [self.transform_call(stage.transform, ring, stage.factors, out, source, "j")]
            cost += _TRANSFORM_COST * n * ring.limbs
            parts.append(f"{out} = {stage.transform.name}({out if source == out else expression.formula})")
        return self.function(lines, ring.limbs * pieces, cost, f"{'; '.join(parts)}, row by row")

    # ---- a row, with transforms on the way

    def row_by_row(self, stage: Stage) -> str:
        """Rows are transformed into a thread's own memory and used from there."""
        n, ring = self.n, stage.ring
        outputs = [(stage.target, stage.value), *stage.also]
        lines = [
            "const i64 n = k->number[0], j = item, begin = 0, end = n;",
            f"u32 *const scratch = k->rt->scratch({len(stage.rows)} * n);",
        ]
        at_hand: dict[Node, str] = {}
        cost = 0
        rows = {node: f"scratch + {place} * n" for place, node in enumerate(stage.rows)}
        body = dict.fromkeys(node for _, value in outputs for node in walk(value, frozenset(), {}))
        within = {s for node in body if node.op is Op.JOIN for s in node.src}
        for node in body:
            if node in rows and node not in within:
                lines += ["{", *self.transformed(node, "j", rows[node], at_hand), "}"]
                at_hand[node] = rows[node]
            elif node.op is Op.JOIN and any(s in rows for s in node.src):
                at_hand[node] = f"joined{len(at_hand)}"
                lines += self.joined(node, at_hand[node], rows)
        expression = Expression(self, ring, "j", at_hand=at_hand)
        results = expression.values([value for _, value in outputs])
        names = [self.slot_name(slot) for slot, _ in outputs]
        lines += [f"u32 *{name} = {self.slot(slot)} + j * n;" for name, (slot, _) in zip(names, outputs)]
        lines += [*expression.outer, f"for (i64 c = begin; c < end; c += {self.dialect.lanes}) {{"]
        lines += [*(f"    {line}" for line in expression.inner)]
        lines += [*(f"    store({name} + c, {result});" for name, result in zip(names, results)), "}"]
        what = "; ".join(f"{name} = {formula}" for name, formula in zip(names, expression.formulas))
        if stage.transform is not None:
            lines.append(self.transform_call(stage.transform, ring, stage.factors, names[0], names[0], "j"))
            what += f"; {names[0]} = {stage.transform.name}({names[0]})"
        transforms = [shape_of(node)[0] for node in stage.rows] + [ring.limbs] * (stage.transform is not None)
        cost = n * (len(expression.inner) * ring.limbs + _TRANSFORM_COST * sum(transforms))
        return self.function(lines, ring.limbs, cost, f"{what}, row by row")

    def transform_table(self, op: Op, ring: RingSpec, factors: tuple[int, ...] | None) -> int:
        """The place of the constants of a transform; `factors` are those of an INTT that multiplies as well."""
        key = (ring, factors) if op is Op.INTT else ring
        return self.parameters.table(op.name.lower(), key, f"constants of the {op.name} of each limb")

    def transform_call(self, op: Op, ring: RingSpec, factors: tuple[int, ...] | None, out: str, source: str, row: str) -> str:
        """The transform of a row."""
        name = op.name.lower()
        table = self.transform_table(op, ring, factors)
        return f"k->rt->{name}({out}, {source}, (const ren_transform *)k->table[{table}] + {row});"

    def transformed(self, node: Node, row: str, out: str, at_hand: dict[Node, str]) -> list[str]:
        """Writes the transform of what stands under it into a row of the thread's own."""
        ring = node.ring
        assert ring is not None
        expression = Expression(self, ring, row, at_hand=at_hand)
        source = expression.plain_row(node.src[0])
        lines = []
        if source is None:
            result = expression.value(node.src[0])
            lines = [f"for (i64 c = begin; c < end; c += {self.dialect.lanes}) {{", *(f"    {line}" for line in expression.inner)]
            lines += [f"    store({out} + c, {result});", "}"]
        return [*expression.outer, *lines, self.transform_call(node.op, ring, node.arg, out, source or out, row)]

    def joined(self, node: Node, name: str, rows: dict[Node, str]) -> list[str]:
        """Finds the row of a JOIN: of a buffer, or one that is transformed now."""
        parts, which, at = join_parts(node, self.stages.held)
        picks = self.words("words", which, "which operand has the limb"), self.words("words", at, "its row there")
        lines = [f"const u32 *{name};", "{", f"    const i64 i = {picks[1]}[j];", f"    switch ({picks[0]}[j]) {{"]
        for number, (source, part) in enumerate(zip(node.src, parts)):
            lines.append(f"    case {number}: {{" if number + 1 < len(parts) else "    default: {")
            if part is None:
                lines += [f"        {line}" for line in self.transformed(source, "i", rows[source], {})]
                lines.append(f"        {name} = {rows[source]};")
            else:
                lines.append(f"        {name} = {self.slot(part)} + i * n;")
            lines += ["        break;", "    }"]
        return [*lines, "    }", "}"]

    # ---- a block of columns

    def columns(self, stage: Stage) -> str:
        n, ring, target = self.n, stage.ring, stage.target
        out = self.slot_name(target)
        terms = [self.terms(c) for c in stage.conversions]
        width = min(n, MAX_COLUMNS)
        while width > 16 and width * (max(terms) + 1) > self.dialect.block_words:
            width //= 2
        lines = [
            f"const i64 n = k->number[0], width = {self.number(width, 'columns of a block')};",
            "const i64 begin = item * width, end = begin + width;",
        ]
        cost = 0
        combines = []
        for number, conversion in enumerate(stage.conversions):
            lines += self.operand(number, conversion)
            combines.append(self.combine(number, conversion))
            cost += _CONVERSION_COST * terms[number] * ring.limbs * n
        limbs = self.number(ring.limbs, "limbs of the result")
        direct = stage.value in stage.conversions
        if direct:
            lines += [
                f"for (i64 first = 0, limbs = {limbs}; first < limbs; first += 4) {{",
                "    const i64 rows = limbs - first < 4 ? limbs - first : 4;",
                f"    {combines[0].format(out=f'k->slot[{target}] + first * n + begin', stride='n')}",
                "}",
            ]
            return self.function(lines, n // width, cost, f"{out} = {self.formulas[stage.value]}, a block of columns at a time")
        expression = Expression(self, ring, "j", dict(zip(stage.conversions, range(len(combines)), strict=True)))
        result = expression.value(stage.value)
        cost += len(expression.inner) * ring.limbs * n
        lines += [f"u32 lifted{i}[4 * width] __attribute__((aligned(64)));" for i in range(len(combines))]
        lines += [
            f"for (i64 first = 0, limbs = {limbs}; first < limbs; first += 4) {{",
            "    const i64 rows = limbs - first < 4 ? limbs - first : 4;",
            *(f"    {text.format(out=f'lifted{i}', stride='width')}" for i, text in enumerate(combines)),
            "    for (i64 j = first; j < first + rows; j++) {",
            f"        u32 *{out} = k->slot[{target}] + j * n;",
            *(f"        {line}" for line in expression.outer),
            f"        for (i64 c = begin; c < end; c += {self.dialect.lanes}) {{",
            *(f"            {line}" for line in expression.inner),
            f"            store({out} + c, {result});",
            "        }",
            "    }",
            "}",
        ]
        return self.function(lines, n // width, cost, f"{out} = {expression.formula}, a block of columns at a time")

    @staticmethod
    def terms(conversion: Node) -> int:
        if conversion.op is Op.TO_RNS:
            return conversion.arg[1]
        assert conversion.src[0].ring is not None
        return conversion.src[0].ring.limbs

    def operand(self, number: int, conversion: Node) -> list[str]:
        """The rows that a conversion combines: digits as they are, or the y of `ren_lab.ring.Conversion` and its e."""
        if conversion.op is Op.TO_RNS:
            slot = conversion.src[0].src[0].src[0].arg.number  # TO_RNS(LOAD(INDEX(SLOT, word, coefficient)))
            self.formulas[conversion] = f"to_rns({self.slot_name(slot)})"
            return [f"const u32 *y{number} = k->slot[{slot}] + begin;"]
        source, target = conversion.src[0].ring, conversion.ring
        assert source is not None and target is not None
        expression = Expression(self, source, "i")
        told, y = self.y_of(number, conversion, expression)
        weight = self.parameters.table("weight", (source, target), "floor(2^63 / p)")
        terms = f"terms{number}"
        return [
            f"const i64 {terms} = {self.number(source.limbs, f'limbs that are converted ({number})')};",
            f"u32 y{number}[({terms} + 1) * width] __attribute__((aligned(64)));",
            f"for (i64 i = 0; i < {terms}; i++) {{ /* {told} */",
            *(f"    {line}" for line in expression.outer),
            f"    for (i64 c = begin; c < end; c += {self.dialect.lanes}) {{",
            *(f"        {line}" for line in expression.inner),
            f"        store(y{number} + i * width + (c - begin), {y});",
            "    }",
            "}",
            f"k->rt->estimate(y{number}, {terms}, width, (const u64 *)k->table[{weight}]); /* y[{terms}] = e */",
        ]

    def y_of(self, number: int, conversion: Node, expression: Expression) -> tuple[str, str]:
        """Writes the y of a conversion at (i, c); gives what it is, for people, and its value."""
        value = expression.value(conversion.src[0])
        self.formulas[conversion] = f"{conversion.op.name.lower()}({expression.formula})"
        if conversion.op is Op.LIFT:  # its operand is y
            return f"y = {expression.formula}", value
        p, p_inv = expression.modulus()
        into_y = self.words("into_y", (conversion.src[0].ring, conversion.ring), f"factors that take x into y{number}")
        expression.outer.append(f"const word into_y = splat({into_y}[i]);")
        return f"y = ({expression.formula}) * (Q/p)^-1 modulo p", f"scale({value}, into_y, {p}, {p_inv})"

    def sums_of(self, number: int, conversion: Node) -> tuple[str, str, str, str]:
        """What a conversion's sums of products take: factors, moduli, their inverses, and how sums are folded."""
        source, target = conversion.src[0].ring, conversion.ring
        assert target is not None
        if conversion.op is Op.TO_RNS:
            count, bound, key, kind = conversion.arg[1], (1 << 32) - 1, conversion.arg, "digits"
        else:
            assert source is not None
            count, bound = source.limbs + 1, max(*source.moduli, source.limbs + 2) - 1
            key, kind = (source, target), "lift"
        factors = self.words(kind, key, f"factors of the rows that give y{number}'s residues")
        p, p_inv = self.words("p", target, "moduli"), self.words("p_inv", target, "their inverses modulo 2^32")
        per_fold, bits = fold(bound, count, max(target.moduli))
        folding = f"{self.number(per_fold, 'terms between foldings')}, {self.number(bits, 'bits of a folding')}"
        return factors, p, p_inv, folding

    def combine(self, number: int, conversion: Node) -> str:
        """The call that gives up to 4 rows of a conversion from `first` on; `{out}` and `{stride}` are to be filled in."""
        if conversion.op is Op.TO_RNS:
            stride, terms = "n", self.number(conversion.arg[1], "digits")
        else:
            stride, terms = "width", f"(terms{number} + 1)"
        factors, p, p_inv, folding = self.sums_of(number, conversion)
        return (
            f"k->rt->combine({{out}}, {{stride}}, y{number}, {stride}, {terms}, width, rows, {factors} + first * {terms}, "
            f"{p} + first, {p_inv} + first, {folding});"
        )
