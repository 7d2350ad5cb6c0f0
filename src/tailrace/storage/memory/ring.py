"""The batches of one partition, in order of offset: found by bisection, dropped from the front.

One row per batch. Four columns are lists, because bisection needs an index; their first rows are empty once
the batches have been dropped, and are cut off when they are the greater part:

    _nexts   offset after the batch       strictly growing, with gaps where a leader compacted
    _ends    bytes up to its end          counted from the ring's first batch ever
    _views   its bytes, read-only         freed at once when the batch is dropped
    _stamps  when it was written          ms, from which its age counts
    _batches                              a deque: eviction takes from its front
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.records import Batch
from tailrace.storage.memory.extent import MemoryExtent

_JOIN_BYTES_MAX = 16 * 1024
"""Batches share an extent up to this size; a larger one is never copied."""
_EMPTY_ROWS_MAX = 1024
_FREED = memoryview(b"")


class RingColumns(NamedTuple):
    """The bytes and times of the batches that a ring had at one moment: rows [first, end) of the columns."""

    views: Sequence[memoryview]
    stamps: Sequence[int]
    first: int
    end: int


class Ring:
    """Batches that enter at the end and leave at the front, or from an offset on."""

    __slots__ = (
        "_batches",
        "_empty",
        "_ends",
        "_is_shared",
        "_nexts",
        "_stamps",
        "_views",
        "messages",
        "size",
    )

    def __init__(self) -> None:
        self._nexts: list[int] = []
        self._ends: list[int] = []
        self._views: list[memoryview] = []
        self._batches: deque[Batch] = deque()
        self._stamps: list[int] = []
        self._empty = 0  # rows at the front of the lists whose batches are gone
        self._is_shared = False  # a cut reads the columns: only their ends may be appended to
        self.size = 0
        self.messages = 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def oldest_ms(self) -> int:
        """When the batch at the front was written; there must be one."""
        return self._stamps[self._empty]

    @property
    def front_next_offset(self) -> int:
        """The offset after the batch at the front; there must be one."""
        return self._nexts[self._empty]

    def grown_past_ms(self, size: int) -> int | None:
        """When the batch was written with which those in the ring exceeded a size; None if they do not."""
        row = bisect_right(self._ends, self._gone_bytes() + size, self._empty)
        return self._stamps[row] if row < len(self._ends) else None

    def size_written_before(self, stamp_ms: int) -> int:
        """The bytes of the batches before the first one that was written at this time or later."""
        row = self._empty
        while row < len(self._stamps) and self._stamps[row] < stamp_ms:
            row += 1
        return self._ends[row - 1] - self._gone_bytes() if row > self._empty else 0

    def batches(self) -> list[Batch]:
        """Everything in the ring, oldest first, as it is now."""
        return list(self._batches)

    def push(self, batch: Batch, stamp_ms: int) -> None:
        """Add the newest batch, whose age counts from `stamp_ms`."""
        self._nexts.append(batch.next_offset)
        self._ends.append((self._ends[-1] if self._ends else 0) + batch.size)
        self._views.append(batch.data.toreadonly())
        self._batches.append(batch)
        self._stamps.append(stamp_ms)
        self.size += batch.size
        self.messages += batch.count

    def cut(self) -> RingColumns:
        """What is in the ring now, whatever becomes of it later. Columns are copied at the next drop only."""
        self._is_shared = True
        return RingColumns(self._views, self._stamps, self._empty, len(self._views))

    def drop_front(self) -> Batch:
        """Let go of the oldest batch."""
        if self._is_shared:
            self._unshare()
        batch = self._batches.popleft()
        self._views[self._empty] = _FREED
        self._empty += 1
        if self._empty > _EMPTY_ROWS_MAX and self._empty * 2 > len(self._views):
            self._cut_empty_rows()
        self._discount(batch)
        return batch

    def drop_from(self, offset: int) -> list[Batch]:
        """Let go of the batch that holds `offset` and of all after it; returns them, oldest first."""
        if self._is_shared:
            self._unshare()
        row = self._row_of(offset)
        dropped = [self._batches.pop() for _ in range(len(self._nexts) - row)]
        for batch in dropped:
            self._discount(batch)
        for column in self._columns():
            del column[row:]
        dropped.reverse()
        return dropped

    def read(self, offset: int, bytes_max: int, up_to: int) -> tuple[Sequence[MemoryExtent], int, int]:
        """Extents from the batch that holds `offset`, or the first after it; their size; the offset after.

        Batches below `up_to`: at least one if there is any, else at most `bytes_max` bytes. With none: (), 0,
        `offset`.
        """
        nexts = self._nexts
        row = self._row_of(offset)
        last = len(nexts)
        if row < last and nexts[-1] > up_to:
            last = bisect_right(nexts, up_to, row)
        if row >= last:
            return (), 0, offset
        begin = self._ends[row] - len(self._views[row])
        stop = max(row + 1, bisect_right(self._ends, begin + bytes_max, row, last))
        return self._join(row, stop), self._ends[stop - 1] - begin, nexts[stop - 1]

    def _row_of(self, offset: int) -> int:
        """Row of the first batch that ends after `offset`."""
        return bisect_right(self._nexts, offset, self._empty)

    def _join(self, row: int, stop: int) -> list[MemoryExtent]:
        extents = []
        begin = self._ends[row] - len(self._views[row])
        while row < stop:
            following = max(row + 1, bisect_right(self._ends, begin + _JOIN_BYTES_MAX, row, stop))
            end = self._ends[following - 1]
            extents.append(MemoryExtent(self._views[row:following], end - begin))
            row, begin = following, end
        return extents

    def _gone_bytes(self) -> int:
        """The bytes of the batches that were dropped, counted as `_ends` counts."""
        return self._ends[-1] - self.size if self._ends else 0

    def _discount(self, batch: Batch) -> None:
        self.size -= batch.size
        self.messages -= batch.count

    def _unshare(self) -> None:
        """Leave the columns to the cut, and go on with copies."""
        self._views, self._stamps = self._views.copy(), self._stamps.copy()
        self._is_shared = False

    def _cut_empty_rows(self) -> None:
        for column in self._columns():
            del column[: self._empty]
        self._empty = 0

    def _columns(self) -> tuple[list[int], list[int], list[memoryview], list[int]]:
        return self._nexts, self._ends, self._views, self._stamps
