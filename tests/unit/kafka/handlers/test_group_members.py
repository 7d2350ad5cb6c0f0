"""The handlers of membership, in every version: what reaches the coordinator, and what its answers become."""

from __future__ import annotations

import pytest

from tailrace.broker.groups.api import (
    JoinedMember,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.wire.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tailrace.wire.kafka.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

from .coordinator import BROKEN, LOADING, cast
from .stage import Stage, play, versions

# ---- JoinGroup

JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    member_id="m-1",
    group_instance_id="i-1",
    protocol_type="consumer",
    protocols=[
        JoinGroupRequestProtocol(name="range", metadata=b"r"),
        JoinGroupRequestProtocol(name="sticky", metadata=b"s"),
    ],
)
JOINED = JoinResult(
    generation_id=3,
    protocol_type="consumer",
    protocol_name="range",
    leader="m-1",
    member_id="m-1",
    members=[JoinedMember("m-1", "i-1", b"r"), JoinedMember("m-2", None, b"q")],
)


@pytest.mark.parametrize("version", versions(11))
def test_a_join_reaches_the_coordinator_as_the_version_says_it(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, JOINED)
        await stage.ask(JOIN, JoinGroupResponse, version=version)
        assert groups.asked == [
            JoinRequest(
                group_id="g",
                member_id="m-1",
                group_instance_id="i-1" if version >= 5 else None,
                client_id="tests",
                client_host="/203.0.113.7",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000 if version >= 1 else -1,
                protocol_type="consumer",
                protocols=[("range", b"r"), ("sticky", b"s")],
                requires_member_id=version >= 4,
                can_skip_assignment=version >= 9,
            )
        ]

    play(scenario)


@pytest.mark.parametrize("version", versions(11))
def test_the_generation_is_told_to_who_joined(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, JOINED)
        response = await stage.ask(JOIN, JoinGroupResponse, version=version)
        assert (response.error_code, response.generation_id) == (0, 3)
        assert (response.protocol_name, response.leader, response.member_id) == ("range", "m-1", "m-1")
        assert [(member.member_id, member.metadata) for member in response.members] == [
            ("m-1", b"r"),
            ("m-2", b"q"),
        ]
        assert response.protocol_type == ("consumer" if version >= 7 else None)
        assert response.members[0].group_instance_id == ("i-1" if version >= 5 else None)

    play(scenario)


@pytest.mark.parametrize("version", [4, 5, 6, 7])
def test_a_new_member_is_told_its_id(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id="m-new"))
        response = await stage.ask(JOIN, JoinGroupResponse, version=version)
        assert (response.error_code, response.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "m-new")

    play(scenario)


@pytest.mark.parametrize("version", versions(11))
@pytest.mark.parametrize(("error", "code"), [(LOADING, 14), (BROKEN, 56)])
def test_a_refused_join_is_told_with_the_members_own_id(version: int, error: Exception, code: int) -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, error)
        response = await stage.ask(JOIN, JoinGroupResponse, version=version)
        assert (response.error_code, response.member_id, response.generation_id) == (code, "m-1", -1)
        assert response.members == []
        assert response.protocol_name == (None if version >= 7 else "")

    play(scenario)


# ---- SyncGroup

SYNC = SyncGroupRequest(
    group_id="g",
    generation_id=3,
    member_id="m-1",
    group_instance_id="i-1",
    protocol_type="consumer",
    protocol_name="range",
    assignments=[
        SyncGroupRequestAssignment(member_id="m-1", assignment=b"a"),
        SyncGroupRequestAssignment(member_id="m-2", assignment=b"b"),
    ],
)


@pytest.mark.parametrize("version", versions(14))
def test_a_sync_is_passed_on_and_answered(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, SyncResult(protocol_type="consumer", protocol_name="range", assignment=b"share"))
        response = await stage.ask(SYNC, SyncGroupResponse, version=version)
        assert groups.asked == [
            SyncRequest(
                group_id="g",
                generation_id=3,
                member_id="m-1",
                group_instance_id="i-1" if version >= 3 else None,
                protocol_type="consumer" if version >= 5 else None,
                protocol_name="range" if version >= 5 else None,
                assignments={"m-1": b"a", "m-2": b"b"},
            )
        ]
        assert (response.error_code, response.assignment) == (0, b"share")
        named = (response.protocol_type, response.protocol_name)
        assert named == (("consumer", "range") if version >= 5 else (None, None))

    play(scenario)


@pytest.mark.parametrize("version", versions(14))
def test_a_refused_sync_has_no_share(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, LOADING)
        response = await stage.ask(SYNC, SyncGroupResponse, version=version)
        assert (response.error_code, response.assignment) == (14, b"")

    play(scenario)


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [(None, "range"), ("consumer", None)])
def test_a_sync_of_version_5_names_its_protocol(protocol_type: str | None, protocol_name: str | None) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, LOADING)
        request = SyncGroupRequest(group_id="g", protocol_type=protocol_type, protocol_name=protocol_name)
        response = await stage.ask(request, SyncGroupResponse, version=5)
        assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert groups.asked == []

    play(scenario)


# ---- Heartbeat


@pytest.mark.parametrize("version", versions(12))
@pytest.mark.parametrize(
    ("answer", "code"),
    [(None, 0), (BrokerError("rebalance", code=ErrorCode.REBALANCE_IN_PROGRESS), 27), (LOADING, 14)],
)
def test_a_heartbeat_is_passed_on_and_answered(version: int, answer: object, code: int) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, answer)
        request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id="i")
        response = await stage.ask(request, HeartbeatResponse, version=version)
        assert groups.asked == [("g", 3, "m", "i" if version >= 3 else None)]
        assert response.error_code == code

    play(scenario)


# ---- LeaveGroup


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID])
def test_one_member_leaves_with_one_answer(version: int, code: ErrorCode) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, [LeaveResult("m", None, code)])
        request = LeaveGroupRequest(group_id="g", member_id="m")
        response = await stage.ask(request, LeaveGroupResponse, version=version)
        assert groups.asked == [("g", [LeavingMember("m", None)])]
        assert response.error_code == code

    play(scenario)


@pytest.mark.parametrize("version", [3, 4])
def test_several_members_leave_with_an_answer_each(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(
            stage,
            [
                LeaveResult("m", None, ErrorCode.NONE),
                LeaveResult("", "i", ErrorCode.UNKNOWN_MEMBER_ID),
            ],
        )
        request = LeaveGroupRequest(
            group_id="g", members=[MemberIdentity(member_id="m"), MemberIdentity(group_instance_id="i")]
        )
        response = await stage.ask(request, LeaveGroupResponse, version=version)
        assert groups.asked == [("g", [LeavingMember("m", None), LeavingMember("", "i")])]
        assert response.error_code == 0
        assert [(each.member_id, each.group_instance_id, each.error_code) for each in response.members] == [
            ("m", None, 0),
            ("", "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ]

    play(scenario)


@pytest.mark.parametrize("version", versions(13))
def test_an_error_of_the_whole_group_is_the_answers(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, LOADING)
        request = LeaveGroupRequest(group_id="g", member_id="" if version >= 3 else "m")
        response = await stage.ask(request, LeaveGroupResponse, version=version)
        assert (response.error_code, response.members) == (14, [])

    play(scenario)
