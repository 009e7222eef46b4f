"""From a kernel body to CUDA: each stage becomes one or two functions.

What a stage computes is written as in C (`ren_lab.backends.render`); how the work is spread over threads is written here.

    elementwise     a thread has four coefficients of one limb
    transform       one function where a row fits into shared memory, else one for columns and one for rows; what is computed before
                    is part of the first one's reads, what is computed after part of the last one's writes
    conversion      a block of threads has some columns: see `sums.cuh`
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ren_lab.backends.cuda.program import Device, Launch, Program
from ren_lab.backends.cuda.steps import Outputs, Step, cut
from ren_lab.backends.python.sampling import gaussian_thresholds
from ren_lab.backends.render.dialect import Dialect
from ren_lab.backends.render.expression import Expression
from ren_lab.backends.render.renderer import Writer
from ren_lab.backends.render.stages import Stages
from ren_lab.ir import Node, Op, Random
from ren_lab.ring import R, RingSpec, check_sigma

CUDA = Dialect("CUDA C++", "word", "LANES", "", 0, 0)
"""Of the dialect's settings only the words matter here: launches replace blocks and pieces."""

THREADS = 256
"""Threads of a block, where there is work for so many."""

LOG_TILE = 12
"""A block transforms 2^12 residues: 16 in each of 256 threads, 16 KiB of shared memory and some gaps."""

LOG_WHOLE_ROW = 13
"""Rows up to 2^13 are transformed by one block each: with gaps, 36 KiB of shared memory, which every device has without asking."""

LAZY_LIMIT = 1 << 30
"""Below it, four times a modulus fits into 32 bits, and transforms reduce less."""

DRAWN_LIMBS = 16
"""Limbs that a thread writes from one block of the cipher, as in `random.cuh`."""

DRAW_THREADS = 128
"""Threads of a block of a random draw; a power of two, at least the 16 that work side by side."""

SHARED = 48 << 10
"""Bytes of shared memory that a block may have on any device without asking."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block of threads transforms: 2^log_count pieces of 2^log residues; `tile` in `transform.cuh`."""

    log: int
    log_count: int
    columns: bool

    @property
    def threads(self) -> int:
        return 1 << max(0, self.log - 4) + self.log_count

    @property
    def shared(self) -> int:
        """Bytes of shared memory, gaps included."""
        size = 1 << self.log + self.log_count
        last = self.log // -(-self.log // 4)  # stages of the last group
        return 4 * (size + (size >> (4 if self.columns else last)))


def row_tiles(n: int) -> tuple[Tile, ...]:
    """How a forward transform of a row is cut up: the row itself, or its columns and then its rows."""
    log = n.bit_length() - 1
    if log <= LOG_WHOLE_ROW:
        return (Tile(log, 0, False),)
    first = log // 2
    return Tile(first, LOG_TILE - first, True), Tile(log - first, LOG_TILE - log + first, False)


def write(ast: Node, device: Device) -> Program:
    """The program of a kernel body; see `ren_lab.backends.cuda.program.program`."""
    stages, steps = cut(ast)
    writer = CudaWriter(stages, device)
    for step in steps:
        writer.write(step)
    made = writer.parameters
    counts = ", ".join(str(max(1, len(x))) for x in (stages.shapes, made.tables, made.numbers))
    code = "\n".join([f"typedef ren_call<{counts}> KERNEL_call;\n", *writer.functions])
    return Program(
        code, tuple(writer.launches), tuple(made.numbers), tuple(made.tables), tuple(made.legend), stages.shapes, stages.buffers,
        writer.n, tuple(writer.draws),
    )  # fmt: skip


