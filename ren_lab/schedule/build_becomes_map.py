"""Pass 7, `build_becomes_map`: the graph is unchanged; each output is mapped to what takes its place once it has run."""

from ren_lab.ir import DType, Node, Op, View, is_const, storage
from ren_lab.schedule.decide_boundaries import is_view
from ren_lab.schedule.passes import Pass, limb_select

_BUFFER_VIEW = Op.BUFFER_VIEW


def view_of(held: Node, limb: int, shape: tuple[int, int]) -> Node:
    """The window of a buffer (or of a window) that starts at row `limb`."""
    offset = limb * shape[1]
    if held.op is Op.BUFFER_VIEW:
        held, offset = held.src[0], offset + held.arg.offset
    return Node(Op.BUFFER_VIEW, DType.U32, (held,), View(offset, shape))


def base_of(replacement: Node) -> Node | None:
    """The BUFFER that an output stands on, or None for a constant."""
    if is_const(replacement):
        return None
    held = replacement if replacement.ring is None else replacement.src[0]
    return held.src[0] if held.op is _BUFFER_VIEW else held


def over(replacement: Node, base: Node) -> Node:
    """What an output became, with another buffer for its base, which may be a window itself."""
    if replacement.ring is None:
        return base if replacement.op is Op.BUFFER else view_of(base, *_window(replacement))
    held = replacement.src[0]
    return replacement.with_src((view_of(base, *_window(held)) if held.op is _BUFFER_VIEW else base,))


def _window(view: Node) -> tuple[int, tuple[int, int]]:
    return view.arg.offset // view.arg.shape[1], view.arg.shape


def becomes_map(graph: Node) -> tuple[Node, ...]:
    """For each output of the SINK its replacement: a constant, a buffer, or a window of a buffer.

    `graph` is what `lower_bufferize` gives.
    """
    return tuple(map(_replacement, graph.src))


def _replacement(output: Node) -> Node:
    if is_const(output):
        return output
    if is_view(output):
        source = output.src[0]
        held = storage(source)
        assert held is not None and source.ring is not None and output.ring is not None
        offset = limb_select(source.ring, output.ring).offset
        assert offset is not None
        held = view_of(held, offset, (output.ring.limbs, output.ring.n))
    else:
        held = storage(output)
    assert held is not None, f"the output {output!r} is not in a buffer"
    if held.op is Op.BUFFER_VIEW and held.src[0].op is Op.AFTER:
        held = held.with_src((held.src[0].src[0],))
    return held if output.ring is None else Node(Op.AS_RING, DType.U32, (held,), (output.ring, output.domain))


PASS = Pass("build_becomes_map")
