"""OffsetDelete: a group forgets its positions in some partitions (KIP-496).

A topic that the group still reads is answered GROUP_SUBSCRIBED_TO_TOPIC, a partition that does not exist
UNKNOWN_TOPIC_OR_PARTITION; an error of the whole group stands alone.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import ErrorCode, TopicPartition
from tailrace.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

KEY = 47


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    known = [tp for topic in request.topics for tp in _known_partitions(call, topic)]
    try:
        errors = await call.broker.groups.delete_offsets(request.group_id, known)
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


def _known_partitions(call: Call, asked: OffsetDeleteRequestTopic) -> list[TopicPartition]:
    topic = call.broker.topics.get(asked.name)
    count = 0 if topic is None else len(topic.partitions)
    return [
        TopicPartition(asked.name, partition.partition_index)
        for partition in asked.partitions
        if 0 <= partition.partition_index < count
    ]
