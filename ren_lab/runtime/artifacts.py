"""The work folder of a run: where it is, and the sources saved in it."""

import inspect
import os
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ren_lab.functions import code_of
from ren_lab.runtime.config import RunConfig
from ren_lab.runtime.tasks import kernel_name

SCOPE_STATS = Path("dfx_outputs") / "scope_stats" / "scope_stats.jsonl"
RUNS = Path("ren_runs")


def work_folder(config: RunConfig) -> Path | None:
    """The folder for the artifacts of one run, made if need be; None where none are asked for."""
    if not config.wants_artifacts:
        return None
    try:
        (config.work_path or RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        error.add_note(f"no artifacts can be written to {config.work_path or RUNS}; give RunConfig a work_dir that can be made")
        raise
    if config.work_path is not None:
        return config.work_path
    number = len(os.listdir(RUNS)) + 1
    while True:
        folder = RUNS / f"run-{number:04d}"
        try:
            folder.mkdir()
            return folder.resolve()
        except FileExistsError:
            number += 1


def source_of(function: Callable[..., Any]) -> str:
    """The source of a function: its `__ren_source__` where a compiler left one, else what its file says.

    Where there is no source (built-in functions, code typed into an interpreter), a comment says what it was.
    """
    given = getattr(function, "__ren_source__", None)
    if isinstance(given, str):
        return given
    code = code_of(function)
    try:
        if code is not None:
            return textwrap.dedent(inspect.getsource(code))
    except (OSError, TypeError, IndentationError):
        pass
    return f"# no source: {function!r}\n"


class KernelSaver:
    """Writes `program.py` and `kernels/NAME.py`, each file whole or not at all."""

    def __init__(self, folder: Path, program: Callable[..., Any]) -> None:
        self._kernels = folder / "kernels"
        self._kernels.mkdir(parents=True, exist_ok=True)
        self._seen: set[Any] = set()
        self._names: set[str] = set()
        write_whole(folder / "program.py", source_of(program))

    def save(self, function: Callable[..., Any]) -> None:
        """Write the kernel's source the first time it is seen; functions made from one piece of source are one kernel."""
        source = getattr(function, "__ren_source__", None)
        identity = source or code_of(function) or type(function)
        if identity in self._seen:
            return
        self._seen.add(identity)
        stem = re.sub(r"\W+", "_", kernel_name(function)).strip("_") or "kernel"
        name = stem
        number = 1
        while name in self._names:
            number += 1
            name = f"{stem}_{number}"
        self._names.add(name)
        write_whole(self._kernels / f"{name}.py", source_of(function))


def write_whole(path: Path, text: str) -> None:
    """Write through a temporary file, so that an interrupt leaves the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text if text.endswith("\n") else text + "\n")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
