"""`Poly`: lazy polynomials over RNS rings.

Operations build a graph and compute nothing. `realize` compiles and runs what a polynomial depends on; so does asking for its
values. A polynomial never changes its value; realizing it only changes where the value comes from.
"""

import itertools
import operator
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ren_lab.backends import backend, default_device, device_name
from ren_lab.backends.python import arith
from ren_lab.engine import capture, host_words, new_buffer, realize_nodes
from ren_lab.events import hook, user_line
from ren_lab.functions import keep_over_fork
from ren_lab.ir import DType, Node, Op, Random, const, is_const, is_settled, rebuilt, stamp, storage, watch
from ren_lab.options import current as current_options
from ren_lab.ring import Domain, RingSpec, check_interval, check_sigma, check_weight

_draws = itertools.count()


class Poly:
    """A polynomial of Z_q[X]/(X^n + 1), computed when its value is asked for.

    Args:
        coeffs: at most `ring.n` integers of any size, lowest degree first, as a sequence or a one-dimensional integer array;
            missing ones are zero. Each is reduced modulo q.
        ring: the ring.
        device: where to keep and compute it, such as "python"; the default device if None.

    Raises:
        TypeError: a coefficient is no integer, or `ring` is no RingSpec.
        ValueError: too many coefficients, or an unknown device.
        DeviceUnavailable: the device is known and not there.

    >>> ring = RingSpec(n=4, moduli=(17, 97))
    >>> x = Poly([1, 2], ring)
    >>> (x * x + 1).tolist()
    [2, 4, 4, 0]
    """

    __slots__ = ("_node", "__weakref__")
    _node: Node
    __array_ufunc__ = None  # arrays leave arithmetic with a Poly to the Poly

    def __init__(self, coeffs: Sequence[int] | np.ndarray, ring: RingSpec, device: str | None = None) -> None:
        _check_ring(ring)
        target = _device(device)
        words = _pack(coeffs, ring)
        node = new_buffer("python", (words.shape[0], ring.n), words)
        if target != "python":
            node = Node(Op.COPY, DType.U32, (node,), target)
        self._take(Node(Op.TO_RNS, DType.U32, (node,), (ring, words.shape[0])))

    def _take(self, node: Node) -> None:
        if current_options().source_lines:
            stamp(node, user_line())
        self._node = node
        if not is_settled(node):
            _watch(self, node)

    @classmethod
    def of_node(cls, node: Node) -> "Poly":
        """The polynomial that a typed node of the graph computes; for code that builds graphs itself."""
        poly = object.__new__(cls)
        poly._take(node)
        return poly

    @classmethod
    def of_settled(cls, node: Node) -> "Poly":
        """The polynomial of a constant, or of a node that a buffer holds: no line of the user's computes it any more."""
        poly = object.__new__(cls)
        poly._node = node
        return poly

    # makers

    @classmethod
    def const(cls, c: int, ring: RingSpec, device: str | None = None) -> "Poly":
        """The constant polynomial c, reduced modulo q. It stays symbolic and takes no memory."""
        _check_ring(ring)
        return cls.of_node(const(_integer(c, "a constant"), ring, Domain.COEFF, _device(device)))

    @classmethod
    def uniform(cls, ring: RingSpec, device: str | None = None) -> "Poly":
        """Coefficients drawn independently and uniformly from [0, q) when first realized."""
        return cls._draw(ring, device, "uniform")

    @classmethod
    def uniform_on_interval(cls, ring: RingSpec, low: int, high: int, device: str | None = None) -> "Poly":
        """Coefficients drawn independently and uniformly from the integers low <= c < high; `ValueError` if there are none."""
        return cls._draw(ring, device, "interval", *check_interval(low, high))

    @classmethod
    def ternary(cls, ring: RingSpec, device: str | None = None) -> "Poly":
        """Coefficients drawn independently and uniformly from {-1, 0, 1}."""
        return cls._draw(ring, device, "ternary")

    @classmethod
    def sparse_ternary(cls, ring: RingSpec, weight: int, device: str | None = None) -> "Poly":
        """Exactly `weight` coefficients, at uniform places, are -1 or 1 with equal probability; the others are 0."""
        _check_ring(ring)
        return cls._draw(ring, device, "sparse_ternary", check_weight(weight, ring.n))

    @classmethod
    def gaussian(cls, ring: RingSpec, sigma: float, device: str | None = None) -> "Poly":
        """Coefficients drawn independently from the discrete Gaussian of parameter `sigma` around 0."""
        return cls._draw(ring, device, "gaussian", check_sigma(sigma))

    @classmethod
    def _draw(cls, ring: RingSpec, device: str | None, distribution: str, *parameters: int | float) -> "Poly":
        _check_ring(ring)
        if capture.capturing():
            raise RuntimeError("Random number generation during jit capture is not supported")
        source = Node(Op.RANDOM, DType.U32, (), Random(f"r{next(_draws)}", _device(device), distribution, parameters))
        return cls.of_node(Node(Op.AS_RING, DType.U32, (source,), (ring, Domain.COEFF)))

    # what it is

    @property
    def ring(self) -> RingSpec:
        """The ring it lives in."""
        ring = self._node.ring
        assert ring is not None
        return ring

    @property
    def domain(self) -> Domain:
        """The domain its residues are in once realized: coefficients, or values at the roots (NTT)."""
        domain = self._node.domain
        assert domain is not None
        return domain

    @property
    def device(self) -> str:
        """The device that keeps and computes it."""
        return self._node.device or "python"

    @property
    def node(self) -> Node:
        """The graph that computes it now: a buffer or a constant once it is realized."""
        return self._node

    @property
    def is_realized(self) -> bool:
        """Whether nothing is left to compute: it stands in a buffer, or is a constant."""
        return is_settled(self._node)

    def __repr__(self) -> str:
        state = "constant" if is_const(self._node) else "realized" if self.is_realized else "lazy"
        return f"<Poly {self.ring.label}, {self.domain.name}, {state} on {self.device}>"

    # arithmetic

    def _binary(self, op: Op, other: Any, swapped: bool = False) -> "Poly":
        right = self._operand(other)
        if right is None:
            return NotImplemented
        return Poly.of_node(Node(op, DType.U32, (right, self._node) if swapped else (self._node, right)))

    def _operand(self, other: Any) -> Node | None:
        """The node of an operand; None leaves the operation to a type that knows Poly."""
        if isinstance(other, Poly):
            a, b = self._node, other._node
            if a.ring is not b.ring and a.ring != b.ring:
                raise ValueError(f"operands live in different rings, {a.ring} and {b.ring}; bring one over with to_ring(ring)")
            if a.device != b.device:
                raise ValueError(
                    f"operands are on different devices, {a.device!r} and {b.device!r}; bring one over with to(device)"
                )
            return b
        if isinstance(other, int | np.integer) and not isinstance(other, bool):
            return const(int(other), self.ring, self.domain, self.device)
        if isinstance(other, bool | float | complex | str | bytes | np.generic | np.ndarray | list | tuple | None):
            raise TypeError(
                f"a Poly can't be combined with {_short(other)} of type {type(other).__name__}; "
                "use a Poly of the same ring or an int, or make a Poly of coefficients with Poly(coeffs, ring)"
            )
        return None

    def __add__(self, other: Any) -> "Poly":
        return self._binary(Op.ADD, other)

    def __radd__(self, other: Any) -> "Poly":
        return self._binary(Op.ADD, other, swapped=True)

    def __sub__(self, other: Any) -> "Poly":
        return self._binary(Op.SUB, other)

    def __rsub__(self, other: Any) -> "Poly":
        return self._binary(Op.SUB, other, swapped=True)

    def __mul__(self, other: Any) -> "Poly":
        return self._binary(Op.MUL, other)

    def __rmul__(self, other: Any) -> "Poly":
        return self._binary(Op.MUL, other, swapped=True)

    def __neg__(self) -> "Poly":
        return self._unary(Op.NEG)

    def __pos__(self) -> "Poly":
        return self

    def _unary(self, op: Op, arg: Any = None) -> "Poly":
        return Poly.of_node(Node(op, DType.U32, (self._node,), arg))

    # domains, rings, automorphisms, places

    def ntt(self) -> "Poly":
        """The same polynomial in the NTT domain."""
        return self if self.domain is Domain.NTT else self._unary(Op.NTT)

    def intt(self) -> "Poly":
        """The same polynomial in the coefficient domain."""
        return self if self.domain is Domain.COEFF else self._unary(Op.INTT)

    def to_ring(self, ring: RingSpec) -> "Poly":
        """The polynomial in another ring of the same degree.

        Where the moduli of `ring` are among its own, the residues are the same ones. Otherwise the centred representative v
        of each coefficient, in (-q/2, q/2], is reduced modulo the new moduli: exactly, unless |v| lies within
        limbs * 2^-32 * q of q/2, where the result may be that of v ± q.
        """
        _check_ring(ring)
        if ring.n != self.ring.n:
            raise ValueError(f"the ring has degree {ring.n}, the polynomial {self.ring.n}; to_ring changes moduli, not the degree")
        return self if ring == self.ring else self._unary(Op.TO_RING, ring)

    def rescale(self, moduli: int | Iterable[int]) -> "Poly":
        """Divide by the product of `moduli` and round to the nearest integer, in the ring without them.

        Exact for one modulus; for several, each coefficient is within 1 of the exact rounding. The domain stays.
        `ValueError` if a modulus is not one of the ring's, or if none would be left.
        """
        dropped = tuple(_integer(m, "a modulus") for m in (moduli if isinstance(moduli, Iterable) else (moduli,)))
        if not dropped:
            return self
        return self._unary(Op.RESCALE, dropped)  # raises what is wrong with them

    def rotate(self, k: int) -> "Poly":
        """The automorphism X -> X^(5^k mod 2n), for any integer k; it is cyclic in n/2 and lands in the NTT domain."""
        return self._unary(Op.ROTATE, _integer(k, "a rotation"))

    def conjugate(self) -> "Poly":
        """The automorphism X -> X^(2n - 1), that is X -> 1/X; it lands in the NTT domain."""
        return self._unary(Op.CONJUGATE)

    def to(self, device: str) -> "Poly":
        """The polynomial on another device. Errors as for `Poly(...)`."""
        target = device_name(device)
        backend(target)
        return self if target == self.device else self._unary(Op.COPY, target)

    def contiguous(self) -> "Poly":
        """The polynomial in one buffer; constants and windows of other buffers are written out."""
        return self._unary(Op.CONTIGUOUS, False)

    def pin(self) -> "Poly":
        """As `contiguous`, in a buffer of its own that the memory planner leaves alone."""
        return self._unary(Op.CONTIGUOUS, True)

    # values

    def realize(self, *more: "Poly") -> "Poly":
        """Compute this polynomial and `more` together, so that shared work is done once; returns self.

        Every other live polynomial whose graph contains one of them uses the result from now on. If something fails, no
        polynomial has changed.
        """
        _check_polys("realize", self, *more)
        _realize([self, *more])
        return self

    def explain(self, *more: "Poly") -> Any:
        """Compile without computing; returns the `Trace` of passes, schedule, kernels and memory plan."""
        _check_polys("explain", self, *more)
        return hook("explain")([self._node, *(m._node for m in more)])

    def _words(self, *more: "Poly") -> np.ndarray:
        """The data at rest, u32[limbs, n] in Montgomery form; `more` is realized along."""
        _realize([self, *more])
        held = storage(self._node)
        if held is None:  # it is a constant, perhaps only since it has been simplified
            written = self.contiguous()
            _realize([written])
            held = storage(written._node)
            assert held is not None
        return host_words(held)

    def numpy(self) -> np.ndarray:
        """Residues of the coefficients, out of Montgomery form: u32[limbs, n], row i in [0, moduli[i])."""
        return arith.from_montgomery(self.intt()._words(self), self.ring)

    def tolist(self) -> list[int]:
        """The n coefficients in [0, q)."""
        return arith.crt(self.numpy(), self.ring)

    def to_centered_list(self) -> list[int]:
        """The n coefficients in (-q/2, q/2]."""
        q = self.ring.q
        return [c - q if c > q // 2 else c for c in self.tolist()]

    def tobytes(self) -> bytes:
        """The data at rest: little-endian u32[limbs, n] in C order, Montgomery form, in its own domain (NTT bit-reversed)."""
        return self._words().astype("<u4", copy=False).tobytes()

    def __copy__(self) -> "Poly":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Poly":
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a Poly can't be pickled; send its ring and tolist(), and build it again with Poly(coeffs, ring)")


_becoming = threading.Lock()  # one thread at a time points polynomials at results
keep_over_fork(_becoming)


def _watch(poly: Poly, node: Node) -> None:
    """Let what is realized below a lazy polynomial find it: nodes know their users, and the last of them are polynomials."""
    watch(node, poly)
    for source in node.src:
        if not is_settled(source):
            watch(source, node)


def _refuse_in_capture() -> None:
    if capture.capturing():
        raise RuntimeError("ren.jit: realize should not be called in a jitted function")


def _realize(polys: Sequence[Poly]) -> None:
    _refuse_in_capture()
    roots = [p._node for p in polys if not is_settled(p._node)]
    if roots:
        apply_becomes(realize_nodes(roots, current_options()))


def apply_becomes(became: dict[Node, Node]) -> None:
    """Let every live polynomial use what was realized: nodes that are keys give way to their values.

    The work grows with what depends on the keys, not with what else is alive.
    """
    with _becoming:
        polys: dict[Poly, None] = {}
        affected: set[Node] = set(became)
        stack = list(became)
        while stack:
            for ref in list(stack.pop().users or ()):
                user = ref()
                if isinstance(user, Poly):
                    polys[user] = None
                elif user is not None and user not in affected:
                    affected.add(user)
                    stack.append(user)
        done: dict[Node, Node] = dict(became)
        for poly in polys:
            old = poly._node
            if old not in affected:
                continue  # it has moved on since it was watched
            new = _with_results(old, affected, done)
            poly._node = new
            if not is_settled(new):
                _watch(poly, new)


def _with_results(root: Node, affected: set[Node], done: dict[Node, Node]) -> Node:
    """The graph of a node on what its sources became; `done` is filled on the way."""
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        pending = [s for s in node.src if s in affected and s not in done]
        if pending:
            stack.extend(pending)
            continue
        new = rebuilt(node, tuple([done.get(s, s) for s in node.src]))
        if node.origins and not new.origins:
            object.__setattr__(new, "origins", node.origins)
        inner = new.src[0] if new.op is not node.op else new  # `rebuilt` may have put a transform around it
        for user in {new, inner}:
            for source in user.src:
                if not is_settled(source):
                    watch(source, user)
        done[node] = new
        stack.pop()
    return done[root]


def _check_polys(what: str, *polys: Any) -> None:
    for poly in polys:
        if not isinstance(poly, Poly):
            raise TypeError(f"{what} takes polynomials, one after the other, not {_short(poly)} of type {type(poly).__name__}")


def _check_ring(ring: Any) -> None:
    if not isinstance(ring, RingSpec):
        raise TypeError(
            f"the ring is {_short(ring)} of type {type(ring).__name__}; give a RingSpec, as RingSpec(n=8, moduli=(17, 97))"
        )


def _device(name: str | None) -> str:
    target = device_name(name or current_options().device or default_device())
    backend(target)
    return target


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _integer(value: Any, what: str) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{what} is {value!r}, a bool; give an integer")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {_short(value)} of type {type(value).__name__}; give an integer") from None


