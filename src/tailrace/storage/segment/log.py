"""The log of one partition, over segment files and the journal.

Three ends, in this order: what the files hold (`Segment.length`, moved by the applier), what is durable
(`durable_offset`, moved by the committer), what is sequenced (`end_offset`, moved by `append`). The tail in
memory holds what the files do not hold yet, so reads may go up to any of them.
A place is fixed when it is sequenced and never changes; a truncation is sequenced like an append and takes
effect for readers at once, for the files when the applier comes to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from tailrace.model import (
    BrokerError,
    Epoch,
    ErrorCode,
    LogBusy,
    LogDamaged,
    LogTruncated,
    Offset,
    OffsetOutOfRange,
    PartitionId,
    StorageError,
)
from tailrace.records import CONTROL_BIT, Batch, iter_batches
from tailrace.storage.aborted import AbortedList, AbortedTransaction
from tailrace.storage.api import NO_LIMIT, Fsync, LogConfig, Slice, TimestampedOffset, Waiter, ignore_change
from tailrace.storage.encryption.layout import OVERHEAD_BYTES, is_encrypted
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.producers import ProducerStates
from tailrace.storage.segment.checkpoint import NONE
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.entry import Append, Trim, Truncate
from tailrace.storage.segment.index import POSITION_MAX
from tailrace.storage.segment.names import numbered, partition_directory
from tailrace.storage.segment.reading import LogReader
from tailrace.storage.segment.segment import Segment
from tailrace.storage.segment.shape import OFFSET_MAX, ZERO
from tailrace.storage.tail import BATCH_OBJECTS_BYTES, Tail

if TYPE_CHECKING:
    from tailrace.storage.encryption.keyring import LogCipher

_SCAN_BYTES = 1 << 20
_PURGE_AT_MIN = 64
_ticket = count().__next__  # orders waiters for the same offset


class SegmentLog:
    """One life of one partition."""

    def __init__(
        self,
        directory: Directory,
        *,
        life: int,
        partition_id: PartitionId,
        config: LogConfig,
        start: Offset = ZERO,
        end: Offset = ZERO,
    ) -> None:
        self.life = life
        self.partition_id = partition_id
        self.configure(config)
        self.path = partition_directory(partition_id, life)
        keyring = directory.keyring
        self.cipher: LogCipher | None = keyring.cipher(life) if keyring is not None else None
        self._overhead = OVERHEAD_BYTES if keyring is not None and keyring.encrypts else 0
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self.aborted_list = AbortedList()
        self.tail: Tail[Append] = Tail()
        self._directory = directory
        self._reader = LogReader(self, directory)
        self._start = start
        self._end = end
        self._durable = end
        self._segment = 0  # where the next append goes: the segment's base offset
        self._position = 0  # and the position in it
        self._segment_since_ms = directory.clock.steady_ms()
        self._roll_is_due = False
        self._refusal: Exception | None = None
        self._waiters: list[tuple[int, int, Waiter]] = []
        self._purge_at = _PURGE_AT_MIN  # so many waiters that some of them may have given up
        self.on_change: Callable[[], None] = ignore_change
        self.final_before: Callable[[], Offset] = self._stable_end
        self.archived_before = ZERO
        self.truncations = 0  # sequenced so far: a reader that had to wait asks whether one came between
        self._cuts: deque[Offset] = deque()  # truncations sequenced and not yet durable
        self._unapplied_cuts: deque[Offset] = deque()  # and not yet applied
        self.deleting = False
        self.owes_sync = False  # loose batches were written by reference since the log was last synced

        # The files, as far as they were applied.
        self.segments: dict[int, Segment] = {}  # in ascending order of base offset
        self.applied_segment: Segment | None = None  # the newest one; None until the creation is applied
        self.applied_start = start
        self.applied_end = end
        self.applied_epochs = LeaderEpochs()
        self.applied_producers = ProducerStates()
        self.applied_aborted = AbortedList()
        self.unsaved_aborted: set[int] = set()  # segments whose list changed since a checkpoint took it
        self.aborted_lock = asyncio.Lock()  # of the files of aborted transactions
        self.unapplied = 0  # create, truncate, trim, delete: sequenced, not yet applied
        self.cut_lsn = 0  # of the newest truncation applied
        self.compaction: asyncio.Future[None] | None = None
        self.compacted_end = 0  # below, compaction went through the records of every key
        self.delete_horizons: dict[int, int] = {}  # by segment: when its first tombstone may go
        self.uncleanable: set[int] = set()  # segments that compaction found damaged

        # What the newest checkpoint knows.
        self.checkpoint_segment = 0
        self.checkpoint_end = 0
        self.creation_lock = asyncio.Lock()  # of segments
        self.snapshot_lock = asyncio.Lock()  # a truncation removes those that a checkpoint may be writing
        self.snapshot = NONE  # offset of the snapshot that equals the state at the checkpoint
        self.state_changed = True  # since that snapshot
        self.damaged = NONE  # first offset known to be damaged

    def __repr__(self) -> str:
        return f"<SegmentLog {self.path} {self._start} to {self._end}, durable to {self._durable}>"

    # ---- what it is

    @property
    def start_offset(self) -> Offset:
        return self._start

    @property
    def end_offset(self) -> Offset:
        return self._end

    @property
    def durable_offset(self) -> Offset:
        return self._durable

    @property
    def next_place(self) -> tuple[int, int]:
        """Segment and position of the next append."""
        return self._segment, self._position

    @property
    def applied_cut(self) -> int:
        """The files hold nothing from here on that counts: a truncation is about to take it away."""
        return min(self._unapplied_cuts, default=OFFSET_MAX)

    @property
    def fsync(self) -> Fsync:
        return self.config.fsync or self._directory.config.fsync

    @property
    def accepts_changes(self) -> bool:
        """Whether it is neither closed, fenced, quarantined nor being truncated."""
        return self._refusal is None

    @property
    def size_bytes(self) -> int:
        """What the segment files hold."""
        return sum(segment.length for segment in self.segments.values())

    def segment_path(self, base: int) -> str:
        return f"{self.path}/{numbered(base, 'log')}"

    # ---- append: no await from here to the queue

    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        directory = self._directory
        size = batch.size
        if self._refusal is not None or directory.refusal is not None:
            raise self._refused()
        if directory.queued_bytes + size > directory.queue_bytes_max:
            raise LogBusy(
                f"{directory.queued_bytes} bytes wait to be committed; try again when some are durable"
            )
        if size > directory.batch_bytes_max:
            raise _too_large(size, directory.batch_bytes_max)
        if leader_epoch is not None:
            batch.assign(self._end, leader_epoch)
        elif batch.base_offset < self._end:
            raise _misplaced(batch, self._end)
        next_offset = batch.next_offset
        segment, position = self._segment, self._position
        stored_size = size + self._overhead
        if next_offset - segment > POSITION_MAX or (
            position and (position + stored_size > self._roll_bytes or self._roll_is_due)
        ):
            segment, position = batch.base_offset, 0
            self._begin_segment(segment)
        entry = Append(self.life, batch, segment, position)
        self._position = position + stored_size
        self._end = next_offset
        self.tail.add(entry)
        directory.tail_bytes += size + BATCH_OBJECTS_BYTES
        self.epochs.apply(batch.leader_epoch, batch.base_offset)
        if batch.producer_id >= 0:
            aborted = self.producers.apply(batch, keep_from=self._durable)
            if aborted is not None:
                self.aborted_list.add(aborted)
        directory.submit(entry, size)
        return batch.base_offset

    def _begin_segment(self, base: int) -> None:
        self._segment = base
        self._roll_is_due = False
        self._segment_since_ms = self._directory.clock.steady_ms()

    def roll_by_age(self, now_ms: int) -> None:
        """Let the next append begin a new segment if the newest one is old enough."""
        age_ms, lag_ms = self.config.segment_ms, self.config.max_compaction_lag_ms
        if self.config.compact and lag_ms != NO_LIMIT:
            age_ms = min(age_ms, lag_ms)  # only sealed segments are compacted
        if self._position and now_ms - self._segment_since_ms >= age_ms:
            self._roll_is_due = True

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self._roll_bytes = min(config.segment_bytes, POSITION_MAX)

    def _refused(self) -> Exception:
        return self._refusal or self._directory.refusal or AssertionError("nothing refuses")

    # ---- durability

    def wait_durable(self, end: Offset) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tell_durable(end, waiter)
        return waiter

    def tell_durable(self, end: Offset, waiter: Waiter) -> None:
        if end <= self._durable:
            waiter.set_result(None)
        elif isinstance(self._refusal, StorageError):
            waiter.set_exception(self._refusal)
        else:
            if len(self._waiters) >= self._purge_at:
                self._forget_who_gave_up()
            heappush(self._waiters, (end, _ticket(), waiter))

    def _forget_who_gave_up(self) -> None:
        """Waits come and go: those that were cancelled must not pile up."""
        self._waiters = [waiter for waiter in self._waiters if not waiter[2].done()]
        heapify(self._waiters)
        self._purge_at = max(_PURGE_AT_MIN, 2 * len(self._waiters))

    def advance(self, durable: Offset) -> None:
        """Everything below `durable` is durable, except what a truncation is about to take."""
        if self._cuts:
            durable = min(durable, *self._cuts)
        if durable <= self._durable:
            return
        self._durable = durable
        self.on_change()
        waiters = self._waiters
        while waiters and waiters[0][0] <= durable:
            waiter = heappop(waiters)[2]
            if not waiter.done():
                waiter.set_result(None)

    def cut_is_durable(self) -> None:
        """The oldest truncation that was sequenced is durable."""
        self._cuts.popleft()

    def fail(self, error: Exception) -> None:
        """Nothing is appended any more, and nobody's wait comes true."""
        self._refusal = error
        self.on_change()
        for _, _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._waiters.clear()

    def quarantine(self, offset: int, error: LogDamaged) -> None:
        """Acknowledged bytes are unreadable from `offset` on: reads go on, appends do not.

        A trim to the end lifts it: nothing is left that could be damaged, and no offset is given out twice.
        """
        self.damaged = offset
        self._refusal = error
        self._directory.counters.damaged.add(self.partition_id)

    # ---- read

    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice | None:
        return self._reader.read_nowait(offset, bytes_max, up_to)

    async def read(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        return await self._reader.read(offset, bytes_max, up_to)

    async def find_timestamp(self, timestamp_ms: int, *, up_to: Offset) -> TimestampedOffset | None:
        return await self._reader.find_timestamp(timestamp_ms, up_to)

    def aborted(self, first: Offset, end: Offset) -> Sequence[AbortedTransaction]:
        return self.aborted_list.find(first, end)

    def check_readable(self) -> None:
        """Raise if it is closed, deleted or fenced; a quarantined log is readable."""
        if isinstance(self._refusal, StorageError):
            raise self._refusal

    # ---- truncate, trim, close

    async def truncate(self, offset: Offset) -> None:
        while self.compaction is not None:
            await asyncio.shield(self.compaction)
        if self._refusal is not None:
            raise self._refusal
        if offset >= self._end:
            return
        if offset < self._start:
            raise OffsetOutOfRange(offset, start=self._start, end=self._end)
        busy = self._refusal = LogBusy(f"{self.path} is being truncated; try again")
        try:
            segment, position, new_end = await self._reader.locate(offset)
            if new_end < segment:
                # In a gap before a segment, which goes: a segment never holds offsets below its base.
                segment, position = new_end, 0
            producers = await self._producers_at(new_end)
        finally:
            if self._refusal is busy:
                self._refusal = None
        if self._refusal is not None:
            raise self._refusal
        entry = Truncate(self.life, new_end, segment, position, producers)
        self._cut_memory(entry)
        await self._directory.sequence(entry)

    async def _producers_at(self, offset: Offset) -> ProducerStates | None:
        """The producers as they were when the log ended at `offset`; None if they are so now."""
        if not self.producers.reaches(offset):
            return None
        # A snapshot past a truncation that is not applied yet is one of a history that is undone.
        known = min(offset, *self._unapplied_cuts) if self._unapplied_cuts else offset
        place, producers = await self._directory.snapshots.producers_before(self.path, known)
        place = max(place, self._start)
        producers.forget_trimmed(self._start)
        while place < min(offset, self._durable):
            piece = await self.read(place, bytes_max=_SCAN_BYTES, up_to=self._durable)
            for batch in iter_batches(await piece.load()):
                if batch.next_offset <= offset:
                    producers.apply(batch)
            place = piece.next_offset
        for entry in self.tail.entries_from(place):
            if entry.batch.next_offset <= offset:
                producers.apply(entry.batch)
        return producers

    def _cut_memory(self, entry: Truncate) -> None:
        """What readers and the next append see of a truncation."""
        old_end, self._end = self._end, entry.offset
        self._start = min(self._start, entry.offset)  # it may have begun inside the batch that goes
        self._durable = min(self._durable, entry.offset)
        self._segment, self._position = entry.segment, entry.position
        self._roll_is_due = (
            self._roll_is_due or self.cipher is not None
        )  # that segment may be of the other kind
        before = self.tail.bytes
        self.tail.truncate(entry.offset)
        self._directory.tail_bytes += self.tail.bytes - before
        self.epochs.truncate(entry.offset)
        if entry.producers is not None:
            self.producers = entry.producers.copy()
        self.aborted_list.truncate(entry.offset)
        self._cuts.append(entry.offset)
        self._unapplied_cuts.append(entry.offset)
        self.truncations += 1
        self.unapplied += 1
        self.on_change()  # at once: a watermark above the cut would show what is appended next
        self._fail_waiters(above=entry.offset, up_to=old_end)

    def _fail_waiters(self, *, above: Offset, up_to: Offset) -> None:
        """Who waits for what was truncated is told; who waits for what is yet to come goes on waiting."""
        waiting, self._waiters = self._waiters, []
        for waiter in waiting:
            if above < waiter[0] <= up_to and not waiter[2].done():
                waiter[2].set_exception(LogTruncated(f"{self.path} was truncated to {above}"))
            else:
                heappush(self._waiters, waiter)

    async def trim(self, offset: Offset) -> None:
        lifts = offset == self._end and isinstance(self._refusal, LogDamaged)
        if self._refusal is not None and not lifts:
            raise self._refusal
        if offset <= self._start and not lifts:
            return
        if offset > self._durable:
            raise OffsetOutOfRange(offset, start=self._start, end=self._durable)
        if lifts:
            self._refusal = None
            self._directory.counters.damaged.discard(self.partition_id)
        self._start = offset
        self.epochs.trim(offset)
        self.aborted_list.trim(offset)
        rolled = -1
        if offset == self._end and self._position:
            # Nothing is left: with a new segment the old ones can go.
            rolled = self._end
            self._begin_segment(rolled)
            self._position = 0
        self.unapplied += 1
        await self._directory.sequence(Trim(self.life, offset, rolled))

    async def close(self) -> None:
        if isinstance(self._refusal, StorageError):
            return
        while self._durable < self._end:
            with suppress(LogTruncated):  # then the end is another one, and is waited for instead
                await self.wait_durable(self._end)
        self.fail(StorageError("use", self.path, "the log is closed"))

    def _stable_end(self) -> Offset:
        first = self.producers.first_undecided(self._durable) if self.producers.undecided else None
        return self._durable if first is None else min(first, self._durable)

    # ---- for the applier and recovery

    def resume(self, *, segment: int, position: int, encrypted: bool) -> None:
        """Go on where the files end. A segment is encrypted as a whole or not at all."""
        self._segment, self._position = segment, position
        self._roll_is_due = encrypted != bool(self._overhead)

    def decrypt_entry(self, append: Append) -> None:
        """Have the batch that readers get, of an entry that was read from the files; LogDamaged if it is not.

        Of one that was written by reference recovery has the header alone, which is readable.
        """
        batch = append.batch
        if not is_encrypted(batch) or len(batch.data) < batch.size:
            return
        if self.cipher is None:
            raise LogDamaged(f"{self.path} is encrypted, and there is no key")
        append.batch = self.cipher.decrypt(batch, append.segment)

    def evict_tail(self, bytes_wanted: int) -> int:
        """Give memory back: of what was applied and lies in a closed span."""
        segment = self.applied_segment
        if segment is None or segment.index is None or self.unapplied:
            return 0
        gone = self.tail.evict(segment.index.closed_offset, bytes_wanted)
        self._directory.tail_bytes -= gone
        return gone

    def replace_segment(self, segment: Segment) -> None:
        """Compaction made another file of a sealed segment. The tail knows places in the old one: it goes."""
        bases = list(self.segments)
        end = bases[bases.index(segment.base) + 1]
        self.segments[segment.base] = segment  # under the same key, so that their order stays
        self._directory.tail_bytes -= self.tail.evict(end, self.tail.bytes)

    def add_segment(self, segment: Segment) -> None:
        """A file for `segments`. By reference a newer one may come to be before an older one."""
        self.segments[segment.base] = segment
        if next(reversed(self.segments)) != max(self.segments):
            self.segments = dict(sorted(self.segments.items()))

    def take_applied(self, segment: Segment, appends: list[Append]) -> None:
        """The batches are in the file."""
        index = segment.index
        assert index is not None
        latest = self.applied_epochs.latest
        for append in appends:
            batch = append.batch
            index.add(append.stored)
            append.stored = batch
            if batch.leader_epoch != latest:
                self.applied_epochs.apply(batch.leader_epoch, batch.base_offset)
                latest = self.applied_epochs.latest
                self.state_changed = True
            if batch.producer_id >= 0:
                aborted = self.applied_producers.apply(batch)
                self.state_changed = True
                if batch.attributes & CONTROL_BIT:
                    self.applied_producers.settle()
                if aborted is not None:
                    self.applied_aborted.add(aborted)
                    self.unsaved_aborted.add(segment.base)
        segment.length = index.end
        segment.written_ms = self._directory.clock.steady_ms()
        self.applied_segment = segment
        self.applied_end = appends[-1].batch.next_offset

    def take_truncated(self, segment: Segment, entry: Truncate) -> None:
        """The files end at the truncation."""
        self._unapplied_cuts.popleft()
        self.applied_segment = segment
        self.applied_start = min(self.applied_start, entry.offset)
        self.applied_end = entry.offset
        self.applied_epochs.truncate(entry.offset)
        if entry.producers is not None:
            self.applied_producers = entry.producers
        self._cut_applied_aborted(entry)
        self.state_changed = True
        self.compacted_end = min(self.compacted_end, entry.offset)
        self.uncleanable = {base for base in self.uncleanable if base < entry.segment}

    def _cut_applied_aborted(self, entry: Truncate) -> None:
        known = self.applied_aborted
        self.unsaved_aborted = {base for base in self.unsaved_aborted if base <= entry.segment}
        if known.between(max(entry.segment, entry.offset), OFFSET_MAX):
            self.unsaved_aborted.add(entry.segment)
        known.truncate(entry.offset)

    def take_trimmed(self, entry: Trim) -> None:
        """The files begin at the trim, give or take a segment."""
        self.applied_start = entry.offset
        self.damaged = NONE  # a quarantined log is trimmed to its end or not at all
        self.applied_epochs.trim(entry.offset)
        self.applied_aborted.trim(entry.offset)
        self.state_changed = True


def _too_large(size: int, limit: int) -> BrokerError:
    return BrokerError(
        f"batch of {size} bytes is over {limit}, the most that the journal takes; raise journal_file_bytes",
        code=ErrorCode.MESSAGE_TOO_LARGE,
    )


def _misplaced(batch: Batch, end: Offset) -> BrokerError:
    return BrokerError(
        f"a batch at offset {batch.base_offset} cannot be appended to a log that ends at {end}",
        code=ErrorCode.OFFSET_OUT_OF_RANGE,
    )
