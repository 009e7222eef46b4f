"""Deep nests: what they cost to check, how they are written for Python, and where they end."""

import sys
from collections import Counter

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.language.check_stmt import StmtChecker
from ren_lab.runtime import RunConfig
from ren_lab.runtime.config import MAX_SCOPE_DEPTH

HEAD = "import ren_lab.language as pl\n\n"
SIM = RunConfig(platform="sim")
A = np.arange(16, dtype=np.float32).reshape(4, 4)
CHANGES = {
    "number": ["x = x + 1"],
    "two numbers": ["y = x + 2", "x = y * 2"],
    "tensor": ["t = pl.create_tensor([x + 1, 4], pl.FP32)"],
    "extent": ["x = x + 1", "t = pl.create_tensor([x, 4], pl.FP32)"],
    "type": ["x = 1.5"],
    "nothing": [],
}


def nest(
    depth, inner=(), head="for i{k} in pl.range(1):", tail=("with pl.at(level=pl.Level.CORE_GROUP):", " out[:] = pl.add(out, a)")
):
    """Blocks in blocks, one column of indentation each, with statements in each and others in the innermost."""
    lines = ["x = 0"]
    for k in range(depth):
        lines.append(" " * k + head.format(k=k))
        lines.extend(" " * (k + 1) + line for line in inner)
    return [*lines, *(" " * depth + line for line in tail)]


def made(lines, head="@pl.jit", params="a: pl.Tensor, out: pl.InOut[pl.Tensor]"):
    return pl.parse(HEAD + f"{head}\ndef program({params}):\n" + "\n".join(" " + line for line in lines) + "\n", "deep.py")


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.replace(" ", "-"))
def test_checking_grows_with_the_square_of_the_depth(change, monkeypatch):
    turns = Counter()
    turn = StmtChecker._turn

    def counted(self, stmt, *args):
        turns[stmt.var] += 1
        return turn(self, stmt, *args)

    monkeypatch.setattr(StmtChecker, "_turn", counted)
    made(nest(12, CHANGES[change]))
    assert len(turns) == 12 and all(count <= 4 * (k + 2) for k, count in enumerate(turns.values()))  # of one check of the function


@pytest.mark.parametrize("depth", [1, 10, 15, 33, MAX_SCOPE_DEPTH])
@pytest.mark.parametrize("kind", ["loops", "scopes", "loops in a kernel"], ids=lambda kind: kind.replace(" ", "-"))
def test_nests_run_at_any_depth_that_the_runtime_allows(kind, depth):
    inner = ["x = x + 1"] if depth < 20 else []
    if kind == "loops":
        program = made(["for again in pl.range(3):", *(" " + line for line in nest(depth - 1, inner))])
    elif kind == "scopes":
        lines = nest(depth, head="with pl.scope():")
        program = made([*lines, " " * depth + "return out"], "@pl.jit(auto_scope=False)")
    else:
        lines = nest(depth, inner, tail=["out[:] = pl.add(out, a)"])
        program = made(["with pl.at(level=pl.Level.CORE_GROUP):", *(" " + line for line in lines)])
    out = np.zeros_like(A)
    result = program(A, out, config=RunConfig(platform="cpu"))
    np.testing.assert_array_equal(out, A * (3 if kind == "loops" else 1))
    assert (result is out) == (kind == "scopes")
    compile(program.compile(A, A.copy()).source, "deep", "exec")


def test_what_deep_loops_bind_is_what_shallow_ones_bind():
    """Values carried, handed out and changed on the way through twenty levels, in a kernel and outside."""
    body = ["x = 1", "y = 0"]
    for k in range(20):
        body.append(" " * k + f"for i{k}, (c{k},) in pl.range({2 if k in (3, 17) else 1}, init_values=({k},)):")
    pad = " " * 20
    body += [
        pad + "x = x * 3 + i3 + i17",
        pad + "if x > 50:",
        pad + " z = pl.yield_(x)",
        pad + "else:",
        pad + " z = pl.yield_(-x)",
        pad + "y = y + z",
    ]
    body += [" " * (k + 1) + f"d{k} = pl.yield_(c{k} + y)" for k in reversed(range(20))]
    outside = made([*body, "with pl.at(level=pl.Level.CORE_GROUP):", " out[0, 0] = x", " out[0, 1] = y", " out[0, 2] = d0"])
    inside = made(
        [
            "with pl.at(level=pl.Level.CORE_GROUP):",
            *(" " + line for line in [*body, "out[0, 0] = x", "out[0, 1] = y", "out[0, 2] = d0"]),
        ]
    )
    x, y, d = 1, 0, 0
    for i3 in range(2):
        for i17 in range(2):
            x = x * 3 + i3 + i17
            y += x if x > 50 else -x
    d = y  # d0 = c0 + y in its only turn, with c0 = 0
    for program in (outside, inside):
        out = np.zeros((4, 4), np.int64)
        program(A, out, config=SIM)
        assert out[0, :3].tolist() == [x, y, d]


