"""The passes: what each makes of a program, which rules fire, and what their records say."""

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.language.passes.rule import rule
from ren_lab.language.printer import print_block
from ren_lab.lens.pass_steps import PassSteps

HEAD = "import ren_lab.language as pl\n\n"
A = np.arange(64, dtype=np.float32).reshape(16, 4)
NAMES = ["inline_functions", "unroll_loops", "outline_incore", "derive_dependencies", "materialize_runtime_scopes"]


def lowered(body, before="", head="@pl.jit(auto_scope=False)"):
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    text = f"{HEAD}{before}\n{head}\ndef main(a: pl.Tensor, out: pl.InOut[pl.Tensor], n: pl.Scalar):\n{lines}\n"
    return pl.parse(text, "main.py").lower(A, A.copy(), 3)


def stage(program, name):
    """(body before, body after, names of the rules that fired) of the entry in one pass."""
    record = program.passes[NAMES.index(name)]
    return print_block(record.before.entry.body), print_block(record.after.entry.body), [r.rule for r in record.rewrites]


KERNEL = "with pl.at(level=pl.Level.CORE_GROUP):\n    "
HELPER = """
@pl.jit.inline
def helper(x, y, k):
    for i in pl.range(k):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[i, :] = x[i, :]
    return y
"""


def test_the_passes_and_their_order():
    assert [p.name for p in pl.PASSES] == NAMES
    records = lowered("pass").passes
    assert [(r.number, r.name) for r in records] == list(enumerate(NAMES, 1))
    assert all(a.after is b.before for a, b in zip(records, records[1:]))
    assert all(r.seconds >= 0 and r.before == r.after and not r.rewrites and r.quiet for r in records)


def test_inline_functions():
    before, after, fired = stage(lowered("i = 2\nhelper(a, out, n)\nhelper(a, out, i)", HELPER), "inline_functions")
    assert before == "i = 2\nself.helper(a, out, n)\nself.helper(a, out, i)"
    assert after == (
        "i = 2\n"
        "for i_1 in pl.range(n):\n    with pl.at(level=pl.Level.CORE_GROUP):\n        out[i_1, :] = a[i_1, :]\n"
        "for i_2 in pl.range(i):\n    with pl.at(level=pl.Level.CORE_GROUP):\n        out[i_2, :] = a[i_2, :]"
    )
    assert fired == ["splice_call"] * 2
    program = lowered("helper(a, out, 2)", HELPER)
    assert [f.name for f in program.passes[0].before.functions] == ["helper", "main"]
    assert [f.name for f in program.passes[0].after.functions] == ["main"]


def test_arguments_that_the_helper_rebinds_get_a_name():
    helper = "\n@pl.jit.inline\ndef helper(x):\n    x = x + 1\n    return x\n"
    _, after, _ = stage(lowered("m = n\ny = helper(m)\nz = helper(y * 2)\nm = helper(m)", helper), "inline_functions")
    assert after.splitlines() == ["m = n", "x = m", "x = x + 1", "y = x", "x_1 = y * 2", "x_1 = x_1 + 1", "z = x_1", "m = m + 1"]


def test_unroll_loops():
    before, after, fired = stage(
        lowered("for i in pl.unroll(1, 6, 2):\n    if i > 1:\n        y = i * n\n    else:\n        y = n"), "unroll_loops"
    )
    assert before.startswith("for i in pl.unroll(1, 6, 2):")
    assert after == "y = n\ny = 3 * n\ny = 5 * n" and fired == ["unroll_loop"] + ["take_branch"] * 3


def test_nested_unrolled_loops_may_depend_on_outer_ones():
    _, after, fired = stage(lowered("for i in pl.unroll(3):\n    for j in pl.unroll(2):\n        x = i * 10 + j"), "unroll_loops")
    assert after.splitlines() == [f"x = {i * 10 + j}" for i in range(3) for j in range(2)] and len(fired) == 4


def test_a_body_that_changes_the_variable_keeps_its_name():
    _, after, _ = stage(lowered("for i in pl.unroll(2):\n    i = i + n"), "unroll_loops")
    assert after.splitlines() == ["i = 0", "i = i + n", "i = 1", "i = i + n"]


def test_too_many_copies_are_refused():
    with pytest.raises(pl.LanguageError, match="5000 turns, and a program holds 4096 copies"):
        lowered("for i in pl.unroll(5000):\n    x = i")


