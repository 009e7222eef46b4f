"""Traces: what they say of passes, lines, histories, failures, and what a recording keeps."""

import json
import linecache
import threading
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ren_lab as ren
from ren_lab import lens
from ren_lab.backends.python.backend import PythonBackend
from ren_lab.engine import clear_schedule_cache, compile_sink, schedule_cache_info, sink_of
from ren_lab.events import CompileStarted, PassEnded, RuleFired
from ren_lab.ir import Axis, BufferId, DType, Node, Op, buffer, parse
from ren_lab.lens.provenance import carry_lines, continuity
from ren_lab.lens.recorder import Recording, TraceBuilder
from ren_lab.lens.text import expression, lines_text
from ren_lab.options import Options, current
from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec
from ren_lab.schedule import Pass, pipeline

RING = RingSpec(n=8, moduli=(17, 97))
NAMES = [step.name for step in pipeline.PIPELINE]
HERE = __file__


@pytest.fixture(autouse=True)
def _empty_cache():
    clear_schedule_cache()


def line_of(text):
    """The number of the only line of this file that ends in a comment `# text`."""
    found = [i for i, line in enumerate(linecache.getlines(HERE), 1) if line.rstrip().endswith(f"# {text}")]
    assert len(found) == 1, text
    return found[0]


def program():
    x = Poly([1, 2, 3, 4], RING)  # line: x
    y = Poly([5, 6, 7, 8], RING)  # line: y
    product = x * y  # line: product
    turned = product.rotate(1)  # line: rotate
    return (turned + 7).to_ring(RingSpec(8, (17,)))  # line: rest


def leaf(label):
    return Node(Op.AS_RING, DType.U32, (buffer(BufferId(label, "python", (2, 8))),), (RING, Domain.NTT))


def binary(op, a, b):
    return Node(op, DType.U32, (a, b))


def sink(*outputs):
    return Node(Op.SINK, DType.VOID, outputs)


A, B, C = leaf("a"), leaf("b"), leaf("c")


# which node continues which


def test_a_wrapped_node_stays_and_its_wrapper_is_added():
    product = binary(Op.MUL, A, B)
    wrapped = Node(Op.NEG, DType.U32, (product,))
    before, after = sink(product), sink(wrapped)
    became = continuity(before, after, {product: wrapped, before: after})
    assert became[product] is product and wrapped not in became.values()


def test_a_wrapped_and_rebuilt_node_stays():
    inner, new_inner = binary(Op.ADD, A, B), binary(Op.SUB, A, B)
    outer, new_outer = binary(Op.MUL, inner, C), binary(Op.MUL, new_inner, C)
    wrapped = Node(Op.NEG, DType.U32, (new_outer,))
    before, after = sink(outer), sink(wrapped)
    became = continuity(before, after, {inner: new_inner, outer: wrapped, before: after})
    assert became[outer] is new_outer and became[inner] is new_inner and wrapped not in became.values()


def test_new_sources_alone_are_no_change():
    product = binary(Op.MUL, A, B)
    new = binary(Op.MUL, Node(Op.NEG, DType.U32, (A,)), B)
    record = lens.PassRecord(1, "test", sink(product), sink(new), (), 0.0, {product: new, sink(product): sink(new)})
    assert [n.op for n in record.added] == [Op.NEG] and record.removed == () and record.changed == ()


def test_a_node_replaced_by_an_existing_one_is_removed():
    double = Node(Op.NEG, DType.U32, (Node(Op.NEG, DType.U32, (A,)),))
    before, after = sink(binary(Op.ADD, double, B)), sink(binary(Op.ADD, A, B))
    mapping = {double: A, double.src[0]: double.src[0], before.src[0]: after.src[0], before: after}
    record = lens.PassRecord(1, "test", before, after, (), 0.0, mapping)
    assert set(record.removed) == {double, double.src[0]} and record.added == () and record.changed == ()


def test_another_operation_in_its_place_is_a_change():
    turned, lowered = Node(Op.ROTATE, DType.U32, (A,), 1), Node(Op.AUTOMORPHISM, DType.U32, (A,), 5)
    record = lens.PassRecord(1, "test", sink(turned), sink(lowered), (), 0.0, {turned: lowered, sink(turned): sink(lowered)})
    assert record.changed == (lowered,) and record.added == record.removed == ()


def test_merged_nodes_leave_one():
    one, two, both = binary(Op.ADD, A, B), binary(Op.ADD, B, A), binary(Op.MUL, A, B)
    before, after = sink(one, two), sink(both, both)
    record = lens.PassRecord(1, "test", before, after, (), 0.0, {one: both, two: both, before: after})
    assert record.changed == (both,) and record.removed == (two,)


@pytest.mark.parametrize("name", NAMES)
def test_counts_add_up(name):
    record = next(p for p in program().explain().passes if p.name == name)
    before, after = set(record.before.toposort()), set(record.after.toposort())
    old, new = list(record.became), list(record.became.values())
    assert len(set(new)) == len(new)
    assert set(old) <= before and set(new) <= after
    assert set(record.removed) == before - set(old) and set(record.added) == after - set(new)
    assert set(record.changed) <= set(new)
    assert record.quiet == (record.before is record.after and not record.rewrites)


def test_a_product_keeps_its_identity_until_it_is_part_of_a_kernel():
    trace = program().explain()
    (product,) = [n for n in trace.passes[0].before.toposort() if n.op is Op.MUL]
    kinds = {m.name: m.kind for m in trace.history(product)}
    assert set(list(kinds.values())[:-1]) <= {"kept", "moved"} and kinds["kernelize"] == "removed"
    assert list(kinds) == NAMES


def test_history_reaches_both_ways_and_names_rules():
    trace = program().explain()
    (turned,) = [n for n in trace.passes[6].before.toposort() if n.op is Op.AUTOMORPHISM]
    moments = {m.name: m for m in trace.history(turned, 6)}
    changed = moments["lower_ring_ops"]
    assert changed.kind == "changed" and changed.old.op is Op.ROTATE and changed.new.op is Op.AUTOMORPHISM
    assert [f.rule for f in changed.rules] and all(f.equation for f in changed.rules)
    assert moments["lower_automorphisms"].new.op is Op.PERMUTE
    with pytest.raises(ValueError, match="in no graph of this trace"):
        trace.history(A)


# single rewrites


@st.composite
def polys(draw):
    values = [Poly([1, 2, 3], RING), Poly([4, 5], RING), Poly.const(3, RING)]
    for _ in range(draw(st.integers(1, 12))):
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        match draw(st.integers(0, 7)):
            case 0:
                values.append(a + b)
            case 1:
                values.append(a - b)
            case 2:
                values.append(a * b)
            case 3:
                values.append(-a)
            case 4:
                values.append(a.rotate(draw(st.integers(-2, 3))))
            case 5:
                values.append(a.conjugate())
            case 6:
                values.append(a.ntt())
            case 7:
                values.append(a.intt())
    return values[-1], draw(st.sampled_from(values))


@given(polys())
def test_replaying_recorded_rewrites_gives_the_graph_after_the_pass(outputs):
    trace = lens.explain([p.node for p in outputs], Options())
    for record in trace.passes:
        assert len(record.steps) == len(record.rewrites)
        if record.rewrites:
            replayed = replace(record, dropped_rewrites=1).steps  # so that the last step, too, is rebuilt
            assert replayed[-1] is record.after is record.steps[-1], record.name


@given(polys())
def test_marks_partition_the_graphs(outputs):
    trace = lens.explain([p.node for p in outputs], Options())
    for record in trace.passes:
        before, after = record.before.toposort(), record.after.toposort()
        assert len(before) - len(record.removed) == len(after) - len(record.added) == len(record.became), record.name
        for old, new in record.became.items():
            assert (new in record.changed) == ((old.op, old.arg, old.dtype) != (new.op, new.arg, new.dtype))


