"""Scopes: they choose the ring of a task, and hold what was made in them until they end."""

import enum
from types import CodeType
from typing import TYPE_CHECKING, Any

from ren_lab.runtime.rings import Ring
from ren_lab.runtime.sites import format_site
from ren_lab.runtime.tasks import Task

if TYPE_CHECKING:
    from ren_lab.runtime.orchestrator import Orchestrator


class ScopeMode(enum.Enum):
    """AUTO infers dependencies from what tasks read and write; MANUAL takes `deps=` and nothing else."""

    AUTO = "auto"
    MANUAL = "manual"


class Scope:
    """What `orch.scope()` returns; enter it with `with`.

    Attributes:
        depth: nesting depth, 0 for the outermost.
        mode: AUTO or MANUAL.
        name: the name given, or None.
        open: True from entry to exit.
    """

    __slots__ = ("_line", "_orch", "_where", "depth", "has_blocks", "mode", "name", "open", "ring", "tasks")

    def __init__(
        self,
        orch: "Orchestrator",
        depth: int,
        ring: Ring,
        mode: ScopeMode,
        name: str | None,
        where: CodeType | str,
        line: int,
    ) -> None:
        self._orch = orch
        self._where = where
        self._line = line
        self.depth = depth
        self.ring = ring
        self.mode = mode
        self.name = name
        self.open = False
        self.tasks: list[Task] = []
        self.has_blocks = False  # whether it owns allocations of the heap that no task owns

    @property
    def site(self) -> str:
        """Its source line, "basename:line"."""
        return format_site(self._where, self._line)

    def __enter__(self) -> "Scope":
        self._orch._enter(self)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._orch._leave(self, error is not None)

    def __repr__(self) -> str:
        state = "open" if self.open else "closed"
        return f"<scope {self.name or self.site}: depth {self.depth}, ring {self.ring.index}, {self.mode.name}, {state}>"
