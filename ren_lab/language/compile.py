"""From a program to something that runs: passes, kernels, the submitting side."""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.annotations import Annotation, FunctionType, Level
from ren_lab.language.arguments import bind, in_order
from ren_lab.language.check_program import ProgramChecker, check_program
from ren_lab.language.emit_kernel import KernelEmitter
from ren_lab.language.emit_orchestration import OrchestrationEmitter
from ren_lab.language.errors import LanguageError, depth_told, told_briefly
from ren_lab.language.passes import PassRecord, run_passes
from ren_lab.language.regions import Read, reads_of
from ren_lab.language.specialize import Specializer
from ren_lab.language.structure import has_stray_tasks
from ren_lab.language.substitute import unshared
from ren_lab.language.template import Template
from ren_lab.runtime import RunConfig, RunReport, TaskError, Worker
from ren_lab.runtime.worker import checked_config


@dataclass(frozen=True, eq=False)
class Lowered:
    """A program behind all passes.

    Attributes:
        program: the program; `str()` is Python.
        passes: what each pass did.
    """

    program: ir.Program
    passes: tuple[PassRecord, ...] = field(repr=False)

    def as_python(self) -> str:
        """The program as Python, which `pl.parse` reads back to the same program."""
        return str(self.program)

    @functools.cached_property
    def reads(self) -> tuple[Read, ...]:
        """Every read of every kernel, with the cache policy that holds for it."""
        checkers = check_program(self.program)
        return tuple(read for c in checkers.values() if c.function.is_kernel for read in reads_of(c))

    def __str__(self) -> str:
        return self.as_python()


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """A kernel as NumPy code.

    Attributes:
        name: the function's name.
        source: its text.
        function: takes tensors (NumPy arrays) and scalars as the program's function does, and `block` and `blocks`.
        kind: the core it wants where a chip is modelled: "cube" where it multiplies matrices, otherwise "vector"; None for a
            block at another level than CORE_GROUP, which runs anywhere.
    """

    name: str
    source: str
    function: Any = field(repr=False)
    kind: str | None


class Compiled(Lowered):
    """A program that can be run, `compiled(*args, config=RunConfig(…))`, on arguments like those it was compiled for.

    Attributes:
        kernels: the kernels by name.
        others: what stands in blocks at other levels than CORE_GROUP, by name: tasks of such blocks are no kernels.
        source: the text of the submitting side.
    """

    def __init__(self, program: ir.Program, passes: tuple[PassRecord, ...], parameters: ir.Function) -> None:
        super().__init__(program, passes)
        unique = ir.Program(program.name, tuple(unshared(f) for f in program.functions))
        checkers = check_program(unique)
        tasks = {f.name: _kernel(f, checkers[f.name]) for f in unique.functions if f.is_kernel}
        self.kernels = {name: task for name, task in tasks.items() if task.kind is not None}
        self.others = {name: task for name, task in tasks.items() if task.kind is None}
        self._parameters = parameters
        self._root = has_stray_tasks(unique, unique.entry)
        sources, namespace = [], _launches(tasks)
        for function in unique.functions:
            if function.is_kernel:
                continue
            emitter = OrchestrationEmitter(function, checkers[function.name], unique, {k: v.kind for k, v in tasks.items()})
            emitter.write()
            namespace[f"{function.name}_function"] = emitter.compiled({**emitter.namespace(), **namespace})
            sources.append(emitter.source)
        self.source = "\n\n".join(sources)
        self._entry = namespace[f"{unique.entry.name}_function"]

    def __repr__(self) -> str:
        count = len(self.kernels)
        return f"<compiled {self.program.entry.name}: {count} kernel{'s' * (count != 1)}>"

    def __call__(self, *args: Any, config: RunConfig | None = None, **named: Any) -> Any:
        """Run, and return what the function returns: the tensors given, in place; copies of those it created."""
        return self.run(*args, config=config, **named).result

    def run(self, *args: Any, config: RunConfig | None = None, timeline: bool = False, **named: Any) -> RunReport:
        """Run, and return the runtime's report; its `result` is what the function returns.

        Raises:
            LanguageError: an argument does not fit, or an access is out of bounds.
            RingCapacityError, StalledRunError, TaskError: see `Worker.run`.
        """
        config = checked_config(config)
        args = in_order(self._parameters, args, named)
        values = bind(self._parameters, args).values
        given = {id(value): arg for value, arg in zip(values, args)}

        def program(orch: Any) -> Any:
            with np.errstate(all="ignore"):  # as in kernels: infinities and NaNs without a word
                results = self._entry(orch, *values) or ()
            returned = tuple(given.get(id(value), value) for value in results)
            return returned[0] if len(returned) == 1 else returned or None

        if config.save_kernels:
            program.__ren_source__ = self.as_python()  # type: ignore[attr-defined]
        try:
            with Worker(config) as worker:
                return worker.run(program, root=self._root, site=self.program.entry.loc.site, timeline=timeline)
        except TaskError as error:
            cause = error.__cause__
            if isinstance(cause, LanguageError):  # the program's own fault: say it in the program's own terms
                raise LanguageError(cause.construct, cause.rule, cause.remedy, cause.loc) from error
            raise


