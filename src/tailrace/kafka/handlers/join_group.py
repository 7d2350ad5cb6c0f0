"""JoinGroup: a consumer becomes a member, and waits for the generation it is part of.

v1  the rebalance timeout; before it, the session timeout serves as both
v4  a new member gets its id first, with MEMBER_ID_REQUIRED, and joins again with it (KIP-394)
v5  static members (KIP-345)
v7  the answer names the protocol type; the protocol's name may be null
v8  the reason why a member joins, for logs
v9  a static member that led and comes back leads again, and is told not to share out anew (KIP-814)

Only the leader gets the list of members. The answer comes when everybody has joined or ran out of time, so
this handler may wait for as long as the group's rebalance timeout.
"""

from __future__ import annotations

from tailrace.broker.groups.api import JoinRequest, JoinResult
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

KEY = 11


async def handle(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    try:
        result = await call.access.group(request.group_id, Operation.READ).join(_join(call, request))
        call.access.group(request.group_id, Operation.READ)  # the right may have gone while it waited
    except ANSWERABLE as error:
        code, _ = error_of(error)
        return JoinGroupResponse(error_code=code, member_id=request.member_id)
    return _answer(result)


def _join(call: Call, request: JoinGroupRequest) -> JoinRequest:
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        client_host=f"/{call.connection.peer_host}",  # the slash is Kafka's, and its tools show it
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[(protocol.name, protocol.metadata) for protocol in request.protocols],
        requires_member_id=call.version >= 4,
        can_skip_assignment=call.version >= 9,
    )


def _answer(result: JoinResult) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skips_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )
