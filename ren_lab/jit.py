"""`ren.jit`: capture what a function computes with polynomials, once, and replay it.

The first call with arguments of a kind runs the function on stand-ins for its polynomials, compiles the graphs of its results
together and keeps the program under a key. A later call with the same key binds its inputs to that program and runs it; the
function is not entered.
"""

import dataclasses
import functools
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from ren_lab.engine import (
    Program,
    capture,
    compile_sink,
    draws_below,
    make_exec_units,
    new_buffer,
    plan_memory,
    realize_nodes,
    run_exec_units,
    storage_of,
)
from ren_lab.engine.replay import Replay
from ren_lab.events import CompileEnded, CompileStarted, Emit, JitCalled, emitter, hook
from ren_lab.functions import refuse_pieces
from ren_lab.ir import BufferId, DType, Node, Op, buffer, is_const, storage
from ren_lab.jit_guard import Guard
from ren_lab.jit_key import Call, Contents, Key, register_key, same_scalars, take_apart
from ren_lab.memory import MemoryPlan
from ren_lab.options import Options
from ren_lab.options import current as current_options
from ren_lab.poly import Poly, apply_becomes
from ren_lab.schedule import Schedule, ScheduledKernel
from ren_lab.schedule.build_becomes_map import base_of, over
from ren_lab.structure import Companion, Leaf, Shape, build, flatten

_stand_ins = itertools.count()
_GUARDS_TRIED = 16


class Template:
    """How a result is put together: which of its leaves are computed, arguments, or metadata that goes with them.

    Args:
        shape: the containers, and `leaves` what the capture found in them, in order.
        numbers: the argument that a node stood for during the capture.
        becomes: what a node becomes once the program has run, in terms of canonical buffers.
        outputs, arguments: the number of the output, or of the argument, that a canonical buffer is.
        held: a canonical buffer that is neither, and the buffer that it always stands for.
    """

    __slots__ = ("_shape", "_leaves", "_made", "_given", "_fixed", "_inputs", "_companions")

    def __init__(
        self,
        shape: Shape | Leaf,
        leaves: Sequence[tuple[str, Any]],
        numbers: Mapping[Node, int],
        becomes: Mapping[Node, Node],
        outputs: Mapping[Node, int],
        arguments: Mapping[Node, int],
        held: Mapping[Node, Node],
    ) -> None:
        self._leaves = [leaf for _, leaf in leaves]
        self._made: list[tuple[int, Node, int]] = []
        self._given: list[tuple[int, Node, int]] = []
        self._fixed: list[tuple[int, Node]] = []
        self._inputs: list[tuple[int, int]] = []
        self._companions: list[tuple[int, Companion]] = []
        for index, leaf in enumerate(self._leaves):
            if isinstance(leaf, Companion):
                self._companions.append((index, leaf))
            if not isinstance(leaf, Poly) or leaf.node not in numbers and leaf.node not in becomes:
                continue
            self._leaves[index] = None  # no graph of the capture stays alive
            if leaf.node in numbers:
                self._inputs.append((index, numbers[leaf.node]))
                continue
            replacement = becomes[leaf.node]
            base = base_of(replacement)
            if base is None:
                self._fixed.append((index, replacement))
            elif base in outputs:
                self._made.append((index, replacement, outputs[base]))
            elif base in arguments:
                self._given.append((index, replacement, arguments[base]))
            else:
                self._fixed.append((index, over(replacement, held[base])))
        # the containers are copies, since those of the capture hold its polynomials
        hollow = (None if isinstance(leaf, Poly) else leaf for _, leaf in leaves)
        self._shape = flatten(build(shape, hollow), "result", [])

    def fill(self, made: Sequence[Node], contents: Contents, companions: Mapping[Companion, Companion]) -> Any:
        """A fresh result: `made` are the buffers of the outputs, `companions` takes stand-ins to what the call brought along."""
        leaves = self._leaves.copy()
        for index, node, number in self._made:
            leaves[index] = Poly.of_settled(over(node, made[number]))
        for index, node, number in self._given:
            leaves[index] = Poly.of_settled(over(node, contents.data[number]))
        for index, node in self._fixed:
            leaves[index] = Poly.of_settled(node)
        for index, number in self._inputs:
            leaves[index] = Poly.of_settled(contents.polys[number].node)
        for index, companion in self._companions:
            leaves[index] = companion.given(companions)
        return build(self._shape, iter(leaves))


