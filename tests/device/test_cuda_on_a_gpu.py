"""What only a GPU can show: results equal NumPy's bit for bit, whatever the size, the thread and the memory left.

For memory faults and races run it under the sanitizer of the CUDA toolkit, once per tool:
`compute-sanitizer --tool memcheck python -m pytest tests/device` and the same with `racecheck`, `initcheck` and `synccheck`.
"""

import importlib.util
import pathlib
import threading

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ren_lab as ren
from ren_lab.backends import DeviceUnavailable, backend
from ren_lab.backends.cuda.errors import OutOfMemory
from ren_lab.backends.cuda.graph import Plan
from ren_lab.backends.python import sampling
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec, find_primes
from ren_lab.schemes.ckks import CKKSParams, decode, decrypt, encode, encrypt, keygen

pytestmark = pytest.mark.device("cuda")
DEVICE = "cuda"


def _random_program():
    """The generator of random programs, from the native backend's test."""
    place = pathlib.Path(__file__).parents[1] / "property" / "test_cpu_programs.py"
    spec = importlib.util.spec_from_file_location("programs_for_a_gpu", place)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made.program


random_program = _random_program()


@given(seed=st.integers(0, 2**32), log_n=st.integers(1, 7), limbs=st.integers(1, 8), steps=st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_random_programs(seed: int, log_n: int, limbs: int, steps: int) -> None:
    assert random_program(seed, 2**log_n, limbs, steps, DEVICE) == random_program(seed, 2**log_n, limbs, steps, "python")


@pytest.mark.parametrize(("log_n", "limbs"), [(9, 16), (12, 5), (13, 3), (14, 6), (15, 4)], ids=str)
def test_larger_programs(log_n: int, limbs: int) -> None:
    assert random_program(log_n, 2**log_n, limbs, 14, DEVICE) == random_program(log_n, 2**log_n, limbs, 14, "python")


@pytest.mark.parametrize("bits", [20, 29, 30, 31])
@pytest.mark.parametrize("log_n", range(1, 18))
def test_transforms(log_n: int, bits: int) -> None:
    n = 2**log_n
    if 2 * n >= 2**bits:
        pytest.skip(f"there is no prime of {bits} bits for n = 2^{log_n}")
    ring = RingSpec(n, tuple(find_primes(n, bits, 1 if bits - log_n < 6 else 3)))
    values = np.random.default_rng(log_n).integers(0, 2**62, n)
    for steps in (lambda p: p.ntt(), lambda p: p.ntt().intt(), lambda p: (p * p).intt()):
        assert steps(Poly(values, ring, DEVICE)).tobytes() == steps(Poly(values, ring, "python")).tobytes()


def test_forty_limbs_at_the_largest_degree() -> None:
    n = 2**17
    ring = RingSpec(n, tuple(find_primes(n, 30, 40)))
    values = np.random.default_rng(0).integers(0, 2**62, n)
    square, wanted = (Poly(values, ring, where).ntt() for where in (DEVICE, "python"))
    assert (square * square).intt().tobytes() == (wanted * wanted).intt().tobytes()


def _body(a: Poly, b: Poly, part: RingSpec, other: RingSpec) -> tuple[Poly, ...]:
    c = (a * b).rotate(3) + 7
    return c, c.to_ring(part) * 3, a, (c + a).to_ring(other), c.rescale(a.ring.moduli[:1]), a.contiguous() * b


@pytest.mark.parametrize("reuse", [False, True], ids=["new-outputs", "reused-outputs"])
@pytest.mark.parametrize("log_n", [3, 9, 14])
def test_replayed_plans(log_n: int, reuse: bool) -> None:
    n = 2**log_n
    primes = tuple(find_primes(n, 28, 7))
    ring, other, part = RingSpec(n, primes[:4]), RingSpec(n, primes[4:]), RingSpec(n, primes[1:4])

    def replayed(where: str) -> list[bytes]:
        jitted = ren.jit(lambda a, b: _body(a, b, part, other), reuse_outputs=reuse)
        a, b = (Poly(np.random.default_rng(i).integers(0, 2**62, n), ring, where).realize() for i in range(2))
        seen = []
        for _ in range(6):
            out = jitted(a, b)
            seen += [p.tobytes() for p in out]
            a, b = out[0], out[2]
        if where == DEVICE:
            assert all(isinstance(plan.program.runner, Plan) for plan in jitted.plans)
        return seen

    assert replayed(DEVICE) == replayed("python")


def test_draws() -> None:
    ring = RingSpec(2**13, tuple(find_primes(2**13, 31, 5)))

    def drawn(where: str) -> list[bytes]:
        with sampling.insecure_seeded_randomness_for_tests(5):
            polys = [
                Poly.uniform(ring, where), Poly.ternary(ring, where), Poly.gaussian(ring, 3.2, where),
                Poly.sparse_ternary(ring, 64, where), Poly.uniform_on_interval(ring, -5, 10**9, where),
            ]  # fmt: skip
            return [p.tobytes() for p in polys]

    assert drawn(DEVICE) == drawn("python")


@pytest.mark.parametrize("name", ["python_test", "default"])
def test_ckks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    params = getattr(CKKSParams, name)()
    values = np.random.default_rng(0).uniform(-1, 1, params.slot_count)

    def computed(where: str) -> tuple[list[bytes], np.ndarray]:
        generator = sampling.InsecureSeededGenerator("ckks")  # keys are made outside of every context
        monkeypatch.setattr(sampling, "_shared", lambda: generator)
        with keygen(params, rotations=[1], device=where):
            x = encrypt(encode(values)).realize()
            chain = ren.jit(lambda c: (2 * c * c - 1).rotate(1))
            y = [chain(chain(x)) for _ in range(3)]
            return [p.tobytes() for c in y for p in (c.a, c.b)], np.real(decode(decrypt(y[-1])))

    reference = "cpu" if any(device.name == "cpu" and device.available for device in ren.devices()) else "python"
    got, wanted = computed(DEVICE), computed(reference)
    assert got[0] == wanted[0] and np.array_equal(got[1], wanted[1])


def test_several_threads_at_once() -> None:
    n = 2**12
    ring = RingSpec(n, tuple(find_primes(n, 30, 4)))
    chain = ren.jit(lambda x: (x * x + 1) * x)
    inputs = [Poly(np.arange(n) + i, ring, DEVICE).ntt().realize() for i in range(6)]
    wanted = [chain.fn(Poly(np.arange(n) + i, ring, "python").ntt()).tobytes() for i in range(6)]
    wrong: list[int] = []

    def repeat(i: int) -> None:
        for _ in range(50):
            fresh = Poly(np.arange(n) + i, ring, "python").ntt().to(DEVICE)
            if chain(inputs[i]).tobytes() != wanted[i] or chain(fresh.realize()).tobytes() != wanted[i]:
                wrong.append(i)

    started = [threading.Thread(target=repeat, args=(i,)) for i in range(6)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not wrong


def test_transfers_and_kernels_overlap_without_mixing() -> None:
    """Blocks go to and fro and are taken again at once while kernels use others."""
    n = 2**15
    ring = RingSpec(n, tuple(find_primes(n, 30, 8)))
    place = backend(DEVICE)
    rng = np.random.default_rng(0)
    words = [np.array([rng.integers(0, p, n) for p in ring.moduli], np.uint32) for _ in range(6)]
    busy = Poly(np.arange(n), ring, DEVICE).ntt().realize()
    kept = []
    for i in range(60):
        busy = (busy * busy).realize()
        held = place.from_host(words[i % 6])
        target = place.allocate(held.shape)
        place.copy_from(target, held, place)
        del held
        place.copy_from(target, words[(i + 1) % 6], place)
        copied = place.allocate(target.shape)
        place.copy_from(copied, target, place)
        kept = [*kept[-5:], (copied, (i + 1) % 6)]
        for storage, number in kept:
            assert np.array_equal(place.to_host(storage), words[number])


def test_running_out_of_memory_and_going_on() -> None:
    n = 2**16
    ring = RingSpec(n, tuple(find_primes(n, 30, 40)))
    held = []
    shape = (2**14, n)  # 4 GiB each
    with pytest.raises(OutOfMemory, match="has no room for 4096.0 MiB: .* are free"):
        for _ in range(200):
            held.append(backend(DEVICE).from_host(np.zeros((1, 2), np.uint32)))
            made = backend(DEVICE).allocate(shape)
            made.address  # noqa: B018 - takes the memory
            held.append(made)
    held.clear()
    assert (Poly([1, 2], ring, DEVICE).ntt() * 3).intt().tolist()[:3] == [3, 6, 0]


def test_a_second_gpu() -> None:
    try:
        backend("cuda:1")
    except DeviceUnavailable as missing:
        pytest.skip(str(missing))
    n = 2**13
    ring = RingSpec(n, tuple(find_primes(n, 30, 6)))
    x = Poly(np.arange(n), ring, DEVICE).ntt().realize()
    wanted = Poly(np.arange(n), ring, "python").ntt()
    for _ in range(20):
        there = (x * x).to("cuda:1")
        assert ((there + 1).to(DEVICE) * x).tobytes() == ((wanted * wanted + 1) * wanted).tobytes()


def test_the_device_describes_itself() -> None:
    (found,) = [device for device in ren.devices() if device.name == "cuda"]
    assert found.available and "GiB, compute capability" in found.description


def test_integers_agree() -> None:
    """One product against plain integers, so that not all of this rests on the NumPy backend."""
    ring = RingSpec(64, tuple(find_primes(64, 31, 3)))
    a, b = ([int(v) for v in np.random.default_rng(i).integers(0, 2**62, 64)] for i in range(2))
    assert (Poly(a, ring, DEVICE) * Poly(b, ring, DEVICE)).tolist() == oracle.negacyclic_product(a, b, ring.q)
