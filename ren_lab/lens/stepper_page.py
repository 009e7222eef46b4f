"""Steppers inside a saved page: the script of the notebook widgets with all data inlined; no kernel and no network is needed."""

import base64
import gzip
import json
import re
from functools import cache
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ren_lab.lens.drawing import style_sheet
from ren_lab.lens.stepping import StepSource, to_json

BUDGET = 12_000_000  # characters of one stepper's data before they are packed
MOST_FRAMES = 2000
MOST_REWRITES = 60  # of one step; more are not shown one by one on a page

# Stands in for the kernel: answers from the data of the page. Around a focus it dims what is further than two edges away.
_MODEL = """
const DEPTH = 2;
function near(svg, focus) {
  const ends = [...svg.matchAll(/data-ends="([^ "]*) ([^"]*)"/g)].map((m) => [m[1], m[2]]);
  const seen = new Set([focus]);
  for (const [a, b] of [[0, 1], [1, 0]]) {
    let level = new Set([focus]);
    for (let i = 0; i < DEPTH; i++) {
      level = new Set(ends.filter((e) => level.has(e[a])).map((e) => e[b]));
      level.forEach((key) => seen.add(key));
    }
  }
  return seen;
}
function inlined(data) {
  const state = { step: data.outline.start ?? 0, rewrite: 0, selected: "", search: "", fold: "", focus: "", playing: false,
    interval: data.interval, progress: 1, outline: data.outline, frames: {} };
  const listeners = {};
  const tell = (name, ...values) => (listeners[name] || []).forEach((listener) => listener(...values));
  const changed = new Set();
  const frame = ({ step, rewrite, fold, focus }) => {
    const whole = data.frames[`${step}|${rewrite}|${fold}|`] || data.frames[`${step}|0|${fold}|`] || data.frames[`${step}|0||`];
    if (!focus || !whole) return whole;
    const svg = whole.pictures.join("");
    const keys = [...svg.matchAll(/class="v [^"]*" data-key="([^"]*)"/g)].map((m) => m[1]);
    if (!keys.includes(focus)) return whole;
    const close = near(svg, focus);
    const far = Object.fromEntries(keys.filter((key) => !close.has(key)).map((key) => [key, { class: "later" }]));
    return { ...whole, patch: { ...whole.patch, ...far } };
  };
  const ask = {
    frame: (wish) => ({ frame: frame(wish) }),
    card: ({ step, selected }) => ({ card: data.texts[data.cards[step]?.[selected] ?? data.cards.all?.[selected]] || [] }),
  };
  return {
    get: (name) => state[name],
    set: (name, value) => { if (state[name] !== value) { state[name] = value; changed.add(name); } },
    save_changes: () => {
      const steps = data.outline.states;
      if (changed.has("step") && state.rewrite > (steps[state.step]?.rewrites ?? 0)) state.rewrite = 0;
      const names = [...changed];
      changed.clear();
      names.forEach((name) => tell(`change:${name}`));
    },
    on: (name, listener) => (listeners[name] ||= []).push(listener),
    off: (name, listener) => { listeners[name] = (listeners[name] || []).filter((known) => known !== listener); },
    send: (wish) => queueMicrotask(() => tell("msg:custom", { key: wish.key, ...ask[wish.ask](wish) })),
  };
}
async function unpack(words) {
  const bytes = Uint8Array.from(atob(words.trim()), (c) => c.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
}
for (const place of document.querySelectorAll("[data-steps]")) {
  const data = await unpack(document.getElementById(place.dataset.steps).textContent);
  place.replaceChildren();
  render({ model: inlined(data), el: place });
}
""".strip()


@cache
def front_end(name: str) -> str:
    """A file of the widgets' front end: `stepper.js` or `stepper.css`. They lie in the package, or beside it in a checkout."""
    package = Path(str(files("ren_lab")))
    for folder in (package / "widgets", package.parent / "widgets"):
        if (folder / name).is_file():
            return (folder / name).read_text("utf-8")
    raise FileNotFoundError(f"{name} is neither in {package / 'widgets'} nor beside the package; install ren-lab again")


