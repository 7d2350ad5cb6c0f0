"""CreateTopics, in every version, against a broker in memory: defaults, refusals, one answer per item."""

from __future__ import annotations

import pytest

from tailrace.model import ErrorCode
from tailrace.wire.kafka import ZERO_UUID
from tailrace.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

from .stage import Stage, play, versions

KEY = 19


def wanted(name: str, *, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def assigned(name: str, *replicas: list[int], first: int = 0) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=first + place, broker_ids=nodes)
            for place, nodes in enumerate(replicas)
        ],
    )


async def create(
    stage: Stage, *topics: CreatableTopic, validate_only: bool = False, version: int | None = None
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return (await stage.ask(request, CreateTopicsResponse, version=version)).topics


@pytest.mark.parametrize("version", versions(KEY))
def test_a_topic_is_made(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        (result,) = await create(stage, wanted("orders", partitions=3), version=version)
        assert (result.name, result.error_code, result.error_message) == ("orders", 0, None)
        topic = stage.broker.topics.get("orders")
        assert topic is not None and len(topic.partitions) == 3
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            assert {config.name for config in result.configs or ()} >= {"retention.ms", "cleanup.policy"}
        if version >= 7:
            assert result.topic_id == topic.id

    play(scenario)


@pytest.mark.parametrize("version", versions(KEY))
def test_minus_one_is_the_nodes_default(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        (result,) = await create(stage, wanted("orders", partitions=-1, replicas=-1), version=version)
        assert result.error_code == 0
        topic = stage.broker.topics.get("orders")
        assert topic is not None
        assert (len(topic.partitions), topic.replication_factor) == (6, 1)

    play(scenario, values={"num.partitions": "6"})


def test_settings_are_kept_and_told() -> None:
    async def scenario(stage: Stage) -> None:
        (result,) = await create(stage, wanted("orders", retention_ms="1000"))
        topic = stage.broker.topics.get("orders")
        assert topic is not None and dict(topic.configs) == {"retention.ms": "1000"}
        told = {config.name: config for config in result.configs or ()}
        assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("1000", 1)
        assert (told["segment.ms"].value, told["segment.ms"].config_source) == ("604800000", 5)

    play(scenario)


def test_validate_only_makes_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        good, bad = await create(
            stage, wanted("good", partitions=2), wanted("bad", partitions=0), validate_only=True
        )
        assert (good.error_code, good.num_partitions, good.topic_id) == (0, 2, ZERO_UUID)
        assert bad.error_code == ErrorCode.INVALID_PARTITIONS
        assert not list(stage.broker.topics)

    play(scenario)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("no/slash"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (wanted("__consumer_offsets"), ErrorCode.INVALID_REQUEST),
        (wanted("t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (wanted("t", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (wanted("t", partitions=2**31 - 1), ErrorCode.INVALID_PARTITIONS),
        (wanted("t", replicas=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("t", replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (wanted("t", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (wanted("t", no_such_key="1"), ErrorCode.INVALID_CONFIG),
        (assigned("t", [7]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", [1], first=1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(topic: CreatableTopic, code: ErrorCode) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("there")
        (result,) = await create(stage, topic)
        assert result.error_code == code
        assert result.error_message
        assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])
        assert [topic.name for topic in stage.broker.topics] == ["there"]

    play(scenario)


def test_an_assignment_is_taken_as_it_is() -> None:
    async def scenario(stage: Stage) -> None:
        (result,) = await create(stage, assigned("t", [2, 1], [1, 3]))
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 2)
        topic = stage.broker.topics.get("t")
        assert topic is not None
        assert [partition.replicas for partition in topic.partitions] == [(2, 1), (1, 3)]

    play(scenario, nodes=(1, 2, 3))


def test_a_partition_that_is_assigned_twice_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        topic = assigned("t", [1], [1])
        topic.assignments[1].partition_index = 0
        (result,) = await create(stage, topic)
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    play(scenario)


def test_numbers_and_an_assignment_exclude_each_other() -> None:
    async def scenario(stage: Stage) -> None:
        topic = assigned("t", [1])
        topic.num_partitions = 1
        (result,) = await create(stage, topic)
        assert result.error_code == ErrorCode.INVALID_REQUEST

    play(scenario)


def test_a_name_that_comes_twice_is_refused_in_both_places_and_the_others_are_made() -> None:
    async def scenario(stage: Stage) -> None:
        results = await create(stage, wanted("twin"), wanted("single"), wanted("twin", partitions=2))
        assert [(result.name, result.error_code) for result in results] == [
            ("twin", ErrorCode.INVALID_REQUEST),
            ("single", 0),
            ("twin", ErrorCode.INVALID_REQUEST),
        ]
        assert [topic.name for topic in stage.broker.topics] == ["single"]

    play(scenario)


def test_an_empty_request_has_an_empty_answer() -> None:
    async def scenario(stage: Stage) -> None:
        assert await create(stage) == []

    play(scenario)


@pytest.mark.parametrize("version", versions(KEY))
def test_the_longest_name_there_can_be_is_refused_in_few_words(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        (result,) = await create(stage, wanted("\0" * 32_767), version=version)
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert len(result.error_message or "") < 2_000

    play(scenario)
