"""The tutorial notebooks: where they lie, a working copy of them, and how one is run and shown without a browser.

Needs the extra `lab`; papermill, nbclient and nbconvert are imported by the functions that use them.
"""

import contextlib
import copy
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKING_FOLDER = "ren-lab-notebooks"
_RECORD = ".copied.json"
_TERMINAL_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TRACEBACK_LINES = 12
# The page of JupyterLab's look without the blocks that load scripts from other machines.
_OFFLINE = "{% extends 'lab/index.html.j2' %}" + "".join(
    f"{{% block {name} %}}{{% endblock {name} %}}"
    for name in ("html_head_js", "jupyter_widgets", "html_head_js_mathjax", "html_head_js_mermaidjs")
)


class NotebookFailure(RuntimeError):
    """A notebook did not run to its end; the message names notebook, cell, error and the last lines of the traceback."""


@dataclass(frozen=True, slots=True)
class WorkingCopy:
    """A folder in which a user may edit the notebooks.

    Attributes:
        folder: where the notebooks are.
        written: names of the notebooks that were copied now, new ones and new versions of unedited ones.
        kept: names of edited notebooks of which this version of the package has a newer one; they were left alone.
    """

    folder: Path
    written: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def packaged_folder() -> Path | None:
    """The folder of the notebooks inside an installed package, or None when the package is used from a checkout."""
    folder = Path(__file__).resolve().parent / "_notebooks"
    return folder if folder.is_dir() else None


def source_folder() -> Path:
    """The folder that holds the notebooks as they were written.

    Raises:
        FileNotFoundError: there are none, neither in the package nor beside it.
    """
    folder = packaged_folder() or Path(__file__).resolve().parent.parent / "notebooks"
    if not any(folder.glob("*.ipynb")):
        raise FileNotFoundError(f"no notebooks in {folder}; install ren-lab from a wheel or from a complete checkout")
    return folder


def working_copy(start: Path) -> WorkingCopy:
    """The notebooks to work on: those of the checkout, or copies of the packaged ones in `start`/ren-lab-notebooks.

    A notebook that was edited since it was copied is never overwritten.
    """
    source = source_folder()
    return WorkingCopy(source) if packaged_folder() is None else copy_notebooks(source, start / WORKING_FOLDER)


def copy_notebooks(source: Path, target: Path) -> WorkingCopy:
    """Copy the notebooks of one folder into another that remembers, by digest, what it was given.

    A notebook is written when it is absent, or when the one that lies there is still as it was once copied. Otherwise it
    is the user's and stays.
    """
    target.mkdir(parents=True, exist_ok=True)
    record = target / _RECORD
    copied = _read_record(record)
    written, kept = [], []
    for notebook in sorted(source.glob("*.ipynb")):
        name, content, mine = notebook.name, notebook.read_bytes(), target / notebook.name
        new = hashlib.sha256(content).hexdigest()
        old = hashlib.sha256(mine.read_bytes()).hexdigest() if mine.exists() else None
        if old not in (None, new, copied.get(name)):
            if copied.get(name) != new:
                kept.append(name)
            continue
        if old != new:
            write_whole(mine, content)
            written.append(name)
        copied[name] = new
    write_whole(record, json.dumps(copied, indent=1).encode())
    return WorkingCopy(target, tuple(written), tuple(kept))


def _read_record(record: Path) -> dict[str, str]:
    """Name to digest; nothing if the file is absent or damaged, which makes every notebook the user's."""
    try:
        copied = json.loads(record.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return copied if isinstance(copied, dict) else {}


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is seen complete or not at all."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def run_notebook(
    notebook: Path,
    *,
    parameters: Mapping[str, Any] | None = None,
    output: Path | None = None,
    folder: Path | None = None,
    cell_timeout_s: int = 600,
    progress: bool = False,
) -> Any:
    """Run a notebook from its first cell to its last in a kernel of its own.

    Args:
        notebook: the file to run; it is not changed.
        parameters: values for names of the cell tagged `parameters`.
        output: where the executed notebook is kept, also when it fails; None keeps no file.
        folder: working directory of the kernel; that of this process if None.
        cell_timeout_s: most seconds that one cell may take.
        progress: show a progress bar on stderr.

    Returns:
        The executed notebook, an `nbformat.NotebookNode`.

    Raises:
        NotebookFailure: a cell raised, took too long, or its kernel died.
    """
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    try:
        return papermill.execute_notebook(
            str(notebook),
            str(output) if output else None,
            parameters=dict(parameters or {}),
            cwd=str(folder) if folder else None,
            kernel_name="python3",
            start_timeout=60,
            execution_timeout=cell_timeout_s,
            progress_bar=progress,
            # Without this, newer kernels warn on stderr about their local connection at each start.
            config=Config({"KernelManager": {"transport_encryption": "auto"}}),
        )
    except PapermillExecutionError as error:
        lines = _TERMINAL_COLOURS.sub("", "\n".join(error.traceback)).rstrip().splitlines()[-_TRACEBACK_LINES:]
        failure = f"{notebook.name}, cell {error.exec_count}: {error.ename}: {error.evalue}\n" + "\n".join(lines)
    except CellTimeoutError as error:
        failure = f"{notebook.name}: a cell took more than {cell_timeout_s} s\n{error}"
    except DeadKernelError as error:
        failure = f"{notebook.name}: the kernel died\n{error}"
    raise NotebookFailure(failure)


def html_page(executed: Any, title: str) -> str:
    """An executed notebook as one HTML page that fetches nothing; formulas stand in it as their source."""
    from nbconvert import HTMLExporter

    executed = copy.deepcopy(executed)
    executed.metadata.pop("widgets", None)
    for cell in executed.cells:  # a page has no kernel for a widget to talk to; its static form says the same
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    page, _ = HTMLExporter(raw_template=_OFFLINE).from_notebook_node(executed, resources={"metadata": {"name": title}})
    return page
