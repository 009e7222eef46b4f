"""Graphs as SVG that a stepper can mark: a group for each vertex with its key, classes for how it looks, no colours of its own.

The style sheet that goes with it is made from the theme, so the pictures look like those of the layout program.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape, unescape
from typing import Any

from ren_lab.lens import theme
from ren_lab.lens.layout import Layout, Place, Point, hubs, lines_of
from ren_lab.lens.picture import Edge, GraphView, Vertex

_FILL = {"muted": "var(--ren-background)"}


def draw(view: GraphView, layout: Layout, title: str = "") -> str:
    """The picture of a graph at the places of a layout."""
    layout = layout.covering(view)
    title = title or view.title
    common = hubs(view)
    edges = "".join(_edge(edge, layout, edge.source in common) for edge in view.edges)
    vertices = "".join(_vertex(vertex, layout.places[vertex.key]) for vertex in view.vertices)
    return f"{open_svg(layout.width, layout.height, title)}{edges}{vertices}</svg>"


def open_svg(width: float, height: float, title: str) -> str:
    """The opening tag of a picture of that many pixels, which says what it shows."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ren-graph" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}">'
    )


def _vertex(vertex: Vertex, place: Place) -> str:
    style = theme.ROLES[vertex.role]
    mark = theme.MARKS[vertex.mark] if vertex.mark else None
    classes = " ".join(filter(None, ("v", f"role-{vertex.role}", vertex.mark and f"mark-{vertex.mark}")))
    wide, high = place.width / 2, place.height / 2
    shape = _shape(style.shape, wide, high)
    if style.border == "double":
        shape += f'<rect class="i" x="{3 - wide:g}" y="{3 - high:g}" width="{2 * wide - 6:g}" height="{2 * high - 6:g}" rx="3"/>'
    lines = lines_of(vertex)
    top = -6.5 * (len(lines) - 1) + 4 + (4 if style.shape in ("cylinder", "folder") else 0)
    shift = -8 if mark and style.shape in ("trapezium", "hexagon", "oval", "diamond") else 0
    words = f'<text class="o" x="{shift}" y="{top:g}">{escape(lines[0])}</text>' + "".join(
        f'<text y="{top + 13 * i:g}">{escape(line)}</text>' for i, line in enumerate(lines[1:], 1)
    )
    badge = ""
    if mark is not None:
        badge = (
            f'<g class="b" transform="translate({wide - 7:g},{7 - high:g})"><rect x="-7" y="-7" width="14" height="14"/>'
            f'<text y="4.5">{mark.badge}</text></g>'
        )
    told = escape(vertex.tooltip)
    return (
        f'<g class="{classes}" data-key="{escape(vertex.key)}" transform="translate({place.x:g},{place.y:g})">'
        f"<title>{told}</title>{shape}{words}{badge}</g>"
    )


def _shape(shape: str, w: float, h: float) -> str:
    """The outline of a vertex around the origin, w and h being half its width and height."""

    def polygon(*points: Point) -> str:
        return f'<polygon class="s" points="{" ".join(f"{x:g},{y:g}" for x, y in points)}"/>'

    match shape:
        case "plaintext":
            return f'<rect class="s none" x="{-w:g}" y="{-h:g}" width="{2 * w:g}" height="{2 * h:g}"/>'
        case "hexagon":
            return polygon((-w, 0), (14 - w, -h), (w - 14, -h), (w, 0), (w - 14, h), (14 - w, h))
        case "trapezium":
            return polygon((0.5 * h - w, -h), (w - 0.5 * h, -h), (w, h), (-w, h))
        case "diamond":
            return polygon((-w, 0), (0, -h), (w, 0), (0, h))
        case "cds":
            return polygon((-w, -h), (w - 12, -h), (w, 0), (w - 12, h), (-w, h))
        case "oval":
            return f'<ellipse class="s" rx="{w:g}" ry="{h:g}"/>'
        case "cylinder":
            side = f"M{-w:g},{5 - h:g}v{2 * h - 10:g}a{w:g},5 0 0 0 {2 * w:g},0v{10 - 2 * h:g}"
            return f'<path class="s" d="{side}a{w:g},5 0 0 0 {-2 * w:g},0a{w:g},5 0 0 0 {2 * w:g},0"/>'
        case "folder":
            return f'<path class="s" d="M{-w:g},{h:g}V{-h:g}h{0.6 * w:g}l6,6H{w:g}V{h:g}z"/>'
    return f'<rect class="s" x="{-w:g}" y="{-h:g}" width="{2 * w:g}" height="{2 * h:g}" rx="6"/>'


