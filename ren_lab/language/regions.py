"""What a kernel touches, in terms of its parameters."""

from dataclasses import dataclass

from ren_lab.language.annotations import CachePolicy, Level
from ren_lab.language.check_program import ProgramChecker
from ren_lab.language.linear import Linear, Symbol, interval, is_point, number
from ren_lab.language.values import Access, TensorValue

_MOST_BOXES = 8  # of one parameter in one role; beyond it the task touches the whole tensor


@dataclass(frozen=True, slots=True)
class Box:
    """Part of a tensor: offset and extent per axis, linear in what the caller knows; `whole` if it is all of it."""

    offsets: tuple[Linear, ...]
    sizes: tuple[Linear, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Touched:
    """Boxes of one parameter, by role; see `nodes.Regions`."""

    reads: tuple[Box, ...]
    writes: tuple[Box, ...]
    updates: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a kernel, and how it is declared to treat the cache.

    Attributes:
        kernel, tensor: the function and its parameter.
        file, line, column: where it is written.
        policy: what holds for it.
        declared: "load", "scope" or "default": who decided.
        implicit: whether it is part of an operation that is not a load.
    """

    kernel: str
    tensor: str
    file: str
    line: int
    column: int
    policy: CachePolicy
    declared: str
    implicit: bool


def touched(checker: ProgramChecker) -> dict[str, Touched]:
    """What a kernel touches, by parameter; `checker` has checked it."""
    result = {}
    for param in checker.function.params:
        if param.annotation is not None and param.annotation.kind == "tensor":
            accesses = [a for a in checker.accesses if param.name in a.tensor.roots]
            result[param.name] = _touched(accesses, checker.block)
    return result


def _touched(accesses: list[Access], block: Linear | None) -> Touched:
    reads: dict[Box, None] = {}
    exact: dict[Box, None] = {}
    partly: dict[Box, None] = {}
    for position, access in enumerate(accesses):
        box = _box(access)
        if access.write:
            (exact if _is_exact(access, block) else partly)[box] = None
        elif not _reads_own(access, accesses[:position]):
            reads[box] = None
    updates = dict.fromkeys([*partly, *(box for box in exact if box in reads)])
    roles = []
    for boxes in ([b for b in reads if b not in updates], [b for b in exact if b not in updates], list(updates)):
        whole = next((box for box in boxes if box.whole), None)
        roles.append((whole,) if whole is not None else tuple(boxes))
    if any(len(boxes) > _MOST_BOXES for boxes in roles) and accesses:
        everything = (_whole(accesses[0].tensor),)
        writes = bool(roles[1] or roles[2])
        return Touched((), (), everything) if writes else Touched(everything, (), ())
    return Touched(*roles)


def _whole(tensor: TensorValue) -> Box:
    assert tensor.shape is not None
    return Box(tuple(number(0) for _ in tensor.shape), tensor.shape, True)


def _box(access: Access) -> Box:
    """The smallest box that surely holds what an access touches; a whole axis where its ends are not known."""
    shape = access.tensor.shape
    assert shape is not None
    offsets, sizes = [], []
    for extent, offset, size in zip(shape, access.offsets, access.sizes):
        low, high = interval(offset)
        longest = interval(size)[1]
        if low is None or high is None or longest is None:
            offsets.append(number(0))
            sizes.append(extent)
        else:
            offsets.append(low)
            sizes.append(high - low + longest)
    whole = all(offset == number(0) and size == extent for offset, size, extent in zip(offsets, sizes, shape))
    return Box(tuple(offsets), tuple(sizes), whole)


def _is_exact(access: Access, block: Linear | None) -> bool:
    """Whether a write surely fills its box: each offset is fixed, or one variable moves it by at most the extent."""
    if not access.sure:
        return False
    free = {*access.loops, *(symbol for symbol, _ in (block.terms if block is not None else ()))}
    used: set[Symbol] = set()
    for offset, size in zip(access.offsets, access.sizes):
        if not is_point(size):
            return False
        moving = [(symbol, k) for symbol, k in offset.terms if symbol.expr is None]
        if not moving:
            continue
        ((symbol, k), *more) = moving
        if more or symbol in used or symbol not in free or symbol.step is None:
            return False
        if not (symbol.attained or abs(symbol.step) == 1) or size.value is None or abs(k * symbol.step) > size.value:
            return False
        used.add(symbol)
    return all(loop.attained or loop in used for loop in access.loops)


def _reads_own(access: Access, before: list[Access]) -> bool:
    """Whether a read sees only what the same turn of the same kernel has written."""
    return any(
        other.write
        and other.sure
        and other.offsets == access.offsets
        and other.sizes == access.sizes
        and other.loops == access.loops
        for other in before
    )


def reads_of(checker: ProgramChecker) -> tuple[Read, ...]:
    """The reads of a kernel with their cache policies: `cache=` on a load wins over what the kernel declares.

    Only at level CORE_GROUP do declarations take effect; elsewhere they are carried in the program.
    """
    name = checker.function.name
    effective = checker.function.level in (None, Level.CORE_GROUP)
    result = []
    for access in checker.accesses:
        if access.write:
            continue
        tensor = "/".join(sorted(access.tensor.roots))
        declared = [checker.policies[root] for root in access.tensor.roots if root in checker.policies]
        if access.cache is not None and effective:
            policy, by = access.cache, "load"
        elif declared and effective:
            policy, by = declared[0], "scope"
        else:
            policy, by = CachePolicy.DEFAULT, "default"
        loc = access.loc
        result.append(Read(name, tensor, loc.file, loc.line, loc.column, policy, by, access.implicit))
    return tuple(result)
