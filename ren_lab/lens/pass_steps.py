"""The states of a pass stepper: the graph that went in, then each pass, and within a pass each rewrite.

Any pipeline will do: its records need `number`, `name`, `before`, `after`, `rewrites` and `seconds`. Where `before` and `after` are
graphs of nodes they are drawn; anything else is shown as text, with the lines that a pass took away and put in.
"""

import difflib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ren_lab.ir import Match, Node, Rule, format_arg, rewrite, shape_of, storage
from ren_lab.lens.captions import second_line
from ren_lab.lens.drawing import draw
from ren_lab.lens.graph_view import FOLD_ABOVE, content_key, graph_view, pass_graph
from ren_lab.lens.layout import Layout, lay_out, lay_out_chain
from ren_lab.lens.picture import GraphView, Vertex
from ren_lab.lens.provenance import Moment, Provenance, continuity, same_operation
from ren_lab.lens.regroup import regroup
from ren_lab.lens.stepping import LINES_SHOWN, Frame, Section, section, state, within
from ren_lab.lens.text import brief, lines_text, sentence
from ren_lab.lens.theme import format_count, format_seconds

FOLDS = (
    ("", "as needed"),
    ("none", "nothing folded"),
    ("kernel", "by kernel"),
    ("operation", "by operation"),
    ("line", "by source line"),
)
_UNFOLDED = 1500  # vertices; no browser and no reader wants more
_ABOVE = {"": FOLD_ABOVE, "none": _UNFOLDED, "kernel": 0, "operation": 10**9, "line": 10**9}
_SYNCHRONOUS = 1_500  # nodes of all graphs together that are laid out before the first picture is shown
_REWRITES_TOLD = 200
_MOST_ARGUMENT = 200  # characters


@dataclass(frozen=True, eq=False)
class _Pass:
    """A record of any pipeline with all that is asked of one here."""

    number: int
    name: str
    before: Any
    after: Any
    rewrites: Sequence[Any]
    seconds: float | None
    mapping: Mapping[Any, Any] = field(default_factory=dict)
    once: bool = False
    dropped: int = 0
    sentence: str = ""
    steps: Sequence[Any] | None = None  # of a pass over text: what stands after each rewrite

    @classmethod
    def of(cls, record: Any) -> "_Pass":
        return cls(
            record.number, record.name, record.before, record.after, tuple(record.rewrites or ()), record.seconds,
            getattr(record, "mapping", None) or {}, getattr(record, "once", False), getattr(record, "dropped_rewrites", 0),
            getattr(record, "sentence", ""), getattr(record, "steps", None),
        )  # fmt: skip

    @property
    def graphs(self) -> bool:
        return isinstance(self.before, Node) and isinstance(self.after, Node)

    @cached_property
    def became(self) -> Mapping[Node, Node]:
        return continuity(self.before, self.after, self.mapping) if self.graphs else {}

    @cached_property
    def marks(self) -> dict[Node, str]:
        """The nodes of `after` that were added or changed."""
        known = set(self.became.values())
        marks = {node: "added" for node in self.after.toposort() if node not in known}
        return marks | {new: "changed" for old, new in self.became.items() if not same_operation(old, new)}

    @cached_property
    def counts(self) -> tuple[int, int, int]:
        """How many nodes, or lines of text, were added, removed and changed."""
        if self.graphs:
            removed = sum(node not in self.became for node in self.before.toposort())
            marks = Counter(self.marks.values())
            return marks["added"], removed, marks["changed"]
        marks = Counter(mark for mark, _ in self.diff)
        return marks["added"], marks["removed"], 0

    @cached_property
    def diff(self) -> list[tuple[str, str]]:
        """The text after the pass and what is gone from that before, line by line, each with its mark."""
        return _compared(self.before, self.after)

    def diff_at(self, rewrite: int) -> list[tuple[str, str]]:
        """The same for one rewrite, counted from 1, of a pass that keeps what stands between its rewrites; else for all of them."""
        if not rewrite or not self.steps or rewrite > len(self.steps):
            return self.diff
        return _compared(self.before if rewrite == 1 else self.steps[rewrite - 2], self.steps[rewrite - 1])

    @property
    def quiet(self) -> bool:
        same = self.before is self.after if self.graphs else str(self.before) == str(self.after)
        return same and not self.rewrites and not self.dropped

    def told(self) -> str:
        if self.sentence:
            return self.sentence
        if self.quiet:
            return f"Pass {self.number}, {self.name}: nothing to do."
        noun = "node" if self.graphs else "line"
        told = [f"{format_count(n, noun)} {what}" for n, what in zip(self.counts, ("added", "removed", "changed")) if n]
        return f"Pass {self.number}, {self.name}: {', '.join(told) or 'nothing added or removed'}."


