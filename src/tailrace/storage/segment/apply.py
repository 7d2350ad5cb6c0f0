"""The applier: the segment files follow the journal, in its order, a little behind.

Batches that were journalled inline are gathered and written to their segments in large pieces; those written
by reference are there already. What is applied is added to the index and may leave the tail. Create, truncate
and delete sync what they did before the next entry of that partition. Nobody waits for this work but the
checkpoint, which lets the journal be used again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from tailrace.model import LogDamaged, StorageError
from tailrace.records import iter_batches
from tailrace.runtime import SyncError, for_each
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.entry import REFERENCED, Append, Create, Delete, Entry, Trim, Truncate
from tailrace.storage.segment.files import create_segment, prepare_segment
from tailrace.storage.segment.label import put_label
from tailrace.storage.segment.names import DELETED, SEGMENT_SUFFIXES, numbered
from tailrace.storage.segment.segment import Segment
from tailrace.storage.segment.shape import wholly_below

if TYPE_CHECKING:
    from tailrace.storage.segment.log import SegmentLog

logger = logging.getLogger(__name__)

_RETRY_S = 0.1
_CREATED_AT_ONCE = 8
_LABELS_AT_ONCE = 32

Pending = dict[int, list[Append]]
"""Appends not yet written, by life."""


class Applier:
    """Follows the journal."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._rounds: deque[tuple[int, list[Entry]]] = deque()
        self._bytes = 0
        self._urgent = False
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._progress = asyncio.Event()  # set and cleared at once, when rounds were applied
        self.dirty: dict[Segment, None] = {}  # written since the last checkpoint took them

    def push(self, lsn: int, entries: list[Entry], size: int) -> None:
        """A round is durable; apply it when enough has come together, or soon."""
        self._rounds.append((lsn, entries))
        self._bytes += size
        self._idle.clear()
        if self._urgent or self._bytes >= self._directory.config.apply_bytes or not size:
            self._wake.set()
        elif self._timer is None:
            delay_s = self._directory.config.apply_delay_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)

    async def wait_applied(self) -> None:
        """Return when everything durable is applied."""
        self._urgent = True
        try:
            while self._rounds:
                self._wake.set()
                await self._idle.wait()
        finally:
            self._urgent = False

    async def wait_applied_to(self, lsn: int) -> None:
        """Return when every round up to `lsn` is applied, whatever is appended meanwhile."""
        while self._directory.applied_lsn < lsn:
            self._wake.set()
            await self._progress.wait()

    async def run(self) -> None:
        """Apply for ever; an error ends the directory."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            async with self._directory.apply_lock:
                await self._apply_all()
                await self._write_labels(count_max=_LABELS_AT_ONCE)
            self._progress.set()
            self._progress.clear()
            if not self._rounds:
                self._idle.set()

    async def _apply_all(self) -> None:
        pending: Pending = {}
        lsn = self._directory.applied_lsn
        count = len(self._rounds)
        self._bytes = 0
        creations: list[SegmentLog] = []
        for lsn, entries in list(self._rounds):
            for entry in entries:
                if isinstance(entry, Append):
                    pending.setdefault(entry.life, []).append(entry)
                elif isinstance(entry, Create):
                    creations.append(self._directory.logs[entry.life])
                else:
                    await self._create_all(creations)
                    await self._flush(pending.pop(entry.life, []))
                    await self._apply_control(entry, lsn)
        await self._create_all(creations)
        for appends in pending.values():
            await self._flush(appends)
        for _ in range(count):
            self._rounds.popleft()
        self._directory.applied_lsn = lsn
        self._directory.evict_tails()

    def write_labels_soon(self) -> None:
        """There are labels to write; those of logs that are not created yet wait for that."""
        self._wake.set()

    async def write_labels(self) -> None:
        """Write all labels of logs that are created."""
        async with self._directory.apply_lock:
            await self._write_labels(count_max=len(self._directory.labels))

    async def _write_labels(self, *, count_max: int) -> None:
        """Under the lock, so that no directory is removed meanwhile; bounded, so that no round waits long."""
        directory = self._directory
        logs = [(life, directory.logs.get(life)) for life in directory.labels]
        for life, log in logs:
            if log is None:
                del directory.labels[life]
        ready = [log for _, log in logs if log is not None and log.applied_segment is not None]
        for log in ready[:count_max]:
            await put_label(directory.disk, log.path, directory.labels.pop(log.life))
        if len(ready) > count_max:
            self._wake.set()

    # ---- appends

    async def _flush(self, appends: list[Append]) -> None:
        """Write one partition's batches, segment by segment, and take note of them."""
        start = 0
        while start < len(appends):
            base, end = appends[start].segment, start + 1
            while end < len(appends) and appends[end].segment == base:
                end += 1
            await self._flush_segment(base, appends[start:end])
            start = end

    async def _flush_segment(self, base: int, appends: list[Append]) -> None:
        log = self._directory.logs[appends[0].life]
        run: list[Append] = []
        for append in appends:
            if append.flags & REFERENCED:
                if run:
                    await self._write(log, run)
                    run = []
            else:
                run.append(append)
        await self._write(log, run)
        segment = log.segments[base]
        if segment is not log.applied_segment:
            await self._seal_before(log, segment)
        self.dirty[segment] = None
        log.take_applied(segment, appends)
        self._directory.evictable[log.life] = None
        if log.fsync.awaited and segment.unsynced_bytes >= self._directory.config.sync_piece_bytes:
            await segment.sync(bulk=True)

    async def _write(self, log: SegmentLog, run: list[Append]) -> None:
        """Write batches that lie one after the other. The journal has them, so a full disk is waited out."""
        if not run:
            return
        first, last = run[0], run[-1]
        end = last.position + last.stored.size
        buffers = [append.stored.data for append in run]
        while True:
            try:
                segment = await prepare_segment(self._directory, log, first.segment, end)
                assert segment.file is not None
                self.dirty[segment] = None
                segment.unsynced_bytes += end - first.position
                await segment.file.write(first.position, buffers)
                return
            except SyncError:
                raise
            except OSError as error:
                self._directory.wait_out(error, log.path)
            await asyncio.sleep(_RETRY_S)
            self._directory.check_space()

    async def _seal_before(self, log: SegmentLog, segment: Segment) -> None:
        """A segment begins: the ones before it are complete."""
        for older, following in pairwise(list(log.segments.values())):
            if older is segment:
                return
            if not older.sealed:
                assert older.index is not None and older.file is not None
                older.index.seal(following.base)
                older.sealed = True
                self.dirty[older] = None
                await older.file.truncate(older.length)  # gives back what was reserved and not used

    # ---- the other entries

    async def _apply_control(self, entry: Entry, lsn: int) -> None:
        log = self._directory.logs[entry.life]
        while log.compaction is not None:
            await asyncio.shield(log.compaction)
        if isinstance(entry, Truncate):
            log.cut_lsn = lsn
            for cut in self._directory.cuts.values():
                cut.spoiled = True  # a truncation shortens files in place, and the cut has links to them
            await self._truncate(log, entry)
        elif isinstance(entry, Trim):
            await self._trim(log, entry)
        elif isinstance(entry, Delete):
            await self._delete(log)
        log.unapplied -= 1
        if log.life in self._directory.logs:
            self._directory.evictable[log.life] = None

    async def _create_all(self, creations: list[SegmentLog]) -> None:
        """Topics come with many partitions: a few at a time, and one sync for all of their names."""
        if not creations:
            return
        await for_each(creations, self._create, at_once=_CREATED_AT_ONCE)
        await self._directory.disk.sync_directory("")
        for log in creations:
            log.unapplied -= 1
        creations.clear()

    async def _create(self, log: SegmentLog) -> None:
        await self._directory.disk.make_directory(log.path)
        log.applied_segment = await create_segment(self._directory, log, 0)

    async def _truncate(self, log: SegmentLog, entry: Truncate) -> None:
        disk = self._directory.disk
        for base in [base for base in log.segments if base > entry.segment]:
            self.dirty.pop(log.segments[base], None)
            await remove_segment(self._directory, log, base)
        segment = log.segments.get(entry.segment)
        if segment is None:
            segment = await create_segment(self._directory, log, entry.segment)
        else:
            await self._cut(log, segment, entry)
        async with log.snapshot_lock:
            for offset in await self._directory.snapshots.offsets(log.path):
                if offset > entry.offset:
                    await disk.remove(f"{log.path}/{numbered(offset, 'snapshot')}")
        await segment.sync()
        await disk.sync_directory(log.path)
        log.take_truncated(segment, entry)

    async def _cut(self, log: SegmentLog, segment: Segment, entry: Truncate) -> None:
        """Shorten a segment; what stays of its last span is open again, so it goes back into the tail."""
        await self._directory.cache.open(segment, interval_bytes=log.config.index_interval_bytes)
        file, position = segment.file, entry.position
        assert segment.index is not None and file is not None
        if position < segment.length or segment.sealed:
            index = segment.index.cut(position, offset=entry.offset)
            # All of this before anything is waited for. Were the cache to close it meanwhile, a reader would
            # open it by index files that hold what is cut off, and put theirs over the one made here. And
            # spans are yet to be added that the index files do not hold.
            self._directory.cache.forget(segment)
            segment.sealed = segment.persisted_whole = False
            segment.persisted = segment.persisted.cut(index)
            segment.cuts = index.cuts
            opened = await read_open_span(log.life, segment, index.closed_position, position)
            for append in opened:
                index.add(append.stored)
                log.decrypt_entry(append)
            # By now the log may have been cut shorter, or have grown again from an earlier offset, or both:
            # then what grew may begin behind a gap, and only the cut says what is undone.
            first = log.end_offset if log.tail.first_offset is None else log.tail.first_offset
            first = min(first, log.applied_cut)
            again = [append for append in opened if append.batch.next_offset <= first]
            before = log.tail.bytes
            log.tail.put_back(again)
            self._directory.tail_bytes += log.tail.bytes - before
            segment.index, segment.length = index, position
            segment.reserved = position
            await file.truncate(position)
        self.dirty[segment] = None

    async def _trim(self, log: SegmentLog, entry: Trim) -> None:
        if entry.segment >= 0 and entry.segment not in log.segments:
            segment = await create_segment(self._directory, log, entry.segment)
            await self._seal_before(log, segment)
            log.applied_segment = segment
        log.take_trimmed(entry)
        for base in wholly_below(log.segments, entry.offset):
            self.dirty.pop(log.segments[base], None)
            await remove_segment(self._directory, log, base)

    async def _delete(self, log: SegmentLog) -> None:
        del self._directory.logs[log.life]
        self._directory.evictable.pop(log.life, None)
        self._directory.tail_bytes -= log.tail.bytes
        log.tail.clear()  # now: the log is part of a cycle, and its megabytes would wait for the collector
        for segment in log.segments.values():
            segment.gone = True
            self.dirty.pop(segment, None)
            self._directory.cache.forget(segment)
        log.segments = {}  # the last reader closes the files; nobody else holds them
        log.applied_segment = None
        await remove_partition(self._directory, log.path)


