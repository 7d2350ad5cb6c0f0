"""SyncGroup (API 14), versions 0-5.

The leader hands in the assignment, and every member takes its own part.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Message


class SyncGroupRequest(Message):
    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, "3+"] = None
    protocol_type: Annotated[str | None, "5+"] = None
    protocol_name: Annotated[str | None, "5+"] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupRequestAssignment(Message):
    member_id: str = ""
    assignment: bytes = b""


class SyncGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, "5+"] = None
    protocol_name: Annotated[str | None, "5+"] = None
    assignment: bytes = b""
