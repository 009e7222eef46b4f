"""Kernels with NEON vectors, cross-compiled for 64-bit ARM and run by an emulator, equal NumPy bit for bit.

Needs `aarch64-linux-gnu-gcc` with its C library and `qemu-aarch64`: Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and
qemu-user. On such a processor, the tests of the native backend run these vectors as they are.
"""

import pathlib
import shutil
import struct
import subprocess
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import oracle
import pytest
from test_cpu_sampling import DISTRIBUTIONS, REFUSED, Fixed

from ren_lab.backends import register
from ren_lab.backends.cpu.compiler import NATIVE
from ren_lab.backends.cpu.draw import DRAW, DrawKernel
from ren_lab.backends.cpu.kernel import Constants
from ren_lab.backends.python import sampling
from ren_lab.backends.python.backend import PythonBackend
from ren_lab.backends.python.interpreter import compile_kernel
from ren_lab.backends.render import C, Rendered, render
from ren_lab.backends.render.parameters import TRANSFORM
from ren_lab.ir import Node
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec

COMPILER = shutil.which("aarch64-linux-gnu-gcc")
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")

# Reads jobs from the standard input, runs them, writes the buffers afterwards. All numbers are 64 bits.
MAIN = """
#include <stdio.h>
#include <stdlib.h>
_Static_assert(LANES == 4 && sizeof(uint32x4_t) == sizeof(word), "these are no NEON vectors");

static i64 number(void)
{
    i64 x;
    if (fread(&x, 8, 1, stdin) != 1)
        exit(2);
    return x;
}

static void *bytes(i64 count)
{
    void *made = aligned_alloc(64, (size_t)(count + 127) / 64 * 64);
    if (fread(made, 1, (size_t)count, stdin) != (size_t)count)
        exit(3);
    return made;
}

int main(void)
{
    for (i64 jobs = number(); jobs > 0; jobs--) {
        const i64 kernel = number(), slots = number(), buffers = number();
        u32 *slot[64];
        i64 words[64];
        for (i64 i = 0; i < slots; i++)
            slot[i] = i < buffers ? bytes(4 * (words[i] = number())) : aligned_alloc(64, (size_t)(4 * number() + 64) / 64 * 64);
        const i64 tables = number();
        void *table[256];
        for (i64 i = 0; i < tables; i++)
            table[i] = bytes(number());
        for (i64 pointers = number(); pointers > 0; pointers--) { /* table i holds the address of table j at a place */
            const i64 i = number(), place = number(), j = number();
            *(u64 *)((char *)table[i] + place) = (u64)table[j];
        }
        const i64 numbers = number();
        const i64 *values = bytes(8 * numbers);
        if (kernel < 0)
            ren_draw_into(slot[0], table[0], 2);
        else
            ren_invoke(kernels[kernel], slot, (const void *const *)table, values, 2);
        for (i64 i = 0; i < buffers; i++)
            fwrite(slot[i], 4, (size_t)words[i], stdout);
    }
    return 0;
}
"""


@dataclass
class Job:
    """A kernel, or a draw (None), with its buffers before and after."""

    rendered: Rendered | None
    before: list[np.ndarray]
    after: list[np.ndarray]
    tables: list[np.ndarray] = field(default_factory=list)
    pointers: list[tuple[int, int, int]] = field(default_factory=list)
    label: str = ""

    def packed(self, kernel: int) -> bytes:
        scratch = [r * c for r, c in self.rendered.shapes[self.rendered.buffers :]] if self.rendered else []
        parts = [struct.pack("<3q", kernel, len(self.before) + len(scratch), len(self.before))]
        for buffer in self.before:
            parts += [struct.pack("<q", buffer.size), buffer.tobytes()]
        parts += [struct.pack("<q", words) for words in scratch]
        parts.append(struct.pack("<q", len(self.tables)))
        for table in self.tables:
            parts += [struct.pack("<q", table.nbytes), table.tobytes()]
        parts.append(struct.pack("<q", len(self.pointers)))
        parts += [struct.pack("<3q", *pointer) for pointer in self.pointers]
        numbers = self.rendered.numbers if self.rendered else ()
        parts.append(struct.pack(f"<{1 + len(numbers)}q", len(numbers), *numbers))
        return b"".join(parts)


def kernel_job(ast: Node, before: list[np.ndarray], after: list[np.ndarray]) -> Job:
    rendered = render(ast, C)
    job = Job(rendered, before, after, label=rendered.text)
    factors: list[np.ndarray] = []
    for i, constants in enumerate(map(Constants, rendered.tables)):
        job.tables.append(constants.array)
        if constants.array.dtype == TRANSFORM:
            for row, kept in enumerate(constants.kept):
                place = row * TRANSFORM.itemsize + TRANSFORM.fields["psi"][1]  # type: ignore[index]
                job.pointers.append((i, place, len(rendered.tables) + len(factors)))
                factors.append(kept)
    job.tables += factors
    return job


def draw_job(name: str, ring: RingSpec, key: bytes, number: int) -> Job:
    distribution, parameters = name.split()[0], DISTRIBUTIONS[name]
    kernel = DrawKernel(ring, distribution, parameters, None, lambda: 1)  # type: ignore[arg-type]
    record = kernel._record.copy()
    record["key"], record["number"] = np.frombuffer(key, "<u4"), number
    wanted = getattr(sampling, distribution)(ring, *parameters, Fixed(key, number))
    job = Job(None, [np.zeros_like(wanted)], [wanted], [record], label=f"{name} n={ring.n}")
    for field_name, table in kernel._kept.items():
        job.pointers.append((0, DRAW.fields[field_name][1], len(job.tables)))  # type: ignore[index]
        job.tables.append(table)
    return job


