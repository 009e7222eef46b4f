"""Graphs of nodes as pictures: one graph, or a graph before and after a pass with what was added, removed and changed marked.

Up to `fold_above` nodes every node is a vertex of its own. Above that the graph folds to about 60 groups: by the kernel or the
transform that nodes end in, and where that isn't enough by the user's source lines. `focus` shows a neighbourhood instead.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from ren_lab.ir import DType, KernelSpec, Node, Op, format_arg
from ren_lab.lens import theme
from ren_lab.lens.captions import composition, details, op_counts, second_line
from ren_lab.lens.folding import Group, essential_edges, fold
from ren_lab.lens.picture import Edge, GraphView, Vertex
from ren_lab.lens.provenance import Lines, continuity, same_operation

FOLD_ABOVE = 300  # vertices; more are no longer readable
REMOVED_DRAWN = 60  # removed nodes; more would bury what is there
FOCUS_DEPTH = 2
_EDGES_PER_GROUP = 2  # with more, edges that follow from others are left out

_ENDS_GROUP = frozenset(
    {
        Op.NTT, Op.INTT, Op.TO_RNS, Op.RESCALE, Op.BASE_CONVERT, Op.LIFT, Op.COPY, Op.CONTIGUOUS, Op.RANDOM, Op.BUFFERIZE, Op.STORE,
        Op.KERNEL, Op.SINK,
    }
)  # fmt: skip


def graph_view(
    graph: Node,
    *,
    origins: Lines | None = None,
    fold_above: int = FOLD_ABOVE,
    focus: Node | None = None,
    depth: int | None = None,
) -> GraphView:
    """The picture of a graph.

    Args:
        graph: the root; everything it depends on is shown.
        origins: the user's source lines of nodes; by default those that the nodes remember.
        fold_above: the number of nodes up to which each is a vertex of its own.
        focus: show only the neighbourhood of this node.
        depth: how many edges the neighbourhood reaches up and down, by default 2; without `focus`, how many levels above
            the root are shown.

    Raises:
        ValueError: `focus` is not a node of the graph, or `depth` or `fold_above` is negative.
    """
    order = graph.toposort()
    picture = _Picture(order, origins)
    for node in order:
        for source in node.src:
            picture.connect(source, node)
    part = focus is not None or depth is not None
    return picture.view("" if part else composition(order), graph, fold_above, focus, depth)


def pass_graph(
    before: Node,
    after: Node,
    mapping: Mapping[Node, Node],
    *,
    added: Iterable[Node] | None = None,
    removed: Iterable[Node] | None = None,
    changed: Iterable[Node] | None = None,
    origins: Lines | None = None,
    fold_above: int = FOLD_ABOVE,
    focus: Node | None = None,
    depth: int | None = None,
    keys: Mapping[Node, str] | None = None,
) -> GraphView:
    """The picture of what a pass did: the graph after it, and in grey the nodes that it removed.

    Args:
        before, after: the graphs.
        mapping: each node of `before` to what the pass put in its place.
        added, changed: nodes of `after` to mark; by default what `provenance.continuity` finds.
        removed: nodes of `before` to show struck; by default likewise.
        origins, fold_above, focus, depth: as for `graph_view`. As many removed nodes as there are others, but at most 60,
            are drawn, and only where every node of `after` still is a vertex of its own.
        keys: the `keys` of the view of the pass before. A node that goes on in another shape keeps its key then; without,
            the same node has the same key in every view, and a node on other sources is another one.

    Raises:
        ValueError: as for `graph_view`.
    """
    became = continuity(before, after, mapping)
    order = after.toposort()
    there = set(order)
    if added is None:
        known = set(became.values())
        added = [node for node in order if node not in known]
    if removed is None:
        removed = [node for node in before.toposort() if node not in became]
    if changed is None:
        changed = [new for old, new in became.items() if not same_operation(old, new)]
    added, changed = [n for n in added if n in there], [n for n in changed if n in there]
    removed = [n for n in removed if n not in there]

    room = min(REMOVED_DRAWN, len(order), fold_above - len(order))
    drawn = removed if len(order) > fold_above or len(removed) <= room else []
    picture = _Picture([*order, *drawn], origins)
    if keys is not None:
        picture.keys = _carry_keys(before, order, became, keys)
    picture.mark("added", added)
    picture.mark("changed", changed)
    picture.mark("removed", drawn)
    for node in order:
        for source in node.src:
            picture.connect(source, node)

    gone = set(drawn)

    def now(node: Node) -> Node | None:
        """Where a node of `before` is in the picture."""
        for candidate in (node, became.get(node), mapping.get(node)):
            if candidate is not None and (candidate in there or candidate in gone):
                return candidate
        return None

    for node in before.toposort():
        for source in node.src:
            if node in gone or source in gone:
                picture.connect(now(source), now(node), removed=True)
        if node in gone:
            picture.home[node] = next((n for n in (mapping.get(node), *map(now, node.src)) if n in there), None)

    counts = ((len(added), "added"), (len(removed), "removed"), (len(changed), "changed"))
    told = [f"{theme.format_count(count)} {what}" for count, what in counts if count]
    title = f"{', '.join(told)} of {theme.format_count(len(order), 'node')}" if told else f"Nothing changed: {composition(order)}"
    if len(drawn) < len(removed):
        title += ", the removed ones not drawn"
    return picture.view(title, after, fold_above, focus, depth)


class _Picture:
    """A picture in the making: nodes, marks and edges."""

    def __init__(self, order: Sequence[Node], origins: Lines | None) -> None:
        self.order = order  # sources first; removed nodes at the end
        self.origins = origins
        self.marks: dict[Node, str] = {}
        self.home: dict[Node, Node | None] = {}  # removed node -> the node that it is folded with
        self.keys: Mapping[Node, str] | None = None
        self.above: dict[Node, list[Node]] = {node: [] for node in order}
        self.edges: list[tuple[Node, Node, bool]] = []

    def mark(self, mark: str, nodes: Iterable[Node]) -> None:
        self.marks.update(dict.fromkeys(nodes, mark))

    def connect(self, source: Node | None, target: Node | None, removed: bool = False) -> None:
        if source is not None and target is not None and source is not target:
            self.edges.append((source, target, removed))
            self.above[target].append(source)

    def key(self, node: Node) -> str:
        return (self.keys or {}).get(node) or content_key(node)

    def lines(self, nodes: Iterable[Node]) -> tuple[str, ...]:
        """The source lines of some nodes, in order of file and line."""
        found = {o for node in nodes for o in (node.origins if self.origins is None else self.origins.get(node, ()))}
        return tuple(dict.fromkeys(map(theme.format_origin, sorted(found))))

    def vertex(self, node: Node, group: str = "") -> Vertex:
        return Vertex(
            key=self.key(node),
            op=node.op.name,
            second=second_line(node),
            role=theme.role_of(node.op.name, node.domain.name if node.domain is not None else None),
            details=details(node),
            mark=self.marks.get(node),
            group=group,
            device=node.device,
            lines=self.lines((node,)),
        )

    def view(self, title: str, root: Node, fold_above: int, focus: Node | None, depth: int | None) -> GraphView:
        if fold_above < 0:
            raise ValueError(f"fold_above is {fold_above}; give 0 (always fold) or more")
        if depth is not None and depth < 0:
            raise ValueError(f"depth is {depth}; give 0 (the node alone) or more")
        if focus is not None and focus not in self.above:
            raise ValueError(f"{focus!r} is not in this graph; take a node out of its toposort()")
        nodes = len(self.order)
        all_keys = MappingProxyType({node: self.key(node) for node in self.order if self.marks.get(node) != "removed"})
        shown: Collection[Node] = self.order
        if focus is not None or depth is not None:
            near = self._near(root if focus is None else focus, FOCUS_DEPTH if depth is None else depth)
            shown = [node for node in self.order if node in near]
            around = f" around {f'{focus.op.name} {second_line(focus)}'.rstrip()}" if focus is not None else ""
            title = f"{theme.format_count(len(shown))} of {theme.format_count(nodes, 'node')}{around}{title and '; '}{title}"
        groups = self._groups(shown)
        if len(shown) > fold_above:
            vertices, edges = self._folded(groups)
            title = f"{title}, folded to {theme.format_count(len(vertices), 'group')}"
        else:
            vertices, edges = self._plain(shown, groups)
        return GraphView(title[:1].upper() + title[1:], tuple(vertices), tuple(edges), nodes, all_keys)

    def _near(self, centre: Node, depth: int) -> set[Node]:
        """The nodes at most `depth` edges above or below the centre."""
        below: dict[Node, list[Node]] = {node: [] for node in self.order}
        for source, target, _ in self.edges:
            below[source].append(target)
        near = {centre}
        for neighbours in (self.above, below):
            seen, level = {centre}, {centre}
            for _ in range(depth):
                level = {other for node in level for other in neighbours[node]} - seen
                seen |= level
            near |= seen
        return near

    def _plain(self, shown: Collection[Node], groups: list[Group[Node]]) -> tuple[list[Vertex], list[Edge]]:
        """Every node a vertex; where nodes are left out beside it, a vertex that says how many."""
        named = {member: name for group in groups for name in (self._name(group),) for member in group.members}
        vertices = [self.vertex(node, named.get(node, "")) for node in shown]
        edges = [
            Edge(self.key(s), self.key(t), edge_kind(s, t), removed=gone)
            for s, t, gone in self.edges
            if s in named and t in named
        ]  # fmt: skip
        hidden_above: dict[Node, set[Node]] = {}
        hidden_below: dict[Node, set[Node]] = {}
        for source, target, _ in self.edges:
            if source in named and target not in named:
                hidden_below.setdefault(source, set()).add(target)
            elif target in named and source not in named:
                hidden_above.setdefault(target, set()).add(source)
        for hidden, where in ((hidden_above, "above"), (hidden_below, "below")):
            for node, others in hidden.items():
                more = f"{self.key(node)}-{where}"
                vertices.append(Vertex(more, "…", f"{theme.format_count(len(others))} more", "more", device=node.device))
                ends = (more, self.key(node)) if where == "above" else (self.key(node), more)
                edges.append(Edge(*ends, "ordering"))
        return vertices, edges

    def _groups(self, shown: Collection[Node]) -> list[Group[Node]]:
        """The groups of the nodes that are shown; index arithmetic and removed nodes go with the node that they serve."""
        guests: dict[Node, Node | None] = {}
        for source, target, _ in self.edges:
            if _is_index(source):
                guests.setdefault(source, target)
        for node in shown:
            if self.marks.get(node) == "removed":
                guests[node] = self.home.get(node)
        hosts = [node for node in shown if node not in guests]
        groups = fold(
            hosts,
            lambda node: node.src,
            stops=lambda node: node.op in _ENDS_GROUP,
            carrier=_carrier,
            site=lambda node: self.lines((node,)) or None,
        )
        where = {member: number for number, group in enumerate(groups) for member in group.members}
        invited: dict[int, list[Node]] = {}
        stray: list[Node] = []
        for node in shown:
            if node not in guests:
                continue
            host = guests[node]
            passed = {node}
            while host in guests and host not in passed:
                passed.add(host)
                host = guests[host]
            if host in where:
                invited.setdefault(where[host], []).append(node)
            else:
                stray.append(node)
        full = [Group((*invited.get(i, ()), *group.members), group.roots) for i, group in enumerate(groups)]
        return [*full, Group(tuple(stray), (stray[-1],))] if stray else full

    def _name(self, group: Group[Node]) -> str:
        """What a group is called: the kernel, the transform or the output that it ends in, or else the lines it comes from."""
        first, last = group.roots[0], group.root
        if first is last and last.op in _ENDS_GROUP or not (lines := self.lines(group.roots)):
            begin, end = _title(first), _title(last)
            return end if begin == end else f"{begin} to {end.removeprefix('STORE ')}"
        (file, _, _), (last_file, _, last_line) = lines[0].rpartition(":"), lines[-1].rpartition(":")
        return lines[0] if len(lines) == 1 else f"{lines[0]} to {last_line if file == last_file else lines[-1]}"

    def _folded(self, groups: list[Group[Node]]) -> tuple[list[Vertex], list[Edge]]:
        vertices = [self._group_vertex(group) for group in groups]
        where = {member: number for number, group in enumerate(groups) for member in group.members}
        edges: dict[tuple[int, int], list[tuple[str, bool]]] = {}
        for source, target, gone in self.edges:
            if source in where and target in where and where[source] != where[target] and not _is_index(source):
                edges.setdefault((where[source], where[target]), []).append((edge_kind(source, target), gone))
        if len(edges) > _EDGES_PER_GROUP * len(groups):
            kept = essential_edges(edges)
            edges = {ends: kinds for ends, kinds in edges.items() if ends in kept}
        joined = []
        for (a, b), kinds in sorted(edges.items(), key=lambda item: (item[0][1], item[0][0])):
            present = [kind for kind, gone in kinds if not gone]
            kind = next((k for k in ("device", "data", "ordering") if k in (present or [k for k, _ in kinds])), "data")
            joined.append(Edge(vertices[a].key, vertices[b].key, kind, count=len(kinds), removed=not present))
        return vertices, joined

    def _group_vertex(self, group: Group[Node]) -> Vertex:
        if len(group.members) == 1:
            return self.vertex(group.root, self._name(group))
        marks = Counter(self.marks[node] for node in group.members if node in self.marks)
        changes = " ".join(f"{theme.MARKS[mark].badge}{marks[mark]}" for mark in theme.MARKS if marks[mark])
        whole = len(marks) == 1 and marks.total() == len(group.members)
        devices = {node.device for node in group.members if node.device is not None}
        name = self._name(group)
        ops = op_counts(group.members, 3)
        lines = self.lines(group.members)
        return Vertex(
            key=f"{self.key(group.root)}-group",
            op=name,
            second=f"{theme.format_count(len(group.members), 'node')}{f' {changes}' if changes else ''}\n{ops}",
            role="group",
            details=tuple(filter(None, (op_counts(group.members, len(Op)), changes and f"changes: {changes}"))),
            mark=next(iter(marks)) if whole else "changed" if marks else None,
            group=name,
            device=devices.pop() if len(devices) == 1 else None,
            count=len(group.members),
            lines=lines if len(lines) <= 12 else (*lines[:12], f"{len(lines) - 12} more lines"),
        )


def _title(node: Node) -> str:
    """A node in one or two words."""
    if node.op is Op.KERNEL:
        return str(node.arg.name)
    return f"{node.op.name} {second_line(node)}" if node.op is Op.STORE else node.op.name


def _carrier(node: Node) -> Node | None:
    """The source that a node is one thing with: a buffer's state with the store that gave it, a load with its buffer."""
    if node.op is Op.AFTER:
        return node.src[-1]
    if node.op in (Op.AS_RING, Op.BUFFER_VIEW) or node.op in (Op.INDEX, Op.LOAD) and node.src[0].op is not Op.SLOT:
        return node.src[0]
    return None


