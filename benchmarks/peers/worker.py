"""The process of one library: it reads requests, one JSON object a line, and answers each with one.

    {"do": "set up", "setting": {…}, "threads": 2}       -> {"description": …, "operations": […]}
    {"do": "time", "operation": "rotate", "repeats": 3}  -> {"seconds": […]}
    {"do": "errors"}                                     -> {"rotate": [median, largest], …}
    {"do": "…"}                                          -> what the system's method of that name gives

A request that fails is answered with {"error": "what happened"}. What libraries print goes to stderr.
"""

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, TextIO

import numpy as np

from peers.system import Setting, System, expected

MODULES = {"ren_lab": "ren", "OpenFHE": "openfhe", "SEAL": "seal", "desilofhe": "desilofhe"}
"""The module under `peers.systems` of each system."""

_STEP = 0.03  # seconds; longer than OpenMP's threads pause between two looks for work
_STILL = 0.1  # share of one processor
_LONGEST = 2.0  # seconds


def settle() -> None:
    """Wait until this process uses no processor time any more: threads of OpenMP spin for a while after their work."""
    end = time.perf_counter() + _LONGEST
    while time.perf_counter() < end:
        used = time.process_time()
        time.sleep(_STEP)
        if time.process_time() - used < _STILL * _STEP:
            return


def timed(operation: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls, after one that is not counted. The result is let go within the time."""
    gc.collect()
    gc.disable()
    try:
        operation()
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            operation()
            seconds.append(time.perf_counter() - start)
        return seconds
    finally:
        gc.enable()


def errors(system: System, values: np.ndarray, depth: int) -> dict[str, list[float]]:
    """Median and largest error of the slots of every operation that gives a ciphertext."""
    found = {}
    for name, operation in system.operations.items():
        try:
            wanted = expected(name, values, depth)
        except KeyError:
            continue
        size = np.abs(system.opened(operation())[: len(wanted)] - wanted)
        found[name] = [float(np.median(size)), float(np.max(size))]
    return found


def serve(make: Callable[[Setting, np.ndarray, int], System], requests: Iterable[str], answers: TextIO) -> None:
    """Answer requests until there are no more."""
    system: System | None = None
    setting, values = Setting(0, 0, 0), np.zeros(0)

    def answer(request: dict[str, Any]) -> Any:
        nonlocal system, setting, values
        do = request.pop("do")
        if do == "set up":
            setting = Setting(**request["setting"])
            values = np.random.default_rng(0).uniform(-1, 1, setting.n // 2)
            system = make(setting, values, request["threads"])
            return {"description": system.description, "operations": list(system.operations)}
        assert system is not None, "set up comes first"
        if do == "time":
            seconds = timed(system.operations[request["operation"]], request["repeats"])
            system.tidy()
            return {"seconds": seconds}
        if do == "errors":
            return errors(system, values, setting.depth)
        return getattr(system, do)(**request)

    for line in requests:
        try:
            given = answer(json.loads(line))
        except Exception as error:
            given = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        settle()
        answers.write(json.dumps(given) + "\n")
        answers.flush()


def main(name: str) -> None:
    """Serve the system of that name on this process's standard input and output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library's messages must not mix with answers
    module = importlib.import_module(f"peers.systems.{MODULES[name]}")
    serve(module.make, sys.stdin, answers)
