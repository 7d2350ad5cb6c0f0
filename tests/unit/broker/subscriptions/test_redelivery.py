"""Messages that failed, over real topics: dead letters, redrive, and what is read once more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tailrace.broker import Partition
from tailrace.broker.subscriptions import Start, Subscription
from tailrace.broker.subscriptions.machine import State
from tailrace.broker.subscriptions.retained import Retained
from tailrace.model import BrokerError, ErrorCode, LogTruncated, Offset
from tailrace.records import Batch
from tailrace.storage import Waiter

from .rig import COLD, TOPIC, Inbox, Rig, play, play_lives

LETTERS = "work.dlq"
BUSY = BrokerError("the disk is busy", code=ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.broker.subscriptions.redelivery._RETRY_S", 0.01)
    monkeypatch.setattr("tailrace.broker.subscriptions.burial._RETRY_S", 0.01)


def keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is delivered again has to be read again."""
    monkeypatch.setattr(Retained, "put", lambda *_: None)


async def fail(rig: Rig, inbox: Inbox, *offsets: int, reason: str = "no", topic: str = "") -> None:
    """Refuse messages that may not fail once more."""
    assert inbox.nack(*offsets, reason=reason, topic=topic) == len(offsets)
    await rig.turns()


async def dead(rig: Rig, subscription: Subscription, count: int) -> None:
    await rig.wait_until(lambda: subscription.dead == count)
    await rig.turns()


# ---- dead letters


def test_a_message_that_failed_too_often_is_a_dead_letter() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=2, backoff_ms=0, backoff_ms_max=0)
        ann = rig.join(work)
        await rig.publish(b"bad", key=b"k", colour="red")
        await rig.publish(b"good")
        await rig.turns()
        ann.nack(0, reason="first")
        await rig.turns()
        assert ann.take() == [(0, 1), (1, 1), (0, 2)]
        ann.nack(0, reason="second")
        await dead(rig, work, 1)
        reader = rig.join(await rig.subscribe("letters", topic=LETTERS), "reader")
        await rig.turns()
        (letter,) = reader.got
        assert (letter.record.key, letter.record.value) == (b"k", b"bad")
        assert list(letter.record.headers) == [
            ("colour", b"red"),
            ("_dlq_subscription", b"work"),
            ("_dlq_topic", b"orders"),
            ("_dlq_partition", b"0"),
            ("_dlq_offset", b"0"),
            ("_dlq_reason", b"second"),
            ("_dlq_deliveries", b"2"),
            ("_dlq_time", b"%d" % rig.clock.now_ms()),
        ]
        await ann.ack(1)
        assert work.partitions[0].machine.cursor.position == 2
        await rig.advance(1_000_000)
        assert ann.take() == []

    play(scenario)


@pytest.mark.parametrize(
    ("reason", "expected"), [("", "refused by ann"), ("no such customer", "no such customer")]
)
def test_a_reason_is_always_given(reason: str, expected: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        await fail(rig, ann, 0, reason=reason)
        await dead(rig, work, 1)
        (letter,) = await rig.broker.subscriptions.dead_letters("work", 5)
        assert letter["reason"] == expected

    play(scenario)


def test_silence_is_a_reason_too() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=1, ack_timeout_ms=50)
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        await rig.advance(50)
        await dead(rig, work, 1)
        (letter,) = await rig.broker.subscriptions.dead_letters("work", 5)
        assert letter["reason"] == "not settled within 50 ms" and ann.joined().held == 0

    play(scenario)


def test_with_no_bound_a_message_is_never_dead() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=0, backoff_ms=0, backoff_ms_max=0)
        ann = rig.join(work)
        await rig.publish(b"a")
        for count in range(1, 30):
            await rig.turns()
            assert ann.take() == [(0, count)]
            ann.nack(0)
        assert work.dead == 0

    play(scenario)


def test_the_cursor_passes_a_dead_message_when_its_letter_is_durable() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic(LETTERS)
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        rig.log(topic=LETTERS).hold()
        await fail(rig, ann, 0)
        (partition,) = work.partitions
        assert partition.machine.state_of(0) is State.DEAD and partition.machine.cursor.position == 0
        assert await ann.ack(0) == 0  # too late: its letter is on its way
        rig.log(topic=LETTERS).settle()
        await dead(rig, work, 1)
        assert partition.machine.cursor.position == 1

    play(scenario)