class Recorder(PythonBackend):
    """Runs kernels with NumPy and keeps what they were given and what came out."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "recorded"
        self.jobs: list[Job] = []

    def compile(self, ast: Node):  # type: ignore[no-untyped-def]
        run = compile_kernel(ast)

        def call(*slots: np.ndarray) -> None:
            before = [np.array(s) for s in slots]
            run(*slots)
            self.jobs.append(kernel_job(ast, before, [np.array(s) for s in slots]))

        return call


def emulated(source: str, folder: pathlib.Path, text: bytes = b"") -> bytes:
    """What a program in C writes when it reads `text`."""
    file, binary = folder / "program.c", folder / "program"
    file.write_text(source)
    command = [str(COMPILER), "-O2", "-std=gnu11", "-w", "-static", "-pthread", f"-I{NATIVE}", str(file), "-o", str(binary)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:3000]
    done = subprocess.run([str(EMULATOR), str(binary)], input=text, capture_output=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    return done.stdout


def run(jobs: list[Job], folder: pathlib.Path) -> None:
    """All jobs in one emulated program."""
    codes = list(dict.fromkeys(job.rendered.code for job in jobs if job.rendered))
    named = [code.replace("KERNEL", f"kernel{i}").replace("EXPORT", "static void") for i, code in enumerate(codes)]
    listed = "static ren_kernel *const kernels[] = {" + ", ".join(f"kernel{i}" for i in range(len(codes))) + "};\n"
    source = "\n".join(['#include "support.c"\n', *named, listed if codes else "static ren_kernel *kernels[1];\n", MAIN])
    text = struct.pack("<q", len(jobs)) + b"".join(
        job.packed(codes.index(job.rendered.code) if job.rendered else -1) for job in jobs
    )
    words, at = np.frombuffer(emulated(source, folder, text), "<u4"), 0
    for job in jobs:
        for number, wanted in enumerate(job.after):
            got = words[at : at + wanted.size].reshape(wanted.shape)
            at += wanted.size
            assert np.array_equal(got, wanted), f"buffer {number} of\n{job.label}"
    assert at == len(words)


@cache
def _recorder() -> Recorder:
    made = Recorder()
    register("recorded", lambda number: made)
    return made


@pytest.fixture
def recorder() -> Recorder:
    if COMPILER is None or EMULATOR is None:
        pytest.skip("needs aarch64-linux-gnu-gcc and qemu-aarch64 (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)")
    _recorder().jobs.clear()
    return _recorder()


def test_transforms(recorder: Recorder, tmp_path: pathlib.Path) -> None:
    """Lengths from the shortest that is worked on in words to some that are split into blocks; lazy moduli and others."""
    rng = np.random.default_rng(1)
    for log_n in range(4, 16):
        n = 2**log_n
        ring = RingSpec(n, (oracle.largest_primes(n, 30, 1)[0], oracle.largest_primes(n, 31, 1)[0]))
        values = rng.integers(-(2**62), 2**62, n)
        values[rng.integers(0, n, n // 4)] = -1
        values[rng.integers(0, n, n // 4)] = 0
        p = Poly(values, ring, "recorded").ntt().realize()
        (p * p).intt().realize()
    assert len(recorder.jobs) >= 3 * 12
    run(recorder.jobs, tmp_path)


def test_random_programs(recorder: Recorder, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elementwise work, constants, permutations, conversions and divisions."""
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[1] / "property")
    from test_cpu_programs import program

    for seed, (log_n, limbs) in enumerate(((4, 3), (5, 7), (7, 2), (9, 16), (11, 5), (13, 3))):
        program(seed, 2**log_n, limbs, 14, "recorded")
    texts = "\n".join({job.label for job in recorder.jobs})
    for part in ("->combine(", "->estimate(", "->ntt(", "->intt(", "gather(", "impulse(", "scale(", " add(", " sub(", " mul("):
        assert part in texts, f"no program has {part}"
    run(recorder.jobs, tmp_path)


def test_draws(recorder: Recorder, tmp_path: pathlib.Path) -> None:
    jobs = []
    for log_n, limbs, bits in ((3, 2, 31), (6, 5, 30), (7, 3, 31), (10, 4, 31)):
        ring = RingSpec(2**log_n, oracle.largest_primes(2**log_n, bits, limbs))
        jobs += [draw_job(name, ring, bytes(range(7, 39)), 2**33 + log_n) for name in DISTRIBUTIONS]
    for p, number, _ in REFUSED:
        jobs.append(draw_job("uniform", RingSpec(2**15, (p,)), bytes(32), number))
    run(jobs, tmp_path)


EDGES = """
#include <stdio.h>
#include "draw.h"

int main(void)
{
    const u64 threshold[] = {0, 1, 5, 5, 0xffffffff, 0x100000000, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff};
    for (i64 count = 0; count <= 9; count++)
        for (int t = 0; t < 9; t++)
            for (int lane = 0; lane < LANES; lane++)
                for (int d = -1; d <= 1; d++) {
                    u32 low[LANES], high[LANES], out[LANES];
                    for (int i = 0; i < LANES; i++) {
                        const u64 x = threshold[t] + (u64)(i == lane ? d : i);
                        low[i] = (u32)x, high[i] = (u32)(x >> 32);
                    }
                    store_reached(out, load(low), load(high), threshold, count);
                    for (int i = 0; i < LANES; i++)
                        if (out[i] != reached1((u64)high[i] << 32 | low[i], threshold, count))
                            return 1;
                }
    puts("equal");
    return 0;
}
"""


def test_thresholds_are_met_exactly(recorder: Recorder, tmp_path: pathlib.Path) -> None:
    """Words that are just a threshold, or next to one, are too rare in draws."""
    assert emulated(EDGES, tmp_path) == b"equal\n"
