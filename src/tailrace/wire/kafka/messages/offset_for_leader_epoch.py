"""OffsetForLeaderEpoch (API 23), versions 2-4.

Where a leader epoch ended, so that a follower or a consumer can find where it diverged (KIP-320).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class OffsetForLeaderEpochRequest(Message):
    replica_id: Annotated[Int32, "3+"] = -2
    topics: list[OffsetForLeaderTopic] = []


class OffsetForLeaderTopic(Message):
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderPartition(Message):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []


class OffsetForLeaderTopicResult(Message):
    topic: str = ""
    partitions: list[EpochEndOffset] = []


class EpochEndOffset(Message):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1
