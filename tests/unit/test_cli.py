"""The command `ren-lab`: its answers, its working copies of notebooks, and that its server ends with it."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from ren_lab import cli, notebooks

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'


def _command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ren_lab", *arguments], capture_output=True, text=True, cwd=cwd, timeout=120)


def _notebook(path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[0].metadata["tags"] = ["parameters"]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
    return path


# Answers


def test_version(tmp_path):
    run = _command("--version", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (0, f"ren-lab {cli.__version__}\n")


def test_help_names_every_subcommand(tmp_path):
    run = _command("--help", cwd=tmp_path)
    assert run.returncode == 0
    assert all(name in run.stdout for name in ("lab", "demo", "devices", "scope-stats"))


def test_devices_names_each_device_and_what_a_missing_one_needs(capsys):
    from ren_lab.backends import devices

    assert cli.main(["devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(devices())
    for line, device in zip(lines, devices(), strict=True):
        assert line.split()[:2] == [device.name, "available" if device.available else "missing"]
        assert line.endswith(device.description)


@pytest.mark.parametrize(
    ("arguments", "no_browser", "port", "handed_on"),
    [
        ([], False, None, []),
        (["lab"], False, None, []),
        (["--no-browser", "--port", "8899"], True, 8899, []),
        (["lab", "--port=8899", "--ip=0.0.0.0", "--debug"], False, 8899, ["--ip=0.0.0.0", "--debug"]),
        (["--ServerApp.token", "x y", "--no-browser"], True, None, ["--ServerApp.token", "x y"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_no_subcommand_means_lab_and_the_rest_is_handed_on(monkeypatch, arguments, no_browser, port, handed_on):
    seen = []
    monkeypatch.setattr(cli, "_lab", lambda options, rest: seen.append((options.no_browser, options.port, rest)) or 0)
    assert cli.main(arguments) == 0
    assert seen == [(no_browser, port, handed_on)]


@pytest.mark.parametrize(
    "arguments", [["devices", "--all"], ["demo", "--foo"], ["bogus"], ["--port", "many"], ["scope-stats"]], ids=" ".join
)
def test_wrong_arguments_are_refused(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "missing"), [(["lab"], "jupyterlab"), (["demo"], "papermill"), (["demo"], "matplotlib")])
def test_a_missing_extra_is_one_line_with_the_remedy(monkeypatch, capsys, tmp_path, arguments, missing):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == missing else find_spec(name, *rest))
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert missing in line
    assert "pip install 'ren-lab[lab]'" in line
    assert not list(tmp_path.iterdir())


def test_an_interrupt_is_a_status(monkeypatch, capsys):
    def interrupted(options, rest):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_devices", interrupted)
    assert cli.main(["devices"]) == 130
    assert capsys.readouterr().err == "ren-lab: interrupted\n"


# Working copies


@pytest.fixture
def packaged(tmp_path) -> Path:
    folder = tmp_path / "packaged"
    folder.mkdir()
    for name in ("01_a.ipynb", "02_b.ipynb"):
        (folder / name).write_text(f"{name} as written")
    return folder


def test_notebooks_are_copied_once(packaged, tmp_path):
    first = notebooks.copy_notebooks(packaged, tmp_path / "work")
    assert (first.written, first.kept) == (("01_a.ipynb", "02_b.ipynb"), ())
    assert (first.folder / "01_a.ipynb").read_text() == "01_a.ipynb as written"
    again = notebooks.copy_notebooks(packaged, tmp_path / "work")
    assert (again.written, again.kept) == ((), ())


def test_an_edited_notebook_is_never_overwritten(packaged, tmp_path):
    work = notebooks.copy_notebooks(packaged, tmp_path / "work").folder
    (work / "01_a.ipynb").write_text("mine")
    assert notebooks.copy_notebooks(packaged, work).kept == ()
    for name in ("01_a.ipynb", "02_b.ipynb"):
        (packaged / name).write_text("of the next version")
    for attempt in range(2):
        copy = notebooks.copy_notebooks(packaged, work)
        assert copy.kept == ("01_a.ipynb",)
        assert copy.written == (("02_b.ipynb",) if attempt == 0 else ())
        assert (work / "01_a.ipynb").read_text() == "mine"
        assert (work / "02_b.ipynb").read_text() == "of the next version"


def test_a_notebook_of_the_same_name_that_was_never_copied_is_the_users(packaged, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "01_a.ipynb").write_text("mine")
    copy = notebooks.copy_notebooks(packaged, work)
    assert (copy.written, copy.kept) == (("02_b.ipynb",), ("01_a.ipynb",))
    assert (work / "01_a.ipynb").read_text() == "mine"


def test_a_removed_notebook_comes_back(packaged, tmp_path):
    work = notebooks.copy_notebooks(packaged, tmp_path / "work").folder
    (work / "01_a.ipynb").unlink()
    assert notebooks.copy_notebooks(packaged, work).written == ("01_a.ipynb",)


def test_an_unreadable_record_does_not_cost_an_edited_notebook(packaged, tmp_path):
    work = notebooks.copy_notebooks(packaged, tmp_path / "work").folder
    (work / "01_a.ipynb").write_text("mine")
    (work / ".copied.json").write_text("{cut off")
    assert notebooks.copy_notebooks(packaged, work).kept == ("01_a.ipynb",)
    assert (work / "01_a.ipynb").read_text() == "mine"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr(notebooks.os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        notebooks.write_whole(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "old"


def test_an_installed_package_works_on_copies_and_a_checkout_on_its_own(packaged, tmp_path, monkeypatch):
    assert notebooks.working_copy(tmp_path).folder == notebooks.source_folder()
    monkeypatch.setattr(notebooks, "packaged_folder", lambda: packaged)
    assert notebooks.working_copy(tmp_path).folder == tmp_path / "ren-lab-notebooks"


# Running


def test_parameters_reach_the_notebook(tmp_path):
    executed = notebooks.run_notebook(_notebook(tmp_path / "n.ipynb", "x = 1", "print(x + 1)"), parameters={"x": 41})
    assert executed.cells[-1].outputs[0].text == "42\n"


@pytest.mark.parametrize(
    ("source", "says", "cell_timeout_s"),
    [
        ("def f():\n    return 1 // 0\nf()", ["cell 2", "ZeroDivisionError", "return 1 // 0"], 60),
        ("import os; os._exit(3)", ["kernel died"], 60),
        ("import time; time.sleep(60)", ["more than 1 s"], 1),
    ],
    ids=["cell raises", "kernel dies", "cell takes too long"],
)
def test_a_failure_is_told_in_a_dozen_lines(tmp_path, source, says, cell_timeout_s):
    notebook = _notebook(tmp_path / "broken.ipynb", "x = 1", source)
    with pytest.raises(notebooks.NotebookFailure) as caught:
        notebooks.run_notebook(notebook, cell_timeout_s=cell_timeout_s)
    text = str(caught.value)
    assert text.startswith("broken.ipynb")
    assert all(part in text for part in says)
    assert "\x1b" not in text
    assert len(text.splitlines()) <= 15


class _Fetched(HTMLParser):
    """Collects what a browser would fetch for a page."""

    def __init__(self):
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        wanted = {"script": "src", "img": "src", "link": "href", "iframe": "src"}.get(tag)
        self.addresses += [value or "" for name, value in attrs if name == wanted and not (value or "").startswith("data:")]


@pytest.fixture
def demo_notebook(tmp_path, monkeypatch):
    """Makes a given cell the notebook that `demo` runs."""
    folder = tmp_path / "source"
    folder.mkdir()
    monkeypatch.setattr(notebooks, "packaged_folder", lambda: folder)
    return lambda cell: _notebook(folder / "01_first.ipynb", "trace_page = ''", cell)


def test_demo_writes_two_pages_that_fetch_nothing(demo_notebook, tmp_path, capsys):
    demo_notebook(f"from IPython.display import SVG\nopen(trace_page, 'w').write('<p>traced</p>')\nSVG('''{SVG}''')")
    out = tmp_path / "deep" / "out"
    assert cli.main(["demo", "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["01_first.html", "trace.html"]
    assert (out / "trace.html").read_text() == "<p>traced</p>"
    page = (out / "01_first.html").read_text("utf-8")
    fetched = _Fetched()
    fetched.feed(page)
    assert fetched.addresses == []
    assert not re.search(r"\bimport\s*\(|@import|url\(\s*['\"]?https?:", page)
    assert "data:image/svg+xml" in page or "<svg" in page
    said = capsys.readouterr().out
    assert str(out / "01_first.html") in said
    assert str(out / "trace.html") in said


@pytest.mark.parametrize(
    ("cell", "says"), [("1 // 0", "ZeroDivisionError"), ("x = 1", "no trace page")], ids=["cell raises", "no trace page"]
)
def test_a_failing_demo_says_so_and_claims_no_page(demo_notebook, tmp_path, capsys, cell, says):
    demo_notebook(cell)
    assert cli.main(["demo", "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert says in said.err
    assert said.out == ""


# The server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def laboratory(tmp_path):
    """Starts `ren-lab` with a Jupyter of its own and gives (process, address it printed, lines before it)."""
    environment = os.environ | {f"JUPYTER_{kind}_DIR": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], str, list[str]]:
        command = [sys.executable, "-m", "ren_lab", "--no-browser", "--port", str(_free_port()), *arguments]
        with open(tmp_path / "stderr", "w") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True, env=environment, cwd=tmp_path
            )
        started.append(process)
        assert process.stdout
        lines = []
        for line in process.stdout:
            if found := re.search(r"JupyterLab: (http\S+)", line):
                return process, found[1], lines
            lines.append(line)
        raise AssertionError(f"the server did not start:\n{(tmp_path / 'stderr').read_text()}")

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def _ask(address: str, path: str, body: dict[str, str] | None = None) -> Any:
    base, _, token = address.partition("/lab?token=")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{base}/{path}", data, {"Authorization": f"token {token}", "Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda ending: ending.name)
def test_the_server_and_its_kernels_end_with_the_command(laboratory, ending):
    process, address, lines = laboratory()
    assert str(notebooks.source_folder()) in lines[0]
    assert ("--allow-root" in "".join(lines)) == (os.geteuid() == 0)
    assert {entry["name"] for entry in _ask(address, "api/contents")["content"]} >= {
        p.name for p in notebooks.source_folder().glob("*.ipynb")
    }
    assert _ask(address, "api/kernels", {"name": "python3"})["name"] == "python3"
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    assert len(family) > 1
    process.send_signal(ending)
    status = process.wait(timeout=30)
    assert status == (-signal.SIGKILL if ending == signal.SIGKILL else 0)
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not [member for member in alive if _lives(member)]


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.slow
def test_what_is_handed_on_wins(laboratory, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "mine.txt").write_text("")
    _, address, _ = laboratory(f"--ServerApp.root_dir={folder}", "--IdentityProvider.token=given")
    page, _, shown = address.partition("?")
    assert "given" not in shown, "a token that the user chose is not printed"
    assert [entry["name"] for entry in _ask(f"{page}?token=given", "api/contents")["content"]] == ["mine.txt"]


# Ring statistics

RESOURCES = ("task_window", "heap", "dep_pool")
STATISTICS = [
    {"version": 6, "fatal": False, "dropped": 0, "total": 2, "tensormap_max": 64} | {f"{name}_max": [4096] for name in RESOURCES},
    *(
        {"site": "program.py:3", "phase": phase, "depth": 0, "ring": 0, "tensormap": head}
        | {f"{name}_start": 0 for name in RESOURCES}
        | {f"{name}_end": head for name in RESOURCES}
        for phase, head in (("begin", 0), ("end", 3))
    ),
]


@pytest.fixture
def statistics(tmp_path) -> Path:
    lens = pytest.importorskip("ren_lab.lens")
    if not hasattr(lens, "ScopeStats"):
        pytest.skip("this version reads no ring statistics")
    path = tmp_path / "scope_stats.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in STATISTICS))
    return path


@pytest.mark.parametrize(("ending", "starts"), [(".html", b"<!doctype html>"), (".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_scope_stats_are_told_and_drawn(statistics, tmp_path, capsys, ending, starts):
    out = tmp_path / f"rings{ending}"
    assert cli.main(["scope-stats", str(statistics), "--out", str(out)]) == 0
    assert "program.py:3" in capsys.readouterr().out
    assert out.read_bytes().startswith(starts)


def test_scope_stats_of_no_file_is_one_line(statistics, tmp_path, capsys):
    assert cli.main(["scope-stats", str(tmp_path / "absent.jsonl")]) == 1
    assert "absent.jsonl" in capsys.readouterr().err


def test_an_unknown_kind_of_picture_is_refused(tmp_path, capsys):
    assert cli.main(["scope-stats", "any.jsonl", "--out", str(tmp_path / "rings.bmp")]) == 1
    assert ".png" in capsys.readouterr().err


@pytest.mark.parametrize("layout", ["dfx_outputs/scope_stats", "."])
def test_scope_stats_of_a_work_folder_are_those_in_it(statistics, tmp_path, capsys, layout):
    folder = tmp_path / "run" / layout
    folder.mkdir(parents=True)
    statistics.rename(folder / statistics.name)
    out = tmp_path / "rings.html"
    assert cli.main(["scope-stats", str(tmp_path / "run"), "--out", str(out)]) == 0
    assert "program.py:3" in capsys.readouterr().out and "Ring statistics of scope_stats.jsonl" in out.read_text("utf-8")


def test_scope_stats_of_another_folder_say_what_it_lacks(tmp_path, capsys):
    assert cli.main(["scope-stats", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert str(tmp_path) in told and "folder without dfx_outputs/scope_stats/scope_stats.jsonl" in told and "Errno" not in told
