"""The notebook widgets: their Python classes, and beside them the scripts and styles of their front ends.

The folder `widgets/` of the source tree is the package `ren_lab.widgets`; it is imported by that name and no other. The classes
need the extra `lab`, and are imported when they are first asked for.

    from ren_lab.widgets import PassStepper
    PassStepper((x * y).explain())
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .stepper import PassStepper, RingPlayer, ScheduleStepper, Stepper

__all__ = ["PassStepper", "RingPlayer", "ScheduleStepper", "Stepper"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ren_lab.widgets' has no attribute {name!r}")
    try:
        from . import stepper
    except ImportError as error:
        raise ImportError(f"the widgets need the extra `lab`: pip install 'ren-lab[lab]' ({error})") from error
    return getattr(stepper, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
