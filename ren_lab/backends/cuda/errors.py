"""What can go wrong on a GPU, in words."""

from dataclasses import dataclass

MIB = 1 << 20


class DeviceError(RuntimeError):
    """The driver refused a call, or a kernel failed. After a kernel has failed the process can't use the GPU any more."""


class LaunchError(DeviceError):
    """A kernel that the device can't run, or a launch that its driver refused; the message names kernel, launch and limit."""


class CompileError(RuntimeError):
    """NVRTC refused a kernel.

    Attributes:
        source: the text that was compiled.
        log: what NVRTC said.
    """

    def __init__(self, message: str, source: str, log: str) -> None:
        super().__init__(message)
        self.source, self.log = source, log


@dataclass(frozen=True, slots=True)
class MemoryState:
    """Bytes of a device's memory.

    Attributes:
        free, total: as the driver reports them; other processes use the device as well.
        pooled: held by this process's pool, and free in it.
        used: held by this process's pool, and in use.
    """

    free: int
    total: int
    pooled: int
    used: int

    def __str__(self) -> str:
        return (
            f"{self.free / MIB:.1f} MiB of {self.total / MIB:.1f} MiB are free, and {self.pooled / MIB:.1f} MiB in this process's "
            f"pool, which has {self.used / MIB:.1f} MiB in use"
        )


class OutOfMemory(MemoryError):
    """An allocation failed on a device.

    Attributes:
        nbytes: what was asked for.
        state: of the memory, after the pool had given back what it could.
        needs: what the plan that ran needs, in words, where that is known.
    """

    def __init__(self, device: str, nbytes: int, state: MemoryState, needs: str = "") -> None:
        self.device, self.nbytes, self.state, self.needs = device, nbytes, state, needs
        text = f"device {device!r} has no room for {nbytes / MIB:.1f} MiB: {state}"
        remedy = "release polynomials, use a smaller ring, or another device"
        super().__init__("; ".join([text, *([needs] if needs else []), remedy]))


def numbered(source: str, first: int, last: int, log: str) -> str:
    """Lines `first` to `last` of a source, each with its number, those that a log complains about marked."""
    marked = {int(part.split(")")[0]) for part in log.split(".cu(")[1:] if part.split(")")[0].isdecimal()}
    lines = source.splitlines()[first - 1 : last]
    return "\n".join(f"{'>' if number in marked else ' '}{number:5d} | {line}" for number, line in enumerate(lines, first))
