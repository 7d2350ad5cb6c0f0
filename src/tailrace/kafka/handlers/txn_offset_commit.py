"""TxnOffsetCommit: the positions of a group, as part of a transaction.

v2  the leader epoch of the position (KIP-320)
v3  the consumer is named: a member of an older generation is refused (KIP-447)
v4  errors may be TRANSACTION_ABORTABLE (KIP-890)
v5  the group is added to the transaction by this request (KIP-890 part 2)

The positions count when the transaction commits. Below version 5 an older connection that sends this after a
newer one is closed, unanswered (`check_connection`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tailrace.broker.groups.api import CommitRequest, OffsetToCommit
from tailrace.broker.transactions.api import Identity
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import partition_count
from tailrace.kafka.transactions import client_version, refusal_of
from tailrace.model import ErrorCode, TopicPartition
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

KEY = 28

_BUMPING_FROM = 5

Response = TxnOffsetCommitResponse
Codes = dict[TopicPartition, ErrorCode]


def handle(call: Call, request: TxnOffsetCommitRequest) -> Response | Coroutine[Any, Any, Response]:
    try:
        transaction = call.access.transaction(request.transactional_id, Operation.WRITE)
        group = call.access.group(request.group_id, Operation.READ)
    except ANSWERABLE as error:
        code, _ = error_of(error)
        return _answer(request, {tp: code for tp, _ in _named(request)})
    if call.version < _BUMPING_FROM:
        transaction.check_connection(is_group=True)
    offsets, codes = _sort_out(call, request)
    if not offsets:
        return _answer(request, codes)
    identity = Identity(request.producer_id, request.producer_epoch)
    spoken = client_version(call.version, bumping_from=_BUMPING_FROM)
    commit = CommitRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        offsets=offsets,
    )

    async def commit_offsets() -> Response:
        try:
            codes.update(await transaction.commit_offsets(identity, group, commit, client_version=spoken))
        except ANSWERABLE as error:
            codes.update(dict.fromkeys(offsets, refusal_of(error, KEY, call.version)[0]))
        return _answer(request, codes)

    return commit_offsets()


def _named(request: TxnOffsetCommitRequest) -> list[tuple[TopicPartition, OffsetToCommit]]:
    return [
        (
            TopicPartition(topic.name, partition.partition_index),
            OffsetToCommit(
                partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata
            ),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]


def _sort_out(
    call: Call, request: TxnOffsetCommitRequest
) -> tuple[dict[TopicPartition, OffsetToCommit], Codes]:
    """The positions of partitions that exist, and what is answered for the others."""
    counts = {
        topic.name: partition_count(call.access, topic.name, Operation.READ) for topic in request.topics
    }
    offsets, codes = {}, {}
    for tp, offset in _named(request):
        count, code = counts[tp.topic]
        if 0 <= tp.partition < count:
            offsets[tp] = offset
        else:
            codes[tp] = code
    return offsets, codes


def _answer(request: TxnOffsetCommitRequest, codes: Codes) -> Response:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[TopicPartition(topic.name, partition.partition_index)],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
