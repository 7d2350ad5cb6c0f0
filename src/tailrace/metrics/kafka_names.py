"""The names and labels that kafka_exporter has, so that dashboards and alerts made for it work as they are.

The broker's own topics are left out, as most of those dashboards do anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from prometheus_client.core import Metric

from tailrace.broker import Broker, Partition
from tailrace.metrics.family import Labels, gauge, one
from tailrace.metrics.lag import Position
from tailrace.metrics.snapshot import Snapshot, is_under_replicated
from tailrace.model import BrokerError

_OF_PARTITION: tuple[tuple[str, str, Callable[[Partition], float]], ...] = (
    ("leader", "Leader Broker ID of this Topic/Partition", lambda each: each.leader),
    (
        "leader_is_preferred",
        "1 if Topic/Partition is using the Preferred Broker",
        lambda each: each.leader == each.replicas[0],
    ),
    ("replicas", "Number of Replicas for this Topic/Partition", lambda each: len(each.replicas)),
    ("in_sync_replica", "Number of In-Sync Replicas for this Topic/Partition", lambda each: len(each.isr)),
    (
        "under_replicated_partition",
        "1 if Topic/Partition is under Replicated",
        is_under_replicated,
    ),
)
_OF_HELD_PARTITION: tuple[tuple[str, str, Callable[[Partition], float]], ...] = (
    ("current_offset", "Current Offset of a Broker at Topic/Partition", lambda each: each.high_watermark),
    ("oldest_offset", "Oldest Offset of a Broker at Topic/Partition", lambda each: each.start_offset),
)


def kafka_families(broker: Broker, snapshot: Snapshot) -> Iterator[Metric]:
    """Of brokers, topics and groups."""
    yield from gauge(
        "kafka_brokers", "Number of Brokers in the Kafka Cluster.", one(len(broker.cluster.nodes))
    )
    yield from gauge(
        "kafka_broker_info",
        "Information about the Kafka Broker.",
        (
            ({"id": str(node.node_id), "address": f"{node.host}:{node.port}" if node.host else ""}, 1)
            for node in broker.cluster.nodes.values()
        ),
    )
    yield from gauge(
        "kafka_topic_partitions",
        "Number of partitions for this Topic",
        (({"topic": each.topic.name}, len(each.topic.partitions)) for each in snapshot.topics),
    )
    yield from _partition_families(snapshot)
    yield from _group_families(broker, snapshot)


def _partition_families(snapshot: Snapshot) -> Iterator[Metric]:
    held = [each for each in snapshot.partitions if each.is_held_here]
    for partitions, families in ((held, _OF_HELD_PARTITION), (snapshot.partitions, _OF_PARTITION)):
        for name, doc, of_partition in families:
            yield from gauge(
                f"kafka_topic_partition_{name}",
                doc,
                ((_labels_of(each), float(of_partition(each))) for each in partitions),
            )


def _group_families(broker: Broker, snapshot: Snapshot) -> Iterator[Metric]:
    for name, doc, value_of in (
        ("current_offset", "Current Offset of a ConsumerGroup at Topic/Partition", attrgetter("committed")),
        ("lag", "Current Approximate Lag of a ConsumerGroup at Topic/Partition", attrgetter("lag")),
    ):
        yield from gauge(
            f"kafka_consumergroup_{name}",
            doc,
            (
                (
                    {"consumergroup": group, "topic": each.topic, "partition": str(each.partition)},
                    value_of(each),
                )
                for group, positions in snapshot.group_partitions
                for each in positions
            ),
        )
        yield from gauge(
            f"kafka_consumergroup_{name}_sum",
            f"{doc.removesuffix('/Partition')} for all partitions",
            (
                ({"consumergroup": group, "topic": topic}, total)
                for group, positions in snapshot.groups
                for topic, total in _sums(positions, value_of).items()
            ),
        )
    yield from gauge(
        "kafka_consumergroup_members",
        "Amount of members in a consumer group",
        _member_counts(broker, snapshot),
    )


def _sums(positions: list[Position], value_of: Callable[[Position], int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for each in positions:
        sums[each.topic] = sums.get(each.topic, 0) + value_of(each)
    return sums


def _member_counts(broker: Broker, snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    for group, _ in snapshot.groups:
        try:
            members = broker.groups.describe(group).members
        except BrokerError:  # it is being removed, or this node stops
            continue
        yield {"consumergroup": group}, len(members)


def _labels_of(partition: Partition) -> Labels:
    return {"topic": partition.topic, "partition": str(partition.index)}
