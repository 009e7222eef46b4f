"""Contexts and keys: what is active, what is secret, which keys are there, and what belongs together."""

import copy
import pickle
import re
import threading

import numpy as np
import pytest

import ren_lab as ren
from ren_lab.poly import Poly
from ren_lab.schemes.ckks import CKKSParams, Plaintext, context, decode, decrypt, encode, encrypt, keygen
from ren_lab.schemes.ckks.ckks import Ciphertext
from ren_lab.schemes.ckks.keys import context as context_of_keys

PARAMS = CKKSParams.build(depth=2, precision_bits=15, n=64, insecure=True)


@pytest.fixture(scope="module")
def ctx():
    return keygen(PARAMS)


def values(ct, count):
    return np.real(decode(decrypt(ct), length=count))


def test_contexts_nest_and_come_back_after_errors(ctx):
    other = keygen(PARAMS)
    assert context_of_keys is context
    with ctx as entered:
        assert entered is ctx is context()
        with other:
            assert context() is other
            with ctx:
                assert context() is ctx
            assert context() is other
        assert context() is ctx
        with pytest.raises(KeyError), other:
            raise KeyError
        assert context() is ctx
    with pytest.raises(RuntimeError, match="no CKKS context is active"):
        context()


def test_contexts_are_left_in_reverse_order(ctx):
    other = keygen(PARAMS)
    ctx.__enter__()
    other.__enter__()
    with pytest.raises(RuntimeError, match="reverse order"):
        ctx.__exit__(None, None, None)
    other.__exit__(None, None, None)
    ctx.__exit__(None, None, None)


def test_a_context_is_active_on_its_thread_only(ctx):
    seen = []

    def look():
        try:
            seen.append(context())
        except RuntimeError as error:
            seen.append(str(error))

    with ctx:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert context() is ctx
    assert "with ctx:" in seen[0]


@pytest.mark.parametrize(
    "use",
    [
        lambda x, p: encode([0.1]),
        lambda x, p: Plaintext.const(0.1),
        lambda x, p: encrypt(p),
        lambda x, p: decrypt(x),
        lambda x, p: x + 1,
        lambda x, p: -x,
        lambda x, p: x * x,
        lambda x, p: x.rotate(1),
        lambda x, p: x.sum(),
        lambda x, p: x.to_level(0),
        lambda x, p: x.report(),
    ],
    ids=["encode", "const", "encrypt", "decrypt", "add", "negate", "multiply", "rotate", "sum", "to_level", "report"],
)
def test_without_a_context_everything_says_so(ctx, use):
    with ctx:
        plaintext = encode([0.1])
        ciphertext = encrypt(plaintext)
    with pytest.raises(RuntimeError, match="context"):
        use(ciphertext, plaintext)


def test_what_belongs_to_other_keys_is_refused(ctx):
    other = keygen(PARAMS)
    with ctx:
        x = encrypt(encode([0.1]))
    with other:
        y = encrypt(encode([0.1]))
        for use in (decrypt, Ciphertext.report, Ciphertext.conjugate, lambda x: x + y, lambda x: y * x, lambda x: x + 1):
            with pytest.raises(ValueError, match="key set"):
                use(x)
        with pytest.raises(ValueError, match="is not the secret key of"):
            encrypt(encode([0.1]), secret=ctx.secret_key)


def test_plaintexts_of_other_parameters_are_refused(ctx):
    with keygen(CKKSParams.build(depth=1, precision_bits=15, n=64, insecure=True)):
        plaintext = encode([0.1])
    with ctx:
        x = encrypt(encode([0.1]))
        for use in (encrypt, lambda p: x + p, lambda p: x * p):
            with pytest.raises(ValueError, match="other parameters"):
                use(plaintext)


def test_secrets_are_not_shown_copied_or_pickled(ctx):
    secret = ctx.secret_key
    shown = f"{ctx!r} {ctx} {secret!r} {secret} {ctx.public_key!r} {ctx.relinearization_key!r} {vars(ctx)!r}"
    assert "hidden" in shown and not re.search(r"-?\d, -?\d, -?\d", shown)
    with ctx:
        x = encrypt(encode([0.1]))
    for thing in (ctx, secret, ctx.evaluation()):
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="can't be pickled or copied"):
                use(thing)
    for thing in (x, ctx.public_key, ctx.relinearization_key):
        with pytest.raises(TypeError):
            pickle.dumps(thing)
    assert not hasattr(secret, "__dict__")


def test_every_encryption_is_fresh(ctx):
    with ctx:
        plaintext = encode([0.5])
        made = [encrypt(plaintext, secret=secret) for secret in (None, None, ctx.secret_key, ctx.secret_key)]
    assert len({x.a.tobytes() for x in made}) == len({x.b.tobytes() for x in made}) == 4


def test_keys_are_fresh():
    first, second = keygen(PARAMS), keygen(PARAMS)
    assert first.public_key.a.tobytes() != second.public_key.a.tobytes()
    assert first.secret_key._poly.tobytes() != second.secret_key._poly.tobytes()
    assert first.key_id != second.key_id


