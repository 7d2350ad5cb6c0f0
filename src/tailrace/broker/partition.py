"""One partition of one topic, as this node knows it: who leads it, and its log if it is held here.

Rules:
- Only the leader appends, in its epoch; a request that names another epoch is fenced (KIP-320).
- The partition decides what is visible, not its log: every read ends at the high watermark or below it.
  `_log_moved` alone moves the watermark. With one replica it is the durable end of the log.
- The last stable offset ends a read of committed records: the high watermark, or the first offset of a
  transaction that is open or whose marker is not visible yet. It moves only when the high watermark does.
- A transactional batch needs an open transaction of its producer and epoch here, or the word of the
  coordinator that this partition is part of one (KIP-890).
- Leadership is checked once: by `Broker.leader` for a request of a client, and by `append`. What follows on
  the same partition (reads, offsets, `acknowledged`) needs its log only.
- `append` is plain code without an await: producer state, offset and queue change together or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.broker.configs import TopicSettings
from tailrace.broker.counters import TopicCounters
from tailrace.broker.ports import PartitionRecord
from tailrace.broker.unreadable import Unreadable
from tailrace.broker.waiters import Waiters
from tailrace.model import (
    BrokerError,
    BrokerId,
    Epoch,
    ErrorCode,
    InvalidRecords,
    Offset,
    OffsetOutOfRange,
    PartitionId,
    TopicPartition,
)
from tailrace.records import (
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Batch,
    Record,
    UndecodableBatch,
    iter_batches,
    write_marker,
)
from tailrace.runtime import Clock
from tailrace.storage.aborted import AbortedTransaction
from tailrace.storage.api import PartitionLog, Slice, TimestampedOffset, Waiter
from tailrace.storage.opening import visit_records
from tailrace.storage.producers import ProducerStates

ACKS_LEADER = 1
ACKS_ALL = -1
"""How far a batch has come when it is acknowledged, in Kafka's numbers: see `Partition.acknowledged`."""

UP_TO_HIGH_WATERMARK = -1
_NO_TIMESTAMP = -1
_INVALID_RECORDS_MAX = 10_000
"""Bad records of a batch that its sender hears of; a batch may hold millions, and the answer names each."""


class Appended(NamedTuple):
    """Where a batch went, or where the one that it repeats already is."""

    base_offset: Offset
    end_offset: Offset  # for `Partition.acknowledged`
    log_append_time_ms: int  # -1 where the producer's own times count
    log_start_offset: Offset


