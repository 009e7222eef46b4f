"""Writes `scope_stats.jsonl`, schema 6: one line of metadata, then a sample at each entry to and exit from a scope.

Where a run stops inside scopes, the file ends inside them. What they held then stands in a file beside it, as samples of their
exits with one field more, `stopped_by`: what stopped the run, and of a resource that was too small its figures.

Samples stream to disk through the file's buffer. The first line needs the final counts, so it is written twice: at the
start with `fatal` true and padded with blanks to a fixed width, and again over itself when the run ends. A file is thus
complete or says that it is not at every moment, and is never rewritten.
"""

import json
import os
import warnings
from pathlib import Path
from typing import Any

from ren_lab.runtime.artifacts import write_whole
from ren_lab.runtime.core import Core
from ren_lab.runtime.errors import RingCapacityError
from ren_lab.runtime.scopes import Scope

VERSION = 6
STOPPED = "stopped.jsonl"
_COUNT_DIGITS = 20  # room for `dropped` and `total`


class ScopeStatsWriter:
    """The statistics file of one run. Disk errors never end a run: what cannot be written is counted as dropped."""

    def __init__(self, path: Path, core: Core) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._aside = path.with_name(STOPPED)
        self._aside.unlink(missing_ok=True)  # of an earlier run in this folder
        self._core = core
        self._total = 0
        self._dropped = 0
        self._withheld: list[str] = []
        self._width = len(self._header(True)) + 2 * _COUNT_DIGITS
        write_whole(path, self._header(True).ljust(self._width).decode())  # never there without its first line
        self._file = path.open("r+b", buffering=1 << 16)
        self._file.seek(0, os.SEEK_END)

    def _header(self, fatal: bool) -> bytes:
        rings = self._core.rings
        meta = {
            "version": VERSION,
            "fatal": fatal,
            "dropped": self._dropped,
            "total": self._total,
            "task_window_max": [ring.task_window for ring in rings],
            "heap_max": [ring.heap.capacity for ring in rings],
            "dep_pool_max": [ring.dep_pool for ring in rings],
            "tensormap_max": self._core.map.capacity,
        }
        return json.dumps(meta).encode()

    def sample(self, scope: Scope, phase: str, by_error: bool = False) -> None:
        """Add a sample of the scope's ring.

        An exit by an exception is withheld: if the run goes on it is written before the next sample, and if it does not,
        the file ends inside the scope, which is where the run stopped, and `close` writes it beside the file.
        """
        if not by_error:
            self.go_on()
        ring = scope.ring
        heap = ring.heap
        line = (
            f'{{"site": {json.dumps(scope.site, ensure_ascii=False)}, "phase": "{phase}", "depth": {scope.depth}, '
            f'"ring": {ring.index}, "task_window_start": {ring.task_tail}, "task_window_end": {ring.task_head}, '
            f'"heap_start": {heap.tail}, "heap_end": {heap.head}, "dep_pool_start": {ring.dep_tail}, '
            f'"dep_pool_end": {ring.dep_head}, "tensormap": {self._core.map.used}}}'
        )
        if by_error:
            self._withheld.append(line)
        else:
            self._write(line)

    def go_on(self) -> None:
        """Write what is withheld as exits like any other: the program has survived their exceptions."""
        if self._withheld:
            withheld, self._withheld = self._withheld, []
            for line in withheld:
                self._write(line)

    def _write(self, line: str) -> None:
        self._total += 1
        try:
            self._file.write(f"{line}\n".encode())
        except OSError:
            self._dropped += 1

    def close(self, error: BaseException | None) -> None:
        """Write the final first line, and beside the file the exits by `error`, which stopped the run; a disk error becomes a
        warning."""
        fatal = error is not None
        if error is None:
            self.go_on()
        try:
            if error is not None and self._withheld:
                reason = json.dumps(_reason(error), ensure_ascii=False)
                write_whole(self._aside, "\n".join(f'{line[:-1]}, "stopped_by": {reason}}}' for line in self._withheld))
            with self._file:
                self._file.flush()
                self._file.seek(0)
                if fatal:  # an interrupt may have come between a sample and its count
                    self._total = sum(1 for _ in self._file) - 1 + self._dropped
                    self._file.seek(0)
                self._file.write(self._header(fatal).ljust(self._width))
        except OSError as error:
            warnings.warn(f"the scope statistics in {self.path} are incomplete: {error}", RuntimeWarning, stacklevel=3)


def _reason(error: BaseException) -> dict[str, Any]:
    """What stopped a run: the error's type, and the figures of a resource that was too small, by the names of the file."""
    reason: dict[str, Any] = {"error": type(error).__name__}
    if isinstance(error, RingCapacityError):
        reason |= {
            "resource": error.resource.replace("_map", "map"),
            "ring": error.ring,
            "site": error.line,
            "used": error.used,
            "requested": error.requested,
            "capacity": error.capacity,
        }
    return reason
