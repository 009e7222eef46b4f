"""How many tasks per second the ring runtime submits and retires, with kernels that do nothing.

    python benchmarks/runtime_throughput.py                  every scenario at full size, on threads and on the simulator
    python benchmarks/runtime_throughput.py --scale 16       a sixteenth of the tasks
    python benchmarks/runtime_throughput.py --profile loops  where the time of one scenario goes

Each line is the median of the repetitions. `memory` is how much more the process holds at the end of a run than a tenth of
the way in: a runtime that reclaims keeps it near zero however many tasks go through.
"""

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ren_lab.runtime import RunConfig, Worker


def nothing(*arrays: Any) -> None:
    """The empty kernel."""


def resident_mib() -> float:
    """Resident memory of the process in MiB, 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096 / 2**20
    except OSError:
        return 0.0


class Meter:
    """Memory a tenth of the way in; the programs call it between scopes."""

    def __init__(self) -> None:
        self.early = 0.0

    def __call__(self, done: int, total: int) -> None:
        """Note the memory in use once a tenth is done."""
        if not self.early and done * 10 >= total:
            self.early = resident_mib()


Program = Callable[[Any], None]


def loops(scale: int, meter: Meter) -> Program:
    """256 x 4 scopes of 128 x 4 tasks and one more: 525,312 tasks, each reads one array and writes a row of another."""
    scopes, per_scope = max(1, 1024 // scale), 512
    x = np.zeros(16, np.float32)
    rows = list(np.zeros((per_scope, 16), np.float32))
    total = np.zeros(1, np.float32)

    def program(orch: Any) -> None:
        submit = orch.submit
        for k in range(scopes):
            meter(k, scopes)
            with orch.scope():
                for row in rows:
                    submit(nothing, [x], [row])
                submit(nothing, [x], (), [total])

    return program


def one_scope(scale: int, meter: Meter) -> Program:
    """One scope of 70,000 tasks that write one region."""
    x = np.zeros(16, np.float32)

    def program(orch: Any) -> None:
        meter(1, 1)
        with orch.scope():
            for _ in range(70_000 // scale):
                orch.submit(nothing, (), [x])

    return program


def readers(scale: int, meter: Meter) -> Program:
    """20,000 readers of one region in scopes of 1,000, and then a writer."""
    x = np.zeros(16, np.float32)

    def program(orch: Any) -> None:
        scopes = max(1, 20 // scale)
        for k in range(scopes):
            meter(k, scopes)
            with orch.scope():
                for _ in range(1000):
                    orch.submit(nothing, [x])
        orch.submit(nothing, (), [x])

    return program


def tiles(scale: int, meter: Meter) -> Program:
    """A blocked update of a 4096 x 4096 matrix, 64 x 64 tiles: each reads two tiles and updates a third."""
    matrix = np.zeros((4096, 4096), np.float32)
    blocks = [[matrix[r : r + 64, c : c + 64] for c in range(0, 4096, 64)] for r in range(0, 4096, 64)]
    rounds = max(1, 16 // scale)

    def program(orch: Any) -> None:
        for k in range(rounds):
            meter(k, rounds)
            for row in range(1, 64):
                with orch.scope():
                    for column in range(1, 64):
                        reads = [blocks[row][0], blocks[0][column]]
                        orch.submit(nothing, reads, (), [blocks[row][column]])

    return program


def scratch(scale: int, meter: Meter) -> Program:
    """Scopes that allocate 4 KiB, fill it and read it: the heap turns over."""
    scopes = max(1, 20_000 // scale)
    x = np.zeros(16, np.float32)

    def program(orch: Any) -> None:
        for k in range(scopes):
            meter(k, scopes)
            with orch.scope():
                buffer = orch.alloc(1024, np.float32)
                orch.submit(nothing, [x], [buffer])
                orch.submit(nothing, [buffer])

    return program


@dataclass(frozen=True)
class Scenario:
    """A program and the sizes it needs."""

    make: Callable[[int, Meter], Program]
    fields: dict[str, int]


SCENARIOS = {
    "loops": Scenario(loops, {}),
    "one_scope": Scenario(one_scope, {"ring_task_window": 131072, "ring_dep_pool": 131072}),
    "readers": Scenario(readers, {}),
    "tiles": Scenario(tiles, {}),
    "scratch": Scenario(scratch, {}),
}


def measure(name: str, platform: str, scale: int, repeats: int) -> None:
    """Print one line for a scenario on a platform."""
    scenario = SCENARIOS[name]
    rates, cpu, growth, waits, tasks = [], [], [], 0, 0
    for _ in range(repeats):
        meter = Meter()
        program = scenario.make(scale, meter)
        with Worker(RunConfig(platform=platform, **scenario.fields)) as worker:
            start, cpu_start = time.perf_counter(), time.process_time()
            report = worker.run(program)
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        assert report.completed == report.tasks
        growth.append(resident_mib() - meter.early)
        tasks = report.tasks
        waits = sum(report.waits.values())
        rates.append(tasks / seconds)
        cpu.append(1e6 * cpu_seconds / tasks)
    rate = statistics.median(rates)
    print(
        f"{name:10} {platform:5} {tasks:8,} tasks {rate:10,.0f} tasks/s {1e6 / rate:7.1f} µs/task "
        f"({statistics.median(cpu):5.1f} of processor time)  "
        f"memory {statistics.median(growth):+6.1f} MiB  {waits} waits",
        flush=True,
    )


def profile(name: str, platform: str, scale: int) -> None:
    """Print where the submitting thread's time goes."""
    profiler = cProfile.Profile()
    with Worker(RunConfig(platform=platform, **SCENARIOS[name].fields)) as worker:
        program = SCENARIOS[name].make(scale, Meter())
        profiler.runcall(worker.run, program)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(14)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=1, help="divide the number of tasks by this")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--platform", choices=["cpu", "sim"], nargs="*", default=["cpu", "sim"])
    parser.add_argument("--only", choices=SCENARIOS, nargs="*", default=list(SCENARIOS))
    parser.add_argument("--profile", choices=SCENARIOS)
    arguments = parser.parse_args()
    for platform in arguments.platform:
        if arguments.profile:
            profile(arguments.profile, platform, arguments.scale)
            continue
        for name in arguments.only:
            measure(name, platform, arguments.scale, arguments.repeats)


if __name__ == "__main__":
    main()
