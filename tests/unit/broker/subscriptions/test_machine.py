"""The machine of one partition, event by event: what leads where, whose word counts, what is made durable."""

from __future__ import annotations

import pytest

from tailrace.broker.subscriptions.cursor import Cursor
from tailrace.broker.subscriptions.definition import SubscriptionConfig
from tailrace.broker.subscriptions.machine import (
    TRANSITIONS,
    Changes,
    Expired,
    PartitionMachine,
    Released,
    Rules,
    Settled,
    State,
    Verdict,
)

RULES = Rules(ack_timeout_ms=100, max_deliveries=3, backoff_ms=10, backoff_ms_max=35)
ANN, BOB = 1, 2


def machine(position: int = 0, *, rules: Rules = RULES, **rest: dict[int, int]) -> PartitionMachine:
    return PartitionMachine(Cursor(position), rules=rules, **rest)  # type: ignore[arg-type]


def with_one(offset: int = 0, *, member: int = ANN, now_ms: int = 0) -> PartitionMachine:
    """A machine with one message in flight."""
    made = machine()
    made.deliver(offset, member=member, now_ms=now_ms)
    return made


def dead_one() -> PartitionMachine:
    """A machine whose message 0 has failed for the last time."""
    made = machine(failures={0: 2})
    made.deliver(0, member=ANN, now_ms=0)
    assert made.nack(0, member=ANN, epoch=0, now_ms=0) is Verdict.DEAD
    return made


# ---- deliveries


def test_a_new_message_is_delivered_for_the_first_time() -> None:
    made = machine(5)
    assert made.state_of(5) is State.AVAILABLE and not made.is_known(5)
    assert made.deliver(5, member=ANN, now_ms=0) == 1
    assert made.state_of(5) is State.IN_FLIGHT and made.is_known(5)
    assert (made.in_flight, made.unacked, made.cursor.position) == (1, 1, 5)


@pytest.mark.parametrize("offset", [4, 5, 9])
def test_what_is_done_or_with_somebody_is_not_delivered(offset: int) -> None:
    made = PartitionMachine(Cursor(5, [(9, 10)]), rules=RULES)
    made.deliver(5, member=ANN, now_ms=0)
    assert not made.can_deliver(offset)
    before = made.state_of(offset)
    assert made.deliver(offset, member=BOB, now_ms=0) == 0
    assert made.state_of(offset) is before and not made.held_by(BOB, [(0, 20)])


def test_what_waits_or_is_dead_is_not_delivered() -> None:
    waiting = with_one()
    waiting.nack(0, member=ANN, epoch=0, now_ms=0)
    for made in (waiting, dead_one()):
        assert not made.can_deliver(0)


# ---- acknowledgements


def test_an_acknowledged_message_is_done() -> None:
    made = with_one()
    assert made.ack([(0, 1)], epoch=0) == [Settled(0, ANN)]
    assert made.state_of(0) is State.DONE
    assert (made.in_flight, made.unacked, made.cursor.position, made.next_time_ms()) == (0, 0, 1, None)


def test_the_cursor_waits_for_the_first_that_is_not_acknowledged() -> None:
    made = machine()
    for offset in range(4):
        made.deliver(offset, member=ANN, now_ms=0)
    made.ack([(1, 3)], epoch=0)
    assert made.cursor == Cursor(0, [(1, 3)])
    made.ack([(0, 1)], epoch=0)
    assert made.cursor == Cursor(3)


def test_only_what_was_delivered_is_acknowledged() -> None:
    made = with_one(3)
    assert made.ack([(0, 3), (4, 9)], epoch=0) == []
    assert made.ack([(0, 2**63)], epoch=0) == [Settled(3, ANN)]
    assert made.cursor == Cursor(0, [(3, 4)])


def test_ranges_may_overlap_repeat_and_come_in_any_order() -> None:
    made = machine()
    for offset in range(6):
        made.deliver(offset, member=ANN, now_ms=0)
    ranges = [(4, 6), (0, 2), (1, 3), (5, 5), (9, 7), (0, 100), (-5, 2)]
    settled = made.ack(ranges, epoch=0)
    assert sorted(each.offset for each in settled) == [0, 1, 2, 3, 4, 5]
    assert made.cursor == Cursor(6)


