"""Kernels that raise or block, programs that break off, and workers that are closed."""

import functools
import os
import signal
import threading
import time

import numpy as np
import pytest

from ren_lab.runtime import RingCapacityError, RunConfig, StalledRunError, TaskError, Worker

platforms = pytest.mark.parametrize("platform", ["sim", "cpu"])


def nothing(*arrays):
    pass


def copy(source, target):
    target[:] = source


def bad(*arrays):
    raise ArithmeticError("no such number")


def go(program, platform="sim", **fields):
    with Worker(RunConfig(platform=platform, ring_heap=1 << 16, **fields)) as worker:
        return worker.run(program)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 10
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


@platforms
def test_the_first_error_is_raised_once_and_the_rest_are_counted(platform):
    x, y, z = np.zeros(4), np.zeros(4), np.zeros(4)

    def program(orch):
        orch.submit(bad, outputs=[x])
        orch.submit(bad, outputs=[y])
        orch.submit(copy, [x], [z])
        orch.submit(copy, [y], [z])
        orch.submit(copy, [z], [x])

    with pytest.raises(TaskError, match=r"ArithmeticError: no such number; 1 more failed; 3 that consume") as caught:
        go(program, platform, workers=1)
    error = caught.value
    assert isinstance(error.__cause__, ArithmeticError)
    assert (error.task_id, error.failed, error.skipped) == (0, 2, 3)
    assert (error.report.tasks, error.report.failed, error.report.skipped, error.report.completed) == (5, 2, 3, 0)
    assert "bad, in the scope at test_runtime_failures.py:" in str(error)


@platforms
def test_only_consumers_are_poisoned(platform):
    x, made, other, after = np.full(4, 5.0), np.zeros(4), np.zeros(4), np.zeros(4)

    def program(orch):
        orch.submit(bad, inputs=[x], outputs=[made])
        orch.submit(copy, [x], [other])  # independent
        orch.submit(lambda v: v.fill(6), outputs=[x])  # comes after the failed reader, and needs nothing from it
        orch.submit(copy, [made], [after])  # consumes

    with pytest.raises(TaskError) as caught:
        go(program, platform)
    assert (other == 5).all() and (x == 6).all() and not after.any() and caught.value.skipped == 1


@platforms
def test_a_fresh_write_heals_and_an_update_or_a_partial_write_does_not(platform):
    x, y, z, w = (np.zeros(4) for _ in range(4))

    def program(orch):
        orch.submit(bad, outputs=[x])
        orch.submit(lambda v: v.fill(1), outputs=[x])
        orch.submit(copy, [x], [y])
        orch.submit(bad, outputs=[z])
        orch.submit(lambda v: v.fill(1), outputs=[z[:2]])
        orch.submit(copy, [z[:2]], [w[:2]])  # the failed task's region is known as a whole
        orch.submit(lambda v: v.fill(2), inouts=[z])

    with pytest.raises(TaskError) as caught:
        go(program, platform)
    assert (y == 1).all() and not w.any() and z.tolist() == [1, 1, 0, 0] and caught.value.skipped == 2


@platforms
def test_explicit_dependencies_poison_too_and_order_alone_does_not(platform):
    ran = []

    def program(orch):
        first = orch.submit(bad)
        second = orch.submit(lambda: ran.append("second"), deps=[first])
        orch.submit(lambda: ran.append("third"), deps=[second])
        orch.submit(lambda: ran.append("fourth"))

    with pytest.raises(TaskError):
        go(program, platform)
    assert ran == ["fourth"]


@platforms
@pytest.mark.parametrize("by", ["region", "deps"])
def test_poison_outlives_the_failed_task(platform, by):
    """Its scope has ended and its slot is reclaimed; what it should have made is missing all the same."""
    x, y = np.zeros(4), np.zeros(4)

    def program(orch):
        with orch.scope():
            task = orch.submit(bad, outputs=[x])
        for _ in range(20):
            with orch.scope():
                orch.submit(nothing)
        orch.submit(
            lambda a, b: b.fill(1), inputs=[x] if by == "region" else [np.zeros(4)], outputs=[y], deps=[task][: by == "deps"]
        )

    with pytest.raises(TaskError) as caught:
        go(program, platform, ring_task_window=4)
    assert not y.any() and caught.value.skipped == 1


@platforms
def test_bytes_that_are_given_out_again_are_not_poisoned(platform):
    out, places = np.zeros(4, np.float32), []

    def program(orch):
        for kernel in (bad, lambda v: v.fill(3)):
            with orch.scope():
                scratch = orch.alloc(256)
                places.append(scratch.__array_interface__["data"])
                orch.submit(kernel, outputs=[scratch[:4]])
                orch.submit(lambda v, o: np.copyto(o, v[:4]), inputs=[scratch], outputs=[out])

    with Worker(RunConfig(platform=platform, ring_heap=1024)) as worker, pytest.raises(TaskError) as caught:
        worker.run(program)
    assert places[0] == places[1] and (out == 3).all() and caught.value.skipped == 1


