"""The positions that one group has committed, and which of them are past their time.

A commit is visible only once it is durable: `begin` notes that it is on its way, `end` that it arrived or
not. What is on its way counts where everything of the group is to be removed: its record may be in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tailrace.broker.groups.api import CommittedOffset
from tailrace.broker.groups.stored import StoredOffset
from tailrace.model import TopicPartition


class CommittedOffsets:
    """The positions of one group."""

    __slots__ = ("_coming", "_durable")

    def __init__(self, durable: Mapping[TopicPartition, StoredOffset] | None = None) -> None:
        self._durable = dict(durable or {})
        self._coming: Counter[TopicPartition] = Counter()

    def __repr__(self) -> str:
        return f"<CommittedOffsets of {len(self._durable)} partitions, {len(self._coming)} on their way>"

    def __len__(self) -> int:
        """Partitions with a position that is durable or on its way."""
        return len(self._durable) + sum(partition not in self._durable for partition in self._coming)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._durable or partition in self._coming

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(dict.fromkeys([*self._durable, *self._coming]))

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        stored = self._durable.get(partition)
        return None if stored is None else _visible(stored)

    def all(self) -> dict[TopicPartition, CommittedOffset]:
        return {partition: _visible(stored) for partition, stored in self._durable.items()}

    def of_topic(self, topic: str) -> list[TopicPartition]:
        return [partition for partition in self if partition.topic == topic]

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Commits of these are on their way to the log."""
        for partition in partitions:  # not `update`, which would take a mapping's values for counts
            self._coming[partition] += 1

    def end(self, offsets: Mapping[TopicPartition, StoredOffset], *, durable: bool) -> None:
        """They arrived, or failed."""
        for partition in offsets:
            self._coming[partition] -= 1
            if not self._coming[partition]:
                del self._coming[partition]
        if durable:
            self._durable.update(offsets)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Tombstones of these are durable."""
        for partition in partitions:
            self._durable.pop(partition, None)

    def plan_expiry(self, *, now_ms: int, retention_ms: int, unused_since_ms: int) -> list[TopicPartition]:
        """What is to be forgotten of a group that has had no members since `unused_since_ms`."""
        return [
            partition
            for partition, stored in self._durable.items()
            if partition not in self._coming
            and now_ms >= _expires_ms(stored, retention_ms=retention_ms, unused_since_ms=unused_since_ms)
        ]


def _expires_ms(stored: StoredOffset, *, retention_ms: int, unused_since_ms: int) -> int:
    if stored.expires_ms is not None:
        return stored.expires_ms
    # A position that an administrator set yesterday in a group unused for a year is worth a week as well.
    return max(stored.committed_ms, unused_since_ms) + retention_ms


def _visible(stored: StoredOffset) -> CommittedOffset:
    return CommittedOffset(stored.offset, stored.leader_epoch, stored.metadata)
