"""Cache policies: what a declaration covers, who wins, and that it changes nothing that runs."""

import warnings

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.runtime import RunConfig

A, W = np.random.default_rng(1).standard_normal((2, 16, 16)).astype(np.float32)
SIM = RunConfig(platform="sim")

TEXT = """
import ren_lab.language as pl

@pl.jit
def program(a: pl.Tensor, w: pl.Tensor, out: pl.Out[pl.Tensor]):
    with {place}:
{body}
    return out
"""
CORE = "pl.at(level=pl.Level.CORE_GROUP)"


def made(body, place=CORE):
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    return pl.parse(TEXT.format(place=place, body=lines), "streams.py")


def silently(body, place=CORE):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made(body, place)


def reads(program):
    """(tensor, policy, who declared it, implicit) of every read."""
    return [(r.tensor, r.policy.name, r.declared, r.implicit) for r in program.lower(A, W, np.zeros_like(A)).reads]


DECLARE = "pl.set_cache_policy(w, pl.CachePolicy.BYPASS)"


@pytest.mark.parametrize(
    "read",
    ["pl.load(w, [0, 0], [16, 16])", "w[:, :]", "w[0:16, :]", "pl.slice(w, [16, 16], [0, 0])"],
    ids=["load", "subscript", "part", "slice"],
)
def test_a_declaration_covers_loads_and_slices(read):
    implicit = not read.startswith("pl.load")
    program = silently(f"{DECLARE}\npl.store(pl.matmul(a, {read}), [0, 0], out)")
    assert ("w", "BYPASS", "scope", implicit) in reads(program) and ("a", "DEFAULT", "default", True) in reads(program)


def test_a_declaration_covers_the_implicit_reads_of_matmul_assemble_and_elements():
    body = f"{DECLARE}\npl.store(pl.matmul(a, w), [0, 0], out)\nout = pl.assemble(out, w, [0, 0])\nx = w[0, 0]"
    program = silently(body)
    assert [r for r in reads(program) if r[0] == "w"] == [("w", "BYPASS", "scope", True)] * 3


@pytest.mark.parametrize("position", [0, 1, 2])
def test_it_may_stand_anywhere_at_the_top_level_of_the_body(position):
    lines = ["x = pl.load(w, [0, 0], [16, 16])", "pl.store(x, [0, 0], out)"]
    lines.insert(position, DECLARE)
    assert reads(silently("\n".join(lines))) == [("w", "BYPASS", "scope", False)]


@pytest.mark.parametrize("place", ["pl.spmd(2)", "pl.spmd(2) as tid"])
def test_it_may_stand_in_spmd(place):
    body = f"k = pl.tile.get_block_idx()\n{DECLARE}\nout[k * 8:k * 8 + 8, :] = w[k * 8:k * 8 + 8, :]"
    assert reads(silently(body, place)) == [("w", "BYPASS", "scope", True)]


def test_a_load_that_says_so_wins_in_both_directions():
    back = silently(f"{DECLARE}\nx = pl.load(w, [0, 0], [16, 16], cache=pl.CachePolicy.DEFAULT)\npl.store(x, [0, 0], out)")
    assert reads(back) == [("w", "DEFAULT", "load", False)]
    declare = DECLARE.replace("BYPASS", "DEFAULT")
    out = silently(f"{declare}\nx = pl.load(w, [0, 0], [16, 16], cache=pl.CachePolicy.BYPASS)\npl.store(x, [0, 0], out)")
    assert reads(out) == [("w", "BYPASS", "load", False)]


@pytest.mark.parametrize(
    "body",
    [
        f"{DECLARE}\npl.store(pl.matmul(a, w), [0, 0], out)",
        "x = pl.load(w, [0, 0], [16, 16], cache=pl.CachePolicy.BYPASS)\npl.store(x, [0, 0], out)",
    ],
    ids=["scope", "load"],
)
def test_bypass_warns_once_when_it_is_compiled(body):
    with pytest.warns(pl.LanguageWarning, match="BYPASS on 'w' is carried") as caught:
        program = made(body)
    assert len(caught) == 1 and caught[0].filename.startswith("streams.py")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program(A, W, np.zeros_like(A), config=SIM)
        program.lower(A, W, np.zeros_like(A))


