"""Live ranges of real schedules, what the plan leaves out and why, and that no two live buffers share a byte."""

import itertools
import random

import numpy as np
import pytest

from ren_lab.engine import Program, compile_sink, sink_of
from ren_lab.options import Options
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec, find_primes

RING = RingSpec(256, find_primes(256, 30, 4))
SUB = RingSpec(256, RING.moduli[1:3])


def poly(i: int) -> Poly:
    return Poly([i + 1, i], RING).realize()


def compiled(*polys: Poly) -> Program:
    return compile_sink(sink_of([p.node for p in polys]), Options(verify=True))[0]


def overlaps(program: Program) -> list[tuple[str, str]]:
    """Pairs of planned buffers that live at the same time and share a byte, by brute force over what the units touch."""
    touched: dict[str, list[int]] = {}
    for position, unit in enumerate(program.units):
        for ident in unit.item.buffers:
            touched.setdefault(ident.label, []).append(position)
    found = []
    held = [b for b in program.memory.buffers if b.offset is not None]
    for a, b in itertools.combinations(held, 2):
        live = min(touched[a.name]) <= max(touched[b.name]) and min(touched[b.name]) <= max(touched[a.name])
        if live and a.device == b.device and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes:
            found.append((a.name, b.name))
    return found


def step(kind: int, a: Poly, b: Poly) -> Poly:
    match kind:
        case 0:
            return a * b
        case 1:
            return a + b
        case 2:
            return a.intt()
        case 3:
            return a.to_ring(SUB).to_ring(RING)
        case 4:
            return a.rescale(RING.moduli[-1]).to_ring(RING)
        case 5:
            return a.rotate(3)
        case _:
            return (a.to("python:1") * 2).to("python")


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_never_share_a_live_byte(seed: int) -> None:
    rng = random.Random(seed)
    pool = [poly(i) for i in range(4)]
    for _ in range(60):
        pool.append(step(rng.randrange(7), rng.choice(pool[-6:]), rng.choice(pool[-6:])))
    program = compiled(*pool[-2:])
    assert program.memory.buffers and not overlaps(program)
    assert program.memory.peak_bytes <= 1.25 * program.memory.lower_bound_bytes


def test_the_overlap_check_can_fail() -> None:
    program = compiled((poly(1) * poly(2)).intt() * poly(3))
    held = [b for b in program.memory.buffers if b.offset is not None]
    assert len(held) >= 2
    from types import SimpleNamespace

    clash = [SimpleNamespace(name=b.name, device=b.device, nbytes=b.nbytes, offset=0) for b in held]
    forged = SimpleNamespace(units=program.units, memory=SimpleNamespace(buffers=clash))
    assert overlaps(forged)  # type: ignore[arg-type]


def test_what_is_left_out_has_its_reason() -> None:
    a, b = poly(1), poly(2)
    product = (a * b).intt()
    pinned = (product + 1).pin()
    out = (pinned * a).to("python:1")
    view = (product * 2).to_ring(SUB)
    plan = compiled(out, view, product * 2).memory
    reasons = {x.name: x.reason for x in plan.buffers}
    assert {"already allocated", "final output", "pinned", "source of a copy"} <= set(reasons.values())
    for buffer in plan.buffers:
        assert (buffer.offset is None) == (buffer.reason is not None)
        assert buffer.first <= buffer.last


def test_final_outputs_live_to_the_end() -> None:
    a, b = poly(1), poly(2)
    early = a + b
    late = ((a * b).intt() * early).intt()
    plan = compiled(early, late).memory
    (first,) = [x for x in plan.buffers if x.name == "out0"]
    assert first.reason == "final output" and first.last == len(compiled(early, late).units) - 1


def test_intermediates_reuse_memory() -> None:
    x = poly(1)
    for _ in range(20):
        x = (x * x).intt().contiguous()
    plan = compiled(x).memory
    one = 4 * 4 * 256
    assert plan.peak_bytes == plan.lower_bound_bytes == 2 * one
    assert plan.unplanned_bytes > 10 * one


def test_what_the_plan_leaves_out_is_released_after_its_last_use() -> None:
    a = poly(1)
    far = ((a * 3).to("python:1") * 5).to("python") + 1
    program = compiled(far)
    released = {place for unit in program.units for place in unit.release}
    copies = [program.places[u.item.outputs[0]] for u in program.units if u.item.kind == "copy"]
    assert set(copies) <= released
    assert far.tolist() == (a * 15 + 1).tolist()


def test_a_view_keeps_its_base_alive() -> None:
    a = poly(1)
    base = a * a
    far = base.to_ring(SUB).contiguous().to("python:1")
    assert far.to("python").tolist() == [c % SUB.q for c in base.tolist()]
    realized = base.realize().to_ring(SUB).to("python:1")
    assert realized.tolist() == far.tolist()


def test_arena_windows_are_aligned() -> None:
    program = compiled((poly(1) * poly(2)).intt() * poly(3))
    frame = program.frame()
    for place, _, offset in program.planned:
        assert frame[place].ctypes.data % 4 == 0 and offset % min(256, program.memory.buffers[0].nbytes) % 4 == 0
        assert isinstance(frame[place], np.ndarray)