def _pack(coeffs: Sequence[int] | np.ndarray, ring: RingSpec) -> np.ndarray:
    """Coefficients reduced modulo q as little-endian u32 digits: u32[limb_count, n]."""
    if isinstance(coeffs, str | bytes | dict | set) or not hasattr(coeffs, "__len__"):
        raise TypeError(
            f"coefficients are {_short(coeffs)} of type {type(coeffs).__name__}; give a sequence of ints or an integer array"
        )
    if len(coeffs) > ring.n:
        raise ValueError(f"{len(coeffs)} coefficients are given, but the ring has n = {ring.n}; give at most {ring.n}")
    limb_count = (ring.q.bit_length() + 31) // 32
    if isinstance(coeffs, np.ndarray) and coeffs.dtype != object:
        if coeffs.ndim != 1:
            raise ValueError(f"the coefficient array has shape {coeffs.shape}; give a one-dimensional array")
        if coeffs.dtype.kind not in "iu":
            raise TypeError(
                f"the coefficient array is of {coeffs.dtype}; give an integer array, rounding beforehand if that is meant"
            )
        padded = np.zeros(ring.n, coeffs.dtype)
        padded[: len(coeffs)] = coeffs
        return arith.pack_array(padded, ring.q, limb_count)
    values = [_integer(c, f"coefficient {i}") for i, c in enumerate(coeffs)]
    return arith.pack_words(values + [0] * (ring.n - len(values)), ring.q, limb_count)
