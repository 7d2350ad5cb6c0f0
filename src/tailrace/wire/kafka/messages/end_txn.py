"""EndTxn (API 26), versions 0-5.

Commits or aborts a transaction. From version 2 a fenced producer is told so by PRODUCER_FENCED, from version
4 errors may be TRANSACTION_ABORTABLE. From version 5 every transaction has an epoch of its own, and the
response names the identity of the next one (KIP-890 part 2).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class EndTxnRequest(Message):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: bool = False


class EndTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, "5+"] = -1
    producer_epoch: Annotated[Int16, "5+"] = -1
