"""Keys, and the context that holds them.

A context is made active with `with ctx:`; operations use the innermost active context of their thread. What needs randomness or
a realization of its own, such as a rotation key that is missing, is done outside of any capture and out of sight of traces.
"""

import contextvars
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Self

from ren_lab.engine import capture
from ren_lab.jit import register_key
from ren_lab.options import current as current_options
from ren_lab.options import using
from ren_lab.poly import Poly
from ren_lab.ring.primes import integer
from ren_lab.schemes.ckks.keyswitch import SwitchingKey, make_switching_key
from ren_lab.schemes.ckks.params import ERROR_SIGMA, CKKSParams

_key_ids = itertools.count(1)
_MANY_KEYS = 8


def _aside(function: Callable[[], Any]) -> Any:
    """Call a function with the same options, but outside of the running capture, trace and scheme context."""
    options = current_options()
    settings = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}

    def call() -> Any:
        with using(**settings):
            return function()

    return contextvars.Context().run(call)


class _Sealed:
    """Something that holds secrets: it can't be copied or pickled."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} can't be pickled or copied, since it may hold a secret key; hand out evaluation keys as "
            "`ctx.evaluation()` within this process, and keep secrets where they were made"
        )


class SecretKey(_Sealed):
    """A uniform ternary secret. It never shows itself; `encrypt(..., secret=...)` and `decrypt` use it."""

    __slots__ = ("_poly",)

    def __init__(self, poly: Poly) -> None:
        self._poly = poly  # the extended ring, NTT domain, realized

    def __repr__(self) -> str:
        return f"<SecretKey of {self._poly.ring.label}, hidden>"


class PublicKey:
    """(b, a) with b + a*s = e over the encryption ring, realized in the NTT domain."""

    __slots__ = ("b", "a")

    def __init__(self, b: Poly, a: Poly) -> None:
        self.b, self.a = b, a

    def __repr__(self) -> str:
        return f"<PublicKey of {self.a.ring.label}>"


class CKKSContext(_Sealed):
    """Parameters and keys; `keygen` makes it, `with ctx:` makes it active.

    Attributes:
        params: the parameters.
        device: where its keys and ciphertexts live.
        key_id: tells the key sets of this process apart; ciphertexts carry it.
        public_key: what `encrypt` uses.
        secret_key: the secret, or None in a context that can only encrypt and evaluate.
    """

    def __init__(
        self,
        params: CKKSParams,
        device: str,
        key_id: int,
        public_key: PublicKey,
        relinearization_key: SwitchingKey,
        secret_key: SecretKey | None,
        galois_keys: dict[str, SwitchingKey],
    ) -> None:
        self.params = params
        self.device = device
        self.key_id = key_id
        self.public_key = public_key
        self.secret_key = secret_key
        self.relinearization_key = relinearization_key
        self._galois_keys = galois_keys
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        _active.set((*_active.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        contexts = _active.get()
        if not contexts or contexts[-1] is not self:
            raise RuntimeError(f"{self!r} is left, but it is not the innermost active context; leave contexts in reverse order")
        _active.set(contexts[:-1])

    def __repr__(self) -> str:
        secret = "with its secret key" if self.secret_key is not None else "for encryption and evaluation"
        count = len(self._galois_keys)
        keys = f"{count} rotation key{'s' * (count != 1)}"
        return f"<CKKSContext {secret}, {keys}, {self.nbytes / 2**20:.3g} MiB on {self.device}, {self.params!r}>"

    @property
    def nbytes(self) -> int:
        """The memory of its public and evaluation keys."""
        ring = self.params.encryption_ring
        switching = [self.relinearization_key, *self._galois_keys.values()]
        return 2 * 4 * ring.n * ring.limbs + sum(key.nbytes for key in switching)

    @property
    def rotations(self) -> tuple[int, ...]:
        """The rotations, from 1 to n/2 - 1, for which there are keys."""
        return tuple(sorted(int(name) for name in self._galois_keys if name != _CONJUGATION))

    def rotation_key(self, k: int) -> SwitchingKey:
        """The key that rotations by `k` need; made on demand where the secret key is at hand.

        Raises:
            RuntimeError: it is missing, and this context can't make it.
        """
        k %= self.params.slot_count
        return self._galois_key(str(k), lambda s: s.rotate(-k), f"rotation by {k}", f"rotations=[{k}]")

    def conjugation_key(self) -> SwitchingKey:
        """The key that conjugation needs; as `rotation_key`."""
        return self._galois_key(_CONJUGATION, lambda s: s.conjugate(), "conjugation", "conjugation=True")

    def _galois_key(self, name: str, back: Callable[[Poly], Poly], what: str, option: str) -> SwitchingKey:
        # Ciphertexts are switched to the secret moved back, and moved forward afterwards: then only two results are permuted.
        with self._lock:
            key = self._galois_keys.get(name)
            if key is None:
                if self.secret_key is None:
                    raise RuntimeError(
                        f"the evaluation key for {what} is missing, and this context has no secret key to make it; declare it "
                        f"where keys are made, as keygen(params, {option}), or use it there once before calling evaluation()"
                    )
                s = self.secret_key._poly
                key = self._galois_keys[name] = _aside(lambda: make_switching_key(self.params, s, back(s).realize()))
            return key

    def evaluation(self) -> "CKKSContext":
        """A context with the same public and evaluation keys and without the secret key."""
        with self._lock:
            keys = dict(self._galois_keys)
        return CKKSContext(self.params, self.device, self.key_id, self.public_key, self.relinearization_key, None, keys)


_CONJUGATION = "conjugation"
_active: contextvars.ContextVar[tuple[CKKSContext, ...]] = contextvars.ContextVar("ren_lab_ckks", default=())


def active_context() -> CKKSContext | None:
    """The innermost active context of this thread, or None."""
    contexts = _active.get()
    return contexts[-1] if contexts else None


register_key(active_context)


def context() -> CKKSContext:
    """The innermost active context of this thread.

    Raises:
        RuntimeError: none is active.
    """
    found = active_context()
    if found is None:
        raise RuntimeError(
            "no CKKS context is active on this thread; make keys with ctx = keygen(params) and work inside `with ctx:`"
        )
    return found


def keygen(
    params: CKKSParams, *, rotations: Iterable[int] = (), conjugation: bool = False, device: str | None = None
) -> CKKSContext:
    """Fresh keys: secret, public, relinearization, and those asked for.

    The secret is uniform ternary and errors are discrete Gaussian of standard deviation 3.2; everything is drawn from ChaCha20
    keyed by the operating system. Other rotation keys are made when they are first needed.

    Args:
        params: the parameters.
        rotations: by how many slots an evaluation context shall be able to rotate.
        conjugation: whether it shall be able to conjugate.
        device: where keys and ciphertexts live; the default device if None.

    Raises:
        TypeError: `params` is no CKKSParams, `rotations` no iterable, or a rotation no integer.
        RuntimeError: called inside a jitted function.
    """
    if not isinstance(params, CKKSParams):
        raise TypeError(f"keygen takes CKKSParams, such as CKKSParams.default(), not {params!r} of type {type(params).__name__}")
    if capture.capturing():
        raise RuntimeError(
            "Random number generation during jit capture is not supported; make keys before calling a jitted function"
        )
    if not isinstance(rotations, Iterable) or isinstance(rotations, str | bytes):
        raise TypeError(
            f"rotations is {rotations!r} of type {type(rotations).__name__}; give the amounts in a list, such as [1, 2]"
        )
    wanted = sorted({integer(k, "a rotation") % params.slot_count for k in rotations} - {0})
    ctx = _aside(lambda: _keygen(params, device))
    if len(wanted) >= _MANY_KEYS:
        from tqdm.auto import tqdm

        wanted = tqdm(wanted, desc="rotation keys", unit="key", leave=False)
    for k in wanted:
        ctx.rotation_key(k)
    if conjugation:
        ctx.conjugation_key()
    return ctx


def _keygen(params: CKKSParams, device: str | None) -> CKKSContext:
    s = Poly.ternary(params.extended_ring, device).ntt().realize()
    ring = params.encryption_ring
    a = Poly.uniform(ring, device).ntt()
    b = Poly.gaussian(ring, ERROR_SIGMA, device) - a * s.to_ring(ring)
    b.realize(a)
    relinearization = make_switching_key(params, (s * s).realize(), s)
    return CKKSContext(params, s.device, next(_key_ids), PublicKey(b, a), relinearization, SecretKey(s), {})
