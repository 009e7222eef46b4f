"""Random programs: the language on both executors gives what a plain interpreter over NumPy arrays gives, statement by statement.

A program is a nested tuple. `render` writes it in the language, `Plain` runs it directly: it knows nothing of tasks, scopes,
regions or passes. Values are 32-bit integers, so results are equal to the bit whatever the order of evaluation.
"""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ren_lab.language as pl
from ren_lab.language.passes import materialize_runtime_scopes
from ren_lab.runtime import RunConfig

BLOCKS, ROWS, COLS = 6, 2, 3  # tensors are BLOCKS blocks of ROWS rows
TENSORS = ("a", "b", "out", "tmp")
OPS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}

# -- scalar expressions: ("const", k), ("var", name), ("bin", op, x, y) -----------------------------------------------------


def scalars(names):
    leaves = st.one_of(
        st.integers(0, 7).map(lambda k: ("const", k)), *([st.sampled_from(names).map(lambda v: ("var", v))] if names else [])
    )
    return st.recursive(leaves, lambda x: st.tuples(st.just("bin"), st.sampled_from("+-*"), x, x), max_leaves=3)


def blocks_of(names):
    """An expression that is always the number of a block."""
    kinds = [scalars(names).map(lambda x: ("bin", "%", x, ("const", BLOCKS)))]
    if names:
        kinds.append(st.sampled_from(names).map(lambda v: ("bin", "%", ("var", v), ("const", BLOCKS))))
    return st.one_of(st.integers(0, BLOCKS - 1).map(lambda k: ("const", k)), *kinds)


def conditions(names):
    comparison = st.tuples(st.just("bin"), st.sampled_from(["<", "==", ">="]), scalars(names), scalars(names))
    return st.one_of(comparison, comparison.map(lambda c: ("not", c)), st.tuples(st.just("or"), comparison, comparison))


# -- statements -------------------------------------------------------------------------------------------------------------


@st.composite
def kernel_bodies(draw, names, tiles=(), depth=1):
    """Statements of a kernel. `tiles` are the names of tiles that are bound."""
    result, tiles = [], list(tiles)
    for _ in range(draw(st.integers(1, 4))):
        kinds = ["load", "load"]
        if tiles:
            kinds += ["compute", "store", "store", "part"]
        if depth:
            kinds += ["loop", "branch", "accumulate"]
        kind = draw(st.sampled_from(kinds))
        if kind == "load":
            target = draw(st.sampled_from(["t", "u", "v"]))
            result.append(("load", target, draw(st.sampled_from(TENSORS)), draw(blocks_of(names))))
            tiles.append(target)
        elif kind == "compute":
            other = draw(st.one_of(st.sampled_from(tiles), st.integers(-5, 5)))
            target = draw(st.sampled_from(["t", "u", "v"]))
            result.append(("compute", target, draw(st.sampled_from(sorted(OPS))), draw(st.sampled_from(tiles)), other))
            tiles.append(target)
        elif kind == "store":
            result.append(("store", draw(st.sampled_from(tiles)), draw(st.sampled_from(TENSORS[2:])), draw(blocks_of(names))))
        elif kind == "part":
            row = draw(st.integers(0, ROWS - 1))
            result.append(("part", draw(st.sampled_from(TENSORS[2:])), draw(blocks_of(names)), row, draw(st.sampled_from(tiles))))
        elif kind == "loop":
            var = f"k{depth}"
            bounds = draw(st.sampled_from([(0, 3, 1), (1, 6, 2), (5, -1, -2), (0, 0, 1), (0, "n", 1)]))
            body = draw(kernel_bodies((*names, var), (), depth - 1))
            result.append(("loop", draw(st.sampled_from(["range", "parallel"])), var, bounds, body))
        elif kind == "branch":
            bodies = [draw(kernel_bodies(names, (), depth - 1)) for _ in range(draw(st.integers(1, 2)))]
            result.append(("branch", draw(conditions(names)), *bodies))
        else:
            result.append(
                (
                    "accumulate",
                    draw(st.integers(0, 3)),
                    draw(st.sampled_from(TENSORS)),
                    draw(st.sampled_from(TENSORS[2:])),
                    draw(blocks_of(names)),
                    draw(st.booleans()),
                )
            )
    return result


