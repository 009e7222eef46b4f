"""The CUDA backend's control flow, against a stand-in for the driver: storage, transfers, order, modules, launches, errors."""

import ast as ast_module
import gc
import inspect
import pathlib
import re
import sys
import threading
import types

import cuda_recorder
import numpy as np
import pytest
from cuda_recorder import SCHEDULES, RecordingDriver, driver_of
from test_cpu_transform import kernel, load, residues

import ren_lab as ren
from ren_lab.backends import DeviceUnavailable, backend
from ren_lab.backends.cuda import driver as driver_module
from ren_lab.backends.cuda import storage as storage_module
from ren_lab.backends.cuda.backend import CudaBackend
from ren_lab.backends.cuda.driver import Driver
from ren_lab.backends.cuda.errors import CompileError, DeviceError, LaunchError, OutOfMemory
from ren_lab.backends.cuda.program import Device
from ren_lab.backends.python import arith
from ren_lab.backends.python.sampling import insecure_seeded_randomness_for_tests
from ren_lab.engine import compile_sink, sink_of
from ren_lab.ir import DType, Node, Op
from ren_lab.options import current
from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec

RING = RingSpec(32, (193, 257, 449))
OTHER = RingSpec(32, (577, 641))
SHAPE = (3, 32)


def _sum(ring: RingSpec = RING, op: Op = Op.ADD) -> Node:
    shape = (ring.limbs, ring.n)
    return kernel(Node(op, DType.U32, (load(1, shape, ring, Domain.NTT), load(2, shape, ring, Domain.NTT))))


@pytest.fixture(params=SCHEDULES, ids=lambda schedule: f"schedule={schedule}")
def place(request: pytest.FixtureRequest, tmp_path, monkeypatch) -> CudaBackend:
    return cuda_recorder.device(tmp_path, monkeypatch, schedule=request.param)[1]


@pytest.fixture
def late(tmp_path, monkeypatch) -> CudaBackend:
    return cuda_recorder.device(tmp_path, monkeypatch)[1]


# ---- the stand-in


def test_the_stand_in_has_the_drivers_surface() -> None:
    """So that what is tested here is what CuPy is asked."""

    def surface(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in vars(kind).items()
            if not name.startswith("_") and callable(getattr(kind, name))
        }

    wanted, found = surface(Driver), surface(RecordingDriver)
    assert wanted.items() <= found.items()


def test_cupy_is_imported_by_the_driver_alone_and_only_when_asked_for() -> None:
    root = pathlib.Path(ren.__file__).parent
    for path in root.rglob("*.py"):
        tree = ast_module.parse(path.read_text(encoding="utf-8"))
        named = [node for node in ast_module.walk(tree) if isinstance(node, ast_module.Import | ast_module.ImportFrom)]
        found = [node for node in named if any(name.startswith("cupy") for name in _modules(node))]
        assert not found or path == pathlib.Path(driver_module.__file__)
        assert not set(map(id, found)) & set(map(id, tree.body))


def _modules(node: ast_module.Import | ast_module.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names] if isinstance(node, ast_module.Import) else [node.module or ""]


# ---- storage


def test_words_go_to_the_device_and_back(place: CudaBackend) -> None:
    words = residues(RING, 1)
    held = place.from_host(words)
    kept = words.copy()
    words[...] = 0
    assert np.array_equal(place.to_host(held), kept)
    assert repr(held) == "<Storage: u32[3, 32] on cuda>"
    again = place.to_host(held)
    again[...] = 0
    assert np.array_equal(place.to_host(held), kept)


def test_storage_takes_memory_when_it_is_first_used(late: CudaBackend) -> None:
    driver = driver_of(late)
    held = late.allocate(SHAPE)
    arena = late.allocate_arena(1024)
    late.window(arena, 256, SHAPE)
    assert not driver.calls("allocate") and not driver.live_bytes
    late.compile(_sum())(held, late.from_host(residues(RING, 1)), late.from_host(residues(RING, 2)))
    assert (4 * 96, "compute") in driver.calls("allocate") and (4 * 96, "uploads") in driver.calls("allocate")


