"""Sums of products with lifted polynomials, as key switching has them: what is transformed, what is one kernel, and what comes out.

A lift takes the centred value modulo some primes to others. The oracle works on Python integers.
"""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import negacyclic_product as negacyclic
from schedules import transformed_limbs

import ren_lab as ren
from ren_lab.backends import backend, devices
from ren_lab.ir import Axis, DType, Node, Op, Slot
from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec, find_primes

N = 32
DEVICES = [pytest.param(d.name, marks=pytest.mark.device(d.name)) for d in devices() if d.name in ("python", "cpu")]


def ring(limbs: int, bits: int = 30) -> RingSpec:
    return RingSpec(N, find_primes(N, bits, limbs))


def centred(values: list[int], q: int) -> list[int]:
    return [v % q - q if v % q > q // 2 else v % q for v in values]


def lifts(a: Poly, whole: RingSpec, sizes: list[int]) -> tuple[list[Poly], list[list[int]]]:
    """Digits of a realized polynomial of NTT values, lifted to `whole`; and the integers that they stand for."""
    values, first, made, expected = a.tolist(), 0, [], []
    assert a.ring is not None
    for size in sizes:
        part = RingSpec(N, a.ring.moduli[first : first + size])
        made.append(a.to_ring(part).to_ring(whole))
        expected.append(centred(values, part.q))
        first += size
    return made, expected


def drawn(on: RingSpec, seed: int, device: str) -> tuple[Poly, list[int]]:
    values = [random.Random(f"{seed} {i}").randrange(on.q) for i in range(N)]
    return Poly(values, on, device).ntt().realize(), values


def total(terms: list[tuple[list[int], list[int]]], q: int) -> list[int]:
    products = [negacyclic(a, b, q) for a, b in terms]
    return [sum(column) % q for column in zip(*products)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "apart"])
@pytest.mark.parametrize(("bits", "sizes"), [(30, [2, 1, 2]), (31, [1, 1]), (20, [1] * 5), (30, [5])], ids=str)
def test_two_sums_over_the_same_digits(device: str, fuse: bool, bits: int, sizes: list[int]) -> None:
    narrow = ring(sum(sizes), bits)
    whole = RingSpec(N, (*narrow.moduli, *[p for p in find_primes(N, 29, 3) if p not in narrow.moduli]))
    a, _ = drawn(narrow, 1, device)
    keys = [drawn(whole, 2 + i, device) for i in range(2 * len(sizes))]
    digits, integers = lifts(a, whole, sizes)
    pairs = [keys[: len(sizes)], keys[len(sizes) :]]
    with ren.using(fuse_transforms=fuse):
        sums = []
        for chosen in pairs:
            products = [digit * key for digit, (key, _) in zip(digits, chosen)]
            sums.append(sum(products[1:], products[0]))
        sums[0].realize(sums[1])
    for result, chosen in zip(sums, pairs):
        assert result.tolist() == total([(d, values) for d, (_, values) in zip(integers, chosen)], whole.q)


def two_sums(device: str = "python") -> tuple[Poly, Poly]:
    narrow, whole = ring(4), ring(6)
    a, _ = drawn(narrow, 1, device)
    keys = [drawn(whole, 2 + i, device)[0] for i in range(4)]
    first, second = lifts(a, whole, [2, 2])[0]
    return first * keys[0] + second * keys[1], first * keys[2] + second * keys[3]


def test_they_are_one_kernel_with_two_outputs_and_two_transforms() -> None:
    b, a = two_sums()
    trace = b.explain(a)
    last = trace.schedule[-1]
    assert [buffer.label for buffer in last.outputs] == ["out0", "out1"]
    assert last.name == "ntt_join_dot_6x32" and not set(last.outputs) & set(last.inputs)
    assert [item.kind for item in trace.schedule] == ["intt", "convert", "intt", "convert", "ntt"]
    # a digit's own limbs are at hand: 2 of 6 are not transformed
    assert transformed_limbs(trace.schedule) == (2 + 4) + (2 + 4)
    rules = {r.rule for record in trace.passes for r in record.rewrites}
    assert {"transform_of_lift", "row_by_row", "one_kernel", "sum_of_products"} <= rules
    assert {buffer.name for buffer in trace.memory.buffers} >= {"out0", "out1"}
    with ren.using(fuse_transforms=False):
        apart = b.explain(a).schedule
    assert [item.kind for item in apart] == ["intt", "convert", "ntt", "intt", "convert", "ntt", "elementwise", "elementwise"]


