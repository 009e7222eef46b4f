"""Compiled libraries in the user's cache directory.

Two kinds of files. A library is named after the SHA-256 of its bytes, `lib-<digest>.so`, so a damaged or exchanged one does not
pass. An entry `<key>.txt` says which library holds the kernel of that key; one library holds many. Files are written under
other names and renamed, so processes that work at once never see half of one; whoever finds anything wrong builds anew and
replaces it.
"""

import contextlib
import ctypes
import hashlib
import os
import re
import shutil
import stat
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

_NAME = re.compile(r"lib-[0-9a-f]{64}\.so")


def default_directory() -> Path:
    """The user's cache directory for this program."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("ren-lab", appauthor=False), "kernels")


def private(directory: Path) -> bool:
    """Make a directory that only its owner, the user, can enter; False where that can't be."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not hasattr(os, "getuid"):
            return os.access(directory, os.W_OK)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return False
        if found.st_mode & 0o077:
            directory.chmod(0o700)
        return os.access(directory, os.W_OK | os.X_OK)
    except OSError:
        return False


class Cache:
    """Libraries by the keys of the kernels in them.

    Args:
        directory: where they are kept; None for the user's cache directory. Where it can't be written or belongs to someone else, a
            directory of this process alone is used, and removed at its end.
    """

    def __init__(self, directory: Path | None = None) -> None:
        wanted = default_directory() if directory is None else directory
        if not private(wanted):
            wanted = Path(tempfile.mkdtemp(prefix="ren-lab-"))
            weakref.finalize(self, shutil.rmtree, wanted, ignore_errors=True)
        self.directory = wanted
        self._loaded: dict[str, ctypes.CDLL] = {}
        self._lock = threading.Lock()

    def find(self, key: str, symbol: str) -> ctypes.CDLL | None:
        """The library that holds the symbol of a key, or None if there is none that is sound."""
        try:
            name = (self.directory / f"{key}.txt").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        library = self._load(name) if _NAME.fullmatch(name) else None
        return library if library is not None and hasattr(library, symbol) else None

    def _load(self, name: str) -> ctypes.CDLL | None:
        with self._lock:
            library = self._loaded.get(name)
            if library is None:
                path = self.directory / name
                try:
                    if hashlib.sha256(path.read_bytes()).hexdigest() != name[4:-3]:
                        return None
                    library = self._loaded[name] = ctypes.CDLL(str(path))
                except OSError:
                    return None
            return library

    def add(self, built: Path, keys: Sequence[str]) -> ctypes.CDLL:
        """Take a library that was just built into the cache; `built` is gone afterwards.

        Raises:
            OSError: It can't be stored, or not loaded.
        """
        name = f"lib-{hashlib.sha256(built.read_bytes()).hexdigest()}.so"
        os.replace(built, self.directory / name)
        library = self._load(name)
        if library is None:
            raise OSError(
                f"the library {self.directory / name} was just built and can't be loaded; is its directory mounted noexec?"
            )
        for key in keys:
            with self.temporary(".txt") as entry:
                entry.write_text(name, encoding="ascii")
                os.replace(entry, self.directory / f"{key}.txt")
        return library

    @contextlib.contextmanager
    def temporary(self, suffix: str):  # type: ignore[no-untyped-def]
        """A path in the cache that nobody else uses, removed at the end of the block if it is still there."""
        handle, name = tempfile.mkstemp(suffix=suffix, prefix="new-", dir=self.directory)
        os.close(handle)
        try:
            yield Path(name)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name)
