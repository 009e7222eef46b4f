"""Checks calls between functions: arguments, directions, and what comes back."""

from dataclasses import dataclass, replace
from typing import NoReturn

from ren_lab.language import nodes as ir
from ren_lab.language.annotations import Annotation, Direction, Extent, FunctionType
from ren_lab.language.check_stmt import StmtChecker
from ren_lab.language.dtypes import BOOL, FP32, INDEX
from ren_lab.language.errors import LanguageError, counted
from ren_lab.language.linear import Linear, Symbol, number, unknown
from ren_lab.language.rules import LARGEST
from ren_lab.language.values import (
    ArrayValue,
    ScalarValue,
    Shape,
    TaskValue,
    TensorValue,
    TileValue,
    Value,
    describe,
    same_extent,
    shape_text,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Summary:
    """What a caller knows of a function.

    Attributes:
        function: the function, with parameters that are fully described.
        returned: its return values, in terms of its own parameters and extents.
        points: its dynamic extents: parameter, axis, and name where it has one.
    """

    function: ir.Function
    returned: tuple[Value, ...]
    points: dict[Symbol, tuple[str, int, Extent]]


class CallChecker(StmtChecker):
    """Checks a function that calls others; `resolve` finds them."""

    partial = False  # whether types of arguments may still be unknown

    def resolve(self, stmt: ir.Call, args: list[Value]) -> Summary | None:
        """The function that is called, for these arguments; None where it is not known yet."""
        raise NotImplementedError

    def summary(self) -> Summary:
        """What callers know of this function, once it is checked."""
        return Summary(self.function, self.returned, self.points)

    def call(self, stmt: ir.Call) -> tuple[ir.Stmt, ...]:
        """A call, or the submission of a kernel."""
        if stmt.submit:
            self.submission(stmt)
        args = [self.expr(arg) for arg in stmt.args]
        summary = self.resolve(stmt, args)
        if summary is None:
            self.bind_results(stmt, None)
            return (stmt,)
        function = summary.function
        if stmt.submit and not function.is_kernel:
            self.refuse(stmt, "it is no kernel", "submit an InCore function; call others plainly")
        if function.type is FunctionType.Orchestration and self.in_kernel:
            self.refuse(stmt, "it submits tasks, and stands inside a kernel", "call it outside")
        if function.type is FunctionType.Orchestration and self.manual:
            self.refuse(stmt, "it stands inside a MANUAL scope, and a function that submits tasks has scopes of its own",
                        "end the MANUAL scope first, or make the function @pl.jit.inline")  # fmt: skip
        for param, value in zip(function.params, args):
            self._effects(stmt, param, value)
        results = tuple(self._translated(value, summary, args) for value in summary.returned)
        if stmt.targets and len(stmt.targets) != len(results):
            self.refuse(stmt, f"it returns {counted(len(results), 'value')} and {counted(len(stmt.targets), 'name')} take them",
                        "write as many names as it returns; pl.submit adds the task's id behind them")  # fmt: skip
        self.bind_results(stmt, results)
        return (replace(stmt, callee=function.name),)

    def refuse(self, stmt: ir.Call, rule: str, remedy: str) -> NoReturn:
        """Raise the error for a call."""
        raise LanguageError(f"call of {stmt.callee}", rule, remedy, stmt.loc)

    def _effects(self, stmt: ir.Call, param: ir.Param, value: Value) -> None:
        if not isinstance(value, TensorValue):
            return
        name = f"call of {stmt.callee}"
        if param.reads:
            self.touch(value, False, stmt.loc, name)
        if param.writes:
            self.touch(value, True, stmt.loc, name)

    def _translated(self, value: Value, summary: Summary, args: list[Value]) -> Value:
        """A returned value as the caller sees it."""
        position = {param.name: k for k, param in enumerate(summary.function.params)}

        def extent(form: Linear) -> Linear:
            result = number(form.constant)
            for symbol, k in form.terms:
                known = summary.points.get(symbol)
                arg = args[position[known[0]]] if known is not None else None
                shape = arg.shape if isinstance(arg, TensorValue) else None
                result = result + (unknown() if known is None or shape is None else shape[known[1]].scaled(k))
            return result

        if isinstance(value, TensorValue):
            shape = None if value.shape is None else tuple(extent(form) for form in value.shape)
            roots: frozenset[str] = frozenset()
            origins = set()
            for root in value.roots:
                arg = args[position[root]] if root in position else None
                roots |= arg.roots if isinstance(arg, TensorValue) else frozenset({root})
                origins.add(arg.origin if isinstance(arg, TensorValue) else None)
            origin = origins.pop() if len(origins) == 1 else None
            return TensorValue(shape, value.dtype, roots, origin)
        if isinstance(value, TileValue):
            return replace(value, shape=None if value.shape is None else tuple(extent(form) for form in value.shape))
        if isinstance(value, ScalarValue):
            return replace(value, form=None if value.form is None else unknown())
        return value

    # -- arguments ------------------------------------------------------------------------------------------------------

    def annotated(self, stmt: ir.Call, function: ir.Function, args: list[Value]) -> tuple[Annotation | None, ...]:
        """The full annotations that a function's parameters take for these arguments."""
        if len(args) != len(function.params):
            names = ", ".join(param.name for param in function.params)
            self.refuse(
                stmt,
                f"it takes {counted(len(function.params), 'argument')} ({names}) and is given {len(args)}",
                "give one per parameter",
            )
        extents: dict[Extent, Linear] = {}
        return tuple(
            self._annotation(stmt, k, param, value, extents) for k, (param, value) in enumerate(zip(function.params, args))
        )

    def _annotation(self, stmt: ir.Call, k: int, param: ir.Param, value: Value, extents: dict[Extent, Linear]) -> Annotation | None:
        wanted = param.annotation
        what = f"argument {k + 1} ({param.name!r})"
        if type(value) is Value:
            return wanted
        kind = {TensorValue: "tensor", ScalarValue: "scalar", TaskValue: "task_id", ArrayValue: "array", TileValue: "tile"}[
            type(value)
        ]
        if kind == "tile" or wanted is not None and wanted.kind != kind:
            if isinstance(value, TileValue) and self.in_kernel and (wanted is None or wanted.kind in ("tensor", "tile")):
                return self._tile_annotation(stmt, what, wanted, value)
            need = "a tensor or a scalar" if wanted is None else f"a {wanted.kind}"
            self.refuse(stmt, f"{what} is {describe(value)} where {need} is wanted", "give what the function declares")
        if isinstance(value, ScalarValue):
            return self._scalar_annotation(stmt, what, wanted, value)
        if isinstance(value, ArrayValue):
            return Annotation("array", (value.length.value,), value.dtype) if value.length.value else wanted
        if not isinstance(value, TensorValue):
            return Annotation(kind)
        self._fit(stmt, what, wanted, value.shape, value, extents)
        shape = self._annotated_shape(wanted, value.shape)
        dtype = (wanted.dtype if wanted is not None else None) or value.dtype
        return Annotation("tensor", shape, dtype, None if wanted is None else wanted.direction)

    def _tile_annotation(self, stmt: ir.Call, what: str, wanted: Annotation | None, value: TileValue) -> Annotation:
        """A tile given to a helper inside a kernel stands for a tensor that is only read."""
        if wanted is not None and wanted.direction is not None:
            self.refuse(stmt, f"{what} is {describe(value)}, and the function writes it", "give a tensor")
        self._fit(stmt, what, wanted, value.shape, value, {})
        return Annotation("tile", self._annotated_shape(wanted, value.shape), value.dtype)

    def _scalar_annotation(self, stmt: ir.Call, what: str, wanted: Annotation | None, value: ScalarValue) -> Annotation:
        dtype = None if wanted is None else wanted.dtype
        if dtype is None and value.dtype is None and value.literal is None and not value.weak and self.partial:
            return Annotation("scalar")
        if dtype is None:
            written = value.literal
            dtype = value.dtype or (
                FP32 if isinstance(written, float) or written is None else BOOL if isinstance(written, bool) else INDEX
            )
        elif value.literal is not None:
            fits = (
                dtype.is_float
                or (dtype.is_int and type(value.literal) is int)
                or (dtype.kind == "b" and isinstance(value.literal, bool))
            )
            large = dtype.is_float and type(value.literal) is int and abs(value.literal) > LARGEST
            if not fits or large or isinstance(value.literal, bool) and dtype.kind != "b":
                self.refuse(stmt, f"{what} is {describe(value)} for pl.Scalar[{dtype!r}]", "give a number of that type")
        elif (value.weak and not dtype.is_float) or (
            value.dtype is not None and value.dtype != dtype and not (value.dtype.is_int and dtype.is_int)
        ):
            self.refuse(stmt, f"{what} is {describe(value)} for pl.Scalar[{dtype!r}]", f"convert it: pl.cast(…, {dtype!r})")
        return Annotation("scalar", None, dtype)

    def _fit(
        self, stmt: ir.Call, what: str, wanted: Annotation | None, shape: Shape, value: TensorValue | TileValue,
        extents: dict[Extent, Linear],
    ) -> None:  # fmt: skip
        if wanted is None:
            return
        if wanted.dtype is not None and value.dtype is not None and wanted.dtype != value.dtype:
            self.refuse(
                stmt, f"{what} is {describe(value)} where {wanted.dtype!r} is declared", "convert it before, or declare its type"
            )
        if wanted.shape is None or shape is None:
            return
        fits = len(wanted.shape) == len(shape)
        for want, have in zip(wanted.shape, shape) if fits else ():
            known = number(want) if isinstance(want, int) else None if want is None else extents.setdefault(want, have)
            fits = fits and (known is None or same_extent(known, have) is not False)
        if not fits:
            shown = "[" + ", ".join("?" if x is None else str(getattr(x, "name", x)) for x in wanted.shape) + "]"
            self.refuse(stmt, f"{what} has the shape {shape_text(shape)} where {shown} is declared", "give the declared shape")

    def _annotated_shape(self, wanted: Annotation | None, shape: Shape) -> tuple[Extent, ...] | None:
        """Extents for a parameter: as declared, otherwise numbers, names of dynamic extents, or None."""
        declared = None if wanted is None else wanted.shape
        if shape is None:
            return declared
        result: list[Extent] = []
        for axis, form in enumerate(shape):
            extent: Extent = declared[axis] if declared is not None else form.value
            if extent is None:
                extent = form.value
            if extent is None and len(form.terms) == 1 and form == Linear(0, ((form.terms[0][0], 1),)):
                known = self.points.get(form.terms[0][0])
                extent = known[2] if known is not None else None
            result.append(extent)
        return tuple(result)


def finished(function: ir.Function, checker: StmtChecker) -> ir.Function:
    """The function with the directions of parameters that declare none: what is written and not read is an Out."""
    params = []
    for param in function.params:
        annotation = param.annotation
        if annotation is not None and annotation.kind == "tensor" and param.name in checker.inferred:
            direction = Direction.InOut if param.name in checker.looked_at else Direction.Out
            annotation = replace(annotation, direction=direction)
        params.append(replace(param, annotation=annotation))
    return replace(function, params=tuple(params))
