"""ListTransactions: the transactional ids that this node coordinates (KIP-664).

v1  only those whose transaction is open for longer than a time, if one is given (KIP-994)

Filters by state, by producer id and by time all have to match. States that no transaction can have are named
in the answer, and match nothing.
"""

from __future__ import annotations

from tailrace.broker.transactions.api import TransactionDescription
from tailrace.broker.transactions.api import TransactionState as State
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

KEY = 66

_STATES = frozenset(state.label for state in State)


def handle(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    try:
        known = call.access.transactions(Operation.DESCRIBE)
    except ANSWERABLE as error:
        return ListTransactionsResponse(error_code=error_of(error)[0])
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.label,
            )
            for each in known
            if _matches(each, request)
        ],
    )


def _matches(each: TransactionDescription, request: ListTransactionsRequest) -> bool:
    if request.state_filters and each.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and each.producer_id not in request.producer_id_filters:
        return False
    return each.open_ms > request.duration_filter or request.duration_filter < 0