def _compared(before: Any, after: Any) -> list[tuple[str, str]]:
    marks = {"+": "added", "-": "removed", " ": ""}
    lines = difflib.ndiff(str(before).splitlines(), str(after).splitlines())
    return [(marks[line[0]], line[2:]) for line in lines if line[0] in marks]


class PassSteps:
    """A `lens.stepping.StepSource` over the passes of a trace, or over records of any other pipeline.

    Step 0 is what went in, step k what is there after the k-th pass; if a pass broke off, the last step is the graph that it was
    given. Rewrite 0 is the whole pass, rewrite i the i-th of its rewrites.

    Args:
        passes: the records.
        trail: knows the user's lines and histories; by default histories alone.
        error: a `Failure`, or None.
        graph: what went in, for the case that no pass came to its end.
        title: what the stepper says it shows.
    """

    def __init__(
        self, passes: Iterable[Any], *, trail: Provenance | None = None, error: Any = None, graph: Any = None, title: str = ""
    ) -> None:
        self._passes = [_Pass.of(record) for record in passes]
        graphs = [p for p in self._passes if p.graphs]
        self._trail = trail or (Provenance({}, graphs) if len(graphs) == len(self._passes) else None)
        self._error = error
        self._input = self._passes[0].before if self._passes else graph
        self._title = title or format_count(len(self._passes), "pass", "passes")
        self._lock = threading.RLock()
        self._views: dict[str, list[GraphView]] = {}
        self._layouts: dict[str, list[Layout]] = {}
        self._special: dict[tuple[int, int, str, str], tuple[GraphView, Layout]] = {}

    @classmethod
    def of(cls, source: Any) -> "PassSteps":
        """From a trace, a recording of one realization, an exception that carries a trace, or records.

        Raises:
            TypeError: it is none of these.
            ValueError: the recording is empty.
        """
        source = getattr(source, "trace", source) if isinstance(source, BaseException) else source
        realizations = getattr(source, "realizations", None)
        if realizations is not None:
            if not realizations:
                raise ValueError("the recording is empty; realize something inside `with ren.trace() as recording:`")
            source = realizations[-1]
        if hasattr(source, "passes"):
            from ren_lab.lens.text import trace_headline

            error = source.error if getattr(source, "error", None) is not None else None
            trail = source.provenance if hasattr(source, "provenance") else None
            count = format_count(len(source.passes), "pass", "passes")
            title = f"{count}; {trace_headline(source)}" if hasattr(source, "provenance") else ""
            return cls(source.passes, trail=trail, error=error, graph=getattr(source, "graph", None), title=title)
        if isinstance(source, Iterable):
            return cls(source)
        raise TypeError(f"a {type(source).__name__} has no passes; give a Trace, a Recording or a list of pass records")

    # the states

    @property
    def count(self) -> int:
        """How many steps there are."""
        return len(self._passes) + 1 + self._broke

    @property
    def _broke(self) -> bool:
        """Whether a pass broke off, which has a step of its own."""
        return self._error is not None and self._error.graph is not None

    @property
    def nodes(self) -> int:
        """Nodes of all graphs together."""
        return sum(len(p.after.toposort()) for p in self._passes if p.graphs)

    @property
    def heavy(self) -> bool:
        """Whether the layout of all passes takes so long that it is better made in the background."""
        return self.nodes > _SYNCHRONOUS

    @cached_property
    def outline(self) -> dict[str, Any]:
        states = [state("0 input", "what went in")]
        for p in self._passes:
            note = "" if p.seconds is None else format_seconds(p.seconds)
            badges = list(zip(("added", "removed", "changed"), p.counts))
            states.append(state(f"{p.number} {p.name}", note, badges=badges, quiet=p.quiet, rewrites=len(p.rewrites)))
        if self.count > len(states):
            states.append(state(f"✗ {self._error.number} {self._error.name}", "broke off", alert=True))
        folds = [list(fold) for fold in FOLDS] if any(map(self._graphs_at, range(len(self._passes) + 1))) else []
        return {
            "kind": "pass", "title": self._title, "what": "pass", "states": states, "folds": folds, "pictures": [],
            "start": self.count - 1 if self._broke else 0,
        }  # fmt: skip

    def frame(self, step: int, rewrite: int = 0, fold: str = "", focus: str = "") -> Frame:
        """One state as plain data; see `lens.stepping`. `ValueError` for a fold that is not in `FOLDS`."""
        if fold not in _ABOVE:
            raise ValueError(f"there is no fold {fold!r}; choose one of {', '.join(map(repr, _ABOVE))}")
        step = within(step, self.count)
        if step > len(self._passes):
            return self._broken
        p = self._passes[step - 1] if step else None
        rewrite = within(rewrite, len(p.rewrites) + 1) if p is not None else 0
        frame: Frame = {"sentence": self._sentence(step, rewrite), "pictures": [], "patch": {}, "sections": [], "lines": []}
        if self._error is not None and step == len(self._passes):
            frame["sections"].append(section("", warning=str(self._error)))
        if p is not None and p.rewrites:
            frame["sections"] += _rewrites(p, rewrite)
        if not self._graphs_at(step):
            frame["lines"] = self._text(step, rewrite)
            return frame
        view, layout = self._view(step, rewrite, fold, focus)
        if rewrite == 0:
            frame["sentence"] += _folding(view.title, step == 0, focus)
        frame["pictures"] = [draw(view, layout, frame["sentence"])]
        frame["lines"] = _lines(view, self._graph(step, rewrite), {} if p is None or rewrite else p.marks)
        return frame

    def card(self, key: str, step: int, rewrite: int = 0, fold: str = "", focus: str = "") -> list[Section]:
        """What is known of a vertex: the operation and its type, where it comes from, what it came from and became."""
        step = within(step, self.count)
        if not key or step <= len(self._passes) and not self._graphs_at(step):
            return []
        if step > len(self._passes):
            return self._card_of_given(key)
        rewrite = within(rewrite, len(self._passes[step - 1].rewrites) + 1) if step else 0
        view = self._view(step, rewrite, fold, focus)[0]
        vertex = next((v for v in view.vertices if v.key == key), None)
        node = next((n for n, known in view.keys.items() if known == key), None)
        if node is None and vertex is not None and vertex.mark == "removed":
            node = next((n for n, known in self._keys_before(step).items() if known == key), None)
            step, rewrite = step - 1, 0
        if node is None:
            return [] if vertex is None else [section(f"{vertex.op}, a group", rows=_group_rows(vertex))]
        life = self._life(node, step) if not rewrite else []
        mark = f" ({vertex.mark})" if vertex is not None and vertex.mark else ""
        about = section(f"{node.op.name} {second_line(node)}".rstrip() + mark, rows=self._node_rows(node, step, vertex))
        return [about, section("History", rows=life)] if life else [about]

    def _card_of_given(self, key: str) -> list[Section]:
        vertex = next((v for v in self._given.vertices if v.key == key), None)
        node = next((n for n, known in self._given.keys.items() if known == key), None)
        if node is None:
            return [] if vertex is None else [section(f"{vertex.op}, a group", rows=_group_rows(vertex))]
        rows = self._node_rows(node, len(self._passes), vertex)
        return [section(f"{node.op.name} {second_line(node)}".rstrip(), rows=rows)]

    def prepare(self, progress: Callable[[float], Any] = lambda share: None, fold: str = "") -> None:
        """Make the pictures of every pass and lay them out together; `progress` is told the share that is done."""
        for step in range(len(self._passes) + 1):
            if self._graphs_at(step):
                self._chain(step, fold)
            progress(0.9 * (step + 1) / (len(self._passes) + 1))
        self._layout(len(self._passes), fold, wait=True)
        progress(1.0)

    # text

    def _graphs_at(self, step: int) -> bool:
        return isinstance(self._input if step == 0 else self._passes[step - 1].after, Node)

    def _graph(self, step: int, rewrite: int = 0) -> Node:
        if step == 0:
            return self._input
        p = self._passes[step - 1]
        return _partial(p, rewrite)[0] if 0 < rewrite < len(p.rewrites) else p.after

    def _sentence(self, step: int, rewrite: int) -> str:
        if self._input is None:
            return "There are no passes: nothing was compiled."
        if step == 0:
            return "What went in."
        p = self._passes[step - 1]
        told = p.told().replace(f"Pass {p.number},", f"Pass {step} of {len(self._passes)},", 1)
        if rewrite:
            fired = p.rewrites[rewrite - 1]
            return f"{told.partition(':')[0]}, rewrite {rewrite} of {len(p.rewrites)}: {fired.rule}, {fired.equation}."
        if p.rewrites:
            rule, times = Counter(f.equation for f in p.rewrites).most_common(1)[0]
            told += f" Most often: {rule}{f' ({times} times)' if times > 1 else ''}."
        return told

    def _text(self, step: int, rewrite: int) -> list[list[str]]:
        if self._input is None:
            return []
        if step == 0:
            told = [("", line) for line in str(self._input).splitlines()]
        else:
            told = self._passes[step - 1].diff_at(rewrite)
        return _cut([["", mark, line] for mark, line in told])

    @cached_property
    def _given(self) -> GraphView:
        """The graph that the pass which broke off was given."""
        return graph_view(self._error.graph, origins=self._stage(len(self._passes)))

    @cached_property
    def _broken(self) -> Frame:
        error, view = self._error, self._given
        fired = (
            [section("Rewrites before it broke", rows=[(f.rule, f.equation) for f in error.rewrites[-20:]])]
            if error.rewrites
            else []
        )
        return {
            "sentence": f"Broke off {error.where}: {error.kind}. This is the graph that the pass was given.",
            "pictures": [draw(view, lay_out([view]))], "patch": {},
            "sections": [section("", warning=f"{error.kind}: {error.message}"), *fired], "lines": _lines(view, error.graph, {}),
        }  # fmt: skip

    # pictures

    def _view(self, step: int, rewrite: int, fold: str, focus: str) -> tuple[GraphView, Layout]:
        if not rewrite and not focus:
            return self._chain(step, fold), self._layout(step, fold)
        key = (step, rewrite, fold, focus)
        with self._lock:
            if key not in self._special:
                if len(self._special) > 256:
                    self._special.clear()
                self._special[key] = self._rewritten(step, rewrite, fold) if rewrite else self._focused(step, fold, focus)
            return self._special[key]

    def _chain(self, step: int, fold: str) -> GraphView:
        """The picture of a step; those before it are made first, since keys are handed on."""
        with self._lock:
            views = self._views.setdefault(fold, [])
            while len(views) <= step:
                views.append(self._picture(len(views), fold))
            return views[step]

    def _picture(self, step: int, fold: str) -> GraphView:
        above = _ABOVE[fold]
        if step == 0:
            return _folded(graph_view(self._input, origins=self._stage(0), fold_above=above), fold)
        p = self._passes[step - 1]
        before = self._keys_before(step)
        origins = {**self._stage(step - 1), **self._stage(step)}
        view = pass_graph(p.before, p.after, p.mapping, origins=origins, fold_above=above, keys=before)
        return _folded(_rekeyed(view, _names_of_removed(p, before, view)), fold)

    def _keys_before(self, step: int) -> Mapping[Node, str]:
        return self._chain(step - 1, "").keys

    def _stage(self, step: int) -> Mapping[Node, Any]:
        return self._trail.stages[step] if self._trail is not None else {}

    def _layout(self, step: int, fold: str, wait: bool = False) -> Layout:
        with self._lock:
            known = self._layouts.get(fold)
            complete = len(self._views.get(fold, ())) > len(self._passes)
            if known is None and (complete or not self.heavy or wait):
                for other in range(len(self._passes) + 1):
                    self._chain(other, fold)
                known = self._layouts[fold] = lay_out_chain(self._views[fold])
            return known[step] if known is not None else lay_out([self._views[fold][step]])

    def _focused(self, step: int, fold: str, focus: str) -> tuple[GraphView, Layout]:
        view = self._chain(step, "")
        wanted = focus.removesuffix("-group")
        node = next((n for n, key in view.keys.items() if key == wanted), None)
        if node is None:  # not in this graph, or not yet: everything, then
            return self._chain(step, fold), self._layout(step, fold)
        if step == 0:
            near = graph_view(self._input, origins=self._stage(0), focus=node)
        else:
            p = self._passes[step - 1]
            near = pass_graph(p.before, p.after, p.mapping, origins=self._stage(step), focus=node, keys=self._keys_before(step))
        return near, lay_out([near])

    def _rewritten(self, step: int, rewrite: int, fold: str) -> tuple[GraphView, Layout]:
        """The picture of one rewrite: the graph after it, with what it alone changed."""
        p = self._passes[step - 1]
        whole = self._chain(step, "")
        (g0, m0), (g1, _) = _partial(p, rewrite - 1), _partial(p, rewrite)
        fired = p.rewrites[rewrite - 1]
        before = self._keys_before(step)
        keys = {new: before[old] for old, new in continuity(p.before, g0, m0).items() if old in before}
        keys |= {node: whole.keys[node] for node in g0.toposort() if node in whole.keys and node not in keys}
        above = _ABOVE[fold]
        origins = {**self._stage(step - 1), **self._stage(step)}
        view = pass_graph(g0, g1, {g0: g1, fired.old: fired.new}, origins=origins, fold_above=above, keys=keys)
        names: dict[str, str] = {}
        taken = set(view.keys.values())
        for node, key in view.keys.items():  # what is as after the pass already stands where it will stand then
            final = whole.keys.get(node)
            if final is not None and final != key and final not in taken:
                names[key] = final
                taken.add(final)
        view = _folded(_rekeyed(view, names), fold)
        return view, self._layout(step, fold).covering(view)

    # cards

    def _node_rows(self, node: Node, step: int, vertex: Vertex | None) -> list[tuple[str, str]]:
        rows = [("operation", node.op.name), ("data type", node.dtype.name.lower())]
        if node.ring is not None:
            rows += [("ring", node.ring.label), ("moduli", ", ".join(map(str, node.ring.moduli)))]
        if node.domain is not None:
            rows.append(("domain", node.domain.name))
        held = storage(node)
        shape = (node.ring.limbs, node.ring.n) if node.ring is not None else shape_of(held) if held is not None else None
        if shape is not None:
            rows.append(("shape", " × ".join(map(str, shape))))
        if node.device is not None:
            rows.append(("device", node.device))
        if node.arg is not None:
            text = format_arg(node.arg)
            rows.append(("argument", text if len(text) <= _MOST_ARGUMENT else text[:_MOST_ARGUMENT] + "…"))
        if node.src:
            rows.append(("sources", "; ".join(f"{s.op.name} {second_line(s)}".rstrip() for s in node.src[:8])))
        lines = self._stage(step).get(node, ())
        if lines:
            rows.append(("lines", lines_text(lines, 12)))
        if vertex is not None and vertex.group:
            rows.append(("part of", vertex.group))
        return rows

    def _life(self, node: Node, step: int) -> list[tuple[str, str]]:
        if self._trail is None:
            return []
        try:
            moments = self._trail.history(node, step)
        except ValueError:
            return []
        return [(f"{m.number} {m.name}", _moment(m)) for m in moments if m.kind != "kept"]


