"""DeleteGroups: empty groups go, with their offsets. Versions differ in nothing but their encoding.

A group with members is answered NON_EMPTY_GROUP, one that nobody knows GROUP_ID_NOT_FOUND. A name that comes
twice is answered once.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

KEY = 42


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    errors = await call.broker.groups.delete(dict.fromkeys(request.groups_names))
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code) for group_id, code in errors.items()
        ]
    )
