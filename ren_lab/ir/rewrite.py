"""Named rewrite rules, and the rewriter that applies them bottom-up to a fixed point.

A rule is a function whose docstring is its equation:

    @rule(Op.INTT)
    def intt_of_ntt(node, match):
        \"\"\"INTT(NTT(a)) -> a\"\"\"
        if node.src[0].op is Op.NTT:
            return node.src[0].src[0]

It gets the node with its sources already rewritten, and returns what replaces it or None.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ren_lab.events import Emit, RuleFired
from ren_lab.ir.node import Node, in_domain, rebuilt
from ren_lab.ir.op import Op

RuleFunction = Callable[[Node, "Match"], Node | None]


class RewriteBudgetExceeded(RuntimeError):
    """The rules of a pass do not come to rest; the message names those that fire in turn."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rewrite of nodes whose operation is one of `ops`; `equation` is what traces show."""

    name: str
    equation: str
    ops: frozenset[Op]
    function: RuleFunction


def rule(*ops: Op) -> Callable[[RuleFunction], Rule]:
    """Make a rule of a function; its docstring is the equation and must not be empty.

    Raises:
        TypeError: an operation is no `Op`, as when the decorator is written without them.
        ValueError: none is given, or the docstring is missing.
    """
    for op in ops:
        if not isinstance(op, Op):
            raise TypeError(f"a rule is for operations, not for {op!r}; write @rule(Op.MUL), or @rule(Op.ADD, Op.SUB)")
    if not ops:
        raise ValueError("a rule is for at least one operation; write @rule(Op.MUL), or @rule(Op.ADD, Op.SUB)")

    def make(function: RuleFunction) -> Rule:
        if not function.__doc__:
            raise ValueError(f"rule {function.__name__} has no docstring; write its equation there")
        equation = " ".join(function.__doc__.split())
        return Rule(function.__name__, equation, frozenset(ops), function)

    return make


class Match:
    """What a rule may ask about: the pass's facts, and how often a node is used.

    Attributes:
        facts: what the pass's `prepare` worked out on the graph before rewriting.
        original: the node as it stood before its sources were rewritten.
        moved: what a rule that rebuilds a whole graph made of its nodes.
    """

    __slots__ = ("facts", "original", "moved", "_uses")

    def __init__(self, graph: Node, facts: Any) -> None:
        self.facts = facts
        self.original = graph
        self.moved: dict[Node, Node] = {}
        self._uses: dict[Node, int] | None = None

    def uses(self, node: Node) -> int:
        """How many edges of the graph lead to the node, or to what it was rewritten from."""
        return 0 if self._uses is None else self._uses.get(node, 0)

    def count_use(self, node: Node, more: int = 1) -> None:
        """Tell that a rule's answer uses a node of the graph more often, or less often, than before."""
        if self._uses is not None:
            self._uses[node] = self._uses.get(node, 0) + more

    def count_uses(self, graph: Node) -> None:
        uses: dict[Node, int] = {}
        for node in graph.toposort():
            for source in node.src:
                uses[source] = uses.get(source, 0) + 1
        self._uses = uses

    def carry(self, old: Node, new: Node) -> None:
        """What used `old` uses `new` from now on."""
        uses = self._uses
        if uses is not None and old is not new:
            uses[new] = uses.get(new, 0) + uses.get(old, 0)


