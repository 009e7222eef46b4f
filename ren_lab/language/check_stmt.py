"""Checks statements, and hands them on: what a subclass does with a statement becomes the checked program."""

from dataclasses import replace
from typing import Any

from ren_lab.language import nodes as ir
from ren_lab.language import rules_memory, walk
from ren_lab.language.annotations import Annotation, CachePolicy, Extent, Level
from ren_lab.language.check_expr import Env
from ren_lab.language.check_loops import LoopChecker
from ren_lab.language.errors import counted
from ren_lab.language.linear import Linear, Symbol, number, of
from ren_lab.language.structure import is_carried
from ren_lab.language.values import (
    Access,
    ArrayValue,
    ScalarValue,
    TaskValue,
    TensorValue,
    TileValue,
    Unusable,
    Value,
    describe,
    index,
    join,
    same_extent,
    value_of,
)  # fmt: skip
from ren_lab.runtime import ScopeMode

_LEFT_KERNEL = (
    "it is computed inside a kernel and read outside: a task gives back tensors only",
    "store it into a tensor and read that, or compute it outside",
)


class StmtChecker(LoopChecker):
    """Checks a function from entry to end. `run` gives back its body."""

    def __init__(self, function: ir.Function, warned: set[Any] | None = None) -> None:
        super().__init__(function, warned)
        self.returned: tuple[Value, ...] = ()
        self.policies: dict[str, CachePolicy] = {}
        self.inner: Env = {}  # what was known at the end of the last kernel that was left
        self.manual = 0  # above 0 inside a MANUAL scope
        self.points: dict[Symbol, tuple[str, int, Extent]] = {}  # extents: parameter, axis, and name where it has one

    # -- functions ------------------------------------------------------------------------------------------------------

    def enter(self, in_kernel: bool | None = None) -> None:
        """Bind the parameters. `in_kernel` where the function belongs to a kernel though it is none."""
        extents = self._extents()
        self.in_kernel = self.function.is_kernel if in_kernel is None else in_kernel
        if self.in_kernel:
            self.blocks = of(Symbol(expr=ir.Op("get_block_num")))
            self.block = of(Symbol(low=number(0), high=self.blocks - number(1), step=1))
        for param in self.function.params:
            value: Value = Value()
            if param.annotation is not None:
                value = value_of(param.annotation, extents.get(param.name), param.name)
                if self.in_kernel and isinstance(value, ScalarValue) and value.form is not None:
                    value = replace(value, form=of(Symbol(expr=ir.Name(param.name))))
            self.env[param.name] = value

    def _extents(self) -> dict[str, tuple[Linear, ...]]:
        """Extents of tensor parameters: numbers, and a point for each other one; one name is one point."""
        shared: dict[object, Linear] = {}
        result = {}
        for param in self.function.params:
            shape = None if param.annotation is None or param.annotation.kind not in ("tensor", "tile") else param.annotation.shape
            forms = []
            for axis, extent in enumerate(shape or ()):
                if isinstance(extent, int):
                    forms.append(number(extent))
                    continue
                point = Symbol(expr=ir.Op("dim", (ir.Name(param.name),), (("axis", axis),)))
                form = of(point) if extent is None else shared.setdefault(extent, of(point))
                self.points.setdefault(form.terms[0][0], (param.name, axis, extent))
                forms.append(form)
            if shape is not None:
                result[param.name] = tuple(forms)
        return result

    def run(self) -> ir.Block:
        """Check the body."""
        body = self.block_of(self.function.body)
        if self.in_kernel and self.function.level in (None, Level.CORE_GROUP):
            self.check_policies(self.function.body)
        return body

    def block_of(self, block: ir.Block) -> ir.Block:
        """Check a block."""
        result: list[ir.Stmt] = []
        for stmt in block:
            result.extend(self.stmt(stmt))
        return tuple(result)

    # -- statements -----------------------------------------------------------------------------------------------------

    def stmt(self, stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
        """Check a statement; what takes its place."""
        match stmt:
            case ir.Assign(target, value, declared):
                self.effect = value
                found = self.expr(value)
                if declared is not None:
                    found = self._declared(stmt, found, declared)
                self.env[target] = found
            case ir.Unpack(targets, values) | ir.Yield(targets, values):
                for name, found in zip(targets, [self.expr(value) for value in values]):
                    self.env[name] = found
            case ir.Put():
                self.env[stmt.target] = rules_memory.put(self, stmt)
            case ir.Do(value):
                self._effect(stmt, value)
            case ir.Call():
                return self.call(stmt)
            case ir.For():
                return (self.for_loop(stmt),)
            case ir.While():
                return (self.while_loop(stmt),)
            case ir.If():
                return (self._if(stmt),)
            case ir.Scope():
                self.manual += stmt.mode is ScopeMode.MANUAL
                body = self.block_of(stmt.body)
                self.manual -= stmt.mode is ScopeMode.MANUAL
                return (replace(stmt, body=body),)
            case ir.At() | ir.Spmd():
                return self.placed(stmt)
            case ir.SetCachePolicy():
                self._policy(stmt)
            case ir.Return(values):
                self.returned = tuple(self.expr(value) for value in values)
                self._check_return(stmt)
        return (stmt,)

    def _effect(self, stmt: ir.Do, value: ir.Expr) -> None:
        self.effect = value
        self.expr(value)
        if not (isinstance(value, ir.Op) and value.name in ("store", "assemble", "write")):
            name = f"pl.{value.name}" if isinstance(value, ir.Op) else "expression"
            self.fail(stmt, "its result is not used", "assign it to a name, or leave it out", name)
        if value.name == "assemble" and isinstance(self.facts[id(value.args[0])], TileValue):
            self.fail(stmt, "a tile is not changed in place", "assign the result: t = pl.assemble(t, …)", "pl.assemble")

    def _declared(self, stmt: ir.Assign, value: Value, declared: Annotation) -> Value:
        wanted = {"tensor": TensorValue, "tile": TileValue, "scalar": ScalarValue, "task_id": TaskValue, "array": ArrayValue}[
            declared.kind
        ]
        if type(value) is Value:
            return value
        if not isinstance(value, wanted):
            self.fail(
                stmt,
                f"{stmt.target!r} is declared a {declared.kind} and is {describe(value)}",
                "correct the annotation",
                "annotation",
            )
        dtype = getattr(value, "dtype", None)
        if declared.dtype is not None and dtype is not None and dtype != declared.dtype and getattr(value, "literal", None) is None:
            self.fail(
                stmt,
                f"{stmt.target!r} is declared {declared.dtype!r} and is {describe(value)}",
                "convert it with pl.cast",
                "annotation",
            )
        shape = getattr(value, "shape", None)
        if shape is not None and declared.shape is not None:
            fits = len(shape) == len(declared.shape) and all(
                not isinstance(want, int) or same_extent(have, number(want)) is not False
                for have, want in zip(shape, declared.shape)
            )
            if not fits:
                shown = "[" + ", ".join(str(getattr(x, "name", x)) for x in declared.shape) + "]"
                self.fail(stmt, f"{stmt.target!r} is declared {shown} and is {describe(value)}", "correct the shape", "annotation")
        return value

    def _check_return(self, stmt: ir.Return) -> None:
        if not self.function.is_kernel:
            return
        for value, expr in zip(self.returned, stmt.values):
            if isinstance(value, ScalarValue | TileValue):
                self.fail(expr, f"a kernel returns {describe(value)}; a task gives back tensors only",
                          "store it into an Out parameter and return that", "return")  # fmt: skip

    # -- branches and loops ---------------------------------------------------------------------------------------------

    def _if(self, stmt: ir.If) -> ir.Stmt:
        self.condition(stmt.condition, "if")
        before, written = self.env, set(self.written)
        self.uncertain += 1
        self.branches += 1
        ends: list[Env] = []
        blocks = []
        wrote: set[str] = set()
        for block in (stmt.then, stmt.other):
            self.env, self.written = dict(before), set(written)
            blocks.append(self.block_of(block))
            ends.append(self.env)
            wrote |= self.written
        self.uncertain -= 1
        self.branches -= 1
        self.env, self.written = self._merged(stmt, *ends), wrote
        if isinstance(stmt.condition, ir.Const) and isinstance(stmt.condition.value, bool):
            self.env = ends[0] if stmt.condition.value else ends[1]
        return replace(stmt, then=blocks[0], other=blocks[1])

    def _merged(self, stmt: ir.Stmt, then: Env, other: Env) -> Env:
        merged: Env = {}
        for name in {**then, **other}:
            if name not in then or name not in other:
                branch = "if" if name in then else "else"
                merged[name] = Unusable(
                    f"only the {branch} branch at line {stmt.loc.line} binds it", "bind it before the if, or in both branches"
                )
                continue
            joined = join(then[name], other[name], self.arithmetic)
            merged[name] = joined if joined is not None else Unusable(
                f"it is {describe(then[name])} or {describe(other[name])}, depending on the branch at line {stmt.loc.line}",
                "give both branches the same type, or use two names",
            )  # fmt: skip
        return merged

    # -- kernels --------------------------------------------------------------------------------------------------------

    def placed(self, stmt: ir.At | ir.Spmd) -> tuple[ir.Stmt, ...]:
        """A `pl.at` or `pl.spmd`."""
        name = "pl.at" if isinstance(stmt, ir.At) else "pl.spmd"
        if not self.in_kernel and is_carried(stmt, self.submits):
            return self._carried(stmt)
        blocks: Linear | None = None
        if isinstance(stmt, ir.Spmd):
            blocks = self.integer(stmt.blocks, self.expr(stmt.blocks), name)
            if blocks.value is not None and blocks.value < 1:
                self.fail(stmt, f"it has {counted(blocks.value, 'block')}", "give at least 1", name)
        self.deps(stmt.deps, name)
        flattened = self.in_kernel  # a pl.at inside an opaque function belongs to its kernel
        outside, loops, policies, block = self.env, self.loops, self.policies, (self.block, self.blocks)
        first = len(self.accesses)
        self.env = dict(outside) if flattened else {n: _inside(n, v) for n, v in outside.items()}
        self.policies, self.in_kernel = {}, True
        self.loops = loops if flattened else []
        if blocks is not None:
            self.blocks = blocks
            self.block = of(Symbol(low=number(0), high=blocks - number(1), attained=blocks.value is not None, step=1))
            if isinstance(stmt, ir.Spmd) and stmt.var is not None:
                self.env[stmt.var] = index(self.block)
        body = self.block_of(stmt.body)
        if not isinstance(stmt, ir.At) or stmt.level is Level.CORE_GROUP:
            self.check_policies(stmt.body, first)
        inner = self.inner = self.env
        self.env, self.loops, self.policies, (self.block, self.blocks) = outside, loops, policies, block
        self.in_kernel = flattened
        self.env = inner if flattened else self._left(stmt, outside, inner)
        if stmt.task_id is not None:
            self.env[stmt.task_id] = TaskValue()
        return (replace(stmt, body=body),)

    def submits(self, call: ir.Call) -> bool:
        """Whether a function that is called submits or allocates; subclasses know functions."""
        return False

    def _carried(self, stmt: ir.At | ir.Spmd) -> tuple[ir.Stmt, ...]:
        """A block at another level than CORE_GROUP that holds tasks: a part of the submitting side."""
        if stmt.deps or stmt.task_id is not None:
            self.fail(stmt, "it has deps or a task id, and is no task: it holds others", "give them to the tasks inside", "pl.at")
        policies, self.policies = self.policies, {}
        body = self.block_of(stmt.body)
        self.policies = policies
        return (replace(stmt, body=body),)

    def _left(self, stmt: ir.At | ir.Spmd, outside: Env, inner: Env) -> Env:
        """What is known outside of names that a kernel bound."""
        after = dict(outside)
        for name in walk.bound_in(stmt.body):
            value = inner.get(name, Value())
            if isinstance(value, TensorValue):
                value = replace(value, origin=None)
            after[name] = value if isinstance(value, TensorValue) or type(value) is Value else Unusable(*_LEFT_KERNEL)
        return after

    # -- cache policies -------------------------------------------------------------------------------------------------

    def _policy(self, stmt: ir.SetCachePolicy) -> None:
        value = self.expr(ir.Name(stmt.tensor, loc=stmt.loc))
        if type(value) is Value:
            return
        if not isinstance(value, TensorValue):
            self.fail(stmt, f"{stmt.tensor!r} is {describe(value)}", "name a tensor that the kernel reads", "pl.set_cache_policy")
        for root in value.roots:
            if self.policies.setdefault(root, stmt.policy) is not stmt.policy:
                self.fail(
                    stmt,
                    f"{stmt.tensor!r} has another policy in this kernel already",
                    "declare one per tensor",
                    "pl.set_cache_policy",
                )

    def check_policies(self, body: ir.Block, first: int = 0) -> None:
        """Warn about BYPASS, and raise where a kernel writes what it declares to bypass."""
        if self.quiet:
            return
        for stmt in body:
            if isinstance(stmt, ir.SetCachePolicy) and stmt.policy is CachePolicy.BYPASS:
                value = self.env.get(stmt.tensor)
                roots = value.roots if isinstance(value, TensorValue) else frozenset()
                for access in self.accesses[first:]:
                    if access.write and len(roots) == 1 and access.tensor.roots == roots:
                        self.fail(
                            stmt,
                            f"{stmt.tensor!r} is declared BYPASS, and line {access.loc.line} of the same kernel writes it: "
                            "a cached write and a bypassing read of the same bytes are incoherent",
                            "leave the declaration out, or write another tensor",
                            "pl.set_cache_policy",
                        )
                self._warn_bypass("pl.set_cache_policy", stmt.tensor, stmt)
        for access in self.accesses[first:]:
            if access.cache is CachePolicy.BYPASS:
                self._bypassing_load(access, self.accesses[first:])

    def _bypassing_load(self, access: Access, others: list[Access]) -> None:
        for other in others:
            if other.write and len(access.tensor.roots) == 1 and other.tensor.roots == access.tensor.roots:
                self.fail(
                    access.expr,
                    f"it bypasses the cache (CachePolicy.BYPASS), and line {other.loc.line} of the same kernel writes the tensor",
                    "load it through the cache, or write another tensor",
                    "pl.load",
                )
        self._warn_bypass("pl.load", "/".join(sorted(access.tensor.roots)), access.expr)

    def _warn_bypass(self, construct: str, tensor: str, at: ir.Node) -> None:
        self.warn(
            construct,
            f"CachePolicy.BYPASS on {tensor!r} is carried, but there is no bypassing path: the code is that of a cached read",
            "nothing needs to be changed",
            at.loc,
        )

    # -- calls ----------------------------------------------------------------------------------------------------------

    def call(self, stmt: ir.Call) -> tuple[ir.Stmt, ...]:
        """A call of another function; subclasses know what it is."""
        for arg in stmt.args:
            self.expr(arg)
        self.bind_results(stmt, None)
        return (stmt,)

    def bind_results(self, stmt: ir.Call, results: tuple[Value, ...] | None) -> None:
        """Bind the targets of a call; `results` is None where the function is not known yet."""
        for k, name in enumerate(stmt.targets):
            self.env[name] = Value() if results is None else results[k]
        if stmt.task_id is not None:
            self.env[stmt.task_id] = TaskValue()

    def submission(self, stmt: ir.Call) -> None:
        """Check what a submission says besides its arguments."""
        if self.in_kernel:
            self.fail(stmt, "a task is submitted inside a kernel", "submit it outside, or call the kernel plainly", "pl.submit")
        self.deps(stmt.deps, "pl.submit")
        if stmt.blocks is not None:
            blocks = self.integer(stmt.blocks, self.expr(stmt.blocks), "pl.submit")
            if blocks.value is not None and blocks.value < 1:
                self.fail(stmt, f"it has {blocks.value} blocks", "give at least 1", "pl.submit")
        if stmt.regions is not None:
            for region in (*stmt.regions.reads, *stmt.regions.writes, *stmt.regions.updates):
                self.expr(region)


def _inside(name: str, value: Value) -> Value:
    """What an outer value is inside a kernel."""
    if isinstance(value, TensorValue):
        return replace(value, origin=name)
    if isinstance(value, TaskValue | ArrayValue):
        return Unusable(f"it is {describe(value)}, which kernels do not see", "name it in deps=[…], or pass numbers as scalars")
    return value
