"""Writing Python that runs a function: lines of text, each with the place in the user's source that it comes from.

The code is compiled under the user's file name and line numbers, so that tracebacks, capacity errors and statistics name
the user's lines.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType as PythonFunction
from typing import Any

import numpy as np

from ren_lab.language import nodes as ir
from ren_lab.language import support, walk
from ren_lab.language.check_program import ProgramChecker
from ren_lab.language.dtypes import BF16, DType
from ren_lab.language.errors import Loc
from ren_lab.language.linear import numeric
from ren_lab.language.rules import MOST_BITS
from ren_lab.language.values import ArrayValue, ScalarValue, TensorValue, TileValue, Value

_KEPT = frozenset(
    "np min max abs int bool float range slice len loc orch window put placed view put_items changed alike column checked_index "
    "cut fetch given block_count block blocks reshaped ScopeMode n_blocks new_array fit floor_div rem shl shr power ratio whole "
    "fits turns sized tile_reshaped joined factors some floating bfloat16".split()
)
_DEEPEST = 14  # levels of indentation in one Python function
_CHECKED = {"//": "floor_div", "%": "rem", "<<": "shl", ">>": "shr", "**": "power"}
_PLAIN = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floor_div": "//", "rem": "%", "lt": "<", "le": "<=", "gt": ">",
          "ge": ">=", "eq": "==", "ne": "!=", "and_": "&", "or_": "|", "xor": "^", "shl": "<<", "shr": ">>"}  # fmt: skip


class Emitter:
    """Writes one function.

    Attributes:
        checker: has checked the function, whose expressions are distinct objects.
        lines: what is written so far.
        locs: places that the code names at run time.
    """

    def __init__(self, function: ir.Function, checker: ProgramChecker) -> None:
        self.function = function
        self.checker = checker
        self.lines: list[tuple[str, Loc]] = []
        self.locs: list[Loc] = []
        self._parts: list[tuple[str, Loc]] = []  # functions inside the function: statements that stand too deep in it
        self._shared: dict[str, None] = {}  # names that those bind
        self._indent = 0
        self._loc = function.loc
        self._carried: list[tuple[str, ...]] = []
        self._names: dict[str, str] = {}
        self._taken = dict.fromkeys(p.name for p in function.params) | walk.names_in(function.body)
        self._parameters = {self.name(param.name) for param in function.params}

    # -- writing --------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.append(("    " * self._indent + text, self._loc))

    @contextmanager
    def indented(self, head: str) -> Iterator[None]:
        """Write a head and indent what follows."""
        self.line(head)
        self._indent += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self._indent -= 1

    @contextmanager
    def whole(self, parameters: list[str]) -> Iterator[None]:
        """Write the head of the function; what it is made of follows it."""
        with self.indented(f"def {self.title}({', '.join(parameters)}):"):
            yield
            head: list[tuple[str, Loc]] = []
            if self._shared:
                head.append((f"    {' = '.join(self._shared)} = None", self.function.loc))
            self.lines[1:1] = head + self._parts

    def place(self, loc: Loc) -> str:
        """How the code names a place."""
        self.locs.append(loc)
        return f"loc[{len(self.locs) - 1}]"

    def name(self, name: str) -> str:
        """A user's name in generated code."""
        if name not in self._names:
            clashes = name in _KEPT or name.endswith(("_launch", "_function"))
            self._names[name] = walk.fresh_name(name + "_", self._taken) if clashes else name
            self._taken[self._names[name]] = None
        return self._names[name]

    @property
    def title(self) -> str:
        """The function's name in generated code."""
        return self.function.name + ("_" if self.function.name in _KEPT else "")

    @property
    def source(self) -> str:
        """The text, for reading."""
        return ast.unparse(ast.parse(self._text)) + "\n"

    @property
    def _text(self) -> str:
        return "\n".join(text for text, _ in self.lines) + "\n"

    def compiled(self, namespace: dict[str, Any]) -> PythonFunction:
        """The function that the text defines, at the user's lines."""
        tree = ast.parse(self._text)
        file = self.function.loc.file
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword):
                loc = self.lines[node.lineno - 1][1].within(file)
                if loc.file != file:
                    loc = self.function.loc
                # of a stretch of several lines, such as a `with`, the first: Python names the last one of a method call
                end = loc.end_column - 1 if loc.end_line == loc.line else len(loc.text)
                node.lineno = node.end_lineno = max(loc.line, 1)
                node.col_offset = max(loc.column - 1, 0)
                node.end_col_offset = max(end, node.col_offset)
        scope = {"np": np, "loc": tuple(self.locs), **namespace}
        exec(compile(tree, file, "exec"), scope)
        made = scope[self.title]
        assert isinstance(made, PythonFunction)
        made.__name__ = made.__qualname__ = self.function.name
        return made

    # -- statements -----------------------------------------------------------------------------------------------------

    def block(self, block: ir.Block) -> None:
        """Write a block."""
        for position, stmt in enumerate(block):
            self._loc = stmt.loc
            if self._indent > _DEEPEST and walk.blocks_of(stmt):
                self._apart(stmt, block, position)
            else:
                self.stmt(stmt, block, position)

    def _apart(self, stmt: ir.Stmt, block: ir.Block, position: int) -> None:
        """Write a statement as a function beside the outer statements, and its call here: Python nests 20 blocks at most."""
        name = walk.fresh_name(f"{self.title}_part", self._taken)
        self._taken[name] = None
        carried = self._carried[-1] if self._carried else ()  # by the loop around it, for which it may yield
        bound = [self.name(n) for n in walk.bound_in((stmt,)) | dict.fromkeys(carried)]
        around = self.lines, self._indent
        self.lines, self._indent = [], 1
        with self.indented(f"def {name}():"):
            if bound:
                self.line(f"nonlocal {', '.join(bound)}")
            self.stmt(stmt, block, position)
        self._parts.extend(self.lines)
        self.lines, self._indent = around
        self._loc = stmt.loc
        self._shared |= dict.fromkeys(n for n in bound if n not in self._parameters)
        self.line(f"return {name}()" if walk.returns((stmt,)) else f"{name}()")

    def stmt(self, stmt: ir.Stmt, block: ir.Block, position: int) -> None:
        """Write a statement."""
        match stmt:
            case ir.Assign(target, value):
                self.line(f"{self.name(target)} = {self.bound(value)}")
            case ir.Unpack(targets, values):
                self.bind([self.name(target) for target in targets], [self.bound(value) for value in values])
            case ir.Yield():
                self._yield(stmt)
            case ir.If(condition, then, other):
                self._carried.append(())  # a yield in a branch is the branch's, also where a loop around it carries values
                with self.indented(f"if {self.expr(condition)}:"):
                    self.block(then)
                if other:
                    self._loc = stmt.loc
                    with self.indented("else:"):
                        self.block(other)
                self._carried.pop()
            case ir.For() | ir.While():
                self._loop(stmt)
            case ir.SetCachePolicy():
                pass  # there is no bypassing path: carried, and the code is the same
            case _:
                raise AssertionError(f"no way to run {stmt!r}")

    def bind(self, names: list[str], values: list[str]) -> None:
        """Give values names, all at the same time."""
        if names:
            self.line(f"{', '.join(names)} = {', '.join(values)}")

    def bound(self, value: ir.Expr) -> str:
        """The code of a value that gets a name."""
        return self.expr(value)

    def _yield(self, stmt: ir.Yield) -> None:
        inner = self._carried[-1] if self._carried else ()
        values = [self.bound(value) for value in stmt.values]
        names = [self.name(target) for target in stmt.targets] or [self.name(name) for name in inner]
        self.bind(names, values)
        if inner and stmt.targets:
            self.bind([self.name(name) for name in inner], names)

    def _loop(self, stmt: ir.For | ir.While) -> None:
        carried = tuple(name for name, _ in stmt.carried)
        for name, value in stmt.carried:
            self.line(f"{self.name(name)} = {self.bound(value)}")
        last = walk.last_yield(stmt.body)
        if carried and last is not None and last.targets:  # what they are where there is no turn
            self.bind([self.name(target) for target in last.targets], [self.name(name) for name in carried])
        if isinstance(stmt, ir.For):
            bounds = [self.expr(bound) for bound in (stmt.start, stmt.stop, stmt.step)]
            turns = f"range({', '.join(bounds)})"
            if not self.is_nonzero(stmt.step):
                turns = f"turns({', '.join(bounds)}, {self.place(stmt.loc)})"
            head = f"for {self.name(stmt.var)} in {turns}:"
        else:
            head = "while True:"
        with self.indented(head):
            if isinstance(stmt, ir.While):
                self.line(f"if not {self.expr(stmt.condition)}: break")
            self._carried.append(carried)
            self.block(stmt.body)
            self._carried.pop()

    # -- expressions ----------------------------------------------------------------------------------------------------

    def value(self, expr: ir.Expr) -> Value:
        """What is known of an expression."""
        return self.checker.facts[id(expr)]

    def is_tile(self, expr: ir.Expr | None) -> bool:
        """Whether an operand is an array."""
        return expr is not None and isinstance(self.value(expr), TileValue | TensorValue)

    def is_nonzero(self, expr: ir.Expr) -> bool:
        """Whether an integer scalar is known not to be 0."""
        value = self.value(expr)
        low, high = numeric(value.form) if isinstance(value, ScalarValue) and value.form is not None else (None, None)
        return low is not None and low > 0 or high is not None and high < 0

    def expr(self, expr: ir.Expr) -> str:
        """The code of an expression; compound code is in parentheses."""
        match expr:
            case ir.Const(value):
                if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
                    return f'float("{value}")'
                return f"({value!r})" if isinstance(value, int | float) and value < 0 else repr(value)
            case ir.Name(id=name):
                return self.name(name)
            case ir.Unary(op, operand):
                return self._unary(expr, op, operand)
            case ir.Binary(op, left, right):
                return self._binary(expr, op, left, right)
            case ir.Logical(op, operands):
                return "(" + f" {op} ".join(self.expr(x) for x in operands) + ")"
            case ir.Choice(condition, then, other):
                return f"({self.expr(then)} if {self.expr(condition)} else {self.expr(other)})"
            case ir.Op():
                return self.operation(expr)
            case ir.Subscript():
                return self.subscript(expr)
        raise AssertionError(f"no way to compute {expr!r}")

    def _unary(self, expr: ir.Expr, op: str, operand: ir.Expr) -> str:
        if op == "~" and not self.is_tile(operand) and _dtype(self.value(operand), "b"):
            op = "not"
        return f"({op} {self.expr(operand)})" if op == "not" else f"({op}{self.expr(operand)})"

    def _binary(self, expr: ir.Expr, op: str, left: ir.Expr, right: ir.Expr) -> str:
        if not self.is_tile(left) and not self.is_tile(right):
            return self.scalar_binary(expr, op, left, right)
        return self.array_operation(expr, op, (left, right))

    def scalar_binary(self, expr: ir.Expr, op: str, left: ir.Expr, right: ir.Expr) -> str:
        """An operator on scalars. What may fail is checked where it is not known to be right."""
        a, b = self.expr(left), self.expr(right)
        if op == "/":
            return f"ratio({a}, {b})"
        if op in _CHECKED and not (self.is_nonzero(right) if op in "//%" else self._in_bits(op, right)):
            return f"{_CHECKED[op]}({a}, {b}, {self.place(expr.loc)})"
        return f"({a} {op} {b})"

    def _in_bits(self, op: str, expr: ir.Expr) -> bool:
        value = self.value(expr)
        low, high = numeric(value.form) if isinstance(value, ScalarValue) and value.form is not None else (None, None)
        return low is not None and low >= 0 and (op == ">>" or high is not None and high <= MOST_BITS)

    def array_operation(self, expr: ir.Expr, op: str, args: tuple[ir.Expr, ...]) -> str:
        """An operator on arrays."""
        raise AssertionError(f"array computation outside a kernel: {expr!r}")

    def operation(self, op: ir.Op) -> str:
        """An operation on scalars, or an extent; the rest is for subclasses."""
        args = [arg for arg in op.args if arg is not None]
        match op.name:
            case "dim":
                return f"{self.expr(args[0])}.shape[{op.attr('axis')}]"
            case "min" | "max":
                return f"{op.name}({self.expr(args[0])}, {self.expr(args[1])})"
            case "maximum" | "minimum":
                return f"{op.name[:3]}({self.expr(args[0])}, {self.expr(args[1])})"
            case "cast":
                return self.scalar_cast(args[0], op.attr("dtype"), op.loc)
            case "neg":
                return f"(-{self.expr(args[0])})"
            case "not_":
                return f"(not {self.expr(args[0])})" if _dtype(self.value(args[0]), "b") else f"(~{self.expr(args[0])})"
            case "abs":
                return f"abs({self.expr(args[0])})"
            case "relu":
                return f"max({self.expr(args[0])}, 0)"
            case "recip":
                return f"ratio(1.0, {self.expr(args[0])})"
            case "rsqrt":
                return f"ratio(1.0, {self._function('sqrt', op, args[0])})"
            case "exp" | "log" | "sqrt" | "sin" | "cos" | "tanh":
                return self._function(op.name, op, args[0])
            case "sel":
                return f"({self.expr(args[1])} if {self.expr(args[0])} else {self.expr(args[2])})"
        if op.name in _PLAIN:
            return self.scalar_binary(op, _PLAIN[op.name], args[0], args[1])
        raise AssertionError(f"no way to compute {op!r}")

    def _function(self, name: str, op: ir.Op, arg: ir.Expr) -> str:
        """A function of a scalar, in the scalar's own type: a number that is written stays one of Python's."""
        dtype = getattr(self.value(op), "dtype", None)
        return f"{'float' if dtype is None else dtype_code(dtype)}(np.{name}({self.expr(arg)}))"

    def scalar_cast(self, arg: ir.Expr, dtype: DType, loc: Loc) -> str:
        """A scalar in another type. Integers are exact Python numbers whatever their width."""
        value = self.value(arg)
        exact = isinstance(value, ScalarValue) and value.is_int and value.dtype is not None
        if exact and dtype.is_float:
            return f"floating({dtype_code(dtype)}, {self.expr(arg)})"
        if dtype.is_int:
            return f"int({self.expr(arg)})" if exact else f"whole({self.expr(arg)}, {self.place(loc)})"
        return f"{'bool' if dtype.kind == 'b' else dtype_code(dtype)}({self.expr(arg)})"

    def subscript(self, expr: ir.Subscript) -> str:
        """`base[items]`."""
        base = self.value(expr.base)
        if isinstance(base, ArrayValue):
            return f"{self.expr(expr.base)}[{self.array_index(expr, expr.base, expr.items[0])}]"
        items = self.items(expr.items)
        if self.checker.proven.get(id(expr), False):
            return f"{self.expr(expr.base)}[{', '.join(items)}]"
        return f"view({self.expr(expr.base)}, {self.spans(expr.items)}, {self.place(expr.loc)})"

    def array_index(self, at: ir.Node, base: ir.Expr, item: ir.Expr) -> str:
        """The index into an array of scalars or task ids."""
        index = self.expr(item)
        if self.checker.proven.get(id(at), False):
            return index
        return f"checked_index(len({self.expr(base)}), {index}, {self.place(at.loc)})"

    def items(self, items: tuple[ir.Expr, ...]) -> list[str]:
        """Subscripts as they stand between brackets."""
        result = []
        for item in items:
            if isinstance(item, ir.Span):
                low = "" if item.low is None else self.expr(item.low)
                high = "" if item.high is None else self.expr(item.high)
                result.append(f"{low}:{high}")
            else:
                result.append(self.expr(item))
        return result

    def spans(self, items: tuple[ir.Expr, ...]) -> str:
        """Subscripts as a tuple of ints and slices."""
        result = []
        for item in items:
            if isinstance(item, ir.Span):
                ends = ["None" if end is None else self.expr(end) for end in (item.low, item.high)]
                result.append(f"slice({', '.join(ends)})")
            else:
                result.append(self.expr(item))
        return self.tuple_of(result)

    def tuple_of(self, items: list[str]) -> str:
        """A tuple."""
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    def shape(self, sequence: ir.Expr | None, loc: Loc) -> str:
        """The shape of something new."""
        assert isinstance(sequence, ir.Sequence)
        forms = [value.form for value in map(self.value, sequence.items) if isinstance(value, ScalarValue)]
        lows = [None if form is None else numeric(form)[0] for form in forms]
        code = self.list_of(sequence)
        return code if all(low is not None and low >= 1 for low in lows) else f"sized({code}, {self.place(loc)})"

    def namespace(self) -> dict[str, Any]:
        """What the code calls, besides launches and other functions."""
        found: dict[str, Any] = {name: getattr(support, name) for name in _KEPT if hasattr(support, name)}
        if any("bfloat16" in text for text, _ in self.lines):
            found["bfloat16"] = BF16.numpy.type
        return found

    def list_of(self, sequence: ir.Expr | None) -> str:
        """A list of scalars as a tuple."""
        assert isinstance(sequence, ir.Sequence)
        return self.tuple_of([self.expr(item) for item in sequence.items])


def _dtype(value: Value, kinds: str) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and dtype.kind in kinds


def dtype_code(dtype: DType) -> str:
    """How generated code names an element type."""
    return "bfloat16" if dtype.name == "BF16" else f"np.{dtype.numpy.name}" if dtype.kind != "b" else "np.bool_"
