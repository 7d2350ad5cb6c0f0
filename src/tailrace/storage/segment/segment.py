"""One segment file: batches one after the other, and the index that finds and proves them.

Reading is planned by the index alone wherever a span begins with the offset asked for, which a reader that
goes on where it stopped always meets; else one span is walked. The bytes come later, an extent at a time,
into pooled buffers, and are checked before anybody sees them.

A reader holds the file object it planned with. Removing or replacing a segment takes its name away, and the
last reader closes the file: nothing is pulled from under anybody.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.model import LogDamaged, LogTruncated, Offset
from tailrace.records import iter_batches
from tailrace.runtime import BufferPool, File, SyncError
from tailrace.storage.api import Slice
from tailrace.storage.segment.index import IndexState, SpanIndex

if TYPE_CHECKING:
    from tailrace.storage.encryption.keyring import LogCipher

_BULK_BYTES = 1 << 20


class Segment:
    """A segment of one log, as far as it was applied."""

    __slots__ = (
        "_sync_error",
        "_syncing",
        "base",
        "cipher",
        "cuts",
        "file",
        "gone",
        "index",
        "length",
        "path",
        "persisted",
        "persisted_whole",
        "reserved",
        "sealed",
        "unsynced_bytes",
        "written_ms",
    )

    def __init__(
        self,
        base: int,
        path: str,
        file: File | None,
        index: SpanIndex | None,
        written_ms: int,
        cipher: LogCipher | None = None,
    ) -> None:
        self.base = base
        self.path = path
        self.cipher = cipher  # None: the directory has no keys
        self.file = file  # None: closed for now
        self.index = index  # None: not in memory for now
        self.length = index.end if index is not None else 0
        self.written_ms = written_ms  # last applied to, or adopted by a recovery: files do not tell
        self.sealed = False
        self.gone = False  # its names were taken away
        self.cuts = index.cuts if index is not None else 0  # truncations; an index with fewer is outdated
        self.persisted = IndexState()  # of the index files
        self.reserved = 0  # space is there up to this position
        self.unsynced_bytes = 0
        self._syncing = asyncio.Lock()
        self._sync_error: SyncError | None = None
        self.persisted_whole = False  # sealed, and its index files complete

    def __repr__(self) -> str:
        state = "sealed" if self.sealed else "active"
        return f"<Segment {self.path} {self.length} bytes {state}>"

    async def sync(self, *, bulk: bool = False) -> None:
        """Make the segment file durable.

        One at a time: of two syncs under way only one may be told of a failure, and the other would believe
        that it succeeded. After a failure there is no other sync of this file.
        """
        assert self.file is not None
        async with self._syncing:
            if self._sync_error is not None:
                raise self._sync_error
            unsynced, self.unsynced_bytes = self.unsynced_bytes, 0
            try:
                await self.file.sync(bulk=bulk or unsynced > _BULK_BYTES)
            except SyncError as error:
                self._sync_error = error
                raise

    @property
    def newest_ms(self) -> int:
        """Time of its newest record, which must be known; of its last write if none carries a timestamp."""
        assert self.index is not None
        return self.index.max_timestamp if self.index.max_timestamp >= 0 else self.written_ms

    @property
    def ready(self) -> bool:
        """Whether a read can be planned without the disk."""
        return self.index is not None and self.file is not None


@dataclass(slots=True)
class ReadPlan:
    """Spans `first` to `last` - 1 of a segment, without `skip` bytes in front and up to `size` after them.

    Both count the bytes that readers get.
    """

    file: File
    index: SpanIndex
    segment: Segment
    first: int
    last: int
    skip: int
    size: int
    next_offset: int


class FileExtent:
    """A run of whole spans of a segment file, read and checked on demand."""

    __slots__ = ("_buffer", "_plan", "_pool", "size")

    def __init__(self, plan: ReadPlan, pool: BufferPool) -> None:
        self.size = plan.size
        self._plan = plan
        self._pool = pool
        self._buffer: memoryview | None = None

    def load_nowait(self) -> memoryview | None:
        begin, buffer, whole = self._prepare()
        try:
            done = self._plan.file.read_nowait(begin, whole)
        except OSError:
            done = None  # `load` meets it again, and tells
        if done is None:
            self._pool.give(buffer)
            return None
        return self._checked(buffer, whole, done)

    async def load(self) -> memoryview:
        if (found := self.load_nowait()) is not None:
            return found
        begin, buffer, whole = self._prepare()
        try:
            done = await self._plan.file.read(begin, whole)
        except OSError as error:
            raise LogDamaged(f"{self._plan.segment.path} cannot be read: {error.strerror}") from error
        return self._checked(buffer, whole, done)

    def release(self) -> None:
        if self._buffer is not None:
            self._pool.give(self._buffer)
            self._buffer = None

    def _prepare(self) -> tuple[int, memoryview, memoryview]:
        """Where the spans begin, a buffer, and as much of it as they fill."""
        plan = self._plan
        positions = plan.index.positions
        begin = positions[plan.first]
        size = positions[plan.last] - begin
        buffer = self._pool.take(size)
        return begin, buffer, buffer[:size]

    def _checked(self, buffer: memoryview, whole: memoryview, done: int) -> memoryview:
        plan = self._plan
        bad = plan.first if done < len(whole) else plan.index.check(plan.first, plan.last, whole)
        if bad is not None:
            self._pool.give(buffer)
            if plan.segment.gone or plan.segment.cuts != plan.index.cuts:
                raise LogTruncated(f"{plan.segment.path} was truncated while it was read")
            raise damaged_span(plan.segment, plan.index, bad)
        if plan.index.encrypted:
            whole = self._decrypted(buffer, whole)
        else:
            self._buffer = buffer
        if plan.size == len(whole):
            return whole
        return whole[plan.skip : plan.skip + plan.size]

    def _decrypted(self, buffer: memoryview, whole: memoryview) -> memoryview:
        plan = self._plan
        index, cipher = plan.index, plan.segment.cipher
        try:
            if cipher is None:
                raise LogDamaged(f"{plan.segment.path} is encrypted, and there is no key")
            first, end = index.offsets[plan.first] + index.base, index.offsets[plan.last] + index.base
            return cipher.decrypt_run(whole, index.base, first=first, end=end)
        finally:
            self._pool.give(buffer)


def damaged_span(segment: Segment, index: SpanIndex, span: int) -> LogDamaged:
    """The error that names what cannot be read."""
    first, last = index.offsets[span] + segment.base, index.offsets[span + 1] + segment.base - 1
    return LogDamaged(
        f"{segment.path}: bytes {index.positions[span]} to {index.positions[span + 1] - 1} (offsets {first} "
        f"to {last}) are not what was written. They are kept and not served; "
        "tailrace log verify shows the extent"
    )


def check_follows(before: Segment | None, segment: Segment, offset: int) -> None:
    """Whether `segment` is where a search for `offset` goes on after `before`, or begins.

    A sealed segment knows where the next one begins, and no offset lies before the first one: else a file is
    missing.
    """
    missing = None
    if before is None:
        missing = offset if segment.base > offset else None
    elif before.index is not None and (before.index.following or 0) < segment.base:
        missing = before.index.following  # an earlier base is that of a truncation into a gap
    if missing is not None:
        raise LogDamaged(
            f"{segment.path} is there, and the segment before it that holds offset {missing} is missing. "
            "Restore it from a copy"
        )


def plan_read(segment: Segment, offset: int, *, bytes_max: int, limit: int) -> ReadPlan | None:
    """Spans from `offset` up to the offset `limit`; None if the segment holds nothing there.

    The plan may begin before `offset` or be larger than `bytes_max`: `needs_walk` tells, and `walk` mends it.
    """
    index, file = segment.index, segment.file
    assert index is not None and file is not None
    first = index.span_of(offset)
    if first >= len(index) or index.offsets[first] >= limit - segment.base:
        return None
    begin = index.plain[first]
    last = bisect_right(index.plain, begin + bytes_max, first) - 1
    if index.offsets[last] > limit - segment.base:
        last = bisect_right(index.offsets, limit - segment.base, first, last) - 1
    last = max(last, first + 1)
    size = index.plain[last] - begin
    return ReadPlan(file, index, segment, first, last, 0, size, index.offsets[last] + segment.base)


def needs_walk(plan: ReadPlan, offset: int, *, bytes_max: int, limit: int) -> bool:
    """Whether the plan's edges lie inside a span."""
    index = plan.index
    starts_before = index.offsets[plan.first] + index.base != offset and not index.singles[plan.first + 1]
    too_far = plan.next_offset > limit or (plan.size > bytes_max and not index.singles[plan.first + 1])
    return starts_before or too_far