@pytest.mark.parametrize(
    ("lines", "head", "line"),
    [
        (nest(MAX_SCOPE_DEPTH + 1), "@pl.jit", MAX_SCOPE_DEPTH + 6),
        (nest(MAX_SCOPE_DEPTH + 2, head="with pl.scope():"), "@pl.jit(auto_scope=False)", MAX_SCOPE_DEPTH + 7),
        (nest(MAX_SCOPE_DEPTH + 1, head="with pl.scope():") + ["with pl.at(level=pl.Level.CORE_GROUP):", " out[0, 0] = 1.0"],
         "@pl.jit(auto_scope=False)", MAX_SCOPE_DEPTH + 6),
    ],
    ids=["placed by the compiler", "by hand", "in the root"],
)  # fmt: skip
def test_a_scope_that_is_too_deep_is_named_when_the_program_is_compiled(lines, head, line):
    with pytest.raises(
        pl.LanguageError, match=f"scope: it reaches depth {MAX_SCOPE_DEPTH + 1}, and depths go to {MAX_SCOPE_DEPTH}"
    ) as e:
        made(lines, head).compile(A, A.copy())
    assert (e.value.file, e.value.line) == ("deep.py", line) and "auto_scope=False" in e.value.remedy


def test_scopes_of_functions_that_are_called_count():
    text = "\n".join(" " + line for line in nest(40))
    program = HEAD + f"@pl.jit\ndef inner(a: pl.Tensor, out: pl.InOut[pl.Tensor]):\n{text}\n\n"
    program += "@pl.jit.host\ndef outer(a: pl.Tensor, out: pl.InOut[pl.Tensor]):\n"
    for depth, fails in ((20, False), (30, True)):
        lines = "\n".join(" " + line for line in nest(depth, tail=["inner(a, out)"]))
        outer = pl.parse(program + lines + "\n", "deep.py")
        if fails:
            with pytest.raises(pl.LanguageError, match="reaches depth 71") as e:
                outer.lower(A, A.copy())
            assert "inner(a, out)" in str(e.value)
        else:
            outer.lower(A, A.copy())


def test_a_hundred_branches_in_a_row_are_fine_and_more_are_named():
    def chain(count):
        lines = ["if n == 0:", " x = 0"]
        for k in range(1, count):
            lines += [f"elif n == {k}:", f" x = {k * 7}"]
        return made([*lines, "else:", " x = -1", "with pl.at(level=pl.Level.CORE_GROUP):", " out[0, 0] = x"],
                    params="n: pl.Scalar, out: pl.InOut[pl.Tensor]")  # fmt: skip

    for n, expected in ((0, 0), (50, 350), (99, 693), (100, -1)):
        out = np.zeros((1, 1), np.int64)
        chain(100)(n, out, config=SIM)
        assert out[0, 0] == expected
    with pytest.raises(pl.LanguageError, match="nested more than 100 deep, where each elif counts") as e:
        chain(300)
    assert e.value.loc.text.strip() == "elif n == 100:"


@pytest.mark.parametrize(
    "expression",
    [
        " + ".join(["n"] * 1000),
        " + ".join(["1"] * 1000),
        "-" * 1000 + "n",
        "n" + ".a" * 1000,
        "a" + "[0]" * 1000,
        "not " * 1000 + "n",
    ],
    ids=["sum", "sum of numbers", "signs", "attributes", "subscripts", "nots"],
)
@pytest.mark.parametrize(
    "place", ["x = {}", "if {} == 1:\n  x = 1", "for i in {}:\n  x = 1", "with {}:\n  x = 1"], ids=["value", "if", "for", "with"]
)
def test_a_deep_expression_is_named(expression, place):
    with pytest.raises(pl.LanguageError, match="expression: it is nested more than 100 deep; give parts of it names") as e:
        pl.parse(HEAD + f"@pl.jit\ndef program(a: pl.Tensor, n: pl.Scalar):\n {place.format(expression)}\n")
    assert e.value.line == 5


@pytest.mark.parametrize(
    "text",
    ["-" * 100_000 + "1", "(" * 250 + "1" + ")" * 250, "\0", "x = (", " " * 3 + "x = 1"],
    ids=["deep", "parentheses", "zero", "open", "indent"],
)
def test_text_that_python_cannot_read_is_no_program(text):
    with pytest.raises(pl.LanguageError, match="syntax"):
        pl.parse(text)


def test_functions_that_nest_too_deeply_together_are_named():
    def helper(k, calls):
        body = nest(90, head="if n > {k}:", tail=[f"helper{k + 1}(a, out, n)" if calls else "x = 1"])
        return f"@pl.jit.inline\ndef helper{k}(a, out, n):\n" + "\n".join(" " + line for line in body) + "\n\n"

    text = HEAD + "".join(helper(k, k < 7) for k in reversed(range(8)))
    limit = sys.getrecursionlimit()
    with pytest.raises(pl.LanguageError, match="those of the functions that it calls, are nested too deeply") as e:
        pl.parse(text)
    assert "def helper" in e.value.loc.text and sys.getrecursionlimit() == limit
