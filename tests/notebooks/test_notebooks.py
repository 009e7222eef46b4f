"""Every notebook runs from its first cell to its last with small parameters, shows what it is there to show, and is quiet."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ren_lab.notebooks import NotebookFailure, run_notebook

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

# Warnings that a cell or the package causes are errors in the kernel; those of other packages are theirs.
STARTUP = r"""
import warnings
warnings.filterwarnings("error", module=r"(ren_lab\b|__main__$)")
"""


@dataclass(frozen=True)
class Expected:
    """What is particular to one notebook: its small parameters, and what its outputs must hold."""

    parameters: dict[str, Any] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()


# By the number that the file name begins with.
EXPECTED: dict[str, Expected] = {}


def _expected(notebook: Path) -> Expected:
    return EXPECTED.get(notebook.stem.partition("_")[0], Expected())


def _cells(notebook: Path) -> list[dict[str, Any]]:
    return json.loads(notebook.read_text("utf-8"))["cells"]


@pytest.fixture
def strict_kernels(tmp_path, monkeypatch):
    """Kernels that ignore the user's own settings and treat warnings as errors."""
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-warnings.py").write_text(STARTUP)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("MPLBACKEND", raising=False)


def test_there_are_notebooks_and_each_number_stands_once():
    numbers = [notebook.stem.partition("_")[0] for notebook in NOTEBOOKS]
    assert "01" in numbers
    assert len(set(numbers)) == len(numbers)
    assert set(EXPECTED) <= set(numbers)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_parameters_are_known_to_the_notebook(notebook):
    """Papermill ignores names that the notebook does not have, and the run would take its defaults."""
    tagged = [cell for cell in _cells(notebook) if "parameters" in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1
    names = set(re.findall(r"^(\w+)\s*(?::[^=]+)?=", "".join(tagged[0]["source"]), flags=re.MULTILINE))
    assert set(_expected(notebook).parameters) <= names
    if notebook.stem.startswith("01"):
        assert "trace_page" in names, "`ren-lab demo` passes it"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs_shows_and_is_quiet(notebook, tmp_path, strict_kernels):
    expected = _expected(notebook)
    try:
        executed = run_notebook(notebook, parameters=expected.parameters, output=tmp_path / notebook.name, folder=FOLDER)
    except NotebookFailure as error:
        failure = str(error)
    else:
        failure = ""
    if failure:
        pytest.fail(failure, pytrace=False)
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    data = [output["data"] for output in outputs if "data" in output]
    kinds = {kind for bundle in data for kind in bundle}
    shown = "\n".join(
        [output["text"] for output in outputs if output.output_type == "stream"]
        + [text for bundle in data for kind, text in bundle.items() if kind.startswith("text/")]
    )
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
    assert kinds & {"image/svg+xml", "image/png", "text/html"}
    assert expected.kinds <= kinds
    assert [text for text in expected.texts if text not in shown] == []
