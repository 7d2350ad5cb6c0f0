"""Checkpoints: the moment from which the journal is not needed any more.

Between two applied rounds the LSN and the shape of every partition are taken; then everything the sample
speaks of is synced (segments, indexes, lists of aborted transactions, snapshots); then CHECKPOINT is
replaced, and its copy; then journal files that lie wholly below it may be used again. Taking the sample after
the syncs instead would promise bytes that were not synced.

A new journal file is created here too, because it may hold rounds only once a checkpoint lists it: so a
journal file that goes missing is noticed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tailrace.records import crc32c
from tailrace.runtime import SyncError, for_each, wait_at_most
from tailrace.storage.segment.aborted_file import bases_with_aborted, save_aborted
from tailrace.storage.segment.apply import Applier
from tailrace.storage.segment.checkpoint import NONE, Checkpoint, Row
from tailrace.storage.segment.checkpoint_file import write_checkpoint_file
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.index import (
    HEADER_BYTES,
    TIME_ENTRY_BYTES,
    IndexState,
    index_entry_bytes,
    write_footers,
    write_headers,
)
from tailrace.storage.segment.journal import Journal, JournalFile
from tailrace.storage.segment.log import SegmentLog
from tailrace.storage.segment.pace import wait_whole
from tailrace.storage.segment.segment import Segment
from tailrace.storage.segment.snapshot import State, join_snapshot

logger = logging.getLogger(__name__)

_RETRY_S = 0.1
_PACKED_AT_ONCE = 8 * 1024  # bytes of states, after which the loop turns: about 0.2 ms
_AT_ONCE = 8  # files on their way to the disk: one after the other, thousands of partitions took minutes


@dataclass(slots=True)
class IndexWrite:
    """New bytes of the two index files of a segment."""

    segment: Segment
    first: int  # number of the first entry
    places: bytes
    times: bytes
    sealed: IndexState | None
    following: int | None
    cuts: int
    encrypted: bool


@dataclass(slots=True)
class Sample:
    """What a checkpoint will say, and what must be durable before it may."""

    checkpoint: Checkpoint
    logs: list[SegmentLog]
    segments: list[Segment]
    indexes: list[IndexWrite]
    aborted: list[tuple[SegmentLog, int]]  # lists of aborted transactions, by segment
    snapshots: list[tuple[SegmentLog, bytes]]


class Checkpointer:
    """Writes checkpoints when the journal, the time or somebody asks for one."""

    def __init__(self, directory: Directory, journal: Journal, applier: Applier) -> None:
        self._directory = directory
        self._journal = journal
        self._applier = applier
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._is_due = False
        self._new_files: list[JournalFile] = []

    def request_room(self) -> None:
        """The journal is getting full."""
        self._wake.set()

    def request_checkpoint(self) -> None:
        """A recovery would have much to read."""
        self._is_due = True
        self._wake.set()

    async def run(self) -> None:
        """Keep the journal short for ever; an error ends the directory."""
        interval_s = self._directory.config.checkpoint_interval_ms / 1000
        while True:
            if await wait_at_most(self._wake, interval_s):
                self._wake.clear()
                is_due, self._is_due = self._is_due, False
                await (self.checkpoint() if is_due else self.free_journal())
            elif self._directory.applied_lsn > self._directory.checkpointed_lsn:
                await self.checkpoint()

    async def free_journal(self) -> None:
        """Have a journal file that may be used: a new one while few are, else one that a checkpoint frees."""
        async with self._lock:
            if self._journal.reusable(self._directory.checkpointed_lsn) is not None:
                return
            if not await self._grow():
                await self._applier.wait_applied()
            if not await self._checkpoint():
                await asyncio.sleep(_RETRY_S)

    async def checkpoint(self) -> None:
        """Write one now; on a full disk it is left out."""
        async with self._lock:
            await self._checkpoint()

    async def checkpoint_and(self, take: Callable[[Sample], Awaitable[None]]) -> bool:
        """Write a checkpoint, then `take` it before anything else is applied; False if the disk is full."""
        async with self._lock, self._directory.apply_lock:
            sample = self._sample(await self._pack_states())
            if not await self._make_durable(sample):
                return False
            await take(sample)
            return True

    async def recovered(self) -> None:
        """The checkpoint that ends a recovery: without it nothing is served."""
        for log in self._directory.logs.values():
            for segment in log.segments.values():
                if not segment.persisted_whole:
                    self._applier.dirty[segment] = None
        sample = self._sample(await self._pack_states())
        await self._persist(sample)
        await self._passed(sample)

    async def checkpoint_all(self) -> None:
        """Apply everything durable, then write one."""
        await self._applier.wait_applied()
        await self.checkpoint()

    async def _grow(self) -> bool:
        if self._new_files:
            return True  # made before, and only waiting for a checkpoint that lists it
        config = self._directory.config
        bytes_wanted = self._journal.size_bytes + config.journal_file_bytes
        if bytes_wanted > min(
            config.journal_bytes_max, config.checkpoint_bytes + 2 * config.journal_file_bytes
        ):
            return False
        try:
            self._new_files.append(await self._journal.create_file())
        except SyncError:
            raise
        except OSError as error:
            self._directory.wait_out(error, "journal")
            return False
        return True

    async def _checkpoint(self) -> bool:
        async with self._directory.apply_lock:
            sample = self._sample(await self._pack_states())
        return await self._make_durable(sample)

    async def _make_durable(self, sample: Sample) -> bool:
        try:
            # Whole, once it was sampled: what a checkpoint took note of is not taken note of again.
            await wait_whole(self._persist(sample))
        except SyncError:
            raise
        except OSError as error:
            self._put_back(sample)
            self._directory.wait_out(error, "checkpoint")
            return False
        await self._passed(sample)
        return True

    async def _persist(self, sample: Sample) -> None:
        # The segments come first: one whose index is complete may be closed by the cache at any moment.
        await for_each(sample.segments, _sync_segment, at_once=_AT_ONCE)
        await for_each(sample.indexes, self._write_index, at_once=_AT_ONCE)
        await for_each(sample.aborted, self._write_aborted, at_once=_AT_ONCE)
        lsn = sample.checkpoint.lsn
        await for_each(sample.snapshots, partial(self._write_snapshot, lsn=lsn), at_once=_AT_ONCE)
        self._directory.check_fence()
        await write_checkpoint_file(self._directory.disk, sample.checkpoint)
        self._directory.check_fence()

    async def _passed(self, sample: Sample) -> None:
        """The checkpoint is durable: what it freed may be used, what it replaced may go."""
        directory = self._directory
        directory.checkpointed_lsn = sample.checkpoint.lsn
        self._journal.files += self._new_files
        self._new_files = []
        for log, row in zip(sample.logs, sample.checkpoint.rows, strict=True):
            log.checkpoint_segment, log.checkpoint_end = row.segment, row.end
        await for_each(sample.snapshots, self._prune_snapshots, at_once=_AT_ONCE)

    def _put_back(self, sample: Sample) -> None:
        """There was no room: the next checkpoint does all of it again."""
        for segment in sample.segments:
            if segment.persisted_whole:
                continue  # it is done, and the cache may have closed it since
            self._applier.dirty[segment] = None
            segment.persisted, segment.persisted_whole = IndexState(), False
        for log, base in sample.aborted:
            log.unsaved_aborted.add(base)
        for log, _ in sample.snapshots:
            log.state_changed = True

    # ---- the sample: no await, and only between two applied rounds

    async def _pack_states(self) -> dict[SegmentLog, bytes]:
        """The state of every log that changed, in turns with others; the lock keeps it as it is meanwhile."""
        states: dict[SegmentLog, bytes] = {}
        packed = 0
        for log in self._logs_with_files():
            if not _needs_snapshot(log):
                continue
            state = State(log.applied_epochs, log.applied_producers, bases_with_aborted(log))
            number, slices = state.choose_format(), []
            for part in log.applied_producers.write_slices(number):
                slices.append(part)
                packed += len(part)
                if packed >= _PACKED_AT_ONCE:
                    packed = 0
                    await asyncio.sleep(0)
            states[log] = join_snapshot(state, number, slices)
        return states

    def _logs_with_files(self) -> list[SegmentLog]:
        return [log for log in self._directory.logs.values() if log.applied_segment is not None]

    def _sample(self, states: Mapping[SegmentLog, bytes]) -> Sample:
        directory = self._directory
        segments, self._applier.dirty = list(self._applier.dirty), {}
        indexes = [self._sample_index(segment) for segment in segments if segment.index is not None]
        logs = self._logs_with_files()
        aborted = [(log, base) for log in logs for base in _take_unsaved(log)]
        snapshots = [(log, self._sample_state(log, states)) for log in logs if _needs_snapshot(log)]
        numbers = [file.number for file in (*self._journal.files, *self._new_files)]
        checkpoint = Checkpoint(
            format=2 if directory.keyring is not None else 1,
            lsn=directory.applied_lsn,
            next_life=directory.next_life,
            journal_files=tuple(sorted(numbers)),
            rows=tuple(map(row_of, logs)),
        )
        return Sample(checkpoint, logs, segments, indexes, aborted, snapshots)

    def _sample_index(self, segment: Segment) -> IndexWrite:
        index, known = segment.index, segment.persisted
        assert index is not None
        places, times = index.write_entries(known.entries)
        state = IndexState(len(index), crc32c(places, known.index_crc), crc32c(times, known.time_crc))
        segment.persisted = state
        sealed = state if segment.sealed else None
        return IndexWrite(
            segment, known.entries, places, times, sealed, index.following, index.cuts, index.encrypted
        )

    def _sample_state(self, log: SegmentLog, states: Mapping[SegmentLog, bytes]) -> bytes:
        log.state_changed = False
        log.snapshot = log.applied_end
        return states[log]

    # ---- making it durable

    async def _write_index(self, write: IndexWrite) -> None:
        stem = write.segment.path.removesuffix("log")
        headers, footers = write_headers(write.segment.base, encrypted=write.encrypted), (b"", b"")
        if write.sealed is not None:
            assert write.following is not None
            footers = write_footers(write.sealed, write.following)
        try:
            for suffix, size, data, header, footer in (
                ("index", index_entry_bytes(encrypted=write.encrypted), write.places, headers[0], footers[0]),
                ("timeindex", TIME_ENTRY_BYTES, write.times, headers[1], footers[1]),
            ):
                await self._extend(stem + suffix, HEADER_BYTES + write.first * size, data, header, footer)
            await self._directory.disk.sync_directory(stem.rpartition("/")[0])
        except FileNotFoundError:
            return  # the partition was deleted, or the segment trimmed, since the sample was taken
        if write.segment.gone:
            for suffix in ("index", "timeindex"):
                with suppress(FileNotFoundError):
                    await self._directory.disk.remove(stem + suffix)
        elif write.sealed is not None and write.segment.cuts == write.cuts:
            write.segment.persisted_whole = True
            self._directory.cache.admit(write.segment)

    async def _extend(self, path: str, position: int, data: bytes, header: bytes, footer: bytes) -> None:
        disk = self._directory.disk
        if position == HEADER_BYTES:
            file = await disk.create(path)
            position, data = 0, header + data
        else:
            file = await disk.open(path)
        await file.write(position, [data + footer])
        if footer:
            await file.truncate(position + len(data) + len(footer))
        await file.sync()
        file.close()

    async def _write_aborted(self, wanted: tuple[SegmentLog, int]) -> None:
        log, base = wanted
        await save_aborted(self._directory.disk, log, base)

    async def _write_snapshot(self, snapshot: tuple[SegmentLog, bytes], *, lsn: int) -> None:
        """Save one, unless a truncation was applied since: then its offset is another history's."""
        log, data = snapshot
        async with log.snapshot_lock:
            if log.cut_lsn > lsn:
                return
            try:
                await self._directory.snapshots.save(log.path, log.snapshot, data)
            except FileNotFoundError:
                if log.life in self._directory.logs:
                    raise

    async def _prune_snapshots(self, snapshot: tuple[SegmentLog, bytes]) -> None:
        log, _ = snapshot
        async with log.snapshot_lock:
            await self._directory.snapshots.prune(log.path, log.snapshot)


