"""Each pass on small graphs: what comes out, and which rules fired."""

from collections import Counter
from collections.abc import Callable

import pytest
from schedules import transformed_limbs

from ren_lab.events import RuleFired
from ren_lab.ir import BufferId, DType, KernelSpec, Node, Op, buffer, const, rewrite
from ren_lab.options import Options
from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec
from ren_lab.schedule import PIPELINE, Invariant, VerificationError, canonical, schedule, verify
from ren_lab.schedule.decide_boundaries import boundaries
from ren_lab.schedule.inject_domains import operands_in_domain

RING = RingSpec(8, (17, 97, 113))
SUB = RingSpec(8, (97, 113))


def x(label: str = "x", domain: Domain = Domain.COEFF, ring: RingSpec = RING) -> Node:
    return Node(Op.AS_RING, DType.U32, (buffer(BufferId(label, "python", (ring.limbs, ring.n))),), (ring, domain))


def f(label: str = "x") -> Node:
    return x(label, Domain.NTT)


def op(kind: Op, *src: Node, arg: object = None) -> Node:
    return Node(kind, DType.U32, src, arg)


def c(value: int, domain: Domain = Domain.COEFF) -> Node:
    return const(value, RING, domain, "python")


def run(name: str, *outputs: Node) -> tuple[tuple[Node, ...], Counter[str]]:
    """One pass over the outputs; returns what they became and how often each rule fired."""
    step = next(s for s in PIPELINE if s.name == name)
    sink = Node(Op.SINK, DType.VOID, outputs)
    fired: list[RuleFired] = []
    facts = step.prepare(sink, Options()) if step.prepare else None
    after, _ = rewrite(sink, step.rules, facts=facts, count_uses=step.count_uses, once=step.once, emit=fired.append)
    return after.src, Counter(r.rule for r in fired)


add, sub, mul, neg = (lambda *s, k=k: op(k, *s) for k in (Op.ADD, Op.SUB, Op.MUL, Op.NEG))


@pytest.mark.parametrize(
    "before, after",
    [
        (add(x(), c(0)), x()),
        (add(c(0), x()), x()),
        (mul(x(), c(1)), x()),
        (mul(c(-1), x()), neg(x())),
        (mul(x(), c(0)), c(0)),
        (sub(x(), x()), c(0)),
        (sub(x(), c(3)), add(x(), c(-3))),
        (sub(c(3), x()), add(neg(x()), c(3))),
        (neg(neg(x())), x()),
        (neg(sub(x("a"), x("b"))), sub(x("b"), x("a"))),
        (add(x("a"), neg(x("b"))), sub(x("a"), x("b"))),
        (sub(x("a"), neg(x("b"))), add(x("a"), x("b"))),
        (add(add(x(), c(3)), c(4)), add(x(), c(7))),
        (mul(mul(x(), c(3)), c(4)), mul(x(), c(12))),
        (mul(neg(x()), c(4)), mul(x(), c(-4))),
        (add(x(), x()), mul(x(), c(2))),
        (add(mul(x(), c(3)), x()), mul(x(), c(4))),
        (sub(mul(x(), c(3)), mul(x(), c(5))), mul(x(), c(-2))),
        (mul(neg(f("a")), neg(f("b"))), mul(f("a"), f("b"))),
        (add(c(3), c(4)), c(7)),
        (op(Op.NTT, c(5)), c(5, Domain.NTT)),
        (op(Op.ROTATE, op(Op.ROTATE, f(), arg=1), arg=2), op(Op.ROTATE, f(), arg=3)),
        (op(Op.ROTATE, op(Op.ROTATE, f(), arg=1), arg=3), f()),
        (op(Op.ROTATE, x(), arg=4), op(Op.NTT, x())),
        (op(Op.CONJUGATE, op(Op.CONJUGATE, f())), f()),
        (op(Op.TO_RING, c(-1), arg=RingSpec(8, (193,))), const(-1, RingSpec(8, (193,)), Domain.COEFF, "python")),
        (op(Op.TO_RING, op(Op.TO_RING, x(), arg=SUB), arg=RingSpec(8, (113,))), op(Op.TO_RING, x(), arg=RingSpec(8, (113,)))),
        (op(Op.COPY, op(Op.COPY, x(), arg="python:1"), arg="python"), x()),
        (op(Op.COPY, c(3), arg="python:1"), const(3, RING, Domain.COEFF, "python:1")),
        (op(Op.CONTIGUOUS, x(), arg=False), x()),
        (op(Op.CONTIGUOUS, x(), arg=True), op(Op.CONTIGUOUS, x(), arg=True)),
        (op(Op.RESCALE, c(226), arg=(113,)), const(2, RingSpec(8, (17, 97)), Domain.COEFF, "python")),
    ],
    ids=lambda n: repr(n) if not isinstance(n, Node) else n.op.name,
)
def test_simplify(before: Node, after: Node) -> None:
    (got,), _ = run("simplify", before)
    assert got is after
    (again,), fired = run("simplify", got)
    assert again is got and not fired


