"""The positions that one group has committed, which of them are undecided, and which are past their time.

A commit is visible only once it is durable: `begin` notes that it is on its way, `end` that it arrived or
not. What is on its way counts where everything of the group is to be removed: its record may be in the log.

A position that a transaction commits is undecided (`pend`) until the marker of the transaction is durable
(`decide`). Of all records of one partition, tombstones included, the one that is last in the log counts, as
in compaction: a position that was committed or removed behind the record of a transaction stays as it is when
the transaction commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

from tailrace.broker.groups.api import CommittedOffset
from tailrace.broker.groups.stored import StoredOffset
from tailrace.model import TopicPartition


class Placed(NamedTuple):
    """A position and where its record is: `at` grows along the log, and is the same within a batch."""

    stored: StoredOffset
    at: int


class Place:
    """Where the records of a commit or of a removal are; known when they are sequenced."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = -1

    def set(self, end: int) -> None:
        self.at = end


class CommittedOffsets:
    """The positions of one group."""

    __slots__ = ("_coming", "_durable", "_undecided")

    def __init__(self, durable: Mapping[TopicPartition, Placed] | None = None) -> None:
        self._durable = dict(durable or {})
        self._coming: Counter[TopicPartition] = Counter()
        self._undecided: dict[Hashable, dict[TopicPartition, Placed]] = {}  # by transaction, none is empty

    def __repr__(self) -> str:
        return (
            f"<CommittedOffsets of {len(self._durable)} partitions, {len(self._coming)} on their way,"
            f" {len(self._undecided)} transactions>"
        )

    def __len__(self) -> int:
        """Partitions with a position that is durable, undecided or on its way."""
        if not self._coming and not self._undecided:
            return len(self._durable)
        return sum(1 for _ in self)

    def __contains__(self, partition: TopicPartition) -> bool:
        if partition in self._durable or partition in self._coming:
            return True
        return any(partition in pending for pending in self._undecided.values())

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(dict.fromkeys([*self._durable, *self._coming, *self.undecided_partitions()]))

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        placed = self._durable.get(partition)
        return None if placed is None else _visible(placed.stored)

    def all(self) -> dict[TopicPartition, CommittedOffset]:
        return {partition: _visible(placed.stored) for partition, placed in self._durable.items()}

    def of_topic(self, topic: str) -> list[TopicPartition]:
        return [partition for partition in self if partition.topic == topic]

    # Commits and removals

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Commits of these are on their way to the log."""
        for partition in partitions:  # not `update`, which would take a mapping's values for counts
            self._coming[partition] += 1

    def end(self, offsets: Mapping[TopicPartition, StoredOffset], *, at: int, durable: bool) -> None:
        """They arrived, or failed."""
        for partition in offsets:
            self._coming[partition] -= 1
            if not self._coming[partition]:
                del self._coming[partition]
        if durable:
            self._settle((partition, Placed(stored, at)) for partition, stored in offsets.items())

    def remove(self, partitions: Iterable[TopicPartition], *, at: int) -> None:
        """Tombstones of these are durable: positions before them in the log are gone, undecided ones too."""
        gone = list(partitions)
        _drop(self._durable, gone, at)
        for transaction in list(self._undecided):
            pending = self._undecided[transaction]
            _drop(pending, gone, at)
            if not pending:
                del self._undecided[transaction]

    # Transactions

    @property
    def undecided(self) -> int:
        """Positions that wait for the end of their transactions; a partition may have several."""
        return sum(map(len, self._undecided.values()))

    def undecided_partitions(self) -> set[TopicPartition]:
        """The partitions whose position a transaction may move when it ends."""
        return {partition for pending in self._undecided.values() for partition in pending}

    def pend(self, transaction: Hashable, offsets: Mapping[TopicPartition, Placed]) -> None:
        """A transaction commits these, if it commits; a later position replaces an earlier one."""
        self._undecided.setdefault(transaction, {}).update(offsets)

    def decide(self, transaction: Hashable, *, commit: bool) -> None:
        """The marker of a transaction is durable."""
        pending = self._undecided.pop(transaction, {})
        if commit:
            self._settle(pending.items())

    # Expiry

    def plan_expiry(self, *, now_ms: int, retention_ms: int, unused_since_ms: int) -> list[TopicPartition]:
        """What is to be forgotten of a group that has had no members since `unused_since_ms`."""
        undecided = self.undecided_partitions()
        return [
            partition
            for partition, (stored, _) in self._durable.items()
            if partition not in self._coming
            and partition not in undecided
            and now_ms >= _expires_ms(stored, retention_ms=retention_ms, unused_since_ms=unused_since_ms)
        ]

    def _settle(self, offsets: Iterable[tuple[TopicPartition, Placed]]) -> None:
        for partition, placed in offsets:
            known = self._durable.get(partition)
            if known is None or known.at <= placed.at:
                self._durable[partition] = placed


def _drop(offsets: dict[TopicPartition, Placed], gone: Iterable[TopicPartition], at: int) -> None:
    for partition in gone:
        placed = offsets.get(partition)
        if placed is not None and placed.at <= at:
            del offsets[partition]


def _expires_ms(stored: StoredOffset, *, retention_ms: int, unused_since_ms: int) -> int:
    if stored.expires_ms is not None:
        return stored.expires_ms
    # A position that an administrator set yesterday in a group unused for a year is worth a week as well.
    return max(stored.committed_ms, unused_since_ms) + retention_ms


def _visible(stored: StoredOffset) -> CommittedOffset:
    return CommittedOffset(stored.offset, stored.leader_epoch, stored.metadata)
