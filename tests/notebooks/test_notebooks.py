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
EXPECTED: dict[str, Expected] = {
    "00": Expected(parameters={"n": 256}, kinds=frozenset({"text/html", "application/vnd.jupyter.widget-view+json"})),
    "01": Expected(
        parameters={"log_n": 6},
        kinds=frozenset({"text/html"}),
        texts=(
            "schedule of 8 items: 6 kernels, 2 copies",
            "Pass 1, simplify: 7 nodes removed",
            "rotate(a, k) -> automorphism(a, 5^k mod 2n)",
            "Pass 7, build_becomes_map: nothing to do.",
            "<AUTOMORPHISM n=2^6 × 4 limbs NTT>",
            "fetched from the schedule cache",
            "all coefficients agree: True",
            "26 nodes before, 5 now",
            "'view_2x64'",
            "u * v.rotate(1) + 1  from the cache",
            "u * v.rotate(2) + 1  compiled",
        ),
    ),
    "02": Expected(
        parameters={"log_n": 6, "limbs": 5, "degree": 4},
        kinds=frozenset({"text/html", "image/png"}),
        texts=("already allocated", "final output", "pinned", "source of a copy", "view", "tlsf, backwards", "python:1"),
    ),
    "03": Expected(
        parameters={"log_n": 6, "rounds": 3, "timed_log_n": [4, 6]},
        kinds=frozenset({"text/html", "image/png"}),
        texts=(
            "replay and function agree: True",
            "domain of argument 0 is NTT, not COEFF",
            "argument 0.weight is 3, not 2",
            "non-Poly scalar arg changed",
            "Random number generation during jit capture is not supported",
            "five rounds agree: True",
            "reuse_outputs=False 5",
            "reuse_outputs=True  8",
            "each result dropped: 1\n",
            "each result kept:    3\n",
        ),
    ),
    "04": Expected(
        parameters={"steps": 2, "seed": 3},
        kinds=frozenset({"text/html", "image/png"}),
        texts=(
            "<Plaintext: 512 slots, level 6, scale 2^29.00>",
            "{'MUL': 10, 'ADD': 5, 'TO_RING': 6, 'RESCALE': 2, 'NTT': 0, 'INTT': 0}",
            "Schedule of 14 items: 14 kernels",
            "→ 7 permute_ntt_etc_add_13x1024",
            "  8 permute_intt_6x1024",
            "Pass 3 of 12, inject_domains: 18 nodes added",
            "2 * x                0      6",
            "each alone: 52 and 52; together: 78",
            "x ** 4        <Ciphertext: level 4",
            "lower           level 3",
            "no level is left for the product",
            "hits: 1",
        ),
    ),
    "05": Expected(
        parameters={"tasks": 40},
        kinds=frozenset({"text/html", "image/png"}),
        texts=(
            "depth 5  ring 3  slots in use [1, 1, 1, 3]",
            "quick ones ended     slots in use [0, 7, 0, 0]",
            "quick ones ended     slots in use [1, 0, 0, 0]",
            "ring 1 holds 7 of 8 slots",
            "32 of 32 slots in use and 1 more wanted",
            "split the scope    20 of 32 slots, 0 waits",
            "9 slots, 1024 bytes, 8 edges",
            "rings 1 and 3 are idle",
            "task_window of ring 1 is full: 32 of 32",
            "the run stopped inside the scope",
            "every task has run: True",
        ),
    ),
    "06": Expected(
        parameters={"blocks": 64},
        kinds=frozenset({"text/html", "image/png"}),
        texts=(
            "Pass 5 of 5, materialize_runtime_scopes: 2 rewrites",
            "rings 1 to 3 are idle: rebalance scopes before resizing",
            "ring 0: 32 tasks, at most 32 slots;  ring 1: 32 tasks, at most 32 slots",
            "4 of 4 slots in use and 1 more wanted",
            "ring 3 carries depths 3 to 4",
            "ring 2: 8 tasks",
            "one submission wants more than all 131072",
            "by hand     259 KiB mapped",
            "streamed  reads w BYPASS   decided by: scope",
            "same results: True   same code: True",
            "'out' is declared BYPASS",
        ),
    ),
    "07": Expected(
        parameters={"readers": 3, "rows": 128},
        kinds=frozenset({"text/html", "image/png"}),
        texts=(
            "y is 2.0 and x is 0.0",
            "4  odd elements     task 4  (0, 1, 2)",
            "entries of the last task: 2",
            "~ 2  double  task 2",
            "pl.region(table, [part * 64, 0], [64, 64])",
            "2 that consume what failed were skipped",
            "skipped: 2  z is 1.0",
        ),
    ),
}


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
    for name in ("MPLBACKEND", "REN_DEVICE"):
        monkeypatch.delenv(name, raising=False)


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


def _printed(cell: Any) -> str:
    """What a cell printed; the kernel sends it in pieces, which may end in the middle of a line."""
    return "".join([output["text"] for output in cell.get("outputs", []) if output.output_type == "stream"])


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
        [_printed(cell) for cell in executed.cells]
        + [text for bundle in data for kind, text in bundle.items() if kind.startswith("text/")]
    )
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
    assert kinds & {"image/svg+xml", "image/png", "text/html"}
    assert expected.kinds <= kinds
    assert [text for text in expected.texts if text not in shown] == []
