"""From functions to a program: every function that is reached, once per kind of arguments it is called with."""

from dataclasses import replace
from typing import Any

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.annotations import Annotation, DynVar, FunctionType, Level
from ren_lab.language.check_calls import CallChecker, Summary, finished
from ren_lab.language.structure import check_structure
from ren_lab.language.template import RECURSION, Template
from ren_lab.language.values import Value

Annotations = tuple[Annotation | None, ...]


class Specializer:
    """Builds one program.

    `partial` is for looking at a function when it is decorated: functions that are not there yet are passed over.
    """

    def __init__(self, partial: bool = False) -> None:
        self.partial = partial
        self.functions: dict[str, ir.Function] = {}
        self._known: dict[Any, Summary] = {}
        self._open: list[Template] = []
        self._extents: dict[DynVar, str] = {}

    def program(self, template: Template, annotations: Annotations, title: str | None = None) -> ir.Program:
        """The program that begins with a function. Its name is `title`, or the function's in capitals."""
        summary = self.instance(template, annotations, kernel=False)
        title = title or "".join(part.capitalize() for part in template.name.split("_")) or "Main"
        return ir.Program(walk.fresh_name(title, self.functions), tuple(self.functions.values()), loc=summary.function.loc)

    def instance(self, template: Template, annotations: Annotations, kernel: bool) -> Summary:
        """A function for arguments of these types; `kernel` where it is called inside one."""
        named = tuple(a if a is None else replace(a, shape=self._named(a.shape)) for a in annotations)
        key = (id(template), named, kernel)
        if key not in self._known:
            self._known[key] = self._made(template, named, kernel)
        return self._known[key]

    def _named(self, shape: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """A shape in which dynamic extents are names, one per extent."""
        return None if shape is None else tuple(self._name(x) if isinstance(x, DynVar) else x for x in shape)

    def _name(self, extent: DynVar) -> str:
        if extent not in self._extents:
            self._extents[extent] = walk.fresh_name(extent.name, dict.fromkeys(self._extents.values()))
        return self._extents[extent]

    def _made(self, template: Template, annotations: Annotations, kernel: bool) -> Summary:
        function = template.function
        self._open.append(template)
        params = tuple(replace(p, annotation=a) for p, a in zip(function.params, annotations))
        name = walk.fresh_name(function.name, self.functions)
        # inside a kernel a function becomes part of it
        kind = FunctionType.Inline if kernel else function.type
        bound = replace(function, name=name, params=params, type=kind)
        checker = _Checker(bound, template, self, kernel or function.is_kernel)
        body = checker.checked()
        checker.function = finished(replace(bound, body=body), checker)
        self._open.pop()
        self.functions[name] = checker.function
        return checker.summary()

    def is_open(self, template: Template) -> bool:
        """Whether a function is being specialized right now."""
        return template in self._open


class _Checker(CallChecker):
    """Checks one function, and specializes those it calls."""

    def __init__(self, function: ir.Function, template: Template, specializer: Specializer, kernel: bool) -> None:
        super().__init__(function, template.warned)
        self._template = template
        self._specializer = specializer
        self.in_kernel = kernel
        self.partial = specializer.partial
        self.undirected = {param.name for param in template.function.params if param.annotation is None}

    def checked(self) -> ir.Block:
        """The checked body."""
        check_structure(self.function, self.in_kernel)
        self.enter(self.in_kernel)
        return self.run()

    def submits(self, call: ir.Call) -> bool:
        """Whether a function that is called submits or allocates; one that is not there yet may do either."""
        return _called_submits(self._template, call, ())

    def resolve(self, stmt: ir.Call, args: list[Value]) -> Summary | None:
        """Find the function by name, and specialize it."""
        found = self._template.lookup(stmt.callee, stmt.own)
        itself = stmt.callee == self._template.name and not self._template.methods  # a name that is bound once it is decorated
        if itself or found is not None and self._specializer.is_open(found):
            self.refuse(stmt, *RECURSION)
        if found is None:
            if not self._specializer.partial:
                self.refuse(stmt, "there is no such function", "define it, decorated, where this function sees it")
            return None
        kind = found.function.type
        entries = kind is FunctionType.Orchestration and not found.methods and found.declaration.standalone
        if entries and self.function.level is not Level.HOST:
            self.refuse(stmt, "it is an entry of its own (@pl.jit), which other entries do not call",
                        "make it @pl.jit.inline or @pl.jit.incore, or call it from a @pl.jit.host function")  # fmt: skip
        annotations = self.annotated(stmt, found.function, args)
        inside = self.in_kernel and kind is not FunctionType.Orchestration
        return self._specializer.instance(found, annotations, inside)


def submits(template: Template, around: tuple[Template, ...] = ()) -> bool:
    """Whether an inline function submits or allocates, by itself or through others; `around` are those on the way to it."""
    return walk.holds_tasks(template.function.body, lambda call: _called_submits(template, call, (*around, template)))


def _called_submits(template: Template, call: ir.Call, around: tuple[Template, ...]) -> bool:
    found = template.lookup(call.callee, call.own)
    if found is None or found in around:
        return False
    return found.function.type is not FunctionType.Inline or submits(found, around)
