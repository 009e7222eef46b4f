"""Programs as Python that parses back to the same program."""

import ast
from typing import Any

from ren_lab.language import nodes as ir
from ren_lab.language.annotations import Annotation, DynVar
from ren_lab.language.dtypes import DType
from ren_lab.language.ops import OPS
from ren_lab.runtime import ScopeMode

_BINARY: dict[str, ast.operator] = {
    "+": ast.Add(), "-": ast.Sub(), "*": ast.Mult(), "/": ast.Div(), "//": ast.FloorDiv(), "%": ast.Mod(), "**": ast.Pow(),
    "@": ast.MatMult(), "&": ast.BitAnd(), "|": ast.BitOr(), "^": ast.BitXor(), "<<": ast.LShift(), ">>": ast.RShift(),
}  # fmt: skip
_COMPARE: dict[str, ast.cmpop] = {
    "<": ast.Lt(), "<=": ast.LtE(), ">": ast.Gt(), ">=": ast.GtE(), "==": ast.Eq(), "!=": ast.NotEq(),
}  # fmt: skip
_UNARY: dict[str, ast.unaryop] = {"-": ast.USub(), "not": ast.Not(), "~": ast.Invert()}


def _name(text: str) -> ast.expr:
    head, *rest = text.split(".")
    result: ast.expr = ast.Name(head)
    for part in rest:
        result = ast.Attribute(result, part)
    return result


def _call(function: str, args: list[ast.expr], keywords: dict[str, ast.expr] | None = None) -> ast.Call:
    return ast.Call(_name(function), args, [ast.keyword(k, v) for k, v in (keywords or {}).items()])


def _constant(value: Any) -> ast.expr:
    if isinstance(value, float) and value != value or value in (float("inf"), float("-inf")):
        return _call("float", [ast.Constant(str(value))])
    return ast.Constant(value)


def _static(value: Any) -> ast.expr:
    """The value of an attribute."""
    if isinstance(value, DType):
        return _name(f"pl.{value.name}")
    if hasattr(value, "name") and hasattr(value, "value"):
        return _name(f"pl.{type(value).__name__}.{value.name}")
    return ast.Constant(value)


def expr_tree(expr: ir.Expr) -> ast.expr:
    """An expression as Python's tree."""
    match expr:
        case ir.Const(value):
            return _constant(value)
        case ir.Name(id=name):
            return ast.Name(name)
        case ir.Unary(op, operand):
            return ast.UnaryOp(_UNARY[op], expr_tree(operand))
        case ir.Binary(op, left, right):
            if op in _COMPARE:
                return ast.Compare(expr_tree(left), [_COMPARE[op]], [expr_tree(right)])
            return ast.BinOp(expr_tree(left), _BINARY[op], expr_tree(right))
        case ir.Logical(op, operands):
            sign: ast.boolop = ast.And() if op == "and" else ast.Or()
            return ast.BoolOp(sign, [expr_tree(x) for x in operands])
        case ir.Choice(condition, then, other):
            return ast.IfExp(expr_tree(condition), expr_tree(then), expr_tree(other))
        case ir.Sequence(items):
            return ast.List([expr_tree(item) for item in items])
        case ir.Op():
            return _op_tree(expr)
        case ir.Span(low, high):
            return ast.Slice(None if low is None else expr_tree(low), None if high is None else expr_tree(high))
        case ir.Subscript(base, items):
            return ast.Subscript(expr_tree(base), _items(items))
    raise AssertionError(f"no way to print {expr!r}")


def _op_tree(op: ir.Op) -> ast.expr:
    """An operation: operands in order, by name once an attribute stands before them."""
    spec = OPS[op.name]
    operands = dict(zip(spec.operands, op.args))
    attrs = dict(op.attrs)
    args: list[ast.expr] = []
    keywords: dict[str, ast.expr] = {}
    by_name = False
    for name in spec.signature.parameters:
        if name in spec.attrs:
            by_name = True
            if name in attrs:
                keywords[name] = _static(attrs[name])
        elif (operand := operands.get(name)) is not None:
            if by_name:
                keywords[name] = expr_tree(operand)
            else:
                args.append(expr_tree(operand))
        elif name in operands:
            by_name = True  # it is left out
    return _call("pl.array.create" if op.name == "array" else f"pl.{op.name}", args, keywords)


def _items(items: tuple[ir.Expr, ...]) -> ast.expr:
    trees = [expr_tree(item) for item in items]
    return trees[0] if len(trees) == 1 else ast.Tuple(trees)


