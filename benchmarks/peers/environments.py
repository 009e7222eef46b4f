"""Where each peer can be imported: an interpreter that was named, one that was made for it, this one."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Peer:
    """A library to compare with.

    Attributes:
        name: what tables call it.
        package: what pip calls it.
        module: what must be importable.
        interpreters: commands to look for where this interpreter has no wheel of it.
    """

    name: str
    package: str
    module: str
    interpreters: tuple[str, ...] = ()


PEERS = (
    Peer("OpenFHE", "openfhe", "openfhe", ("python3.10",)),  # its wheels are built for one version of Python each
    Peer("SEAL", "tenseal", "tenseal.sealapi"),
    Peer("desilofhe", "desilofhe", "desilofhe"),
)


def peer(name: str) -> Peer:
    """The peer that is called so, or whose package is; `ValueError` for other names."""
    for known in PEERS:
        if name.lower() in (known.name.lower(), known.package):
            return known
    raise ValueError(f"there is no peer {name!r}; there are {', '.join(known.name for known in PEERS)}")


def _lacks(python: str, module: str) -> str | None:
    """Why an interpreter can't import a module, or None if it can."""
    try:
        done = subprocess.run([python, "-c", f"import numpy, {module}"], capture_output=True, encoding="utf-8", errors="replace")
    except OSError as error:
        return str(error)
    lines = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else lines[-1] if lines else f"it ended with status {done.returncode}"


def _candidates(wanted: Peer, named: Mapping[str, str]) -> list[str]:
    if wanted.name in named:
        return [named[wanted.name]]
    found = [shutil.which(command) for command in wanted.interpreters]
    return [sys.executable, *(path for path in found if path is not None)]


def _interpreter(wanted: Peer, folder: Path) -> str:
    """The interpreter of the peer's own environment below a folder."""
    place = folder / wanted.package
    return str(place / "Scripts" / "python.exe" if sys.platform == "win32" else place / "bin" / "python")


def _installed(wanted: Peer, base: str, folder: Path) -> str:
    """The interpreter of a fresh environment with the peer; `subprocess.CalledProcessError` if it can't be made."""
    python = _interpreter(wanted, folder)
    for command in (
        [base, "-m", "venv", "--clear", str(folder / wanted.package)],
        [python, "-m", "pip", "install", "--quiet", "numpy", wanted.package],
    ):
        subprocess.run(command, check=True, capture_output=True, encoding="utf-8", errors="replace")
    return python


def find(wanted: Peer, named: Mapping[str, str], install: Path | None) -> tuple[str | None, str]:
    """An interpreter that can import a peer.

    Args:
        wanted: the peer.
        named: interpreters by the names of peers; no other is tried for those.
        install: where environments are made if no interpreter has the peer; None to make none.

    Returns:
        the interpreter, or None; and the reason if there is none.
    """
    reasons = []
    candidates = _candidates(wanted, named)
    if install is not None:
        candidates.insert(0, _interpreter(wanted, install))
    for python in candidates:
        lack = _lacks(python, wanted.module)
        if lack is None:
            return python, ""
        reasons.append(lack)
    hint = f"; its wheels are for {wanted.interpreters[0]}: give --python {wanted.package}=PATH" if wanted.interpreters else ""
    if install is None:
        return None, f"{reasons[0]}; --install DIR makes environments with the peers{hint}"
    for base in reversed(_candidates(wanted, named)):  # the one that was looked for on purpose first
        try:
            python = _installed(wanted, base, install)
        except (OSError, subprocess.CalledProcessError) as error:
            lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            reasons.append(lines[-1] if lines else str(error))
            continue
        lack = _lacks(python, wanted.module)
        if lack is None:
            return python, ""
        reasons.append(lack)
    return None, reasons[-1] + hint
