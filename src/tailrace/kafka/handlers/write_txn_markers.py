"""WriteTxnMarkers: end a transaction in partitions, whatever its coordinator says.

v1  flexible

An administrator sends this for a transaction that hangs: it is open in a partition, and its coordinator does
not know it. It needs the right to CLUSTER_ACTION. A marker is written only where that producer has a
transaction open, and each partition has its own error.
"""

from __future__ import annotations

import asyncio

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import ErrorCode, TopicPartition
from tailrace.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

KEY = 27


async def handle(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[await _write(call, marker) for marker in request.markers])


async def _write(call: Call, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    topics = []
    for topic in marker.topics:
        codes = await asyncio.gather(
            *(_mark(call, TopicPartition(topic.name, index), marker) for index in topic.partition_indexes)
        )
        results = [
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
            for index, code in zip(topic.partition_indexes, codes, strict=True)
        ]
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


async def _mark(call: Call, tp: TopicPartition, marker: WritableTxnMarker) -> ErrorCode:
    try:
        await call.access.write_marker(
            tp,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
        )
    except ANSWERABLE as error:
        return error_of(error)[0]
    return ErrorCode.NONE