def _edge(edge: Edge, layout: Layout, faint: bool) -> str:
    source, target = layout.places[edge.source], layout.places[edge.target]
    points = layout.routes.get((edge.source, edge.target)) or _straight(source, target)
    (x0, y0), *rest = points
    curve = f"M{x0:g},{y0:g}C" + " ".join(f"{x:g},{y:g}" for x, y in rest)
    (ax, ay), (bx, by) = points[-2], points[-1]
    length = max(((bx - ax) ** 2 + (by - ay) ** 2) ** 0.5, 1e-6)
    ux, uy = (bx - ax) / length, (by - ay) / length
    head = f"M{bx:g},{by:g}l{-7 * ux + 3 * uy:.1f},{-7 * uy - 3 * ux:.1f}l{-6 * uy:.1f},{6 * ux:.1f}z"
    classes = f"e {edge.kind}{' gone' if edge.removed else ''}{' faint' if faint else ''}"
    ends = f'data-ends="{escape(edge.source)} {escape(edge.target)}"'
    label = ""
    if edge.label:
        middle = 3 * ((len(points) - 1) // 6)
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = points[middle : middle + 4]
        x, y = (ax + 3 * bx + 3 * cx + dx) / 8, (ay + 3 * by + 3 * cy + dy) / 8
        label = f'<text x="{x + 4:.1f}" y="{y + 3:.1f}">{escape(edge.label)}</text>'
    return f'<g class="{classes}" {ends}><path d="{curve}"/><path class="h" d="{head}"/>{label}</g>'


def _straight(source: Place, target: Place) -> tuple[Point, ...]:
    """A curve from under the source to over the target, or upwards if that stands above."""
    down = 1 if target.y >= source.y else -1
    x0, y0 = source.x, source.y + down * source.height / 2
    x1, y1 = target.x, target.y - down * target.height / 2
    bend = (y1 - y0) / 2
    return (x0, y0), (x0, y0 + bend), (x1, y1 - bend), (x1, y1)


@cache
def style_sheet() -> str:
    """CSS for the pictures, in the variables of `theme.style_sheet`."""

    def var(name: str) -> str:
        return f"var(--ren-{name.replace('_', '-')})"

    dashes = {"dashed": "5 3", "dotted": "1.5 2.5"}
    widths = {"thick": "2.6", "double": "1.1"}
    out = [
        ".ren-graph text{font:10px Helvetica,Arial,'Liberation Sans',sans-serif;fill:var(--ren-ink);text-anchor:middle}",
        ".ren-graph text.o{font-size:12px;font-weight:bold}",
        ".ren-graph .e path{fill:none;stroke:var(--ren-muted);stroke-width:.9}",
        ".ren-graph .e path.h{fill:var(--ren-muted);stroke:none}",
        ".ren-graph .e text{text-anchor:start;fill:var(--ren-muted)}",
        ".ren-graph .e text{paint-order:stroke;stroke:var(--ren-background);stroke-width:3}",
        ".ren-graph .ordering path{stroke-dasharray:1.5 2.5}.ren-graph .device path{stroke-width:3}",
        ".ren-graph .gone path{stroke:var(--ren-grey);stroke-dasharray:4 3}.ren-graph .gone path.h{fill:var(--ren-grey)}",
        ".ren-graph .faint{opacity:.3}",
        ".ren-graph .v{cursor:pointer}.ren-graph .i{fill:none}",
    ]
    for name, style in theme.ROLES.items():
        fill = _FILL.get(style.colour, var(f"{style.colour}_tint"))
        dash = f";stroke-dasharray:{dashes[style.border]}" if style.border in dashes else ""
        pen = f"stroke:{var(style.colour)};stroke-width:{widths.get(style.border, '1.3')}"
        out.append(f".ren-graph .role-{name} .s{{fill:{fill};{pen}{dash}}}")
        if style.border == "double":
            out.append(f".ren-graph .role-{name} .i{{{pen}}}")
    out.append(".ren-graph .v .s.none{stroke:none;fill:none}")
    for name, mark in theme.MARKS.items():
        out.append(f".ren-graph .mark-{name} .s{{fill:{var(f'{mark.colour}_tint')}}}")
        out.append(f".ren-graph .mark-{name} .b rect{{fill:{var(mark.colour)}}}")
        light, dark = (theme.THEMES[t].text_on(mark.colour) for t in ("light", "dark"))
        ink = light if light == dark else "var(--ren-background)"
        out.append(f".ren-graph .mark-{name} .b text{{fill:{ink};font-weight:bold;font-size:13px}}")
        if mark.struck:
            out.append(
                f".ren-graph .mark-{name}>text{{text-decoration:line-through}}.ren-graph .mark-{name} .s{{stroke-dasharray:5 3}}"
            )
    now = "stroke:var(--ren-vermillion);stroke-width:3.5;stroke-dasharray:none"
    out += [
        # states of a stepper
        ".ren-graph .later{opacity:.38}",
        f".ren-graph .v.now .s{{{now}}}.ren-graph .v.sel .s{{stroke:var(--ren-ink);stroke-width:3.5}}",
        ".ren-graph .v.hit .s{stroke:var(--ren-vermillion);stroke-width:3;stroke-dasharray:2 2}",
        ".ren-graph .v.reads .s{stroke:var(--ren-ink);stroke-width:2.4}",
        ".ren-graph .v.writes .s{stroke:var(--ren-vermillion);stroke-width:2.8}",
        # arenas and rings
        ".ren-arena .v{opacity:.4}.ren-arena .v.live{opacity:1}",
        ".ren-graph .axis,.ren-graph .bound{fill:none;stroke:var(--ren-muted);stroke-width:1}",
        ".ren-graph .bound{stroke-dasharray:6 4}",
        ".ren-graph .cursor rect{fill:var(--ren-vermillion);opacity:.16}",
        ".ren-graph .cursor path{stroke:var(--ren-vermillion);stroke-width:2}",
        ".ren-graph .track,.ren-graph .arc{fill:none;stroke-width:9}.ren-graph .track{stroke:var(--ren-rule)}",
        ".ren-graph .full{stroke-dasharray:.02 .01!important;stroke:var(--ren-vermillion)!important}",
        ".ren-graph .line{fill:none;stroke-width:1.6}",
    ]
    for ring, colour in enumerate(theme.RING_COLOURS):
        out.append(f".ren-graph .ring-{ring} .arc,.ren-graph .line.ring-{ring}{{stroke:{var(colour)}}}")
    return "\n".join(out)


_BETWEEN = 12.0  # pixels between pictures in one file


def standalone(pictures: Sequence[str], title: str, theme_name: str = "light") -> str:
    """One SVG file of some pictures, one under the other, which looks alike wherever it is opened.

    Its style sheet is inside, with the colours of the theme "light" or "dark" in place of variables: programs that are not
    browsers know none.
    """
    colours = theme.theme(theme_name)
    sheet = re.sub(r"var\(--ren-([a-z-]+)\)", lambda match: colours[match[1].replace("-", "_")], style_sheet())
    sizes = [tuple(float(side) for side in _VIEW_BOX.search(picture).groups()) for picture in pictures]  # type: ignore[union-attr]
    width = max((wide for wide, _ in sizes), default=1.0)
    y, placed = 0.0, []
    for (wide, high), picture in zip(sizes, pictures, strict=True):
        placed.append(picture.replace("<svg ", f'<svg x="{(width - wide) / 2:g}" y="{y:g}" ', 1))
        y += high + _BETWEEN
    height = max(y - _BETWEEN, 1.0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" '
        f'role="img" aria-label="{escape(title)}"><title>{escape(title)}</title><style>{escape(sheet, quote=False)}</style>'
        f'<rect width="100%" height="100%" fill="{colours["background"]}"/>{"".join(placed)}</svg>\n'
    )


_VIEW_BOX = re.compile(r'<svg [^>]*viewBox="0 0 ([0-9.]+) ([0-9.]+)"')


def patched(svg: str, patch: Mapping[str, Mapping[str, Any]]) -> str:
    """A picture with a frame's patch applied: what a stepper's script does, for places without scripts."""

    def change(match: re.Match[str]) -> str:
        changes = patch.get(unescape(match[2]))
        if not changes:
            return match[0]
        tag, words = match[1], match[3]
        for name, value in changes.items():
            told = escape(str(value))
            if name == "text":
                words = told
            elif name == "class":
                old = re.search(r' class="([^"]*)"', tag)
                tag = tag.replace(old[0], f' class="{old[1]} {told}"') if old else f'{tag[:-1]} class="{told}">'
            else:
                tag = re.sub(rf' {name}="[^"]*"', "", tag)
                closed = tag.endswith("/>")
                tag = f'{tag.removesuffix("/>").removesuffix(">")} {name}="{told}"{"/>" if closed else ">"}'
        return tag + words

    return re.sub(r'(<\w+[^>]* data-key="([^"]*)"[^>]*>)([^<]*)', change, svg)


__all__ = ["draw", "open_svg", "patched", "standalone", "style_sheet"]