def _kernel(function: ir.Function, checker: ProgramChecker) -> CompiledKernel:
    emitter = KernelEmitter(function, checker)
    emitter.write()
    made = emitter.compiled(emitter.namespace())
    multiplies = any(
        isinstance(e, ir.Op) and e.name in ("matmul", "matmul_acc") or isinstance(e, ir.Binary) and e.op == "@"
        for stmt in walk.statements(function.body)
        for e in walk.all_exprs(stmt)
    )
    kind = None if function.level not in (None, Level.CORE_GROUP) else "cube" if multiplies else "vector"
    return CompiledKernel(function.name, emitter.source, made, kind)


def _launches(kernels: dict[str, CompiledKernel]) -> dict[str, Any]:
    """What the submitting side makes of a kernel and its arguments: a call that the runtime gives the regions, too."""
    result: dict[str, Any] = {}
    for name, kernel in kernels.items():
        launch = type(name, (functools.partial,), {"__slots__": (), "__ren_source__": kernel.source})
        result[f"{name}_launch"] = functools.partial(launch, kernel.function)
    return result


class Runnable:
    """What can be lowered, compiled and called: a function that submits tasks, or a program."""

    _template: Template
    _title: str | None = None

    def __init__(self, template: Template) -> None:
        self._template = template
        self._compiled: dict[tuple[Annotation, ...], Compiled] = {}
        self._lock = threading.Lock()

    @property
    def template(self) -> Template:
        """The parsed function."""
        return self._template

    def _entry(self) -> Template:
        """The function that a run begins with."""
        return self._template

    @told_briefly
    def lower(self, *args: Any, **named: Any) -> Lowered:
        """The program for arguments like these, behind all passes, with a record of each."""
        entry = self._entry()
        args = in_order(entry.function, args, named)
        return Lowered(*self._passed(entry, bind(entry.function, args).annotations))

    def _passed(self, entry: Template, key: tuple[Annotation, ...]) -> tuple[ir.Program, tuple[PassRecord, ...]]:
        with depth_told(f"function {entry.name}", entry.function.loc):
            return run_passes(Specializer().program(entry, key, self._title))

    @told_briefly
    def compile(self, *args: Any, **named: Any) -> Compiled:
        """The program for arguments like these, ready to run. Another size of a dynamic extent is the same program."""
        entry = self._entry()
        args = in_order(entry.function, args, named)
        key = bind(entry.function, args).annotations
        with self._lock:
            if key not in self._compiled:
                program, passes = self._passed(entry, key)
                self._compiled[key] = Compiled(program, passes, _open(entry.function, key))
            return self._compiled[key]

    def __call__(self, *args: Any, config: RunConfig | None = None, **named: Any) -> Any:
        """Compile for arguments like these where that has not been done, and run.

        Args:
            args, named: NumPy arrays, CPU tensors of torch, and numbers, one per parameter; tensors are written in place.
            config: where and how it runs; the default is `RunConfig()`, platform "cpu".
        """
        checked_config(config)  # before anything is compiled
        return self.compile(*args, **named)(*args, config=config, **named)

    def run(self, *args: Any, config: RunConfig | None = None, timeline: bool = False, **named: Any) -> RunReport:
        """Like a call, with the runtime's report as the result."""
        checked_config(config)
        return self.compile(*args, **named).run(*args, config=config, timeline=timeline, **named)


def _open(function: ir.Function, annotations: Sequence[Annotation]) -> ir.Function:
    """The function with the annotations it was compiled for, to check later arguments against."""
    params = tuple(replace(param, annotation=a) for param, a in zip(function.params, annotations))
    return replace(function, params=params)


def alone(template: Template) -> Template:
    """A function that submits one kernel, for calling the kernel from Python."""
    kernel = template.function
    last = kernel.body[-1] if kernel.body else None
    count = len(last.values) if isinstance(last, ir.Return) else 0
    targets = tuple(f"result_{k}" for k in range(count))
    args = tuple(ir.Name(param.name, loc=kernel.loc) for param in kernel.params)
    call = ir.Call(kernel.name, args, targets, loc=kernel.loc)
    back = ir.Return(tuple(ir.Name(name, loc=kernel.loc) for name in targets), loc=kernel.loc)
    function = ir.Function(f"{kernel.name}_alone", FunctionType.Orchestration, kernel.params, (call, back), loc=kernel.loc)
    made = Template(function, template.declaration, template.names)
    made.methods = {kernel.name: template}
    return made
