"""Parsing and printing: what Python means in the language, and that printing undoes parsing."""

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.language import nodes as ir
from ren_lab.language.printer import print_block, print_expr

HEAD = "import ren_lab.language as pl\n\nN = 4\nPAIR = (2, 3)\nM = pl.dynamic('M')\n"


def parsed(body, params="a: pl.Tensor, out: pl.InOut[pl.Tensor], n: pl.Scalar, x: pl.Scalar[pl.FP32]", head="@pl.jit"):
    lines = "\n".join("    " + line for line in body.splitlines())
    return pl.parse(f"{HEAD}\n{head}\ndef f({params}):\n{lines}\n").template.function


def shown(body, **fields):
    return print_block(parsed(body, **fields).body)


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("y = N * 2 + 1", "y = 9"),
        ("y = n * (N + 1)", "y = n * 5"),
        ("y = PAIR[1] - n", "y = 3 - n"),
        ("y = -N", "y = -4"),
        ("y = +n", "y = n"),
        ("y = 2 ** 10", "y = 1024"),
        ("y = 7 // 2", "y = 3"),
        ("y = 1 / 4", "y = 0.25"),
        ("y = 1 < 2 < 3", "y = True"),
        ("y = 0 < n < N", "y = 0 < n and n < 4"),
        ("y = not n > 3", "y = not n > 3"),
        ("y = n if n > 2 else 2", "y = n if n > 2 else 2"),
        ("y = 1 if N > 2 else n", "y = 1"),
        ("y = min(n, 3)", "y = pl.min(n, 3)"),
        ("y = float('inf')", "y = float('inf')"),
        ("y = a.shape[1]", "y = pl.dim(a, axis=1)"),
        ("y, z = a.shape", "y, z = (pl.dim(a, axis=0), pl.dim(a, axis=1))"),
        ("y = pl.tensor.dim(a, 0)", "y = pl.dim(a, axis=0)"),
        ("y = n\ny += 2", "y = n\ny = y + 2"),
        ("y, z = n, 2\ny, z = z, y", "y, z = (n, 2)\ny, z = (z, y)"),
        ("y: pl.Scalar[pl.INDEX] = n", "y: pl.Scalar[pl.INT64] = n"),
        ("'a docstring'\npass", "pass"),
        ("y = n if True else 3", "y = n"),
        ("if N > 3:\n    y = 1\nelse:\n    y = 2", "y = 1"),
        ("if N < 3:\n    y = 1", "pass"),
        ("if N > 3:\n    y = pl.yield_(n)\nelse:\n    y = pl.yield_(2)", "y = n"),
    ],
)  # fmt: skip
def test_what_is_known_now_is_computed_now(source, printed):
    assert shown(source) == printed


KERNEL = "with pl.at(level=pl.Level.CORE_GROUP):\n    "


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("t = pl.tile.load(a, [0, 0], (2, N))", "t = pl.load(a, [0, 0], [2, 4])"),
        ("t = pl.load(a, offsets=[0, 0], shape=PAIR)", "t = pl.load(a, [0, 0], [2, 3])"),
        ("t = a.shape[0] + pl.dim(a, 0)", "t = pl.dim(a, axis=0) + pl.dim(a, axis=0)"),
        ("t = pl.load(a, [0, 0], [2, 4], cache=None)", "t = pl.load(a, [0, 0], [2, 4])"),
        ("t = pl.cast(a, pl.FP16)", "t = pl.cast(a, dtype=pl.FP16)"),
        ("t = pl.full([2, 2], pl.FP32, 1.5)", "t = pl.full([2, 2], dtype=pl.FP32, value=1.5)"),
        ("t = pl.transpose(a, -2, -1)", "t = pl.transpose(a)"),
        ("t = pl.matmul(a, a, b_trans=True)", "t = pl.matmul(a, a, b_trans=True)"),
        ("t = pl.row_sum(a, a)", "t = pl.row_sum(a, a)"),
        ("t = a[0:2, :] * 2.0 - x", "t = a[0:2, :] * 2.0 - x"),
        ("out[n, 0:2] = a[n, 0:2]", "out[n, 0:2] = a[n, 0:2]"),
        ("out[0:2, :] += a[0:2, :]", "out[0:2, :] = out[0:2, :] + a[0:2, :]"),
    ],
)  # fmt: skip
def test_operations(source, printed):
    assert shown(KERNEL + source) == KERNEL + printed


def test_names_from_the_package_and_other_aliases():
    text = """
from ren_lab.language import jit, Tensor, Out, at, Level, load, store
import ren_lab.language as language

@jit
def f(a: Tensor, out: Out[Tensor]):
    with at(level=Level.CORE_GROUP):
        store(language.mul(load(a, [0, 0], [2, 2]), 2.0), [0, 0], out)
"""
    a, out = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    pl.parse(text)(a, out)
    assert (out == 2).all()


