"""Kernels as NumPy code.

Tiles are arrays that nobody changes: a load is a copy, unless its value is used up before the next write, in which case it
is a view. Floating-point exceptions give infinities and NaNs without a word, as they do on the devices that are modelled.
"""

from ren_lab.language import folding, walk
from ren_lab.language import nodes as ir
from ren_lab.language.check_program import ProgramChecker
from ren_lab.language.dtypes import FP32, INT32, DType
from ren_lab.language.emit import _PLAIN, Emitter, dtype_code
from ren_lab.language.errors import Loc
from ren_lab.language.linear import Linear, number, numeric
from ren_lab.language.values import ArrayValue, ScalarValue, Shape, TensorValue, TileValue, same_shape

_UFUNCS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "floor_divide", "%": "remainder", "<": "less",
    "<=": "less_equal", ">": "greater", ">=": "greater_equal", "==": "equal", "!=": "not_equal", "&": "bitwise_and",
    "|": "bitwise_or", "^": "bitwise_xor", "<<": "left_shift", ">>": "right_shift", "maximum": "maximum", "minimum": "minimum",
}  # fmt: skip
_EXPANDED = {"add": "+", "sub": "-", "mul": "*", "div": "/", "max": "maximum", "min": "minimum"}
_REDUCERS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_FUNCTIONS = {"abs": "abs", "exp": "exp", "log": "log", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tanh": "tanh",
              "recip": "reciprocal"}  # fmt: skip
_VIEWS = ("load", "slice", "reshape", "transpose", "row_expand", "col_expand")
_EFFECTS = ("store", "assemble", "write")


