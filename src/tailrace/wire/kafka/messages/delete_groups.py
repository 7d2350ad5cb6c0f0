"""DeleteGroups (API 42), versions 0-2.

Deletes empty groups with their offsets.
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Message


class DeleteGroupsRequest(Message):
    groups_names: list[str] = []


class DeleteGroupsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []


class DeletableGroupResult(Message):
    group_id: str = ""
    error_code: Int16 = 0
