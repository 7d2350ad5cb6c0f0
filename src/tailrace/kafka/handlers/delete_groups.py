"""DeleteGroups: empty groups go, with their offsets. Versions differ in nothing but their encoding.

A group with members is answered NON_EMPTY_GROUP, one that nobody knows GROUP_ID_NOT_FOUND. A name that comes
twice is answered once.
"""

from __future__ import annotations

import asyncio

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

KEY = 42


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=await asyncio.gather(*(_delete(call, name) for name in names)))


async def _delete(call: Call, group_id: str) -> DeletableGroupResult:
    try:
        code = await call.access.group(group_id, Operation.DELETE).delete()
    except ANSWERABLE as error:
        code, _ = error_of(error)
    return DeletableGroupResult(group_id=group_id, error_code=code)
