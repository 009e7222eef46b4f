"""The layers of the package: who may import whom, who may know the views, and who may read the environment."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# In the order of dependency: a layer imports from itself and from those before it.
LAYERS = (
    "words", "functions", "events", "options", "ring", "ir", "schedule", "memory", "backends", "engine", "poly", "structure",
    "jit_key", "jit_guard", "jit", "runtime", "language", "schemes", "lens", "widgets", "__init__", "notebooks", "cli", "__main__",
)  # fmt: skip
RANK = {layer: rank for rank, layer in enumerate(LAYERS)}

# Pairs that the order alone would allow. The runtime meets the engine through events and plain callables.
STRANGERS = {
    ("runtime", layer)
    for layer in ("ring", "ir", "schedule", "memory", "backends", "engine", "poly", "structure", "jit_key", "jit_guard", "jit")
}

VIEW_MODULES = {"matplotlib", "graphviz", "ipywidgets", "IPython", "anywidget"}
VIEW_LAYERS = {"lens", "widgets", "notebooks", "cli", "__main__"}


@dataclass(frozen=True)
class Module:
    """One file of the package under the dotted name it is imported by."""

    path: Path
    name: str
    tree: ast.Module

    @property
    def layer(self) -> str:
        return self.name.split(".")[1] if "." in self.name else "__init__"

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def _modules() -> dict[str, Module]:
    found = {}
    for folder, package in ((ROOT / "ren_lab", "ren_lab"), (ROOT / "widgets", "ren_lab.widgets")):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join([package, *(part for part in parts if part != "__init__")])
            found[name] = Module(path, name, ast.parse(path.read_text("utf-8"), str(path)))
    return found


MODULES = _modules()


def imports(module: Module, known: set[str]) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything that a module imports anywhere in it, by statement or by a call with a literal."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.package.split(".")
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield node.lineno, submodule if submodule in known else base
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def _layer_of(name: str) -> str:
    return name.split(".")[1] if "." in name else "__init__"


def violations(module: Module, known: set[str]) -> Iterator[str]:
    """A sentence for each import of a module that its layer does not allow."""
    for line, name in imports(module, known):
        where, top = f"{module.name}:{line}", name.split(".")[0]
        if top == "ren_lab":
            target = _layer_of(name)
            if target not in RANK:
                yield f"{where} imports {name}, which belongs to no layer"
            elif RANK[target] > RANK[module.layer] or (module.layer, target) in STRANGERS:
                yield f"{where} imports {name}: {module.layer} must not know {target}"
        elif top in ("widgets", "notebooks", "tests") and top in {path.name for path in ROOT.iterdir()}:
            yield f"{where} imports {name}, which is a folder of the checkout; the widgets are ren_lab.widgets"
        elif top in VIEW_MODULES and module.layer not in VIEW_LAYERS:
            yield f"{where} imports {name}: {module.layer} must not know views"


def _sample(name: str, source: str) -> Module:
    return Module(Path("sample.py"), name, ast.parse(source))


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_down(name):
    assert MODULES[name].layer in RANK, f"{MODULES[name].path.relative_to(ROOT)} belongs to no layer; give it a place in LAYERS"
    assert not list(violations(MODULES[name], set(MODULES)))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ren_lab.ir.node", "def f():\n    from ren_lab import poly"),
        ("ren_lab.ir.node", "from ..poly import Poly"),
        ("ren_lab.engine.units", "import ren_lab"),
        ("ren_lab.engine.units", "from ren_lab import Poly"),
        ("ren_lab.poly", "import importlib\nimportlib.import_module('ren_lab.lens')"),
        ("ren_lab.poly", "if True:\n    import matplotlib.pyplot as plt"),
        ("ren_lab.runtime.tasks", "from ren_lab.ring import RingSpec"),
        ("ren_lab.lens.trace", "from ren_lab.widgets import PassStepper"),
        ("ren_lab.lens.trace", "import widgets"),
        ("ren_lab.cli", "import ren_lab.somewhere"),
    ],
)
def test_a_forbidden_import_is_found(name, source):
    assert len(list(violations(_sample(name, source), {*MODULES, "ren_lab.poly"}))) == 1


@pytest.mark.parametrize("name", [name for name, module in MODULES.items() if module.layer not in VIEW_LAYERS])
def test_views_are_not_mentioned_by_name(name):
    """Not as a string either, as in a look into `sys.modules`."""
    # the face asks whether a notebook is running, and installs the rich display if so
    allowed = {"IPython"} if name == "ren_lab" else set()
    found = [n for n in ast.walk(MODULES[name].tree) if isinstance(n, ast.Constant) and n.value in VIEW_MODULES - allowed]
    assert not [f"line {node.lineno}: {node.value!r}" for node in found]


@pytest.mark.parametrize("name", [name for name in MODULES if name != "ren_lab.options"])
def test_only_options_reads_the_environment(name):
    names = ("environ", "environb", "getenv", "getenvb")
    found = [
        node.lineno
        for node in ast.walk(MODULES[name].tree)
        if isinstance(node, ast.Attribute)
        and node.attr in names
        or isinstance(node, ast.ImportFrom)
        and node.module == "os"
        and any(alias.name in names for alias in node.names)
    ]
    assert not found, f"{name} reads the environment on lines {found}; add a field to Options"


def test_every_folder_with_modules_is_a_package():
    """One without `__init__.py` is left out of wheels."""
    folders = {module.path.parent for module in MODULES.values()}
    assert not [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()]


def test_importing_the_package_is_light_and_starts_nothing():
    """Beside the standard library it brings numpy alone, no thread and no child process."""
    code = """
import json, sys, threading
import numpy
before, threads = set(sys.modules), threading.active_count()
import ren_lab
brought = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps([sorted(brought - sys.stdlib_module_names), threading.active_count() - threads, "multiprocessing" in sys.modules]))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert run.returncode == 0, run.stderr
    brought, threads, multiprocessing = json.loads(run.stdout)
    assert set(brought) <= {"ren_lab", "numpy"}
    assert threads == 0
    assert not multiprocessing
