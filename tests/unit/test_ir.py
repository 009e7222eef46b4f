"""Nodes, their text form, and the rewriter."""

import gc
import os
import pickle
import random
import sys
import threading
import time

import pytest

from ren_lab.events import RuleFired
from ren_lab.ir import (
    BufferId,
    Const,
    DType,
    Match,
    Node,
    Op,
    Random,
    RewriteBudgetExceeded,
    Slot,
    buffer,
    const,
    parse,
    rewrite,
    rule,
    substitute,
)
from ren_lab.options import Options
from ren_lab.ring import Domain, RingSpec
from ren_lab.schedule import PIPELINE, canonical, run_passes

RING = RingSpec(8, (17, 97))


def raw(label: str = "x") -> Node:
    return Node(Op.AS_RING, DType.U32, (buffer(BufferId(label, "python", (2, 8))),), (RING, Domain.COEFF))


def op(kind: Op, *src: Node, arg: object = None) -> Node:
    return Node(kind, DType.U32, src, arg)


def program() -> Node:
    x, y = raw("x"), raw("y")
    z = op(Op.ADD, op(Op.ROTATE, op(Op.MUL, x, y), arg=1), const(7, RING, Domain.NTT, "python"))
    small = op(Op.TO_RING, z, arg=RingSpec(8, (97,)))
    scaled = op(Op.RESCALE, z, arg=(17,))
    draw = op(Op.AS_RING, Node(Op.RANDOM, DType.U32, (), Random("r0", "python", "interval", (-3, 4))), arg=(RING, Domain.COEFF))
    wide = op(Op.TO_RING, op(Op.INTT, z), arg=RingSpec(8, (113, 193)))
    return Node(Op.SINK, DType.VOID, (z, small, scaled, op(Op.CONTIGUOUS, draw, arg=True), op(Op.COPY, wide, arg="python:1"), draw))


def test_equal_fields_are_one_object() -> None:
    assert op(Op.ADD, raw(), raw("y")) is op(Op.ADD, raw(), raw("y"))
    assert op(Op.ADD, raw(), raw("y")) is not op(Op.ADD, raw("y"), raw())


@pytest.mark.parametrize("a, b", [(1, True), (1, 1.0), ((1, 0), (True, 0)), ((2,), (2.0,))], ids=repr)
def test_arguments_of_different_types_make_different_nodes(a: object, b: object) -> None:
    assert a == b
    assert op(Op.ROTATE, raw(), arg=a) is not op(Op.ROTATE, raw(), arg=b)


def test_nodes_refuse_changes_and_pickling() -> None:
    node = raw()
    with pytest.raises(AttributeError, match="immutable"):
        node.arg = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="parse"):
        pickle.dumps(node)


def test_interning_is_safe_between_threads() -> None:
    found: list[list[Node]] = []
    start = threading.Barrier(4)

    def make() -> None:
        start.wait()
        node = raw("shared")
        nodes = []
        for i in range(500):
            node = op(Op.ROTATE, node, arg=i)
            nodes.append(node)
        found.append(nodes)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(a is b for nodes in found for a, b in zip(nodes, found[0], strict=True))


def test_the_table_forgets_nodes_and_long_chains_go_without_recursion() -> None:
    node = raw("chain")
    for i in range(100_000):
        node = op(Op.ROTATE, node, arg=i)
    assert len(node.toposort()) == 100_002
    del node
    gc.collect()
    from ren_lab.ir import node as module

    assert not any(key[0] is Op.ROTATE and key[3] == 99_999 for key in list(module._interned))


def test_domains_follow_from_the_operands() -> None:
    x, y = raw("x"), raw("y")
    assert op(Op.MUL, x, y).domain is Domain.NTT
    assert op(Op.MUL, x, const(3, RING, Domain.NTT, "python")).domain is Domain.COEFF
    assert op(Op.ADD, x, op(Op.NTT, y)).domain is Domain.NTT
    assert op(Op.TO_RING, op(Op.NTT, x), arg=RingSpec(8, (97,))).domain is Domain.NTT
    assert op(Op.TO_RING, op(Op.NTT, x), arg=RingSpec(8, (97, 113))).domain is Domain.COEFF
    with pytest.raises(TypeError, match="different rings"):
        op(Op.ADD, x, op(Op.TO_RING, y, arg=RingSpec(8, (97,))))


def test_every_stage_prints_text_that_reads_back_as_the_same_object() -> None:
    graph, _ = canonical(program())
    stages = [graph]
    for step in PIPELINE:
        facts = step.prepare(graph, Options()) if step.prepare else None
        graph, _ = rewrite(graph, step.rules, facts=facts, count_uses=step.count_uses, once=step.once)
        stages.append(graph)
    assert len(stages) == 13
    for stage in stages:
        assert parse(str(stage)) is stage


@pytest.mark.parametrize(
    "text, what",
    [
        ("%0 = NOTHING u32 ()", "NOTHING"),
        ("%0 = ADD u32 (%1, %2)", "line 1"),
        ("hello", "line 1"),
        ("%0 = BUFFER u32 () [open('x')]", "not an argument"),
        ("", "no node"),
    ],
    ids=repr,
)
def test_text_that_is_no_graph_is_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parse(text)


# the rewriter


@rule(Op.ROTATE)
def merge(node: Node, match: Match) -> Node | None:
    """rotate(rotate(a, j), k) -> rotate(a, j + k)"""
    a = node.src[0]
    return op(Op.ROTATE, a.src[0], arg=a.arg + node.arg) if a.op is Op.ROTATE else None


