"""Other ways to fold a picture: by operation, or by the user's source line."""

from collections import Counter
from dataclasses import replace

from ren_lab.lens import theme
from ren_lab.lens.picture import Edge, GraphView, Vertex

_OPS_NAMED = 3


def regroup(view: GraphView, by: str) -> GraphView:
    """The picture with one vertex for each operation ("operation") or each user's line ("line"); the rest stays as it is."""
    if by not in ("operation", "line"):
        raise ValueError(f"there is no way to fold by {by!r}; fold by 'operation' or 'line'")
    groups: dict[str, list[Vertex]] = {}
    for vertex in view.vertices:
        name = vertex.op if by == "operation" else " ".join(vertex.lines) or "no line"
        groups.setdefault(name, []).append(vertex)
    made = [_group(name, members, by) for name, members in groups.items()]
    home = {member.key: group.key for group, members in zip(made, groups.values(), strict=True) for member in members}
    joined: dict[tuple[str, str], list[Edge]] = {}
    for edge in view.edges:
        ends = home[edge.source], home[edge.target]
        if ends[0] != ends[1]:
            joined.setdefault(ends, []).append(edge)
    edges = [
        Edge(a, b, min(e.kind for e in parts), count=len(parts), removed=all(e.removed for e in parts))
        for (a, b), parts in joined.items()
    ]
    title = f"{view.title}, folded by {by} to {theme.format_count(len(made), 'group')}"
    return replace(view, title=title, vertices=tuple(made), edges=tuple(edges))


def _group(name: str, members: list[Vertex], by: str) -> Vertex:
    marks = Counter(v.mark for v in members if v.mark)
    told = " ".join(f"{theme.MARKS[mark].badge}{marks[mark]}" for mark in theme.MARKS if marks[mark])
    ops = ", ".join(f"{count} {op}" for op, count in Counter(v.op for v in members).most_common(_OPS_NAMED))
    count = sum(v.count for v in members)
    size = f"{theme.format_count(count, 'node')} {told}".rstrip()
    whole = len(marks) == 1 and marks.total() == len(members)
    lines = tuple(dict.fromkeys(line for v in members for line in v.lines))
    return Vertex(
        key=f"{by}-{name}",
        op=name,
        second=size if by == "operation" else f"{size}\n{ops}",
        role=members[0].role if by == "operation" else "group",
        details=tuple(dict.fromkeys(f"{v.op} {v.second.splitlines()[0] if v.second else ''}".rstrip() for v in members))[:20],
        mark=next(iter(marks)) if whole else "changed" if marks else None,
        group=name,
        count=count,
        lines=lines[:12],
    )


__all__ = ["regroup"]
