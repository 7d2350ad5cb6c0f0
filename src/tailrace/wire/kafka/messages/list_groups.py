"""ListGroups (API 16), versions 0-5.

The groups that this broker coordinates; from version 4 only those in some states, from 5 of some types.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Message


class ListGroupsRequest(Message):
    states_filter: Annotated[list[str], "4+"] = []
    types_filter: Annotated[list[str], "5+"] = []


class ListGroupsResponse(Message):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []


class ListedGroup(Message):
    group_id: str = ""
    protocol_type: str = ""
    group_state: Annotated[str, "4+"] = ""
    group_type: Annotated[str, "5+"] = ""