def rewrite(
    graph: Node,
    rules: Iterable[Rule],
    *,
    facts: Any = None,
    count_uses: bool = False,
    once: bool = False,
    budget: int | None = None,
    emit: Emit | None = None,
) -> tuple[Node, Mapping[Node, Node]]:
    """Apply the rules bottom-up until none fires.

    Args:
        graph: the root; everything it depends on is visited, sources first.
        rules: tried in this order; the first that answers wins.
        facts: handed to the rules as `match.facts`.
        count_uses: give the rules `match.uses`.
        once: take a rule's answer as it is, without rewriting it further.
        budget: how many rules may fire; by default 64 per node and 1,000 more.
        emit: told a `RuleFired` for each rule that fires.

    Returns:
        the new root, and a mapping from every node of the old graph to what it became.

    Raises:
        RewriteBudgetExceeded: the rules do not come to rest.
        Exception: what a rule raises, with a note that names the rule and the node.
    """
    by_op: dict[Op, list[Rule]] = {}
    for r in rules:
        for op in r.ops:
            by_op.setdefault(op, []).append(r)
    if not by_op:
        return graph, {node: node for node in graph.toposort()}
    match = Match(graph, facts)
    if count_uses:
        match.count_uses(graph)

    done: dict[Node, Node] = {}
    waiting: dict[Node, Node] = {}  # node -> the replacement that is being rewritten for it
    fired: deque[str] = deque(maxlen=64)
    count = 0
    stack = [graph]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if node in waiting:
            replacement = waiting[node]
            if replacement in done:
                done[node] = done[replacement]
                del waiting[node]
                stack.pop()
            else:
                stack.append(replacement)
            continue
        pending = [s for s in node.src if s not in done]
        if pending:
            if waiting and any(s in waiting for s in pending):
                raise RewriteBudgetExceeded(_cycle(fired, "a rule's answer contains the node it replaces"))
            stack.extend(reversed(pending))
            continue
        new = node.with_src(tuple([done[s] for s in node.src]))
        if new is not node:
            match.carry(node, new)
            if new.domain is not node.domain:  # a source turned into a constant: the users expect the old domain
                waiting[node] = in_domain(new, node.domain)
                stack.append(waiting[node])
                continue
            if new in done and not once:  # the facts of a once-pass are about `node`, not about what it looks like now
                done[node] = done[new]
                stack.pop()
                continue
            if new in waiting:
                raise RewriteBudgetExceeded(_cycle(fired, "rules undo one another"))
        match.original = node
        answer = None
        for r in by_op.get(new.op, ()):
            try:
                answer = r.function(new, match)
            except Exception as error:
                error.add_note(f"in rule {r.name} ({r.equation}) on {new!r}")
                raise
            if answer is not None and not isinstance(answer, Node):
                raise TypeError(
                    f"rule {r.name} ({r.equation}) answered {answer!r} of type {type(answer).__name__} for {new!r}; "
                    "a rule returns the node that takes its place, or None"
                )
            if answer is not None and answer is not new:
                fired.append(r.name)
                if emit is not None:
                    emit(RuleFired(r.name, r.equation, new, answer))
                break
        if answer is None or answer is new:
            done[node] = new
            if not once:
                done[new] = new
            stack.pop()
            continue
        if answer.domain is not new.domain or answer.ring != new.ring:
            raise AssertionError(f"rule {fired[-1]} turned {new!r} into {answer!r}; a rule keeps ring and domain")
        count += 1
        if budget is None and count > 1000 or budget is not None and count > budget:
            if budget is None:  # the size is worth counting only now
                budget = 1000 + 64 * len(graph.toposort())
            if count > budget:
                raise RewriteBudgetExceeded(_cycle(fired, f"{count} rewrites exceed the budget of {budget}"))
        match.carry(new, answer)
        if once:
            done[node] = answer
            stack.pop()
            continue
        if answer in waiting:
            raise RewriteBudgetExceeded(_cycle(fired, "rules undo one another"))
        waiting[node] = answer
        stack.append(answer)
    moved = match.moved
    return done[graph], {old: moved.get(new, new) for old, new in done.items()} if moved else done


def _cycle(fired: Iterable[str], what: str) -> str:
    names = ", ".join(name for name, _ in Counter(fired).most_common(6))
    return f"{what}; the rules that fired last are {names}: make one direction of their equations the normal form"


def substitute(graph: Node, replacements: Mapping[Node, Node]) -> Node:
    """The graph with nodes replaced, where they stand, by the mapping's values (which are taken as they are)."""
    done: dict[Node, Node] = dict(replacements)
    stack = [graph]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        pending = [s for s in node.src if s not in done]
        if pending:
            stack.extend(reversed(pending))
            continue
        done[node] = rebuilt(node, tuple([done[s] for s in node.src]))
        stack.pop()
    return done[graph]
