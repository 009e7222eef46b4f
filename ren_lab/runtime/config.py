"""How a run is set up: platform, workers, artifacts and the sizes of the four rings."""

import math
import numbers
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ren_lab.runtime.platforms import PLATFORMS, Platform

RING_COUNT = 4
MAX_SCOPE_DEPTH = 64
TENSOR_MAP_ENTRIES = 65536
HEAP_ALIGNMENT = 1024  # bytes; every allocation in a heap is rounded up to a multiple of this

DEFAULT_TASK_WINDOW = 16384  # slots
DEFAULT_HEAP = 256 << 20  # bytes
DEFAULT_DEP_POOL = 16384  # edges
_INT32_MAX = 2**31 - 1

RingSize = int | Sequence[int | None] | None


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Settings of the runs of one `Worker`; anything out of range is a `ValueError` here, not later.

    Each `ring_*` field is one size for all four rings or a sequence of exactly four, for rings 0 to 3; 0 or None, alone
    or in the sequence, means the default. A scalar is applied four times, and so is what it costs. Environment
    variables are not read.

    Attributes:
        platform: "cpu" (threads), "sim" (virtual time), "a2a3", "a2a3sim", "a5", "a5sim" (the simulator with that
            chip's cores), or "cuda" (executable units of the engine only).
        workers: threads or simulated workers, at least 1; on a chip, the clusters in use. None: all of them (8 on "sim").
        enable_scope_stats: write `dfx_outputs/scope_stats/scope_stats.jsonl` under the work folder.
        save_kernels: write the source of the program and of each kernel under the work folder.
        work_dir: the work folder. None with artifacts asked for: a fresh folder under `ren_runs/` for each run.
        ring_task_window: slots for tasks in flight; powers of two, at least 4 (default 16384).
        ring_heap: bytes for auto-allocated arrays; powers of two, at least 1024 (default 256 MiB).
        ring_dep_pool: dependency edges; from 4 to 2^31 - 1 (default 16384).
        timeout_s: a run in which nothing ends for so many seconds is stalled (virtual seconds on a simulator);
            above 0, infinity to wait for ever.

    >>> RunConfig(ring_task_window=[0, 64, 0, 0]).task_windows
    (16384, 64, 16384, 16384)
    """

    platform: str = "cpu"
    workers: int | None = None
    enable_scope_stats: bool = False
    save_kernels: bool = False
    work_dir: str | os.PathLike[str] | None = None
    ring_task_window: RingSize = None
    ring_heap: RingSize = None
    ring_dep_pool: RingSize = None
    timeout_s: float = 60

    def __post_init__(self) -> None:
        if not isinstance(self.platform, str) or self.platform not in PLATFORMS:
            raise ValueError(f"platform is {self.platform!r}; use one of {', '.join(PLATFORMS)}")
        for field in ("enable_scope_stats", "save_kernels"):
            if not isinstance(getattr(self, field), bool):
                raise ValueError(f"{field} is {getattr(self, field)!r}; use True or False")
        self._set("workers", _checked_workers(self.workers, PLATFORMS[self.platform]))
        if self.work_dir is not None and not isinstance(self.work_dir, str | os.PathLike):
            raise ValueError(f"work_dir is {self.work_dir!r}; use a path, or None for a fresh folder under ren_runs/")
        timeout = self.timeout_s
        if isinstance(timeout, bool) or not isinstance(timeout, numbers.Real) or not timeout > 0:
            raise ValueError(f"timeout_s is {timeout!r}; use a number of seconds above 0 (math.inf to wait for ever)")
        for field in _RING_RULES:
            self._set(field, _normalized(field, getattr(self, field)))

    def _set(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)

    @property
    def task_windows(self) -> tuple[int, ...]:
        """Slots of rings 0 to 3, defaults filled in."""
        return _resolved(self.ring_task_window, DEFAULT_TASK_WINDOW)

    @property
    def heaps(self) -> tuple[int, ...]:
        """Heap bytes of rings 0 to 3, defaults filled in."""
        return _resolved(self.ring_heap, DEFAULT_HEAP)

    @property
    def dep_pools(self) -> tuple[int, ...]:
        """Edge entries of rings 0 to 3, defaults filled in."""
        return _resolved(self.ring_dep_pool, DEFAULT_DEP_POOL)

    @property
    def work_path(self) -> Path | None:
        """`work_dir` as a path."""
        return None if self.work_dir is None else Path(self.work_dir)

    @property
    def wants_artifacts(self) -> bool:
        """Whether a run writes anything."""
        return self.enable_scope_stats or self.save_kernels


def _checked_workers(workers: Any, platform: Platform) -> int | None:
    if workers is None:
        return None
    count = _as_int(workers)
    most = platform.clusters or _INT32_MAX
    if count is None or not 1 <= count <= most:
        rule = f"an int from 1 to {most} (clusters of {platform.name})" if platform.clusters else "an int, at least 1"
        raise ValueError(f"workers is {workers!r}; use {rule}, or None for all of them")
    return count


def _power_of_two(least: int, value: int) -> bool:
    return value >= least and not value & (value - 1)


# field -> (rule in words, what the rule accepts)
_RING_RULES: dict[str, tuple[str, Any]] = {
    "ring_task_window": ("a power of two, at least 4", lambda value: _power_of_two(4, value)),
    "ring_heap": ("a power of two, at least 1024 (bytes)", lambda value: _power_of_two(1024, value)),
    "ring_dep_pool": ("an int from 4 to 2147483647", lambda value: 4 <= value <= _INT32_MAX),
}


def _as_int(value: Any) -> int | None:
    """`value` as an int where it is an integer of any kind but bool, otherwise None."""
    if isinstance(value, bool) or type(value).__name__ in (
        "bool_",
        "bool",
    ):  # numpy's bool has __index__ in old versions
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _normalized(field: str, value: Any) -> int | tuple[int, ...] | None:
    """`value` with plain ints and a tuple; 0 stands for the default inside the tuple."""
    if value is None:
        return None
    if _as_int(value) is not None or isinstance(value, bool | str | bytes | float):
        return _checked_entry(field, value, "all four rings")
    try:
        entries = tuple(value)
    except TypeError:
        return _checked_entry(field, value, "all four rings")
    if len(entries) != RING_COUNT:
        raise ValueError(
            f"{field} has {len(entries)} entries ({value!r}); give one int for all four rings or exactly four, for ring 0 to ring 3"
        )
    return tuple(0 if entry is None else _checked_entry(f"{field}[{k}]", entry, f"ring {k}") for k, entry in enumerate(entries))


def _checked_entry(name: str, value: Any, ring: str) -> int:
    rule, accepts = _RING_RULES[name.partition("[")[0]]
    number = _as_int(value)
    if number is None or (number != 0 and not accepts(number)):
        raise ValueError(f"{name} is {value!r} for {ring}; use {rule}, or 0 or None for the default")
    return number


def _resolved(value: Any, default: int) -> tuple[int, ...]:
    if value is None or isinstance(value, int):
        return (value or default,) * RING_COUNT
    return tuple(entry or default for entry in value)


def timeout_ns(config: RunConfig) -> float:
    """`timeout_s` in nanoseconds; infinity stays infinity."""
    return config.timeout_s * 1e9 if math.isfinite(config.timeout_s) else math.inf