def test_views_and_windows_are_places_of_their_base(place: CudaBackend) -> None:
    words = residues(RING, 1)
    base = place.from_host(words)
    part = place.view(base, 32, (2, 32))
    assert np.array_equal(place.to_host(part), words[1:])
    assert np.array_equal(place.to_host(place.view(part, 32, (1, 32))), words[2:])
    arena = place.allocate_arena(1024)
    first, second = place.window(arena, 0, (1, 32)), place.window(arena, 256, (2, 32))
    place.copy_from(first, words[:1], place)
    place.copy_from(second, place.view(base, 32, (2, 32)), place)
    assert np.array_equal(place.to_host(first), words[:1]) and np.array_equal(place.to_host(second), words[1:])


def test_overlap_is_that_of_addresses(late: CudaBackend) -> None:
    base, other = late.allocate(SHAPE), late.allocate(SHAPE)
    first, second, both = late.view(base, 0, (1, 32)), late.view(base, 32, (1, 32)), late.view(base, 0, (2, 32))
    assert late.overlaps(base, first) and late.overlaps(both, second) and late.overlaps(base, base)
    assert not late.overlaps(first, second) and not late.overlaps(base, other)
    assert not late.overlaps(base, np.zeros(3))


def test_what_does_not_fit_is_refused(late: CudaBackend) -> None:
    base, words = late.from_host(residues(RING, 1)), residues(RING, 1)
    with pytest.raises(ValueError, match="a view of 64 words from word 64 does not fit into a buffer of 96 words"):
        late.view(base, 64, (2, 32))
    with pytest.raises(ValueError, match="a window of 384 bytes from byte 256 does not fit into 512 bytes"):
        late.window(late.allocate_arena(512), 256, SHAPE)
    with pytest.raises(ValueError, match=r"array of shape \(2, 32\) does not fit into a storage of shape \(3, 32\)"):
        late.copy_from(base, words[:2], late)
    with pytest.raises(ValueError, match=r"storage of shape \(1, 32\) does not fit into one of shape \(3, 32\)"):
        late.copy_from(base, late.view(base, 0, (1, 32)), late)
    with pytest.raises(ValueError, match=r"storage of shape \(1, 32\); it works on \(3, 32\)"):
        late.compile(_sum())(base, base, late.view(base, 0, (1, 32)))


# ---- kernels


def test_a_kernel_computes(place: CudaBackend) -> None:
    x, y = residues(RING, 1), residues(RING, 2)
    out = place.allocate(SHAPE)
    place.compile(_sum())(out, place.from_host(x), place.from_host(y))
    assert np.array_equal(place.to_host(out), arith.add(x, y, RING))


def test_a_launch_is_given_its_program_and_the_addresses(late: CudaBackend) -> None:
    driver = driver_of(late)
    ast = _sum()
    call = late.compile(ast)
    a, b, out = late.from_host(residues(RING, 1)), late.from_host(residues(RING, 2)), late.allocate(SHAPE)
    call(out, a, b)
    first, second = driver.calls("launch")
    program = call.program
    assert [(grid, block, shared) for _, grid, block, shared, _, _ in (first, second)] == [
        (launch.grid, launch.block, launch.shared) for launch in program.launches
    ]
    assert first[0] != second[0] and first[4] == second[4] and first[5] == "compute"
    argument = np.frombuffer(first[4], program.call)
    assert argument["frame"].tolist() == [0]
    slots = argument["slot"][0].tolist()
    assert slots[:3] == [out.address, a.address, b.address] and len(set(slots)) == 4
    assert argument["number"][0].tolist() == list(program.numbers)
    moduli = driver.words(int(argument["table"][0][0]), 12).view(np.uint32)
    driver.finish()
    assert moduli.tolist() == list(RING.moduli)
    # The limit beyond 48 KiB is asked for where the function is taken from its module.
    assert sorted(shared for _, shared in driver.calls("function"))[-1] == 50 << 10


