"""A random polynomial is drawn once, whichever graphs and threads reach it."""

import threading
import time

from ren_lab.backends.python import sampling
from ren_lab.ir import DType, Node, Op, const
from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec

RING = RingSpec(64, (257, 641, 769))


def test_a_graph_from_before_a_draw_finds_what_it_gave():
    x = Poly.uniform(RING)
    early = x.node
    x.realize()
    shifted = Poly.of_node(Node(Op.ADD, DType.U32, (early, const(1, RING, Domain.COEFF, x.device))))
    assert shifted.tolist() == (x + 1).tolist()
    assert Poly.of_node(early).tolist() == x.tolist()
    both = Poly.of_node(Node(Op.ADD, DType.U32, (early, Poly.ternary(RING).node)))  # one that has happened and one that has not
    small = (both - x).to_centered_list()
    assert set(small) <= {-1, 0, 1}


def test_threads_that_share_a_draw_see_one_value():
    for _ in range(20):
        x, y = Poly.uniform(RING), Poly.gaussian(RING, 3.2)
        made = [x + i * y if i % 2 else y * i - x for i in range(6)]
        found = [None] * len(made)

        def work(i, made=made, found=found):
            found[i] = made[i].tolist()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(made))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [(x + i * y if i % 2 else y * i - x).tolist() for i in range(6)]


def test_who_waits_for_a_draw_that_fails_draws_it_itself(monkeypatch):
    x = Poly.uniform(RING, "python")
    other, started = x + 1, threading.Event()
    current = sampling.current_generator

    def slow():
        if threading.current_thread() is not threading.main_thread():
            started.set()
            time.sleep(0.2)  # the other one waits by now, or will find that nobody draws
            raise ArithmeticError("no entropy")
        return current()

    monkeypatch.setattr(sampling, "current_generator", slow)
    errors = []

    def work():
        try:
            x.realize()
        except ArithmeticError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    result = other.tolist()
    thread.join()
    assert len(errors) == 1 and result == (x + 1).tolist()