@st.composite
def programs(draw, names=("n",), depth=2, manual=False, top=True):
    """Statements of the submitting side."""
    result = []
    for _ in range(draw(st.integers(1, 3 if top else 2))):
        kinds = ["at", "at", "at", "spmd"]
        if depth:
            kinds += ["loop", "branch", "carry", "unroll", "helper"] + ([] if manual else ["manual", "temporary"])
        kind = draw(st.sampled_from(kinds))
        if kind == "at":
            result.append(("at", draw(kernel_bodies(names))))
        elif kind == "spmd":
            source, shift = draw(st.sampled_from(TENSORS[:2])), draw(st.integers(0, BLOCKS))
            result.append(("spmd", draw(st.booleans()), draw(st.integers(1, BLOCKS)), source, shift, draw(st.integers(-3, 3))))
        elif kind in ("loop", "unroll"):
            var = f"i{depth}"
            dynamic = [] if kind == "unroll" else [(0, "n", 1)]
            bounds = draw(st.sampled_from([(0, 3, 1), (1, 6, 2), (4, 0, -3), (2, 2, 1), *dynamic]))
            body = draw(programs((*names, var), depth - 1, manual, False))
            result.append(("loop", kind if kind == "unroll" else draw(st.sampled_from(["range", "parallel"])), var, bounds, body))
        elif kind == "branch":
            bodies = [draw(programs(names, depth - 1, manual, False)) for _ in range(draw(st.integers(1, 2)))]
            result.append(("branch", draw(conditions(names)), *bodies))
        elif kind == "carry":
            var = f"x{depth}"
            body = draw(programs((*names, var), depth - 1, manual, False))
            seen = (*names, var)
            updates = [draw(scalars(seen))]
            conditions_of = [draw(conditions(seen)) for _ in range(draw(st.integers(0, 2)))]  # of an if, and of an elif
            updates += [draw(scalars(seen)) for _ in conditions_of]
            result.append(("carry", draw(st.booleans()), draw(st.integers(1, 3)), var, conditions_of, updates, body))
        elif kind == "helper":
            result.append(("helper", draw(st.sampled_from(["kernel", "spliced"])), draw(blocks_of(names)), draw(blocks_of(names))))
        elif kind == "manual":
            result.append(("manual", draw(programs(names, depth - 1, True, False))))
        else:
            result.append(("temporary", draw(blocks_of(names)), draw(blocks_of(names))))
    return result


# -- in the language --------------------------------------------------------------------------------------------------------

HEAD = f"""
import ren_lab.language as pl

ROWS = {ROWS}
COLS = {COLS}

@pl.jit.incore
def kernel(x: pl.Tensor, out, k: pl.Scalar, m: pl.Scalar):
    t = pl.load(x, [k * ROWS, 0], [ROWS, COLS])
    out = pl.store(pl.add(t, 1), [m * ROWS, 0], out)
    return out

@pl.jit.inline
def spliced(x, out, k, m):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = x[k * ROWS:(k + 1) * ROWS, :]
        t *= 2
        out = pl.assemble(out, t, [m * ROWS, 0])
    return out
"""


def scalar(x):
    match x:
        case ("const", k):
            return str(k)
        case ("var", name):
            return name
        case ("bin", op, left, right):
            return f"({scalar(left)} {op} {scalar(right)})"
        case ("not", inner):
            return f"(not {scalar(inner)})"
        case ("or", left, right):
            return f"({scalar(left)} or {scalar(right)})"
    raise AssertionError(x)


