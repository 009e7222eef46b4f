"""Pass 4: every task says what it touches. The runtime orders tasks by it."""

from collections.abc import Sequence
from dataclasses import replace

from ren_lab.language import folding, walk
from ren_lab.language import nodes as ir
from ren_lab.language.annotations import Extent
from ren_lab.language.check_program import check_program
from ren_lab.language.linear import Linear
from ren_lab.language.passes.rule import Fire, rule, told
from ren_lab.language.regions import Box, Touched, touched


@rule
def infer_regions(call: ir.Call, kernel: ir.Function, boxes: dict[str, Touched]) -> ir.Call:
    """kernel(a, out, i) -> pl.submit(kernel, a, out, i, reads=[part of a], writes=[part of out], updates=[…])"""
    shapes = {param.name: () if param.annotation is None else param.annotation.shape or () for param in kernel.params}
    given = {param.name: arg for param, arg in zip(kernel.params, call.args)}
    roles: dict[str, list[ir.Expr]] = {"reads": [], "writes": [], "updates": []}
    for name, parts in boxes.items():
        arg = given[name]
        for role, found in roles.items():
            for box in getattr(parts, role):
                region = _region(arg, box, given, call, shapes[name])
                if region not in found:
                    found.append(region)
    regions = ir.Regions(*(tuple(found) for found in roles.values()))
    task_id = call.task_id or ("_" if call.targets else None)
    return replace(call, submit=True, task_id=task_id, regions=regions)


RULES = (infer_regions,)


def _region(tensor: ir.Expr, box: Box, given: dict[str, ir.Expr], call: ir.Call, shape: Sequence[Extent]) -> ir.Expr:
    if box.whole:
        return tensor
    offsets, sizes = (ir.Sequence(tuple(_called(form, given, call) for form in forms)) for forms in (box.offsets, box.sizes))
    everything = [ir.Const(0)] * len(shape), [ir.Const(extent) for extent in shape]
    if (list(offsets.items), list(sizes.items)) == everything:
        return tensor
    return ir.Op("region", (tensor, offsets, sizes), loc=call.loc)


def _called(form: Linear, given: dict[str, ir.Expr], call: ir.Call) -> ir.Expr:
    """A number of the kernel in terms of the caller."""

    def replaced(expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.Name):
            return given[expr.id]
        if isinstance(expr, ir.Op) and expr.name == "get_block_num":
            return call.blocks if call.blocks is not None else ir.Const(1)
        return expr

    return folding.refold(walk.transform(form.expr(), replaced))


def run(program: ir.Program, fire: Fire) -> ir.Program:
    """Tell the regions of every task, in the order of the parameters they belong to."""
    checkers = check_program(program)
    boxes = {name: touched(c) for name, c in checkers.items() if c.function.is_kernel}

    def block(stmts: ir.Block) -> ir.Block:
        result: list[ir.Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, ir.Call) and stmt.callee in boxes:
                new = infer_regions(stmt, program[stmt.callee], boxes[stmt.callee])
                result.append(new if told(fire, infer_regions, (stmt,), (new,)) else stmt)
            else:
                result.append(walk.map_blocks(stmt, block))
        return tuple(result)

    functions = tuple(f if f.is_kernel else replace(f, body=block(f.body)) for f in program.functions)
    return replace(program, functions=functions)
