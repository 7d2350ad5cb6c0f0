"""OffsetCommit: a group keeps the positions it has reached.

v2-4  the request may say how long they are kept
v6    the leader epoch of the position (KIP-320)
v7    static members (KIP-345)
v9    as v8: its new errors are those of KIP-848 groups

A partition that does not exist is answered UNKNOWN_TOPIC_OR_PARTITION, and the others are committed.
Generation -1 without a member id is an administrator's, or a consumer's that assigns its own partitions.
"""

from __future__ import annotations

from tailrace.broker.groups.api import CommitRequest, OffsetToCommit
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import partition_count
from tailrace.model import ErrorCode, TopicPartition
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

KEY = 8


async def handle(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    offsets, errors = _sorted_out(call, request)
    if offsets:
        errors.update(await _commit(call, request, offsets))
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors[TopicPartition(topic.name, partition.partition_index)],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _sorted_out(
    call: Call, request: OffsetCommitRequest
) -> tuple[dict[TopicPartition, OffsetToCommit], dict[TopicPartition, ErrorCode]]:
    """The positions of partitions that exist, and what is answered for the others."""
    offsets, errors = {}, {}
    for asked in request.topics:
        count, code = partition_count(call.access, asked.name, Operation.READ)
        for partition in asked.partitions:
            tp = TopicPartition(asked.name, partition.partition_index)
            if 0 <= tp.partition < count:
                offsets[tp] = OffsetToCommit(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata,
                )
            else:
                errors[tp] = code
    return offsets, errors


async def _commit(
    call: Call, request: OffsetCommitRequest, offsets: dict[TopicPartition, OffsetToCommit]
) -> dict[TopicPartition, ErrorCode]:
    try:
        group = call.access.group(request.group_id, Operation.READ)
    except ANSWERABLE as error:
        return dict.fromkeys(offsets, error_of(error)[0])
    return await group.commit_offsets(_commit_request(request, offsets))


def _commit_request(
    request: OffsetCommitRequest, offsets: dict[TopicPartition, OffsetToCommit]
) -> CommitRequest:
    return CommitRequest(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
        offsets=offsets,
    )
