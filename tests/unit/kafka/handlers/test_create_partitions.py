"""CreatePartitions, in every version, against a broker in memory."""

from __future__ import annotations

import pytest

from tailrace.broker import NewTopic
from tailrace.model import ErrorCode, TopicPartition
from tailrace.wire.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

from .stage import Stage, play, versions

KEY = 37


def wanted(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
    chosen = [CreatePartitionsAssignment(broker_ids=nodes) for nodes in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=chosen or None)


async def grow(
    stage: Stage,
    *topics: CreatePartitionsTopic,
    validate_only: bool = False,
    version: int | None = None,
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)
    return (await stage.ask(request, CreatePartitionsResponse, version=version)).results


@pytest.mark.parametrize("version", versions(KEY))
def test_a_topic_grows(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", partitions=2)
        (result,) = await grow(stage, wanted("orders", 5), version=version)
        assert (result.name, result.error_code, result.error_message) == ("orders", 0, None)
        assert [partition.index for partition in topic.partitions] == [0, 1, 2, 3, 4]
        assert stage.access.readable(TopicPartition("orders", 4)).high_watermark == 0

    play(scenario)


@pytest.mark.parametrize("count", [-1, 0, 1, 2, 2**31 - 1])
def test_what_is_not_more_or_far_too_many_is_refused(count: int) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", partitions=2)
        (result,) = await grow(stage, wanted("orders", count))
        assert result.error_code == ErrorCode.INVALID_PARTITIONS
        assert result.error_message
        assert len(topic.partitions) == 2

    play(scenario)


def test_validate_only_changes_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", partitions=2)
        good, bad = await grow(stage, wanted("orders", 3), wanted("nobody", 3), validate_only=True)
        assert good.error_code == 0
        assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(topic.partitions) == 2

    play(scenario)


def test_a_topic_that_comes_twice_is_refused_in_both_places() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        results = await grow(stage, wanted("orders", 2), wanted("orders", 3))
        assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
        assert len(topic.partitions) == 1

    play(scenario)


def test_internal_topics_stay_as_they_are() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.broker.topics.create(NewTopic(name="__inside", partitions=1, internal=True))
        (result,) = await grow(stage, wanted("__inside", 2))
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert len(topic.partitions) == 1

    play(scenario)


def test_new_partitions_go_where_they_are_assigned() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        (result,) = await grow(stage, wanted("orders", 3, [2], [3]))
        assert result.error_code == 0
        assert [partition.replicas for partition in topic.partitions[1:]] == [(2,), (3,)]

    play(scenario, nodes=(1, 2, 3))


@pytest.mark.parametrize(
    "assignments", [([1],), ([1], [1], [1]), ([1], [9]), ([1], [1, 2]), ([1, 2], [2, 1]), ([1], [])]
)
def test_assignments_that_do_not_fit_are_refused(assignments: tuple[list[int], ...]) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        (result,) = await grow(stage, wanted("orders", 3, *assignments))
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert len(topic.partitions) == 1

    play(scenario, nodes=(1, 2))


def test_a_number_that_is_too_small_is_told_before_an_assignment_that_does_not_fit() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders", partitions=2)
        (result,) = await grow(stage, wanted("orders", 2, [1], [1]))
        assert result.error_code == ErrorCode.INVALID_PARTITIONS

    play(scenario)
