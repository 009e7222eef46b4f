"""Expressions: from Python's syntax tree to the IR. Nothing is executed; captured names are looked up."""

import ast
import builtins
import difflib
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from ren_lab.language import folding, walk
from ren_lab.language import nodes as ir
from ren_lab.language.annotations import CachePolicy, DynVar
from ren_lab.language.dtypes import DType
from ren_lab.language.errors import LanguageError, Loc
from ren_lab.language.ops import ELSEWHERE, OPS, OpSpec
from ren_lab.language.source import Source, as_number, attribute, is_number

MISSING = object()  # "not known while the program is parsed"

_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_UNARY: dict[type[ast.AST], str] = {ast.USub: "-", ast.Not: "not", ast.Invert: "~"}
_BUILTINS = {"min": "min", "max": "max", "abs": "abs"}
_CASTS: dict[Any, str] = {float: "pl.FP32", int: "pl.INT64", bool: "pl.BOOL"}
_SYNTAX = {
    ast.Lambda: "lambda", ast.ListComp: "a list comprehension", ast.SetComp: "a set comprehension",
    ast.DictComp: "a dict comprehension", ast.GeneratorExp: "a generator expression", ast.Await: "await",
    ast.Yield: "yield", ast.YieldFrom: "yield from", ast.JoinedStr: "an f-string", ast.Dict: "a dict", ast.Set: "a set",
    ast.Starred: "*unpacking", ast.NamedExpr: ":=",
}  # fmt: skip