def test_outline_at():
    program = lowered(f"x = n * 2\ny = 0.5\n{KERNEL}t = pl.mul(a, y)\n    out[x, :] = t[0, :]\n    o = out\nout = o")
    before, after, fired = stage(program, "outline_incore")
    assert before.count("pl.at") == 1
    assert after == "x = n * 2\ny = 0.5\nself.main_8(a, out, x)\no = out\nout = o" and fired == ["outline_at"]
    kernel = program.passes[2].after["main_8"]
    assert kernel.is_kernel and [p.name for p in kernel.params] == ["a", "out", "x"]
    assert [p.annotation.direction and p.annotation.direction.name for p in kernel.params] == [None, "Out", None]
    assert "t = pl.mul(a, 0.5)" in print_block(kernel.body)  # a written number takes the type of what it meets


def test_outline_spmd():
    program = lowered(
        "for i in pl.spmd(n, name_hint='each'):\n    out[i, :] = a[i, :]\n"
        "with pl.spmd(2) as tid:\n    out[pl.get_block_idx(), 0] = 1.0"
    )
    _, after, fired = stage(program, "outline_incore")
    assert after == "pl.submit(self.each, a, out, blocks=n)\ntid = pl.submit(self.main_8, out, blocks=2)"
    assert fired == ["outline_spmd"] * 2
    assert print_block(program.passes[2].after["each"].body) == "i = pl.get_block_idx()\nout[i, :] = a[i, :]"


def test_arguments_that_are_views_get_names():
    kernel = "\n@pl.jit.incore\ndef copy(x: pl.Tensor, y: pl.Out[pl.Tensor]):\n    y[:] = x\n    return y\n"
    _, after, fired = stage(lowered("copy(a[0:4, :], out[4:8, :])", kernel), "outline_incore")
    assert (
        after == "copy_arg = a[0:4, :]\ncopy_arg_1 = out[4:8, :]\nself.copy(copy_arg, copy_arg_1)"
        and fired == ["name_argument"] * 2
    )


def test_opaque_functions_are_flattened():
    opaque = f"\n@pl.jit.opaque\ndef kernel(x: pl.Tensor, y: pl.Out[pl.Tensor]):\n    {KERNEL}    y[:] = x\n"
    program = lowered("kernel(a, out)", opaque)
    assert [r.rule for r in program.passes[2].rewrites] == ["dissolve_at"]
    assert print_block(program.passes[2].after["kernel"].body) == "y[:] = x"


def test_derive_dependencies():
    body = """
for i in pl.range(4):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.load(a, [i * 4, 0], [4, 4])
        for j in pl.range(2):
            pl.store(t[0:2, :], [i * 4 + j * 2, 0], out)
        u = pl.load(out, [n, 0], [1, 4])
"""
    program = lowered(body)
    before, after, fired = stage(program, "derive_dependencies")
    assert before == "for i in pl.range(4):\n    self.main_7(a, out, n, i)"
    assert after == (
        "for i in pl.range(4):\n    pl.submit(self.main_7, a, out, n, i, reads=[pl.region(a, [i * 4, 0], [4, 4]), "
        "pl.region(out, [n, 0], [1, 4])], writes=[pl.region(out, [i * 4, 0], [4, 4])])"
    )
    assert fired == ["infer_regions"]


def test_regions_of_results_are_bound_with_the_task():
    kernel = "\n@pl.jit.incore\ndef fill(y: pl.Out[pl.Tensor]):\n    y[:] = pl.full([16, 4], pl.FP32, 1.0)\n    return y\n"
    _, after, _ = stage(lowered("o = fill(out)\nreturn o", kernel), "derive_dependencies")
    assert after == "o, _ = pl.submit(self.fill, out, reads=[], writes=[out])\nreturn o"


def test_materialize_runtime_scopes():
    program = lowered(f"for i in pl.range(2):\n    {KERNEL}    out[i, :] = a[i, :]", head="@pl.jit")
    before, after, fired = stage(program, "materialize_runtime_scopes")
    assert "pl.scope" not in before and fired == ["scope_function_body", "scope_loop_body"]
    assert after.splitlines()[:3] == ["with pl.scope():", "    for i in pl.range(2):", "        with pl.scope():"]


def test_rewrites_say_what_stood_and_what_stands():
    record = lowered(f"for i in pl.unroll(2):\n    {KERNEL}    out[i, :] = a[i, :]").passes[1]
    (fired,) = record.rewrites
    assert fired.equation == "for i in pl.unroll(n): body -> body with 0 for i; …; body with n - 1 for i"
    assert str(fired.old).startswith("for i in pl.unroll(2):") and str(fired.new).count("out[") == 2
    assert record.sentence == "Pass 2, unroll_loops: 1 rewrite, 1 function changed."
    assert str(record).startswith(record.sentence) and not record.quiet


