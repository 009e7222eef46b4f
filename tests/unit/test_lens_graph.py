"""Graphs as pictures: what becomes a vertex and an edge, what is marked, what is folded."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ren_lab.events import PassEnded
from ren_lab.ir import BufferId, Const, DType, Node, Op, Random, View, buffer, const
from ren_lab.lens import dot
from ren_lab.lens.graph_view import Edge, GraphView, Vertex, content_key, graph_view, pass_graph, second_line
from ren_lab.options import Options, using
from ren_lab.ring import Domain, RingSpec, find_primes
from ren_lab.schedule import schedule

N = 4096
RING = RingSpec(N, find_primes(N, 30, 3))
SMALLER = RingSpec(N, RING.moduli[:2])
OTHER = RingSpec(N, find_primes(N, 29, 5))


def data(label, ring=RING, domain=Domain.COEFF, device="python"):
    held = buffer(BufferId(label, device, (ring.limbs, ring.n)))
    return Node(Op.AS_RING, DType.U32, (held,), (ring, domain))


def op(kind, *src, arg=None):
    return Node(kind, DType.U32, src, arg)


def sink(*outputs):
    return Node(Op.SINK, DType.VOID, outputs)


def chain(length, *, transforms=False):
    """Additions in a row, each on another input; with a product in between they need transforms."""
    here = data("x0")
    for i in range(1, length):
        here = op(Op.MUL if transforms and i % 3 == 0 else Op.ADD, here, data(f"x{i % 7}"))
    return sink(here)


def compiled(graph):
    records = []
    schedule(graph, Options(), records.append)
    return [record for record in records if isinstance(record, PassEnded)]


X, Y = data("x"), data("y")
PROGRAM = sink(
    op(Op.ADD, op(Op.ROTATE, op(Op.MUL, X, Y), arg=1), const(7, RING, Domain.COEFF, "python")), op(Op.TO_RING, X, arg=OTHER)
)


# one graph


@pytest.mark.parametrize("graph", [PROGRAM, chain(20), chain(40, transforms=True)], ids=["small", "sums", "products"])
def test_each_node_is_a_vertex_and_each_use_an_edge(graph):
    order = graph.toposort()
    view = graph_view(graph)
    assert [v.op for v in view.vertices] == [node.op.name for node in order]
    assert [v.key for v in view.vertices] == [content_key(node) for node in order]
    assert len({v.key for v in view.vertices}) == len(order) == view.nodes
    used = sorted((content_key(s), content_key(node)) for node in order for s in node.src)
    assert sorted((e.source, e.target) for e in view.edges) == used
    assert not view.folded
    source = view.to_graphviz().source
    assert source.count("label=") >= len(order) and all(f"\t{v.key} [" in source for v in view.vertices)


def test_a_square_has_two_edges():
    view = graph_view(op(Op.MUL, X, X))
    assert len([e for e in view.edges if e.target == content_key(op(Op.MUL, X, X))]) == 2


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (X, "n=2^12 × 3 limbs"), (X.src[0], "x · 48 KiB"),
        (op(Op.CONST, arg=Const(12345, "python")), "12345"),
        (const(5, RING, Domain.NTT, "python"), "5"), (const(-5, RING, Domain.NTT, "python"), "−5"),
        (const(1 << 70, RING, Domain.NTT, "python"), "about 2^70"), (op(Op.MUL, X, Y), "n=2^12 × 3 limbs"),
        (op(Op.ROTATE, X, arg=-3), "by -3"), (op(Op.AUTOMORPHISM, X, arg=25), "X → X^25"),
        (op(Op.TO_RING, X, arg=OTHER), "3 → 5 limbs"),
        (op(Op.RESCALE, X, arg=RING.moduli[1:]), "drops 2 of 3 limbs"), (op(Op.COPY, X, arg="cuda"), "to cuda"),
        (op(Op.RANDOM, arg=Random("r", "python", "gaussian", (3.2,))), "gaussian 3.2"), (sink(X, Y), "2 outputs"),
        (op(Op.CONTIGUOUS, X, arg=True), "pinned"), (op(Op.BUFFER_VIEW, X.src[0], arg=View(N, (2, N))), "x, limbs 1–2"),
        (Node(Op.STORE, DType.VOID, (X.src[0], Y)), "x"), (op(Op.RESIDUES, arg=(1, 2, 3)), "3 limbs"),
    ],
    ids=lambda value: value.op.name if isinstance(value, Node) else None,
)  # fmt: skip
def test_the_second_line_is_what_an_expert_asks_for(node, text):
    assert second_line(node) == text


def test_no_pass_leaves_a_vertex_without_words():
    for record in compiled(PROGRAM):
        for vertex in pass_graph(record.before, record.after, record.mapping).vertices:
            assert vertex.second or vertex.op in ("EQ", "WHERE", "IMPULSE", "ADD", "CONST"), (record.name, vertex)


def test_roles_follow_operation_and_domain():
    graph = sink(op(Op.MUL, op(Op.NTT, X), data("z", domain=Domain.NTT)))
    assert [v.role for v in graph_view(graph).vertices] == ["buffer", "coefficient", "transform", "buffer", "ntt", "ntt", "order"]


def test_details_name_ring_moduli_device_and_source_lines():
    node = op(Op.MUL, X, Y)
    view = graph_view(node, origins={node: (("/home/me/program.py", 31), ("/home/me/other.py", 4))})
    vertex = view.vertices[-1]
    assert vertex.lines == ("other.py:4", "program.py:31")
    assert "n=2^12 × 3 limbs, NTT" in vertex.tooltip and str(RING.moduli[2]) in vertex.tooltip and "on python" in vertex.tooltip
    assert "program.py:31" in vertex.tooltip and "/home" not in json.dumps(view.to_dict())


def test_edges_tell_order_and_devices_from_data():
    held = X.src[0]
    store = Node(Op.STORE, DType.VOID, (held, op(Op.NTT, Y)))
    after = op(Op.AFTER, held, store)
    copied = op(Op.COPY, data("c", device="cuda"), arg="python")
    view = graph_view(sink(after, copied))
    kinds = {(e.source, e.target): e.kind for e in view.edges}
    assert kinds[content_key(held), content_key(store)] == "ordering"
    assert kinds[content_key(store), content_key(after)] == "ordering"
    assert kinds[content_key(op(Op.NTT, Y)), content_key(store)] == "data"
    assert kinds[content_key(copied.src[0]), content_key(copied)] == "device"
    source = view.to_graphviz().source
    assert "dotted" in source and "penwidth=3" in source
    assert "subgraph cluster_0" in source and "label=cuda" in source and "label=python" in source


def test_nothing_shown_is_a_hash_or_an_address():
    for record in compiled(PROGRAM):
        for vertex in pass_graph(record.before, record.after, record.mapping).vertices:
            assert vertex.key not in "\n".join((vertex.op, vertex.second, vertex.tooltip, vertex.group))
            assert not re.search(r"0x[0-9a-f]{6,}", vertex.tooltip)


def test_keys_are_made_of_what_a_node_is():
    assert content_key(op(Op.MUL, X, Y)) == content_key(op(Op.MUL, X, Y)) != content_key(op(Op.MUL, Y, X))
    assert content_key(op(Op.CONTIGUOUS, X, arg=True)) != content_key(op(Op.CONTIGUOUS, X, arg=False))
    assert len({content_key(op(Op.ROTATE, X, arg=k)) for k in range(50)}) == 50
    ast = [node for node in compiled(PROGRAM)[-1].after.toposort() if node.op is Op.KERNEL]
    assert len({content_key(kernel) for kernel in ast}) == len(ast)


def test_a_view_is_plain_data():
    view = graph_view(PROGRAM)
    data = json.loads(json.dumps(view.to_dict()))
    assert data == view.to_dict()
    assert len(data["vertices"]) == view.nodes and data["title"].startswith(f"{view.nodes} nodes: ")


def test_themes_differ_in_colours_only():
    light, dark = (graph_view(PROGRAM).to_graphviz(theme).source for theme in ("light", "dark"))
    assert "#111418" in dark and "#111418" not in light

    def strip(text):
        return re.sub(r'"?#[0-9A-F]{6}"?', "", text)

    assert strip(light) == strip(dark)
    with pytest.raises(ValueError, match="no theme 'blue'"):
        graph_view(PROGRAM).to_graphviz("blue")


def test_text_that_looks_like_markup_stays_text():
    view = GraphView('a "title" & \\more', (Vertex("k", "<b>&amp;", "a\\lb < c", "buffer", ("x > y",)),), (), 1)
    source = view.to_graphviz().source
    assert "&lt;b&gt;&amp;amp;" in source and "a\\lb &lt; c" in source
    kind, drawing = dot.render_or_text(view.to_graphviz())
    if kind == "image/svg+xml":
        assert "&lt;b&gt;&amp;amp;" in drawing and 'aria-label="a &quot;title&quot; &amp; \\more"' in drawing


@pytest.mark.parametrize(("field", "value"), [("role", "nonsense"), ("mark", "nonsense")])
def test_vertices_reject_looks_that_do_not_exist(field, value):
    with pytest.raises(ValueError, match="nonsense.*(roles|marks) are"):
        Vertex(**{"key": "k", "op": "MUL", "second": "", "role": "ntt", field: value})


def test_a_view_shows_itself():
    view = graph_view(PROGRAM)
    bundle = view._repr_mimebundle_()
    assert bundle["text/plain"] == str(view) and view.title in str(view)
    assert 'class="ren-lab"' in bundle["text/html"]
    for vertex in view.vertices:
        assert vertex.op in str(view)
    with using(dot="no-such-program"):
        markup = view._repr_mimebundle_()["text/html"]
    assert "digraph" in markup and "pip install" in markup


def test_the_text_form_lists_sources_by_number():
    title, *lines = str(graph_view(op(Op.MUL, X, Y))).splitlines()
    assert title.startswith("5 nodes") and [line.split()[0] for line in lines] == ["0", "1", "2", "3", "4"]
    assert "MUL" in lines[4] and lines[4].endswith("(1, 3)")


# a graph before and after a pass


def test_a_pass_marks_what_it_did():
    record = compiled(PROGRAM)[2]  # inject_domains
    view = pass_graph(record.before, record.after, record.mapping)
    marks = {v.key: v.mark for v in view.vertices}
    old, new = set(record.before.toposort()), record.after.toposort()
    assert [v.op for v in view.vertices if v.mark == "added" and v.op in ("NTT", "INTT")] != []
    for node in new:
        if node in old:
            assert marks[content_key(node)] is None
    for node in new:
        if node.op is Op.NTT and node not in old:
            assert marks[content_key(node)] == "added"
    assert re.match(r"\d+ added", view.title)


def test_given_marks_are_used():
    before, after = sink(op(Op.NEG, X)), sink(op(Op.ADD, X, Y))
    gone, new = before.src[0], after.src[0]
    view = pass_graph(before, after, {}, added=[Y, Y.src[0]], removed=[gone], changed=[new, gone])
    marks = {v.key: v.mark for v in view.vertices}
    assert marks[content_key(new)] == "changed" and marks[content_key(Y)] == "added" and marks[content_key(X)] is None
    assert marks[content_key(gone)] == "removed"
    assert [(e.source, e.target) for e in view.edges if e.removed][0] == (content_key(X), content_key(gone))
    assert view.title == "2 added, 1 removed, 1 changed of 6 nodes"
    source = view.to_graphviz().source
    assert "<S>NEG</S>" in source and ">−<" in source and ">+<" in source and ">~<" in source


def test_nothing_changed_says_so():
    view = pass_graph(PROGRAM, PROGRAM, {})
    assert view.title.startswith("Nothing changed: ") and all(v.mark is None for v in view.vertices)


def test_removed_nodes_give_way_to_those_that_are_there():
    before, after = chain(330), chain(280)  # 294 nodes stay, 50 and the SINK go
    view = pass_graph(before, after, {}, added=(), changed=())
    assert not view.folded and {content_key(node) for node in after.toposort()} == {v.key for v in view.vertices}
    assert view.title.startswith("51 removed of 294 nodes") and view.title.endswith("not drawn")
    assert sum(v.mark == "removed" for v in pass_graph(before, chain(230), {}, added=(), changed=()).vertices) == 0  # 101 go
    assert sum(v.mark == "removed" for v in pass_graph(chain(250), chain(230), {}, added=(), changed=()).vertices) == 21


def test_a_node_keeps_its_key_through_the_passes():
    records = compiled(chain(12, transforms=True))
    seen = {}
    for record in records:
        view = pass_graph(record.before, record.after, record.mapping)
        for node, key in view.keys.items():
            assert seen.setdefault(node, key) == key
        assert {v.key for v in view.vertices if v.mark != "removed"} == set(view.keys.values())


def test_chained_keys_go_on_with_the_operation():
    records = compiled(PROGRAM)
    keys = graph_view(records[0].before).keys
    places = set()
    for record in records[:6]:
        view = pass_graph(record.before, record.after, record.mapping, keys=keys)
        keys = view.keys
        assert len(set(keys.values())) == len(keys) == len(record.after.toposort())
        (product,) = [key for node, key in keys.items() if node.op is Op.MUL]
        places.add(product)
    assert len(places) == 1


def test_a_key_that_went_on_is_not_given_twice():
    old, new = op(Op.NEG, X), op(Op.NEG, Y)
    first = pass_graph(sink(old), sink(new), {old: new}, keys={})
    assert first.keys[new] == content_key(old)
    second = pass_graph(sink(new), sink(new, old), {}, keys=first.keys)
    assert second.keys[new] == content_key(old) and len(set(second.keys.values())) == len(second.keys)


# folded graphs


def reach(pairs):
    below = {}
    for a, b in pairs:
        below.setdefault(a, set()).add(b)
    found = {}

    def down(start):
        if start not in found:
            seen, stack = set(), [start]
            while stack:
                for other in below.get(stack.pop(), ()):
                    if other not in seen:
                        seen.add(other)
                        stack.append(other)
            found[start] = seen
        return found[start]

    return down


@pytest.mark.parametrize("stage", [0, 2, 5, 10, 11])
def test_large_graphs_fold_to_few_groups_that_hold_everything(stage):
    record = compiled(chain(700 if stage < 11 else 4000, transforms=True))[stage]
    order = record.after.toposort()
    view = graph_view(record.after)
    assert len(order) > 300 and view.folded and 10 <= len(view.vertices) <= 61
    assert sum(v.count for v in view.vertices) == len(order) == view.nodes
    assert f"{len(view.vertices)} groups" in view.title
    position = {v.key: i for i, v in enumerate(view.vertices)}
    assert len(position) == len(view.vertices)
    assert all(position[e.source] < position[e.target] for e in view.edges)
    for vertex in view.vertices:
        if vertex.count > 1:
            assert vertex.role == "group" and f"{vertex.count} node" in vertex.second and vertex.op


def test_folded_edges_leave_no_dependence_out():
    view = graph_view(compiled(chain(500, transforms=True))[5].after)
    below = reach([(e.source, e.target) for e in view.edges])
    ends = [v.key for v in view.vertices if v.op == "SINK"]
    assert ends and all(ends[0] in below(v.key) for v in view.vertices if v.key != ends[0])


def test_folded_groups_count_their_changes():
    record = compiled(chain(500, transforms=True))[5]
    view = pass_graph(record.before, record.after, record.mapping)
    told = sum(int(n) for v in view.vertices for n in re.findall(r"\+(\d+)", v.second.split("\n")[0]))
    alone = sum(v.mark == "added" and v.count == 1 for v in view.vertices)
    assert told + alone == int(re.match(r"([\d,]+) added", view.title)[1].replace(",", ""))


def test_a_group_with_some_new_nodes_is_changed():
    record = compiled(chain(500, transforms=True))[4]  # decide_boundaries adds and changes nothing else
    view = pass_graph(record.before, record.after, record.mapping)
    assert "changed" not in view.title
    assert {v.mark for v in view.vertices if v.count > 1 and "+" in v.second} == {"changed"}


def test_groups_are_named_by_source_lines_where_kernels_are_too_many():
    graph = chain(900, transforms=True)
    nodes = [node for node in graph.toposort() if node.op in (Op.ADD, Op.MUL)]
    origins = {node: (("/x/program.py", 10 + i // 100),) for i, node in enumerate(nodes)}
    view = graph_view(graph, origins=origins)
    assert any(re.match(r"program\.py:1\d", v.op) for v in view.vertices)
    assert all("/x/" not in v.op for v in view.vertices)


@pytest.mark.parametrize("limit", [0, 5, 1000])
def test_the_limit_can_be_set(limit):
    graph = chain(30)
    assert graph_view(graph, fold_above=limit).folded == (limit < len(graph.toposort()))


def test_a_chain_of_20000_needs_no_recursion():
    view = graph_view(chain(20_000))
    assert view.nodes > 20_000 and len(view.vertices) <= 61


def test_a_position_that_all_use_does_not_bury_the_rest():
    graph = compiled(sink(*(op(Op.NEG, data(f"x{i}")) for i in range(20))))[10].after
    view = graph_view(graph)
    counters = {v.key for v in view.vertices if v.op == "GIDX"}
    assert len([e for e in view.edges if e.source in counters]) >= 40
    assert {e.kind for e in view.edges if e.source in counters} == {"index"}
    source = view.to_graphviz().source
    assert all(f"\t{key} [" in source and f"{key} ->" not in source for key in counters)
    small = graph_view(next(node.arg.ast for node in compiled(PROGRAM)[-1].after.toposort() if node.op is Op.KERNEL))
    assert all(f"{v.key} ->" in small.to_graphviz().source for v in small.vertices if v.op == "GIDX")


# parts


def test_a_neighbourhood_reaches_so_many_edges_up_and_down():
    graph = chain(40)
    line = [node for node in graph.toposort() if node.op is Op.ADD]
    view = graph_view(graph, focus=line[20], depth=2)
    shown = {v.key for v in view.vertices}
    wanted = {content_key(node) for node in line[18:23]}
    others = {content_key(s) for node in line[19:21] for s in node.src if s.op is Op.AS_RING}
    buffers = {content_key(s.src[0]) for s in line[20].src if s.op is Op.AS_RING}
    assert {key for key in shown if not re.search("-(above|below)$", key)} == wanted | others | buffers
    assert "around ADD" in view.title and view.nodes == len(graph.toposort())
    more = [v for v in view.vertices if v.role == "more"]
    assert more and all(re.fullmatch(r"\d+ more", v.second) for v in more)
    assert {e.target for e in view.edges} | {e.source for e in view.edges} <= shown


def test_depth_without_focus_shows_the_levels_above_the_root():
    graph = chain(40)
    view = graph_view(graph, depth=1)
    assert [v.op for v in view.vertices if v.role != "more"] == ["ADD", "SINK"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"focus": op(Op.NEG, Y)}, "not in this graph.*toposort"),
        ({"depth": -1}, "depth is -1"),
        ({"fold_above": -1}, "fold_above is -1"),
    ],
    ids=["focus", "depth", "fold_above"],
)  # fmt: skip
def test_requests_that_make_no_sense_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        graph_view(sink(X), **options)


@given(
    st.lists(
        st.tuples(st.sampled_from([Op.ADD, Op.MUL, Op.SUB, Op.NEG, Op.NTT]), st.integers(0, 30), st.integers(0, 30)), max_size=25
    )
)
def test_any_graph_has_a_picture(steps):
    pool = [X, Y]
    for kind, a, b in steps:
        src = (pool[a % len(pool)],) if kind in (Op.NEG, Op.NTT) else (pool[a % len(pool)], pool[b % len(pool)])
        pool.append(op(kind, *src))
    graph = sink(*pool[-3:])
    for limit in (300, 5):
        view = graph_view(graph, fold_above=limit)
        assert sum(v.count for v in view.vertices) == len(graph.toposort())
        assert {e.source for e in view.edges} | {e.target for e in view.edges} <= {v.key for v in view.vertices}
        assert all(isinstance(e, Edge) for e in view.edges)
