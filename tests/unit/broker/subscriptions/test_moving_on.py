"""A subscription that is moved, meets gaps, or ends, over real topics."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from tailrace.broker.subscriptions import Start
from tailrace.broker.subscriptions.delivery import Delivery, Notice
from tailrace.model import BrokerError, ErrorCode

from .rig import Inbox, Rig, play

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


@pytest.mark.parametrize(
    ("to", "after", "again", "passed_over"),
    [
        ("offset:0", 2, 3, 0),  # retention took what was before
        ("offset:2", 2, 3, 0),
        ("offset:4", 4, 1, 0),
        ("offset:5", 5, 1, 1),
        ("offset:6", 6, 1, 2),
        ("offset:7", 7, 0, 2),
        ("latest", 10, 0, 5),
    ],
)
def test_the_plan_of_a_seek_tells_what_comes_again_and_what_is_passed_over(
    to: str, after: int, again: int, passed_over: int
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann = rig.join(work)
        await rig.publish(*[b"v"] * 10)
        await rig.turns()
        await ann.ack(0, 1, 2, 3, 6)  # the cursor is at 4
        await rig.partition().delete_records(2)
        plan = await work.plan_seek(Start.parse(to))
        (move,) = plan.moves
        assert (move.before, move.after, move.end) == (4, after, 10)
        assert (move.again, move.passed_over) == (again, passed_over)
        assert (work.partitions[0].machine.cursor.position, plan.epoch) == (4, 0)  # nothing has moved

        undone = {4, 5, 7, 8, 9}
        ann.got.clear()
        assert await work.seek(Start.parse(to)) == 1
        await rig.turns()
        assert len(set(ann.offsets) - undone) == again
        assert len(undone - set(ann.offsets)) == passed_over

    play(scenario)


def test_what_retention_took_is_not_passed_over() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        await rig.publish(*[b"v"] * 10)
        await rig.partition().delete_records(7)
        plan = await work.plan_seek(Start.parse("offset:8"))
        assert [(each.before, each.after, each.passed_over) for each in plan.moves] == [(0, 8, 1)]

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
