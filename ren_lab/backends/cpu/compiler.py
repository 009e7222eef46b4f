"""Finding a C compiler, and calling it."""

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ren_lab.backends.base import DeviceUnavailable

NATIVE = Path(__file__).with_name("native")
"""Where the sources that all kernels share are."""

WORDS = ("native", "avx512", "avx2", "scalar")
"""Which vectors kernels are built for: the host's best, one kind by name, or none at all."""

_COMMON = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
_HINT = (
    "device 'cpu' needs a C compiler; install gcc or clang, or run `pip install ziglang`, or name one in the environment "
    "variable CC; device 'python' works without"
)


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler with the flags that kernels are built with.

    Attributes:
        command: how it is called.
        version: the first line that it says about itself.
        flags: of every call.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]

    @property
    def identity(self) -> str:
        """Everything but the source that a binary depends on: compiler, flags and processor."""
        return "\0".join([*self.command, self.version, *self.flags, processor()])

    def build(self, source: str, target: Path, scalar: bool = False) -> None:
        """A shared library from C.

        Raises:
            RuntimeError: The compiler refuses; with its message.
        """
        with tempfile.TemporaryDirectory(prefix="ren-lab-") as folder:
            file = Path(folder, "kernels.c")
            file.write_text(source, encoding="utf-8")
            extra = ("-DREN_SCALAR",) if scalar else ()
            command = [*self.command, *self.flags, *extra, f"-I{NATIVE}", str(file), "-o", str(target), *_libraries()]
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise RuntimeError(
                f"the C compiler failed with status {done.returncode}: {shlex.join(command)}\n" + "\n".join(lines[:20])
                + "\nname another compiler in the environment variable CC, or use device 'python'"
            )  # fmt: skip


def _libraries() -> tuple[str, ...]:
    return () if sys.platform == "win32" else ("-lpthread",)


def _candidates(cc: str | None) -> list[tuple[str, ...]]:
    """Ways to call a compiler, best first. A compiler that the user names is the only one."""
    if cc:
        return [tuple(shlex.split(cc))]
    found: list[tuple[str, ...]] = [(name,) for name in ("cc", "gcc", "clang") if shutil.which(name)]
    if importlib.util.find_spec("ziglang"):
        found.append((sys.executable, "-m", "ziglang", "cc"))
    return found


def _version(command: tuple[str, ...]) -> str | None:
    """The first line of `--version`, or None where that is no compiler."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def _vector_flags(words: str, machine: str) -> list[tuple[str, ...]]:
    """Flags to try, best first."""
    if words == "scalar":
        return [("-DREN_SCALAR",)]
    if words == "avx512":
        return [("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2")]
    if words == "avx2":
        return [("-mavx2", "-mno-avx512f")]
    if machine in ("x86_64", "amd64", "i686"):
        return [("-march=native",), ()]
    return [("-mcpu=native",), ("-march=native",), ()]


def find_compiler(cc: str | None = None, words: str = "native", extra_flags: tuple[str, ...] = ()) -> Compiler:
    """The compiler to use.

    Args:
        cc: how the user wants it to be called (`CC`), or None to look for `cc`, `gcc`, `clang` and the `ziglang` wheel.
        words: one of `WORDS`.
        extra_flags: appended to every call.

    Raises:
        DeviceUnavailable: There is none that works.
        ValueError: `words` is not one of `WORDS`.
    """
    if words not in WORDS:
        raise ValueError(f"words is {words!r}; choose one of {', '.join(WORDS)}")
    for command in _candidates(cc):
        version = _version(command)
        if version is None:
            continue
        options = _vector_flags(words, platform.machine().lower())
        for flags in options:
            compiler = Compiler(command, version, (*_COMMON, *flags, *extra_flags))
            if len(options) == 1 or _accepts(compiler):
                return compiler
    if cc:
        raise DeviceUnavailable(f"the compiler {cc!r} that CC names does not run; {_HINT}")
    raise DeviceUnavailable(_HINT)


def _accepts(compiler: Compiler) -> bool:
    """Whether the flags are known to the compiler; it reads an empty program and writes nothing."""
    command = [*compiler.command, *compiler.flags, "-E", "-x", "c", os.devnull, "-o", os.devnull]
    try:
        return subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def processor() -> str:
    """What tells processors apart whose native binaries may differ."""
    text = [platform.system(), platform.machine(), platform.processor()]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for name in ("model name", "flags", "Features", "CPU part"):
        text += [line for line in lines if line.startswith(name)][:1]
    return "\n".join(text)


def digest(*parts: str) -> str:
    """A name for texts: 32 hexadecimal digits of their SHA-256."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def shared_sources() -> str:
    """The text of every shared source file, which all binaries depend on."""
    return "\n".join(f.read_text(encoding="utf-8") for f in sorted(NATIVE.glob("*.[ch]")))
