"""`explain`: compile without computing, and show what happened."""

import contextlib
from collections.abc import Sequence
from typing import Any

from ren_lab.engine import compile_sink, sink_of
from ren_lab.events import CompileStarted, JitCalled
from ren_lab.ir import Node
from ren_lab.lens.recorder import TraceBuilder
from ren_lab.lens.trace import Trace
from ren_lab.options import Options, current


def explain(outputs: Sequence[Node], options: Options | None = None) -> Trace:
    """Compile outputs as one realization would, computing nothing.

    The schedule cache is used and filled as in a realization, so that a later one runs exactly what is shown here. Whoever
    traces realizations does not hear of this.

    Args:
        outputs: the nodes that are asked for together.
        options: the settings; those in force if None.

    Raises:
        ValueError: there are no outputs.
        Exception: what a pass raises; its attribute `trace` holds what happened up to there.
    """
    if not outputs:
        raise ValueError("there is nothing to explain: no output is given; name at least one")
    builders: list[TraceBuilder] = []

    def listen(record: Any) -> None:
        if isinstance(record, CompileStarted):
            builders.append(TraceBuilder(record))
        else:
            builders[-1](record)

    try:
        compile_sink(sink_of(outputs), current() if options is None else options, listen)
    except Exception as error:
        if builders:
            with contextlib.suppress(AttributeError):  # an exception class may allow no attributes
                setattr(error, "trace", builders[-1].trace(error=error))  # noqa: B010
                error.add_note("`trace` of this exception holds what happened up to here")
        raise
    return builders[-1].trace(running=False)


def explain_plan(plan: Any) -> Trace:
    """The trace of a captured plan (`ren_lab.jit.Plan`): its passes, what each replay runs, and its memory."""
    started = plan.started
    return Trace(
        started.graph, started.options, cached=True, origins=started.origins, program=plan.program,
        jit=JitCalled(plan.function, None, f"a plan that has served {plan.hits} call{'s' * (plan.hits != 1)}"),
    )  # fmt: skip