def annotation_tree(annotation: Annotation) -> ast.expr:
    """An annotation as Python's tree."""
    if annotation.kind == "task_id":
        return _name("pl.TaskId")
    name = f"pl.{annotation.kind.capitalize()}"
    if annotation.kind == "scalar":
        tree = _name(name)
        return tree if annotation.dtype is None else ast.Subscript(tree, _static(annotation.dtype))
    if annotation.shape is None or annotation.dtype is None:
        tree = _name(name)
    else:
        extents: list[ast.expr] = []
        for extent in annotation.shape:
            named = extent.name if isinstance(extent, DynVar) else extent
            extents.append(ast.Name(named) if isinstance(named, str) else ast.Constant(named))
        shape: ast.expr = extents[0] if annotation.kind == "array" else ast.List(extents)
        tree = ast.Subscript(_name(name), ast.Tuple([shape, _static(annotation.dtype)]))
    return tree if annotation.direction is None else ast.Subscript(_name(f"pl.{annotation.direction.name}"), tree)


def _targets(names: tuple[str, ...]) -> list[ast.expr]:
    trees: list[ast.expr] = [ast.Name(name) for name in names]
    return trees if len(trees) == 1 else [ast.Tuple(trees)]


def _bind(names: tuple[str, ...], value: ast.expr) -> ast.stmt:
    return ast.Assign(_targets(names), value, lineno=1) if names else ast.Expr(value)


def _with(call: ast.expr, bound: str | None, body: ir.Block, prefix: str) -> ast.stmt:
    item = ast.withitem(call, None if bound is None else ast.Name(bound))
    return ast.With([item], block_trees(body, prefix), lineno=1)


def _exprs(exprs: tuple[ir.Expr, ...]) -> ast.expr:
    return ast.List([expr_tree(e) for e in exprs])


def block_trees(block: ir.Block, prefix: str = "self.") -> list[ast.stmt]:
    """A block as Python's trees; `prefix` stands before the names of functions that are called."""
    return [stmt_tree(stmt, prefix) for stmt in block] or [ast.Pass()]


def stmt_tree(stmt: ir.Stmt, prefix: str = "self.") -> ast.stmt:
    """A statement as Python's tree."""
    match stmt:
        case ir.Assign(target, value, declared):
            if declared is not None:
                return ast.AnnAssign(ast.Name(target), annotation_tree(declared), expr_tree(value), 1)
            return _bind((target,), expr_tree(value))
        case ir.Unpack(targets, values):
            return _bind(targets, ast.Tuple([expr_tree(v) for v in values]))
        case ir.Put(target, items, value):
            return ast.Assign([ast.Subscript(ast.Name(target), _items(items))], expr_tree(value), lineno=1)
        case ir.Do(value):
            return ast.Expr(expr_tree(value))
        case ir.Call():
            return _call_tree(stmt, prefix)
        case ir.For() | ir.While():
            return _loop_tree(stmt, prefix)
        case ir.If(condition, then, other):
            return ast.If(expr_tree(condition), block_trees(then, prefix), block_trees(other, prefix) if other else [])
        case ir.Yield(targets, values):
            return _bind(targets, _call("pl.yield_", [expr_tree(v) for v in values]))
        case ir.Scope(mode, body, name):
            keywords = {} if name is None else {"name": _static(name)}
            written = "pl.manual_scope" if mode is ScopeMode.MANUAL else "pl.scope"
            return _with(_call(written, [], keywords), None, body, prefix)
        case ir.At(level, body):
            return _with(_call("pl.at", [], {"level": _static(level), **_placement(stmt)}), stmt.task_id, body, prefix)
        case ir.Spmd(blocks, body, var):
            call = _call("pl.spmd", [expr_tree(blocks)], _placement(stmt))
            if var is None:
                return _with(call, stmt.task_id, body, prefix)
            return ast.For(ast.Name(var), call, block_trees(body, prefix), [], lineno=1)
        case ir.SetCachePolicy(tensor, policy):
            return ast.Expr(_call("pl.set_cache_policy", [ast.Name(tensor), _static(policy)]))
        case ir.Return(values):
            trees = [expr_tree(v) for v in values]
            return ast.Return(None if not trees else trees[0] if len(trees) == 1 else ast.Tuple(trees))
    raise AssertionError(f"no way to print {stmt!r}")


