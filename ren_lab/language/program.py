"""Programs: classes of functions, and programs given as text."""

import ast
import difflib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.annotations import DynVar, FunctionType, dynamic
from ren_lab.language.compile import Runnable, alone
from ren_lab.language.errors import NOWHERE, LanguageError, Loc, told_briefly
from ren_lab.language.jit import FunctionTemplate, JitFunction, function, jit, look_at
from ren_lab.language.parse_expr import MISSING, ExprParser
from ren_lab.language.parse_function import Declaration, parse_function
from ren_lab.language.source import Source, as_number, is_number, text_tree
from ren_lab.language.template import RECURSION, Template

_KINDS = (jit, jit.host, jit.incore, jit.inline, jit.opaque, function)


class Program(Runnable):
    """What `@pl.program` makes of a class, and `pl.parse` of a text: functions that call each other as `self.name(…)`.

    A run begins with the function that submits tasks and that no other calls.

    Attributes:
        functions: the parsed functions by name.
    """

    def __init__(self, name: str, templates: Iterable[Template], loc: Loc = NOWHERE) -> None:
        self.__name__ = self._title = name
        self.functions = {template.name: template for template in templates}
        self._loc = loc
        for template in self.functions.values():
            template.methods = self.functions
        self._check_calls()
        super().__init__(self._chosen())
        for template in self.functions.values():
            look_at(template)

    def _check_calls(self) -> None:
        """Raise for calls of functions that are not there, and for functions that call themselves."""
        calls: dict[str, list[ir.Call]] = {}
        for name, template in self.functions.items():
            made = [stmt for stmt in walk.statements(template.function.body) if isinstance(stmt, ir.Call)]
            calls[name] = [call for call in made if call.own or call.callee in self.functions]
        for call in (call for found in calls.values() for call in found if call.callee not in self.functions):
            close = difflib.get_close_matches(call.callee, self.functions, 1)
            raise LanguageError(
                f"call of self.{call.callee}", f"the program {self.__name__} has no function {call.callee!r}",
                f"did you mean self.{close[0]}?" if close else "define it in the class, decorated with @pl.function", call.loc,
            )  # fmt: skip
        for name in calls:
            reached: set[str] = set()
            stack = list(calls[name])
            while stack:
                call = stack.pop()
                if call.callee == name:
                    raise LanguageError(f"call of self.{name}", *RECURSION, call.loc)
                if call.callee not in reached:
                    reached.add(call.callee)
                    stack.extend(calls[call.callee])

    def _chosen(self) -> Template:
        called = {s.callee for t in self.functions.values() for s in walk.statements(t.function.body) if isinstance(s, ir.Call)}
        entries = [t for t in self.functions.values() if t.function.type is FunctionType.Orchestration and t.name not in called]
        if not entries:
            entries = [t for t in self.functions.values() if t.function.is_kernel and t.name not in called]
        if len(entries) != 1:
            names = ", ".join(t.name for t in entries) or "none"
            raise LanguageError(f"program {self.__name__}", f"functions where a run could begin: {names}",
                                "leave one Orchestration function that no other calls", self._loc)  # fmt: skip
        return entries[0]

    def _entry(self) -> Template:
        return alone(self._template) if self._template.function.is_kernel else self._template

    @property
    def ir(self) -> ir.Program:
        """The functions as they are written, the entry last; dynamic extents are names."""
        others = [t.function for t in self.functions.values() if t is not self._template]
        functions = tuple(_with_names(f) for f in (*others, self._template.function))
        return ir.Program(self.__name__, functions, loc=self._loc)

    def as_python(self) -> str:
        """The functions as they are written, as Python."""
        return str(self.ir)

    def __repr__(self) -> str:
        return f"<pl.program {self.__name__}: {', '.join(self.functions)}>"


def _with_names(function: ir.Function) -> ir.Function:
    params = []
    for param in function.params:
        annotation = param.annotation
        if annotation is not None and annotation.shape is not None:
            shape = tuple(x.name if isinstance(x, DynVar) else x for x in annotation.shape)
            annotation = replace(annotation, shape=shape)
        params.append(replace(param, annotation=annotation))
    return replace(function, params=tuple(params))


@told_briefly
def program(cls: type) -> Program:
    """`@pl.program`: a class whose methods are `@pl.function`s becomes a program, which can be called, lowered and compiled.

    Raises:
        LanguageError: it has no function where a run begins, or several.
    """
    if not isinstance(cls, type):
        raise TypeError(f"@pl.program decorates a {type(cls).__name__}; decorate a class")
    templates = [value.template for value in vars(cls).values() if isinstance(value, FunctionTemplate)]
    loc = templates[0].function.loc if templates else NOWHERE
    return Program(cls.__name__, templates, loc)


