"""FindCoordinator: the node that looks after a group.

v1  also for transactional producers, and an error message
v3  flexible
v4  several keys at once, each with its own answer (KIP-699)
v6  key type 2, share groups, which do not exist here

A group belongs to the partition of the offsets topic that its name falls on, and the leader of that partition
coordinates it. There is no coordinator of transactions yet: a transactional id is answered 53,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED. librdkafka takes only 53 and 31 (cluster authorization) for final here
and asks again for ever after any other code; Java's client and franz-go give up at 53 as well.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import no_transactions
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
        if key_type == _TRANSACTION:
            raise no_transactions(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if key_type != _GROUP:
            raise BrokerError(f"key type {key_type} is unknown", code=ErrorCode.INVALID_REQUEST)
        if not key:
            raise BrokerError("a group has a name", code=ErrorCode.INVALID_GROUP_ID)
        node = await call.access.group_coordinator(key)
    except ANSWERABLE as error:
        code, message = error_of(error)
        return Coordinator(key=key, node_id=_NOBODY, port=_NOBODY, error_code=code, error_message=message)
    host, port = call.advertised(node)
    return Coordinator(key=key, node_id=node.node_id, host=host, port=port)
