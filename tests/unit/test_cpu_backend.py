"""The native device as the engine sees it: storage, draws, transfers, plans, threads, sources."""

import threading

import cpu_variants
import numpy as np
import pytest
from test_cpu_transform import kernel, load, residues

import ren_lab as ren
from ren_lab.backends import backend
from ren_lab.backends.cpu.kernel import ALIGNMENT, address
from ren_lab.backends.python import arith
from ren_lab.backends.python.sampling import insecure_seeded_randomness_for_tests
from ren_lab.backends.render import C, render
from ren_lab.ir import DType, Node, Op
from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec, find_primes

RING = RingSpec(32, (193, 257, 449))


@pytest.fixture(scope="module")
def device() -> str:
    return cpu_variants.device("native2")


def _add(ring: RingSpec) -> Node:
    shape = (ring.limbs, ring.n)
    return kernel(Node(Op.ADD, DType.U32, (load(1, shape, ring, Domain.NTT), load(2, shape, ring, Domain.NTT))))


def test_storage_is_an_aligned_array(device: str) -> None:
    place = backend(device)
    words = np.arange(96, dtype=np.uint32).reshape(3, 32)
    made = place.from_host(words)
    words[...] = 0
    assert made.tolist() == np.arange(96).reshape(3, 32).tolist()
    for storage in (made, place.allocate((1, 2)), place.allocate((5, 8))):
        assert storage.dtype == np.uint32 and address(storage) % ALIGNMENT == 0
        assert address(storage) == storage.ctypes.data


def test_a_storage_of_another_shape_or_stride_is_refused(device: str) -> None:
    call = backend(device).compile(_add(RING))
    x = residues(RING, 1)
    with pytest.raises(ValueError, match=r"storage of shape \(3, 16\); it works on \(3, 32\)"):
        call(np.empty_like(x), x, x[:, :16])
    with pytest.raises(ValueError, match="not contiguous"):
        call(np.empty_like(x), x, np.repeat(x, 2, axis=1)[:, ::2])


def test_inputs_closed_for_writing_are_read(device: str) -> None:
    x = residues(RING, 1)
    x.flags.writeable = False
    out = np.empty_like(x)
    backend(device).compile(_add(RING))(out, x, x)
    assert np.array_equal(out, arith.add(x, x, RING))


def test_draws_are_those_of_the_samplers(device: str) -> None:
    """Secrets come from one place: with the generator of tests, both devices draw the same."""

    def drawn(where: str) -> list[bytes]:
        with insecure_seeded_randomness_for_tests(5):
            polys = [
                Poly.uniform(RING, where), Poly.ternary(RING, where), Poly.gaussian(RING, 3.2, where),
                Poly.sparse_ternary(RING, 7, where), Poly.uniform_on_interval(RING, -5, 10**9, where),
            ]  # fmt: skip
            return [p.tobytes() for p in polys]

    assert drawn(device) == drawn("python")


def test_polynomials_go_over_to_other_devices_and_back(device: str) -> None:
    x = Poly([1, 2, 3], RING, device)
    assert ((x * x).to("python") + 1).to(device).tolist() == [2, 4, 10, 12, 9] + [0] * 27


def test_plans_run_natively_and_leave_random_ones_to_the_engine(device: str) -> None:
    from ren_lab.engine import compile_sink, sink_of
    from ren_lab.options import current

    def runner(poly: Poly) -> object:
        return backend(device).plan_runner(compile_sink(sink_of([poly.node]), current())[0])  # type: ignore[attr-defined]

    x = Poly([1, 2], RING, device).realize()
    assert runner(x * x + 1) is not None
    assert runner(x * Poly.uniform(RING, device)) is None
    assert runner((x * x).to("python")) is None


def test_a_plan_runs_in_several_threads_at_once(device: str) -> None:
    ring = RingSpec(2**12, find_primes(2**12, 30, 4))

    @ren.jit
    def square_chain(x: Poly) -> Poly:
        for _ in range(6):
            x = x * x + 1
        return x

    inputs = [Poly(np.arange(2**12) + i, ring, device).ntt().realize() for i in range(4)]
    wanted = [square_chain(x).realize().tobytes() for x in inputs]
    wrong: list[int] = []

    def repeat(i: int) -> None:
        for _ in range(20):
            if square_chain(inputs[i]).realize().tobytes() != wanted[i]:
                wrong.append(i)

    started = [threading.Thread(target=repeat, args=(i,)) for i in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_results_do_not_depend_on_the_thread_count(device: str, threads: int) -> None:
    ring = RingSpec(2**12, find_primes(2**12, 31, 5))
    x = residues(ring, 3)
    place = backend(device)
    call = place.compile(kernel(Node(Op.NTT, DType.U32, (load(1, x.shape, ring, Domain.COEFF),))))
    kept = place._threads  # type: ignore[attr-defined]
    place._threads = threads  # type: ignore[attr-defined]
    try:
        for _ in range(10):
            out = place.allocate(x.shape)
            call(out, x)
            assert np.array_equal(out, arith.ntt(x, ring))
    finally:
        place._threads = kept  # type: ignore[attr-defined]


def test_kernels_that_differ_in_constants_are_one_text() -> None:
    """So that the levels of a scheme share their compiled kernels."""
    other = RingSpec(64, (257, 641))
    first, second = render(_add(RING), C), render(_add(other), C)
    assert first.code == second.code
    assert first.numbers != second.numbers and first.tables != second.tables


def test_the_source_can_be_read(device: str) -> None:
    text = backend(device).source(_add(RING))
    assert "out = in1 + in2" in text
    assert "add(v0, v1, p)" in text
    assert "number[0] = 32: n" in text and "moduli" in text
    assert text.count("{") == text.count("}")
    x = Poly([1], RING, device)
    with ren.trace() as recording:
        (x * x).rotate(1).realize()
    sources = [k.source for k in recording.realizations[-1].kernels]
    assert any("gather(" in source for source in sources) and any("k->rt->ntt(" in source for source in sources)
