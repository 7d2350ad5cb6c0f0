"""LeaveGroup: members leave, and the others share out their partitions.

v0-2  one member, whose error is the answer's
v3    several members, each with its own error; an administrator may name static ones by instance id alone
v5    the reason why a member leaves, for logs
"""

from __future__ import annotations

from tailrace.broker.groups.api import LeavingMember
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

KEY = 13


async def handle(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    single = call.version < 3
    if single:
        leaving = [LeavingMember(request.member_id)]
    else:
        leaving = [LeavingMember(member.member_id, member.group_instance_id) for member in request.members]
    try:
        results = await call.access.group(request.group_id, Operation.READ).leave(leaving)
    except ANSWERABLE as error:
        code, _ = error_of(error)
        return LeaveGroupResponse(error_code=code)
    if single:
        return LeaveGroupResponse(error_code=results[0].error)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=result.member_id,
                group_instance_id=result.group_instance_id,
                error_code=result.error,
            )
            for result in results
        ]
    )
