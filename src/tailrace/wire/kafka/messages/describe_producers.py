"""DescribeProducers (API 61), version 0.

The producers that partitions remember, and where the open transaction of each begins (KIP-664).
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class DescribeProducersRequest(Message):
    topics: list[TopicRequest] = []


class TopicRequest(Message):
    name: str = ""
    partition_indexes: list[Int32] = []


class DescribeProducersResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []


class TopicResponse(Message):
    name: str = ""
    partitions: list[PartitionResponse] = []


class PartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = []


class ProducerState(Message):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1