def test_kernels_that_differ_in_constants_share_text_and_tables(late: CudaBackend) -> None:
    driver = driver_of(late)
    x = [late.from_host(residues(ring, 1)) for ring in (RING, OTHER, RING)]
    calls = [late.compile(_sum(RING)), late.compile(_sum(OTHER)), late.compile(_sum(RING, Op.MUL))]
    assert late.compile(_sum(RING)) is calls[0]
    for call, storage in zip(calls, x):
        call(late.allocate(storage.shape), storage, storage)
    (source,) = (source for (source,) in driver.calls("compile"))
    assert source.count("KERNEL") == 0 and source.count("/* compute") == 2
    tables = [np.frombuffer(entry[4], calls[0].program.call)["table"][0].tolist() for entry in driver.calls("launch")[::2]]
    assert tables[0] == tables[2] and not set(tables[0]) & set(tables[1])


def test_the_source_can_be_read(late: CudaBackend) -> None:
    text = late.source(_sum())
    assert "number[0]: the body" in text and "3 x 2 x 1 blocks of 64 threads" in text
    assert "uniform" in late.source(_only_kernel(Poly.uniform(RING, "python")))


def _only_kernel(poly: Poly) -> Node:
    program, _ = compile_sink(sink_of([poly.node]), current())
    ast = program.units[0].item.ast
    assert ast is not None
    return ast


# ---- order


def test_kernels_wait_for_what_goes_in_and_transfers_for_kernels_only_where_they_must(late: CudaBackend) -> None:
    driver = driver_of(late)
    call = late.compile(_sum())
    a, b = late.from_host(residues(RING, 1)), late.from_host(residues(RING, 2))
    out = late.allocate(SHAPE)
    call(out, a, b)
    del driver.log[:]
    call(out, a, b)  # nothing to wait for any more
    assert not driver.calls("wait")
    c = late.from_host(residues(RING, 3))  # independent of the kernels, so not behind them
    assert not driver.calls("wait")
    late.copy_from(a, residues(RING, 4), late)  # kernels that read the old words come first
    assert driver.calls("wait") == [("uploads", "compute")]
    call(out, a, c)
    assert driver.calls("wait") == [("uploads", "compute")] + 2 * [("compute", "uploads")]
    late.to_host(out)
    assert driver.calls("wait")[3:] == [("downloads", "compute")]
    assert driver.calls("synchronize") == [("downloads",)]


def test_memory_that_goes_back_is_not_taken_while_it_is_in_use(place: CudaBackend) -> None:
    """Blocks of all kinds are used, dropped and taken again at once, by kernels and transfers of several streams."""
    x = [residues(RING, i) for i in range(6)]
    add, mul = place.compile(_sum()), place.compile(_sum(RING, Op.MUL))
    wanted, kept = [], []
    for i in range(12):
        a, b = x[i % 6], x[(5 * i + 1) % 6]
        out, square = place.allocate(SHAPE), place.allocate(SHAPE)
        add(out, place.from_host(a), place.from_host(b))
        mul(square, out, out)
        if i % 3 == 0:
            place.copy_from(out, b, place)  # not before the product has read it
        total = arith.add(a, b, RING)
        if i % 2:
            again = place.allocate(SHAPE)
            place.copy_from(again, square, place)
            square = again
        kept.append(square)
        wanted.append(arith.mul(total, total, RING))
    for storage, words in zip(kept, wanted, strict=True):
        assert np.array_equal(place.to_host(storage), words)


def test_words_that_arrive_are_not_overtaken(place: CudaBackend) -> None:
    """A transfer fills a block that kernels have used; then kernels and copies use it, or somebody else takes its memory."""
    add = place.compile(_sum())
    for seed in range(4):
        x, y, z = (residues(RING, 10 * seed + i) for i in range(3))
        a, target = place.from_host(x), place.allocate(SHAPE)
        add(target, a, a)
        place.copy_from(target, y, place)
        copied, over = place.allocate(SHAPE), place.allocate(SHAPE)
        place.copy_from(copied, target, place)
        place.copy_from(target, a, place)
        add(over, a, a)
        place.copy_from(over, z, place)
        del over  # its memory is the next one's
        total = place.allocate(SHAPE)
        add(total, a, copied)
        for _ in range(2):
            assert np.array_equal(place.to_host(copied), y) and np.array_equal(place.to_host(target), x)
            assert np.array_equal(place.to_host(total), arith.add(x, y, RING))
            driver_of(place).finish()


