"""DeleteRecords, in every version, against a broker in memory with records in it."""

from __future__ import annotations

import pytest

from tailrace.broker import NewTopic
from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

from .stage import Stage, play, versions, write

KEY = 21


async def delete(
    stage: Stage, name: str, *offsets: int, version: int | None = None
) -> list[DeleteRecordsPartitionResult]:
    """Records of partition 0, 1 and so on, below an offset each."""
    partitions = [
        DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in enumerate(offsets)
    ]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=partitions)])
    (topic,) = (await stage.ask(request, DeleteRecordsResponse, version=version)).topics
    assert topic.name == name
    return topic.partitions


@pytest.mark.parametrize("version", versions(KEY))
def test_records_below_the_offset_are_gone(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        (partition,) = (await stage.topic("orders")).partitions
        write(partition, 10)
        (result,) = await delete(stage, "orders", 4, version=version)
        assert (result.partition_index, result.low_watermark, result.error_code) == (0, 4, 0)
        assert partition.start_offset == 4

    play(scenario)


def test_minus_one_is_everything() -> None:
    async def scenario(stage: Stage) -> None:
        (partition,) = (await stage.topic("orders")).partitions
        write(partition, 10)
        (result,) = await delete(stage, "orders", -1)
        assert (result.low_watermark, result.error_code) == (10, 0)

    play(scenario)


@pytest.mark.parametrize("offset", [11, -2, 2**63 - 1, -(2**63)])
def test_an_offset_outside_is_out_of_range_and_nothing_goes(offset: int) -> None:
    async def scenario(stage: Stage) -> None:
        (partition,) = (await stage.topic("orders")).partitions
        write(partition, 10)
        (result,) = await delete(stage, "orders", offset)
        assert (result.low_watermark, result.error_code) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert partition.start_offset == 0

    play(scenario)


def test_one_bad_partition_does_not_spoil_the_others() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", partitions=2)
        for partition in topic.partitions:
            write(partition, 10)
        results = await delete(stage, "orders", 99, 5, 0)
        assert [(result.low_watermark, result.error_code) for result in results] == [
            (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
            (5, 0),
            (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    play(scenario)


def test_an_unknown_topic_is_told_with_every_partition() -> None:
    async def scenario(stage: Stage) -> None:
        results = await delete(stage, "nobody", 0, 0)
        assert [result.error_code for result in results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2

    play(scenario)


def test_internal_topics_keep_their_records() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.broker.topics.create(NewTopic(name="__inside", partitions=1, internal=True))
        write(topic.partitions[0], 3)
        (result,) = await delete(stage, "__inside", -1)
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert topic.partitions[0].start_offset == 0

    play(scenario)


@pytest.mark.parametrize(
    ("policy", "code"), [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0), ("", 0)]
)
def test_a_topic_that_never_deletes_keeps_its_records(policy: str, code: int) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", cleanup_policy=policy)
        write(topic.partitions[0], 3)
        (result,) = await delete(stage, "orders", -1)
        assert result.error_code == code

    play(scenario)


def test_a_partition_that_another_node_leads_is_told_as_such() -> None:
    async def scenario(stage: Stage) -> None:
        new = NewTopic(
            name="orders", assignments={0: [min(stage.access.nodes)], 1: [max(stage.access.nodes)]}
        )
        await stage.broker.topics.create(new)
        here, elsewhere = await delete(stage, "orders", 0, 0)
        assert here.error_code == 0
        assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(scenario, nodes=(1, 2))
