"""WriteTxnMarkers (API 27), version 1.

Ends transactions in partitions: of a coordinator to the leaders of the partitions, and of a person who ends a
transaction that hangs. Version 0 is gone since Kafka 4.0.
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker] = []


class WritableTxnMarker(Message):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: bool = False  # true commits
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0


class WritableTxnMarkerTopic(Message):
    name: str = ""
    partition_indexes: list[Int32] = []


class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult] = []


class WritableTxnMarkerResult(Message):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WritableTxnMarkerTopicResult(Message):
    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerPartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
