"""The cache of compiled kernels: private, sound after damage, shared by processes; and what happens without a compiler."""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import cpu_variants
import pytest

from ren_lab.backends import DeviceUnavailable
from ren_lab.backends.cpu import CpuBackend
from ren_lab.backends.cpu import compiler as compilers
from ren_lab.backends.cpu.cache import Cache
from ren_lab.backends.cpu.compiler import find_compiler

SOURCE = '#include "kernel.h"\nEXPORT ren_seven(u32 *out) { *out = %d; }\n'


@pytest.fixture(scope="module")
def compiler():
    try:
        return find_compiler(words="scalar")
    except DeviceUnavailable as missing:
        pytest.skip(str(missing))


def build(cache: Cache, compiler, value: int, keys: list[str]) -> ctypes.CDLL:
    with cache.temporary(".so") as target:
        compiler.build(SOURCE % value, target)
        return cache.add(target, keys)


def answer(library: ctypes.CDLL | None) -> int:
    assert library is not None
    out = ctypes.c_uint32()
    library.ren_seven(ctypes.byref(out))
    return out.value


def test_an_entry_is_found_by_another_process(tmp_path, compiler) -> None:
    build(Cache(tmp_path), compiler, 7, ["a", "b"])
    fresh = Cache(tmp_path)
    assert answer(fresh.find("a", "ren_seven")) == answer(fresh.find("b", "ren_seven")) == 7
    assert fresh.find("c", "ren_seven") is None
    assert fresh.find("a", "ren_eight") is None
    assert not list(tmp_path.glob("new-*"))


def _rewrite(path: pathlib.Path, data: bytes) -> None:
    """As another file: this process may have the old one in its memory."""
    path.unlink()
    path.write_bytes(data)


def _truncate(path: pathlib.Path) -> None:
    _rewrite(path, path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    _rewrite(path, bytes(data))


DAMAGE = {
    "library cut": lambda lib, entry: _truncate(lib),
    "library changed by a bit": lambda lib, entry: _flip(lib),
    "library empty": lambda lib, entry: _rewrite(lib, b""),
    "library gone": lambda lib, entry: lib.unlink(),
    "entry empty": lambda lib, entry: entry.write_text(""),
    "entry not text": lambda lib, entry: entry.write_bytes(b"\xff\xfe\0"),
    "entry leads elsewhere": lambda lib, entry: entry.write_text("../../etc/passwd"),
    "entry names a file that is no library": lambda lib, entry: entry.write_text(f"lib-{'0' * 64}.so"),
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda name: name.replace(" ", "-"))
def test_a_damaged_entry_is_not_used_and_can_be_replaced(tmp_path, compiler, damage: str) -> None:
    build(Cache(tmp_path), compiler, 7, ["a"])
    (library,) = tmp_path.glob("lib-*.so")
    DAMAGE[damage](library, tmp_path / "a.txt")
    fresh = Cache(tmp_path)
    assert fresh.find("a", "ren_seven") is None
    assert answer(build(fresh, compiler, 7, ["a"])) == 7
    assert answer(Cache(tmp_path).find("a", "ren_seven")) == 7


def test_the_directory_is_the_users_alone(tmp_path) -> None:
    wanted = tmp_path / "some" / "where"
    assert Cache(wanted).directory == wanted
    assert wanted.stat().st_mode & 0o777 == 0o700
    wanted.chmod(0o777)
    Cache(wanted)
    assert wanted.stat().st_mode & 0o777 == 0o700


def test_where_there_is_no_directory_a_private_one_serves(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    os.symlink(tmp_path, tmp_path / "link")
    for wanted in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "link"):
        cache = Cache(wanted)
        used = cache.directory
        assert used != wanted and used.stat().st_mode & 0o777 == 0o700
        del cache
        assert not used.exists()


def test_a_kernel_is_compiled_once_and_damage_is_repaired(tmp_path) -> None:
    """Two backends with one cache: the second one needs no compiler; after damage, it does, and results stay."""
    from test_cpu_transform import kernel, load, residues

    from ren_lab.backends.python import arith
    from ren_lab.ir import DType, Node, Op
    from ren_lab.ring import Domain, RingSpec

    cpu_variants.make("scalar")
    ring = RingSpec(16, (97, 193))
    x = residues(ring, 1)
    body = kernel(Node(Op.NEG, DType.U32, (load(1, x.shape, ring, Domain.COEFF),)))

    def computed(refuse: bool) -> None:
        made = CpuBackend(words="scalar", cache=tmp_path, extra_flags=("-O1",))
        if refuse:
            made.library._build = None  # type: ignore[assignment, method-assign]
        out = made.allocate(x.shape)
        made.compile(body)(out, x)
        assert (out == arith.neg(x, ring)).all()

    computed(refuse=False)
    computed(refuse=True)
    for library in tmp_path.glob("lib-*.so"):
        _truncate(library)
    computed(refuse=False)
    computed(refuse=True)


PROCESS = """
import pathlib, sys
sys.path[:0] = sys.argv[2:]
from ren_lab.backends import register
from ren_lab.backends.cpu import CpuBackend
register("cpu", lambda number: CpuBackend(number, words="scalar", cache=pathlib.Path(sys.argv[1]), extra_flags=("-O1",)))
from ren_lab.poly import Poly
from ren_lab.ring import RingSpec
ring = RingSpec(8, (17, 97))
print((Poly([1, 2, 3], ring, "cpu") * Poly([4, 5], ring, "cpu") + 6).tolist())
"""


def test_processes_that_start_at_once_agree(tmp_path) -> None:
    cpu_variants.make("scalar")
    root = str(pathlib.Path(compilers.__file__).parents[3])
    started = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(tmp_path), root], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert {process.communicate()[0].strip() for process in started} == {"[10, 13, 22, 15, 0, 0, 0, 0]"}
    assert not list(tmp_path.glob("new-*"))