def test_many_wide_ranges_cost_no_more_than_what_is_tracked() -> None:
    made = with_one(5)
    ranges = [(start, start + 2**40) for start in range(1_000)]  # would take years offset by offset
    assert made.ack(ranges, epoch=0) == [Settled(5, ANN)]


def test_anybody_may_acknowledge_what_was_processed() -> None:
    waiting = with_one()
    waiting.nack(0, member=ANN, epoch=0, now_ms=0)
    assert waiting.ack([(0, 1)], epoch=0) == [Settled(0, None)]
    assert waiting.next_time_ms() is None

    ready = with_one()
    ready.release(ANN)
    assert ready.ack([(0, 1)], epoch=0) == [Settled(0, None)]
    assert not ready.can_deliver(0)


def test_a_dead_message_is_not_acknowledged() -> None:
    made = dead_one()
    assert made.ack([(0, 1)], epoch=0) == []
    assert made.state_of(0) is State.DEAD


def test_who_takes_leave_has_not_failed() -> None:
    made = machine(failures={0: 2})
    made.deliver(0, member=ANN, now_ms=0)
    made.deliver(1, member=ANN, now_ms=0)
    assert made.release(ANN, failed=False) == Released([0, 1], [])
    assert made.failures == {0: 2} and made.take_changes() is None and made.next_time_ms() is None
    assert made.deliver(0, member=BOB, now_ms=0) == 3
    assert made.release(BOB) == Released([], [0])


# ---- refusals


def test_a_refused_message_waits_longer_each_time_and_not_too_long() -> None:
    rules = Rules(ack_timeout_ms=100, max_deliveries=0, backoff_ms=10, backoff_ms_max=35)
    made, now_ms, waits = machine(rules=rules), 0, []
    for count in range(1, 6):
        assert made.deliver(0, member=ANN, now_ms=now_ms) == count
        assert made.nack(0, member=ANN, epoch=0, now_ms=now_ms) is Verdict.RETRY
        due_ms = made.next_time_ms()
        assert due_ms is not None
        assert made.take_due(due_ms - 1) == []
        assert made.take_due(due_ms) == [0]
        waits.append(due_ms - now_ms)
        now_ms = due_ms
    assert waits == [10, 20, 35, 35, 35]


def test_back_off_stays_bounded_after_any_number_of_failures() -> None:
    assert RULES.delay_ms(1_000_000) == 35
    none = Rules(ack_timeout_ms=100, max_deliveries=0, backoff_ms=0, backoff_ms_max=35)
    assert none.delay_ms(1_000_000) == 0


@pytest.mark.parametrize("delay_ms", [0, 5, 5_000])
def test_a_delay_of_its_own_wins_over_the_back_off(delay_ms: int) -> None:
    made = with_one()
    made.nack(0, member=ANN, epoch=0, now_ms=7, delay_ms=delay_ms)
    assert made.next_time_ms() == 7 + delay_ms
    assert made.state_of(0) is State.WAITING and made.waiting == 1


def test_only_who_holds_a_message_refuses_or_extends_it() -> None:
    made = with_one()
    assert made.nack(0, member=BOB, epoch=0, now_ms=0) is None
    assert made.nack(1, member=ANN, epoch=0, now_ms=0) is None
    assert not made.extend(0, member=BOB, epoch=0, until_ms=999)
    assert not made.extend(1, member=ANN, epoch=0, until_ms=999)
    made.nack(0, member=ANN, epoch=0, now_ms=0)
    assert made.nack(0, member=ANN, epoch=0, now_ms=0) is None
    assert not made.extend(0, member=ANN, epoch=0, until_ms=999)


def test_the_last_delivery_that_fails_makes_it_dead() -> None:
    made = dead_one()
    assert made.state_of(0) is State.DEAD and made.is_dead(0)
    assert (made.unacked, made.in_flight, made.failures) == (1, 0, {0: 3})
    assert made.next_time_ms() is None


def test_without_a_limit_a_message_never_dies() -> None:
    rules = Rules(ack_timeout_ms=100, max_deliveries=0, backoff_ms=0, backoff_ms_max=0)
    made = machine(rules=rules, failures={0: 10_000})
    assert made.deliver(0, member=ANN, now_ms=0) == 10_001
    assert made.nack(0, member=ANN, epoch=0, now_ms=0) is Verdict.RETRY


