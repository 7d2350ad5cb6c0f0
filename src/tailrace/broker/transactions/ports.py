"""What the coordinator needs of the broker around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tailrace.broker.internal import InternalLog
from tailrace.broker.partition import Partition
from tailrace.model import TopicPartition


class TransactionLog(InternalLog, Protocol):
    """The internal topic of the coordinator."""

    def leader_epoch(self, partition: int) -> int:
        """The epoch in which this node leads the partition: the coordinator epoch of its markers."""


class Participants(Protocol):
    """The partitions that transactions write to: the topics of the broker."""

    def find_partition(self, tp: TopicPartition) -> Partition | None:
        """The partition; None if its topic is gone."""

    def partitions(self) -> Iterator[Partition]:
        """Every partition of every topic."""


class TransactionalState(Protocol):
    """State in an internal topic that takes part in transactions: offsets of groups, acknowledgements."""

    async def wait_loaded(self) -> None:
        """Return when no partition of that topic is being read."""

    def transaction_ended(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """A marker was sequenced in this partition of the topic: what was pending counts, or goes."""


class ProducerIdSource(Protocol):
    """Gives out producer ids."""

    async def fill(self) -> None:
        """Return when `take_nowait` has an id to give."""

    def take_nowait(self) -> int | None:
        """An id that no producer had before; None if none is reserved."""
