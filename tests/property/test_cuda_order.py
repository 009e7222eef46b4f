"""Whatever two GPUs are given, and however their streams get on, the words are those of a machine that does one thing at a time."""

import pathlib
import tempfile

import cuda_recorder
import numpy as np
import pytest
from cuda_recorder import driver_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ren_lab.backends import backend
from ren_lab.backends.cuda.backend import CudaBackend
from ren_lab.backends.cuda.storage import Storage
from ren_lab.ir import Axis, DType, Node, Op, Slot
from ren_lab.ring import Domain, RingSpec

RING = RingSpec(8, (97, 113))
SHAPE = (2, 8)
MODULI = np.array(RING.moduli, np.uint64)[:, None]

# What happens next: a kind, three storages by their place among those that are held, and where.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["new", "send", "add", "add", "copy", "read", "drop", "drop", "move", "view", "over"]),
        *3 * [st.integers(0, 100)],
        st.integers(0, 1),
    ),
    min_size=5,
    max_size=60,
)
SCHEDULES = st.one_of(st.sampled_from(["late", "early"]), st.integers(0, 2**32))


def _sum() -> Node:
    def load(slot: int) -> tuple[Node, Node]:
        axes = [Node(Op.GIDX, DType.INDEX, (), Axis(name, extent)) for name, extent in zip(("limb", "coefficient"), SHAPE)]
        index = Node(Op.INDEX, DType.INDEX, (Node(Op.SLOT, DType.U32, (), Slot(slot, SHAPE)), *axes))
        return index, Node(Op.AS_RING, DType.U32, (Node(Op.LOAD, DType.U32, (index,)),), (RING, Domain.NTT))

    return Node(Op.STORE, DType.VOID, (load(0)[0], Node(Op.ADD, DType.U32, (load(1)[1], load(2)[1]))))


ADD = _sum()


class _Held:
    """A storage, and the words that it must hold."""

    def __init__(self, storage: Storage, words: np.ndarray) -> None:
        self.storage, self.words = storage, words


@pytest.mark.parametrize("peers", [(0, 1), ()], ids=["peer-access", "through-the-host"])
@given(steps=STEPS, first=SCHEDULES, second=SCHEDULES)
@settings(max_examples=60, deadline=None)
def test_the_words_are_those_of_one_thing_at_a_time(peers: tuple[int, ...], steps, first, second) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        kind, one = cuda_recorder.device(pathlib.Path(folder), patch, schedule=first, peers=peers)
        other = backend(f"{kind}:1")
        assert isinstance(other, CudaBackend)
        driver_of(other).reschedule(second)
        places, held = (one, other), ([], [])
        _run(steps, places, held)
        for round_ in range(2):
            for place, storages in zip(places, held):
                for each in storages:
                    assert np.array_equal(place.to_host(each.storage), each.words), round_
            driver_of(one).finish()
            driver_of(other).finish()


def _run(steps, places: tuple[CudaBackend, CudaBackend], held: tuple[list[_Held], list[_Held]]) -> None:
    rng = np.random.default_rng(0)

    def fresh() -> np.ndarray:
        return (rng.integers(0, 2**31, SHAPE).astype(np.uint64) % MODULI).astype(np.uint32)

    for kind, a, b, c, where in steps:
        place, storages = places[where], held[where]
        if kind == "new" or not storages:
            words = fresh()
            storages.append(_Held(place.from_host(words), words))
            continue
        x, y, z = (storages[i % len(storages)] for i in (a, b, c))
        if kind == "send":  # over words that may be in use
            z.words = fresh()
            place.copy_from(z.storage, z.words, place)
        elif kind in ("add", "over"):
            target = z if kind == "over" and z is not x and z is not y else _Held(place.allocate(SHAPE), x.words)
            place.compile(ADD)(target.storage, x.storage, y.storage)
            target.words = ((x.words.astype(np.uint64) + y.words) % MODULI).astype(np.uint32)
            if target is not z:
                storages.append(target)
        elif kind == "copy":
            target = place.allocate(SHAPE)
            place.copy_from(target, x.storage, place)
            storages.append(_Held(target, x.words))
        elif kind == "read":
            assert np.array_equal(place.to_host(x.storage), x.words)
        elif kind == "drop":
            storages.remove(x)
        elif kind == "move":
            target = places[1 - where].allocate(SHAPE)
            places[1 - where].copy_from(target, x.storage, place)
            held[1 - where].append(_Held(target, x.words))
        else:  # two places of one block
            arena = place.allocate_arena(512)
            windows = [place.window(arena, offset, SHAPE) for offset in (0, 256)]
            for window, source in zip(windows, (x, y)):
                place.copy_from(window, source.storage, place)
                storages.append(_Held(window, source.words))
