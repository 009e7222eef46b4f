"""The command `ren-lab`: JupyterLab on the notebooks, a demonstration without a browser, and short answers in a terminal.

Whatever needs an extra is imported by the subcommand that needs it, so that the others work without.
"""

import argparse
import html
import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ren_lab import __version__

DEMO_FOLDER = "ren-lab-demo"


class CommandFailure(Exception):
    """Ends the command with a message for the user."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the given arguments (those of the process if None) and return its exit status.

    Statuses are 0, 1 for a failure that was explained on stderr, 2 for wrong arguments, and 130 for an interrupt.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    # No subcommand means `lab`, also when options for it follow at once.
    if not given or given[0].startswith("-") and given[0] not in ("-h", "--help", "--version"):
        given.insert(0, "lab")
    arguments, handed_on = parser.parse_known_args(given)
    if handed_on and arguments.run is not _lab:
        parser.error(f"unrecognized arguments: {' '.join(handed_on)}")
    try:
        return arguments.run(arguments, handed_on)
    except CommandFailure as failure:
        print(f"ren-lab: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ren-lab: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ren-lab", description=__doc__.splitlines()[0], epilog="Without a subcommand: `ren-lab lab`.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"ren-lab {__version__}")
    commands = parser.add_subparsers(title="subcommands", metavar="COMMAND", required=True)

    lab = commands.add_parser(
        "lab",
        help="open JupyterLab on the notebooks (the default)",
        description="Open JupyterLab on the notebooks and print its address. Arguments that are not listed here are handed on "
        "to JupyterLab, such as --ip=0.0.0.0 or --IdentityProvider.token=TOKEN.",
        allow_abbrev=False,
    )
    lab.add_argument("--no-browser", action="store_true", help="start the server only")
    lab.add_argument("--port", type=int, metavar="N", help="port of the server; the next free one is taken if it is in use")
    lab.set_defaults(run=_lab)

    demo = commands.add_parser(
        "demo", help="run the first notebook without a browser and write pages", description=_demo.__doc__, allow_abbrev=False
    )
    demo.add_argument(
        "--out", type=Path, default=Path(DEMO_FOLDER), metavar="DIR", help="folder for the pages (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)

    devices = commands.add_parser("devices", help="list the devices and what the missing ones need", description=_devices.__doc__)
    devices.set_defaults(run=_devices)

    stats = commands.add_parser(
        "scope-stats", help="read a ring statistics file", description=_scope_stats.__doc__, allow_abbrev=False
    )
    stats.add_argument("file", type=Path, metavar="FILE", help="a scope_stats.jsonl, or the work folder of a run")
    stats.add_argument("--out", type=Path, metavar="PATH", help="also write a page (.html) or a picture (.png, .svg, .pdf)")
    stats.set_defaults(run=_scope_stats)
    return parser


def _lab(arguments: argparse.Namespace, handed_on: list[str]) -> int:
    """Open JupyterLab on the notebooks."""
    _need("lab", "jupyterlab", "ipykernel", "ipywidgets")
    from ren_lab.notebooks import working_copy

    try:
        copy = working_copy(Path.cwd())
    except OSError as error:
        raise CommandFailure(f"the notebooks cannot be laid out in {Path.cwd()}: {error}") from error
    _say(f"notebooks: {copy.folder}")
    if copy.kept:
        _say(f"kept as you edited them, though newer versions exist: {', '.join(copy.kept)} (move them away to get the new ones)")

    # -y: an interrupt ends the server without a question, which nobody may be there to answer.
    options = ["-y"]
    given = {argument.partition("=")[0].lstrip("-") for argument in handed_on}
    if not given & {"ServerApp.root_dir", "ServerApp.notebook_dir", "notebook-dir"}:
        options.append(f"--ServerApp.root_dir={copy.folder}")
    if not given & {"ServerApp.log_level", "Application.log_level", "log-level", "debug"}:
        options.append("--ServerApp.log_level=WARN")
    if getattr(os, "geteuid", lambda: -1)() == 0:
        options.append("--allow-root")
        _say("running as root, as in a container: --allow-root is set (from outside of a container, add --ip=0.0.0.0)")
    if arguments.no_browser:
        options.append("--no-browser")
    if arguments.port is not None:
        options.append(f"--ServerApp.port={arguments.port}")

    # The server runs in this very process: whatever ends the command ends the server, and no orphan can be left.
    # A shell starts background jobs deaf to interrupts; the server listens to them all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from jupyterlab.labapp import LabApp

    server = LabApp.initialize_server(argv=[*options, *handed_on])
    # Behind the callback that binds the port, so that the address answers once it is printed.
    server.io_loop.add_callback(lambda: _say(f"JupyterLab: {server.public_url}"))
    server.start()
    return 0


def _demo(arguments: argparse.Namespace, handed_on: list[str]) -> int:
    """Run notebook 01 without a browser; write an HTML page of it, and the page of the trace that it records."""
    _need("lab", "papermill", "nbconvert", "ipykernel", "matplotlib", "graphviz")
    from ren_lab.notebooks import NotebookFailure, html_page, run_notebook, source_folder, write_whole

    folder: Path = arguments.out.resolve()
    try:
        notebook = next(iter(sorted(source_folder().glob("01*.ipynb"))), None)
        if notebook is None:
            raise CommandFailure(f"there is no notebook 01 in {source_folder()}")
        folder.mkdir(parents=True, exist_ok=True)
        trace_page = folder / "trace.html"
        trace_page.unlink(missing_ok=True)
        executed = run_notebook(
            notebook,
            parameters={"trace_page": str(trace_page)},
            folder=folder,
            progress=sys.stderr is not None and sys.stderr.isatty(),
        )
        page = folder / f"{notebook.stem}.html"
        write_whole(page, html_page(executed, notebook.stem).encode())
    except (OSError, NotebookFailure) as error:
        raise CommandFailure(str(error)) from error
    if not trace_page.exists():
        raise CommandFailure(f"{notebook.name} ran, but wrote no trace page to {trace_page}")
    _say(f"notebook: {page}")
    _say(f"trace: {trace_page}")
    return 0


def _devices(arguments: argparse.Namespace, handed_on: list[str]) -> int:
    """List the devices: whether each is there, and what it is or what it lacks."""
    from ren_lab.backends import devices

    known = devices()
    width = max(len(device.name) for device in known)
    for device in known:
        print(f"{device.name:{width}}  {'available' if device.available else 'missing  '}  {device.description}")
    return 0


def _scope_stats(arguments: argparse.Namespace, handed_on: list[str]) -> int:
    """Say what a ring statistics file shows, and draw it if asked to."""
    suffix = arguments.out.suffix.lower() if arguments.out else None
    if suffix not in (None, ".html", ".png", ".svg", ".pdf"):
        raise CommandFailure(f"--out {arguments.out}: the ending says what to write; give .html, .png, .svg or .pdf")
    if suffix:
        _need("lab", "matplotlib")
    from ren_lab.lens import ScopeStats

    try:
        stats = ScopeStats.load(arguments.file)
        print(stats)
        if suffix == ".html":
            _write_page(arguments.out, stats, f"Ring statistics of {(stats.source or arguments.file).name}")
        elif suffix:
            stats.plot().savefig(arguments.out)
    except (OSError, ValueError) as error:
        raise CommandFailure(str(error)) from error
    return 0


def _write_page(path: Path, view: Any, title: str) -> None:
    """Write what a notebook would show of `view` as a page of its own."""
    from ren_lab.notebooks import write_whole

    shown = view._repr_mimebundle_()
    body = shown.get("text/html") or shown.get("image/svg+xml") or f"<pre>{html.escape(str(view))}</pre>"
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title></head>'
    write_whole(path, f"{head}<body>{body}</body></html>\n".encode())


def _need(extra: str, *modules: str) -> None:
    """Fail with the line that installs what is missing, unless all modules are there."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise CommandFailure(
            f"{', '.join(missing)} not installed; run: pip install 'ren-lab[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
        )


def _say(line: str) -> None:
    print(f"ren-lab: {line}", flush=True)