class CudaWriter(Writer):
    """Writes the functions of the steps, and collects their launches and parameters."""

    def __init__(self, stages: Stages, device: Device) -> None:
        super().__init__(stages, CUDA)
        self.device = device
        self.held = stages.held
        self.launches: list[Launch] = []
        self.draws: list[int] = []
        self.lanes = 4 if self.n >= 4 else 1
        self.wide = "quads" if self.lanes == 4 else "singles"

    def number(self, value: int, meaning: str) -> str:
        return f"k.number[{self.parameters.number(value, meaning)}]"

    def slot(self, number: int) -> str:
        return f"slot_of(k, {number})"

    def lifted(self, conversion: int, row: str) -> str:
        return f"lifted{conversion}[r]"

    def at_hand(self, row: str) -> str:
        return row

    def write(self, step: Step) -> None:
        """Writes the functions of a step."""
        roots = {value for _, value in step.outputs}  # what a step fills, it does not read
        self.stages = replace(self.stages, held={node: slot for node, slot in self.held.items() if node not in roots})
        first = step.outputs[0][1] if step.outputs else None
        if first is not None and first.op is Op.AS_RING and first.src[0].op is Op.RANDOM:
            self.draw(step, first.src[0].arg)
        elif step.conversions:
            self.conversion(step)
        elif step.transform is not None:
            self.transform(step)
        else:
            self.elementwise(step)

    def launch(self, lines: Sequence[str], grid: tuple[int, int], block: int, shared: int, what: str, bound: int = THREADS) -> None:
        """A function, and its launch."""
        name = f"KERNEL_{len(self.launches)}"
        head = f'extern "C" __global__ void __launch_bounds__({bound}) {name}(const __grid_constant__ KERNEL_call k)'
        self.functions.append("\n".join([f"/* {what} */", head, "{", *_indented(lines), "}", ""]))
        self.launches.append(Launch(name, (*grid, 1), block, shared))

    def row(self, slot: int) -> str:
        """Declares the row of a buffer that is written to."""
        return f"u32 *const {self.slot_name(slot)} = {self.slot(slot)} + j * n;"

    def stored(self, expression: Expression, outputs: Outputs) -> tuple[list[str], str]:
        """What computes values at (j, c) and then stores them; and its formula."""
        results = expression.values([value for _, value in outputs])
        names = [self.slot_name(slot) for slot, _ in outputs]
        lines = [self.row(slot) for slot, _ in outputs] + [*expression.outer, *expression.inner]
        lines += [f"store({name} + c, {result});" for name, result in zip(names, results)]
        return lines, "; ".join(f"{name} = {formula}" for name, formula in zip(names, expression.formulas))

    # ---- elementwise

    def elementwise(self, step: Step) -> None:
        lines, formula = self.stored(Expression(self, step.ring, "j"), step.outputs)
        head = [
            f"using namespace {self.wide};",
            "const i64 n = k.number[0], j = blockIdx.y, c = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * LANES;",
        ]
        words = self.n // self.lanes
        block = min(words, THREADS)
        self.launch([*head, *lines], (words // block, step.ring.limbs), block, 0, formula)

    # ---- transforms

    def transform(self, step: Step) -> None:
        """One launch or two. The first one reads `step.value`; what a second one reads is in the step's own buffer."""
        assert step.transform is not None and step.node is not None
        name, inverse = step.transform.name, step.transform is Op.INTT
        own = self.slot_name(step.target)
        lazy = str(max(step.ring.moduli) < LAZY_LIMIT).lower()
        table = self.transform_table(step.transform, step.ring, step.node.arg)
        tiles = row_tiles(self.n)[::-1] if inverse else row_tiles(self.n)
        for number, tile in enumerate(tiles):
            begins, ends = number == 0, number == len(tiles) - 1
            lanes_in = self.lanes if inverse and not tile.columns else 1
            lanes_out = 1 if inverse or tile.columns else self.lanes
            reads, formula = f"const row_in<{lanes_in}> value = {{{own}}};", own
            if begins and step.value is not None:
                reads, formula = self.value(step.ring, step.value, lanes_in)
            keeps = f"const row_out keep = {{{own}}};"
            result = f"{own} = {name}({formula})" + ("" if len(tiles) == 1 else ", columns" if tile.columns else ", rows")
            if ends and step.outputs:
                keeps, formula = self.kept(step, lanes_out)
                result += f"; {formula}"
            options = [lazy, str(tile.log), str(tile.log_count), str(self.n.bit_length() - 1)]
            if not tile.columns:
                options += [str(self.lanes), *([str(len(tiles) == 1).lower()] if inverse else [])]
            call = f"{'inverse' if inverse else 'forward'}_{'columns' if tile.columns else 'rows'}<{', '.join(options)}>"
            needs_own = step.keeps or not (begins and ends) or step.value is None
            lines = [
                "const i64 n = k.number[0], j = blockIdx.y;",
                *([self.row(step.target)] if needs_own else []),
                reads,
                keeps,
                f"{call}(transform_of(k, {table}, j), value, keep);",
            ]
            grid = (self.n >> tile.log + tile.log_count, step.ring.limbs)
            self.launch(lines, grid, tile.threads, tile.shared, result, max(tile.threads, THREADS))

    def value(self, ring: RingSpec, value: Node, lanes: int) -> tuple[str, str]:
        """What a transform reads, so many residues at a time, as a function of the coefficient; and its formula."""
        expression = Expression(self, ring, "j")
        row = expression.plain_row(value)
        if row is not None:
            return "\n".join([*expression.outer, f"const row_in<{lanes}> value = {{{row}}};"]), expression.formula
        result = expression.value(value)
        body = [_namespace(lanes), *expression.outer, *expression.inner, f"return {result};"]
        return "\n".join(["const auto value = [&](i64 c) {", *_indented(body), "};"]), expression.formula

    def kept(self, step: Step, lanes: int) -> tuple[str, str]:
        """What is done with a transform's residues, `lanes` at a time, and its formula."""
        assert step.node is not None
        lines, formula = self.stored(Expression(self, step.ring, "j", at_hand={step.node: "x"}), step.outputs)
        if step.keeps:
            lines.append(f"store({self.slot_name(step.target)} + c, x);")
        body = [_namespace(lanes), *lines]
        return "\n".join([f"const auto keep = [&](i64 c, words<{lanes}> x) {{", *_indented(body), "};"]), formula

    # ---- conversions

    def conversion(self, step: Step) -> None:
        ring, conversions = step.ring, step.conversions
        terms = [self.terms(c) + (c.op is not Op.TO_RNS) for c in conversions]
        width, groups, shared = self._columns(terms, ring.limbs)
        rows = 1 if ring.limbs <= groups else 2 if ring.limbs <= 2 * groups else 4  # that a thread computes together
        lines = [
            f"using namespace {self.wide};",
            f"const i64 n = k.number[0], limbs = {self.number(ring.limbs, 'limbs of the result')};",
            f"const int width = {self.number(width, 'words of columns of a block')}, groups = blockDim.x / width;",
            "const int lane = threadIdx.x % width, group = threadIdx.x / width;",
            "const i64 c = ((i64)blockIdx.x * width + lane) * LANES, stride = width * LANES;",
            "u64 *const shares = (u64 *)shared_words();",
            "u32 *const y0 = (u32 *)(shares + groups * stride);",
        ]
        combines = []
        for number, conversion in enumerate(conversions):
            lines += self.operand(number, conversion)
            combines.append(self.combine(number, conversion))
            lines.append(f"u32 *const y{number + 1} = y{number} + terms{number} * stride;")
        lines.pop()
        expression = Expression(self, ring, "j", {c: i for i, c in enumerate(conversions)})
        stores, formula = self.stored(expression, step.outputs)
        lines += [
            "__syncthreads();",
            f"for (i64 first = group * {rows}; first < limbs; first += groups * {rows}) {{",
            *(f"    word lifted{i}[{rows}];" for i in range(len(combines))),
            *(f"    {text}" for text in combines),
            "#pragma unroll",
            f"    for (int r = 0; r < {rows}; r++) {{",
            "        const i64 j = first + r;",
            "        if (j < limbs) {",
            *(f"            {line}" for line in stores),
            "        }",
            "    }",
            "}",
        ]
        grid = (self.n // (width * self.lanes), 1)
        self.launch(lines, grid, width * groups, shared, f"{formula}, a block of columns at a time")

    def _columns(self, terms: Sequence[int], limbs: int) -> tuple[int, int, int]:
        """The words of columns of a block, its groups of threads, and its bytes of shared memory.

        As wide as a warp, unless that leaves multiprocessors idle or takes too much memory.
        """
        words = self.n // self.lanes

        def cost(width: int) -> tuple[int, int]:
            groups = min(THREADS // width, max(*terms, limbs))
            return groups, 4 * width * self.lanes * (2 * groups + sum(terms))

        width = min(words, 32)
        while width > 8 and words // width < self.device.multiprocessors:
            width //= 2
        while width > 1 and cost(width)[1] > SHARED:
            width //= 2
        groups, shared = cost(width)
        if shared > self.device.shared_per_block:
            raise ValueError(
                f"a conversion of {sum(terms)} rows needs {shared} bytes of shared memory, and {self.device.name} has "
                f"{self.device.shared_per_block}; convert fewer limbs at a time, or use device 'cpu'"
            )
        return width, groups, shared

    def operand(self, number: int, conversion: Node) -> list[str]:
        """The rows that a conversion combines, into shared memory: digits as they are, or y and e of `ren_lab.ring.Conversion`."""
        terms = f"terms{number}"
        if conversion.op is Op.TO_RNS:
            slot = conversion.src[0].src[0].src[0].arg.number  # TO_RNS(LOAD(INDEX(SLOT, word, coefficient)))
            self.formulas[conversion] = f"to_rns({self.slot_name(slot)})"
            return [
                f"const i64 {terms} = {self.number(conversion.arg[1], 'digits')};",
                f"for (i64 i = group; i < {terms}; i += groups)",
                f"    put_shared(y{number} + i * stride + lane * LANES, load({self.slot(slot)} + i * n + c));",
            ]
        source, target = conversion.src[0].ring, conversion.ring
        assert source is not None and target is not None
        expression = Expression(self, source, "i")
        told, y = self.y_of(number, conversion, expression)
        weight = self.parameters.table("weight", (source, target), "floor(2^63 / p)")
        limbs = self.number(source.limbs, f"limbs that are converted ({number})")
        return [
            f"const i64 {terms} = {limbs} + 1; /* y of each limb, and e */",
            "{",
            "    sums<LANES> share = {};",
            f"    for (i64 i = group; i < {terms} - 1; i += groups) {{ /* {told} */",
            *(f"        {line}" for line in (*expression.outer, *expression.inner)),
            f"        const word y = {y};",
            f"        add_share(share, y, wides_of(k, {weight})[i]);",
            f"        put_shared(y{number} + i * stride + lane * LANES, y);",
            "    }",
            f"    share_estimate(y{number} + ({terms} - 1) * stride, shares, share, group, lane, groups, width, {terms} - 1);",
            "}",
        ]

    def combine(self, number: int, conversion: Node) -> str:
        """The call that gives some rows of a conversion from `first` on."""
        factors, p, p_inv, folding = self.sums_of(number, conversion)
        return (
            f"combine(lifted{number}, y{number} + lane * LANES, width * LANES, terms{number}, limbs - first, "
            f"{factors} + first * terms{number}, {p} + first, {p_inv} + first, {folding});"
        )

    # ---- random draws

    def draw(self, step: Step, random: Random) -> None:
        """Residues from ChaCha20, by the thread a block of the cipher."""
        slot = step.outputs[0][0]
        ring, n, out = step.ring, self.n, self.slot_name(slot)
        if random.distribution not in ("uniform", "ternary", "gaussian"):
            raise NotImplementedError(f"draws of the distribution {random.distribution!r} are made on the host")
        place = len(self.parameters.numbers) + 1
        limbs = self.number(ring.limbs, "limbs")
        self.draws.append(place)
        for what in ("key", "key", "key", "key", "number of the draw", "zero"):
            self.number(0, f"{what}, of each call")
        p = self.words("p", ring, "moduli")
        head = [f"u32 *const {out} = {self.slot(slot)};", f"const draw_stream stream = stream_at(k, {place});"]
        if random.distribution == "uniform":
            call = f"draw_uniform({out}, stream, {p}, {limbs}, {self.number(n.bit_length() - 1, 'log2(n)')});"
            blocks, rows = -(-ring.limbs * n // 128) * 16, 1
        else:
            reached, centre, bound = random.distribution == "gaussian", 1, 3
            threshold = "wide_constants{nullptr}"
            if reached:
                sigma = check_sigma(*random.parameters)
                bound = len(gaussian_thresholds(sigma))
                centre = bound // 2
                threshold = f"wides_of(k, {self.parameters.table('thresholds', sigma, f'of the Gaussian of sigma {sigma}')})"
            tables = [
                self.words("p_inv", ring, "their inverses modulo 2^32"),
                self.words("words", tuple([R * R % q for q in ring.moduli]), "2^64 modulo p"),
                self.words("words", tuple([centre * R % q for q in ring.moduli]), f"{centre} * 2^32 modulo p"),
            ]
            call = (
                f"draw_small<{str(reached).lower()}>({out}, stream, {self.number(bound, 'thresholds' if reached else 'bound')}, "
                f"{threshold}, {p}, {', '.join(tables)}, {limbs}, k.number[0]);"
            )
            blocks, rows = -(-n // 128) * 16, -(-ring.limbs // DRAWN_LIMBS)
        block = min(blocks, DRAW_THREADS)
        self.launch([*head, call], (-(-blocks // block), rows), block, 0, f"{out} = {random.distribution} draw")


def _namespace(lanes: int) -> str:
    return f"using namespace {'quads' if lanes == 4 else 'singles'};"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for text in lines for line in text.split("\n")]