class KernelEmitter(Emitter):
    """Writes a kernel: `def kernel(tensors and scalars, *regions, block=0, blocks=1)`."""

    def __init__(self, function: ir.Function, checker: ProgramChecker) -> None:
        super().__init__(function, checker)
        self._uses = _count_uses(function.body)
        self._made: list[ir.Expr] = []  # kept, so that their identities are not given out again

    def write(self) -> None:
        """Write the whole function."""
        params = [self.name(param.name) for param in self.function.params]
        with self.whole([*params, "*_", "block=0", "blocks=1"]):
            for param in self.function.params:
                dtype = None if param.annotation is None else param.annotation.dtype
                if param.annotation is not None and param.annotation.kind == "scalar" and dtype is not None and dtype.is_float:
                    self.line(f"{self.name(param.name)} = {dtype_code(dtype)}({self.name(param.name)})")
            with self.indented('with np.errstate(all="ignore"):'):
                self.block(self.function.body)

    # -- statements -----------------------------------------------------------------------------------------------------

    def stmt(self, stmt: ir.Stmt, block: ir.Block, position: int) -> None:
        """Write a statement."""
        match stmt:
            case ir.Do(value=ir.Op() as op):
                self._effect(op)
            case ir.Assign(target, value=ir.Op() as op) if op.name in _EFFECTS and isinstance(self.value(op), TensorValue):
                self._effect(op)
                held = op.args[0] if op.name != "store" else op.args[2]
                assert held is not None
                if self.expr(held) != self.name(target):
                    self.line(f"{self.name(target)} = {self.expr(held)}")
            case ir.Assign(target, value):
                code = self.expr(value)
                if self.borrows(value) and not self._is_used_up(target, block, position):
                    code += ".copy()"
                self.line(f"{self.name(target)} = {code}")
            case ir.Put():
                self._put(stmt)
            case ir.Return():
                pass  # what a task gives back are tensors, which its caller holds
            case _:
                super().stmt(stmt, block, position)

    def bound(self, value: ir.Expr) -> str:
        """The code of a value that gets a name: never a view of memory."""
        return self.expr(value) + (".copy()" if self.borrows(value) else "")

    def _effect(self, op: ir.Op) -> None:
        place = self.place(op.loc)
        match op.name:
            case "store":
                self._store(op, op.args[2], op.args[1], op.args[0], place)
            case "assemble":
                self._store(op, op.args[0], op.args[2], op.args[1], place)
            case "write":
                tensor, value = op.args[0], op.args[2]
                assert tensor is not None and value is not None
                items = self.list_of(op.args[1])
                code = self.element(value, self._dtype(tensor), op.loc)
                if self.checker.proven.get(id(op), False):
                    self.line(f"{self.expr(tensor)}[{items[1:-1].rstrip(',')}] = {code}")
                else:
                    self.line(f"put_items({self.expr(tensor)}, {items}, {code}, {place})")

    def _store(self, op: ir.Op, tensor: ir.Expr | None, offsets: ir.Expr | None, tile: ir.Expr | None, place: str) -> None:
        assert tensor is not None and tile is not None
        shape = self._shape(tile)
        if self.checker.proven.get(id(op), False) and _fixed(shape):
            self.line(f"{self.expr(tensor)}[{self._slices(offsets, shape)}] = {self.expr(tile)}")
        else:
            self.line(f"put({self.expr(tensor)}, {self.list_of(offsets)}, {self.expr(tile)}, {place})")

    def _put(self, stmt: ir.Put) -> None:
        target = self.name(stmt.target)
        value = self.element(stmt.value, getattr(self.checker.facts[id(stmt)], "dtype", None), stmt.loc)
        items, place = self.spans(stmt.items), self.place(stmt.loc)
        if isinstance(self.checker.facts[id(stmt)], TileValue):
            self.line(f"{target} = changed({target}, {items}, {value}, {place})")
        elif self.checker.proven.get(id(stmt), False) and (not self.is_tile(stmt.value) or _fixed(self._shape(stmt.value))):
            self.line(f"{target}[{', '.join(self.items(stmt.items))}] = {value}")
        else:
            self.line(f"put_items({target}, {items}, {value}, {place})")

    # -- views and copies -----------------------------------------------------------------------------------------------

    def borrows(self, expr: ir.Expr) -> bool:
        """Whether the array that an expression gives may share memory with a tensor. Names do not: see `_is_used_up`."""
        match expr:
            case ir.Op(name=name, args=args) if name in _VIEWS:
                source = args[1] if name in ("row_expand", "col_expand") else args[0]
                assert source is not None
                return isinstance(self.value(source), TensorValue) or self.borrows(source)
            case ir.Subscript(base):
                if isinstance(self.value(expr), ScalarValue):
                    return False
                return isinstance(self.value(base), TensorValue) or self.borrows(base)
            case ir.Choice(_, then, other):
                return self.borrows(then) or self.borrows(other)
        return False

    def _is_used_up(self, name: str, block: ir.Block, position: int) -> bool:
        """Whether every use of a name that is bound here comes before the next write, as an operand of a computation."""
        seen = 0
        for stmt in block[position + 1 :]:
            uses = _uses_in(stmt).get(name, 0)
            if name in walk.bound_by(stmt) and not isinstance(stmt, ir.Put):
                return False
            if uses:
                compound = bool(walk.blocks_of(stmt))
                if compound or not isinstance(stmt, ir.Assign | ir.Do | ir.Put) or _escapes(stmt, name):
                    return False
                seen += uses
            if _writes(stmt):
                break
        return seen == self._uses.get(name, 0) and seen > 0

    # -- expressions ----------------------------------------------------------------------------------------------------

    def _shape(self, expr: ir.Expr) -> Shape:
        value = self.value(expr)
        return value.shape if isinstance(value, TileValue | TensorValue) else None

    def _slices(self, offsets: ir.Expr | None, sizes: Shape) -> str:
        assert isinstance(offsets, ir.Sequence) and sizes is not None
        parts = []
        for offset, size in zip(offsets.items, sizes):
            end = folding.binary("+", offset, ir.Const(size.constant))
            if not isinstance(end, ir.Const):
                self._note(end, offset)
            parts.append(f"{self.expr(offset)}:{self.expr(end)}")
        return ", ".join(parts)

    def _note(self, made: ir.Expr, like: ir.Expr) -> None:
        """Facts for an expression that is made here."""
        self.checker.facts[id(made)] = self.value(like)
        if isinstance(made, ir.Binary):
            self.checker.facts[id(made.right)] = ScalarValue(None)
        self._made.append(made)

    def _dtype(self, *exprs: ir.Expr | None) -> DType | None:
        """The element type of the operands that have one."""
        for expr in exprs:
            value = None if expr is None else self.value(expr)
            if isinstance(value, TileValue | TensorValue) or isinstance(value, ScalarValue) and value.literal is None:
                if value.dtype is not None:
                    return value.dtype
        return None

    def array_operation(self, expr: ir.Expr, op: str, args: tuple[ir.Expr, ...]) -> str:
        """An operator on arrays."""
        if op == "@":
            return self._matmul(expr, args[0], args[1], False, False, self._dtype(expr))
        dtype = self._dtype(*(arg for arg in args if self.is_tile(arg)))
        code = [self.element(arg, dtype, expr.loc) for arg in args]
        arrays = [arg for arg in args if self.is_tile(arg)]
        if len(arrays) > 1 and same_shape(self._shape(arrays[0]), self._shape(arrays[1])) is not True:
            return f"np.{_UFUNCS[op]}(*alike({self.place(expr.loc)}, {', '.join(code)}))"
        if op in ("maximum", "minimum"):
            return f"np.{op}({', '.join(code)})"
        return f"({code[0]} {op} {code[1]})"

    def operation(self, op: ir.Op) -> str:
        """Any operation."""
        name, args = op.name, [arg for arg in op.args if arg is not None]
        if name in ("load", "slice"):
            return self._part(op)
        if name in ("get_block_idx", "get_block_num"):
            return "block" if name == "get_block_idx" else "blocks"
        if name in ("create_tile", "full", "arange", "read", "reshape", "transpose", "concat", "assemble"):
            return self._shaped(op, args)
        if name == "dim" or not any(self.is_tile(arg) for arg in args if not isinstance(arg, ir.Sequence)):
            return super().operation(op)
        if name in _PLAIN or name in ("maximum", "minimum"):
            return self.array_operation(op, _PLAIN.get(name, name), (args[0], args[1]))
        if name.startswith(("row_", "col_")):
            return self._expanded(op, args) if "_expand" in name else self._reduced(op, args[0])
        return self._array_function(op, args)

    def _array_function(self, op: ir.Op, args: list[ir.Expr]) -> str:
        name = op.name
        match name:
            case "matmul":
                out = op.attr("out_dtype") or self._dtype(*args)
                return self._matmul(op, args[0], args[1], op.attr("a_trans", False), op.attr("b_trans", False), out)
            case "matmul_acc":
                out = self._dtype(args[0])
                product = self._matmul(op, args[1], args[2], op.attr("a_trans", False), op.attr("b_trans", False), out)
                return f"np.add(*alike({self.place(op.loc)}, {self.expr(args[0])}, {product}))"
            case "sel":
                dtype = self._dtype(op)
                operands = ", ".join([self.expr(args[0]), *(self.element(arg, dtype, op.loc) for arg in args[1:])])
                return f"np.where(*alike({self.place(op.loc)}, {operands}))"
            case "cast":
                return f"{self.expr(args[0])}.astype({dtype_code(op.attr('dtype'))})"
            case "neg":
                return f"(-{self.expr(args[0])})"
            case "not_":
                return f"(~{self.expr(args[0])})"
            case "relu":
                return f"np.maximum({self.expr(args[0])}, 0)"
            case "rsqrt":
                return f"np.reciprocal(np.sqrt({self.expr(args[0])}))"
        return f"np.{_FUNCTIONS[name]}({self.expr(args[0])})"

    def _part(self, op: ir.Op) -> str:
        offsets, sizes = (op.args[1], op.args[2]) if op.name == "load" else (op.args[2], op.args[1])
        source = op.args[0]
        assert source is not None
        shape = self.value(op).shape  # type: ignore[attr-defined]
        if self.checker.proven.get(id(op), False) and _fixed(shape):
            return f"{self.expr(source)}[{self._slices(offsets, shape)}]"
        return f"window({self.expr(source)}, {self.list_of(offsets)}, {self.list_of(sizes)}, {self.place(op.loc)})"

    def _shaped(self, op: ir.Op, args: list[ir.Expr]) -> str:
        match op.name:
            case "create_tile":
                return f"np.zeros({self.shape(args[0], op.loc)}, {dtype_code(op.attr('dtype'))})"
            case "full":
                value = self.element(args[1], op.attr("dtype"), op.loc)
                return f"np.full({self.shape(args[0], op.loc)}, {value}, {dtype_code(op.attr('dtype'))})"
            case "arange":
                sizes = self.shape(ir.Sequence((args[0],)), op.loc)
                count = f"*{sizes}" if sizes.startswith("sized") else self.expr(args[0])
                return f"np.arange({count}, dtype={dtype_code(op.attr('dtype', INT32))})[None, :]"
            case "reshape":
                shape, new = self._shape(args[0]), self._shape(op)
                if _fixed(shape) and _fixed(new):  # whose elements were counted when it was checked
                    return f"np.reshape({self.expr(args[0])}, {self.list_of(args[1])})"
                return f"tile_reshaped({self.expr(args[0])}, {self.list_of(args[1])}, {self.place(op.loc)})"
            case "transpose":
                return f"np.swapaxes({self.expr(args[0])}, {op.attr('axis1', -2)}, {op.attr('axis2', -1)})"
            case "concat":
                return self._concat(op, args[0], args[1])
            case "assemble":
                offsets = self.list_of(args[2])
                return f"placed({self.expr(args[0])}, {offsets}, {self.expr(args[1])}, {self.place(op.loc)})"
        items = self.list_of(args[1])
        if self.checker.proven.get(id(op), False):
            code = f"{self.expr(args[0])}[{items[1:-1].rstrip(',')}]"
        else:
            code = f"view({self.expr(args[0])}, {items}, {self.place(op.loc)})"
        return _element(code, self._dtype(args[0]))

    def subscript(self, expr: ir.Subscript) -> str:
        """`base[items]`."""
        code = super().subscript(expr)
        if isinstance(self.value(expr), ScalarValue) and not isinstance(self.value(expr.base), ArrayValue):
            return _element(code, self._dtype(expr.base))
        return code

    def _concat(self, op: ir.Op, a: ir.Expr, b: ir.Expr) -> str:
        axis, one, other = op.attr("axis", -1), self._shape(a), self._shape(b)
        if one is not None and other is not None:
            rest = (tuple(extent for k, extent in enumerate(shape) if k != axis % len(shape)) for shape in (one, other))
            if same_shape(*rest) is True:
                return f"np.concatenate(({self.expr(a)}, {self.expr(b)}), axis={axis})"
        return f"joined({self.expr(a)}, {self.expr(b)}, {axis}, {self.place(op.loc)})"

    def _fits(self, a: ir.Expr, b: ir.Expr, a_trans: bool, b_trans: bool) -> bool:
        """Whether the operands of a matrix product are known to fit."""
        one, other = self._shape(a), self._shape(b)
        if one is None or other is None:
            return False
        inner = one[-2 if a_trans else -1], other[-1 if b_trans else -2]
        return same_shape((*one[:-2], inner[0]), (*other[:-2], inner[1])) is True

    def element(self, expr: ir.Expr, dtype: DType | None, loc: Loc) -> str:
        """A scalar that becomes an element of a type: an integer may be too large for it."""
        code, value = self.expr(expr), self.value(expr)
        if dtype is None or not dtype.is_int or not isinstance(value, ScalarValue) or value.literal is not None:
            return code
        low, high = numeric(value.form) if value.form is not None else (None, None)
        if low is not None and high is not None and dtype.limits[0] <= low and high <= dtype.limits[1]:
            return code
        return f"fits({code}, {dtype.name!r}, {self.place(loc)})"

    def _matmul(self, at: ir.Expr, a: ir.Expr, b: ir.Expr, a_trans: bool, b_trans: bool, out: DType | None) -> str:
        dtype = self._dtype(a, b)
        assert dtype is not None and out is not None
        inner = FP32 if dtype.is_float else out
        codes = []
        for operand, trans in ((a, a_trans), (b, b_trans)):
            code = self.expr(operand)
            if trans:
                code = f"np.swapaxes({code}, -1, -2)"
            codes.append(code if dtype == inner else f"{code}.astype({dtype_code(inner)})")
        operands = ", ".join(codes)
        if not self._fits(a, b, a_trans, b_trans):
            operands = f"*factors({operands}, {self.place(at.loc)})"
        product = f"np.matmul({operands})"
        return product if inner == out else f"{product}.astype({dtype_code(out)})"

    def _reduced(self, op: ir.Op, arg: ir.Expr) -> str:
        side, _, what = op.name.partition("_")
        axis = -1 if side == "row" else -2
        dtype = self._dtype(arg)
        code = self.expr(arg)
        if what in ("argmax", "argmin", "max", "min"):
            shape = self._shape(arg)
            least = None if shape is None else numeric(shape[axis])[0]
            if least is None or least < 1:
                code = f"some({code}, {axis}, {self.place(op.loc)})"
        if what in ("argmax", "argmin"):
            return f"np.{what}({code}, axis={axis}, keepdims=True).astype(np.int32)"
        reduce = f"np.{_REDUCERS[what]}.reduce"  # the functions np.sum and so on only lead here
        if what in ("max", "min"):
            return f"{reduce}({code}, axis={axis}, keepdims=True)"
        assert dtype is not None
        if dtype.is_float and dtype != FP32:
            return f"{reduce}({code}.astype(np.float32), axis={axis}, keepdims=True).astype({dtype_code(dtype)})"
        return f"{reduce}({code}, axis={axis}, keepdims=True, dtype={dtype_code(dtype)})"

    def _expanded(self, op: ir.Op, args: list[ir.Expr]) -> str:
        side, _, what = op.name.partition("_expand")
        axis = -1 if side == "row" else -2
        tile, vector = (self.expr(arg) for arg in args)
        shape, other = self._shape(args[0]), self._shape(args[1])
        sure = False
        if shape is not None and other is not None:
            wanted: list[Linear] = list(shape)
            wanted[axis] = number(1)
            sure = same_shape(tuple(wanted), other) is True
        pair = f"{tile}, {vector}" if sure else f"*column({self.place(op.loc)}, {tile}, {vector}, {axis})"
        if not what:
            return f"np.broadcast_arrays({pair})[1]"
        if what == "_expdif":
            return f"np.exp(np.subtract({pair}))"
        return f"np.{_UFUNCS[_EXPANDED[what[1:]]]}({pair})"


