"""What whoever keeps state in a log needs of the broker: an internal topic, and nothing of how it is made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from tailrace.records import Batch, NewRecord


class InternalLog(Protocol):
    """An internal compacted topic, partition by partition."""

    @property
    def partitions(self) -> int:
        """How many partitions the topic has; 0 while it does not exist."""

    def leads(self, partition: int) -> bool:
        """Whether this node leads the partition now."""

    async def ensure(self) -> None:
        """Create the topic unless it exists; BrokerError where that is not possible (yet)."""

    async def append(self, partition: int, records: Sequence[NewRecord]) -> None:
        """Append one batch and return when it is durable; BrokerError or StorageError.

        After an error the batch may still turn up in the log (a wait that was given up): callers must not
        conclude that it never will.
        """

    def read(self, partition: int) -> AsyncIterator[Batch]:
        """Every batch from the start of the partition up to the high watermark at the time of the call."""
