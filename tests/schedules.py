"""What tests ask of a schedule."""

from collections.abc import Iterable

from ren_lab.ir import Op
from ren_lab.schedule import ScheduledKernel


def transformed_limbs(items: Iterable[ScheduledKernel]) -> int:
    """How many rows are transformed, wherever in a kernel."""
    bodies = (item.ast for item in items if item.ast is not None)
    return sum(n.ring.limbs for body in bodies for n in body.toposort() if n.op in (Op.NTT, Op.INTT) and n.ring is not None)
