"""DescribeProducers: the producers that partitions remember, and their open transactions (KIP-664).

Each partition has its own error.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import TopicPartition
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

KEY = 61


def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(call, TopicPartition(topic.name, index)) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(call: Call, tp: TopicPartition) -> PartitionResponse:
    try:
        producers = call.access.partition(tp, Operation.READ).producers
    except ANSWERABLE as error:
        code, message = error_of(error)
        return PartitionResponse(partition_index=tp.partition, error_code=code, error_message=message)
    return PartitionResponse(
        partition_index=tp.partition,
        active_producers=[
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.timestamp_ms,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.first_offset,
            )
            for each in producers.describe()
        ],
    )
