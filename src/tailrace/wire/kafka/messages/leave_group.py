"""LeaveGroup (API 13), versions 0-5.

Members leave a group: one in versions 0-2, from version 3 several at once (KIP-345).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Message


class LeaveGroupRequest(Message):
    group_id: str = ""
    member_id: Annotated[str, "0-2"] = ""
    members: Annotated[list[MemberIdentity], "3+"] = []


class MemberIdentity(Message):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: Annotated[str | None, "5+"] = None


class LeaveGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], "3+"] = []


class MemberResponse(Message):
    member_id: str = ""
    group_instance_id: str | None = None
    error_code: Int16 = 0
