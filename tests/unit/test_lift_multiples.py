"""A lift multiplied by what is 0 modulo the added moduli takes no conversion, and is right in every place and domain."""

import random

import oracle
import pytest

from ren_lab.poly import Poly
from ren_lab.ring import RingSpec

SMALL = RingSpec(8, (97, 113, 193))
RINGS = [RingSpec(8, m) for m in ((17, 97, 113, 193), (97, 17, 193, 113), (193, 241, 97, 17, 113), (113, 97, 193, 17))]
VALUES = [random.Random(1).randrange(SMALL.q) for _ in range(8)]


def kinds(poly):
    return {item.kind for item in poly.explain().schedule}


@pytest.mark.parametrize("ring", RINGS, ids=lambda r: str(r.moduli))
@pytest.mark.parametrize("transformed", [False, True], ids=["coefficients", "ntt"])
def test_multiples_of_lifts(ring, transformed):
    added = 1
    for p in ring.moduli:
        added *= 1 if p in SMALL.moduli else p
    a = Poly(VALUES, SMALL).realize()
    a = a.ntt().realize() if transformed else a
    # the centred representative does not matter: a multiple of q vanishes modulo every modulus
    wanted = [added * 5 * v % ring.q for v in VALUES]
    lifted = a.to_ring(ring) * (5 * added)
    assert lifted.tolist() == wanted
    assert "convert" not in kinds(a.to_ring(ring) * (5 * added))
    other = [random.Random(2).randrange(ring.q) for _ in range(8)]
    total = lifted + Poly(other, ring).ntt()
    assert total.tolist() == oracle.add(wanted, other, ring.q)
    for moduli in (ring.moduli[:2], ring.moduli[1:3], ring.moduli[::-2]):
        some = RingSpec(8, moduli)
        assert (a.to_ring(ring) * added + Poly(other, ring).ntt()).to_ring(some).tolist() == [
            (added * v + o) % some.q for v, o in zip(VALUES, other)
        ]
    product = (Poly(other, SMALL).ntt() * a).to_ring(ring) * added
    assert product.tolist() == [added * c % ring.q for c in oracle.negacyclic_product(other, VALUES, SMALL.q)]


def test_a_sum_with_a_lifted_multiple_is_rescaled_at_once():
    ring, added = RINGS[0], 17
    other = [random.Random(3).randrange(ring.q) for _ in range(8)]
    a, b = Poly(VALUES, SMALL).ntt().realize(), Poly(other, ring).ntt().realize()
    got = (b + a.to_ring(ring) * added).rescale((17, 193))
    for c, v, o in zip(got.tolist(), VALUES, other):
        exact = oracle.rescale(oracle.centred(added * v + o, ring.q), 17 * 193)
        assert min((c - exact) % got.ring.q, (exact - c) % got.ring.q) <= 1
    items = (b + a.to_ring(ring) * added).rescale((17, 193)).explain().schedule
    assert [i.outputs[0].shape[0] for i in items if i.kind == "convert"] == [2]


def test_other_factors_still_lift():
    ring = RINGS[0]
    a = Poly(VALUES, SMALL).realize()
    centred = [oracle.centred(v, SMALL.q) for v in VALUES]
    assert (a.to_ring(ring) * 3).tolist() == [3 * v % ring.q for v in centred]
    assert "convert" in kinds(a.to_ring(ring) * 3)
