"""Random polynomials: the streams of draws, the ranges and the distributions, with seeded generators so that nothing flickers."""

import contextvars
import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext

import chacha
import numpy as np
import oracle
import pytest

from ren_lab.backends.python import sampling
from ren_lab.backends.python.sampling import Draw, Generator, InsecureSeededGenerator
from ren_lab.ring import RingSpec

RING = RingSpec(1024, oracle.largest_primes(1024, 31, 2))
SMALL = RingSpec(8, (17, 97))


def centred_values(at_rest: np.ndarray, ring: RingSpec) -> list[int]:
    """Data at rest as integers in (-q/2, q/2]; checks that it is reduced."""
    assert at_rest.dtype == np.uint32 and at_rest.shape == (ring.limbs, ring.n)
    assert (at_rest < np.array(ring.moduli, np.uint32)[:, None]).all()
    columns = [[r * pow(2**32, -1, p) % p for r, p in zip(column, ring.moduli)] for column in at_rest.T.tolist()]
    return [oracle.centred(oracle.crt(column, ring.moduli), ring.q) for column in columns]


def chi_squared(observed: list[int], expected: list[float]) -> float:
    """The statistic of Pearson's test in standard deviations from its mean; far beyond 5 means another distribution."""
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    freedom = len(observed) - 1
    return (statistic - freedom) / (2 * freedom) ** 0.5


class ScriptedDraw(Draw):
    """The given bits by (index, round); or the given words one after the other, counting how many are asked for at each call."""

    def __init__(self, bits: dict[tuple[int, int], int], words: list[int], calls: list[int]) -> None:
        for name, value in {"key": bytes(32), "number": 0, "script": bits, "words": words, "calls": calls}.items():
            object.__setattr__(self, name, value)

    def bits(self, count: int) -> np.ndarray:
        return np.array([self.bits_at(i, 0) for i in range(count)], np.uint64)

    def bits_at(self, index: int, round: int) -> int:
        return self.script.pop((index, round))

    def stream(self, round: int = 0, block: int = 0) -> Callable[[int], np.ndarray]:
        def read(count: int) -> np.ndarray:
            self.calls.append(count)
            taken, self.words[:] = self.words[:count], self.words[count:]
            assert len(taken) == count, "more words were drawn than expected"
            return np.array(taken, np.uint32)

        return read


class Scripted(Generator):
    """Hands out one draw of given bits or words; nothing is left of what was used."""

    def __init__(self, *words: int, bits: dict[tuple[int, int], int] | None = None) -> None:
        self.script, self.words, self.calls, self.draws = bits or {}, list(words), [], 0

    def draw(self) -> Draw:
        self.draws += 1
        return ScriptedDraw(self.script, self.words, self.calls)


# Streams and draws


def test_the_stream_is_chacha20():
    """RFC 8439, appendix A.1, test vectors 1 and 2: the key stream of blocks 0 and 1 under an all-zero key and nonce."""
    stream = (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    )
    words = Draw(bytes(32), 0).stream()(32)
    assert words.dtype == np.uint32
    assert words.astype("<u4").tobytes().hex() == stream
    assert [w for i in range(2) for w in chacha.block(bytes(32), i, bytes(12))] == words.tolist()


