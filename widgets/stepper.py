"""The steppers as notebook widgets: they hand data from `ren_lab.lens` to one script, and hold the state that both sides share."""

import re
import threading
from html import unescape
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ren_lab.lens import theme
from ren_lab.lens.display import failure_html
from ren_lab.lens.drawing import patched, style_sheet
from ren_lab.lens.pass_steps import FOLDS, PassSteps
from ren_lab.lens.ring_steps import RingSteps
from ren_lab.lens.schedule_steps import ScheduleSteps
from ren_lab.lens.stepping import StepSource, plain_text, static_html, to_json

_HERE = Path(__file__).parent
_INLINED = 600_000  # characters of frames that go along at once, so that a saved notebook can be stepped without a kernel


def _css() -> str:
    return "\n".join([theme.style_sheet(), style_sheet(), (_HERE / "stepper.css").read_text("utf-8")])


class Stepper(anywidget.AnyWidget):
    """What all steppers have in common.

    Everything that a reader does in the browser can be done here, and is seen here:

    Attributes:
        step: the state that is shown, from 0; set it to go there.
        selected: key of the selected vertex, or empty.
        search: what is searched for.
        playing: whether it goes on by itself, every `interval` milliseconds.
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

    def __init__(self, source: StepSource, step: int = 0, **state: Any) -> None:
        self._source = source
        outline = source.outline
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
        if value < 0:
            raise traitlets.TraitError(f"there is no rewrite {value}; give 0 (the whole step) or more")
        return min(value, self._rewrites(self.step))

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
        found = []
        for picture in (*self.outline["pictures"], *frame["pictures"]):
            for match in re.finditer(r'<g class="v [^"]*" data-key="([^"]*)"(.*?)</g>', picture, flags=re.DOTALL):
                if text.lower() in unescape(re.sub(r"<[^>]*>", " ", f"<g{match[2]}")).lower():
                    found.append(unescape(match[1]))
        return found

    def svg(self) -> str:
        """The pictures of the present state as SVG; their style sheet is that of `ren_lab.lens.drawing`."""
        frame = self._source.frame(*self._where)
        return "\n".join(patched(picture, frame["patch"]) for picture in (*self.outline["pictures"], *frame["pictures"]))

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
        step: where to begin.
    """

    FOLDS = tuple(name for name, _ in FOLDS)

    def __init__(self, trace: Any, step: int = 0, **state: Any) -> None:
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
        step: where to begin.
    """

    def __init__(self, trace: Any, step: int = 0, **state: Any) -> None:
        super().__init__(trace if isinstance(trace, ScheduleSteps) else ScheduleSteps(trace), step, **state)


class RingPlayer(Stepper):
    """Plays a run on the rings: what each ring holds at every moment, and where its cursors stand.

    Args:
        run: a `ScopeStats`, the path of a scope statistics file, or the `RunReport` of a run.
        step: where to begin.
    """

    def __init__(self, run: Any, step: int = 0, **state: Any) -> None:
        state.setdefault("interval", 150)
        super().__init__(run if isinstance(run, RingSteps) else RingSteps(run), step, **state)
