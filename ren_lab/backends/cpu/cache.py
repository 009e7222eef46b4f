"""Compiled C in the user's cache directory: shared libraries, by the kernels in them."""

import ctypes
from pathlib import Path

from ren_lab.backends import cache


def _open(path: Path, data: bytes) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise OSError(f"{error}; is its directory mounted noexec?") from None


class Cache(cache.Cache[ctypes.CDLL]):
    """Shared libraries by the keys of the kernels in them; `directory` as in `ren_lab.backends.cache.Cache`."""

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(".so", _open, directory)
