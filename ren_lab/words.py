"""Sizes, counts and times as reports, errors and pictures say them."""

BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SECONDS = (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0))


def _three_digits(value: float) -> str:
    text = f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_bytes(nbytes: int) -> str:
    """`nbytes` in the binary unit that gives 1 to 1023, with up to three digits: 1536 -> "1.5 KiB"."""
    value = float(nbytes)
    for unit in BINARY_UNITS:
        # 1023.5 would print as 1024 of the smaller unit
        if value < 1023.5 or unit == BINARY_UNITS[-1]:
            break
        value /= 1024
    return f"{_three_digits(value).replace(',', '')} {unit}"


def format_seconds(seconds: float) -> str:
    """A time in the unit that gives 1 to 999 of it, with three digits: 0.00123 -> "1.23 ms". Negative times keep their sign."""
    if seconds < 0:
        return f"\N{MINUS SIGN}{format_seconds(-seconds)}"
    if seconds == 0:
        return "0 s"
    # 999.5 would print as 1,000
    unit, size = next(((unit, size) for unit, size in _SECONDS if seconds / size < 999.5), _SECONDS[-1])
    return f"{_three_digits(seconds / size)} {unit}"


def format_count(count: int, noun: str = "", plural: str | None = None) -> str:
    """A count with thousands apart, and its noun in the right number: 1 -> "1 node", 12345 -> "12,345 nodes"."""
    if not noun:
        return f"{count:,}"
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