def _element(code: str, dtype: DType | None) -> str:
    """One element as a scalar: integers and truth values as Python's."""
    if dtype is None or dtype.is_float:
        return code
    return f"{'bool' if dtype.kind == 'b' else 'int'}({code})"


def _fixed(shape: Shape) -> bool:
    return shape is not None and all(extent.value is not None for extent in shape)


def _uses_in(stmt: ir.Stmt) -> dict[str, int]:
    """How often names are read in a statement and its blocks."""
    counts: dict[str, int] = {}
    for inner in walk.statements((stmt,)):
        if isinstance(inner, ir.Put):
            counts[inner.target] = counts.get(inner.target, 0) + 1
        for expr in walk.all_exprs(inner):
            if isinstance(expr, ir.Name):
                counts[expr.id] = counts.get(expr.id, 0) + 1
    return counts


def _count_uses(block: ir.Block) -> dict[str, int]:
    counts: dict[str, int] = {}
    for stmt in block:
        for name, count in _uses_in(stmt).items():
            counts[name] = counts.get(name, 0) + count
    return counts


def _writes(stmt: ir.Stmt) -> bool:
    """Whether a statement may write memory."""
    for inner in walk.statements((stmt,)):
        if isinstance(inner, ir.Put):
            return True
        if any(isinstance(e, ir.Op) and e.name in _EFFECTS for e in walk.all_exprs(inner)):
            return True
    return False


def _escapes(stmt: ir.Stmt, name: str) -> bool:
    """Whether a statement gives a name's array, or a view of it, another name."""
    if not isinstance(stmt, ir.Assign):
        return isinstance(stmt, ir.Put) and stmt.target == name
    stack = [stmt.value]
    while stack:
        expr = stack.pop()
        match expr:
            case ir.Name(id=found):
                if found == name:
                    return True
            case ir.Op(name=op, args=args) if op in _VIEWS:
                stack.extend(arg for arg in args if arg is not None and not isinstance(arg, ir.Sequence))
            case ir.Subscript(base):
                stack.append(base)
            case ir.Choice(_, then, other):
                stack.extend((then, other))
    return False
