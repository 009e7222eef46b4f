"""Pass 5: bodies of functions, loops and branches become AUTO scopes.

A function with `auto_scope=False` is left as it is, and nothing inside a MANUAL scope is touched. The pass sets
`auto_scope=False`, so that running it twice changes nothing. Outer scopes come first, so that every step is a program.
"""

from dataclasses import replace

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.annotations import FunctionType
from ren_lab.language.errors import Loc
from ren_lab.language.passes.rule import Fire, rule, told
from ren_lab.language.structure import check_depth
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
    """Place the scopes of every function that submits tasks and leaves them to the compiler.

    Raises:
        LanguageError: a scope is deeper than the runtime allows.
    """

    def block(stmts: ir.Block) -> ir.Block:
        return tuple(placed(stmt) for stmt in stmts)

    def placed(stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.Scope) and stmt.mode is ScopeMode.MANUAL:
            return stmt
        which = scope_loop_body if isinstance(stmt, ir.For | ir.While) else scope_branch_bodies if isinstance(stmt, ir.If) else None
        if which is not None:
            new = which(stmt)
            stmt = new if told(fire, which, (stmt,), (new,)) else stmt
        return walk.map_blocks(stmt, block)

    functions = []
    for function in program.functions:
        if function.type is FunctionType.Orchestration and function.auto_scope:
            new = scope_function_body(function)
            function = new if told(fire, scope_function_body, function, new) else function
            function = replace(function, body=block(function.body))
        functions.append(function)
    placed_program = replace(program, functions=tuple(functions))
    check_depth(placed_program)
    return placed_program
