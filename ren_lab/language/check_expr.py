"""Checks expressions: types, shapes and bounds, as far as they are known, and what memory they touch."""

from typing import Any, NoReturn

from ren_lab.language import nodes as ir
from ren_lab.language import rules, rules_memory
from ren_lab.language.annotations import CachePolicy, Direction
from ren_lab.language.dtypes import BOOL
from ren_lab.language.errors import LanguageError, Loc, counted, warn
from ren_lab.language.linear import Arithmetic, Linear, Symbol, is_attained, number, numeric, unknown
from ren_lab.language.values import (
    Access,
    ArrayValue,
    ScalarValue,
    Shape,
    TaskValue,
    TensorValue,
    TileValue,
    Unusable,
    Value,
    describe,
    index,
    join,
    literal,
    shape_text,
)  # fmt: skip

Env = dict[str, Value]

SIGNS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floor_div", "%": "rem", "@": "matmul", "&": "and_", "|": "or_",
    "^": "xor", "<<": "shl", ">>": "shr", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne",
}  # fmt: skip
UNARY = {"-": "neg", "~": "not_", "not": "not_"}
MISPLACED = "tensor computation stands outside pl.at, pl.spmd and InCore functions"
PLACE_IT = "put it inside `with pl.at(level=pl.Level.CORE_GROUP):`, or in a function decorated with @pl.jit.incore"