def test_transfers_hold_pinned_memory_until_they_are_done_and_not_without_limit(late: CudaBackend, monkeypatch) -> None:
    driver = driver_of(late)
    held = [late.from_host(residues(RING, i)) for i in range(5)]
    assert driver.pinned_bytes == late.queues.staged_bytes == 5 * 384
    driver.finish()
    held.append(late.from_host(residues(RING, 5)))
    assert driver.pinned_bytes == late.queues.staged_bytes == 384
    monkeypatch.setattr(storage_module, "_STAGED_BYTES", 1000)
    del driver.log[:]
    held += [late.from_host(residues(RING, i)) for i in range(6, 20)]
    assert driver.pinned_bytes <= 1000 + 384 and len(driver.calls("synchronize")) == 13
    assert all(np.array_equal(late.to_host(h), residues(RING, i)) for i, h in enumerate(held))


@pytest.mark.parametrize("peers", [(0, 1), ()], ids=["peer-access", "through-the-host"])
@pytest.mark.parametrize("schedules", [("late", "late"), ("early", "late"), ("late", "early"), ("early", "early"), (1, 2)], ids=str)
def test_words_go_from_gpu_to_gpu(tmp_path, monkeypatch, schedules, peers: tuple[int, ...]) -> None:
    kind, first = cuda_recorder.device(tmp_path, monkeypatch, schedule=schedules[0], peers=peers)
    second = backend(f"{kind}:1")
    assert isinstance(second, CudaBackend)
    driver_of(second).reschedule(schedules[1])
    for seed in range(4):
        x, y = residues(RING, seed), residues(RING, seed + 10)
        out = first.allocate(SHAPE)
        first.compile(_sum())(out, first.from_host(x), first.from_host(y))
        there = second.allocate(SHAPE)
        second.copy_from(there, out, first)
        first.compile(_sum(RING, Op.MUL))(out, first.from_host(x), first.from_host(x))  # overwrites what is being read
        del out
        first.compile(_sum(RING, Op.MUL))(first.allocate(SHAPE), first.from_host(y), first.from_host(y))
        back = second.allocate(SHAPE)
        second.compile(_sum())(back, there, there)
        del there
        assert np.array_equal(second.to_host(back), arith.add(*2 * [arith.add(x, y, RING)], RING))
        arriving = second.allocate(SHAPE)
        z = residues(RING, seed + 20)
        second.copy_from(arriving, first.from_host(z), first)
        assert np.array_equal(second.to_host(arriving), z)
        second.copy_from(arriving, first.from_host(x), first)  # both ends are dropped while the words travel
        del arriving
    transfers = driver_of(second).calls("copy_peer")
    assert len(transfers) == (12 if peers else 0) and len(driver_of(second).calls("reaches")) == 1
    driver_of(first).finish()
    driver_of(second).finish()
    second.from_host(x)
    assert driver_of(first).pinned_bytes + driver_of(second).pinned_bytes == first.queues.staged_bytes + second.queues.staged_bytes


def test_polynomials_go_over_to_other_devices_and_back(place: CudaBackend) -> None:
    x = Poly([1, 2, 3], RING, place.name)
    assert ((x * x).to("python") + 1).to(place.name).tolist() == [2, 4, 10, 12, 9] + [0] * 27


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(3))
def test_programs_equal_numpy(tmp_path, monkeypatch, schedule, seed: int) -> None:
    name, _ = cuda_recorder.device(tmp_path, monkeypatch, schedule=schedule)
    assert _program(name, seed) == _program("python", seed)


def _program(where: str, seed: int) -> list[bytes]:
    rng = np.random.default_rng(seed)
    pool = [Poly(rng.integers(0, 10**6, 32), RING, where) for _ in range(3)]
    for step in range(12):
        p, q = (pool[int(i)] for i in rng.integers(0, len(pool), 2))
        k = int(rng.integers(0, 6))
        if p.ring != q.ring:
            q = p
        pool.append([p + q, p * q, p.rotate(step), -p, p.contiguous(), p.to_ring(OTHER)][k])
        if step % 5 == 4:
            pool[-1].realize(*pool[: step % 3])
    return [p.tobytes() for p in pool]


