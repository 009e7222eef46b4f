"""The steppers as notebook widgets: they hand data from `ren_lab.lens` to one script, and hold the state that both sides share."""

import re
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ren_lab.lens import theme
from ren_lab.lens.display import failure_html
from ren_lab.lens.drawing import patched, standalone, style_sheet
from ren_lab.lens.pass_steps import FOLDS, PassSteps
from ren_lab.lens.ring_steps import RingSteps
from ren_lab.lens.schedule_steps import ScheduleSteps
from ren_lab.lens.stepping import StepSource, plain_text, static_html, to_json

_HERE = Path(__file__).parent
_SHORTEST = 60  # milliseconds between states
_VERTEX = re.compile(r'<g class="v [^"]*" data-key="([^"]*)"(?: data-select="([^"]*)")?(.*?)</g>', flags=re.DOTALL)
_INLINED = 600_000  # characters of frames that go along at once, so that a saved notebook can be stepped without a kernel


def _css() -> str:
    return "\n".join([theme.style_sheet(), style_sheet(), (_HERE / "stepper.css").read_text("utf-8")])


def _vertices(*pictures: str) -> Iterator[tuple[str, str]]:
    """The vertices of some pictures: the key that selects each, and its words."""
    for picture in pictures:
        for match in _VERTEX.finditer(picture):
            yield unescape(match[2] or match[1]), unescape(re.sub(r"<[^>]*>", " ", f"<g{match[3]}"))


def _keys_of(outline: dict[str, Any], frame: dict[str, Any]) -> set[str]:
    drawn = {key for key, _ in _vertices(*outline["pictures"], *frame["pictures"])}
    return drawn | {key for key, _, _ in frame["lines"]}


