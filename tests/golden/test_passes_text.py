"""The text of a small program after each pass. Run this file to write it anew, and read the difference before committing."""

import pathlib

from ren_lab.events import RuleFired
from ren_lab.ir import BufferId, DType, Node, Op, buffer, const, print_graph, rewrite
from ren_lab.options import Options
from ren_lab.ring import Domain, RingSpec
from ren_lab.schedule import PIPELINE, canonical

GOLDEN = pathlib.Path(__file__).with_name("passes.txt")
RING = RingSpec(8, (17, 97))


def program() -> Node:
    """((x * y).rotate(1) + 7) rescaled by 97, and to_ring of a sum."""

    def raw(label: str) -> Node:
        words = buffer(BufferId(label, "python", (1, 8)))
        return Node(Op.TO_RNS, DType.U32, (words,), (RING, 1))

    x, y = raw("x"), raw("y")
    turned = Node(Op.ROTATE, DType.U32, (Node(Op.MUL, DType.U32, (x, y)),), 1)
    total = Node(Op.ADD, DType.U32, (turned, const(7, RING, Domain.NTT, "python")))
    scaled = Node(Op.RESCALE, DType.U32, (total,), (97,))
    wide = Node(Op.TO_RING, DType.U32, (Node(Op.ADD, DType.U32, (x, y)),), RingSpec(8, (113,)))
    return canonical(Node(Op.SINK, DType.VOID, (scaled, wide)))[0]


def text() -> str:
    """Every stage, with the rules that fired."""
    graph = program()
    parts = ["# before\n\n" + print_graph(graph)]
    for number, step in enumerate(PIPELINE, 1):
        fired: list[RuleFired] = []
        facts = step.prepare(graph, Options()) if step.prepare else None
        graph, _ = rewrite(graph, step.rules, facts=facts, count_uses=step.count_uses, once=step.once, emit=fired.append)
        rules = "".join(f"- {r.rule}: {r.equation}\n" for r in fired)
        parts.append(f"# {number} {step.name}\n\n{rules}\n{print_graph(graph)}")
    return "\n\n".join(parts) + "\n"


def test_the_stages_read_as_they_did() -> None:
    assert text() == GOLDEN.read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.write_text(text(), encoding="utf-8")
