"""DeleteTopics: topics go, by name or by id, each with its own answer.

v1-5  by name
v5    the answer has messages
v6    by name or by id (KIP-516), never both

A topic that is meant twice, be it by its name and by its id, is INVALID_REQUEST in both places and stays.
Internal topics stay. The timeout is not needed: the answer comes when the topic is gone.
"""

from __future__ import annotations

from uuid import UUID

from tailrace.broker.topic import Topic
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import invalid_request, repeated
from tailrace.model import BrokerError
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

KEY = 20


async def handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = request.topics
    if call.version < 6:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    twice = repeated(_meant(call, each) for each in asked)
    return DeleteTopicsResponse(
        responses=[await _delete(call, each, repeated=_meant(call, each) in twice) for each in asked]
    )


async def _delete(call: Call, asked: DeleteTopicState, *, repeated: bool) -> DeletableTopicResult:
    result = DeletableTopicResult(name=asked.name, topic_id=asked.topic_id)
    try:
        if repeated:
            raise invalid_request("the topic is named more than once")
        topic = _find(call, asked)
        result.name, result.topic_id = topic.name, topic.id
        await call.access.delete_topic(topic.name, topic_id=topic.id if asked.name is None else None)
    except ANSWERABLE as error:
        result.error_code, result.error_message = error_of(error)
    return result


def _meant(call: Call, asked: DeleteTopicState) -> str | UUID | None:
    """What tells whether two items mean one topic."""
    if asked.name is not None:
        return asked.name
    try:
        return call.access.topic_by_id(asked.topic_id, Operation.DELETE).name
    except BrokerError:
        return asked.topic_id


def _find(call: Call, asked: DeleteTopicState) -> Topic:
    by_id = asked.topic_id.int != 0
    if by_id == (asked.name is not None):
        raise invalid_request("a topic is named by its name or by its id: one of them, and not both")
    if asked.name is not None:
        return call.access.topic(asked.name, Operation.DELETE)
    return call.access.topic_by_id(asked.topic_id, Operation.DELETE)
