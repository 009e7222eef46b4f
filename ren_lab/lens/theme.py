"""The one place for colours, shapes, badges and units: every picture of lens and of the widgets is drawn from here.

Colours are those of M. Okabe and K. Ito, "Color Universal Design" (2008), which readers with any kind of colour vision tell
apart; still no meaning rests on colour alone. A role has a shape and a border as well, and a change has a badge.
Colours are named; a `Theme` says what a name looks like on a light or on a dark background.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from ren_lab.words import format_bytes, format_count, format_seconds

GRAPH_FONT = "Arial"  # layout programs know its widths; what a browser shows is FONT
FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"
PLOT_FONT = "DejaVu Sans"  # comes with matplotlib, so it is never missing

_HUES = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "vermillion": "#D55E00",
    "purple": "#CC79A7",
    "grey": "#7F7F7F",
    "green": "#009E73",
    "amber": "#F5C518",
}


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by name, as "#RRGGBB".

    `background`, `ink` (text), `muted` (quiet text and edges), `rule` (hairlines), the hues of the palette, and for each hue
    a pale `…_tint` to fill shapes with. Text in `ink` has a contrast of 4.5 or more on every tint and on the background, text in
    `muted` on the background.
    """

    name: str
    colours: Mapping[str, str]

    def __getitem__(self, colour: str) -> str:
        try:
            return self.colours[colour]
        except KeyError:
            raise KeyError(f"the theme has no colour {colour!r}; it has {', '.join(self.colours)}") from None

    def text_on(self, colour: str) -> str:
        """Black or white, whichever reads better on the named colour."""
        return max("#000000", "#FFFFFF", key=lambda text: contrast(text, self[colour]))


def mix(a: str, b: str, share: float) -> str:
    """The colour `share` of the way from `a` to `b`, with 0 <= share <= 1."""
    return "#" + "".join(f"{round(x + (y - x) * share):02X}" for x, y in zip(_channels(a), _channels(b), strict=True))


