"""One partition that a subscription delivers from: its state machine, its feed, its durable cursor."""

from __future__ import annotations

from tailrace.broker.feed import Feed, Skip
from tailrace.broker.partition import Partition
from tailrace.broker.subscriptions.dead_letter import is_letter_of
from tailrace.broker.subscriptions.delivery import Source
from tailrace.broker.subscriptions.journal import CursorRecords
from tailrace.broker.subscriptions.machine import PartitionMachine
from tailrace.broker.subscriptions.stored import AcksKey, CursorDelta, CursorSnapshot, StoredAcks
from tailrace.model import BrokerError
from tailrace.records import NewRecord, Record
from tailrace.storage.opening import SLICE_RECORDS

TTL = "ttl_ms"
PRIORITY = "priority"
PRIORITY_DEFAULT = 4
_PRIORITY_MAX = 9
_LEAP_MIN = 1_000  # offsets in a row that are done; fewer are read and passed over


class Pending:
    """A message whose content is here and that no member has: it waits for one with room."""

    __slots__ = ("again", "key", "partition", "priority", "record", "size")

    def __init__(
        self, partition: SubscribedPartition, record: Record, *, again: bool, priority: int, size: int
    ) -> None:
        self.partition = partition
        self.record = record
        self.size = size  # about what it takes in memory
        self.key = record.key
        self.again = again  # it was with somebody before
        self.priority = priority


class SubscribedPartition:
    """A partition, as one subscription goes through it."""

    __slots__ = (
        "_letters_of",
        "expired",
        "feed",
        "machine",
        "partition",
        "place",
        "records",
        "skipped",
        "source",
        "undecided_acks",
        "unreadable",
    )

    def __init__(
        self,
        place: int,
        source: Source,
        partition: Partition,
        *,
        machine: PartitionMachine,
        feed: Feed,
        records: CursorRecords,
        letters_of: str | None = None,
    ) -> None:
        self._letters_of = letters_of  # of a dead-letter topic, which may be shared: whose are delivered
        self.place = place  # its number within the subscription
        self.source = source
        self.partition = partition
        self.machine = machine
        self.feed = feed
        self.records = records
        self.undecided_acks: dict[AcksKey, StoredAcks] = {}  # stored, of transactions that are open
        self.expired = 0  # messages whose time to live was over
        self.skipped = 0  # messages that were never delivered: gone, or in a batch that cannot be decoded
        self.unreadable = 0  # those of them that cannot be decoded

    def __repr__(self) -> str:
        return f"<SubscribedPartition {self.source.topic}-{self.source.partition} {self.machine}>"

    @property
    def start(self) -> int:
        """Where the messages begin that it may still deliver."""
        position = self.machine.cursor.position
        try:
            return max(position, self.partition.start_offset)
        except BrokerError:  # it is not served here, or not any more
            return position

    @property
    def end(self) -> int:
        """Where the messages end that it may deliver."""
        if self.feed.limit is not None:
            return self.feed.limit
        if not self.partition.is_held_here:
            return self.machine.cursor.position
        return self.partition.last_stable_offset

    @property
    def lag(self) -> int:
        """How many offsets are there and not done with."""
        start = self.start
        return max(self.end - start - self.machine.cursor.beyond.count_from(start), 0)

    def take_new(self, now_ms: int) -> Record | None:
        """The next record that nobody had yet; what is done, missing or expired is passed over."""
        machine, feed = self.machine, self.feed
        passed = 0
        while True:
            if passed == SLICE_RECORDS:
                feed.rest()
            passed += 1
            before = feed.position
            record = feed.take_nowait()
            if record is None:
                if feed.position > before:
                    machine.pass_over(before, feed.position)
                return None
            offset = record.offset
            if offset > before:
                machine.pass_over(before, offset)
            if machine.is_known(offset):
                undone = machine.cursor.beyond.first_gap(offset)
                if undone - offset > _LEAP_MIN:  # after a start, behind a message that is stuck
                    feed.move_to(undone)
                continue
            if self._letters_of is not None and not is_letter_of(record, self._letters_of):
                machine.pass_over(offset, offset + 1)
                continue
            if record.headers and is_expired(record, now_ms):
                machine.pass_over(offset, offset + 1)
                self.expired += 1
                continue
            return record

    def take_skips(self) -> list[Skip]:
        """The messages that turned out since the last call to be never delivered."""
        if not self.feed.skips:
            return []
        skips = self.feed.take_skips()
        self.skipped += sum([skip.count for skip in skips])
        self.unreadable += sum([skip.count for skip in skips if skip.fault])
        return skips

    def snapshot(self, version: int) -> CursorSnapshot:
        """The whole durable state."""
        machine = self.machine
        return CursorSnapshot(
            version=version,
            epoch=machine.epoch,
            position=machine.cursor.position,
            ranges=tuple(machine.cursor.beyond),
            failures=dict(machine.failures),
            limit=self.feed.limit,
        )

    def write_changes(self, time_ms: int) -> NewRecord | None:
        """The record of what changed since the last one, if anything did."""
        changes = self.machine.take_changes()
        if changes is None:
            return None
        if changes.whole:
            self.records.need_snapshot()
        delta = CursorDelta(position=changes.position, ranges=changes.ranges, failures=changes.failures)
        return self.records.record(delta, self.snapshot, time_ms=time_ms)

    def write_snapshot(self, time_ms: int) -> NewRecord:
        """The record of everything."""
        self.machine.take_changes()
        cursor = self.machine.cursor
        self.records.need_snapshot()
        return self.records.record(
            CursorDelta(position=cursor.position, ranges=(), failures={}), self.snapshot, time_ms=time_ms
        )


def is_expired(record: Record, now_ms: int) -> bool:
    """Whether the time to live that a message carries is over; one that makes no sense is none.

    Messages carry the time of day, so that is what they are measured by: a clock that was wrong when this
    node started, and was set right since, must not cost them their lives.
    """
    for name, value in record.headers:
        if name == TTL:
            return value is not None and value.isdigit() and record.timestamp + int(value[:18]) < now_ms
    return False


def priority_of(record: Record) -> int:
    """What a message says of its own urgency, 0 to 9."""
    for name, value in record.headers:
        if name == PRIORITY and value is not None and value.isdigit():
            return min(int(value[:2]), _PRIORITY_MAX)
    return PRIORITY_DEFAULT