def _folding(title: str, whole: bool, focus: str) -> str:
    """What a picture's title says beyond the sentence of its pass."""
    if focus:
        return f" {sentence(title.partition('; ')[0])}"
    return f" {sentence(title)}" if whole else f" Folded{title.partition(', folded')[2]}." if ", folded" in title else ""


def _folded(view: GraphView, fold: str) -> GraphView:
    return regroup(view, fold) if fold in ("operation", "line") and not view.folded else view


def _rekeyed(view: GraphView, names: Mapping[str, str]) -> GraphView:
    """The picture with other keys for some vertices."""
    if not names:
        return view

    def name(key: str) -> str:
        return names.get(key, key)

    vertices = tuple(replace(v, key=name(v.key)) for v in view.vertices)
    edges = tuple(replace(e, source=name(e.source), target=name(e.target)) for e in view.edges)
    return replace(view, vertices=vertices, edges=edges, keys={node: name(key) for node, key in view.keys.items()})


def _names_of_removed(p: _Pass, before: Mapping[Node, str], view: GraphView) -> dict[str, str]:
    """From the key that the picture gives a removed node to the one that it had, where that is still free."""
    drawn = {v.key for v in view.vertices if v.mark == "removed"}
    taken = {v.key for v in view.vertices}
    names = {}
    for node, key in before.items():
        now = content_key(node)
        if now in drawn and key not in taken and node not in p.became:
            names[now] = key
    return names


