"""The memory plan as data and as a plot, checked position by position."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure

from ren_lab.engine.units import plan_memory
from ren_lab.ir import BufferId, DType, Node, Op, buffer
from ren_lab.lens import theme
from ren_lab.lens.memory_plot import memory_dict, plot_memory
from ren_lab.memory import BufferUse, MemoryPlan, PlannedBuffer, plan_arenas
from ren_lab.options import Options
from ren_lab.ring import Domain, RingSpec, find_primes
from ren_lab.schedule import schedule

REASONS = (None, None, None, "final output", "already allocated", "pinned")


@st.composite
def plans(draw, devices=("python", "cuda")):
    uses = []
    for i in range(draw(st.integers(0, 25))):
        first = draw(st.integers(0, 20))
        uses.append(
            BufferUse(f"t{i}", draw(st.sampled_from(devices)), draw(st.integers(1, 5000)), first, first + draw(st.integers(0, 6)),
                      draw(st.sampled_from(REASONS)))
        )  # fmt: skip
    return plan_arenas(uses)


def random_plan(count, seed=0, devices=("python",), positions=60):
    rnd = random.Random(seed)
    uses = []
    for i in range(count):
        first = rnd.randrange(positions)
        size, last = rnd.randrange(1, 40) * 1000, first + rnd.randrange(1, 12)
        uses.append(BufferUse(f"t{i}", rnd.choice(devices), size, first, last, rnd.choice(REASONS)))
    return plan_arenas(uses)


def compiled():
    ring = RingSpec(4096, find_primes(4096, 30, 3))
    inputs = [
        Node(Op.AS_RING, DType.U32, (buffer(BufferId(f"x{i}", "python", (3, 4096))),), (ring, Domain.COEFF)) for i in range(4)
    ]
    here = inputs[0]
    for i in range(6):
        product = Node(Op.MUL, DType.U32, (here, inputs[i % 4]))
        here = Node(Op.ADD, DType.U32, (Node(Op.INTT, DType.U32, (product,)), inputs[(i + 1) % 4]))
    made = schedule(Node(Op.SINK, DType.VOID, (here, product)), Options())
    return plan_memory(made), made


@given(plans())
def test_the_data_agree_with_the_plan_position_by_position(plan):
    data = memory_dict(plan)
    assert json.loads(json.dumps(data)) == data
    rows = {row["name"]: row for row in data["rectangles"]}
    assert set(rows) == {b.name for b in plan.buffers if b.offset is not None}
    for b in plan.buffers:
        if b.offset is not None:
            row = rows[b.name]
            assert (row["device"], row["first"], row["last"], row["offset"], row["nbytes"]) == (
                b.device,
                b.first,
                b.last,
                b.offset,
                b.nbytes,
            )
    assert [(r["name"], r["reason"]) for r in data["unplanned"]] == [(b.name, b.reason) for b in plan.buffers if b.offset is None]
    assert data["outside_bytes"] == sum(b.nbytes for b in plan.buffers if b.offset is None)
    planned = [b for b in plan.buffers if b.offset is not None]
    assert data["positions"] == max((b.last + 1 for b in plan.buffers), default=0)
    for position in range(data["positions"]):
        live = [b for b in planned if b.first <= position <= b.last]
        assert data["running_total"][position] == sum(b.nbytes for b in live)
        for device in data["devices"]:
            here = [b for b in live if b.device == device["device"]]
            assert device["live_bytes"][position] == sum(b.nbytes for b in here)
            assert device["extent_bytes"][position] == max((b.offset + b.nbytes for b in here), default=0)
    for device in data["devices"]:
        here = [b for b in planned if b.device == device["device"]]
        top, at = device["arena_bytes"], device["position"]
        assert top == max(b.offset + b.nbytes for b in here) == device["extent_bytes"][at]
        assert device["lower_bound_bytes"] == max(device["live_bytes"])
        assert set(device["live"]) == {b.name for b in here if b.first <= at <= b.last}
        sizes = [rows[name]["nbytes"] for name in device["live"]]
        assert sizes == sorted(sizes, reverse=True)


@given(plans())
def test_the_peak_and_its_fragmentation(plan):
    data = memory_dict(plan)
    peak = data["peak"]
    assert peak["bytes"] == sum(device["arena_bytes"] for device in data["devices"])
    if peak["position"] is None:
        assert not data["rectangles"] and data["fragmentation"] == 0 and peak["live"] == []
        return
    assert {b["name"] for b in peak["live"]} == {r["name"] for r in data["rectangles"] if r["at_peak"]}
    extent = sum(device["extent_bytes"][peak["position"]] for device in data["devices"])
    assert data["wasted_bytes"] == extent - sum(b["nbytes"] for b in peak["live"])
    assert data["fragmentation"] == pytest.approx(data["wasted_bytes"] / extent)
    assert 0 <= data["fragmentation"] < 1


def test_the_title_is_the_finding():
    two = (PlannedBuffer("a", "python", 1024, 0, 1, 0, None), PlannedBuffer("b", "python", 1024, 1, 2, 3072, None))
    data = memory_dict(MemoryPlan(two))
    assert data["title"] == "Peak 4 KiB at kernel 1, 100 % above the lower bound"
    assert data["wasted_bytes"] == 2048 and data["fragmentation"] == 0.5
    assert (
        memory_dict(plan_arenas([BufferUse("a", "python", 1024, 0, 0)]))["title"]
        == "Peak 1 KiB at kernel 0, which is the lower bound"
    )
    assert memory_dict(MemoryPlan(()))["title"].startswith("Nothing to plan")
    assert memory_dict(plan_arenas([BufferUse("a", "python", 8, 0, 0, "pinned")]))["title"].startswith("Nothing planned: 1 buffer")
    plan, made = compiled()
    assert f"kernel {plan.peak_position} ({made.items[plan.peak_position].name})" in memory_dict(plan, made)["title"]


def test_buffers_have_the_domain_that_the_schedule_gives_them():
    plan, made = compiled()
    data = memory_dict(plan, made)
    rows = {row["name"]: row for row in data["rectangles"] + data["unplanned"]}
    assert {rows[item.outputs[0].label]["domain"] for item in made.items if item.kind == "ntt"} == {"NTT"}
    assert {rows[item.outputs[0].label]["domain"] for item in made.items if item.kind == "intt"} <= {"COEFF"}
    assert {row["domain"] for row in memory_dict(plan)["rectangles"]} == {None}


# the plot


def boxes(axes):
    """Extents of all filled rectangles: (x0, y0, x1, y1), each once."""
    found = set()
    for collection in axes.collections:
        if isinstance(collection, PatchCollection) and collection.get_facecolor().size and collection.get_facecolor()[0][3]:
            for path in collection.get_paths():
                found.add(tuple(round(v, 6) for v in path.get_extents().extents))
    return found


@pytest.mark.parametrize("look", ["light", "dark"])
def test_there_is_one_rectangle_per_buffer(look):
    plan = random_plan(60, devices=("python", "cuda"))
    figure = plot_memory(plan, theme=look)
    assert isinstance(figure, Figure)
    *arenas, outside = figure.axes
    for axes, device in zip(arenas, plan.arenas, strict=True):
        assert boxes(axes) == {
            (b.first - 0.5, b.offset, b.last + 0.5, b.offset + b.nbytes) for b in plan.planned if b.device == device
        }
    assert len(boxes(outside)) == len(plan.unplanned)
    assert sorted((x0, x1, y1 - y0) for x0, y0, x1, y1 in boxes(outside)) == sorted(
        (b.first - 0.5, b.last + 0.5, b.nbytes) for b in plan.unplanned
    )


def test_buffers_outside_do_not_overlap():
    plan = random_plan(200, seed=3)
    drawn = sorted(boxes(plot_memory(plan).axes[-1]))
    assert len(drawn) == len(plan.unplanned)
    for i, (ax0, ay0, ax1, ay1) in enumerate(drawn):
        for bx0, by0, bx1, by1 in drawn[i + 1 :]:
            assert ax1 <= bx0 or bx1 <= ax0 or ay1 <= by0 or by1 <= ay0


def test_positions_are_shared_by_all_axes():
    figure = plot_memory(random_plan(40, devices=("python", "cuda")))
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    left, right = (
        {round(edge, 9) for edge in edges} for edges in zip(*((a.get_position().x0, a.get_position().x1) for a in figure.axes))
    )
    assert len(left) == len(right) == 1
    figure.axes[0].set_xlim(3, 9)
    assert figure.axes[-1].get_xlim() == (3, 9)


def words(figure):
    return [t.get_text() for axes in figure.axes for t in axes.texts] + [t.get_text() for t in figure.texts]


def test_peak_bound_live_set_and_reasons_are_written():
    two = [PlannedBuffer("left", "python", 1024, 0, 1, 0, None), PlannedBuffer("right", "python", 1024, 1, 2, 3072, None)]
    plan = MemoryPlan((*two, PlannedBuffer("out", "python", 2048, 0, 2, None, "final output")))
    told = "\n".join(words(plot_memory(plan)))
    assert "peak 4 KiB" in told and "lower bound 2 KiB" in told and "live at kernel 1: 2 KiB\nleft  1 KiB\nright  1 KiB" in told
    assert "1 final output, 2 KiB" in told and "out: final output 2 KiB" in told
    assert "Peak 4 KiB at kernel 1, 100 % above the lower bound" in told
    lines = sorted(line.get_ydata()[0] for line in plot_memory(plan).axes[0].lines if len(line.get_ydata()) == 2)
    assert lines == [2048, 4096]


def test_domains_have_their_colours_and_the_key_says_so():
    plan, made = compiled()
    figure = plot_memory(plan, made)
    fills = {tuple(c.get_facecolor()[0][:3]) for axes in figure.axes for c in axes.collections if c.get_facecolor().size}
    for name in ("orange_tint", "blue_tint"):
        assert any(f == pytest.approx(tuple(int(theme.LIGHT[name][i : i + 2], 16) / 255 for i in (1, 3, 5))) for f in fills)
    assert {"coefficients", "NTT values"} <= set(words(figure))
    assert not {"coefficients", "NTT values"} & set(words(plot_memory(plan)))


def test_what_is_outside_is_hatched():
    plan = plan_arenas([BufferUse("a", "python", 4096, 0, 3), BufferUse("b", "python", 4096, 0, 3, "pinned")])
    arena, outside = plot_memory(plan).axes
    assert not any(c.get_hatch() for c in arena.collections) and any(c.get_hatch() for c in outside.collections)


PLANS = {
    "few": random_plan(8), "many": random_plan(80, seed=1),
    "devices": random_plan(60, seed=2, devices=("python", "cuda", "cuda:1")),
    "thousands": random_plan(3000, seed=4, positions=2000), "outside": MemoryPlan(random_plan(40).unplanned),
    "one": plan_arenas([BufferUse("a-buffer-with-a-name-that-is-far-too-long-to-be-shown", "python", 100, 0, 0)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_no_text_is_cut_off_or_over_another(name):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = plot_memory(PLANS[name])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [*figure.texts, *(t for axes in figure.axes for t in axes.texts)]
    ticks = [t for axes in figure.axes for t in (*axes.get_yticklabels(), axes.xaxis.label, axes.yaxis.label)]
    bounds = {t: t.get_window_extent(renderer) for t in (*texts, *ticks) if t.get_text() and t.get_visible()}
    width, height = figure.canvas.get_width_height()
    assert width == 900
    for text, box in bounds.items():
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, text.get_text()
    placed = list(bounds.items())
    for i, (one, a) in enumerate(placed):
        for other, b in placed[i + 1 :]:
            apart = a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 or b.y1 <= a.y0
            assert apart, (one.get_text(), other.get_text())


def test_an_empty_plan_is_a_sentence():
    figure = plot_memory(MemoryPlan(()))
    assert not figure.axes and words(figure) == ["Nothing to plan: the schedule uses no buffers"]


def test_figures_are_nobody_elses():
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    figure = plot_memory(random_plan(10), theme="dark")
    assert plt.get_fignums() == before
    assert figure.get_facecolor()[:3] == pytest.approx((0x11 / 255, 0x14 / 255, 0x18 / 255))


def test_unknown_themes_are_refused():
    with pytest.raises(ValueError, match="no theme 'grey'"):
        plot_memory(MemoryPlan(()), theme="grey")