def test_no_wake_up_is_lost_between_the_last_look_and_the_sleep(monkeypatch):
    """The submitting thread dawdles with the lock in its hand; a worker that is done then must not go away."""

    notified = []

    class Dawdling(threading.Condition):
        def wait(self, timeout=None):
            time.sleep(0.05)
            notified.append(super().wait(timeout))

    monkeypatch.setattr("ren_lab.runtime.threads.threading.Condition", Dawdling)

    def program(orch):
        orch.submit(lambda: time.sleep(0.02))

    assert go(program, "cpu", timeout_s=2).completed == 1
    assert notified and all(notified)


@platforms
def test_a_long_chain_of_skipped_tasks_is_no_recursion(platform):
    x = np.zeros(4)

    def program(orch):
        gate = orch.submit(bad, outputs=[x], cost=10**9)
        for _ in range(3000):
            orch.submit(nothing, inouts=[x])
        assert gate == 0

    with pytest.raises(TaskError) as caught:
        go(program, platform)
    assert caught.value.skipped == 3000


@platforms
def test_waiting_for_what_failed_raises_in_the_program(platform):
    x = np.zeros(4)

    def program(orch):
        task = orch.submit(bad, outputs=[x])
        for what in (task, x):
            with pytest.raises(TaskError, match="no such number"):
                orch.wait(what)

    with pytest.raises(TaskError):
        go(program, platform)


@platforms
def test_a_block_that_fails_fails_the_task(platform):
    x, y = np.zeros(4), np.zeros(4)

    def kernel(v, block):
        if block == 2:
            raise ValueError("block two")
        v[block] = 1

    def program(orch):
        orch.submit(kernel, inouts=[x], blocks=4)
        orch.submit(copy, [x], [y])

    with pytest.raises(TaskError, match="block two"):
        go(program, platform)
    assert x.tolist() == [1, 1, 0, 1] and not y.any()


@platforms
def test_the_programs_own_exception_is_passed_on_with_what_else_went_wrong(platform, tmp_path):
    def program(orch):
        orch.submit(bad)
        with pytest.raises(TaskError):
            orch.wait(0)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        go(program, platform, enable_scope_stats=True, work_dir=tmp_path)
    notes = "\n".join(caught.value.__notes__)
    assert "no such number" in notes and str(tmp_path) in notes


@platforms
def test_a_program_that_breaks_off_drops_what_has_not_started(platform):
    ran = []
    started = threading.Event()

    def slow(x):
        started.set()
        time.sleep(0.05)
        ran.append(1)

    def program(orch):
        x = np.zeros(4)
        for _ in range(50):
            orch.submit(slow, inouts=[x], cost=10**6)
        if platform == "cpu":
            started.wait(10)
        raise KeyError("enough")

    with pytest.raises(KeyError):
        go(program, platform, workers=2)
    assert len(ran) <= 2


def test_an_interrupt_ends_the_run_the_threads_and_the_file(tmp_path):
    x = np.zeros(4)

    def program(orch):
        with orch.scope():
            for _ in range(1000):
                orch.submit(lambda v: time.sleep(0.02), inouts=[x])
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            orch.wait(999)

    with pytest.raises(KeyboardInterrupt):
        go(program, "cpu", enable_scope_stats=True, work_dir=tmp_path)
    lines = (tmp_path / "dfx_outputs/scope_stats/scope_stats.jsonl").read_text().splitlines()
    assert '"fatal": true' in lines[0] and '"total": 2' in lines[0] and len(lines) == 3
    beside = (tmp_path / "dfx_outputs/scope_stats/stopped.jsonl").read_text().splitlines()
    assert len(beside) == 2 and all(line.endswith('"stopped_by": {"error": "KeyboardInterrupt"}}') for line in beside)


def test_an_interrupt_inside_a_simulated_kernel_is_no_task_error():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(lambda orch: orch.submit(interrupted))


@pytest.mark.parametrize("where", ["submission", "end", "wait"])
def test_a_stalled_run_lists_the_tasks_in_flight(where):
    gate = threading.Event()
    x = np.zeros(4)

    def stuck(v):
        gate.wait(30)

    def program(orch):
        with orch.scope(site="user.py:9"):
            orch.submit(stuck, outputs=[x])
            orch.submit(nothing, inputs=[x], name="reader")
        if where == "wait":
            orch.wait(x)
        for _ in range(4 * (where == "submission")):
            with orch.scope():
                orch.submit(nothing)

    with pytest.raises(StalledRunError, match="stalled.*0.2 s") as caught:
        go(program, "cpu", timeout_s=0.2, ring_task_window=4)
    gate.set()
    assert not isinstance(caught.value, RingCapacityError)
    text = str(caught.value)
    assert "task 0 (stuck): running, ring 1, scope at user.py:9" in text
    assert "task 1 (reader): pending, ring 1" in text
    assert len(caught.value.tasks) >= 2


