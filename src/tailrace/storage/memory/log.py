"""One partition in memory: the storage port over a ring.

Rules:
- What is appended is durable at once: `durable_offset` is `end_offset`.
- Limits hold after every append and after `evict`. Limits of size and count spare the newest batch, and an
  append spares its own batch whatever its age; only `evict` empties a log by age.
- A batch that is not final is never evicted. An append that would need its room is refused with LogBusy, so
  the limits of size and count hold all the same.
- Age counts from a batch's greatest timestamp, or from its arrival where it carries none. Batches leave from
  the front only, so one that claims to be younger holds back those behind it.
- Where the settings say that retention waits for archives, a batch that only retention would drop stays while
  it is not archived: until it has been due for `archive_wait_ms`, and while all that waits is at most
  `archive_wait_bytes`. The limits of memory hold for it as for others.
- `memory.max.bytes` counts batches. A small batch that lies in a much larger buffer is copied out of it, so
  that the ring never pins memory that it does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailrace.model import Epoch, LogBusy, Offset, OffsetOutOfRange, PartitionId, StorageError
from tailrace.records import Batch
from tailrace.runtime import Clock
from tailrace.storage.aborted import AbortedList, AbortedTransaction
from tailrace.storage.api import LogConfig, Slice, TimestampedOffset, Waiter, ignore_change
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.memory.option import BYTES_MAX, MESSAGES_MAX, TTL_MS
from tailrace.storage.memory.ring import Ring
from tailrace.storage.memory.snapshot_file import RingCut
from tailrace.storage.opening import find_record_at
from tailrace.storage.producers import ProducerStates

_SLICE_BATCHES = 4096
"""How many batches are dropped or looked at before others get a turn: well under a millisecond."""
_APPEND_EXPIRED_MAX = 64
"""How many old batches one append drops: more than come in, so they do not pile up, yet no long wait."""
_SLACK_BYTES = 4096
_PURGE_AT_MIN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RingLimits:
    """What a ring may hold; -1 means no limit."""

    bytes_max: int
    messages_max: int
    age_ms_max: int


def plan_limits(config: LogConfig) -> RingLimits:
    """The limits that the settings come down to: retention counts where `delete` is on."""
    return RingLimits(
        bytes_max=_tighter(BYTES_MAX.of(config), config.retention_bytes if config.delete else -1),
        messages_max=MESSAGES_MAX.of(config),
        age_ms_max=_tighter(TTL_MS.of(config), config.retention_ms if config.delete else -1),
    )


class MemoryLog:
    """The ring of one partition, and the state derived from it."""

    __slots__ = (
        "_aborted",
        "_clock",
        "_closed",
        "_config",
        "_dropped_are_shared",
        "_dropped_producers",
        "_end",
        "_limits",
        "_purge_at",
        "_ring",
        "_start",
        "_waiters",
        "archived_before",
        "epochs",
        "final_before",
        "on_change",
        "partition_id",
        "producers",
    )

    def __init__(self, partition_id: PartitionId, config: LogConfig, *, clock: Clock) -> None:
        self.partition_id = partition_id
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self._dropped_producers = ProducerStates()  # as of the front of the ring: where a rebuild starts
        self._dropped_are_shared = False  # a cut has them: the next change is made to a copy
        self._aborted = AbortedList()
        self._clock = clock
        self._config = config
        self._limits = plan_limits(config)
        self._ring = Ring()
        self._start = Offset(0)
        self._end = Offset(0)  # never below _start
        self._closed = False
        self._waiters: list[tuple[Offset, Waiter]] = []
        self._purge_at = _PURGE_AT_MIN  # so many waiters that some of them may have given up
        self.on_change: Callable[[], None] = ignore_change
        self.final_before: Callable[[], Offset] = self._stable_end
        self.archived_before = Offset(0)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._ring)} batches, {self._ring.size} bytes"
        return f"<MemoryLog {self.partition_id} {self._start} to {self._end}, {state}>"

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def start_offset(self) -> Offset:
        return self._start

    @property
    def end_offset(self) -> Offset:
        return self._end

    @property
    def durable_offset(self) -> Offset:
        return self._end

    @property
    def size_bytes(self) -> int:
        return self._ring.size

    @property
    def closed(self) -> bool:
        """Whether its batches are gone for good."""
        return self._closed

    def configure(self, config: LogConfig) -> None:
        """Put new settings in force; what they do not allow leaves at once."""
        self._config = config
        self._limits = plan_limits(config)
        self._evict_surplus(spared=1)

    def cut(self) -> RingCut:
        """The log as it is now, for a snapshot; what is appended or dropped later does not change it."""
        self._dropped_are_shared = True
        return RingCut(
            partition_id=self.partition_id,
            start=self._start,
            end=self._end,
            epochs=self.epochs.copy(),
            producers=self._dropped_producers,
            aborted=list(self._aborted),
            columns=self._ring.cut(),
        )

    def restore(self, cut: RingCut) -> None:
        """Become what a snapshot holds; for a log that is new. Settings are put in force by `configure`."""
        assert self._end == 0 and not self._ring, "a snapshot is restored into a new log"
        for batch, stamp_ms in cut.batches():
            self._ring.push(batch, stamp_ms)
        self._start, self._end = cut.start, cut.end
        self.epochs = cut.epochs
        self._dropped_producers = cut.producers
        self._aborted = AbortedList(cut.aborted)
        self._rebuild_producers()

    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        self._check_open("append")
        if _is_in_far_larger_buffer(batch):
            batch.data = memoryview(bytearray(batch.data))
        if leader_epoch is None and batch.base_offset < self._end:
            raise OffsetOutOfRange(batch.base_offset, start=self._start, end=self._end)
        ring, limits = self._ring, self._limits
        size, count = batch.size, batch.count
        if (
            0 <= limits.bytes_max < ring.size + size or 0 <= limits.messages_max < ring.messages + count
        ) and not self._evict_surplus(bytes_more=size, messages_more=count):
            raise self._is_full()
        if leader_epoch is not None:
            batch.assign(self._end, leader_epoch)
        base_offset = batch.base_offset
        now_ms = self._clock.steady_ms()
        ring.push(batch, batch.max_timestamp if batch.max_timestamp >= 0 else now_ms)
        self._end = batch.next_offset
        self.epochs.apply(batch.leader_epoch, base_offset)
        aborted = self.producers.apply(batch)
        if aborted is not None:
            self._aborted.add(aborted)
        self._evict_expired(now_ms, batches_max=_APPEND_EXPIRED_MAX, spared=1)
        self.on_change()
        if self._waiters:
            self._wake_reached()
        return base_offset

    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        self._check_open("read")
        up_to = min(up_to, self._end)
        if not self._start <= offset <= self._end:
            raise OffsetOutOfRange(offset, start=self._start, end=up_to)
        extents, size, next_offset = self._ring.read(offset, bytes_max, up_to)
        if not extents:
            next_offset = max(offset, up_to)  # a truncation may have left a gap below
        return Slice(Offset(next_offset), extents, size)

    async def read(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        return self.read_nowait(offset, bytes_max=bytes_max, up_to=up_to)

    def aborted(self, first: Offset, end: Offset) -> Sequence[AbortedTransaction]:
        return self._aborted.find(first, end)

    def wait_durable(self, end: Offset) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tell_durable(end, future)
        return future

    def tell_durable(self, end: Offset, waiter: Waiter) -> None:
        if self._closed:
            waiter.set_exception(self._is_closed("wait"))
        elif end <= self._end:
            waiter.set_result(None)
        else:
            if len(self._waiters) >= self._purge_at:
                self._keep_waiters([waiter for waiter in self._waiters if not waiter[1].done()])
            self._waiters.append((end, waiter))

    async def truncate(self, offset: Offset) -> None:
        self._check_open("truncate")
        if offset >= self._end:
            return
        removed = self._ring.drop_from(offset)
        if self._dropped_producers.reaches(offset):
            self._own_dropped().clear()  # some of what it knows is undone, and it cannot tell which
        self._end = min(offset, removed[0].base_offset) if removed else offset
        self._start = min(self._start, self._end)
        self.epochs.truncate(self._end)
        self._aborted.truncate(self._end)
        if self.producers.reaches(self._end):
            self._rebuild_producers()
        self.on_change()

    async def trim(self, offset: Offset) -> None:
        self._check_open("trim")
        if offset > self._end:
            raise OffsetOutOfRange(offset, start=self._start, end=self._end)
        self._move_start(offset)
        for count in range(1, len(self._ring) + 1):
            # Nothing below the start can be read any more; only its memory is given back in turns.
            if not self._ring or self._ring.front_next_offset > self._start:
                return
            self._drop_front()
            if count % _SLICE_BATCHES == 0:
                await asyncio.sleep(0)

    async def find_timestamp(self, timestamp_ms: int, *, up_to: Offset) -> TimestampedOffset | None:
        self._check_open("find")
        for index, batch in enumerate(self._ring.batches(), start=1):
            if batch.next_offset > up_to:
                return None
            if batch.max_timestamp >= timestamp_ms:
                found = await find_record_at(batch, timestamp_ms, start=self._start)
                if found is not None:
                    return TimestampedOffset(*found)
            if index % _SLICE_BATCHES == 0:
                await asyncio.sleep(0)
        return None

    async def evict(self) -> None:
        """Drop what has grown too old, and forget producers that have been quiet for long."""
        now_ms = self._clock.steady_ms()
        for _ in range(len(self._ring) // _SLICE_BATCHES + 1):
            if not self._evict_expired(now_ms, batches_max=_SLICE_BATCHES, spared=0):
                break
            await asyncio.sleep(0)
        self._evict_surplus(spared=1)  # what waited for an archive may go now
        self.producers.forget_idle(now_ms, idle_ms=self._config.producer_idle_ms)
        if not self._dropped_are_shared:  # else the next time
            self._dropped_producers.forget_idle(now_ms, idle_ms=self._config.producer_idle_ms)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ring = Ring()
            self.on_change()
            for _, waiter in self._waiters:
                if not waiter.done():
                    waiter.set_exception(self._is_closed("wait"))
            self._waiters.clear()

    def _check_open(self, op: str) -> None:
        if self._closed:
            raise self._is_closed(op)

    def _is_closed(self, op: str) -> StorageError:
        return StorageError(op, str(self.partition_id), "the log is closed")

    def _rebuild_producers(self) -> None:
        self.producers = self._dropped_producers.copy()
        for batch in self._ring.batches():
            self.producers.apply(batch)

    def _evict_surplus(self, *, bytes_more: int = 0, messages_more: int = 0, spared: int = 0) -> bool:
        """Drop batches until the limits of size and count allow so much more, except `spared` of them.

        Returns whether that was possible: batches that are not final stay.
        """
        ring, limits, final = self._ring, self._limits, self.final_before()
        while (
            0 <= limits.bytes_max < ring.size + bytes_more
            or 0 <= limits.messages_max < ring.messages + messages_more
        ) and len(ring) > spared:
            if self._is_awaited() and self._surplus_waits(
                ring.size + bytes_more, ring.messages + messages_more
            ):
                return True
            if ring.front_next_offset > final:
                return False
            self._move_start(self._drop_front())
        return True

    def _is_full(self) -> LogBusy:
        return LogBusy(
            f"the ring of {self.partition_id} is full, and batches from {self._start} on are not final; "
            "try again when they are"
        )

    def _evict_expired(self, now_ms: int, *, batches_max: int, spared: int) -> bool:
        """Drop old batches that are final, except `spared` of them.

        Returns whether there may be more of them than `batches_max`.
        """
        ring, age_ms_max = self._ring, self._limits.age_ms_max
        if age_ms_max < 0:
            return False
        surplus = 0  # of what waits for an archive; an append leaves it to `evict`, which may take longer
        if not spared and self._is_awaited() and self._config.archive_wait_bytes >= 0:
            expired = ring.size_written_before(now_ms - self._config.retention_ms)
            surplus = expired - self._config.archive_wait_bytes
        for _ in range(batches_max):
            if len(ring) <= spared or now_ms - ring.oldest_ms <= age_ms_max:
                return False
            if surplus <= 0 and self._is_awaited() and self._expired_waits(now_ms):
                return False
            if ring.front_next_offset > self.final_before():
                return False
            size = ring.size
            self._move_start(self._drop_front())
            surplus -= size - ring.size
        return True

    def _is_awaited(self) -> bool:
        """Whether retention waits for an archive to have the front of the ring."""
        config = self._config
        return (
            config.archive_wait_ms > 0
            and config.delete
            and len(self._ring) > 0
            and self._ring.front_next_offset > self.archived_before
        )

    def _surplus_waits(self, size: int, messages: int) -> bool:
        """Whether a ring of this size may keep its front a while longer, past retention by size."""
        config = self._config
        if 0 <= BYTES_MAX.of(config) < size or 0 <= MESSAGES_MAX.of(config) < messages:
            return False
        if 0 <= config.archive_wait_bytes < size - config.retention_bytes:
            return False
        due_ms = self._ring.grown_past_ms(config.retention_bytes)
        return due_ms is None or self._clock.steady_ms() - due_ms <= config.archive_wait_ms

    def _expired_waits(self, now_ms: int) -> bool:
        """Whether the front of the ring may stay a while longer, past retention by time."""
        config = self._config
        age_ms = now_ms - self._ring.oldest_ms
        is_past_memory = 0 <= TTL_MS.of(config) < age_ms
        return not is_past_memory and age_ms - config.retention_ms <= config.archive_wait_ms

    def _drop_front(self) -> Offset:
        batch = self._ring.drop_front()
        self._own_dropped().apply(batch)
        if self._dropped_producers.undecided:
            self._dropped_producers.settle()
        return batch.next_offset

    def _own_dropped(self) -> ProducerStates:
        """The producers of what was dropped, for a change."""
        if self._dropped_are_shared:
            self._dropped_producers = self._dropped_producers.copy()
            self._dropped_are_shared = False
        return self._dropped_producers

    def _move_start(self, offset: Offset) -> None:
        if offset > self._start:
            self._start = offset
            self.epochs.trim(offset)
            self._aborted.trim(offset)

    def _stable_end(self) -> Offset:
        end = self.durable_offset
        first = self.producers.first_undecided(end) if self.producers.undecided else None
        return end if first is None else min(first, end)

    def _wake_reached(self) -> None:
        still_waiting = []
        for end, waiter in self._waiters:
            if end > self._end:
                still_waiting.append((end, waiter))
            elif not waiter.done():  # else it has been cancelled
                waiter.set_result(None)
        self._keep_waiters(still_waiting)

    def _keep_waiters(self, waiters: list[tuple[Offset, Waiter]]) -> None:
        self._waiters = waiters
        self._purge_at = max(_PURGE_AT_MIN, 2 * len(waiters))


def _tighter(one: int, other: int) -> int:
    return max(one, other) if min(one, other) < 0 else min(one, other)


def _is_in_far_larger_buffer(batch: Batch) -> bool:
    whole = memoryview(batch.data.obj).nbytes
    return whole > 2 * batch.size + _SLACK_BYTES
