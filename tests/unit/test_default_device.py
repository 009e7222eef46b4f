"""Where polynomials live whose maker names no device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import warnings
import ren_lab as ren
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    a = ren.Poly([1, 2], ren.RingSpec(8, (17, 97)))
    b = ren.Poly([3], a.ring)
print(a.device, (a * b).device, (a * b).tolist()[:3])
for warning in caught:
    print(warning.category.__name__, warning.filename, warning.message)
"""


def _run(**environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("REN_DEVICE", "CC")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=kept | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.device("cpu")
def test_the_native_one_where_a_compiler_is_found() -> None:
    assert _run() == ["cpu cpu [3, 6, 0]"]


def test_numpy_where_none_works_with_one_warning_at_the_users_line() -> None:
    first, *warned = _run(CC="/nowhere/cc")
    assert first == "python python [3, 6, 0]"
    assert len(warned) == 1
    said = "kernels run on NumPy: the compiler '/nowhere/cc' that CC names does not run; "
    assert warned[0].startswith(f"UserWarning <string> {said}")
    assert "install gcc or clang" in warned[0]


def test_the_option_decides() -> None:
    assert _run(REN_DEVICE="python", CC="/nowhere/cc") == ["python python [3, 6, 0]"]
