"""AlterPartitionReassignments (API 45), versions 0-1.

Asks for other replicas of partitions (KIP-455); null replicas cancel a reassignment that is under way.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Message


class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Annotated[bool, "1+"] = True
    topics: list[ReassignableTopic] = []


class ReassignableTopic(Message):
    name: str = ""
    partitions: list[ReassignablePartition] = []


class ReassignablePartition(Message):
    partition_index: Int32 = 0
    replicas: list[Int32] | None = None


class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[bool, "1+"] = True
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[ReassignableTopicResponse] = []


class ReassignableTopicResponse(Message):
    name: str = ""
    partitions: list[ReassignablePartitionResponse] = []


class ReassignablePartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