def test_rules_run_to_a_fixed_point_and_are_told_with_their_equations() -> None:
    node = raw()
    for k in (1, 2, 3, 4):
        node = op(Op.ROTATE, node, arg=k)
    told: list[RuleFired] = []
    after, mapping = rewrite(node, [merge], emit=told.append)
    assert after is op(Op.ROTATE, raw(), arg=10)
    assert [(t.rule, t.equation) for t in told] == [("merge", "rotate(rotate(a, j), k) -> rotate(a, j + k)")] * 3
    assert mapping[node] is after


def test_a_rule_needs_an_equation() -> None:
    with pytest.raises(ValueError, match="docstring"):
        rule(Op.ADD)(lambda node, match: None)


@rule(Op.NEG)
def there(node: Node, match: Match) -> Node | None:
    """-a -> a * -1"""
    return op(Op.CONJUGATE, node.src[0]) if node.op is Op.NEG else None


@rule(Op.CONJUGATE)
def back(node: Node, match: Match) -> Node | None:
    """a * -1 -> -a"""
    return op(Op.NEG, node.src[0])


@rule(Op.ROTATE)
def grow(node: Node, match: Match) -> Node | None:
    """rotate(a, k) -> rotate(a, k + 1)"""
    return op(Op.ROTATE, node.src[0], arg=node.arg + 1)


@rule(Op.NEG)
def wrap(node: Node, match: Match) -> Node | None:
    """-a -> -(-(-a))"""
    return op(Op.NEG, op(Op.NEG, node))


@pytest.mark.parametrize(
    "start, rules, names",
    [
        (op(Op.NEG, op(Op.NTT, raw())), [there, back], ["there", "back"]),
        (op(Op.ROTATE, raw(), arg=0), [grow], ["grow"]),
        (op(Op.NEG, raw()), [wrap], ["wrap"]),
    ],
    ids=["undo", "grow", "contain"],
)
def test_rules_that_do_not_come_to_rest_are_named(start: Node, rules: list, names: list[str]) -> None:
    with pytest.raises(RewriteBudgetExceeded) as error:
        rewrite(start, rules)
    for name in names:
        assert name in str(error.value)


@rule(Op.MUL)
def faulty(node: Node, match: Match) -> Node | None:
    """a * b -> trouble"""
    raise KeyError("trouble")


def test_a_crash_inside_a_rule_names_rule_and_node() -> None:
    with pytest.raises(KeyError) as error:
        rewrite(op(Op.MUL, raw("x"), raw("y")), [faulty])
    assert "faulty" in error.value.__notes__[0] and "MUL" in error.value.__notes__[0]


@rule(Op.INTT)
def into_constant(node: Node, match: Match) -> Node | None:
    """intt(ntt(b)) -> 3"""
    return const(3, RING, Domain.COEFF, "python") if node.src[0].op is Op.NTT else None


def test_a_source_that_turns_constant_does_not_move_its_users_to_another_domain() -> None:
    x, y = raw("x"), op(Op.NTT, raw("y"))
    product = op(Op.MUL, x, op(Op.INTT, y))  # in the NTT domain; x * 3 would be in coefficients
    assert product.domain is Domain.NTT
    after, _ = rewrite(op(Op.INTT, product), [into_constant])
    assert after.domain is Domain.COEFF
    swapped = substitute(product, {op(Op.INTT, y): const(3, RING, Domain.COEFF, "python")})
    assert swapped.domain is Domain.NTT and swapped.op is Op.NTT


def test_the_pipeline_leaves_no_concrete_buffer_in_a_kernel() -> None:
    graph, _ = canonical(program())
    final, becomes = run_passes(graph, Options(verify=True))
    kernels = [n for n in final.toposort() if n.op is Op.KERNEL]
    assert kernels and len(becomes) == len(graph.src)
    for kernel in kernels:
        slots = {n.arg for n in kernel.arg.ast.toposort() if n.op is Op.SLOT}
        assert {s.number for s in slots} == set(range(len(kernel.src)))
        assert all(isinstance(s, Slot) for s in slots)


def test_constants_of_indices_and_of_rings_do_not_meet() -> None:
    assert Node(Op.CONST, DType.INDEX, (), Const(3, "")) is not Node(Op.CONST, DType.U32, (), Const(3, ""))


def test_who_comes_second_with_a_node_leaves_that_of_the_first_in_the_table(monkeypatch):
    from ren_lab.ir import node as module

    ident, won = BufferId("raced", "python", (1, 8)), []
    typing = module._TYPING[Op.BUFFER]

    def racing(src, arg):
        if arg is ident and not won:  # as another thread would, between this one's look and its entry
            won.append(1)
            won.append(buffer(ident))
        return typing(src, arg)

    monkeypatch.setitem(module._TYPING, Op.BUFFER, racing)
    assert buffer(ident) is won[1]
    gc.collect()
    assert buffer(ident) is won[1]


def test_threads_that_make_and_drop_nodes_agree_on_them():
    wrong = []

    def work(seed):
        rng = random.Random(seed)
        for _ in range(3000):
            ident = BufferId(f"shared{rng.randrange(6)}", "python", (1, 8))
            a, b = buffer(ident), buffer(ident)
            if a is not b:
                wrong.append(ident)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_is_forked_while_another_thread_makes_nodes():
    stop = threading.Event()

    def work():
        i = 0
        while not stop.is_set():
            buffer(BufferId(f"busy{i % 50}", "python", (1, 8)))
            i += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                made = [buffer(BufferId(f"child{i}", "python", (1, 8))) for i in range(50)]
                del made
                os._exit(0)
            for _ in range(1000):
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    break
                time.sleep(0.01)
            else:
                os.kill(child, 9)
                os.waitpid(child, 0)
                pytest.fail("the child hangs")
            assert os.waitstatus_to_exitcode(status) == 0
    finally:
        stop.set()
        thread.join()
