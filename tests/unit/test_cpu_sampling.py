"""Native draws equal those in NumPy and the definition in integers, for all vectors; and the C functions one by one."""

import ctypes
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable

import chacha
import cpu_variants
import numpy as np
import oracle
import pytest

from ren_lab import Poly
from ren_lab.backends.cpu import CpuBackend
from ren_lab.backends.cpu import draw as native
from ren_lab.backends.cpu.draw import DrawKernel
from ren_lab.backends.python import sampling
from ren_lab.backends.python.sampling import Draw, Generator, InsecureSeededGenerator
from ren_lab.engine import compile_sink, sink_of
from ren_lab.options import current
from ren_lab.ring import RingSpec

KEY = bytes(range(100, 132))
DISTRIBUTIONS = {
    "uniform": (), "ternary": (), "gaussian 0.01": (0.01,), "gaussian 3.2": (3.2,), "gaussian 13": (13.0,), "gaussian 20": (20.0,),
    "gaussian 16384": (2.0**14,),
}  # fmt: skip


class Fixed(Generator):
    """Hands out one draw again and again."""

    def __init__(self, key: bytes, number: int) -> None:
        self.fixed = Draw(key, number)

    def draw(self) -> Draw:
        return self.fixed


@pytest.fixture(params=cpu_variants.VARIANTS)
def made(request: pytest.FixtureRequest) -> CpuBackend:
    return cpu_variants.make(request.param)


