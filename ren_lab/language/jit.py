"""The decorators: they parse a function's source and never run its body."""

from collections.abc import Callable
from typing import Any, overload

from ren_lab.language.annotations import FunctionType, Level
from ren_lab.language.compile import Runnable, alone
from ren_lab.language.errors import LanguageError, depth_told, told_briefly
from ren_lab.language.parse_function import Declaration
from ren_lab.language.specialize import Specializer, submits
from ren_lab.language.structure import check_structure
from ren_lab.language.template import Template

PythonFunction = Callable[..., Any]


class JitFunction(Runnable):
    """What `@pl.jit` and its kin make of a function.

    Calling it compiles for the kind of its arguments (once per element types and shapes) and runs. Numbers are given at
    each call and compile nothing anew. A kernel (`@pl.jit.incore`, `@pl.jit.opaque`) that is called from Python runs as one
    task; an inline function has no call of its own.
    """

    ren_template = True

    def __init__(self, template: Template, function: PythonFunction | None = None) -> None:
        super().__init__(template)
        self.__name__ = template.name
        self.__doc__ = getattr(function, "__doc__", None)
        self.__wrapped__ = function
        look_at(template)

    def _entry(self) -> Template:
        kind = self._template.function.type
        if kind is FunctionType.Inline:
            raise LanguageError(
                f"function {self.__name__}", "it is an inline function, which has no call of its own",
                "call it from a function decorated with @pl.jit", self._template.function.loc,
            )  # fmt: skip
        return alone(self._template) if self._template.function.is_kernel else self._template

    def __repr__(self) -> str:
        return f"<{self._template.declaration.written} {self.__name__} at {self._template.function.loc.site}>"


class FunctionTemplate:
    """What `@pl.function` makes of a function: a part of a program class."""

    ren_template = True

    def __init__(self, template: Template) -> None:
        self.template = template
        self.__name__ = template.name

    def __repr__(self) -> str:
        return f"<pl.function {self.__name__} at {self.template.function.loc.site}>"


def look_at(template: Template) -> None:
    """Check what the source alone decides, and give the warnings that it gives rise to.

    Raises:
        LanguageError: it is wrong whatever the arguments are.
    """
    if template.function.type is not FunctionType.Inline:
        _look(template, template.function.is_kernel)
        return
    likely = not submits(template)  # an inline function belongs to kernels, to the submitting side, or to both
    try:
        _look(template, likely)
    except LanguageError as error:
        try:
            _look(template, not likely)
        except LanguageError:
            raise error from None


def _look(template: Template, in_kernel: bool) -> None:
    function = template.function
    check_structure(function, in_kernel)
    with depth_told(f"function {template.name}", function.loc):
        annotations = tuple(param.annotation for param in function.params)
        Specializer(partial=True).instance(template, annotations, kernel=in_kernel and not function.is_kernel)


class _Jit:
    """`@pl.jit`: a function that submits tasks, called with arrays.

    `@pl.jit(auto_scope=False)` leaves the placement of scopes to the function. The body is parsed, never executed.
    """

    @overload
    def __call__(self, function: PythonFunction, /) -> JitFunction: ...

    @overload
    def __call__(self, /, *, auto_scope: bool = True) -> Callable[[PythonFunction], JitFunction]: ...

    def __call__(self, function: PythonFunction | None = None, /, *, auto_scope: bool = True) -> Any:
        return _decorate(function, self.declare(auto_scope=auto_scope))

    @staticmethod
    def declare(auto_scope: bool = True) -> Declaration:
        """What the decorator says."""
        return Declaration("@pl.jit", FunctionType.Orchestration, auto_scope)

    def __init__(self) -> None:
        self.host = _Kind("@pl.jit.host", FunctionType.Orchestration, Level.HOST)
        self.incore = _Kind("@pl.jit.incore", FunctionType.InCore)
        self.inline = _Kind("@pl.jit.inline", FunctionType.Inline)
        self.opaque = _Kind("@pl.jit.opaque", FunctionType.Opaque)


class _Kind:
    """`@pl.jit.host`: an entry that may call other `@pl.jit` functions. `@pl.jit.incore`: a kernel. `@pl.jit.inline`: spliced
    into its callers. `@pl.jit.opaque`: a kernel that may hold `pl.at` blocks."""

    def __init__(self, written: str, type: FunctionType, level: Level | None = None) -> None:
        self._written = written
        self._type = type
        self._level = level

    def __call__(self, function: PythonFunction | None = None, /, *, auto_scope: bool = True, level: Level | None = None) -> Any:
        return _decorate(function, self.declare(auto_scope, level))

    def declare(self, auto_scope: bool = True, level: Level | None = None) -> Declaration:
        """What the decorator says."""
        if level is not None and self._level is not None:
            raise TypeError(f"{self._written} is given level={level}; it has one: leave it out")
        return Declaration(self._written, self._type, auto_scope, level or self._level)


def _decorate(function: PythonFunction | None, declaration: Declaration) -> Any:
    @told_briefly
    def make(function: PythonFunction) -> JitFunction:
        return JitFunction(Template.of(function, declaration), function)

    return make if function is None else make(function)


jit = _Jit()


class _Function:
    """`@pl.function(type=pl.FunctionType.InCore)`: one function of a program class."""

    def __call__(
        self,
        function: PythonFunction | None = None,
        /,
        *,
        type: FunctionType = FunctionType.Orchestration,
        auto_scope: bool = True,
        level: Level | None = None,
    ) -> Any:
        @told_briefly
        def make(function: PythonFunction) -> FunctionTemplate:
            code = getattr(function, "__code__", None)
            method = code is not None and code.co_varnames[:1] == ("self",)
            declaration = self.declare(type, auto_scope, level, not method)
            return FunctionTemplate(Template.of(function, declaration))

        return make if function is None else make(function)

    @staticmethod
    def declare(
        type: FunctionType = FunctionType.Orchestration,
        auto_scope: bool = True,
        level: Level | None = None,
        standalone: bool = False,
    ) -> Declaration:
        """What the decorator says."""
        return Declaration("@pl.function", type, auto_scope, level, standalone)


function = _Function()
