"""Notebook magics: `%load_ext ren_lab` brings `%%ren_trace` and `%ren_devices`."""

import shlex
import sys
from typing import Any

_SHOWN = 3  # realizations with steppers of their own
_USAGE = "%%ren_trace [NAME] [--save FILE]"


def load(ip: Any) -> None:
    """Register the magics and the rich displays with an IPython shell."""
    from ren_lab.lens import register_displays

    register_displays(ip)
    ip.register_magic_function(lambda line, cell: ren_trace(ip, line, cell), "cell", "ren_trace")
    ip.register_magic_function(lambda line: ren_devices(), "line", "ren_devices")


def ren_trace(ip: Any, line: str, cell: str) -> None:
    """Run a cell under `ren.trace()` and show the steppers of what it realized.

    The line may hold a name for the recording (by default `recording`) and `--save FILE` for a page of it. A cell that raises
    is shown up to there; its error is reported as ever.
    """
    from ren_lab.lens import trace

    name, page = _options(line)
    with trace() as recording:
        result = ip.run_cell(cell)
    ip.user_ns[name] = recording
    traces = recording.realizations
    if not traces:
        if result.success:
            print("nothing was realized in this cell; call realize(), tolist() or numpy() in it")  # noqa: T201
        return
    for number, one in list(enumerate(traces))[-_SHOWN:]:
        _display(*_views(one), metadata={"ren_lab": {"realization": number}})
    if len(traces) > _SHOWN:
        print(f"the last {_SHOWN} of {len(traces)} realizations; all of them are in {name}.realizations")  # noqa: T201
    if page:
        recording.save(page)


def _views(one: Any) -> list[Any]:
    """The steppers of a trace; where widgets are not installed, the trace itself."""
    try:
        from .stepper import PassStepper, ScheduleStepper
    except ImportError:
        return [one]
    views: list[Any] = [PassStepper(one)]
    return [*views, ScheduleStepper(one)] if len(one.schedule) else views


def _display(*things: Any, **options: Any) -> None:
    """Show things in the running notebook; whoever called a magic has IPython."""
    sys.modules["IPython"].display.display(*things, **options)


def _options(line: str) -> tuple[str, str | None]:
    """Name of the recording, and the file of its page or None; IPython's `UsageError` for anything else."""
    from ren_lab.lens.page import page_target

    error: type[Exception] = sys.modules["IPython.core.error"].UsageError
    words = shlex.split(line)
    page = None
    if "--save" in words:
        at = words.index("--save")
        if at + 1 == len(words):
            raise error(f"--save needs a file: {_USAGE}")
        page = words[at + 1]
        try:
            page_target(page)  # before the cell runs, which may take long
        except (OSError, ValueError) as why:
            raise error(f"--save {page}: {why}") from None
        del words[at : at + 2]
    if len(words) > 1 or words and not words[0].isidentifier():
        raise error(f"{' '.join(words)!r} is not understood: {_USAGE}")
    return (words[0] if words else "recording"), page


def ren_devices() -> None:
    """Show the devices that there are, and what is missing for the others."""
    from ren_lab.backends import devices
    from ren_lab.lens.markup import fragment, table

    found = [(device.name, "yes" if device.available else "no", device.description) for device in devices()]
    text = "\n".join(f"{name:8} {'available' if there == 'yes' else 'not available':14} {what}" for name, there, what in found)
    html = fragment(table(["device", "available", ""], found))
    _display({"text/plain": text, "text/html": html}, raw=True)
