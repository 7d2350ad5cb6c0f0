"""AddOffsetsToTxn: a producer says that its transaction is about to commit offsets of a group.

v2  a fenced producer is told so by PRODUCER_FENCED
v4  errors may be TRANSACTION_ABORTABLE (KIP-890)

An older connection that sends this after a newer one is closed, unanswered (`check_connection`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tailrace.broker.transactions.api import Identity
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE
from tailrace.kafka.transactions import refusal_of
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

KEY = 25


def handle(call: Call, request: AddOffsetsToTxnRequest) -> Coroutine[Any, Any, AddOffsetsToTxnResponse]:
    transaction = call.access.transaction(request.transactional_id, Operation.WRITE)
    transaction.check_connection()
    identity = Identity(request.producer_id, request.producer_epoch)

    async def add() -> AddOffsetsToTxnResponse:
        try:
            await transaction.add_offsets(identity, call.access.group(request.group_id, Operation.READ))
        except ANSWERABLE as error:
            return AddOffsetsToTxnResponse(error_code=refusal_of(error, KEY, call.version)[0])
        return AddOffsetsToTxnResponse()

    return add()
