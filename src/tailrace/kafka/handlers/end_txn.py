"""EndTxn: commit or abort a transaction.

v2  a fenced producer is told so by PRODUCER_FENCED
v4  errors may be TRANSACTION_ABORTABLE (KIP-890)
v5  the epoch moves, and the answer names the identity of the next transaction (KIP-890 part 2)

The answer comes when the decision and all of its markers are durable. The same request again gets the same
answer. Below version 5 an older connection that sends this after a newer one is closed, unanswered
(`check_connection`): its request may be of an earlier transaction, which had the same epoch.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tailrace.broker.transactions.api import Identity
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE
from tailrace.kafka.transactions import client_version, refusal_of
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse

KEY = 26

_BUMPING_FROM = 5


def handle(call: Call, request: EndTxnRequest) -> Coroutine[Any, Any, EndTxnResponse]:
    transaction = call.access.transaction(request.transactional_id, Operation.WRITE)
    if call.version < _BUMPING_FROM:
        transaction.check_connection()
    identity = Identity(request.producer_id, request.producer_epoch)
    spoken = client_version(call.version, bumping_from=_BUMPING_FROM)

    async def end() -> EndTxnResponse:
        try:
            following = await transaction.end(identity, commit=request.committed, client_version=spoken)
        except ANSWERABLE as error:
            return EndTxnResponse(error_code=refusal_of(error, KEY, call.version)[0])
        return EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)

    return end()
