"""`pl.at` at other levels than CORE_GROUP: such blocks parse, are carried through every pass, and are no kernels."""

import warnings

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.runtime import RunConfig

SIM = RunConfig(platform="sim")
A = np.arange(48, dtype=np.float32).reshape(6, 8)
OTHERS = [level for level in pl.Level if level is not pl.Level.CORE_GROUP]
LEVELS = pytest.mark.parametrize("level", OTHERS, ids=lambda level: level.name)
HEAD = "import ren_lab.language as pl\n\n"
DEEPER = "@pl.jit.inline\ndef helper(x, y):\n    deeper(x, y)"
CORE = "with pl.at(level=pl.Level.CORE_GROUP):"


def made(body, before="", head="@pl.jit"):
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    return pl.parse(
        f"{HEAD}{before}\n{head}\ndef program(a: pl.Tensor, out: pl.Out[pl.Tensor]):\n{lines}\n    return out\n", "levels.py"
    )


@LEVELS
@pytest.mark.parametrize("platform", ["sim", "cpu", "a5"])
def test_a_core_group_block_inside_another_level_works(level, platform):
    program = made(f"""
with pl.at(level=pl.Level.{level.name}, name_hint="phase"):
    tmp = pl.create_tensor([6, 8], dtype=pl.FP32)
    for i in pl.range(2):
        with pl.at(level=pl.Level.HOST):
            {CORE}
                tmp[i * 3:i * 3 + 3, :] = a[i * 3:i * 3 + 3, :] * 2.0
    with pl.spmd(2):
        k = pl.tile.get_block_idx()
        out[k * 3:k * 3 + 3, :] = tmp[k * 3:k * 3 + 3, :] + 1.0
""")
    out = np.zeros_like(A)
    assert program(A, out, config=RunConfig(platform=platform)) is out
    np.testing.assert_array_equal(out, A * 2 + 1)
    lowered, compiled = program.lower(A, out), program.compile(A, out)
    for stage in (lowered.passes[0].before, *(record.after for record in lowered.passes)):
        assert f"with pl.at(level=pl.Level.{level.name}, name_hint='phase'):" in str(stage) and pl.parse(str(stage)).ir == stage
    assert len(compiled.kernels) == 2 and not compiled.others
    assert [ring.tasks for ring in program.run(A, out, config=SIM).rings] == [1, 2, 0, 0]  # such a block is no scope


@LEVELS
def test_a_block_that_only_computes_is_a_task_and_no_kernel(level):
    program = made(f"with pl.at(level=pl.Level.{level.name}, name_hint='work') as tid:\n    out[:] = a + 1.0\n"
                   f"with pl.at(level=pl.Level.CORE_GROUP, deps=[tid]):\n    out[0, 0] = 7.0")  # fmt: skip
    out = np.zeros_like(A)
    report = program.run(A, out, config=RunConfig(platform="a2a3"), timeline=True)
    assert out[0, 0] == 7 and out[1, 1] == A[1, 1] + 1 and report.tasks == 2
    compiled = program.compile(A, out)
    assert list(compiled.others) == ["work"] and len(compiled.kernels) == 1 and compiled.others["work"].kind is None
    assert f"level=pl.Level.{level.name}" in compiled.as_python()


@pytest.mark.parametrize(
    ("helper", "kernels", "others"),
    [
        ("@pl.jit.inline\ndef helper(x, y):\n    y[:] = x + 1.0", 0, 1),
        (f"@pl.jit.inline\ndef helper(x, y):\n    {CORE}\n        y[:] = x + 1.0", 1, 0),
        (f"@pl.jit.inline\ndef deeper(x, y):\n    {CORE}\n        y[:] = x + 1.0\n\n{DEEPER}", 1, 0),
        (f"@pl.jit.inline\ndef deeper(x, y):\n    y[:] = x + 1.0\n\n{DEEPER}", 0, 1),
        ("@pl.jit.incore\ndef helper(x: pl.Tensor, y: pl.Out[pl.Tensor]):\n    y[:] = x + 1.0", 1, 0),
        (f"@pl.jit.opaque\ndef helper(x: pl.Tensor, y: pl.Out[pl.Tensor]):\n    {CORE}\n        y[:] = x + 1.0", 1, 0),
    ],
    ids=["computes", "places", "places deeper", "computes deeper", "is a kernel", "is opaque"],
)
def test_what_a_function_that_is_called_does_decides_too(helper, kernels, others):
    program = made("with pl.at(level=pl.Level.CHIP):\n    helper(a, out)", "\n" + helper + "\n")
    out = np.zeros_like(A)
    program(A, out, config=SIM)
    np.testing.assert_array_equal(out, A + 1)
    compiled = program.compile(A, out)
    assert (len(compiled.kernels), len(compiled.others)) == (kernels, others)


def test_names_that_such_a_block_binds_are_seen_behind_it():
    program = made(f"with pl.at(level=pl.Level.DIE):\n    n = a.shape[0] - 1\n    {CORE}\n        out[:] = a + 0.0\n"
                   f"{CORE}\n    out[n, 0] = -1.0")  # fmt: skip
    out = np.zeros_like(A)
    program(A, out, config=SIM)
    assert out[5, 0] == -1


@LEVELS
def test_a_policy_at_such_a_level_is_carried_and_without_effect_on_the_kernels_inside(level):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = made(f"""
with pl.at(level=pl.Level.{level.name}):
    pl.set_cache_policy(a, pl.CachePolicy.BYPASS)
    pl.set_cache_policy(out, pl.CachePolicy.BYPASS)
    {CORE}
        out[:] = a + 1.0
""")
        out = np.zeros_like(A)
        program(A, out, config=SIM)
    np.testing.assert_array_equal(out, A + 1)
    lowered = program.lower(A, out)
    assert {read.policy for read in lowered.reads} == {pl.CachePolicy.DEFAULT}
    assert all(str(record.after).count("pl.CachePolicy.BYPASS") == 2 for record in lowered.passes)


def test_a_manual_scope_around_and_inside():
    program = made("""
with pl.at(level=pl.Level.CLUSTER):
    with pl.manual_scope():
        with pl.at(level=pl.Level.CORE_GROUP) as tid:
            out[:] = a + 1.0
        with pl.at(level=pl.Level.HOST):
            with pl.at(level=pl.Level.CORE_GROUP, deps=[tid]):
                out[:] = out[:, :] * 2.0
""")
    out = np.zeros_like(A)
    program(A, out, config=SIM)
    np.testing.assert_array_equal(out, (A + 1) * 2)


def test_in_an_opaque_function_it_belongs_to_the_kernel_like_any_other():
    program = made(
        "opaque(a, out)",
        f"""
@pl.jit.opaque
def opaque(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.HOST):
        {CORE}
            y[:] = x + 1.0
""",
    )
    out = np.zeros_like(A)
    assert program.run(A, out, config=SIM).tasks == 1 and program.compile(A, out).kernels.keys() == {"opaque"}
    np.testing.assert_array_equal(out, A + 1)