@dataclass(slots=True, eq=False)
class Plan:
    """A captured call.

    Attributes:
        function: the name of the function.
        key: what another call must match.
        guard: recognizes most calls that do.
        scalars: the top-level scalar arguments, which are frozen.
        hits: how many calls it has served after the one that made it.
    """

    function: str
    key: Key = field(repr=False)
    scalars: tuple[Any, ...]
    guard: Guard = field(repr=False)
    replay: Replay = field(repr=False)
    template: Template = field(repr=False)
    arguments: tuple[int, ...] = field(repr=False)  # for each input of the replay the number of its polynomial
    started: CompileStarted = field(repr=False)
    companions: tuple[Companion, ...] = field(repr=False)  # what stood for the arguments' ones during the capture
    hits: int = 0

    @property
    def program(self) -> Program:
        """The compiled program."""
        return self.replay.program

    @property
    def schedule(self) -> Schedule:
        """What each replay runs, and what its outputs stand on."""
        return self.program.schedule

    @property
    def kernels(self) -> tuple[ScheduledKernel, ...]:
        """The items that each replay runs, in order."""
        return self.program.schedule.items

    @property
    def memory(self) -> MemoryPlan:
        """Live ranges and arenas."""
        return self.program.memory

    def explain(self) -> Any:
        """The `Trace` of the plan: passes, schedule, kernels and memory."""
        return hook("explain_plan")(self)

    def run(self, contents: Contents, emit: Emit | None) -> Any:
        """Run the program on what the arguments of a call hold; returns the result in its containers."""
        data = contents.data
        made = self.replay.run([storage_of(data[number]) for number in self.arguments], emit)
        return self.template.fill(made, contents, dict(zip(self.companions, contents.companions, strict=True)))


