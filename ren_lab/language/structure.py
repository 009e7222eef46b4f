"""Where constructs may stand: scopes and tasks on the submitting side, kernels outside one another."""

from collections.abc import Callable

from ren_lab.language import nodes as ir
from ren_lab.language import walk
from ren_lab.language.annotations import FunctionType, Level
from ren_lab.language.errors import LanguageError
from ren_lab.runtime import ScopeMode
from ren_lab.runtime.config import MAX_SCOPE_DEPTH

_AUTO = "an AUTO scope"
_MANUAL = "a MANUAL scope"


def check_structure(function: ir.Function, in_kernel: bool) -> None:
    """Raise `LanguageError` for a construct that stands where it must not.

    `in_kernel` says whether the whole function belongs to a kernel.
    """
    _block(function, function.body, "function" if in_kernel else None, None, in_kernel)


def is_carried(stmt: ir.At | ir.Spmd, called: Callable[[ir.Call], bool] = lambda call: False) -> bool:
    """Whether it is a block that submits tasks and is none: one at another level than CORE_GROUP, with tasks inside.

    `called` says whether a function that is called submits or allocates.
    """
    return isinstance(stmt, ir.At) and stmt.level is not Level.CORE_GROUP and walk.holds_tasks(stmt.body, called)


def _fail(stmt: ir.Stmt, construct: str, rule: str, remedy: str) -> None:
    raise LanguageError(construct, rule, remedy, stmt.loc)


def _block(function: ir.Function, block: ir.Block, kernel: str | None, manual: ir.Scope | None, top: bool) -> None:
    """`kernel` names the kernel around this block, `manual` is the MANUAL scope around it, `top` whether it is a kernel's
    own body."""
    for stmt in block:
        match stmt:
            case ir.Scope():
                _scope(function, stmt, kernel, manual)
                inner = stmt if stmt.mode is ScopeMode.MANUAL else manual
                _block(function, stmt.body, kernel, inner, False)
            case ir.At() | ir.Spmd():
                _placed(function, stmt, kernel)
                inner_kernel = kernel if is_carried(stmt) else "pl.at" if isinstance(stmt, ir.At) else "pl.spmd"
                _block(function, stmt.body, inner_kernel, manual, True)
            case ir.SetCachePolicy():
                if not top:
                    where = "nested in a loop or a branch" if kernel else "outside kernels"
                    _fail(
                        stmt,
                        "pl.set_cache_policy",
                        f"it stands {where}",
                        "put it at the top level of a pl.at, pl.spmd or InCore body",
                    )
            case _:
                for _, inner_block in walk.blocks_of(stmt):
                    _block(function, inner_block, kernel, manual, False)


def _scope(function: ir.Function, stmt: ir.Scope, kernel: str | None, manual: ir.Scope | None) -> None:
    what = _MANUAL if stmt.mode is ScopeMode.MANUAL else _AUTO
    name = "pl.manual_scope" if stmt.mode is ScopeMode.MANUAL else "pl.scope"
    if kernel is not None:
        _fail(stmt, name, f"{what} stands inside a kernel ({_kernel_name(function, kernel)}); scopes are for orchestration",
              "put it into the function that submits the kernel")  # fmt: skip
    if manual is not None:
        _fail(stmt, name, f"{what} stands inside the MANUAL scope of line {manual.loc.line}",
              "end the MANUAL scope first; it admits no scope inside it")  # fmt: skip
    if stmt.mode is ScopeMode.AUTO and function.auto_scope:
        _fail(stmt, name, "an AUTO scope is written in a function in which the compiler places them",
              "declare the function with auto_scope=False, or use pl.manual_scope")  # fmt: skip


def _placed(function: ir.Function, stmt: ir.At | ir.Spmd, kernel: str | None) -> None:
    name = "pl.at" if isinstance(stmt, ir.At) else "pl.spmd"
    if kernel is not None and not (function.type is FunctionType.Opaque and isinstance(stmt, ir.At) and kernel == "function"):
        _fail(
            stmt,
            name,
            f"it stands inside a kernel ({_kernel_name(function, kernel)})",
            "end the outer kernel first: kernels do not nest",
        )
    if kernel is not None and isinstance(stmt, ir.At) and (stmt.deps or stmt.task_id is not None):
        _fail(
            stmt,
            name,
            "it has deps or a task id inside an opaque function, which is one task",
            "leave them out, or use @pl.jit.inline",
        )


def _kernel_name(function: ir.Function, kernel: str) -> str:
    return f"{function.type.name} function {function.name}" if kernel == "function" else kernel


# -- depth ------------------------------------------------------------------------------------------------------------------


def check_depth(program: ir.Program) -> None:
    """Raise `LanguageError` for a scope that is deeper than the runtime allows, where all scopes are written."""
    nested: dict[str, int] = {}  # how many scopes a function opens inside one another
    for function in program.functions:  # callees come before callers
        root = int(function is program.entry and has_stray_tasks(program, function))
        deepest = root
        stack = [(stmt, root) for stmt in reversed(function.body)]
        while stack:
            stmt, around = stack.pop()
            if isinstance(stmt, ir.Call):
                deepest = max(deepest, around + nested[stmt.callee])
            around += isinstance(stmt, ir.Scope)
            deepest = max(deepest, around)
            if deepest > MAX_SCOPE_DEPTH + 1:
                _fail(stmt, "scope", f"it reaches depth {deepest - 1}, and depths go to {MAX_SCOPE_DEPTH}",
                      "place fewer scopes by hand, with auto_scope=False: from depth 3 on all share ring 3 anyway")  # fmt: skip
            for _, block in walk.blocks_of(stmt):
                stack.extend((inner, around) for inner in reversed(block))
        nested[function.name] = deepest - root


def has_stray_tasks(program: ir.Program, function: ir.Function) -> bool:
    """Whether a function submits or allocates outside any scope of its own."""
    stack = list(function.body)
    while stack:
        stmt = stack.pop()
        if isinstance(stmt, ir.Scope):
            continue
        if isinstance(stmt, ir.Call):
            callee = program[stmt.callee]
            if callee.is_kernel or has_stray_tasks(program, callee):
                return True
        if any(isinstance(e, ir.Op) and e.name == "create_tensor" for e in walk.all_exprs(stmt)):
            return True
        for _, inner in walk.blocks_of(stmt):
            stack.extend(inner)
    return False
