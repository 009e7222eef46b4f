"""Pass 3: bodies of `pl.at` and `pl.spmd` become kernels, and what stood there a task that runs one."""

from dataclasses import replace

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.annotations import Annotation, Direction, FunctionType, Level
from ren_lab.language.check_calls import Summary
from ren_lab.language.check_expr import Env
from ren_lab.language.check_program import ProgramChecker
from ren_lab.language.errors import LanguageError
from ren_lab.language.passes.rule import Fire, rule, told
from ren_lab.language.structure import check_structure, is_carried
from ren_lab.language.substitute import substitute
from ren_lab.language.values import ScalarValue, TensorValue, Value


@rule
def outline_at(at: ir.At, name: str, args: tuple[ir.Expr, ...]) -> ir.Call:
    """with pl.at(level=…) as tid: body -> tid = pl.submit(kernel, names that body uses), def kernel(…): body"""
    submit = at.task_id is not None or bool(at.deps)
    return ir.Call(name, args, (), at.task_id, submit, at.deps, loc=at.loc)


@rule
def outline_spmd(spmd: ir.Spmd, name: str, args: tuple[ir.Expr, ...]) -> ir.Call:
    """for i in pl.spmd(n): body -> pl.submit(kernel, names that body uses, blocks=n), def kernel(…): i = block; body"""
    return ir.Call(name, args, (), spmd.task_id, True, spmd.deps, spmd.blocks, loc=spmd.loc)


@rule
def name_argument(name: str, arg: ir.Expr) -> ir.Stmt:
    """kernel(a[0:4]) -> v = a[0:4]; kernel(v)"""
    return ir.Assign(name, arg, loc=arg.loc)


@rule
def dissolve_at(at: ir.At) -> ir.Block:
    """with pl.at(…): body -> body, inside an opaque function"""
    return at.body


RULES = (outline_at, outline_spmd, name_argument, dissolve_at)


