"""The schedule cache, and one realization from lazy nodes to buffers."""

import contextlib
import gc
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from ren_lab.engine.storage import new_buffer, storage_of
from ren_lab.engine.units import Program, make_exec_units, plan_memory, run_at_once, run_exec_units, runs_at_once
from ren_lab.events import CompileEnded, CompileStarted, Emit, emitter
from ren_lab.functions import keep_over_fork
from ren_lab.ir import DType, Node, Op, attach, buffer, is_settled, substitute
from ren_lab.options import Options
from ren_lab.schedule import canonical, schedule
from ren_lab.schedule.build_becomes_map import base_of, over

_cache: "OrderedDict[tuple[Node, tuple[object, ...]], Program]" = OrderedDict()
_lock = threading.Lock()
keep_over_fork(_lock)


_compiling = 0  # how many threads are inside `_collections_paused`
_resume = False  # whether the last of them turns the collector on again


@contextlib.contextmanager
def _collections_paused() -> Iterator[None]:
    """No cyclic garbage collection meanwhile.

    A compilation makes many nodes, which all stay alive and have no cycles; looking through them again and again takes a
    third of the time.
    """
    global _compiling, _resume
    with _lock:
        if _compiling == 0:
            _resume = gc.isenabled()
            gc.disable()
        _compiling += 1
    try:
        yield
    finally:
        with _lock:
            _compiling -= 1
            if _compiling == 0 and _resume:
                gc.enable()


def clear_schedule_cache() -> None:
    """Forget every compiled schedule."""
    with _lock:
        _cache.clear()


def schedule_cache_info() -> dict[str, int]:
    """How many compiled schedules are held."""
    with _lock:
        return {"entries": len(_cache)}


def sink_of(roots: Sequence[Node]) -> Node:
    """One SINK over the outputs, and over every random draw below them.

    A draw happens once: what it gave must stay for whoever uses the same node later, so it is an output as well.
    """
    sink = Node(Op.SINK, DType.VOID, tuple(dict.fromkeys(roots)))
    draws = draws_below(sink)
    return Node(Op.SINK, DType.VOID, tuple(dict.fromkeys((*sink.src, *draws)))) if draws else sink


def draws_below(node: Node) -> list[Node]:
    """The random draws that a node depends on, each as a polynomial, in the order of the graph."""
    return [n for n in node.toposort() if n.op is Op.AS_RING and n.src[0].op is Op.RANDOM]


def compile_sink(sink: Node, options: Options, emit: Emit | None = None) -> tuple[Program, Mapping[Node, Node]]:
    """The program of a SINK, out of the cache if its structure was compiled before.

    Returns:
        the program, in terms of the canonical graph, and the mapping from nodes of `sink` to canonical ones.
    """
    graph, names = canonical(sink)
    return _compiled(graph, names, options, emit), names


def _compiled(graph: Node, names: Mapping[Node, Node], options: Options, emit: Emit | None) -> Program:
    start = time.perf_counter()
    key = (graph, options.compile_key)
    with _lock:
        program = _cache.get(key)
        if program is not None:
            _cache.move_to_end(key)
    if emit is not None:
        origins: dict[Node, tuple[tuple[str, int], ...]] = {}
        for node, named in names.items():
            if node.origins:
                origins[named] = tuple(dict.fromkeys((*origins.get(named, ()), *node.origins)))
        emit(CompileStarted(graph, options, program is not None, origins))
    if program is None:
        with _collections_paused():
            scheduled = schedule(graph, options, emit)
            program = make_exec_units(scheduled, plan_memory(scheduled))
        if options.schedule_cache_size:
            with _lock:
                _cache[key] = program
                while len(_cache) > options.schedule_cache_size:
                    _cache.popitem(last=False)
    if emit is not None:
        emit(CompileEnded(program, time.perf_counter() - start))
    return program


def realize_nodes(roots: Sequence[Node], options: Options) -> dict[Node, Node]:
    """Compute nodes, all together.

    Returns:
        what each of them, and each random draw below them, became: a constant, a buffer, or a window of a buffer.
        Nothing is changed until everything has been computed.
    """
    sink = Node(Op.SINK, DType.VOID, tuple(dict.fromkeys(roots)))
    graph, names = canonical(sink)
    is_random = Op.RANDOM
    if any(node.op is is_random for node in names):
        return _realize_drawing(sink, options)
    return _realized(sink, graph, names, options)


class _Claim:
    """Somebody draws, or has drawn: `became` is what holds the draw then, and stays None if that failed."""

    __slots__ = ("over", "became")

    def __init__(self) -> None:
        self.over = threading.Event()
        self.became: Node | None = None


_claiming = threading.Lock()
keep_over_fork(_claiming)


def _realize_drawing(sink: Node, options: Options) -> dict[Node, Node]:
    """As `realize_nodes`, for graphs with random draws.

    A thread may still hold a graph over a draw that another one realizes meanwhile. So a draw keeps, in the `data` of its RANDOM,
    who draws it and what it became. Who waits for others has claimed nothing yet.
    """
    roots = {root: root for root in sink.src}  # each root, and the same over the draws that have happened
    while True:
        lazy = [node for node in roots.values() if not is_settled(node)]
        sink = sink_of(lazy)
        draws = draws_below(sink)
        with _claiming:
            known = {draw: draw.src[0].data for draw in draws if draw.src[0].data is not None}
            claims = {} if known else {draw: _Claim() for draw in draws}
            for draw, claim in claims.items():
                attach(draw.src[0], claim)
        if not known:
            break
        for claim in known.values():
            claim.over.wait()
        drawn = {draw: claim.became for draw, claim in known.items() if claim.became is not None}
        roots = {root: substitute(node, drawn) for root, node in roots.items()}
    try:
        became = _realized(sink, *canonical(sink), options) if lazy else {}
        for draw, claim in claims.items():
            claim.became = became[draw]
    finally:
        for draw, claim in claims.items():
            if claim.became is None:
                attach(draw.src[0], None)
            claim.over.set()
    return became | {root: became.get(node, node) for root, node in roots.items()}


def _realized(sink: Node, graph: Node, names: Mapping[Node, Node], options: Options) -> dict[Node, Node]:
    """What the outputs of a SINK became, given its canonical graph."""
    emit = emitter()
    program = _compiled(graph, names, options, emit)

    buffers: dict[Node, Node] = {}  # canonical BUFFER -> the caller's, or the new one
    at_once = emit is None and runs_at_once(program)
    frame = program.frame(windows=not at_once)
    is_buffer = Op.BUFFER
    by_ident = {named.arg: node for node, named in names.items() if node.op is is_buffer}
    for ident in program.inputs:
        node = by_ident[ident]
        frame[program.places[ident]] = storage_of(node)
        buffers[names[node]] = node
    if at_once:
        run_at_once(program, frame)
    else:
        run_exec_units(program, frame, emit)
    for ident in program.outputs:
        made = new_buffer(ident.device, ident.shape, frame[program.places[ident]], ident.pinned)
        buffers[buffer(ident)] = made
    became = {}
    for root, replacement in zip(sink.src, program.schedule.becomes, strict=True):
        base = base_of(replacement)
        became[root] = replacement if base is None else over(replacement, buffers[base])
    return became
