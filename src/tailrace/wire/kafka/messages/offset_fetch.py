"""OffsetFetch (API 9), versions 1-7.

The offsets that a consumer group has committed; from version 2, null asks for all of them.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class OffsetFetchRequest(Message):
    group_id: str = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, "null 2-7"] = None
    require_stable: Annotated[bool, "7+"] = False


class OffsetFetchRequestTopic(Message):
    name: str = ""
    partition_indexes: list[Int32] = []


class OffsetFetchResponse(Message):
    throttle_time_ms: Annotated[Int32, "3+"] = 0
    topics: list[OffsetFetchResponseTopic] = []
    error_code: Annotated[Int16, "2-7"] = 0


class OffsetFetchResponseTopic(Message):
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, "5-7"] = -1
    metadata: str | None = None
    error_code: Int16 = 0
