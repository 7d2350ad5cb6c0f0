"""OffsetCommit (API 8), versions 2-9.

A consumer group keeps the offsets it has reached. Up to version 4 the client sets how long; a commit from
outside of a group has generation -1.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class OffsetCommitRequest(Message):
    group_id: str = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, "7+"] = None
    retention_time_ms: Annotated[Int64, "2-4"] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitRequestTopic(Message):
    name: str = ""
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequestPartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, "6+"] = -1
    committed_metadata: str | None = None


class OffsetCommitResponse(Message):
    throttle_time_ms: Annotated[Int32, "3+"] = 0
    topics: list[OffsetCommitResponseTopic] = []


class OffsetCommitResponseTopic(Message):
    name: str = ""
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
