"""Measuring: systems take turns at every operation, round by round, each round in the opposite order of the one before."""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from peers.processes import WorkerError
from peers.system import BESIDE, OPERATIONS, OURS, Setting

_MOST_REPEATS = 200


class Asked(Protocol):
    """Whatever answers a worker's requests."""

    def ask(self, do: str, **request: Any) -> Any: ...


@dataclass(slots=True)
class Comparison:
    """What was measured with one setting and one number of threads.

    Attributes:
        setting, threads: what every system was asked for.
        systems: descriptions by name, this package first.
        left_out: names of those that are not there, and why.
        turns: by operation and system, for each round the seconds of the calls of its turn.
        errors: by system and operation, the median and the largest error of a slot.
    """

    setting: Setting
    threads: int
    systems: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    turns: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    errors: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Comparison":
        """From plain data, as `asdict` gives it."""
        return cls(**{**plain, "setting": Setting(**plain["setting"])})

    def seconds(self, operation: str, system: str) -> list[float]:
        """Every measured call, or nothing."""
        return [second for turn in self.turns.get(operation, {}).get(system, ()) for second in turn]

    def ratio(self, operation: str, system: str) -> "Ratio | None":
        """How many times as long as this package another system takes; None where one of them does not do it."""
        theirs = self.turns.get(BESIDE.get(operation, operation), {}).get(system)
        ours = self.turns.get(operation, {}).get(OURS)
        return Ratio.of(theirs, ours) if theirs and ours else None


@dataclass(frozen=True, slots=True)
class Ratio:
    """Quartiles of the ratios of two systems' medians, round by round."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, theirs: list[list[float]], ours: list[list[float]]) -> "Ratio":
        """Of two lists of turns, one each per round."""
        ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(theirs, ours, strict=True)]
        if len(ratios) == 1:
            return cls(ratios[0], ratios[0], ratios[0])
        return cls(*statistics.quantiles(ratios, n=4, method="inclusive"))


def compare(
    setting: Setting,
    threads: int,
    workers: Mapping[str, Asked],
    rounds: int,
    seconds: float,
    advance: Callable[[str], None] = lambda operation: None,
) -> Comparison:
    """Set up every worker's system, measure its errors, and then its times.

    Args:
        setting, threads: what they are asked for.
        workers: by name, this package's first; it must work, others are left out when they can't be set up.
        rounds: how many turns each gets at each operation.
        seconds: how long a turn should be; it is at least one call, and one before that is not counted.
        advance: told of each operation of each round.

    Raises:
        WorkerError: this package fails, or another one after it was set up.
    """
    found = Comparison(setting, threads)
    offered: dict[str, list[str]] = {}
    for name, worker in workers.items():
        try:
            answer = worker.ask("set up", setting=asdict(setting), threads=threads)
            found.errors[name] = worker.ask("errors")
        except WorkerError as error:
            if name == OURS:
                raise
            found.left_out[name] = str(error)
        else:
            found.systems[name], offered[name] = answer["description"], answer["operations"]

    def turn(name: str, operation: str, repeats: int) -> list[float]:
        return workers[name].ask("time", operation=operation, repeats=repeats)["seconds"]

    repeats = {}
    for operation in OPERATIONS:
        for name in found.systems:
            if operation in offered[name]:
                (first,) = turn(name, operation, 1)
                repeats[operation, name] = min(max(1, round(seconds / max(first, 1e-9))), _MOST_REPEATS)
    for operation, name in _in_turns(list(repeats), list(found.systems), rounds):
        measured = found.turns.setdefault(operation, {}).setdefault(name, [])
        measured.append(turn(name, operation, repeats[operation, name]))
        advance(operation)
    return found


def _in_turns(pairs: list[tuple[str, str]], names: list[str], rounds: int) -> Iterator[tuple[str, str]]:
    """Every operation of every system once a round; systems in their order, then in reverse, and so on."""
    for number in range(rounds):
        for operation in OPERATIONS:
            yield from ((operation, name) for name in names[:: -1 if number % 2 else 1] if (operation, name) in pairs)
