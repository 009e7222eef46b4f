"""Whether a function is being captured on this thread; what a captured body may not do asks here.

The state is per thread (and per asynchronous task): another thread realizes freely meanwhile.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_capturing: ContextVar[bool] = ContextVar("ren_lab_capturing", default=False)


def capturing() -> bool:
    """Whether the running code is the body of a function that is being captured."""
    return _capturing.get()


@contextlib.contextmanager
def capture_body() -> Iterator[None]:
    """The block is the body of a captured function."""
    token = _capturing.set(True)
    try:
        yield
    finally:
        _capturing.reset(token)
