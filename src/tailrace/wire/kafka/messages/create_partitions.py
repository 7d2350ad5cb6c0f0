"""CreatePartitions (API 37), versions 0-3.

More partitions for existing topics; the count is the new total.
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Message


class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: bool = False


class CreatePartitionsTopic(Message):
    name: str = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = None


class CreatePartitionsAssignment(Message):
    broker_ids: list[Int32] = []


class CreatePartitionsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []


class CreatePartitionsTopicResult(Message):
    name: str = ""
    error_code: Int16 = 0
    error_message: str | None = None
