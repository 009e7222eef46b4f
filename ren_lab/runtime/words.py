"""Counts, sizes and times as the runtime's reports and errors say them; the views have their own, which this layer does not see."""

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_SECONDS = (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0))


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count and its noun in the right number: 1 -> "1 task", 12345 -> "12,345 tasks"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def size(nbytes: int) -> str:
    """Bytes in the binary unit that gives 1 to 1023 of it, with up to three digits: 1536 -> "1.5 KiB"."""
    value, unit = float(nbytes), 0
    while value >= 1023.5 and unit < len(_BYTES) - 1:  # 1023.5 would print as 1024
        value, unit = value / 1024, unit + 1
    return f"{_three_digits(value)} {_BYTES[unit]}"


def duration(seconds: float) -> str:
    """A time in the unit that gives 1 to 999 of it, up to seconds, with up to three digits: 2.608e-06 -> "2.61 µs"."""
    unit, scale = next(((unit, scale) for unit, scale in _SECONDS if seconds / scale < 999.5), _SECONDS[-1])
    return "0 s" if not seconds else f"{_three_digits(seconds / scale)} {unit}"


def scope_place(site: str, name: str | None) -> str:
    """A scope's source line behind its name, where it has one: "'phase' at program.py:4", "at program.py:4"."""
    return f"{name!r} at {site}" if name else f"at {site}"


def _three_digits(value: float) -> str:
    text = f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
