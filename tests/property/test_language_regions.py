"""Regions that tasks are told to touch, against what their kernels really do.

A stand-in for the orchestrator runs every task at once and looks at memory around it: nothing outside `writes` and
`updates` changes, what is written depends on nothing outside `reads` and `updates`, and `writes` are filled.
"""

import contextlib

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ren_lab.language as pl

ROWS, COLS = 12, 6
NAMES = ("a", "b", "out")
SENTINEL = -(10**6)


class Watcher:
    """Takes submissions as `Orchestrator.submit` does, for arrays it knows."""

    def __init__(self, arrays):
        self.arrays = arrays
        self.tasks = 0
        self.filled = 0

    def scope(self, *_, **__):
        return contextlib.nullcontext()

    def wait(self, *_):
        pass

    def mask(self, regions):
        """For each array, which elements the regions hold."""
        masks = [np.zeros(array.shape, bool) for array in self.arrays]
        for region in regions:
            for array, mask in zip(self.arrays, masks):
                if region.size and np.shares_memory(array, region):
                    first = (region.__array_interface__["data"][0] - array.__array_interface__["data"][0]) // array.itemsize
                    row, column = divmod(first, array.shape[1])
                    mask[row : row + region.shape[0], column : column + region.shape[1]] = True
        return masks

    def run(self, fn, blocks):
        for block in range(blocks or 1):
            fn(**({} if blocks is None else {"block": block}))

    def submit(self, fn, reads, writes, updates, deps=(), *, kind, blocks=None):
        self.tasks += 1
        before = [array.copy() for array in self.arrays]
        seen, written, changed = self.mask([*reads, *updates]), self.mask(writes), self.mask([*writes, *updates])
        self.run(fn, blocks)
        after = [array.copy() for array in self.arrays]
        for old, new, mask in zip(before, after, changed):
            assert (old == new)[~mask].all(), "a task wrote outside its regions"
        for array, old, mask in zip(self.arrays, before, seen):  # once more, from what it may read alone
            array[:] = np.where(mask, old, SENTINEL - np.arange(array.size).reshape(array.shape))
        scrambled = [array.copy() for array in self.arrays]
        self.run(fn, blocks)
        for array, start, new, mask, kept in zip(self.arrays, scrambled, after, changed, written):
            touched = mask & (array != start)
            assert (array == new)[touched].all(), "a task read outside its regions"
            assert (array == new)[kept].all(), "a task did not fill what it is told to write"
            self.filled += int(kept.sum())
        for array, new in zip(self.arrays, after):
            array[:] = new
        return self.tasks


# Offsets and extents of an access: what they depend on is known when the task is submitted, or only inside the kernel.
offsets = st.sampled_from(["0", "2", "i", "i * 2", "j", "j * 2", "2 * j + i", "j // 2", "j % 3", "4 - j", "pl.min(i + j, 5)",
                           "pl.max(j, i)", "(i + j) % 4", "x", "k * 2", "pl.cast(pl.read(b, [0, 0]), pl.INT64) % 5"])  # fmt: skip
extents = st.sampled_from(["1", "2", "3", "i + 1", "pl.min(j + 1, 3)"])


def at(row, column):
    """Offsets that leave room for the largest extents."""
    return f"[pl.max(pl.min({row}, {ROWS} - 4), 0), pl.max(pl.min({column}, {COLS} - 2), 0)]"


@st.composite
def bodies(draw, depth=2):
    """Lines of a kernel; i is known outside, j is a loop's variable or a number, x changes from turn to turn, k is the block."""
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["access", "access", "loop", "branch", "assign"] if depth else ["access"]))
        if kind == "access":
            source, row, column = draw(st.sampled_from(NAMES)), draw(offsets), draw(offsets)
            height, width = draw(extents), draw(st.sampled_from(["1", "2"]))
            lines.append(f"t = pl.load({source}, {at(row, column)}, [{height}, {width}])")
            row, column = draw(offsets), draw(offsets)
            lines.append(f"pl.store(pl.add(t, 1), {at(row, column)}, out)")
        elif kind == "loop":
            bounds = draw(st.sampled_from(["3", "0, 6, 2", "5, 0, -2", "i", "1, i + 2", "0, i, 2"]))
            lines += [f"for j in pl.range({bounds}):", *("    " + line for line in draw(bodies(depth - 1))), "j = 1"]
        elif kind == "branch":
            lines += [
                f"if {draw(st.sampled_from(['i > 1', 'j < 2', 'x == 2']))}:",
                *("    " + line for line in draw(bodies(depth - 1))),
            ]
        else:
            lines.append(f"x = {draw(st.sampled_from(['x + 1', 'j', 'i', '2']))}")
    return lines