def test_limbs_that_nobody_asks_for_are_not_computed() -> None:
    product = mul(f("a"), f("b"))
    (got,), fired = run("simplify", op(Op.TO_RING, product, arg=SUB))
    assert got is mul(op(Op.TO_RING, f("a"), arg=SUB), op(Op.TO_RING, f("b"), arg=SUB)) and fired["select_early"] == 1
    both, fired = run("simplify", op(Op.TO_RING, product, arg=SUB), product)
    assert both == (op(Op.TO_RING, product, arg=SUB), product) and not fired


def test_rotations_become_automorphisms() -> None:
    got, fired = run("lower_ring_ops", op(Op.ROTATE, f(), arg=-1), op(Op.CONJUGATE, op(Op.ROTATE, f(), arg=1)))
    assert got[0] is op(Op.AUTOMORPHISM, f(), arg=pow(5, -1, 16))
    assert got[1] is op(Op.AUTOMORPHISM, f(), arg=5 * 15 % 16)
    assert fired == {"rotation": 2, "conjugation": 1, "automorphisms_compose": 1}


def test_operands_come_into_the_domain_they_are_needed_in() -> None:
    wide = RingSpec(8, (193,))
    got, fired = run(
        "inject_domains", mul(x("a"), f("b")), add(x("a"), f("b")), add(x(), c(1)), mul(x(), c(3)),
        op(Op.AUTOMORPHISM, x(), arg=5), op(Op.TO_RING, f(), arg=wide), op(Op.TO_RING, f(), arg=SUB),
    )  # fmt: skip
    ntt = op(Op.NTT, x("a"))
    assert got[:4] == (mul(ntt, f("b")), add(ntt, f("b")), add(x(), c(1)), mul(x(), c(3)))
    assert got[4:] == (
        op(Op.AUTOMORPHISM, op(Op.NTT, x()), arg=5),
        op(Op.TO_RING, op(Op.INTT, f()), arg=wide),
        op(Op.TO_RING, f(), arg=SUB),
    )
    assert fired == {"product_in_ntt": 1, "sum_in_one_domain": 1, "automorphism_in_ntt": 1, "conversion_of_coefficients": 1}


def transforms(*outputs: Node) -> int:
    """Limbs transformed by a schedule."""
    sink = Node(Op.SINK, DType.VOID, outputs)
    return transformed_limbs(schedule(canonical(sink)[0], Options(verify=True)).items)


def test_rescaling_in_the_ntt_domain_transforms_back_only_what_it_drops() -> None:
    scaled = op(Op.RESCALE, mul(f("a"), f("b")), arg=(113,))
    assert scaled.domain is Domain.NTT
    assert transforms(scaled) == 1 + 2
    assert transforms(op(Op.INTT, scaled)) == 3  # its only user wants coefficients: one transform of all three limbs
    assert transforms(scaled, op(Op.INTT, scaled)) == 1 + 2 + 2


