"""Sharing out, heartbeats, sessions, leaving and who may commit: scenarios played on the pure machine."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.groups.conftest import REBALANCE_MS, SESSION_MS, Stage, code_of, subscription

from tailrace.broker.groups.api import LeavingMember
from tailrace.broker.groups.effects import StoreReason
from tailrace.broker.groups.group import Group
from tailrace.broker.groups.stored import StoredGroup
from tailrace.model import BrokerError, ErrorCode


def two_joined(stage: Stage) -> tuple[str, str]:
    """Two members who have joined and not synced; the first leads."""
    [first] = stage.stable("a")
    newcomer = stage.join()
    stage.join(first)
    return first, stage.joined(newcomer).member_id


def test_a_follower_waits_for_the_leader_and_gets_its_share() -> None:
    stage = Stage()
    leader, follower = two_joined(stage)
    waiting = stage.sync(follower)
    assert stage.is_waiting(waiting)
    own = stage.sync(leader, {leader: b"p0", follower: b"p1"})
    assert (stage.share(own), stage.share(waiting)) == (b"p0", b"p1")
    assert stage.group.state == "Stable"


def test_a_sync_in_stable_is_answered_at_once() -> None:
    stage = Stage()
    leader, follower = two_joined(stage)
    stage.sync(leader, {follower: b"p1"})
    assert stage.share(stage.sync(follower)) == b"p1"


def test_whoever_the_leader_forgot_gets_an_empty_share_and_strangers_nothing() -> None:
    stage = Stage()
    leader, follower = two_joined(stage)
    waiting = stage.sync(follower)
    stage.sync(leader, {leader: b"p0", "stranger": b"p9"})
    assert stage.share(waiting) == b""
    assert "stranger" not in [member.member_id for member in stage.stores[-1].group.members]


def test_nobody_gets_a_share_before_it_is_durable() -> None:
    stage = Stage()
    leader, follower = two_joined(stage)
    stage.stores_at_once = False
    tokens = [stage.sync(leader, {leader: b"p0", follower: b"p1"}), stage.sync(follower)]
    assert all(map(stage.is_waiting, tokens))
    assert stage.group.state == "CompletingRebalance"
    store = stage.stores[-1]
    assert store.reason is StoreReason.ASSIGNED
    assert [member.assignment for member in store.group.members] == [b"p0", b"p1"]
    stage.finish(store)
    assert [stage.share(token) for token in tokens] == [b"p0", b"p1"]


def test_a_share_that_cannot_be_stored_fails_the_syncs_and_starts_over() -> None:
    stage = Stage()
    leader, follower = two_joined(stage)
    stage.stores_at_once = False
    tokens = [stage.sync(follower), stage.sync(leader, {leader: b"p0"})]
    stage.finish(stage.stores[-1], ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert {stage.error(token) for token in tokens} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert stage.group.state == "PreparingRebalance"


def test_a_store_that_ends_after_the_next_rebalance_began_changes_nothing() -> None:
    stage = Stage()
    leader, _ = two_joined(stage)
    stage.stores_at_once = False
    token = stage.sync(leader, {leader: b"p0"})
    stage.join()
    assert stage.error(token) is ErrorCode.REBALANCE_IN_PROGRESS
    stage.finish(stage.stores[-1])
    assert stage.group.state == "PreparingRebalance"


def test_a_second_sync_of_the_leader_does_not_store_twice() -> None:
    stage = Stage()
    leader, _ = two_joined(stage)
    stage.stores_at_once = False
    before = len(stage.stores)
    old = stage.sync(leader, {leader: b"p0"})
    new = stage.sync(leader, {leader: b"other"})
    assert stage.error(old) is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(stage.stores) == before + 1
    stage.finish(stage.stores[-1])
    assert stage.share(new) == b"p0"


def test_a_newcomer_sends_those_who_wait_for_shares_to_join_again() -> None:
    stage = Stage()
    _, follower = two_joined(stage)
    waiting = stage.sync(follower)
    stage.join()
    assert stage.error(waiting) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(asked: dict[str, Any], code: ErrorCode) -> None:
    stage = Stage()
    [member] = stage.stable("a")
    with pytest.raises(BrokerError) as refused:
        stage.sync(**{"member_id": member, **asked})
    assert code_of(refused) is code


def test_a_sync_that_names_the_right_protocol_is_answered() -> None:
    stage = Stage()
    [member] = stage.stable("a")
    token = stage.sync(member, protocol_type="consumer", protocol_name="range")
    assert stage.share(token) == b"a"


def test_a_sync_while_the_group_prepares_is_refused() -> None:
    stage = Stage()
    [member] = stage.stable("a")
    stage.join()
    with pytest.raises(BrokerError) as refused:
        stage.sync(member)
    assert code_of(refused) is ErrorCode.REBALANCE_IN_PROGRESS


def test_whoever_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    stage = Stage()
    leader, follower = two_joined(stage)
    stage.sync(leader, {leader: b"p0", follower: b"p1"})
    for _ in range(REBALANCE_MS // (SESSION_MS // 2)):
        stage.advance(SESSION_MS // 2)
        stage.heartbeat(leader), stage.heartbeat(follower)
    assert stage.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_log_that_never_answers_does_not_keep_the_syncs_waiting_for_ever() -> None:
    stage = Stage()
    [first] = stage.stable("a")
    stage.join(first)
    stage.stores_at_once = False
    token = stage.sync(first, {first: b"p0"})
    stage.advance(REBALANCE_MS)
    assert stage.error(token) is ErrorCode.REBALANCE_IN_PROGRESS


# Heartbeats and sessions


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_a_heartbeat_in_stable_is_answered(asked: dict[str, Any], code: ErrorCode) -> None:
    stage = Stage()
    [member] = stage.stable("a")
    assert stage.heartbeat(**{"member_id": member, **asked}) is code


def test_a_heartbeat_between_join_and_sync_is_fine() -> None:
    stage = Stage()
    stage.join()
    assert stage.heartbeat("m1") is ErrorCode.NONE


def test_heartbeats_keep_a_session_alive() -> None:
    stage = Stage()
    [member] = stage.stable("a")
    for _ in range(5):
        stage.advance(SESSION_MS - 1)
        assert stage.heartbeat(member) is ErrorCode.NONE


def test_a_silent_member_is_removed_and_the_others_rebalance() -> None:
    stage = Stage()
    first, second = stage.stable("a", "b")
    stage.advance(SESSION_MS - 1)
    stage.heartbeat(second)
    stage.advance(1)
    assert stage.heartbeat(first) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.heartbeat(second) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.joined(stage.join(second)).leader == second


def test_a_group_whose_members_are_all_silent_becomes_empty_and_that_is_stored() -> None:
    stage = Stage()
    stage.stable("a", "b")
    generation = stage.group.generation_id
    stage.advance(SESSION_MS)
    assert stage.group.state == "Empty"
    stored = stage.stores[-1]
    assert stored.reason is StoreReason.EMPTY
    assert (stored.group.members, stored.group.leader, stored.group.protocol_name) == ((), None, None)
    assert (stored.group.generation_id, stored.group.protocol_type) == (generation + 1, "consumer")


def test_the_session_stands_still_while_a_sync_waits() -> None:
    stage = Stage()
    leader, follower = two_joined(stage)
    waiting = stage.sync(follower)
    for _ in range(4):
        stage.advance(SESSION_MS - 1)
        stage.heartbeat(leader)
    assert stage.is_waiting(waiting)
    stage.sync(leader, {follower: b"p1"})
    assert stage.share(waiting) == b"p1"


# Leaving


def test_a_member_who_leaves_makes_the_others_join_again() -> None:
    stage = Stage()
    first, second = stage.stable("a", "b")
    [result] = stage.leave(second)
    assert result == (second, None, ErrorCode.NONE)
    assert stage.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(stage.joined(stage.join(first)).members) == 1


def test_the_last_member_who_leaves_empties_the_group() -> None:
    stage = Stage()
    [member] = stage.stable("a")
    stage.leave(member)
    assert stage.group.state == "Empty"
    assert stage.stores[-1].reason is StoreReason.EMPTY


def test_several_leave_at_once_each_with_its_own_answer() -> None:
    stage = Stage()
    first, second, third = stage.stable("a", "b", "c", instances=["i1", None, "i3"])
    answers = stage.leave(
        LeavingMember("", "i1"),
        LeavingMember(second),
        LeavingMember("stranger"),
        LeavingMember("", "nobody"),
        LeavingMember(second, "i3"),
    )
    assert [answer.error for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert [member.member_id for member in stage.group.roster] == [third]
    assert first not in stage.group.roster


def test_a_given_out_id_can_be_given_back() -> None:
    stage = Stage()
    promised = stage.joined(stage.join(requires_id=True)).member_id
    assert stage.leave(promised)[0].error is ErrorCode.NONE
    assert stage.leave(promised)[0].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_completes_a_rebalance_that_waited_for_nobody_else() -> None:
    stage = Stage()
    first, second = stage.stable("a", "b")
    waiting = stage.join(first)
    stage.leave(second)
    assert stage.joined(waiting).leader == first


def test_whoever_leaves_while_its_requests_wait_has_them_answered() -> None:
    stage = Stage()
    _, follower = two_joined(stage)
    syncing = stage.sync(follower)
    stage.leave(follower)
    assert stage.error(syncing) is ErrorCode.UNKNOWN_MEMBER_ID


# Who may commit


def test_somebody_outside_may_commit_only_while_the_group_is_empty() -> None:
    stage = Stage()
    assert stage.commit() is ErrorCode.NONE
    [member] = stage.stable("a")
    assert stage.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    stage.leave(member)
    assert stage.commit() is ErrorCode.NONE


def test_members_may_commit_in_their_generation() -> None:
    stage = Stage()
    [member] = stage.stable("a", instances=["i"])
    assert stage.commit(member, generation=1) is ErrorCode.NONE
    assert stage.commit(member, generation=1, instance="i") is ErrorCode.NONE
    assert stage.commit(member, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert stage.commit(member, generation=-1) is ErrorCode.ILLEGAL_GENERATION
    assert stage.commit("stranger", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit("stranger", generation=1, instance="i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_commit_while_the_group_prepares_still_counts() -> None:
    stage = Stage()
    [member] = stage.stable("a")
    stage.join()
    assert stage.commit(member, generation=1) is ErrorCode.NONE


def test_a_commit_between_join_and_sync_is_refused() -> None:
    stage = Stage()
    stage.join()
    assert stage.commit("m1", generation=1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life() -> None:
    stage = Stage()
    [member] = stage.stable("a")
    for _ in range(3):
        stage.advance(SESSION_MS - 1)
        assert stage.commit(member, generation=1) is ErrorCode.NONE
    assert stage.group.state == "Stable"


def test_a_commit_of_a_generation_in_an_empty_group_is_refused() -> None:
    stage = Stage()
    [member] = stage.stable("a")
    stage.leave(member)
    assert stage.commit(member, generation=1) is ErrorCode.UNKNOWN_MEMBER_ID


# What others see


def test_a_stable_group_is_described_with_metadata_and_shares() -> None:
    stage = Stage()
    ids = stage.stable("a", "b")
    described = stage.group.describe()
    assert (described.state, described.protocol_type, described.protocol_name) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [(m.member_id, m.metadata, m.assignment) for m in described.members] == [
        (ids[0], b"meta", b"a"),
        (ids[1], b"meta", b"b"),
    ]
    assert {(m.client_id, m.client_host) for m in described.members} == {("client", "/10.0.0.1")}


def test_a_group_in_between_is_described_without_them() -> None:
    stage = Stage()
    stage.join()
    described = stage.group.describe()
    assert (described.state, described.protocol_name) == ("CompletingRebalance", "")
    assert [(m.metadata, m.assignment) for m in described.members] == [(b"", b"")]


def test_the_topics_of_a_consumer_group_are_those_of_all_its_members() -> None:
    stage = Stage(initial_delay_ms=10)
    stage.join(protocols=[("range", subscription("a", "b"))])
    stage.join(protocols=[("range", subscription("b", "c"))])
    assert stage.group.subscribed_topics() is None  # no protocol has been chosen yet
    stage.advance(1000)
    assert stage.group.subscribed_topics() == frozenset("abc")


@pytest.mark.parametrize(
    ("protocol_type", "metadata"),
    [("consumer", b"\x00"), ("consumer", b"\xff\xff"), ("connect", subscription("a"))],
)
def test_topics_that_cannot_be_told_are_none(protocol_type: str, metadata: bytes) -> None:
    stage = Stage()
    stage.join(protocol_type=protocol_type, protocols=[("range", metadata)])
    assert stage.group.subscribed_topics() is None


def test_a_group_without_members_reads_no_topics() -> None:
    assert Stage().group.subscribed_topics() == frozenset()


# Restoring


def restored(stored: StoredGroup, *, now_ms: int) -> Group:
    group = Group("g", now_ms=now_ms)
    group.restore(stored, now_ms=now_ms)
    return group


def test_a_restored_group_goes_on_without_a_rebalance() -> None:
    stage = Stage()
    ids = stage.stable("a", "b", instances=[None, "i2"])
    stored = [store for store in stage.stores if store.reason is StoreReason.ASSIGNED][-1].group
    stage.group = restored(stored, now_ms=stage.now_ms)
    assert stage.group.state == "Stable"
    assert stage.group.generation_id == stored.generation_id
    assert stage.heartbeat(ids[0]) is ErrorCode.NONE
    assert stage.heartbeat(ids[1], instance="i2") is ErrorCode.NONE
    assert stage.share(stage.sync(ids[1])) == b"b"
    assert stage.group.roster.leader == ids[0]


def test_the_members_of_a_restored_group_have_a_session_from_then_on() -> None:
    stage = Stage()
    ids = stage.stable("a")
    stored = stage.stores[-1].group
    stage.now_ms += 10 * SESSION_MS
    stage.group = restored(stored, now_ms=stage.now_ms)
    stage.advance(SESSION_MS - 1)
    assert stage.heartbeat(ids[0]) is ErrorCode.NONE
    stage.advance(SESSION_MS)
    assert stage.group.state == "Empty"


def test_a_restored_empty_group_remembers_since_when() -> None:
    stage = Stage()
    [member] = stage.stable("a")
    stage.leave(member)
    since_ms = stage.now_ms
    group = restored(stage.stores[-1].group, now_ms=since_ms + 1_000_000)
    assert (group.state, group.state_since_ms, group.generation_id) == ("Empty", since_ms, 2)


def test_whoever_waits_in_a_dying_group_is_told() -> None:
    stage = Stage()
    leader, follower = two_joined(stage)
    syncing = stage.sync(follower)
    stage.group.die(ErrorCode.NOT_COORDINATOR)
    stage.perform()
    assert stage.error(syncing) is ErrorCode.NOT_COORDINATOR
    assert stage.heartbeat(leader) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.group.wake_ms is None
