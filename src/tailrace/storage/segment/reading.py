"""Reading one log: from the tail in memory, else from the segment files.

How a read finds its bytes is written once, as a generator that asks for what it lacks (`_find`); the two
readers only differ in how they get it. The files are read up to where the tail begins.

A reader that waits for the disk may meet a truncation, after which other batches take the offsets below its
limit. It then starts again, and ends at the durable end: its limit was said of batches that are gone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from typing import TYPE_CHECKING

from tailrace.model import LogDamaged, LogTruncated, Offset, OffsetOutOfRange
from tailrace.records import iter_batches
from tailrace.storage.api import Slice, TimestampedOffset
from tailrace.storage.encryption.layout import OVERHEAD_BYTES
from tailrace.storage.opening import find_record_at
from tailrace.storage.segment.directory import SHORTAGES, Directory
from tailrace.storage.segment.segment import (
    FileExtent,
    ReadPlan,
    Segment,
    check_follows,
    needs_walk,
    plan_read,
    slice_of,
    walk,
)
from tailrace.storage.segment.shape import OFFSET_MAX

if TYPE_CHECKING:
    from tailrace.storage.segment.log import SegmentLog

_SCAN_BYTES = 1 << 20

Step = Segment | FileExtent
"""What `_find` asks for: a segment to be opened, or an extent to be loaded."""


class SegmentGone(LogTruncated):
    """Retention or a truncation removed a segment before it could be opened."""


class LogReader:
    """Finds batches of one log by offset and by time."""

    def __init__(self, log: SegmentLog, directory: Directory) -> None:
        self._log = log
        self._directory = directory

    def read_nowait(self, offset: Offset, bytes_max: int, up_to: Offset) -> Slice | None:
        hot = self._read_tail(offset, bytes_max, up_to) or self._read_on(offset, bytes_max, up_to)
        if hot is not None:
            return hot
        steps = self._find(offset, bytes_max, up_to)
        try:
            step = next(steps)
            while isinstance(step, FileExtent) and (found := step.load_nowait()) is not None:
                step = steps.send(found)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        return None

    async def read(self, offset: Offset, bytes_max: int, up_to: Offset) -> Slice:
        log = self._log
        while True:
            hot = self._read_tail(offset, bytes_max, up_to)
            if hot is not None:
                return hot
            truncations, found = log.truncations, None
            steps = self._find(offset, bytes_max, up_to)
            try:
                step = next(steps)
                while True:
                    step = steps.send(await self._fulfil(step))
            except StopIteration as end:
                found = end.value
            except SegmentGone:
                pass  # a trim came first: then the offset is out of range now
            if log.truncations != truncations:
                up_to = min(up_to, log.durable_offset)
            elif found is not None:
                return found  # type: ignore[no-any-return]

    def _read_tail(self, offset: Offset, bytes_max: int, up_to: Offset) -> Slice | None:
        log = self._log
        if not log.start_offset <= offset <= log.end_offset:
            raise OffsetOutOfRange(offset, start=log.start_offset, end=min(up_to, log.end_offset))
        log.check_readable()
        if offset >= up_to or offset == log.end_offset:
            return Slice(offset, (), 0)
        first = log.tail.first_offset
        if first is not None and offset >= first:
            return self._from_tail(offset, bytes_max, up_to)
        return None

    def _from_tail(self, offset: int, bytes_max: int, up_to: int) -> Slice:
        """The slice at `offset` out of the tail; where it leaves a gap to `up_to`, a reader goes on there."""
        return self._log.tail.read(offset, bytes_max=bytes_max, up_to=min(up_to, self._log.end_offset))

    def _read_on(self, offset: int, bytes_max: int, up_to: int) -> Slice | None:
        """The common case of `_find`: a reader goes on where it stopped, in an open segment."""
        bases = list(self._log.segments)
        place = bisect_right(bases, offset)
        if place == 0 or not (segment := self._log.segments[bases[place - 1]]).ready:
            return None
        limit = self._files_limit(up_to)
        if place < len(bases):
            limit = min(limit, bases[place])
        plan = plan_read(segment, offset, bytes_max=bytes_max, limit=limit)
        if plan is None or needs_walk(plan, offset, bytes_max=bytes_max, limit=limit):
            return None
        self._directory.cache.touch(segment)
        return self._slice(plan)

    async def _fulfil(self, step: Step) -> memoryview | None:
        if isinstance(step, FileExtent):
            return await step.load()
        try:
            await self._directory.cache.open(step, interval_bytes=self._log.config.index_interval_bytes)
        except FileNotFoundError as error:
            if step.gone:
                raise SegmentGone(f"{step.path} was removed while it was read") from error
            raise LogDamaged(f"{step.path} is missing. Restore it from a copy") from error
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            raise LogDamaged(f"{step.path} cannot be read: {error.strerror}") from error
        return None

    def _find(self, offset: int, bytes_max: int, up_to: int) -> Generator[Step, memoryview | None, Slice]:
        """The slice at `offset` out of the segment files, which end where the tail begins."""
        wanted, limit = offset, self._files_limit(up_to)
        before: Segment | None = None
        for segment, following in self._segments_from(offset):
            if not (self._log.unapplied or segment.gone):  # else the files are changing, or have changed
                check_follows(before, segment, offset)
            if segment.base >= limit:
                break  # it holds nothing below, and a truncation may be about to remove it
            while not segment.ready:
                yield segment
            before = segment
            self._directory.cache.touch(segment)
            end = min(limit, following)
            plan = plan_read(segment, offset, bytes_max=bytes_max, limit=end)
            while plan is not None:
                if not needs_walk(plan, offset, bytes_max=bytes_max, limit=end):
                    return self._slice(plan)
                walked = yield from self._walk(plan, offset, bytes_max, end)
                if walked is not None:
                    return self._slice(walked)
                offset = min(plan.index.offsets[plan.first + 1] + segment.base, end)
                plan = plan_read(segment, offset, bytes_max=bytes_max, limit=end) if offset < end else None
        # Compaction left nothing between here and the tail, which may begin later by now, or even the end.
        if self._files_limit(up_to) > limit:
            return (yield from self._find(wanted, bytes_max, up_to))
        return self._from_tail(max(wanted, min(limit, self._log.end_offset)), bytes_max, up_to)

    def _walk(
        self, plan: ReadPlan, offset: int, bytes_max: int, limit: int
    ) -> Generator[Step, memoryview | None, ReadPlan | None]:
        whole = plan.index.plain[plan.first + 1] - plan.index.plain[plan.first]
        span = ReadPlan(plan.file, plan.index, plan.segment, plan.first, plan.first + 1, 0, whole, 0)
        extent = FileExtent(span, self._directory.pool)
        data = yield extent
        assert data is not None
        walked = walk(plan, offset, data, bytes_max=bytes_max, limit=limit)
        extent.release()
        return walked

    def _slice(self, plan: ReadPlan) -> Slice:
        return slice_of(plan, self._directory.pool, piece_bytes_max=self._directory.config.slow_read_bytes)

    def _files_limit(self, up_to: int) -> int:
        """Up to here the files are read: not into what the tail holds, nor what a truncation will take."""
        log = self._log
        limit = min(up_to, log.end_offset, log.applied_cut)
        first = log.tail.first_offset
        return limit if first is None else min(first, limit)

    def _segments_from(self, offset: int) -> list[tuple[Segment, int]]:
        """The segments that may hold `offset` or what follows it, each with the base of the following one.

        Its last span may claim more, where a truncation ended in the gap behind it.
        """
        bases = list(self._log.segments)
        bases = bases[max(bisect_right(bases, offset) - 1, 0) :]
        ends = [*bases[1:], OFFSET_MAX]
        return [(self._log.segments[base], end) for base, end in zip(bases, ends, strict=False)]

    async def find_timestamp(self, timestamp_ms: int, up_to: Offset) -> TimestampedOffset | None:
        log = self._log
        while True:
            truncations = log.truncations
            try:
                found = await self._search_time(timestamp_ms, up_to)
            except SegmentGone:
                continue  # a trim came first: search what is left
            if log.truncations == truncations:
                return found
            up_to = min(up_to, log.durable_offset)

    async def _search_time(self, timestamp_ms: int, up_to: Offset) -> TimestampedOffset | None:
        self._log.check_readable()
        in_memory = self._log.tail.first_offset  # now: batches may leave memory while the files are searched
        for segment, _ in self._segments_from(self._log.start_offset):
            if segment.base >= self._files_limit(up_to):
                break
            while not segment.ready:
                await self._fulfil(segment)
            index = segment.index
            assert index is not None
            span = index.span_at_time(timestamp_ms)
            if span < len(index):
                place = index.offsets[span] + segment.base
                if place >= self._files_limit(up_to):
                    in_memory = place if in_memory is None else min(in_memory, place)
                    break
                found = await self._scan_for_time(place, timestamp_ms, up_to)
                if found is not None:
                    return found
        return await self._scan_for_time(in_memory, timestamp_ms, up_to)

    async def _scan_for_time(
        self, offset: int | None, timestamp_ms: int, up_to: Offset
    ) -> TimestampedOffset | None:
        if offset is None:
            return None
        place = Offset(offset)
        while (place := max(place, self._log.start_offset)) < min(up_to, self._log.end_offset):
            try:
                piece = await self.read(place, _SCAN_BYTES, up_to)
            except OffsetOutOfRange:
                continue  # it was trimmed meanwhile: go on where the log begins now
            for batch in iter_batches(await piece.load()):
                if batch.max_timestamp >= timestamp_ms and (
                    found := await find_record_at(batch, timestamp_ms, start=self._log.start_offset)
                ):
                    return TimestampedOffset(*found)
            if piece.next_offset <= place:
                return None  # a truncation took the rest
            place = piece.next_offset
        return None

    async def locate(self, offset: Offset) -> tuple[int, int, Offset]:
        """Segment and position of the batch that holds `offset` or is the first after it, and the new end."""
        first = self._log.tail.first_offset
        if first is None or offset < first:
            for segment, _ in self._segments_from(offset):
                if segment.base >= self._files_limit(self._log.end_offset):
                    break
                while not segment.ready:
                    await self._fulfil(segment)
                found = await self._locate_in(segment, offset)
                if found is not None:
                    return found
        for entry in self._log.tail.entries_from(offset):
            return entry.segment, entry.position, min(offset, entry.batch.base_offset)
        return *self._log.next_place, offset

    async def _locate_in(self, segment: Segment, offset: Offset) -> tuple[int, int, Offset] | None:
        index, file = segment.index, segment.file
        assert index is not None and file is not None
        limit = self._files_limit(self._log.end_offset)
        for span in range(index.span_of(offset), len(index)):
            position, size = index.positions[span], index.plain[span + 1] - index.plain[span]
            extent = FileExtent(
                ReadPlan(file, index, segment, span, span + 1, 0, size, 0), self._directory.pool
            )
            for batch in iter_batches(await extent.load()):
                if batch.base_offset >= limit:
                    return None
                if batch.next_offset > offset:
                    return segment.base, position, min(offset, batch.base_offset)
                position += batch.size + (OVERHEAD_BYTES if index.encrypted else 0)
        return None
