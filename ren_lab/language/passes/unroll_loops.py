"""Pass 2: `pl.unroll` loops are copied out, and branches on constants are taken."""

from dataclasses import replace

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.check_loops import NOT_KNOWN
from ren_lab.language.errors import LanguageError
from ren_lab.language.parse_stmt import aligned, settle
from ren_lab.language.passes.rule import Fire, Rule, rule, told
from ren_lab.language.substitute import substitute

_MOST_TURNS = 4096


@rule
def unroll_loop(loop: ir.For) -> ir.Block:
    """for i in pl.unroll(n): body -> body with 0 for i; …; body with n - 1 for i"""
    bounds = [bound.value for bound in (loop.start, loop.stop, loop.step) if isinstance(bound, ir.Const)]
    if len(bounds) != 3:
        raise LanguageError("pl.unroll", *NOT_KNOWN, loop.loc)
    start, stop, step = bounds
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
            which: Rule | None = None
            if isinstance(stmt, ir.For) and stmt.kind == "unroll":
                which = unroll_loop
            elif isinstance(stmt, ir.If) and isinstance(stmt.condition, ir.Const) and isinstance(stmt.condition.value, bool):
                which = take_branch
            if which is None:
                stmt = walk.map_blocks(stmt, block)
                if isinstance(stmt, ir.If):
                    then, other = aligned(stmt.then, stmt.other)
                    stmt = stmt if (then, other) == (stmt.then, stmt.other) else replace(stmt, then=then, other=other)
                result.append(stmt)
            else:
                new = which(stmt)
                result.extend(block(new) if told(fire, which, (stmt,), new) else (stmt,))
        return tuple(result)

    return replace(program, functions=tuple(replace(f, body=block(f.body)) for f in program.functions))