def test_number_and_round_are_the_nonce():
    """RFC 8439, section 2.3.2: the block 1 under the key 00 01 .. 1f and the nonce 000000090000004a00000000."""
    block = (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    number = int.from_bytes(bytes.fromhex("000000090000004a"), "little")
    read = Draw(bytes(range(32)), number).stream(block=1)
    assert np.concatenate([read(k) for k in (1, 0, 6, 9)]).astype("<u4").tobytes().hex() == block
    assert chacha.block(bytes(range(32)), 1, bytes.fromhex("000000090000004a00000000")) == tuple(
        np.frombuffer(bytes.fromhex(block), "<u4").tolist()
    )


@pytest.mark.parametrize("count", [1, 15, 16, 127, 128, 300])
def test_an_index_has_the_same_bits_however_many_are_asked_for(count):
    key = bytes(range(7, 39))
    draw = Draw(key, 2**40 + 3)
    bits = draw.bits(count)
    assert bits.dtype == np.uint64
    assert bits.tolist() == [chacha.bits(key, draw.number, i) for i in range(count)]
    for index in (0, count - 1, 12345678):
        assert [draw.bits_at(index, r) for r in (0, 1, 2**32 - 1)] == [
            chacha.bits(key, draw.number, index, r) for r in (0, 1, 2**32 - 1)
        ]


def test_draws_do_not_show_their_key():
    assert "key" not in repr(Generator().draw())


def test_generators_have_keys_of_their_own_and_draws_have_numbers():
    assert len({Generator().draw().key for _ in range(50)}) == 50
    generator = Generator()
    draws = [generator.draw() for _ in range(50)]
    assert {len(d.key) for d in draws} == {32} and len({(d.key, d.number) for d in draws}) == 50


def test_seeds_decide_about_draws():
    draws = [InsecureSeededGenerator(5).draw() for _ in range(2)]
    assert draws[0] == draws[1]
    for other in (6, "5", b"5", -5):
        assert InsecureSeededGenerator(other).draw() != draws[0]


@pytest.mark.parametrize("make", [Generator, lambda: InsecureSeededGenerator(1)], ids=["secure", "seeded"])
def test_a_key_is_replaced_after_its_draws(make, monkeypatch):
    monkeypatch.setattr(Generator, "_DRAWS_PER_KEY", 2)
    generator = make()
    draws = [generator.draw() for _ in range(10)]
    assert len({d.key for d in draws}) == 5 and len({(d.key, d.number) for d in draws}) == 10


def test_threads_share_a_generator_without_sharing_draws():
    generator = Generator()
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: [generator.draw() for _ in range(20)], range(400)))
    assert len({(d.key, d.number) for some in drawn for d in some}) == 8000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_draws_under_another_key():
    """Also where the fork happens while another thread is inside the generator and holds its lock."""
    generator = Generator()
    generator.draw()
    shared = sampling.current_generator()
    shared.draw()
    for held in (False, True):
        read, write = os.pipe()
        if held:
            generator._lock.acquire()
        child = os.fork()
        if child == 0:
            try:
                os.write(write, generator.draw().key + shared.draw().key)
            finally:
                os._exit(0)
        if held:
            generator._lock.release()
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            theirs = pipe.read()
        os.waitpid(child, 0)
        ours = generator.draw().key + shared.draw().key
        assert len(theirs) == 64
        assert theirs[:32] != ours[:32] and theirs[32:] != ours[32:]


def test_seeded_randomness_holds_in_its_block_and_context_only():
    outside = sampling.current_generator()
    assert type(outside) is Generator
    with sampling.insecure_seeded_randomness_for_tests(3) as generator:
        assert sampling.current_generator() is generator and isinstance(generator, InsecureSeededGenerator)
        first = sampling.uniform(SMALL)
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(sampling.current_generator()))
        thread.start()
        thread.join()
        assert elsewhere == [outside]
        assert contextvars.copy_context().run(sampling.current_generator) is generator
        with sampling.insecure_seeded_randomness_for_tests(4) as inner:
            assert sampling.current_generator() is inner
        assert sampling.current_generator() is generator
    assert sampling.current_generator() is outside
    with pytest.raises(KeyError), sampling.insecure_seeded_randomness_for_tests(3):
        again = sampling.uniform(SMALL)
        raise KeyError
    assert sampling.current_generator() is outside
    assert again.tolist() == first.tolist()


SAMPLERS = {
    "uniform": (sampling.uniform, ()),
    "interval": (sampling.uniform_on_interval, (-5, 6)),
    "wide interval": (sampling.uniform_on_interval, (-(10**40), 10**41)),
    "ternary": (sampling.ternary, ()),
    "sparse_ternary": (sampling.sparse_ternary, (5,)),
    "gaussian": (sampling.gaussian, (3.2,)),
}