# ---- locks


def test_a_lock_runs_out_at_its_time_and_not_before() -> None:
    made = with_one(now_ms=50)
    assert made.next_time_ms() == 150
    assert made.expire(149) == []
    assert made.expire(150) == [Expired(0, ANN, Verdict.RETRY)]
    assert made.state_of(0) is State.WAITING and made.next_time_ms() == 160
    assert made.expire(10_000) == []


def test_a_lock_that_runs_out_for_the_last_time_makes_it_dead() -> None:
    made = machine(failures={0: 2})
    made.deliver(0, member=ANN, now_ms=0)
    assert made.expire(100) == [Expired(0, ANN, Verdict.DEAD)]


def test_an_extended_lock_holds_longer_and_never_shorter() -> None:
    made = with_one()
    assert made.extend(0, member=ANN, epoch=0, until_ms=500)
    assert made.extend(0, member=ANN, epoch=0, until_ms=200)
    assert made.next_time_ms() == 500
    assert made.expire(499) == []
    assert made.expire(500) == [Expired(0, ANN, Verdict.RETRY)]


def test_a_second_lock_that_ends_with_the_first_runs_out_once() -> None:
    made = with_one()
    made.release(ANN)
    made.deliver(0, member=BOB, now_ms=0)
    assert made.expire(100) == [Expired(0, BOB, Verdict.RETRY)]


def test_stale_locks_are_swept_out() -> None:
    made = with_one()
    for until_ms in range(200, 5_200):
        made.extend(0, member=ANN, epoch=0, until_ms=until_ms)
    assert len(made._locks._heap) < 200
    assert made.next_time_ms() == 5_199


def test_locks_run_out_in_the_order_of_their_ends() -> None:
    made = machine()
    for offset, now_ms in ((0, 30), (1, 10), (2, 20)):
        made.deliver(offset, member=ANN, now_ms=now_ms)
    assert [each.offset for each in made.expire(1_000)] == [1, 2, 0]


# ---- members who leave


def test_a_member_who_leaves_gives_back_at_once_and_in_order() -> None:
    made = machine()
    for offset, member in ((3, ANN), (1, ANN), (2, BOB)):
        made.deliver(offset, member=member, now_ms=0)
    assert made.release(ANN) == Released([1, 3], [])
    assert [made.state_of(offset) for offset in (1, 2, 3)] == [State.READY, State.IN_FLIGHT, State.READY]
    assert made.deliver(1, member=BOB, now_ms=0) == 2
    assert made.release(ANN) == Released([], [])


def test_a_message_that_ends_its_workers_ends() -> None:
    made = machine(failures={0: 2, 1: 1})
    for offset in (0, 1):
        made.deliver(offset, member=ANN, now_ms=0)
    assert made.release(ANN) == Released([1], [0])
    assert made.state_of(0) is State.DEAD


def test_a_member_who_says_good_bye_has_not_failed() -> None:
    made = machine(failures={0: 2})
    made.deliver(0, member=ANN, now_ms=0)
    assert made.release(ANN, failed=False) == Released([0], [])
    assert made.failures == {0: 2} and made.take_changes() is None
    assert made.deliver(0, member=BOB, now_ms=0) == 3


def test_what_is_given_back_is_ready_at_once_and_has_not_failed() -> None:
    made = machine(failures={0: 2})
    made.deliver(0, member=ANN, now_ms=0)
    made.deliver(1, member=ANN, now_ms=0)
    assert made.give_back(0, member=ANN, epoch=0)
    assert made.state_of(0) is State.READY and made.state_of(1) is State.IN_FLIGHT
    assert (made.failures, made.take_changes(), made.in_flight) == ({0: 2}, None, 1)
    assert made.held_by(ANN, [(0, 9)]) == [1]
    assert made.deliver(0, member=BOB, now_ms=50) == 3
    assert made.expire(149) == [Expired(1, ANN, Verdict.RETRY)]  # and the first lock on 0 is void


def test_only_who_holds_a_message_gives_it_back_and_only_once() -> None:
    made = with_one()
    assert not made.give_back(0, member=BOB, epoch=0)
    assert not made.give_back(1, member=ANN, epoch=0)
    assert not made.give_back(0, member=ANN, epoch=1)
    assert made.state_of(0) is State.IN_FLIGHT
    assert made.give_back(0, member=ANN, epoch=0)
    assert not made.give_back(0, member=ANN, epoch=0)
    assert made.release(ANN) == Released([], [])


