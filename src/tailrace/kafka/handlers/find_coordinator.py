"""FindCoordinator: the node that looks after a group or a transactional id.

v1  also for transactional producers, and an error message
v3  flexible
v4  several keys at once, each with its own answer (KIP-699)
v6  key type 2, share groups, which do not exist here

A group belongs to the partition of the offsets topic that its name falls on, and the leader of that partition
coordinates it. A transactional id belongs to a partition of the transaction topic likewise.
"""

from __future__ import annotations

from tailrace.broker.cluster_view import Node
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

KEY = 10

_GROUP = 0
_TRANSACTION = 1
_NOBODY = -1
_SEVERAL_FROM = 4


async def handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if call.version >= _SEVERAL_FROM:
        found = [await _find(call, key, request.key_type) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = await _find(call, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(call: Call, key: str, key_type: int) -> Coordinator:
    try:
        node = await _coordinator(call, key, key_type)
    except ANSWERABLE as error:
        code, message = error_of(error)
        return Coordinator(key=key, node_id=_NOBODY, port=_NOBODY, error_code=code, error_message=message)
    host, port = call.advertised(node)
    return Coordinator(key=key, node_id=node.node_id, host=host, port=port)


async def _coordinator(call: Call, key: str, key_type: int) -> Node:
    if key_type == _TRANSACTION:
        return await call.access.transaction_coordinator(key)
    if key_type != _GROUP:
        raise BrokerError(f"key type {key_type} is unknown", code=ErrorCode.INVALID_REQUEST)
    if not key:
        raise BrokerError("a group has a name", code=ErrorCode.INVALID_GROUP_ID)
    return await call.access.group_coordinator(key)
