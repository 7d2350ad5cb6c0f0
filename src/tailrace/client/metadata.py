"""What the client knows of its cluster: nodes, topics, and who leads which partition.

An answer replaces what was known of the topics in it; what it does not mention stays. A topic that the broker
does not know is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tailrace.client.error import UnknownTopic, broker_error
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.model.address import Address
from tailrace.wire.kafka.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """One partition as the cluster described it."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """One topic as the cluster described it; `error` is why there is no more to say, or 0."""

    name: str
    topic_id: UUID
    internal: bool
    error: int
    partitions: Mapping[int, PartitionInfo]

    def check(self) -> None:
        """Raise what the error means."""
        if self.error:
            raise topic_error(self.error, self.name)


@dataclass(slots=True)
class Cluster:
    """The cache."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: dict[int, Address] = field(default_factory=dict)
    racks: dict[int, str | None] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)

    def learn(self, reply: MetadataResponse) -> dict[str, TopicInfo]:
        """Take an answer in; the topics that it described."""
        self.cluster_id = reply.cluster_id
        self.controller_id = reply.controller_id
        if reply.brokers:  # a broker that has just started may know nobody yet
            self.nodes = {broker.node_id: Address(broker.host, broker.port) for broker in reply.brokers}
            self.racks = {broker.node_id: broker.rack for broker in reply.brokers}
        found = {topic.name: topic for topic in map(_topic, reply.topics)}
        for name, topic in found.items():
            if topic.error:
                self.topics.pop(name, None)
            else:
                self.topics[name] = topic
        return found

    def leader_of(self, partition: TopicPartition) -> PartitionInfo | None:
        """The partition's description if it is known to have a leader that is known too."""
        topic = self.topics.get(partition.topic)
        info = topic.partitions.get(partition.partition) if topic else None
        return info if info is not None and info.leader in self.nodes else None


def topic_error(code: int, name: str) -> BrokerError:
    """Why a topic cannot be used, in words."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopic(f"topic {name} does not exist. Try: tailrace topic list")
    return broker_error(code, f"topic {name}")


def _topic(topic: MetadataResponseTopic) -> TopicInfo:
    partitions = {
        each.partition_index: PartitionInfo(
            partition=each.partition_index,
            leader=each.leader_id,
            leader_epoch=each.leader_epoch,
            replicas=tuple(each.replica_nodes),
            isr=tuple(each.isr_nodes),
            error=each.error_code,
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    }
    return TopicInfo(
        name=topic.name or "",  # null only for an id, and topics are asked for by name
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        error=topic.error_code,
        partitions=partitions,
    )
