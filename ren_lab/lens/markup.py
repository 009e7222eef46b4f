"""Small pieces of HTML that pages and notebook outputs are put together from.

Everything is inline, nothing is fetched. Colours are the variables of `theme.style_sheet`, so that a page follows the reader's
light or dark scheme and a notebook's output its notebook.
"""

import html
import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ren_lab.lens import dot, theme
from ren_lab.lens.theme import format_count, format_seconds, format_share

if TYPE_CHECKING:
    from ren_lab.lens.picture import GraphView

_ROWS = 500  # of a table

STYLE = """
.ren-lab{line-height:1.45;font-size:14px;padding:2px 4px}
.ren-lab h2{font-size:1.25em;margin:1.6em 0 .4em;border-bottom:1px solid var(--ren-rule)}
.ren-lab h3{font-size:1.05em;margin:1em 0 .3em}
.ren-lab p{margin:.4em 0}
.ren-lab table.ren{border-collapse:collapse;margin:.5em 0;font-size:13px}
.ren-lab table.ren th,.ren-lab table.ren td{padding:2px 10px 2px 0;
 text-align:left;vertical-align:top;border-bottom:1px solid var(--ren-rule);
 background:none;color:inherit;white-space:normal;max-width:44em}
.ren-lab table.ren .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.ren-lab pre,.ren-lab code{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px}
.ren-lab code{background:none;color:inherit}
.ren-lab pre{overflow:auto;max-height:32em;padding:8px;border:1px solid var(--ren-rule);background:none;color:inherit;margin:.4em 0}
.ren-lab .picture{overflow:auto;max-height:80vh;border:1px solid var(--ren-rule);padding:4px}
.ren-lab summary{cursor:pointer;padding:2px 0}
.ren-lab summary .m,.ren-lab .m{color:var(--ren-muted)}
.ren-lab .alert{border-left:4px solid var(--ren-vermillion);padding:4px 8px}
.ren-lab .bar{display:inline-block;height:.7em;background:var(--ren-blue)}
""".strip()

escape = html.escape


def fragment(*pieces: str) -> str:
    """Pieces of HTML as one output of a notebook, with the style sheet they need."""
    return f'<div class="ren-lab"><style>{theme.style_sheet()}\n{STYLE}</style>{"".join(pieces)}</div>'


def alert(text: str) -> str:
    """A paragraph that something went wrong."""
    return f'<p class="alert" role="alert">{escape(text)}</p>'


def safely(make: Callable[[], str]) -> str:
    """A piece of HTML, or what went wrong with it."""
    try:
        return make()
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        return alert(
            f"This needs {package}, which is not installed: pip install {package}" if package else f"This view failed: {error}"
        )
    except Exception as error:
        return alert(f"This view failed: {type(error).__name__}: {error}")


def details(title: str, body: str, *, more: str = "", opened: bool = False, ident: str = "") -> str:
    """A part that folds away under its title; `more` stands behind the title in grey."""
    attributes = (f' id="{ident}"' if ident else "") + (" open" if opened else "")
    return f'<details{attributes}><summary>{escape(title)} <span class="m">{escape(more)}</span></summary>{body}</details>'


def pre(text: str) -> str:
    """Text as it stands."""
    return f"<pre>{escape(text)}</pre>"


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Iterable[int] = ()) -> str:
    """A table; cells that are `Html` go in as they are, the columns in `numbers` stand to the right."""
    right = set(numbers)

    def cells(tag: str, row: Sequence[Any]) -> str:
        marks = [' class="n"' if i in right else "" for i in range(len(row))]
        return "".join(f"<{tag}{m}>{c if isinstance(c, Html) else escape(str(c))}</{tag}>" for m, c in zip(marks, row, strict=True))

    listed = list(rows)
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in listed[:_ROWS])
    rest = f'<p class="m">and {format_count(len(listed) - _ROWS, "more row")}</p>' if len(listed) > _ROWS else ""
    head = cells("th", titles)
    return f'<table class="ren"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}'


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def code(text: str) -> Html:
    """A piece of a program or an equation inside a line."""
    return Html(f"<code>{escape(text)}</code>")


def time_text(seconds: float | None) -> str:
    """A time as people read it; nothing for None."""
    return "" if seconds is None else format_seconds(seconds)


def bar(share: float) -> Html:
    """A share as a bar with its number beside it."""
    return Html(f'<span class="bar" style="width:{max(share, 0.005) * 80:.1f}px"></span> {escape(format_share(share))}')


# pictures


def graph_picture(view: "GraphView") -> str:
    """A graph as inline SVG that follows the theme; without a layout program as text that says what to install."""
    return digraph_picture(view.to_graphviz())


def digraph_picture(digraph: Any) -> str:
    """A `graphviz.Digraph` likewise."""
    kind, text = dot.render_or_text(digraph)
    drawn = kind == "image/svg+xml"
    return f'<div class="picture">{theme.with_variables(text)}</div>' if drawn else pre(text)


STYLED = re.compile(r"\b(fill|stroke): ?(#[0-9a-fA-F]{6})")


def figure_picture(figure: Any) -> str:
    """A matplotlib Figure of the light theme as inline SVG that follows the theme."""
    import matplotlib

    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # they would name addresses and the time
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "ren-lab"}):
        figure.savefig(out, format="svg", metadata=nothing)
    drawing = out.getvalue()
    drawing = drawing[drawing.index("<svg") :]

    def variable(match: re.Match[str]) -> str:
        name, _, value = theme.with_variables(f'{match[1]}="{match[2]}"').partition("=")
        return f"{name}: {value.strip(chr(34))}"

    return f'<div class="picture">{STYLED.sub(variable, drawing)}</div>'