@pytest.mark.parametrize("rendered", [False, True], ids=["sampled-on-the-host", "drawn-by-kernels"])
def test_draws_are_those_of_the_samplers(tmp_path, monkeypatch, rendered: bool) -> None:
    name, place = cuda_recorder.device(tmp_path, monkeypatch, rendered=rendered, schedule=5)

    def drawn(where: str) -> list[bytes]:
        with insecure_seeded_randomness_for_tests(5):
            polys = [
                Poly.uniform(RING, where), Poly.ternary(RING, where), Poly.gaussian(RING, 3.2, where),
                Poly.sparse_ternary(RING, 7, where), Poly.uniform_on_interval(RING, -5, 10**9, where),
            ]  # fmt: skip
            return [p.tobytes() for p in polys]

    assert drawn(name) == drawn("python")
    kinds = [type(call).__name__ for call in _draw_calls(place)]
    assert kinds == (["Kernel"] * 3 + ["HostKernel"] * 2 if rendered else ["HostKernel"] * 5)


def _draw_calls(place: CudaBackend) -> list[object]:
    polys = [
        Poly.uniform(RING), Poly.ternary(RING), Poly.gaussian(RING, 3.2), Poly.sparse_ternary(RING, 7),
        Poly.uniform_on_interval(RING, -5, 10**9),
    ]  # fmt: skip
    return [place.compile(_only_kernel(poly)) for poly in polys]


def test_a_draw_is_never_part_of_a_graph(tmp_path, monkeypatch) -> None:
    """Key and number of a draw go with the launch: a graph would repeat them."""
    name, place = cuda_recorder.device(tmp_path, monkeypatch, rendered=True)
    x = Poly([1, 2], RING, name).realize()
    program, _ = compile_sink(sink_of([(x * Poly.uniform(RING, name)).node]), current())
    assert place.plan_runner(program) is None
    first, second = (Poly.uniform(RING, name).tobytes() for _ in range(2))
    assert first != second
    launched = [np.frombuffer(entry[4], np.uint8).tobytes() for entry in driver_of(place).calls("launch")]
    assert len(set(launched)) == len(launched)


def test_several_threads_use_one_device(tmp_path, monkeypatch) -> None:
    name, place = cuda_recorder.device(tmp_path, monkeypatch, schedule="late")
    wrong: list[int] = []

    def work(i: int) -> None:
        x, y = residues(RING, i), residues(RING, i + 10)
        for _ in range(15):
            out = place.allocate(SHAPE)
            place.compile(_sum())(out, place.from_host(x), place.from_host(y))
            if not np.array_equal(place.to_host(out), arith.add(x, y, RING)):
                wrong.append(i)

    started = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not wrong


# ---- modules


def test_the_kernels_of_a_program_are_compiled_in_one_call_and_once_per_user(tmp_path, monkeypatch) -> None:
    def computed() -> RecordingDriver:
        name, place = cuda_recorder.device(tmp_path, monkeypatch)
        x = Poly([1, 2, 3], RING, name)
        assert (((x * x).rotate(1) + 1).to_ring(OTHER) * 2).tolist() == _wanted
        return driver_of(place)

    x = Poly([1, 2, 3], RING, "python")
    _wanted = (((x * x).rotate(1) + 1).to_ring(OTHER) * 2).tolist()
    first = computed()
    assert len(first.calls("compile")) == 1 and len(first.calls("load")) == 1
    second = computed()
    assert not second.calls("compile") and len(second.calls("load")) == 1
    for module in tmp_path.glob("lib-*.cubin"):
        module.write_bytes(b"rubbish")
    assert len(computed().calls("compile")) == 1
    assert not computed().calls("compile")
    monkeypatch.setattr(cuda_recorder, "H200", Device("other", 8, 0, 2, 1 << 16))
    assert not computed().calls("compile")
    assert not list(tmp_path.glob("new-*"))


