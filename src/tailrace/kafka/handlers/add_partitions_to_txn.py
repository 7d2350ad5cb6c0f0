"""AddPartitionsToTxn: a producer names the partitions that its transaction is about to write to.

v2  a fenced producer is told so by PRODUCER_FENCED
v3  flexible; the last version of clients. Later ones are of brokers among each other.

If one of the partitions cannot be written to, none is added: that one gets its error, the others
OPERATION_NOT_ATTEMPTED. An older connection that sends this after a newer one is closed, unanswered: see
`TransactionHandle.check_connection`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tailrace.broker.transactions.api import Identity
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.transactions import refusal_of
from tailrace.model import ErrorCode, TopicPartition
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

KEY = 24

Response = AddPartitionsToTxnResponse


def handle(call: Call, request: AddPartitionsToTxnRequest) -> Response | Coroutine[Any, Any, Response]:
    wanted = [
        TopicPartition(topic.name, index)
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    ]
    try:
        transaction = call.access.transaction(request.v3_and_below_transactional_id, Operation.WRITE)
    except ANSWERABLE as error:
        return _answer(request, dict.fromkeys(wanted, error_of(error)[0]))
    transaction.check_connection()
    bad = _unwritable(call, wanted)
    if bad:
        return _answer(request, {tp: bad.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in wanted})
    identity = Identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)

    async def add() -> Response:
        code = ErrorCode.NONE
        try:
            await transaction.add(identity, wanted)
        except ANSWERABLE as error:
            code, _ = refusal_of(error, KEY, call.version)
        return _answer(request, dict.fromkeys(wanted, code))

    return add()


def _unwritable(call: Call, wanted: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """The partitions that this client cannot write to, and why."""
    bad = {}
    for tp in wanted:
        try:
            call.access.writable(tp)
        except ANSWERABLE as error:
            bad[tp], _ = error_of(error)
    return bad


def _answer(request: AddPartitionsToTxnRequest, codes: dict[TopicPartition, ErrorCode]) -> Response:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
