"""Statements: from Python's syntax tree to the IR."""

import ast
from dataclasses import replace
from typing import Any

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.annotations import Annotation, Array, CachePolicy, InOut, Level, Out, Scalar, Tensor, Tile, as_annotation
from ren_lab.language.errors import counted
from ren_lab.language.parse_expr import MISSING, ExprParser
from ren_lab.runtime import ScopeMode

_STATEMENTS = {
    ast.While: ("while", "use `for (x,) in pl.while_(init_values=(…,)):` with `pl.cond(…)` as its first statement"),
    ast.Break: ("break", "put the rest of the turn under an if, or use pl.while_"),
    ast.Continue: ("continue", "put the rest of the turn under an if"),
    ast.Try: ("try", "errors end the run; leave it out"),
    ast.Raise: ("raise", "errors end the run; leave it out"),
    ast.Assert: ("assert", "check arguments before the call"),
    ast.Import: ("import", "import at the top of the file"),
    ast.ImportFrom: ("import", "import at the top of the file"),
    ast.FunctionDef: ("def", "define it outside and decorate it with @pl.jit.inline"),
    ast.AsyncFunctionDef: ("async def", "define it outside and decorate it with @pl.jit.inline"),
    ast.ClassDef: ("class", "define it outside"),
    ast.Delete: ("del", "names end with the function; leave it out"),
    ast.Global: ("global", "pass the value as a parameter"),
    ast.Nonlocal: ("nonlocal", "pass the value as a parameter"),
    ast.Match: ("match", "use if and else"),
}
_LOOPS = ("range", "parallel", "unroll")
_SUBSCRIPTED = (Tensor, Tile, Scalar, Array, Out, InOut)