def test_steps_apply_one_rewrite_after_the_other():
    record = program().explain().passes[0]
    assert len(record.steps) > 2
    graphs = [record.before, *record.steps]
    assert all(a is not b for a, b in zip(graphs, graphs[1:]))
    for graph, fired in zip(record.steps, record.rewrites):
        assert fired.old not in graph.toposort()
    assert record.steps[1:3] == [record.steps[1], record.steps[2]] and record.steps[-len(record.steps)] is record.steps[0]
    with pytest.raises(IndexError, match="rewrites; give"):
        record.steps[len(record.steps)]


# the user's lines


def test_a_kernel_knows_the_lines_of_all_that_ended_in_it():
    trace = program().explain()
    fused = trace.kernels[-1]
    expected = {(HERE, line_of(f"line: {what}")) for what in ("product", "rotate", "rest")}
    assert set(fused.lines) == expected
    converting = [k for k in trace.kernels if k.kind == "to_rns"]
    assert [k.lines for k in converting] == [((HERE, line_of("line: x")),), ((HERE, line_of("line: y")),)]
    wanted = ((HERE, line_of("line: product")),)
    assert [k.lines for k in trace.kernels if k.kind == "ntt"] == [wanted] * 2, "the product wanted the transforms"


def test_lines_of_a_cached_schedule_are_those_of_the_program_that_asks():
    def other():
        a, b = Poly([1], RING), Poly([2], RING)
        return (a * b).rotate(1)  # line: other

    trace = other().explain()
    again = (Poly([3], RING) * Poly([4], RING)).rotate(1).explain()  # line: again
    assert not trace.cached and again.cached
    assert {line for _, line in trace.kernels[-1].lines} == {line_of("line: other")}
    assert {line for _, line in again.kernels[-1].lines} == {line_of("line: again")}


def test_lines_follow_gone_nodes_to_their_users():
    product, total = binary(Op.MUL, A, B), binary(Op.ADD, binary(Op.MUL, A, B), C)
    fused = Node(Op.NEG, DType.U32, (C,))
    before, after = sink(total), sink(fused)
    mapping = {product: product, total: fused, before: after}
    lines = carry_lines(
        {product: (("f.py", 1),), total: (("f.py", 2),)}, before, after, mapping, continuity(before, after, mapping)
    )
    assert lines[fused] == (("f.py", 1), ("f.py", 2))


def test_without_source_lines_there_are_none():
    with ren.using(source_lines=False):
        trace = program().explain()
    assert all(k.lines == () for k in trace.kernels) and "py:" not in str(trace.schedule)


# explain


def test_explaining_changes_and_computes_nothing():
    p = program()
    node, text = p.node, str(p.node)
    trace = p.explain()
    assert p.node is node and str(p.node) == text and not p.is_realized
    assert trace.seconds.run is None and trace.started is None and trace.error is None
    assert all(u.seconds is None and u.start is None for u in trace.units) and len(trace.units) == len(trace.schedule)


def test_what_is_explained_is_what_runs():
    p = program()
    trace = p.explain()
    assert not trace.cached and schedule_cache_info()["entries"] == 1
    with ren.trace() as recording:
        p.realize()
    (ran,) = recording.realizations
    assert ran.cached and ran.program is trace.program
    again = program().explain()
    assert again.cached and again.program is trace.program


def test_passes_of_a_cached_schedule_are_run_again_when_asked_for():
    first, second = program().explain(), program().explain()
    assert second.cached and "_compilation" not in vars(second)
    assert [p.name for p in second.passes] == NAMES
    for a, b in zip(first.passes, second.passes):
        assert a.before is b.before and a.after is b.after
        assert [(f.rule, f.old, f.new) for f in a.rewrites] == [(f.rule, f.old, f.new) for f in b.rewrites]


def test_passes_that_depend_on_more_than_the_graph_are_found_out(monkeypatch):
    program().explain()
    cached = program().explain()
    monkeypatch.setattr(pipeline, "PIPELINE", pipeline.PIPELINE[:-1])
    with pytest.raises(RuntimeError, match="another schedule than the cached one"):
        _ = cached.passes


