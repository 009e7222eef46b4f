"""What a trace is made of: one record per pass, kernel, unit and failure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

from ren_lab.backends import backend
from ren_lab.events import RuleFired
from ren_lab.ir import BufferId, Match, Node, Rule, rewrite
from ren_lab.lens.display import html_bundle
from ren_lab.lens.provenance import Lines, Origin, Provenance, continuity, same_operation
from ren_lab.lens.theme import format_count, format_seconds
from ren_lab.schedule import ScheduledKernel


class Steps(Sequence[Node]):
    """The graph after each single rewrite of a pass, rebuilt when it is asked for: `steps[i]` shows rewrites 0 to i done.

    A rewrite that is not yet done leaves its node as it stands, on sources that are done already.
    """

    def __init__(self, record: "PassRecord") -> None:
        self._record = record
        self._ops = frozenset(fired.old.op for fired in record.rewrites)

    def __len__(self) -> int:
        return len(self._record.rewrites)

    @overload
    def __getitem__(self, index: int) -> Node: ...

    @overload
    def __getitem__(self, index: slice) -> list[Node]: ...

    def __getitem__(self, index: int | slice) -> Node | list[Node]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        count = len(self)
        if not -count <= index < count:
            has = f"{count} rewrites; give {-count} to {count - 1}" if count else "no rewrites"
            raise IndexError(f"there is no step {index}: the pass has {has}")
        index %= count
        if index == count - 1 and not self._record.dropped_rewrites:
            return self._record.after
        answers = {fired.old: fired.new for fired in self._record.rewrites[: index + 1]}

        def recorded(node: Node, match: Match) -> Node | None:
            return answers.get(node)

        again = Rule("recorded", "the rewrites that were recorded, once more", self._ops, recorded)
        return rewrite(self._record.before, (again,), once=self._record.once)[0]


@dataclass(frozen=True, eq=False, repr=False)
class PassRecord:
    """What one pass did to a graph.

    Attributes:
        number: its place among the passes, from 1.
        name: its public name.
        before, after: the graphs.
        rewrites: what fired, in order, each with `rule`, `equation`, `old` and `new`.
        seconds: how long it took; with an observer, which makes it slower.
        mapping: each node of `before` to what the pass put in its place.
        once: whether the answers of its rules were final, not rewritten again.
        dropped_rewrites: how many more rewrites fired than the recorder kept.
        trail: the provenance that knows the user's lines, or None.
    """

    number: int
    name: str
    before: Node
    after: Node
    rewrites: tuple[RuleFired, ...]
    seconds: float
    mapping: Mapping[Node, Node]
    once: bool = False
    dropped_rewrites: int = 0
    trail: Provenance | None = None

    @cached_property
    def became(self) -> Mapping[Node, Node]:
        """Which node of `after` continues which node of `before`; see `lens.provenance.continuity`."""
        return continuity(self.before, self.after, self.mapping)

    @cached_property
    def added(self) -> tuple[Node, ...]:
        """Nodes of `after` that continue no node of `before`, in topological order."""
        known = set(self.became.values())
        return tuple(node for node in self.after.toposort() if node not in known)

    @cached_property
    def removed(self) -> tuple[Node, ...]:
        """Nodes of `before` that nothing continues: dropped, or merged into others."""
        return tuple(node for node in self.before.toposort() if node not in self.became)

    @cached_property
    def changed(self) -> tuple[Node, ...]:
        """Nodes of `after` that took the place of a node with another operation or argument. New sources alone don't count."""
        return tuple(new for old, new in self.became.items() if not same_operation(old, new))

    @property
    def quiet(self) -> bool:
        """Whether the pass changed nothing: no rule fired."""
        return not self.rewrites and not self.dropped_rewrites and self.before is self.after

    @property
    def steps(self) -> Steps:
        """The graphs after each single rewrite."""
        return Steps(self)

    @property
    def lines(self) -> Lines:
        """The user's lines ("file", line) behind the nodes of `before` and `after`."""
        if self.trail is None:
            return {}
        stage = self.trail.stage_of(self)
        return {**self.trail.stages[stage - 1], **self.trail.stages[stage]}

    @property
    def sentence(self) -> str:
        """What is to be seen, in one sentence."""
        head = f"Pass {self.number}, {self.name}: "
        if self.quiet:
            return head + "nothing to do."
        counts = ((len(self.added), "added"), (len(self.removed), "removed"), (len(self.changed), "changed"))
        told = ", ".join(f"{count} node{'s' if count != 1 else ''} {what}" for count, what in counts if count)
        fired = len(self.rewrites) + self.dropped_rewrites
        return f"{head}{told or 'no node added, removed or changed'}, by {fired} rewrite{'s' if fired != 1 else ''}."

    def view(self, **options: Any) -> Any:
        """The marked graph as a `GraphView`; options as for `lens.graph_view.pass_graph`."""
        from ren_lab.lens.graph_view import pass_graph

        return pass_graph(self.before, self.after, self.mapping, origins=self.lines, **options)

    def to_graphviz(self, **options: Any) -> Any:
        """The graph after the pass as a `graphviz.Digraph`, with added, removed and changed nodes marked.

        Options as for `lens.graph_view.pass_graph`: `fold_above`, `focus`, `depth`.
        """
        return self.view(**options).to_graphviz()

    def __repr__(self) -> str:
        fired = format_count(len(self.rewrites) + self.dropped_rewrites, "rewrite")
        return f"<pass {self.number} {self.name}: {fired}, {format_count(len(self.after.toposort()), 'node')}>"

    def __str__(self) -> str:
        from ren_lab.lens.text import pass_text

        return pass_text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from ren_lab.lens.page import pass_html

        return html_bundle(self, pass_html)


