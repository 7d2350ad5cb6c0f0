"""Reading one log: from the tail in memory, else from its chunks.

A reader that waits for a chunk may meet a truncation, after which other batches take the offsets below its
limit. It then starts again, and ends at the durable end: its limit was said of batches that are gone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.model import LogTruncated, Offset, OffsetOutOfRange
from tailrace.records import Batch, iter_batches, read_batch
from tailrace.storage.api import Slice, TimestampedOffset
from tailrace.storage.opening import find_record_at
from tailrace.storage.producers import ProducerStates
from tailrace.storage.tail import MemoryExtent
from tailrace.storage.tiered.chunk import batches_of
from tailrace.storage.tiered.cold import ColdChunks

if TYPE_CHECKING:
    from tailrace.storage.tiered.log import TieredLog

_SCAN_BYTES = 1 << 20


class Reader:
    """Finds batches by offset and by time."""

    def __init__(self, cold: ColdChunks) -> None:
        self._cold = cold

    def read_nowait(self, log: TieredLog, offset: Offset, bytes_max: int, up_to: Offset) -> Slice | None:
        hot = _read_tail(log, offset, bytes_max, up_to)
        if hot is not None:
            return hot
        limit = _cold_end(log, up_to)
        chunk = self._cold.find_nowait(log, offset)
        if chunk is None:
            return None
        found = _cut(batches_of(chunk, log=log), offset, bytes_max, limit)
        return found if found.size else None

    async def read(self, log: TieredLog, offset: Offset, bytes_max: int, up_to: Offset) -> Slice:
        asked = offset
        while True:
            hot = _read_tail(log, offset, bytes_max, up_to)
            if hot is not None:
                return hot
            truncations, limit = log.truncations, _cold_end(log, up_to)
            chunks = await self._cold.read(log, offset, bytes_max=bytes_max, up_to=limit)
            if log.truncations != truncations or offset < log.start_offset:
                up_to = min(up_to, log.durable_offset)
                offset = asked
                continue
            log.check_readable()
            batches = [batch for chunk in chunks for batch in batches_of(chunk, log=log)]
            found = _cut(batches, offset, bytes_max, limit)
            if found.size or limit >= up_to:
                return found
            offset = Offset(max(offset, limit))  # a gap, and behind it the tail

    async def batch_start(self, log: TieredLog, offset: Offset) -> Offset:
        """Where a log ends without the batch that holds `offset`: its first offset, or in a gap `offset`."""
        found = await self.read(log, offset, bytes_max=1, up_to=log.end_offset)
        if not found.size:
            return offset
        return min(offset, read_batch(await found.load()).base_offset)

    async def producers_at(self, log: TieredLog, offset: Offset) -> ProducerStates | None:
        """The producers as they were when the log ended at `offset`; None if they are so now."""
        if not log.producers.reaches(offset):
            return None
        place, state = await self._cold.state_before(log, offset)
        place = max(place, log.start_offset)
        producers = state.producers
        producers.forget_trimmed(log.start_offset)
        while place < offset:
            found = await self.read(log, place, bytes_max=_SCAN_BYTES, up_to=log.end_offset)
            data = await found.load()
            for batch in iter_batches(data):
                if batch.next_offset <= offset:
                    producers.apply(batch)
            if found.next_offset <= place:
                break
            place = found.next_offset
        return producers

    async def find_timestamp(
        self, log: TieredLog, timestamp_ms: int, up_to: Offset
    ) -> TimestampedOffset | None:
        log.check_readable()
        while True:
            try:
                return await self._find_timestamp(log, timestamp_ms, up_to)
            except LogTruncated:
                up_to = min(up_to, log.durable_offset)

    async def _find_timestamp(
        self, log: TieredLog, timestamp_ms: int, up_to: Offset
    ) -> TimestampedOffset | None:
        truncations = log.truncations
        place: Offset | None = log.start_offset
        while place is not None and place < (limit := _cold_end(log, up_to)):
            chunk = await self._cold.find_time(log, timestamp_ms, first=place, up_to=limit)
            if log.truncations != truncations:
                raise LogTruncated(f"{log} was truncated meanwhile")
            place = None if chunk is None else Offset(chunk.name.next_offset)
            batches = [] if chunk is None else batches_of(chunk, log=log)
            if (found := await _find_among(log, batches, timestamp_ms, limit)) is not None:
                return found
        tail = [entry.batch for entry in log.tail.entries_from(max(log.start_offset, _cold_end(log, up_to)))]
        return await _find_among(log, tail, timestamp_ms, up_to)


def _read_tail(log: TieredLog, offset: Offset, bytes_max: int, up_to: Offset) -> Slice | None:
    if not log.start_offset <= offset <= log.end_offset:
        raise OffsetOutOfRange(offset, start=log.start_offset, end=min(up_to, log.end_offset))
    log.check_readable()
    if offset >= up_to or offset == log.end_offset:
        return Slice(offset, (), 0)
    first = log.tail.first_offset
    if first is not None and offset >= first:
        return log.tail.read(offset, bytes_max=bytes_max, up_to=min(up_to, log.end_offset))
    return None


def _cold_end(log: TieredLog, up_to: Offset) -> Offset:
    """Where chunks are not asked any more: the tail begins, or the limit is reached."""
    first = log.tail.first_offset
    return min(up_to, log.durable_offset if first is None else Offset(first))


def _cut(batches: Sequence[Batch], offset: Offset, bytes_max: int, up_to: Offset) -> Slice:
    """Whole batches below `up_to` from the one that holds `offset`; if there is none, an empty slice."""
    place = bisect_left(batches, offset, key=lambda batch: batch.last_offset)
    size, next_offset = 0, offset
    parts: list[memoryview] = []
    for batch in batches[place:]:
        if batch.next_offset > up_to or (size and size + batch.size > bytes_max):
            break
        parts.append(batch.data)
        size += batch.size
        next_offset = batch.next_offset
    if not parts:
        return Slice(Offset(max(offset, up_to)), (), 0)
    return Slice(next_offset, [MemoryExtent(parts, size)], size)


async def _find_among(
    log: TieredLog, batches: Sequence[Batch], timestamp_ms: int, up_to: Offset
) -> TimestampedOffset | None:
    for batch in batches:
        if batch.next_offset > up_to:
            return None
        if batch.max_timestamp >= timestamp_ms and batch.next_offset > log.start_offset:
            found = await find_record_at(batch, timestamp_ms, start=log.start_offset)
            if found is not None:
                return TimestampedOffset(*found)
    return None