def test_default_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(DECLARE.replace("BYPASS", "DEFAULT") + "\npl.store(pl.matmul(a, w), [0, 0], out)")


def test_results_and_code_are_the_same_with_and_without():
    plain = made("\npl.store(pl.matmul(a, w), [0, 0], out)")
    declared = silently(f"{DECLARE}\npl.store(pl.matmul(a, w), [0, 0], out)")
    results, sources = [], []
    for program in (plain, declared):
        out = np.zeros_like(A)
        program(A, W, out, config=SIM)
        compiled = program.compile(A, W, out)
        results.append(out)
        sources.append([compiled.source, *(k.source for k in compiled.kernels.values())])
    np.testing.assert_array_equal(*results)
    assert sources[0] == sources[1]


def test_the_declaration_is_carried_through_every_pass():
    for record in silently(f"{DECLARE}\npl.store(pl.matmul(a, w), [0, 0], out)").lower(A, W, np.zeros_like(A)).passes:
        assert DECLARE in str(record.after)


@pytest.mark.parametrize(
    "body",
    [
        "pl.set_cache_policy(out, pl.CachePolicy.BYPASS)\npl.store(pl.load(a, [0, 0], [16, 16]), [0, 0], out)",
        "pl.store(pl.load(a, [0, 0], [16, 16]), [0, 0], out)\npl.set_cache_policy(out, pl.CachePolicy.BYPASS)",
        "pl.set_cache_policy(out, pl.CachePolicy.BYPASS)\nfor i in pl.range(2):\n    out[i, 0] = 1.0",
        "o = out\npl.set_cache_policy(o, pl.CachePolicy.BYPASS)\nout[0, 0] = 1.0",
        "x = pl.load(out, [0, 0], [4, 4], cache=pl.CachePolicy.BYPASS)\npl.store(x, [4, 4], out)",
    ],
    ids=["before", "behind", "in a loop", "another name", "on a load"],
)
def test_bypassing_what_the_same_kernel_writes_is_an_error(body):
    with pytest.raises(pl.LanguageError, match="BYPASS.*writes"):
        silently(body)


def test_writing_it_in_another_kernel_is_fine():
    text = TEXT.format(place=CORE, body=f"        {DECLARE}\n        out[:] = w").replace(
        "    return out", f"    with {CORE}:\n        out[:] = pl.add(out, 1.0)\n    return out"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pl.parse(text)


@pytest.mark.parametrize("level", [level for level in pl.Level if level is not pl.Level.CORE_GROUP], ids=lambda level: level.name)
def test_other_levels_carry_it_without_effect(level):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = made(
            "pl.set_cache_policy(out, pl.CachePolicy.BYPASS)\nout[:] = pl.add(w, a)",
            f"pl.at(level={level})".replace("Level.", "pl.Level."),
        )
        out = np.zeros_like(A)
        program(A, W, out, config=SIM)
    np.testing.assert_array_equal(out, A + W)
    lowered = program.lower(A, W, out)
    assert f"level=pl.Level.{level.name}" in lowered.as_python() and "CachePolicy.BYPASS" in lowered.as_python()
    assert {r.policy for r in lowered.reads} == {pl.CachePolicy.DEFAULT}


def test_two_policies_for_one_tensor_are_an_error():
    with pytest.raises(pl.LanguageError, match="another policy"):
        silently(f"{DECLARE}\n{DECLARE.replace('BYPASS', 'DEFAULT')}\nout[:] = w")


def test_in_a_kernel_function_the_body_is_the_place():
    with pytest.warns(pl.LanguageWarning, match="BYPASS on 'w'"):

        @pl.jit.incore
        def kernel(w: pl.Tensor, out: pl.Out[pl.Tensor]):
            pl.set_cache_policy(w, pl.CachePolicy.BYPASS)
            out[:] = w
            return out

    out = np.zeros_like(A)
    kernel(W, out, config=SIM)
    np.testing.assert_array_equal(out, W)
