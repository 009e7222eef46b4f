"""What `ren.jit` keeps, refuses and explains."""

import asyncio
import functools
import gc
import weakref
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest

import ren_lab as ren
from ren_lab.events import JitCalled, observe
from ren_lab.jit import register_key
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec

RING = RingSpec(8, (17, 97))
SUB = RingSpec(8, (97,))


def p(*c: int) -> Poly:
    return Poly(list(c), RING)


def head(poly: Poly) -> int:
    return poly.tolist()[0]


@pytest.mark.parametrize("kind", ["generator", "coroutine", "async generator"])
def test_functions_that_do_not_run_in_one_piece_are_refused(kind: str) -> None:
    def generator(x):
        yield x

    async def coroutine(x):
        return x

    async def both(x):
        yield x

    fn = {"generator": generator, "coroutine": coroutine, "async generator": both}[kind]
    for refused in (fn, functools.partial(fn)):
        with pytest.raises(TypeError, match=kind.split()[-1]):
            ren.jit(refused)


@pytest.mark.parametrize("bad", [None, 3, "f"], ids=repr)
def test_what_cannot_be_called_is_refused(bad: object) -> None:
    if bad is None:
        assert callable(ren.jit(bad))  # a decorator with options
    else:
        with pytest.raises(TypeError, match="takes a function"):
            ren.jit(bad)
    with pytest.raises(ValueError, match="max_plans is 0"):
        ren.jit(lambda x: x, max_plans=0)


@pytest.mark.parametrize("first, second", [(2, 2.0), (1, True), (0.0, -0.0), ("a", "b"), (None, 0)], ids=repr)
def test_scalars_are_compared_by_value_and_type(first: object, second: object) -> None:
    f = ren.jit(lambda x, s: x + 1)
    f(p(1), first)
    with pytest.raises(RuntimeError, match="scalar arg changed"):
        f(p(1), second)
    assert head(f(p(5), first)) == 6


def test_keywords_are_arguments() -> None:
    f = ren.jit(lambda x, *, y, k=1: x * y + k)
    assert head(f(p(2), y=p(3), k=4)) == 10
    assert head(f(p(5), y=p(3), k=4)) == 19
    with pytest.raises(RuntimeError, match="scalar arg changed"):
        f(p(2), y=p(3), k=5)


def test_plans_are_evicted_least_recently_used_first() -> None:
    f = ren.jit(lambda x, c: x + c, max_plans=2)
    consts = [Poly.const(c, RING) for c in range(3)]
    f(p(1), consts[0]), f(p(1), consts[1]), f(p(1), consts[0]), f(p(1), consts[2])
    assert [plan.key.polynomials[1].value for plan in f.plans] == [0, 2]
    assert [plan.hits for plan in f.plans] == [1, 0]


def test_methods_are_keyed_by_their_object() -> None:
    class Scale:
        def __init__(self, k: int) -> None:
            self.k = k

        @ren.jit
        def times(self, x: Poly) -> Poly:
            return x * self.k

    two, three = Scale(2), Scale(3)
    assert [head(s.times(p(5))) for s in (two, three, two)] == [10, 15, 10]
    assert len(Scale.times.plans) == 2
    ident = weakref.ref(two)
    del two
    gc.collect()
    assert ident() is None, "a plan must not keep the object alive"


def test_data_that_is_shared_between_arguments_is_part_of_the_key() -> None:
    f = ren.jit(lambda x, y: x - y)
    a, b = p(1, 2).realize(), p(1, 2).realize()
    assert head(f(a, a)) == 0
    assert head(f(a, b)) == 0
    assert head(f(p(7), b)) == 6  # the plan of two different polynomials, not the one that folded to zero
    assert len(f.plans) == 2
    assert head(f(b, a * 1)) == 0


def test_closures_are_captured_by_identity_and_draws_happen_once() -> None:
    noise, shift = Poly.uniform(RING), p(5)
    f = ren.jit(lambda x: x + noise + shift)
    first, second = f(p(1)), f(p(1))
    assert first.tolist() == second.tolist() == (p(6) + noise).tolist()
    g = ren.jit(lambda y: y * shift)
    assert head(g(shift)) == 25 and head(g(p(2))) == 10