class StmtParser(ExprParser):
    """Parses the statements of one function."""

    def block(self, body: list[ast.stmt], may_yield: bool = False, may_return: bool = False) -> ir.Block:
        """Parse a block. `may_yield` and `may_return` say what its last statement may do besides."""
        result: list[ir.Stmt] = []
        for position, node in enumerate(body):
            last = position == len(body) - 1
            around, self.calls = self.calls, []
            made = self.statement(node, may_yield and last, may_return and last)
            result.extend(self.calls)
            result.extend(made)
            self.calls = around
        return tuple(result)

    def statement(self, node: ast.stmt, may_yield: bool, may_return: bool) -> list[ir.Stmt]:
        """Parse a statement."""
        match node:
            case ast.Pass():
                return []
            case ast.Expr():
                return self._expression(node, may_yield)
            case ast.Assign():
                if len(node.targets) != 1:
                    self.fail(node, "assignment", "several targets are chained", "write one assignment per line")
                return self._assignment(node, node.targets[0], node.value, None, may_yield)
            case ast.AnnAssign():
                if node.value is None:
                    self.fail(node, "annotation", "the name is given no value", "assign one: t: pl.Tile[[64, 64], pl.FP32] = …")
                declared = self.annotation(node.annotation)
                return self._assignment(node, node.target, node.value, declared, may_yield)
            case ast.AugAssign():
                return self._augmented(node)
            case ast.If():
                return self._if(node, may_return)
            case ast.For():
                return self._for(node)
            case ast.With():
                return [self._with(node, may_yield, may_return)]
            case ast.Return():
                return self._return(node, may_return)
        what, remedy = _STATEMENTS.get(type(node), (type(node).__name__, "leave it out"))
        self.fail(node, what, "this Python statement is not part of the language", remedy)

    # -- simple statements ----------------------------------------------------------------------------------------------

    def _expression(self, node: ast.Expr, may_yield: bool) -> list[ir.Stmt]:
        value = node.value
        if isinstance(value, ast.Constant) and (isinstance(value.value, str) or value.value is Ellipsis):
            return []
        construct = self.construct(value)
        if construct is not None:
            assert isinstance(value, ast.Call)
            match construct:
                case "set_cache_policy":
                    return [self._cache_policy(value)]
                case "yield_":
                    return [self._yield(value, (), may_yield)]
                case "submit":
                    return [self._submit(value, ())]
                case "cond":
                    self.fail(value, "pl.cond", "it is not the first statement of a pl.while_ body", "move it there")
                case "at" | "spmd" | "scope" | "manual_scope":
                    self.fail(value, f"pl.{construct}", "it is called like a function", f"write `with pl.{construct}(…):`")
        if isinstance(value, ast.Call):
            called = self.callee(value)
            if called is not None:
                return [self.function_call(value, ())]
        if not isinstance(value, ast.Call):
            self.fail(node, ast.unparse(node), "its value is not used", "assign it to a name, or leave it out")
        return [ir.Do(self.expr(value), loc=self.loc(node))]

    def _assignment(
        self, node: ast.stmt, target: ast.expr, value: ast.expr, declared: Annotation | None, may_yield: bool
    ) -> list[ir.Stmt]:
        loc = self.loc(node)
        if isinstance(target, ast.Subscript):
            if not isinstance(target.value, ast.Name) or target.value.id not in self.locals:
                self.fail(target, ast.unparse(target), "only a name can be written through", "give the tensor a name first")
            return [ir.Put(target.value.id, self.subscript_items(target), self.expr(value), loc=loc)]
        names = self._targets(target)
        several = isinstance(target, ast.Tuple)
        construct = self.construct(value)
        if isinstance(value, ast.Call):
            if construct == "yield_":
                return [self._yield(value, names, may_yield)]
            if construct == "submit":
                return [self._submit(value, names)]
            called = self.callee(value) if construct is None else None
            if called is not None:
                return [self.function_call(value, names)]
        if not several:
            return [ir.Assign(names[0], self.expr(value), declared, loc=loc)]
        if isinstance(value, ast.Attribute) and value.attr == "shape":
            tensor = self.expr(value.value)
            dims = tuple(ir.Op("dim", (tensor,), (("axis", k),), loc=loc) for k in range(len(names)))
            return [ir.Unpack(names, dims, loc=loc)]
        if not isinstance(value, ast.Tuple) or len(value.elts) != len(names):
            self.fail(value, ast.unparse(node), f"{counted(len(names), 'name')} for {ast.unparse(value)}",
                      "write as many values as names, separated by commas")  # fmt: skip
        return [ir.Unpack(names, tuple(self.expr(item) for item in value.elts), loc=loc)]

    def _targets(self, target: ast.expr) -> tuple[str, ...]:
        items = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        for item in items:
            if not isinstance(item, ast.Name):
                self.fail(item, ast.unparse(item), "only names can be assigned here", "assign to a name")
        return tuple(item.id for item in items if isinstance(item, ast.Name))

    def _augmented(self, node: ast.AugAssign) -> list[ir.Stmt]:
        read = ast.copy_location(ast.BinOp(_as_load(node.target), node.op, node.value), node)
        if isinstance(node.target, ast.Subscript):
            with self.without_calls("the subscript is taken twice, to read and to write"):
                self.subscript_items(node.target)
        return self._assignment(node, node.target, read, None, False)

    def _return(self, node: ast.Return, may_return: bool) -> list[ir.Stmt]:
        if not may_return:
            self.fail(node, "return", "it is not the last statement of the function", "return once, at the end")
        loc, value = self.loc(node), node.value
        if value is None or isinstance(value, ast.Constant) and value.value is None:
            return [ir.Return((), loc=loc)]
        before: list[ir.Stmt] = []
        values: list[ir.Expr] = []
        for item in value.elts if isinstance(value, ast.Tuple) else [value]:
            called = self.callee(item) if isinstance(item, ast.Call) else None
            found = self.expr(item) if called is None else None
            if not isinstance(found, ir.Name | ir.Const):  # what is computed for the return gets a name
                name = walk.fresh_name("result", self.locals)
                self.locals.add(name)
                if found is not None:
                    before.append(ir.Assign(name, found, loc=loc))
                elif isinstance(item, ast.Call) and called is not None:
                    before.append(self.function_call(item, (name,)))
                found = ir.Name(name, loc=self.loc(item))
            values.append(found)
        return [*before, ir.Return(tuple(values), loc=loc)]

    def _cache_policy(self, node: ast.Call) -> ir.Stmt:
        given = dict(zip(("tensor", "policy"), node.args)) | {k.arg: k.value for k in node.keywords if k.arg}
        if set(given) != {"tensor", "policy"} or len(node.args) + len(node.keywords) != 2:
            self.fail(
                node, "pl.set_cache_policy", "it takes a tensor and a policy", "write pl.set_cache_policy(t, pl.CachePolicy.BYPASS)"
            )
        tensor, policy = given["tensor"], self.static(given["policy"])
        if not isinstance(tensor, ast.Name) or tensor.id not in self.locals:
            self.fail(tensor, "pl.set_cache_policy", f"{ast.unparse(tensor)} is no name of a tensor", "name the tensor it is about")
        if not isinstance(policy, CachePolicy):
            self.fail(given["policy"], "pl.set_cache_policy", f"the policy is {ast.unparse(given['policy'])}",
                      "give pl.CachePolicy.DEFAULT or pl.CachePolicy.BYPASS")  # fmt: skip
        return ir.SetCachePolicy(tensor.id, policy, loc=self.loc(node))

    def _yield(self, node: ast.Call, targets: tuple[str, ...], may_yield: bool) -> ir.Stmt:
        if not may_yield:
            self.fail(node, "pl.yield_", "it is not the last statement of a branch, or of a loop with init_values",
                      "move it to the end, or give the loop init_values=(…)")  # fmt: skip
        if node.keywords or not node.args:
            self.fail(node, "pl.yield_", "it takes one or more values", "write x = pl.yield_(value)")
        values = tuple(self.expr(arg) for arg in node.args)
        if targets and len(targets) != len(values):
            self.fail(
                node,
                "pl.yield_",
                f"{counted(len(values), 'value')} for {counted(len(targets), 'name')}",
                "give each value one name",
            )
        return ir.Yield(targets, values, loc=self.loc(node))

    # -- calls of functions ---------------------------------------------------------------------------------------------

    def _submit(self, node: ast.Call, targets: tuple[str, ...]) -> ir.Stmt:
        called = self.callee(ast.Call(node.args[0], [], [])) if node.args else None
        if called is None:
            self.fail(
                node, "pl.submit", "its first argument is no kernel", "name one: pl.submit(self.kernel, …) or pl.submit(kernel, …)"
            )
        keywords = {k.arg: k.value for k in node.keywords}
        unknown = set(keywords) - {"deps", "blocks", "reads", "writes", "updates"}
        if unknown:
            self.fail(node, "pl.submit", f"it has no argument {sorted(map(str, unknown))[0]!r}", "give deps=[…] or blocks=n")
        regions = None
        if set(keywords) & {"reads", "writes", "updates"}:
            regions = ir.Regions(*(self._list(keywords.get(role)) for role in ("reads", "writes", "updates")))
        kernel = node.args[0]
        return ir.Call(
            called,
            tuple(self.expr(arg) for arg in node.args[1:]),
            targets[:-1],
            targets[-1] if targets else None,
            True,
            self._list(keywords.get("deps")),
            self.expr(keywords["blocks"]) if "blocks" in keywords else None,
            regions,
            own=isinstance(kernel, ast.Attribute) and getattr(kernel.value, "id", None) == self.self_name is not None,
            loc=self.loc(node),
        )

    def _list(self, node: ast.expr | None) -> tuple[ir.Expr, ...]:
        if node is None:
            return ()
        items = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        return tuple(self.expr(item) for item in items)

    # -- branches and loops ---------------------------------------------------------------------------------------------

    def _if(self, node: ast.If, may_return: bool) -> list[ir.Stmt]:
        condition = self.expr(node.test)
        written = isinstance(node.test, ast.Constant)  # `if True:` is what passes leave to be taken later
        if isinstance(condition, ir.Const) and isinstance(condition.value, bool) and not written:
            return list(settle(self.block(node.body if condition.value else node.orelse, True, may_return)))
        then, other = aligned(self.block(node.body, True), self.block(node.orelse, True))
        ends = [walk.last_yield(block) for block in (then, other)]
        if any(end is not None for end in ends):
            one, two = (_handed_out(block) for block in (then, other))  # a branch may end in an if, such as an elif, that does
            if one is None or two is None:
                self.fail(node, "if", "one branch yields a value and the other does not", "yield from both branches, or from none")
            if one != two:
                self.fail(node, "if", f"its branches yield to {one} and {two}", "yield to the same names in both branches")
        return [ir.If(condition, then, other, loc=self.loc(node))]

    def _for(self, node: ast.For) -> list[ir.Stmt]:
        if node.orelse:
            self.fail(node.orelse[0], "for", "it has an else", "leave the else out")
        construct = self.construct(node.iter)
        if construct == "while_":
            return [self._while(node)]
        if construct == "spmd":
            assert isinstance(node.iter, ast.Call)
            return [self._spmd(node, node.iter)]
        if construct not in _LOOPS:
            self.fail(
                node.iter,
                "for",
                f"it runs over {ast.unparse(node.iter)}",
                "run over pl.range, pl.parallel, pl.unroll, pl.while_ or pl.spmd",
            )
        call = node.iter
        assert isinstance(call, ast.Call)
        name = f"pl.{construct}"
        if not 1 <= len(call.args) <= 3:
            self.fail(call, name, f"it has {counted(len(call.args), 'bound')}", "give (stop), (start, stop) or (start, stop, step)")
        bounds = [self.expr(arg) for arg in call.args]
        start, stop = (ir.Const(0), bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else ir.Const(1)
        var, carried = self._loop_target(node, call, name, construct == "unroll")
        body = self.block(node.body, bool(carried))
        self._check_yield(node, name, body, len(carried))
        return [ir.For(construct, var, start, stop, step, body, carried, loc=self.loc(node))]

    def _loop_target(self, node: ast.For, call: ast.Call, name: str, unrolled: bool) -> tuple[str, tuple[tuple[str, ir.Expr], ...]]:
        init = self._init_values(call, name)
        if unrolled and init:
            self.fail(call, name, "it has init_values", "bind a name before the loop and bind it again in the body")
        target = node.target
        if not init:
            if not isinstance(target, ast.Name):
                self.fail(
                    target, name, f"its target is {ast.unparse(target)}", "give one name, or init_values=(…) for carried ones"
                )
            return target.id, ()
        pair = target.elts if isinstance(target, ast.Tuple) else []
        if len(pair) != 2 or not isinstance(pair[0], ast.Name) or not isinstance(pair[1], ast.Tuple):
            self.fail(target, name, f"its target is {ast.unparse(target)}", "with init_values write `for i, (a, b) in …`")
        return pair[0].id, self._carried(pair[1], init, name)

    def _init_values(self, call: ast.Call, name: str) -> list[ast.expr]:
        for keyword in call.keywords:
            if keyword.arg != "init_values":
                self.fail(call, name, f"it has no argument {keyword.arg!r}", "give bounds and init_values=(…)")
            if not isinstance(keyword.value, ast.Tuple | ast.List):
                self.fail(keyword.value, name, "init_values is no tuple", "write init_values=(a, b)")
            return keyword.value.elts
        return []

    def _carried(self, target: ast.Tuple, init: list[ast.expr], name: str) -> tuple[tuple[str, ir.Expr], ...]:
        names = self._targets(target)
        if len(names) != len(init):
            self.fail(
                target,
                name,
                f"{counted(len(names), 'name')} for {counted(len(init), 'value')} of init_values",
                "give each value one name",
            )
        return tuple((carried, self.expr(value)) for carried, value in zip(names, init))

    def _check_yield(self, node: ast.For, name: str, body: ir.Block, count: int) -> None:
        found = walk.last_yield(body)
        given = 0 if found is None else len(found.values)
        if count and given != count:
            self.fail(
                node,
                name,
                f"{counted(count, 'value')} carried and {given} yielded by the body",
                "end the body in pl.yield_ with one value each",
            )

    def _while(self, node: ast.For) -> ir.Stmt:
        call = node.iter
        assert isinstance(call, ast.Call)
        init = self._init_values(call, "pl.while_")
        if call.args or not init:
            self.fail(call, "pl.while_", "it has no init_values", "give what it carries: pl.while_(init_values=(0,))")
        if not isinstance(node.target, ast.Tuple):
            self.fail(
                node.target,
                "pl.while_",
                f"its target is {ast.unparse(node.target)}",
                "write `for (x,) in pl.while_(init_values=(0,))`",
            )
        carried = self._carried(node.target, init, "pl.while_")
        first = node.body[0]
        condition = first.value if isinstance(first, ast.Expr) else None
        if self.construct(condition or first) != "cond" or not isinstance(condition, ast.Call) or len(condition.args) != 1:
            self.fail(first, "pl.while_", "its body does not begin with pl.cond", "make `pl.cond(x < 10)` its first statement")
        body = self.block(node.body[1:], True)
        self._check_yield(node, "pl.while_", body, len(carried))
        with self.without_calls("the condition is computed before each turn"):
            holds = self.expr(condition.args[0])
        return ir.While(holds, body, carried, loc=self.loc(node))

    # -- with -----------------------------------------------------------------------------------------------------------

    def _with(self, node: ast.With, may_yield: bool, may_return: bool) -> ir.Stmt:
        if len(node.items) != 1:
            self.fail(node, "with", "it opens several contexts", "nest one `with` per context")
        item = node.items[0]
        call, construct = item.context_expr, self.construct(item.context_expr)
        if construct not in ("scope", "manual_scope", "at", "spmd"):
            self.fail(
                call,
                "with",
                f"{ast.unparse(call)} is no context of the language",
                "use pl.scope, pl.manual_scope, pl.at or pl.spmd",
            )
        assert isinstance(call, ast.Call)
        bound: str | None = None
        if item.optional_vars is not None:
            if construct not in ("at", "spmd") or not isinstance(item.optional_vars, ast.Name):
                self.fail(item.optional_vars, f"pl.{construct}", f"it is bound `as {ast.unparse(item.optional_vars)}`",
                          "only pl.at and pl.spmd bind a task id, to one name")  # fmt: skip
            bound = item.optional_vars.id
        if construct == "spmd":
            return self._spmd(node, call, bound)
        if construct == "at":
            given = self._arguments(call, "pl.at", ("level",), ("level", "deps", "name_hint"))
            level = self.static(given["level"]) if "level" in given else MISSING
            if not isinstance(level, Level):
                self.fail(call, "pl.at", "its level is missing or no pl.Level", "write pl.at(level=pl.Level.CORE_GROUP)")
            deps, hint = self._list(given.get("deps")), self._hint(given.get("name_hint"), "pl.at")
            return ir.At(level, self.block(node.body), deps, hint, bound, loc=self.loc(node))
        return self._scope(node, call, construct, may_yield, may_return)

    def _scope(self, node: ast.With, call: ast.Call, construct: str, may_yield: bool, may_return: bool) -> ir.Stmt:
        mode: Any = ScopeMode.MANUAL
        if construct == "scope":
            given = self._arguments(call, "pl.scope", ("mode", "name"), ("mode", "name"))
            mode = self.static(given["mode"]) if "mode" in given else ScopeMode.AUTO
            if not isinstance(mode, ScopeMode):
                self.fail(
                    call, "pl.scope", f"its mode is {ast.unparse(given['mode'])}", "give pl.ScopeMode.AUTO or pl.ScopeMode.MANUAL"
                )
        else:
            given = self._arguments(call, "pl.manual_scope", ("name",), ("name",))
        name = self._text(given.get("name"), f"pl.{construct}", "name")
        return ir.Scope(mode, self.block(node.body, may_yield, may_return), name, loc=self.loc(node))

    def _spmd(self, node: ast.With | ast.For, call: ast.Call, bound: str | None = None) -> ir.Stmt:
        given = self._arguments(call, "pl.spmd", ("blocks",), ("blocks", "deps", "name_hint"))
        if "blocks" not in given:
            self.fail(call, "pl.spmd", "the number of blocks is missing", "write pl.spmd(n)")
        var = None
        if isinstance(node, ast.For):
            if not isinstance(node.target, ast.Name):
                self.fail(node.target, "pl.spmd", f"its target is {ast.unparse(node.target)}", "bind the block to one name")
            var = node.target.id
        deps, hint = self._list(given.get("deps")), self._hint(given.get("name_hint"), "pl.spmd")
        return ir.Spmd(self.expr(given["blocks"]), self.block(node.body), var, deps, hint, bound, loc=self.loc(node))

    def _arguments(self, call: ast.Call, name: str, positional: tuple[str, ...], known: tuple[str, ...]) -> dict[str, ast.expr]:
        if len(call.args) > len(positional):
            self.fail(call, name, f"it has {counted(len(call.args), 'positional argument')}", f"it takes {', '.join(known)}")
        given = dict(zip(positional, call.args))
        for keyword in call.keywords:
            if keyword.arg not in known or keyword.arg in given:
                self.fail(call, name, f"it has no argument {keyword.arg!r}, or has it twice", f"it takes {', '.join(known)}")
            given[keyword.arg] = keyword.value
        return given

    def _text(self, node: ast.expr | None, name: str, what: str) -> str | None:
        if node is None:
            return None
        value = self.static(node)
        if not isinstance(value, str):
            self.fail(node, name, f"{what} is {ast.unparse(node)}", "give a string")
        return value

    def _hint(self, node: ast.expr | None, name: str) -> str | None:
        hint = self._text(node, name, "name_hint")
        if hint is not None and not hint.isidentifier():
            assert node is not None
            self.fail(node, name, f"name_hint is {hint!r}", "it names a function: use letters, digits and underscores")
        return hint

    # -- annotations ----------------------------------------------------------------------------------------------------

    def annotation(self, node: ast.expr, value: Any = MISSING) -> Annotation:
        """Parse an annotation; `value` is what Python made of it, where it did."""
        if value is MISSING or isinstance(value, str):
            own, self.locals = self.locals, set()  # annotations are read outside the function
            try:
                value = self._annotation_value(node)
            finally:
                self.locals = own
        found = as_annotation(value)
        if found is None:
            self.fail(
                node,
                f"annotation {ast.unparse(node)}",
                "it is no type of the language",
                "use pl.Tensor, pl.Tensor[[64, 128], pl.FP32], pl.Out[…], pl.InOut[…], pl.Scalar[…] or pl.Tile[…]",
            )
        return found

    def _annotation_value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                written = ast.parse(node.value, mode="eval").body
            except (SyntaxError, ValueError):
                self.fail(node, "annotation", f"the text {node.value!r} is no Python", "write pl.Tensor[[64, 128], pl.FP32]")
            node = ast.fix_missing_locations(ast.copy_location(written, node))
        if isinstance(node, ast.Subscript):
            base = self.static(node.value)
            if base not in _SUBSCRIPTED:
                self.fail(node, f"annotation {ast.unparse(node)}", f"{ast.unparse(node.value)} is no type of the language",
                          "use pl.Tensor, pl.Out, pl.InOut, pl.Scalar, pl.Tile or pl.Array")  # fmt: skip
            item = node.slice
            if isinstance(item, ast.Tuple):
                inner: Any = tuple(list(x) if isinstance(x, tuple) else x for x in map(self._annotation_value, item.elts))
            else:
                inner = self._annotation_value(item)
            try:
                return base[inner]
            except (TypeError, ValueError) as error:
                rule, _, remedy = str(error).partition("; ")
                self.fail(node, "annotation", rule, remedy or "write pl.Tensor[[64, 128], pl.FP32]")
        value = self.static(node)
        if value is MISSING:
            self.fail(
                node, f"annotation {ast.unparse(node)}", "it is not known where this function is", "define the names it uses above"
            )
        return value


def _handed_out(block: ir.Block) -> tuple[str, ...] | None:
    """The names that a branch yields to; None where it yields nothing."""
    last = block[-1] if block else None
    match last:
        case ir.Yield(targets):
            return targets
        case ir.Scope(body=body):
            return _handed_out(body)
        case ir.If(_, then, other) if (names := _handed_out(then)) == _handed_out(other):
            return names
    return None


def aligned(then: ir.Block, other: ir.Block) -> tuple[ir.Block, ir.Block]:
    """Two branches, with the yield of one where the other yields to the same names and an if around its own was settled."""
    ends = [walk.last_yield(block) for block in (then, other)]
    if ends[0] is not None and ends[1] is None:
        return then, _unsettled(other, ends[0].targets)
    if ends[1] is not None and ends[0] is None:
        return _unsettled(then, ends[1].targets), other
    return then, other


def _unsettled(block: ir.Block, targets: tuple[str, ...]) -> ir.Block:
    match block[-1] if block else None:
        case ir.Scope(body=body) as last:
            return (*block[:-1], replace(last, body=_unsettled(body, targets)))
        case ir.Assign(target, value, None) as last if (target,) == targets:
            return (*block[:-1], ir.Yield(targets, (value,), loc=last.loc))
        case ir.Unpack(names, values) as last if names == targets:
            return (*block[:-1], ir.Yield(targets, values, loc=last.loc))
    return block


def settle(block: ir.Block) -> ir.Block:
    """The block of a branch that is always taken: what it would hand out is plainly assigned."""
    if not block:
        return block
    last = block[-1]
    if isinstance(last, ir.Scope):
        return (*block[:-1], replace(last, body=settle(last.body)))
    if not isinstance(last, ir.Yield):
        return block
    if not last.targets:
        return block[:-1]
    if len(last.targets) == 1:
        return (*block[:-1], ir.Assign(last.targets[0], last.values[0], loc=last.loc))
    return (*block[:-1], ir.Unpack(last.targets, last.values, loc=last.loc))


def _as_load(node: ast.expr) -> ast.expr:
    """The target of an augmented assignment as a value to read."""
    match node:
        case ast.Name():
            return ast.copy_location(ast.Name(node.id, ast.Load()), node)
        case ast.Subscript():
            return ast.copy_location(ast.Subscript(node.value, node.slice, ast.Load()), node)
    return node
