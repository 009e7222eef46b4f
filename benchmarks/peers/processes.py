"""Processes that answer requests."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

_FOLDER = str(Path(__file__).resolve().parents[1])  # holds the package, and is no import path of the child otherwise
_PATIENCE = 10.0  # seconds that a worker gets to end by itself


class WorkerError(RuntimeError):
    """A worker could not do what it was asked for; the message is the worker's."""


def program(code: str) -> str:
    """Python code for `-c` that finds this package, in whatever environment."""
    return f"import sys; sys.path.insert(0, {_FOLDER!r}); {code}"


def environment(threads: int) -> dict[str, str]:
    """This process's environment, with one number of threads for every library that reads it there."""
    count = str(threads)
    return {**os.environ, "OMP_NUM_THREADS": count, "REN_THREADS": count}


class Worker:
    """One library's process; it ends with the `with` block.

    Args:
        python: the interpreter.
        code: what it runs; it answers each line on its standard input with one line of JSON.
        threads: how many the library may use.
    """

    def __init__(self, python: Sequence[str], code: str, threads: int) -> None:
        self._messages = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*python, "-c", program(code)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            env=environment(threads),
            encoding="utf-8",
        )

    def ask(self, do: str, **request: Any) -> Any:
        """The answer to a request.

        Raises:
            WorkerError: the worker says that it failed, or it has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"the process ended: {self._last_message()}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _last_message(self) -> str:
        self._process.wait(_PATIENCE)
        self._messages.seek(0)
        lines = self._messages.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"status {self._process.returncode}"

    def close(self) -> None:
        """Let it end, or end it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(_PATIENCE)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._messages.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def once(code: str, *arguments: str, threads: int = 1) -> Any:
    """What a fresh process of this interpreter prints, read as JSON.

    Raises:
        WorkerError: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-c", program(code), *arguments], capture_output=True, env=environment(threads), encoding="utf-8"
    )
    if done.returncode:
        raise WorkerError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}")
    return json.loads(done.stdout)
