"""Static membership (KIP-345): members with a name of their own come back, on the pure machine."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.conftest import REBALANCE_MS, SESSION_MS, Stage, code_of, subscription

from tailrace.broker.groups.api import LeavingMember
from tailrace.broker.groups.effects import StoreReason
from tailrace.model import BrokerError, ErrorCode


def test_a_static_member_needs_no_id_first() -> None:
    stage = Stage()
    assert stage.joined(stage.join(instance="i", requires_id=True)).error is ErrorCode.NONE


def test_a_static_member_back_in_stable_keeps_its_share_without_a_rebalance() -> None:
    stage = Stage()
    first, second = stage.stable("a", "b", instances=[None, "i"])
    generation = stage.group.generation_id
    back = stage.joined(stage.join(instance="i"))
    assert back.member_id not in (first, second)
    assert (back.generation_id, back.leader, list(back.members)) == (generation, first, [])
    assert stage.group.state == "Stable"
    assert stage.share(stage.sync(back.member_id, instance="i")) == b"b"
    assert stage.heartbeat(first) is ErrorCode.NONE


def test_a_static_leader_back_in_stable_is_told_that_its_old_id_leads() -> None:
    stage = Stage()
    old, _ = stage.stable("a", "b", instances=["i", None])
    back = stage.joined(stage.join(instance="i"))
    assert (back.leader, list(back.members)) == (old, [])
    assert stage.group.roster.leader == back.member_id


def test_a_static_leader_back_in_stable_leads_on_if_it_can_leave_the_shares_alone() -> None:
    stage = Stage()
    _, other = stage.stable("a", "b", instances=["i", None])
    generation = stage.group.generation_id
    back = stage.joined(stage.join(instance="i", can_skip=True))
    assert (back.leader, back.generation_id, back.skips_assignment) == (back.member_id, generation, True)
    assert {member.member_id for member in back.members} == {back.member_id, other}
    assert stage.share(stage.sync(back.member_id, instance="i")) == b"a"
    assert stage.group.state == "Stable" and stage.heartbeat(other) is ErrorCode.NONE


def test_a_static_follower_and_an_ordinary_leader_share_out_as_ever() -> None:
    stage = Stage()
    stage.stable("a", "b", instances=[None, "i"])
    follower = stage.joined(stage.join(instance="i", can_skip=True))
    assert not follower.skips_assignment and follower.leader != follower.member_id
    first = Stage()
    leader = first.joined(first.join(instance="i", can_skip=True))
    assert not leader.skips_assignment and leader.leader == leader.member_id


def test_the_new_id_is_durable_before_the_join_is_answered() -> None:
    stage = Stage()
    stage.stable("a", instances=["i"])
    stage.stores_at_once = False
    token = stage.join(instance="i")
    assert stage.is_waiting(token)
    assert stage.stores[-1].reason is StoreReason.REPLACED
    assert stage.stores[-1].group.members[0].assignment == b"a"
    stage.finish(stage.stores[-1])
    assert stage.stores[-1].group.members[0].member_id == stage.joined(token).member_id


def test_a_new_id_that_cannot_be_stored_is_an_error_and_can_be_tried_again() -> None:
    stage = Stage()
    stage.stable("a", instances=["i"])
    stage.stores_at_once = False
    token = stage.join(instance="i")
    stage.finish(stage.stores[-1], ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert stage.error(token) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.stores_at_once = True
    assert stage.joined(stage.join(instance="i")).error is ErrorCode.NONE


def test_a_rebalance_that_begins_while_the_new_id_is_stored_takes_the_join_in() -> None:
    stage = Stage()
    first, _ = stage.stable("a", "b", instances=[None, "i"])
    stage.stores_at_once = False
    token = stage.join(instance="i")
    replaced = stage.stores[-1]
    stage.join(first)  # the leader asks for a rebalance; all have joined
    generation = stage.joined(token).generation_id
    assert generation == stage.group.generation_id == 3
    stage.finish(replaced)
    assert stage.group.state == "CompletingRebalance"


def test_a_join_taken_into_a_long_rebalance_does_not_lose_its_session() -> None:
    stage = Stage()
    first, _, third = stage.stable("a", "b", "c", instances=[None, "i", None])
    stage.stores_at_once = False
    token = stage.join(instance="i")
    stage.join(first)
    stage.finish(stage.stores[-1])
    for _ in range(3):
        stage.advance(SESSION_MS - 1)
        stage.heartbeat(third)
    assert stage.is_waiting(token)
    stage.join(third)
    assert stage.joined(token).generation_id == stage.group.generation_id


def test_the_old_id_is_fenced_wherever_it_turns_up() -> None:
    stage = Stage()
    _, old = stage.stable("a", "b", instances=[None, "i"])
    stage.join(instance="i")
    generation = stage.group.generation_id
    assert stage.heartbeat(old, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert stage.commit(old, generation=generation, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert stage.leave(LeavingMember(old, "i"))[0].error is ErrorCode.FENCED_INSTANCE_ID
    with pytest.raises(BrokerError) as refused:
        stage.sync(old, instance="i")
    assert code_of(refused) is ErrorCode.FENCED_INSTANCE_ID
    with pytest.raises(BrokerError) as refused:
        stage.join(old, instance="i")
    assert code_of(refused) is ErrorCode.FENCED_INSTANCE_ID


def test_the_old_id_without_its_name_is_simply_unknown() -> None:
    stage = Stage()
    _, old = stage.stable("a", "b", instances=[None, "i"])
    stage.join(instance="i")
    assert stage.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_waiting_join_of_the_old_id_is_fenced() -> None:
    stage = Stage()
    _, old = stage.stable("a", "b", instances=[None, "i"])
    waiting = stage.join(old, instance="i", protocols=[("range", b"changed")])
    assert stage.is_waiting(waiting)
    new = stage.join(instance="i")
    assert stage.error(waiting) is ErrorCode.FENCED_INSTANCE_ID
    assert stage.is_waiting(new)


def test_a_waiting_sync_of_the_old_id_is_fenced_and_all_join_again() -> None:
    stage = Stage()
    [first] = stage.stable("a")
    newcomer = stage.join(instance="i")
    stage.join(first)
    waiting = stage.sync(stage.joined(newcomer).member_id, instance="i")
    stage.join(instance="i")
    assert stage.error(waiting) is ErrorCode.FENCED_INSTANCE_ID
    assert stage.group.state == "PreparingRebalance"


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        (subscription("t"), subscription("t", user_data=b"owned nothing"), "Stable"),
        (subscription("t", "u"), subscription("u", "t"), "Stable"),
        (subscription("t"), subscription("t", "u"), "PreparingRebalance"),
        (b"not a subscription", b"another", "PreparingRebalance"),
    ],
)
def test_a_static_member_rebalances_only_if_it_reads_other_topics(
    before: bytes, after: bytes, state: str
) -> None:
    stage = Stage(initial_delay_ms=1)
    first = stage.join(protocols=[("range", before)], instance="i")
    stage.join(protocols=[("range", before)])
    stage.advance(100)
    stage.sync(stage.joined(first).leader, instance="i")
    stage.join(instance="i", protocols=[("range", after)])
    assert stage.group.state == state


def test_a_static_member_with_other_metadata_of_another_type_rebalances() -> None:
    stage = Stage(initial_delay_ms=1)
    first = stage.join(protocol_type="connect", protocols=[("v0", subscription("t"))], instance="i")
    stage.join(protocol_type="connect", protocols=[("v0", b"x")])
    stage.advance(100)
    stage.sync(stage.joined(first).member_id, instance="i")
    changed = [("v0", subscription("t", user_data=b"y"))]
    stage.join(protocol_type="connect", protocols=changed, instance="i")
    assert stage.group.state == "PreparingRebalance"


def test_a_static_member_who_changes_the_choice_of_protocol_rebalances() -> None:
    stage = Stage(initial_delay_ms=1)
    both = [("range", b"r"), ("sticky", b"s")]
    first = stage.join(protocols=both, instance="i1")
    stage.join(protocols=both, instance="i2")
    stage.join(protocols=both[::-1], instance="i3")
    stage.advance(100)
    stage.sync(stage.joined(first).member_id, instance="i1")
    stage.join(protocols=both[::-1], instance="i2")  # now two of three like sticky better
    assert stage.group.state == "PreparingRebalance"


def test_a_static_member_who_did_not_join_again_stays_until_its_session_ends() -> None:
    stage = Stage()
    first, static = stage.stable("a", "b", instances=[None, "i"], session_ms=10 * REBALANCE_MS)
    waiting = stage.join(first)
    stage.advance(REBALANCE_MS)
    result = stage.joined(waiting)
    assert {member.member_id for member in result.members} == {first, static}
    assert stage.heartbeat(static, instance="i") is ErrorCode.NONE  # it learns of the generation by and by


def test_static_members_who_all_stay_away_are_waited_for_until_their_sessions_end() -> None:
    stage = Stage()
    first, _ = stage.stable("a", "b", instances=[None, "i"], session_ms=3 * REBALANCE_MS)
    stage.leave(first)
    stage.advance(2 * REBALANCE_MS)
    assert stage.group.state == "PreparingRebalance"
    stage.advance(REBALANCE_MS)
    assert stage.group.state == "Empty"


def test_a_static_member_can_be_removed_by_name_and_come_back_as_a_new_one() -> None:
    stage = Stage()
    first, _ = stage.stable("a", "b", instances=[None, "i"])
    assert stage.leave(LeavingMember("", "i"))[0].error is ErrorCode.NONE
    back = stage.join(instance="i")
    stage.join(first)
    assert stage.joined(back).generation_id == stage.group.generation_id


def test_an_instance_that_nobody_knows_is_an_unknown_member() -> None:
    stage = Stage()
    stage.stable("a")
    with pytest.raises(BrokerError) as refused:
        stage.join("stranger", instance="nobody")
    assert code_of(refused) is ErrorCode.UNKNOWN_MEMBER_ID
