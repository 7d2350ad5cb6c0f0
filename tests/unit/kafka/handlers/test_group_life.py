"""The whole life of a group over the real coordinator, in old and new versions."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.model import ErrorCode
from tailrace.wire.kafka import APIS
from tailrace.wire.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tailrace.wire.kafka.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tailrace.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.wire.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tailrace.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
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
)
from tailrace.wire.kafka.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

from .stage import Stage, play

OLD, NEW = "old", "new"
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\6orders" + b"\0\0\0\0"  # version 0: topics, no user data


class Consumer:
    """A client of the group protocol, in the oldest or the newest versions."""

    def __init__(self, stage: Stage, age: str) -> None:
        self._stage = stage
        self._old = age == OLD
        self.member_id = ""
        self.generation_id = -1

    def version(self, key: int) -> int:
        return APIS[key].min_version if self._old else APIS[key].max_version

    async def join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        response = await self._stage.ask(request, JoinGroupResponse, version=self.version(11))
        self.member_id, self.generation_id = response.member_id, response.generation_id
        return response

    async def enter(self) -> JoinGroupResponse:
        """Join, twice where the first answer is the id alone."""
        response = await self.join()
        if not self._old:
            assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
            response = await self.join()
        assert response.error_code == 0
        return response

    async def sync(self, **shares: bytes) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=self.member_id, assignment=share)
                for share in shares.values()
            ],
        )
        return await self._stage.ask(request, SyncGroupResponse, version=self.version(14))

    async def heartbeat(self, *, generation_id: int | None = None) -> int:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation_id if generation_id is None else generation_id,
            member_id=self.member_id,
        )
        response = await self._stage.ask(request, HeartbeatResponse, version=self.version(12))
        return response.error_code

    async def commit(self, offset: int, *, metadata: str | None = None) -> int:
        partition = OffsetCommitRequestPartition(committed_offset=offset, committed_metadata=metadata)
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])],
        )
        response = await self._stage.ask(request, OffsetCommitResponse, version=self.version(8))
        return response.topics[0].partitions[0].error_code

    async def committed(self) -> tuple[int, str | None]:
        topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
        request = OffsetFetchRequest(group_id="g", topics=topics, groups=groups)
        answer = await self._stage.ask(request, OffsetFetchResponse, version=self.version(9))
        response = answer.groups[0] if answer.groups else answer
        (partition,) = response.topics[0].partitions
        assert (response.error_code, partition.error_code) == (0, 0)
        return partition.committed_offset, partition.metadata

    async def leave(self) -> int:
        request = LeaveGroupRequest(group_id="g")
        if self._old:
            request.member_id = self.member_id
        else:
            request.members = [MemberIdentity(member_id=self.member_id)]
        response = await self._stage.ask(request, LeaveGroupResponse, version=self.version(13))
        return response.error_code or sum(member.error_code for member in response.members)

    async def describe(self) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=["g"])
        response = await self._stage.ask(request, DescribeGroupsResponse, version=self.version(15))
        return response.groups[0]

    async def forget(self) -> OffsetDeleteResponse:
        topic = OffsetDeleteRequestTopic(name="orders", partitions=[OffsetDeleteRequestPartition()])
        return await self._stage.ask(OffsetDeleteRequest(group_id="g", topics=[topic]), OffsetDeleteResponse)

    async def delete_group(self) -> int:
        request = DeleteGroupsRequest(groups_names=["g"])
        response = await self._stage.ask(request, DeleteGroupsResponse, version=self.version(42))
        return response.results[0].error_code


@pytest.mark.parametrize("age", [OLD, NEW])
def test_a_group_lives_from_its_first_member_to_its_end(age: str) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        consumer = Consumer(stage, age)
        joined = await consumer.enter()
        assert joined.leader == consumer.member_id
        assert [(member.member_id, member.metadata) for member in joined.members] == [
            (consumer.member_id, SUBSCRIPTION)
        ]
        assert (await consumer.sync(mine=b"share")).assignment == b"share"
        assert await consumer.heartbeat() == 0

        assert await consumer.committed() == (-1, "")
        assert await consumer.commit(42, metadata="noted") == 0
        assert await consumer.committed() == (42, "noted")

        group = await consumer.describe()
        assert (group.group_state, group.protocol_type, group.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        (member,) = group.members
        assert (member.client_id, member.client_host) == ("tests", "/203.0.113.7")
        assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"share")
        listed = await stage.ask(ListGroupsRequest(), ListGroupsResponse, version=consumer.version(16))
        assert [each.group_id for each in listed.groups] == ["g"]

        assert await consumer.delete_group() == ErrorCode.NON_EMPTY_GROUP
        assert await consumer.leave() == 0
        assert await consumer.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await consumer.describe()).group_state == "Empty"
        assert await consumer.committed() == (42, "noted")
        assert await consumer.delete_group() == 0
        assert await consumer.committed() == (-1, "")
        assert (await consumer.describe()).group_state == "Dead"

    play(scenario)


@pytest.mark.parametrize("age", [OLD, NEW])
def test_a_second_member_is_waited_for_and_the_first_hears_of_it(age: str) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        first, second = Consumer(stage, age), Consumer(stage, age)
        await first.enter()
        await first.sync(mine=b"all")
        entering = asyncio.ensure_future(second.enter())
        await asyncio.sleep(0)  # it joins, and waits for the first
        assert await first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert not entering.done()
        again = await first.join()
        joined = await entering
        assert again.generation_id == joined.generation_id == 2
        assert (len(again.members), len(joined.members)) == (2, 0)
        assert joined.leader == first.member_id

        waiting = asyncio.ensure_future(second.sync())
        await first.sync(mine=b"half")
        assert (await waiting).error_code == 0
        assert await first.heartbeat(generation_id=1) == ErrorCode.ILLEGAL_GENERATION

    play(scenario)


def test_positions_in_a_topic_that_members_read_stay_and_others_are_forgotten() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        consumer = Consumer(stage, NEW)
        await consumer.enter()
        await consumer.sync(mine=b"share")
        await consumer.commit(42)
        refused = await consumer.forget()
        assert refused.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        await consumer.leave()
        assert (await consumer.forget()).topics[0].partitions[0].error_code == 0
        assert await consumer.committed() == (-1, "")

    play(scenario)


def test_nobody_is_a_member_of_an_unknown_group() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        stranger = Consumer(stage, NEW)
        stranger.member_id, stranger.generation_id = "who", 1
        assert await stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert await stranger.leave() == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await stranger.sync()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await stranger.join()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        stranger.generation_id = 1
        assert await stranger.commit(1) == ErrorCode.ILLEGAL_GENERATION
        assert (await stranger.forget()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await stranger.delete_group() == ErrorCode.GROUP_ID_NOT_FOUND

    play(scenario)


def test_a_deleted_topic_takes_its_positions_along() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        consumer = Consumer(stage, NEW)
        assert await consumer.commit(42) == 0  # an administrator's: no member, no generation
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")])
        response = await stage.ask(request, DeleteTopicsResponse)
        assert response.responses[0].error_code == 0
        await stage.topic("orders")
        assert await consumer.committed() == (-1, "")

    play(scenario)