def test_what_a_member_holds_of_some_ranges() -> None:
    made = machine()
    for offset, member in ((0, ANN), (5, ANN), (3, ANN), (4, BOB)):
        made.deliver(offset, member=member, now_ms=0)
    assert made.held_by(ANN, [(4, 2**63), (3, 4), (3, 5)]) == [3, 5]
    assert made.held_by(3, [(0, 9)]) == []


# ---- burials and losses


def test_a_buried_message_is_done() -> None:
    made = dead_one()
    assert made.buried(0)
    assert made.state_of(0) is State.DONE and made.failures == {} and made.unacked == 0
    assert not made.buried(0)


def test_what_is_not_dead_is_not_buried() -> None:
    made = with_one()
    assert not made.buried(0)
    made.burial_failed(0, retry_at_ms=5)
    assert made.state_of(0) is State.IN_FLIGHT and made.next_time_ms() == 100


def test_a_burial_that_failed_is_reported_again_at_its_time() -> None:
    made = dead_one()
    made.burial_failed(0, retry_at_ms=70)
    assert made.next_time_ms() == 70
    assert made.expire(69) == []
    assert made.expire(70) == [Expired(0, None, Verdict.DEAD)]
    assert made.expire(1_000) == [] and made.state_of(0) is State.DEAD


def test_a_message_buried_before_its_retry_is_not_reported() -> None:
    made = dead_one()
    made.burial_failed(0, retry_at_ms=70)
    made.buried(0)
    assert made.expire(1_000) == [] and made.next_time_ms() is None


def test_a_message_whose_content_is_gone_is_done() -> None:
    ready, waiting = with_one(), with_one()
    ready.release(ANN)
    waiting.nack(0, member=ANN, epoch=0, now_ms=0)
    for made in (ready, waiting, dead_one()):
        assert made.lost(0)
        assert made.state_of(0) is State.DONE and made.next_time_ms() is None


def test_what_somebody_has_is_not_lost() -> None:
    made = with_one()
    assert not made.lost(0) and not made.lost(1)
    assert made.state_of(0) is State.IN_FLIGHT and made.state_of(1) is State.AVAILABLE


def test_passing_over_leaves_out_what_is_tracked() -> None:
    made = machine()
    for offset in (2, 5):
        made.deliver(offset, member=ANN, now_ms=0)
    assert made.pass_over(0, 8) == 6
    assert made.pass_over(0, 8) == 0
    assert made.cursor == Cursor(2, [(3, 5), (6, 8)])
    made.ack([(2, 6)], epoch=0)
    assert made.cursor == Cursor(8)


def test_a_wide_gap_costs_no_more_than_what_is_tracked() -> None:
    made = with_one(2**40)
    assert made.pass_over(0, 2**62) == 2**62 - 1
    assert made.cursor == Cursor(2**40, [(2**40 + 1, 2**62)])


# ---- seeks


def test_a_seek_forgets_everything_and_begins_an_epoch() -> None:
    made = machine(failures={3: 2, 4: 1})
    for offset in (0, 1, 2, 3):
        made.deliver(offset, member=ANN, now_ms=0)
    made.ack([(1, 2)], epoch=0)
    made.nack(2, member=ANN, epoch=0, now_ms=0)
    made.nack(3, member=ANN, epoch=0, now_ms=0)
    made.burial_failed(3, retry_at_ms=5)
    assert made.seek(1) == [Settled(0, ANN), Settled(2, None), Settled(3, None)]
    assert (made.epoch, made.unacked, made.in_flight, made.failures) == (1, 0, 0, {})
    assert made.cursor == Cursor(1) and made.next_time_ms() is None
    assert made.release(ANN) == Released([], [])
    assert made.deliver(1, member=ANN, now_ms=0) == 1


def test_a_seek_forgets_what_is_parked() -> None:
    made = with_one(2)
    made.release(ANN)
    assert made.park() == [2]
    assert made.seek(0) == [Settled(2, None)]
    assert (made.unacked, made.unpark(), made.state_of(2)) == (0, [], State.AVAILABLE)


