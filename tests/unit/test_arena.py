"""Plans of particular programs: what is planned, how tightly, and how a plan reads."""

import importlib.util
import sys
from pathlib import Path

import pytest

from ren_lab.memory import BufferUse, MemoryPlan, PlannedBuffer, format_bytes, plan_arenas
from ren_lab.memory.placement import Span, meeting, place_at_two_ends

KIB = 1024


def load_shapes():
    """The programs of the benchmark, so that the figures it prints and the bound held here are about the same."""
    path = Path(__file__).parents[2] / "benchmarks" / "arena.py"
    spec = importlib.util.spec_from_file_location("benchmark_arena", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SHAPES


SHAPES = load_shapes()


def use(name, nbytes, first, last, reason=None, device="cpu"):
    return BufferUse(name, device, nbytes, first, last, reason)


@pytest.mark.parametrize("shape", SHAPES)
def test_ordinary_programs_stay_within_a_quarter_of_the_bound(shape):
    plan = plan_arenas(SHAPES[shape]())
    assert plan.lower_bound_bytes > 0 and plan.unplanned_bytes > plan.lower_bound_bytes
    assert plan.peak_bytes <= 1.25 * plan.lower_bound_bytes
    assert all(buffer.offset % 256 == 0 for buffer in plan.planned)


@pytest.mark.parametrize("n", [2, 4, 16, 64, 2**13], ids="n={}".format)
@pytest.mark.parametrize("limbs", [1, 3, 5, 8], ids="limbs={}".format)
def test_small_rings_are_not_padded_beyond_the_bound(n, limbs):
    sizes = [4 * n * count for count in (limbs, limbs + 1, limbs, 1, limbs)]
    uses = [use(f"b{i}", size, i, i + 2) for i, size in enumerate(sizes)]
    plan = plan_arenas(uses)
    assert plan.peak_bytes <= 1.25 * plan.lower_bound_bytes


@pytest.mark.parametrize(
    ("sizes", "alignment"),
    [
        ([256, 512], 256),
        ([16384, 8], 256),
        ([4096, 8], 128),
        ([192, 192], 64),
        ([48], 16),
        ([48, 8], 8),
        ([1, 1, 1], 8),
        ([1000], 256),
        ([1025], 32),
    ],
)
def test_the_alignment_follows_the_sizes(sizes, alignment):
    """The largest power of two up to 256 that adds at most 1/32 to the largest live set."""
    plan = plan_arenas([use(f"b{i}", size, 0, 0) for i, size in enumerate(sizes)])
    assert plan.alignments == {"cpu": alignment}


def test_an_explicit_alignment_is_a_ceiling():
    uses = [use("a", 4096, 0, 1), use("b", 100, 0, 1), use("c", 4096, 0, 1)]
    assert plan_arenas(uses, 16).alignments == {"cpu": 16}
    assert plan_arenas(uses, 1).peak_bytes == 4096 + 100 + 4096


@pytest.mark.parametrize("alignment", [0, 512, 48, -256, 2.0, True, None])
def test_alignments_that_are_none(alignment):
    with pytest.raises(ValueError, match="power of two from 1 to 256"):
        plan_arenas([], alignment)


def test_what_the_walk_packs_perfectly_is_left_to_it():
    equal = [use(f"b{i}", KIB, i, i + 3) for i in range(50)]
    plan = plan_arenas(equal)
    assert plan.strategies == {"cpu": "tlsf"} and plan.strategy == "tlsf"
    assert plan.peak_bytes == plan.lower_bound_bytes == 4 * KIB


def test_foresight_beats_the_walk_where_sizes_alternate():
    limbs = [8, 7, 8, 8, 7, 8, 8, 7, 7, 8, 8, 7, 8]
    plan = plan_arenas([use(f"b{i}", size * KIB, i, i + 1) for i, size in enumerate(limbs)])
    assert plan.strategy.startswith("two ends")
    assert plan.peak_bytes == 16 * KIB


def test_two_ends_leave_the_top_only_when_they_must():
    spans = [Span(64, 0, 1), Span(64, 1, 2), Span(32, 2, 3), Span(128, 2, 2)]
    assert place_at_two_ends(spans, meeting(spans), range(4), capacity=192) == [0, 128, 0, 192]


def test_a_range_that_ends_where_another_begins_meets_it():
    same, apart = (
        plan_arenas([use("a", KIB, 0, 1), use("b", KIB, 1, 2)]),
        plan_arenas([use("a", KIB, 0, 0), use("b", KIB, 1, 2)]),
    )
    assert same.peak_bytes == 2 * KIB and apart.peak_bytes == KIB


def test_devices_have_arenas_of_their_own():
    uses = [use("a", KIB, 0, 5), use("b", 2 * KIB, 0, 5, device="cuda"), use("c", KIB, 1, 2)]
    plan = plan_arenas(uses)
    assert plan.arenas == {"cpu": 2 * KIB, "cuda": 2 * KIB} and list(plan.arenas) == ["cpu", "cuda"]
    assert plan.peak_bytes == plan.lower_bound_bytes == 4 * KIB
    assert plan.by_name["a"].offset == plan.by_name["b"].offset == 0
    assert [b.name for b in plan.live_at(1)] == ["a", "b", "c"] and plan.peak_position == 1


def test_devices_that_peak_at_different_times_are_summed():
    plan = plan_arenas([use("a", 3 * KIB, 0, 0), use("b", 2 * KIB, 1, 1, device="cuda")])
    assert plan.peak_bytes == plan.lower_bound_bytes == 5 * KIB and plan.peak_position == 0


def test_what_has_a_reason_stays_out_and_keeps_it():
    reasons = ["final output", "already allocated", "copy", "view", "pinned"]
    uses = [use("t", KIB, 1, 2), *(use(reason, 9 * KIB, 0, 4, reason) for reason in reasons)]
    plan = plan_arenas(uses)
    assert {b.name: b.reason for b in plan.unplanned} == {reason: reason for reason in reasons}
    assert [b.name for b in plan.planned] == ["t"]
    assert plan.peak_bytes == plan.unplanned_bytes == KIB
    assert plan.live_at(1) == (plan.by_name["t"],) and len(plan.live_at(1, planned_only=False)) == 6
    assert plan.live_at(0) == () and len(plan.live_at(0, planned_only=False)) == 5


@pytest.mark.parametrize("uses", [[], [use("out", KIB, 0, 0, "final output")]], ids=["no buffers", "none planned"])
def test_nothing_to_plan(uses):
    plan = plan_arenas(uses)
    assert (plan.peak_bytes, plan.lower_bound_bytes, plan.unplanned_bytes, plan.overhead) == (0, 0, 0, 1.0)
    assert plan.arenas == {} and plan.peak_position is None and plan.strategy == "nothing to plan"
    assert f"none of {len(uses)} buffers planned" in str(plan)


def test_a_plan_with_one_position():
    plan = plan_arenas([use("a", KIB, 7, 7), use("b", KIB, 7, 7)])
    assert plan.peak_bytes == 2 * KIB and plan.peak_position == 7 and len(plan.live_at(7)) == 2


def test_names_are_unique():
    with pytest.raises(ValueError, match="two buffers are named 'a'"):
        plan_arenas([use("a", 8, 0, 1), use("a", 8, 2, 3, device="cuda")])


def placed(name, nbytes, first, last, offset, device="cpu"):
    return PlannedBuffer(name, device, nbytes, first, last, offset, None)


@pytest.mark.parametrize(
    "other",
    [placed("b", 8, 2, 5, 0), placed("b", 4, 0, 2, 2), placed("b", 64, 2, 2, 0), placed("b", 1, 1, 9, 7)],
    ids=["same start", "inside", "around", "last byte"],
)
def test_a_plan_that_overlaps_cannot_be_made(other):
    for buffers in ((placed("a", 8, 0, 2, 0), other), (other, placed("a", 8, 0, 2, 0))):
        with pytest.raises(ValueError, match="share bytes"):
            MemoryPlan(buffers)


@pytest.mark.parametrize(
    "other",
    [placed("b", 8, 3, 5, 0), placed("b", 8, 0, 2, 8), placed("b", 8, 0, 2, 0, "cuda")],
    ids=["later", "above", "elsewhere"],
)
def test_a_plan_that_only_touches_can_be_made(other):
    plan = MemoryPlan((placed("a", 8, 0, 2, 0), other))
    assert plan.unplanned_bytes == 16 and plan.peak_bytes in (8, 16)


def test_the_peak_may_lie_above_the_bound():
    plan = MemoryPlan((placed("a", 8, 0, 0, 8), placed("b", 8, 1, 1, 24)), {"cpu": "by hand"})
    assert (plan.peak_bytes, plan.lower_bound_bytes, plan.overhead, plan.peak_position) == (32, 8, 4.0, 1)
    assert "300 % above the lower bound 8 B" in str(plan)


def test_records_are_frozen_values():
    request, plan = use("a", 8, 0, 1), plan_arenas([use("a", 8, 0, 1)])
    with pytest.raises(AttributeError):
        request.nbytes = 9
    with pytest.raises(AttributeError):
        plan.buffers = ()
    with pytest.raises(TypeError):
        plan.arenas["cpu"] = 0


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"nbytes": 0}, ValueError, "nbytes of buffer 'a' is 0; it must be at least 1"),
        ({"nbytes": -4}, ValueError, "at least 1"),
        ({"nbytes": 4.0}, TypeError, "must be an int"),
        ({"nbytes": True}, TypeError, "must be an int"),
        ({"first": -1}, ValueError, "first of buffer 'a' is -1"),
        ({"first": 3}, ValueError, "last used at 2, before its first use at 3"),
        ({"last": None}, TypeError, "last of buffer 'a' is None"),
        ({"name": ""}, ValueError, "name of a buffer is empty"),
        ({"name": 3}, TypeError, "is a str"),
        ({"device": ""}, ValueError, "device of a buffer is empty"),
        ({"device": None}, TypeError, "is a str"),
        ({"reason": ""}, ValueError, "say why"),
        ({"reason": False}, TypeError, "is words or None"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_bad_requests_are_refused(wrong, error, message):
    good = {"name": "a", "device": "cpu", "nbytes": 8, "first": 0, "last": 2, "reason": None}
    with pytest.raises(error, match=message):
        BufferUse(**(good | wrong))


@pytest.mark.parametrize(("offset", "reason"), [(None, None), (0, "pinned"), (-8, None)])
def test_an_answer_has_an_offset_or_a_reason(offset, reason):
    with pytest.raises(ValueError, match="buffer 'a'"):
        PlannedBuffer("a", "cpu", 8, 0, 1, offset, reason)


def test_the_text_of_a_plan():
    uses = [
        use("x_ntt", 48 * KIB, 0, 2),
        use("y_ntt", 32 * KIB, 1, 2),
        use("scale", 1500, 1, 3),
        use("product", 48 * KIB, 2, 4, "final output"),
    ]
    plan = plan_arenas(uses)
    assert str(plan).splitlines() == [
        "memory plan: peak 81.5 KiB at position 1, the lower bound",
        "3 of 4 buffers planned, 81.5 KiB without reuse, packed by tlsf",
        "buffer   device    size  live  offset",
        "x_ntt    cpu     48 KiB  0..2  0 B",
        "y_ntt    cpu     32 KiB  1..2  48 KiB",
        "scale    cpu     1500 B  1..3  80 KiB",
        "product  cpu     48 KiB  2..4  not planned: final output",
    ]
    assert repr(plan) == ("MemoryPlan(3 of 4 buffers planned, peak 81.5 KiB, lower bound 81.5 KiB, strategy 'tlsf')")


def test_the_text_of_a_plan_names_each_arena():
    text = str(plan_arenas([use("a", KIB, 0, 1), use("b", 3 * KIB, 0, 1, device="cuda:1")]))
    assert "arenas: cpu 1 KiB, cuda:1 3 KiB" in text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1000, "1000 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1025, "1 KiB"),
        (10 * 1024 + 300, "10.3 KiB"),
        (100 * 1024, "100 KiB"),
        (1024**2 - 1, "1 MiB"),
        (3 * 1024**2 + 1024**2 // 4, "3.25 MiB"),
        (5 * 1024**3, "5 GiB"),
        (4096 * 1024**4, "4096 TiB"),
    ],
)
def test_sizes_read_well(nbytes, text):
    assert format_bytes(nbytes) == text
