"""What people mistype is answered with the value, the rule and the remedy."""

import numpy as np
import pytest

import ren_lab as ren
from ren_lab.ir import Op, rewrite, rule
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec
from ren_lab.schemes.ckks import CKKSParams, encode, encrypt, keygen

RING = RingSpec(8, (17, 97))
PARAMS = CKKSParams.python_test()


@pytest.fixture(scope="module")
def contexts():
    return keygen(PARAMS, device="python"), keygen(PARAMS, device="python")


@pytest.mark.parametrize("rotations", [1, "12", b"1", None], ids=repr)
def test_rotations_are_a_list(rotations):
    with pytest.raises(TypeError, match=r"rotations is .*; give the amounts in a list, such as \[1, 2\]"):
        keygen(PARAMS, rotations=rotations, device="python")


@pytest.mark.parametrize("name", ["max_kernel_loads", "schedule_cache_size"])
@pytest.mark.parametrize("value", ["a", 2.0, None, True], ids=repr)
def test_options_that_count_are_ints(name, value):
    with pytest.raises(TypeError, match=f"{name} is .* of type {type(value).__name__}; give an int"), ren.using(**{name: value}):
        pass


def test_rules_are_for_operations_and_return_nodes():
    with pytest.raises(TypeError, match="a rule is for operations, not for <function"):
        rule(lambda node, match: None)
    with pytest.raises(TypeError, match="not for 'ADD'"):
        rule("ADD")
    with pytest.raises(ValueError, match="at least one operation"):
        rule()

    @rule(Op.ADD)
    def three(node, match):
        """a + b -> 3"""
        return 3

    with pytest.raises(TypeError, match="rule three .a . b -> 3. answered 3 of type int .*; a rule returns the node"):
        rewrite((Poly([1], RING) + Poly([2], RING)).node, [three])


@pytest.mark.parametrize("n", [2000, 2**18, 3.5], ids=repr)
def test_a_degree_that_is_none_is_named(n):
    with pytest.raises((TypeError, ValueError), match="n is|power of two"):
        CKKSParams.build(depth=2, n=n)


def test_two_key_sets_have_no_context_in_common(contexts):
    ciphertexts = []
    for ctx in contexts:
        with ctx:
            ciphertexts.append(encrypt(encode([0.5])))
    x, y = ciphertexts
    with contexts[0], pytest.raises(ValueError, match="belong to two key sets, .* encrypt them inside one context"):
        x + y
    with contexts[1], pytest.raises(ValueError, match="work inside `with` of the context"):
        x + 1


def test_slots_on_the_unit_circle_are_within_a_bound_of_1(contexts):
    on_it = np.exp(1j * np.linspace(0, 50, PARAMS.slot_count))
    assert np.abs(on_it).max() > 1  # by rounding
    with contexts[0]:
        encode(on_it)
        with pytest.raises(ValueError, match="has magnitude 1.0000001, beyond msg_bound = 1"):
            encode([1.0000001])


def test_a_ciphertext_without_error_says_so(contexts):
    with contexts[0]:
        zero = encrypt(encode([0.5])) * 0
        assert "exact" in repr(zero)
        assert "no error by estimate" in str(zero.report()) and "inf" not in str(zero.report([0] * PARAMS.slot_count))


def test_the_advice_for_a_frozen_scalar_helps():
    step = ren.jit(lambda x, k: x.rotate(k))
    x = Poly([1, 2, 3], RING).realize()
    step(x, 1)
    with pytest.raises(RuntimeError, match=r"A scalar inside a container, such as \[2\], is part of the key"):
        step(x, 2)
    boxed = ren.jit(lambda x, k: x.rotate(*k))
    assert boxed(x, [1]).tolist() == x.rotate(1).tolist() and boxed(x, [2]).tolist() == x.rotate(2).tolist()


def test_what_can_be_typed_is_listed():
    assert {"trace", "jit", "Poly", "lens", "using"} <= set(dir(ren)) and not {"Any", "sys", "importlib"} & set(dir(ren))


def test_the_times_of_a_first_run_are_those_of_the_work(monkeypatch):
    if not any(device.name == "cpu" and device.available for device in ren.devices()):
        pytest.skip("there is no C compiler")
    events = []
    from ren_lab.backends.cpu.kernel import Kernel

    prepare, call = Kernel.prepare, Kernel.__call__
    monkeypatch.setattr(Kernel, "prepare", lambda self: (events.append("prepare"), prepare(self))[1])
    monkeypatch.setattr(Kernel, "__call__", lambda self, *a: (events.append("call"), call(self, *a))[1])
    x = Poly([1, 2, 3], RING, device="cpu").realize()
    events.clear()
    with ren.trace() as recording:
        ((x * x).intt() * x).realize()
    assert events == ["prepare"] * events.count("prepare") + ["call"] * events.count("call") and "call" in events
    assert len(recording.realizations) == 1
