"""The storage port: one partition's log, and the engine that holds many of them.

A log is a sequence of record batches, each with its offsets, for ever. Appending is synchronous: it fixes
the offset and queues the write without an await. Durability is awaited separately. Reading is immediate while
the data is hot (`read_nowait`) and awaited when it is cold (`read`).

A log does not know which of its records are visible: its owner does, and names the limit of every read
(`up_to`). A consumer reads up to the high watermark, a replica up to the log end, whether that is durable or
not. Groups, transactions and replication live above this port.

`tailrace.testing.storage_suite` proves an engine against these contracts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from tailrace.model import ConfigError, Epoch, Offset, PartitionId
from tailrace.records import Batch
from tailrace.storage.aborted import AbortedTransaction
from tailrace.storage.counters import StorageCounters
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.producers import ProducerStates

_DAY_MS = 24 * 3600 * 1000
NO_LIMIT = -1


@dataclass(frozen=True, slots=True)
class Fsync:
    """When an append counts as durable.

    `commit`         when it is synced; many appends share one sync.
    `interval:<ms>`  when it is written; a sync follows at least this often.
    `os`             when it is written; the operating system syncs when it likes.

    Transactional and control batches are durable when they are synced, whatever is set.
    """

    interval_ms: int | None = 0

    @property
    def awaited(self) -> bool:
        """Whether an append waits for the sync."""
        return self.interval_ms == 0

    @classmethod
    def parse(cls, text: str) -> Fsync:
        if text == "commit":
            return COMMIT
        if text == "os":
            return OS
        kind, _, number = text.partition(":")
        if kind == "interval" and number.isdecimal() and int(number) > 0:
            return cls(int(number))
        raise ConfigError(
            f"fsync = {text!r} is not known. Use commit, interval:<ms> (such as interval:200), or os"
        )

    def __str__(self) -> str:
        if self.interval_ms is None:
            return "os"
        return f"interval:{self.interval_ms}" if self.interval_ms else "commit"


COMMIT = Fsync(0)
OS = Fsync(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one partition's log; -1 means no limit."""

    fsync: Fsync | None = None  # None: the engine's own
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    index_interval_bytes: int = 4096
    retention_ms: int = 31 * _DAY_MS
    retention_bytes: int = NO_LIMIT
    archive_wait_ms: int = 0  # how long what is past retention waits for `archived_before`; 0: not at all
    archive_wait_bytes: int = NO_LIMIT  # and how much of it waits
    compact: bool = False  # keep the newest record of every key
    delete: bool = True  # remove what is past retention
    delete_retention_ms: int = _DAY_MS  # how long a tombstone stays visible
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (
        NO_LIMIT  # a segment is sealed, and then compacted, at this age at the latest
    )
    dirty_ratio_min: float = (
        0.5  # new bytes among those that compaction would go through; fewer wait for more
    )
    producer_idle_ms: int = _DAY_MS  # after which an idempotent producer is forgotten
    options: Mapping[str, int] = field(default_factory=dict, hash=False)
    """What only one engine obeys, by name (`storage.topic_option`); an engine has defaults of its own."""


class Extent(Protocol):
    """A run of whole batches whose size is known before its bytes are in memory."""

    size: int

    def load_nowait(self) -> memoryview | None:
        """The bytes, checked; None if they must come from the disk first."""

    async def load(self) -> memoryview:
        """The bytes, checked; LogDamaged if they are not what was written."""

    def release(self) -> None:
        """The view from `load` is not used any more, and its buffer may serve another read."""


@dataclass(slots=True)
class Slice:
    """What a read found: whole batches, the first of which holds the offset asked for."""

    next_offset: Offset  # where the next read goes on
    extents: Sequence[Extent]
    size: int

    async def load(self) -> bytes:
        """All of it in one piece; for callers who do not stream."""
        parts = []
        for extent in self.extents:
            parts.append(bytes(await extent.load()))
            extent.release()
        return b"".join(parts)


class TimestampedOffset(NamedTuple):
    """A record found by its time."""

    offset: Offset
    timestamp_ms: int


class Waiter(Protocol):
    """Whoever waits for durability, told once. A future is one."""

    def done(self) -> bool:
        """Whether it was told, or does not wait any more."""

    def set_result(self, result: None, /) -> None:
        """It is durable."""

    def set_exception(self, error: Exception, /) -> None:
        """It never will be."""


def ignore_change() -> None:
    """What a log calls while nobody watches it."""


