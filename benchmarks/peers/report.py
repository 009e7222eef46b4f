"""Tables for the terminal and for a page."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from peers.system import OPERATIONS, OURS
from peers.turns import Comparison

BEGIN = "<!-- begin: written by `python benchmarks/peers --write` -->"
END = "<!-- end: written by `python benchmarks/peers --write` -->"

_ACCOUNT_NOTE = (
    "Counts are of the plan: transforms of one limb, products for each of the n coefficients. Each kind and size was measured "
    "alone, in the same run; the sum leaves out products by constants, sums and permutations."
)

Rows = list[list[str]]


@dataclass(slots=True)
class Record:
    """Everything that a run measured; parts that it left out are None.

    Attributes:
        comparisons: one per setting and number of threads.
        account: `own.account` of the chain, with `n` and `depth`.
        overhead: `own.overhead` of the chain.
        first_use: `first_use.measure` by "cold" and "warm".
    """

    comparisons: list[Comparison] = field(default_factory=list)
    account: dict[str, Any] | None = None
    overhead: dict[str, Any] | None = None
    first_use: dict[str, dict[str, float]] | None = None

    def plain(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Record":
        """From plain data."""
        return cls(**{**plain, "comparisons": [Comparison.of(c) for c in plain["comparisons"]]})


def degree(log_n: int) -> str:
    """How a degree is written."""
    return f"n = 2^{log_n}"


def title(comparison: Comparison) -> str:
    """What a comparison is of."""
    setting = comparison.setting
    threads = f"{comparison.threads} thread{'s' * (comparison.threads != 1)}"
    insecure = "" if setting.secure else " (insecure, a trial)"
    return f"{degree(setting.log_n)}, {setting.depth} levels at scale 2^{setting.log2_scale}{insecure}, {threads}"


def number(value: float) -> str:
    """Three digits or so."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def times(comparison: Comparison) -> Rows:
    """Milliseconds, minimum/median, and how many times as long as this package, median [quartiles] of the rounds' ratios."""
    names = list(comparison.systems)
    rows = [["milliseconds", *names]]
    for operation in comparison.turns:
        cells = [OPERATIONS[operation].format(depth=comparison.setting.depth)]
        for name in names:
            seconds, ratio = comparison.seconds(operation, name), comparison.ratio(operation, name)
            cell = [f"{number(1e3 * min(seconds))}/{number(1e3 * statistics.median(seconds))}"] if seconds else []
            if ratio is not None and name != OURS:
                cell.append(f"×{number(ratio.median)} [{number(ratio.low)}, {number(ratio.high)}]")
            cells.append(", ".join(cell))
        rows.append(cells)
    return rows


def errors(comparison: Comparison) -> Rows:
    """Errors of slots, median/largest."""
    names = list(comparison.systems)
    rows = [["error of a slot", *names]]
    for operation in OPERATIONS:
        found = [comparison.errors[name].get(operation) for name in names]
        if any(found):
            label = OPERATIONS[operation].format(depth=comparison.setting.depth)
            rows.append([label, *(f"{e[0]:.1e}/{e[1]:.1e}" if e else "" for e in found)])
    return rows


def account(found: dict[str, Any]) -> Rows:
    """What the arithmetic of a replay costs when each piece is measured alone, and the replay."""
    rows = [["part of one replay", "count", "each, µs", "in all, ms"]]
    for kind, part in found["parts"].items():
        each = 1e6 * part["seconds"] / part["count"]
        rows.append([kind, f"{part['count']:,.0f}", number(each), number(1e3 * part["seconds"])])
    total = sum(part["seconds"] for part in found["parts"].values())
    rows.append(["sum", "", "", number(1e3 * total)])
    rows.append([f"replay, {found['kernels']} steps", "", f"×{number(found['replay'] / total)}", number(1e3 * found["replay"])])
    return rows


def first_use(found: dict[str, dict[str, float]]) -> Rows:
    """Seconds until the kernels of one product are there."""
    rows = [["seconds", *found]]
    labels = {
        "passes": "twelve passes, memory plan",
        "compile": "compiler found, kernels compiled and loaded",
        "run": "the product",
    }
    rows += [[label, *(f"{each[key]:.3f}" for each in found.values())] for key, label in labels.items()]
    return rows


def overhead(found: dict[str, Any]) -> str:
    """What a replayed call costs beside its native call, in words."""
    if found["native"] is None:
        return "The chain's plan does not run as one native call."
    least, median = (number(1e6 * seconds) for seconds in found["beyond"])
    return f"A replayed call of the chain takes {least}/{median} µs beyond its native call of {number(1e3 * found['native'])} ms."


def sections(record: Record) -> Iterator[tuple[str, Rows | None, Sequence[str]]]:
    """The parts of a report: a heading, a table, and lines below it."""
    for comparison in record.comparisons:
        yield title(comparison), times(comparison), [f"{n} is left out: {why}" for n, why in comparison.left_out.items()]
    for log_n in dict.fromkeys(c.setting.log_n for c in record.comparisons):
        widest = max((c for c in record.comparisons if c.setting.log_n == log_n), key=lambda c: len(c.systems))
        lines = [f"{name}: {description}" for name, description in widest.systems.items()]
        yield f"{degree(log_n)}: errors, and what each used", errors(widest), lines
    if record.account is not None:
        found = record.account
        heading = f"Where the time goes: {found['depth']} steps replayed, {degree(found['log_n'])}, 1 thread"
        yield heading, account(found), [_ACCOUNT_NOTE]
    if record.overhead is not None:
        yield "Replay", None, [overhead(record.overhead)]
    if record.first_use is not None:
        kernels = next(iter(record.first_use.values()))["kernels"]
        heading = f"First use: one product at the default parameters, {kernels:.0f} kernels, a fresh process"
        yield heading, first_use(record.first_use), []


def as_text(rows: Rows) -> str:
    """A table in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def as_markdown(rows: Rows) -> str:
    """A table of a page."""
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def terminal(record: Record) -> str:
    """The report as text."""
    parts = []
    for heading, rows, lines in sections(record):
        parts.append("\n".join([heading, *([as_text(rows)] if rows else []), *lines]))
    return "\n\n".join(parts)


def page(record: Record, picture: str) -> str:
    """The report as Markdown, with a picture."""
    parts = [f"![How many times as long as ren_lab each library takes]({picture})"] if record.comparisons else []
    for heading, rows, lines in sections(record):
        parts.append(f"**{heading}**" if rows else f"**{heading}.** {' '.join(lines)}")
        if rows:
            parts.append(as_markdown(rows))
            parts.append("\n".join(f"- {line}" for line in lines) if len(lines) > 1 else "".join(lines))
    return "\n\n".join(part for part in parts if part)


def write(path: Path, body: str) -> None:
    """Put `body` in place of what stands between the two markers of a page.

    Raises:
        ValueError: the page does not have each marker once, in order.
    """
    text = path.read_text("utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"{path.name} needs the lines {BEGIN!r} and {END!r}, once each and in this order")
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    path.write_text(f"{before}\n\n{body}\n\n{after}", "utf-8")
