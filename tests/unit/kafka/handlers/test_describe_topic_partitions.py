"""DescribeTopicPartitions and ListConfigResources: pages of partitions, and what has settings."""

from __future__ import annotations

import pytest

from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tailrace.wire.kafka.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

from .stage import Stage, play


async def describe(
    stage: Stage, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    return await stage.ask(request, DescribeTopicPartitionsResponse)


def shown(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics]


def test_topics_are_described_by_name_with_what_may_be_done_to_them() -> None:
    async def scenario(stage: Stage) -> None:
        orders = await stage.topic("orders", partitions=2)
        await stage.topic("audit")
        response = await describe(stage, "orders", "audit", "nobody", "orders", "not/legal")
        assert shown(response) == [("audit", [0]), ("nobody", []), ("not/legal", []), ("orders", [0, 1])]
        assert [topic.error_code for topic in response.topics] == [0, 3, 17, 0]
        topic = response.topics[-1]
        assert (topic.topic_id, topic.is_internal) == (orders.id, False)
        assert topic.topic_authorized_operations > 0
        first = topic.partitions[0]
        assert (first.error_code, first.leader_id, first.leader_epoch) == (0, 1, 0)
        assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([1], [1], [])
        assert (first.eligible_leader_replicas, first.last_known_elr) == ([], [])
        assert response.next_cursor is None

    play(scenario)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 2000])
def test_pages_of_any_size_show_every_partition_once(limit: int) -> None:
    async def scenario(stage: Stage) -> None:
        for name, count in (("c", 1), ("a", 3), ("b", 2)):
            await stage.topic(name, partitions=count)
        found: list[tuple[str | None, int]] = []
        cursor = None
        for _ in range(10):
            response = await describe(stage, limit=limit, cursor=cursor)
            page = [(name, index) for name, indexes in shown(response) for index in indexes]
            assert 1 <= len(page) <= limit
            found += page
            cursor = response.next_cursor
            if cursor is None:
                break
        assert found == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]

    play(scenario)


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
def test_a_limit_that_makes_no_sense_is_one_partition(limit: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("a", partitions=3)
        response = await describe(stage, limit=limit)
        assert shown(response) == [("a", [0])] and response.next_cursor == Cursor("a", 1)

    play(scenario)


def test_a_page_has_2000_partitions_at_most() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("a", partitions=2001)
        response = await describe(stage, limit=2**31 - 1)
        assert len(response.topics[0].partitions) == 2000 and response.next_cursor == Cursor("a", 2000)

    play(scenario)


def test_a_cursor_at_what_has_gone_goes_on_with_what_follows() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("a")
        await stage.topic("c", partitions=2)
        assert shown(await describe(stage, cursor=Cursor("b", 5))) == [("c", [0, 1])]
        assert shown(await describe(stage, cursor=Cursor("c", 1))) == [("c", [1])]
        assert shown(await describe(stage, cursor=Cursor("c", 9))) == [("c", [])]
        assert shown(await describe(stage, "a", "c", cursor=Cursor("b", 0))) == [("c", [0, 1])]
        assert shown(await describe(stage, cursor=Cursor("d", 0))) == []
        with pytest.raises(BrokerError) as caught:
            await describe(stage, cursor=Cursor("a", -1))
        assert caught.value.code == ErrorCode.INVALID_REQUEST

    play(scenario)


@pytest.mark.parametrize(
    ("types", "found"),
    [
        ([], [("orders", 2), ("1", 4), ("billing", 32)]),
        ([2], [("orders", 2)]),
        ([4], [("1", 4)]),
        ([8], []),
        ([16], []),
        ([32], [("billing", 32)]),
        ([4, 2], [("orders", 2), ("1", 4)]),
    ],
)
def test_what_has_settings_is_listed_by_type(types: list[int], found: list[tuple[str, int]]) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        await stage.access.alter_group("billing", lambda _: {"consumer.session.timeout.ms": "50000"})
        response = await stage.ask(ListConfigResourcesRequest(types), ListConfigResourcesResponse)
        assert response.error_code == 0
        assert [(each.resource_name, each.resource_type) for each in response.config_resources] == found

    play(scenario)


def test_version_0_asks_for_client_metrics_of_which_there_are_none() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        response = await stage.ask(ListConfigResourcesRequest(), ListConfigResourcesResponse, version=0)
        assert (response.error_code, response.config_resources) == (0, [])

    play(scenario)


@pytest.mark.parametrize("types", [[0], [3], [2, 64], [-1]])
def test_a_type_that_does_not_exist_is_refused(types: list[int]) -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(BrokerError) as caught:
            await stage.ask(ListConfigResourcesRequest(types), ListConfigResourcesResponse)
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION

    play(scenario)
