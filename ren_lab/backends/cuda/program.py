"""Kernels as CUDA programs: the text of their functions, and how these are launched.

A program is one function per step, launched one after the other on one stream. All of them take one argument, a structure by
value that holds where the buffers are, the tables and the numbers: `Program.call` is its layout. Nothing here needs a device
or touches one.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from ren_lab.backends.render import Table
from ren_lab.ir import Node

NATIVE = Path(__file__).with_name("native")
"""Where the sources that all kernels share are."""

_PARTS = ("words.cuh", "sums.cuh", "transform.cuh", "../../cpu/native/sampling.h", "random.cuh")

ALIGNMENT = 16
"""Buffers and tables stand at multiples of so many bytes (a view of a buffer at whole rows of n >= 4 does by itself)."""


@dataclass(frozen=True, slots=True)
class Device:
    """What launches depend on.

    Attributes:
        name: for people.
        major, minor: compute capability.
        multiprocessors: how many there are.
        shared_per_block: bytes of shared memory that a block may have at most, when it asks for them (the opt-in maximum).
    """

    name: str
    major: int
    minor: int
    multiprocessors: int
    shared_per_block: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a program.

    Attributes:
        function: the name in the program's text, which begins with "KERNEL".
        grid: blocks in x, y and z.
        block: threads of a block, in x.
        shared: bytes of dynamic shared memory of a block.
    """

    function: str
    grid: tuple[int, int, int]
    block: int
    shared: int

    def __post_init__(self) -> None:
        x, y, z = self.grid
        if not (0 < x < 1 << 31 and 0 < y < 1 << 16 and 0 < z < 1 << 16 and 0 < self.block <= 1024 and self.shared >= 0):
            raise ValueError(
                f"{self.function} can't be launched as {self.grid} blocks of {self.block} threads with {self.shared} bytes: "
                "at most 2^31 - 1, 2^16 - 1 and 2^16 - 1 blocks of 1024 threads; use a ring with fewer limbs"
            )


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel body as CUDA functions and their launches, and what they are called with.

    Attributes:
        code: the source without `header()`; "KERNEL" stands for the symbol that the backend gives it.
        launches: in order; each sees what those before it wrote.
        numbers, tables: the parameters.
        legend: what each of them is, a line each.
        shapes: of the slots: output, inputs, temporaries.
        buffers: how many of the slots the caller provides; the others are allocated by the backend.
        n: the degree.
        draws: for each random draw of the kernel, the place of its first number. The key and the nonce are filled in there at each
            call (`numbers` holds zeros): numbers [place, place + 4) are the eight words of the key, two in a number, the first in
            its low half; place + 4 is the number of the draw, place + 5 zero.
    """

    code: str
    launches: tuple[Launch, ...]
    numbers: tuple[int, ...]
    tables: tuple[Table, ...]
    legend: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...]
    buffers: int
    n: int
    draws: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The source for people: the code with its parameters and launches explained."""
        launches = [
            f"{each.function}: {' x '.join(map(str, each.grid))} blocks of {each.block} threads, {each.shared} bytes shared"
            for each in self.launches
        ]
        lines = [f" * {line}" for line in (*self.legend, *launches)]
        return "\n".join(["/*", *lines, " */", self.code]).replace("KERNEL_", "stage_").replace("KERNEL", "kernel")

    @property
    def call(self) -> np.dtype:
        """The layout of the functions' argument.

        frame: zero, or the address of an array of addresses in device memory. slot: of each entry of `shapes`, the address of the
        buffer; with a frame, its place in that array. table: device addresses of the arrays of `tables`. number: `numbers`. Each
        has at least one entry.
        """
        slots, tables, numbers = (max(1, len(x)) for x in (self.shapes, self.tables, self.numbers))
        return np.dtype([("frame", "u8"), ("slot", "u8", (slots,)), ("table", "u8", (tables,)), ("number", "i8", (numbers,))])


def program(ast: Node, device: Device) -> Program:
    """The program of a kernel body.

    The text depends on the body's structure and on classes of sizes, not on moduli or numbers of limbs, so many kernels share one.

    Raises:
        NotImplementedError: the body holds something that only the interpreter knows.
        ValueError: it is too large for the device.
    """
    from ren_lab.backends.cuda.writer import write

    return write(ast, device)


@cache
def header() -> str:
    """What the text of a module begins with; the kernels' codes follow. It includes nothing."""
    return "\n".join((NATIVE / part).read_text(encoding="utf-8") for part in _PARTS)