def test_whatever_names_an_old_epoch_changes_nothing() -> None:
    made = with_one()
    made.seek(0)
    made.deliver(0, member=ANN, now_ms=0)
    assert made.ack([(0, 1)], epoch=0) == []
    assert made.nack(0, member=ANN, epoch=0, now_ms=0) is None
    assert not made.extend(0, member=ANN, epoch=0, until_ms=999)
    assert made.state_of(0) is State.IN_FLIGHT and made.next_time_ms() == 100
    assert made.ack([(0, 1)], epoch=1) == [Settled(0, ANN)]


def test_a_burial_from_before_a_seek_does_not_count_after_it() -> None:
    made = dead_one()
    made.seek(0)
    assert not made.buried(0)
    made.burial_failed(0, retry_at_ms=5)
    assert made.state_of(0) is State.AVAILABLE and made.next_time_ms() is None


# ---- what is made durable


def test_a_delivery_alone_changes_nothing_durable() -> None:
    made = with_one()
    assert made.take_changes() is None


def test_changes_are_taken_once() -> None:
    made = machine()
    for offset in range(5):
        made.deliver(offset, member=ANN, now_ms=0)
    made.ack([(0, 1), (2, 3), (4, 5)], epoch=0)
    assert made.take_changes() == Changes(position=1, ranges=((2, 3), (4, 5)), failures={}, whole=False)
    assert made.take_changes() is None
    made.ack([(3, 4)], epoch=0)
    assert made.take_changes() == Changes(position=1, ranges=((3, 4),), failures={}, whole=False)
    made.ack([(1, 2)], epoch=0)
    assert made.take_changes() == Changes(position=5, ranges=(), failures={}, whole=False)


def test_ranges_that_the_position_has_passed_are_not_told() -> None:
    made = machine()
    for offset in range(3):
        made.deliver(offset, member=ANN, now_ms=0)
    made.ack([(1, 2)], epoch=0)
    made.ack([(0, 1)], epoch=0)
    assert made.take_changes() == Changes(position=2, ranges=(), failures={}, whole=False)


def test_failures_are_told_when_they_grow_and_when_they_are_over() -> None:
    made = with_one()
    made.nack(0, member=ANN, epoch=0, now_ms=0)
    assert made.take_changes() == Changes(position=0, ranges=(), failures={0: 1}, whole=False)
    made.ack([(0, 1)], epoch=0)
    assert made.take_changes() == Changes(position=1, ranges=(), failures={0: 0}, whole=False)
    assert made.failures == {}


def test_changes_after_a_seek_are_everything_there_is() -> None:
    made = with_one()
    made.nack(0, member=ANN, epoch=0, now_ms=0)
    made.seek(0)
    made.pass_over(3, 4)
    assert made.take_changes() == Changes(position=0, ranges=((3, 4),), failures={}, whole=True)
    assert made.take_changes() is None


def test_counts_survive_a_restart_and_those_of_done_messages_do_not() -> None:
    made = PartitionMachine(Cursor(2, [(4, 5)]), rules=RULES, failures={1: 1, 3: 2, 4: 1, 6: 0})
    assert made.failures == {3: 2}
    assert made.state_of(3) is State.AVAILABLE
    assert made.deliver(3, member=ANN, now_ms=0) == 3


def test_what_was_dead_before_a_restart_is_reported_at_once() -> None:
    made = machine(failures={4: 3})
    assert made.state_of(4) is State.DEAD and made.next_time_ms() == 0
    assert made.expire(0) == [Expired(4, None, Verdict.DEAD)]
    assert made.buried(4)
    assert made.cursor == Cursor(0, [(4, 5)])


def test_a_count_of_what_is_passed_over_is_forgotten() -> None:
    made = machine(failures={1: 1, 3: 1})
    made.pass_over(0, 3)
    assert made.take_changes() == Changes(position=3, ranges=(), failures={1: 0}, whole=False)
    assert made.failures == {3: 1}


def test_rules_are_those_of_the_subscription() -> None:
    settings = {"ack_timeout_ms": "7", "max_deliveries": "8", "backoff_ms": "9", "backoff_ms_max": "10"}
    config = SubscriptionConfig.read("workers", "orders", settings)
    assert Rules.of(config) == Rules(ack_timeout_ms=7, max_deliveries=8, backoff_ms=9, backoff_ms_max=10)


