"""The notebook magics in a real IPython shell."""

import json

import pytest

pytest.importorskip("IPython", reason="needs the extra `lab`")
pytest.importorskip("anywidget", reason="needs the extra `lab`")

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from ren_lab.widgets import magics

CELL = """
import ren_lab as ren
ring = ren.RingSpec(8, (17, 97))
value = (ren.Poly([1, 2], ring) * ren.Poly([3], ring)).tolist()
"""


@pytest.fixture
def shell():
    """A shell with the magics loaded."""
    shell = InteractiveShell.instance()
    magics.load(shell)
    yield shell
    InteractiveShell.clear_instance()


def run(shell, cell: str):
    with capture_output() as captured:
        shell.run_cell(cell)
    return captured


def test_a_traced_cell_runs_as_ever_and_shows_its_steppers(shell):
    captured = run(shell, f"%%ren_trace\n{CELL}")
    assert shell.user_ns["value"][:2] == [3, 6]
    assert len(shell.user_ns["recording"].realizations) == 1
    kinds = [output.data["text/html"] for output in captured.outputs]
    assert len(kinds) == 2 and "simplify" in kinds[0] and "Schedule of" in kinds[1]


def test_the_recording_has_the_name_that_is_given_and_is_saved(shell, tmp_path):
    page = tmp_path / "cell.html"
    run(shell, f"%%ren_trace seen --save {page}\n{CELL}")
    assert shell.user_ns["seen"].count == 1 and "recording" not in shell.user_ns
    assert page.read_text("utf-8").startswith("<!doctype html>")


def test_a_cell_that_raises_is_shown_up_to_there(shell):
    captured = run(shell, f"%%ren_trace\n{CELL}\n1 / 0")
    assert "ZeroDivisionError" in captured.stdout and len(captured.outputs) == 2


def test_a_cell_that_realizes_nothing_says_so(shell):
    assert "nothing was realized" in run(shell, "%%ren_trace\n1 + 1").stdout


@pytest.mark.parametrize("line", ["two names", "--save", "1x"])
def test_a_line_that_makes_no_sense_is_refused(shell, line):
    captured = run(shell, f"%%ren_trace {line}\n1")
    assert "%%ren_trace [NAME] [--save FILE]" in captured.stdout + captured.stderr


def test_devices_are_listed(shell):
    from ren_lab.backends import devices

    data = run(shell, "%ren_devices").outputs[0].data
    assert all(device.name in data["text/plain"] and device.name in data["text/html"] for device in devices())
    json.dumps(data)
