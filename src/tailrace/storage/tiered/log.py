"""One partition behind the storage port: what is sequenced, what is durable, what readers see.

Two ends: what is committed (`durable_offset`, moved by the committer) and what is sequenced (`end_offset`,
moved by `append`). The tail in memory holds at least what is not committed. A truncation is sequenced like
an append and takes effect for readers at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tailrace.model import (
    BrokerError,
    Epoch,
    ErrorCode,
    LogBusy,
    LogTruncated,
    Offset,
    OffsetOutOfRange,
    PartitionId,
    StorageError,
)
from tailrace.records import Batch
from tailrace.storage.aborted import AbortedList, AbortedTransaction
from tailrace.storage.api import Fsync, LogConfig, Slice, TimestampedOffset, Waiter, ignore_change
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.producers import ProducerStates
from tailrace.storage.tail import BATCH_OBJECTS_BYTES, Tail
from tailrace.storage.tiered.entry import Append, Trim, Truncate
from tailrace.storage.tiered.recent import RecentChunks
from tailrace.storage.tiered.span import Spans
from tailrace.storage.tiered.state import LogState
from tailrace.storage.tiered.waiting import Waiting

if TYPE_CHECKING:
    from tailrace.storage.tiered.reading import Reader
    from tailrace.storage.tiered.shared import Shared

ZERO = Offset(0)


class TieredLog:
    """One life of one partition."""

    def __init__(
        self,
        shared: Shared,
        reader: Reader,
        *,
        log_id: int,
        partition_id: PartitionId,
        config: LogConfig,
        start: Offset = ZERO,
        end: Offset = ZERO,
    ) -> None:
        self.id = log_id
        self.partition_id = partition_id
        self.config = config
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self.aborted_list = AbortedList()
        self.tail: Tail[Append] = Tail()
        self.spans = Spans()
        self.recent = RecentChunks(lambda: shared.recent_chunks_max)
        self.on_change: Callable[[], None] = ignore_change
        self.final_before: Callable[[], Offset] = self._stable_end
        self.archived_before = ZERO
        self.truncations = 0  # sequenced so far: a reader that had to wait asks whether one came between
        self.label = ""  # the name of the topic that the row is to have; "": the row has it
        self.snapshot_offset = -1  # of the newest snapshot
        self.deleting = False
        self._shared = shared
        self._reader = reader
        self._start = start
        self._end = end
        self._durable = end
        self._refusal: Exception | None = None
        self._waiting = Waiting()
        self._cuts: deque[Offset] = deque()  # truncations sequenced and not yet durable

    def __repr__(self) -> str:
        return f"<TieredLog {self} {self._start} to {self._end}, durable to {self._durable}>"

    def __str__(self) -> str:
        return f"log {self.id} of {self.partition_id}"

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
    def fsync(self) -> Fsync:
        return self.config.fsync or self._shared.config.fsync

    @property
    def accepts_changes(self) -> bool:
        """Whether it is neither closed, ended nor being truncated."""
        return self._refusal is None

    @property
    def size_bytes(self) -> int:
        return self.spans.size

    # ---- append: no await from here to the queue

    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        shared, config = self._shared, self._shared.config
        size = batch.size
        if self._refusal is not None or shared.refusal is not None:
            raise self._refused()
        if shared.queued_bytes + size > config.queue_bytes_max:
            raise LogBusy(
                f"{shared.queued_bytes} bytes wait to be committed; try again when some are durable"
            )
        if size > config.batch_bytes_max:
            raise BrokerError(
                f"batch of {size} bytes is over {config.batch_bytes_max}, the most that a round takes",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )
        if leader_epoch is not None:
            batch.assign(self._end, leader_epoch)
        elif batch.base_offset < self._end:
            raise BrokerError(
                f"a batch at offset {batch.base_offset} cannot be appended to a log that ends at {self._end}",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        self._end = batch.next_offset
        entry = Append(self, batch)
        self.tail.add(entry)
        shared.tail_bytes += size + BATCH_OBJECTS_BYTES
        self.epochs.apply(batch.leader_epoch, batch.base_offset)
        if batch.producer_id >= 0:
            aborted = self.producers.apply(batch, keep_from=self._durable)
            if aborted is not None:
                self.aborted_list.add(aborted)
        shared.submit(entry, size)
        return batch.base_offset

    def configure(self, config: LogConfig) -> None:
        self.config = config

    def _refused(self) -> Exception:
        return self._refusal or self._shared.refusal or AssertionError("nothing refuses")

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
            self._waiting.add(end, waiter)

    def advance(self, durable: Offset) -> None:
        """Everything below `durable` is durable, except what a truncation is about to take."""
        if self._cuts:
            durable = min(durable, *self._cuts)
        if durable <= self._durable:
            return
        self._durable = durable
        self.on_change()
        self._waiting.reached(durable)

    def cut_is_durable(self) -> None:
        """The oldest truncation that was sequenced is durable."""
        self._cuts.popleft()

    def fail(self, error: Exception) -> None:
        """Nothing is appended any more, and no wait comes true."""
        self._refusal = error
        self.on_change()
        self._waiting.fail(error)

    # ---- read

    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice | None:
        return self._reader.read_nowait(self, offset, bytes_max, up_to)

    async def read(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        return await self._reader.read(self, offset, bytes_max, up_to)

    async def find_timestamp(self, timestamp_ms: int, *, up_to: Offset) -> TimestampedOffset | None:
        return await self._reader.find_timestamp(self, timestamp_ms, up_to)

    def aborted(self, first: Offset, end: Offset) -> Sequence[AbortedTransaction]:
        return self.aborted_list.find(first, end)

    def check_readable(self) -> None:
        """Raise if it is closed, deleted or ended."""
        if isinstance(self._refusal, StorageError):
            raise self._refusal

    # ---- truncate, trim, close

    async def truncate(self, offset: Offset) -> None:
        if self._refusal is not None:
            raise self._refusal
        if offset >= self._end:
            return
        if offset < self._start:
            raise OffsetOutOfRange(offset, start=self._start, end=self._end)
        busy = self._refusal = LogBusy(f"{self} is being truncated; try again")
        try:
            end = await self._reader.batch_start(self, offset)
            producers = await self._reader.producers_at(self, end)
        finally:
            if self._refusal is busy:
                self._refusal = None
        if self._refusal is not None:
            raise self._refusal
        self._cut_memory(end, producers)
        await self._shared.sequence(Truncate(self, end))

    def _cut_memory(self, end: Offset, producers: ProducerStates | None) -> None:
        """What readers and the next append see of a truncation."""
        old_end, self._end = self._end, end
        self._start = min(self._start, end)  # it may have begun inside the batch that goes
        self._durable = min(self._durable, end)
        before = self.tail.bytes
        self.tail.truncate(end)
        self._shared.tail_bytes += self.tail.bytes - before
        self.epochs.truncate(end)
        if producers is not None:
            self.producers = producers
        self.aborted_list.truncate(end)
        self._cuts.append(end)
        self.truncations += 1
        self.on_change()  # at once: a watermark above the cut would show what is appended next
        self._waiting.fail(LogTruncated(f"{self} was truncated to {end}"), above=end, up_to=old_end)

    async def trim(self, offset: Offset) -> None:
        if self._refusal is not None:
            raise self._refusal
        if offset <= self._start:
            return
        if offset > self._durable:
            raise OffsetOutOfRange(offset, start=self._start, end=self._durable)
        self._start = offset
        self.epochs.trim(offset)
        self.aborted_list.trim(offset)
        self.spans.trim(offset)
        await self._shared.sequence(Trim(self, offset))

    async def close(self) -> None:
        if isinstance(self._refusal, StorageError):
            return
        while self._durable < self._end:
            with suppress(LogTruncated):  # then the end is another one, and is waited for instead
                await self.wait_durable(self._end)
        self.fail(StorageError("use", str(self), "the log is closed"))

    def _stable_end(self) -> Offset:
        first = self.producers.first_undecided(self._durable) if self.producers.undecided else None
        return self._durable if first is None else min(first, self._durable)

    # ---- for the engine

    def load(self, state: LogState) -> None:
        """What its batches left behind, as a writer that takes over has read it."""
        state.trim(self._start)
        self.epochs, self.producers, self.aborted_list = state.epochs, state.producers, state.aborted

    def evict_tail(self, bytes_wanted: int) -> int:
        """Give memory back: of what is committed."""
        gone = self.tail.evict(self._durable, bytes_wanted)
        self._shared.tail_bytes -= gone
        return gone