def test_nothing_leads_out_of_done_and_everything_leads_to_it() -> None:
    reachable = {State.DONE}
    for _ in State:
        reachable |= {
            state
            for state, events in TRANSITIONS.items()
            if any(targets & reachable for targets in events.values())
        }
    assert TRANSITIONS[State.DONE] == {}
    assert reachable == set(State)


def test_it_shows_where_it_stands() -> None:
    assert repr(with_one()) == "<PartitionMachine <Cursor 0>, 1 in flight, 1 unacked>"


# ---- transactions


def pending_one(offset: int = 0, *, failures: dict[int, int] | None = None) -> PartitionMachine:
    """A machine with one message that an open transaction acknowledges."""
    made = machine(failures=failures or {})
    made.deliver(offset, member=ANN, now_ms=0)
    assert made.pend([offset]) == [Settled(offset, ANN)]
    return made


def test_only_messages_in_flight_with_the_members_are_locked() -> None:
    made = machine()
    for offset, member in enumerate((ANN, ANN, BOB)):
        made.deliver(offset, member=member, now_ms=0)
    assert made.locked([(0, 2)], members=[ANN], epoch=0) == [0, 1]
    assert made.locked([(2, 3), (0, 1)], members=[ANN, BOB], epoch=0) == [0, 2]
    assert made.locked([(0, 3)], members=[ANN], epoch=0) is None
    assert made.locked([(0, 1)], members=[ANN], epoch=1) is None
    assert made.locked([(0, 1)], members=[], epoch=0) is None
    assert made.locked([(0, 1 << 60)], members=[ANN], epoch=0) is None
    made.expire(RULES.ack_timeout_ms)
    assert made.locked([(0, 1)], members=[ANN], epoch=0) is None


def test_a_pending_message_has_no_lock_no_timer_and_no_member() -> None:
    made = pending_one()
    assert made.state_of(0) is State.PENDING and made.is_known(0) and not made.can_deliver(0)
    assert (made.in_flight, made.unacked, made.next_time_ms()) == (0, 1, None)
    assert made.release(ANN) == Released([], [])
    assert made.ack([(0, 1)], epoch=0) == [] and not made.lost(0) and not made.buried(0)
    assert made.nack(0, member=ANN, epoch=0, now_ms=0) is None
    assert made.deliver(0, member=BOB, now_ms=0) == 0
    assert made.pass_over(0, 1) == 0 and made.park() == []


def test_a_commit_makes_it_done_and_an_abort_ready_without_a_failure() -> None:
    made = pending_one(failures={0: 1})
    assert made.abort([0], epoch=0) == Released([0], [])
    assert made.state_of(0) is State.READY and made.failures == {0: 1}
    assert made.deliver(0, member=BOB, now_ms=0) == 2
    made.pend([0])
    assert made.commit([0], epoch=0) == [Settled(0, None)]
    assert made.take_changes() == Changes(1, (), {0: 0}, False)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_from_before_a_seek_does_not_decide_for_a_later_one(commit: bool) -> None:
    made = pending_one()
    made.seek(0)
    made.deliver(0, member=BOB, now_ms=0)
    made.pend([0])
    nothing = [] if commit else Released([], [])
    assert (made.commit([0], epoch=0) if commit else made.abort([0], epoch=0)) == nothing
    assert made.state_of(0) is State.PENDING
    assert made.commit([0], epoch=1) == [Settled(0, None)]


def test_what_was_pending_in_an_earlier_life_is_pending_unless_it_is_done() -> None:
    made = machine(2, failures={3: 1})
    made.restore_pending([1, 3])
    assert [made.state_of(offset) for offset in (1, 2, 3)] == [State.DONE, State.AVAILABLE, State.PENDING]
    made.expect_earlier(end=9, count_max=5)
    assert made.ack([(0, 4)], epoch=0) == [Settled(2, None)]


def test_a_message_whose_letter_was_undecided_in_an_earlier_life_is_dead_again_after_an_abort() -> None:
    made = machine(failures={0: 3})
    made.restore_pending([0])
    assert made.state_of(0) is State.PENDING and made.expire(0) == [] and made.count_dead([0, 1]) == 1
    assert made.abort([0], epoch=0) == Released([], [0])
    assert made.is_dead(0)
    assert made.buried(0)
