"""SyncGroup: the leader hands in who reads what, and every member takes its own share.

v3  static members (KIP-345)
v5  both sides name protocol type and protocol, and a request without them is refused (KIP-559)

A follower's answer waits for the leader's request.
"""

from __future__ import annotations

from tailrace.broker.groups.api import SyncRequest
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import ErrorCode
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

KEY = 14


async def handle(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    if call.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        result = await call.access.group(request.group_id, Operation.READ).sync(_sync(request))
        call.access.group(request.group_id, Operation.READ)  # the right may have gone while it waited
    except ANSWERABLE as error:
        code, _ = error_of(error)
        return SyncGroupResponse(error_code=code)
    return SyncGroupResponse(
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


def _sync(request: SyncGroupRequest) -> SyncRequest:
    return SyncRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={share.member_id: share.assignment for share in request.assignments},
    )