MANY = """
@pl.jit.inline
def helper(x, y, k):
    for i in pl.range(k):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[i, :] = x[i, :]
    return y

@pl.jit.inline
def twice(x, y):
    helper(x, y, 1)
    helper(x, y, 2)

@pl.jit.opaque
def opaque(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[0, :] = x[0, :]
    with pl.at(level=pl.Level.CORE_GROUP):
        y[1, :] = x[1, :]
"""
EVERYTHING = f"""
twice(a, out)
for k in pl.unroll(2):
    for m in pl.unroll(k + 1):
        if k > 0:
            {KERNEL.strip()}
                out[m, :] = a[k, :]
opaque(a[2:4, :], out)
{KERNEL.strip()}
    out[5, :] = a[0, :]
{KERNEL.strip()}
    out[5, :] = a[0, :]
if n > 2:
    for i in pl.spmd(2):
        out[i, :] = a[i, :]
"""


def test_each_step_of_a_pass_is_the_program_after_so_many_rewrites():
    records = lowered(EVERYTHING, MANY, "@pl.jit").passes
    assert {f.rule for r in records for f in r.rewrites} == {r.name for p in pl.PASSES for r in p.rules}  # all are at work here
    for record in records:
        assert len(record.steps) == len(record.rewrites) and record.steps[-1] == record.after
        programs = [record.before, *record.steps]
        assert all(str(one) != str(other) for one, other in zip(programs, programs[1:]))
        assert [pl.parse(str(step)).ir for step in programs] == programs
        assert record.steps[-2:] == [record.steps[len(record.steps) + k] for k in (-2, -1)]
        for out_of_range in (len(record.steps), -len(record.steps) - 1):
            with pytest.raises(IndexError, match=f"no step {out_of_range}: the pass has {len(record.steps)} rewrites; give"):
                record.steps[out_of_range]
    with pytest.raises(IndexError, match="no rewrites"):
        lowered("pass").passes[0].steps[0]


def test_a_step_stops_where_the_next_rewrite_would_be():
    program = lowered(
        f"for i in pl.range(2):\n    for j in pl.range(2):\n        {KERNEL.strip()}\n            out[i, :] = a[j, :]",
        head="@pl.jit",
    )
    texts = [str(step.entry) for step in program.passes[-1].steps]
    assert [text.count("with pl.scope():") for text in texts] == [1, 2, 3]
    assert texts[0].index("pl.scope") < texts[0].index("for i") and texts[1].rindex("pl.scope") < texts[1].index("for j")


def test_records_tell_which_functions_came_went_and_changed():
    records = lowered(EVERYTHING, MANY, "@pl.jit").passes
    told = [tuple([f.name for f in found] for found in (r.added, r.removed, r.changed)) for r in records]
    assert told[0] == ([], ["helper", "twice"], ["main"]) and told[1] == ([], [], ["main"])
    assert told[2][1:] == ([], ["opaque", "main"]) and len(told[2][0]) == 6  # one of them runs twice
    assert told[3] == told[4] == ([], [], ["main"])
    assert records[2].sentence == "Pass 3, outline_incore: 10 rewrites, 6 functions added, 2 functions changed."
    assert str(records[2].added[0]).startswith("@pl.function(type=pl.FunctionType.InCore)")


def test_every_rule_states_its_equation():
    rules = [r for p in pl.PASSES for r in p.rules]
    assert len(rules) == 11 and all("->" in r.equation for r in rules) and all(p.holds for p in pl.PASSES)
    with pytest.raises(ValueError, match="no docstring"):
        rule(lambda stmt: stmt)


def test_equal_blocks_share_a_kernel_and_others_do_not():
    program = lowered(f"for i in pl.unroll(3):\n    {KERNEL}    out[5, :] = a[0, :]\n    {KERNEL}    out[i, :] = a[i, :]")
    kernels = [f.name for f in program.program.functions if f.is_kernel]
    assert kernels == ["main_7", "main_9", "main_9_1", "main_9_2"]


def test_a_printed_program_may_be_lowered_again():
    program = lowered(f"for i in pl.range(2):\n    {KERNEL}    out[i, :] = a[i, :]", head="@pl.jit")
    again = pl.parse(program.as_python()).lower(A, A.copy(), 3)
    assert again.program == program.program and [r.rule for p in again.passes for r in p.rewrites] == ["infer_regions"]


def test_the_engines_stepper_shows_these_passes_too():
    program = lowered(f"for i in pl.range(2):\n    {KERNEL}    out[i, :] = a[i, :]", head="@pl.jit")
    for source in (program, program.passes):
        steps = PassSteps.of(source)
        assert steps.count == 6 and [s["label"] for s in steps.outline["states"]][1:] == [
            f"{k} {name}" for k, name in enumerate(NAMES, 1)
        ]
        frames = [steps.frame(k) for k in range(6)]
        assert all(frame["lines"] for frame in frames)
        assert "scope_loop_body" in str(frames[5]["sections"]) and "with pl.scope():" in str(frames[5]["lines"])
