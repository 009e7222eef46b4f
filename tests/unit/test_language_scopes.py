"""Scopes: where they stand, which ring they choose, and what the compiler places."""

import json

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.language.passes import materialize_runtime_scopes
from ren_lab.runtime import ReclaimedError, RingCapacityError, RunConfig

N, TR, TC = 4, 8, 16
ROWS = N * TR
A = np.random.default_rng(0).standard_normal((ROWS, TC), dtype=np.float32)


def line_of(function, text):
    """The line of the first source line of a function that holds `text`."""
    import inspect

    lines, first = inspect.getsourcelines(function.__wrapped__)
    return next(first + k for k, line in enumerate(lines) if text in line)


def site(function, text):
    return f"test_language_scopes.py:{line_of(function, text)}"


def records(tmp_path, kernel, *args, **fields):
    kernel(*args, config=RunConfig(**{"platform": "sim", **fields}, enable_scope_stats=True, work_dir=tmp_path))
    lines = (tmp_path / "dfx_outputs" / "scope_stats" / "scope_stats.jsonl").read_text().splitlines()
    return json.loads(lines[0]), [json.loads(line) for line in lines[1:]]


def out():
    return np.zeros((ROWS, TC), np.float32)


@pl.jit
def looped(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(N):
        with pl.at(level=pl.Level.CORE_GROUP):
            pl.store(pl.mul(pl.load(a, [i * TR, 0], [TR, TC]), 2.0), [i * TR, 0], out)
    return out


@pl.jit
def flat(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = pl.mul(a, 2.0)
    return out


@pl.jit
def nested(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(1):
        for j in pl.range(1):
            if i == j:
                for _ in pl.range(1):
                    for _ in pl.range(1):
                        with pl.at(level=pl.Level.CORE_GROUP):
                            out[:] = pl.mul(a, 2.0)
    return out


@pl.jit(auto_scope=False)
def by_hand(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.scope(name="first"):
        for i in pl.range(N):
            with pl.at(level=pl.Level.CORE_GROUP):
                pl.store(pl.mul(pl.load(a, [i * TR, 0], [TR, TC]), 3.0), [i * TR, 0], out)
        with pl.scope():
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.sub(out, a)
    return out


@pl.jit(auto_scope=False)
def siblings(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.mul(a, 4.0)
    with pl.scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.mul(out, 0.5)
    return out


@pl.jit(auto_scope=False)
def stray(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = pl.mul(a, 4.0)
    with pl.scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.mul(out, 0.5)
    return out


@pytest.mark.parametrize("kernel", [looped, flat, nested, by_hand, siblings, stray], ids=lambda k: k.__name__)
@pytest.mark.parametrize("platform", ["sim", "cpu", "a5"])
def test_placement_never_changes_results(kernel, platform):
    result = out()
    assert kernel(A, result, config=RunConfig(platform=platform)) is result
    np.testing.assert_allclose(result, A * 2, rtol=1e-6)


def test_the_depth_of_a_scope_chooses_the_ring_of_its_tasks(tmp_path):
    _, samples = records(tmp_path, nested, A, out())
    begun = [(s["depth"], s["ring"]) for s in samples if s["phase"] == "begin"]
    assert begun == [(d, min(d, 3)) for d in range(6)]
    ends = {s["depth"]: s for s in samples if s["phase"] == "end"}
    assert ends[5]["task_window_end"] == 1 and ends[5]["ring"] == 3


def test_by_default_the_function_body_and_each_loop_body_are_scopes(tmp_path):
    _, samples = records(tmp_path, looped, A, out())
    begun = [(s["depth"], s["site"]) for s in samples if s["phase"] == "begin"]
    assert begun == [(0, site(looped, "def looped"))] + [(1, site(looped, "for i"))] * N


def test_a_flat_function_puts_everything_into_ring_0_while_all_rings_are_mapped(tmp_path):
    report = flat.run(A, out(), config=RunConfig(platform="sim"))
    assert [ring.tasks for ring in report.rings] == [1, 0, 0, 0]
    assert report.mapped_bytes == (256 << 20,) * 4


def test_deeper_scopes_saturate_at_ring_3():
    report = nested.run(A, out(), config=RunConfig(platform="sim"))
    assert [ring.tasks for ring in report.rings] == [0, 0, 0, 1]


def test_scopes_by_hand_move_phases_to_other_rings(tmp_path):
    _, samples = records(tmp_path, by_hand, A, out())
    assert [(s["phase"], s["ring"]) for s in samples] == [("begin", 0), ("begin", 1), ("end", 1), ("end", 0)]
    ends = {s["ring"]: s["task_window_end"] for s in samples if s["phase"] == "end"}
    assert ends == {0: N, 1: 1}
    assert {s["site"] for s in samples} == {site(by_hand, "pl.scope(name="), site(by_hand, "with pl.scope():")}


def test_siblings_share_a_ring(tmp_path):
    _, samples = records(tmp_path, siblings, A, out())
    assert [s["ring"] for s in samples] == [0] * 4
    assert samples[-1]["task_window_end"] == 2


def test_the_outermost_scope_is_depth_0_and_there_is_no_root_without_tasks_outside(tmp_path):
    _, samples = records(tmp_path, siblings, A, out())
    assert [(s["phase"], s["depth"]) for s in samples] == [("begin", 0), ("end", 0)] * 2


def test_tasks_outside_any_scope_live_in_an_implicit_root(tmp_path):
    _, samples = records(tmp_path, stray, A, out())
    assert [(s["phase"], s["depth"], s["ring"]) for s in samples] == [
        ("begin", 0, 0), ("begin", 1, 1), ("end", 1, 1), ("end", 0, 0)]  # fmt: skip
    assert samples[0]["site"] == site(stray, "def stray")
    text = stray.lower(A, out()).as_python()
    assert text.count("with pl.scope()") == 1  # the root is the run's, not the program's


@pl.jit(auto_scope=False)
def stray_allocation(out: pl.Out[pl.Tensor]):
    tmp = pl.create_tensor([TR, TC], dtype=pl.FP32)
    with pl.scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            tmp[:] = pl.full([TR, TC], pl.FP32, 1.0)
        with pl.at(level=pl.Level.CORE_GROUP):
            pl.store(pl.load(tmp, [0, 0], [TR, TC]), [0, 0], out)


def test_an_allocation_outside_any_scope_needs_the_root_too(tmp_path):
    result = out()
    _, samples = records(tmp_path, stray_allocation, result)
    assert [s["depth"] for s in samples] == [0, 1, 1, 0] and result[:TR].all()
    assert samples[1]["heap_end"] == 0 and samples[0]["heap_end"] == 0 and samples[-1]["heap_end"] == 1024


# -- the pass ---------------------------------------------------------------------------------------------------------------


@pl.jit
def branching(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.Scalar):
    if n > 3:
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.mul(a, 2.0)
    elif n > 2:
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.mul(a, 3.0)
    else:
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.mul(a, 4.0)
    for (x,) in pl.while_(init_values=(0,)):
        pl.cond(x < n)
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.add(out, 1.0)
        pl.yield_(x + 1)
    return out


def body_after(kernel, *args):
    return kernel.lower(*args).as_python().partition(f"def {kernel.__name__}")[2]


def test_branches_are_scopes_and_an_elif_stays_one():
    text = body_after(branching, A, out(), 3)
    assert text.count("with pl.scope():") == 5  # the function, three branches, the loop
    assert "elif n > 2:" in text


@pytest.mark.parametrize(("n", "depths"), [(4, [0, 1, 1, 1, 1, 1]), (3, [0, 1, 1, 1, 1]), (1, [0, 1, 1])])
def test_the_branch_that_is_taken_is_the_scope_that_is_entered(tmp_path, n, depths):
    result = out()
    _, samples = records(tmp_path, branching, A, result, n)
    begun = [s for s in samples if s["phase"] == "begin"]
    assert [s["depth"] for s in begun] == depths
    np.testing.assert_allclose(result, A * {4: 2, 3: 3, 1: 4}[n] + n, rtol=1e-5)
    where = {4: "if n > 3", 3: "elif n > 2", 1: "out[:] = pl.mul(a, 4.0)"}[n]
    line = line_of(branching, where) - (n == 1)
    assert begun[1]["site"] == f"test_language_scopes.py:{line}"


@pl.jit
def manual(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.Scalar):
    with pl.manual_scope():
        for i in pl.range(N):
            if i < n:
                with pl.at(level=pl.Level.CORE_GROUP):
                    pl.store(pl.load(a, [i * TR, 0], [TR, TC]), [i * TR, 0], out)
    return out


def test_nothing_inside_a_manual_scope_is_wrapped():
    text = body_after(manual, A, out(), 2)
    assert text.count("with pl.scope():") == 1 and text.count("with pl.manual_scope():") == 1
    assert text.index("with pl.scope():") < text.index("with pl.manual_scope():")


@pytest.mark.parametrize("kernel", [by_hand, siblings, stray], ids=lambda k: k.__name__)
def test_with_auto_scope_off_the_pass_inserts_nothing(kernel):
    record = kernel.lower(A, out()).passes[-1]
    assert record.name == "materialize_runtime_scopes" and record.before == record.after and not record.rewrites


@pytest.mark.parametrize("kernel", [looped, flat, nested, by_hand], ids=lambda k: k.__name__)
def test_the_pass_is_idempotent_and_turns_auto_scope_off(kernel):
    lowered = kernel.lower(A, out())
    again = materialize_runtime_scopes.run(lowered.program, lambda *_: pytest.fail("a rule fired"))
    assert again == lowered.program and not lowered.program.entry.auto_scope


def test_the_result_of_the_pass_prints_as_python_that_parses_back():
    text = looped.lower(A, out()).as_python()
    assert text.count("with pl.scope():") == 2 and "auto_scope=False" in text
    assert pl.parse(text).ir == looped.lower(A, out()).program
    result = out()
    pl.parse(text)(A, result, config=RunConfig(platform="sim"))
    np.testing.assert_array_equal(result, A * 2)


# -- which decorators take auto_scope ---------------------------------------------------------------------------------------


@pl.jit.inline(auto_scope=False)
def scoped_helper(a, out):
    with pl.scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.mul(a, 2.0)


@pl.jit.host(auto_scope=False)
def host(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.scope():
        scoped_helper(a, out)
    return out


@pl.jit
def placed_for_it(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    scoped_helper(a, out)


def test_jit_host_and_inline_take_auto_scope_off(tmp_path):
    _, samples = records(tmp_path, host, A, out())
    assert [s["depth"] for s in samples] == [0, 1, 1, 0]


def test_a_scope_in_an_inline_function_lands_in_its_caller():
    with pytest.raises(pl.LanguageError, match="the compiler places them.*auto_scope=False") as e:
        placed_for_it(A, out())
    assert e.value.line == line_of(scoped_helper, "pl.scope()") and "in a function called at" in str(e.value)


@pytest.mark.parametrize("decorator", [pl.jit.incore, pl.jit.opaque], ids=["incore", "opaque"])
@pytest.mark.parametrize("value", [False])
def test_kernels_refuse_auto_scope(decorator, value):
    with pytest.raises(pl.LanguageError, match="auto_scope.*outlined into a standalone kernel"):

        @decorator(auto_scope=value)
        def kernel(a: pl.Tensor, out: pl.Out[pl.Tensor]):
            return out


# -- heaps and windows ------------------------------------------------------------------------------------------------------


@pl.jit
def scratch(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(N):
        tmp = pl.create_tensor([TR, TC], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP):
            pl.store(pl.mul(pl.load(a, [i * TR, 0], [TR, TC]), 2.0), [0, 0], tmp)
        with pl.at(level=pl.Level.CORE_GROUP):
            pl.store(pl.load(tmp, [0, 0], [TR, TC]), [i * TR, 0], out)
    return out


@pytest.mark.parametrize("platform", ["sim", "cpu"])
def test_created_tensors_live_in_the_heap_of_their_scopes_ring(tmp_path, platform):
    result = out()
    _, samples = records(tmp_path, scratch, A, result, platform=platform, ring_heap=1024)
    np.testing.assert_array_equal(result, A * 2)
    inner = [s for s in samples if s["ring"] == 1 and s["phase"] == "end"]
    assert [s["heap_end"] for s in inner] == [1024 * (k + 1) for k in range(N)]


@pl.jit(auto_scope=False)
def hoarding(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.scope():
        for i in pl.range(N):
            tmp = pl.create_tensor([TR, TC], dtype=pl.FP32)
            with pl.at(level=pl.Level.CORE_GROUP):
                tmp[:] = pl.load(a, [i * TR, 0], [TR, TC])


def test_a_heap_that_one_scope_fills_is_named_at_the_users_line():
    with pytest.raises(RingCapacityError) as e:
        hoarding(A, out(), config=RunConfig(platform="sim", ring_heap=2048))
    text = str(e.value)
    assert "raise ring_heap" in text and "split the scope" in text
    assert site(hoarding, "with pl.scope()") in text and site(hoarding, "pl.create_tensor") in text


@pl.jit(auto_scope=False)
def escaping(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.scope():
        tmp = pl.create_tensor([ROWS, TC], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP):
            tmp[:] = pl.mul(a, 2.0)
    with pl.scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.add(tmp, 0.0)


def test_using_a_tensor_after_its_scope_names_the_scope():
    with pytest.raises(ReclaimedError, match=site(escaping, "with pl.scope()")):
        escaping(A, out(), config=RunConfig(platform="sim"))


@pl.jit
def returning(a: pl.Tensor):
    tmp = pl.create_tensor([ROWS, TC], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        tmp[:] = pl.mul(a, 2.0)
    return tmp


@pytest.mark.parametrize("platform", ["sim", "cpu"])
def test_a_created_tensor_that_is_returned_is_a_copy(platform):
    result = returning(A, config=RunConfig(platform=platform))
    returning(A + 1, config=RunConfig(platform=platform))
    np.testing.assert_array_equal(result, A * 2)


def test_kernels_and_program_can_be_saved(tmp_path):
    looped(A, out(), config=RunConfig(platform="sim", save_kernels=True, work_dir=tmp_path))
    program = (tmp_path / "program.py").read_text()
    assert pl.parse(program).ir == looped.lower(A, out()).program
    (kernel,) = (tmp_path / "kernels").iterdir()
    assert "np.errstate" in kernel.read_text() and kernel.stem.startswith("looped_")


@pytest.mark.parametrize("platform", ["sim", "cpu"])
def test_sizes_of_the_rings_reach_the_run(tmp_path, platform, monkeypatch):
    monkeypatch.setenv("PTO2_RING_TASK_WINDOW", "4")  # environment variables are not read
    sizes = {"ring_task_window": [8192, 16384, 131072, 524288], "ring_heap": [1 << 20, 0, 1 << 21, 1024]}
    meta, _ = records(tmp_path, looped, A, out(), platform=platform, **sizes)
    assert meta["task_window_max"] == sizes["ring_task_window"]
    assert meta["heap_max"] == [1 << 20, 256 << 20, 1 << 21, 1024] and meta["dep_pool_max"] == [16384] * 4


@pl.jit(auto_scope=False)
def one_scope(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.scope():
        for i in pl.range(ROWS):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[i, :] = pl.mul(a[i, :], 2.0)


@pl.jit(auto_scope=False)
def split(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.scope():
        for i in pl.range(ROWS // 4):
            with pl.scope():
                for j in pl.range(4):
                    with pl.at(level=pl.Level.CORE_GROUP):
                        out[i * 4 + j, :] = pl.mul(a[i * 4 + j, :], 2.0)


@pytest.mark.parametrize("platform", ["sim", "cpu"])
def test_a_scope_with_more_tasks_than_slots_is_split_rather_than_the_window_grown(platform):
    with pytest.raises(
        RingCapacityError, match=r"raise ring_task_window \(runtime_env\.ring_task_window\) or split the scope"
    ) as e:
        one_scope(A, out(), config=RunConfig(platform=platform, ring_task_window=8))
    assert site(one_scope, "with pl.scope()") in str(e.value) and site(one_scope, "with pl.at") in str(e.value)
    result = out()
    split(A, result, config=RunConfig(platform=platform, ring_task_window=8))
    np.testing.assert_array_equal(result, A * 2)
    one_scope(A, result, config=RunConfig(platform=platform, ring_task_window=ROWS))


def test_peaks_are_told_ring_by_ring():
    report = by_hand.run(A, out(), config=RunConfig(platform="sim"))
    assert [ring.task_peak for ring in report.rings] == [N, 1, 0, 0]
