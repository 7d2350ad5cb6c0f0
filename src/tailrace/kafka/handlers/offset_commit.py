"""OffsetCommit: a group keeps the positions it has reached.

v2-4  the request may say how long they are kept
v6    the leader epoch of the position (KIP-320)
v7    static members (KIP-345)

A partition that does not exist is answered UNKNOWN_TOPIC_OR_PARTITION, and the others are committed.
Generation -1 without a member id is an administrator's, or a consumer's that assigns its own partitions.
"""

from __future__ import annotations

from tailrace.broker.groups.api import CommitRequest, OffsetToCommit
from tailrace.kafka.call import Call
from tailrace.model import ErrorCode, TopicPartition
from tailrace.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

KEY = 8


async def handle(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    offsets = _known_offsets(call, request)
    errors = await call.broker.groups.commit_offsets(_commit(request, offsets)) if offsets else {}
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors.get(
                            TopicPartition(topic.name, partition.partition_index),
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _known_offsets(call: Call, request: OffsetCommitRequest) -> dict[TopicPartition, OffsetToCommit]:
    """What is to be kept, of partitions that exist."""
    offsets = {}
    for asked in request.topics:
        topic = call.broker.topics.get(asked.name)
        count = 0 if topic is None else len(topic.partitions)
        for partition in asked.partitions:
            if 0 <= partition.partition_index < count:
                offsets[TopicPartition(asked.name, partition.partition_index)] = OffsetToCommit(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata,
                )
    return offsets


def _commit(request: OffsetCommitRequest, offsets: dict[TopicPartition, OffsetToCommit]) -> CommitRequest:
    return CommitRequest(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
        offsets=offsets,
    )