def test_results_may_be_inputs_constants_views_and_closures() -> None:
    held = p(9).realize()
    Result = namedtuple("Result", "same const view folded held twice")

    @ren.jit
    def f(x):
        y = x * x
        return Result(x, Poly.const(3, RING), x.to_ring(SUB), x * 1, held, [y, y])

    for c in (2, 3):
        x = p(c, 1)
        out = f(x)
        assert isinstance(out, Result)
        assert [head(out.same), head(out.const), head(out.view), head(out.folded), head(out.held)] == [c, 3, c, c, 9]
        assert out.twice[0].tolist() == out.twice[1].tolist() == (x * x).tolist()
    wide = Poly([4], RingSpec(8, (193, 17, 97))).to_ring(RING).realize()  # the argument is a window itself
    assert head(f(wide).view) == 4 and len(f.plans) == 1


def test_results_come_in_fresh_containers() -> None:
    f = ren.jit(lambda x: {"k": [x + 1]})
    first, second = f(p(1)), f(p(2))
    first["k"].clear()
    assert head(second["k"][0]) == 3 and head(f(p(3))["k"][0]) == 4


def test_a_container_that_holds_itself_is_an_error() -> None:
    loop: list = [p(1)]
    loop.append(loop)
    with pytest.raises(ValueError, match="holds itself"):
        ren.jit(lambda x: x[0])(loop)


@dataclass(frozen=True)
class Frozen:
    poly: Poly
    name: str
    weights: np.ndarray = field(default_factory=lambda: np.zeros(2))


def test_frozen_dataclasses_and_their_static_leaves() -> None:
    f = ren.jit(lambda z: Frozen(z.poly * int(z.weights[0]), z.name + "!", z.weights))
    for w in (2, 3, 2):
        out = f(Frozen(p(5), "n", np.array([w, 0])))
        assert (head(out.poly), out.name) == (5 * w, "n!")
    assert len(f.plans) == 2
    assert f(Frozen(p(5), "m", np.array([2, 0]))).name == "m!" and len(f.plans) == 3


def test_a_failed_capture_keeps_nothing() -> None:
    fail = True

    @ren.jit
    def f(x):
        if fail:
            raise LookupError("in the body")
        return x + 1

    with pytest.raises(LookupError):
        f(p(1))
    assert not f.plans and (p(1) + 1).tolist()[0] == 2
    fail = False
    assert head(f(p(1))) == 2 and len(f.plans) == 1


@pytest.mark.parametrize("ask", [lambda y: y.tolist(), lambda y: y.numpy(), lambda y: y.tobytes(), lambda y: y.to_centered_list()])
def test_asking_for_values_in_the_body_is_refused(ask) -> None:
    def body(x):
        ask(x + 1)
        return x

    with pytest.raises(RuntimeError, match="realize should not be called in a jitted function"):
        ren.jit(body)(p(1))


def test_capture_is_per_task_and_thread() -> None:
    f = ren.jit(lambda x: x + 1)

    async def call(c: int) -> int:
        await asyncio.sleep(0)
        return head(f(p(c)))

    async def main() -> list[int]:
        return await asyncio.gather(*map(call, range(5)))

    with ThreadPoolExecutor(1) as pool:  # a loop of its own, whatever runs in this thread
        assert pool.submit(asyncio.run, main()).result() == [1, 2, 3, 4, 5]


def test_prune_runs_setup_once_and_keeps_it() -> None:
    def body(x):
        setup = (p(1, 2) * p(3, 4)).rotate(1)
        return x * setup, setup.to_ring(SUB), setup + 1

    plain, pruned = ren.jit(body), ren.jit(body, prune=True)
    for c in (1, 2):
        for a, b in zip(plain(p(c, 5)), pruned(p(c, 5)), strict=True):
            assert a.tolist() == b.tolist()
    assert len(pruned.plans[0].kernels) < len(plain.plans[0].kernels)


def test_memory_of_results_is_reused_only_when_nobody_holds_them() -> None:
    from ren_lab.engine import storage_of
    from ren_lab.ir import storage

    def address(poly: Poly) -> int:
        return storage_of(storage(poly.node)).ctypes.data

    f = ren.jit(lambda x: x * x)
    kept = f(p(3))
    seen = {address(f(p(i))) for i in range(20)}
    assert address(kept) not in seen and len(seen) <= 2
    lazy = f(p(4)) + 1  # still in reach through the graph
    assert all(address(f(p(i))) for i in range(5))
    assert head(lazy) == 17 and head(kept) == 9


def test_reusing_outputs_copies_an_input_that_is_an_output() -> None:
    swap = ren.jit(lambda x, y: (y + 0, x + 0), reuse_outputs=True)
    x, y = p(1), p(2)
    for _ in range(5):
        x, y = swap(x, y)
    assert (head(x), head(y)) == (2, 1)


def test_a_call_says_whether_it_hit_and_why_not() -> None:
    told: list[JitCalled] = []
    f = ren.jit(lambda x, c: x + c)
    small = RingSpec(4, (17, 97))
    with observe(lambda r: told.append(r) if isinstance(r, JitCalled) else None):
        f(p(1), Poly.const(7, RING))
        f(p(2), Poly.const(7, RING))
        f(p(2), Poly.const(8, RING))
        f(p(2).ntt(), Poly.const(8, RING))
        f([p(2)][0], Poly([1], RING))
        f(Poly([1], small), Poly([1], small))
    assert [t.hit for t in told] == [False, True, False, False, False, False]
    assert told[0].why == "no plan yet"
    assert "constant of argument 1 is 8, not 7" in told[2].why
    assert "domain of argument 0 is NTT, not COEFF" in told[3].why
    assert "constant of argument 1 is none" in told[4].why
    assert "ring of argument 0" in told[5].why


def test_a_replay_can_be_watched() -> None:
    f = ren.jit(lambda x: (x * x).intt() + 1)
    f(p(1))
    x = p(3).realize()
    with ren.trace() as recording:
        out = f(x)
    (trace,) = recording.realizations
    assert [k.name for k in trace.kernels] == [k.name for k in f.plans[0].kernels]
    assert all(u.seconds is not None for u in trace.units) and head(out) == 10


def test_a_trace_says_hit_or_miss_and_a_plan_shows_itself() -> None:
    @ren.jit
    def step(x, c):
        return (x * x).intt() + c

    x, constants = p(3).realize(), [Poly.const(c, RING) for c in (1, 2)]
    with ren.trace() as recording:
        step(x, constants[0]), step(x, constants[0]), step(x, constants[1])
    calls = [t.jit for t in recording.realizations]
    assert [c.hit for c in calls] == [False, True, False] and all(c.function.endswith("step") for c in calls)
    assert "constant of argument 1 is 2, not 1" in calls[2].why
    assert "miss, no plan yet" in str(recording.realizations[0]) and "hit, served 1 time" in str(recording.realizations[1])
    trace = step.plans[0].explain()
    assert [k.name for k in trace.kernels] == [k.name for k in step.plans[0].kernels]
    assert len(trace.passes) == 12 and "step" in str(trace)
    assert trace.memory.plot() is not None and "digraph" in trace.to_graphviz().source


def test_schemes_add_to_the_key() -> None:
    from ren_lab import jit_key

    active: list[object] = []
    register_key(lambda: active[-1] if active else None)
    try:
        f = ren.jit(lambda x: x + 1)
        f(p(1))
        active.append(namedtuple("Context", "a"))
        f(p(1))
        assert len(f.plans) == 2
        active.append(namedtuple("Context", "a"))
        f(p(1))
        assert len(f.plans) == 3
    finally:
        jit_key._contributors.pop()


def test_plans_hold_no_graph_of_their_capture() -> None:
    seen = []

    @ren.jit
    def powers(a):
        made = [a]
        for i in range(5):
            made.append(made[-1] * a + i)
        seen.extend(map(weakref.ref, made))
        return made, tuple(made), Frozen(made[-1], "n")

    powers(p(1, 2))
    gc.collect()
    assert len(seen) == 6 and not any(ref() is not None for ref in seen)


@dataclass
class Doubled:
    a: Poly

    def __post_init__(self) -> None:
        self.twice = self.a * 2


class Tagged(list):
    pass


def test_attributes_beside_fields_and_items_count() -> None:
    f = ren.jit(lambda d: d.twice + 0)
    assert [head(f(Doubled(p(c)))) for c in (1, 4)] == [2, 8]
    g = ren.jit(lambda items: items[0] * items.factor)
    for c, factor in ((2, 3), (2, 7), (5, 3)):
        tagged = Tagged([p(c)])
        tagged.factor = factor
        assert head(g(tagged)) == c * factor


def test_deques_are_walked_and_sets_are_told_apart_by_type() -> None:
    from collections import deque

    f = ren.jit(lambda q: deque([q[0] + q[1], q[2]]))
    for c in (1, 5):
        out = f(deque([p(c), p(1), c]))
        assert isinstance(out, deque) and head(out[0]) == c + 1 and out[1] == c
    g = ren.jit(lambda parts: parts[0] * (2 if any(v is True for v in parts[1]) else 3))
    assert [head(g([p(1), frozenset([v])])) for v in (1, True, 1)] == [3, 2, 3]


def test_a_polynomial_that_leaves_the_body_says_so() -> None:
    kept = []
    f = ren.jit(lambda a: (kept.append(a + 1), a)[1])
    f(p(1))
    with pytest.raises(RuntimeError, match="return it from the function"):
        kept[0].tolist()


