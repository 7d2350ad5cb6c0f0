"""A set of offsets that knows runs instead of members.

    {3, 4, 5, 9, 12, 13}  is kept as  [3, 6, 9, 10, 12, 14]
                                       start  end, start  end, ...

Rules: the boundaries grow strictly, so ranges are half-open, disjoint and never touch. An offset belongs to
the set if an odd number of boundaries lies at or below it, which one bisection tells. A million offsets in a
row are two numbers. Adding at the end, as acknowledgements in order do, does not search.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Ranges:
    """Sorted half-open ranges of offsets; `len` counts the ranges, `count` the offsets."""

    __slots__ = ("_bounds", "count")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._bounds: list[int] = []
        self.count = 0  # offsets in the set
        for start, end in ranges:
            self.add(start, end)

    def __len__(self) -> int:
        return len(self._bounds) >> 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        bounds = iter(self._bounds)
        return zip(bounds, bounds, strict=True)

    def __contains__(self, offset: int) -> bool:
        return bisect_right(self._bounds, offset) & 1 == 1

    def __eq__(self, other: object) -> bool:
        return self._bounds == other._bounds if isinstance(other, Ranges) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        shown = [f"{start}-{end - 1}" if end - start > 1 else str(start) for start, end in self]
        return f"<Ranges {','.join(shown[:5])}{', ...' if len(shown) > 5 else ''}>"

    @property
    def first(self) -> int | None:
        """The lowest offset of the set."""
        return self._bounds[0] if self._bounds else None

    def first_gap(self, offset: int) -> int:
        """The lowest offset at or after `offset` that is not in the set."""
        place = bisect_right(self._bounds, offset)
        return self._bounds[place] if place & 1 else offset

    def count_from(self, offset: int) -> int:
        """How many offsets of the set are at or after `offset`."""
        below = 0
        for start, end in self:
            if start >= offset:
                break
            below += min(end, offset) - start
        return self.count - below

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Put `start` up to `end` in; the ranges of what was not in before."""
        if start >= end:
            return []
        bounds = self._bounds
        if not bounds or start >= bounds[-1]:
            if bounds and start == bounds[-1]:
                bounds[-1] = end
            else:
                bounds += (start, end)
            self.count += end - start
            return [(start, end)]
        return self._merge(start, end)

    def _merge(self, start: int, end: int) -> list[tuple[int, int]]:
        """Add where there are ranges already.

        An even `low` says that `start` lies outside of any range, an even `high` the same of `end`. The
        boundaries between, with those of `start` and `end` that lie outside, are then those of the gaps that
        are filled; the ones that remain are `start` and `end` themselves, where they lie outside.
        """
        bounds = self._bounds
        low, high = bisect_left(bounds, start), bisect_right(bounds, end)
        before = [] if low & 1 else [start]
        after = [] if high & 1 else [end]
        edges = iter(before + bounds[low:high] + after)
        bounds[low:high] = before + after
        filled = [(first, last) for first, last in zip(edges, edges, strict=True) if first < last]
        self.count += sum(last - first for first, last in filled)
        return filled

    def drop_below(self, offset: int) -> None:
        """Take out everything under `offset`."""
        bounds = self._bounds
        place = bisect_right(bounds, offset)
        if not place:
            return
        below = bounds[:place]
        if place & 1:  # `offset` lies within a range: its rest stays
            below.append(offset)
            bounds[:place] = [offset]
        else:
            del bounds[:place]
        self.count -= sum(below[1::2]) - sum(below[::2])

    def clear(self) -> None:
        self._bounds.clear()
        self.count = 0
