"""The constructs of the language besides operations: scopes, placement, loops, tasks. The parser reads them.

None of them does anything when Python calls it.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from ren_lab.language import ops
from ren_lab.language.annotations import CachePolicy, Level
from ren_lab.language.ops import OPS
from ren_lab.runtime import ScopeMode

_F = TypeVar("_F", bound=Callable[..., Any])


def _construct(function: _F) -> _F:
    name = function.__name__

    def outside(*args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"pl.{name} was called by Python; it has a meaning only in the body of a function that the language parses: move "
            f"it into one decorated with @pl.jit"
        )

    outside.__name__ = outside.__qualname__ = name
    outside.__doc__ = function.__doc__
    outside.__module__ = function.__module__
    outside.ren_construct = name  # type: ignore[attr-defined]
    return outside  # type: ignore[return-value]


@_construct
def scope(mode: ScopeMode = ScopeMode.AUTO, name: str | None = None) -> Any:
    """`with pl.scope():` begins a scope one level deeper: its tasks use ring min(depth, 3), the outermost is depth 0.

    AUTO infers dependencies from what tasks touch and needs `auto_scope=False` on the function, since otherwise the
    compiler places AUTO scopes. MANUAL takes `deps=` and nothing else; no scope may stand inside it.
    """


@_construct
def manual_scope(name: str | None = None) -> Any:
    """`with pl.manual_scope():` is `with pl.scope(mode=pl.ScopeMode.MANUAL):`."""


@_construct
def at(level: Level, deps: Any = (), name_hint: str | None = None) -> Any:
    """`with pl.at(level=pl.Level.CORE_GROUP):` makes its body a kernel, and each time it is reached one task.

    `deps` are ids of tasks, or arrays of them, that it must follow besides those that are inferred; `as tid` binds its own.
    """


@_construct
def spmd(blocks: Any, deps: Any = (), name_hint: str | None = None) -> Any:
    """One task of `blocks` blocks that run the same kernel at the same time.

    `for i in pl.spmd(n):` binds the block; in `with pl.spmd(n) as tid:` the body asks `pl.tile.get_block_idx()`.
    """


@_construct
def range(*bounds: Any, init_values: Any = ()) -> Any:
    """`for i in pl.range(stop)`, `(start, stop)` or `(start, stop, step)`; bounds are known now or when it runs.

    With `init_values=(a, b)` the target is `i, (x, y)` and the body ends in `c, d = pl.yield_(new_x, new_y)`: the values go
    into the next turn, and behind the loop c and d hold the last ones (a and b if there was no turn).
    """


@_construct
def parallel(*bounds: Any, init_values: Any = ()) -> Any:
    """Like `pl.range`, with the assertion that turns do not depend on one another. Dependencies are inferred all the same."""


@_construct
def unroll(*bounds: Any) -> Any:
    """Like `pl.range` with bounds that are numbers: the body is copied once per turn. It carries no `init_values`."""


@_construct
def while_(*, init_values: Any) -> Any:
    """`for (x,) in pl.while_(init_values=(0,)):`; the body begins with `pl.cond(…)` and ends in `pl.yield_(…)`."""


@_construct
def cond(condition: Any) -> Any:
    """The condition under which a `pl.while_` loop goes on; the first statement of its body."""


@_construct
def yield_(*values: Any) -> Any:
    """What a loop carries on, or what a branch of an `if` hands out (then both branches do)."""


@_construct
def submit(kernel: Any, *args: Any, deps: Any = (), blocks: Any = None) -> Any:
    """Submit a kernel as a task: `tid = pl.submit(kernel, a, out, deps=[…])` binds the task's id.

    With more targets, the values that the kernel returns come first: `out, tid = pl.submit(self.kernel, a, out)`.
    `blocks=n` runs it as n blocks.
    """


@_construct
def set_cache_policy(tensor: Any, policy: CachePolicy) -> Any:
    """Declare how every read of a tensor in this kernel treats the cache; `cache=` on a load overrides it.

    It stands at the top level of a `pl.at`, `pl.spmd` or InCore body. No platform here has a bypassing path: the declaration
    is carried and warned about, and the code is the same. Declaring BYPASS on a tensor that the kernel writes is an error.
    """


# The operations under the name that says they work on tiles, such as `pl.tile.get_block_idx()`, on tensors, such as
# `pl.tensor.read(t, [0])`, and arrays of scalars and task ids, `pl.array.create(n, pl.TASK_ID)`.
tile = SimpleNamespace(**{name: getattr(ops, name) for name in OPS if name not in ("create_tensor", "region", "array")})
tensor = SimpleNamespace(**{name: getattr(ops, name) for name in ("create_tensor", "dim", "read", "write", "slice", "reshape",
                                                                  "transpose", "assemble")})  # fmt: skip
array = SimpleNamespace(create=ops.array)
"""Arrays of scalars and task ids: `pl.array.create(n, pl.TASK_ID)`."""
