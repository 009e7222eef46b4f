"""What became of each node in a pass, and which of the user's lines stand behind it.

A pass hands over a mapping from old nodes to new ones. That says where a value went, not which node a reader takes for the same
one: MUL(a, b) -> BUFFERIZE(MUL(a, b)) maps the product to the BUFFERIZE, and a reader sees the product where it was and a
BUFFERIZE added above it. `continuity` answers the reader's question; everything that counts added, removed and changed nodes,
keeps their places or follows their history is made from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from ren_lab.events import RuleFired
from ren_lab.ir import DType, Node, Op, storage

Origin = tuple[str, int]
Lines = Mapping[Node, tuple[Origin, ...]]


def same_operation(old: Node, new: Node) -> bool:
    """Whether two nodes do the same, possibly on other sources."""
    return old is new or old.op is new.op and old.dtype is new.dtype and type(old.arg) is type(new.arg) and old.arg == new.arg


def same_op(old: Node, new: Node) -> bool:
    """Whether two nodes do the same with other arguments, possibly on other sources."""
    return old.op is new.op and old.dtype is new.dtype


def continuity(before: Node, after: Node, mapping: Mapping[Node, Node]) -> dict[Node, Node]:
    """Which node of `after` continues which node of `before`, at most one each way.

    A node continues, in this order of preference: as itself; as what the pass mapped it to, or as the nearest new node under
    that, if it is the same operation; at the same place below a node that continues, if it is the same operation there, or
    else the same with another argument; as what the pass mapped it to, a different operation. What is left of `before` was
    removed, what is left of `after` was added. Linear in the number of edges, but for chains that are stepped over.
    """
    old_order, free = before.toposort(), set(after.toposort())
    became: dict[Node, Node] = {}

    def take(old: Node, new: Node) -> None:
        became[old] = new
        free.discard(new)

    for old in old_order:
        if old in free:
            take(old, old)

    replaced: list[tuple[Node, Node]] = []
    searched: set[Node] = set()
    for old in old_order:
        new = mapping.get(old)
        if old in became or new is None or new not in free:
            continue
        found = _nearest(old, new, free, searched)
        if found is None:
            replaced.append((old, new))
        else:
            take(old, found)

    for alike in (same_operation, same_op):
        stack = [(old, new) for old, new in became.items() if old is not new]
        while stack:
            old, new = stack.pop()
            for old_source, new_source in zip(old.src, new.src, strict=False):
                # what indexing dissolves, such as a PERMUTE, is stepped over
                while old_source not in became and not alike(old_source, new_source) and len(old_source.src) == 1:
                    old_source = old_source.src[0]
                if old_source not in became and new_source in free and alike(old_source, new_source):
                    take(old_source, new_source)
                    stack.append((old_source, new_source))

    for old, new in replaced:
        if old not in became and new in free:
            take(old, new)
    return became


def _nearest(old: Node, new: Node, free: set[Node], searched: set[Node]) -> Node | None:
    """The nearest node at or under `new` that does what `old` did, among new nodes that nobody has looked at."""
    level = [new]
    while level:
        below: list[Node] = []
        for node in level:
            if node in free and node not in searched:
                searched.add(node)
                if same_operation(old, node):
                    return node
                below.extend(node.src)
        level = below
    return None


def carry_lines(lines: Lines, before: Node, after: Node, mapping: Mapping[Node, Node], became: Mapping[Node, Node]) -> Lines:
    """The user's lines behind each node of `after`, given those of `before`.

    A line goes where its node went. If the node is gone, it goes to where the node's users went: a kernel so collects the
    lines of all that was fused into it, but not those of what it reads from buffers. Nodes that the pass added take the
    lines of those that use them, but for constants, which others may use as well.
    """
    there = set(after.toposort())
    gathered: dict[Node, frozenset[Origin]] = {}
    orphaned: dict[Node, frozenset[Origin]] = {}
    nothing: frozenset[Origin] = frozenset()
    for node in before.toposort():
        own = frozenset(lines.get(node, ()))
        for source in node.src:
            own = _join(own, orphaned.get(source, nothing))
        homes = {home for home in (mapping.get(node), became.get(node)) if home in there}
        held = storage(node) is not None  # who reads a buffer does not do what filled it
        for home in homes:
            if not held or storage(home) is not None:
                gathered[home] = _join(gathered.get(home, nothing), own)
        if not homes and own and not held:
            orphaned[node] = own

    settled = {*gathered, *became.values()}
    for node in reversed(after.toposort()):
        behind = gathered.get(node)
        if behind:
            for source in node.src:
                if source not in settled and source.dtype in (DType.U32, DType.VOID) and not _is_constant(source):
                    gathered[source] = _join(gathered.get(source, nothing), behind)
    return {node: tuple(sorted(behind)) for node, behind in gathered.items() if behind}


def _is_constant(node: Node) -> bool:
    return node.op in (Op.CONST, Op.RESIDUES, Op.IMPULSE) or node.op is Op.AS_RING and _is_constant(node.src[0])


def _join(a: frozenset[Origin], b: frozenset[Origin]) -> frozenset[Origin]:
    """The union; one of the two, not a copy, where it holds the other."""
    return a if a >= b else b if b >= a else a | b


class Step(Protocol):
    """What a chain of passes must tell of each pass."""

    @property
    def number(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def before(self) -> Node: ...

    @property
    def after(self) -> Node: ...

    @property
    def mapping(self) -> Mapping[Node, Node]: ...

    @property
    def rewrites(self) -> Sequence[RuleFired]: ...

    @property
    def became(self) -> Mapping[Node, Node]: ...


@dataclass(frozen=True, slots=True)
class Moment:
    """One pass in the life of a node.

    Attributes:
        number, name: of the pass.
        kind: "kept" (the same object), "moved" (the same operation on other sources), "changed" (another operation in its
            place), "added" or "removed".
        old, new: the node before and after the pass; None where there is none.
        rules: the rewrites that took the old node or gave the new one.
    """

    number: int
    name: str
    kind: str
    old: Node | None
    new: Node | None
    rules: tuple[RuleFired, ...]


class Provenance:
    """Lines and histories over a chain of passes, worked out when first asked for.

    Stage 0 is the graph that goes in, stage k the graph after the k-th pass of the chain.
    """

    def __init__(self, origins: Lines, passes: Sequence[Step]) -> None:
        self._origins = origins
        self._passes = passes

    @cached_property
    def stages(self) -> tuple[Lines, ...]:
        """For each stage, the user's lines ("file", line) of each node that has any."""
        stages: list[Lines] = [dict(self._origins)]
        for step in self._passes:
            stages.append(carry_lines(stages[-1], step.before, step.after, step.mapping, step.became))
        return tuple(stages)

    @cached_property
    def all_lines(self) -> Lines:
        """The lines of every node at the last stage at which it has any."""
        merged: dict[Node, tuple[Origin, ...]] = {}
        for stage in self.stages:
            merged.update(stage)
        return merged

    def lines(self, node: Node) -> tuple[Origin, ...]:
        """The user's lines behind a node, at the last stage at which it has any."""
        return self.all_lines.get(node, ())

    def stage_of(self, step: Step) -> int:
        """The stage that a pass leads to."""
        return next(stage for stage, known in enumerate(self._passes, 1) if known is step)

    def find(self, node: Node) -> int:
        """The first stage whose graph holds the node; `ValueError` if none does."""
        for stage, graph in enumerate(self._graphs()):
            if node in graph:
                return stage
        raise ValueError(f"{node!r} is in no graph of this trace; take a node from `passes[i].before` or `passes[i].after`")

    def _graphs(self) -> Iterable[set[Node]]:
        if self._passes:
            yield set(self._passes[0].before.toposort())
        for step in self._passes:
            yield set(step.after.toposort())

    @cached_property
    def _came(self) -> tuple[Mapping[Node, Node], ...]:
        return tuple({new: old for old, new in step.became.items()} for step in self._passes)

    @cached_property
    def _fired(self) -> tuple[Mapping[Node, list[RuleFired]], ...]:
        tables = []
        for step in self._passes:
            table: dict[Node, list[RuleFired]] = {}
            for fired in step.rewrites:
                for node in {fired.old, fired.new}:
                    table.setdefault(node, []).append(fired)
            tables.append(table)
        return tuple(tables)

    def history(self, node: Node, stage: int | None = None) -> tuple[Moment, ...]:
        """What a node came from and what it became, pass by pass.

        Args:
            node: a node of the graph at `stage`.
            stage: 0 for the graph that went in, k for the graph after pass k; by default the first that holds the node.
        """
        stage = self.find(node) if stage is None else stage
        earlier: list[Moment] = []
        here: Node | None = node
        for index in range(stage - 1, -1, -1):
            if here is None:
                break
            old = self._came[index].get(here)
            earlier.append(self._moment(index, old, here))
            here = old
        later: list[Moment] = []
        here = node
        for index in range(stage, len(self._passes)):
            if here is None:
                break
            new = self._passes[index].became.get(here)
            later.append(self._moment(index, here, new))
            here = new
        return (*reversed(earlier), *later)

    def _moment(self, index: int, old: Node | None, new: Node | None) -> Moment:
        step, table = self._passes[index], self._fired[index]
        stood: Node | None = None  # what the rules saw: the old node on sources that were rewritten already
        if old is not None and all(s in step.mapping for s in old.src):
            stood = old.with_src(tuple(step.mapping[s] for s in old.src))
        if old is None or new is None:
            kind = "added" if old is None else "removed"
        elif old is new:
            kind = "kept"
        else:
            kind = "moved" if same_operation(old, new) else "changed"
        about = [fired for node in dict.fromkeys((old, stood, new)) if node is not None for fired in table.get(node, ())]
        return Moment(step.number, step.name, kind, old, new, tuple(dict.fromkeys(about)))