def test_explain_needs_outputs():
    with pytest.raises(ValueError, match="name at least one"):
        lens.explain([])


def test_explained_to_nobody_else():
    with ren.trace() as recording:
        program().explain()
    assert recording.realizations == [] and recording.count == 0


def test_parts_of_a_trace():
    trace = program().explain()
    assert len(trace.schedule) == len(list(trace.schedule)) == len(trace.program.schedule.items)
    assert trace.schedule[0] is trace.program.schedule.items[0] and trace.schedule[1:] == trace.program.schedule.items[1:]
    assert [k.ast.op for k in trace.kernels] == [Op.STORE] * len(trace.kernels)
    assert all(k.source and k.name in str(k) and k.source in str(k) for k in trace.kernels)
    assert trace.memory.peak_bytes == trace.program.memory.peak_bytes and trace.memory.buffers is trace.program.memory.buffers
    with pytest.raises(AttributeError):
        _ = trace.memory.no_such_attribute
    assert trace.scope_stats is None


# texts and data


def test_texts_name_what_there_is():
    trace = program().explain()
    text = str(trace)
    assert all(name in text for name in NAMES) and "quiet" in text and "memory plan" in text
    assert all(item.name in text for item in trace.schedule) and "test_lens_trace.py:" in text
    record = trace.passes[2]
    assert record.sentence == "Pass 3, inject_domains: 2 nodes added, by 1 rewrite."
    assert record.rewrites[0].equation in str(record) and parse("\n".join(str(record).splitlines()[3:])) is record.after
    assert trace.passes[6].sentence == "Pass 7, build_becomes_map: nothing to do."
    assert "5 kernels" in repr(trace) and "not run" in repr(trace)


def test_data_is_plain_and_complete():
    trace = program().explain()
    data = json.loads(json.dumps(trace.to_dict()))
    assert [p["name"] for p in data["passes"]] == NAMES
    for told, record in zip(data["passes"], trace.passes):
        assert (told["added"], told["removed"], told["changed"]) == tuple(map(len, (record.added, record.removed, record.changed)))
        assert told["rewrites"]["count"] == len(record.rewrites) == sum(r["count"] for r in told["rewrites"]["rules"])
        marks = Counter(v["mark"] for v in told["graph"]["vertices"])
        assert (marks["added"], marks["changed"]) == (len(record.added), len(record.changed))
    assert [i["name"] for i in data["schedule"]["items"]] == [i.name for i in trace.schedule]
    assert sorted(i for p in data["programs"] for i in p["kernels"]) == [k.index for k in trace.kernels]
    assert data["error"] is None and data["seconds"]["run"] is None


def test_expressions_are_short():
    deep = A
    for _ in range(50):
        deep = binary(Op.MUL, deep, deep)
    assert expression(deep, 2) == "MUL(MUL(MUL(…), MUL(…)), MUL(MUL(…), MUL(…)))"
    assert expression(Node(Op.ROTATE, DType.U32, (A,), -3)) == "ROTATE[-3](a)"
    assert expression(Node(Op.GIDX, DType.INDEX, (), Axis("limb", 2))) == "GIDX"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((), ""),
        ((("/x/a.py", 3),), "a.py:3"),
        ((("/x/a.py", 3), ("/x/a.py", 7), ("/x/b.py", 1)), "a.py:3,7 b.py:1"),
        (tuple(("/x/a.py", i) for i in range(9)), "a.py:0,1,2,3,4,5 and 3 more"),
    ],
    ids=["none", "one", "two files", "many"],
)
def test_lines_as_people_call_them(lines, told):
    assert lines_text(lines) == told


def test_graphs_of_parts():
    trace = program().explain()
    for thing in (trace, trace.schedule, trace.passes[0], trace.kernels[0]):
        assert "digraph" in thing.to_graphviz().source
    for record in trace.passes:
        assert record.to_graphviz().source.count("label=") >= len(record.after.toposort())


# recordings