class Render:
    """Writes the program. Inside MANUAL scopes each task names the one before it."""

    def __init__(self, scopes):
        self.scopes = scopes  # whether the program places scopes itself
        self.lines = []
        self.chain = False
        self.count = 0

    def line(self, depth, text):
        self.lines.append("    " * depth + text)

    def program(self, body):
        self.lines = [HEAD, f"@pl.jit(auto_scope={not self.scopes})"]
        self.line(0, "def program(a: pl.Tensor, b: pl.Tensor, out: pl.InOut[pl.Tensor], tmp: pl.InOut[pl.Tensor], n: pl.Scalar):")
        self.line(1, "last = None")
        self.block(body, 1)
        self.line(1, "return out, tmp")
        return "\n".join(self.lines)

    def block(self, body, depth):
        if self.scopes and not self.chain:
            self.line(depth, "with pl.scope():")
            depth += 1
        for stmt in body:
            self.stmt(stmt, depth)

    def placed(self, head, depth):
        self.line(depth, f"with {head}{', deps=[last]' if self.chain else ''}) as tid:")

    def done(self, depth):
        if self.chain:
            self.line(depth, "last = tid")

    def bounds(self, bounds):
        return ", ".join(str(b) for b in bounds)

    def stmt(self, stmt, depth):
        match stmt:
            case ("at", body):
                self.placed("pl.at(level=pl.Level.CORE_GROUP", depth)
                self.kernel(body, depth + 1)
                self.done(depth)
            case ("spmd", loop, count, source, shift, add):
                lines = [f"t = pl.load({source}, [((k + {shift}) % {BLOCKS}) * ROWS, 0], [ROWS, COLS])",
                         f"pl.store(pl.add(t, {add}), [k * ROWS, 0], out)"]  # fmt: skip
                if loop and not self.chain:
                    self.line(depth, f"for k in pl.spmd({count}):")
                else:
                    self.placed(f"pl.spmd({count}", depth)
                    lines.insert(0, "k = pl.tile.get_block_idx()")
                for line in lines:
                    self.line(depth + 1, line)
                self.done(depth)
            case ("loop", kind, var, bounds, body):
                self.line(depth, f"for {var} in pl.{kind}({self.bounds(bounds)}):")
                self.block(body, depth + 1)
            case ("branch", condition, *bodies):
                for head, body in zip((f"if {scalar(condition)}:", "else:"), bodies):
                    self.line(depth, head)
                    self.block(body, depth + 1)
            case ("carry", as_while, turns, var, conditions, updates, body):
                self.count += 1
                new = f"next{self.count}"
                if as_while:
                    self.line(depth, f"for (c{var}, {var}) in pl.while_(init_values=(0, 1)):")
                    self.line(depth + 1, f"pl.cond(c{var} < {turns})")
                else:
                    self.line(depth, f"for c{var}, ({var},) in pl.range({turns}, init_values=(1,)):")
                self.block(body, depth + 1)
                chosen = scalar(updates[0])
                if conditions:
                    heads = [f"{'el' * (k > 0)}if {scalar(condition)}:" for k, condition in enumerate(conditions)]
                    for head, update in zip([*heads, "else:"], updates):
                        self.line(depth + 1, head)
                        self.line(depth + 2, f"chosen{self.count} = pl.yield_({scalar(update)})")
                    chosen = f"chosen{self.count}"
                values = ([f"c{var} + 1"] if as_while else []) + [f"{chosen} % 11"]
                targets = ([f"turns{self.count}"] if as_while else []) + [new]
                self.line(depth + 1, f"{', '.join(targets)} = pl.yield_({', '.join(values)})")
                self.line(depth, f"if {new} > 100:")
                self.block([("at", [("load", "t", "a", ("const", 0))])], depth + 1)
            case ("helper", which, source, target):
                args = f"a, out, {scalar(source)}, {scalar(target)}"
                if self.chain and which == "kernel":
                    self.line(depth, f"out, last = pl.submit(kernel, {args}, deps=[last])")
                elif self.chain:  # a helper cannot be told what to wait for
                    self.stmt(
                        ("at", [("load", "t", "a", source), ("compute", "t", "mul", "t", 2), ("store", "t", "out", target)]), depth
                    )
                else:
                    self.line(depth, f"out = {which}({args})")
            case ("manual", body):
                # nothing is inferred inside, so it begins behind a task that follows everything before it
                self.line(depth, "with pl.at(level=pl.Level.CORE_GROUP) as last:")
                for tensor in TENSORS[2:]:
                    self.line(depth + 1, f"pl.store({tensor}[:, :], [0, 0], {tensor})")
                self.line(depth, "with pl.manual_scope():")
                self.chain = True
                for inner in body:
                    self.stmt(inner, depth + 1)
                self.chain = False
            case ("temporary", source, target):
                self.line(depth, "own = pl.create_tensor([ROWS, COLS], dtype=pl.INT32)")
                self.line(depth, "with pl.at(level=pl.Level.CORE_GROUP):")
                self.line(depth + 1, f"own[:] = out[{scalar(source)} * ROWS:{scalar(source)} * ROWS + ROWS, :]")
                self.line(depth, "with pl.at(level=pl.Level.CORE_GROUP):")
                self.line(depth + 1, f"pl.store(pl.add(own, 5), [{scalar(target)} * ROWS, 0], tmp)")

    def kernel(self, body, depth):
        for stmt in body:
            match stmt:
                case ("load", target, tensor, block):
                    self.line(depth, f"{target} = pl.load({tensor}, [{scalar(block)} * ROWS, 0], [ROWS, COLS])")
                case ("compute", target, op, tile, other):
                    self.line(depth, f"{target} = pl.{op}({tile}, {other})")
                case ("store", tile, tensor, block):
                    self.line(depth, f"pl.store({tile}, [{scalar(block)} * ROWS, 0], {tensor})")
                case ("part", tensor, block, row, tile):
                    self.line(depth, f"{tensor}[{scalar(block)} * ROWS + {row}, 1:] = {tile}[{row}, 0:COLS - 1]")
                case ("loop", kind, var, bounds, inner):
                    self.line(depth, f"for {var} in pl.{kind}({self.bounds(bounds)}):")
                    self.kernel(inner, depth + 1)
                case ("branch", condition, *bodies):
                    for head, inner in zip((f"if {scalar(condition)}:", "else:"), bodies):
                        self.line(depth, head)
                        self.kernel(inner, depth + 1)
                case ("accumulate", turns, source, target, block, branches):
                    self.count += 1
                    total = f"total{self.count}"
                    self.line(depth, f"zero{self.count} = pl.full([ROWS, COLS], pl.INT32, 0)")
                    self.line(depth, f"for j, (acc{self.count},) in pl.range({turns}, init_values=(zero{self.count},)):")
                    part = f"{source}[j * ROWS:(j + 1) * ROWS, :]"
                    if branches:
                        self.line(depth + 1, "if j == 1:")
                        self.line(depth + 2, f"part{self.count} = pl.yield_(pl.mul({part}, 3))")
                        self.line(depth + 1, "else:")
                        self.line(depth + 2, f"part{self.count} = pl.yield_({part})")
                        part = f"part{self.count}"
                    self.line(depth + 1, f"{total} = pl.yield_(pl.add(acc{self.count}, {part}))")
                    self.line(depth, f"pl.store({total}, [{scalar(block)} * ROWS, 0], {target})")


