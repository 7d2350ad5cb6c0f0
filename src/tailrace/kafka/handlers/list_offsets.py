"""ListOffsets: where a partition begins, where it ends, and where a moment in time is.

v1  one offset per partition; the first version served
v2  isolation level: with read_committed "latest" is the last stable offset, and a time finds nothing above it
v4  leader epochs (KIP-320)
v6  flexible
v7  timestamp -3: the first record that has the greatest time (KIP-734)
v8  timestamp -4: the earliest offset that is kept on this node, which is the earliest of all
v9  timestamp -5: the latest offset in tiered storage, of which there is none: -1

Timestamp -2 is the earliest offset, -1 the latest. A time yields the first record at or after it; where there
is none the offset is -1, without an error. A timestamp that a version does not have is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tailrace.broker.partition import Partition
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import BrokerError, ErrorCode, Offset, TopicPartition
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

KEY = 2

_LATEST = -1
_EARLIEST = -2
_GREATEST_TIME = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_SINCE = {_GREATEST_TIME: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
_READ_COMMITTED = 1
_NEVER = 1 << 15


def handle(
    call: Call, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """Start and end are known at once; a time may have to be looked for."""
    if any(_is_looked_for(asked) for topic in request.topics for asked in topic.partitions):
        return _look_up(call, request)
    response = ListOffsetsResponse()
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            try:
                answers.append(_end(call, topic.name, asked, request.isolation_level))
            except ANSWERABLE as error:
                answers.append(_failure(asked, error))
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _is_looked_for(asked: ListOffsetsPartition) -> bool:
    return asked.timestamp >= 0 or asked.timestamp == _GREATEST_TIME


async def _look_up(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            try:
                if _is_looked_for(asked):
                    answers.append(await _at_time(call, topic.name, asked, request.isolation_level))
                else:
                    answers.append(_end(call, topic.name, asked, request.isolation_level))
            except ANSWERABLE as error:
                answers.append(_failure(asked, error))
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _end(
    call: Call, topic: str, asked: ListOffsetsPartition, isolation_level: int
) -> ListOffsetsPartitionResponse:
    partition = _leader(call, topic, asked)
    if asked.timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        offset = partition.start_offset
    elif asked.timestamp == _LATEST:
        committed = isolation_level == _READ_COMMITTED
        offset = partition.last_stable_offset if committed else partition.high_watermark
    else:
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index)  # tiered: there is none
    return _answer(partition, asked, offset, timestamp_ms=-1)


async def _at_time(
    call: Call, topic: str, asked: ListOffsetsPartition, isolation_level: int
) -> ListOffsetsPartitionResponse:
    partition = _leader(call, topic, asked)
    end = partition.last_stable_offset if isolation_level == _READ_COMMITTED else partition.high_watermark
    if asked.timestamp == _GREATEST_TIME:
        found = await partition.find_greatest_timestamp(up_to=end)
    else:
        found = await partition.find_timestamp(asked.timestamp, up_to=end)
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    return _answer(partition, asked, found.offset, timestamp_ms=found.timestamp_ms)


def _leader(call: Call, topic: str, asked: ListOffsetsPartition) -> Partition:
    if asked.timestamp < _EARLIEST and call.version < _SINCE.get(asked.timestamp, _NEVER):
        raise BrokerError(
            f"timestamp {asked.timestamp} has no meaning in version {call.version}",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
    partition = call.access.partition(TopicPartition(topic, asked.partition_index), Operation.DESCRIBE)
    partition.check_epoch(asked.current_leader_epoch)
    return partition


def _answer(
    partition: Partition, asked: ListOffsetsPartition, offset: Offset, *, timestamp_ms: int
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=partition.epoch_at(offset),
    )


def _failure(asked: ListOffsetsPartition, error: Exception) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error_of(error)[0])
