"""Nodes: immutable, interned, and typed by ring, domain and device where they are made.

Two nodes with the same fields are one object, so identity is equality and a dictionary keyed by nodes is cheap.
A node keeps its sources alive and nothing else; the table that interns it holds it weakly.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ren_lab.functions import keep_over_fork
from ren_lab.ir.op import BufferId, Const, DType, LimbSelect, Op
from ren_lab.ring import Domain, RingSpec, without

Origin = tuple[str, int]  # the user's file and line

# What the questions below ask all the time; Python 3.11 takes as long to find a member of an enum as to do the rest of them.
_AS_RING, _AFTER, _CONST, _BUFFER, _BUFFER_VIEW = Op.AS_RING, Op.AFTER, Op.CONST, Op.BUFFER, Op.BUFFER_VIEW
_U32, _NTT = DType.U32, Domain.NTT


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """Argument of a KERNEL node: its name, kind and body.

    `ast` is a STORE over SLOT parameters, slot 0 the output; or a GROUP of them, whose outputs are the first slots.
    """

    name: str
    kind: str
    ast: "Node"

    @property
    def outputs(self) -> int:
        """How many of the KERNEL's sources are outputs; they come first."""
        return len(self.ast.src) if self.ast.op is Op.GROUP else 1


class _Fields:
    """The fields of a node while it is made; a `Node` is one that is closed for writing."""

    __slots__ = ("op", "dtype", "src", "arg", "ring", "domain", "device", "origins", "users", "data", "__weakref__")
    op: Op
    dtype: DType
    src: tuple["Node", ...]
    arg: Any
    ring: RingSpec | None
    domain: Domain | None
    device: str | None
    origins: tuple[Origin, ...]
    users: set[Any] | None
    data: Any


class Node(_Fields):
    """One operation of the DAG.

    Attributes:
        op, dtype, src, arg: the fields that make the node; nodes with equal fields are the same object.
        ring, domain: of the polynomial that the node computes, or None for words, indices and ordering.
        device: where it is computed, or None if that is left to its user.
        origins: the user's source lines that built it, every one of a merged node; not part of its identity.
        users: weak references to what `watch` was told uses it; not part of its identity either.
        data: what the engine `attach`ed: the storage that a BUFFER stands for, or what a RANDOM gave; not part of its identity.
    """

    __slots__ = ()

    def __new__(cls, op: Op, dtype: DType = DType.U32, src: tuple["Node", ...] = (), arg: Any = None) -> "Node":
        # 1 == True and (1,) == (True,) in Python, so the argument's types are part of the key
        key = (op, dtype, src, arg, tuple(map(type, arg)) if type(arg) is tuple else type(arg))
        ref = _interned.get(key)
        if ref is not None and (found := ref()) is not None:
            return found
        made: Any = object.__new__(_Fields)
        made.op, made.dtype, made.src, made.arg = op, dtype, src, arg
        made.ring, made.domain, made.device = _TYPING.get(op, _like_first)(src, arg)
        made.origins, made.users, made.data = (), None, None
        made.__class__ = Node
        entry = _Ref(made, _forget)
        entry.key = key
        while True:
            ref = _interned.setdefault(key, entry)
            if ref is entry:
                return made
            if (found := ref()) is not None:  # another thread was faster
                return found
            _forget(ref)  # its node is gone, and the entry is about to go

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Node is immutable; build a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Node is immutable; {name!r} can't be deleted")

    def __reduce__(self) -> Any:
        raise TypeError("Node has identity and can't be pickled; print it with str() and read it back with ir.parse()")

    def with_src(self, src: tuple["Node", ...]) -> "Node":
        """The same operation on other sources."""
        return self if src == self.src else Node(self.op, self.dtype, src, self.arg)

    def toposort(self, stop: frozenset[Op] = frozenset()) -> list["Node"]:
        """Every node this one depends on, sources before users, itself last; the order is deterministic.

        Nodes whose operation is in `stop` are listed, but what they depend on is not.
        """
        order: list[Node] = []
        seen: set[Node] = set()
        stack: list[tuple[Node, Iterator[Node]]] = [(self, iter(self.src))]
        seen.add(self)
        while stack:
            node, sources = stack[-1]
            for source in sources:
                if source not in seen:
                    seen.add(source)
                    stack.append((source, iter(() if source.op in stop else source.src)))
                    break
            else:
                order.append(node)
                stack.pop()
        return order

    def __repr__(self) -> str:
        where = f" {self.ring.label} {self.domain.name}" if self.ring is not None and self.domain is not None else ""
        return f"<{self.op.name}{where}>"

    def __str__(self) -> str:
        from ren_lab.ir.text import print_graph  # the printer builds on nodes

        return print_graph(self)


