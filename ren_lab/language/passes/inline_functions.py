"""Pass 1: Inline functions are spliced into their callers."""

from dataclasses import replace

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.annotations import FunctionType
from ren_lab.language.passes.rule import Fire, rule, told
from ren_lab.language.substitute import substitute


@rule
def splice_call(call: ir.Call, function: ir.Function, taken: dict[str, None]) -> ir.Block:
    """y = f(x) -> the body of f with x for its parameter; y = what f returns"""
    rebound = {
        name: None for stmt in walk.statements(function.body) for name in walk.bound_by(stmt) if not isinstance(stmt, ir.Put)
    }
    names: dict[str, str] = {}
    values: dict[str, ir.Expr] = {}
    result: list[ir.Stmt] = []
    handed_back = _handed_back(call, function)
    for param, arg in zip(function.params, call.args):
        if isinstance(arg, ir.Name) and (param.name not in rebound or param.name in handed_back):
            names[param.name] = arg.id
        elif isinstance(arg, ir.Const) and param.name not in rebound and not _is_float(param):
            values[param.name] = arg
        else:
            names[param.name] = _claim(param.name, taken)
            result.append(ir.Assign(names[param.name], _given(param, arg), loc=call.loc))
    for name in walk.bound_in(function.body):
        if name not in names:
            names[name] = _claim(name, taken)
    body = substitute(function.body, names, values, lambda loc: loc.called_from(call.loc))
    returned: tuple[ir.Expr, ...] = ()
    if body and isinstance(body[-1], ir.Return):
        returned = body[-1].values
        body = body[:-1]
    result.extend(body)
    pairs = [(t, v) for t, v in zip(call.targets, returned) if not (isinstance(v, ir.Name) and v.id == t)]
    if len(pairs) == 1:
        result.append(ir.Assign(*pairs[0], loc=call.loc))
    elif pairs:
        result.append(ir.Unpack(tuple(t for t, _ in pairs), tuple(v for _, v in pairs), loc=call.loc))
    return tuple(result)


def _handed_back(call: ir.Call, function: ir.Function) -> set[str]:
    """Parameters in calls like `x = f(x)` where f returns the parameter: the caller's name may change with it."""
    last = function.body[-1] if function.body else None
    values = last.values if isinstance(last, ir.Return) else ()
    returned = {target: value.id for target, value in zip(call.targets, values) if isinstance(value, ir.Name)}
    mentioned = [e.id for arg in call.args for e in (arg, *walk.all_exprs(arg)) if isinstance(e, ir.Name)]
    return {
        param.name
        for param, arg in zip(function.params, call.args)
        if isinstance(arg, ir.Name) and returned.get(arg.id) == param.name and mentioned.count(arg.id) == 1
    }


def _is_float(param: ir.Param) -> bool:
    return param.annotation is not None and param.annotation.dtype is not None and param.annotation.dtype.is_float


def _given(param: ir.Param, arg: ir.Expr) -> ir.Expr:
    """The argument, as the parameter's type where it is a number."""
    if isinstance(arg, ir.Const) and _is_float(param) and param.annotation is not None:
        return ir.Op("cast", (arg,), (("dtype", param.annotation.dtype),), loc=arg.loc)
    return arg


def _claim(base: str, taken: dict[str, None]) -> str:
    name = walk.fresh_name(base, taken)
    taken[name] = None
    return name


RULES = (splice_call,)


def run(program: ir.Program, fire: Fire) -> ir.Program:
    """Splice every call of an Inline function; callees come before callers."""
    inline: dict[str, ir.Function] = {}
    functions = []
    for function in program.functions:
        taken = dict.fromkeys([p.name for p in function.params]) | walk.names_in(function.body)

        def spliced(block: ir.Block, taken: dict[str, None] = taken) -> ir.Block:
            result: list[ir.Stmt] = []
            for stmt in block:
                found = inline.get(stmt.callee) if isinstance(stmt, ir.Call) else None
                if found is None:
                    result.append(walk.map_blocks(stmt, spliced))
                    continue
                new = splice_call(stmt, found, taken)
                result.extend(new if told(fire, splice_call, (stmt,), new) else (stmt,))
            return tuple(result)

        function = replace(function, body=spliced(function.body))
        if function.type is FunctionType.Inline:
            inline[function.name] = function
        functions.append(function)
    kept: list[ir.Function] = []
    called: set[str] = set()
    for function in reversed(functions):
        if function.name not in inline or function.name in called:
            kept.insert(0, function)
            called |= {stmt.callee for stmt in walk.statements(function.body) if isinstance(stmt, ir.Call)}
    return replace(program, functions=tuple(kept))
