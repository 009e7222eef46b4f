"""One kernel on a device, ready to be called; and how its launches are put together."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ren_lab.backends.cuda.driver import Function
from ren_lab.backends.cuda.modules import Modules
from ren_lab.backends.cuda.program import Program
from ren_lab.backends.cuda.storage import Block, Constants, Queues, Storage
from ren_lab.backends.python.sampling import current_generator
from ren_lab.backends.render import Table


class Kernel:
    """A program on a device: call it with a storage per slot, outputs first. No output may overlap an input.

    It may be called by several threads at once; kernels of all of them run one after the other, in the order of the calls.

    Attributes:
        program: what it runs.
        shapes: of the slots that are the caller's.
    """

    def __init__(
        self, program: Program, modules: Modules, queues: Queues, constants: Callable[[Table], Constants], formula: str = ""
    ) -> None:
        self.program = program
        self.shapes = program.shapes[: program.buffers]
        self.temporaries = program.shapes[program.buffers :]
        self._modules, self._queues, self._constants = modules, queues, constants
        self._formula = formula
        self._key = modules.announce(program, formula)
        self._functions: list[Function] | None = None
        self._tables: tuple[Constants, ...] = ()
        self._template = np.zeros(1, program.call)

    def functions(self) -> list[Function]:
        """One per launch; compiled when first needed, and the constants are on the device then.

        Raises:
            CompileError, LaunchError: See `Modules.functions`.
        """
        if self._functions is None:
            functions = self._modules.functions(self._key, self.program, self._formula)
            with self._queues.lock:
                if self._functions is None:
                    self._tables = tuple(map(self._constants, self.program.tables))
                    template, numbers = self._template, self.program.numbers
                    template["table"][0, : len(self._tables)] = [table.address for table in self._tables]
                    template["number"][0, : len(numbers)] = numbers
                    self._functions = functions
        return self._functions

    def prepare(self) -> None:
        """Do all that the first call would do besides its work."""
        self.functions()

    def argument(self, frame: int, slots: Sequence[int]) -> np.ndarray:
        """The argument of its functions, an array of one `Program.call`; draws are left open."""
        self.functions()
        made = self._template.copy()
        made["frame"] = frame
        made["slot"][0, : len(slots)] = slots
        return made

    def launch(self, argument: np.ndarray, stream: Any) -> None:
        """Hand the launches to a stream.

        Raises:
            LaunchError: One is refused.
        """
        driver = self._queues.driver
        for launch, function in zip(self.program.launches, self.functions(), strict=True):
            driver.launch(function, launch.grid, launch.block, launch.shared, argument, stream)

    def __call__(self, *storages: Storage) -> None:
        for storage, shape in zip(storages, self.shapes, strict=True):
            if storage.shape != shape and shape[0]:
                raise ValueError(f"a kernel was given a storage of shape {storage.shape}; it works on {shape}")
        queues = self._queues
        temporaries = [Block(queues, 4 * rows * columns) for rows, columns in self.temporaries]
        argument = self.argument(0, [*(s.address for s in storages), *(b.address() for b in temporaries)])
        for place in self.program.draws:
            draw = current_generator().draw()
            argument["number"][0, place : place + 6].view(np.uint64)[:] = [*np.frombuffer(draw.key, "<u8"), draw.number, 0]
        with queues.lock:
            queues.settle(storage.block for storage in storages)
            self.launch(argument, queues.compute)


class HostKernel:
    """A kernel that runs on the host, for what the GPU has no program for: inputs are fetched, the output is sent.

    Args:
        run: called with uint32 arrays, output first.
        fetch, send: transfers from and to the device.
    """

    def __init__(
        self, run: Callable[..., None], fetch: Callable[[Storage], np.ndarray], send: Callable[[Storage, np.ndarray], None]
    ) -> None:
        self._run, self._fetch, self._send = run, fetch, send

    def __call__(self, out: Storage, *inputs: Storage) -> None:
        words = np.empty(out.shape, np.uint32)
        self._run(words, *map(self._fetch, inputs))
        self._send(out, words)