def _partial(p: _Pass, count: int) -> tuple[Node, Mapping[Node, Node]]:
    """The graph after the first `count` rewrites of a pass, and what each node of the graph before became."""
    if count == 0:
        return p.before, {node: node for node in p.before.toposort()}
    if count == len(p.rewrites) and not p.dropped:
        return p.after, p.mapping
    answers = {fired.old: fired.new for fired in p.rewrites[:count]}

    def recorded(node: Node, match: Match) -> Node | None:
        return answers.get(node)

    again = Rule("recorded", "the rewrites that were recorded, once more", frozenset(n.op for n in answers), recorded)
    return rewrite(p.before, (again,), once=p.once)


def _rewrites(p: _Pass, now: int) -> list[Section]:
    rules = Counter((f.rule, f.equation) for f in p.rewrites)
    rows = [(f"{count} ×", f"{equation} ({rule})") for (rule, equation), count in rules.most_common()]
    first = max(0, min(now - _REWRITES_TOLD // 2, len(p.rewrites) - _REWRITES_TOLD))
    told = []
    for number, fired in enumerate(p.rewrites[first : first + _REWRITES_TOLD], first + 1):
        what = f"{brief(fired.old)} → {brief(fired.new)}" if hasattr(fired, "old") else ""
        told.append((number, fired.rule, what))
    hidden = len(p.rewrites) - len(told) + p.dropped
    title = f"Rewrites one by one{f', {format_count(hidden)} not listed' if hidden else ''}"
    return [section("Rules", rows=rows), section(title, steps=told)]


def _moment(moment: Moment) -> str:
    def told(node: Node | None) -> str:
        return "" if node is None else f"{node.op.name} {second_line(node)}".rstrip()

    what = {"added": f"added {told(moment.new)}", "removed": f"removed {told(moment.old)}", "moved": "same on other sources"}
    by = ", ".join(dict.fromkeys(fired.rule for fired in moment.rules))
    return what.get(moment.kind, f"{told(moment.old)} → {told(moment.new)}") + (f", by {by}" if by else "")


def _group_rows(vertex: Vertex) -> list[tuple[str, str]]:
    rows = [("nodes", str(vertex.count)), ("shows", vertex.second.replace("\n", "; "))]
    rows += [("holds", ", ".join(vertex.details))] if vertex.details else []
    return rows + ([("lines", ", ".join(vertex.lines))] if vertex.lines else [])


def _lines(view: GraphView, graph: Node, known: Mapping[Node, str]) -> list[list[str]]:
    """The text form with the key of each line's node and its mark, which a folded picture does not tell."""
    order = graph.toposort()
    marks = {v.key: v.mark or "" for v in view.vertices}
    text = str(graph).splitlines()
    head = len(text) - len(order)
    told = [["", "", line] for line in text[:head]]
    for node, line in zip(order, text[head:], strict=True):
        key = view.keys.get(node, "")
        told.append([key, known.get(node) or marks.get(key, ""), line])
    return _cut(told)


def _cut(lines: list[list[str]]) -> list[list[str]]:
    hidden = len(lines) - LINES_SHOWN
    return [*lines[:LINES_SHOWN], ["", "", f"… and {format_count(hidden, 'more line')}"]] if hidden > 0 else lines


__all__ = ["FOLDS", "PassSteps"]
