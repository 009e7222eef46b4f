"""A two-level segregated fit allocator that manages offsets instead of memory.

The model follows M. Masmano, I. Ripoll, A. Crespo and J. Real, "TLSF: a new dynamic memory allocator for real-time
systems", ECRTS 2004: free blocks are kept in lists by size class, two levels of bitmaps find the next class that holds
a block, blocks are split when handed out and merged with both neighbours when given back. Three things differ, because
nothing is stored in the arena and no deadline has to be kept: the arena grows at its end when nothing fits, block
headers take no room, and a few blocks of a list are compared instead of taking its head.
"""

from dataclasses import dataclass
from itertools import islice

_SECOND_BITS = 5
_SECOND_CLASSES = 1 << _SECOND_BITS  # classes between two powers of two, so a class spans at most 1/32 of its size
_CANDIDATES = 16  # blocks compared per list; bounds alloc, whatever the length of the list


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of the arena: bytes `offset` to `offset + size`, free or handed out."""

    offset: int  # bytes, a multiple of the alignment
    size: int  # bytes, a positive multiple of the alignment
    free: bool


class TLSF:
    """Hands out offsets in one growing arena.

    `alignment` is a power of two in bytes; sizes are rounded up to it, so every offset is a multiple of it.
    Each operation takes constant time, apart from big-integer bitmaps of a few words.

    >>> heap = TLSF(alignment=64)
    >>> heap.alloc(100), heap.alloc(64)
    (0, 128)
    >>> heap.free(0)
    >>> heap.alloc(10), heap.peak_bytes, heap.used_bytes
    (0, 192, 128)
    """

    __slots__ = (
        "_before",
        "_end",
        "_first_map",
        "_is_free",
        "_last",
        "_lists",
        "_second_maps",
        "_size",
        "_used",
        "alignment",
    )

    def __init__(self, alignment: int = 256) -> None:
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"alignment {alignment!r} is not a power of two in bytes; pass 1, 2, 4, ... 256")
        self.alignment = alignment
        # One entry per block, keyed by its offset. The neighbour above starts where the block ends.
        self._size: dict[int, int] = {}
        self._before: dict[int, int] = {}  # offset of the neighbour below; the first block has none
        self._is_free: dict[int, bool] = {}
        # Free blocks by class; a dict is an ordered list with deletion in constant time, newest last.
        self._lists: dict[tuple[int, int], dict[int, None]] = {}
        self._first_map = 0  # bit f: some class (f, *) holds a block
        self._second_maps: dict[int, int] = {}  # f -> bits s: class (f, s) holds a block
        self._end = 0
        self._last: int | None = None  # offset of the block that ends the arena
        self._used = 0

    @property
    def peak_bytes(self) -> int:
        """Size of the arena: the most bytes it has reached, rounded sizes included. It never shrinks."""
        return self._end

    @property
    def used_bytes(self) -> int:
        """Bytes handed out at this moment, in rounded sizes."""
        return self._used

    def alloc(self, nbytes: int) -> int:
        """Reserve `nbytes` (at least 1, rounded up to the alignment) and return the offset.

        The smallest of the first few blocks that fit is taken, out of the request's own size class or else out of the
        next class that holds a block. Without one the arena grows, and a free block at its end is used for the start.
        Raises ValueError for sizes that are not positive integers.
        """
        if type(nbytes) is not int or nbytes < 1:
            raise ValueError(f"cannot allocate {nbytes!r} bytes; a size is an integer of at least 1")
        size = -(-nbytes // self.alignment) * self.alignment
        self._used += size
        offset = self._find(size)
        if offset is None:
            return self._grow(size)
        self._unlist(offset)
        self._is_free[offset] = False
        rest = self._size[offset] - size
        if rest:
            self._split(offset, size, rest)
        return offset

    def free(self, offset: int) -> None:
        """Give the block at `offset` back; it is merged with free neighbours on both sides.

        Raises ValueError if `offset` is not the start of a block that is handed out.
        """
        if self._is_free.get(offset, True):
            what = "is free already" if offset in self._is_free else "was not returned by alloc"
            raise ValueError(f"cannot free offset {offset!r}: it {what}; free each allocated offset exactly once")
        self._used -= self._size[offset]
        below = self._before.get(offset)
        if below is not None and self._is_free[below]:
            self._unlist(below)
            self._absorb(below, offset)
            offset = below
        above = offset + self._size[offset]
        if above < self._end and self._is_free[above]:
            self._unlist(above)
            self._absorb(offset, above)
        self._list(offset)

    def blocks(self) -> tuple[Block, ...]:
        """All blocks from offset 0 up. They tile the arena, and no two neighbours are both free."""
        return tuple(Block(offset, self._size[offset], self._is_free[offset]) for offset in sorted(self._size))

    def free_lists(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Offsets of the free blocks by size class (first level, second level), oldest first."""
        return {key: tuple(offsets) for key, offsets in sorted(self._lists.items())}

    def bitmaps(self) -> tuple[int, dict[int, int]]:
        """The first-level bitmap, and for each first-level class in it the bitmap of its second level."""
        return self._first_map, dict(sorted(self._second_maps.items()))

    def size_class(self, size: int) -> tuple[int, int]:
        """The class (first, second level) of a block of `size` bytes, a multiple of the alignment.

        In units u of the alignment: (0, u) below 32, one class per size; above, u in [2^k, 2^(k+1)) is (k - 4, s)
        where s is the 32nd part of that interval in which u lies.
        """
        units = size // self.alignment
        shift = units.bit_length() - _SECOND_BITS - 1
        if shift < 0:
            return 0, units
        return shift + 1, (units >> shift) - _SECOND_CLASSES

    def __repr__(self) -> str:
        return f"TLSF(alignment={self.alignment}): {self._used} of {self._end} bytes in use, {len(self._size)} blocks"

    def _find(self, size: int) -> int | None:
        """The offset of a free block of at least `size` bytes, or None."""
        first, second = self.size_class(size)
        # A block of the request's own class may be a little too small, which the paper avoids by starting one class
        # up. Buffers of a program repeat the same few sizes, so that would miss most exact fits.
        offset = self._smallest((first, second), size)
        if offset is not None:
            return offset
        larger = self._second_maps.get(first, 0) >> (second + 1) << (second + 1)
        if not larger:
            above = self._first_map >> (first + 1) << (first + 1)
            if not above:
                return None
            first = _lowest_bit(above)
            larger = self._second_maps[first]
        return self._smallest((first, _lowest_bit(larger)), size)

    def _smallest(self, key: tuple[int, int], size: int) -> int | None:
        """The smallest block of at least `size` bytes among the newest of one list; of equals the newest."""
        best = None
        best_size = 0
        for offset in islice(reversed(self._lists.get(key, {})), _CANDIDATES):
            found = self._size[offset]
            if found >= size and (best is None or found < best_size):
                best, best_size = offset, found
        return best

    def _grow(self, size: int) -> int:
        """Hand out `size` bytes at the end of the arena, beginning with its last block if that is free."""
        offset = self._last
        if offset is not None and self._is_free[offset]:
            self._unlist(offset)
        else:
            if offset is not None:
                self._before[self._end] = offset
            offset = self._last = self._end
        self._size[offset] = size
        self._is_free[offset] = False
        self._end = offset + size
        return offset

    def _split(self, offset: int, size: int, rest: int) -> None:
        """Cut the block at `offset` to `size` bytes; the `rest` becomes a free block above it."""
        self._size[offset] = size
        upper = offset + size
        self._size[upper] = rest
        self._before[upper] = offset
        self._relink_above(upper)
        self._list(upper)

    def _absorb(self, lower: int, upper: int) -> None:
        """Make the block at `upper` part of the block at `lower`, its neighbour below."""
        self._size[lower] += self._size.pop(upper)
        del self._before[upper], self._is_free[upper]
        self._relink_above(lower)

    def _relink_above(self, offset: int) -> None:
        end = offset + self._size[offset]
        if end == self._end:
            self._last = offset
        else:
            self._before[end] = offset

    def _list(self, offset: int) -> None:
        self._is_free[offset] = True
        key = first, second = self.size_class(self._size[offset])
        self._lists.setdefault(key, {})[offset] = None
        self._first_map |= 1 << first
        self._second_maps[first] = self._second_maps.get(first, 0) | 1 << second

    def _unlist(self, offset: int) -> None:
        key = first, second = self.size_class(self._size[offset])
        offsets = self._lists[key]
        del offsets[offset]
        if offsets:
            return
        del self._lists[key]
        self._second_maps[first] ^= 1 << second
        if not self._second_maps[first]:
            del self._second_maps[first]
            self._first_map ^= 1 << first


def _lowest_bit(bits: int) -> int:
    """Position of the lowest set bit of a positive integer."""
    return (bits & -bits).bit_length() - 1