class ExprChecker:
    """Checks the expressions of one function.

    Attributes:
        env: what is known of each name at this point.
        in_kernel: whether this point belongs to a kernel.
        block, blocks: index and number of blocks where there are some.
        quiet: above 0 in a trial run of a loop, which notes nothing.
        uncertain: above 0 where the code may not run: under an if, in a loop that may have no turns.
        branches: above 0 under an if or in a pl.while_ loop.
        loops: variables of the loops around this point, within the kernel where there is one.
        written: roots that something has written.
        undirected: parameters without annotation, whose direction the body decides.
        inferred: those of them that it writes.
        looked_at: roots that it reads.
        accesses: what the code touches, in order.
        facts: for each expression by identity, its value.
        proven: accesses by the identity of their expression, and whether they are known to be within bounds.
    """

    def __init__(self, function: ir.Function, warned: set[Any] | None = None) -> None:
        self.function = function
        self.params = {param.name: param for param in function.params}
        self.env: Env = {}
        self.in_kernel = function.is_kernel
        self.arithmetic = Arithmetic()
        self.block: Linear | None = None
        self.blocks: Linear | None = None
        self.quiet = 0
        self.uncertain = 0
        self.branches = 0
        self.loops: list[Symbol] = []
        self.written: set[str] = set()
        self.undirected = {param.name for param in function.params if param.annotation is None}
        self.inferred: set[str] = set()
        self.looked_at: set[str] = set()
        self.accesses: list[Access] = []
        self.facts: dict[int, Value] = {}
        self.proven: dict[int, bool] = {}
        self.effect: ir.Expr | None = None  # what the statement at hand may write memory by
        self._warned: set[Any] = set() if warned is None else warned
        self._sign: tuple[ir.Op, str] | None = None

    # -- reporting ------------------------------------------------------------------------------------------------------

    def fail(self, at: ir.Node, rule: str, remedy: str, construct: str | None = None) -> NoReturn:
        """Raise the error for an operation, or for another construct that is named."""
        if construct is None:
            signed = self._sign is not None and self._sign[0] is at
            construct = (
                f"`{self._sign[1]}`" if signed and self._sign else f"pl.{at.name}" if isinstance(at, ir.Op) else "expression"
            )
        raise LanguageError(construct, rule, remedy, at.loc)

    def warn(self, construct: str, rule: str, remedy: str, loc: Loc) -> None:
        """Warn once per place and function."""
        key = (construct, rule, loc.file, loc.line, loc.column)
        if not self.quiet and key not in self._warned:
            self._warned.add(key)
            warn(construct, rule, remedy, loc)

    # -- expressions ----------------------------------------------------------------------------------------------------

    def expr(self, expr: ir.Expr) -> Value:
        """Check an expression and note what is known of its value."""
        value = self._expr(expr)
        self.facts[id(expr)] = value
        return value

    def _expr(self, expr: ir.Expr) -> Value:
        match expr:
            case ir.Const(value):
                return literal(value)
            case ir.Name(id=name):
                return self._name(expr, name)
            case ir.Unary(op, operand):
                return self._signed(expr, UNARY[op], op, (operand,))
            case ir.Binary(op, left, right):
                if op == "**":
                    return self._power(expr, left, right)
                return self._signed(expr, SIGNS[op], op, (left, right))
            case ir.Logical(op, operands):
                self.condition(operands[0], f"`{op}`")
                self.uncertain += 1
                self.branches += 1
                for operand in operands[1:]:  # which are computed only if those before do not decide
                    self.condition(operand, f"`{op}`")
                self.uncertain -= 1
                self.branches -= 1
                return ScalarValue(BOOL)
            case ir.Choice(condition, then, other):
                return self._choice(expr, condition, then, other)
            case ir.Op():
                return self._op(expr)
            case ir.Subscript():
                return rules_memory.subscript(self, expr)
            case ir.Sequence():
                self.fail(expr, "a list stands where a value is wanted", "lists stand for shapes, offsets and deps only", "a list")
        raise AssertionError(f"no rule for {expr!r}")

    def _name(self, expr: ir.Expr, name: str) -> Value:
        value = self.env.get(name)
        if value is None:
            self.fail(expr, "it is read before it is bound", "bind it first", f"name {name!r}")
        if isinstance(value, Unusable):
            self.fail(expr, value.rule, value.remedy, f"name {name!r}")
        return value

    def _signed(self, expr: ir.Expr, name: str, sign: str, operands: tuple[ir.Expr, ...]) -> Value:
        op = ir.Op(name, operands, loc=expr.loc)
        values = [self.expr(operand) for operand in operands]
        if sign == "not":
            self.condition(operands[0], "`not`")
            return ScalarValue(BOOL)
        self._sign = (op, sign)
        return rules.RULES[name](self, op, values)

    def _power(self, expr: ir.Expr, left: ir.Expr, right: ir.Expr) -> Value:
        values = [self.expr(left), self.expr(right)]
        if all(isinstance(v, ScalarValue) and v.is_int for v in values):
            rules.check_second(self, expr, "**", values, "`**`")
            a, b = (v.form or unknown() for v in values if isinstance(v, ScalarValue))
            return index(self.arithmetic.apply("**", a, b))
        self.fail(expr, "only integer scalars are raised to a power", "multiply, or use pl.exp and pl.log", "`**`")

    def _choice(self, expr: ir.Expr, condition: ir.Expr, then: ir.Expr, other: ir.Expr) -> Value:
        self.condition(condition, "if expression")
        self.uncertain += 1
        self.branches += 1
        values = (self.expr(then), self.expr(other))
        self.uncertain -= 1
        self.branches -= 1
        joined = join(*values, self.arithmetic)
        if joined is None:
            self.fail(expr, f"it is {describe(values[0])} or {describe(values[1])}", "give both the same type", "if expression")
        return joined

    def _op(self, op: ir.Op) -> Value:
        values = [Value() if a is None or isinstance(a, ir.Sequence) else self.expr(a) for a in op.args]
        writes = op.name in ("store", "write") or op.name == "assemble" and isinstance(values[0], TensorValue)
        if writes and self.effect is not op:
            self.fail(op, "it writes memory in the middle of an expression", "give it a line of its own")
        found = rules_memory.RULES.get(op.name) or rules.RULES[op.name]
        return found(self, op, values)

    def condition(self, expr: ir.Expr, construct: str) -> Value:
        """A Boolean scalar."""
        value = self.expr(expr)
        if isinstance(value, ScalarValue) and value.dtype in (None, BOOL) and not value.weak:
            return value
        if type(value) is not Value:
            remedy = "give a Boolean scalar, such as i < n"
            if isinstance(value, TileValue | TensorValue):
                remedy += "; for elements there are &, | and ~, and pl.sel chooses by a mask"
            self.fail(expr, f"the condition is {describe(value)}", remedy, construct)
        return value

    def integer(self, at: ir.Node, value: Value, construct: str | None = None) -> Linear:
        """What is known of an integer scalar."""
        if isinstance(value, ScalarValue) and value.is_int and not isinstance(value.literal, bool):
            return value.form or unknown()
        if type(value) is Value:
            return unknown()
        self.fail(at, f"{describe(value)} stands where an integer is wanted", "give an integer scalar, or pl.cast one", construct)

    def integers(self, op: ir.Op, sequence: ir.Expr | None) -> tuple[Linear, ...]:
        """What is known of a list of integer scalars."""
        assert isinstance(sequence, ir.Sequence)
        return tuple(self.integer(op, self.expr(item)) for item in sequence.items)

    # -- tiles ----------------------------------------------------------------------------------------------------------

    def want_kernel(self, op: ir.Node) -> None:
        """Raise outside kernels."""
        if not self.in_kernel:
            self.fail(op, MISPLACED, PLACE_IT)

    def tiles(self, op: ir.Op, values: list[Value]) -> list[Value]:
        """Operands of a computation: a tensor is read as a whole."""
        result: list[Value] = []
        for value, arg in zip(values, op.args):
            if isinstance(value, TensorValue):
                self.want_kernel(op)
                result.append(self.read_all(op, value, arg))
            elif isinstance(value, TileValue | ScalarValue) or type(value) is Value:
                result.append(value)
            else:
                self.fail(op, f"an operand is {describe(value)}", "give a tile, a tensor or a scalar")
        return result

    def read_all(self, op: ir.Op, tensor: TensorValue, arg: ir.Expr | None) -> TileValue:
        """The implicit read of a whole tensor."""
        sizes = tensor.shape or ()  # a tensor whose rank is not known yet has no box
        self.note(tensor, False, tuple(number(0) for _ in sizes), sizes, arg or op, None, True, op.loc)
        return TileValue(tensor.shape, tensor.dtype)

    def shape_of(self, op: ir.Op, value: Value) -> Shape:
        """The shape of a tensor or tile."""
        if isinstance(value, TensorValue | TileValue):
            return value.shape
        if type(value) is Value:
            return None
        self.fail(op, f"an operand is {describe(value)}", "give a tensor or a tile")

    # -- memory ---------------------------------------------------------------------------------------------------------

    def box(self, op: ir.Node, construct: str, shape: Shape, offsets: tuple[Linear, ...], sizes: tuple[Linear, ...]) -> bool:
        """Check that a box lies in a shape; whether that is certain now.

        Raises where it does not for values that are known to occur.
        """
        if shape is None:
            return False
        if not len(shape) == len(offsets) == len(sizes):
            self.fail(
                op,
                f"{counted(len(offsets), 'offset')} and {counted(len(sizes), 'extent')} for the shape {shape_text(shape)}",
                "give one of each per axis",
                construct,
            )
        proven = True
        for axis, (extent, offset, size) in enumerate(zip(shape, offsets, sizes)):
            room = extent - offset - size
            for form, what in ((offset, "begins before the first element"), (room, "ends behind the last element")):
                low, high = numeric(form)
                surely = low is not None and low < 0 and is_attained(form) or high is not None and high < 0
                if surely and not self.uncertain and not self.quiet:
                    shown = describe_box(shape, offsets, sizes)
                    self.fail(
                        op,
                        f"it is out of bounds along axis {axis}: {shown} {what}",
                        "keep offset + extent within the shape, and offsets at 0 or more (nothing counts from the end)",
                        construct,
                    )
                proven = proven and low is not None and low >= 0
        self.proven[id(op)] = self.proven.get(id(op), True) and proven
        return proven

    def note(
        self,
        tensor: TensorValue,
        write: bool,
        offsets: tuple[Linear, ...],
        sizes: tuple[Linear, ...],
        expr: ir.Node,
        cache: CachePolicy | None,
        implicit: bool,
        loc: Loc,
        construct: str | None = None,
    ) -> None:
        """Note an access, and check that it is allowed."""
        self.touch(tensor, write, loc, construct or (f"pl.{expr.name}" if isinstance(expr, ir.Op) else "reading"))
        if self.quiet:
            return
        if self.in_kernel and tensor.origin is None and len(tensor.roots) > 1:
            raise LanguageError(
                construct or "tensor", "which tensor it is depends on a branch in the kernel",
                "choose the tensor outside the kernel, or access it inside the branch", loc,
            )  # fmt: skip
        sure = not self.branches
        self.accesses.append(Access(tensor, write, offsets, sizes, sure, tuple(self.loops), expr, cache, implicit, loc))

    def touch(self, tensor: TensorValue, write: bool, loc: Loc, construct: str) -> None:
        """Check directions: nothing writes an input, and nothing reads what nobody has written."""
        if write:
            for root in tensor.roots:
                param = self.params.get(root)
                if root in self.undirected:
                    self.inferred.add(root)
                elif param is not None and not param.writes:
                    raise LanguageError(
                        construct, f"it writes {root!r}, which is an input",
                        f"declare it {root}: pl.Out[…], or pl.InOut[…] if it is read as well", loc,
                    )  # fmt: skip
            self.written |= tensor.roots
            return
        self.looked_at |= tensor.roots
        if tensor.roots & self.written or not all(self._starts_empty(root) for root in tensor.roots):
            return
        (name, *_) = sorted(tensor.roots)
        what = f"{name!r} is an Out parameter" if name in self.params else name
        remedy = "declare it pl.InOut[…] if its old contents matter" if name in self.params else "write it first"
        self.warn(construct, f"it reads what nothing has written yet: {what}", remedy, loc)

    def _starts_empty(self, root: str) -> bool:
        param = self.params.get(root)
        if param is None:
            return root.startswith("the tensor created")
        return param.annotation is not None and param.annotation.direction is Direction.Out

    def forget(self, root: str) -> None:
        """A tensor is created anew."""
        self.written.discard(root)

    # -- submitting side ------------------------------------------------------------------------------------------------

    def deps(self, deps: tuple[ir.Expr, ...], construct: str) -> None:
        """Check that dependencies are task ids, or arrays of them."""
        for dep in deps:
            value = self.expr(dep)
            fine = isinstance(value, TaskValue) or isinstance(value, ArrayValue) and value.dtype.kind == "t"
            if not fine and type(value) is not Value:
                self.fail(dep, f"deps holds {describe(value)}", "give task ids, or arrays of them", construct)


def describe_box(shape: Shape, offsets: tuple[Linear, ...], sizes: tuple[Linear, ...]) -> str:
    """A box for messages."""

    def text(form: Linear) -> str:
        low, high = numeric(form)
        if low is None or high is None:
            return "?"
        return str(low) if low == high else f"{low}..{high}"

    at, of = ", ".join(map(text, offsets)), ", ".join(map(text, sizes))
    return f"the part [{of}] at [{at}] of {shape_text(shape)}"
