"""The submitting side as Python: `def entry(orch, arguments)`, which opens scopes, allocates, and submits tasks."""

from typing import Any

from ren_lab.language import nodes as ir
from ren_lab.language.check_program import ProgramChecker
from ren_lab.language.emit import Emitter, dtype_code
from ren_lab.language.linear import Linear, number
from ren_lab.language.values import ScalarValue, TensorValue, same_extent
from ren_lab.runtime import ScopeMode


class OrchestrationEmitter(Emitter):
    """Writes a function that submits tasks.

    `kernels` maps kernels to what a launch is called in the code, and to the kind of core they want.
    """

    def __init__(self, function: ir.Function, checker: ProgramChecker, program: ir.Program, kinds: dict[str, str | None]) -> None:
        super().__init__(function, checker)
        self._program = program
        self._kinds = kinds

    def write(self) -> None:
        """Write the whole function."""
        params = [self.name(param.name) for param in self.function.params]
        with self.whole(["orch", *params]):
            self.block(self.function.body)

    def namespace(self) -> dict[str, Any]:
        """What the code calls, besides launches and other functions."""
        return {**super().namespace(), "ScopeMode": ScopeMode}

    # -- statements -----------------------------------------------------------------------------------------------------

    def stmt(self, stmt: ir.Stmt, block: ir.Block, position: int) -> None:
        """Write a statement."""
        match stmt:
            case ir.Scope(mode, body, name):
                given = [f"site={stmt.loc.site!r}"]
                if name is not None:
                    given.insert(0, f"name={name!r}")
                if mode is ScopeMode.MANUAL:
                    given.insert(0, "ScopeMode.MANUAL")
                with self.indented(f"with orch.scope({', '.join(given)}):"):
                    self.block(body)
            case ir.At(body=body):
                self.block(body)  # at a level that is carried: its tasks are submitted where it stands
            case ir.Call():
                self._call(stmt)
            case ir.Put(target, items, value):
                index = self.array_index(stmt, ir.Name(target), items[0])
                self.line(f"{self.name(target)}[{index}] = {self.expr(value)}")
            case ir.Return(values):
                self.line(f"return ({''.join(self._returned(value) + ', ' for value in values)})")
            case _:
                super().stmt(stmt, block, position)

    def _returned(self, expr: ir.Expr) -> str:
        value = self.value(expr)
        if isinstance(value, TensorValue) and not value.roots <= set(self.checker.params):
            return f"given(orch, {self.expr(expr)})"
        return self.expr(expr)

    def _call(self, stmt: ir.Call) -> None:
        callee = self._program[stmt.callee]
        args = [self.expr(arg) for arg in stmt.args]
        self._check_extents(stmt, callee, args)
        if not callee.is_kernel:
            targets = "".join(f"{self.name(t)}, " for t in stmt.targets)
            self.line(f"{targets + '= ' if targets else ''}{stmt.callee}_function({', '.join(['orch', *args])})")
            return
        blocks = None if stmt.blocks is None else f"block_count({self.expr(stmt.blocks)}, {self.place(stmt.loc)})"
        launch = f"{stmt.callee}_launch({', '.join(args)})"
        if blocks is not None:
            self.line(f"n_blocks = {blocks}")
            launch = f"{stmt.callee}_launch({', '.join([*args, 'blocks=n_blocks'])})"
        regions = stmt.regions or ir.Regions()
        given = [launch]
        for touched in (regions.reads, regions.writes, regions.updates):
            given.append(f"[{', '.join(self._region(region) for region in touched)}]")
        if stmt.deps:
            given.append(f"({''.join(self.expr(dep) + ', ' for dep in stmt.deps)})")
        if self._kinds[stmt.callee] is not None:
            given.append(f"kind={self._kinds[stmt.callee]!r}")
        if blocks is not None:
            given.append("blocks=n_blocks")
        bound = f"{self.name(stmt.task_id)} = " if stmt.task_id is not None else ""
        self.line(f"{bound}orch.submit({', '.join(given)})")
        self._alias(stmt, callee, args)

    def _check_extents(self, stmt: ir.Call, callee: ir.Function, args: list[str]) -> None:
        """Have the extents of arguments checked when it runs, where they are not known to be those of the parameters."""
        known: dict[str, Linear] = {}
        sure = True
        checks = []
        for param, arg, code in zip(callee.params, stmt.args, args):
            value, shape = self.value(arg), None if param.annotation is None else param.annotation.shape
            if not isinstance(value, TensorValue) or shape is None or value.shape is None:
                continue
            checks.append(f"({param.name!r}, {code}, {shape!r})")
            for want, have in zip(shape, value.shape):
                wanted = number(want) if isinstance(want, int) else have if want is None else known.setdefault(str(want), have)
                sure = sure and same_extent(wanted, have) is True
        if not sure:
            self.line(f"fit({self.place(stmt.loc)}, {stmt.callee!r}, {', '.join(checks)})")

    def _alias(self, stmt: ir.Call, callee: ir.Function, args: list[str]) -> None:
        """Bind what a kernel returns: tensors that it was given."""
        position = {param.name: k for k, param in enumerate(callee.params)}
        pairs = []
        for target, value in zip(stmt.targets, self.checker.known[stmt.callee].returned):
            assert isinstance(value, TensorValue) and value.origin is not None
            arg = args[position[value.origin]]
            if arg != self.name(target):
                pairs.append((self.name(target), arg))
        self.bind([target for target, _ in pairs], [arg for _, arg in pairs])

    def _region(self, region: ir.Expr) -> str:
        if isinstance(region, ir.Op) and region.name == "region":
            assert region.args[0] is not None
            return f"cut({self.expr(region.args[0])}, {self.list_of(region.args[1])}, {self.list_of(region.args[2])})"
        return self.expr(region)

    # -- expressions ----------------------------------------------------------------------------------------------------

    def operation(self, op: ir.Op) -> str:
        """Any operation of the submitting side."""
        args = [arg for arg in op.args if arg is not None]
        match op.name:
            case "create_tensor":
                return f"orch.alloc({self.shape(args[0], op.loc)}, {dtype_code(op.attr('dtype'))})"
            case "array":
                empty = "None" if op.attr("dtype").kind == "t" else "0"
                return f"new_array({self.expr(args[0])}, {empty}, {self.place(op.loc)})"
            case "read":
                return f"fetch(orch, {self.expr(args[0])}, {self.list_of(args[1])}, {self.place(op.loc)})"
            case "slice":
                return f"window({self.expr(args[0])}, {self.list_of(args[2])}, {self.list_of(args[1])}, {self.place(op.loc)})"
            case "reshape":
                return f"reshaped({self.expr(args[0])}, {self.list_of(args[1])}, {self.place(op.loc)})"
            case "transpose":
                return f"np.swapaxes({self.expr(args[0])}, {op.attr('axis1', -2)}, {op.attr('axis2', -1)})"
        return super().operation(op)

    def subscript(self, expr: ir.Subscript) -> str:
        """`base[items]`: an element is waited for, a part is a view."""
        if isinstance(self.value(expr), ScalarValue) and isinstance(self.value(expr.base), TensorValue):
            return f"fetch(orch, {self.expr(expr.base)}, {self.spans(expr.items)}, {self.place(expr.loc)})"
        return super().subscript(expr)
