"""An index of regions by address, for "what may meet this one?" in a time that does not grow with what lies elsewhere.

Contiguous regions are kept in buckets of byte addresses, one set of buckets per power of two of length, so that a region
lies in one bucket and a query looks at few. Strided regions are reduced to rows of a pitch (their largest stride) and kept
in two-dimensional cells of rows and columns, per pitch: tiles of a matrix interleave in their address ranges, and a
one-dimensional index would return every tile of a row of tiles.
"""

from collections.abc import Hashable
from typing import Any, Protocol

from ren_lab.runtime.regions import Region


class Located(Protocol):
    """What the index holds: anything with a region. `home` belongs to the index."""

    region: Region
    home: Any


Bucket = dict[Any, None]  # an ordered set of items
Path = tuple[tuple[dict[Any, Any], Hashable], ...]  # the dictionaries from the outermost to the bucket, with the keys


class RangeIndex:
    """A set of located items; `candidates` is a superset of those whose regions meet a given one."""

    def __init__(self) -> None:
        self._flat: dict[int, dict[int, Bucket]] = {}  # length class -> low >> class -> items
        # pitch -> (row class, column class) -> row >> class -> column >> class -> items
        self._grids: dict[int, dict[tuple[int, int], dict[int, dict[int, Bucket]]]] = {}

    def add(self, item: Any) -> None:
        """Put `item` in; it must not be in already."""
        low, high, form = item.region
        parents: tuple[tuple[dict[Any, Any], Hashable], ...]
        if form is None:
            size_class = (high - low - 1).bit_length()
            buckets = self._flat.setdefault(size_class, {})
            place = low >> size_class
            bucket = buckets.setdefault(place, {})
            parents = ((self._flat, size_class), (buckets, place))
        else:
            pitch, rows, run = _as_rows(item.region)
            row, column = divmod(low, pitch)
            key = ((rows - 1).bit_length(), (run - 1).bit_length())
            grid = self._grids.setdefault(pitch, {})
            lines = grid.setdefault(key, {})
            cells = lines.setdefault(row >> key[0], {})
            bucket = cells.setdefault(column >> key[1], {})
            parents = (
                (self._grids, pitch),
                (grid, key),
                (lines, row >> key[0]),
                (cells, column >> key[1]),
            )
        bucket[item] = None
        item.home = (bucket, parents)

    def remove(self, item: Any) -> None:
        """Take `item` out."""
        child, parents = item.home
        del child[item]
        item.home = None
        for parent, key in reversed(parents):
            if child:
                break
            del parent[key]
            child = parent

    def candidates(self, region: Region) -> list[Any]:
        """Items that may meet `region`: all that do, and few others."""
        found: list[Any] = []
        low, high, _ = region
        for size_class, buckets in self._flat.items():
            # an item of this class is at most one bucket long, so it starts in a bucket of the range or in the one before
            _collect(buckets, (low >> size_class) - 1, (high - 1) >> size_class, found)
        for pitch, grid in self._grids.items():
            self._search_grid(pitch, grid, region, found)
        return found

    @staticmethod
    def _search_grid(
        pitch: int,
        grid: dict[tuple[int, int], dict[int, dict[int, Bucket]]],
        region: Region,
        found: list[Any],
    ) -> None:
        low, high, form = region
        own_pitch, rows, run = _as_rows(region) if form is not None else (0, 1, high - low)
        if own_pitch != pitch:
            rows, run = 1, high - low
        last_row = (low + (rows - 1) * pitch + run - 1) // pitch
        for (row_class, column_class), lines in grid.items():
            reach = 1 << column_class  # no item's run of this class is longer
            start = low - reach + 1  # the first address at which such a run meets the region's first run
            first_row = start // pitch - (1 << row_class) + 1
            columns = start % pitch, start % pitch + reach + run - 2  # of run starts, inclusive; may pass the pitch
            span = columns[1] - columns[0] + 1
            for cells in _between(lines, first_row >> row_class, last_row >> row_class):
                if span >= pitch:
                    for bucket in cells.values():
                        found.extend(bucket)
                    continue
                first = columns[0] >> column_class
                _collect(cells, first, min(columns[1], pitch - 1) >> column_class, found)
                if columns[1] >= pitch:
                    _collect(cells, 0, min(columns[1] - pitch >> column_class, first - 1), found)


def _as_rows(region: Region) -> tuple[int, int, int]:
    """A strided region as (pitch, rows, bytes in a row from its first to its last)."""
    assert region[2] is not None
    pitch, rows = region[2][1][0]
    return pitch, rows, region[1] - region[0] - pitch * (rows - 1)


def _between(places: dict[int, Any], first: int, last: int) -> list[Any]:
    """Values at the keys `first` to `last`, by the shorter way."""
    if last - first < len(places):
        return [places[place] for place in range(first, last + 1) if place in places]
    return [value for place, value in places.items() if first <= place <= last]


def _collect(places: dict[int, Bucket], first: int, last: int, found: list[Any]) -> None:
    """Add the items in the buckets `first` to `last`, by the shorter way."""
    if last - first < len(places):
        for place in range(first, last + 1):
            if place in places:
                found.extend(places[place])
    else:
        for place, bucket in places.items():
            if first <= place <= last:
                found.extend(bucket)
