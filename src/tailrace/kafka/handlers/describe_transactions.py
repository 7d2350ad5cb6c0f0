"""DescribeTransactions: the state of transactional ids, and the partitions of what is open (KIP-664).

Each transactional id has its own error; TRANSACTIONAL_ID_NOT_FOUND for one that is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import TopicPartition
from tailrace.model.operation import Operation, Resource, ResourceKind
from tailrace.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

KEY = 65


def handle(call: Call, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(call, transactional_id) for transactional_id in request.transactional_ids
        ]
    )


def _describe(call: Call, transactional_id: str) -> TransactionState:
    try:
        found = call.access.transaction(transactional_id, Operation.DESCRIBE).describe()
    except ANSWERABLE as error:
        return TransactionState(transactional_id=transactional_id, error_code=error_of(error)[0])
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=_by_topic(call, found.partitions),
    )


def _by_topic(call: Call, partitions: Iterable[TopicPartition]) -> list[TopicData]:
    """The partitions of topics that the client may describe, as in Kafka."""
    topics: dict[str, list[int]] = defaultdict(list)
    for name, index in partitions:
        if name in topics or call.access.allows(Operation.DESCRIBE, Resource(ResourceKind.TOPIC, name)):
            topics[name].append(index)
    return [TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()]
