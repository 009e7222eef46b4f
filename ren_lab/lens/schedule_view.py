"""The schedule as a picture: what runs, in which order, and the buffers that go from one item to the next."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ren_lab.ir import BufferId, Node, Op
from ren_lab.lens import theme
from ren_lab.lens.folding import Group, essential_edges, fold
from ren_lab.lens.graph_view import FOLD_ABOVE
from ren_lab.lens.picture import Edge, GraphView, Vertex
from ren_lab.ring import Domain
from ren_lab.schedule import Schedule, ScheduledKernel

Origin = tuple[str, int]
PerItem = Sequence[Any] | Mapping[int, Any]

_ROLE_OF_KIND = {
    "ntt": "transform", "intt": "transform", "to_rns": "basis", "convert": "basis", "random": "random", "elementwise": "boundary",
    "copy": "copy", "view": "view",
}  # fmt: skip
_EDGES_PER_GROUP = 2


def schedule_graph(
    schedule: Schedule,
    *,
    seconds: PerItem | None = None,
    lines: PerItem | None = None,
    fold_above: int = FOLD_ABOVE,
) -> GraphView:
    """The picture of a schedule: an item is a vertex, a buffer an edge from the item that fills it to those that read it.

    Inputs and final outputs are vertices of their own. Items of different devices stand in a frame for each device.

    Args:
        schedule: what runs.
        seconds: how long each item took, by its position; None where it is not known.
        lines: the user's source lines ("file", line) behind each item, by its position.
        fold_above: the number of vertices up to which each is drawn; more are folded to about 60 groups.

    Raises:
        ValueError: `fold_above` is negative.
    """
    if fold_above < 0:
        raise ValueError(f"fold_above is {fold_above}; give 0 (always fold) or more")
    items = schedule.items
    times = _per_item(seconds, len(items), None)
    origins = _per_item(lines, len(items), ())
    known = [time for time in times if time is not None]
    total = sum(known)

    written = {ident: index for index, item in enumerate(items) for ident in item.outputs}
    read = {ident for item in items for ident in item.inputs}
    kept = set(_outputs(schedule))
    domains = buffer_domains(schedule)

    vertices: list[Vertex] = []
    edges: list[Edge] = []
    for ident in dict.fromkeys(ident for item in items for ident in item.inputs if ident not in written):
        vertices.append(_buffer_vertex(ident, "input", domains))
    ends: list[Vertex] = []
    for index, item in enumerate(items):
        vertices.append(_item_vertex(index, item, times[index], total, origins[index]))
        for ident in dict.fromkeys(item.inputs):
            crosses = ident.device != item.device
            source = f"item{written[ident]}" if ident in written else _buffer_key(ident)
            edges.append(Edge(source, f"item{index}", "device" if crosses else "data", _buffer_text(ident)))
        for filled in item.outputs:
            if filled in kept or filled not in read:
                ends.append(_buffer_vertex(filled, "output", domains))
                edges.append(Edge(f"item{index}", _buffer_key(filled), label=theme.format_bytes(filled.nbytes)))

    title = _title(items, known)
    count = len(vertices) + len(ends)
    if count <= fold_above:
        return GraphView(title, (*vertices, *ends), tuple(edges), count)
    spent = {f"item{index}": time for index, time in enumerate(times) if time is not None}
    folded, joined, home = _folded([*vertices, *ends], edges, spent)
    title = f"{title}, folded to {theme.format_count(len(folded), 'group')}"
    return GraphView(title, tuple(folded), tuple(joined), count, home)


def buffer_domains(schedule: Schedule) -> dict[str, Domain]:
    """The domain of each buffer that holds a polynomial, by its label. Buffers of plain words have none."""
    domains: dict[str, Domain] = {}
    slots_of: dict[Node, dict[int, Domain]] = {}  # kernels with the same body share what is known of their slots
    for item in schedule.items:
        if item.ast is not None:
            slots = slots_of.get(item.ast)
            if slots is None:
                slots = slots_of[item.ast] = _slot_domains(item.ast)
            for number, domain in slots.items():
                domains.setdefault(item.buffers[number].label, domain)
    for item in schedule.items:  # copies and views hold what their source holds
        if item.ast is None:
            source, output = item.inputs[0].label, item.outputs[0].label
            if source in domains:
                domains.setdefault(output, domains[source])
            elif output in domains:
                domains[source] = domains[output]
    for became in schedule.becomes:
        ident = _held(became)
        if ident is not None and became.domain is not None:
            domains.setdefault(ident.label, became.domain)
    return domains


def _slot_domains(ast: Node) -> dict[int, Domain]:
    found: dict[int, Domain] = {}
    for node in ast.toposort():
        if node.op is Op.AS_RING and node.src[0].op is Op.LOAD and node.domain is not None:
            slot = node.src[0].src[0].src[0]
            if slot.op is Op.SLOT:
                found.setdefault(slot.arg.number, node.domain)
        elif node.op is Op.STORE and node.src[1].domain is not None:
            found[node.src[0].src[0].arg.number] = node.src[1].domain
    return found


def _held(became: Node) -> BufferId | None:
    """The buffer under what an output becomes, or None for a constant."""
    node = became
    while node.op in (Op.AS_RING, Op.BUFFER_VIEW, Op.AFTER):
        node = node.src[0]
    return node.arg if node.op is Op.BUFFER else None


def _outputs(schedule: Schedule) -> Iterable[BufferId]:
    return (ident for ident in map(_held, schedule.becomes) if ident is not None)


def _per_item(values: PerItem | None, count: int, default: Any) -> list[Any]:
    if values is None:
        return [default] * count
    if isinstance(values, Mapping):
        return [values.get(index, default) for index in range(count)]
    return [values[index] if index < len(values) else default for index in range(count)]


def _buffer_key(ident: BufferId) -> str:
    return f"buffer-{ident.label.replace(':', '-')}"  # DOT reads a colon in an edge's end as a port


def _buffer_text(ident: BufferId) -> str:
    return f"{ident.label} · {theme.format_bytes(ident.nbytes)}"


def _buffer_vertex(ident: BufferId, what: str, domains: Mapping[str, Domain]) -> Vertex:
    domain = domains.get(ident.label)
    details = [what, f"{ident.shape[0]} × {ident.shape[1]} words", f"on {ident.device}"]
    if domain is not None:
        details.insert(1, theme.ROLES[theme.role_of("", domain.name)].meaning)
    if ident.pinned:
        details.append("pinned")
    return Vertex(_buffer_key(ident), ident.label, theme.format_bytes(ident.nbytes), "buffer", tuple(details), device=ident.device)


def _item_vertex(index: int, item: ScheduledKernel, seconds: float | None, total: float, origins: Sequence[Origin]) -> Vertex:
    second = item.name
    details = [f"{'light item' if item.ast is None else 'kernel'} on {item.device}"]
    details.extend(f"fills {_buffer_text(ident)}" for ident in item.outputs)
    details.extend(f"reads {_buffer_text(ident)}" for ident in dict.fromkeys(item.inputs))
    if item.view is not None:
        first = item.view.offset // item.view.shape[1]
        details.append(f"limbs {first} to {first + item.view.shape[0] - 1}")
    if seconds is not None:
        share = f", {theme.format_share(seconds / total)}" if total else ""
        second = f"{second}\n{theme.format_seconds(seconds)}{share}"
    return Vertex(
        f"item{index}",
        f"{index} {item.kind}",
        second,
        _ROLE_OF_KIND.get(item.kind, "boundary"),
        tuple(details),
        group=item.kind,
        device=item.device,
        lines=tuple(dict.fromkeys(o if isinstance(o, str) else theme.format_origin(o) for o in origins)),
    )


def _title(items: Sequence[ScheduledKernel], seconds: Sequence[float]) -> str:
    if not items:
        return "Nothing to run"
    kinds = sorted(Counter(item.kind for item in items).items(), key=lambda kind: (-kind[1], kind[0]))
    title = f"{theme.format_count(len(items), 'item')}: {', '.join(f'{count} {kind}' for kind, count in kinds)}"
    devices = {item.device for item in items}
    if len(devices) > 1:
        title += f" on {len(devices)} devices"
    return f"{title}; {theme.format_seconds(sum(seconds))} in all" if seconds else title


def _folded(
    vertices: list[Vertex], edges: list[Edge], seconds: Mapping[str, float]
) -> tuple[list[Vertex], list[Edge], dict[str, str]]:
    """The folded vertices and edges, and from each key to that of the vertex which stands for it now."""
    by_key = {vertex.key: vertex for vertex in vertices}
    above: dict[str, list[str]] = {}
    for edge in edges:
        above.setdefault(edge.target, []).append(edge.source)
    groups = fold(
        [*by_key],
        lambda key: above.get(key, ()),
        stops=lambda key: by_key[key].group not in ("", "view"),
        site=lambda key: by_key[key].lines or None,
    )
    folded = [by_key[g.root] if len(g.members) == 1 else _group_vertex(g, by_key, seconds) for g in groups]
    where = {key: number for number, group in enumerate(groups) for key in group.members}
    joined: dict[tuple[int, int], list[Edge]] = {}
    for edge in edges:
        ends = where[edge.source], where[edge.target]
        if ends[0] != ends[1]:
            joined.setdefault(ends, []).append(edge)
    kept = essential_edges(joined) if len(joined) > _EDGES_PER_GROUP * len(groups) else set(joined)
    shorter = [
        Edge(
            folded[a].key,
            folded[b].key,
            "device" if any(edge.kind == "device" for edge in parts) else "data",
            parts[0].label if len(parts) == 1 else theme.format_count(len(parts), "buffer"),
            len(parts),
        )
        for (a, b), parts in sorted(joined.items(), key=lambda item: (item[0][1], item[0][0]))
        if (a, b) in kept
    ]
    return folded, shorter, {key: folded[number].key for key, number in where.items()}


def _group_vertex(group: Group[str], by_key: Mapping[str, Vertex], seconds: Mapping[str, float]) -> Vertex:
    members = [by_key[key] for key in group.members]
    items = [vertex for vertex in members if vertex.group]
    kinds = sorted(Counter(vertex.group for vertex in items).items(), key=lambda kind: (-kind[1], kind[0]))
    told = ", ".join(f"{count} {kind}" for kind, count in kinds)
    numbers = [vertex.op.split()[0] for vertex in items]
    name = "buffers" if not numbers else f"item {numbers[0]}" if len(numbers) == 1 else f"items {numbers[0]} to {numbers[-1]}"
    spent = [seconds[vertex.key] for vertex in items if vertex.key in seconds]
    size = theme.format_count(len(items), "item") if items else theme.format_count(len(members), "buffer")
    if spent:
        size += f", {theme.format_seconds(sum(spent))}"
    devices = {vertex.device for vertex in members}
    lines = tuple(dict.fromkeys(line for vertex in items for line in vertex.lines))
    return Vertex(
        f"{group.root}-group",
        name,
        f"{size}\n{told}".rstrip(),
        "group",
        tuple(f"{vertex.op} {vertex.second.splitlines()[0]}" for vertex in items[:20]) + (("…",) if len(items) > 20 else ()),
        group=name,
        device=devices.pop() if len(devices) == 1 else None,
        count=len(members),
        lines=lines[:12],
    )


__all__ = ["buffer_domains", "schedule_graph"]