def test_without_a_compiler_the_message_says_what_to_install(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceUnavailable, match=r"install gcc or clang, or run `pip install ziglang`"):
        CpuBackend(cache=tmp_path)


@pytest.mark.parametrize("command", ["/nowhere/at/all/cc", "false"])
def test_a_compiler_that_does_not_run_is_named(command: str) -> None:
    with pytest.raises(DeviceUnavailable, match=f"the compiler '{command}' that CC names does not run"):
        find_compiler(command)


def test_a_refused_source_shows_the_compilers_words(tmp_path, compiler) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)the C compiler failed with status \d+: .*nonsense"):
        compiler.build("int nonsense = ;", tmp_path / "out.so")


def test_unknown_words_and_thread_counts_are_errors() -> None:
    with pytest.raises(ValueError, match="choose one of native, avx512, avx2, scalar"):
        find_compiler(words="neon")
    with pytest.raises(ValueError, match="threads is 0; give at least 1"):
        CpuBackend(threads=0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_makes_threads_of_its_own() -> None:
    """In a process of its own, since pytest's may hold other threads."""
    device = cpu_variants.VARIANTS["native2"]
    cpu_variants.make("native2")
    root = str(pathlib.Path(compilers.__file__).parents[3])
    script = f"""
    import os, pathlib, sys
    sys.path.insert(0, {root!r})
    import numpy as np
    from ren_lab.backends import register
    from ren_lab.backends.cpu import CpuBackend
    cache = pathlib.Path({str(cpu_variants.directory())!r})
    register("cpu", lambda number: CpuBackend(words={device[0]!r}, threads=4, cache=cache))
    from ren_lab.poly import Poly
    from ren_lab.ring import RingSpec, find_primes
    ring = RingSpec(2**13, find_primes(2**13, 30, 8))
    a = Poly(np.arange(2**13), ring, "cpu").realize()
    want = (a * a + a).tobytes()
    child = os.fork()
    if child == 0:
        got = (a * a + a + 1 - 1).realize()
        again = (a * a + a).contiguous().tobytes()
        os._exit(0 if again == want else 3)
    _, status = os.waitpid(child, 0)
    assert (a * a + a).contiguous().tobytes() == want
    print(os.waitstatus_to_exitcode(status))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "0", done.stderr
