"""OffsetForLeaderEpoch: where the records of a leader epoch end (KIP-101, KIP-320).

v2  the client's own epoch is checked; the first version served
v3  the asking replica
v4  flexible

An epoch that is not known here is answered with epoch -1 and offset -1.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import TopicPartition
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

KEY = 23


def handle(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(call, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(call: Call, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = call.access.partition(TopicPartition(topic, asked.partition), Operation.DESCRIBE)
        partition.check_epoch(asked.current_leader_epoch)
        found = partition.end_of_epoch(asked.leader_epoch)
    except ANSWERABLE as error:
        return EpochEndOffset(partition=asked.partition, error_code=error_of(error)[0])
    if found is None:
        return EpochEndOffset(partition=asked.partition)
    epoch, end = found
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)
