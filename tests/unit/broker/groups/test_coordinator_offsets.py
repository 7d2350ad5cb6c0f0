"""Committed offsets through the coordinator: durability, batching, bounds, expiry, removal, listing."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.groups.conftest import SESSION_MS, subscription
from tests.unit.broker.groups.coordinating import T0, T1, U0, Scene, code_of, play, settle, start

from tailrace.broker.groups import NOT_COMMITTED, CommittedOffset, GroupConfig, LeavingMember, OffsetToCommit
from tailrace.broker.groups.offsets import GroupKey, OffsetKey
from tailrace.model import BrokerError, ErrorCode, TopicPartition

DAY_MS = 24 * 3600 * 1000


def test_a_committed_offset_is_fetched_with_its_metadata() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        wanted = {T0: OffsetToCommit(7, 3, "from ünïcode"), T1: OffsetToCommit(8)}
        assert await scene.commit(wanted, member=member) == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
        found = scene.groups.fetch_offsets("g", [T0, T1, U0])
        assert found == {
            T0: CommittedOffset(7, 3, "from ünïcode"),
            T1: CommittedOffset(8, -1, ""),
            U0: NOT_COMMITTED,
        }
        assert set(scene.groups.fetch_offsets("g", None)) == {T0, T1}

    play(scenario)


def test_an_unknown_group_has_no_offsets_and_that_is_no_error() -> None:
    async def scenario(scene: Scene) -> None:
        assert scene.groups.fetch_offsets("nobody", [T0]) == {T0: NOT_COMMITTED}
        assert scene.groups.fetch_offsets("nobody", None) == {}

    play(scenario)


def test_offsets_are_there_after_a_restart() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        await scene.commit({T0: OffsetToCommit(7, 3, "note")}, member=member)
        await scene.commit({T0: 1, U0: 2}, group="simple")
        await scene.restart()
        assert scene.groups.fetch_offsets("g", None) == {T0: CommittedOffset(7, 3, "note")}
        assert scene.fetched(T0, U0, group="simple") == [1, 2]
        assert sorted(scene.groups.list_groups()) == [("g", "consumer", "Stable"), ("simple", "", "Empty")]

    play(scenario)


def test_a_commit_is_answered_and_seen_when_it_is_durable() -> None:
    async def scenario(scene: Scene) -> None:
        scene.log.hold_appends()
        committing = start(scene.commit({T0: 7}))
        await settle()
        assert not committing.done()
        assert scene.fetched(T0) == [-1]
        scene.log.release_appends()
        assert await committing == {T0: ErrorCode.NONE}
        assert scene.fetched(T0) == [7]

    play(scenario)


def test_a_commit_that_the_log_refuses_is_not_seen() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        scene.log.append_error = BrokerError("gone", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await scene.commit({T0: 2}) == {T0: ErrorCode.NOT_COORDINATOR}
        assert scene.fetched(T0) == [1]

    play(scenario)


def test_a_commit_does_not_wait_for_ever_and_is_seen_if_it_arrives_late() -> None:
    async def scenario(scene: Scene) -> None:
        scene.log.hold_appends()
        assert await scene.commit({T0: 7}) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert scene.fetched(T0) == [-1]
        scene.log.release_appends()
        await settle()
        assert scene.fetched(T0) == [7]

    play(scenario, lambda: Scene(GroupConfig(commit_timeout_ms=20)))


def test_a_client_that_goes_away_does_not_take_its_commit_back() -> None:
    async def scenario(scene: Scene) -> None:
        scene.log.hold_appends()
        committing = start(scene.commit({T0: 7}))
        await scene.log.appending.wait()
        committing.cancel()
        await settle()
        scene.log.release_appends()
        await settle()
        assert scene.fetched(T0) == [7]

    play(scenario)


def test_commits_that_come_together_share_an_append() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 0})
        before = scene.log.appends
        scene.log.hold_appends()
        commits = [start(scene.commit({T0: 1}))]
        await scene.log.appending.wait()
        commits += [start(scene.commit({TopicPartition("t", index): index})) for index in range(50)]
        await settle()
        scene.log.release_appends()
        await asyncio.gather(*commits)
        assert scene.log.appends - before == 2  # the first, and the rest while it was on its way

    play(scenario)


def test_the_newest_of_two_commits_on_their_way_wins() -> None:
    async def scenario(scene: Scene) -> None:
        scene.log.hold_appends()
        commits = [start(scene.commit({T0: offset})) for offset in (1, 2, 3)]
        await settle()
        scene.log.release_appends()
        await asyncio.gather(*commits)
        assert scene.fetched(T0) == [3]
        await scene.restart()
        assert scene.fetched(T0) == [3]

    play(scenario)


def test_metadata_that_is_too_long_costs_its_own_partition_only() -> None:
    async def scenario(scene: Scene) -> None:
        fits, too_long = OffsetToCommit(1, metadata="ü" * 2048), OffsetToCommit(1, metadata="ü" * 2048 + "x")
        assert await scene.commit({T0: fits, T1: too_long}) == {
            T0: ErrorCode.NONE,
            T1: ErrorCode.OFFSET_METADATA_TOO_LARGE,
        }
        assert set(scene.groups.fetch_offsets("g", None)) == {T0}

    play(scenario)


def test_a_group_keeps_only_so_many_positions() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1, T1: 1})
        assert await scene.commit({T0: 2, U0: 1}) == {
            T0: ErrorCode.NONE,
            U0: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        }

    play(scenario, lambda: Scene(GroupConfig(offsets_max=2)))


def test_one_commit_cannot_go_over_the_bound_either() -> None:
    async def scenario(scene: Scene) -> None:
        answers = await scene.commit({TopicPartition("t", index): 1 for index in range(10)})
        assert list(answers.values()).count(ErrorCode.NONE) == 2

    play(scenario, lambda: Scene(GroupConfig(offsets_max=2)))


def test_who_may_not_commit_is_told_for_every_partition() -> None:
    async def scenario(scene: Scene) -> None:
        unknown = await scene.commit({T0: 1, T1: 1}, generation_id=3, member_id="m")
        assert unknown == {T0: ErrorCode.ILLEGAL_GENERATION, T1: ErrorCode.ILLEGAL_GENERATION}
        assert scene.groups.list_groups() == []
        await scene.stable()
        assert await scene.commit({T0: 1}) == {T0: ErrorCode.UNKNOWN_MEMBER_ID}

    play(scenario)


def test_a_group_without_a_name_may_keep_offsets() -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.commit({T0: 4}, group="") == {T0: ErrorCode.NONE}
        assert scene.fetched(T0, group="") == [4]

    play(scenario)


def test_nothing_to_commit_is_nothing_to_do() -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.commit({}) == {}

    play(scenario)


# Expiry


def test_offsets_expire_a_week_after_the_last_member_left() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        await scene.commit({T0: 7}, member=member)
        for _ in range(3):
            scene.clock.advance(SESSION_MS - 1)
            scene.groups.tick()
            scene.beat(member)
        await scene.groups.leave("g", [LeavingMember(member.member_id)])
        await scene.advance(7 * DAY_MS - 1)
        assert scene.fetched(T0) == [7]
        await scene.advance(600_000)
        assert scene.fetched(T0) == [-1]
        assert scene.groups.list_groups() == []
        assert set(scene.log.newest().values()) == {None}

    play(scenario)


def test_offsets_of_a_group_with_members_never_expire() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable(session_timeout_ms=1_800_000)
        await scene.commit({T0: 7}, member=member)
        for _ in range(12 * 24 * 8):
            scene.clock.advance(300_000)
            scene.beat(member)
            scene.groups.tick()
        await settle()
        assert scene.fetched(T0) == [7]

    play(scenario)


def test_offsets_of_a_simple_group_expire_one_by_one() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        await scene.advance(3 * DAY_MS)
        await scene.commit({T1: 1})
        await scene.restart()
        await scene.advance(4 * DAY_MS + 600_000)
        assert scene.fetched(T0, T1) == [-1, 1]
        await scene.restart()
        assert scene.fetched(T0, T1) == [-1, 1]

    play(scenario)


def test_a_client_may_say_how_long_its_offset_is_kept() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1}, retention_ms=3_600_000)
        await scene.restart()
        await scene.advance(3_600_000 + 600_000)
        assert scene.fetched(T0) == [-1]

    play(scenario)


def test_a_commit_is_never_taken_and_then_removed_with_its_group() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        scene.clock.advance(8 * DAY_MS)
        scene.groups.tick()
        assert await scene.commit({T0: 2}) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}  # a client asks again
        await settle()
        assert await scene.commit({T0: 2}) == {T0: ErrorCode.NONE}
        await settle()
        assert scene.fetched(T0) == [2]

    play(scenario)


def test_a_commit_that_comes_as_the_old_position_expires_is_kept() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        await scene.advance(5 * DAY_MS)
        await scene.commit({T1: 1})
        scene.clock.advance(3 * DAY_MS)
        scene.groups.tick()
        assert await scene.commit({T0: 2}) == {T0: ErrorCode.NONE}
        await settle()
        assert scene.fetched(T0, T1) == [2, 1]
        await scene.restart()
        assert scene.fetched(T0, T1) == [2, 1]

    play(scenario)


def test_a_commit_that_is_refused_leaves_no_group_behind() -> None:
    async def scenario(scene: Scene) -> None:
        refused = await scene.commit({T0: OffsetToCommit(1, metadata="x" * 5000)})
        assert refused == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert scene.groups.list_groups() == []

    play(scenario)


def test_a_start_forgets_positions_in_topics_that_are_gone() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1, U0: 2})
        await scene.commit({T0: 3}, group="h")
        await scene.restart(topics={"u"})
        assert scene.fetched(T0, U0) == [-1, 2]
        assert [group.group_id for group in scene.groups.list_groups()] == ["g"]
        await settle()
        await scene.restart()  # not told of topics: what is gone is gone from the log
        assert scene.fetched(T0, U0) == [-1, 2] and scene.fetched(T0, group="h") == [-1]

    play(scenario)


def test_a_removal_that_fails_is_tried_again() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        scene.log.append_error = BrokerError("full", code=ErrorCode.KAFKA_STORAGE_ERROR)
        await scene.advance(8 * DAY_MS)
        assert scene.fetched(T0) == [1]
        scene.log.append_error = None
        await scene.advance(600_000)
        assert scene.fetched(T0) == [-1]

    play(scenario)


# Removing


def test_an_empty_group_can_be_deleted_with_all_it_kept() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1, U0: 1})
        assert await scene.groups.delete(["g", "nobody"]) == {
            "g": ErrorCode.NONE,
            "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert scene.fetched(T0) == [-1]
        newest = scene.log.newest()
        assert newest[OffsetKey("g", T0)] is newest[OffsetKey("g", U0)] is newest[GroupKey("g")] is None
        await scene.restart()
        assert scene.groups.list_groups() == []

    play(scenario)


def test_a_group_that_had_members_stays_deleted_after_a_restart() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        await scene.groups.leave("g", [LeavingMember(member.member_id)])
        assert await scene.groups.delete(["g"]) == {"g": ErrorCode.NONE}
        await scene.restart()
        assert scene.groups.list_groups() == []

    play(scenario)


def test_a_group_with_members_cannot_be_deleted() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.stable()
        assert await scene.groups.delete(["g"]) == {"g": ErrorCode.NON_EMPTY_GROUP}

    play(scenario)


def test_a_commit_on_its_way_is_deleted_too() -> None:
    async def scenario(scene: Scene) -> None:
        scene.log.hold_appends()
        committing = start(scene.commit({T0: 1}))
        await settle()
        deleting = start(scene.groups.delete(["g"]))
        await settle()
        assert await code_of(scene.joining()) is ErrorCode.COORDINATOR_NOT_AVAILABLE  # while it goes
        scene.log.release_appends()
        await committing
        assert await deleting == {"g": ErrorCode.NONE}
        await scene.restart()
        assert scene.fetched(T0) == [-1]

    play(scenario)


def test_a_group_that_could_not_be_deleted_is_still_there() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        scene.log.append_error = BrokerError("full", code=ErrorCode.KAFKA_STORAGE_ERROR)
        assert await scene.groups.delete(["g"]) == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        scene.log.append_error = None
        assert scene.fetched(T0) == [1]
        assert (await scene.joining()).generation_id == 1

    play(scenario)


def test_offsets_of_topics_that_members_read_cannot_be_deleted() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable(protocols=[("range", subscription("t"))])
        await scene.commit({T0: 1, U0: 1}, member=member)
        assert await scene.groups.delete_offsets("g", [T0, U0]) == {
            T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            U0: ErrorCode.NONE,
        }
        assert scene.fetched(T0, U0) == [1, -1]

    play(scenario)


def test_all_offsets_of_an_empty_group_can_be_deleted() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1, T1: 1})
        answers = await scene.groups.delete_offsets("g", [T0, U0])
        assert answers == {T0: ErrorCode.NONE, U0: ErrorCode.NONE}
        await scene.restart()
        assert scene.fetched(T0, T1) == [-1, 1]

    play(scenario)


def test_whose_offsets_cannot_be_deleted() -> None:
    async def scenario(scene: Scene) -> None:
        assert await code_of(scene.groups.delete_offsets("nobody", [T0])) is ErrorCode.GROUP_ID_NOT_FOUND
        assert await code_of(scene.groups.delete_offsets("", [T0])) is ErrorCode.INVALID_GROUP_ID
        await scene.stable(protocol_type="connect")
        assert await code_of(scene.groups.delete_offsets("g", [T0])) is ErrorCode.NON_EMPTY_GROUP

    play(scenario)


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        await scene.commit({T0: 1, T1: 1, U0: 1}, member=member)
        await scene.commit({T0: 1}, group="other")
        await scene.groups.topic_deleted("t")
        assert scene.fetched(T0, T1, U0) == [-1, -1, 1]
        assert scene.fetched(T0, group="other") == [-1]
        await scene.restart()
        assert scene.fetched(T0, T1, U0) == [-1, -1, 1]

    play(scenario)


def test_a_topic_deleted_while_offsets_load_takes_them_along_as_well() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        scene.log.hold_reads()
        await scene.restart(wait=False)
        deleting = start(scene.groups.topic_deleted("t"))
        await settle()
        scene.log.release_reads()
        await deleting
        assert scene.fetched(T0) == [-1]

    play(scenario)


def test_offsets_of_a_deleted_topic_that_stay_are_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        scene.log.append_error = BrokerError("full", code=ErrorCode.KAFKA_STORAGE_ERROR)
        await scene.groups.topic_deleted("t")

    play(scenario)
    assert [record for record in caplog.records if "deleted topic" in record.message]


# Listing


@pytest.mark.parametrize(
    ("states", "names"),
    [
        ((), {"stable", "empty", "joining"}),
        (("Stable",), {"stable"}),
        (("stable", "EMPTY"), {"stable", "empty"}),
        (("CompletingRebalance",), {"joining"}),
        (("Dead",), set()),
        (("nonsense",), set()),
    ],
)
def test_groups_are_listed_by_state(states: tuple[str, ...], names: set[str]) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.stable(group="stable")
        await scene.commit({T0: 1}, group="empty")
        await scene.joining(group="joining")
        assert {listed.group_id for listed in scene.groups.list_groups(states=states)} == names

    play(scenario)
