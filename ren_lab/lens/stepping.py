"""What every stepper is made of, as plain data: an outline that is sent once, and a frame for each state that is shown.

A stepper's script in the browser only puts frames on the screen; the pictures, the words and the data are made here, so that a
notebook without a browser, an exported page and a terminal show the same.

An outline is a dict with
    kind: "pass", "schedule" or "ring"; title: what is stepped through; what: the word for one state ("pass");
    states: a list of dicts `label`, `note` (small, behind it), `badges` (lists [mark, count]), `quiet`, `alert`, `bar` (0 to 1
        or None), `rewrites` (how many smaller steps it has);
    folds: lists [name, words] of the ways to fold; pictures: SVG that all frames share;
    start: the state to begin with, 0 if it is left out. Where something broke off, that state.
A frame is a dict with
    sentence: what is to be seen; pictures: SVG of this state alone;
    patch: by `data-key`, the attributes to set on elements of the shared pictures; "class" adds classes for this state, "text"
        sets the words;
    sections: what stands beside the picture, see `section`; lines: the text form, lists [key, mark, text].
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ren_lab.lens import theme
from ren_lab.lens.drawing import patched, style_sheet
from ren_lab.lens.markup import Html, alert, code, details, escape, fragment, pre, table

Frame = dict[str, Any]
Section = dict[str, Any]
LINES_SHOWN = 400  # of one graph's text form
_TOLD_AROUND = 15  # states before and after the one that is shown, where all are too many


class StepSource(Protocol):
    """Where a stepper gets its data from."""

    @property
    def outline(self) -> dict[str, Any]:
        """What is sent once."""

    def frame(self, step: int, rewrite: int = 0, fold: str = "", focus: str = "") -> Frame:
        """One state; positions out of range are moved to the nearest state."""

    def card(self, key: str, step: int, rewrite: int = 0, fold: str = "", focus: str = "") -> list[Section]:
        """All that is known of one vertex in a state; empty for one that is not there."""


def section(
    title: str,
    *,
    rows: Sequence[Sequence[Any]] | None = None,
    text: str | None = None,
    steps: Sequence[Sequence[Any]] | None = None,
    warning: str | None = None,
) -> Section:
    """A part of what stands beside a picture: rows (name, value), preformatted text, smaller steps to go to, or a warning."""
    made: Section = {"title": title}
    if rows is not None:
        made["rows"] = [[str(cell) for cell in row] for row in rows]
    if text is not None:
        made["text"] = text
    if steps is not None:
        made["steps"] = [[number, *map(str, words)] for number, *words in steps]
    if warning is not None:
        made["warning"] = warning
    return made


def state(
    label: str,
    note: str = "",
    *,
    badges: Sequence[tuple[str, int]] = (),
    quiet: bool = False,
    alert: bool = False,
    bar: float | None = None,
    rewrites: int = 0,
) -> dict[str, Any]:
    """One line of the list of states."""
    shown = [[theme.MARKS[mark].badge, mark, count] for mark, count in badges if count]
    return {
        "label": label, "note": note, "badges": shown, "quiet": quiet, "alert": alert,
        "bar": None if bar is None else round(bar, 4), "rewrites": rewrites,
    }  # fmt: skip


def within(step: int, count: int) -> int:
    """The nearest of the positions 0 to count - 1; 0 if there are none."""
    return max(0, min(step, count - 1))


# the same without a browser


def sections_html(sections: Sequence[Mapping[str, Any]]) -> str:
    """What stands beside a picture, as HTML without scripts."""
    out = []
    for part in sections:
        body = alert(part["warning"]) if "warning" in part else ""
        if part.get("rows"):
            body += table([], part["rows"])
        if "text" in part:
            body += pre(part["text"])
        if part.get("steps"):
            body += table([], [(words[0], code(" ".join(words[1:]))) for _, *words in part["steps"]])
        out.append(details(part["title"], body, opened="rows" in part or "warning" in part) if part["title"] else body)
    return "".join(out)


def static_html(source: StepSource, step: int, rewrite: int = 0, fold: str = "", focus: str = "") -> str:
    """One state for a place where widgets don't run."""
    outline, frame = source.outline, source.frame(step, rewrite, fold, focus)
    rows = []
    first = max(0, step - _TOLD_AROUND)
    for number, listed in enumerate(outline["states"][first : step + _TOLD_AROUND + 1], first):
        marks = " ".join(f"{badge}{count}" for badge, _, count in listed["badges"])
        here = Html(f"<b>{escape(listed['label'])}</b>") if number == step else listed["label"]
        rows.append(("→" if number == step else "", here, "quiet" if listed["quiet"] else marks, listed["note"]))
    pictures = [patched(picture, frame["patch"]) for picture in (*outline["pictures"], *frame["pictures"])]
    listed_all = len(rows) == len(outline["states"])
    told = f"Every {outline['what']}" if listed_all else f"Near this {outline['what']}"
    return fragment(
        f"<style>{style_sheet()}</style><p><b>{escape(outline['title'])}</b></p><p>{escape(frame['sentence'])}</p>",
        *(f'<div class="picture">{picture}</div>' for picture in pictures),
        details(told, table(["", outline["what"], "", ""], rows)),
        sections_html(frame["sections"]),
    )


def plain_text(source: StepSource, step: int, rewrite: int = 0, fold: str = "", focus: str = "") -> str:
    """One state for a terminal: the sentence, the list of states, and what stands beside the picture."""
    outline, frame = source.outline, source.frame(step, rewrite, fold, focus)
    out = [outline["title"], frame["sentence"]]
    first = max(0, step - _TOLD_AROUND)
    for number, listed in enumerate(outline["states"][first : step + _TOLD_AROUND + 1], first):
        marks = " ".join(f"{badge}{count}" for badge, _, count in listed["badges"])
        arrow, told = "→" if number == step else " ", "quiet" if listed["quiet"] else marks
        out.append(f"{arrow} {listed['label']}  {told}  {listed['note']}".rstrip())
    for part in frame["sections"]:
        rows = [" ".join(row) for row in part.get("rows", ())] + [" ".join(words) for _, *words in part.get("steps", ())]
        out += [
            part["title"],
            *(f"  {line}" for line in (*rows, *part.get("text", "").splitlines(), part.get("warning", "")) if line),
        ]
    return "\n".join(filter(None, out))


def to_json(data: Any) -> str:
    """JSON that may stand inside a script element of a page."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


__all__ = ["Frame", "Section", "StepSource", "plain_text", "section", "sections_html", "state", "static_html", "to_json", "within"]
