"""Members and the coordinator around them: parked requests, time, bounds, restarts, leadership."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.broker.groups.conftest import REBALANCE_MS, SESSION_MS
from tests.unit.broker.groups.coordinating import T0, Scene, code_of, play, settle, start
from tests.unit.broker.groups.offsets_log import MemoryOffsetsLog

from tailrace.broker.groups import GroupConfig, LeavingMember, partition_for
from tailrace.broker.groups.offsets import GroupKey, read_group
from tailrace.model import BrokerError, ErrorCode, StorageError


def test_two_members_share_a_group() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.stable()
        newcomer = start(scene.joining())
        await settle()
        assert not newcomer.done()
        assert scene.beat(first) is ErrorCode.REBALANCE_IN_PROGRESS
        again = await scene.joining(first.member_id)
        second = await newcomer
        assert again.generation_id == second.generation_id == 2
        waiting = start(scene.syncing(second.member_id, 2))
        await settle()
        assert not waiting.done()
        own = await scene.syncing(first.member_id, 2, {first.member_id: b"0", second.member_id: b"1"})
        assert (own.assignment, (await waiting).assignment) == (b"0", b"1")
        assert scene.beat(again) is scene.beat(second) is ErrorCode.NONE

    play(scenario)


def test_a_member_id_begins_with_the_name_of_its_client() -> None:
    async def scenario(scene: Scene) -> None:
        asked = await scene.joining(client_id="billing", requires_member_id=True)
        assert (asked.error, asked.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "billing-1")
        static = await scene.joining(group="h", group_instance_id="rack-7")
        assert static.member_id == "rack-7-2"
        long = await scene.joining(group="i", client_id="x" * 30_000)
        assert len(long.member_id) < 300

    play(scenario)


def test_a_silent_member_is_removed_by_the_coordinators_own_timer() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        await scene.advance(SESSION_MS - 1)
        assert scene.beat(member) is ErrorCode.NONE
        await scene.advance(SESSION_MS)
        assert scene.beat(member) is ErrorCode.UNKNOWN_MEMBER_ID
        assert scene.groups.describe("g").state == "Empty"

    play(scenario)


def test_the_timer_goes_off_by_itself() -> None:
    async def scenario(scene: Scene) -> None:
        waiting = start(scene.joining(group="slow"))
        await settle()
        scene.clock.advance(100)  # the loop's own timer, a few real milliseconds, finds the time has come
        assert (await waiting).generation_id == 1

    play(scenario, lambda: Scene(GroupConfig(initial_rebalance_delay_ms=20)))


def test_a_rebalance_ends_without_those_who_stay_away() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.stable(session_timeout_ms=600_000)
        newcomer = start(scene.joining())
        await settle()
        await scene.advance(REBALANCE_MS)
        assert (await newcomer).leader == (await newcomer).member_id
        assert scene.beat(first) is ErrorCode.UNKNOWN_MEMBER_ID

    play(scenario)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "x" * 40_000}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [("range", bytes(2 << 20))]}, ErrorCode.INVALID_REQUEST),
        ({"protocols": [(str(i), b"") for i in range(101)]}, ErrorCode.INVALID_REQUEST),
        ({"group_instance_id": "x" * 40_000}, ErrorCode.INVALID_REQUEST),
        ({"group_instance_id": ""}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_join_that_cannot_be_is_refused_and_leaves_no_group(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    async def scenario(scene: Scene) -> None:
        assert await code_of(scene.joining(**fields)) is code
        assert scene.groups.list_groups() == []

    play(scenario)


def test_requests_to_a_group_that_nobody_knows() -> None:
    async def scenario(scene: Scene) -> None:
        assert await code_of(scene.syncing("m", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
        with pytest.raises(BrokerError) as refused:
            scene.groups.heartbeat("g", generation_id=1, member_id="m")
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        [left] = await scene.groups.leave("g", [LeavingMember("m", "i")])
        assert left == ("m", "i", ErrorCode.UNKNOWN_MEMBER_ID)
        assert scene.groups.describe("g").state == "Dead"

    play(scenario)


@pytest.mark.parametrize("call", ["sync", "heartbeat", "leave", "find_partition"])
def test_members_need_a_group_with_a_name(call: str) -> None:
    async def scenario(scene: Scene) -> None:
        async def ask() -> None:
            if call == "sync":
                await scene.syncing("m", 1, group="")
            elif call == "heartbeat":
                scene.groups.heartbeat("", generation_id=1, member_id="m")
            elif call == "leave":
                await scene.groups.leave("", [LeavingMember("m")])
            else:
                await scene.groups.find_partition("")

        assert await code_of(ask()) is ErrorCode.INVALID_GROUP_ID

    play(scenario)


def test_an_assignment_that_is_too_large_is_refused() -> None:
    async def scenario(scene: Scene) -> None:
        joined = await scene.joining()
        work = scene.syncing(joined.member_id, 1, {joined.member_id: bytes(2 << 20)})
        assert await code_of(work) is ErrorCode.INVALID_REQUEST

    play(scenario)


def test_groups_have_a_bound() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.joining(group="a")
        await scene.joining(group="b")
        assert await code_of(scene.joining(group="c")) is ErrorCode.POLICY_VIOLATION
        assert set((await scene.commit({T0: 1}, group="c")).values()) == {ErrorCode.POLICY_VIOLATION}

    play(scenario, lambda: Scene(GroupConfig(groups_max=2)))


def test_requests_that_wait_have_a_bound() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.stable()
        waiting = start(scene.joining())
        await settle()
        assert await code_of(scene.joining()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        waiting.cancel()
        await settle()
        again = start(scene.joining())  # whoever went away makes room
        await settle()
        assert not again.done()
        again.cancel()

    play(scenario, lambda: Scene(GroupConfig(parked_max=1)))


def test_a_client_that_goes_away_while_it_waits_disturbs_nobody() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.stable()
        gone = start(scene.joining())
        await settle()
        gone.cancel()
        await settle()
        again = await scene.joining(first.member_id)
        assert len(again.members) == 2  # it is thought alive until its session ends
        await scene.advance(SESSION_MS)
        assert scene.failures == []

    play(scenario)


def test_an_id_that_is_never_used_leaves_no_group_behind() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.joining(requires_member_id=True)
        assert [listed.state for listed in scene.groups.list_groups()] == ["Empty"]
        await scene.advance(SESSION_MS)
        assert scene.groups.list_groups() == []

    play(scenario)


def test_an_id_that_is_given_back_leaves_no_group_behind() -> None:
    async def scenario(scene: Scene) -> None:
        asked = await scene.joining(requires_member_id=True)
        await scene.groups.leave("g", [LeavingMember(asked.member_id)])
        assert scene.groups.list_groups() == []

    play(scenario)


# Durability of a group


def test_a_share_is_answered_when_it_is_durable() -> None:
    async def scenario(scene: Scene) -> None:
        joined = await scene.joining()
        scene.log.hold_appends()
        syncing = start(scene.syncing(joined.member_id, 1, {joined.member_id: b"all"}))
        await settle()
        assert not syncing.done()
        scene.log.release_appends()
        assert (await syncing).assignment == b"all"
        [value] = [scene.log.newest()[key] for key in scene.log.newest() if isinstance(key, GroupKey)]
        assert value is not None and read_group(value).members[0].assignment == b"all"

    play(scenario)


def test_a_share_that_the_log_refuses_fails_the_sync() -> None:
    async def scenario(scene: Scene) -> None:
        joined = await scene.joining()
        scene.log.append_error = BrokerError("full", code=ErrorCode.KAFKA_STORAGE_ERROR)
        work = scene.syncing(joined.member_id, 1, {joined.member_id: b"all"})
        assert await code_of(work) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        scene.log.append_error = None
        again = await scene.joining(joined.member_id)
        assert again.generation_id == 2

    play(scenario)


def test_a_group_too_large_for_the_log_is_the_servers_trouble() -> None:
    async def scenario(scene: Scene) -> None:
        joined = await scene.joining()
        scene.log.append_error = BrokerError("large", code=ErrorCode.MESSAGE_TOO_LARGE)
        work = scene.syncing(joined.member_id, 1, {joined.member_id: b"all"})
        assert await code_of(work) is ErrorCode.UNKNOWN_SERVER_ERROR

    play(scenario)


def test_members_go_on_after_a_restart_without_a_rebalance() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        static = await scene.stable(group="h", group_instance_id="i")
        await scene.restart()
        assert scene.beat(member) is ErrorCode.NONE
        assert scene.beat(static, group="h", group_instance_id="i") is ErrorCode.NONE
        assert (await scene.syncing(member.member_id, 1)).assignment == b"all"
        described = scene.groups.describe("g")
        assert (described.state, described.protocol_name) == ("Stable", "range")
        assert described.members[0].client_host == "/10.0.0.1"

    play(scenario)


def test_members_who_do_not_come_back_after_a_restart_are_removed() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.stable()
        await scene.restart()
        await scene.advance(SESSION_MS)
        assert scene.groups.describe("g").state == "Empty"

    play(scenario)


def test_an_empty_group_is_empty_after_a_restart() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        [left] = await scene.groups.leave("g", [LeavingMember(member.member_id)])
        assert left.error is ErrorCode.NONE
        await scene.restart()
        assert scene.groups.list_groups() == [("g", "consumer", "Empty")]
        rejoined = await scene.joining()
        assert rejoined.generation_id == 3  # it goes on counting

    play(scenario)


def test_that_the_last_member_left_is_durable_before_it_is_answered() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        scene.log.hold_appends()
        leaving = start(scene.groups.leave("g", [LeavingMember(member.member_id)]))
        await settle()
        assert not leaving.done()
        scene.log.release_appends()
        assert (await leaving)[0].error is ErrorCode.NONE

    play(scenario)


def test_a_rebalance_that_a_restart_interrupts_starts_over() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.stable()
        newcomer = start(scene.joining())
        await settle()
        await scene.restart()
        assert await code_of(newcomer) is ErrorCode.NOT_COORDINATOR
        assert scene.beat(first) is ErrorCode.NONE

    play(scenario)


# Loading and leading


def test_while_a_partition_is_read_its_groups_are_not_answered() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        await scene.commit({T0: 5}, member=member)
        scene.log.hold_reads()
        await scene.restart(wait=False)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert scene.beat(member) is loading
        assert await code_of(scene.joining()) is loading
        assert await code_of(scene.syncing(member.member_id, 1)) is loading
        assert await code_of(scene.groups.leave("g", [LeavingMember(member.member_id)])) is loading
        assert await scene.commit({T0: 6}, member=member) == {T0: loading}
        assert await scene.groups.delete(["g"]) == {"g": loading}
        for ask in (
            lambda: scene.fetched(T0),
            lambda: scene.groups.describe("g"),
            lambda: scene.groups.list_groups(),
        ):
            with pytest.raises(BrokerError) as refused:
                ask()
            assert refused.value.code is loading
        scene.log.release_reads()
        await scene.groups.wait_loaded()
        assert scene.beat(member) is ErrorCode.NONE
        assert scene.fetched(T0) == [5]

    play(scenario)


def test_partitions_without_anything_are_there_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.stable()
        scene.log.hold_reads()
        await scene.restart(wait=False)
        await settle()
        other = next(name for name in map(str, range(100)) if partition_for(name, 4) != partition_for("g", 4))
        assert (await scene.joining(group=other)).generation_id == 1

    play(scenario)


@pytest.mark.parametrize(
    "error",
    [
        BrokerError("damaged", code=ErrorCode.CORRUPT_MESSAGE),
        StorageError("read", "/d", "input/output error"),
    ],
)
def test_a_partition_that_cannot_be_read_is_never_taken_for_empty(error: Exception) -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        scene.log.read_error = error
        await scene.restart()
        assert scene.beat(member) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await scene.commit({T0: 1}) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        with pytest.raises(BrokerError):
            scene.fetched(T0)

    play(scenario)


def test_a_record_that_makes_no_sense_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        partition = partition_for("g", 4)
        scene.log.sequence(partition, [(0, b"\x00\x01rubbish", b"x", ()), (0, None, b"x", ())])
        scene.log.sequence(partition, [(0, b"\x00\x02\x00\x01h", b"\x00\x03rubbish", ())])
        scene.log.sequence(partition, [(0, b"\x00\x09later", b"x", ())])
        await scene.commit({T0: 5}, member=member)
        await scene.restart()
        assert scene.beat(member) is ErrorCode.NONE
        assert scene.fetched(T0) == [5]

    play(scenario)
    assert [record.message for record in caplog.records if "count=3" in record.message]


def test_a_group_of_another_node_is_not_answered() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        waiting = start(scene.joining())
        await settle()
        scene.log.led.discard(partition_for("g", 4))
        assert scene.beat(member) is ErrorCode.NOT_COORDINATOR
        assert await code_of(waiting) is ErrorCode.NOT_COORDINATOR
        assert await code_of(scene.joining()) is ErrorCode.NOT_COORDINATOR
        assert await scene.commit({T0: 1}) == {T0: ErrorCode.NOT_COORDINATOR}
        assert scene.groups.list_groups() == []

    play(scenario)


def test_a_partition_that_comes_back_is_read_again() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        partition = partition_for("g", 4)
        scene.log.led.discard(partition)
        scene.groups.resign(partition)
        scene.log.led.add(partition)
        assert scene.beat(member) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # asking starts it
        await scene.groups.wait_loaded()
        assert scene.beat(member) is ErrorCode.NONE

    play(scenario)


def test_a_partition_given_away_while_it_is_read_brings_no_groups() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.stable()
        scene.log.hold_reads()
        await scene.restart(wait=False)
        await settle()
        scene.log.led.discard(partition_for("g", 4))
        scene.groups.resign(partition_for("g", 4))
        scene.log.release_reads()
        await settle()
        assert scene.groups.list_groups() == []
        appends = scene.log.appends
        await scene.advance(SESSION_MS)
        assert scene.log.appends == appends  # nobody's session ends here, to be written down

    play(scenario)


# The topic itself


def absent() -> Scene:
    return Scene(log=MemoryOffsetsLog(exists=False))


def test_the_topic_is_made_when_the_first_member_comes() -> None:
    async def scenario(scene: Scene) -> None:
        assert scene.groups.list_groups() == []
        assert scene.groups.describe("g").state == "Dead"
        assert scene.fetched(T0) == [-1]
        assert await scene.groups.delete(["g"]) == {"g": ErrorCode.GROUP_ID_NOT_FOUND}
        assert scene.log.ensured == 0
        assert (await scene.joining()).generation_id == 1
        assert scene.log.ensured == 1

    play(scenario, absent)


def test_many_who_come_first_at_once_all_find_their_group() -> None:
    async def scenario(scene: Scene) -> None:
        results = await asyncio.gather(*(scene.joining(group=f"g{index}") for index in range(20)))
        assert {result.generation_id for result in results} == {1}
        assert len(scene.groups.list_groups()) == 20

    play(scenario, absent)


def test_the_partition_of_a_group_is_kafkas() -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.groups.find_partition("hello") == 99162322 % 4
        assert scene.log.ensured == 1

    play(scenario, absent)


def test_a_topic_that_cannot_be_made_is_no_coordinator() -> None:
    async def scenario(scene: Scene) -> None:
        scene.log.ensure_error = BrokerError("no", code=ErrorCode.INVALID_REPLICATION_FACTOR)
        assert await code_of(scene.joining()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await scene.commit({T0: 1}) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}

    play(scenario, absent)


# Closing


def test_whoever_waits_when_the_node_closes_is_told() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        waiting = start(scene.joining())
        await settle()
        await scene.groups.close()
        assert await code_of(waiting) is ErrorCode.NOT_COORDINATOR
        assert scene.beat(member) is ErrorCode.NOT_COORDINATOR
        assert await code_of(scene.joining()) is ErrorCode.NOT_COORDINATOR
        await scene.groups.close()  # twice is harmless

    play(scenario)


def test_closing_lets_commits_arrive() -> None:
    async def scenario(scene: Scene) -> None:
        scene.log.hold_appends()
        committing = start(scene.commit({T0: 5}))
        await scene.log.appending.wait()
        closing = start(scene.groups.close())
        await settle()
        assert not closing.done()
        scene.log.release_appends()
        await closing
        assert await committing == {T0: ErrorCode.NONE}

    play(scenario)


def test_closing_does_not_wait_for_a_log_that_never_answers() -> None:
    async def scenario(scene: Scene) -> None:
        scene.log.hold_appends()
        committing = start(scene.commit({T0: 5}))
        await scene.log.appending.wait()
        await scene.groups.close()
        assert set((await committing).values()) != {ErrorCode.NONE}

    play(scenario, lambda: Scene(GroupConfig(commit_timeout_ms=50)))