def test_what_fails_in_one_turn_shares_a_batch_and_waits_for_no_batch_before_it() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic(LETTERS)
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(*[b"%d" % number for number in range(60)])
        await rig.wait_until(lambda: ann.has(60))
        letters = rig.log(topic=LETTERS)
        appended: list[int] = []
        append = letters.append

        def count(batch: Batch, **options: Any) -> Offset:
            appended.append(batch.count)
            return append(batch, **options)

        letters.append = count  # type: ignore[method-assign]
        letters.hold()
        await fail(rig, ann, *range(50))
        await fail(rig, ann, *range(50, 60))
        assert appended == [50, 1, 10, 1], "letters and the marker of their transaction"
        (partition,) = work.partitions
        assert work.dead == 0 and partition.machine.cursor.position == 0
        letters.settle()
        await dead(rig, work, 60)
        assert partition.machine.cursor.position == 60
        found = await rig.broker.subscriptions.dead_letters("work", 99)
        assert [each["value"] for each in found] == [str(number) for number in range(60)]

    play(scenario)


def test_letters_that_become_durable_after_the_end_store_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic(LETTERS)
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.wait_until(lambda: ann.has(1))
        letters = rig.log(topic=LETTERS)
        letters.hold()
        await fail(rig, ann, 0)
        assert letters.end_offset == 2
        await rig.broker.subscriptions.delete("work")
        (partition,) = work.partitions
        ends = [log.end_offset for log in rig.cursor_logs()]
        letters.settle()
        await rig.turns()
        assert partition.machine.cursor.position == 0
        assert [log.end_offset for log in rig.cursor_logs()] == ends

    play(scenario)


def test_letters_that_never_become_durable_are_written_again() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic(LETTERS)
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"a", b"b")
        await rig.wait_until(lambda: ann.has(2))
        letters = rig.log(topic=LETTERS)
        letters.hold()
        await fail(rig, ann, 0, 1)
        told, letters._told = letters._told, []
        for _, waiter in told:
            waiter.set_exception(LogTruncated("another node leads the partition"))
        letters.settle()
        await dead(rig, work, 2)
        assert work.partitions[0].machine.cursor.position == 2

    play(scenario)


def test_letters_that_cannot_be_written_are_written_later() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic(LETTERS)
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"a", b"b", b"c")
        await rig.turns()
        rig.log(topic=LETTERS).refusal = BUSY
        await fail(rig, ann, 0, 1)
        await asyncio.sleep(0.03)
        assert work.dead == 0 and work.partitions[0].machine.cursor.position == 0
        await ann.ack(2)  # the others go on
        rig.log(topic=LETTERS).refusal = None
        await dead(rig, work, 2)
        assert work.partitions[0].machine.cursor.position == 3
        letters = await rig.broker.subscriptions.dead_letters("work", 9)
        assert sorted(each["value"] for each in letters) == ["a", "b"]

    play(scenario)


def test_one_letter_that_its_topic_never_takes_does_not_hold_up_the_others() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic(LETTERS, cleanup_policy="compact")
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"has no key")
        await rig.publish(b"a", key=b"k")
        await rig.publish(b"b", key=b"l")
        await rig.turns()
        await fail(rig, ann, 0, 1, 2)
        await dead(rig, work, 2)
        assert work.unacked == 1 and work.partitions[0].machine.cursor.position == 0

    play(scenario)


def test_a_letter_whose_topic_is_deleted_meanwhile_is_written_to_the_next_one(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        letters = await rig.topic(LETTERS)
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.wait_until(lambda: ann.has(1))
        wait = Partition.acknowledged
        with pytest.MonkeyPatch.context() as patched:

            def acknowledged(partition: Partition, end: Offset, acks: int, waiter: Waiter) -> None:
                if partition is letters.partitions[0]:
                    patched.undo()
                    # Nothing writes that offset: the waiter hears that the log has gone.
                    wait(partition, Offset(end + 1), acks, waiter)
                    deleting.append(asyncio.ensure_future(rig.broker.delete_topic(LETTERS)))
                else:
                    wait(partition, end, acks, waiter)

            deleting: list[asyncio.Future[None]] = []
            patched.setattr(Partition, "acknowledged", acknowledged)
            ann.nack(0)
            await dead(rig, work, 1)
            await asyncio.gather(*deleting)
        assert len(await rig.broker.subscriptions.dead_letters("work", 9)) == 1
        assert rig.broker.cluster.failure is None

    play_lives(tmp_path, scenario)


def test_an_acknowledgement_of_a_letter_does_not_count_for_another_topic_s() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await with_letters(rig, 1)
        await work.redrive()
        await rig.turns()
        (old,) = ann.got
        await rig.broker.delete_topic(LETTERS)
        await rig.publish(b"new")
        await rig.turns()
        await fail(rig, ann, 1)
        await dead(rig, work, 2)
        assert await work.redrive() == 1
        await rig.turns()
        assert ann.values == [b"0", b"new", b"new"]
        assert await ann.ack(0, topic=LETTERS, epoch=old.epoch) == 0
        assert work.unacked == 1 and ann.joined().held == 1
        assert await ann.ack(0, topic=LETTERS, epoch=ann.got[-1].epoch) == 1
        assert work.unacked == 0 and ann.joined().held == 0

    play(scenario)


def test_a_dead_message_whose_content_is_gone_is_skipped() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"a", b"b")
        await rig.turns()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Retained, "get", lambda *_: None)
            await rig.partition().delete_records(1)
            await fail(rig, ann, 0)
        assert work.dead == 0 and work.partitions[0].machine.cursor.position == 1
        assert [(each.event, each.count) for each in ann.notices] == [("skipped", 1)]
        assert rig.broker.topics.get(LETTERS) is None  # there is no letter to keep

    play(scenario)


