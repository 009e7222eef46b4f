"""A graph as plain data, and from there as text, DOT and HTML. What the vertices stand for is none of its business."""

import html
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ren_lab.lens import dot
from ren_lab.lens import theme as themes
from ren_lab.lens.display import html_bundle

_FAN = 8  # edges of one position
_LINE_LENGTH = 34  # characters of a label's line; the rest is in the details


@dataclass(frozen=True, slots=True)
class Vertex:
    """One vertex of a picture.

    Attributes:
        key: stable name of what it stands for, never shown.
        op: first line of the label.
        second: below that in small, the shortest thing an expert asks for; one line, two for groups, or empty.
        role: how it looks, a key of `theme.ROLES`.
        details: everything else, in lines.
        mark: "added", "removed", "changed" or None.
        group: the kernel, the operation or the place that it belongs to, or empty.
        device: where it is computed, or None.
        count: how many nodes it stands for.
        lines: the user's source lines behind it, as "program.py:31".
    """

    key: str
    op: str
    second: str
    role: str
    details: tuple[str, ...] = ()
    mark: str | None = None
    group: str = ""
    device: str | None = None
    count: int = 1
    lines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.role not in themes.ROLES:
            raise ValueError(f"vertex {self.op!r} has the role {self.role!r}; roles are {', '.join(themes.ROLES)}")
        if self.mark is not None and self.mark not in themes.MARKS:
            raise ValueError(f"vertex {self.op!r} is marked {self.mark!r}; marks are {', '.join(themes.MARKS)}, or None")

    @property
    def tooltip(self) -> str:
        """All that is known of it, in lines."""
        head = self.op if self.mark is None else f"{self.op} ({self.mark})"
        come = (f"from {', '.join(self.lines)}",) if self.lines else ()
        return "\n".join(filter(None, (head, self.second, *self.details, *come)))


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge between two vertices, by their keys.

    Attributes:
        kind: "data", "ordering", "device" (data that crosses devices) or "index" (a position that a kernel counts).
        label: written beside it, or empty.
        count: how many edges of the graph it stands for.
        removed: whether it was there before only.
    """

    source: str
    target: str
    kind: str = "data"
    label: str = ""
    count: int = 1
    removed: bool = False


@dataclass(frozen=True, slots=True)
class GraphView:
    """A graph ready to be looked at: shows itself in a notebook, prints in a terminal, gives its data.

    Attributes:
        title: what is to be seen, in a sentence.
        vertices: in topological order, sources first.
        edges: in the order of their targets.
        nodes: how many nodes the whole graph has, folded or hidden ones included.
        keys: from the nodes of the graph to their keys, for the view of the next pass.
    """

    title: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    nodes: int
    keys: Mapping[Any, str] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)

    @property
    def folded(self) -> bool:
        """Whether some vertex stands for several nodes."""
        return any(vertex.count > 1 for vertex in self.vertices)

    def to_dict(self) -> dict[str, Any]:
        """The view as numbers, strings, lists and dictionaries, fit for JSON."""
        vertices = [
            {
                "key": v.key, "op": v.op, "second": v.second, "role": v.role, "details": list(v.details), "mark": v.mark,
                "group": v.group, "device": v.device, "count": v.count, "lines": list(v.lines),
            }
            for v in self.vertices
        ]  # fmt: skip
        edges = [
            {"source": e.source, "target": e.target, "kind": e.kind, "label": e.label, "count": e.count, "removed": e.removed}
            for e in self.edges
        ]
        return {"title": self.title, "nodes": self.nodes, "folded": self.folded, "vertices": vertices, "edges": edges}

    def to_graphviz(self, theme: str = "light") -> Any:
        """The view as a `graphviz.Digraph` in the theme "light" or "dark".

        Edges of a position that more than 8 others use are left out: every kernel counts with the same few positions, and their
        edges would bury the rest.
        """
        from graphviz import Digraph

        colours = themes.theme(theme)
        text = {"fontname": themes.GRAPH_FONT, "fontcolor": colours["ink"]}
        graph = Digraph(
            self.title,
            graph_attr={
                **text, "label": f"{_plain(self.title)}\\l", "labelloc": "t", "labeljust": "l", "fontsize": "13",
                "bgcolor": colours["background"], "rankdir": "TB", "newrank": "true", "nodesep": "0.22", "ranksep": "0.32",
                "pad": "0.12",
            },
            node_attr={**text, "fontsize": "12", "margin": "0.1,0.05", "height": "0.3"},
            edge_attr={
                **text, "fontsize": "10", "fontcolor": colours["muted"], "color": colours["muted"], "arrowsize": "0.6",
            },
        )  # fmt: skip
        quiet = any(vertex.mark for vertex in self.vertices)
        devices = list(dict.fromkeys(v.device for v in self.vertices if v.device is not None))
        if len(devices) > 1:
            for number, device in enumerate(devices):
                frame = {"label": device, "labeljust": "l", "style": "rounded", "color": colours["rule"], "fontsize": "12"}
                with graph.subgraph(name=f"cluster_{number}", graph_attr=frame) as cluster:
                    for vertex in self.vertices:
                        if vertex.device == device:
                            _add_vertex(cluster, vertex, colours, quiet)
        for vertex in self.vertices:
            if len(devices) < 2 or vertex.device is None:
                _add_vertex(graph, vertex, colours, quiet)
        fans = Counter(edge.source for edge in self.edges if edge.kind == "index")
        for edge in self.edges:
            if fans[edge.source] <= _FAN:
                _add_edge(graph, edge, colours)
        return graph

    def to_html(self) -> str:
        """A fragment for a page, which follows the page's light or dark theme. Without a layout program, the graph's text."""
        kind, text = dot.render_or_text(self.to_graphviz())
        body = themes.with_variables(text) if kind == "image/svg+xml" else f"<pre>{html.escape(text)}</pre>"
        return f'<div class="ren-lab" style="overflow:auto"><style>{themes.style_sheet()}</style>{body}</div>'

    def __str__(self) -> str:
        number = {vertex.key: str(position) for position, vertex in enumerate(self.vertices)}
        sources: dict[str, list[str]] = {}
        for edge in self.edges:
            sources.setdefault(edge.target, []).append(number[edge.source])
        rows = [
            (
                themes.MARKS[v.mark].badge if v.mark else " ",
                number[v.key],
                v.op,
                v.second.replace("\n", ": "),
                f"({', '.join(sources.get(v.key, ()))})",
                " ".join(v.lines),
            )
            for v in self.vertices
        ]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(6)]
        lines = [
            "  ".join(
                (f"{row[0]} {row[1]:>{widths[1]}}", *(f"{cell:<{width}}" for cell, width in zip(row[2:], widths[2:])))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([self.title, *lines])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return html_bundle(self, GraphView.to_html)


def _plain(text: str) -> str:
    """Text that DOT takes literally."""
    return text.replace("\\", "\\\\")


def _table(*rows: str, spacing: int) -> str:
    body = "".join(f"<TR>{row}</TR>" for row in rows)
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="{spacing}" CELLPADDING="0">{body}</TABLE>'


def _short(text: str) -> str:
    return text if len(text) <= _LINE_LENGTH else text[: _LINE_LENGTH - 1] + "…"


def _add_vertex(graph: Any, vertex: Vertex, colours: themes.Theme, quiet: bool) -> None:
    style = themes.ROLES[vertex.role]
    mark = themes.MARKS[vertex.mark] if vertex.mark else None
    first, *small = (html.escape(_short(line)) for line in (vertex.op, *vertex.second.splitlines()))
    if mark is not None and mark.struck:
        first, *small = (f"<S>{line}</S>" for line in (first, *small))
    first = f"<B>{first}</B>"
    small = [f'<FONT POINT-SIZE="10">{line}</FONT>' for line in small]
    if mark is None:
        label = "<BR/>".join((first, *small))
    else:
        badge = f'<FONT COLOR="{colours.text_on(mark.colour)}"><B>{mark.badge}</B></FONT>'
        corner = f'<TD BGCOLOR="{colours[mark.colour]}" FIXEDSIZE="TRUE" WIDTH="15" HEIGHT="15">{badge}</TD>'
        head = _table(f"<TD>{first}</TD>{corner}", spacing=2)
        label = _table(*(f"<TD>{line}</TD>" for line in (head, *small)), spacing=0)

    attributes = {"label": f"<{label}>", "tooltip": _plain(vertex.tooltip), "shape": style.shape, "color": colours[style.colour]}
    fill = "background" if quiet or style.colour == "muted" else f"{style.colour}_tint"
    attributes["fillcolor"] = colours[fill if mark is None else f"{mark.colour}_tint"]
    looks = ["filled"] if style.border != "none" or mark is not None else []
    if style.shape == "box":
        looks.append("rounded")
    if style.shape in ("diamond", "hexagon"):
        attributes["margin"] = "0.02,0.02"
    elif style.shape == "cds":
        attributes["margin"] = "0.2,0.09"
    elif style.shape == "trapezium":
        attributes |= _trapezium(vertex, mark is not None)
    if style.border in ("dashed", "dotted"):
        looks.append(style.border)
    elif mark is not None and mark.struck:
        looks.append("dashed")
    attributes["style"] = ",".join(looks)
    attributes["penwidth"] = {"thick": "2.6", "double": "1.1"}.get(style.border, "1.3")
    if style.border == "double":
        attributes["peripheries"] = "2"
    attributes["class"] = " ".join(filter(None, (f"role_{vertex.role}", vertex.mark and f"mark_{vertex.mark}")))
    graph.node(vertex.key, **attributes)


def _trapezium(vertex: Vertex, badge: bool) -> dict[str, str]:
    """Size of a trapezium, in inches: just wide enough at the height of each line. Layout programs make it twice as large."""
    first, *small = map(len, map(_short, (vertex.op, *vertex.second.splitlines())))
    # 8.4 and 5.4 points per character; the upper side has 0.58 of the width, the second line about 0.8
    width = max((8.4 * first + (20 if badge else 0)) / 0.68, 5.4 * max(small, default=0) / 0.82) + 12
    height = 18 + 12 * len(small) + (6 if badge else 0)
    return {"fixedsize": "true", "width": f"{width / 72:.2f}", "height": f"{height / 72:.2f}"}


def _add_edge(graph: Any, edge: Edge, colours: themes.Theme) -> None:
    style = themes.EDGES[edge.kind]
    attributes = {"style": "dashed" if edge.removed else style.line, "penwidth": f"{style.width:g}"}
    if edge.removed:
        attributes["color"] = colours["grey"]
    if edge.label:
        attributes["label"] = f" {_plain(edge.label)} "
    graph.edge(edge.source, edge.target, **attributes)