@pytest.mark.parametrize(
    "body",
    [
        "for i in pl.range(4):\n    y = i",
        "for i in pl.parallel(1, n):\n    y = i",
        "for i in pl.range(n, 0, -2):\n    y = i",
        "for i in pl.unroll(3):\n    y = i",
        "for i, (c, d) in pl.range(4, init_values=(n, 0)):\n    e, f = pl.yield_(d, c)",
        "for c, d in pl.while_(init_values=(n, 0)):\n    pl.cond(c < 3)\n    e, f = pl.yield_(d, c)",
        "if n > 2:\n    y = 1\nelif n > 1:\n    y = 2\nelse:\n    y = 3",
        "if n > 2:\n    y = pl.yield_(1)\nelse:\n    y = pl.yield_(2)",
        "with pl.manual_scope():\n    pass",
        "with pl.manual_scope(name='phase'):\n    pass",
        "with pl.at(level=pl.Level.CHIP, name_hint='k') as tid:\n    pass\nwith pl.at(level=pl.Level.AIV, deps=[tid]):\n    pass",
        "for i in pl.spmd(4, deps=[None], name_hint='k'):\n    out[i, 0] = x",
        "with pl.spmd(n) as tid:\n    out[pl.get_block_idx(), 0] = x",
        "tids = pl.array.create(4, dtype=pl.TASK_ID)\ntids[n] = None\ny = tids[0]",
        "v = pl.slice(a, [2, 2], [0, n])\nw = pl.reshape(v, [4])\nreturn (v, w)",
        "with pl.at(level=pl.Level.CORE_GROUP):\n    pl.set_cache_policy(a, pl.CachePolicy.DEFAULT)",
        "y = ~n // 2 % 3 & 7 | 1 ^ n << 2 >> 1",
        "y = -(n + 1) * (n - (2 - n)) ** 2\nz = -n ** 2",
        "y = (n > 1 or n < 0) and (not (n == 3 or n != 4))",
    ],
)  # fmt: skip
def test_statements_print_as_they_are_written(body):
    assert shown(body) == body
    assert parsed(shown(body)).body == parsed(body).body


def test_constants_are_compared_by_how_they_are_written():
    assert ir.Const(1) != ir.Const(True) and ir.Const(1) != ir.Const(1.0) and ir.Const(0.0) != ir.Const(-0.0)
    assert ir.Const(float("nan")) == ir.Const(float("nan"))
    assert ir.Const(1, loc=pl.LanguageError("a", "b", "c", parsed("pass").loc).loc) == ir.Const(1)


@pytest.mark.parametrize("value", [0.1, 1e300, -1e-30, float("inf"), float("-inf"), float("nan"), 2**70, -3, True, None])
def test_constants_survive_printing(value):
    text = print_expr(ir.Const(value))
    assert parsed(f"y = {text}").body[0].value == ir.Const(value)


def test_dynamic_extents_are_numbers_in_the_body():
    made = parsed("y = M + 1", params="a: pl.Tensor[[8, M], pl.FP32]")
    assert print_block(made.body) == "M = pl.dim(a, axis=1)\ny = M + 1"
    assert parsed("M = n", params="a: pl.Tensor[[M, 4], pl.FP32], n: pl.Scalar").params[0].annotation.shape[1] == 4
    with pytest.raises(pl.LanguageError, match="no parameter has it"):
        parsed("y = M + 1", params="a: pl.Tensor")


def test_places_are_those_of_the_source():
    body = parsed("y = n\nz = pl.min(n,\n    3)").body
    assert (body[0].loc.line, body[0].loc.column) == (9, 5)
    assert (body[1].value.loc.line, body[1].value.loc.end_line, body[1].value.loc.column) == (10, 11, 9)


def test_a_text_holds_nothing_but_programs():
    for text, says in [
        ("import os\n", "imports the language only"),
        ("x = open('f')\n", "it is no constant"),
        ("print(1)\n", "a text holds imports, constants, functions and programs only"),
        ("", "defines no function"),
        ("import ren_lab.language as pl\ndef f(a):\n    pass\n", "0 decorators"),
        ("import ren_lab.language as pl\n@print\ndef f(a):\n    pass\n", "no decorator for this place"),
        ("import ren_lab.language as pl\nclass C:\n    pass\n", "decorate it with @pl.program"),
        ("import ren_lab.language as pl\n@pl.program\nclass C:\n    x = 1\n", "holds functions only"),
        ("def f(:\n", "invalid syntax"),
    ]:
        with pytest.raises(pl.LanguageError, match=says):
            pl.parse(text)


def test_nothing_of_a_text_is_executed(tmp_path):
    marker = tmp_path / "executed"
    text = f"""
import ren_lab.language as pl

@pl.jit(auto_scope=open({str(marker)!r}, "w"))
def f(a: pl.Tensor):
    pass
"""
    with pytest.raises(pl.LanguageError):
        pl.parse(text)
    assert not marker.exists()


def test_the_same_text_is_the_same_program():
    text = parsed("for i in pl.range(n):\n    with pl.at(level=pl.Level.CORE_GROUP):\n        out[i, :] = a[i, :]")
    again = parsed(
        "for i in pl.range(n):\n\n    with pl.at(level=pl.Level.CORE_GROUP):  # other lines\n        out[i, :] = a[i, :]"
    )
    assert text == again and hash(text) == hash(again)
