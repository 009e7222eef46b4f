"""The README and the pages under docs/ are true: their programs run and print what stands there, and links lead somewhere."""

import io
import json
import linecache
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

import ren_lab as ren
from ren_lab.engine import clear_schedule_cache

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\(([^)\s]+)\)")
_TIME = re.compile(r" *\d[\d.,]* (?:ns|µs|ms|s)\b")
_LOCAL_PATH = re.compile(r"(?<![\w.:/])(?:/(?:work|tmp|home|root|usr|mnt|Users)/|[A-Z]:\\|~/)")


@dataclass(frozen=True)
class Block:
    """A program on a page, and what the page says that it prints; None if it says nothing."""

    code: str
    printed: str | None


def _text(page: Path) -> str:
    return page.read_text("utf-8")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _programs(page: Path) -> list[Block]:
    """The Python blocks, each with the block of text behind it, if only an empty line is between them."""
    fences = list(_FENCE.finditer(_text(page)))
    blocks = []
    for fence, following in zip_longest(fences, fences[1:]):
        if fence[1] == "python":
            answered = following and following[1] == "text" and not following.string[fence.end() : following.start()].strip()
            blocks.append(Block(fence[2], following[2] if answered else None))
    return blocks


def _prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _FENCE.sub("", _text(page))


def _without_times(text: str) -> list[str]:
    return [_TIME.sub(" TIME", line).rstrip() for line in text.strip().splitlines()]


def _anchors(page: Path) -> set[str]:
    """What a page's headings are called in links: lower case, words joined by hyphens, the rest left out."""
    titles = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.device("cpu")  # pages show what it says where there is a compiler
@pytest.mark.parametrize("page", [page for page in PAGES if _programs(page)], ids=_name)
def test_programs_run_and_print_what_the_page_says(page, tmp_path, monkeypatch):
    """The blocks of a page are one program, in the order of the page, that starts with nothing compiled."""
    monkeypatch.chdir(tmp_path)
    clear_schedule_cache()
    names: dict[str, object] = {"__name__": "__main__"}
    with ren.using(device="cpu", verify=False):
        for block in _programs(page):
            out = io.StringIO()
            with redirect_stdout(out):
                # where `inspect` looks for source: the language reads it
                linecache.cache["example.py"] = (len(block.code), None, block.code.splitlines(keepends=True), "example.py")
                exec(compile(block.code, "example.py", "exec"), names)
            if block.printed is not None:
                assert _without_times(out.getvalue()) == _without_times(block.printed)


def test_the_readme_shows_what_its_first_program_prints():
    first = _programs(PAGES[0])[0]
    assert first.printed is not None
    assert len([line for line in first.code.splitlines() if line]) <= 10


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page):
    broken = []
    for target in _LINK.findall(_prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.is_relative_to(ROOT) or not linked.exists():
            broken.append(target)
        elif anchor and anchor not in _anchors(linked):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_no_path_of_somebodys_machine(page):
    assert _LOCAL_PATH.findall(_text(page)) == []


def test_every_page_can_be_reached_from_the_index():
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in _LINK.findall(_prose(index))}
    assert [_name(page) for page in PAGES[1:] if page != index and page.resolve() not in linked] == []


def test_every_picture_is_used_and_small():
    used = {(page.parent / target).resolve() for page in PAGES for target in _LINK.findall(_prose(page))}
    pictures = sorted((ROOT / "docs" / "images").iterdir())
    assert [picture.name for picture in pictures if picture.resolve() not in used] == []
    assert [picture.name for picture in pictures if picture.stat().st_size > 200_000] == []


def test_every_benchmark_is_described():
    described = _text(ROOT / "docs" / "benchmarks.md")
    assert [path.name for path in sorted((ROOT / "benchmarks").glob("*.py")) if f"benchmarks/{path.name}" not in described] == []


@pytest.mark.parametrize("command", ["pip install -e '.[lab]' && ren-lab", "pip install -e '.[test]' && pytest"])
def test_the_readme_gives_the_command_on_a_line_of_its_own(command):
    assert command in _text(PAGES[0]).splitlines()


def test_no_term_is_explained_twice():
    terms = re.findall(r"^- \*\*(.+?)\*\*", _text(ROOT / "docs" / "terms.md"), re.MULTILINE)
    assert len(terms) > 50
    repeated = {term for term in terms if terms.count(term) > 1}
    assert repeated <= {"slot"}  # of a ciphertext, of a kernel and of the task window; the page tells them apart


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda notebook: notebook.stem)
def test_notebooks_link_to_notebooks_only(notebook):
    """They are copied into working folders, where nothing else of the repository lies."""
    cells = json.loads(_text(notebook))["cells"]
    prose = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    links = [target for target in _LINK.findall(prose) if not re.match(r"[a-z]+:", target)]
    assert [target for target in links if "/" in target or not (notebook.parent / target).exists()] == []


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda notebook: notebook.stem)
def test_notebooks_are_stored_without_outputs(notebook):
    stored = json.loads(_text(notebook))
    cells = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert [cell["id"] for cell in cells if cell["outputs"] or cell["execution_count"] is not None] == []
    assert stored["metadata"]["kernelspec"]["name"] == "python3"