@pytest.mark.parametrize(("draw", "parameters"), SAMPLERS.values(), ids=SAMPLERS.keys())
def test_samplers_write_where_they_are_told(draw, parameters):
    ring = RingSpec(16, (97, 193))
    whole = np.full((4, 32), 7, np.uint32)
    part = whole[::2, 1:17]
    assert draw(ring, *parameters, InsecureSeededGenerator(1), part) is part
    fresh = draw(ring, *parameters, InsecureSeededGenerator(1))
    assert (part == fresh).all()
    assert (whole[1::2] == 7).all() and (whole[:, 0] == 7).all() and (whole[:, 17:] == 7).all()
    with sampling.insecure_seeded_randomness_for_tests(1):
        assert (draw(ring, *parameters) == fresh).all()
    assert (draw(ring, *parameters, InsecureSeededGenerator(2)) != fresh).any()
    assert (draw(ring, *parameters) != draw(ring, *parameters)).any()
    centred_values(fresh, ring)


# Uniform


@pytest.mark.parametrize("p", [17, 97, 257, 7681])
def test_uniform_residues_are_uniform(p):
    ring = RingSpec(8, (p, 2147483489))
    gen = InsecureSeededGenerator(p)
    residues = np.concatenate([sampling.uniform(ring, gen)[0] for _ in range(20 * p // 8 + 500)])
    counts = np.bincount(residues, minlength=p)
    assert len(counts) == p
    assert abs(chi_squared(counts.tolist(), [len(residues) / p] * p)) < 5


def test_uniform_residues_of_large_moduli_and_of_several_limbs():
    gen = InsecureSeededGenerator(8)
    ring = RingSpec(2, (1431655781, 2147483629, 5))  # just above 2^32/3, where a third of the words is refused
    rows = np.concatenate([sampling.uniform(ring, gen) for _ in range(4000)], axis=1)
    for row, p in zip(rows, ring.moduli):
        cells = min(p, 16)
        counts = np.bincount((row.astype(np.uint64) * np.uint64(cells) // np.uint64(p)).astype(int), minlength=cells)
        sizes = [len(row) * (-(-(i + 1) * p // cells) - -(-i * p // cells)) / p for i in range(cells)]
        assert abs(chi_squared(counts.tolist(), sizes)) < 5
    assert abs(np.corrcoef(rows)[np.triu_indices(3, 1)]).max() < 5 / 8000**0.5


@pytest.mark.parametrize(
    "ring", [SMALL, RingSpec(128, (257, 12289, *oracle.largest_primes(128, 31, 1))), RING], ids=lambda r: f"n={r.n}"
)
def test_draws_are_functions_of_key_number_and_index(ring):
    """Against the definition in integers, at some indices."""
    generator = InsecureSeededGenerator("definition")
    residues, draw = sampling.uniform(ring, generator), Draw(InsecureSeededGenerator("definition").draw().key, 0)
    for row, column in ((0, 0), (0, ring.n - 1), (1, 0), (1, 5), (ring.limbs - 1, ring.n - 1)):
        index = row * ring.n + column
        assert residues[row, column] == chacha.below(ring.moduli[row], draw.key, 0, index)
    small = centred_values(sampling.ternary(ring, generator), ring)
    errors = centred_values(sampling.gaussian(ring, 3.2, generator), ring)
    thresholds = [int(t) for t in sampling.gaussian_thresholds(3.2)]
    for index in range(0, ring.n, max(1, ring.n // 40)):
        assert small[index] == chacha.below(3, draw.key, 1, index) - 1
        value = sum(t <= chacha.bits(draw.key, 2, index) for t in thresholds) - len(thresholds) // 2
        assert errors[index] == oracle.centred(value, ring.q)


def test_bits_that_would_bias_are_refused():
    """2^64 mod 17 = 1 and 2^64 mod 97 = 61: x is refused where x * p mod 2^64 is below that."""
    assert 2**64 % 17 == 1 and 2**64 % 97 == 61
    refused = [x for x in (-(-(k * 2**64) // 97) for k in range(97)) if x * 97 % 2**64 < 61]
    kept = [x for x in (-(-(k * 2**64) // 97) for k in range(97)) if x * 97 % 2**64 >= 61]
    assert len(refused) == 61 and len(kept) == 36
    good = [(12345 + i) << 50 for i in range(16)]
    first = [*good[:3], 0, *good[4:8], *good[8:14], kept[7], refused[-1]]
    again = {(3, 1): 0, (3, 2): 4000000000 << 32, (15, 1): refused[1], (15, 2): 0, (15, 3): 3000000000 << 32}
    gen = Scripted(bits={(i, 0): x for i, x in enumerate(first)} | again)
    got = sampling.uniform(SMALL, gen)
    assert gen.script == {} and gen.draws == 1
    taken = [*first[:3], 4000000000 << 32, *first[4:15], 3000000000 << 32]
    assert got.ravel().tolist() == [x * p >> 64 for x, p in zip(taken, [17] * 8 + [97] * 8)]


WIDTHS = {
    "1": 1,
    "2": 2,
    "3": 3,
    "2^31": 2**31,
    "2^32-1": 2**32 - 1,
    "2^32": 2**32,
    "2^32+1": 2**32 + 1,
    "2^64": 2**64,
    "2^64+1": 2**64 + 1,
    "3*2^64": 3 * 2**64,
    "5^100": 5**100,
    "2^256": 2**256,
}


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
@pytest.mark.parametrize("low", [0, -7, 10**30, -(10**30)], ids=["0", "-7", "10^30", "-10^30"])
def test_intervals_hold_all_their_draws(width, low):
    ring = RingSpec(64, oracle.largest_primes(64, 31, 10))
    assert ring.q > 2 * width + 2 * abs(low)
    values = centred_values(sampling.uniform_on_interval(ring, low, low + width, InsecureSeededGenerator(width)), ring)
    assert all(low <= v < low + width for v in values)
    assert len(set(values)) == (1 if width == 1 else 2 if width == 2 else 3 if width == 3 else 64)
    if width > 2**31:
        quarters = Counter((v - low) * 4 // width for v in values)
        assert min(quarters[i] for i in range(4)) > 4


@pytest.mark.parametrize(("low", "high"), [(0, 5), (-3, 2), (-6, -1), (-8, 8), (0, 11)], ids=str)
def test_small_intervals_are_uniform(low, high):
    gen = InsecureSeededGenerator(low)
    counts = Counter(v for _ in range(10) for v in centred_values(sampling.uniform_on_interval(RING, low, high, gen), RING))
    assert set(counts) == set(range(low, high))
    assert abs(chi_squared(list(counts.values()), [10240 / (high - low)] * (high - low))) < 5


def test_wide_intervals_are_uniform_at_their_top():
    """The width 3 * 2^64 takes three words; a third of the draws lies in each third."""
    ring = RingSpec(1024, oracle.largest_primes(1024, 31, 4))
    values = centred_values(sampling.uniform_on_interval(ring, 0, 3 * 2**64, InsecureSeededGenerator(1)), ring)
    assert abs(chi_squared([Counter(v >> 64 for v in values)[i] for i in range(3)], [1024 / 3] * 3)) < 5
    low_bits = [Counter(v >> 60 & 15 for v in values)[i] for i in range(16)]
    assert abs(chi_squared(low_bits, [64] * 16)) < 5


def test_interval_draws_at_the_bound_are_drawn_again():
    """Width 2^32 + 6: two words, the upper one cut to one bit, and refused from exactly 2^32 + 6 on."""
    top = 2**32 - 1
    ring = RingSpec(2, (2147483629, 2147483549))
    gen = Scripted(5, 6, 1, 3, 7, 1, top, 2)  # the lower words of what is pending, then the upper ones
    assert centred_values(sampling.uniform_on_interval(ring, -1, 2**32 + 5, gen), ring) == [2**32 + 4, 2**32 - 2]
    assert gen.calls == [4, 2, 2]


def test_an_interval_wider_than_the_modulus_is_taken_modulo_it():
    gen = InsecureSeededGenerator(2)
    counts = Counter(
        v
        for _ in range(200)
        for v in centred_values(sampling.uniform_on_interval(RingSpec(8, (17,)), 0, 17 * 2**70, gen), RingSpec(8, (17,)))
    )
    assert abs(chi_squared([counts[i] for i in range(-8, 9)], [1600 / 17] * 17)) < 5


# Ternary


def test_ternary_bits_zero_are_refused():
    """2^64 mod 3 = 1, so 0 is refused and 1 is not; the thirds begin above 2^64 / 3."""
    third = 2**64 // 3
    bits = [0, 1, third, third + 1, 2 * third, 2 * third + 1, 2**64 - 1, 5]
    gen = Scripted(bits={(i, 0): x for i, x in enumerate(bits)} | {(0, 1): 2**63})
    assert centred_values(sampling.ternary(SMALL, gen), SMALL) == [0, -1, -1, 0, 0, 1, 1, -1]
    assert gen.script == {}


def test_ternary_coefficients_are_uniform():
    gen = InsecureSeededGenerator(3)
    counts = Counter(v for _ in range(10) for v in centred_values(sampling.ternary(RING, gen), RING))
    assert set(counts) == {-1, 0, 1}
    assert abs(chi_squared(list(counts.values()), [10240 / 3] * 3)) < 5


@pytest.mark.parametrize("weight", [0, 1, 7, 8], ids=str)
def test_sparse_ternary_has_its_weight_in_uniform_places_with_uniform_signs(weight):
    gen = InsecureSeededGenerator(weight)
    draws = [centred_values(sampling.sparse_ternary(SMALL, weight, gen), SMALL) for _ in range(2000)]
    assert all(set(d) <= {-1, 0, 1} and sum(map(abs, d)) == weight for d in draws)
    if weight:
        places = [sum(abs(d[i]) for d in draws) for i in range(8)]
        variance = 2000 * weight / 8 * (1 - weight / 8)
        assert all(abs(c - 2000 * weight / 8) <= 5 * variance**0.5 for c in places)
        signs = sum(map(sum, draws))
        assert abs(signs) < 5 * (2000 * weight) ** 0.5
    if weight == 1:
        assert abs(chi_squared(places, [250] * 8)) < 5
        assert len({tuple(d) for d in draws}) == 16


def test_sparse_ternary_draws_all_keys_again_where_two_are_equal():
    """One word for the sign, then eight 64-bit keys; the first set holds an equal pair."""
    equal = [1, 0, 2, 0, 3, 0, 1, 0, 5, 0, 6, 0, 7, 0, 8, 0]
    keys = [9, 9, 8, 9, 7, 9, 0, 0, 5, 9, 4, 9, 3, 9, 2, 9]
    gen = Scripted(1, *equal, *keys)
    assert centred_values(sampling.sparse_ternary(SMALL, 1, gen), SMALL) == [0, 0, 0, -1, 0, 0, 0, 0]
    assert gen.calls == [1, 16, 16]


# Gaussian


def exact_distribution(sigma: float) -> list[Decimal]:
    """P(X = x) for x = 0, 1, ... as far as it matters, to 60 digits."""
    with localcontext() as context:
        context.prec, context.Emin = 60, -(10**6)
        weights, x = [Decimal(1)], 1
        while weights[-1] > Decimal("1e-45"):
            weights.append((-(Decimal(x) ** 2) / (2 * Decimal(sigma) ** 2)).exp())
            x += 1
        total = 2 * sum(weights) - 1
        return [w / total for w in weights]


@pytest.mark.parametrize("sigma", [0.125, 0.25, 0.5, 1.0, 3.2, 3.19, 8.0, 123.456], ids=str)
def test_gaussian_thresholds_equal_the_distribution(sigma):
    thresholds = [int(t) for t in sampling.gaussian_thresholds(sigma)]
    bound = len(thresholds) // 2
    probability = exact_distribution(sigma)
    tail = [2 * sum(probability[k + 1 :]) for k in range(len(probability))]
    assert bound == next(k for k, mass in enumerate(tail) if mass < Decimal(2) ** -64)
    with localcontext() as context:
        context.prec = 60
        below = Decimal(0)
        for x, threshold in zip(range(-bound, bound), thresholds):
            below += probability[abs(x)]
            assert abs(threshold - below * 2**64) <= 2  # one for rounding, one for the tail
    assert thresholds == sorted(thresholds)
    assert all(abs(a + b - 2**64) <= 1 for a, b in zip(thresholds, reversed(thresholds)))


def test_tiny_deviations_give_zero_and_the_largest_is_tabulated():
    for sigma in (5e-324, 1e-200, 0.01, 0.1):
        assert len(sampling.gaussian_thresholds(sigma)) == 0
        assert not sampling.gaussian(SMALL, sigma).any()
    thresholds = sampling.gaussian_thresholds(2.0**14)
    assert not thresholds.flags.writeable and thresholds.dtype == np.uint64
    assert 9.0 < len(thresholds) / 2 / 2**14 < 9.3
    middle = len(thresholds) // 2
    assert abs(int(thresholds[middle]) + int(thresholds[middle - 1]) - 2**64) <= 1
    one_sigma = (int(thresholds[middle + 2**14]) - int(thresholds[middle - 2**14 - 1])) / 2**64
    assert abs(one_sigma - 0.68269) < 1e-4


@pytest.mark.parametrize("sigma", [0.5, 3.2, 20.0], ids=str)
def test_gaussian_draws_follow_the_distribution(sigma):
    gen = InsecureSeededGenerator(f"{sigma}")
    counts = Counter(v for _ in range(20) for v in centred_values(sampling.gaussian(RING, sigma, gen), RING))
    probability = [float(p) for p in exact_distribution(sigma)]
    cells = [x for x in range(-len(probability) + 1, len(probability)) if 20480 * probability[abs(x)] > 10]
    expected = [20480 * probability[abs(x)] for x in cells]
    observed = [counts[x] for x in cells]
    rest = 20480 - sum(expected)
    assert abs(chi_squared([*observed, 20480 - sum(observed)], [*expected, rest])) < 5


def test_gaussian_draws_invert_the_thresholds():
    thresholds = [int(t) for t in sampling.gaussian_thresholds(3.2)]
    bound = len(thresholds) // 2
    drawn = [0, thresholds[0] - 1, thresholds[0], 2**63, thresholds[bound] - 1, thresholds[bound], thresholds[-1] - 1, 2**64 - 1]
    gen = Scripted(bits={(i, 0): x for i, x in enumerate(drawn)})
    assert centred_values(sampling.gaussian(SMALL, 3.2, gen), SMALL) == [-bound, -bound, 1 - bound, 0, 0, 1, bound - 1, bound]


def test_gaussian_draws_wider_than_a_modulus_are_taken_modulo_it():
    ring = RingSpec(8, (17, 2147483489))
    gen = InsecureSeededGenerator(4)
    values = centred_values(sampling.gaussian(ring, 1000.0, gen), ring)
    assert max(map(abs, values)) > 17 and max(map(abs, values)) < 9300


@pytest.mark.parametrize(
    ("draw", "parameters", "error", "named"),
    [
        (sampling.uniform_on_interval, (3, 3), ValueError, "empty"),
        (sampling.uniform_on_interval, (0.5, 3), TypeError, "low is 0.5"),
        (sampling.sparse_ternary, (9,), ValueError, "weight is 9"),
        (sampling.gaussian, (0.0,), ValueError, "sigma is 0.0"),
        (sampling.gaussian, (2.0**15,), ValueError, "at most 16384"),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_impossible_parameters_are_refused_before_anything_is_drawn(draw, parameters, error, named):
    gen = Scripted()
    with pytest.raises(error, match=named):
        draw(SMALL, *parameters, gen)
    assert gen.draws == 0
