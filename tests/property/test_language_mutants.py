"""Programs that are damaged at random: they are accepted or refused with a `LanguageError`, and never break the compiler."""

import ast
import random
import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ren_lab.language as pl
from ren_lab.runtime import ReclaimedError, RunConfig

PROGRAM = """
import ren_lab.language as pl

N = 4
M = pl.dynamic("M")


@pl.jit.inline
def helper(x, factor):
    y = pl.mul(x, factor)
    return y


@pl.jit.incore
def kernel(x: pl.Tensor, out: pl.Out[pl.Tensor], k: pl.Scalar):
    pl.set_cache_policy(x, pl.CachePolicy.DEFAULT)
    t = pl.load(x, [k * 4, 0], [4, 8], cache=pl.CachePolicy.DEFAULT)
    if k > 1:
        s = pl.yield_(pl.row_sum(t))
    else:
        s = pl.yield_(pl.row_max(t))
    out[k * 4:(k + 1) * 4, :] = pl.row_expand_sub(t, s)
    return out


@pl.jit
def program(a: pl.Tensor[[M, 8], pl.FP32], b: pl.Tensor, out: pl.InOut[pl.Tensor], n: pl.Scalar):
    tids = pl.array.create(N, pl.TASK_ID)
    tmp = pl.create_tensor([16, 8], dtype=pl.FP32)
    last = None
    for i in pl.range(M // 4):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="first", deps=[last]) as tid:
            t = pl.load(a, [i * 4, 0], [4, 8])
            t = helper(t, 0.5)
            for j, (acc,) in pl.range(1, 3, init_values=(t,)):
                total = pl.yield_(pl.matmul_acc(acc, acc, b))
            pl.store(total, [i * 4, 0], tmp)
        tids[i] = tid
        last = tid
    with pl.manual_scope():
        out, tid = pl.submit(kernel, tmp, out, 0, deps=[tids, last])
        tid = pl.submit(kernel, tmp, out, 1, deps=[tid])
    for (x, y) in pl.while_(init_values=(0, n)):
        pl.cond(x < 2 and y > 0)
        with pl.spmd(2):
            k = pl.tile.get_block_idx()
            out[k, 0:2] = pl.exp(a[k + x, 1:3] - 1.0)
        p, q = pl.yield_(x + 1, y - 1)
    for u in pl.unroll(2):
        if u == 0 or not n > 2:
            out = kernel(a, out, u)
    top, rest = out[0:4, :], pl.reshape(pl.transpose(out), [16, 8]) if False else out
    return top, p
"""


class Damage(ast.NodeTransformer):
    """Changes a few nodes."""

    def __init__(self, rng):
        self.rng = rng
        self.left = rng.randint(1, 3)
        tree = ast.parse(PROGRAM)
        nodes = list(ast.walk(tree))
        self.names = sorted({n.id for n in nodes if isinstance(n, ast.Name)} | {"M", "nothing"})
        self.attrs = sorted(
            {n.attr for n in nodes if isinstance(n, ast.Attribute)}
            | {"add", "concat", "full", "sel", "region", "dim", "FP16", "BOOL"}
        )
        self.exprs = [n for n in nodes if isinstance(n, ast.expr) and not isinstance(getattr(n, "ctx", ast.Load()), ast.Store)]
        self.stmts = [n for n in nodes if isinstance(n, ast.stmt) and not isinstance(n, ast.Import | ast.FunctionDef)]

    def hit(self, one_in):
        if self.left and self.rng.random() * one_in < 1:
            self.left -= 1
            return True
        return False

    def generic_visit(self, node):
        node = super().generic_visit(node)
        rng = self.rng
        if isinstance(node, ast.Name) and self.hit(60):
            node.id = rng.choice(self.names)
        elif isinstance(node, ast.Attribute) and self.hit(60):
            node.attr = rng.choice(self.attrs)
        elif isinstance(node, ast.Constant) and self.hit(40):
            node.value = rng.choice([0, 1, -1, 3, 100, 2.5, True, None, "text", 3000])
        elif isinstance(node, ast.Call) and self.hit(40):
            where = node.args if node.args and rng.random() < 0.5 else node.keywords or node.args
            if where:
                where.pop(rng.randrange(len(where)))
        elif isinstance(node, ast.List | ast.Tuple) and node.elts and self.hit(30):
            node.elts.pop(rng.randrange(len(node.elts)))
        elif isinstance(node, ast.BinOp) and self.hit(20):
            node.op = rng.choice([ast.Div(), ast.MatMult(), ast.Pow(), ast.Mod(), ast.LShift(), ast.BitAnd()])
        elif isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", ast.Load()), ast.Store) and self.hit(250):
            return rng.choice(self.exprs)
        elif isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.FunctionDef | ast.Module) and self.hit(60):
            return rng.choice([ast.Pass(), node, [node, node], rng.choice(self.stmts), [rng.choice(self.stmts), node]])
        return node


def damaged(seed):
    tree = ast.fix_missing_locations(Damage(random.Random(seed)).visit(ast.parse(PROGRAM)))
    return ast.unparse(tree)


def arguments(n):
    return np.ones((16, 8), np.float32), np.ones((8, 8), np.float32), np.ones((16, 8), np.float32), n


def outcome(text, n=3):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = pl.parse(text)
            lowered = program.lower(*arguments(n))
            for record in lowered.passes:
                assert pl.parse(str(record.after)).ir == record.after
            program(*arguments(n), config=RunConfig(platform="sim", timeout_s=5))
        except pl.LanguageError as error:
            assert error.rule and error.remedy and error.line >= 1 and error.column >= 1
            return "refused"
        except ReclaimedError:  # legal programs may use a tensor too late
            return "failed"
    return "accepted"


def test_the_undamaged_program_is_fine():
    assert outcome(PROGRAM) == "accepted"


@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 0, -1, 1, 1000, 2.5, True]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_damage_is_refused_or_harmless(seed, n):
    try:
        text = damaged(seed)
    except ValueError:  # what was damaged cannot be written as Python at all
        return
    try:
        outcome(text, n)
    except TypeError as error:  # arguments of the call itself
        assert "arguments" in str(error)
