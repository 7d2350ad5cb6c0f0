"""ElectLeaders (API 43), versions 0-2.

Asks for a leader election: preferred (0) or, from version 1, unclean (1). Null stands for all partitions.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class ElectLeadersRequest(Message):
    election_type: Annotated[Int8, "1+"] = 0
    topic_partitions: list[TopicPartitions] | None = None
    timeout_ms: Int32 = 60_000


class TopicPartitions(Message):
    topic: str = ""
    partitions: list[Int32] = []


class ElectLeadersResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, "1+"] = 0
    replica_election_results: list[ReplicaElectionResult] = []


class ReplicaElectionResult(Message):
    topic: str = ""
    partition_result: list[PartitionResult] = []


class PartitionResult(Message):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