def test_a_module_depends_on_compiler_and_architecture(tmp_path, monkeypatch) -> None:
    compiled = []
    for identity in ("NVRTC 13.0 sm_90", "NVRTC 13.1 sm_90", "NVRTC 13.0 sm_80", "NVRTC 13.0 sm_90"):
        driver = RecordingDriver()
        driver.identity = identity
        monkeypatch.setattr(cuda_recorder.backend_module, "program", cuda_recorder.stand_in)
        place = CudaBackend(cache=tmp_path, driver=driver)
        x = place.from_host(residues(RING, 1))
        place.compile(_sum())(place.allocate(SHAPE), x, x)
        compiled.append(len(driver.calls("compile")))
    assert compiled == [1, 1, 1, 0]


# ---- errors


def test_a_refused_kernel_is_shown_and_the_others_compile(late: CudaBackend, monkeypatch) -> None:
    made = cuda_recorder.stand_in

    def refused(ast: Node, device: Device):
        program = made(ast, device)
        if not any(node.op is Op.MUL for node in ast.toposort()):
            return program
        code = program.code.replace("{\n}", "{\n    u32 a;\n    a = REFUSED;\n}", 1)
        return type(program)(code, *(getattr(program, f) for f in program.__slots__[1:]))

    monkeypatch.setattr(cuda_recorder.backend_module, "program", refused)
    x = late.from_host(residues(RING, 1))
    good, bad = late.compile(_sum()), late.compile(_sum(RING, Op.MUL))
    out = late.allocate(SHAPE)
    with pytest.raises(CompileError) as caught:
        bad(out, x, x)
    text = str(caught.value)
    assert re.search(r"NVRTC refused the kernel compute .* MUL .* for device 'cuda' \(recorded\)", text)
    assert 'error: identifier "REFUSED" is undefined' in text and "number[0]: the body" in text
    (marked,) = [line for line in text.splitlines() if line.startswith(">")]
    number = int(re.search(r"kernels\.cu\((\d+)\)", caught.value.log)[1])
    assert marked == f">{number:5d} |     a = REFUSED;"
    assert caught.value.source.splitlines()[number - 1] == "    a = REFUSED;"
    assert not any("ADD" in line and "|" in line for line in text.splitlines())
    good(out, x, x)
    assert np.array_equal(late.to_host(out), arith.add(*2 * [residues(RING, 1)], RING))
    with pytest.raises(CompileError, match="REFUSED"):
        bad(out, x, x)


def test_a_realization_that_fails_names_the_kernel(late: CudaBackend) -> None:
    x, driver = Poly([1, 2], RING, late.name), driver_of(late)
    driver.fail["launch"] = LaunchError("device 'cuda' refused to launch f on (1, 1, 1) blocks")
    with pytest.raises(LaunchError, match="refused to launch") as caught:
        (x * x).realize()
    assert any("while" in note and "item" in note for note in caught.value.__notes__)
    del driver.fail["launch"]
    assert (x * x).tolist() == [1, 4, 4] + [0] * 29


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threads": 48}, r"blocks of 64 threads, and its registers allow 48 on device 'cuda' \(NVIDIA H200\)"),
        ({"static_shared": 200 << 10}, r"wants 51200 \+ 204800 bytes of shared memory .* has 232448"),
        (
            {"device": Device("small", 7, 5, 1, 40 << 10)},
            r"KERNEL_1 wants 51200 bytes of shared memory .* has 40960; use a smaller",
        ),
        ({"argument_bytes": 64}, r"argument of KERNEL_0 is 72 bytes long, and device 'cuda' takes 64; lower"),
    ],
    ids=["registers", "static-shared", "shared", "argument"],
)
def test_launches_beyond_the_limits_are_refused_before_they_start(tmp_path, monkeypatch, settings, message: str) -> None:
    name, place = cuda_recorder.device(tmp_path, monkeypatch, **settings)
    x = place.from_host(residues(RING, 1))
    with pytest.raises(LaunchError, match=message):
        place.compile(_sum())(place.allocate(SHAPE), x, x)
    assert not driver_of(place).calls("launch")


