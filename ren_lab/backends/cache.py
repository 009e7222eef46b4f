"""Compiled libraries in the user's cache directory.

Two kinds of files. A library is named after the SHA-256 of its bytes, `lib-<digest>.so` or the like, so a damaged or exchanged one
does not pass. An entry `<key>.txt` says which library holds the kernel of that key; one library holds many. Files are written
under other names and renamed, so processes that work at once never see half of one; whoever finds anything wrong builds
anew and replaces it.
"""

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

Library = TypeVar("Library")


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


class Cache(Generic[Library]):
    """Libraries by the keys of the kernels in them.

    Args:
        suffix: of a library's file.
        load: makes a library of a file and its content; raises OSError where that is none.
        directory: where they are kept; None for the user's cache directory. Where it can't be written or belongs to someone else, a
            directory of this process alone is used, and removed at its end.
        holds: whether a library has a symbol.
    """

    def __init__(
        self,
        suffix: str,
        load: Callable[[Path, bytes], Library],
        directory: Path | None = None,
        holds: Callable[[Library, str], bool] = hasattr,
    ) -> None:
        wanted = default_directory() if directory is None else directory
        if not private(wanted):
            wanted = Path(tempfile.mkdtemp(prefix="ren-lab-"))
            weakref.finalize(self, shutil.rmtree, wanted, ignore_errors=True)
        self.directory = wanted
        self._suffix, self._from, self._holds = suffix, load, holds
        self._name = re.compile(r"lib-[0-9a-f]{64}" + re.escape(suffix))
        self._loaded: dict[str, Library] = {}
        self._lock = threading.Lock()

    def find(self, key: str, symbol: str) -> Library | None:
        """The library that holds the symbol of a key, or None if there is none that is sound."""
        try:
            name = (self.directory / f"{key}.txt").read_text(encoding="ascii").strip()
            library = self._load(name) if self._name.fullmatch(name) else None
        except (OSError, UnicodeDecodeError):
            return None
        return library if library is not None and self._holds(library, symbol) else None

    def _load(self, name: str) -> Library:
        with self._lock:
            library = self._loaded.get(name)
            if library is None:
                path = self.directory / name
                data = path.read_bytes()
                if self._name_of(data) != name:
                    raise OSError(f"{path} is damaged")
                library = self._loaded[name] = self._from(path, data)
            return library

    def _name_of(self, data: bytes) -> str:
        return f"lib-{hashlib.sha256(data).hexdigest()}{self._suffix}"

    def add(self, built: Path, keys: Sequence[str]) -> Library:
        """Take a library that was just built into the cache; `built` is gone afterwards.

        Raises:
            OSError: It can't be stored, or not loaded.
        """
        name = self._name_of(built.read_bytes())
        os.replace(built, self.directory / name)
        try:
            library = self._load(name)
        except OSError as error:
            raise OSError(f"the library {self.directory / name} was just built and can't be loaded: {error}") from None
        for key in keys:
            with self.temporary(".txt") as entry:
                entry.write_text(name, encoding="ascii")
                os.replace(entry, self.directory / f"{key}.txt")
        return library

    @contextlib.contextmanager
    def temporary(self, suffix: str) -> Iterator[Path]:
        """A path in the cache that nobody else uses, removed at the end of the block if it is still there."""
        handle, name = tempfile.mkstemp(suffix=suffix, prefix="new-", dir=self.directory)
        os.close(handle)
        try:
            yield Path(name)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name)
