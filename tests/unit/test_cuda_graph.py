"""Plans as CUDA graphs, against a stand-in for the driver: capture, what a replay sends, order, memory, errors."""

import gc
import threading

import cuda_recorder
import numpy as np
import pytest
from cuda_recorder import SCHEDULES, driver_of
from test_cpu_transform import residues

import ren_lab as ren
from ren_lab.backends import backend
from ren_lab.backends.cuda.backend import CudaBackend
from ren_lab.backends.cuda.errors import CompileError, DeviceError, LaunchError, OutOfMemory
from ren_lab.backends.cuda.graph import Plan
from ren_lab.backends.python import sampling
from ren_lab.engine import clear_schedule_cache, compile_sink, sink_of
from ren_lab.options import current
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec
from ren_lab.schemes.ckks import Ciphertext, CKKSParams, encode, encrypt, keygen

RING = RingSpec(32, (193, 257, 449))
OTHER = RingSpec(32, (577, 641))
PART = RingSpec(32, (257, 449))


def _body(a: Poly, b: Poly) -> tuple[Poly, ...]:
    """Permutations, views, copies, conversions, outputs that are inputs, more intermediates than one arena slot."""
    c = (a * b).rotate(3) + 7
    d = ((c * c).intt() + a).ntt() * b
    return c, c.to_ring(PART) * 3, a, (c + a).to_ring(OTHER), c.rescale(RING.moduli[:1]), a.contiguous() * b, d


def _polys(where: str, *seeds: int) -> list[Poly]:
    return [Poly(np.random.default_rng(seed).integers(0, 10**6, 32), RING, where).realize() for seed in seeds]


def _replayed(where: str, calls: int, **settings) -> list[bytes]:
    jitted = ren.jit(_body, **settings)
    a, b = _polys(where, 1, 2)
    seen = []
    for _ in range(calls):
        out = jitted(a, b)
        seen += [p.tobytes() for p in out]
        a, b = out[0], out[2]
    return seen


def _plan(function) -> Plan:
    (held,) = function.plans
    runner = held.program.runner
    assert isinstance(runner, Plan)
    return runner