def _placement(stmt: ir.At | ir.Spmd) -> dict[str, ast.expr]:
    keywords = {} if not stmt.deps else {"deps": _exprs(stmt.deps)}
    return keywords if stmt.name_hint is None else {**keywords, "name_hint": _static(stmt.name_hint)}


def _call_tree(stmt: ir.Call, prefix: str) -> ast.stmt:
    callee, args = prefix + stmt.callee, [expr_tree(a) for a in stmt.args]
    if not stmt.submit:
        return _bind(stmt.targets, _call(callee, args))
    keywords = {} if not stmt.deps else {"deps": _exprs(stmt.deps)}
    if stmt.blocks is not None:
        keywords["blocks"] = expr_tree(stmt.blocks)
    if stmt.regions is not None:
        regions = stmt.regions
        for role, touched in (("reads", regions.reads), ("writes", regions.writes), ("updates", regions.updates)):
            if touched or role == "reads":  # one of them always stands there, so that "touches nothing" can be read back
                keywords[role] = _exprs(touched)
    bound = () if stmt.task_id is None else (*stmt.targets, stmt.task_id)
    return _bind(bound, _call("pl.submit", [_name(callee), *args], keywords))


def _loop_tree(stmt: ir.For | ir.While, prefix: str) -> ast.stmt:
    names: list[ast.expr] = [ast.Name(name) for name, _ in stmt.carried]
    init = ast.Tuple([expr_tree(value) for _, value in stmt.carried])
    keywords: dict[str, ast.expr] = {"init_values": init} if stmt.carried else {}
    if isinstance(stmt, ir.While):
        condition = ast.Expr(_call("pl.cond", [expr_tree(stmt.condition)]))
        body = [condition, *(block_trees(stmt.body, prefix) if stmt.body else [])]
        return ast.For(ast.Tuple(names), _call("pl.while_", [], keywords), body, [], lineno=1)
    bounds = [stmt.start, stmt.stop, stmt.step]
    if stmt.step == ir.Const(1):
        bounds.pop()
        if stmt.start == ir.Const(0):
            bounds.pop(0)
    call = _call(f"pl.{stmt.kind}", [expr_tree(b) for b in bounds], keywords)
    target = ast.Tuple([ast.Name(stmt.var), ast.Tuple(names)]) if names else ast.Name(stmt.var)
    return ast.For(target, call, block_trees(stmt.body, prefix), [], lineno=1)


def function_tree(function: ir.Function) -> ast.FunctionDef:
    """A function as a method of a program."""
    params = [ast.arg("self")]
    for param in function.params:
        params.append(ast.arg(param.name, None if param.annotation is None else annotation_tree(param.annotation)))
    keywords: dict[str, ast.expr] = {"type": _static(function.type)}
    if not function.auto_scope:
        keywords["auto_scope"] = ast.Constant(False)
    if function.level is not None:
        keywords["level"] = _static(function.level)
    arguments = ast.arguments([], params, None, [], [], None, [])
    decorator = _call("pl.function", [], keywords)
    return ast.FunctionDef(function.name, arguments, block_trees(function.body), [decorator], lineno=1)


def extents_of(program: ir.Program) -> list[str]:
    """Names of the dynamic extents in a program's signatures, in order of first appearance."""
    found: dict[str, None] = {}
    for function in program.functions:
        for param in function.params:
            for extent in (param.annotation.shape or ()) if param.annotation is not None else ():
                if isinstance(extent, str | DynVar):
                    found[extent.name if isinstance(extent, DynVar) else extent] = None
    return list(found)


def _text(tree: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(tree))


def print_program(program: ir.Program) -> str:
    """A program as a module."""
    lines = ["import ren_lab.language as pl", ""]
    extents = extents_of(program)
    lines.extend(f"{name} = pl.dynamic('{name}')" for name in extents)
    if extents:
        lines.append("")
    methods: list[Any] = [function_tree(function) for function in program.functions]
    tree = ast.ClassDef(program.name, [], [], methods, [_name("pl.program")])
    return "\n".join([*lines, "", _text(tree), ""])


def print_stmt(stmt: ir.Stmt) -> str:
    """A statement as text."""
    return _text(stmt_tree(stmt))


def print_block(block: ir.Block) -> str:
    """Statements as text, one below the other."""
    return "\n".join(print_stmt(stmt) for stmt in block) or "pass"


def print_function(function: ir.Function) -> str:
    """A function as text."""
    return _text(function_tree(function))


def print_expr(expr: ir.Expr) -> str:
    """An expression as text."""
    return _text(expr_tree(expr))