class Stepper(anywidget.AnyWidget):
    """What all steppers have in common.

    Everything that a reader does in the browser can be done here, and is seen here:

    Attributes:
        step: the state that is shown, from 0; set it to go there.
        rewrite: the rewrite within it, from 1; 0 is the whole of it.
        selected: key of the selected vertex, or empty.
        fold: how large graphs are folded; the names are in `outline["folds"]`.
        focus: key of the vertex whose neighbourhood is shown, or empty for everything.
        search: what is searched for.
        playing: whether it goes on by itself, every `interval` milliseconds, of which there must be at least 60.
        progress: share of the layout that is done, 0 to 1; large programs are laid out in the background.
    """

    _esm = (_HERE / "stepper.js").read_text("utf-8")
    _css = _css()

    step = traitlets.Int(0).tag(sync=True)
    rewrite = traitlets.Int(0).tag(sync=True)
    selected = traitlets.Unicode("").tag(sync=True)
    search = traitlets.Unicode("").tag(sync=True)
    fold = traitlets.Unicode("").tag(sync=True)
    focus = traitlets.Unicode("").tag(sync=True)
    playing = traitlets.Bool(False).tag(sync=True)
    interval = traitlets.Int(700).tag(sync=True)
    progress = traitlets.Float(1.0).tag(sync=True)
    outline = traitlets.Dict().tag(sync=True)
    frames = traitlets.Dict().tag(sync=True)

    def __init__(self, source: StepSource, step: int | None = None, **state: Any) -> None:
        self._source = source
        outline = source.outline
        step = outline.get("start", 0) if step is None else step
        self._accepted = {""}  # keys that were looked up once: a vertex stays selected in states that fold it away
        self._last = max(len(outline["states"]) - 1, 0)
        super().__init__(outline=outline, frames=self._first_frames(outline), step=step, **state)
        self.on_msg(self._asked)

    def _first_frames(self, outline: dict[str, Any]) -> dict[str, Any]:
        frames: dict[str, Any] = {}
        room = _INLINED
        for number in range(max(len(outline["states"]), 1)):
            frame = self._source.frame(number)
            room -= len(to_json(frame))
            if room < 0:
                break
            frames[f"{number}|0||"] = frame
        return frames

    @traitlets.validate("step")
    def _valid_step(self, proposal: Any) -> int:
        value = proposal["value"]
        if not 0 <= value <= self._last:
            raise traitlets.TraitError(f"there is no step {value}; give 0 to {self._last}")
        return value

    @traitlets.observe("step")
    def _stepped(self, change: Any) -> None:
        count = self._rewrites(change["new"])
        if self.rewrite > count:
            self.rewrite = 0

    @traitlets.validate("rewrite")
    def _valid_rewrite(self, proposal: Any) -> int:
        value = proposal["value"]
        count = self._rewrites(self.step)
        if not 0 <= value <= count:
            has = f"0 (the whole step) to {count}" if count else "0: the step has no rewrites"
            raise traitlets.TraitError(f"step {self.step} has no rewrite {value}; give {has}")
        return int(value)

    @traitlets.validate("interval")
    def _valid_interval(self, proposal: Any) -> int:
        if proposal["value"] < _SHORTEST:
            raise traitlets.TraitError(f"interval is {proposal['value']}; give at least {_SHORTEST} milliseconds")
        return int(proposal["value"])

    @traitlets.validate("selected", "focus")
    def _valid_key(self, proposal: Any) -> str:
        key = proposal["value"]
        if key not in self._accepted and not self._known(key):
            told = f"no state has a vertex with the key {key!r}; `find(text)` gives the keys of the present one, '' is none"
            raise traitlets.TraitError(f"{proposal['trait'].name}: {told}")
        self._accepted.add(key)
        return str(key)

    def _known(self, key: str) -> bool:
        """Whether some state has the vertex, the present one or another."""
        if key in _keys_of(self.outline, self._source.frame(*self._where)):
            return True
        states = range(max(len(self.outline["states"]), 1))
        return any(key in _keys_of(self.outline, self._source.frame(state, 0, self.fold)) for state in states)

    @traitlets.validate("fold")
    def _valid_fold(self, proposal: Any) -> str:
        names = [name for name, _ in self.outline.get("folds", ())] or [""]
        if proposal["value"] not in names:
            raise traitlets.TraitError(f"there is no fold {proposal['value']!r}; choose one of {', '.join(map(repr, names))}")
        return str(proposal["value"])

    def _rewrites(self, step: int) -> int:
        states = self.outline.get("states", ())
        return states[step]["rewrites"] if step < len(states) else 0

    @property
    def _where(self) -> tuple[int, int, str, str]:
        return self.step, self.rewrite, self.fold, self.focus

    def _asked(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        """Answer the script: a frame, or what is known of a vertex."""
        where = (content.get("step", 0), content.get("rewrite", 0), content.get("fold", ""), content.get("focus", ""))
        if content.get("ask") == "frame":
            self.send({"key": content["key"], "frame": self._source.frame(*where)})
        elif content.get("ask") == "card":
            self.send({"key": content["key"], "card": self._source.card(content["selected"], *where)})

    # the same from Python

    @property
    def sentence(self) -> str:
        """What is to be seen, in a sentence."""
        return str(self._source.frame(*self._where)["sentence"])

    def details(self, key: str | None = None) -> dict[str, dict[str, str]]:
        """What is known of the selected vertex, or of the one with that key: title -> name -> value. Empty for none."""
        sections = self._source.card(self.selected if key is None else key, *self._where)
        told: dict[str, dict[str, str]] = {}
        for part in sections:
            rows = told.setdefault(part["title"], {})
            for name, value in part.get("rows", ()):
                rows[name] = f"{rows[name]}; {value}" if name in rows else value
        return told

    def find(self, text: str) -> list[str]:
        """Keys of the vertices of the present state that hold a text, as the search in the browser finds them."""
        frame = self._source.frame(*self._where)
        vertices = _vertices(*self.outline["pictures"], *frame["pictures"])
        return list(dict.fromkeys(key for key, words in vertices if text.lower() in words.lower()))

    def svg(self, theme: str = "light") -> str:
        """The pictures of the present state as the text of one SVG file, in the theme "light" or "dark".

        Styles are inside, so that the file looks alike wherever it is opened: `Path("step.svg").write_text(stepper.svg())`.

        Raises:
            ValueError: there is no such theme, or the state has no picture, only text (`print(stepper)`).
        """
        frame = self._source.frame(*self._where)
        pictures = [patched(picture, frame["patch"]) for picture in (*self.outline["pictures"], *frame["pictures"])]
        if not pictures:
            raise ValueError(f"step {self.step} has no picture, only text; print the stepper")
        return standalone(pictures, frame["sentence"], theme)

    def __str__(self) -> str:
        return plain_text(self._source, *self._where)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: step {self.step} of {self._last}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and for places without widgets the present state as HTML and as text."""
        made = super()._repr_mimebundle_(**kwargs)
        data, metadata = made if isinstance(made, tuple) else (made or {}, {})
        try:
            page = static_html(self._source, *self._where)
        except Exception as error:  # IPython would show nothing at all
            page = failure_html(self, error)
        return {**data, "text/plain": str(self), "text/html": page}, metadata


class PassStepper(Stepper):
    """Steps through the passes of a compilation, and within a pass through its rewrites.

    `stepper.step = 7` shows pass 7, `stepper.rewrite = 2` the second rewrite in it, `stepper.fold = "operation"` folds (the
    ways are in `PassStepper.FOLDS`), `stepper.focus = stepper.selected` shows the neighbourhood of a node.

    Args:
        trace: a `Trace`, a recording, an exception that carries a trace, or pass records of any pipeline with `number`,
            `name`, `before`, `after`, `rewrites` and `seconds`.
        step: where to begin; by default at the first state, or where it broke off.
    """

    FOLDS = tuple(name for name, _ in FOLDS)

    def __init__(self, trace: Any, step: int | None = None, **state: Any) -> None:
        source = trace if isinstance(trace, PassSteps) else PassSteps.of(trace)
        self._steps = source
        super().__init__(source, step, **state)
        if source.heavy:
            self.progress = 0.0
            threading.Thread(target=self._lay_out, name="ren-lab-layout", daemon=True).start()

    def _first_frames(self, outline: dict[str, Any]) -> dict[str, Any]:
        return {} if self._steps.heavy else super()._first_frames(outline)

    def _lay_out(self) -> None:
        """Lay everything out while the first pictures are looked at, then let the script ask anew."""
        try:
            self._steps.prepare(lambda share: setattr(self, "progress", min(share, 0.99)))
            self.send({"refresh": True})
        finally:
            self.progress = 1.0


class ScheduleStepper(Stepper):
    """Steps through a schedule item by item: its place in the graph, its program, and the arena filling and emptying.

    `stepper.step = 7` shows the moment at which item 7 runs.

    Args:
        trace: a `Trace`, a recording, or an exception that carries a trace.
        step: where to begin; by default at the first state, or where it broke off.
    """

    def __init__(self, trace: Any, step: int | None = None, **state: Any) -> None:
        super().__init__(trace if isinstance(trace, ScheduleSteps) else ScheduleSteps(trace), step, **state)


class RingPlayer(Stepper):
    """Plays a run on the rings: what each ring holds at every moment, and where its cursors stand.

    Args:
        run: a `ScopeStats`, the path of a scope statistics file, or the `RunReport` of a run.
        step: where to begin, by default at the first moment.
    """

    def __init__(self, run: Any, step: int | None = None, **state: Any) -> None:
        state.setdefault("interval", 150)
        super().__init__(run if isinstance(run, RingSteps) else RingSteps(run), step, **state)