async def _sync_segment(segment: Segment) -> None:
    if segment.file is not None:
        await segment.sync(bulk=True)


def _take_unsaved(log: SegmentLog) -> list[int]:
    """The segments whose lists of aborted transactions are to be written; from now on they count as saved."""
    if not log.unsaved_aborted:
        return []
    bases, log.unsaved_aborted = sorted(log.unsaved_aborted), set()
    return bases


def _needs_snapshot(log: SegmentLog) -> bool:
    """Of a log that never held anything there is nothing to keep, and to make it again costs no reading."""
    return log.state_changed and (log.applied_end > 0 or log.snapshot != NONE)


def row_of(log: SegmentLog) -> Row:
    """What a checkpoint says of a partition, as it was applied."""
    segment = log.applied_segment
    assert segment is not None and segment.index is not None
    return Row(
        life=log.life,
        partition_id=log.partition_id,
        start=log.applied_start,
        end=log.applied_end,
        segment=segment.base,
        length=segment.length,
        index_entries=segment.persisted.entries,
        index_crc=segment.persisted.index_crc,
        time_crc=segment.persisted.time_crc,
        open_crc=segment.index.open_crc,
        snapshot=log.snapshot,
        damaged=log.damaged,
        encrypted=segment.index.encrypted,
    )
