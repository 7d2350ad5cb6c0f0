"""TxnOffsetCommit (API 28), versions 0-5.

Commits the offsets of a group as part of a transaction. From version 3 the consumer is named, so that a
member of an older generation can be refused (KIP-447); from version 4 errors may be TRANSACTION_ABORTABLE.
Version 5 adds the group to the transaction too, so that AddOffsetsToTxn is not needed (KIP-890 part 2).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class TxnOffsetCommitRequest(Message):
    transactional_id: str = ""
    group_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, "3+"] = -1
    member_id: Annotated[str, "3+"] = ""
    group_instance_id: Annotated[str | None, "3+"] = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitRequestTopic(Message):
    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequestPartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, "2+"] = -1
    committed_metadata: str | None = None


class TxnOffsetCommitResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


class TxnOffsetCommitResponseTopic(Message):
    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