def test_jitted_methods_have_plans_too() -> None:
    class Model:
        @ren.jit
        def step(self, a):
            return a + 1

    model = Model()
    assert head(model.step(p(1))) == 2 and len(model.step.plans) == 1
    model.step.clear_jit()
    assert not Model.step.plans and head(model.step.fn(model, p(2))) == 3


@pytest.mark.parametrize("bad", ["3", None, 2.5, True], ids=repr)
def test_max_plans_is_an_int(bad: object) -> None:
    with pytest.raises(TypeError, match="max_plans"):
        ren.jit(lambda a: a, max_plans=bad)


class Nameless:
    """A key of dictionaries that looks like every other one."""

    def __repr__(self) -> str:
        return "key"


def test_arguments_whose_paths_read_alike_are_two() -> None:
    keys = Nameless(), Nameless()

    @ren.jit
    def weighted(named, scale):
        (a, b), (m, n) = named.values(), scale.values()
        return a * m + b * n

    for first, second in ((1, 2), (3, 4)):
        named = dict(zip(keys, (p(first), p(second)), strict=True))
        assert head(weighted(named, dict(zip(keys, (10, 100), strict=True)))) == 10 * first + 100 * second
    assert len(weighted.plans) == 1
    assert head(weighted(named, dict(zip(keys, (100, 10), strict=True)))) == 340
    shared = p(5)
    assert head(weighted(dict.fromkeys(keys, shared), dict(zip(keys, (10, 100), strict=True)))) == 550
    assert len(weighted.plans) == 3


def test_nesting_has_a_depth_that_is_told() -> None:
    def nested(depth: int) -> list:
        value = [p(1)]
        for _ in range(depth - 1):
            value = [value]
        return value

    def inner(value):
        while isinstance(value, list):
            (value,) = value
        return value + 1

    step = ren.jit(inner)
    assert head(step(nested(200))) == head(step(nested(200))) == 2 and step.plans[0].hits == 1
    with pytest.raises(ValueError, match="nested more than 200 deep.*flatter"):
        step(nested(2000))
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        ren.jit(lambda x: nested(300))(p(1))


@pytest.mark.parametrize("device", [d.name for d in ren.devices() if d.available])
@pytest.mark.parametrize("prune", [False, True])
def test_what_a_plan_reaches_through_a_closure_stays_its_own(device: str, prune: bool) -> None:
    def make(*c: int) -> Poly:
        return Poly(list(c), RING, device).realize()

    plus_one = ren.jit(lambda x: x + 1)
    lazy = plus_one(make(1)) * 2
    add = ren.jit(lambda x: x + lazy, prune=prune)
    x = make(5)
    assert head(add(x)) == 9
    assert head(lazy) == 4  # what was made by `plus_one` is out of everybody's reach now but the plan's
    gc.collect()
    kept = [plus_one(make(50 + i)) for i in range(8)]
    assert head(add(x)) == 9 and head(kept[0]) == 51


def test_a_plan_that_is_cleared_while_it_serves_does_not_come_back() -> None:
    step = ren.jit(lambda x: x + 1)
    other = ren.jit(lambda x: x)
    x, y = p(1), p(1, 1).ntt().realize()
    step(x), step(y)
    plan = next(plan for plan in step.plans if plan.key.polynomials[0].domain is x.domain)
    accepts = type(plan.guard).accepts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(plan.guard), "accepts", lambda g, *a: (accepts(g, *a), step.clear_jit())[0])
        assert head(step(x)) == 2
    assert step.plans == () and head(other(x)) == 1


def test_workspaces_go_without_the_collector() -> None:
    from ren_lab.engine import replay

    before = sum(isinstance(o, replay._Workspace) for o in gc.get_objects())
    gc.disable()
    try:
        for _ in range(3):
            step = ren.jit(lambda x: (x * x).contiguous() + 1)
            step(p(1)), step(p(1))
            del step
        assert sum(isinstance(o, replay._Workspace) for o in gc.get_objects()) == before
    finally:
        gc.enable()


class Collect:
    """Callable, and with a generator function in an attribute of that name."""

    def __init__(self, func):
        self.func = func

    def __call__(self, x):
        return list(self.func(x))


def test_objects_are_judged_by_what_their_call_runs() -> None:
    def twice(x):
        yield x
        yield x + x

    assert list(map(head, ren.jit(Collect(twice))(p(3)))) == [3, 6]
    with pytest.raises(TypeError, match="generator"):
        ren.jit(functools.partial(twice))