def stepper_styles() -> str:
    """The style sheet that steppers on a page need besides the theme's variables."""
    return f"{style_sheet()}\n{front_end('stepper.css')}"


def stepper_script() -> str:
    """The module that brings all steppers of a page to life; put it once, at the end."""
    return f'<script type="module">{front_end("stepper.js")}\n{_MODEL}</script>'


def stepper_html(source: StepSource, ident: str, *, interval: int = 700, budget: int = BUDGET) -> str:
    """The place of a stepper on a page and its data. Without scripts the rest of the page shows the same."""
    data = json.dumps({"interval": interval, **steps_data(source, budget)}, ensure_ascii=False, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(data.encode(), mtime=0)).decode()  # frames are much alike: a tenth is left
    return (
        f'<div data-steps="{ident}"><p class="m">Needs scripts; the sections below show the same without.</p></div>'
        f'<script type="text/plain" id="{ident}">{packed}</script>'
    )


def steps_data(source: StepSource, budget: int = BUDGET) -> dict[str, Any]:
    """Everything a stepper can show, as far as the budget of characters goes: steps first, then rewrites, then other folds.

    Returns a dictionary with `outline` (only with the folds that are complete, and the numbers of rewrites of those steps whose
    rewrites are), `frames` by "step|rewrite|fold|", `texts`, and `cards`: by step and key the position among the texts.
    """
    heavy = getattr(source, "heavy", False)
    if heavy:
        source.prepare()  # type: ignore[attr-defined]
    outline = dict(source.outline)
    states = [dict(listed) for listed in outline["states"]]
    count = max(len(states), 1)
    frames: dict[str, Any] = {}
    texts: list[Any] = []
    known: dict[str, int] = {}
    cards: dict[str, dict[str, int]] = {}
    room = budget

    def take(wanted: list[tuple[int, int, str]]) -> bool:
        """Put in all of some frames, or none."""
        nonlocal room
        made: dict[str, Any] = {}
        left = room
        for step, rewrite, fold in wanted:
            frame = source.frame(step, rewrite, fold)
            left -= len(to_json(frame))
            if left < 0 or len(frames) + len(made) > MOST_FRAMES:
                return False
            made[f"{step}|{rewrite}|{fold}|"] = frame
        frames.update(made)
        room = left
        return True

    for step in range(count):
        if not take([(step, 0, "")]):
            states = states[:step]
            outline["title"] += f"; only the first {step} of {count} steps fit into this page"
            break
    shared = "".join(outline["pictures"])
    for step in range(min(count, len(states) or 1)):
        here = cards.setdefault("all" if shared else str(step), {})
        if shared and step:
            break
        for key in _keys(shared or "".join(frames[f"{step}|0||"]["pictures"])):
            card = source.card(key, step)
            text = to_json(card)
            if card and text not in known and room > len(text):
                room -= len(text)
                known[text] = len(texts)
                texts.append(card)
            if text in known:
                here[key] = known[text]
    for step, listed in enumerate(states):
        rewrites = listed["rewrites"]
        if rewrites > MOST_REWRITES or rewrites and not take([(step, rewrite, "") for rewrite in range(1, rewrites + 1)]):
            listed["rewrites"] = 0
    wanted = outline["folds"][:1] if heavy else outline["folds"]
    folds = [fold for fold in wanted if not fold[0] or take([(step, 0, fold[0]) for step in range(len(states))])]
    outline |= {"states": states, "folds": folds, "start": min(outline.get("start", 0), max(len(states) - 1, 0))}
    return {"outline": outline, "frames": frames, "texts": texts, "cards": cards}


def _keys(pictures: str) -> list[str]:
    """Keys of what can be selected in some pictures."""
    groups = re.findall(r'<g class="v [^"]*" data-key="([^"]*)"(?: data-select="([^"]*)")?', pictures)
    return list(dict.fromkeys(unescape(select or key) for key, select in groups))


__all__ = ["front_end", "stepper_html", "stepper_script", "stepper_styles", "steps_data"]
