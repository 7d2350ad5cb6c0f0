"""DescribeTransactions (API 65), version 0.

The state of transactional ids, the partitions in their transactions, and since when they are open (KIP-664).
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class DescribeTransactionsRequest(Message):
    transactional_ids: list[str] = []


class DescribeTransactionsResponse(Message):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []


class TransactionState(Message):
    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []


class TopicData(Message):
    topic: str = ""
    partitions: list[Int32] = []