@pytest.mark.parametrize(
    "before, after",
    [
        (op(Op.INTT, op(Op.NTT, x())), x()),
        (op(Op.NTT, op(Op.INTT, f())), f()),
        (op(Op.NTT, add(op(Op.INTT, f("a")), op(Op.INTT, f("b")))), add(f("a"), f("b"))),
        (op(Op.NTT, add(op(Op.INTT, f("a")), x("b"))), add(f("a"), op(Op.NTT, x("b")))),
        (op(Op.NTT, add(op(Op.INTT, f("a")), c(5))), add(f("a"), c(5, Domain.NTT))),
        (op(Op.NTT, mul(op(Op.INTT, f("a")), c(5))), mul(f("a"), c(5, Domain.NTT))),
        (op(Op.NTT, neg(op(Op.INTT, f("a")))), neg(f("a"))),
        (sub(op(Op.INTT, f("a")), op(Op.INTT, f("b"))), op(Op.INTT, sub(f("a"), f("b")))),
    ],
    ids=lambda n: n.op.name,
)
def test_transforms_cancel_and_move_where_that_saves_some(before: Node, after: Node) -> None:
    (got,), fired = run("simplify_domains", before)
    assert got is after and fired


def test_a_transform_serves_every_selection_of_its_limbs() -> None:
    whole, part = op(Op.NTT, x()), op(Op.NTT, op(Op.TO_RING, x(), arg=SUB))
    got, fired = run("simplify_domains", whole, part)
    assert got == (whole, op(Op.TO_RING, whole, arg=SUB)) and fired == {"transform_of_selection": 1}
    alone, fired = run("simplify_domains", part)
    assert alone == (part,) and not fired
    assert transforms(mul(x(), f("b")), op(Op.NTT, op(Op.TO_RING, x(), arg=SUB))) == 3


def test_a_linear_combination_of_transformed_values_needs_no_transform() -> None:
    a, b = x("a"), x("b")
    both = (op(Op.NTT, a), op(Op.NTT, b))
    total = op(Op.NTT, sub(add(mul(a, c(8)), b), neg(a)))
    got, _ = run("simplify_domains", *both, total)
    assert got[:2] == both
    assert got[2] is sub(add(mul(both[0], c(8, Domain.NTT)), both[1]), neg(both[0]))
    assert transforms(*both, total) == 6 and transforms(both[0], total) == 6  # b's alone is no gain
    kept, fired = run("simplify_domains", both[0], op(Op.NTT, add(b, x("d"))))
    assert kept[1].op is Op.NTT and not fired


def test_transforms_stay_where_moving_them_saves_nothing() -> None:
    shared = op(Op.INTT, f("a"))
    outputs = (op(Op.NTT, add(shared, x("b"))), shared)
    got, fired = run("simplify_domains", *outputs)
    assert got == outputs and not fired


def reasons(*outputs: Node, options: Options | None = None) -> dict[Node, str]:
    sink = Node(Op.SINK, DType.VOID, outputs)
    return {node: b.reason for node, b in boundaries(sink, options or Options()).items()}


def test_buffers_are_decided_by_kind() -> None:
    wide = RingSpec(8, (193,))
    ntt, lift, raw = op(Op.NTT, x()), op(Op.TO_RING, x(), arg=wide), op(Op.COPY, neg(x()), arg="python:1")
    total = add(f("a"), f("b"))
    got = reasons(add(ntt, total), lift, raw, op(Op.CONTIGUOUS, x("k"), arg=True), c(3), x("held"))
    assert got == {
        add(ntt, total): "output", ntt: "transform", lift: "conversion", raw: "copy", neg(x()): "copied",
        op(Op.CONTIGUOUS, x("k"), arg=True): "pinned",
    }  # fmt: skip