def test_a_recording_times_every_unit():
    with ren.trace() as recording:
        assert program().tolist() == [12, 16, 0, 0, 10, 16, 2, 8]
        program().realize()
    first, second = recording.realizations
    assert not first.cached and not second.cached  # the first also transforms back
    for trace in (first, second):
        assert [u.index for u in trace.units] == list(range(len(trace.schedule)))
        assert all(u.seconds >= 0 and u.start >= trace.started for u in trace.units)
        assert sum(u.seconds for u in trace.units) <= trace.seconds.run
        assert [k.seconds for k in trace.kernels] == [u.seconds for u in trace.units if u.item.ast is not None]
    assert sum(t.calls for t in recording.totals) == len(first.units) + len(second.units)
    assert sum(t.share for t in recording.totals) == pytest.approx(1.0)
    assert recording.seconds.run == pytest.approx(first.seconds.run + second.seconds.run)
    assert "2 realizations" in str(recording) and recording.dropped == "" and len(recording) == 2


def test_only_what_starts_inside_is_recorded():
    with ren.trace() as recording:
        program().realize()
    program().realize()
    assert recording.count == 1


def test_recordings_nest():
    with ren.trace() as outer:
        with ren.trace() as inner:
            program().realize()
        program().realize()
    assert (inner.count, outer.count) == (1, 2)


def test_another_thread_is_not_recorded():
    with ren.trace() as recording:
        thread = threading.Thread(target=lambda: program().realize())
        thread.start()
        thread.join()
    assert recording.count == 0


