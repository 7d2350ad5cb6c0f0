"""AddPartitionsToTxn (API 24), versions 0-5.

A producer names the partitions that its transaction will write to, before it writes. Versions 0-3 are those
of clients: one transaction, in the fields called v3_and_below. From version 4 brokers speak to each other:
several transactions at once, and `verify_only` asks whether the partitions are in the transaction (KIP-890).
From version 2 a fenced producer is told so by PRODUCER_FENCED, from version 5 errors may be
TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class AddPartitionsToTxnRequest(Message):
    transactions: Annotated[list[AddPartitionsToTxnTransaction], "4+"] = []
    v3_and_below_transactional_id: Annotated[str, "0-3"] = ""
    v3_and_below_producer_id: Annotated[Int64, "0-3"] = 0
    v3_and_below_producer_epoch: Annotated[Int16, "0-3"] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], "0-3"] = []


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnTopic(Message):
    name: str = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, "4+"] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], "4+"] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], "0-3"] = []


class AddPartitionsToTxnResult(Message):
    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnTopicResult(Message):
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0
