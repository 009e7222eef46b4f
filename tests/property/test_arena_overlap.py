"""Random schedules: no two live buffers share a byte, checked pair by pair without any code of the planner."""

from itertools import combinations, pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ren_lab.memory import BufferUse, plan_arenas
from ren_lab.memory.placement import (
    Span,
    count_meeting,
    largest_live_bytes,
    meeting,
    place_at_two_ends,
    place_lowest,
    walk,
)

SIZES = st.one_of(
    st.integers(1, 40),
    st.integers(1, 24).map(lambda limbs: limbs * 4 * 2**12),
    st.integers(1, 10**6),
    st.just(2**14),
)
DEVICES = st.sampled_from(["python", "cpu", "cuda:1"])
REASONS = st.sampled_from([None, None, None, None, "final output", "pinned"])


@st.composite
def random_ranges(draw):
    horizon = draw(st.integers(1, 40))
    uses = []
    for index in range(draw(st.integers(0, 40))):
        first = draw(st.integers(0, horizon))
        last = first + draw(st.integers(0, horizon))
        uses.append(BufferUse(f"b{index}", draw(DEVICES), draw(SIZES), first, last, draw(REASONS)))
    return uses


@st.composite
def programs(draw):
    """Every position writes one buffer and reads some earlier ones: chains, trees and all between."""
    length = draw(st.integers(1, 60))
    reach = draw(st.integers(1, 12))
    last = list(range(length))
    for position in range(1, length):
        for back in draw(st.lists(st.integers(1, reach), max_size=3)):
            last[max(position - back, 0)] = position
    device, nbytes = draw(DEVICES), draw(st.one_of(st.none(), SIZES))
    return [BufferUse(f"b{i}", device, draw(SIZES) if nbytes is None else nbytes, i, last[i], draw(REASONS)) for i in range(length)]


SCHEDULES = st.one_of(random_ranges(), programs())


def positions_of(uses):
    return range(max((use.last for use in uses), default=0) + 1)


def live_bytes(uses, device, position):
    return sum(u.nbytes for u in uses if u.reason is None and u.device == device and u.first <= position <= u.last)


@settings(max_examples=250, deadline=None)
@given(uses=SCHEDULES, alignment=st.sampled_from([1, 16, 64, 256]))
@example(uses=[], alignment=256)
@example(uses=[BufferUse("only", "cpu", 1, 0, 0)], alignment=256)
@example(uses=[BufferUse("left out", "cpu", 8, 0, 9, "pinned")], alignment=256)
def test_two_live_buffers_never_share_a_byte(uses, alignment):
    plan = plan_arenas(uses, alignment)

    fields = ("name", "device", "nbytes", "first", "last", "reason")
    assert [[getattr(b, f) for f in fields] for b in plan.buffers] == [[getattr(u, f) for f in fields] for u in uses]
    assert all((buffer.offset is None) == (buffer.reason is not None) for buffer in plan.buffers)

    planned = [buffer for buffer in plan.buffers if buffer.offset is not None]
    for one, other in combinations(planned, 2):
        meet = one.device == other.device and max(one.first, other.first) <= min(one.last, other.last)
        apart = one.offset + one.nbytes <= other.offset or other.offset + other.nbytes <= one.offset
        assert apart or not meet, (one, other)

    devices = {buffer.device for buffer in planned}
    assert plan.arenas == {d: max(b.offset + b.nbytes for b in planned if b.device == d) for d in devices}
    assert plan.peak_bytes == sum(plan.arenas.values())
    assert plan.unplanned_bytes == sum(buffer.nbytes for buffer in planned)
    assert plan.lower_bound_bytes == sum(max(live_bytes(uses, d, p) for p in positions_of(uses)) for d in devices)
    assert plan.peak_bytes >= plan.lower_bound_bytes

    assert set(plan.alignments) == devices
    for buffer in planned:
        assert buffer.offset >= 0 and buffer.offset % plan.alignments[buffer.device] == 0
    assert all(alignment % step == 0 and step >= min(8, alignment) for step in plan.alignments.values())
    assert plan_arenas(uses, alignment) == plan


@settings(max_examples=100, deadline=None)
@given(uses=SCHEDULES)
def test_the_peak_position_is_where_the_arenas_reach_highest(uses):
    plan = plan_arenas(uses)

    def height(position):
        live = [b for b in plan.buffers if b.offset is not None and b.first <= position <= b.last]
        extents = [max(b.offset + b.nbytes for b in live if b.device == d) for d in {b.device for b in live}]
        return sum(extents), sum(b.nbytes for b in live)

    if not plan.arenas:
        assert plan.peak_position is None
        return
    heights = [height(position) for position in positions_of(uses)]
    assert plan.peak_position == heights.index(max(heights))


@settings(max_examples=150, deadline=None)
@given(
    triples=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20), st.integers(0, 8)), max_size=25),
    data=st.data(),
)
def test_every_placement_is_legal_in_every_order(triples, data):
    """Also where the planner would not choose it."""
    spans = [Span(16 * size, first, first + length) for size, first, length in triples]
    pairs = [
        (i, j)
        for i, j in combinations(range(len(spans)), 2)
        if max(spans[i].first, spans[j].first) <= min(spans[i].last, spans[j].last)
    ]
    meets = meeting(spans)
    assert count_meeting(spans) == len(pairs)
    assert sorted((i, j) for i, others in enumerate(meets) for j in others if i < j) == pairs
    assert all(len(set(others)) == len(others) and i not in others for i, others in enumerate(meets))
    bound = max((sum(s.size for s in spans if s.first <= p <= s.last) for p in range(30)), default=0)
    assert largest_live_bytes(spans) == bound

    order = data.draw(st.permutations(range(len(spans))), label="order")
    for offsets in (
        walk(spans, 16),
        place_lowest(spans, meets, order),
        place_at_two_ends(spans, meets, order, bound),
        place_at_two_ends(spans, meets, order, 16),
    ):
        assert all(offset >= 0 and offset % 16 == 0 for offset in offsets)
        for i, j in pairs:
            assert offsets[i] + spans[i].size <= offsets[j] or offsets[j] + spans[j].size <= offsets[i]


@settings(max_examples=100, deadline=None)
@given(limbs=st.lists(st.integers(1, 60), min_size=1, max_size=80))
def test_chains_of_any_sizes_are_packed_without_loss(limbs):
    uses = [BufferUse(f"b{i}", "cpu", 4096 * size, i, i + 1) for i, size in enumerate(limbs)]
    largest_pair = max([4096 * (a + b) for a, b in pairwise(limbs)], default=4096 * limbs[0])
    assert plan_arenas(uses).peak_bytes == largest_pair


@settings(max_examples=200, deadline=None)
@given(uses=programs())
def test_programs_over_one_ring_stay_within_a_quarter_of_the_bound(uses):
    """Sizes are whole residue polynomials of n = 2^12."""
    uses = [BufferUse(u.name, u.device, 2**14 * (1 + u.nbytes % 24), u.first, u.last, u.reason) for u in uses]
    plan = plan_arenas(uses)
    assert plan.peak_bytes <= 1.25 * plan.lower_bound_bytes
