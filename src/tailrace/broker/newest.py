"""Where the newest records begin, without going through the log: backwards from the end, a batch at a time.

A log is read forwards only, so the batch before an offset is found by asking for the one that holds the
offset before it. Compaction leaves gaps, in which that is a later batch: then by steps of 1, 2, 4, ...
further back, and between the last two by halves. Of several partitions those are opened first whose newest
batch is the newest by its header, and the others perhaps never. A batch that cannot be decoded has no records
to count: the reader that meets it says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from tailrace.broker.partition import Partition
from tailrace.broker.unreadable import Unreadable
from tailrace.broker.visible_records import read
from tailrace.model import LogDamaged, OffsetOutOfRange
from tailrace.records import NO_END, Batch, BatchError, Record, Visible, read_batch
from tailrace.storage.opening import visit_records

_ONE_BATCH = 1  # as a number of bytes: a read gives at least one batch


async def plan_newest(partitions: Sequence[Partition], count: int) -> dict[int, int]:
    """The offset in each partition from which on, in all of them, lie the newest `count` records."""
    starts = {each.index: int(each.last_stable_offset) for each in partitions}
    tails = [_Tail(each, starts[each.index], count_max=count) for each in partitions]
    heap = [(-tail.newest_ms, tail.partition.index, tail) for tail in tails if await tail.step_back()]
    heapify(heap)
    while heap and count > 0:
        _, index, tail = heap[0]
        if not tail.is_open:
            await tail.open()
        elif tail.times:
            starts[index] = tail.times.pop()[1]
            count -= 1
        if not tail.times and not await tail.step_back():
            heappop(heap)
        else:
            heapreplace(heap, (-tail.newest_ms, index, tail))
    return starts


class _Tail:
    """The end of one partition, as far back as anybody looked."""

    __slots__ = ("_base", "_bound_ms", "_edge", "is_open", "partition", "times")

    def __init__(self, partition: Partition, end: int, *, count_max: int) -> None:
        self.partition = partition
        self.times: deque[tuple[int, int]] = deque(maxlen=count_max)  # time and offset, the newest last
        self.is_open = False  # whether `times` are those of the batch that was found last
        self._edge = end  # nothing from here on is left to look at
        self._base = end  # of the batch that was found last
        self._bound_ms = 0

    @property
    def newest_ms(self) -> int:
        """The time of its newest record, or what that is at most."""
        return self.times[-1][0] if self.times else self._bound_ms

    async def step_back(self) -> bool:
        """Go to the batch before; its records are not looked at yet."""
        found = await find_before(self.partition, self._edge)
        while found is not None and found.visible is None:
            found = await find_before(self.partition, found.batch.base_offset)
        if found is None:
            return False
        batch = found.batch
        self._edge, self._base = min(self._edge, batch.next_offset), batch.base_offset
        self._bound_ms = batch.max_timestamp
        self.is_open = False
        return True

    async def open(self) -> None:
        start = max(self._base, self.partition.start_offset)
        found = await _read_one(self.partition, start, end=self._edge)
        if found is not None and found.visible is not None:
            visible, times = found.visible, self.times

            def visit(record: Record) -> bool:
                times.append((record.timestamp, record.offset))
                return False

            with suppress(BatchError):  # those before the fault count
                await visit_records(visible.batch, visit, first=visible.first, end=visible.end)
        self._edge = self._base
        self.is_open = True


class FoundBatch(NamedTuple):
    """A batch as it lies in the log, and what of it is visible."""

    batch: Batch
    visible: Visible | None


async def find_before(partition: Partition, end: int) -> FoundBatch | None:
    """The last batch that begins before `end`, visible or not; None if there is none."""
    start = partition.start_offset
    if end <= start:
        return None
    found, width = None, 1
    beyond = end  # at and behind this offset are only batches that do not begin before `end`
    while found is None:
        probe = max(end - width, start)
        found = await _read_one(partition, probe)
        if found is not None and found.batch.base_offset >= end:
            found = None
        if found is None:
            if probe == start:
                return None
            beyond, width = probe, width * 2
    while found.batch.next_offset < beyond:
        middle = (found.batch.next_offset + beyond) // 2
        later = await _read_one(partition, middle)
        if later is not None and later.batch.base_offset < end:
            found = later
        else:
            beyond = middle
    return found


async def _read_one(partition: Partition, offset: int, *, end: int = NO_END) -> FoundBatch | None:
    """The batch that holds an offset, or the next one where none does."""
    try:
        portion = await read(partition, offset, bytes_max=_ONE_BATCH, end=end)
    except OffsetOutOfRange:
        return None  # trimmed while somebody looked
    except LogDamaged as error:
        raise Unreadable(partition.name, offset=offset, next_offset=None, cause=error) from error
    if not portion.data:
        return None
    return FoundBatch(read_batch(portion.data), next(portion.batches(), None))
