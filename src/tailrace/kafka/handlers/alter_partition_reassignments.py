"""AlterPartitionReassignments: replicas do not move, so only the present ones can be asked for.

v1  whether the number of replicas may change; it never does

The replicas that a partition already has are accepted, and nothing happens. Other replicas are refused with
INVALID_REPLICA_ASSIGNMENT. Nothing is ever under way that could be cancelled: NO_REASSIGNMENT_IN_PROGRESS.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.broker.partition import Partition
from tailrace.kafka.call import Call
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

KEY = 45


def handle(call: Call, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    call.access.cluster(Operation.ALTER)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=asked.name,
                partitions=[_reassign(call, asked.name, partition) for partition in asked.partitions],
            )
            for asked in request.topics
        ],
    )


def _reassign(call: Call, topic: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    try:
        _check(_find(call, topic, asked.partition_index), asked.replicas)
    except BrokerError as error:
        return ReassignablePartitionResponse(
            partition_index=asked.partition_index, error_code=error.code, error_message=str(error)
        )
    return ReassignablePartitionResponse(partition_index=asked.partition_index)


def _find(call: Call, topic: str, index: int) -> Partition:
    partitions = call.access.topic(topic, Operation.DESCRIBE).partitions
    if not 0 <= index < len(partitions):
        raise BrokerError(
            f"{topic}-{index} does not exist: the topic has {len(partitions)} partitions",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    return partitions[index]


def _check(partition: Partition, replicas: Sequence[int] | None) -> None:
    if replicas is None:
        raise BrokerError(
            f"no reassignment of {partition.name} is under way", code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        )
    if tuple(replicas) != partition.replicas:
        raise BrokerError(
            f"{partition.name} stays on {list(partition.replicas)}: this broker is one node, and has no other"
            " place for replicas",
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
