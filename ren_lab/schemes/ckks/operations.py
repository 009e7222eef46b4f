"""The user's lines that homomorphic operations name when they tell of themselves."""

import sys

_PACKAGE = __file__.rsplit("schemes", 1)[0]


def user_line() -> tuple[str, int]:
    """The nearest file and line outside of this package on the calling stack."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
