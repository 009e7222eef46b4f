"""The operations of the intermediate representation, and the small values that parametrize them."""

from dataclasses import dataclass
from enum import IntEnum, auto
from typing import NamedTuple

from ren_lab.ring import RingSpec


class Op(IntEnum):
    """What a node does. The comment gives the sources and `arg`."""

    # data
    BUFFER = auto()  # (), BufferId
    CONST = auto()  # (), Const: a scalar of a ring, or an index
    RANDOM = auto()  # (), Random
    # polynomials
    AS_RING = auto()  # (storage or computation), (RingSpec, Domain)
    TO_RNS = auto()  # (words), (RingSpec, limb_count)
    ADD = auto()  # (a, b)
    SUB = auto()  # (a, b)
    MUL = auto()  # (a, b)
    NEG = auto()  # (a)
    DOT = auto()  # (a, b, c, d …): a*b + c*d + …, reduced once
    NTT = auto()  # (a)
    INTT = auto()  # (a), None | Montgomery residues, one per limb, by which the result is multiplied
    TO_RING = auto()  # (a), RingSpec
    RESCALE = auto()  # (a), moduli that are divided out
    ROTATE = auto()  # (a), k
    CONJUGATE = auto()  # (a)
    AUTOMORPHISM = auto()  # (a), Galois element
    PERMUTE = auto()  # (a polynomial or an index), Automorphism | LimbSelect
    BASE_CONVERT = auto()  # (a), RingSpec: the centred lift
    LIFT = auto()  # (y), RingSpec: the centred lift of a, where y holds a * (Q/p)^-1 for each p of its Q, out of Montgomery form
    JOIN = auto()  # (a, b …), RingSpec: each limb from the first operand that has it
    COPY = auto()  # (a), device
    CONTIGUOUS = auto()  # (a), pinned: bool
    # scheduling
    SINK = auto()  # (every output)
    BUFFERIZE = auto()  # (a), Boundary
    STORE = auto()  # (buffer or INDEX, value)
    AFTER = auto()  # (buffer, what must have happened)
    GROUP = auto()  # (STOREs that one kernel does)
    BUFFER_VIEW = auto()  # (buffer), View
    # kernels
    RESIDUES = auto()  # (), Montgomery residues, one per limb: the same value at each coefficient
    IMPULSE = auto()  # (RESIDUES): the value at coefficient 0 and zero elsewhere
    GIDX = auto()  # (), Axis
    EQ = auto()  # (index, index)
    WHERE = auto()  # (condition, value): the value where the condition holds, zero elsewhere
    INDEX = auto()  # (buffer or SLOT, limb index, coefficient index)
    LOAD = auto()  # (INDEX)
    SLOT = auto()  # (), Slot
    KERNEL = auto()  # (output buffers …, input buffers …), KernelSpec


class DType(IntEnum):
    """Type of a node's value."""

    VOID = 0  # ordering only
    U32 = 1  # 32-bit words: residues, or digits of coefficients
    INDEX = 2  # positions
    BOOL = 3  # conditions


CONVERSIONS = frozenset({Op.TO_RNS, Op.BASE_CONVERT, Op.LIFT})  # each column of the result depends on a whole column
ELEMENTWISE = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.DOT})


class BufferId(NamedTuple):
    """Identity and layout of a buffer: `shape` is (limbs, n) u32 words in C order, `pinned` keeps it out of the arena."""

    label: str
    device: str
    shape: tuple[int, int]
    pinned: bool = False

    @property
    def nbytes(self) -> int:
        return 4 * self.shape[0] * self.shape[1]


@dataclass(frozen=True, slots=True)
class Const:
    """The constant polynomial `value`·X^0, any integer; no storage. `device` is where its user works."""

    value: int
    device: str


@dataclass(frozen=True, slots=True)
class Random:
    """One draw. Two draws have two labels; `parameters` belong to the distribution.

    Distributions: uniform (), interval (low, high), ternary (), sparse_ternary (weight), gaussian (sigma).
    """

    label: str
    device: str
    distribution: str
    parameters: tuple[int | float, ...] = ()


@dataclass(frozen=True, slots=True)
class Automorphism:
    """Index map of X -> X^galois on NTT values in bit-reversed order: output i reads `indices[i]`."""

    n: int
    galois: int


@dataclass(frozen=True, slots=True)
class LimbSelect:
    """Index map on the limb axis: output limb i reads limb `indices[i]`; the result lives in `ring`."""

    ring: RingSpec
    indices: tuple[int, ...]

    @property
    def offset(self) -> int | None:
        """The first limb if the selected limbs stand side by side in order, else None."""
        first = self.indices[0]
        return first if self.indices == tuple(range(first, first + len(self.indices))) else None


@dataclass(frozen=True, slots=True)
class Boundary:
    """Why a value needs a buffer, and where that buffer lives."""

    reason: str
    device: str
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A window of a buffer: `shape` words from element `offset` on."""

    offset: int
    shape: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a kernel's index space: `name` is "limb", "coefficient" or "word"; positions in [0, extent)."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Slot:
    """Parameter `number` of a kernel; the outputs come first."""

    number: int
    shape: tuple[int, int]
