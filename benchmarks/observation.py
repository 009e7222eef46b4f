"""What looking costs: compiling a 1,000-operation program with nobody looking, with an idle observer, and being recorded.

The three alternate in one run, 20 times; ratios are medians of the paired ratios. The first pair compares the code as it is with
itself stripped of every report (the emitter is never asked for), so it shows what the mere possibility of looking costs.
Run it as `python benchmarks/observation.py`.
"""

import gc
import statistics
import time
from collections.abc import Callable

from engine_overhead import program

import ren_lab as ren
from ren_lab.engine import clear_schedule_cache, compile_sink, sink_of
from ren_lab.events import emitter, observe
from ren_lab.options import current
from ren_lab.ring import RingSpec

ROUNDS = 20


def _compile_seconds(compiled: Callable[[], object]) -> float:
    clear_schedule_cache()
    gc.collect()
    start = time.process_time()
    compiled()
    return time.process_time() - start


def main() -> None:
    """Print the table."""
    (output,) = program(1000, RingSpec(8, (17, 97)))
    sink = sink_of([output.node])

    def without_reports() -> None:
        compile_sink(sink, current(), None)

    def unobserved() -> None:
        compile_sink(sink, current(), emitter())

    def idle_observer() -> None:
        with observe(lambda record: None):
            compile_sink(sink, current(), emitter())

    def recorded() -> None:
        with ren.trace():
            compile_sink(sink, current(), emitter())

    ways = {"stripped": without_reports, "nobody looks": unobserved, "idle observer": idle_observer, "recorded": recorded}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    for _ in range(ROUNDS):
        for name, way in ways.items():
            seconds[name].append(_compile_seconds(way))
    base = seconds["stripped"]
    print(f"compiling 1,000 operations, {ROUNDS} rounds, CPU time")
    for name, times in seconds.items():
        ratio = statistics.median(t / b for t, b in zip(times, base, strict=True))
        print(f"  {name:14s} {statistics.median(times) * 1e3:7.1f} ms   {ratio:.3f} of stripped")


if __name__ == "__main__":
    main()
