"""The shape of a partition: log start, log end, and how long each segment file is.

Pure. The applier moves a shape along as it changes the files, and recovery moves one along to learn what the
files must become. Both apply the same entries in the same order, so both arrive at the same shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tailrace.model import Offset
from tailrace.storage.segment.entry import Append, Entry, Trim, Truncate

ZERO = Offset(0)
OFFSET_MAX = (1 << 63) - 1


class Shape:
    """`segments` maps base offsets to lengths in ascending order, and is never empty."""

    __slots__ = ("end", "segments", "start")

    def __init__(
        self, start: Offset = ZERO, end: Offset = ZERO, segments: dict[int, int] | None = None
    ) -> None:
        self.start = start
        self.end = end
        self.segments = {0: 0} if segments is None else segments

    def __repr__(self) -> str:
        return f"<Shape {self.start} to {self.end} in {self.segments}>"

    def copy(self) -> Shape:
        return Shape(self.start, self.end, dict(self.segments))

    def last(self) -> tuple[int, int]:
        """Base offset and length of the newest segment."""
        return next(reversed(self.segments.items()))

    def apply(self, entry: Entry) -> None:
        """Move along; create and delete have no shape of their own."""
        if isinstance(entry, Append):
            self.segments[entry.segment] = entry.position + entry.stored.size
            self.end = entry.batch.next_offset
        elif isinstance(entry, Truncate):
            self.segments = {base: size for base, size in self.segments.items() if base < entry.segment}
            self.segments[entry.segment] = entry.position
            self.end = entry.offset
            self.start = min(self.start, self.end)
        elif isinstance(entry, Trim):
            self.start = max(self.start, entry.offset)
            if entry.segment >= 0:
                self.segments.setdefault(entry.segment, 0)
            self.prune()

    def prune(self) -> list[int]:
        """Forget the segments that lie wholly below the start, and name them."""
        gone = wholly_below(self.segments, self.start)
        for base in gone:
            del self.segments[base]
        return gone


def wholly_below(bases: Iterable[int], start: int) -> list[int]:
    """The segments whose every offset lies below `start`; never the last one."""
    ordered = sorted(bases)
    return [base for base, following in pairwise(ordered) if following <= start]
