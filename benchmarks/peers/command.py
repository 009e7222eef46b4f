"""CKKS operations of this package, on the device `cpu`, beside OpenFHE, SEAL and desilofhe."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from peers import environments, report
from peers.processes import Worker, WorkerError, once
from peers.system import BESIDE, OPERATIONS, OURS, SETTINGS, Setting
from peers.turns import compare

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "images" / "peers.png"

_DETAILS = """A peer that can't be imported is left out, and a line says why. OpenFHE's wheels are for one version of Python each:
give --python openfhe=PATH, or have python3.10 on the PATH. Each turn of a library is at least one call after one that isn't
counted, and ends when its threads sleep. Ratios are of the medians of two turns in the same round."""

_PARTS = ("peers", "account", "first-use")
_ACCOUNT_ROUNDS, _OVERHEAD_CALLS = 15, 30


def _serving(name: str) -> str:
    return f"from peers.worker import main; main({name!r})"


def _named(text: str) -> tuple[str, str]:
    name, equals, python = text.partition("=")
    if not equals or not python:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH, such as openfhe=/path/to/python3.10")
    try:
        return environments.peer(name).name, python
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    made = argparse.ArgumentParser(prog="python benchmarks/peers", description=__doc__, epilog=_DETAILS)
    put = made.add_argument
    put("--log-n", type=int, nargs="+", choices=sorted(SETTINGS), default=[13, 14, 15], help="log2 of degrees; 10 is a quick trial")
    put("--threads", type=int, nargs="+", default=[1, 2], help="how many each library may use, one table each")
    put("--rounds", type=int, default=8, help="turns of each library at each operation")
    put("--seconds", type=float, default=0.1, help="length of a turn")
    put("--parts", nargs="+", choices=_PARTS, default=list(_PARTS), help="what to measure")
    put("--python", type=_named, action="append", default=[], metavar="NAME=PATH", help="interpreter of a peer")
    put("--install", type=Path, metavar="DIR", help="make environments with pip there for peers that are missing")
    put("--record", type=Path, metavar="FILE", help="keep everything that was measured, as JSON")
    put("--from", type=Path, dest="source", metavar="FILE", help="measure nothing, take what --record kept")
    put("--write", action="store_true", help="write the section of docs/benchmarks.md and its picture")
    return made


def _peers(record: report.Record, options: argparse.Namespace, keep: Callable[[], None]) -> None:
    """Compare at every setting; `keep` is called after each."""
    from tqdm.auto import tqdm

    pythons, missing = {OURS: sys.executable}, {}
    for peer in environments.PEERS:
        python, why = environments.find(peer, dict(options.python), options.install)
        if python is None:
            missing[peer.name] = why
            print(f"{peer.name} is left out: {why}", file=sys.stderr)
        else:
            pythons[peer.name] = python
    for log_n in options.log_n:
        for threads in options.threads:
            with ExitStack() as stack:
                workers = {name: stack.enter_context(Worker([python], _serving(name), threads)) for name, python in pythons.items()}
                total = options.rounds * ((len(OPERATIONS) - len(BESIDE)) * len(workers) + len(BESIDE))
                bar = stack.enter_context(
                    tqdm(total=total, desc=f"{report.degree(log_n)}, threads {threads}", leave=False, mininterval=1.0)
                )

                def advance(operation: str, bar: Any = bar) -> None:
                    bar.set_postfix_str(operation, refresh=False)
                    bar.update()

                found = compare(SETTINGS[log_n], threads, workers, options.rounds, options.seconds, advance)
            found.left_out = {**missing, **found.left_out}
            record.comparisons.append(found)
            keep()


def _account(record: report.Record, setting: Setting) -> None:
    """Where the time of the chain goes, in one thread."""
    with Worker([sys.executable], _serving(OURS), 1) as worker:
        worker.ask("set up", setting=vars(setting), threads=1)
        found = worker.ask("account", rounds=_ACCOUNT_ROUNDS)
        record.account = {**found, "log_n": setting.log_n, "depth": setting.depth}
        record.overhead = worker.ask("overhead", calls=_OVERHEAD_CALLS)


def _first_use(record: report.Record) -> None:
    """Two fresh processes, one after the other, with one cache."""
    with tempfile.TemporaryDirectory() as cache:
        code = "from peers.first_use import main; main()"
        record.first_use = {kind: once(code, cache) for kind in ("cold", "warm")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for, print it, and write it down; gives the exit status."""
    options = parser().parse_args(arguments)
    if options.rounds < 1 or min(options.threads) < 1 or not options.seconds > 0:
        parser().error("--rounds and --threads take numbers of at least 1, --seconds a positive one")
    record = report.Record()

    def keep() -> None:
        if options.record is not None:
            options.record.write_text(json.dumps(record.plain(), indent=1), "utf-8")

    try:
        if options.source is not None:
            record = report.Record.of(json.loads(options.source.read_text("utf-8")))
        else:
            if "peers" in options.parts:
                _peers(record, options, keep)
            if "account" in options.parts:
                _account(record, SETTINGS[max(options.log_n)])
            if "first-use" in options.parts:
                _first_use(record)
            keep()
    except WorkerError as error:
        print(f"a library failed: {error}", file=sys.stderr)
        return 1
    print(report.terminal(record))
    if options.write:
        if record.comparisons:
            from peers import plot

            plot.save(record.comparisons, PICTURE)
        report.write(PAGE, report.page(record, PICTURE.relative_to(PAGE.parent).as_posix()))
    return 0
