"""Joining a group and agreeing on a generation: scenarios played on the pure machine."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.conftest import REBALANCE_MS, SESSION_MS, Stage, code_of

from tailrace.broker.groups.waiting import NEW_MEMBER_TIMEOUT_MS
from tailrace.model import BrokerError, ErrorCode

RANGE = ("range", b"r")
ROBIN = ("roundrobin", b"rr")
STICKY = ("sticky", b"s")


def test_the_first_member_leads_and_gets_the_list() -> None:
    stage = Stage()
    result = stage.joined(stage.join(protocols=[RANGE]))
    assert (result.error, result.generation_id) == (ErrorCode.NONE, 1)
    assert (result.member_id, result.leader, result.protocol_name) == ("m1", "m1", "range")
    assert result.protocol_type == "consumer"
    assert [(member.member_id, member.metadata) for member in result.members] == [("m1", b"r")]
    assert stage.group.state == "CompletingRebalance"


def test_a_second_member_waits_until_the_first_has_joined_again() -> None:
    stage = Stage()
    [first] = stage.stable("a")
    newcomer = stage.join()
    assert stage.group.state == "PreparingRebalance"
    assert stage.is_waiting(newcomer)
    again = stage.join(first)
    assert stage.joined(newcomer).generation_id == stage.joined(again).generation_id == 2
    assert stage.joined(newcomer).leader == first


def test_only_the_leader_gets_the_member_list() -> None:
    stage = Stage()
    [first] = stage.stable("a")
    newcomer, again = stage.join(), stage.join(first)
    assert [member.member_id for member in stage.joined(again).members] == [first, "m2"]
    assert not stage.joined(newcomer).members


def test_an_empty_id_is_answered_with_a_new_one_where_the_client_knows_that() -> None:
    stage = Stage()
    result = stage.joined(stage.join(requires_id=True))
    assert (result.error, result.member_id, result.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, "m1", -1)
    assert stage.group.state == "Empty"
    assert stage.joined(stage.join(result.member_id)).error is ErrorCode.NONE


def test_a_given_out_id_holds_up_the_rebalance_of_the_others() -> None:
    stage = Stage()
    [first] = stage.stable("a")
    promised = stage.joined(stage.join(requires_id=True)).member_id
    newcomer, again = stage.join(), stage.join(first)
    assert stage.is_waiting(newcomer) and stage.is_waiting(again)
    stage.join(promised)
    assert not stage.is_waiting(newcomer) and not stage.is_waiting(again)


def test_a_given_out_id_expires_after_its_session_timeout() -> None:
    stage = Stage()
    promised = stage.joined(stage.join(requires_id=True)).member_id
    stage.advance(SESSION_MS)
    with pytest.raises(BrokerError) as refused:
        stage.join(promised)
    assert code_of(refused) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_expired_id_no_longer_holds_up_a_rebalance() -> None:
    stage = Stage()
    [first] = stage.stable("a")
    stage.join(requires_id=True)
    again = stage.join(first)
    assert stage.is_waiting(again)
    stage.advance(SESSION_MS)
    assert not stage.is_waiting(again)


def test_given_out_ids_are_bounded_and_the_oldest_goes() -> None:
    stage = Stage(size_max=2)
    ids = [stage.joined(stage.join(requires_id=True)).member_id for _ in range(3)]
    assert stage.group.roster.promises == 2
    with pytest.raises(BrokerError) as refused:
        stage.join(ids[0])
    assert code_of(refused) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.joined(stage.join(ids[2])).member_id == ids[2]


def test_an_unknown_id_is_refused() -> None:
    stage = Stage()
    stage.stable("a")
    with pytest.raises(BrokerError) as refused:
        stage.join("stranger")
    assert code_of(refused) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("connect", [RANGE]),
        ("consumer", [ROBIN]),
        ("consumer", []),
        ("", [RANGE]),
    ],
)
def test_a_protocol_that_the_others_do_not_know_is_refused(
    protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    stage = Stage()
    stage.stable("a")
    with pytest.raises(BrokerError) as refused:
        stage.join(protocol_type=protocol_type, protocols=protocols)
    assert code_of(refused) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.group.state == "Stable"


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", [RANGE]), ("consumer", [])])
def test_the_first_member_must_name_a_type_and_a_protocol(
    protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    stage = Stage()
    with pytest.raises(BrokerError) as refused:
        stage.join(protocol_type=protocol_type, protocols=protocols)
    assert code_of(refused) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ([[RANGE, ROBIN], [RANGE, ROBIN]], "range"),
        ([[RANGE, ROBIN], [ROBIN]], "roundrobin"),
        ([[RANGE, ROBIN, STICKY], [STICKY, ROBIN], [STICKY, ROBIN]], "sticky"),
        ([[RANGE, STICKY], [STICKY, RANGE]], "range"),  # a tie: the longest-standing member decides
    ],
)
def test_the_protocol_most_like_best_of_those_all_support_is_chosen(
    offers: list[list[tuple[str, bytes]]], chosen: str
) -> None:
    stage = Stage(initial_delay_ms=100)
    tokens = [stage.join(protocols=offer) for offer in offers]
    stage.advance(1000)
    assert {stage.joined(token).protocol_name for token in tokens} == {chosen}
    by_name = [dict(offer)[chosen] for offer in offers]
    assert [member.metadata for member in stage.joined(tokens[0]).members] == by_name


def test_a_sole_member_may_change_its_protocol() -> None:
    stage = Stage()
    [first] = stage.stable("a")
    assert stage.joined(stage.join(first, protocols=[STICKY])).protocol_name == "sticky"


def test_the_rebalance_timeout_removes_whoever_did_not_join_again() -> None:
    stage = Stage()
    first, second = stage.stable("a", "b")
    again = stage.join(first)
    stage.advance(SESSION_MS - 1)
    assert stage.heartbeat(second) is ErrorCode.REBALANCE_IN_PROGRESS  # it lives, but does not join
    for _ in range(8):
        stage.advance(SESSION_MS - 1)
        stage.heartbeat(second)
    result = stage.joined(again)
    assert [member.member_id for member in result.members] == [first]
    assert stage.heartbeat(second) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_slowest_member_sets_the_rebalance_timeout() -> None:
    stage = Stage()
    [first] = stage.stable("a")
    stage.join(first, rebalance_ms=2 * REBALANCE_MS, session_ms=10 * REBALANCE_MS)
    stage.sync(first)
    newcomer = stage.join(rebalance_ms=5)
    stage.advance(2 * REBALANCE_MS - 1)
    assert stage.is_waiting(newcomer)
    stage.advance(1)
    assert not stage.is_waiting(newcomer)


def test_without_a_rebalance_timeout_the_session_timeout_serves() -> None:
    stage = Stage()
    stage.join(rebalance_ms=-1)
    member = stage.group.roster.get("m1")
    assert member is not None and member.rebalance_timeout_ms == SESSION_MS


def test_a_lost_leader_is_replaced_by_one_who_joined() -> None:
    stage = Stage()
    first, second, third = stage.stable("a", "b", "c")
    tokens = [stage.join(second, protocols=[RANGE]), stage.join(third)]
    stage.leave(first)
    assert {stage.joined(token).leader for token in tokens} == {second}
    assert len(stage.joined(tokens[0]).members) == 2


def test_the_leader_joining_again_in_stable_makes_everybody_join() -> None:
    stage = Stage()
    first, second = stage.stable("a", "b")
    stage.join(first)
    assert stage.group.state == "PreparingRebalance"
    assert stage.heartbeat(second) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_joining_unchanged_in_stable_is_told_the_generation_again() -> None:
    stage = Stage()
    _, second = stage.stable("a", "b")
    generation = stage.group.generation_id
    result = stage.joined(stage.join(second))
    assert (result.generation_id, list(result.members)) == (generation, [])
    assert stage.group.state == "Stable"


def test_a_follower_with_new_metadata_makes_everybody_join() -> None:
    stage = Stage()
    _, second = stage.stable("a", "b")
    assert stage.is_waiting(stage.join(second, protocols=[("range", b"other topics")]))
    assert stage.group.state == "PreparingRebalance"


def test_a_member_who_lost_the_answer_gets_it_again_while_the_group_completes() -> None:
    stage = Stage()
    first = stage.joined(stage.join()).member_id
    again = stage.joined(stage.join(first))
    assert again.generation_id == 1
    assert [member.member_id for member in again.members] == [first]
    assert stage.group.state == "CompletingRebalance"


def test_a_newer_join_of_a_member_supersedes_the_one_that_waits() -> None:
    stage = Stage()
    first, _ = stage.stable("a", "b")
    old = stage.join(first)
    new = stage.join(first)
    assert stage.error(old) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.is_waiting(new)


def test_the_first_join_of_a_member_does_not_wait_for_ever() -> None:
    stage = Stage()
    [first] = stage.stable("a")
    stage.join(first, rebalance_ms=NEW_MEMBER_TIMEOUT_MS * 10, session_ms=NEW_MEMBER_TIMEOUT_MS * 10)
    stage.sync(first)
    newcomer = stage.join()
    stage.advance(NEW_MEMBER_TIMEOUT_MS)
    assert stage.error(newcomer) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_existing_member_waits_as_long_as_the_rebalance_takes() -> None:
    stage = Stage()
    first, second = stage.stable("a", "b")
    waiting = stage.join(first)
    for _ in range(5):
        stage.advance(SESSION_MS - 1)
        stage.heartbeat(second)
    assert stage.is_waiting(waiting)


# The initial delay


def test_the_initial_delay_gathers_those_who_start_together() -> None:
    stage = Stage(initial_delay_ms=3000)
    first = stage.join()
    stage.advance(2000)
    second = stage.join()
    stage.advance(1000)  # a newcomer came: one more delay
    assert stage.is_waiting(first)
    stage.advance(3000)
    assert stage.joined(first).generation_id == stage.joined(second).generation_id == 1


def test_the_initial_delay_grows_up_to_the_rebalance_timeout() -> None:
    stage = Stage(initial_delay_ms=3000)
    first = stage.join(rebalance_ms=5000)
    for _ in range(4):
        stage.advance(1000)
        stage.join(rebalance_ms=5000)
    assert stage.is_waiting(first)
    stage.advance(1000)
    assert stage.joined(first).generation_id == 1


def test_a_group_whose_members_leave_during_the_initial_delay_is_empty() -> None:
    stage = Stage(initial_delay_ms=3000)
    token = stage.join()
    stage.leave("m1")
    assert stage.error(token) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.group.state == "Empty"


# The size


def test_a_full_group_refuses_newcomers() -> None:
    stage = Stage(size_max=2)
    stage.stable("a", "b")
    with pytest.raises(BrokerError) as refused:
        stage.join()
    assert code_of(refused) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.group.state == "Stable"


def test_in_a_rebalance_the_places_go_to_whoever_comes_first() -> None:
    stage = Stage(size_max=2)
    first, second = stage.stable("a", "b")
    again = stage.join(first)  # the leader: everybody must join
    newcomer = stage.join()
    with pytest.raises(BrokerError) as refused:
        stage.join(second)
    assert code_of(refused) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.joined(again).generation_id == stage.joined(newcomer).generation_id


def test_a_dead_group_takes_nobody() -> None:
    stage = Stage()
    stage.group.die()
    with pytest.raises(BrokerError) as refused:
        stage.join()
    assert code_of(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
