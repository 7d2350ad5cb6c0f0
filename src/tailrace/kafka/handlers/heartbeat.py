"""Heartbeat: a member shows that it is alive, and hears of a rebalance by its error code.

v3  static members (KIP-345)
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

KEY = 12


def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        call.access.group(request.group_id, Operation.READ).heartbeat(
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
        )
    except ANSWERABLE as error:
        code, _ = error_of(error)
        return HeartbeatResponse(error_code=code)
    return HeartbeatResponse()
