"""The user's lines behind kernels: each kernel knows those of what it does, and no others."""

import inspect

import numpy as np

from ren_lab.schemes.ckks import CKKSParams, encode, encrypt, keygen


def test_kernels_of_two_products_know_which_of_them_they_belong_to():
    params = CKKSParams.python_test()
    with keygen(params, device="python"):
        x = encrypt(encode(np.linspace(-1, 1, params.slot_count))).realize()
        line = inspect.currentframe().f_lineno
        first = x * x
        second = first * first
        trace = second.b.explain(second.a)
    found = [tuple(number - line for file, number in lines if file == __file__) for lines in trace.schedule.lines]
    assert set(found) == {(1,), (2,)}  # no kernel stands behind both
    assert found.index((2,)) > 4 and found[-1] == (2,)  # the second product works on what the first one gave
    assert found.count((1,)) > 8 and found.count((2,)) > 8


def test_the_pass_that_groups_kernels_says_where_every_node_went():
    params = CKKSParams.python_test()
    with keygen(params, device="python"):
        x = encrypt(encode([0.5])).realize()
        product = x * x
        step = product.b.explain(product.a).passes[5]
    after = set(step.after.toposort())
    assert step.name == "lower_bufferize" and any(node.op.name == "GROUP" for node in after)
    values = [node for node in step.before.toposort() if node.ring is not None]
    assert all(step.mapping[node] in after for node in values)
