"""Functions: what a decorator says about them, and their trees as IR."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ren_lab.language import nodes as ir
from ren_lab.language.annotations import Annotation, DynVar, FunctionType, Level
from ren_lab.language.errors import LanguageError, Loc
from ren_lab.language.parse_expr import MISSING
from ren_lab.language.parse_stmt import StmtParser
from ren_lab.language.source import Source

_DEEPEST = 100  # statements in statements, and expressions in expressions, so that walks over them may recurse
_COMPOUND: dict[type[ast.AST], str] = {ast.If: "if", ast.For: "for", ast.With: "with"}
_RESERVED = {"config": "the keyword that a call gives its RunConfig by"}


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a decorator says about a function.

    Attributes:
        written: the decorator as it is written, for errors.
        type: what the function is.
        auto_scope: whether the compiler places AUTO scopes in it.
        level: the level it is meant for; None for the one its type implies.
        standalone: whether Python can call it (it is no method of a program class).
    """

    written: str
    type: FunctionType
    auto_scope: bool = True
    level: Level | None = None
    standalone: bool = True

    def check(self, loc: Loc) -> None:
        """Raise where the parts of the declaration contradict one another."""
        if not isinstance(self.type, FunctionType):
            raise LanguageError(self.written, f"type is {self.type!r}", "give a pl.FunctionType", loc)
        if not isinstance(self.auto_scope, bool):
            raise LanguageError(self.written, f"auto_scope is {self.auto_scope!r}", "give True or False", loc)
        if self.level is not None and not isinstance(self.level, Level):
            raise LanguageError(self.written, f"level is {self.level!r}", "give a pl.Level", loc)
        if self.type in (FunctionType.InCore, FunctionType.Opaque) and not self.auto_scope:
            raise LanguageError(
                self.written,
                "it takes no auto_scope: the function is outlined into a standalone kernel, which has no orchestration body "
                "for a scope to stand in",
                "leave auto_scope out here, and give it to the function that submits the kernel",
                loc,
            )


class _FunctionParser(StmtParser):
    """Parses a whole function."""

    def function(self, tree: ast.FunctionDef, declaration: Declaration, annotations: Mapping[str, Any]) -> ir.Function:
        """Parse it; `annotations` are the values of annotations that Python has evaluated."""
        loc = self.header(tree)
        declaration.check(loc)
        self._check_nesting(tree)
        self.own_name = tree.name
        arguments = self._arguments_of(tree, declaration)
        self.locals = {a.arg for a in arguments} | _assigned(tree)
        params = []
        for argument in arguments:
            self._check_name(argument, argument.arg)
            annotation = None
            if argument.annotation is not None:
                annotation = self.annotation(argument.annotation, annotations.get(argument.arg, MISSING))
                self._check_parameter(argument, annotation, declaration)
            params.append(ir.Param(argument.arg, annotation, loc=self.loc(argument)))
        body = self.block(tree.body, may_return=True)
        body = (*self._extents(tree, params), *body)
        return ir.Function(tree.name, declaration.type, tuple(params), body, declaration.auto_scope, declaration.level, loc=loc)

    def header(self, tree: ast.FunctionDef) -> Loc:
        """The place of the `def` line alone."""
        loc = self.loc(tree)
        return replace(loc, end_line=loc.line, end_column=loc.column + len("def ") + len(tree.name))

    def _check_nesting(self, tree: ast.FunctionDef) -> None:
        """Raise for what is nested so deeply that walks over it must not recurse."""
        stack: list[tuple[ast.AST, int, int]] = [(node, 1, 0) for node in reversed(tree.body)]
        while stack:
            node, statements, expressions = stack.pop()
            if expressions > _DEEPEST:
                self.fail(node, "expression", f"it is nested more than {_DEEPEST} deep", "give parts of it names")
            if statements > _DEEPEST and type(node) in _COMPOUND:
                self.fail(node, _COMPOUND[type(node)],
                          f"it is nested more than {_DEEPEST} deep, where each elif counts as nested in the one before",
                          "move inner parts into a function decorated with @pl.jit.inline")  # fmt: skip
            for child in reversed(list(ast.iter_child_nodes(node))):
                if isinstance(child, ast.stmt):
                    stack.append((child, statements + 1, 0))
                else:
                    stack.append((child, statements, expressions + isinstance(child, ast.expr)))

    def _arguments_of(self, tree: ast.FunctionDef, declaration: Declaration) -> list[ast.arg]:
        a = tree.args
        name = f"function {tree.name}"
        for extra in (a.vararg, a.kwarg, *a.kwonlyargs):
            if extra is not None:
                self.fail(extra, name, f"the parameter {extra.arg!r} is variadic or keyword-only", "use plain parameters")
        for default in a.defaults:
            self.fail(default, name, "a parameter has a default", "give every argument at the call")
        arguments = [*a.posonlyargs, *a.args]
        if not declaration.standalone:
            if not arguments:
                self.fail(tree, name, "a method of a program has no self", f"write def {tree.name}(self, …)")
            self.self_name = arguments.pop(0).arg
        return arguments

    def _check_name(self, node: ast.arg, name: str) -> None:
        if name in _RESERVED:
            self.fail(node, f"parameter {name!r}", f"the name is {_RESERVED[name]}", "choose another name")

    def _check_parameter(self, node: ast.arg, annotation: Annotation, declaration: Declaration) -> None:
        if annotation.kind == "tile" and declaration.type is not FunctionType.Inline:
            self.fail(
                node,
                f"parameter {node.arg!r}",
                "a tile is a value inside one kernel, and only Inline functions are given some",
                "use pl.Tensor",
            )

    def _extents(self, tree: ast.FunctionDef, params: list[ir.Param]) -> list[ir.Stmt]:
        """Statements that give the dynamic extents the body uses their names."""
        result: list[ir.Stmt] = []
        for name, extent in self.dynamics.items():
            found = _axis_of(extent, params)
            if found is None:
                self.fail(
                    tree, f"extent {name}", "the body uses it and no parameter has it", f"annotate one: pl.Tensor[[{name}, …], …]"
                )
            result.append(ir.Assign(name, ir.Op("dim", (ir.Name(found[0]),), (("axis", found[1]),)), loc=self.header(tree)))
        return result


def _axis_of(extent: DynVar, params: list[ir.Param]) -> tuple[str, int] | None:
    for param in params:
        shape = () if param.annotation is None else param.annotation.shape or ()
        if param.annotation is not None and param.annotation.kind == "tensor":
            for axis, other in enumerate(shape):
                if other is extent:
                    return param.name, axis
    return None


def _assigned(tree: ast.FunctionDef) -> set[str]:
    """Names that a function's body binds."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def parse_function(
    tree: ast.FunctionDef,
    source: Source,
    names: Mapping[str, Any],
    declaration: Declaration,
    annotations: Mapping[str, Any] | None = None,
) -> ir.Function:
    """The IR of a function.

    Raises:
        LanguageError: it is not a program of the language.
    """
    return _FunctionParser(source, names).function(tree, declaration, annotations or {})
