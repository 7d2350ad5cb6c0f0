"""OffsetCommit, OffsetFetch, OffsetDelete, in every version: what the coordinator is asked and answers."""

from __future__ import annotations

import pytest

from tailrace.broker.gate import Gate
from tailrace.broker.groups.api import UNSTABLE, CommitRequest, CommittedOffset, OffsetToCommit
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tailrace.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

from .coordinator import LOADING, cast
from .stage import SESSION, Stage, play, versions

# ---- OffsetCommit


def commit_of(*places: tuple[str, int]) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for number, (name, index) in enumerate(places):
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=100 + number,
                committed_leader_epoch=5,
                committed_metadata=None if number else "noted",
            )
        )
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=3,
        member_id="m",
        group_instance_id="i",
        retention_time_ms=777,
        topics=list(topics.values()),
    )


def commit_errors(response: OffsetCommitResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", versions(8))
def test_positions_are_committed_as_the_version_says_them(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders", partitions=2)
        first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
        groups = cast(stage, {first: ErrorCode.NONE, second: ErrorCode.OFFSET_METADATA_TOO_LARGE})
        response = await stage.ask(commit_of(first, second), OffsetCommitResponse, version=version)
        epoch = 5 if version >= 6 else -1
        assert groups.asked == [
            CommitRequest(
                group_id="g",
                generation_id=3,
                member_id="m",
                group_instance_id="i" if version >= 7 else None,
                retention_ms=777 if version <= 4 else -1,
                offsets={
                    first: OffsetToCommit(100, epoch, "noted"),
                    second: OffsetToCommit(101, epoch, None),
                },
            )
        ]
        assert commit_errors(response) == {first: 0, second: ErrorCode.OFFSET_METADATA_TOO_LARGE}

    play(scenario)


def test_partitions_that_do_not_exist_are_refused_and_the_others_committed() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        groups = cast(stage, {TopicPartition("orders", 0): ErrorCode.NONE})
        request = commit_of(("orders", 0), ("orders", 1), ("orders", -1), ("nobody", 0))
        response = await stage.ask(request, OffsetCommitResponse)
        (asked,) = groups.asked
        assert isinstance(asked, CommitRequest)
        assert list(asked.offsets) == [("orders", 0)]
        assert commit_errors(response) == {
            ("orders", 0): 0,
            ("orders", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("orders", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("nobody", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    play(scenario)


def test_where_nothing_can_be_committed_nobody_is_asked() -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, LOADING)
        response = await stage.ask(commit_of(("nobody", 0)), OffsetCommitResponse)
        assert commit_errors(response) == {("nobody", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert groups.asked == []

    play(scenario)


# ---- OffsetFetch

FETCH = OffsetFetchRequest(
    group_id="g",
    topics=[
        OffsetFetchRequestTopic(name="orders", partition_indexes=[1, 0]),
        OffsetFetchRequestTopic(name="nobody", partition_indexes=[0]),
    ],
)
PLACES = [TopicPartition("orders", 1), TopicPartition("orders", 0), TopicPartition("nobody", 0)]


async def fetch(
    stage: Stage, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse | OffsetFetchResponseGroup:
    """The answer to a question about one group, as the version asks it."""
    groups = [OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)]
    asked = OffsetFetchRequest(group_id=request.group_id, topics=request.topics, groups=groups)
    response = await stage.ask(asked, OffsetFetchResponse, version=version)
    if version < 8:
        return response
    (group,) = response.groups
    assert group.group_id == request.group_id
    return group


def positions(
    response: OffsetFetchResponse | OffsetFetchResponseGroup,
) -> list[tuple[str, int, int, int, str | None, int]]:
    return [
        (
            topic.name,
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata,
            each.error_code,
        )
        for topic in response.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", versions(9))
def test_positions_are_told_in_the_order_asked_for(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, {PLACES[1]: CommittedOffset(42, 5, "noted"), PLACES[2]: CommittedOffset(-1)})
        response = await fetch(stage, FETCH, version)
        assert groups.asked == [("g", PLACES)]
        assert response.error_code == 0
        assert positions(response) == [
            ("orders", 1, -1, -1, "", 0),
            ("orders", 0, 42, 5 if version >= 5 else -1, "noted", 0),
            ("nobody", 0, -1, -1, "", 0),
        ]

    play(scenario)


@pytest.mark.parametrize("version", range(2, 10))
def test_null_topics_are_all_that_the_group_has(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, {PLACES[0]: CommittedOffset(7), PLACES[2]: CommittedOffset(8)})
        response = await fetch(stage, OffsetFetchRequest(group_id="g", topics=None), version)
        assert groups.asked == [("g", None)]
        assert [(topic, index, offset) for topic, index, offset, *_ in positions(response)] == [
            ("orders", 1, 7),
            ("nobody", 0, 8),
        ]

    play(scenario)


@pytest.mark.parametrize("version", range(2, 10))
def test_no_topics_are_no_positions(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, {})
        response = await fetch(stage, OffsetFetchRequest(group_id="g", topics=[]), version)
        assert groups.asked == [("g", [])]
        assert (response.error_code, response.topics) == (0, [])

    play(scenario)


@pytest.mark.parametrize("version", range(7, 10))
@pytest.mark.parametrize("stable", [True, False])
def test_a_stable_position_is_asked_for_from_version_7_on(version: int, stable: bool) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, {})
        asked = [OffsetFetchRequestGroup(group_id="g", topics=[])]
        request = OffsetFetchRequest(group_id="g", topics=[], groups=asked, require_stable=stable)
        await stage.ask(request, OffsetFetchResponse, version=version)
        assert groups.required_stable is stable

    play(scenario)


@pytest.mark.parametrize("version", range(7, 10))
@pytest.mark.parametrize("topics", [FETCH.topics, None], ids=["named", "all"])
def test_a_position_that_a_transaction_may_move_is_told_as_unstable(
    version: int, topics: list[OffsetFetchRequestTopic] | None
) -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, {PLACES[0]: CommittedOffset(7), PLACES[1]: UNSTABLE, PLACES[2]: CommittedOffset(8)})
        response = await fetch(stage, OffsetFetchRequest(group_id="g", topics=topics), version)
        assert response.error_code == 0
        assert positions(response) == [
            ("orders", 1, 7, -1, "", 0),
            ("orders", 0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT),
            ("nobody", 0, 8, -1, "", 0),
        ]

    play(scenario)


def test_version_1_tells_an_error_with_every_partition() -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, LOADING)
        response = await stage.ask(FETCH, OffsetFetchResponse, version=1)
        assert [(topic, index, offset, code) for topic, index, offset, _, _, code in positions(response)] == [
            ("orders", 1, -1, 14),
            ("orders", 0, -1, 14),
            ("nobody", 0, -1, 14),
        ]

    play(scenario)


@pytest.mark.parametrize("version", range(2, 10))
def test_later_versions_tell_an_error_once(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, LOADING)
        response = await fetch(stage, FETCH, version)
        assert (response.error_code, response.topics) == (14, [])

    play(scenario)


def test_several_groups_answer_for_themselves() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
        groups = [
            OffsetFetchRequestGroup(group_id="first", topics=topics, member_id="m-1", member_epoch=3),
            OffsetFetchRequestGroup(group_id="secret", topics=topics),
            OffsetFetchRequestGroup(group_id="third", topics=None),
        ]
        stage.access = Gate(
            stage.broker, authorize=lambda _session, _operation, resource: resource.name != "secret"
        ).access(SESSION)
        response = await stage.ask(OffsetFetchRequest(groups=groups), OffsetFetchResponse)
        assert [(each.group_id, each.error_code) for each in response.groups] == [
            ("first", 0),
            ("secret", ErrorCode.GROUP_AUTHORIZATION_FAILED),
            ("third", 0),
        ]
        assert positions(response.groups[0]) == [("orders", 0, -1, -1, "", 0)]
        assert response.groups[1].topics == response.groups[2].topics == []

    play(scenario)


# ---- OffsetDelete

FORGET = OffsetDeleteRequest(
    group_id="g",
    topics=[
        OffsetDeleteRequestTopic(
            name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in (0, 1, 2)]
        ),
        OffsetDeleteRequestTopic(name="nobody", partitions=[OffsetDeleteRequestPartition(partition_index=0)]),
    ],
)


def test_positions_are_forgotten_with_an_answer_each() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders", partitions=2)
        first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
        groups = cast(stage, {first: ErrorCode.NONE, second: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})
        response = await stage.ask(FORGET, OffsetDeleteResponse)
        assert groups.asked == [("g", [first, second])]
        assert response.error_code == 0
        assert [
            (topic.name, each.partition_index, each.error_code)
            for topic in response.topics
            for each in topic.partitions
        ] == [
            ("orders", 0, 0),
            ("orders", 1, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
            ("orders", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("nobody", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    play(scenario)


def test_an_unknown_group_has_nothing_to_forget() -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, BrokerError("no such group", code=ErrorCode.GROUP_ID_NOT_FOUND))
        response = await stage.ask(FORGET, OffsetDeleteResponse)
        assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])

    play(scenario)
