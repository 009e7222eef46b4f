"""Looking changes nothing: the same results, the same schedules, the same cache entries, whoever looks and however badly."""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ren_lab as ren
from ren_lab import lens
from ren_lab.engine import clear_schedule_cache, compile_sink, schedule_cache_info, sink_of
from ren_lab.events import CompileStarted, PassEnded, RuleFired, UnitRan, emitter, observe
from ren_lab.ir import Node
from ren_lab.options import Options, current
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec

RING = RingSpec(n=8, moduli=(17, 97, 113))
SMALL = RingSpec(n=8, moduli=(97,))

steps = st.lists(st.tuples(st.sampled_from("+-*nrctis"), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=10)


APPLY = {
    "+": lambda a, b, k: a + b,
    "-": lambda a, b, k: a - b,
    "*": lambda a, b, k: a * b,
    "n": lambda a, b, k: -a,
    "r": lambda a, b, k: a.rotate(k - 4),
    "c": lambda a, b, k: a.conjugate(),
    "t": lambda a, b, k: a.ntt(),
    "i": lambda a, b, k: a.intt(),
    "s": lambda a, b, k: a.contiguous(),
}


def build(steps):
    values = [Poly([1, 2, 3], RING), Poly(list(range(8)), RING), Poly.const(5, RING)]
    for op, i, j in steps:
        values.append(APPLY[op](values[i % len(values)], values[j % len(values)], j))
    last = values[-1]
    return [last, last.to_ring(SMALL), values[len(values) // 2]]


def run(steps):
    """Data at rest of every output, and the text of what ran."""
    clear_schedule_cache()
    outputs = build(steps)
    program, _ = compile_sink(sink_of([p.node for p in outputs]), current())
    outputs[0].realize(*outputs[1:])
    return [p.tobytes() for p in outputs], str(program.schedule.graph), program


@given(steps)
def test_results_and_schedules_are_the_same_when_watched(steps):
    plain = run(steps)
    with ren.trace() as recording:
        watched = run(steps)
    for trace in recording.realizations:
        str(trace)
        trace.to_dict()
    again = run(steps)
    assert plain[:2] == watched[:2] == again[:2]
    assert plain[2].schedule.graph is watched[2].schedule.graph, "interned graphs of equal schedules are one object"
    assert [str(b) for b in plain[2].memory.buffers] == [str(b) for b in watched[2].memory.buffers]


@given(steps)
def test_cache_entries_are_the_same_when_watched(steps):
    def program(emit=None):
        return compile_sink(sink_of([p.node for p in build(steps)]), current(), emit)[0]

    clear_schedule_cache()
    unwatched = program()
    heard = []
    assert program(heard.append) is unwatched and heard[0].cached
    clear_schedule_cache()
    heard.clear()
    watched = program(heard.append)
    assert program() is watched and not heard[0].cached
    assert schedule_cache_info()["entries"] == 1


def test_explaining_then_realizing_is_realizing():
    def value(look):
        clear_schedule_cache()
        p = (Poly([1, 2], RING) * Poly([3, 4], RING)).rotate(1) + 2
        if look:
            trace = p.explain()
            str(trace), trace.to_dict(), trace._repr_mimebundle_(), [list(p.steps) for p in trace.passes]
        return p.tolist(), schedule_cache_info()

    assert value(look=True)[0] == value(look=False)[0]


def test_looking_at_a_lazy_polynomial_realizes_nothing():
    from ren_lab.lens.page import node_html, poly_html

    p = Poly([1, 2], RING) * 3
    node = p.node
    assert poly_html(p) and node_html(p.node) and repr(p)
    assert p.node is node and not p.is_realized


def test_nobody_looks_nobody_is_told():
    assert emitter() is None
    with observe(lambda record: None):
        assert emitter() is not None
    assert emitter() is None


def test_events_come_in_order_and_after_the_fact():
    clear_schedule_cache()
    heard = []
    with observe(heard.append):
        (Poly([1, 2], RING) * Poly([3], RING)).realize()
    kinds = [type(record).__name__ for record in heard]
    assert kinds[0] == "CompileStarted" and kinds[-1] == "RunEnded"
    assert kinds.index("CompileEnded") > max(i for i, k in enumerate(kinds) if k == "PassEnded")
    assert kinds.count("PassEnded") == 12 and kinds.count("UnitRan") == len(heard[kinds.index("CompileEnded")].program.units)
    assert all(isinstance(r.old, Node) and isinstance(r.new, Node) for r in heard if isinstance(r, RuleFired))


@pytest.mark.parametrize("kind", [CompileStarted, RuleFired, PassEnded, UnitRan], ids=lambda kind: kind.__name__)
def test_an_observer_that_raises_is_detached_and_reported(kind):
    clear_schedule_cache()
    heard = []

    def clumsy(record):
        heard.append(record)
        if isinstance(record, kind):
            raise ZeroDivisionError("looked too hard")

    with warnings.catch_warnings(record=True) as told, observe(clumsy), ren.trace() as recording:
        warnings.simplefilter("always")
        p = Poly([1, 2], RING) * Poly([3], RING)
        assert p.tolist() == [3, 6, 0, 0, 0, 0, 0, 0]
        assert (Poly([2], RING) * 2).tolist()[0] == 4, "the next run starts afresh"
    assert [w.category for w in told] == [RuntimeWarning] * 2
    assert "looked too hard" in str(told[0].message) and "detached" in str(told[0].message)
    assert sum(isinstance(record, kind) for record in heard) == 2, "one in each run, and nothing after it"
    assert recording.count == 2 and recording.failed == 0, "the other observer heard everything"


def test_records_cannot_be_changed():
    heard = []
    with observe(heard.append):
        (Poly([1, 2], RING) * 3).realize()
    for record in heard:
        with pytest.raises((AttributeError, TypeError)):
            record.seconds = 1.0
    trace = (Poly([1, 2], RING) * 3).explain()
    with pytest.raises(AttributeError):
        trace.passes[0].after.op = None
    with pytest.raises(AttributeError):
        trace.passes[0].name = "other"


def test_a_recording_holds_no_polynomials_and_no_results():
    import gc
    import weakref

    with ren.trace() as recording:
        p = Poly([1, 2], RING) * 3
        p.realize()
    poly, held = weakref.ref(p), weakref.ref(p.node)
    del p
    gc.collect()
    assert poly() is None and held() is None
    assert recording.count == 1


def test_a_failure_on_record_holds_no_exception(monkeypatch):
    from ren_lab.backends.python.backend import PythonBackend

    class Trouble(Exception):
        pass

    def fail(*storages):
        raise Trouble

    clear_schedule_cache()
    monkeypatch.setattr(PythonBackend, "compile", lambda self, ast: fail)
    import gc

    with ren.trace() as recording:
        try:
            (Poly([1, 2], RING) * 3).realize()
        except Trouble:
            pass
    clear_schedule_cache()
    gc.collect()
    assert not any(isinstance(o, Trouble) for o in gc.get_objects())
    assert recording.realizations[0].error.kind == "Trouble"


def test_options_of_a_trace_are_those_of_the_run():
    with ren.using(max_kernel_loads=2):
        trace = (Poly([1], RING) + Poly([2], RING) + Poly([3], RING)).explain()
    assert trace.options.max_kernel_loads == 2
    assert lens.explain([(Poly([1], RING) * 2).node], Options(max_kernel_loads=5)).options.max_kernel_loads == 5
