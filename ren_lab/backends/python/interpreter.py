"""Kernels by NumPy: the body of a kernel becomes a list of steps, each a call of an arithmetic helper on whole arrays.

This is what every operation means; other backends agree with it bit for bit. A program works on a list of arrays: the kernel's
slots, the loaded parts of them, and temporaries. A temporary that dies gives its array to the value that is computed from it
element by element, and the first one lives in the output's array where it can.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ren_lab.backends.python import arith, sampling
from ren_lab.ir import ELEMENTWISE, LimbSelect, Node, Op, join_rows, shape_of
from ren_lab.ring import automorphism_indices

_BINARY: dict[Op, Callable[..., Any]] = {Op.ADD: arith.add, Op.SUB: arith.sub, Op.MUL: arith.mul}
_ROWS: dict[Op, Callable[..., Any]] = {Op.NTT: arith.ntt, Op.INTT: arith.intt, Op.NEG: arith.neg}
_IN_PLACE = (ELEMENTWISE - {Op.DOT}) | {Op.NTT, Op.INTT}  # these helpers may write over their first operand


@dataclass(slots=True)
class _Value:
    """Where a value of the body stands while the steps are laid out."""

    place: int
    temporary: bool
    last_use: int = -1


class _Layout:
    """Lays out the steps of one kernel body."""

    def __init__(self, ast: Node) -> None:
        stores = ast.src if ast.op is Op.GROUP else (ast,)
        self.ast = ast
        values = [store.src[1] for store in stores]
        self.results = {value: values.index(value) for value in values}
        self.again = [(place, values.index(value)) for place, value in enumerate(values) if values.index(value) < place]
        self.outputs = len(stores)
        self.out_shape = stores[0].src[0].src[0].arg.shape
        self.slots = 1 + max((n.arg.number for n in ast.toposort() if n.op is Op.SLOT), default=0)
        self.temporaries: list[tuple[int, tuple[int, int]]] = []
        self.places = self.slots
        self.steps: list[Callable[[list[Any]], None]] = []
        self.text: list[str] = []
        self.values: dict[Node, _Value] = {}
        self._lay_out()

    def _body(self) -> list[Node]:
        """The values of the body, operands first; indices, conditions and typing are part of their users."""
        order = []
        for node in self.ast.toposort():
            inner = node.src[0].op if node.op is Op.AS_RING else node.op
            if node.op is Op.AS_RING and inner in (Op.LOAD, Op.RANDOM, Op.RESIDUES, Op.WHERE):
                order.append(node)
            elif node.op in ELEMENTWISE and node.ring is not None:
                order.append(node)
            elif node.op in (Op.NTT, Op.INTT, Op.BASE_CONVERT, Op.LIFT, Op.TO_RNS, Op.JOIN):
                order.append(node)
        return order

    def _new_place(self, shape: tuple[int, int] | None = None) -> int:
        place = self.places
        self.places += 1
        if shape is not None:
            self.temporaries.append((place, shape))
        return place

    def _lay_out(self) -> None:
        body = self._body()
        last: dict[Node, int] = {}
        for position, node in enumerate(body):
            for source in node.src:
                last[source] = position
        final_in_place = self.outputs == 1 and next(iter(self.results)).op in _IN_PLACE
        out_busy_until = -1  # position of the last use of the temporary that stands in the output's array
        for position, node in enumerate(body):
            if node in self.results:
                place = self.results[node]
            elif node.op is Op.AS_RING and node.src[0].op in (Op.LOAD, Op.RESIDUES, Op.WHERE):
                place = -1  # no array of its own, unless the load says otherwise
            else:
                place = -1
                shape = shape_of(node)
                if node.op in _IN_PLACE:
                    for source in node.src:
                        held = self.values.get(source)
                        if source in self.results:  # one output may be a part of another one's expression
                            continue
                        if held and held.temporary and last[source] == position and shape_of(source) == shape:
                            place = held.place
                            break
                if place == 0:
                    out_busy_until = last[node]
                if place < 0 and final_in_place and out_busy_until < position and shape == self.out_shape:
                    place, out_busy_until = 0, last[node]
                if place < 0:
                    place = self._new_place(shape)
            self._step(node, place)
        for place, same in self.again:
            self._copy(place, same)

    def _copy(self, place: int, same: int) -> None:
        def step(v: list[Any]) -> None:
            np.copyto(v[place], v[same])

        self.steps.append(step)
        self.text.append(f"{self._name(place)} = {self._name(same)}")

    def _emit(self, node: Node, place: int, step: Callable[[list[Any]], None], text: str) -> None:
        self.steps.append(step)
        self.text.append(text)
        self.values[node] = _Value(place, node.op is not Op.AS_RING or node.src[0].op is Op.RANDOM)

    def _name(self, place: int) -> str:
        if place < self.outputs:
            return "out" if self.outputs == 1 else f"out{place}"
        return f"in{place}" if place < self.slots else f"v{place}"

    def _at(self, node: Node) -> int:
        return self.values[node].place

    def _step(self, node: Node, place: int) -> None:
        ring = node.ring
        assert ring is not None
        if node.op is Op.AS_RING:
            self._leaf(node, place)
        elif node.op in _BINARY:
            self._binary(node, place)
        elif node.op in _ROWS:
            a, rows = self._at(node.src[0]), _ROWS[node.op]
            name = node.op.name.lower()

            def step(v: list[Any]) -> None:
                rows(v[a], ring, v[place])

            def scaled(v: list[Any]) -> None:
                rows(v[a], ring, v[place])
                arith.mul_scalar(v[place], node.arg, ring, v[place])

            text = f"{name}({self._name(a)})" if node.arg is None else f"{name}({self._name(a)}) * c"
            self._emit(node, place, step if node.arg is None else scaled, f"{self._name(place)} = {text}  # {ring.label}")
        elif node.op is Op.JOIN:
            self._join(node, place)
        elif node.op is Op.DOT:
            self._dot(node, place)
        elif node.op in (Op.BASE_CONVERT, Op.LIFT):
            a, source = self._at(node.src[0]), node.src[0].ring
            assert source is not None

            def step(v: list[Any]) -> None:
                arith.base_convert(v[a], source, ring, v[place], node.op is Op.LIFT)

            text = f"{self._name(place)} = {node.op.name.lower()}({self._name(a)})  # {source.limbs} limbs -> {ring.limbs} limbs"
            self._emit(node, place, step, text)
        else:
            a = node.src[0].src[0].src[0].arg.number  # TO_RNS(LOAD(INDEX(SLOT)))

            def step(v: list[Any]) -> None:
                arith.to_rns(v[a], ring, v[place])

            self._emit(node, place, step, f"{self._name(place)} = to_rns({self._name(a)})  # {ring.label}")

    def _join(self, node: Node, place: int) -> None:
        at: list[tuple[int, slice | np.ndarray, slice | np.ndarray]] = []
        for source, pairs in zip(node.src, join_rows(node)):
            rows, taken = zip(*pairs)
            at.append((self._at(source), _slice(np.array(rows)), _slice(np.array(taken))))

        def step(v: list[Any]) -> None:
            out = v[place]
            for a, rows, taken in at:
                out[rows] = v[a][taken]

        self._emit(node, place, step, f"{self._name(place)} = join({', '.join(self._name(a) for a, _, _ in at)})")

    def _dot(self, node: Node, place: int) -> None:
        ring, at = node.ring, list(map(self._at, node.src))
        assert ring is not None

        def step(v: list[Any]) -> None:
            out = v[place]
            arith.mul(v[at[0]], v[at[1]], ring, out)
            part = np.empty_like(out)
            for a, b in zip(at[2::2], at[3::2]):
                arith.add(out, arith.mul(v[a], v[b], ring, part), ring, out)

        names = [self._name(a) for a in at]
        text = " + ".join(f"{a} * {b}" for a, b in zip(names[::2], names[1::2]))
        self._emit(node, place, step, f"{self._name(place)} = dot({text})")

    def _binary(self, node: Node, place: int) -> None:
        ring, function = node.ring, _BINARY[node.op]
        assert ring is not None
        left, right = node.src
        a, b = self._at(left), self._at(right)
        scalar = right.op is Op.AS_RING and right.src[0].op is Op.RESIDUES
        impulse = right.op is Op.AS_RING and right.src[0].op is Op.WHERE
        name = node.op.name.lower()
        if scalar and node.op is Op.MUL:
            factors = right.src[0].arg

            def step(v: list[Any]) -> None:
                arith.mul_scalar(v[a], factors, ring, v[place])

            text = f"{self._name(place)} = mul({self._name(a)}, c)  # c: one residue per limb"
        elif impulse and node.op is not Op.MUL:
            column = _column(right.src[0].src[0])
            values = np.array(right.src[0].src[1].arg, np.uint32)[:, None]

            def step(v: list[Any]) -> None:
                x, out = v[a], v[place]
                if out is not x:
                    np.copyto(out, x)
                function(x[:, column : column + 1], values, ring, out[:, column : column + 1])

            text = f"{self._name(place)} = {name}({self._name(a)}, c at coefficient {column})"
        else:

            def step(v: list[Any]) -> None:
                function(v[a], v[b], ring, v[place])

            text = f"{self._name(place)} = {name}({self._name(a)}, {self._name(b)})"
        self._emit(node, place, step, f"{text}")

    def _leaf(self, node: Node, place: int) -> None:
        body, ring = node.src[0], node.ring
        assert ring is not None
        if body.op is Op.LOAD:
            self._load(node, body.src[0], place)
        elif body.op is Op.RANDOM:
            draw, parameters = getattr(sampling, _SAMPLERS[body.arg.distribution]), body.arg.parameters

            def step(v: list[Any]) -> None:
                draw(ring, *parameters, sampling.current_generator(), v[place])

            text = f"{self._name(place)} = draw_{body.arg.distribution}{parameters or '()'}  # {ring.label}"
            self._emit(node, place, step, text)
        else:
            self._constant(node, body, place)

    def _constant(self, node: Node, body: Node, place: int) -> None:
        residues = body if body.op is Op.RESIDUES else body.src[1]
        column = None if body.op is Op.RESIDUES else _column(body.src[0])
        values = np.array(residues.arg, np.uint32)[:, None]
        values.setflags(write=False)
        if place < 0:  # an operand: a column that broadcasts, or a whole array where it is no plain column
            place = self._new_place()
            if column is not None:
                whole = np.zeros(shape_of(node), np.uint32)
                whole[:, column : column + 1] = values
                values = whole

            def step(v: list[Any]) -> None:
                v[place] = values
        else:

            def step(v: list[Any]) -> None:
                v[place][...] = 0 if column is not None else values
                if column is not None:
                    v[place][:, column : column + 1] = values

        where = "everywhere" if column is None else f"at coefficient {column}"
        self._emit(node, place, step, f"{self._name(place)} = c {where}")

    def _load(self, node: Node, index: Node, place: int) -> None:
        slot, row, column = index.src
        number, shape = slot.arg.number, slot.arg.shape
        rows = _rows(row)
        order = _order(column)
        whole = isinstance(rows, slice) and (rows.start, rows.stop) == (0, shape[0])
        if place < 0 and order is None and whole:
            self.values[node] = _Value(number, False)  # the slot itself
            return
        source = self._name(number)
        picked = "" if whole else f"[{rows.start}:{rows.stop}]" if isinstance(rows, slice) else f"[{list(rows)}]"
        turned = "" if order is None else "[:, permutation]"
        result_out = 0 <= place < self.outputs
        if place < 0:
            place = self._new_place() if order is None else self._new_place(shape_of(node))
        if order is None:
            if result_out:

                def step(v: list[Any]) -> None:
                    np.copyto(v[place], v[number][rows])
            else:

                def step(v: list[Any]) -> None:
                    v[place] = v[number][rows]
        else:

            def step(v: list[Any]) -> None:
                np.take(v[number][rows], order, axis=1, out=v[place], mode="clip")

        self._emit(node, place, step, f"{self._name(place)} = {source}{picked}{turned}")
        self.values[node].temporary = order is not None and not result_out


_SAMPLERS = {
    "uniform": "uniform", "interval": "uniform_on_interval", "ternary": "ternary", "sparse_ternary": "sparse_ternary",
    "gaussian": "gaussian",
}  # fmt: skip


def _rows(row: Node) -> slice | np.ndarray:
    """The limbs that an index expression names, as a slice where they stand side by side."""
    path = []
    while row.op is not Op.GIDX:
        path.append(row)
        row = row.src[0]
    rows = np.arange(row.arg.extent)
    for step in reversed(path):
        if step.op is Op.PERMUTE:
            assert isinstance(step.arg, LimbSelect)
            rows = np.array(step.arg.indices)[rows]
        else:
            rows = rows + step.src[1].arg.value
    return _slice(rows)


def _slice(rows: np.ndarray) -> slice | np.ndarray:
    """Rows as a slice where they stand side by side."""
    first = int(rows[0])
    if np.array_equal(rows, np.arange(first, first + len(rows))):
        return slice(first, first + len(rows))
    rows.setflags(write=False)
    return rows


def _order(column: Node) -> np.ndarray | None:
    """The permutation of coefficients that an index expression names; None for the identity."""
    path = []
    while column.op is not Op.GIDX:
        path.append(column)
        column = column.src[0]
    order: np.ndarray | None = None
    for step in reversed(path):
        indices = automorphism_indices(step.arg.n, step.arg.galois)
        order = indices if order is None else indices[order]
    return order


def _column(condition: Node) -> int:
    """The coefficient at which an EQ of an index with a constant holds."""
    index, wanted = condition.src
    order = _order(index)
    return wanted.arg.value if order is None else int(np.flatnonzero(order == wanted.arg.value)[0])


def compile_kernel(ast: Node) -> Callable[..., None]:
    """The program of a kernel body: call it with the output's array and the inputs' arrays, u32[rows, n] each.

    The output must not overlap an input. Temporaries are made for each call, so one program may run in several threads.
    """
    layout = _Layout(ast)
    steps, temporaries = tuple(layout.steps), tuple(layout.temporaries)
    extra = [None] * (layout.places - layout.slots)
    if len(steps) == 1 and not extra:
        only = steps[0]
        return lambda *slots: only(slots)  # type: ignore[arg-type]

    def run(*slots: np.ndarray) -> None:
        v: list[Any] = [*slots, *extra]
        for place, shape in temporaries:
            v[place] = np.empty(shape, np.uint32)
        for step in steps:
            step(v)

    return run


def source(ast: Node) -> str:
    """What the program of a kernel body does, a line per step."""
    return "\n".join(_Layout(ast).text)