@pytest.mark.parametrize("reuse", [False, True], ids=["new-outputs", "reused-outputs"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_replays_equal_numpy(tmp_path, monkeypatch, schedule, reuse: bool) -> None:
    name, place = cuda_recorder.device(tmp_path, monkeypatch, schedule=schedule)
    assert _replayed(name, 8, reuse_outputs=reuse) == _replayed("python", 8, reuse_outputs=reuse)
    driver = driver_of(place)
    assert len(driver.calls("launch_graph")) >= 4 and len(driver.calls("end_capture")) <= 3


@pytest.mark.parametrize("schedule", ["late", 3])
def test_replays_of_rendered_programs_equal_numpy(tmp_path, monkeypatch, schedule) -> None:
    """The programs themselves, run on the host: launched one by one at first, then as graphs that read their frames."""
    name, place = cuda_recorder.device(tmp_path, monkeypatch, rendered=True, schedule=schedule)
    assert _replayed(name, 5) == _replayed("python", 5)
    assert len(driver_of(place).calls("launch_graph")) >= 2


def test_rendered_ckks_equals_numpy(tmp_path, monkeypatch) -> None:
    """Keys, encryption and a captured chain of products: draws, key switching and rescaling, on the GPU's programs throughout."""
    params = CKKSParams.build(depth=2, precision_bits=8, n=256, insecure=True)
    name, place = cuda_recorder.device(tmp_path, monkeypatch, rendered=True, schedule=4)
    values = np.linspace(-1, 1, params.slot_count)

    def computed(where: str) -> list[bytes]:
        generator = sampling.InsecureSeededGenerator("ckks")  # keys are made outside of every context
        monkeypatch.setattr(sampling, "_shared", lambda: generator)
        with keygen(params, rotations=[1], device=where):
            x = encrypt(encode(values)).realize()
            chain = ren.jit(lambda c: (2 * c * c - 1).rotate(1) * c)
            return [poly.tobytes() for _ in range(3) for poly in _parts(chain(x))]

    assert computed(name) == computed("python")
    assert len(driver_of(place).calls("launch_graph")) >= 2


def _parts(c: Ciphertext) -> tuple[Poly, Poly]:
    return c.a, c.b


@pytest.fixture
def place(tmp_path, monkeypatch) -> CudaBackend:
    return cuda_recorder.device(tmp_path, monkeypatch)[1]


def test_a_plan_is_captured_once_and_each_replay_is_one_launch(place: CudaBackend) -> None:
    driver = driver_of(place)
    square = ren.jit(lambda x: x * x + 1)
    x, y = _polys(place.name, 1, 2)
    for p in (x, y, x):
        square(p)
    del driver.log[:]
    held = [square(p) for p in (y, y, x)]
    plan = _plan(square)
    assert plan.captures == 1
    names = [entry[0] for entry in driver.log]
    assert names.count("launch_graph") == 3 and not {"launch", "begin_capture", "compile", "synchronize"} & set(names)
    assert [stream for _, stream in driver.calls("upload")] == ["compute"] * 3
    want = square.fn(*_polys("python", 2)).tobytes()
    assert held[0].tobytes() == held[1].tobytes() == want


def test_launches_of_a_graph_hold_places_and_the_address_of_the_frame(place: CudaBackend) -> None:
    driver = driver_of(place)
    square = ren.jit(lambda x: x * x + 1)
    (x,) = _polys(place.name, 1)
    square(x)
    square(x)
    plan = _plan(square)
    captured = [entry for entry in driver.calls("launch") if entry[5] == "capture"]
    program = plan._steps[0][0].program
    assert len(captured) == len(program.launches) * len(plan._steps)
    argument = np.frombuffer(captured[0][4], program.call)
    assert int(argument["frame"][0]) == plan._frame.address()
    assert argument["slot"][0].tolist() == plan._slots[0] and max(plan._slots[0]) < plan._total
    driver.finish()
    frame = driver.words(plan._frame.address(), 8 * plan._total).view(np.uint64)
    assert np.array_equal(frame, plan._sent) and int(frame[plan._direct[0]]) and len(set(frame.tolist())) == plan._total


def test_the_frame_is_sent_only_when_it_changes(place: CudaBackend) -> None:
    square = ren.jit(lambda x: x * x + 1, reuse_outputs=True)
    x, y = _polys(place.name, 1, 2)
    for p in (x, x, x, x):
        square(p)
    plan = _plan(square)
    assert plan.replays >= 3 and plan.updates <= 2
    before = plan.updates
    square(y)
    assert plan.updates == before + 1
    assert square(x).tobytes() == square.fn(*_polys("python", 1)).tobytes()
    assert plan.updates == before + 2 and plan.captures == 1


def test_outputs_that_somebody_holds_are_not_overwritten(place: CudaBackend) -> None:
    square = ren.jit(lambda x: x * x + 1)
    inputs = _polys(place.name, *range(6))
    held = [square(p) for p in inputs]
    assert [p.tobytes() for p in held] == [square.fn(p).tobytes() for p in _polys("python", *range(6))]


def test_temporaries_within_kernels_are_shared_and_go_back(place: CudaBackend) -> None:
    """One block for all kernels, as large as the largest wants, taken for a run and given back."""
    driver = driver_of(place)
    chain = ren.jit(lambda x: ((x * x).to_ring(OTHER) * 3).ntt())
    (x,) = _polys(place.name, 1)
    held = [chain(x) for _ in range(3)]
    plan = _plan(chain)
    sizes = [4 * rows * columns for kernel, _, _ in plan._steps for rows, columns in kernel.temporaries]
    assert len(sizes) > 1 and sizes[0] > sizes[-1] and plan._scratch == [max(sizes)]
    del driver.log[:]
    held.append(chain(x))
    assert driver.calls("allocate").count((max(sizes), "compute")) == 1
    in_use = driver.live_bytes
    held.append(chain(x))
    assert driver.live_bytes - in_use == 512  # the new output


def test_a_replay_waits_for_inputs_that_are_on_their_way(place: CudaBackend) -> None:
    square = ren.jit(lambda x: x * x + 1)
    for seed in range(5):
        (y,) = _polys("python", seed)
        assert square(y.to(place.name).realize()).tobytes() == square.fn(y).tobytes()
    assert _plan(square).replays >= 4


def test_what_no_graph_can_run_is_left_to_the_engine(place: CudaBackend) -> None:
    def runner(poly: Poly) -> object:
        return place.plan_runner(compile_sink(sink_of([poly.node]), current())[0])

    x = Poly([1, 2], RING, place.name).realize()
    assert isinstance(runner(x * x + 1), Plan)
    assert runner(x * Poly.uniform(RING, place.name)) is None
    assert runner((x * x).to("python")) is None
    assert runner((x * x).to(f"{place.name}:1")) is None


def test_replays_run_ahead_of_the_gpu_by_a_few_frames_only(place: CudaBackend) -> None:
    driver = driver_of(place)
    square = ren.jit(lambda x: x * x + 1)
    inputs = _polys(place.name, *range(30))
    square(inputs[0])
    del driver.log[:]
    held = [square(x) for x in inputs]
    assert len(driver.calls("pinned")) <= 8 and 15 <= len(driver.calls("synchronize")) <= 30
    assert [p.tobytes() for p in held] == [square.fn(p).tobytes() for p in _polys("python", *range(30))]


def test_a_plan_runs_in_several_threads_at_once(tmp_path, monkeypatch) -> None:
    name, place = cuda_recorder.device(tmp_path, monkeypatch, schedule="late")
    chain = ren.jit(lambda x: ((x * x).intt() + 1).ntt() * x)
    inputs = _polys(name, 1, 2, 3, 4)
    wanted = [chain.fn(p).tobytes() for p in _polys("python", 1, 2, 3, 4)]
    chain(inputs[0])
    wrong: list[int] = []

    def repeat(i: int) -> None:
        for _ in range(15):
            if chain(inputs[i]).tobytes() != wanted[i]:
                wrong.append(i)

    started = [threading.Thread(target=repeat, args=(i,)) for i in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not wrong


def test_a_plan_that_goes_away_waits_for_its_graph(place: CudaBackend) -> None:
    driver = driver_of(place)
    square = ren.jit(lambda x: x * x + 1)
    (x,) = _polys(place.name, 1)
    square(x)
    out = square(x)
    del driver.log[:]
    square.clear_jit()
    clear_schedule_cache()
    gc.collect()
    assert ("compute",) in driver.calls("synchronize")
    assert out.tobytes() == square.fn(*_polys("python", 1)).tobytes()


CALLS = ["allocate", "pinned", "upload", "launch", "function", "begin_capture", "end_capture", "upload_graph", "launch_graph"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("after", range(3))
def test_a_capture_or_replay_that_fails_leaves_nothing_behind(tmp_path, monkeypatch, call: str, after: int) -> None:
    """Whatever fails, and whenever: no stream stays captured, and the next call succeeds."""
    name, place = cuda_recorder.device(tmp_path, monkeypatch)
    driver = driver_of(place)
    x, y = _polys(name, 1, 2)
    chain = ren.jit(lambda x: ((x * x).intt() + 1).ntt() * x)
    wanted = [chain.fn(p).tobytes() for p in _polys("python", 1, 2)]
    driver.fail[call] = (after, DeviceError(f"{call} failed"))
    for p in (x, y, x):
        try:
            chain(p)
        except DeviceError:
            pass
    driver.fail.clear()
    assert [chain(p).tobytes() for p in (x, y)] == wanted
    assert all(stream.captured is None for stream in driver.streams)
    assert _plan(chain).captures == 1
    del chain
    gc.collect()
    driver.finish()
    place.from_host(residues(RING, 1))
    kept = 512 * (2 + 2 * 4 * 3)  # the two inputs, and constants of the rings
    assert driver.live_bytes <= kept


@pytest.mark.parametrize("runs", [0, 1], ids=["first-run", "capture"])
def test_a_failed_launch_names_the_kernel(place: CudaBackend, runs: int) -> None:
    (x,) = _polys(place.name, 1)
    square = ren.jit(lambda x: (x * x).to_ring(OTHER))
    for _ in range(runs):
        square(x)
    driver_of(place).fail["launch"] = (1, LaunchError("refused"))
    with pytest.raises(LaunchError, match="refused") as caught:
        square(x)
    assert any("while the plan's kernel" in note and "was launched on cuda" in note for note in caught.value.__notes__)


def test_a_plan_that_runs_once_is_not_captured(place: CudaBackend) -> None:
    """Realizations are plans too, and most of them run once; when a structure comes again, it becomes a graph."""
    driver = driver_of(place)
    x, y = _polys(place.name, 1, 2)
    wanted = [(p * p + 5).tobytes() for p in _polys("python", 1, 2)]
    del driver.log[:]
    first = (x * x + 5).realize()
    assert not driver.calls("begin_capture") and driver.calls("launch")
    again = [(p * p + 5).realize() for p in (y, x, y)]
    assert len(driver.calls("begin_capture")) == 1 and len(driver.calls("launch_graph")) == 3
    assert [p.tobytes() for p in (first, *again)] == [wanted[0], wanted[1], wanted[0], wanted[1]]


def test_a_kernel_that_does_not_compile_is_named(place: CudaBackend) -> None:
    (x,) = _polys(place.name, 1)
    square = ren.jit(lambda x: x * x + 1)
    driver_of(place).fail["compile"] = CompileError("kernels.cu(1): error: no", "", "kernels.cu(1): error: no")
    with pytest.raises(CompileError, match="NVRTC refused the sources that all kernels share") as caught:
        square(x)
    assert any("while the plan's kernel" in note for note in caught.value.__notes__)


def test_out_of_memory_says_what_the_plan_needs(tmp_path, monkeypatch) -> None:
    ring = RingSpec(2**12, (40961, 65537, 114689))
    name, place = cuda_recorder.device(tmp_path, monkeypatch, memory_bytes=1 << 20)

    @ren.jit
    def chain(x: Poly) -> Poly:
        for _ in range(4):
            x = (x * x).intt() + x.intt()
            x = x.ntt() * x.ntt()
        return x

    x = Poly([1, 2], ring, name).ntt().realize()
    driver = driver_of(place)
    ballast = []
    try:
        while True:
            ballast.append(place.from_host(np.zeros((1, 2**12), np.uint32)))
    except MemoryError:
        ballast = ballast[:-2]
    with pytest.raises(OutOfMemory) as caught:
        chain(x)
    text = str(caught.value)
    assert "the plan needs an arena of 0.1 MiB (at most 0.1 MiB of it live at once), 0.0 MiB for its outputs" in text
    assert "of 1.0 MiB are free" in text
    del ballast
    gc.collect()
    driver.finish()
    want = chain.fn(Poly([1, 2], ring, "python").ntt()).tobytes()
    assert chain(x).tobytes() == want


def test_polynomials_on_two_devices_run_flat(tmp_path, monkeypatch) -> None:
    name, place = cuda_recorder.device(tmp_path, monkeypatch, peers=(0, 1))
    backend(f"{name}:1")
    both = ren.jit(lambda x: (x * x).to(f"{name}:1") + 1)
    (x,) = _polys(name, 1)
    (y,) = _polys("python", 1)
    assert [both(x).tobytes() for _ in range(2)] == 2 * [(y * y + 1).tobytes()]
    assert both.plans[0].replay.runner == "flat"