def _is_index(node: Node) -> bool:
    """Whether a node is arithmetic on positions, which every kernel shares and nothing flows through."""
    return node.dtype is DType.INDEX and node.op is not Op.INDEX


def _carry_keys(before: Node, order: Sequence[Node], became: Mapping[Node, Node], keys: Mapping[Node, str]) -> Mapping[Node, str]:
    """Keys of the nodes after a pass: a node that continues another has its key."""
    came = {new: old for old, new in became.items()}
    carried = {new: keys.get(old) or content_key(old) for new, old in came.items()}
    taken = set(carried.values())
    for node in order:
        if node not in carried:
            key = content_key(node)
            while key in taken:  # the key went on with the node that had it first
                key += "b"
            carried[node] = key
            taken.add(key)
    return carried


_keys: "WeakKeyDictionary[Node, str]" = WeakKeyDictionary()


def content_key(node: Node) -> str:
    """A name made of what the node is: the same in every view, run and process, different for different nodes."""
    found = _keys.get(node)
    if found is not None:
        return found
    rings: dict[Any, str] = {}
    todo = [node]
    while todo:
        here = todo[-1]
        if here in _keys:
            todo.pop()
            continue
        inner = (here.arg.ast,) if isinstance(here.arg, KernelSpec) else ()
        missing = [n for n in (*here.src, *inner) if n not in _keys]
        if missing:
            todo.extend(missing)
            continue
        arg = f"{here.arg.name} {here.arg.kind} {_keys[here.arg.ast]}" if inner else _arg_text(here.arg, rings)
        text = f"{here.op.name} {here.dtype.name} {arg} {' '.join(_keys[n] for n in here.src)}"
        _keys[here] = "n" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        todo.pop()
    return _keys[node]


def _arg_text(arg: Any, known: dict[Any, str]) -> str:
    """The text of an argument; most of them occur many times."""
    if arg is None:
        return ""
    if not isinstance(arg, Hashable):
        return format_arg(arg)
    key = (arg, tuple(map(type, arg)) if type(arg) is tuple else type(arg))
    text = known.get(key)
    if text is None:
        text = known[key] = format_arg(arg)
    return text


def edge_kind(source: Node, target: Node) -> str:
    """What goes along an edge: data (within a device or across), a position, or nothing but order.

    Nothing flows out of a store, nor from a buffer to the store that fills it.
    """
    outputs = target.arg.outputs if target.op is Op.KERNEL else 1 if target.op in (Op.STORE, Op.AFTER) else 0
    filled = source in target.src[:outputs]
    if source.dtype is DType.VOID or filled:
        return "ordering"
    if _is_index(source):
        return "index"
    crosses = target.op is Op.COPY and source.device is not None and source.device != target.device
    return "device" if crosses else "data"


__all__ = ["FOLD_ABOVE", "Edge", "GraphView", "Vertex", "content_key", "graph_view", "pass_graph", "second_line"]
