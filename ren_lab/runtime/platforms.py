"""Where tasks run: real threads, or the simulator dressed as one of two chips.

`a2a3` and `a5` are models, not drivers: the simulator with the published number of cores of one device. A cluster is one
cube core (AIC, matrix work) and two vector cores (AIV).
"""

import os
from dataclasses import dataclass

SIMULATED_WORKERS = 8  # the plain simulator's default; fixed, so that a run does not depend on the machine it is run on


@dataclass(frozen=True, slots=True)
class Lane:
    """One place where a task can run. `kind` is "any", "cube" or "vector"."""

    name: str
    kind: str = "any"


@dataclass(frozen=True, slots=True)
class Platform:
    """A name that `RunConfig.platform` takes.

    Attributes:
        name: the name.
        executor: "threads", "simulator", or "streams" (executable units of the engine only).
        clusters: clusters of the chip that is modelled, 0 where no chip is.
    """

    name: str
    executor: str
    clusters: int = 0

    def lanes(self, workers: int | None) -> tuple[Lane, ...]:
        """The lanes of a run: `workers` threads or simulated workers; of a chip, `workers` counts clusters."""
        if self.clusters:
            used = self.clusters if workers is None else workers
            cube = tuple(Lane(f"AIC {k}", "cube") for k in range(used))
            return cube + tuple(Lane(f"AIV {k}", "vector") for k in range(2 * used))
        if workers is None:
            workers = SIMULATED_WORKERS if self.executor == "simulator" else usable_cpus()
        return tuple(Lane(f"worker {k}") for k in range(workers))


def usable_cpus() -> int:
    """How many processors this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


PLATFORMS = {
    platform.name: platform
    for platform in (
        Platform("cpu", "threads"),
        Platform("sim", "simulator"),
        Platform("a2a3", "simulator", clusters=24),
        Platform("a2a3sim", "simulator", clusters=24),
        Platform("a5", "simulator", clusters=36),
        Platform("a5sim", "simulator", clusters=36),
        Platform("cuda", "streams"),
    )
}
