"""The schedule as a picture, and the domains of its buffers."""

import json
import re

import pytest

from ren_lab.ir import BufferId, DType, Node, Op, buffer
from ren_lab.lens.schedule_view import buffer_domains, schedule_graph
from ren_lab.options import Options
from ren_lab.ring import Domain, RingSpec, find_primes
from ren_lab.schedule import Schedule, schedule

N = 1024
RING = RingSpec(N, find_primes(N, 30, 3))
SMALLER = RingSpec(N, RING.moduli[:2])


def data(label, domain=Domain.COEFF, device="python"):
    return Node(Op.AS_RING, DType.U32, (buffer(BufferId(label, device, (3, N))),), (RING, domain))


def op(kind, *src, arg=None):
    return Node(kind, DType.U32, src, arg)


def scheduled(*outputs) -> Schedule:
    return schedule(Node(Op.SINK, DType.VOID, outputs), Options())


A, B = data("a"), data("b", Domain.NTT)
PRODUCT = op(Op.INTT, op(Op.MUL, op(Op.NTT, A), B))


def chain(length):
    here = A
    for i in range(length):
        here = op(Op.INTT, op(Op.MUL, op(Op.NTT, here), data(f"k{i % 5}", Domain.NTT)))
        here = op(Op.NEG, op(Op.CONTIGUOUS, here, arg=False))
    return scheduled(here)


def test_items_are_vertices_and_buffers_are_edges():
    made = scheduled(PRODUCT)
    view = schedule_graph(made)
    items = {v.key: v for v in view.vertices if v.key.startswith("item")}
    assert [v.op for v in items.values()] == [f"{i} {item.kind}" for i, item in enumerate(made.items)]
    assert [v.second for v in items.values()] == [item.name for item in made.items]
    writer = {ident: f"item{i}" for i, item in enumerate(made.items) for ident in item.outputs}
    wanted = {
        (writer.get(ident, f"buffer-{ident.label}"), f"item{i}", f"{ident.label} · 12 KiB")
        for i, item in enumerate(made.items)
        for ident in item.inputs
    }
    assert {(e.source, e.target, e.label) for e in view.edges if e.target in items} == wanted
    assert [v.op for v in view.vertices if v.role == "buffer"] == ["a", "b", "out0"]
    (out,) = [e for e in view.edges if e.target == "buffer-out0"]
    assert out.source == f"item{len(made.items) - 1}" and out.label == "12 KiB"
    assert view.title.startswith(f"{len(made.items)} items: ")


def test_times_and_lines_are_written_on_items():
    made = scheduled(PRODUCT)
    count = len(made.items)
    view = schedule_graph(made, seconds=[0.001] * count, lines={0: (("/home/me/program.py", 12),)})
    first = view.vertices[[v.key for v in view.vertices].index("item0")]
    assert first.second.splitlines()[1] == f"1 ms, {100 / count:.0f} %"
    assert first.lines == ("program.py:12",) and "program.py:12" in first.tooltip
    assert view.title.endswith(f"{count} ms in all")
    partly = schedule_graph(made, seconds={0: 0.002, 1: None})
    assert "2 ms, 100 %" in partly.vertices[[v.key for v in partly.vertices].index("item0")].second
    assert all("\n" not in v.second for v in partly.vertices if v.key != "item0")


def test_devices_have_frames_and_copies_thick_edges():
    there = op(Op.COPY, op(Op.ADD, A, A), arg="cuda")
    made = scheduled(op(Op.COPY, op(Op.MUL, there, data("c", Domain.NTT, "cuda")), arg="python"))
    view = schedule_graph(made)
    assert {v.device for v in view.vertices} == {"python", "cuda"} and "on 2 devices" in view.title
    copies = [v for v in view.vertices if v.role == "copy"]
    assert len(copies) == 2
    for copied in copies:
        assert [e.kind for e in view.edges if e.target == copied.key] == ["device"]
    assert all(e.kind == "data" for e in view.edges if e.target not in {v.key for v in copies})
    assert view.to_graphviz().source.count("subgraph cluster_") == 2


def test_views_are_light():
    made = scheduled(op(Op.TO_RING, op(Op.NTT, A), arg=SMALLER), op(Op.NTT, A))
    views = [v for v in schedule_graph(made).vertices if v.role == "view"]
    assert len(views) == 1 and "limbs 0 to 1" in views[0].details and "light item" in views[0].details[0]


def test_an_empty_schedule_says_so():
    view = schedule_graph(scheduled(A))
    assert view.title == "Nothing to run" and "Nothing to run" in str(view)


def test_labels_with_colons_are_no_ports():
    made = scheduled(op(Op.TO_RING, op(Op.NTT, A), arg=SMALLER), op(Op.NTT, A))
    view = schedule_graph(made)
    assert any(":" in v.op for v in view.vertices) and not any(":" in v.key for v in view.vertices)


def test_long_schedules_fold():
    made = chain(150)
    count = len(made.items)
    view = schedule_graph(made, seconds=[0.001] * count, lines=[(("p.py", 1 + i // 40),) for i in range(count)])
    assert count > 300 and view.folded and 10 <= len(view.vertices) <= 60
    assert sum(v.count for v in view.vertices) == view.nodes
    position = {v.key: i for i, v in enumerate(view.vertices)}
    assert all(position[e.source] < position[e.target] for e in view.edges)
    milliseconds = 0.0
    for vertex in view.vertices:
        found = re.search(r"([\d.]+) ms", vertex.second)
        milliseconds += float(found[1]) if found else 0
    assert milliseconds == pytest.approx(count)
    json.dumps(view.to_dict())
    assert not schedule_graph(made, fold_above=2000).folded


def test_a_negative_limit_is_refused():
    with pytest.raises(ValueError, match="fold_above is -1"):
        schedule_graph(scheduled(PRODUCT), fold_above=-1)


def test_domains_of_buffers():
    words = buffer(BufferId("w", "python", (4, N)))
    rns = op(Op.TO_RNS, words, arg=(RING, 4))
    made = scheduled(op(Op.MUL, op(Op.NTT, rns), B), op(Op.ADD, A, A))
    domains = buffer_domains(made)
    for index, item in enumerate(made.items):
        wanted = {"to_rns": Domain.COEFF, "ntt": Domain.NTT, "intt": Domain.COEFF}.get(item.kind)
        if wanted is not None:
            assert domains[item.outputs[0].label] is wanted, (index, item.name)
    assert domains["b"] is Domain.NTT and domains["a"] is Domain.COEFF and "w" not in domains
    assert [domains[f"out{i}"] for i in range(2)] == [Domain.NTT, Domain.COEFF]


def test_copies_have_the_domain_of_what_they_copy():
    made = scheduled(op(Op.NEG, op(Op.COPY, data("c", Domain.NTT, "cuda"), arg="python")))
    assert all(domain is Domain.NTT for domain in buffer_domains(made).values()) and "c" in buffer_domains(made)
