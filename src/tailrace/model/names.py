"""The vocabulary: what an offset, an epoch and a partition's identity are, as types."""

from __future__ import annotations

from typing import NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""Place of a record in its partition, counted from 0, for ever."""

Epoch = NewType("Epoch", int)
"""Leader epoch: grows with every change of leader and with every start of a single node."""

BrokerId = NewType("BrokerId", int)
"""Number of a node in its cluster."""

NO_PRODUCER = -1
"""Producer id of a batch that no idempotent producer wrote."""


class TopicPartition(NamedTuple):
    """One partition as people and clients name it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionId(NamedTuple):
    """One partition of one topic, by topic id: a re-created topic of the same name is another one."""

    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id.hex}-{self.partition}"