def walk(plan: ReadPlan, offset: int, span: memoryview, *, bytes_max: int, limit: int) -> ReadPlan | None:
    """Mend a plan with the bytes of its first span; None if nothing of that span is wanted."""
    position, batches = 0, []
    for batch in iter_batches(span):
        if batch.next_offset > offset and batch.next_offset <= limit:
            batches.append((position, batch.size, batch.next_offset))
        position += batch.size
    if not batches:
        return None
    skip = batches[0][0]
    if plan.last > plan.first + 1 or (plan.next_offset <= limit and plan.size - skip <= bytes_max):
        return ReadPlan(
            plan.file,
            plan.index,
            plan.segment,
            plan.first,
            plan.last,
            skip,
            plan.size - skip,
            plan.next_offset,
        )
    size, next_offset = 0, 0
    for _, length, following in batches:
        if size and size + length > bytes_max:
            break
        size, next_offset = size + length, following
    return ReadPlan(plan.file, plan.index, plan.segment, plan.first, plan.first + 1, skip, size, next_offset)


def slice_of(plan: ReadPlan, pool: BufferPool, *, piece_bytes_max: int) -> Slice:
    """The plan as extents of at most `piece_bytes_max` each, or one span if that is larger."""
    extents: list[FileExtent] = []
    index, first, skip, left = plan.index, plan.first, plan.skip, plan.size
    while first < plan.last:
        begin = index.plain[first]
        last = max(bisect_right(index.plain, begin + piece_bytes_max, first, plan.last + 1) - 1, first + 1)
        size = min(index.plain[last] - begin - skip, left)
        piece = ReadPlan(plan.file, index, plan.segment, first, last, skip, size, plan.next_offset)
        extents.append(FileExtent(piece, pool))
        first, skip, left = last, 0, left - size
    return Slice(Offset(plan.next_offset), extents, plan.size)
