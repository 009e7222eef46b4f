"""The ring runtime: tasks with inferred dependencies, whose slots, bytes and edges live in four rings chosen by depth.

`Worker(RunConfig(...)).run(program)` calls `program(orch)`; the program submits tasks with `orch.submit`, opens scopes with
`with orch.scope():` and allocates with `orch.alloc`. The ring of a task is min(scope depth, 3). See docs/runtime.md.
"""

from ren_lab.runtime.config import RunConfig
from ren_lab.runtime.errors import ReclaimedError, RingCapacityError, StalledRunError, TaskError
from ren_lab.runtime.orchestrator import Orchestrator, Output
from ren_lab.runtime.scopes import Scope, ScopeMode
from ren_lab.runtime.simulator import CostModel
from ren_lab.runtime.tasks import TaskState
from ren_lab.runtime.timeline import (
    RingCursors,
    RingTotals,
    RunReport,
    ScopeSpan,
    TaskSpan,
    Timeline,
    WaitSpan,
)
from ren_lab.runtime.worker import Worker

__all__ = [
    "CostModel",
    "Orchestrator",
    "Output",
    "ReclaimedError",
    "RingCapacityError",
    "RingCursors",
    "RingTotals",
    "RunConfig",
    "RunReport",
    "Scope",
    "ScopeMode",
    "ScopeSpan",
    "StalledRunError",
    "TaskError",
    "TaskSpan",
    "TaskState",
    "Timeline",
    "WaitSpan",
    "Worker",
]