def drawn(made: CpuBackend, ring: RingSpec, name: str, generator: Generator, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    monkeypatch.setattr(native, "current_generator", lambda: generator)
    out = np.full((ring.limbs + 2, ring.n), 7, np.uint32)
    kernel = DrawKernel(ring, name.split()[0], DISTRIBUTIONS[name], made.library, made.threads)
    kernel(out[1:-1])
    assert (out[0] == 7).all() and (out[-1] == 7).all(), "it wrote beside its output"
    return out[1:-1]


RINGS = {
    f"n=2^{log_n}/limbs={limbs}/bits={bits}": RingSpec(2**log_n, oracle.largest_primes(2**log_n, bits, limbs))
    for log_n, limbs, bits in ((1, 3, 31), (3, 2, 31), (4, 3, 30), (6, 40, 31), (7, 9, 31), (8, 3, 20), (10, 3, 31), (12, 2, 30))
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws_equal_those_in_numpy(made: CpuBackend, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for label, ring in RINGS.items():
        got = drawn(made, ring, name, Fixed(KEY, 2**40 + ring.n), monkeypatch)
        sampler = getattr(sampling, name.split()[0])
        assert np.array_equal(got, sampler(ring, *DISTRIBUTIONS[name], Fixed(KEY, 2**40 + ring.n))), label


def test_residues_follow_the_definition(made: CpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = RINGS["n=2^10/limbs=3/bits=31"]
    got = drawn(made, ring, "uniform", Fixed(KEY, 77), monkeypatch)
    for row, column in ((0, 0), (0, 17), (1, 127), (1, 128), (2, 1023)):
        assert got[row, column] == chacha.below(ring.moduli[row], KEY, 77, row * 1024 + column)


REFUSED = [(2113929217, 45943, 1012), (2145976321, 139766, 23712)]


@pytest.mark.parametrize(("p", "number", "index"), REFUSED, ids=str)
def test_refused_bits_are_replaced_by_those_of_the_next_round(
    made: CpuBackend, p: int, number: int, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draws found by search: one index in about 2^33 is refused, and this is it."""
    assert chacha.bits(bytes(32), number, index) * p % 2**64 < 2**64 % p
    wanted = chacha.bits(bytes(32), number, index, 1) * p >> 64
    assert chacha.below(p, bytes(32), number, index) == wanted
    ring = RingSpec(2**15, (p,))
    got = drawn(made, ring, "uniform", Fixed(bytes(32), number), monkeypatch)
    assert got[0, index] == wanted
    assert np.array_equal(got, sampling.uniform(ring, Fixed(bytes(32), number)))


@pytest.mark.parametrize("distribution", ["uniform", "ternary", "gaussian"])
def test_devices_draw_alike_under_a_seed(made: CpuBackend, distribution: str) -> None:
    ring = RINGS["n=2^10/limbs=3/bits=31"]
    device, parameters = cpu_variants.device(made.name), (3.2,) if distribution == "gaussian" else ()

    def some(where: str) -> list[bytes]:
        with sampling.insecure_seeded_randomness_for_tests("devices"):
            return [(getattr(Poly, distribution)(ring, *parameters, where) * 3).tobytes() for _ in range(3)]

    assert some(device) == some("python")
    assert len(set(some(device))) == 3


def test_draws_are_native_where_an_index_suffices() -> None:
    ring, where = RINGS["n=2^4/limbs=3/bits=30"], cpu_variants.device("native1")
    polys = {
        "uniform": Poly.uniform(ring, where), "ternary": Poly.ternary(ring, where), "gaussian": Poly.gaussian(ring, 2.5, where),
        "sparse_ternary": Poly.sparse_ternary(ring, 3, where), "interval": Poly.uniform_on_interval(ring, 0, 5, where),
    }  # fmt: skip
    native_ones = set()
    for name, poly in polys.items():
        (unit,) = compile_sink(sink_of([poly.node]), current())[0].units
        if isinstance(unit.call, DrawKernel):
            native_ones.add(name)
    assert native_ones == {"uniform", "ternary", "gaussian"}


def test_one_kernel_draws_in_several_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, ring, generator = cpu_variants.make("native2"), RINGS["n=2^12/limbs=2/bits=30"], InsecureSeededGenerator(9)
    monkeypatch.setattr(native, "current_generator", lambda: generator)
    kernel = DrawKernel(ring, "ternary", (), made.library, made.threads)
    outs = [np.empty((ring.limbs, ring.n), np.uint32) for _ in range(40)]
    threads = [threading.Thread(target=lambda part: [kernel(o) for o in part], args=(outs[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = InsecureSeededGenerator(9)
    assert {o.tobytes() for o in outs} == {sampling.ternary(ring, again).tobytes() for _ in outs}


def test_storages_of_another_shape_are_refused() -> None:
    made, ring = cpu_variants.make("native1"), RINGS["n=2^4/limbs=3/bits=30"]
    with pytest.raises(ValueError, match=r"\(3, 8\).*\(3, 16\)"):
        DrawKernel(ring, "ternary", (), made.library, made.threads)(np.zeros((3, 8), np.uint32))


CHECKED = """
import pathlib, sys
sys.path[:0] = sys.argv[3:]
from ren_lab.backends.cpu import CpuBackend
import test_cpu_sampling as tests
import pytest
flags = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
made = CpuBackend(words=sys.argv[1], threads=2, cache=pathlib.Path(sys.argv[2]), extra_flags=flags)
with pytest.MonkeyPatch.context() as patch:
    for name in tests.DISTRIBUTIONS:
        tests.test_draws_equal_those_in_numpy(made, name, patch)
    tests.test_refused_bits_are_replaced_by_those_of_the_next_round(made, *tests.REFUSED[0], patch)
print("clean")
"""


@pytest.mark.parametrize("words", ["native", "scalar"])
def test_draws_run_clean_under_sanitizers(words: str, tmp_path: pathlib.Path) -> None:
    command = cpu_variants.make("native2").compiler.command
    found = subprocess.run([*command, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not pathlib.Path(found).is_file():
        pytest.skip("this compiler has no libasan.so to load beforehand")
    here = pathlib.Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", CHECKED, words, str(tmp_path), str(here), str(here.parent), str(here.parents[1])],
        env={"LD_PRELOAD": found, "ASAN_OPTIONS": "detect_leaks=0", "PATH": "/usr/bin:/bin:/usr/local/bin"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == "clean", done.stderr[-3000:]
    assert "ERROR" not in done.stderr


# The functions of sampling.h and draw.h, called alone

DRIVER = """
#include "draw.h"
EXPORT block(u32 *out, const u32 *key, u32 counter, u64 draw, u32 round) { chacha_block1(out, key, counter, draw, round); }
EXPORT blocks(u32 *out, const ren_draw *d, u32 counter)
{
    word x[16];
    chacha_blocks(x, d, counter);
    for (int i = 0; i < 16; i++)
        store(out + i * LANES, x[i]);
}
EXPORT place(u32 *out, u64 index) { out[0] = block_of(index); out[1] = (u32)pair_of(index); }
EXPORT below(u32 *out, u32 low, u32 high, u32 bound) { out[0] = (u32)below1(out + 1, low, high, bound); }
EXPORT stored(u32 *out, const u32 *low, const u32 *high, const ren_draw *d, u64 index, u32 bound)
{
    store_below(out, load(low), load(high), d, index, bound);
}
EXPORT reached(u32 *out, const u32 *low, const u32 *high, const u64 *threshold, i64 count)
{
    store_reached(out, load(low), load(high), threshold, count);
    for (int i = 0; i < LANES; i++)
        out[LANES + i] = reached1((u64)high[i] << 32 | low[i], threshold, count);
}
EXPORT residue(u32 *out, u32 value, u32 square, u32 centred, u32 p, u32 p_inv)
{
    *out = residue1(value, square, centred, p, p_inv);
}
EXPORT lanes(u32 *out) { *out = LANES; }
"""

U32, U64, I64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64


@pytest.fixture(scope="module", params=["native1", "avx2", "scalar"])
def c(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., np.ndarray]:
    """Calls a function of the driver; gives what it wrote."""
    target = pathlib.Path(tmp_path_factory.mktemp("driver"), "driver.so")
    cpu_variants.make(request.param).compiler.build(DRIVER, target)
    library = ctypes.CDLL(str(target))

    def call(name: str, *arguments: object) -> np.ndarray:
        out = np.zeros(16 * 16, np.uint32)
        passed = [a.ctypes.data_as(ctypes.c_void_p) if isinstance(a, np.ndarray) else a for a in (out, *arguments)]
        getattr(library, name)(*passed)
        return out

    return call


def record(key: bytes, number: int) -> np.ndarray:
    made = np.zeros(1, native.DRAW)
    made[0]["key"], made[0]["number"] = np.frombuffer(key, "<u4"), number
    return made


def test_blocks_are_chacha20(c: Callable[..., np.ndarray]) -> None:
    """RFC 8439, section 2.3.2 and appendix A.1."""
    rfc = (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    key, lanes = np.arange(32, dtype=np.uint8).view(np.uint32), int(c("lanes")[0])
    number, round = int.from_bytes(bytes.fromhex("000000090000004a"), "little"), U32(0)
    assert c("block", key, U32(1), U64(number), round)[:16].astype("<u4").tobytes().hex() == rfc
    side_by_side = c("blocks", record(bytes(range(32)), number), U32(1))[: 16 * lanes].reshape(16, lanes)
    assert side_by_side[:, 0].astype("<u4").tobytes().hex() == rfc
    zero = (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    assert c("block", np.zeros(8, np.uint32), U32(0), U64(0), U32(0))[:16].astype("<u4").tobytes().hex() == zero
    for lane, (counter, turn) in enumerate(zip(range(2**32 - 32, 2**32 - 32 + lanes), range(lanes))):
        wanted = list(chacha.block(KEY, counter, (2**63 + 5).to_bytes(8, "little") + bytes(4)))
        assert c("blocks", record(KEY, 2**63 + 5), U32(2**32 - 32))[: 16 * lanes].reshape(16, lanes)[:, lane].tolist() == wanted
        wanted = list(chacha.block(KEY, counter, (2**63 + 5).to_bytes(8, "little") + turn.to_bytes(4, "little")))
        single = c("block", np.frombuffer(KEY, "<u4").copy(), U32(counter), U64(2**63 + 5), U32(turn))
        assert single[:16].tolist() == wanted


def test_indices_have_places_of_their_own(c: Callable[..., np.ndarray]) -> None:
    places = [tuple(c("place", U64(i))[:2].tolist()) for i in range(512)]
    assert sorted(places) == [(block, pair) for block in range(64) for pair in range(8)]
    assert c("place", U64(2**35 - 1))[:2].tolist() == [2**32 - 1, 7]


BOUNDS = [2, 3, 17, 2**16 + 1, 1431655765, 2147483629, 2**32 - 1]


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_numbers_below_a_bound_are_the_high_part_unless_refused(c: Callable[..., np.ndarray], bound: int) -> None:
    surplus = 2**64 % bound
    edges = [-(-(k << 64) // bound) + d for k in {0, 1, bound // 2, bound - 1} for d in (-1, 0, 1)]
    for x in [0, 1, 2**32, 2**63, 2**64 - 1, *[e for e in edges if 0 <= e < 2**64]]:
        kept, value = c("below", U32(x % 2**32), U32(x >> 32), U32(bound))[:2].tolist()
        assert (kept, value) == (int(x * bound % 2**64 >= surplus), x * bound >> 64), x


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_words_with_refused_lanes_are_drawn_again(c: Callable[..., np.ndarray], bound: int) -> None:
    """Doubtful lanes are drawn anew from their index; words without any keep what they were given."""
    lanes, index, number = int(c("lanes")[0]), 16 * 5, 123
    rng = np.random.default_rng(bound)
    plain = [int(x) for x in rng.integers(1, 2**63, 16)]
    stream = [chacha.bits(KEY, number, index + i) for i in range(16)]

    def stored(bits: list[int]) -> list[int]:
        low, high = (np.array([x >> shift & 2**32 - 1 for x in bits], np.uint32) for shift in (0, 32))
        return c("stored", low, high, record(KEY, number), U64(index), U32(bound))[:lanes].tolist()

    assert stored(plain) == [x * bound >> 64 for x in plain][:lanes]
    if 2**64 % bound == 0:
        return
    for lane in range(lanes):
        some = list(stream)
        some[lane] = 0  # refused under every bound that does not divide 2^64
        got = stored(some)
        assert got[:lane] + got[lane + 1 :] == [x * bound >> 64 for i, x in enumerate(stream[:lanes]) if i != lane]
        allowed = {chacha.bits(KEY, number, index + lane, r) * bound >> 64 for r in (0, 1)}
        assert got[lane] in allowed


@pytest.mark.parametrize("count", [0, 1, 2, 59, 255, 256, 257, 1000])
def test_thresholds_that_are_reached_are_counted(c: Callable[..., np.ndarray], count: int) -> None:
    rng = np.random.default_rng(count)
    thresholds = np.sort(rng.integers(0, 2**64, max(count, 1), dtype=np.uint64))
    if count > 2:
        thresholds[-1], thresholds[0], thresholds[2] = 2**64 - 1, 0, thresholds[1]  # the ends, and two that are equal
    lanes = int(c("lanes")[0])
    inner = [int(t) + d for t in rng.choice(thresholds, 64) for d in (-1, 0, 1)]
    drawn = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, *[x % 2**64 for x in inner]]
    drawn += [0] * (-len(drawn) % 16)
    for at in range(0, len(drawn), lanes):
        some = drawn[at : at + lanes]
        low, high = (np.array([x >> shift & 2**32 - 1 for x in some], np.uint32) for shift in (0, 32))
        wanted = [sum(t <= x for t in thresholds.tolist()[:count]) for x in some]
        assert c("reached", low, high, thresholds, I64(count))[: 2 * lanes].tolist() == wanted * 2


@pytest.mark.parametrize("p", [5, 17, 12289, 1073741789, 2147483629], ids=str)
def test_small_numbers_become_residues(c: Callable[..., np.ndarray], p: int) -> None:
    for value, centre in ((0, 0), (0, 1), (2, 1), (1, 1), (0, 150000), (300000, 150000), (2**32 - 1, 2**31)):
        arguments = [U32(v) for v in (value, 2**64 % p, centre * 2**32 % p, p, pow(p, -1, 2**32))]
        assert c("residue", *arguments)[0] == (value - centre) * 2**32 % p