class _Ref(weakref.ref[Node]):
    """A weak reference that takes its entry out of the table when the node goes."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


def _forget(ref: Any) -> None:
    key = ref.key
    with _lock:
        if _interned.get(key) is ref:  # unless it has been taken out already, or was never in
            del _interned[key]


# A plain dict, since this is the inner loop of the compiler: a WeakValueDictionary takes twice as long.
_interned: dict[tuple[Any, ...], _Ref] = {}
# Entries are put in without a lock, by one step of the dictionary; they are taken out under this one.
_lock = threading.RLock()  # reentrant: a collection inside may run finalizers that build nodes
keep_over_fork(_lock)


# What a node's ring, domain and device are, by operation. Sources are typed already, so nothing here walks the graph.
_Type = tuple[RingSpec | None, Domain | None, str | None]


def _device(src: tuple[Node, ...]) -> str | None:
    for source in src:
        if source.device is not None:
            return source.device
    return None


def _like_first(src: tuple[Node, ...], arg: Any) -> _Type:
    return (src[0].ring, src[0].domain, src[0].device) if src else (None, None, None)


def _untyped(src: tuple[Node, ...], arg: Any) -> _Type:
    return None, None, _device(src)


def _data(src: tuple[Node, ...], arg: Any) -> _Type:
    return None, None, getattr(arg, "device", None)


def _as_ring(src: tuple[Node, ...], arg: tuple[RingSpec, Domain]) -> _Type:
    return arg[0], arg[1], src[0].device


def _sum(src: tuple[Node, ...], arg: Any) -> _Type:
    a, b = src
    if a.ring is not b.ring and a.ring != b.ring:
        raise TypeError(f"operands live in different rings: {a.ring} and {b.ring}; bring one over with to_ring")
    if is_const(b):
        domain = a.domain
    elif is_const(a):
        domain = b.domain
    else:
        domain = b.domain if b.domain is _NTT else a.domain
    return a.ring, domain, a.device or b.device


def _product(src: tuple[Node, ...], arg: Any) -> _Type:
    ring, domain, device = _sum(src, arg)
    if ring is not None and not (is_scalar(src[0]) or is_scalar(src[1])):
        domain = _NTT
    return ring, domain, device


def _in_domain(domain: Domain) -> Callable[[tuple[Node, ...], Any], _Type]:
    return lambda src, arg: (src[0].ring, domain, src[0].device)


def _to_ring(src: tuple[Node, ...], arg: RingSpec) -> _Type:
    ring = src[0].ring
    assert ring is not None
    return arg, (src[0].domain if ring.contains(arg) else Domain.COEFF), src[0].device


def _rescale(src: tuple[Node, ...], arg: tuple[int, ...]) -> _Type:
    return without(src[0].ring, arg), src[0].domain, src[0].device


def _permute(src: tuple[Node, ...], arg: Any) -> _Type:
    if isinstance(arg, LimbSelect) and src[0].ring is not None:
        return arg.ring, src[0].domain, src[0].device
    return src[0].ring, src[0].domain, src[0].device


_TYPING: dict[Op, Callable[[tuple[Node, ...], Any], _Type]] = {
    Op.BUFFER: _data,
    Op.CONST: _data,
    Op.RANDOM: _data,
    Op.AS_RING: _as_ring,
    Op.TO_RNS: lambda src, arg: (arg[0], Domain.COEFF, src[0].device),
    Op.ADD: _sum,
    Op.SUB: _sum,
    Op.MUL: _product,
    Op.NTT: _in_domain(Domain.NTT),
    Op.INTT: _in_domain(Domain.COEFF),
    Op.TO_RING: _to_ring,
    Op.RESCALE: _rescale,
    Op.ROTATE: _in_domain(Domain.NTT),
    Op.CONJUGATE: _in_domain(Domain.NTT),
    Op.AUTOMORPHISM: _in_domain(Domain.NTT),
    Op.PERMUTE: _permute,
    Op.BASE_CONVERT: lambda src, arg: (arg, Domain.COEFF, src[0].device),
    Op.LIFT: lambda src, arg: (arg, Domain.COEFF, src[0].device),
    Op.JOIN: lambda src, arg: (arg, src[0].domain, src[0].device),
    Op.COPY: lambda src, arg: (src[0].ring, src[0].domain, arg),
    Op.SINK: _untyped,
    Op.STORE: _untyped,
    Op.GROUP: _untyped,
    Op.WHERE: lambda src, arg: (src[1].ring, src[1].domain, src[1].device),
    Op.BUFFERIZE: lambda src, arg: (src[0].ring, src[0].domain, arg.device),
    Op.INDEX: _untyped,
    Op.KERNEL: _untyped,
}


def is_const(node: Node) -> bool:
    """Whether the node is a symbolic constant polynomial."""
    return node.op is _AS_RING and node.src[0].op is _CONST


def is_scalar(node: Node) -> bool:
    """Whether a product with the node is limb by limb the same factor at each coefficient, in either domain."""
    return node.op is Op.AS_RING and node.src[0].op in (Op.CONST, Op.RESIDUES)


def const_value(node: Node) -> int:
    """The integer of a symbolic constant polynomial."""
    return node.src[0].arg.value


def const(value: int, ring: RingSpec, domain: Domain, device: str) -> Node:
    """The constant polynomial `value`, reduced modulo q, in `ring`."""
    return Node(Op.AS_RING, DType.U32, (Node(Op.CONST, DType.U32, (), Const(value % ring.q, device)),), (ring, domain))


_OTHER = {Op.NTT: Op.INTT, Op.INTT: Op.NTT}


def transform(op: Op, node: Node) -> Node:
    """NTT or INTT of a node that stands in the other domain; a transform of its inverse is what was transformed."""
    if node.op is _OTHER[op]:
        return node.src[0]
    return Node(op, DType.U32, (node,))


def in_domain(node: Node, domain: Domain | None) -> Node:
    """The same polynomial in the given domain. Constants go over freely; others by a transform."""
    if node.domain is domain or domain is None:
        return node
    assert node.ring is not None
    if is_const(node):
        return const(const_value(node), node.ring, domain, node.device or "python")
    return transform(Op.NTT if domain is Domain.NTT else Op.INTT, node)


def rebuilt(node: Node, src: tuple[Node, ...]) -> Node:
    """The same operation on equal sources, in the same domain.

    A source that turned into a constant can move a product or a sum to the other domain; the users of `node` were built for
    the domain it had.
    """
    return in_domain(node.with_src(src), node.domain)


def buffer(ident: BufferId) -> Node:
    """The BUFFER node of an identity."""
    return Node(_BUFFER, _U32, (), ident)


def storage(node: Node) -> Node | None:
    """The BUFFER (or BUFFER_VIEW) that holds a polynomial or words as they are, or None if it must be computed."""
    op = node.op
    if op is _AS_RING:
        node = node.src[0]
        op = node.op
    if op is _AFTER:
        node = node.src[0]
        op = node.op
    return node if op is _BUFFER or op is _BUFFER_VIEW else None


def is_settled(node: Node) -> bool:
    """Whether nothing is left to compute: the node is a constant polynomial or held by a buffer."""
    return is_const(node) or storage(node) is not None


def attach(node: Node, data: Any) -> None:
    """Let a node keep what the engine knows of it; that lives as long as the node."""
    object.__setattr__(node, "data", data)


def shape_of(node: Node) -> tuple[int, int]:
    """Rows and columns of the words that the node stands for: (limbs, n) of a polynomial, (limb_count, n) of raw words."""
    if node.ring is not None:
        return node.ring.limbs, node.ring.n
    while node.op in (Op.AFTER, Op.COPY, Op.BUFFERIZE, Op.CONTIGUOUS):
        node = node.src[0]
    return node.arg.shape


def join_rows(node: Node) -> list[list[tuple[int, int]]]:
    """For each operand of a JOIN, the limbs of the result that it gives: (limb of the result, limb of the operand)."""
    assert node.ring is not None
    rows: list[list[tuple[int, int]]] = [[] for _ in node.src]
    rings = [source.ring for source in node.src]
    for limb, p in enumerate(node.ring.moduli):
        number = next(i for i, ring in enumerate(rings) if ring is not None and p in ring.moduli)
        rows[number].append((limb, rings[number].moduli.index(p)))  # type: ignore[union-attr]
    return rows


def watch(node: Node, user: Any) -> None:
    """Remember, weakly, that `user` depends on a node."""
    users = node.users
    if users is None:
        users = set()
        object.__setattr__(node, "users", users)
    users.add(weakref.ref(user))
    size = len(users)
    if size >= 16 and size & (size - 1) == 0:  # now and then, drop those that are gone
        users.difference_update([ref for ref in list(users) if ref() is None])


def stamp(node: Node, origin: Origin) -> None:
    """Remember a source line as an origin of the node."""
    origins = node.origins
    if origin not in origins:
        object.__setattr__(node, "origins", (*origins, origin))
