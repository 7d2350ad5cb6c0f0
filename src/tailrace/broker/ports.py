"""What the broker needs from its metadata: topics, their partitions and settings, ids.

`cluster.metadata` keeps it in a store: SQLite on a single node, memory without one. Every method may wait;
none is called on the way of a batch. A topic exists when its record is stored, and is gone
when that record is marked: the logs follow, and a start finishes what a crash cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from tailrace.model import BrokerId, Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """Who holds a partition, and who leads it since which epoch."""

    index: int
    leader: BrokerId
    leader_epoch: Epoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic as it is kept; `configs` holds only what differs from the defaults."""

    id: UUID
    name: str
    partitions: tuple[PartitionRecord, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    internal: bool = False
    deleted: bool = False  # marked: its logs are being removed


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """Everything that is kept, at one moment."""

    cluster_id: str
    topics: Sequence[TopicRecord]
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by owner


class MetadataStore(Protocol):
    """Keeps topics and hands out ids; what a method returned from is durable."""

    async def begin(
        self, node_id: BrokerId, *, check: Callable[[MetadataImage], None] | None = None
    ) -> MetadataImage:
        """A node starts: the epoch of every partition that it leads grows by one. Returns the new image.

        `check` sees the image first. It raises to refuse the start, and then nothing has been changed.
        """

    async def create_topic(self, topic: TopicRecord) -> None:
        """Store a new topic."""

    async def add_partitions(self, topic_id: UUID, partitions: Sequence[PartitionRecord]) -> None:
        """Store more partitions of a topic."""

    async def set_configs(self, topic_id: UUID, configs: Mapping[str, str]) -> None:
        """Replace the settings of a topic."""

    async def set_settings(self, owner: str, settings: Mapping[str, str]) -> None:
        """Replace the settings of what is no topic, such as a node or a group; none are forgotten."""

    async def mark_deleted(self, topic_id: UUID) -> None:
        """The topic is gone for everybody; its logs are not yet."""

    async def forget_topic(self, topic_id: UUID) -> None:
        """Its logs are gone as well."""

    async def reserve_producer_ids(self, count: int) -> int:
        """The first of `count` producer ids that nobody got before or will get again."""

    async def copy_to(self, directory: str) -> None:
        """Write the files of a whole copy, as of now, into a directory; BrokerError if that fails."""

    async def close(self) -> None:
        """Let go; closing twice is harmless."""
