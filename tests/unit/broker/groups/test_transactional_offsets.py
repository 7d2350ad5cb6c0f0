"""Offsets that transactions commit, through the coordinator: when they are seen, and what is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from tests.unit.broker.groups.conftest import SESSION_MS
from tests.unit.broker.groups.coordinating import T0, T1, U0, Scene, play, settle, start
from tests.unit.broker.groups.offsets_log import MemoryOffsetsLog

from tailrace.broker.groups import (
    NOT_COMMITTED,
    UNSTABLE,
    CommitRequest,
    CommittedOffset,
    GroupConfig,
    JoinResult,
    LeavingMember,
    OffsetToCommit,
    partition_for,
)
from tailrace.broker.groups.handle import GroupHandle
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.model.session import INTERNAL
from tailrace.records import read_batch
from tailrace.security.audit import Audit

DAY_MS = 24 * 3600 * 1000
PRODUCER, OTHER = 4001, 4002


async def commit(
    scene: Scene,
    offsets: Mapping[TopicPartition, int | OffsetToCommit],
    *,
    group: str = "g",
    producer: int = PRODUCER,
    member: JoinResult | None = None,
    **fields: Any,
) -> dict[TopicPartition, ErrorCode]:
    """TxnOffsetCommit."""
    wanted: dict[str, Any] = {
        "group_id": group,
        "offsets": {
            partition: OffsetToCommit(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        },
    }
    if member is not None:
        wanted |= {"generation_id": member.generation_id, "member_id": member.member_id}
    request = CommitRequest(**(wanted | fields))
    return await scene.groups.commit_transactional(request, producer_id=producer, producer_epoch=3)


def end(scene: Scene, *, commits: bool, group: str = "g", producer: int = PRODUCER) -> None:
    """What EndTxn does in the partition of the group, in one turn."""
    partition = partition_for(group, scene.log.partitions)
    scene.log.mark(partition, producer, commit=commits)
    scene.groups.transaction_ended(partition, producer, commit=commits)


def stable(scene: Scene, *partitions: TopicPartition, group: str = "g") -> list[CommittedOffset]:
    found = scene.groups.fetch_offsets(group, partitions, require_stable=True)
    return [found[partition] for partition in partitions]


def test_offsets_are_seen_when_the_transaction_has_committed() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        wanted = {T0: OffsetToCommit(7, 3, "note"), T1: OffsetToCommit(8)}
        assert await commit(scene, wanted) == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
        assert scene.fetched(T0, T1, U0) == [1, -1, -1]
        assert stable(scene, T0, T1, U0) == [UNSTABLE, UNSTABLE, NOT_COMMITTED]
        end(scene, commits=True)
        await settle()
        assert scene.groups.fetch_offsets("g", None) == {
            T0: CommittedOffset(7, 3, "note"),
            T1: CommittedOffset(8),
        }
        assert stable(scene, T0)[0].offset == 7

    play(scenario)


def test_offsets_of_an_aborted_transaction_are_never_seen() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        await commit(scene, {T0: 7, T1: 8})
        end(scene, commits=False)
        await settle()
        assert stable(scene, T0, T1) == [CommittedOffset(1), NOT_COMMITTED]
        assert scene.fetched(T0, T1) == [1, -1]

    play(scenario)


def test_all_offsets_include_those_that_are_unstable() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({U0: 1})
        await commit(scene, {T0: 7})
        assert scene.groups.fetch_offsets("g", None) == {U0: CommittedOffset(1)}
        assert scene.groups.fetch_offsets("g", None, require_stable=True) == {
            U0: CommittedOffset(1),
            T0: UNSTABLE,
        }

    play(scenario)


def test_a_commit_is_one_transactional_batch_without_a_sequence() -> None:
    async def scenario(scene: Scene) -> None:
        await commit(scene, {T0: 7, T1: 8})
        (raw,) = scene.log.batches[partition_for("g", scene.log.partitions)]
        batch = read_batch(raw)
        assert batch.is_transactional and not batch.is_control
        assert (batch.count, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (
            2,
            PRODUCER,
            3,
            -1,
        )

    play(scenario)


def test_a_commit_is_sequenced_before_its_caller_waits_for_anything() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        before = scene.log.appends
        waiting = commit(scene, {T0: 7})
        waiting.send(None)  # up to the first wait, and no turn of the loop
        assert scene.log.appends == before + 1
        waiting.close()

    play(scenario)


def test_a_commit_comes_behind_what_was_to_be_appended_before_it() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1, T1: 1})
        removing = start(scene.groups.delete_offsets("g", [T0]))
        await asyncio.sleep(0)  # its tombstone waits for others to share a batch with
        assert scene.fetched(T0) == [1]
        assert await commit(scene, {T0: 7}) == {T0: ErrorCode.NONE}
        assert await removing == {T0: ErrorCode.NONE}
        end(scene, commits=True)
        await settle()
        assert scene.fetched(T0, T1) == [7, 1]
        await scene.restart()
        assert scene.fetched(T0, T1) == [7, 1]

    play(scenario)


def test_a_marker_that_is_not_durable_shows_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        await commit(scene, {T0: 7})
        scene.log.hold_appends()
        end(scene, commits=True)
        await settle()
        assert scene.fetched(T0) == [-1] and stable(scene, T0) == [UNSTABLE]
        scene.log.release_appends()
        assert scene.fetched(T0) == [7]

    play(scenario)


def test_the_next_transaction_of_a_producer_is_another_one() -> None:
    async def scenario(scene: Scene) -> None:
        await commit(scene, {T0: 7})
        scene.log.hold_appends()
        end(scene, commits=True)
        committing = start(commit(scene, {T0: 9, T1: 9}))
        await settle()
        scene.log.release_appends()
        assert await committing == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
        assert scene.fetched(T0, T1) == [7, -1] and stable(scene, T0, T1) == [UNSTABLE, UNSTABLE]
        end(scene, commits=False)
        await settle()
        assert stable(scene, T0, T1) == [CommittedOffset(7), NOT_COMMITTED]

    play(scenario)


def test_marking_twice_is_harmless() -> None:
    async def scenario(scene: Scene) -> None:
        await commit(scene, {T0: 7})
        end(scene, commits=True)
        end(scene, commits=False)
        end(scene, commits=True, producer=OTHER)
        await settle()
        assert stable(scene, T0) == [CommittedOffset(7)]

    play(scenario)


def test_the_record_that_is_last_in_the_log_counts() -> None:
    async def scenario(scene: Scene) -> None:
        await commit(scene, {T0: 7, T1: 7})
        await scene.commit({T0: 2})
        await commit(scene, {T1: 3}, producer=OTHER)
        end(scene, commits=True, producer=OTHER)
        end(scene, commits=True)
        await settle()
        assert scene.fetched(T0, T1) == [2, 3]
        await scene.restart()
        assert scene.fetched(T0, T1) == [2, 3]

    play(scenario)


@pytest.mark.parametrize("commits", [True, False])
def test_a_start_knows_what_was_decided_before_it(commits: bool) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        await commit(scene, {T0: 7, T1: 8})
        end(scene, commits=commits)
        await settle()
        await scene.restart()
        assert scene.fetched(T0, T1) == ([7, 8] if commits else [1, -1])
        assert UNSTABLE not in stable(scene, T0, T1)

    play(scenario)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_that_is_open_at_a_start_is_decided_later(commits: bool) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        await commit(scene, {T0: 7})
        await commit(scene, {U0: 5}, group="alone", producer=OTHER)
        await scene.restart()
        assert scene.fetched(T0) == [1] and stable(scene, T0) == [UNSTABLE]
        assert stable(scene, U0, group="alone") == [UNSTABLE]
        end(scene, commits=commits)
        end(scene, commits=commits, group="alone", producer=OTHER)
        await settle()
        assert scene.fetched(T0) == ([7] if commits else [1])
        assert scene.fetched(U0, group="alone") == ([5] if commits else [-1])
        assert ("alone" in {listed.group_id for listed in scene.groups.list_groups()}) is commits

    play(scenario)


def test_a_marker_that_comes_while_the_partition_is_read_is_not_lost() -> None:
    async def scenario(scene: Scene) -> None:
        await commit(scene, {T0: 7})
        scene.log.hold_reads()
        await scene.restart(wait=False)
        await settle()
        end(scene, commits=True)
        scene.log.release_reads()
        await scene.groups.wait_loaded()
        await settle()
        assert stable(scene, T0) == [CommittedOffset(7)]

    play(scenario)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"generation_id": 9}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_of_the_past_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        before = scene.log.appends
        assert await commit(scene, {T0: 7}, member=member, **fields) == {T0: code}
        assert scene.log.appends == before and stable(scene, T0) == [NOT_COMMITTED]
        assert await commit(scene, {T0: 7}, member=member) == {T0: ErrorCode.NONE}

    play(scenario)


def test_a_static_member_that_was_replaced_is_fenced() -> None:
    async def scenario(scene: Scene) -> None:
        old = await scene.stable(group_instance_id="i")
        await scene.joining(group_instance_id="i")
        refused = await commit(scene, {T0: 7}, member=old, group_instance_id="i")
        assert refused == {T0: ErrorCode.FENCED_INSTANCE_ID}

    play(scenario)


def test_a_generation_of_a_group_that_nobody_knows_is_refused() -> None:
    async def scenario(scene: Scene) -> None:
        answer = await commit(scene, {T0: 7}, generation_id=3, member_id="m")
        assert answer == {T0: ErrorCode.ILLEGAL_GENERATION}
        assert scene.groups.list_groups() == []

    play(scenario)


def test_a_producer_that_names_no_member_may_commit_for_a_group_with_members() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.stable()
        assert await commit(scene, {T0: 7}) == {T0: ErrorCode.NONE}

    play(scenario)


def test_a_member_may_commit_before_it_has_its_new_share() -> None:
    async def scenario(scene: Scene) -> None:
        joined = await scene.joining()
        assert await commit(scene, {T0: 7}, member=joined) == {T0: ErrorCode.NONE}
        assert await scene.commit({T0: 7}, member=joined) == {T0: ErrorCode.REBALANCE_IN_PROGRESS}

    play(scenario)


def test_the_handle_of_a_group_says_the_same() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        group = GroupHandle(scene.groups, "g", changing=partial(Audit(lambda: 0).changing, INTERNAL))
        who = (member.member_id, member.generation_id, None)
        answer = await group.commit_transactional(
            *who, {T0: OffsetToCommit(7)}, producer_id=PRODUCER, producer_epoch=3
        )
        assert answer == {T0: ErrorCode.NONE}
        assert group.fetch_offsets([T0], require_stable=True) == {T0: UNSTABLE}
        assert group.fetch_offsets([T0]) == {T0: NOT_COMMITTED}

    play(scenario)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_commit_that_the_log_refuses_leaves_nothing(code: ErrorCode, told: ErrorCode) -> None:
    async def scenario(scene: Scene) -> None:
        scene.log.append_error = BrokerError("no", code=code)
        assert await commit(scene, {T0: 7}) == {T0: told}
        assert stable(scene, T0) == [NOT_COMMITTED]
        assert scene.groups.list_groups() == []

    play(scenario)


def test_without_an_offsets_topic_a_commit_may_come_back_later() -> None:
    async def scenario(scene: Scene) -> None:
        assert await commit(scene, {T0: 7}) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert scene.log.ensured == 0

    play(scenario, lambda: Scene(log=MemoryOffsetsLog(exists=False)))


def test_a_commit_that_does_not_become_durable_in_time_is_answered() -> None:
    async def scenario(scene: Scene) -> None:
        scene.log.hold_appends()
        assert await commit(scene, {T0: 7}) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert stable(scene, T0) == [UNSTABLE]  # its record is in the log
        scene.log.release_appends()
        end(scene, commits=True)
        await settle()
        assert scene.fetched(T0) == [7]

    play(scenario, lambda: Scene(GroupConfig(commit_timeout_ms=20)))


def test_undecided_offsets_have_a_bound() -> None:
    async def scenario(scene: Scene) -> None:
        for producer in (1, 2):
            assert await commit(scene, {T0: 7}, producer=producer) == {T0: ErrorCode.NONE}
        assert await commit(scene, {T0: 7}, producer=3) == {T0: ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        end(scene, commits=False, producer=1)
        await settle()
        assert await commit(scene, {T0: 7}, producer=3) == {T0: ErrorCode.NONE}

    play(scenario, lambda: Scene(GroupConfig(offsets_max=2)))


def test_metadata_over_the_bound_is_refused_alone() -> None:
    async def scenario(scene: Scene) -> None:
        answer = await commit(scene, {T0: OffsetToCommit(7, metadata="x" * 5000), T1: 8})
        assert answer == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, T1: ErrorCode.NONE}
        assert stable(scene, T0, T1) == [NOT_COMMITTED, UNSTABLE]

    play(scenario)


def test_undecided_offsets_keep_a_group_from_expiring() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1, T1: 1})
        await commit(scene, {T0: 7})
        await scene.advance(30 * DAY_MS)
        assert scene.fetched(T0, T1) == [1, -1]  # the one that no transaction has touched is gone
        assert [listed.group_id for listed in scene.groups.list_groups()] == ["g"]
        end(scene, commits=False)
        await settle()
        await scene.advance(DAY_MS)
        assert scene.groups.list_groups() == []

    play(scenario)


def test_a_group_of_nothing_but_undecided_offsets_does_not_expire() -> None:
    async def scenario(scene: Scene) -> None:
        await commit(scene, {T0: 7})
        await scene.advance(30 * DAY_MS)
        end(scene, commits=True)
        await settle()
        assert scene.fetched(T0) == [7]

    play(scenario)


def test_offsets_that_are_deleted_are_deleted_for_the_transaction_too() -> None:
    async def scenario(scene: Scene) -> None:
        await commit(scene, {T0: 7, T1: 8})
        assert await scene.groups.delete_offsets("g", [T0, U0]) == {T0: ErrorCode.NONE, U0: ErrorCode.NONE}
        assert stable(scene, T0, T1) == [NOT_COMMITTED, UNSTABLE]
        end(scene, commits=True)
        await settle()
        assert scene.fetched(T0, T1) == [-1, 8]
        await scene.restart()
        assert scene.fetched(T0, T1) == [-1, 8]

    play(scenario)


def test_a_group_that_is_deleted_does_not_come_back_with_its_transaction() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit({T0: 1})
        await commit(scene, {T0: 7, T1: 8})
        assert await scene.groups.delete(["g"]) == {"g": ErrorCode.NONE}
        end(scene, commits=True)
        await settle()
        assert scene.fetched(T0, T1) == [-1, -1] and scene.groups.list_groups() == []
        await scene.restart()
        assert scene.fetched(T0, T1) == [-1, -1] and scene.groups.list_groups() == []

    play(scenario)


def test_offsets_of_a_deleted_topic_go_out_of_the_transaction() -> None:
    async def scenario(scene: Scene) -> None:
        await commit(scene, {T0: 7, U0: 8})
        await scene.groups.topic_deleted("t")
        end(scene, commits=True)
        await settle()
        assert scene.fetched(T0, U0) == [-1, 8]

    play(scenario)


def test_a_start_takes_the_offsets_of_deleted_topics_out_of_the_transaction() -> None:
    async def scenario(scene: Scene) -> None:
        await commit(scene, {T0: 7, U0: 8})
        await scene.restart(topics={"u"})
        assert stable(scene, T0, U0) == [NOT_COMMITTED, UNSTABLE]
        end(scene, commits=True)
        await settle()
        assert scene.fetched(T0, U0) == [-1, 8]
        await scene.restart()
        assert scene.fetched(T0, U0) == [-1, 8]

    play(scenario)


def test_a_group_lives_on_after_its_members_with_what_the_transaction_commits() -> None:
    async def scenario(scene: Scene) -> None:
        member = await scene.stable()
        await commit(scene, {T0: 7}, member=member)
        await scene.groups.leave("g", [LeavingMember(member.member_id)])
        await scene.advance(SESSION_MS)
        end(scene, commits=True)
        await settle()
        assert scene.fetched(T0) == [7]

    play(scenario)