def test_a_sum_that_waits_for_the_other_is_a_kernel_of_its_own() -> None:
    b, a = two_sums()
    waiting = a + b.contiguous()
    schedule = waiting.explain().schedule
    assert all(len(item.outputs) == 1 for item in schedule)
    assert waiting.tolist() == [(x + y) % b.ring.q for x, y in zip(*(p.tolist() for p in two_sums()))]


def test_groups_that_would_wait_for_one_another_stay_apart() -> None:
    """First and second share lifts, and so do third and fourth; the second waits for the fourth, the third for the first."""
    narrow, whole = ring(4), ring(6)
    a, _ = drawn(narrow, 1, "python")
    k = [drawn(whole, 2 + i, "python")[0] for i in range(4)]
    d, e = lifts(a, whole, [2, 2])[0]
    first, fourth = (d * k[0]).contiguous(), (e * k[3]).contiguous()
    second, third = d * k[1] + fourth, e * k[2] + first
    schedule = first.explain(second, third, fourth).schedule
    assert sum(len(item.outputs) == 2 for item in schedule) == 1
    first.realize(second, third, fourth)
    with ren.using(fuse_transforms=False):
        assert second.tolist() == (d * k[1] + e * k[3]).tolist()
        assert third.tolist() == (e * k[2] + d * k[0]).tolist()


def test_what_a_third_user_reads_has_a_buffer() -> None:
    narrow, whole = ring(4), ring(6)
    a, _ = drawn(narrow, 1, "python")
    k = drawn(whole, 2, "python")[0]
    digit = lifts(a, whole, [4])[0][0]
    outputs = [(digit * k.rotate(i)) for i in range(3)]
    items = outputs[0].explain(*outputs[1:]).schedule
    assert "ntt_2x32" in [item.name for item in items]
    assert [item.name for item in (digit * k).explain(digit.ntt()).schedule][2:] == ["ntt_join_6x32", "mul_6x32"]  # also an output
    assert "ntt_2x32" in [item.name for item in (digit * k).rotate(1).explain().schedule]  # not row by row


def test_products_that_others_use_are_not_drawn_into_a_sum() -> None:
    whole = ring(2)
    a, b, c, d = (drawn(whole, i, "python")[0] for i in range(4))
    names = lambda p: [item.name for item in p.explain().schedule]  # noqa: E731
    assert names(a * b + c * d + a * d) == ["dot_2x32"]
    assert names(a * b + c * d - b) == ["dot_sub_2x32"]
    shared = a * b
    assert names((shared + c * d) * shared) == ["mul_add_2x32"]
    assert names(a * b + c * 3) == ["mul_add_2x32"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [2, 4, 5, 16, 17, 40])
@pytest.mark.parametrize("bits", [20, 29, 30, 31])
def test_the_largest_residues_do_not_overflow_a_sum(device: str, bits: int, count: int) -> None:
    on = ring(2, bits)
    minus_one = Poly([-1] * N, on, device).ntt().realize()
    others = [Poly([-1 - i] + [-1] * (N - 1), on, device).ntt().realize() for i in range(count)]
    summed = sum((minus_one * other for other in others[1:]), minus_one * others[0])
    every = [negacyclic([-1] * N, [-1 - i] + [-1] * (N - 1), on.q) for i in range(count)]
    assert summed.tolist() == [sum(column) % on.q for column in zip(*every)]