def test_a_seek_saves_what_is_about_to_be_buried() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic(LETTERS)
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        rig.log(topic=LETTERS).refusal = BUSY
        await fail(rig, ann, 0)
        await work.seek(Start.parse("earliest"))
        rig.log(topic=LETTERS).refusal = None
        await asyncio.sleep(0.03)
        assert work.dead == 0 and ann.take() == [(0, 1), (0, 1)]

    play(scenario)


def test_letters_may_go_to_a_topic_of_one_s_choice() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=1, dead_letter_topic="graveyard")
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        await fail(rig, ann, 0)
        await dead(rig, work, 1)
        assert rig.partition(topic="graveyard").high_watermark == 2, "the letter and its marker"
        assert rig.broker.topics.get(LETTERS) is None

    play(scenario)


# ---- redrive


async def with_letters(rig: Rig, count: int) -> tuple[Subscription, Inbox]:
    """A subscription with so many dead letters, and its member."""
    await rig.topic()
    work = await rig.subscribe(max_deliveries=1)
    ann = rig.join(work)
    await rig.publish(*[b"%d" % number for number in range(count)])
    await rig.turns()
    await fail(rig, ann, *range(count))
    await dead(rig, work, count)
    ann.got.clear()
    return work, ann


def test_redriven_letters_come_again_with_where_they_are() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await with_letters(rig, 3)
        assert await work.redrive() == 3
        await rig.turns()
        assert [(each.source.topic, each.record.value, each.count) for each in ann.got] == [
            (LETTERS, b"0", 1),
            (LETTERS, b"1", 1),
            (LETTERS, b"2", 1),
        ]
        assert await ann.ack(0, 1, 2, topic=LETTERS) == 3
        assert work.unacked == 0
        assert await work.redrive() == 0

    play(scenario)


def test_some_letters_are_redriven_the_oldest_first() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await with_letters(rig, 5)
        assert await work.redrive(2) == 2
        await rig.turns()
        assert ann.values == [b"0", b"1"] and work.redriven_to == 2
        left = await rig.broker.subscriptions.dead_letters("work", 10)
        assert [each["value"] for each in left] == ["2", "3", "4"]
        assert await work.redrive(10) == 3
        await rig.turns()
        assert ann.values == [b"0", b"1", b"2", b"3", b"4"]

    play(scenario)


def test_where_nothing_is_dead_nothing_is_redriven() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        assert await work.redrive() == 0
        assert await rig.broker.subscriptions.dead_letters("work", 5) == []
        await rig.topic(LETTERS)
        assert await work.redrive() == 0

    play(scenario)


def test_new_letters_do_not_come_by_themselves() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await with_letters(rig, 1)
        await work.redrive()
        await rig.turns()
        await ann.ack(0, topic=LETTERS)
        ann.got.clear()
        await rig.publish(b"worse")
        await rig.turns()
        await fail(rig, ann, 1)
        await dead(rig, work, 2)
        assert ann.values == [b"worse"]

    play(scenario)


def test_a_redriven_letter_that_fails_again_keeps_its_first_origin() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await with_letters(rig, 1)
        await work.redrive()
        await rig.turns()
        await fail(rig, ann, 0, topic=LETTERS, reason="still no")
        await dead(rig, work, 2)
        (letter,) = await rig.broker.subscriptions.dead_letters("work", 5)
        assert letter["offset"] == 2 and letter["reason"] == "still no"  # behind the marker of the first
        assert letter["origin"] == {"topic": TOPIC, "partition": 0, "offset": 0}
        assert await work.redrive() == 1
        await rig.turns()
        assert ann.values == [b"0", b"0"]

    play(scenario)


def test_other_subscriptions_see_nothing_of_a_redrive() -> None:
    async def scenario(rig: Rig) -> None:
        work, _ = await with_letters(rig, 2)
        bob = rig.join(await rig.subscribe("other"), "bob")
        await rig.turns()
        assert bob.values == [b"0", b"1"]
        await work.redrive()
        await rig.turns()
        assert len(bob.got) == 2

    play(scenario)


def test_letters_that_retention_took_are_not_counted() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await with_letters(rig, 6)
        await work.redrive(1)
        await rig.partition(topic=LETTERS).delete_records(4)
        assert await work.redrive(1) == 1
        await rig.turns()
        assert ann.values == [b"0", b"4"]

    play(scenario)