def test_progress_puts_the_timeout_off():
    x = np.zeros(4)

    def program(orch):
        for _ in range(8):
            orch.submit(lambda v: time.sleep(0.15), inouts=[x])

    assert go(program, "cpu", timeout_s=1.0).completed == 8


def test_the_simulators_timeout_is_virtual():
    def program(orch):
        orch.submit(nothing, cost=int(3e9), name="long")

    with pytest.raises(StalledRunError, match="long"):
        go(program, timeout_s=2)
    assert go(program, timeout_s=4).seconds > 3


@platforms
def test_a_worker_can_be_used_again_after_a_failure_and_not_after_it_is_closed(platform):
    y = np.zeros(4)
    with Worker(RunConfig(platform=platform, ring_heap=1024, ring_task_window=4)) as worker:
        with pytest.raises(TaskError):
            worker.run(lambda orch: orch.submit(bad))
        with pytest.raises(RingCapacityError):
            worker.run(lambda orch: [orch.submit(nothing) for _ in range(5)])
        worker.run(lambda orch: orch.submit(lambda v: v.fill(1), outputs=[y]))
    assert y.all()
    with pytest.raises(RuntimeError, match="closed"):
        worker.run(lambda orch: None)
    with pytest.raises(RuntimeError, match="closed"), worker:
        pass
    worker.close()


@platforms
def test_a_kernel_cannot_submit(platform):
    def program(orch):
        orch.submit(lambda: orch.submit(nothing))

    with pytest.raises(TaskError, match="kernel"):
        go(program, platform)


@platforms
def test_the_orchestrator_dies_with_its_run(platform):
    orch = go(lambda orch: orch, platform).result
    for action in (lambda: orch.submit(nothing), orch.scope, lambda: orch.alloc(3), orch.usage, lambda: orch.state(0)):
        with pytest.raises(RuntimeError, match="run has ended"):
            action()


def test_a_run_inside_a_run_needs_a_worker_of_its_own():
    with Worker(RunConfig(platform="sim", ring_heap=1024)) as worker:

        def program(orch):
            with pytest.raises(RuntimeError, match="another Worker"):
                worker.run(lambda inner: None)
            return go(lambda inner: inner.submit(nothing)).completed

        assert worker.run(program).result == 1


def test_what_is_no_program_or_config_is_refused():
    with Worker() as worker, pytest.raises(TypeError, match="program"):
        worker.run(None)
    with pytest.raises(TypeError, match="RunConfig"):
        Worker({"platform": "cpu"})


async def later(*arrays):
    pass


def pieces(*arrays):
    yield


class Later:
    async def __call__(self, *arrays):
        pass


@pytest.mark.parametrize(
    "fn, kind", [(later, "coroutine"), (pieces, "generator"), (Later(), "coroutine")], ids=["async", "yield", "object"]
)
def test_what_would_not_run_when_it_is_called_is_refused(fn, kind):
    for made in (fn, functools.partial(fn, np.zeros(1))):
        with pytest.raises(TypeError, match=f"the program is a {kind} function.*give a plain function that submits"):
            go(made)
        with pytest.raises(TypeError, match=f"the kernel is a {kind} function.*give a plain function of the arrays"):
            go(lambda orch, made=made: orch.submit(made))


def test_a_scope_is_left_once_and_before_those_around_it():
    seen = []

    def program(orch):
        with orch.scope(name="outer") as outer:
            inner = orch.scope(name="inner")
            inner.__enter__()
            with pytest.raises(RuntimeError, match="not the innermost open one; leave scopes in reverse order"):
                outer.__exit__(None, None, None)
            inner.__exit__(None, None, None)
            with pytest.raises(RuntimeError, match="not the innermost open one"):
                inner.__exit__(None, None, None)
            seen.append(orch.submit(nothing))

    assert go(program).completed == 1 and seen


def test_a_work_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError) as caught:
        go(lambda orch: None, work_dir=tmp_path / "file" / "run", enable_scope_stats=True)
    assert "work_dir that can be made" in "".join(caught.value.__notes__)


def test_a_scope_is_entered_where_it_is_made():
    def program(orch):
        early = orch.scope()
        with orch.scope(), pytest.raises(RuntimeError, match="made elsewhere"), early:
            pass
        with early:
            with pytest.raises(RuntimeError, match="made elsewhere"), early:
                pass

    go(program)


def test_a_kernel_that_blocks_does_not_hold_up_an_error_for_ever():
    release = threading.Event()

    def program(orch):
        orch.submit(release.wait)
        raise LookupError("in the program")

    done = []

    def run():
        with pytest.raises(LookupError):
            Worker(RunConfig(platform="cpu", workers=1, timeout_s=0.3)).run(program)
        done.append(True)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    release.set()
    assert done