# -- over plain arrays ------------------------------------------------------------------------------------------------------


class Plain:
    """Runs the program on arrays, one statement after the other."""

    def __init__(self, arrays, n):
        self.arrays = arrays
        self.vars = {"n": n}

    def value(self, x):
        match x:
            case ("const", k):
                return k
            case ("var", name):
                return self.vars[name]
            case ("bin", op, left, right):
                a, b = self.value(left), self.value(right)
                return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "%": lambda: a % b, "<": lambda: a < b,
                        "==": lambda: a == b, ">=": lambda: a >= b}[op]()  # fmt: skip
            case ("not", inner):
                return not self.value(inner)
            case ("or", left, right):
                return self.value(left) or self.value(right)
        raise AssertionError(x)

    def rows(self, tensor, block):
        first = self.value(block) * ROWS
        return self.arrays[tensor][first : first + ROWS]

    def turns(self, bounds):
        return range(*(self.vars["n"] if b == "n" else b for b in bounds))

    def block(self, body):
        for stmt in body:
            match stmt:
                case ("at", inner):
                    self.kernel(inner, {})
                case ("spmd", _, count, source, shift, add):
                    made = [self.rows(source, ("const", (k + shift) % BLOCKS)) + add for k in range(count)]
                    for k, tile in enumerate(made):
                        self.rows("out", ("const", k))[:] = tile
                case ("loop", _, var, bounds, inner):
                    for turn in self.turns(bounds):
                        self.vars[var] = turn
                        self.block(inner)
                case ("branch", condition, *bodies):
                    if self.value(condition):
                        self.block(bodies[0])
                    elif len(bodies) > 1:
                        self.block(bodies[1])
                case ("carry", _, turns, var, conditions, updates, inner):
                    x = 1
                    for _ in range(turns):
                        self.vars[var] = x
                        self.block(inner)
                        self.vars[var] = x
                        taken = next((k for k, condition in enumerate(conditions) if self.value(condition)), -1)
                        x = self.value(updates[taken]) % 11
                case ("helper", which, source, target):
                    tile = self.rows("a", source).copy()
                    self.rows("out", target)[:] = tile + 1 if which == "kernel" else tile * 2
                case ("manual", inner):
                    self.block(inner)
                case ("temporary", source, target):
                    self.rows("tmp", target)[:] = self.rows("out", source) + 5

    def kernel(self, body, tiles):
        for stmt in body:
            match stmt:
                case ("load", target, tensor, block):
                    tiles[target] = self.rows(tensor, block).copy()
                case ("compute", target, op, tile, other):
                    tiles[target] = OPS[op](tiles[tile], tiles[other] if isinstance(other, str) else np.int32(other))
                case ("store", tile, tensor, block):
                    self.rows(tensor, block)[:] = tiles[tile]
                case ("part", tensor, block, row, tile):
                    self.rows(tensor, block)[row, 1:] = tiles[tile][row, : COLS - 1]
                case ("loop", _, var, bounds, inner):
                    for turn in self.turns(bounds):
                        self.vars[var] = turn
                        self.kernel(inner, tiles)
                case ("branch", condition, *bodies):
                    if self.value(condition):
                        self.kernel(bodies[0], tiles)
                    elif len(bodies) > 1:
                        self.kernel(bodies[1], tiles)
                case ("accumulate", turns, source, target, block, branches):
                    total = np.zeros((ROWS, COLS), np.int32)
                    for j in range(turns):
                        total = total + self.rows(source, ("const", j)) * (3 if branches and j == 1 else 1)
                    self.rows(target, block)[:] = total


