"""The structure of a graph: the same graph with the identities of its data renamed by first occurrence.

Two programs of the same structure have the same canonical graph, which is one object since nodes are interned; it is the key
of the schedule cache.
"""

from dataclasses import replace
from functools import lru_cache

from ren_lab.ir import BufferId, Node, Op, buffer

_BUFFER, _RANDOM = Op.BUFFER, Op.RANDOM  # this is the way to the schedule cache, and Python 3.11 finds them slowly


def canonical(graph: Node) -> tuple[Node, dict[Node, Node]]:
    """Rename buffers to in0, in1, … and random draws to draw0, draw1, … in the order in which they occur.

    Returns:
        the renamed graph, and a mapping from each node of the old one to its namesake. The identities stand in the
        mapping in the order of first occurrence.
    """
    done: dict[Node, Node] = {}
    buffers = draws = 0
    for node in graph.toposort():
        if node.op is _BUFFER:
            _, device, shape, pinned = node.arg
            done[node] = _input(buffers, device, shape, pinned)
            buffers += 1
        elif node.op is _RANDOM:
            done[node] = Node(_RANDOM, node.dtype, (), replace(node.arg, label=f"draw{draws}"))
            draws += 1
        else:
            done[node] = node.with_src(tuple([done[s] for s in node.src]))
    return done[graph], done


@lru_cache(maxsize=1024)
def _input(number: int, device: str, shape: tuple[int, int], pinned: bool) -> Node:
    return buffer(BufferId(f"in{number}", device, shape, pinned))
