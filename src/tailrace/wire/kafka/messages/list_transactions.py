"""ListTransactions (API 66), versions 0-1.

The transactional ids that a coordinator knows, by state and producer id (KIP-664); from version 1 also by how
long their transactions are open (KIP-994).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class ListTransactionsRequest(Message):
    state_filters: list[str] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Annotated[Int64, "1+"] = -1


class ListTransactionsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[TransactionState] = []


class TransactionState(Message):
    transactional_id: str = ""
    producer_id: Int64 = 0
    transaction_state: str = ""