class ExprParser:
    """Parses expressions of one function.

    Attributes:
        source: where the tree comes from.
        names: what the function sees besides its own names.
        locals: its own names.
        self_name, own_name: what it calls its program, and what it is called itself.
        dynamics: extents that the body uses as numbers, by the name it uses.
    """

    def __init__(self, source: Source, names: Mapping[str, Any]) -> None:
        self.source = source
        self.names = names
        self.locals: set[str] = set()
        self.self_name: str | None = None
        self.own_name: str | None = None
        self.dynamics: dict[str, DynVar] = {}
        self.calls: list[ir.Stmt] = []  # of functions, in the expressions of the statement at hand: they are made before it
        self._unsure: str | None = None  # why no call may stand here: the expression may not be computed, or again and again

    # -- errors ---------------------------------------------------------------------------------------------------------

    def loc(self, node: ast.AST) -> Loc:
        """The place of a node."""
        return self.source.loc(node)

    def fail(self, node: ast.AST, construct: str, rule: str, remedy: str) -> NoReturn:
        """Raise the error."""
        raise LanguageError(construct, rule, remedy, self.loc(node))

    def unknown_name(self, node: ast.AST, name: str) -> NoReturn:
        """Raise the error for a name that is neither bound nor captured."""
        known = [*self.locals, *self.names]
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else "bind it first, make it a parameter, or define it above the function"
        self.fail(node, f"name {name!r}", "it is not defined where this function is", hint)

    # -- what is known now ----------------------------------------------------------------------------------------------

    def static(self, node: ast.AST) -> Any:
        """The object that an expression stands for, if it is captured or a literal; `MISSING` if not."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                if node.id in self.locals:
                    return MISSING
                if node.id in self.names:
                    return self.names[node.id]
                return getattr(builtins, node.id, MISSING)
            case ast.Attribute():
                base = self.static(node.value)
                if base is MISSING:
                    return MISSING
                try:
                    return attribute(base, node.attr)
                except AttributeError:
                    owner = ast.unparse(node.value)
                    known = [name for name in dir(base) if not name.startswith("_")]
                    close = [name for name in ELSEWHERE.get(node.attr, ()) if name in known]
                    close = close or difflib.get_close_matches(node.attr, known, 1)
                    hint = f"did you mean {' or '.join(f'{owner}.{name}' for name in close)}?" if close else f"look at dir({owner})"
                    self.fail(node, ast.unparse(node), f"{owner} has no plain attribute {node.attr!r}", hint)
            case ast.Tuple() | ast.List():
                items = [self.static(item) for item in node.elts]
                return MISSING if any(item is MISSING for item in items) else tuple(items)
            case ast.UnaryOp() | ast.BinOp():
                return self._static_arithmetic(node)
            case ast.Subscript():
                return self._static_item(node)
        return MISSING

    def _static_arithmetic(self, node: ast.UnaryOp | ast.BinOp) -> Any:
        parts = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
        values = [as_number(self.static(part)) for part in parts]
        if not all(is_number(value) for value in values):
            return MISSING
        operands = [ir.Const(value) for value in values]
        sign = (_UNARY if len(parts) == 1 else _BINARY).get(type(node.op))
        if sign is None:
            return MISSING
        folded = folding.unary(sign, operands[0]) if len(operands) == 1 else folding.binary(sign, operands[0], operands[1])
        return folded.value if isinstance(folded, ir.Const) else MISSING

    def _static_item(self, node: ast.Subscript) -> Any:
        base, index = self.static(node.value), as_number(self.static(node.slice))
        if isinstance(base, tuple | list) and type(index) is int and -len(base) <= index < len(base):
            return base[index]
        return MISSING

    # -- expressions ----------------------------------------------------------------------------------------------------

    def expr(self, node: ast.expr) -> ir.Expr:
        """Parse an expression."""
        loc = self.loc(node)
        match node:
            case ast.Constant():
                return self.literal(node, node.value)
            case ast.Name():
                return self.name(node)
            case ast.UnaryOp():
                if isinstance(node.op, ast.UAdd):
                    return self.expr(node.operand)
                return folding.unary(_UNARY[type(node.op)], self.expr(node.operand), loc)
            case ast.BinOp():
                return folding.binary(_BINARY[type(node.op)], self.expr(node.left), self.expr(node.right), loc)
            case ast.Compare():
                return self._comparison(node)
            case ast.BoolOp():
                op = "and" if isinstance(node.op, ast.And) else "or"
                first, *others = node.values
                with self.without_calls(f"the part behind `{op}` is not always computed"):
                    rest = [self.expr(value) for value in others]
                return folding.refold(ir.Logical(op, (self.expr(first), *rest), loc=loc))
            case ast.IfExp():
                with self.without_calls("only one side of the if is computed"):
                    then, other = self.expr(node.body), self.expr(node.orelse)
                return folding.refold(ir.Choice(self.expr(node.test), then, other, loc=loc))
            case ast.Call():
                return self.call(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Tuple() | ast.List():
                self.fail(node, "a list", "it stands where a value is wanted", "lists stand for shapes, offsets and deps only")
        what = _SYNTAX.get(type(node), ast.unparse(node))
        self.fail(node, what, "this Python is not part of the language", "write it with pl operations and plain loops")

    def literal(self, node: ast.AST, value: Any) -> ir.Expr:
        """A captured or written value as a constant."""
        found = as_number(value)
        if is_number(found):
            return ir.Const(found, loc=self.loc(node))
        if isinstance(value, DynVar):
            self.fail(node, "pl.dynamic", "an extent stands where a value is wanted", "give it a name: M = pl.dynamic('M')")
        what = "a string" if isinstance(value, str) else f"a captured {type(value).__name__}"
        self.fail(node, ast.unparse(node), f"{what} cannot become part of a program", "capture numbers; pass arrays as parameters")

    def name(self, node: ast.Name) -> ir.Expr:
        """A local name, or a captured value."""
        if node.id in self.locals:
            return ir.Name(node.id, loc=self.loc(node))
        if node.id == self.self_name:
            self.fail(node, node.id, "the program itself is no value", f"call its functions: {node.id}.kernel(…)")
        value = self.static(node)
        if value is MISSING:
            self.unknown_name(node, node.id)
        if isinstance(value, DynVar):
            self.dynamics[node.id] = value
            return ir.Name(node.id, loc=self.loc(node))
        return self.literal(node, value)

    def _comparison(self, node: ast.Compare) -> ir.Expr:
        parts = [self.expr(node.left), self.expr(node.comparators[0])]
        with self.without_calls("the rest of the comparison is not always computed"):
            parts += [self.expr(part) for part in node.comparators[1:]]
        pairs = []
        for op, left, right in zip(node.ops, parts, parts[1:]):
            if type(op) not in _BINARY:
                self.fail(
                    node, ast.unparse(node), "`in` and `is` are not part of the language", "compare with ==, !=, <, <=, >, >="
                )
            pairs.append(folding.binary(_BINARY[type(op)], left, right, self.loc(node)))
        return pairs[0] if len(pairs) == 1 else folding.refold(ir.Logical("and", tuple(pairs), loc=self.loc(node)))

    def _attribute(self, node: ast.Attribute) -> ir.Expr:
        value = self.static(node)
        if value is not MISSING:
            return self.literal(node, value)
        if node.attr == "shape":
            self.fail(node, ast.unparse(node), "a whole shape is no value", "take one extent: t.shape[0], or m, n = t.shape")
        self.fail(node, ast.unparse(node), f"values have no attribute {node.attr!r}", "use the operations of pl")

    def _subscript(self, node: ast.Subscript) -> ir.Expr:
        value = self.static(node)
        if value is not MISSING:
            return self.literal(node, value)
        base = node.value
        if isinstance(base, ast.Attribute) and base.attr == "shape" and self.static(base) is MISSING:
            axis = as_number(self.static(node.slice))
            if type(axis) is not int:
                self.fail(node, ast.unparse(node), "the axis must be a number", "write t.shape[0]")
            return ir.Op("dim", (self.expr(base.value),), (("axis", axis),), loc=self.loc(node))
        return ir.Subscript(self.expr(base), self.subscript_items(node), loc=self.loc(node))

    def subscript_items(self, node: ast.Subscript) -> tuple[ir.Expr, ...]:
        """What stands between the brackets."""
        index = node.slice
        items: list[ir.Expr] = []
        for item in index.elts if isinstance(index, ast.Tuple) else [index]:
            if isinstance(item, ast.Slice):
                if item.step is not None:
                    self.fail(
                        item, ast.unparse(node), "slices have no step", "take the whole range, or one element per turn of a loop"
                    )
                low, high = (None if end is None else self.expr(end) for end in (item.lower, item.upper))
                items.append(ir.Span(low, high, loc=self.loc(item)))
            elif isinstance(item, ast.Constant) and (item.value is None or item.value is Ellipsis):
                self.fail(item, ast.unparse(node), f"a subscript holds {ast.unparse(item)}", "write one slice or index per axis")
            else:
                items.append(self.expr(item))
        return tuple(items)

    # -- calls ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def without_calls(self, why: str) -> Iterator[None]:
        """Expressions in which no function is called, since the call could not be made before the statement."""
        around, self._unsure = self._unsure, self._unsure or why
        yield
        self._unsure = around

    def construct(self, node: ast.AST) -> str | None:
        """The name of the construct that a call uses, such as "range"; None for anything else."""
        if not isinstance(node, ast.Call):
            return None
        return getattr(self.static(node.func), "ren_construct", None)

    def callee(self, node: ast.Call) -> str | None:
        """The name of the sub-function that is called, or None where it is something else. Unknown names may be defined later."""
        func = node.func
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == self.self_name:
            return func.attr
        if isinstance(func, ast.Name) and func.id not in self.locals:
            value = self.static(func)
            if value is MISSING or hasattr(value, "ren_template"):
                return func.id
        elif hasattr(self.static(func), "ren_template"):
            return ast.unparse(func)
        return None

    def call(self, node: ast.Call) -> ir.Expr:
        """A call inside an expression: an operation."""
        value = self.static(node.func)
        written = ast.unparse(node.func)
        name = getattr(value, "ren_op", None)
        if name is None and value is getattr(builtins, written, MISSING):
            name = _BUILTINS.get(written)
        if name is None and value is float and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            try:
                return ir.Const(float(node.args[0].value), loc=self.loc(node))  # type: ignore[arg-type]
            except (TypeError, ValueError):
                pass
        if name is not None:
            return self.operation(node, OPS[name])
        if hasattr(value, "ren_construct"):
            self.fail(node, written, "it is no value", f"look at help({written}) for where it stands")
        if self.callee(node) is not None:
            if value is MISSING and not isinstance(node.func, ast.Attribute) and written != self.own_name:
                self.unknown_name(node.func, written)
            return self._called(node, written)
        if isinstance(node.func, ast.Attribute) and value is MISSING:
            self.fail(
                node, written, "values have no methods", f"use an operation of pl, such as pl.{node.func.attr} where there is one"
            )
        remedy = "use the operations of pl, or a function decorated with @pl.jit.inline"
        if isinstance(value, type) and value in _CASTS:
            remedy = f"use pl.cast(…, {_CASTS[value]})"
        self.fail(node, f"call of {written}", "it is not an operation of the language, and bodies are not executed", remedy)

    def _called(self, node: ast.Call, written: str) -> ir.Expr:
        """A call of a function inside an expression: it is made before the statement, and its one value gets a name."""
        if self._unsure is not None:
            self.fail(node, f"call of {written}", f"it stands where {self._unsure}",
                      f"give its result a name first: r = {written}(…)")  # fmt: skip
        name = walk.fresh_name(f"{written.rpartition('.')[2]}_result", self.locals)
        self.locals.add(name)
        self.calls.append(self.function_call(node, (name,)))
        return ir.Name(name, loc=self.loc(node))

    def function_call(self, node: ast.Call, targets: tuple[str, ...]) -> ir.Call:
        """A call of another function of the language, whose results get names."""
        callee = self.callee(node)
        assert callee is not None
        if node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args):
            self.fail(
                node, f"call of {callee}", "arguments are given by name or unpacked", "give them by position, as they are declared"
            )
        own = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", None) == self.self_name is not None
        return ir.Call(callee, tuple(self.expr(arg) for arg in node.args), targets, own=own, loc=self.loc(node))

    def operation(self, node: ast.Call, spec: OpSpec) -> ir.Expr:
        """A call of an operation."""
        name = f"pl.{spec.name}"
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(k.arg is None for k in node.keywords):
            self.fail(node, name, "arguments are unpacked with * or **", "write them out")
        try:
            bound = spec.signature.bind(*node.args, **{k.arg or "": k.value for k in node.keywords}).arguments
        except TypeError as error:
            self.fail(node, name, f"{error}", f"it is written {name}{_shown(spec)}")
        args = [self._operand(name, spec, operand, bound.get(operand)) for operand in spec.operands]
        while args and args[-1] is None:
            args.pop()
        attrs = []
        for attr, default in spec.attrs.items():
            if attr in bound:
                value = self._attr(name, attr, bound[attr])
                if value != default or type(value) is not type(default):
                    attrs.append((attr, value))
        return ir.Op(spec.name, tuple(args), tuple(attrs), loc=self.loc(node))

    def _operand(self, name: str, spec: OpSpec, operand: str, node: ast.expr | None) -> ir.Expr | None:
        if node is None:
            return None
        return self.sequence(node, name, operand) if operand in spec.lists else self.expr(node)

    def sequence(self, node: ast.expr, construct: str, what: str) -> ir.Sequence:
        """A list, written out or captured."""
        if isinstance(node, ast.Tuple | ast.List):
            return ir.Sequence(tuple(self.expr(item) for item in node.elts), loc=self.loc(node))
        value = self.static(node)
        if isinstance(value, tuple | list):
            return ir.Sequence(tuple(self.literal(node, item) for item in value), loc=self.loc(node))
        shown = ast.unparse(node)
        example = f"[{shown}[0], {shown}[1]]" if isinstance(node, ast.Attribute) and node.attr == "shape" else "[…]"
        self.fail(node, construct, f"{what} is {shown}, which is no list", f"give a list, one entry per axis: {what}={example}")

    def _attr(self, name: str, attr: str, node: ast.expr) -> Any:
        value = self.static(node)
        if is_number(as_number(value)):
            value = as_number(value)
        if attr == "cache":
            ok, wanted = value is None or isinstance(value, CachePolicy), "pl.CachePolicy.DEFAULT or pl.CachePolicy.BYPASS"
        elif attr in ("dtype", "out_dtype"):
            optional = attr == "out_dtype"
            ok = isinstance(value, DType) and (value.kind != "t" or name == "pl.array") or optional and value is None
            wanted = "an element type such as pl.FP32"
        elif attr in ("a_trans", "b_trans"):
            ok, wanted = isinstance(value, bool), "True or False"
        else:
            ok, wanted = type(value) is int, "an int"
        if not ok:
            self.fail(node, name, f"{attr} is {ast.unparse(node)}", f"give {wanted}, known when the program is written")
        return value


def _shown(spec: OpSpec) -> str:
    """The signature without annotations."""
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in spec.signature.parameters.values()]
    return str(inspect.Signature(parameters))
