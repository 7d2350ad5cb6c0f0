"""InitProducerId: a number for an idempotent producer, or the identity of a transactional one.

v3  a producer may name the id and epoch it had (KIP-360); without a transactional id it gets a new id anyway
v4  a fenced producer is told so by PRODUCER_FENCED
v5  errors may be TRANSACTION_ABORTABLE (KIP-890)
v6  two-phase commit (KIP-939): served, and not advertised; clients find it by the feature tailrace.2pc

A transactional id gets a new epoch, which fences the producers that had it before, and what they left open is
aborted. Who names an identity that is not the present one is fenced, unless it repeats its request, or its
transaction was aborted by its timeout (KIP-588).

With Enable2Pc the transactions of the id have no timeout, and are not aborted by an InitProducerId that does
not name their identity: that one is answered CONCURRENT_TRANSACTIONS. With KeepPreparedTxn too, and the
identity of the transaction that is open, that transaction is kept as it is and has both properties from then
on: it is prepared. KIP-939 gives its producer a new epoch, and an outcome by either; here the identity stays
the same, because whoever decides about the transaction has noted it.
"""

from __future__ import annotations

from tailrace.broker.transactions.api import Identity
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE
from tailrace.kafka.transactions import refusal_of
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

KEY = 22

_NONE = -1


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise BrokerError("producer id and epoch come together", code=ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        if request.enable2_pc:
            raise BrokerError("two-phase commit needs a transactional id", code=ErrorCode.INVALID_REQUEST)
        return InitProducerIdResponse(producer_id=await call.access.next_producer_id(), producer_epoch=0)
    expected = None
    if request.producer_id != _NONE:
        expected = Identity(request.producer_id, request.producer_epoch)
    if request.keep_prepared_txn and not (expected and request.enable2_pc):
        raise BrokerError(
            "KeepPreparedTxn is served with Enable2Pc and the producer id and epoch of the transaction",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
    try:
        transaction = call.access.transaction(
            request.transactional_id, Operation.WRITE, two_phase=request.enable2_pc
        )
        if request.keep_prepared_txn and expected is not None:
            await transaction.prepare(expected)
            return InitProducerIdResponse(
                producer_id=expected.producer_id,
                producer_epoch=expected.epoch,
                ongoing_txn_producer_id=expected.producer_id,
                ongoing_txn_producer_epoch=expected.epoch,
            )
        identity = await transaction.init(
            timeout_ms=request.transaction_timeout_ms, expected=expected, two_phase=request.enable2_pc
        )
    except ANSWERABLE as error:
        return InitProducerIdResponse(error_code=refusal_of(error, KEY, call.version)[0])
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)