@pytest.mark.parametrize("users", [2, 5])
def test_a_shared_value_is_stored_where_recomputing_costs_more(users: int) -> None:
    cheap, dear = add(f("a"), c(1, Domain.NTT)), mul(add(f("a"), f("b")), add(f("d"), f("e")))
    outputs = [op(Op.INTT, add(v, f(f"u{i}"))) for v in (cheap, dear) for i in range(users)]
    got = reasons(*outputs)
    assert got.get(dear) == f"shared by {users} kernels"
    assert cheap not in got


def test_views_of_a_value_need_its_buffer_only() -> None:
    product = mul(f("a"), f("b"))
    view = op(Op.TO_RING, product, arg=SUB)
    assert reasons(view, product) == {product: "output"}
    assert reasons(view) == {product: "base of a view"}


def test_wide_expressions_are_cut() -> None:
    total = f("t")
    for i in range(200):
        total = add(total, f(f"x{i}"))
    items = schedule(canonical(Node(Op.SINK, DType.VOID, (total,)))[0], Options(max_kernel_loads=8, verify=True)).items
    assert max(len(i.inputs) for i in items) == 8 and len(items) == -(-200 // 7)


def kernels(*polys: Poly) -> list[str]:
    sink = Node(Op.SINK, DType.VOID, tuple(p.node for p in polys))
    return [i.name for i in schedule(canonical(sink)[0], Options(verify=True)).items]


def test_elementwise_chains_are_one_kernel() -> None:
    a, b = (Poly([i], RING).ntt().realize() for i in (1, 2))
    assert kernels((a * b + a) * 3 - b) == ["mul_add_sub_3x8"]
    assert kernels((a * b).rotate(1) + a.to_ring(RING)) == ["permute_mul_add_3x8"]
    assert kernels(a.to_ring(SUB) * b.to_ring(SUB)) == ["mul_2x8"]
    assert kernels(a.to_ring(SUB)) == ["view_2x8"]
    assert kernels(a.to_ring(RingSpec(8, (113, 17)))) == ["permute_2x8"]
    assert kernels(a.intt().rescale(17)) == ["intt_3x8", "convert_sub_mul_2x8"]
    assert kernels(a.rescale(17)) == ["intt_1x8", "convert_2x8", "ntt_sub_mul_2x8"]


def test_equal_kernels_have_one_body() -> None:
    a, b, d = (Poly([i], RING).realize() for i in (1, 2, 3))
    sink = Node(Op.SINK, DType.VOID, tuple(p.ntt().node for p in (a, b, d)))
    items = schedule(canonical(sink)[0], Options()).items
    assert len(items) == 3 and len({i.ast for i in items}) == 1
    assert all(isinstance(i.node.arg, KernelSpec) for i in items)


def test_the_verifier_names_what_is_broken() -> None:
    wrong = op(Op.NTT, f())
    with pytest.raises(VerificationError, match="inject_domains.*NTT has its operand outside the coefficient domain"):
        verify(wrong, [operands_in_domain], "inject_domains")
    never: Callable[[Node], str | None] = lambda node: "it is here"  # noqa: E731
    with pytest.raises(VerificationError, match="nothing at all"):
        verify(x(), [Invariant("nothing at all", never)], "a pass")


def test_every_rule_has_an_equation_and_every_pass_its_name() -> None:
    assert [step.name for step in PIPELINE] == [
        "simplify", "lower_ring_ops", "inject_domains", "simplify_domains", "decide_boundaries", "lower_bufferize",
        "build_becomes_map", "lower_automorphisms", "lower_constants", "make_buffer_views", "indexify", "kernelize",
    ]  # fmt: skip
    for step in PIPELINE:
        for r in step.rules:
            assert "->" in r.equation, r.name


def test_the_structure_of_a_graph_does_not_depend_on_its_buffers() -> None:
    def build(*labels: str) -> Node:
        a, b = x(labels[0]), x(labels[1])
        return canonical(Node(Op.SINK, DType.VOID, (mul(a, b), add(b, a))))[0]

    assert build("p", "q") is build("r", "s")
    assert build("p", "q") is not build("p", "p")