def _channels(colour: str) -> tuple[int, int, int]:
    if not re.fullmatch(r"#[0-9A-Fa-f]{6}", colour):
        raise ValueError(f"{colour!r} is not a colour; write it as #RRGGBB")
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours, from 1 (the same) to 21 (black and white): WCAG 2.1, "contrast ratio"."""

    def luminance(colour: str) -> float:
        linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in _channels(colour)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _theme(name: str, background: str, ink: str, muted: str, rule: str, lighter: float, pale: float, amber: float) -> Theme:
    hues = {hue: mix(colour, "#FFFFFF", lighter) for hue, colour in _HUES.items()}
    tints = {f"{hue}_tint": mix(colour, background, pale) for hue, colour in hues.items()}
    tints["amber_tint"] = mix(hues["amber"], background, amber)  # pale amber would pass for pale orange
    basic = {"background": background, "ink": ink, "muted": muted, "rule": rule}
    return Theme(name, MappingProxyType({**basic, **hues, **tints}))


LIGHT = _theme("light", "#FFFFFF", "#1A1D21", "#595F66", "#D5D8DC", lighter=0.0, pale=0.84, amber=0.64)
DARK = _theme("dark", "#111418", "#E8EAED", "#BCC3CA", "#3A4047", lighter=0.25, pale=0.72, amber=0.62)
THEMES: Mapping[str, Theme] = MappingProxyType({"light": LIGHT, "dark": DARK})


def theme(name: str) -> Theme:
    """The theme "light" or "dark"; `ValueError` for other names."""
    if name not in THEMES:
        raise ValueError(f"there is no theme {name!r}; choose {' or '.join(map(repr, THEMES))}")
    return THEMES[name]


@dataclass(frozen=True, slots=True)
class RoleStyle:
    """How a vertex of some role looks: a colour name, and a shape and a border that say the same without colour.

    `border` is "solid", "double", "dashed", "dotted", "thick" or "none"; `shape` is a name of Graphviz.
    """

    colour: str
    shape: str
    border: str
    meaning: str


ROLES: Mapping[str, RoleStyle] = MappingProxyType(
    {
        "coefficient": RoleStyle("blue", "box", "solid", "coefficient domain"),
        "ntt": RoleStyle("orange", "box", "double", "NTT domain"),
        "transform": RoleStyle("vermillion", "hexagon", "solid", "transform"),
        "basis": RoleStyle("purple", "trapezium", "solid", "change of basis"),
        "view": RoleStyle("purple", "trapezium", "dashed", "window of a buffer"),
        "buffer": RoleStyle("grey", "cylinder", "solid", "buffer"),
        "constant": RoleStyle("grey", "plaintext", "none", "constant"),
        "random": RoleStyle("grey", "diamond", "solid", "random draw"),
        "copy": RoleStyle("grey", "cds", "solid", "copy between devices"),
        "boundary": RoleStyle("green", "box", "thick", "kernel boundary or store"),
        "order": RoleStyle("muted", "oval", "dotted", "ordering"),
        "index": RoleStyle("muted", "box", "dotted", "index or plain words"),
        "group": RoleStyle("muted", "folder", "solid", "folded group"),
        "more": RoleStyle("muted", "plaintext", "none", "not drawn"),
    }
)

_ROLE_OF_OP = {
    "BUFFER": "buffer", "CONST": "constant", "RESIDUES": "constant", "IMPULSE": "constant", "RANDOM": "random",
    "NTT": "transform", "INTT": "transform", "TO_RNS": "basis", "TO_RING": "basis", "RESCALE": "basis",
    "BASE_CONVERT": "basis", "LIFT": "basis",
    "BUFFER_VIEW": "view", "COPY": "copy", "BUFFERIZE": "boundary", "STORE": "boundary", "KERNEL": "boundary", "SLOT": "buffer",
    "AFTER": "order", "SINK": "order",
}  # fmt: skip
_ROLE_OF_DOMAIN = {"COEFF": "coefficient", "NTT": "ntt"}


def role_of(op: str, domain: str | None = None) -> str:
    """The role of an operation, by its name; where the operation has none of its own, by the name of its domain."""
    return _ROLE_OF_OP.get(op) or _ROLE_OF_DOMAIN.get(domain or "", "index")


@dataclass(frozen=True, slots=True)
class MarkStyle:
    """How a change looks: a colour name, the badge in the corner, and whether the text is struck."""

    colour: str
    badge: str
    struck: bool = False


MARKS: Mapping[str, MarkStyle] = MappingProxyType(
    {
        "added": MarkStyle("green", "+"),
        "removed": MarkStyle("grey", "\N{MINUS SIGN}", struck=True),
        "changed": MarkStyle("amber", "~"),
    }
)


@dataclass(frozen=True, slots=True)
class EdgeStyle:
    """How an edge looks: line style of Graphviz, pen width in points, and what it stands for."""

    line: str
    width: float
    meaning: str


EDGES: Mapping[str, EdgeStyle] = MappingProxyType(
    {
        "data": EdgeStyle("solid", 0.9, "data"),
        "ordering": EdgeStyle("dotted", 1.2, "ordering"),
        "device": EdgeStyle("solid", 3.0, "across devices"),
        "index": EdgeStyle("solid", 0.6, "position"),
    }
)

RING_COLOURS = ("blue", "orange", "green", "purple")
ALERT_COLOUR = "vermillion"  # at capacity, error; always with ALERT_HATCH and the word
ALERT_HATCH = "xxx"
OUTSIDE_HATCH = "///"  # pinned buffers and others outside the arena


def ring_colour(ring: int) -> str:
    """The colour name of ring 0, 1, 2 or 3; show the digit with it."""
    if ring not in range(len(RING_COLOURS)):
        raise ValueError(f"there is no ring {ring!r}; rings are 0 to {len(RING_COLOURS) - 1}")
    return RING_COLOURS[ring]


# Markup for pages and notebooks follows the theme of its surroundings: each colour is a variable of the style sheet.


def style_sheet(scope: str = ".ren-lab") -> str:
    """CSS that gives every colour as a variable `--ren-NAME` to elements of the scope.

    A notebook's own theme decides; elsewhere the reader's preferred colour scheme does.
    """

    def block(selector: str, chosen: Theme) -> str:
        variables = "".join(f"--ren-{name.replace('_', '-')}:{value};" for name, value in chosen.colours.items())
        return f"{selector}{{{variables}color:var(--ren-ink);background:var(--ren-background);font-family:{FONT}}}"

    return "\n".join(
        [
            block(scope, LIGHT),
            f"@media (prefers-color-scheme: dark) {{{block(scope, DARK)}}}",
            block(f'[data-jp-theme-light="true"] {scope}', LIGHT),
            block(f'[data-jp-theme-light="false"] {scope}', DARK),
        ]
    )


_VARIABLES = {value.lower(): f"var(--ren-{name.replace('_', '-')},{value})" for name, value in LIGHT.colours.items()}
_COLOUR_ATTRIBUTE = re.compile(r'\b(fill|stroke)="(#[0-9A-Fa-f]{6})"')


def with_variables(svg: str) -> str:
    """An SVG drawn in the light theme, with its colours replaced by the variables of `style_sheet`."""
    return _COLOUR_ATTRIBUTE.sub(lambda m: f'{m[1]}="{_VARIABLES.get(m[2].lower(), m[2])}"', svg)


# Numbers and places as people read them.


def format_share(share: float) -> str:
    """A fraction of 1 in percent: 0.0421 -> "4 %", 0.0042 -> "0.4 %"."""
    percent = share * 100
    return f"{percent:.0f} %" if percent >= 0.95 or percent == 0 else f"{max(percent, 0.1):.1f} %"


def format_origin(origin: tuple[str, int]) -> str:
    """A source line as people call it: "program.py:31", and "In[3]:2" for line 2 of a notebook's cell."""
    file, line = origin
    return f"{place_name(file)}:{line}"


@lru_cache(maxsize=4096)
def place_name(file: str) -> str:
    """A source file as people call it: its base name, "In[3]" for a notebook's cell, "cell" for one of an earlier session."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(file)
    if name is not None:
        return str(name[1])
    if re.search(r"ipykernel_\d+[/\\]\d+\.py$", file):  # a cell of a session that is over; its file name is a hash
        return "cell"
    return os.path.basename(file) or file


__all__ = [
    "ALERT_COLOUR", "ALERT_HATCH", "DARK", "EDGES", "FONT", "GRAPH_FONT", "LIGHT", "MARKS", "OUTSIDE_HATCH", "PLOT_FONT",
    "RING_COLOURS", "ROLES", "THEMES", "EdgeStyle", "MarkStyle", "RoleStyle", "Theme", "contrast", "format_bytes",
    "format_count", "format_origin", "format_seconds", "format_share", "mix", "place_name", "ring_colour", "role_of", "style_sheet",
    "theme", "with_variables",
]  # fmt: skip
