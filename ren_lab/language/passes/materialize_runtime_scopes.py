"""Pass 5: bodies of functions, loops and branches become AUTO scopes.

A function with `auto_scope=False` is left as it is, and nothing inside a MANUAL scope is touched. The pass sets
`auto_scope=False`, so that running it twice changes nothing.
"""

from dataclasses import replace

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.annotations import FunctionType
from ren_lab.language.errors import Loc
from ren_lab.language.passes.rule import Fire, rule, told
from ren_lab.runtime import ScopeMode


def _scoped(block: ir.Block, loc: Loc) -> ir.Block:
    return (ir.Scope(ScopeMode.AUTO, block, loc=loc),)


@rule
def scope_function_body(function: ir.Function) -> ir.Function:
    """def f(): body -> def f(): with pl.scope(): body"""
    return replace(function, body=_scoped(function.body, function.loc), auto_scope=False)


@rule
def scope_loop_body(loop: ir.For | ir.While) -> ir.Stmt:
    """for i in …: body -> for i in …: with pl.scope(): body"""
    return replace(loop, body=_scoped(loop.body, loop.loc))


@rule
def scope_branch_bodies(branch: ir.If) -> ir.Stmt:
    """if c: a else: b -> if c: with pl.scope(): a else: with pl.scope(): b; an elif stays one"""
    other = branch.other
    if other and not (len(other) == 1 and isinstance(other[0], ir.If)):
        other = _scoped(other, other[0].loc)
    return replace(branch, then=_scoped(branch.then, branch.loc), other=other)


RULES = (scope_function_body, scope_loop_body, scope_branch_bodies)


def run(program: ir.Program, fire: Fire) -> ir.Program:
    """Place the scopes of every function that submits tasks and leaves them to the compiler."""

    def block(stmts: ir.Block) -> ir.Block:
        return tuple(placed(stmt) for stmt in stmts)

    def placed(stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.Scope) and stmt.mode is ScopeMode.MANUAL:
            return stmt
        inner = walk.map_blocks(stmt, block)
        match inner:
            case ir.For() | ir.While():
                new, which = scope_loop_body(inner), scope_loop_body
            case ir.If():
                new, which = scope_branch_bodies(inner), scope_branch_bodies
            case _:
                return inner
        told(fire, which, (inner,), (new,))
        return new

    functions = []
    for function in program.functions:
        if function.type is FunctionType.Orchestration and function.auto_scope:
            inner = replace(function, body=block(function.body))
            new = scope_function_body(inner)
            told(fire, scope_function_body, inner, new)
            function = new
        functions.append(function)
    return replace(program, functions=tuple(functions))
