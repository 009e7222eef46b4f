"""CUDA programs as texts: NVRTC compiles them without a device, and what they depend on is what they should depend on."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import cuda_compiler
import cuda_emulation
import numpy as np
import pytest

import ren_lab as ren
from ren_lab.backends import register
from ren_lab.backends.cuda.program import Launch, Program, header, program
from ren_lab.backends.python.interpreter import compile_kernel
from ren_lab.ir import Axis, DType, Node, Op, Slot
from ren_lab.poly import Poly
from ren_lab.ring import Domain, RingSpec, find_primes
from ren_lab.schemes.ckks import CKKSParams, decode, decrypt, encode, encrypt, keygen

ARCHITECTURES = ("sm_80", "sm_90")


def transform(n: int, limbs: int, forward: bool, bits: int = 30, first: int = 0) -> Program:
    """The program of a plain transform, with moduli just below 2^bits."""
    ring = RingSpec(n, tuple(find_primes(n, bits, first + limbs))[first:])
    axes = [Node(Op.GIDX, DType.INDEX, (), Axis(name, size)) for name, size in (("limb", limbs), ("coefficient", n))]
    places = [Node(Op.SLOT, DType.U32, (), Slot(number, (limbs, n))) for number in range(2)]
    out, source = (Node(Op.INDEX, DType.INDEX, (place, *axes)) for place in places)
    domain = Domain.COEFF if forward else Domain.NTT
    value = Node(Op.AS_RING, DType.U32, (Node(Op.LOAD, DType.U32, (source,)),), (ring, domain))
    result = Node(Op.NTT if forward else Op.INTT, DType.U32, (value,))
    return program(Node(Op.STORE, DType.VOID, (out, result)), cuda_emulation.DEVICE)


class Collector(cuda_emulation.EmulatedBackend):
    """Keeps the programs of kernels, and runs them with NumPy."""

    def __init__(self) -> None:
        super().__init__("collected", cuda_emulation.DEVICE)
        self.programs: dict[str, Program] = {}

    def compile(self, ast: Node) -> Callable[..., Any]:
        made = program(ast, self.device)
        self.programs.setdefault(made.code, made)
        return compile_kernel(ast)


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    """Of CKKS from keys to decryption, with long rows and short ones, and of polynomials."""
    collector = Collector()
    register("collected", lambda number: collector)
    for log_n, bits in ((6, 18), (14, 30)):
        params = CKKSParams.build(depth=2, precision_bits=bits, n=2**log_n, insecure=True)
        with keygen(params, rotations=[1], conjugation=True, device="collected"):
            x, y = (encrypt(encode(np.linspace(-0.5, 0.5, params.slot_count))) for _ in range(2))
            decode(decrypt((x * y + x).rotate(1) - y))
            if log_n == 6:
                decode(decrypt((3 * x * encode(0.25)).conjugate() * y + 0.5))
                ren.jit(lambda a: a * a * a)(x)
    ring, other = (RingSpec(16, tuple(find_primes(16, bits, 4))) for bits in (29, 25))
    a, b = Poly.uniform(ring, "collected"), Poly([1, 2, 3], ring, "collected")
    for value in ((a * b).rotate(3) + 7, a - 1, a * 5, (a + b).to_ring(other), a.rescale(ring.moduli[:2]), -a, a.conjugate() + a):
        value.realize()
    for draw in (Poly.ternary(ring, "collected"), Poly.gaussian(ring, 3.2, "collected"), Poly.gaussian(ring, 300.0, "collected")):
        draw.realize()
    return list(collector.programs.values())


def module(programs: list[Program]) -> str:
    """One module of several programs."""
    codes = [made.code.replace("KERNEL", f"k{number}") for number, made in enumerate(programs)]
    return "\n".join([header(), *codes])


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_programs_of_schemes_compile_and_keep_to_registers(programs: list[Program], architecture: str) -> None:
    found = cuda_compiler.compiled(module(programs), architecture)
    names = {each.function.replace("KERNEL", f"k{i}"): each for i, made in enumerate(programs) for each in made.launches}
    assert found.keys() == names.keys()
    assert len(programs) > 30
    for name, report in found.items():
        assert report.registers * -(-names[name].block // 32) * 32 <= 65536, name
        assert report.spilled == 0 and report.stack == 0, name
        assert report.shared == 0, name  # all of it is dynamic, as the launch says


@pytest.mark.parametrize(
    ("architecture", "bits", "sizes"), [("sm_90", 30, range(1, 18)), ("sm_80", 30, (4, 13, 16, 17)), ("sm_90", 31, (8, 13, 16))]
)
def test_transforms_keep_to_registers(architecture: str, bits: int, sizes: Sequence[int]) -> None:
    """Without spills or a stack frame, and with registers for at least four blocks of 256 threads."""
    programs = [transform(2**log_n, 1, forward, bits) for log_n in sizes for forward in (True, False)]
    found = cuda_compiler.compiled(module(programs), architecture)
    assert len(found) == sum(len(made.launches) for made in programs)
    for name, report in found.items():
        assert report.spilled == 0 and report.stack == 0, name
        assert report.registers <= 64, name


@pytest.mark.parametrize("forward", [True, False], ids=["NTT", "INTT"])
def test_texts_do_not_depend_on_moduli_and_limbs(forward: bool) -> None:
    """But for whether transforms can be lazy, for which all moduli must be below 2^30."""
    for n in (16, 2**15):
        few, many, large = transform(n, 2, forward), transform(n, 7, forward, 28, first=3), transform(n, 2, forward, 31)
        assert few.code == many.code
        assert few.launches != many.launches
        assert few.code.replace("<true, ", "<false, ") == large.code != few.code


def test_what_a_text_refers_to_is_there(programs: list[Program]) -> None:
    """Places of slots, tables and numbers, and the layout of the argument."""
    for made in programs:
        counts = tuple(max(1, len(x)) for x in (made.shapes, made.tables, made.numbers))
        assert f"typedef ren_call<{counts[0]}, {counts[1]}, {counts[2]}> KERNEL_call;" in made.code
        assert made.call.itemsize == 8 * (1 + sum(counts))
        patterns = r"slot_of\(k, (\d+)\)", r"(?:words|wides|transform)_of\(k, (\d+)", r"number\[(\d+)\]"
        for pattern, count in zip(patterns, counts):
            assert all(int(place) < count for place in re.findall(pattern, made.code))
        assert [each.function for each in made.launches] == re.findall(r"(KERNEL_\d+)\(const", made.code)
        assert len(made.legend) == len(made.tables) + len(made.numbers)
        assert all(line in made.text for line in made.legend)
        assert all(made.numbers[place : place + 6] == (0,) * 6 for place in made.draws)


def test_launches_keep_within_what_every_device_has(programs: list[Program]) -> None:
    for made in programs:
        for each in made.launches:
            assert each.shared <= 48 << 10
            assert each.block <= 512
        assert made.call.itemsize <= 4096  # what every driver takes as an argument


def test_blocks_of_a_conversion_are_narrower_where_there_are_more_multiprocessors() -> None:
    src, dst = (RingSpec(2**12, tuple(find_primes(2**12, bits, 5))) for bits in (30, 29))

    def made(device: cuda_emulation.Device) -> Launch:
        axes = [Node(Op.GIDX, DType.INDEX, (), Axis(name, size)) for name, size in (("limb", 5), ("coefficient", 2**12))]
        places = [Node(Op.SLOT, DType.U32, (), Slot(number, (5, 2**12))) for number in range(2)]
        out, source = (Node(Op.INDEX, DType.INDEX, (place, *axes)) for place in places)
        value = Node(Op.AS_RING, DType.U32, (Node(Op.LOAD, DType.U32, (source,)),), (src, Domain.COEFF))
        result = Node(Op.BASE_CONVERT, DType.U32, (value,), dst)
        return program(Node(Op.STORE, DType.VOID, (out, result)), device).launches[0]

    small, large = made(cuda_emulation.SMALL), made(cuda_emulation.DEVICE)
    assert small.grid[0] == 2**12 // (4 * 32) and large.grid[0] == 4 * small.grid[0]


def test_impossible_launches_are_refused() -> None:
    with pytest.raises(ValueError, match="2\\^16 - 1 blocks"):
        Launch("KERNEL_0", (1, 1 << 16, 1), 256, 0)


def test_a_conversion_that_fits_no_block_says_so() -> None:
    tiny = cuda_emulation.Device("tiny device", 8, 0, 1, 16)
    ring = RingSpec(16, tuple(find_primes(16, 30, 2)))
    digits = Node(Op.SLOT, DType.U32, (), Slot(1, (5, 16)))
    axes = [Node(Op.GIDX, DType.INDEX, (), Axis(name, size)) for name, size in (("word", 5), ("coefficient", 16))]
    value = Node(Op.TO_RNS, DType.U32, (Node(Op.LOAD, DType.U32, (Node(Op.INDEX, DType.INDEX, (digits, *axes)),)),), (ring, 5))
    out = Node(Op.INDEX, DType.INDEX, (Node(Op.SLOT, DType.U32, (), Slot(0, (2, 16))), axes[0], axes[1]))
    with pytest.raises(ValueError, match="tiny device has 16"):
        program(Node(Op.STORE, DType.VOID, (out, value)), tiny)


def test_the_header_includes_nothing() -> None:
    assert "#include" not in header()
