"""ListOffsets (API 2), versions 1-9.

The offset at a time, or at the start (-2) or the end (-1) of a partition. Version 2 brings the isolation
level, 4 the leader epochs, 7 the record with the greatest time (-3), 8 and 9 tiered storage (-4, -5).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Int64, Message


class ListOffsetsRequest(Message):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, "2+"] = 0
    topics: list[ListOffsetsTopic] = []


class ListOffsetsTopic(Message):
    name: str = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsPartition(Message):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, "4+"] = -1
    timestamp: Int64 = 0


class ListOffsetsResponse(Message):
    throttle_time_ms: Annotated[Int32, "2+"] = 0
    topics: list[ListOffsetsTopicResponse] = []


class ListOffsetsTopicResponse(Message):
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsPartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, "4+"] = -1
