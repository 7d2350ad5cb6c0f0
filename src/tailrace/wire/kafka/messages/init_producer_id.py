"""InitProducerId (API 22), versions 0-6.

A producer id for an idempotent or a transactional producer. From version 3 the producer names the id it had
(KIP-360); from version 4 a fenced producer is told so by PRODUCER_FENCED, from version 5 errors may be
TRANSACTION_ABORTABLE. Version 6 is for two-phase commit, and may keep the transaction that is open (KIP-939).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class InitProducerIdRequest(Message):
    transactional_id: str | None = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, "3+"] = -1
    producer_epoch: Annotated[Int16, "3+"] = -1
    enable2_pc: Annotated[bool, "6+"] = False
    keep_prepared_txn: Annotated[bool, "6+"] = False


class InitProducerIdResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, "6+"] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, "6+"] = -1
