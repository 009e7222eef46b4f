"""What can go wrong in a run, one class per kind of remedy."""

from typing import Any

from ren_lab.runtime.sites import scope_place
from ren_lab.words import format_count

_FIELDS = {"task_window": "ring_task_window", "heap": "ring_heap", "dep_pool": "ring_dep_pool"}
_UNITS = {"task_window": "slots", "heap": "bytes", "dep_pool": "edges", "tensor_map": "entries"}


class RingCapacityError(RuntimeError):
    """A ring resource (or the tensor map) is too small, and waiting cannot help.

    Raised by the submission that cannot go on, either because it alone asks for more than the whole resource or because
    what fills the resource is held by scopes that are still open. Nothing of that submission has taken effect.

    Attributes:
        resource: "task_window", "heap", "dep_pool" or "tensor_map".
        ring: ring 0 to 3.
        depth: depth of the scope that holds the resource.
        site: that scope's source line, "file:line".
        name: that scope's name, or None.
        line: the source line of the submission, "file:line".
        used: what is in use, in slots, bytes, edges or entries.
        requested: what the submission asks for.
        capacity: the whole resource.
    """

    def __init__(
        self,
        resource: str,
        ring: int,
        depth: int,
        site: str,
        name: str | None,
        used: int,
        requested: int,
        capacity: int,
        line: str,
    ) -> None:
        unit = _UNITS[resource]
        where = "the tensor map" if resource == "tensor_map" else f"{resource} of ring {ring}"
        owner = f" (ring {ring})" if resource == "tensor_map" else ""
        too_large = requested > capacity
        why = f"one submission wants more than all {capacity}" if too_large else "the oldest is held by an open scope"
        super().__init__(
            f"{where}: {used} of {capacity} {unit} in use and {requested} more wanted by {line}{owner}; {why} "
            f"(scope {scope_place(site, name)}, depth {depth}), so waiting cannot help: {_remedy(resource, requested, too_large)}"
        )
        self.resource = resource
        self.ring = ring
        self.depth = depth
        self.site = site
        self.name = name
        self.line = line
        self.used = used
        self.requested = requested
        self.capacity = capacity


def _remedy(resource: str, requested: int, too_large: bool) -> str:
    field = _FIELDS.get(resource)
    if field is None:
        return "give one task fewer arrays" if too_large else "split the scope"
    raise_it = f"raise {field} (runtime_env.{field})"
    if not too_large:
        return f"{raise_it} or split the scope"
    if resource == "heap":  # how much else is in use is of no account, so a smaller scope gains nothing
        least = 1 << (requested - 1).bit_length()
        return f"{raise_it} to at least {least}, or ask for less at once; it does not help to split the scope"
    return f"{raise_it} to at least {requested}, or split the scope of the tasks that it waits for"


class StalledRunError(RuntimeError):
    """No task has ended for `timeout_s`; the message lists the tasks in flight.

    Attributes:
        tasks: a line of text per task in flight, oldest first.
    """

    def __init__(self, timeout_s: float, tasks: tuple[str, ...]) -> None:
        shown = tasks[:20]
        more = f"\n  and {len(tasks) - len(shown)} more" if len(tasks) > len(shown) else ""
        listing = "".join(f"\n  {task}" for task in shown)
        super().__init__(
            f"the run is stalled: nothing has ended for {timeout_s:g} s with {format_count(len(tasks), 'task')} in flight; "
            f"look for a kernel that blocks, or raise timeout_s if kernels may take that long{listing}{more}"
        )
        self.tasks = tasks


class TaskError(RuntimeError):
    """Kernels raised; the first error is `__cause__`, the rest are counted.

    Attributes:
        task_id: the task whose error came first.
        failed: how many tasks raised.
        skipped: how many did not run because a value they consume was never made.
        report: the `RunReport` of the run, once it has ended; None where `orch.wait` raised.
    """

    def __init__(self, task_id: int, name: str, place: str, error: BaseException, failed: int, skipped: int) -> None:
        """`place` says which scope the task was in: "at file:line", or "'name' at file:line"."""
        rest = f"; {failed - 1} more failed" if failed > 1 else ""
        if skipped:
            consume, were = ("consumes", "was") if skipped == 1 else ("consume", "were")
            rest += f"; {skipped} that {consume} what failed {were} skipped"
        super().__init__(f"task {task_id} ({name}, in the scope {place}) raised {type(error).__name__}: {error}{rest}")
        self.task_id = task_id
        self.failed = failed
        self.skipped = skipped
        self.report: Any = None


class ReclaimedError(RuntimeError):
    """An array of a ring heap is used after the scope that owns its bytes has ended."""