# -- text -------------------------------------------------------------------------------------------------------------------


@told_briefly
def parse(text: str, filename: str | None = None) -> Any:
    """The last program or function of a module that is given as text; nothing of it is executed.

    The module may import the language, define constants and `pl.dynamic` extents, functions under the decorators of the
    language, and `@pl.program` classes.

    Args:
        text: the module.
        filename: how errors name it.

    Returns:
        a `Program`, or a `JitFunction`.

    Raises:
        LanguageError: it holds something else, or a function is wrong.
    """
    tree, source = text_tree(text, filename)
    return _Module(source).read(tree)


class _Module:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._names: dict[str, Any] = {}
        self._last: Any = None

    def read(self, tree: ast.Module) -> Any:
        for node in tree.body:
            match node:
                case ast.Import() | ast.ImportFrom():
                    self._import(node)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    self._names[name] = self._constant(node.value)
                case ast.FunctionDef():
                    self._names[node.name] = self._last = self._function(node)
                case ast.ClassDef():
                    self._last = self._program(node)
                case ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    raise self._error(
                        node,
                        ast.unparse(node).partition("\n")[0],
                        "a text holds imports, constants, functions and programs only",
                        "put it into a file that Python runs",
                    )
        if self._last is None:
            raise self._error(tree, "text", "it defines no function and no program", "define one with @pl.jit or @pl.program")
        return self._last

    def _error(self, node: ast.AST, construct: str, rule: str, remedy: str) -> LanguageError:
        return LanguageError(construct, rule, remedy, self._source.loc(node))

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        import ren_lab.language as language

        for alias in node.names:
            if isinstance(node, ast.Import) and alias.name == "ren_lab.language" and alias.asname:
                self._names[alias.asname] = language
            elif isinstance(node, ast.ImportFrom) and (node.module, alias.name) == ("ren_lab", "language"):
                self._names[alias.asname or alias.name] = language
            elif isinstance(node, ast.ImportFrom) and node.module == "ren_lab.language":
                self._names[alias.asname or alias.name] = getattr(language, alias.name)
            else:
                raise self._error(
                    node, ast.unparse(node), "a text imports the language only", "write import ren_lab.language as pl"
                )

    def _static(self, node: ast.AST) -> Any:
        return ExprParser(self._source, self._names).static(node)

    def _constant(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and self._static(node.func) is dynamic and len(node.args) == 1:
            name = self._static(node.args[0])
            if not isinstance(name, str) or not name.isidentifier():
                raise self._error(
                    node, ast.unparse(node), "its name is no identifier", "name it like a Python variable: pl.dynamic('M')"
                )
            return dynamic(name)
        value = self._static(node)
        if value is MISSING or not (is_number(as_number(value)) or isinstance(value, tuple)):
            raise self._error(node, ast.unparse(node), "it is no constant", "give a number, a tuple of numbers, or pl.dynamic('M')")
        return value

    def _declaration(self, node: ast.FunctionDef, method: bool) -> Declaration:
        if len(node.decorator_list) != 1:
            raise self._error(
                node, f"function {node.name}", f"it has {len(node.decorator_list)} decorators", "give it one of the language"
            )
        decorator = node.decorator_list[0]
        call = decorator if isinstance(decorator, ast.Call) else ast.Call(decorator, [], [])
        kind = self._static(call.func)
        if not any(kind is known for known in _KINDS) or call.args or (kind is function) != method:
            raise self._error(decorator, ast.unparse(decorator), "it is no decorator for this place",
                       "use @pl.function in a program class, and @pl.jit or its kin outside")  # fmt: skip
        return kind.declare(**{k.arg or "": self._static(k.value) for k in call.keywords})

    def _function(self, node: ast.FunctionDef) -> JitFunction:
        declaration = self._declaration(node, False)
        names = dict(self._names)
        return JitFunction(Template(parse_function(node, self._source, names, declaration), declaration, names))

    def _program(self, node: ast.ClassDef) -> Program:
        if len(node.decorator_list) != 1 or self._static(node.decorator_list[0]) is not program:
            raise self._error(node, f"class {node.name}", "it is no program", "decorate it with @pl.program")
        templates = []
        for item in node.body:
            if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
                continue
            if not isinstance(item, ast.FunctionDef):
                raise self._error(
                    item, ast.unparse(item).partition("\n")[0], "a program holds functions only", "move it out of the class"
                )
            declaration = self._declaration(item, True)
            parsed = parse_function(item, self._source, self._names, declaration)
            templates.append(Template(parsed, declaration, self._names))
        return Program(node.name, templates, self._source.loc(node))