@st.composite
def texts(draw):
    blocks = draw(st.sampled_from([None, None, "3", "i + 1"]))
    head = "with pl.at(level=pl.Level.CORE_GROUP):" if blocks is None else f"with pl.spmd({blocks}):"
    body = ["k = 1" if blocks is None else "k = pl.tile.get_block_idx()", "x = 1", "j = 2", *draw(bodies())]
    lines = "\n".join("            " + line for line in body)
    return f"""
import ren_lab.language as pl

@pl.jit
def program(a: pl.Tensor, b: pl.Tensor, out: pl.InOut[pl.Tensor]):
    for i in pl.range(4):
        {head}
{lines}
"""


@given(texts(), st.integers(0, 2**32 - 1))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_kernels_touch_what_their_tasks_say(text, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(0, 9, (ROWS, COLS)).astype(np.int32) for _ in NAMES]
    compiled = pl.parse(text).compile(*arrays)
    watcher = Watcher(arrays)
    compiled._entry(watcher, *arrays)
    assert watcher.tasks == 4


EXACT = {
    "one box": ("pl.store(t, [2, 0], out)", [(2, 0, 2, 2)], []),
    "a box per turn that tile": ("for j in pl.range(3):\n    pl.store(t, [j * 2, 0], out)", [(0, 0, 6, 2)], []),
    "turns backwards": ("for j in pl.range(2, -1, -1):\n    pl.store(t, [j * 2, 1], out)", [(0, 1, 6, 2)], []),
    "two loops": ("for j in pl.range(3):\n    for m in pl.range(3):\n        pl.store(t, [j * 2, m * 2], out)", [(0, 0, 6, 6)], []),
    "with gaps": ("for j in pl.range(3):\n    pl.store(t, [j * 3, 0], out)", [], [(0, 0, 8, 2)]),
    "along a diagonal": ("for j in pl.range(3):\n    pl.store(t, [j * 2, j * 2], out)", [], [(0, 0, 6, 6)]),
    "under a branch": ("if n > 1:\n    pl.store(t, [2, 0], out)", [], [(2, 0, 2, 2)]),
    "perhaps no turn": ("for j in pl.range(n):\n    pl.store(t, [0, 0], out)", [], [(0, 0, 2, 2)]),
    "as many turns as rows": ("for j in pl.range(n):\n    pl.store(t, [j * 2, 0], out)", [(0, 0, 6, 2)], []),
    "read what it wrote": ("out[2:4, 0:2] = t\nout[4:6, 0:2] = pl.load(out, [2, 0], [2, 2])", [(2, 0, 2, 2), (4, 0, 2, 2)], []),
    "read and written": ("u = pl.load(out, [2, 0], [2, 2])\npl.store(u, [2, 0], out)", [], [(2, 0, 2, 2)]),
    "where the data says": ("pl.store(t, [pl.read(a, [0, 0]), 0], out)", [], [(0, 0, 12, 2)]),
    "where the data says, within limits": ("pl.store(t, [pl.read(a, [0, 0]) % 2 + 4, 0], out)", [], [(4, 0, 3, 2)]),
}  # fmt: skip


def test_regions_are_as_tight_as_they_can_be():
    for name, (body, writes, updates) in EXACT.items():
        lines = "\n".join("        " + line for line in body.splitlines())
        text = f"""
import ren_lab.language as pl

@pl.jit
def program(a: pl.Tensor, out: pl.InOut[pl.Tensor], n: pl.Scalar):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.load(a, [0, 0], [2, 2])
{lines}
"""
        arrays = [np.zeros((ROWS, COLS), np.int32), np.zeros((ROWS, COLS), np.int32)]
        compiled = pl.parse(text).compile(*arrays, 3)
        found = []

        class Note(Watcher):
            def submit(self, fn, reads, writes, updates, deps=(), *, kind, blocks=None):
                found.append((writes, updates))  # noqa: B023

        compiled._entry(Note(arrays), *arrays, 3)

        start = arrays[1].__array_interface__["data"][0]

        def boxes(regions):
            firsts = [(region.__array_interface__["data"][0] - start) // 4 for region in regions]  # noqa: B023
            return sorted((*divmod(first, COLS), *region.shape) for first, region in zip(firsts, regions))

        ((wrote, updated),) = found
        assert (boxes(wrote), boxes(updated)) == (sorted(writes), sorted(updates)), name
