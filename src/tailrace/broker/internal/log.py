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

    def acknowledged(self, partition: int, end: Offset, waiter: Waiter) -> None:
        """Tell the waiter when everything below `end` is durable, or never will be; at once if it is."""

    def read(self, partition: int) -> AsyncIterator[Visible]:
        """Every visible batch of the partition, up to the high watermark at the time of the call."""
