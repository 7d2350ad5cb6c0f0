"""The modes and guarantees of a subscription, over real topics: who may have which message, and when."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tailrace.model import BrokerError, ErrorCode

from .rig import COLD, Rig, make_cold, play, play_lives

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


def test_a_clock_that_is_set_right_does_not_end_the_time_of_what_comes_after() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(work := await rig.subscribe())
        rig.clock.set_back(3_600_000)
        await rig.publish(b"short", ttl_ms="1000")
        await rig.turns()
        assert ann.values == [b"short"]
        assert work.partitions[0].expired == 0

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