class PartitionLog(Protocol):
    """The log of one partition."""

    on_change: Callable[[], None]
    """Called in the loop when `durable_offset` has moved, forward or back, and when the log has ended.

    The call comes in the same step as the move, and before any waiter is told: the owner's high watermark is
    past an offset when a waiter hears that the offset is durable. It must not append or read at that moment.
    """

    final_before: Callable[[], Offset]
    """Returns the offset below which records are final; the owner sets it.

    By default `durable_offset`, or the first offset of a transaction that is not decided. Records at or above
    it may still be taken back or aborted. They do not expire, are not evicted, and supersede no
    earlier record of their key.
    """

    archived_before: Offset
    """The offset below which archives have every record; the owner sets it. Retention waits for it.

    0 at first: nothing is known to be archived. It counts where the settings say that retention waits.
    """

    @property
    def partition_id(self) -> PartitionId:
        """Which partition this is."""

    @property
    def config(self) -> LogConfig:
        """The settings in force."""

    @property
    def start_offset(self) -> Offset:
        """The first offset that can be read."""

    @property
    def end_offset(self) -> Offset:
        """The offset that the next record gets."""

    @property
    def durable_offset(self) -> Offset:
        """Everything below is durable; never above `end_offset`, and on a batch boundary."""

    @property
    def size_bytes(self) -> int:
        """About what its batches take, on disk or in memory."""

    @property
    def epochs(self) -> LeaderEpochs:
        """Which leader epoch wrote which offsets, as appended."""

    @property
    def producers(self) -> ProducerStates:
        """The newest batches of every idempotent producer, as appended."""

    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        """Take a validated batch, and its buffer, for good; returns its base offset.

        A leader names its epoch: the log assigns the next offsets and writes both into the batch. A follower
        names none: the batch keeps what its leader gave it, which must not lie below `end_offset`.
        Raises NoSpace or LogBusy (retriable), LogDamaged (quarantined), StorageError (fenced or closed).
        """

    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice | None:
        """Whole batches below `up_to` from the one that holds `offset`: one, or more of `bytes_max` at most.

        `up_to` is at most `end_offset`, and on a batch boundary. From `up_to` to `end_offset` the slice is
        empty and goes on at `offset`. OffsetOutOfRange outside of [start_offset, end_offset]; its `end` is
        `up_to`, for a reader is not told of more. None if finding the batches needs the disk.
        """

    async def read(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        """Like `read_nowait`, waiting for the disk where it must."""

    def wait_durable(self, end: Offset) -> asyncio.Future[None]:
        """Done when `durable_offset` has reached `end`; StorageError if it never will."""

    def tell_durable(self, end: Offset, waiter: Waiter) -> None:
        """The same for a waiter of the caller's own; it is told in the loop, at once if there is no wait.

        It must not append or read at that moment: it notes what it was told, and acts on it later.
        """

    def aborted(self, first: Offset, end: Offset) -> Sequence[AbortedTransaction]:
        """The aborted transactions that a reader of the offsets [first, end) must know, by their markers.

        Those whose marker is at or after `first` and that began before `end`. Taken in the same turn as the
        limit of the read: compaction may remove the last trace of a transaction meanwhile.
        """

    async def truncate(self, offset: Offset) -> None:
        """Remove the batch that holds `offset` and all after it; returns when that is durable."""

    async def trim(self, offset: Offset) -> None:
        """Move `start_offset` up to `offset`; returns when that is durable."""

    async def find_timestamp(self, timestamp_ms: int, *, up_to: Offset) -> TimestampedOffset | None:
        """The first record below `up_to` whose timestamp is at or after `timestamp_ms`.

        UndecodableBatch if that may lie in a batch whose records cannot be decoded.
        """

    async def close(self) -> None:
        """Make everything appended durable and let go; closing twice is harmless."""


@dataclass(slots=True, kw_only=True)
class Cut:
    """A directory with every file of one moment of a storage, as long as it is held."""

    name: str
    root: str  # the data directory
    spoiled: bool = False  # a truncation has changed files of it since

    @property
    def path(self) -> str:
        return os.path.join(self.root, self.name)


@runtime_checkable
class CutStorage(Protocol):
    """A storage whose files can be backed up while it serves."""

    async def cut(self) -> Cut:
        """A cut that holds everything durable now; StorageError if it cannot be made, and nothing is left."""

    async def remove_cut(self, cut: Cut) -> None:
        """Let go of a cut; twice is harmless."""


class StorageEngine(Protocol):
    """The logs of one node."""

    @property
    def durable(self) -> bool:
        """Whether what is acknowledged outlives the process."""

    @property
    def counters(self) -> StorageCounters:
        """What it measures of itself."""

    def logs(self) -> Sequence[PartitionLog]:
        """Every log that is open."""

    def get(self, partition_id: PartitionId) -> PartitionLog | None:
        """The log of a partition, if there is one."""

    async def create(self, partition_id: PartitionId, config: LogConfig) -> PartitionLog:
        """A new, empty log; returns when its creation is durable. PartitionExists if there is one."""

    async def delete(self, partition_id: PartitionId) -> None:
        """Remove a log, or UnknownPartition; returns when that is durable. Readers finish undisturbed."""

    def configure(self, partition_id: PartitionId, config: LogConfig) -> None:
        """Put new settings in force, or UnknownPartition."""

    def label(self, partition_id: PartitionId, *, cluster_id: str, topic: str) -> None:
        """Keep beside the log whose it is, some time soon, for a rebuild of lost metadata."""

    async def maintain(self) -> None:
        """Do the housekeeping that is due: rolling by age, retention, compaction, eviction by age."""

    async def compact(self) -> None:
        """Do only what compacted logs are due: rolling by age, compaction."""

    async def wait_failed(self) -> Exception:
        """Return the error that ended this engine, once there is one."""

    async def close(self) -> None:
        """Make everything durable and let go; closing twice is harmless."""
