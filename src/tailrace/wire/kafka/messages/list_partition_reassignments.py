"""ListPartitionReassignments (API 46), version 0.

The reassignments of replicas that are under way (KIP-455); null asks for all.
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Message


class ListPartitionReassignmentsRequest(Message):
    timeout_ms: Int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class ListPartitionReassignmentsTopics(Message):
    name: str = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    topics: list[OngoingTopicReassignment] = []


class OngoingTopicReassignment(Message):
    name: str = ""
    partitions: list[OngoingPartitionReassignment] = []


class OngoingPartitionReassignment(Message):
    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []
