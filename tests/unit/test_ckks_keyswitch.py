"""Keys, key switching, division, rotation and products, coefficient by coefficient against Python integers."""

import math
import random
from fractions import Fraction

import oracle
import pytest

from ren_lab.poly import Poly
from ren_lab.ring import RingSpec
from ren_lab.schemes.ckks import CKKSParams, encode, encrypt, keygen, noise
from ren_lab.schemes.ckks.keyswitch import Split, make_switching_key, switched

SETS = [
    CKKSParams.build(depth=3, precision_bits=12, n=64, insecure=True),
    CKKSParams.build(depth=2, precision_bits=30, n=64, insecure=True),
    CKKSParams(*(lambda p: (p.n, p.base, p.groups, p.special, 3, p.log2_scale))(CKKSParams.python_test()), insecure=True),
]
SIGMAS = 8  # exceeded with probability below 2^-49


@pytest.fixture(scope="module", params=SETS, ids=lambda p: f"n={p.n}/digits={p.digits}/pairs={len(p.groups[0]) == 2}")
def ctx(request):
    return keygen(request.param, rotations=[1], conjugation=True)


def secret(ctx):
    return ctx.secret_key._poly.to_centered_list()


def held(b, a, s, q):
    """b + a*s modulo q, centred."""
    product = oracle.negacyclic_product(a.tolist(), s, q)
    return [oracle.centred(x + y, q) for x, y in zip(b.tolist(), product)]


def largest(values):
    return max(abs(v) for v in values)


def random_poly(ring, seed):
    rng = random.Random(seed)
    return [rng.randrange(ring.q) for _ in range(ring.n)]


def test_the_secret_is_ternary(ctx):
    assert set(secret(ctx)) == {-1, 0, 1}


def test_a_public_key_hides_a_small_error(ctx):
    key = ctx.public_key
    assert key.a.ring == ctx.params.encryption_ring
    error = held(key.b, key.a, secret(ctx), key.a.ring.q)
    assert 0 < largest(error) < SIGMAS * 3.2
    assert math.sqrt(sum(e * e for e in error) / len(error)) == pytest.approx(3.2, rel=0.5)


def test_a_switching_key_holds_selected_multiples_of_the_secret(ctx):
    params, s = ctx.params, secret(ctx)
    ring, p = params.extended_ring, math.prod(params.special)
    square = oracle.negacyclic_product(s, s, ring.q)
    for digit, (b, a) in zip(params.digit_moduli(params.depth), ctx.relinearization_key.parts, strict=True):
        value = held(b, a, s, ring.q)
        for modulus in ring.moduli:
            wanted = p if modulus in digit else 0
            rest = [oracle.centred(v - wanted * c, modulus) for v, c in zip(value, square)]
            assert largest(rest) < SIGMAS * 3.2


@pytest.mark.parametrize("below", [0, 1, 2])
def test_switching_leaves_a_small_error(ctx, below):
    params, s = ctx.params, secret(ctx)
    level = params.depth - below
    ring = params.levels[level].ring
    d = random_poly(ring, level)
    b, a = switched(params, level, Poly(d, ring), ctx.relinearization_key)
    extended = params.extended_ring_at(level)
    assert b.ring == a.ring == extended
    p = math.prod(params.special)
    wanted = oracle.negacyclic_product(
        [p * oracle.centred(c, ring.q) for c in d], oracle.negacyclic_product(s, s, extended.q), extended.q
    )
    error = [oracle.centred(v - w, extended.q) for v, w in zip(held(b, a, s, extended.q), wanted)]
    # p * d is known modulo p*q only through d modulo q, and that is enough
    assert largest(error) < SIGMAS * p * math.sqrt(noise.switching_variance(params, level))
    assert largest(error) > 0


def test_keys_from_one_secret_to_another(ctx):
    params = ctx.params
    ring = params.extended_ring
    t = Poly.ternary(ring).ntt().realize()
    key = make_switching_key(params, t, ctx.secret_key._poly)
    level_ring = params.levels[-1].ring
    d = random_poly(level_ring, 5)
    b, a = switched(params, params.depth, Poly(d, level_ring), key)
    b, a = b.rescale(params.special), a.rescale(params.special)
    wanted = oracle.negacyclic_product(d, t.to_centered_list(), level_ring.q)
    error = [oracle.centred(v - w, level_ring.q) for v, w in zip(held(b, a, secret(ctx), level_ring.q), wanted)]
    variance = noise.switching_variance(params, params.depth) + noise.rounding_variance(params.n)
    assert largest(error) < SIGMAS * math.sqrt(variance)


