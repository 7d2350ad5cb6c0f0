"""OffsetDelete: a group forgets its positions in some partitions (KIP-496).

A topic that the group still reads is answered GROUP_SUBSCRIBED_TO_TOPIC, a partition that does not exist
UNKNOWN_TOPIC_OR_PARTITION; an error of the whole group stands alone.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import partition_count
from tailrace.model import ErrorCode, TopicPartition
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

KEY = 47


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    known, errors = _sorted_out(call, request)
    try:
        group = call.access.group(request.group_id, Operation.DELETE)
        errors.update(await group.delete_offsets(known))
    except ANSWERABLE as error:
        code, _ = error_of(error)
        return OffsetDeleteResponse(error_code=code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
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
    call: Call, request: OffsetDeleteRequest
) -> tuple[list[TopicPartition], dict[TopicPartition, ErrorCode]]:
    """The partitions that exist, and what is answered for the others."""
    known, errors = [], {}
    for asked in request.topics:
        count, code = partition_count(call.access, asked.name, Operation.READ)
        for partition in asked.partitions:
            tp = TopicPartition(asked.name, partition.partition_index)
            if 0 <= tp.partition < count:
                known.append(tp)
            else:
                errors[tp] = code
    return known, errors
