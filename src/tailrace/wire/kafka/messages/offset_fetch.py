"""OffsetFetch (API 9), versions 1-9.

The offsets that a consumer group has committed; from version 2, null asks for all of them. From version 8 on
for several groups at once, from 9 on with the member that asks (KIP-848).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class OffsetFetchRequest(Message):
    group_id: Annotated[str, "0-7"] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, "0-7 null 2-7"] = None
    groups: Annotated[list[OffsetFetchRequestGroup], "8+"] = []
    require_stable: Annotated[bool, "7+"] = False


class OffsetFetchRequestGroup(Message):
    group_id: str = ""
    member_id: Annotated[str | None, "9+"] = None
    member_epoch: Annotated[Int32, "9+"] = -1
    topics: list[OffsetFetchRequestTopic] | None = None


class OffsetFetchRequestTopic(Message):
    name: str = ""
    partition_indexes: list[Int32] = []


class OffsetFetchResponse(Message):
    throttle_time_ms: Annotated[Int32, "3+"] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], "0-7"] = []
    error_code: Annotated[Int16, "2-7"] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], "8+"] = []


class OffsetFetchResponseGroup(Message):
    group_id: str = ""
    topics: list[OffsetFetchResponseTopic] = []
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Message):
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, "5+"] = -1
    metadata: str | None = None
    error_code: Int16 = 0