class Partition:
    """A partition in memory; its record in the metadata says who leads it."""

    __slots__ = (
        "_clock",
        "_log",
        "_node_id",
        "counters",
        "high_watermark",
        "id",
        "index",
        "last_stable_offset",
        "name",
        "published_ms",
        "record",
        "settings",
        "topic",
        "waiters",
        "withheld",
    )

    def __init__(
        self,
        topic: str,
        partition_id: PartitionId,
        record: PartitionRecord,
        *,
        node_id: BrokerId,
        settings: TopicSettings,
        clock: Clock,
        counters: TopicCounters,
    ) -> None:
        self.topic = topic
        self.id = partition_id
        self.index = record.index
        self.name = TopicPartition(topic, record.index)
        self.record = record
        self.settings = settings
        self.waiters = Waiters()
        self.published_ms = _NO_TIMESTAMP  # newest time given by `publishing`, where it never goes back
        self._node_id = node_id
        self._clock = clock
        self.counters = counters  # of its topic
        self._log: PartitionLog | None = None
        self.withheld = ""  # why it has no log here though its topic exists; "" if that is not so

        # Both are moved by `_log_moved` and by nothing else, and stay as they were when the log is closed.
        self.high_watermark = Offset(0)
        """Everything below is visible. Never above the log's `durable_offset`; always on a batch boundary."""
        self.last_stable_offset = Offset(0)
        """Everything below is decided. Never above `high_watermark`; equal to it without transactions.

        On a batch boundary, unless it is the start of a log whose records were deleted up to there.
        """

    def __repr__(self) -> str:
        role = f"led by {self.leader} in epoch {self.leader_epoch}"
        return f"<Partition {self.topic}-{self.index} {role}, {self._log or 'no log here'}>"

    # ---- what it is

    @property
    def leader(self) -> BrokerId:
        return self.record.leader

    @property
    def leader_epoch(self) -> Epoch:
        return self.record.leader_epoch

    @property
    def replicas(self) -> tuple[BrokerId, ...]:
        return self.record.replicas

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        return self.record.isr

    @property
    def is_led_here(self) -> bool:
        return self.record.leader == self._node_id

    @property
    def log(self) -> PartitionLog | None:
        """Its log, if this node holds one."""
        return self._log

    @property
    def is_held_here(self) -> bool:
        """Whether this node has its log, as leader or not."""
        return self._log is not None

    def open(self, log: PartitionLog) -> None:
        """This is its log from now on."""
        self._log = log
        self.withheld = ""
        log.on_change = self._log_moved
        log.final_before = self._final_before
        self._log_moved()

    def close(self) -> None:
        """It is not served here any more; who waits for it is told."""
        self._log = None
        self.waiters.wake()

    def check_led(self) -> None:
        """Raise BrokerError unless this node leads it and holds its log."""
        if self.record.leader != self._node_id or self._log is None:
            raise self._not_served()

    def _log_moved(self) -> None:
        """The durable end of the log moved, or the log ended: what is visible follows."""
        log = self._log
        if log is not None:
            self.high_watermark = self.last_stable_offset = log.durable_offset
            if log.producers.undecided:
                self.last_stable_offset = self._find_last_stable(log)
        if self.waiters.callbacks:
            self.waiters.wake()

    def _find_last_stable(self, log: PartitionLog) -> Offset:
        first = log.producers.first_undecided(self.high_watermark)
        if first is None:
            return self.high_watermark
        # Records may be deleted up to an offset within an open transaction, by an explicit request only.
        return max(min(self.high_watermark, first), log.start_offset)

    def _final_before(self) -> Offset:
        """Compaction and retention leave alone what a failover or an abort could still take back."""
        return self.last_stable_offset

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Whether the client speaks of the epoch in which this node leads; -1 means that it does not care."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise BrokerError(
                f"{self.name} is in epoch {self.leader_epoch}, the client in {current_leader_epoch}",
                code=ErrorCode.FENCED_LEADER_EPOCH,
            )
        raise BrokerError(
            f"{self.name} is in epoch {self.leader_epoch}, {current_leader_epoch} is not known here",
            code=ErrorCode.UNKNOWN_LEADER_EPOCH,
        )

    # ---- write

    def append(
        self,
        batch: Batch,
        *,
        append_time_ms: int | None = None,
        keys_checked: bool = False,
        verified: bool = False,
        any_sequence: bool = False,
    ) -> Appended:
        """Sequence a validated batch; raises BrokerError. `acknowledged` tells when to answer its sender.

        `verified` says that the coordinator has this partition in the open transaction of the producer.
        Without it a transactional batch is refused with INVALID_TXN_STATE unless that transaction is open
        here. `any_sequence` is for a producer that the partition may have forgotten (`ProducerStates.check`).

        Where the topic stamps its records, the time is `append_time_ms` if given, else the clock's. A batch
        that was built with that time is left as it is: to stamp it again would cost a CRC. Where the topic is
        compacted, `keys_checked` says that every record is known to have a key.
        """
        log = self._log
        if log is None or self.record.leader != self._node_id:
            raise self._not_served()
        settings = self.settings
        if settings.compact and not keys_checked:
            _check_keys(batch)
        if batch.producer_id >= 0:
            if (duplicate := log.producers.check(batch, any_sequence=any_sequence)) is not None:
                time_ms = duplicate.timestamp_ms if settings.append_time else _NO_TIMESTAMP
                end = Offset(duplicate.last_offset + 1)
                return Appended(duplicate.base_offset, end, time_ms, log.start_offset)
            if batch.attributes & TRANSACTIONAL_BIT and not verified:
                self._check_open(log, batch)
        time_ms = _NO_TIMESTAMP
        if settings.append_time:
            time_ms = self._clock.now_ms() if append_time_ms is None else append_time_ms
            if append_time_ms is None or not _is_stamped(batch, append_time_ms):
                batch.stamp_append_time(time_ms)
        elif batch.attributes & LOG_APPEND_TIME_BIT:
            raise BrokerError("log append time is the broker's own to set", code=ErrorCode.INVALID_TIMESTAMP)
        base_offset = log.append(batch, leader_epoch=self.record.leader_epoch)
        counters = self.counters
        counters.batches_in += 1
        counters.records_in += batch.count
        counters.bytes_in += batch.size
        return Appended(base_offset, batch.next_offset, time_ms, log.start_offset)

    def _check_open(self, log: PartitionLog, batch: Batch) -> None:
        """Raise BrokerError unless the transaction of a batch is open in this partition."""
        known = log.producers.open_transaction(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            raise BrokerError(
                f"producer {batch.producer_id} has no transaction of epoch {batch.producer_epoch} open in "
                f"{self.name}: the partition is to be added to the transaction first",
                code=ErrorCode.INVALID_TXN_STATE,
            )

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int
    ) -> Appended | None:
        """Sequence the marker that ends a producer's open transaction; None where it has none here.

        So marking twice is harmless. Raises BrokerError: INVALID_PRODUCER_EPOCH for an older epoch of the
        producer, TRANSACTION_COORDINATOR_FENCED for an older epoch of its coordinator.
        """
        log = self._log
        if log is None or self.record.leader != self._node_id:
            raise self._not_served()
        log.producers.check_marker(producer_id, producer_epoch, coordinator_epoch=coordinator_epoch)
        if log.producers.open_transaction(producer_id) is None:
            return None
        marker = write_marker(
            producer_id,
            producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=self._clock.now_ms(),
        )
        base_offset = log.append(marker, leader_epoch=self.record.leader_epoch)
        return Appended(base_offset, marker.next_offset, _NO_TIMESTAMP, log.start_offset)

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers, as appended."""
        return self._held_log().producers

    @property
    def end_offset(self) -> Offset:
        """The offset that the next record gets."""
        return self._held_log().end_offset

    def acknowledged(self, end: Offset, acks: int, waiter: Waiter) -> None:  # noqa: ARG002 - see below
        """Tell the waiter when everything below `end` may be acknowledged; at once if that is so.

        With ACKS_LEADER that is when it is durable here, with ACKS_ALL when the high watermark is past it.
        With one replica both come together, and the log tells the waiter: it moves the watermark first.
        """
        log = self._log
        if log is None:
            raise self._not_served()
        log.tell_durable(end, waiter)

    def wait_acknowledged(self, end: Offset) -> asyncio.Future[None]:
        """A future that is done when everything below `end` is acknowledged with ACKS_ALL."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.acknowledged(end, ACKS_ALL, waiter)
        return waiter

    # ---- read

    @property
    def start_offset(self) -> Offset:
        return self._held_log().start_offset

    @property
    def size_bytes(self) -> int:
        return self._held_log().size_bytes

    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset | None = None) -> Slice | None:
        """Whole batches below the high watermark; None if they must come from the disk first.

        With `up_to`, an offset on a batch boundary such as the last stable offset, a read may end earlier and
        never later. A read between its limit and the log end is empty; OffsetOutOfRange beyond the log end.
        """
        limit = self.high_watermark if up_to is None else min(up_to, self.high_watermark)
        return self._held_log().read_nowait(offset, bytes_max=bytes_max, up_to=limit)

    async def read(self, offset: Offset, *, bytes_max: int, up_to: Offset | None = None) -> Slice:
        """Like `read_nowait`, waiting for the disk where it must."""
        limit = self.high_watermark if up_to is None else min(up_to, self.high_watermark)
        return await self._held_log().read(offset, bytes_max=bytes_max, up_to=limit)

    async def find_timestamp(
        self, timestamp_ms: int, *, up_to: Offset | None = None
    ) -> TimestampedOffset | None:
        """The first record at or after a time, with the limits of `read_nowait`.

        Unreadable if it may lie in a batch that cannot be decoded: a guess would skip or repeat records.
        """
        limit = self.high_watermark if up_to is None else min(up_to, self.high_watermark)
        try:
            return await self._held_log().find_timestamp(timestamp_ms, up_to=limit)
        except UndecodableBatch as error:
            raise Unreadable(
                self.name, offset=error.offset, next_offset=error.next_offset, cause=error
            ) from error

    async def find_greatest_timestamp(self, *, up_to: Offset | None = None) -> TimestampedOffset | None:
        """The first record with the greatest time, within the limits of `read_nowait`; None without any time.

        Mostly that time is the newest batch's, and two look-ups tell. Where times do not follow the offsets,
        the greatest one is found by halving what is left between two times.
        """
        end = self.high_watermark if up_to is None else min(up_to, self.high_watermark)
        newest = await self.read(Offset(max(end - 1, self.start_offset)), bytes_max=1, up_to=end)
        low = max((batch.max_timestamp for batch in iter_batches(await newest.load())), default=0)
        found = await self.find_timestamp(max(low, 0), up_to=end) or await self.find_timestamp(0, up_to=end)
        if found is None:
            return None
        step = 1
        while (later := await self.find_timestamp(found.timestamp_ms + step, up_to=end)) is not None:
            found, step = later, step * 2
        high = found.timestamp_ms + step  # no record has this time or a later one
        while high - found.timestamp_ms > 1:
            middle = (found.timestamp_ms + high) // 2
            later = await self.find_timestamp(middle, up_to=end)
            if later is None:
                high = middle
            else:
                found = later
        return found

    def aborted(self, first: Offset, end: Offset) -> Sequence[AbortedTransaction]:
        """The aborted transactions that a reader of the offsets [first, end) leaves out (`PartitionLog`)."""
        return self._held_log().aborted(first, end)

    def read_newest_nowait(self) -> Slice | None:
        """The newest batch, visible or not; for the leader itself, never for a client."""
        log = self._held_log()
        end = log.end_offset
        newest = Offset(max(end - 1, log.start_offset))
        return log.read_nowait(newest, bytes_max=1, up_to=end)

    def end_of_epoch(self, epoch: int) -> tuple[Epoch, Offset] | None:
        """The greatest epoch up to this one that wrote anything, and where it ended.

        An epoch that passed without a record ended at the end of the log: who heard of it from `epoch_at` and
        is told now that nobody knows it takes its position for lost, and goes on from another one.
        """
        log = self._held_log()
        if epoch == self.leader_epoch:
            return self.leader_epoch, log.end_offset
        newest = log.epochs.latest
        if 0 <= epoch < self.leader_epoch and (newest is None or epoch > newest):
            return Epoch(epoch) if newest is None else newest, log.end_offset
        return log.epochs.end_of(epoch, log_end=log.end_offset)

    def epoch_at(self, offset: int) -> Epoch:
        """The epoch in which the record at `offset` was written, as far as that is known; else the newest."""
        found = self.leader_epoch
        for epoch, start in self._held_log().epochs:
            if start > offset:
                break
            found = epoch
        return found

    async def delete_records(self, offset: int) -> Offset:
        """Records below `offset` are gone; returns the new start."""
        log = self._held_log()
        wanted = self.high_watermark if offset == UP_TO_HIGH_WATERMARK else Offset(offset)
        if wanted < 0 or wanted > self.high_watermark:
            raise OffsetOutOfRange(wanted, start=log.start_offset, end=self.high_watermark)
        await log.trim(wanted)
        self._log_moved()  # the last stable offset is never below the start
        return log.start_offset

    def _held_log(self) -> PartitionLog:
        log = self._log
        if log is None:
            raise self._not_served()
        return log

    def _not_served(self) -> BrokerError:
        """Why this node cannot serve it."""
        if self.record.leader != self._node_id:
            return BrokerError(
                f"{self.name} is led by node {self.record.leader}", code=ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        # Clients retry after this code. That is right for a log that is withheld: its records are there, and
        # an operator can put it in service again without a restart.
        reason = self.withheld or f"the log of {self.name} is not available on this node"
        return BrokerError(reason, code=ErrorCode.KAFKA_STORAGE_ERROR)


def _is_stamped(batch: Batch, time_ms: int) -> bool:
    return batch.attributes & LOG_APPEND_TIME_BIT != 0 and batch.max_timestamp == time_ms


def _check_keys(batch: Batch) -> None:
    """Raise InvalidRecords for records without a key: no later record could ever supersede them."""
    _refuse_keyless(batch, [number for number, record in enumerate(batch.records()) if record.key is None])


async def check_keys(batch: Batch) -> None:
    """The same with turns for others, for a batch that is costly to look through (`storage.opening`)."""
    bad: list[int] = []
    number = 0

    def visit(record: Record) -> bool:
        nonlocal number
        if record.key is None:
            bad.append(number)
        number += 1
        return False

    await visit_records(batch, visit)
    _refuse_keyless(batch, bad)


def _refuse_keyless(batch: Batch, bad: list[int]) -> None:
    if bad:
        raise InvalidRecords(
            f"{len(bad)} of {batch.count} records have no key, which a compacted topic needs",
            numbers=bad[:_INVALID_RECORDS_MAX],
            reason="the record has no key, which a compacted topic needs",
        )
