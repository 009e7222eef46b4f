"""Which storage a BUFFER node stands for, as long as somebody holds the node."""

import itertools
from typing import Any

import numpy as np

from ren_lab.backends import backend
from ren_lab.ir import BufferId, Node, Op, attach, buffer

_BUFFER_VIEW = Op.BUFFER_VIEW
_numbers = itertools.count()


def new_buffer(device: str, shape: tuple[int, int], storage: Any, pinned: bool = False) -> Node:
    """A BUFFER node of its own for a storage; the storage lives as long as the node."""
    node = buffer(BufferId(f"u{next(_numbers)}", device, shape, pinned))
    attach(node, storage)
    return node


def storage_of(node: Node) -> Any:
    """The storage behind a BUFFER, or behind the window that a BUFFER_VIEW opens."""
    if node.op is _BUFFER_VIEW:
        base = node.src[0]
        return backend(base.arg.device).view(storage_of(base), node.arg.offset, node.arg.shape)
    if node.data is None:
        raise RuntimeError(
            f"buffer {node.arg.label!r} holds no data: the polynomial was made in the body of a function while ren.jit captured "
            "it, and means nothing outside; return it from the function instead of keeping it"
        )
    return node.data


def host_words(node: Node) -> np.ndarray:
    """The u32 words behind a BUFFER or BUFFER_VIEW, as a host array that is the caller's."""
    device = (node.src[0] if node.op is Op.BUFFER_VIEW else node).arg.device
    return backend(device).to_host(storage_of(node))
