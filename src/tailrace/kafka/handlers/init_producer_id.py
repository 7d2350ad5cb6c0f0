"""InitProducerId: a number for an idempotent producer, which no other producer gets.

v3  a producer may name the id and epoch it had (KIP-360); without a transactional id it gets a new id anyway

Transactions do not exist yet: a transactional id is answered TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which
ends the attempts of every client (see `find_coordinator`).
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.resources import no_transactions
from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

KEY = 22

_NONE = -1


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        raise no_transactions(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise BrokerError("producer id and epoch come together", code=ErrorCode.INVALID_REQUEST)
    return InitProducerIdResponse(producer_id=await call.access.next_producer_id(), producer_epoch=0)
