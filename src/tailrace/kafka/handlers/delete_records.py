"""DeleteRecords: partitions forget what lies below an offset, each with its own answer.

Versions differ in nothing but their encoding. Offset -1 is the high watermark, that is everything; one above
it is OFFSET_OUT_OF_RANGE. Internal topics keep their records, and so do compacted ones that do not delete.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import TopicPartition
from tailrace.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

KEY = 21

_NO_LOW_WATERMARK = -1


async def handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[await _delete(call, topic.name, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


async def _delete(call: Call, name: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=_NO_LOW_WATERMARK
    )
    try:
        tp = TopicPartition(name, asked.partition_index)
        result.low_watermark = await call.access.delete_records(tp, asked.offset)
    except ANSWERABLE as error:
        result.error_code, _ = error_of(error)
    return result
