"""What whoever keeps state in a log needs of the broker: an internal topic, and nothing of how it is made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from tailrace.model import Offset
from tailrace.records import NewRecord, Visible
from tailrace.storage.api import Waiter


class InternalLog(Protocol):
    """An internal compacted topic, partition by partition."""

    @property
    def partitions(self) -> int:
        """How many partitions the topic has; 0 while it does not exist."""

    def leads(self, partition: int) -> bool:
        """Whether this node leads the partition now."""

    async def ensure(self) -> None:
        """Create the topic unless it exists; BrokerError where that is not possible (yet)."""

    def sequence(self, partition: int, records: Sequence[NewRecord]) -> Offset:
        """Append records now; returns the offset past them.

        After an error some of them may be in the log: callers must not conclude that none is.
        """

    def sequence_transactional(
        self, partition: int, records: Sequence[NewRecord], *, producer_id: int, producer_epoch: int
    ) -> Offset:
        """Append records now, as one batch of the open transaction of a producer; returns the offset past it.

        The caller knows from the coordinator of that transaction that the partition is in it.
        """

    def end_offset(self, partition: int) -> Offset:
        """The offset past everything that is sequenced, durable or not."""

    def acknowledged(self, partition: int, end: Offset, waiter: Waiter) -> None:
        """Tell the waiter when everything below `end` is durable, or never will be; at once if it is."""

    def read(self, partition: int, *, shows_control: bool = False) -> AsyncIterator[Visible]:
        """Every batch that was sequenced before the call, once it is durable.

        Batches of transactions are shown, whatever became of them, and their markers with `shows_control`.
        """