def test_an_evaluation_context_computes_and_cannot_decrypt(ctx):
    public = keygen(PARAMS, rotations=[1, -2, 33], conjugation=True)
    evaluation = public.evaluation()
    assert evaluation.secret_key is None and evaluation.rotations == (1, 30) and "evaluation" in repr(evaluation)
    with public:
        x = encrypt(encode([0.5, 0.25, -0.5]))
    with evaluation:
        y = encrypt(encode([1.0, -1.0]))
        z = (x * y).rotate(1) + x.rotate(-2).conjugate()
        for use in (decrypt, lambda c: c.rotate(5)):
            with pytest.raises(RuntimeError, match="no secret key"):
                use(x)
        with pytest.raises(RuntimeError, match=r"rotation by 5 is missing.*rotations=\[5\]"):
            x.rotate(5)
        assert x.report([0.5, 0.25, -0.5]).measured is None
    with public:
        np.testing.assert_allclose(values(z, 4), [-0.25, 0, 0.5, 0.25], atol=1e-3)
        x.rotate(5)
    assert public.rotations == (1, 5, 30) and evaluation.rotations == (1, 30)
    missing = ctx.evaluation()
    with ctx:
        x = encrypt(encode([0.5]))
    with missing, pytest.raises(RuntimeError, match="conjugation=True"):
        x.conjugate()


def test_a_key_is_made_once_and_not_for_rotations_by_nothing():
    ctx = keygen(PARAMS)
    with ctx:
        x = encrypt(encode([0.5]))
        assert x.rotate(0) is x and x.rotate(32) is x and ctx.rotations == ()
        x.rotate(3)
        key = ctx.rotation_key(3)
        x.rotate(3 - 32)
        x.rotate(3 + 64)
        assert ctx.rotation_key(3) is key and ctx.rotations == (3,)


def test_threads_agree_on_a_key():
    ctx = keygen(PARAMS)
    keys = []
    threads = [threading.Thread(target=lambda: keys.append(ctx.rotation_key(7))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, keys))) == 1 and len(keys) == 4


def test_a_first_rotation_inside_a_jitted_function_makes_its_key():
    ctx = keygen(PARAMS)
    bodies = []

    @ren.jit
    def turned(x):
        bodies.append(1)
        return x + x.rotate(1)

    with ctx:
        for _ in range(3):
            x = np.random.default_rng(len(bodies)).uniform(-1, 1, 32)
            np.testing.assert_allclose(values(turned(encrypt(encode(x))), 32), x + np.roll(x, -1), atol=1e-3)
    assert len(bodies) == 1 and ctx.rotations == (1,)


def test_keys_cannot_be_made_inside_a_jitted_function(ctx):
    with ctx:
        x = encrypt(encode([0.5]))
        for body in (lambda x: (keygen(PARAMS), x)[1], lambda x: encrypt(encode([0.5]))):
            with pytest.raises(RuntimeError, match="Random number generation during jit capture is not supported"):
                ren.jit(body)(x)


def test_plans_belong_to_a_context(ctx):
    other = keygen(PARAMS)
    double = ren.jit(lambda x: x * x)
    for active in (ctx, other, ctx, ctx.evaluation()):
        with active:
            x = encrypt(encode([0.5]))
            y = double(x)
        with ctx if active.key_id == ctx.key_id else other:
            assert values(y, 1)[0] == pytest.approx(0.25, abs=1e-3)
    assert len(double.plans) == 3


def test_making_keys_is_out_of_sight_of_traces(ctx):
    with ren.trace() as recording:
        made = keygen(PARAMS, rotations=[1])
    assert not recording.realizations
    with made:
        x = encrypt(encode([0.5, 0.25])).realize()
        with ren.trace() as recording:
            values(x.rotate(2), 2)
    assert recording.realizations
    assert all("random" not in {item.kind for item in t.schedule} for t in recording.realizations)


def test_options_reach_the_making_of_keys():
    with ren.using(device="python:1"):
        ctx = keygen(PARAMS)
        with ctx:
            x = encrypt(encode([0.5, 0.25]))
            y = x.rotate(1) * x
    assert ctx.device == "python:1" == y.a.device == ctx.rotation_key(1).parts[0][0].device
    with ctx:  # the context's device counts, not the default one
        assert values(y + encode([0.0]) + [0.5], 1)[0] == pytest.approx(0.625, abs=1e-3)
    assert keygen(PARAMS, device="python").device == "python"


def test_many_keys_and_wrong_arguments(capsys):
    ctx = keygen(PARAMS, rotations=range(-5, 6))
    assert len(ctx.rotations) == 10
    with pytest.raises(TypeError, match="CKKSParams"):
        keygen("default")
    with ctx:
        for use in (encrypt, decrypt):
            with pytest.raises(TypeError, match="not list"):
                use([0.5])


def test_sizes_are_counted(ctx):
    ring = PARAMS.extended_ring
    fresh = keygen(PARAMS)
    digits = len(PARAMS.digit_moduli(PARAMS.depth))
    key = 2 * digits * ring.limbs * ring.n * 4
    public = 2 * PARAMS.encryption_ring.limbs * ring.n * 4
    assert fresh.nbytes == key + public
    fresh.rotation_key(1)
    assert fresh.nbytes == 2 * key + public


def test_a_ciphertext_is_opened_by_hand(ctx):
    """b + a*s, decoded from its definition."""
    with ctx:
        x = encrypt(encode([0.5] * 32))
    m = (x.b + x.a * ctx.secret_key._poly.to_ring(x.a.ring)).to_centered_list()
    assert m[0] / x.scale == pytest.approx(0.5, abs=1e-4)
    assert isinstance(x.a, Poly)
