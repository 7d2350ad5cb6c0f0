"""Who gets which message: turns, room, failover, keys and priorities; members and messages are made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from tailrace.broker.subscriptions.definition import SubscriptionConfig
from tailrace.broker.subscriptions.dispatch import (
    OLDEST_EVERY,
    Dispatch,
    FailoverDispatch,
    FifoReady,
    KeySharedDispatch,
    PriorityReady,
    SharedDispatch,
    make_dispatch,
)

MANY = 1 << 30


@dataclass(eq=False)
class Taker:
    """A member with room for so many messages, who counts how often it is asked."""

    id: int
    room: int = MANY
    asked: int = 0

    def has_room(self) -> bool:
        self.asked += 1
        return self.room > 0


@dataclass(eq=False)
class Message:
    """A message that shows as its number."""

    number: int
    key: bytes | None = None
    priority: int = 4


Pairs = list[tuple[int, int]]


def drain(dispatch: Dispatch[Taker, Message], *, most: int = MANY) -> Pairs:
    """Everything that can be given out: (member, message), taking up room."""
    pairs: Pairs = []
    while len(pairs) < most and (found := dispatch.next()) is not None:
        member, message = found
        member.room -= 1
        pairs.append((member.id, message.number))
    return pairs


def put(dispatch: Dispatch[Taker, Message], numbers: Iterable[int], *, again: bool = False) -> None:
    for number in numbers:
        dispatch.put(Message(number), again=again)


def shared(*members: Taker) -> SharedDispatch[Taker, Message]:
    made: SharedDispatch[Taker, Message] = SharedDispatch(FifoReady())
    for member in members:
        made.add(member)
    return made


def keyed(*members: Taker) -> KeySharedDispatch[Taker, Message]:
    made: KeySharedDispatch[Taker, Message] = KeySharedDispatch()
    for member in members:
        made.add(member)
    return made


# ---- every kind


def every_kind() -> list[Dispatch[Taker, Message]]:
    return [
        make_dispatch(SubscriptionConfig.read("workers", "orders", settings))
        for settings in (
            {},
            {"priority": "true"},
            {"mode": "exclusive"},
            {"mode": "failover", "priority": "true"},
            {"mode": "key_shared"},
        )
    ]


def test_settings_choose_the_kind() -> None:
    kinds = [type(each) for each in every_kind()]
    assert kinds == [
        SharedDispatch,
        SharedDispatch,
        FailoverDispatch,
        FailoverDispatch,
        KeySharedDispatch,
    ]
    assert isinstance(every_kind()[1]._messages, PriorityReady)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("key", [None, b"", b"k"])
def test_a_message_waits_for_a_member_and_a_member_for_room(kind: int, key: bytes | None) -> None:
    dispatch, member = every_kind()[kind], Taker(1, room=0)
    dispatch.put(Message(7, key), again=False)
    assert dispatch.next() is None and len(dispatch) == 1
    dispatch.add(member)
    assert dispatch.next() is None and len(dispatch) == 1
    member.room = 1
    dispatch.ready(member)
    assert drain(dispatch) == [(1, 7)] and len(dispatch) == 0


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("key", [None, b"k"])
def test_who_left_gets_nothing_more(kind: int, key: bytes | None) -> None:
    dispatch, gone, stays = every_kind()[kind], Taker(1), Taker(2)
    for member in (gone, stays):
        dispatch.add(member)
    dispatch.put(Message(7, key), again=False)
    dispatch.remove(gone)
    dispatch.remove(gone)
    dispatch.ready(gone)
    assert drain(dispatch) == [(2, 7)]
    assert dispatch.next() is None


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("key", [None, b"k"])
def test_discarded_messages_are_forgotten_and_the_others_stay(kind: int, key: bytes | None) -> None:
    dispatch = every_kind()[kind]
    for number in range(6):
        dispatch.put(Message(number, key), again=False)
    assert dispatch.discard(lambda message: message.number != 3) == 5
    assert dispatch.discard(lambda message: message.number != 3) == 0
    assert len(dispatch) == 1
    dispatch.add(Taker(1))
    assert drain(dispatch) == [(1, 3)]


@pytest.mark.parametrize("kind", range(5))
def test_redeliveries_go_before_new_messages_and_in_their_own_order(kind: int) -> None:
    dispatch = every_kind()[kind]
    put(dispatch, [5, 6])
    put(dispatch, [1, 2], again=True)
    dispatch.add(Taker(1))
    assert [number for _, number in drain(dispatch)] == [1, 2, 5, 6]


# ---- shared


def test_members_take_turns() -> None:
    dispatch = shared(Taker(1), Taker(2), Taker(3))
    put(dispatch, range(7))
    assert drain(dispatch) == [(1, 0), (2, 1), (3, 2), (1, 3), (2, 4), (3, 5), (1, 6)]


def test_who_has_no_room_is_left_out_until_it_has() -> None:
    slow, quick = Taker(1, room=1), Taker(2)
    dispatch = shared(slow, quick)
    put(dispatch, range(4))
    assert drain(dispatch) == [(1, 0), (2, 1), (2, 2), (2, 3)]
    slow.room = 1
    dispatch.ready(slow)
    put(dispatch, [4, 5])
    assert drain(dispatch) == [(2, 4), (1, 5)]


def test_a_thousand_members_without_room_are_asked_once() -> None:
    slow = [Taker(number, room=0) for number in range(1_000)]
    dispatch = shared(*slow, Taker(5_000))
    put(dispatch, range(500))
    assert len(drain(dispatch)) == 500
    assert {member.asked for member in slow} == {1}


def test_being_ready_twice_gives_no_second_turn() -> None:
    first, second = Taker(1, room=0), Taker(2)
    dispatch = shared(first, second)
    put(dispatch, [0])
    drain(dispatch)
    first.room = MANY
    for _ in range(3):
        dispatch.ready(first)
    put(dispatch, range(1, 5))
    assert Counter(member for member, _ in drain(dispatch)) == {1: 2, 2: 2}


def test_nobody_is_asked_while_there_is_no_message() -> None:
    member = Taker(1)
    assert shared(member).next() is None
    assert member.asked == 0


# ---- failover


def test_the_first_takes_everything_and_the_next_when_it_leaves() -> None:
    dispatch: FailoverDispatch[Taker, Message] = FailoverDispatch(FifoReady())
    first, second = Taker(9), Taker(2)
    dispatch.add(first)
    dispatch.add(second)
    put(dispatch, range(3))
    assert drain(dispatch, most=2) == [(9, 0), (9, 1)]
    dispatch.remove(first)
    put(dispatch, [0, 1], again=True)
    assert drain(dispatch) == [(2, 0), (2, 1), (2, 2)]


def test_the_second_does_not_help_out() -> None:
    dispatch: FailoverDispatch[Taker, Message] = FailoverDispatch(FifoReady())
    dispatch.add(Taker(1, room=0))
    dispatch.add(Taker(2))
    put(dispatch, [0])
    assert dispatch.next() is None


# ---- priorities


def pick(ready: PriorityReady[Message], count: int) -> list[int]:
    return [ready.pop().number for _ in range(count)]


def test_the_highest_priority_goes_first_and_equal_ones_by_arrival() -> None:
    ready: PriorityReady[Message] = PriorityReady()
    for number, priority in enumerate([4, 9, 0, 9, 5, 4]):
        ready.put(Message(number, priority=priority), again=False)
    assert pick(ready, 6) == [1, 3, 4, 0, 5, 2]


def test_a_redelivery_goes_before_new_ones_of_its_priority_only() -> None:
    ready: PriorityReady[Message] = PriorityReady()
    ready.put(Message(0, priority=5), again=False)
    ready.put(Message(1, priority=9), again=False)
    ready.put(Message(2, priority=5), again=True)
    assert pick(ready, 3) == [1, 2, 0]


@pytest.mark.parametrize(("priority", "place"), [(-5, 1), (100, 0)])
def test_a_priority_out_of_bounds_is_the_nearest(priority: int, place: int) -> None:
    ready: PriorityReady[Message] = PriorityReady()
    ready.put(Message(0, priority=4), again=False)
    ready.put(Message(1, priority=priority), again=False)
    assert pick(ready, 2).index(1) == place


def test_every_eighth_pick_is_the_oldest() -> None:
    ready: PriorityReady[Message] = PriorityReady()
    for number in range(3):
        ready.put(Message(number, priority=0), again=False)
    for number in range(100, 130):
        ready.put(Message(number, priority=9), again=False)
    picked = pick(ready, 3 * OLDEST_EVERY)
    assert [picked.index(number) + 1 for number in range(3)] == [8, 16, 24]


def test_under_a_stream_of_urgent_messages_nothing_starves() -> None:
    ready: PriorityReady[Message] = PriorityReady()
    found = 20
    for number in range(found):
        ready.put(Message(number + 1, priority=0), again=False)
    ready.put(Message(0, priority=0), again=False)
    for picks in range(1, OLDEST_EVERY * (found + 1) + 1):
        ready.put(Message(1_000 + picks, priority=9), again=picks % 3 == 0)
        if ready.pop().number == 0:
            break
    else:
        pytest.fail("it was never picked")
    assert picks == OLDEST_EVERY * (found + 1)


# ---- keys


def test_a_key_goes_one_at_a_time_and_in_order() -> None:
    dispatch = keyed(Taker(1), Taker(2))
    for number in range(3):
        dispatch.put(Message(number, b"k"), again=False)
    for number in range(3):
        assert [each for _, each in drain(dispatch)] == [number]
        dispatch.settle(b"k")
    assert dispatch.next() is None and len(dispatch) == 0


def test_a_key_stays_with_its_member() -> None:
    dispatch = keyed(*(Taker(number) for number in range(5)))
    owners = set()
    for number in range(20):
        dispatch.put(Message(number, b"k"), again=False)
        owners.add(drain(dispatch)[0][0])
        dispatch.settle(b"k")
    assert len(owners) == 1


def test_a_redelivery_goes_before_the_others_of_its_key() -> None:
    dispatch = keyed(Taker(1), Taker(2))
    for number in range(3):
        dispatch.put(Message(number, b"k"), again=False)
    assert [number for _, number in drain(dispatch)] == [0]
    dispatch.put(Message(0, b"k"), again=True)
    assert len(dispatch) == 3
    assert [number for _, number in drain(dispatch)] == [0]
    dispatch.settle(b"k")
    assert [number for _, number in drain(dispatch)] == [1]


def test_a_redelivery_that_is_settled_while_it_waits_here_is_gone() -> None:
    dispatch, member = keyed(), Taker(1)
    dispatch.put(Message(1, b"k"), again=False)
    dispatch.put(Message(0, b"k"), again=True)
    dispatch.settle(b"k")
    assert len(dispatch) == 1
    dispatch.add(member)
    assert drain(dispatch) == [(1, 1)]


def test_the_last_of_a_key_that_is_settled_while_it_waits_leaves_nothing() -> None:
    dispatch = keyed(Taker(1))
    dispatch.put(Message(0, b"k"), again=True)
    dispatch.settle(b"k")
    assert len(dispatch) == 0 and dispatch.next() is None
    dispatch.put(Message(1, b"k"), again=False)
    assert drain(dispatch) == [(1, 1)]


def test_settling_what_is_not_out_changes_nothing() -> None:
    dispatch = keyed(Taker(1))
    dispatch.put(Message(0, b"k"), again=False)
    for key in (b"other", None, b"k"):
        dispatch.settle(key)
    assert len(dispatch) == 1
    assert drain(dispatch) == [(1, 0)]


def test_one_key_does_not_hold_up_another() -> None:
    dispatch = keyed(Taker(1))
    for number, key in enumerate([b"a", b"a", b"b", b"c"]):
        dispatch.put(Message(number, key), again=False)
    assert sorted(number for _, number in drain(dispatch)) == [0, 2, 3]


def test_messages_without_a_key_take_turns_with_the_others() -> None:
    dispatch = keyed(Taker(1), Taker(2))
    for number in range(10):
        dispatch.put(Message(number, b"%d" % number), again=False)
        dispatch.put(Message(100 + number), again=False)
    pairs = drain(dispatch, most=10)
    without = [member for member, number in pairs if number >= 100]
    assert Counter(without) in ({1: 3, 2: 2}, {1: 2, 2: 3})


def test_all_keys_of_a_member_who_leaves_go_to_the_others_and_no_others_move() -> None:
    members = {number: Taker(number) for number in range(4)}
    dispatch = keyed(*members.values())
    keys = [b"key %d" % number for number in range(200)]

    def owners() -> dict[int, int]:
        for number, key in enumerate(keys):
            dispatch.put(Message(number, key), again=False)
        found = {number: member for member, number in drain(dispatch)}
        for key in keys:
            dispatch.settle(key)
        return found

    before = owners()
    assert set(before.values()) == {0, 1, 2, 3}
    dispatch.remove(members[2])
    without = owners()
    assert {number for number in before if before[number] != without[number]} == {
        number for number, member in before.items() if member == 2
    }
    dispatch.add(members[2])
    assert owners() == before


def test_members_have_even_shares_of_the_slots() -> None:
    dispatch = keyed(*(Taker(number) for number in range(1, 6)))
    shares = Counter(dispatch._owner(slot) for slot in range(4096))
    assert all(600 < share < 1040 for share in shares.values()), shares  # eight times the deviation of chance


def test_keys_that_wait_move_to_a_member_who_joins() -> None:
    full, free = Taker(1, room=0), Taker(2)
    dispatch = keyed(full)
    for number in range(100):
        dispatch.put(Message(number, b"key %d" % number), again=False)
    assert dispatch.next() is None
    dispatch.add(free)
    moved = drain(dispatch)
    assert 0 < len(moved) < 100 and len(dispatch) == 100 - len(moved)
    dispatch.remove(full)
    assert len(drain(dispatch)) == 100 - len(moved)


def test_a_key_whose_message_is_out_waits_though_its_member_changed() -> None:
    first = Taker(1)
    dispatch = keyed(first)
    for number in range(2):
        dispatch.put(Message(number, b"k"), again=False)
    drain(dispatch)
    for number in range(2, 12):
        dispatch.add(Taker(number))
    dispatch.remove(first)
    assert dispatch.next() is None
    dispatch.put(Message(0, b"k"), again=True)
    assert [number for _, number in drain(dispatch)] == [0]


def test_after_a_discard_the_rest_of_a_key_goes_on() -> None:
    dispatch = keyed(Taker(1))
    dispatch.put(Message(0, b"k"), again=False)
    drain(dispatch)
    dispatch.put(Message(0, b"k"), again=True)
    dispatch.put(Message(1, b"k"), again=False)
    assert dispatch.discard(lambda message: message.number == 0) == 1
    dispatch.settle(b"k")
    assert [number for _, number in drain(dispatch)] == [1]


def test_keys_that_are_over_are_forgotten() -> None:
    dispatch = keyed(Taker(1))
    for number in range(1_000):
        dispatch.put(Message(number, b"key %d" % number), again=False)
    for _, number in drain(dispatch):
        dispatch.settle(b"key %d" % number)
    assert not dispatch._lines and not dispatch._turns


def test_owners_without_room_are_asked_once_for_their_keys() -> None:
    slow = [Taker(number, room=0) for number in range(50)]
    dispatch = keyed(*slow)
    for number in range(500):
        dispatch.put(Message(number, b"key %d" % number), again=False)
    for _ in range(100):
        assert dispatch.next() is None
    assert max(member.asked for member in slow) <= 1
