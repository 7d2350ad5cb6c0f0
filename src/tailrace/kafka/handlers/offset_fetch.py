"""OffsetFetch: the positions that a group has committed.

v1  an error of the whole group stands with every partition
v2  it stands in the answer instead; null topics are all that the group has committed
v5  the leader epoch of the position (KIP-320)
v7  `require_stable` (KIP-447): UNSTABLE_OFFSET_COMMIT where an open transaction may move the position
v8  several groups at once, each with its own error (KIP-709)
v9  the member and its epoch (KIP-848), which groups of this kind do not look at

A position that was never committed is offset -1 without an error, whether or not the partition exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.broker.groups.api import NOT_COMMITTED, CommittedOffset
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import ErrorCode, TopicPartition
from tailrace.model.operation import Operation, Resource, ResourceKind
from tailrace.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

KEY = 9

_SEVERAL_FROM = 8


def handle(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version >= _SEVERAL_FROM:
        stable = request.require_stable
        return OffsetFetchResponse(groups=[_group(call, asked, stable) for asked in request.groups])
    try:
        topics = _positions(call, request.group_id, request.topics, request.require_stable)
        return OffsetFetchResponse(topics=topics)
    except ANSWERABLE as error:
        code, _ = error_of(error)
        if call.version >= 2:
            return OffsetFetchResponse(error_code=code)
        asked = _partitions(request.topics or ())
        return OffsetFetchResponse(topics=_topics((tp, NOT_COMMITTED, code) for tp in asked))


def _group(call: Call, asked: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    try:
        topics = _positions(call, asked.group_id, asked.topics, require_stable)
    except ANSWERABLE as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error_of(error)[0])
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _positions(
    call: Call, group_id: str, topics: Sequence[OffsetFetchRequestTopic] | None, require_stable: bool
) -> list[OffsetFetchResponseTopic]:
    """Where a group is in some topics, or in all that it has committed."""
    asked = None if topics is None else _partitions(topics)
    group = call.access.group(group_id, Operation.DESCRIBE)
    offsets = group.fetch_offsets(asked, require_stable=require_stable)
    if asked is None:
        allowed = ((tp, offset) for tp, offset in offsets.items() if not _error(call, tp))
        return _topics((tp, offset, offset.error) for tp, offset in allowed)
    answers = []
    for tp in asked:
        code = _error(call, tp)
        offset = NOT_COMMITTED if code else offsets.get(tp, NOT_COMMITTED)
        answers.append((tp, offset, code or offset.error))
    return _topics(answers)


def _error(call: Call, tp: TopicPartition) -> ErrorCode:
    """What a session hears of a topic that it may not see; it need not exist."""
    allowed = call.access.allows(Operation.DESCRIBE, Resource(ResourceKind.TOPIC, tp.topic))
    return ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _partitions(topics: Iterable[OffsetFetchRequestTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _topics(
    offsets: Iterable[tuple[TopicPartition, CommittedOffset, ErrorCode]],
) -> list[OffsetFetchResponseTopic]:
    """Answers by topic, in the order in which the topics come first."""
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for (name, index), committed, error_code in offsets:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = OffsetFetchResponseTopic(name=name)
        topic.partitions.append(
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=error_code,
            )
        )
    return list(topics.values())