# -- the properties ---------------------------------------------------------------------------------------------------------

cases = st.tuples(programs(), st.booleans(), st.integers(0, 4), st.integers(1, 8), st.integers(0, 2**32 - 1))
checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
relaxed = settings(max_examples=40, suppress_health_check=checks)
brief = settings(max_examples=12, suppress_health_check=checks)  # printing and parsing every stage takes its time


def arrays(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-50, 50, (BLOCKS * ROWS, COLS)).astype(np.int32) for name in TENSORS}


@given(cases)
@relaxed
def test_random_programs_give_what_plain_numpy_gives(case):
    body, scopes, n, workers, seed = case
    program = pl.parse(Render(scopes).program(body))
    expected = arrays(seed)
    Plain(expected, n).block(body)
    for platform in ("sim", "cpu"):
        found = arrays(seed)
        result = program(*found.values(), n, config=RunConfig(platform=platform, workers=workers, timeout_s=30))
        assert result[0] is found["out"] and result[1] is found["tmp"]
        for name in TENSORS:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{name} on {platform}")


@given(cases)
@brief
def test_every_stage_prints_as_python_that_parses_back(case):
    body, scopes, n, _, seed = case
    lowered = pl.parse(Render(scopes).program(body)).lower(*arrays(seed).values(), n)
    for stage in (lowered.passes[0].before, *(record.after for record in lowered.passes)):
        assert pl.parse(str(stage)).ir == stage
    assert [r.name for r in lowered.passes] == [p.name for p in pl.PASSES]
    assert lowered.passes[-1].after is lowered.program


@given(cases)
@brief
def test_placing_scopes_twice_changes_nothing(case):
    body, scopes, n, _, seed = case
    program = pl.parse(Render(scopes).program(body)).lower(*arrays(seed).values(), n).program
    fired = []
    assert materialize_runtime_scopes.run(program, lambda *what: fired.append(what)) == program and not fired


@given(cases)
@brief
def test_a_printed_program_runs_like_the_original(case):
    body, scopes, n, _, seed = case
    program = pl.parse(Render(scopes).program(body))
    text = program.lower(*arrays(seed).values(), n).as_python()
    first, second = arrays(seed), arrays(seed)
    program(*first.values(), n, config=RunConfig(platform="sim"))
    pl.parse(text)(*second.values(), n, config=RunConfig(platform="sim"))
    for name in TENSORS:
        np.testing.assert_array_equal(first[name], second[name])
