"""DescribeTopicPartitions: topics by name, a limited number of partitions at a time (KIP-966).

An empty list means all topics. Topics come in the order of their names. An answer that is cut short carries a
cursor, the topic and partition at which the next request goes on. If that topic has gone meanwhile, the
following one is the next. Each answer has one partition at least and 2000 at most. There are no eligible
leader replicas: their lists are empty and never null, which Java's client cannot read.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.broker.partition import Partition
from tailrace.broker.topic import Topic
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import authorized_operations, invalid_request
from tailrace.model import ErrorCode
from tailrace.model.operation import Operation, Resource, ResourceKind
from tailrace.wire.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

KEY = 75

_NOBODY = -1
_PARTITIONS_MAX = 2000


def handle(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    start = request.cursor
    if start is not None and start.partition_index < 0:
        raise invalid_request(f"a cursor cannot be at partition {start.partition_index}")
    left = max(min(request.response_partition_limit, _PARTITIONS_MAX), 1)
    response = DescribeTopicPartitionsResponse()
    for name, found in _topics(call, request):
        if isinstance(found, ErrorCode):
            response.topics.append(DescribeTopicPartitionsResponseTopic(error_code=found, name=name))
            continue
        first = start.partition_index if start is not None and name == start.topic_name else 0
        if not left:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        shown = found.partitions[first : first + left]
        response.topics.append(_describe(call, found, shown))
        left -= len(shown)
        if first + len(shown) < len(found.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(shown))
            break
    return response


def _topics(call: Call, request: DescribeTopicPartitionsRequest) -> Iterator[tuple[str, Topic | ErrorCode]]:
    """The topics from the cursor on, by name; of one that was named and cannot be told, why."""
    first = "" if request.cursor is None else request.cursor.topic_name
    if not request.topics:
        yield from (
            (topic.name, topic) for topic in call.access.topics(Operation.DESCRIBE) if topic.name >= first
        )
        return
    for name in sorted({topic.name for topic in request.topics if topic.name >= first}):
        try:
            yield name, call.access.topic(name, Operation.DESCRIBE)
        except ANSWERABLE as error:
            yield name, error_of(error)[0]


def _describe(call: Call, topic: Topic, shown: list[Partition]) -> DescribeTopicPartitionsResponseTopic:
    resource = Resource(ResourceKind.TOPIC, topic.name)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[_partition(call, partition) for partition in shown],
        topic_authorized_operations=authorized_operations(call.access, resource),
    )


def _partition(call: Call, partition: Partition) -> DescribeTopicPartitionsResponsePartition:
    live = call.access.nodes
    has_leader = partition.leader != _NOBODY and partition.leader in live
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader if has_leader else _NOBODY,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[node for node in partition.replicas if node not in live],
    )
