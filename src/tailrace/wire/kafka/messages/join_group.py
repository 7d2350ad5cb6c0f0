"""JoinGroup (API 11), versions 0-9.

A member enters a group, and waits for the generation it will belong to. Static membership (KIP-345) comes
with version 5.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Message


class JoinGroupRequest(Message):
    group_id: str = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, "1+"] = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, "5+"] = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[str | None, "8+"] = None


class JoinGroupRequestProtocol(Message):
    name: str = ""
    metadata: bytes = b""


class JoinGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, "2+"] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, "7+"] = None
    protocol_name: Annotated[str | None, "null 7+"] = None
    leader: str = ""
    skip_assignment: Annotated[bool, "9+"] = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []


class JoinGroupResponseMember(Message):
    member_id: str = ""
    group_instance_id: Annotated[str | None, "5+"] = None
    metadata: bytes = b""
