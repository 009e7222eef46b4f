"""Kernels built with the address and undefined-behaviour sanitizers run random programs in their own process, without a report."""

import pathlib
import subprocess
import sys

import cpu_variants
import pytest

from ren_lab.backends.cpu import compiler as compilers

SCRIPT = """
import pathlib, sys
sys.path[:0] = sys.argv[2:]
from ren_lab.backends import register
from ren_lab.backends.cpu import CpuBackend
flags = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
made = CpuBackend(words=sys.argv[1], threads=2, cache=pathlib.Path(sys.argv[2]), extra_flags=flags)
made.name = "checked"
register("checked", lambda number: made)
from test_cpu_programs import program
for log_n, limbs in ((2, 2), (7, 3)):
    assert program(log_n, 2**log_n, limbs, 12, "checked") == program(log_n, 2**log_n, limbs, 12, "python"), (log_n, limbs)
print("clean")
"""


@pytest.mark.parametrize("words", ["native", "scalar"])
def test_kernels_run_clean_under_sanitizers(words: str, tmp_path: pathlib.Path) -> None:
    made = cpu_variants.make("native2")
    command = made.compiler.command
    found = subprocess.run([*command, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not pathlib.Path(found).is_file():
        pytest.skip("this compiler has no libasan.so to load beforehand")
    tests = pathlib.Path(__file__).parents[1]
    paths = [str(tests / "property"), str(tests), str(pathlib.Path(compilers.__file__).parents[3])]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, words, str(tmp_path), *paths],
        env={"LD_PRELOAD": found, "ASAN_OPTIONS": "detect_leaks=0", "PATH": "/usr/bin:/bin:/usr/local/bin", "REN_VERIFY": "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == "clean", done.stderr[-3000:]
    assert "ERROR" not in done.stderr
