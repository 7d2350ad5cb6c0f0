"""DeleteTopics by name and by id, in every version, against a broker in memory."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest

from tailrace.broker import NewTopic
from tailrace.model import ErrorCode
from tailrace.wire.kafka import ZERO_UUID
from tailrace.wire.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

from .stage import Stage, play, versions

KEY = 20


async def delete(stage: Stage, *topics: DeleteTopicState) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=list(topics))
    return (await stage.ask(request, DeleteTopicsResponse)).responses


def by_name(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=name)


def by_id(topic_id: UUID) -> DeleteTopicState:
    return DeleteTopicState(topic_id=topic_id)


@pytest.mark.parametrize("version", versions(KEY))
def test_topics_go_by_name(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        request = DeleteTopicsRequest()
        if version >= 6:
            request.topics = [by_name("orders"), by_name("nobody")]
        else:
            request.topic_names = ["orders", "nobody"]
        gone, unknown = (await stage.ask(request, DeleteTopicsResponse, version=version)).responses
        assert (gone.name, gone.error_code) == ("orders", 0)
        assert (unknown.name, unknown.error_code) == ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert stage.broker.topics.get("orders") is None
        if version >= 5:
            assert gone.error_message is None and unknown.error_message
        if version >= 6:
            assert gone.topic_id == topic.id

    play(scenario)


def test_a_topic_that_got_the_name_of_another_does_not_go_by_the_id_of_that_one() -> None:
    async def scenario(stage: Stage) -> None:
        old = await stage.topic("orders")
        going = asyncio.ensure_future(stage.broker.topics.delete("orders"))
        coming = asyncio.ensure_future(stage.topic("orders"))
        await asyncio.sleep(0)  # both wait for their turn, and the old one is still there
        (result,) = await delete(stage, by_id(old.id))
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        await going
        assert stage.broker.topics.get("orders") is await coming

    play(scenario)


def test_topics_go_by_id_and_are_told_by_name() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        (result,) = await delete(stage, by_id(topic.id))
        assert (result.name, result.topic_id, result.error_code) == ("orders", topic.id, 0)
        assert stage.broker.topics.by_id(topic.id) is None

    play(scenario)


def test_an_unknown_id_is_told_without_a_name() -> None:
    async def scenario(stage: Stage) -> None:
        stranger = uuid4()
        (result,) = await delete(stage, by_id(stranger))
        assert (result.name, result.topic_id) == (None, stranger)
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    play(scenario)


def test_an_item_has_a_name_or_an_id_and_not_both() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        both, neither = await delete(
            stage,
            DeleteTopicState(name="orders", topic_id=topic.id),
            DeleteTopicState(name=None, topic_id=ZERO_UUID),
        )
        assert both.error_code == ErrorCode.INVALID_REQUEST
        assert neither.error_code == ErrorCode.INVALID_REQUEST
        assert stage.broker.topics.get("orders") is topic

    play(scenario)


def test_a_topic_that_is_meant_twice_stays() -> None:
    async def scenario(stage: Stage) -> None:
        topic, other = await stage.topic("orders"), await stage.topic("other")
        results = await delete(stage, by_name("orders"), by_id(other.id), by_id(topic.id))
        assert [result.error_code for result in results] == [
            ErrorCode.INVALID_REQUEST,
            0,
            ErrorCode.INVALID_REQUEST,
        ]
        assert [topic.name for topic in stage.broker.topics] == ["orders"]

    play(scenario)


def test_internal_topics_stay() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.broker.topics.create(NewTopic(name="__inside", internal=True))
        (result,) = await delete(stage, by_name("__inside"))
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert stage.broker.topics.get("__inside") is not None

    play(scenario)


def test_an_illegal_name_is_told_as_one() -> None:
    async def scenario(stage: Stage) -> None:
        (result,) = await delete(stage, by_name("no/slash"))
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    play(scenario)


def test_the_longest_name_there_can_be_is_answered_in_few_words() -> None:
    async def scenario(stage: Stage) -> None:
        request = DeleteTopicsRequest(topic_names=["\0" * 32_767])
        (result,) = (await stage.ask(request, DeleteTopicsResponse, version=5)).responses
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert len(result.error_message or "") < 2_000

    play(scenario)