def test_redrive_goes_on_with_a_new_topic_where_the_old_one_was_deleted() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await with_letters(rig, 3)
        await work.redrive(1)
        await rig.turns()
        await rig.broker.delete_topic(LETTERS)
        await rig.turns()
        assert await work.redrive() == 0
        await rig.publish(b"new")
        await rig.turns()
        await fail(rig, ann, 3)
        await dead(rig, work, 4)
        assert len(await rig.broker.subscriptions.dead_letters("work", 5)) == 1
        assert await work.redrive() == 1
        await rig.turns()
        assert ann.values == [b"0", b"new", b"new"]

    play(scenario)


# ---- read once more


def test_what_is_not_kept_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_nothing(monkeypatch)

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann, bob = rig.join(work, "ann", credit=3), rig.join(work, "bob", credit=0)
        await rig.publish(*[b"%d" % number for number in range(5)])
        await rig.turns()
        bob.joined().set_credit(10)
        await rig.turns()
        ann.joined().leave()
        await rig.turns()
        assert sorted(bob.offsets[2:]) == [0, 1, 2]
        assert {each.record.value for each in bob.got[2:]} == {b"0", b"1", b"2"}

    play(scenario)


def test_what_is_not_kept_is_read_again_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_nothing(monkeypatch)

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(backoff_ms=0, backoff_ms_max=0))
        for number in range(30):
            await rig.publish(b"%d" % number + bytes(50_000))
        await rig.wait_until(lambda: len(ann.got) == 30)
        ann.nack(3)
        await rig.wait_until(lambda: len(ann.got) == 31)
        assert ann.got[-1].record.value == b"3" + bytes(50_000) and ann.got[-1].count == 2

    play_lives(tmp_path, scenario, config=COLD)


def test_what_is_gone_when_it_is_read_again_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_nothing(monkeypatch)

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(backoff_ms=0, backoff_ms_max=0)
        ann = rig.join(work)
        await rig.publish(b"a", b"b")
        await rig.turns()
        await rig.partition().delete_records(1)
        ann.nack(0, 1)
        await rig.turns()
        assert ann.take() == [(0, 1), (1, 1), (1, 2)]
        assert [(each.event, each.count) for each in ann.notices] == [("skipped", 1)]
        assert work.partitions[0].machine.cursor.position == 1

    play(scenario)


def test_what_cannot_be_read_for_a_while_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_nothing(monkeypatch)

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(backoff_ms=0, backoff_ms_max=0)
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        rig.log().damage = BUSY
        ann.nack(0)
        await asyncio.sleep(0.03)
        assert work.partitions[0].machine.state_of(0) is State.READY and ann.notices == []
        rig.log().damage = None
        await rig.wait_until(lambda: len(ann.got) == 2)
        assert ann.take() == [(0, 1), (0, 2)]

    play(scenario)


def test_what_was_settled_or_sought_away_meanwhile_is_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_nothing(monkeypatch)

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(backoff_ms=0, backoff_ms_max=0)
        ann = rig.join(work)
        await rig.publish(b"a", b"b")
        await rig.turns()
        rig.log().damage = BUSY
        ann.nack(0, 1)
        await rig.turns()
        assert await ann.ack(0) == 1
        await work.seek(Start.parse("latest"))
        rig.log().damage = None
        await asyncio.sleep(0.05)
        assert ann.take() == [(0, 1), (1, 1)] and work.unacked == 0

    play(scenario)


def test_what_is_read_again_after_a_seek_does_not_hold_up_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_nothing(monkeypatch)

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared", backoff_ms=0, backoff_ms_max=0)
        ann = rig.join(work)
        await rig.publish_keys((b"k", b"0"), (b"k", b"1"))
        await rig.turns()
        ann.joined().set_credit(0)
        rig.log().damage = BUSY
        ann.nack(0)
        await rig.turns()
        await work.seek(Start.parse("earliest"))
        rig.log().damage = None
        await asyncio.sleep(0.05)
        ann.joined().set_credit(10)
        for offset in (0, 1):
            await rig.turns()
            await ann.ack(offset, epoch=1)
        assert ann.values == [b"0", b"0", b"1"] and work.unacked == 0

    play(scenario)


def test_a_closed_subscription_reads_and_buries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_nothing(monkeypatch)

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=2, backoff_ms=0, backoff_ms_max=0)
        ann = rig.join(work)
        await rig.publish(b"a", b"b")
        await rig.turns()
        rig.log().damage = BUSY
        ann.nack(0)
        await rig.turns()
        await rig.broker.subscriptions.delete("work")
        rig.log().damage = None
        await asyncio.sleep(0.03)
        assert len(ann.got) == 2 and work.dead == 0

    play(scenario)
