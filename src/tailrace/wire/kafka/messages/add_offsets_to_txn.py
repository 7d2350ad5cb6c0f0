"""AddOffsetsToTxn (API 25), versions 0-4.

A producer says that its transaction will commit offsets of a group. From version 2 a fenced producer is told
so by PRODUCER_FENCED, from version 4 errors may be TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class AddOffsetsToTxnRequest(Message):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
