"""DescribeGroups (API 15), versions 0-5.

The state, the members and the assignments of groups.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Message


class DescribeGroupsRequest(Message):
    groups: list[str] = []
    include_authorized_operations: Annotated[bool, "3+"] = False


class DescribeGroupsResponse(Message):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Message):
    error_code: Int16 = 0
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, "3+"] = -(2**31)


class DescribedGroupMember(Message):
    member_id: str = ""
    group_instance_id: Annotated[str | None, "4+"] = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""
