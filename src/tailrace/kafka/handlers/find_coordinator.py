"""FindCoordinator: the node that looks after a group.

v1  also for transactional producers, and an error message
v3  flexible

A group belongs to the partition of the offsets topic that its name falls on, and the leader of that partition
coordinates it. There is no coordinator of transactions yet: 15, which clients take for "not now".
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

KEY = 10

_GROUP = 0
_TRANSACTION = 1
_NOBODY = -1


async def handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    try:
        return await _find(call, request)
    except ANSWERABLE as error:
        code, message = error_of(error)
        return FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=_NOBODY, host="", port=_NOBODY
        )


async def _find(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if request.key_type == _TRANSACTION:
        raise BrokerError("transactions are not supported yet", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if request.key_type != _GROUP:
        raise BrokerError(f"key type {request.key_type} is unknown", code=ErrorCode.INVALID_REQUEST)
    if not request.key:
        raise BrokerError("a group has a name", code=ErrorCode.INVALID_GROUP_ID)
    node = await call.access.group_coordinator(request.key)
    host, port = call.advertised(node)
    return FindCoordinatorResponse(node_id=node.node_id, host=host, port=port)
