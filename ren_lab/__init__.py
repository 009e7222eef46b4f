"""ren_lab: a workbench for polynomial programs, how they are compiled, placed in memory and scheduled.

import ren_lab as ren
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec

ring = RingSpec(n=8, moduli=(17, 97))
x, y = Poly([1, 2, 3], ring), Poly([4, 5], ring)
(x * y + 1).explain()      # every pass, the schedule, the kernels and the memory plan
(x * y + 1).tolist()       # and the value
"""

import importlib
import sys
from typing import Any

from ren_lab import events
from ren_lab.backends import DeviceInfo, DeviceUnavailable, devices
from ren_lab.jit import jit
from ren_lab.options import Options, using
from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec, find_primes

__version__ = "0.1.0"


def _explain(nodes: list[Any]) -> Any:
    from ren_lab.lens import explain
    from ren_lab.options import current

    return explain(nodes, current())


def _explain_plan(plan: Any) -> Any:
    from ren_lab.lens import explain_plan

    return explain_plan(plan)


events.install_hook("explain", _explain)
events.install_hook("explain_plan", _explain_plan)


def load_ipython_extension(ip: Any) -> None:
    """`%load_ext ren_lab`: the magics `%%ren_trace` and `%ren_devices`."""
    from ren_lab.widgets.magics import load

    load(ip)


if "IPython" in sys.modules:  # in a notebook, objects show themselves and cells have names
    from ren_lab.lens.display import register_displays
    from ren_lab.lens.theme import place_name

    register_displays()
    events.install_hook("place_name", place_name)

_LAZY = {"trace": "ren_lab.lens", "lens": "ren_lab.lens"}


def __getattr__(name: str) -> Any:
    """What looks at the machines is imported when it is first asked for, so that `import ren_lab` stays light."""
    if name not in _LAZY:
        raise AttributeError(f"module 'ren_lab' has no attribute {name!r}")
    module = importlib.import_module(_LAZY[name])
    return module if name == "lens" else getattr(module, name)


def __dir__() -> list[str]:
    loaded = {name for name in ("language", "runtime", "schemes", "widgets") if f"ren_lab.{name}" in sys.modules}
    return sorted({*__all__, *_LAZY, *loaded})


__all__ = [
    "DeviceInfo", "DeviceUnavailable", "Domain", "Options", "Poly", "RingSpec", "devices", "find_primes", "jit", "trace", "using",
]  # fmt: skip