@pytest.mark.parametrize("with_coefficients", [False, True])
@pytest.mark.parametrize("steps", [1, 2])
def test_division_rounds_to_nearest(with_coefficients, steps):
    params = SETS[1]
    ring = params.extended_ring
    values, coefficients = random_poly(ring, 1), random_poly(ring, 2) if with_coefficients else [0] * ring.n
    added = random_poly(params.levels[-1].ring, 3)
    split = Split(Poly(values, ring).ntt(), Poly(coefficients, ring) if with_coefficients else None)
    split = split.divided(params.special)
    total, q = oracle.add(values, coefficients, ring.q), ring.q // math.prod(params.special)
    exact = [Fraction(oracle.centred(c, ring.q), math.prod(params.special)) for c in total]
    if steps == 2:
        split = (split + Poly(added, params.levels[-1].ring).ntt()).divided(params.groups[-1])
        exact = [(x + c) / math.prod(params.groups[-1]) for x, c in zip(exact, added)]
        q //= math.prod(params.groups[-1])
    got = split.joined()
    assert got.ring.q == q
    for c, x in zip(got.tolist(), exact):
        difference = (c - x) % q
        assert min(difference, q - difference) <= Fraction(1, 2) + Fraction(1, 1000)


def test_both_parts_of_a_split_take_summands():
    ring = RingSpec(8, (17, 97, 113))
    x, y, z = ([i + k for i in range(8)] for k in range(3))
    split = Split(Poly(x, ring).ntt()) + Poly(y, ring) + Poly(z, ring).ntt() + Poly(y, ring)
    assert split.joined().tolist() == [a + 2 * b + c for a, b, c in zip(x, y, z)]


@pytest.mark.parametrize("under", ["public", "secret"])
@pytest.mark.parametrize("below", [0, 2])
def test_an_encryption_holds_the_message_and_a_small_error(ctx, under, below):
    params = ctx.params
    with ctx:
        plaintext = encode([0.5, -0.25, 1.0], level=params.depth - below)
        ciphertext = encrypt(plaintext, secret=ctx.secret_key if under == "secret" else None)
    q = ciphertext.a.ring.q
    value = held(ciphertext.b, ciphertext.a, secret(ctx), q)
    error = [oracle.centred(v - m, q) for v, m in zip(value, plaintext.poly.tolist())]
    std = 3.2 if under == "secret" else math.sqrt(noise.encryption_variance(params))
    assert 0 < largest(error) < SIGMAS * std
    assert std < 3.3 or std < 1.05 * math.sqrt(noise.rounding_variance(params.n))


@pytest.mark.parametrize("what", ["square", "product", "multiple of a product"])
def test_a_product_is_the_product_divided_by_the_group(ctx, what):
    params, s = ctx.params, secret(ctx)
    with ctx:
        x, y = encrypt(encode([0.5, -0.25])), encrypt(encode([0.75, 1.0]))
        z = {"square": x * x, "product": x * y, "multiple of a product": 3 * x * (-2 * y)}[what]
    q = params.levels[-1].ring.q
    left, right = held(x.b, x.a, s, q), held(y.b, y.a, s, q)
    exact = oracle.negacyclic_product(left, left if what == "square" else right, q)
    factor = -6 if what == "multiple of a product" else 1
    assert z.factor == 1 and z.level == params.depth - 1 and z.scale == params.levels[-2].scale
    group, below = math.prod(params.groups[-1]), params.levels[-2].ring
    error = [(v - Fraction(oracle.centred(factor * c, q), group)) % below.q for v, c in zip(held(z.b, z.a, s, below.q), exact)]
    variance = (
        noise.rounding_variance(params.n)
        + (noise.switching_variance(params, params.depth) + noise.rounding_variance(params.n)) / float(group) ** 2
    )
    assert max(min(e, below.q - e) for e in error) < SIGMAS * math.sqrt(variance)


@pytest.mark.parametrize("k", [1, -3, 40, "conjugate"])
def test_a_rotation_is_the_automorphism(ctx, k):
    params, s = ctx.params, secret(ctx)
    with ctx:
        x = encrypt(encode([0.5, -0.25, 0.125])) * encode([1.0, 1.0, 0.5])
        y = x.conjugate() if k == "conjugate" else x.rotate(k)
    q = x.a.ring.q
    element = 2 * params.n - 1 if k == "conjugate" else pow(5, k % (params.n // 2), 2 * params.n)
    wanted = oracle.automorphism(held(x.b, x.a, s, q), element, q)
    error = [oracle.centred(v - w, q) for v, w in zip(held(y.b, y.a, s, q), wanted)]
    variance = noise.switching_variance(params, x.level) + noise.rounding_variance(params.n)
    assert y.level == x.level and y.scale == x.scale
    assert 0 < largest(error) < SIGMAS * math.sqrt(variance)


def test_lowering_matches_the_scale_exactly(ctx):
    params, s = ctx.params, secret(ctx)
    with ctx:
        x = encrypt(encode([0.5, -0.25]))
        y = x.to_level(0)
    q, low = params.levels[-1].ring.q, params.levels[0].ring.q
    ratio = Fraction(params.levels[0].scale) / Fraction(x.scale)
    wanted = [ratio * v for v in held(x.b, x.a, s, q)]
    slack = max(abs(w) for w in wanted) * 2.0 ** (1 - params.log2_scale)  # the correcting integer is rounded
    for got, w in zip(held(y.b, y.a, s, low), wanted):
        assert abs(got - w) < SIGMAS * math.sqrt(noise.rounding_variance(params.n)) + slack
