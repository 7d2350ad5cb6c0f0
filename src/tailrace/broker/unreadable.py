"""The error for a place in a partition that cannot be read: what it is, where, and how to go on behind it.

There are two causes. A producer can send records that cannot be decoded, with a correct checksum: the log has
what was sent, and no reader can use it (ADR 0016). Or the log is damaged (`LogDamaged`).
"""

from __future__ import annotations

from tailrace.model import LogDamaged, TopicPartition
from tailrace.records import BatchError


class Unreadable(LogDamaged):
    """A place in a partition that cannot be read, now or ever; `next_offset` is where a reader can go on."""

    def __init__(
        self, name: TopicPartition, *, offset: int, next_offset: int | None, cause: Exception
    ) -> None:
        way_out = "" if next_offset is None else f". Read on from offset {next_offset} to pass it over"
        super().__init__(f"{name} cannot be read at offset {offset}: {cause}{way_out}")
        self.topic = name.topic
        self.partition = name.partition
        self.offset = offset
        self.next_offset = next_offset
        self.is_undecodable = isinstance(cause, BatchError)
        """Whether the records are as they were sent, and make no sense; else the log is damaged."""