async def remove_segment(directory: Directory, log: SegmentLog, base: int) -> None:
    """Take a segment's names away; whoever reads it still has the file."""
    segment = log.segments.pop(base)
    segment.gone = True
    directory.cache.forget(segment)
    for suffix in SEGMENT_SUFFIXES:
        with suppress(FileNotFoundError):  # one that a checkpoint has not written yet, or has taken back
            await directory.disk.remove(f"{log.path}/{numbered(base, suffix)}")


async def remove_partition(directory: Directory, name: str) -> None:
    """Remove a partition's directory: out of the way first, durably, then piece by piece."""
    disk = directory.disk
    if not name.startswith(DELETED):
        await disk.rename(name, DELETED + name)
        await disk.sync_directory("")
        name = DELETED + name
    for file in await disk.list(name):
        await disk.remove(f"{name}/{file}")
    await disk.remove(name)


async def read_open_span(life: int, segment: Segment, begin: int, end: int) -> list[Append]:
    """The batches between two positions, each with its place, checked by their own CRCs."""
    assert segment.file is not None
    data = bytearray(end - begin)
    done = await segment.file.read(begin, memoryview(data))
    found: list[Append] = []
    position = begin
    for batch in iter_batches(memoryview(data)[:done]):
        if not batch.check_crc():
            raise LogDamaged(f"{segment.path}: the batch at byte {position} is not what was written")
        found.append(Append(life, batch, segment.base, position))
        position += batch.size
    if position != end:
        raise StorageError("read", segment.path, f"ends at byte {position} where {end} was acknowledged")
    return found