def test_out_of_memory_says_what_was_free(tmp_path, monkeypatch) -> None:
    name, place = cuda_recorder.device(tmp_path, monkeypatch, memory_bytes=4096)
    held = [place.from_host(residues(RING, i)) for i in range(8)]
    with pytest.raises(
        OutOfMemory, match=r"'cuda' has no room for 0.0 MiB: 0.0 MiB of 0.0 MiB are free.*; release polynomials"
    ) as caught:
        place.from_host(residues(RING, 9))
    state = caught.value.state
    assert (caught.value.nbytes, state.free, state.total, state.used) == (384, 0, 4096, 4096)
    assert isinstance(caught.value, MemoryError)
    held.pop()
    assert np.array_equal(place.to_host(place.from_host(residues(RING, 9))), residues(RING, 9))


@pytest.mark.parametrize("call", ["allocate", "pinned", "upload", "launch", "download", "wait", "function", "load", "compile"])
@pytest.mark.parametrize("after", range(4))
def test_nothing_is_lost_when_a_call_fails(tmp_path, monkeypatch, call: str, after: int) -> None:
    """Whatever call fails, and whenever: memory comes back, and the same work succeeds afterwards."""
    name, place = cuda_recorder.device(tmp_path, monkeypatch)
    driver = driver_of(place)
    x, y = residues(RING, 1), residues(RING, 2)

    def work() -> np.ndarray:
        out, total = place.allocate(SHAPE), place.allocate(SHAPE)
        place.compile(_sum())(out, place.from_host(x), place.from_host(y))
        place.compile(_sum(RING, Op.MUL))(total, out, out)
        return place.to_host(total)

    driver.fail[call] = (after, DeviceError(f"{call} failed"))
    try:
        work()
    except DeviceError:
        pass
    driver.fail.clear()
    total = arith.add(x, y, RING)
    assert np.array_equal(work(), arith.mul(total, total, RING))
    driver.finish()
    gc.collect()
    place.queues.keep(np.zeros(0, np.uint8), _passed(place))
    tables = 4  # moduli and transforms of the ring, which stay; three twiddle tables
    assert driver.live_bytes <= 512 * (tables + 1) and driver.pinned_bytes == 0


def _passed(place: CudaBackend):
    event = place.queues.mark(place.queues.compute)
    place.driver.synchronize(event)
    return event


def test_without_cupy_the_message_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceUnavailable, match=r"device 'cuda' needs CuPy, .*pip install 'cupy-cuda13x\[ctk\]'"):
        CudaBackend()


class _Runtime(types.ModuleType):
    """What `driver` asks CuPy's runtime about devices."""

    class CUDARuntimeError(RuntimeError):
        def __init__(self, status: int) -> None:
            self.status = status
            super().__init__(f"error {status}")

    def __init__(self, status: int = 0, count: int = 0, driver: int = 13000) -> None:
        super().__init__("runtime")
        self.status, self.count, self.driver = status, count, driver

    def getDeviceCount(self) -> int:
        if self.status:
            raise self.CUDARuntimeError(self.status)
        return self.count

    def driverGetVersion(self) -> int:
        return self.driver

    def runtimeGetVersion(self) -> int:
        return 13020


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        (
            _Runtime(35, driver=12040),
            r"CUDA 13 or later \(this CuPy is built for CUDA 13\.2\), and the driver here is for CUDA 12\.4",
        ),
        (_Runtime(35, driver=0), "there is no NVIDIA driver; install one"),
        (_Runtime(100), "the driver finds no GPU, or CUDA_VISIBLE_DEVICES hides it"),
        (_Runtime(0, 0), "the driver finds no GPU"),
        (_Runtime(999), "device 'cuda' can't be used: error 999"),
    ],
    ids=["old-driver", "no-driver", "no-device", "no-visible-device", "other"],
)
def test_what_is_missing_is_named(runtime: _Runtime, message: str) -> None:
    with pytest.raises(DeviceUnavailable, match=message):
        driver_module._device_count("cuda", runtime)


def test_the_description_names_the_gpu(late: CudaBackend) -> None:
    assert late.description == "NVIDIA H200, 141 GiB, compute capability 9.0"


def test_the_face_sees_a_device(late: CudaBackend) -> None:
    assert ren.Poly([5], RING, late.name).device == late.name