class Jit:
    """A function with captured plans; it is called as the function is. `ren.jit` makes it.

    Attributes:
        fn: the plain function.
    """

    def __init__(self, fn: Callable[..., Any], prune: bool, max_plans: int, reuse_outputs: bool) -> None:
        self.fn = fn
        self.prune, self.max_plans, self.reuse_outputs = prune, max_plans, reuse_outputs
        self._plans: OrderedDict[Key, Plan] = OrderedDict()
        self._tried_first: tuple[Plan, ...] = ()  # the most recently used ones, last use first
        self._lock = threading.Lock()
        functools.update_wrapper(self, fn)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The captured plans, most recently used last."""
        with self._lock:
            return tuple(self._plans.values())

    def clear_jit(self) -> None:
        """Forget every plan; the next call captures."""
        with self._lock:
            self._plans.clear()
            self._tried_first = ()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundJit(self, instance)

    def __repr__(self) -> str:
        return f"<ren.jit {_name(self.fn)}, {len(self._plans)} plan{'s' * (len(self._plans) != 1)}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if capture.capturing():
            raise RuntimeError("ren.jit: nested jit is not supported; call the inner function's .fn")
        options, emit = current_options(), emitter()
        for plan in self._tried_first:
            found = plan.guard.accepts(args, kwargs, options)
            if found is not None:
                return self._replay(plan, found, emit)
        call = take_apart(args, kwargs, options)
        with self._lock:
            known = self._plans.get(call.key)
            why = "" if known is not None or emit is None else self._why(call.key)
        if known is not None:
            if not same_scalars(known.scalars, call.scalars):
                raise RuntimeError(
                    f"ren.jit: non-Poly scalar arg changed (captured {known.scalars!r}, got {call.scalars!r}); "
                    "jit freezes it at capture. Wrap varying scalars as Plaintext.const(...), or clear_jit() to re-capture. "
                    "A scalar inside a container, such as [2], is part of the key instead: each value then has a plan of its own."
                )
            return self._replay(known, call.contents, emit)
        plan = self._capture(call, options, emit, why)
        result = plan.run(call.contents, emit)
        with self._lock:
            self._keep(plan)
        return result

    def _replay(self, plan: Plan, contents: Contents, emit: Emit | None) -> Any:
        self._used(plan)
        plan.hits += 1
        if emit is not None:
            emit(JitCalled(_name(self.fn), True, f"served {plan.hits} time{'s' * (plan.hits != 1)} from its plan"))
            emit(plan.started)
            emit(CompileEnded(plan.program, 0.0))
        return plan.run(contents, emit)

    def _used(self, plan: Plan) -> None:
        """Let a plan be the one that is kept longest and tried first, if it is still kept."""
        if self._tried_first and self._tried_first[0] is plan:
            return
        with self._lock:
            if self._plans.get(plan.key) is plan:
                self._keep(plan)

    def _keep(self, plan: Plan) -> None:
        """Keep a plan, as the last one used; the caller holds the lock."""
        self._plans[plan.key] = plan
        self._plans.move_to_end(plan.key)
        while len(self._plans) > self.max_plans:
            self._plans.popitem(last=False)
        self._tried_first = tuple(itertools.islice(reversed(self._plans.values()), _GUARDS_TRIED))

    def _why(self, key: Key) -> str:
        nearest = min((key.differences(known) for known in self._plans), key=len, default=None)
        if nearest is None:
            return "no plan yet"
        return "; ".join(nearest) or "an object among the arguments is another one"

    def _capture(self, call: Call, options: Options, emit: Emit | None, why: str) -> Plan:
        """Run the function on stand-ins for its polynomials and compile what it returns."""
        guard = Guard(call)  # of the arguments as they are before the function has seen them
        stand_ins: list[Poly] = []  # one for each polynomial; those of the same data share one
        numbers: dict[Node, int] = {}  # node of a stand-in -> number of its argument
        replaced: list[Any] = []
        for _, leaf in call.leaves:
            if isinstance(leaf, Poly):
                number = len(stand_ins)
                first = call.key.polynomials[number].same_as
                stand_ins.append(Poly.of_node(_stand_in(leaf)) if first == number else stand_ins[first])
                numbers.setdefault(stand_ins[number].node, number)
                leaf = stand_ins[number]
            elif isinstance(leaf, Companion):
                leaf = leaf.stand_in()
            replaced.append(leaf)
        values = build(call.shape, iter(replaced))
        names = call.key.structure.names if isinstance(call.key.structure, Shape) else ()
        args = [v for n, v in zip(names, values, strict=True) if isinstance(n, int)]
        kwargs = {n: v for n, v in zip(names, values, strict=True) if isinstance(n, str)}
        with capture.capture_body():
            result = self.fn(*args, **kwargs)

        found: list[tuple[str, Any]] = []
        shape = flatten(result, "result", found)
        polys = [leaf for _, leaf in found if isinstance(leaf, Poly)]
        if not polys:
            raise RuntimeError(
                f"ren.jit: function must return at least one Poly, alone or in a container; {_name(self.fn)} returned none"
            )
        _draw_now(polys)
        computed = list(dict.fromkeys(p.node for p in polys if not p.is_realized))
        sink = Node(Op.SINK, DType.VOID, tuple(computed))
        started: list[Any] = []
        if emit is not None:
            emit(JitCalled(_name(self.fn), False, why))
        if self.prune:  # a transform that can be done once must not be part of a kernel that runs every time
            options = dataclasses.replace(options, fuse_transforms=False)
        program, canonical = compile_sink(sink, options, _listen(started, emit))

        sources = {storage(node): number for node, number in numbers.items() if not is_const(node)}
        arguments: dict[Node, int] = {}
        held: dict[Node, Node] = {}
        for node, named in canonical.items():
            if node.op is Op.BUFFER and named.arg in program.places:
                if node in sources:
                    arguments[named] = sources[node]
                else:
                    held[named] = node
        if self.prune:
            program = _prune(program, {node.arg for node in arguments}, held)
            if emit is not None:
                emit(CompileEnded(program, 0.0))
        constants = {named.arg: node for named, node in held.items()}
        replay = Replay(program, [node.arg for node in arguments], constants, self.reuse_outputs)
        becomes = dict(zip(computed, program.schedule.becomes, strict=True))
        outputs = {buffer(ident): number for number, ident in enumerate(program.outputs)}
        template = Template(shape, found, numbers, becomes, outputs, arguments, held)
        companions = tuple([leaf for leaf in replaced if isinstance(leaf, Companion)])
        bound = tuple(arguments.values())
        return Plan(_name(self.fn), call.key, call.scalars, guard, replay, template, bound, started[0], companions)


class BoundJit:
    """A jitted method of an object; `plans`, `fn` and the like are those of the method."""

    __slots__ = ("_instance", "_jit")

    def __init__(self, jit: Jit, instance: Any) -> None:
        self._jit, self._instance = jit, instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._jit(self._instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jit, name)


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or _name(getattr(fn, "func", None) or type(fn))


def _stand_in(argument: Poly) -> Node:
    """A node of the argument's kind with an identity of its own; a constant stands for itself."""
    if is_const(argument.node):
        return argument.node
    ring = argument.ring
    source = buffer(BufferId(f"a{next(_stand_ins)}", argument.device, (ring.limbs, ring.n)))
    return Node(Op.AS_RING, DType.U32, (source,), (ring, argument.domain))