def test_pruning_keeps_a_transform_of_what_does_not_change_out_of_the_replay() -> None:
    narrow, whole = ring(2), ring(4)
    a, _ = drawn(narrow, 1, "python")
    x, _ = drawn(whole, 2, "python")
    digit = a.to_ring(whole)
    pruned = ren.jit(lambda y: digit * y, prune=True)
    assert pruned(x).tolist() == (digit * x).tolist()
    (plan,) = pruned.plans
    assert [kernel.kind for kernel in plan.kernels] == ["elementwise"]
    assert not any(n.op is Op.NTT for kernel in plan.kernels for n in kernel.ast.toposort())


@settings(max_examples=20)
@given(st.data())
def test_random_programs_with_lifts_are_alike_on_every_device_and_option(data: st.DataObject) -> None:
    bits = data.draw(st.sampled_from([20, 30, 31]))
    narrow = ring(4, bits)
    whole = RingSpec(N, (*narrow.moduli, *[p for p in find_primes(N, 29, 2) if p not in narrow.moduli]))
    seed = data.draw(st.integers(0, 3))
    choices = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 4)), min_size=2, max_size=8))
    back = data.draw(st.booleans())

    def outputs(device: str) -> list[bytes]:
        a, b = (drawn(narrow, seed + i, device)[0] for i in range(2))
        keys = [drawn(whole, 10 + i, device)[0] for i in range(3)]
        lifted = [p.to_ring(RingSpec(N, narrow.moduli[i : i + 2])).to_ring(whole) for p in (a, b, a * b) for i in (0, 2)]
        made: list[Poly] = []
        for which, key, how in choices:
            term = lifted[which] * keys[key]
            if how == 0 or not made:
                made.append(term)
            elif how == 1:
                made[-1] = made[-1] + term
            elif how == 2:
                made[-1] = made[-1] - term
            elif how == 3:
                made.append(made[-1] * keys[key] + term.rotate(1))
            else:
                made.append((made[-1].rescale(whole.moduli[-1])).to_ring(whole) + term)
        if back:
            made[-1] = made[-1].intt()
        made[0].realize(*made[1:])
        return [p.tobytes() for p in made]

    with ren.using(fuse_transforms=False):
        expected = outputs("python")
    assert outputs("python") == expected
    for device in devices():
        if device.name == "cpu" and device.available:
            assert outputs("cpu") == expected


@pytest.mark.parametrize("same", [False, True], ids=["a part", "the same"])
@pytest.mark.parametrize("device", DEVICES)
def test_an_output_may_be_a_part_of_the_other_ones_expression(device: str, same: bool) -> None:
    """Rules find that out only after both have been given to one kernel."""
    on = ring(2)

    def at(slot: int) -> Node:
        axes = (Node(Op.GIDX, DType.INDEX, (), Axis("limb", 2)), Node(Op.GIDX, DType.INDEX, (), Axis("coefficient", N)))
        return Node(Op.INDEX, DType.INDEX, (Node(Op.SLOT, DType.U32, (), Slot(slot, (2, N))), *axes))

    loads = [Node(Op.AS_RING, DType.U32, (Node(Op.LOAD, DType.U32, (at(i),)),), (on, Domain.NTT)) for i in (2, 3)]
    first = Node(Op.SUB, DType.U32, tuple(loads))
    second = first if same else Node(Op.ADD, DType.U32, (Node(Op.NEG, DType.U32, (first,)), loads[0]))
    stores = [Node(Op.STORE, DType.VOID, (at(i), value)) for i, value in enumerate((first, second))]
    drawn = np.random.default_rng(0)
    x, y = (np.array([drawn.integers(0, p, N) for p in on.moduli], np.uint32) for _ in range(2))
    outputs = [np.zeros((2, N), np.uint32) for _ in range(2)]
    backend(device).compile(Node(Op.GROUP, DType.VOID, tuple(stores)))(*outputs, x, y)
    p = np.array(on.moduli)[:, None]
    assert np.array_equal(outputs[0], (x.astype(int) - y) % p)
    assert np.array_equal(outputs[1], outputs[0] if same else y)
