"""Pass 2: `pl.unroll` loops are copied out, and branches on constants are taken."""

from dataclasses import replace

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.errors import LanguageError
from ren_lab.language.parse_stmt import settle
from ren_lab.language.passes.rule import Fire, rule, told
from ren_lab.language.substitute import substitute

_MOST_TURNS = 4096


@rule
def unroll_loop(loop: ir.For) -> ir.Block:
    """for i in pl.unroll(n): body -> body with 0 for i; …; body with n - 1 for i"""
    start, stop, step = (bound.value for bound in (loop.start, loop.stop, loop.step) if isinstance(bound, ir.Const))
    turns = range(start, stop, step)
    if len(turns) > _MOST_TURNS:
        raise LanguageError("pl.unroll", f"it has {len(turns)} turns, and a program holds {_MOST_TURNS} copies at most",
                            "use pl.range, or unroll an inner loop only", loop.loc)  # fmt: skip
    result: list[ir.Stmt] = []
    rebound = loop.var in walk.bound_in(loop.body)
    for turn in turns:
        value = ir.Const(turn, loc=loop.loc)
        if rebound:  # the body changes it, so it stays a name
            result.append(ir.Assign(loop.var, value, loc=loop.loc))
            result.extend(loop.body)
        else:
            result.extend(substitute(loop.body, {}, {loop.var: value}))
    return tuple(result)


@rule
def take_branch(branch: ir.If) -> ir.Block:
    """if True: a else: b -> a, and likewise for False"""
    assert isinstance(branch.condition, ir.Const)
    return settle(branch.then if branch.condition.value else branch.other)


RULES = (unroll_loop, take_branch)


def run(program: ir.Program, fire: Fire) -> ir.Program:
    """Unroll inner loops last, so that their bounds may depend on outer ones."""

    def block(stmts: ir.Block) -> ir.Block:
        result: list[ir.Stmt] = []
        for stmt in stmts:
            new: ir.Block | None = None
            if isinstance(stmt, ir.For) and stmt.kind == "unroll":
                new = unroll_loop(stmt)
                told(fire, unroll_loop, (stmt,), new)
            elif isinstance(stmt, ir.If) and isinstance(stmt.condition, ir.Const) and isinstance(stmt.condition.value, bool):
                new = take_branch(stmt)
                told(fire, take_branch, (stmt,), new)
            result.extend(block(new) if new is not None else [walk.map_blocks(stmt, block)])
        return tuple(result)

    return replace(program, functions=tuple(replace(f, body=block(f.body)) for f in program.functions))
