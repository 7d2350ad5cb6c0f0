"""Commit rounds: everything that waited, over all partitions, made durable by one sync of the journal.

One round is in flight at a time. Small batches go into the journal whole. A partition that brings much to a
round has its batches written to their segment first and only proved in the journal, so that they are not
written twice. Nobody is told that anything is durable before the journal is synced; a round whose every
append is loose (fsync = os or interval) is not synced, and durable then means written. Batches of
transactions are never loose: a power cut would take one part of a committed transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailrace.records import CONTROL_BIT, TRANSACTIONAL_BIT
from tailrace.runtime import SyncError
from tailrace.storage.counters import CommitQueue
from tailrace.storage.encryption.keys_file import KEYS
from tailrace.storage.segment.apply import Applier
from tailrace.storage.segment.config import DirectoryConfig
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.entry import (
    ENTRY_BYTES_MAX,
    LOOSE,
    REFERENCED,
    Append,
    Create,
    Delete,
    Entry,
    Truncate,
    write_entry,
)
from tailrace.storage.segment.files import prepare_segment
from tailrace.storage.segment.journal import Journal, write_round

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tailrace.storage.segment.log import SegmentLog

logger = logging.getLogger(__name__)

_OF_TRANSACTIONS = TRANSACTIONAL_BIT | CONTROL_BIT
_GATHER_S_MAX = 0.000_25
_GATHER_QUIET_S = 0.000_06
_ROUNDS_AVERAGED = 8
_GATHER_TURNS_MAX = 64
_RETRY_S = 0.1


@dataclass(slots=True)
class Reference:
    """Appends of one partition that lie one after the other in one segment."""

    life: int
    segment: int
    appends: list[Append] = field(default_factory=list)


@dataclass(slots=True)
class CommitPlan:
    """What a round does."""

    references: list[Reference]
    sync: bool  # whether anybody waits for the sync
    owing: list[SegmentLog]  # waits for it now, and has segments from a time when it did not


def plan_commit(
    entries: Sequence[Entry], logs: Mapping[int, SegmentLog], config: DirectoryConfig
) -> CommitPlan:
    """Decide by size and mode which partitions write by reference.

    A partition with a create, truncate, trim or delete that is not applied yet never does: its segment file
    may still hold, or lack, what those entries are about to change.
    """
    sync = False
    appends: dict[int, list[Append]] = {}
    for entry in entries:
        if isinstance(entry, Append):
            appends.setdefault(entry.life, []).append(entry)
        else:
            sync = True
    references: list[Reference] = []
    owing: list[SegmentLog] = []
    for life, group in appends.items():
        log = logs[life]
        awaited = log.fsync.awaited or _has_transactional(group)
        sync = sync or awaited
        if not awaited:
            for append in group:
                append.flags |= LOOSE
        elif log.owes_sync:
            owing.append(log)
        limit = config.inline_bytes_max if awaited else config.loose_inline_bytes_max
        if not log.unapplied and sum(append.batch.size for append in group) > limit:
            references += _by_segment(life, group)
    return CommitPlan(references, sync, owing)


def _has_transactional(group: list[Append]) -> bool:
    return any(append.batch.attributes & _OF_TRANSACTIONS for append in group)


def _by_segment(life: int, group: list[Append]) -> list[Reference]:
    found: list[Reference] = []
    for append in group:
        if not found or found[-1].segment != append.segment:
            found.append(Reference(life, append.segment))
        found[-1].appends.append(append)
    return found


class Committer:
    """Takes what was sequenced and makes it durable, round by round."""

    def __init__(
        self,
        directory: Directory,
        journal: Journal,
        applier: Applier,
        *,
        free_journal: Callable[[], Awaitable[None]],
        journal_half_full: Callable[[], None],
        checkpoint_due: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._journal = journal
        self._applier = applier
        self._free_journal = free_journal
        self._journal_half_full = journal_half_full
        self._checkpoint_due = checkpoint_due
        self._referenced_bytes = 0  # since a checkpoint was asked for on their account
        self._queue: list[Entry] = []
        self._round_entries = 0  # of the round under way
        self._wake: asyncio.Future[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._committing = False
        self._sync_wanted = False
        self._sync_s = 0.0  # about what writing and syncing a round takes
        self._last_count = 0  # entries of the last round that was synced
        self._expected = 0  # and of the larger one of the last two
        directory.submit = self.submit
        directory.counters.commit_queue = self._look_at_queue
        directory.counters.refusal = lambda: directory.refusal

    def submit(self, entry: Entry, size: int) -> None:
        """Queue an entry; the order of the queue is the order of the journal."""
        self._queue.append(entry)
        self._directory.queued_bytes += size
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None:
            self._wake.set_result(None)
            self._wake = None

    def sync_soon(self) -> None:
        """Have the rounds written so far synced. Only the committer syncs the journal: see `Segment.sync`."""
        self._sync_wanted = True
        self._wake_up()

    async def wait_idle(self) -> None:
        """Return when everything queued is durable."""
        while self._queue or self._committing:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    async def run(self) -> None:
        """Commit for ever; an error ends the directory."""
        while True:
            if not self._queue and not self._sync_wanted:
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
            if self._sync_wanted:
                self._sync_wanted = False
                await self._journal.sync()
                continue
            self._committing = True
            if len(self._queue) < self._expected:
                await self._gather()
            entries, size = self._take()
            self._round_entries = len(entries)
            await self._commit(entries, size)
            self._round_entries = 0
            self._committing = False
            if self._idle is not None and not self._queue:
                if not self._idle.done():  # else nobody waits any more
                    self._idle.set_result(None)
                self._idle = None

    def _look_at_queue(self) -> CommitQueue:
        return CommitQueue(len(self._queue) + self._round_entries, self._directory.queued_bytes)

    async def _gather(self) -> None:
        """Wait a moment for those who shared the last rounds.

        Producers that wait for an acknowledgement come back together, a few microseconds apart. To sync for
        the first of them alone makes all the others wait for a second sync. So the loop turns, no longer than
        half a sync, until as many are there as last time or nobody comes any more.
        """
        clock = self._directory.clock
        began = grown = clock.monotonic()
        seen, most_s = len(self._queue), min(self._sync_s / 2, _GATHER_S_MAX)
        for _ in range(_GATHER_TURNS_MAX):
            await asyncio.sleep(0)
            now = clock.monotonic()
            if len(self._queue) > seen:
                seen, grown = len(self._queue), now
            if seen >= self._expected or now - began > most_s or now - grown > _GATHER_QUIET_S:
                return

    def _note_round(self, count: int, took_s: float) -> None:
        self._expected = max(count, self._last_count)
        self._last_count = count
        self._sync_s += (took_s - self._sync_s) / _ROUNDS_AVERAGED

    def _take(self) -> tuple[list[Entry], int]:
        """The next round: as much as it may hold, at least one entry."""
        queue, config = self._queue, self._directory.config
        bytes_max = min(config.round_bytes_max, config.entries_bytes_max)
        if self._directory.queued_bytes + len(queue) * ENTRY_BYTES_MAX <= bytes_max:
            self._queue = []
            return queue, self._directory.queued_bytes
        count = size = 0
        for entry in queue:
            more = entry.batch.size if isinstance(entry, Append) else 0
            if count and size + more + (count + 1) * ENTRY_BYTES_MAX > bytes_max:
                break
            count += 1
            size += more
        self._queue = queue[count:]
        return queue[:count], size

    async def _commit(self, entries: list[Entry], size: int) -> None:
        directory, journal = self._directory, self._journal
        taken = directory.clock.monotonic()
        plan = plan_commit(entries, directory.logs, directory.config)
        for log in plan.owing:
            await self._settle(log)
        if directory.keyring is not None and directory.keyring.encrypts:
            await self._encrypt(entries)
        await self._write_references(plan)
        parts: list[bytes | memoryview] = []
        for entry in entries:
            write_entry(entry, parts)
        lsn = directory.durable_lsn + 1
        await self._make_room(sum(map(len, parts)), lsn)
        frame = write_round(
            journal.current_id, lsn=lsn, synced_lsn=journal.synced_lsn, count=len(entries), parts=parts
        )
        began = directory.clock.monotonic()
        await journal.write(frame, lsn, sync=plan.sync)
        directory.check_fence()
        now = directory.clock.monotonic()
        counters = directory.counters
        counters.append.observe(now - taken)
        counters.round_s += (now - taken - counters.round_s) / _ROUNDS_AVERAGED
        if plan.sync:
            counters.flush.observe(now - began)
            self._note_round(len(entries), now - began)
        directory.queued_bytes -= size
        self._acknowledge(lsn, entries, size)

    async def _encrypt(self, entries: list[Entry]) -> None:
        """Give the batches their stored form. A key is durable before anything is written that needs it."""
        directory = self._directory
        keyring = directory.keyring
        assert keyring is not None
        for entry in entries:
            if isinstance(entry, Append):
                entry.stored = keyring.writer(entry.life, entry.segment).encrypt(entry.batch)
        while keyring.unsaved:
            try:
                await keyring.save()
            except SyncError:
                raise
            except OSError as error:
                directory.wait_out(error, KEYS)
                await asyncio.sleep(_RETRY_S)
                directory.check_space()

    async def _settle(self, log: SegmentLog) -> None:
        """Sync what a log wrote by reference while it was loose: what is synced must not follow a hole."""
        for segment in list(log.segments.values()):
            if segment.file is not None and not segment.persisted_whole:
                await segment.sync(bulk=True)  # also where another sync has begun: that has not ended
        log.owes_sync = False

    async def _write_references(self, plan: CommitPlan) -> None:
        if len(plan.references) == 1:
            await self._write_reference(plan.references[0])
        elif plan.references:
            await asyncio.gather(*map(self._write_reference, plan.references))

    async def _write_reference(self, reference: Reference) -> None:
        """Put the batches where they belong. Without room they stay inline, and the applier tries later."""
        log = self._directory.logs[reference.life]
        first, last = reference.appends[0], reference.appends[-1]
        end = last.position + last.stored.size
        try:
            segment = await prepare_segment(self._directory, log, reference.segment, end)
            assert segment.file is not None
            segment.unsynced_bytes += end - first.position
            buffers = [append.stored.data for append in reference.appends]
            await segment.file.write(first.position, buffers)
        except SyncError:
            raise
        except OSError as error:
            self._directory.wait_out(error, log.path)
            return
        if first.flags & LOOSE:  # as it was planned: the setting may be another one by now
            log.owes_sync = True
        else:
            await segment.sync()
            self._note_referenced(end - first.position)
        for append in reference.appends:
            append.flags |= REFERENCED

    def _note_referenced(self, size: int) -> None:
        """The journal hardly grows by them, yet a recovery would read them all."""
        self._referenced_bytes += size
        if self._referenced_bytes >= self._directory.config.checkpoint_referenced_bytes:
            self._referenced_bytes = 0
            self._checkpoint_due()

    async def _make_room(self, length: int, lsn: int) -> None:
        """Have a current journal file that takes the round; wait for one if the journal is full."""
        journal = self._journal
        if journal.has_room(length):
            if journal.fraction_used() > 0.5 and journal.reusable(self._directory.checkpointed_lsn) is None:
                self._journal_half_full()
            return
        while (file := journal.reusable(self._directory.checkpointed_lsn)) is None:
            await self._free_journal()
        await journal.open(file, lsn)

    def _acknowledge(self, lsn: int, entries: list[Entry], size: int) -> None:
        directory = self._directory
        directory.durable_lsn = lsn
        self._applier.push(lsn, entries, size)
        reached: dict[int, Append] = {}
        for entry in entries:
            if isinstance(entry, Append):
                reached[entry.life] = entry
                continue
            log = directory.logs[entry.life]
            if (append := reached.pop(entry.life, None)) is not None:
                log.advance(append.batch.next_offset)
            if isinstance(entry, Truncate):
                log.cut_is_durable()
            elif isinstance(entry, Create):
                directory.creating.discard(log.partition_id)
                directory.serving[log.partition_id] = log
            elif isinstance(entry, Delete):
                directory.serving.pop(log.partition_id, None)
            if entry.done is not None and not entry.done.done():
                entry.done.set_result(None)
        logs = directory.logs
        for life, append in reached.items():
            logs[life].advance(append.batch.next_offset)
