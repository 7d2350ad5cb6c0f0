"""A subscription at work, over real topics: who gets which message, and what becomes of it."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.broker.subscriptions.machine import State
from tailrace.model import BrokerError, ErrorCode

from .rig import TOPIC, Rig, play

# ---- who gets what


def test_members_with_credit_take_turns() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann, bob = rig.join(work, "ann", credit=3), rig.join(work, "bob", credit=3)
        await rig.publish(*[b"%d" % number for number in range(10)])
        await rig.turns()
        assert ann.offsets == [0, 2, 4] and bob.offsets == [1, 3, 5]
        await bob.ack(1, 5)
        await rig.turns()
        assert ann.offsets == [0, 2, 4] and bob.offsets == [1, 3, 5, 6, 7]

    play(scenario)


def test_a_delivery_says_where_it_comes_from() -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topic()
        ann = rig.join(await rig.subscribe())
        await rig.publish(b"v", key=b"k", colour="red")
        await rig.turns()
        (got,) = ann.got
        assert (got.source.topic, got.source.partition, got.count, got.epoch) == (TOPIC, 0, 1, 0)
        assert f"{got.source.id_prefix}{got.record.offset}" == f"{topic.id.hex[:12]}-0-0"
        assert (got.record.key, got.record.value) == (b"k", b"v")
        assert list(got.record.headers) == [("colour", b"red")]

    play(scenario)


def test_nothing_is_delivered_before_it_is_durable() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe())
        rig.log().hold()
        waiting = asyncio.ensure_future(rig.publish(b"v"))
        await rig.turns()
        assert ann.got == []
        rig.log().settle()
        await waiting
        await rig.turns()
        assert ann.offsets == [0]

    play(scenario)


def test_a_member_without_credit_gets_what_it_pulls() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(), credit=0)
        await rig.publish(b"a", b"b", b"c", b"d", b"e")
        await rig.turns()
        assert ann.got == []
        ann.joined().pull(2)
        await rig.turns()
        assert ann.offsets == [0, 1]
        ann.joined().pull(1)
        await rig.turns()
        assert ann.offsets == [0, 1, 2]

    play(scenario)


def test_what_was_pulled_and_has_not_come_can_be_called_off() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(), credit=0)
        ann.joined().pull(5)
        await rig.turns()
        ann.joined().stop_pull()
        await rig.publish(b"a")
        await rig.turns()
        assert ann.got == []

    play(scenario)


def test_credit_may_grow_and_shrink() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(), credit=1)
        await rig.publish(*[b"v"] * 6)
        await rig.turns()
        assert ann.offsets == [0]
        ann.joined().set_credit(3)
        await rig.turns()
        assert ann.offsets == [0, 1, 2]
        ann.joined().set_credit(1)
        await ann.ack(0)
        await rig.turns()
        assert ann.offsets == [0, 1, 2]

    play(scenario)


def test_a_recipient_that_is_closed_gets_nothing_until_it_resumes() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann, bob = rig.join(work, "ann", credit=2), rig.join(work, "bob", credit=2)
        ann.open = False
        await rig.publish(b"a", b"b", b"c", b"d")
        await rig.turns()
        assert ann.got == [] and bob.offsets == [0, 1]
        ann.open = True
        ann.joined().resume()
        await rig.turns()
        assert ann.offsets == [2, 3]

    play(scenario)


@pytest.mark.parametrize("busy", [0, 3])
def test_a_member_s_whole_credit_is_used_where_one_partition_has_all_messages(busy: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(partitions=4)
        ann = rig.join(await rig.subscribe(), credit=40)
        await rig.publish(*[b"v"] * 50, partition=busy)
        await rig.turns()
        assert ann.offsets == list(range(40))

    play(scenario)


def test_partitions_are_served_alike() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(partitions=3)
        work = await rig.subscribe()
        for partition in range(3):
            await rig.publish(*[b"v"] * 100, partition=partition)
        ann = rig.join(work, credit=30)
        await rig.turns()
        counts = [sum(each.source.partition == partition for each in ann.got) for partition in range(3)]
        assert counts == [10, 10, 10]

    play(scenario)


def test_a_long_backlog_is_delivered_in_several_turns() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        await rig.publish(*[b"v"] * 3_000)
        ann = rig.join(work, credit=2_500)
        await rig.wait_until(lambda: len(ann.got) >= 2_500)
        await rig.turns()
        assert ann.offsets == list(range(2_500))

    play(scenario)


# ---- members that leave


def test_what_a_member_held_goes_to_others_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann = rig.join(work, "ann", credit=3)
        await rig.publish(b"a", b"b", b"c")
        await rig.turns()
        bob = rig.join(work, "bob")
        ann.joined().leave()
        await rig.turns()
        assert bob.take() == [(0, 2), (1, 2), (2, 2)]
        ann.joined().leave()  # harmless
        assert [each.recipient.name for each in work.members] == ["bob"]

    play(scenario)


def test_a_member_that_leaves_by_its_own_will_has_not_failed() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=1)
        for name in ("ann", "bob", "cid"):
            inbox = rig.join(work, name)
            if name == "ann":
                await rig.publish(b"a")
            await rig.turns()
            assert inbox.take() == [(0, 1)]
            inbox.joined().leave(failed=False)
        await rig.turns()
        assert work.dead == 0 and work.unacked == 1

    play(scenario)


def test_what_a_member_gives_back_goes_to_others_at_once_and_has_not_failed() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=1, backoff_ms=1_000)
        ann = rig.join(work, "ann", credit=3)
        await rig.publish(b"a", b"b", b"c")
        await rig.turns()
        assert ann.take() == [(0, 1), (1, 1), (2, 1)]
        ann.joined().set_credit(0)
        bob = rig.join(work, "bob")
        assert ann.joined().give_back(TOPIC, 0, 0, [(1, 9)]) == 2
        assert ann.joined().held == 1
        await rig.turns()
        assert bob.take() == [(1, 1), (2, 1)]  # the clock stands still: nothing had to wait
        assert ann.joined().give_back(TOPIC, 0, 0, [(1, 9)]) == 0
        assert (work.dead, work.unacked, bob.joined().held) == (0, 3, 2)

    play(scenario)


def test_a_key_goes_on_after_its_message_was_given_back() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared")
        ann = rig.join(work, "ann")
        await rig.publish(b"a", b"b", key=b"k")
        await rig.turns()
        assert ann.take() == [(0, 1)]
        ann.joined().give_back(TOPIC, 0, 0, [(0, 1)])
        await rig.turns()
        assert ann.take() == [(0, 1)]  # once more, and before the next of its key
        await ann.ack(0)
        await rig.turns()
        assert ann.take() == [(1, 1)]

    play(scenario)


def test_giving_back_is_harmless_when_all_is_over() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann = rig.join(work, "ann")
        await rig.publish(b"a")
        await rig.turns()
        member = ann.joined()
        await rig.broker.subscriptions.delete("work")
        assert member.give_back(TOPIC, 0, 0, [(0, 1)]) == 0

    play(scenario)


def test_a_message_that_ends_its_workers_is_dead_in_the_end() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=2)
        await rig.publish(b"poison")
        for name in ("ann", "bob"):
            inbox = rig.join(work, name)
            await rig.turns()
            assert inbox.offsets == [0]
            inbox.joined().leave()
        await rig.wait_until(lambda: work.dead == 1)
        (letter,) = await rig.broker.subscriptions.dead_letters("work", 10)
        assert letter["reason"] == "bob left without settling it"
        assert letter["deliveries"] == 2

    play(scenario)


def test_messages_wait_for_a_member_when_the_last_one_has_left() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        ann.joined().leave()
        await rig.turns()
        bob = rig.join(work, "bob")
        await rig.turns()
        assert bob.take() == [(0, 2)]

    play(scenario)


# ---- settling


def test_an_acknowledged_message_is_not_delivered_again() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(ack_timeout_ms=1_000)
        ann = rig.join(work)
        await rig.publish(b"a", b"b")
        await rig.turns()
        assert await ann.ack(0) == 1
        assert await ann.ack(0) == 0
        await rig.advance(5_000)
        await rig.advance(5_000)
        assert ann.offsets == [0, 1, 1]

    play(scenario)


@pytest.mark.parametrize(("topic", "partition"), [("", 1), ("", -1), ("other", 0), ("work.dlq", 0)])
def test_settling_in_a_partition_that_is_not_delivered_from_is_refused(topic: str, partition: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe())
        for settle in (ann.ack_nowait, ann.nack):
            with pytest.raises(BrokerError, match="does not deliver from") as refused:
                settle(0, topic=topic, partition=partition)
            assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scenario)


def test_a_message_that_is_not_settled_in_time_comes_again_later_each_time() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(ack_timeout_ms=1_000, backoff_ms=100, backoff_ms_max=150)
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        assert ann.take() == [(0, 1)]
        for count, backoff_ms in ((2, 100), (3, 150), (4, 150)):
            await rig.advance(999)
            assert work.partitions[0].machine.state_of(0) is State.IN_FLIGHT
            await rig.advance(1)
            assert work.partitions[0].machine.state_of(0) is State.WAITING
            await rig.advance(backoff_ms - 1)
            assert ann.take() == []
            await rig.advance(1)
            assert ann.take() == [(0, count)]

    play(scenario)


def test_locks_and_back_offs_end_by_themselves() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(ack_timeout_ms=20, backoff_ms=10))
        await rig.publish(b"a")
        await rig.turns()
        rig.clock.advance(20)
        await rig.wait_until(lambda: ann.joined().held == 0)  # nobody wakes it but its own timer
        rig.clock.advance(10)
        await rig.wait_until(lambda: len(ann.got) == 2)

    play(scenario)


def test_a_back_off_that_ends_before_the_locks_ends_by_itself() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(ack_timeout_ms=300_000))
        await rig.publish(b"a", b"b")
        await rig.turns()  # the timer is set for the locks
        assert ann.nack(1, delay_ms=20) == 1
        await rig.turns()
        rig.clock.advance(20)
        await rig.wait_until(lambda: ann.has(3))  # only the timer wakes it

    play(scenario)


def test_a_lock_that_is_extended_holds_longer() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(ack_timeout_ms=1_000, backoff_ms=0, backoff_ms_max=0)
        ann = rig.join(work)
        await rig.publish(b"a", b"b")
        await rig.turns()
        assert ann.extend(0, 7, extend_ms=5_000) == 1
        assert ann.extend(0, extend_ms=5_000, epoch=3) == 0
        await rig.advance(1_500)
        assert ann.take() == [(0, 1), (1, 1), (1, 2)]
        await rig.advance(3_500)
        assert (0, 2) in ann.take()

    play(scenario)


def test_a_refused_message_waits_as_long_as_the_member_said() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(backoff_ms=5_000))
        await rig.publish(b"a", b"b")
        await rig.turns()
        ann.got.clear()
        assert ann.nack(0, delay_ms=200) == 1
        assert ann.nack(1) == 1
        assert ann.nack(0, 1) == 0  # they are not with her any more
        await rig.advance(199)
        assert ann.take() == []
        await rig.advance(1)
        assert ann.take() == [(0, 2)]
        await rig.advance(4_800)
        assert ann.take() == [(1, 2)]

    play(scenario)


def test_only_who_holds_a_message_may_refuse_or_extend_it() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann, bob = rig.join(work, "ann"), rig.join(work, "bob")
        await rig.publish(b"a")
        await rig.turns()
        assert bob.nack(0) == 0 and bob.extend(0, extend_ms=1) == 0
        assert await bob.ack(0) == 1  # who processed it may say so
        assert ann.joined().held == 0

    play(scenario)


def test_an_acknowledgement_that_comes_late_still_counts() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(ack_timeout_ms=100, backoff_ms=1_000)
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        await rig.advance(100)
        assert work.partitions[0].machine.state_of(0) is State.WAITING
        assert await ann.ack(0) == 1
        await rig.advance(10_000)
        assert ann.take() == [(0, 1)]

    play(scenario)


def test_late_acknowledgements_do_not_keep_new_messages_from_a_member_with_room() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann, bob = rig.join(work, "ann", credit=5), rig.join(work, "bob", credit=5)
        await rig.publish(*[b"v"] * 20)
        await rig.turns()
        first = bob.offsets
        bob.joined().leave()  # nobody has room for what she had
        await rig.turns()
        assert await ann.ack(*first) == 5  # processed after all
        await ann.ack(*ann.offsets)
        await rig.turns()
        assert ann.offsets[5:] == [10, 11, 12, 13, 14]

    play(scenario)


def test_failed_deliveries_are_durable_without_anybody_acknowledging() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann = rig.join(work)
        before = sum(log.end_offset for log in rig.cursor_logs())
        await rig.publish(b"a")
        await rig.turns()
        ann.nack(0)
        await rig.turns()
        assert sum(log.end_offset for log in rig.cursor_logs()) == before + 1

    play(scenario)