def test_threads_that_share_a_context_do_not_mix():
    import contextvars

    with ren.trace() as recording:
        barrier = threading.Barrier(3)

        def work(context):
            def body():
                barrier.wait()
                for _ in range(10):
                    program().realize()

            context.run(body)

        threads = [threading.Thread(target=work, args=(contextvars.copy_context(),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert recording.count == 30 and recording.failed == 0
    assert all(all(u.seconds is not None for u in t.units) and t.units for t in recording.realizations)


def test_old_realizations_give_way_and_are_counted():
    with ren.trace(max_realizations=3) as recording:
        for k in range(5):
            (Poly([1], RING) * (k + 2)).realize()
    assert len(recording.realizations) == 3 and recording.count == 5
    assert "the 2 oldest of 5 realizations" in recording.dropped and recording.dropped in str(recording)
    assert sum(t.calls for t in recording.totals) == 10  # five conversions, five products


def test_rewrites_beyond_the_limit_are_counted_only():
    with ren.trace() as whole:
        program().realize()
    clear_schedule_cache()
    with ren.trace(max_rewrites=4) as bounded:
        program().realize()
    (full,), (cut,) = whole.realizations, bounded.realizations
    assert [p.name for p in cut.passes] == NAMES and cut.program.schedule.graph is full.program.schedule.graph
    kept = sum(len(p.rewrites) for p in cut.passes)
    dropped = sum(p.dropped_rewrites for p in cut.passes)
    assert kept == 4 and kept + dropped == sum(len(p.rewrites) for p in full.passes)
    assert f"{dropped} rewrites (raise max_rewrites" in bounded.dropped
    assert [p.quiet for p in cut.passes] == [p.quiet for p in full.passes]
    assert [len(p.added) for p in cut.passes] == [len(p.added) for p in full.passes]


def test_room_for_rewrites_comes_back_with_realizations_that_give_way():
    with ren.trace(max_realizations=1, max_rewrites=60) as recording:
        for k in range(6):
            (program() * (k + 2)).realize()
    assert recording.dropped == "not kept: the 5 oldest of 6 realizations (raise max_realizations, now 1)"


@pytest.mark.parametrize("bounds", [{"max_realizations": 0}, {"max_rewrites": -1}, {"max_realizations": 2.5}], ids=str)
def test_bounds_are_checked(bounds):
    with pytest.raises(ValueError, match="at least 1"), ren.trace(**bounds):
        pass


def test_a_recording_draws_its_realizations():
    with ren.trace() as recording:
        for _ in range(3):
            p = Poly([1], RING) * 5
            p.realize()
        program().realize()
    data = json.loads(json.dumps(recording.to_dict()))
    assert len(data["realizations"]) == 4 and data["count"] == 4
    source = recording.to_graphviz().source
    assert "realizations 0 to 2" in source and "realization 3" in source


# failures


def failing_pass(graph, options):
    raise ArithmeticError("no luck")


def test_a_failing_pass_leaves_a_trace(monkeypatch):
    broken = Pass("inject_domains", prepare=failing_pass)
    monkeypatch.setattr(pipeline, "PIPELINE", (*pipeline.PIPELINE[:2], broken, *pipeline.PIPELINE[3:]))
    p = program()
    with ren.trace() as recording, pytest.raises(ArithmeticError):
        p.realize()
    (trace,) = recording.realizations
    assert [r.name for r in trace.passes] == NAMES[:2]
    assert (trace.error.stage, trace.error.number, trace.error.name) == ("pass", 3, "inject_domains")
    assert trace.error.kind == "ArithmeticError" and "no luck" in trace.error.message
    assert trace.error.graph is trace.passes[-1].after
    assert len(trace.schedule) == 0 and trace.kernels == () and trace.memory is None and trace.units == ()
    assert "in pass 3, inject_domains" in str(trace) and "no schedule" in str(trace.schedule)
    assert recording.failed == 1 and "digraph" in trace.to_graphviz().source and json.dumps(trace.to_dict())
    with pytest.raises(ArithmeticError) as raised:
        p.explain()
    assert [r.name for r in raised.value.trace.passes] == NAMES[:2] and raised.value.trace.error.number == 3


@pytest.mark.parametrize("error", [ArithmeticError("no luck"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_failing_unit_leaves_a_trace(monkeypatch, error):
    original, made = PythonBackend.compile, []

    def compile(self, ast):
        run = original(self, ast)
        made.append(run)
        if len(made) < 3:
            return run

        def fail(*storages):
            raise error

        return fail

    monkeypatch.setattr(PythonBackend, "compile", compile)
    p = program()
    with ren.trace() as recording, pytest.raises(type(error)):
        p.realize()
    (trace,) = recording.realizations
    assert (trace.error.stage, trace.error.kind) == ("unit", type(error).__name__)
    at = trace.error.number
    assert trace.error.name == trace.schedule[at].name
    assert [u.seconds is not None for u in trace.units] == [i < at for i in range(len(trace.units))]
    assert [p.name for p in trace.passes] == NAMES and trace.seconds.run > 0
    assert f"in item {at} of the schedule" in str(recording)
    clear_schedule_cache()


def test_what_fails_between_passes_and_run_is_told_from_the_exception_that_ends_the_block(monkeypatch):
    def refuse(self, ast):
        raise OSError("no compiler")

    monkeypatch.setattr(PythonBackend, "compile", refuse)
    with pytest.raises(OSError), ren.trace() as recording:
        program().realize()
    (trace,) = recording.realizations
    assert (trace.error.stage, trace.error.kind) == ("compile", "OSError") and [p.name for p in trace.passes] == NAMES


def test_a_realization_that_goes_silent_is_kept():
    recording = Recording()
    compile_sink(sink_of([program().node]), current(), recording)
    compile_sink(sink_of([(program() * 3).node]), current(), recording)
    recording.close()
    assert [t.error.stage for t in recording.realizations] == ["run", "run"] and recording.failed == 2
    recording(CompileStarted(A, Options(), False, {}))
    assert recording.count == 2, "a closed recording hears nothing"


def test_records_of_any_pipeline_become_a_trace():
    total, product = binary(Op.ADD, A, A), binary(Op.MUL, A, B)
    builder = TraceBuilder(CompileStarted(sink(total), Options(), False, {total: (("mine.py", 4),)}))
    builder(RuleFired("mine", "a + a -> a * b", total, product))
    builder(PassEnded(1, "my_pass", sink(total), sink(product), {total: product, sink(total): sink(product)}, 0.5))
    trace = builder.trace(running=False)
    (record,) = trace.passes
    assert record.changed == (product,) and record.steps[0] is sink(product) and trace.lines(product) == (("mine.py", 4),)