def _draw_now(polys: Sequence[Poly]) -> None:
    """Realize random draws that the results reach through closures: each is drawn once, not at each replay."""
    sink = Node(Op.SINK, DType.VOID, tuple(p.node for p in polys))
    draws = draws_below(sink)
    if draws:
        apply_becomes(realize_nodes(draws, current_options()))


def _listen(started: list[Any], emit: Emit | None) -> Emit:
    """Keep the record of the compilation's start, and pass everything on."""

    def listen(record: Any) -> None:
        if isinstance(record, CompileStarted):
            started.append(CompileStarted(record.graph, record.options, True, record.origins))
        if emit is not None:
            emit(record)

    return listen


def _prune(program: Program, inputs: set[BufferId], held: dict[Node, Node]) -> Program:
    """Run once what no input reaches, keep its results in `held`, and give the program of the rest."""
    reached = set(inputs)
    once: list[ScheduledKernel] = []
    rest: list[ScheduledKernel] = []
    for item in program.schedule.items:
        if reached.intersection(item.inputs):
            reached.update(item.outputs)
            rest.append(item)
        else:
            once.append(item)
    if not once:
        return program
    graph, becomes = program.schedule.graph, program.schedule.becomes
    wanted = {ident for item in rest for ident in item.inputs} | set(program.outputs)
    kept = [ident for item in once for ident in item.outputs if ident in wanted and item.kind != "view"]
    kept += [item.inputs[0] for item in once if item.kind == "view" and item.inputs[0] not in kept]
    setup = Schedule(tuple(once), tuple(buffer(ident) for ident in kept), graph)
    first = make_exec_units(setup, plan_memory(setup))
    frame = first.frame()
    for ident in first.inputs:
        frame[first.places[ident]] = storage_of(held[buffer(ident)])
    run_exec_units(first, frame)
    for ident in kept:
        if ident not in first.inputs:
            held[buffer(ident)] = new_buffer(ident.device, ident.shape, frame[first.places[ident]], ident.pinned)
    views = [item for item in once if item.kind == "view"]  # windows are opened anew over the kept bases
    remaining = Schedule((*views, *rest), becomes, graph)
    return make_exec_units(remaining, plan_memory(remaining))


@overload
def jit(fn: Callable[..., Any], prune: bool = ..., max_plans: int = ..., reuse_outputs: bool = ...) -> Jit: ...
@overload
def jit(
    fn: None = ..., prune: bool = ..., max_plans: int = ..., reuse_outputs: bool = ...
) -> Callable[[Callable[..., Any]], Jit]: ...
def jit(
    fn: Callable[..., Any] | None = None, prune: bool = False, max_plans: int = 16, reuse_outputs: bool = False
) -> Jit | Callable[[Callable[..., Any]], Jit]:
    """Capture the polynomial computation of a function and replay it on later calls.

    Args:
        fn: takes and returns polynomials, alone or inside lists, tuples, dicts and dataclasses. Left out, `jit` is a decorator
            with options.
        prune: run once, at capture, what depends on no polynomial argument, and keep its results.
        max_plans: how many plans are kept, least recently used first to go; at least 1.
        reuse_outputs: write each call's results over those of the call before. This saves memory, and it changes what every
            polynomial that still depends on an earlier result will give. By default a result that somebody can still reach is
            never overwritten.

    Plans are told apart by nesting, ring, domain, device and sharing of the polynomials, by the values of constants, by other
    leaves inside containers, by the identity of other objects, by the active scheme context and by options. Top-level scalars
    are frozen with a plan: another value, or the same one of another type, raises.

    Raises:
        TypeError: `fn` can't be called, or is a generator or a coroutine function.
        ValueError: `max_plans` is below 1.
        RuntimeError: at a call, if no argument or no result has a Poly, if the body realizes, draws or calls a jitted function,
            or if a frozen scalar changed. Nothing is kept of a capture that fails.
    """
    if fn is None:
        return functools.partial(jit, prune=prune, max_plans=max_plans, reuse_outputs=reuse_outputs)
    if not callable(fn):
        raise TypeError(f"ren.jit takes a function, not {fn!r} of type {type(fn).__name__}")
    refuse_pieces(fn, f"ren.jit: {_name(fn)}", "give a plain function that returns its results")
    if type(max_plans) is not int:
        raise TypeError(f"max_plans is {max_plans!r} of type {type(max_plans).__name__}; give an int of at least 1")
    if max_plans < 1:
        raise ValueError(f"max_plans is {max_plans}; a jitted function keeps at least 1 plan")
    return Jit(fn.fn if isinstance(fn, Jit) else fn, prune, max_plans, reuse_outputs)


__all__ = ["Jit", "Plan", "jit", "register_key"]