class _Outliner(ProgramChecker):
    """Walks a function that submits tasks, and makes its kernels."""

    def __init__(self, function: ir.Function, known: dict[str, Summary], fire: Fire, taken: dict[str, None]) -> None:
        super().__init__(function, known)
        self._fire = fire
        self._functions = taken
        self._locals = dict.fromkeys(self.params) | walk.names_in(function.body)
        self.kernels: list[ir.Function] = []

    def placed(self, stmt: ir.At | ir.Spmd) -> tuple[ir.Stmt, ...]:
        """Make a kernel of the body."""
        if is_carried(stmt, self.submits):
            return super().placed(stmt)
        outside = dict(self.env)
        super().placed(stmt)
        if self.quiet:
            return (stmt,)
        aliases = self._aliases(stmt, self.inner)
        bound = walk.bound_in(stmt.body)
        numbers = {  # written numbers stay numbers: they take the type of what they meet
            name: ir.Const(value.literal)
            for name, value in outside.items()
            if isinstance(value, ScalarValue) and value.literal is not None and name not in bound
        }
        body = substitute(stmt.body, {}, numbers)
        if isinstance(stmt, ir.Spmd) and stmt.var is not None:
            body = (ir.Assign(stmt.var, ir.Op("get_block_idx"), loc=stmt.loc), *body)
        names = [name for name in self._free(stmt, outside) if name not in numbers]
        params = tuple(ir.Param(name, self._param(outside[name]), loc=stmt.loc) for name in names)
        level = stmt.level if isinstance(stmt, ir.At) and stmt.level is not Level.CORE_GROUP else None
        kernel = _directed(ir.Function("", FunctionType.InCore, params, body, True, level, loc=stmt.loc))
        known = len(self.kernels)
        name = self._named(kernel, stmt)
        args: tuple[ir.Expr, ...] = tuple(ir.Name(n, loc=stmt.loc) for n in names)
        which = outline_at if isinstance(stmt, ir.At) else outline_spmd
        new = (which(stmt, name, args), *aliases)
        if told(self._fire, which, (stmt,), new):
            return new
        del self.kernels[known:]
        return (stmt,)

    def _free(self, stmt: ir.At | ir.Spmd, outside: Env) -> list[str]:
        """Names of the outside that the body uses: tensors, then scalars, each in the order in which they were bound."""
        own = {stmt.var} if isinstance(stmt, ir.Spmd) else set()
        inside = walk.names_in(stmt.body)
        used = [name for name in outside if name in inside and name not in own]
        return [n for kind in (TensorValue, ScalarValue) for n in used if isinstance(outside[n], kind)]

    def _param(self, value: Value) -> Annotation:
        if isinstance(value, TensorValue):
            return Annotation("tensor", self._annotated_shape(None, value.shape), value.dtype, Direction.InOut)
        assert isinstance(value, ScalarValue)
        return self._scalar_annotation(ir.Call("", ()), "", None, value)

    def _named(self, kernel: ir.Function, stmt: ir.At | ir.Spmd) -> str:
        """The name of a kernel that is just like this one, or a new one."""
        for known in self.kernels:
            if replace(known, name="") == kernel:
                return known.name
        name = walk.fresh_name(stmt.name_hint or f"{self.function.name}_{stmt.loc.line}", self._functions)
        self._functions[name] = None
        self.kernels.append(replace(kernel, name=name))
        self.known[name] = ProgramChecker(self.kernels[-1], self.known).checked().summary()
        return name

    def _aliases(self, stmt: ir.At | ir.Spmd, inner: Env) -> tuple[ir.Stmt, ...]:
        """Names that the body binds to tensors, bound outside."""
        pairs = []
        for name in walk.bound_in(stmt.body):
            value = inner.get(name)
            if isinstance(value, TensorValue) and value.origin != name:
                if value.origin is None:
                    raise LanguageError(f"name {name!r}", "which tensor it is behind the kernel depends on a branch in it",
                                        "choose the tensor outside the kernel", stmt.loc)  # fmt: skip
                pairs.append((name, value.origin))
        if len(pairs) == 1:
            return (ir.Assign(pairs[0][0], ir.Name(pairs[0][1]), loc=stmt.loc),)
        if not pairs:
            return ()
        return (ir.Unpack(tuple(n for n, _ in pairs), tuple(ir.Name(o) for _, o in pairs), loc=stmt.loc),)

    def call(self, stmt: ir.Call) -> tuple[ir.Stmt, ...]:
        """Give views and elements that are arguments a name: what the task touches is told in terms of names."""
        before: list[ir.Stmt] = []
        args = []
        for arg in stmt.args:
            value = self.expr(arg)
            reads = any(
                isinstance(e, ir.Subscript) or isinstance(e, ir.Op) and e.name == "read" for e in (arg, *walk.all_exprs(arg))
            )
            if not self.quiet and not isinstance(arg, ir.Name) and (isinstance(value, TensorValue) or reads):
                name = walk.fresh_name(f"{stmt.callee}_arg", self._locals)
                made = name_argument(name, arg)
                if told(self._fire, name_argument, (stmt,), (made,)):
                    self._locals[name] = None
                    before.append(made)
                    self.env[name] = value
                    arg = ir.Name(name, loc=arg.loc)
            args.append(arg)
        (checked,) = super().call(replace(stmt, args=tuple(args)))
        return (*before, checked)


def _directed(kernel: ir.Function) -> ir.Function:
    """The kernel with the directions that its accesses show."""
    checker = ProgramChecker(kernel, {})
    checker.checked()
    params = []
    for param in kernel.params:
        annotation = param.annotation
        if annotation is not None and annotation.kind == "tensor":
            modes = {access.write for access in checker.accesses if param.name in access.tensor.roots}
            direction = None if True not in modes else Direction.InOut if False in modes else Direction.Out
            annotation = replace(annotation, direction=direction)
        params.append(replace(param, annotation=annotation))
    return replace(kernel, params=tuple(params))


def _dissolved(function: ir.Function, fire: Fire) -> ir.Function:
    def block(stmts: ir.Block) -> ir.Block:
        result: list[ir.Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, ir.At) and told(fire, dissolve_at, (stmt,), stmt.body):
                result.extend(block(dissolve_at(stmt)))
            else:
                result.append(walk.map_blocks(stmt, block))
        return tuple(result)

    return replace(function, body=block(function.body))


def run(program: ir.Program, fire: Fire) -> ir.Program:
    """Outline every kernel of every function that submits tasks."""
    known: dict[str, Summary] = {}
    taken = dict.fromkeys(function.name for function in program.functions)
    functions: list[ir.Function] = []
    for function in program.functions:
        check_structure(function, function.is_kernel)
        checker: ProgramChecker
        if function.is_kernel:
            function = _dissolved(function, fire)
            checker = ProgramChecker(function, known).checked()
        else:
            outliner = _Outliner(function, known, fire, taken)
            checker = outliner.checked()
            functions.extend(outliner.kernels)
        functions.append(checker.function)
        known[function.name] = checker.summary()
    return replace(program, functions=tuple(functions))
