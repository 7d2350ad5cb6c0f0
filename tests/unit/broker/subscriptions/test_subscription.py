"""A subscription at work, over real topics: who gets which message, and what becomes of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tailrace.broker.subscriptions import Start
from tailrace.broker.subscriptions.delivery import Delivery, Notice
from tailrace.broker.subscriptions.machine import State
from tailrace.model import BrokerError, ErrorCode

from .rig import COLD, TOPIC, Inbox, Rig, make_cold, play, play_lives

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


# ---- bounds


def test_at_unacked_max_deliveries_pause_and_go_on() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(unacked_max=3)
        ann = rig.join(work)
        await rig.publish(b"a", b"b", b"c", b"d", b"e")
        await rig.turns()
        assert ann.offsets == [0, 1, 2]
        assert ann.events == ["paused"] and "unacked_max" in ann.notices[0].reason
        assert work.paused
        await ann.ack(0, 1, 2)
        await rig.turns()
        assert ann.offsets == [0, 1, 2, 3, 4]
        assert ann.events == ["paused", "resumed"] and not work.paused

    play(scenario)


def test_members_are_not_told_of_a_pause_with_every_message() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(unacked_max=20))
        await rig.publish(*[b"v"] * 200)
        for offset in range(150):
            await rig.turns(5)
            await ann.ack(offset)
        await rig.turns()
        assert ann.offsets == list(range(170)) and ann.events == ["paused"]
        await ann.ack(*range(150, 170))
        await rig.turns()
        await ann.ack(*range(170, 190))
        await rig.turns()
        assert len(ann.got) == 200 and ann.events == ["paused", "resumed"]

    play(scenario)


def test_redeliveries_and_new_messages_together_use_all_of_unacked_max() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(unacked_max=10)
        ann = rig.join(work, "ann", credit=6)
        await rig.publish(*[b"v"] * 20)
        await rig.turns()
        ann.joined().leave()
        await rig.turns()
        bob = rig.join(work, "bob", credit=100)
        await rig.turns()
        assert bob.offsets == list(range(10))

    play(scenario)


def test_a_full_retry_buffer_pauses_what_is_new_and_nothing_is_lost() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(ack_timeout_ms=1_000, backoff_ms=0, backoff_ms_max=0)
        ann = rig.join(work, credit=1_000)
        big = bytes(1_000_000)
        for _ in range(12):
            await rig.publish(big)
        await rig.turns()
        taken = len(ann.got)
        assert taken < 12 and work.retained_bytes >= 8 << 20
        assert ann.events == ["paused"] and "retry buffer" in ann.notices[0].reason
        await rig.advance(1_000)  # those that she has can still come again
        assert ann.offsets[taken:] == ann.offsets[:taken]
        await ann.ack(*range(taken))
        await rig.turns()
        assert ann.offsets[2 * taken :] == list(range(taken, 12)) and "resumed" in ann.events

    play(scenario)


def test_a_turn_does_not_gather_more_bytes_than_the_retry_buffer_may_hold() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        big = bytes(1_000_000)
        for _ in range(30):
            await rig.publish(big)
        ann = rig.join(work, credit=1_000)
        await rig.turns()
        assert len(ann.got) <= 10

    play(scenario)


def test_what_is_looked_at_ahead_is_bounded_in_bytes() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared")
        for _ in range(30):
            await rig.publish(bytes(1_000_000), key=b"k")
        ann = rig.join(work)
        await rig.turns()
        assert ann.offsets == [0] and len(work._dispatch) <= 11
        await work.seek(Start.parse("earliest"))
        for offset in range(30):
            await rig.wait_until(partial(ann.has, offset + 2))
            assert len(work._dispatch) <= 11
            await ann.ack(offset, epoch=1)
        assert ann.offsets == [0, *range(30)] and work._ahead_bytes == 0

    play(scenario)


def test_a_ring_that_forgets_does_not_lose_what_members_hold() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(memory_max_messages="5")
        work = await rig.subscribe(ack_timeout_ms=1_000, backoff_ms=0, backoff_ms_max=0)
        ann = rig.join(work, credit=3)
        for number in range(20):
            await rig.publish(b"%d" % number)
            await rig.turns(3)
        assert ann.offsets == [0, 1, 2] and rig.partition().start_offset == 15
        await rig.advance(1_000)
        assert ann.values[3:] == [b"0", b"1", b"2"]
        await ann.ack(0, 1, 2)
        await rig.turns()
        assert ann.offsets[6:] == [15, 16, 17]
        assert ann.notices == [
            Notice(
                event="skipped",
                partition=0,
                count=12,
                reason="gone from the log before they were delivered",
            )
        ]

    play(scenario)


def test_many_acknowledged_behind_one_that_is_stuck_take_no_memory() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(ack_timeout_ms=604_800_000)
        ann = rig.join(work, credit=5_000)
        done = 0
        while done < 40_000:
            await rig.publish(*[b"v"] * 4_000)
            await rig.wait_until(lambda: len(ann.got) >= 4_000)
            first, last = ann.got[0].record.offset, ann.got[-1].record.offset
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ann.joined().ack("", 0, 0, [(max(first, 1), last + 1)], waiter)
            await waiter
            done += len(ann.got)
            ann.got.clear()
        cursor = work.partitions[0].machine.cursor
        assert cursor.position == 0 and list(cursor.beyond) == [(1, 40_000)]
        assert work.unacked == 1 and work.retained_bytes < 1_000
        assert sys.getsizeof(cursor.beyond._bounds) < 1_000

    play(scenario)


# ---- modes


def test_an_exclusive_subscription_refuses_the_second_member() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="exclusive")
        ann = rig.join(work, "ann")
        with pytest.raises(BrokerError, match="exclusive and ann has it"):
            rig.join(work, "bob")
        ann.joined().leave()
        bob = rig.join(work, "bob")
        await rig.publish(b"a")
        await rig.turns()
        assert bob.offsets == [0]

    play(scenario)


def test_failover_goes_to_the_next_member_when_the_first_leaves() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="failover")
        ann, bob = rig.join(work, "ann", credit=2), rig.join(work, "bob")
        await rig.publish(b"a", b"b", b"c", b"d")
        await rig.turns()
        assert ann.offsets == [0, 1] and bob.got == []
        ann.joined().leave()
        await rig.turns()
        assert bob.offsets == [0, 1, 2, 3]

    play(scenario)


def test_messages_of_one_key_come_one_at_a_time_and_in_order() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared", backoff_ms=100, ack_timeout_ms=1_000)
        members = [rig.join(work, "ann"), rig.join(work, "bob")]
        await rig.publish_keys((b"k", b"0"), (b"k", b"1"), (b"other", b"2"), (b"k", b"3"))
        await rig.turns()
        holder = next(each for each in members if 0 in each.offsets)
        assert sorted(offset for each in members for offset in each.offsets) == [0, 2]
        holder.nack(0)
        await rig.advance(99)
        assert 1 not in holder.offsets  # it waits for the one before it
        await rig.advance(1)
        await holder.ack(0)
        await rig.turns()
        await holder.ack(1)
        await rig.turns()
        assert [each.record.offset for each in holder.got if each.record.key == b"k"] == [0, 0, 1, 3]

    play(scenario)


def test_a_key_goes_on_after_its_message_is_dead() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared", max_deliveries=1)
        ann = rig.join(work)
        await rig.publish_keys((b"k", b"0"), (b"k", b"1"))
        await rig.turns()
        ann.nack(0)
        await rig.wait_until(lambda: ann.offsets == [0, 1])
        assert work.dead == 1

    play(scenario)


def test_a_key_goes_on_with_another_member_when_its_member_leaves() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared")
        members = [rig.join(work, "ann"), rig.join(work, "bob")]
        await rig.publish_keys((b"k", b"0"), (b"k", b"1"))
        await rig.turns()
        holder, other = members if members[0].got else reversed(members)
        holder.joined().leave()
        await rig.turns()
        assert holder.offsets == [0] and other.take() == [(0, 2)]
        await other.ack(0)
        await rig.turns()
        assert other.take() == [(1, 1)]

    play(scenario)


def test_a_key_goes_on_after_a_late_acknowledgement() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared", ack_timeout_ms=100, backoff_ms=1_000)
        ann = rig.join(work)
        await rig.publish_keys((b"k", b"0"), (b"k", b"1"))
        await rig.turns()
        await rig.advance(100)
        await ann.ack(0)
        await rig.turns()
        assert ann.take() == [(0, 1), (1, 1)]

    play(scenario)


def test_messages_without_a_key_go_to_anybody() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared")
        ann, bob = rig.join(work, "ann"), rig.join(work, "bob")
        await rig.publish(*[b"v"] * 10)
        await rig.turns()
        assert len(ann.got) == len(bob.got) == 5

    play(scenario)


def test_urgent_messages_go_first_and_nothing_starves() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(priority="true")
        await rig.publish(b"low", priority="0")
        for _ in range(30):
            await rig.publish(b"normal")
        await rig.publish(b"high", priority="9")
        await rig.publish(b"odd", priority="often")
        ann = rig.join(work, credit=1)
        for count in range(1, 34):
            await rig.wait_until(partial(ann.has, count))
            await ann.ack(ann.got[-1].record.offset)
        order = ann.values
        assert order[0] == b"high"
        assert order.index(b"low") == 7  # the eighth pick is the oldest

    play(scenario)


def test_priority_looks_a_thousand_messages_ahead() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(priority="true")
        await rig.publish(*[b"normal"] * 900)
        await rig.publish(b"high", priority="9")
        ann = rig.join(work, credit=1)
        await rig.turns()
        await ann.ack(*ann.offsets)
        await rig.turns()
        assert b"high" in ann.values[:2]

    play(scenario)


def test_partitions_are_merged_by_time() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(partitions=3)
        work = await rig.subscribe(order="timestamp")
        for number in range(12):
            await rig.publish(b"%d" % number, partition=number * 7 % 3)
            rig.clock.advance(1)
        ann = rig.join(work, credit=5)
        await rig.turns()
        await rig.wait_until(lambda: len(ann.got) == 5)
        for each in list(ann.got):
            await ann.ack(each.record.offset, partition=each.source.partition)
        await rig.turns()
        ann.joined().set_credit(100)
        await rig.turns()
        assert ann.values == [b"%d" % number for number in range(12)]

    play(scenario)


def test_partitions_are_merged_by_time_also_where_they_come_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cold(monkeypatch)

    async def before(rig: Rig) -> None:
        await rig.topic(partitions=3)
        await rig.subscribe(order="timestamp")
        for number in range(60):
            await rig.publish(b"%d" % number + bytes(50_000), partition=number % 3)
            rig.clock.advance(1)

    async def after(rig: Rig) -> None:
        work = rig.broker.subscriptions.known("work")
        ann = rig.join(work)
        await rig.wait_until(lambda: len(ann.got) == 60)
        assert [each.record.timestamp for each in ann.got] == sorted(
            each.record.timestamp for each in ann.got
        )

    play_lives(tmp_path, before, after, config=COLD)


# ---- at most once


def test_at_most_once_a_message_leaves_when_the_cursor_past_it_is_durable() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(delivery="at_most_once")
        ann = rig.join(work)
        for log in rig.cursor_logs():
            log.hold()
        await rig.publish(b"a")
        await rig.turns()
        assert ann.got == []
        for log in rig.cursor_logs():
            log.settle()
        await rig.turns()
        assert ann.take() == [(0, 1)]
        assert work.unacked == 0 and work.partitions[0].machine.cursor.position == 1

    play(scenario)


def test_at_most_once_no_more_is_passed_than_a_member_may_hold_while_the_cursor_is_written() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(delivery="at_most_once")
        await rig.publish(*[b"v"] * 3_000)
        for log in rig.cursor_logs():
            log.hold()
        ann = rig.join(work, credit=10)
        await rig.turns()
        assert work.partitions[0].machine.cursor.position == 10
        for log in rig.cursor_logs():
            log.settle()
        await rig.wait_until(lambda: len(ann.got) == 3_000)
        assert ann.offsets == list(range(3_000))

    play(scenario)


def test_at_most_once_what_could_not_be_stored_is_not_delivered() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(delivery="at_most_once")
        ann = rig.join(work, credit=1)
        for log in rig.cursor_logs():
            log.refusal = BrokerError("full", code=ErrorCode.KAFKA_STORAGE_ERROR)
        await rig.publish(b"a")
        await rig.turns()
        for log in rig.cursor_logs():
            log.refusal = None
        await rig.publish(b"b")
        await rig.turns()
        assert ann.values == [b"b"]

    play(scenario)


def test_at_most_once_a_key_does_not_wait_for_anybody() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(delivery="at_most_once", mode="key_shared"))
        await rig.publish_keys(*[(b"k", b"%d" % number) for number in range(5)])
        await rig.turns()
        assert ann.values == [b"0", b"1", b"2", b"3", b"4"]

    play(scenario)


def test_at_most_once_a_member_that_leaves_takes_its_messages_with_it() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(delivery="at_most_once")
        ann = rig.join(work, "ann")
        await rig.publish(b"a", b"b")
        await rig.turns()
        bob = rig.join(work, "bob")
        ann.joined().leave()
        await rig.turns()
        assert ann.offsets == [0, 1] and bob.got == []

    play(scenario)


# ---- time to live


def test_a_message_whose_time_is_over_is_passed_over() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        await rig.publish(b"short", ttl_ms="100")
        await rig.publish(b"long", ttl_ms="1000")
        await rig.publish(b"odd", ttl_ms="soon")
        await rig.publish(b"plain")
        rig.clock.advance(101)
        ann = rig.join(work)
        await rig.turns()
        assert ann.values == [b"long", b"odd", b"plain"]
        await ann.ack(1, 2, 3)
        (partition,) = work.partitions
        assert partition.expired == 1 and partition.machine.cursor.position == 4

    play(scenario)


def test_a_message_whose_time_ends_before_it_comes_again_is_passed_over() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared")
        ann = rig.join(work)
        await rig.publish(b"short", key=b"k", ttl_ms="100")
        await rig.publish(b"plain", key=b"k")
        await rig.turns()
        ann.nack(0, delay_ms=101)
        await rig.advance(101)
        assert ann.values == [b"short", b"plain"]
        (partition,) = work.partitions
        assert partition.expired == 1 and work.unacked == 1 and partition.machine.cursor.position == 1

    play(scenario)


# ---- seek


def test_a_seek_begins_anew_in_another_epoch() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann = rig.join(work, credit=2)
        await rig.publish(b"a", b"b", b"c")
        await rig.turns()
        assert await work.seek(Start.parse("earliest")) == 1
        await rig.turns()
        assert [(each.record.offset, each.epoch, each.count) for each in ann.got[2:]] == [
            (0, 1, 1),
            (1, 1, 1),
        ]
        assert ann.events == ["seek"]
        assert await ann.ack(0, 1, epoch=0) == 0  # spoken of the deliveries before
        assert ann.nack(0, epoch=0) == 0
        assert work.unacked == 2
        assert await ann.ack(0, 1, epoch=1) == 2
        await rig.turns()
        assert ann.offsets == [0, 1, 0, 1, 2]

    play(scenario)


@pytest.mark.parametrize(("to", "first"), [("latest", 10), ("offset:4", 4), ("time:1750000000005", 5)])
def test_a_seek_goes_where_it_is_told(to: str, first: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        for _ in range(10):
            await rig.publish(b"v")
            rig.clock.advance(1)
        await work.seek(Start.parse(to))
        ann = rig.join(work)
        await rig.publish(b"new")
        await rig.turns()
        assert ann.offsets == list(range(first, 11))

    play(scenario)


def test_a_seek_may_concern_one_partition() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(partitions=2)
        work = await rig.subscribe(order="timestamp")
        ann = rig.join(work)
        for partition in range(2):
            await rig.publish(b"v", partition=partition)
        await rig.turns()
        ann.got.clear()
        await work.seek(Start.parse("earliest"), 1)
        await rig.turns()
        assert [each.source.partition for each in ann.got] == [1]
        assert [each.machine.epoch for each in work.partitions] == [0, 1]
        assert ann.notices == [Notice(event="seek", partition=1)]

    play(scenario)


@pytest.mark.parametrize("partition", [2, -1])
def test_a_seek_in_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(partitions=2)
        work = await rig.subscribe()
        with pytest.raises(BrokerError, match="does not deliver from"):
            await work.seek(Start.parse("earliest"), partition)

    play(scenario)


def test_a_seek_past_the_end_is_refused_and_changes_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(partitions=2)
        work = await rig.subscribe()
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        with pytest.raises(BrokerError, match="is not in the log"):
            await work.seek(Start.parse("offset:1"))
        assert [each.machine.epoch for each in work.partitions] == [0, 0]
        assert await ann.ack(0) == 1

    play(scenario)


def test_what_was_at_hand_before_a_seek_does_not_come_first_after_it() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(partitions=2)
        work = await rig.subscribe(order="timestamp")
        for partition in (1, 1, 0, 1, 0):
            await rig.publish(b"v", partition=partition)
            rig.clock.advance(1)
        ann = rig.join(work, credit=1)
        await rig.turns()
        for count in (1, 2):
            await ann.ack(ann.offsets[-1], partition=1)
            await rig.wait_until(partial(ann.has, count + 1))
        await work.seek(Start.parse("earliest"), 1)  # while the third of partition 1 is next
        await ann.ack(0, partition=0)
        await rig.turns()
        got = [(each.source.partition, each.record.offset) for each in ann.got]
        assert got == [(1, 0), (1, 1), (0, 0), (1, 0)]

    play(scenario)


def test_nothing_is_kept_of_what_a_seek_has_left_behind() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann = rig.join(work)
        await rig.publish(b"a", b"b")
        await rig.turns()
        assert work.retained_bytes > 0 and ann.joined().held == 2
        await work.seek(Start.parse("latest"))
        assert (work.retained_bytes, ann.joined().held, work.unacked) == (0, 0, 0)

    play(scenario)


def test_a_key_that_was_under_way_is_free_after_a_seek() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared")
        ann = rig.join(work)
        await rig.publish_keys((b"k", b"0"), (b"k", b"1"))
        await rig.turns()
        await work.seek(Start.parse("earliest"))
        await rig.turns()
        await ann.ack(0, epoch=1)
        await rig.turns()
        assert ann.offsets == [0, 0, 1]

    play(scenario)


# ---- gaps and damage


def test_messages_that_were_deleted_are_reported_as_skipped() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        await rig.publish(*[b"v"] * 10)
        await rig.partition().delete_records(7)
        ann = rig.join(work)
        await rig.turns()
        assert ann.offsets == [7, 8, 9]
        assert [(each.event, each.count) for each in ann.notices] == [("skipped", 7)]
        await ann.ack(7, 8, 9)
        assert work.partitions[0].machine.cursor.position == 10 and work.partitions[0].lag == 0

    play(scenario)


def test_a_refused_message_that_was_deleted_meanwhile_still_comes_from_the_retry_buffer() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe())
        await rig.publish(b"a", b"b")
        await rig.turns()
        await rig.partition().delete_records(2)
        ann.nack(0, delay_ms=0)
        await rig.turns()
        assert ann.take() == [(0, 1), (1, 1), (0, 2)]

    play(scenario)


# ---- its end


def test_a_closed_subscription_refuses_everything() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        await rig.broker.subscriptions.delete("work")
        assert ann.notices == [Notice(event="deleted", reason="the subscription was deleted")]
        for attempt in (
            lambda: rig.join(work, "bob"),
            lambda: ann.ack_nowait(0),
            lambda: ann.nack(0),
            lambda: ann.extend(0, extend_ms=1),
        ):
            with pytest.raises(BrokerError, match="was deleted") as refused:
                attempt()
            assert refused.value.code == ErrorCode.RESOURCE_NOT_FOUND
        ann.joined().leave()  # harmless
        ann.joined().resume()
        await rig.publish(b"b")
        await rig.turns()
        assert ann.offsets == [0]

    play(scenario)


def test_a_recipient_that_acknowledges_at_once_is_served_on() -> None:
    class Quick(Inbox):
        def deliver(self, deliveries: Sequence[Delivery]) -> None:
            super().deliver(deliveries)
            for each in deliveries:
                self.ack_nowait(each.record.offset)

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        quick = Quick()
        quick.member = work.join(quick, credit=1)
        await rig.publish(*[b"v"] * 50)
        await rig.wait_until(lambda: len(quick.got) == 50)
        await rig.wait_until(lambda: work.partitions[0].machine.cursor.position == 50)

    play(scenario)