@dataclass(frozen=True, eq=False, repr=False)
class KernelRecord:
    """One kernel of a schedule.

    Attributes:
        index: its position in the schedule, from 0.
        item: the item of the schedule.
        seconds: how long it ran; None if it did not.
    """

    index: int
    item: ScheduledKernel
    seconds: float | None
    trail: Callable[[], Provenance]

    @property
    def name(self) -> str:
        """What it does and on how much."""
        return self.item.name

    @property
    def kind(self) -> str:
        """What sort of kernel it is, such as "ntt" or "elementwise"."""
        return self.item.kind

    @property
    def device(self) -> str:
        """Where it runs."""
        return self.item.device

    @property
    def ast(self) -> Node:
        """Its body: a STORE over SLOT parameters, or a GROUP of them; the first slots are the outputs."""
        assert self.item.ast is not None
        return self.item.ast

    @property
    def inputs(self) -> tuple[BufferId, ...]:
        """The buffers that it reads, in the order of their slots."""
        return self.item.inputs

    @property
    def outputs(self) -> tuple[BufferId, ...]:
        """The buffers that it fills: one, or one for each STORE of a GROUP."""
        return self.item.outputs

    @cached_property
    def source(self) -> str:
        """The program's text, as its device's backend writes it."""
        return backend(self.device).source(self.ast)

    @cached_property
    def lines(self) -> tuple[Origin, ...]:
        """The user's lines ("file", line) of every operation that ended in this kernel."""
        return self.trail().lines(self.item.node)

    def to_graphviz(self, **options: Any) -> Any:
        """Its body as a `graphviz.Digraph`; options as for `lens.graph_view.graph_view`."""
        from ren_lab.lens.graph_view import graph_view

        return graph_view(self.ast, **options).to_graphviz()

    def __repr__(self) -> str:
        from ren_lab.lens.text import item_line

        return f"<kernel {self.index} {item_line(self.item)}>"

    def __str__(self) -> str:
        from ren_lab.lens.text import kernel_text

        return kernel_text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from ren_lab.lens.page import kernel_html

        return html_bundle(self, kernel_html)


@dataclass(frozen=True, slots=True, repr=False)
class UnitRecord:
    """One executable unit: when it began (`time.perf_counter`) and how long it ran, in seconds; None if it did not run."""

    index: int
    item: ScheduledKernel
    start: float | None
    seconds: float | None

    def __repr__(self) -> str:
        from ren_lab.lens.text import item_line

        ran = "did not run" if self.seconds is None else format_seconds(self.seconds)
        return f"<unit {self.index} {item_line(self.item)}, {ran}>"


@dataclass(frozen=True, slots=True, repr=False)
class Failure:
    """Where and why a realization broke off.

    Attributes:
        stage: "pass", "unit", "compile" (after the passes: memory plan and programs of the kernels), "run" (outside any
            unit).
        number: of the pass, from 1, or of the unit, from 0; None for the others.
        name: of the pass or of the unit's kernel; empty if the stage has none.
        kind: the exception's class; empty if it was not seen.
        message: its message, with its notes.
        graph: what a failing pass was given.
        rewrites: what had fired in it.
    """

    stage: str
    number: int | None
    name: str
    kind: str
    message: str
    graph: Node | None = None
    rewrites: tuple[RuleFired, ...] = ()

    @classmethod
    def of(cls, error: BaseException | None, stage: str, number: int | None = None, name: str = "", **more: Any) -> "Failure":
        """The record of an exception. The exception itself is not kept: its traceback would hold every buffer in reach."""
        if error is None:
            return cls(stage, number, name, "", "it ended without telling why", **more)
        message = "\n".join([str(error), *getattr(error, "__notes__", ())])
        return cls(stage, number, name, type(error).__name__, message, **more)

    @property
    def where(self) -> str:
        """The place in words."""
        match self.stage:
            case "pass":
                return f"in pass {self.number}, {self.name}"
            case "unit":
                return f"in item {self.number} of the schedule, {self.name}"
            case "compile":
                return "after the passes, while memory was planned and programs were made"
        return "while the program ran"

    def __repr__(self) -> str:
        return f"<failure: {self}>"

    def __str__(self) -> str:
        first = self.message.splitlines()[0] if self.message else ""
        return f"{self.kind or 'broken off'} {self.where}: {first}"
