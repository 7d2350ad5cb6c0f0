"""The subscriptions of a node: how they come and go, and what of them is there after a restart or a kill."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tailrace.broker.subscriptions import Start, SubscriptionConfig
from tailrace.broker.subscriptions.codec import write_cursor_key, write_delta
from tailrace.broker.subscriptions.delivery import Notice
from tailrace.broker.subscriptions.stored import CURSORS_TOPIC, CursorDelta, CursorKey
from tailrace.broker.subscriptions.subscriptions import SUBSCRIPTIONS_MAX
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import build_batch, read_batch

from .rig import TOPIC, Rig, opened, play, play_lives

FULL = BrokerError("the disk is full", code=ErrorCode.KAFKA_STORAGE_ERROR)


def refuse_cursors(rig: Rig, refusal: BrokerError | None) -> None:
    for log in rig.cursor_logs():
        log.refusal = refusal


# ---- creation


def test_a_subscription_is_found_by_name() -> None:
    async def scenario(rig: Rig) -> None:
        subscriptions = rig.broker.subscriptions
        await rig.topic()
        assert subscriptions.get("work") is None and len(subscriptions) == 0
        work, audit = await rig.subscribe("work"), await rig.subscribe("audit")
        assert subscriptions.get("work") is subscriptions.known("work") is work
        assert list(subscriptions) == [audit, work]
        with pytest.raises(BrokerError, match="does not exist") as unknown:
            subscriptions.known("worm")
        assert unknown.value.code == ErrorCode.RESOURCE_NOT_FOUND

    play(scenario)


def test_made_twice_with_the_same_settings_it_is_the_same() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(backoff_ms=5)
        assert await rig.subscribe(backoff_ms=5, start="latest") is work

    play(scenario)


def test_made_twice_at_once_it_is_one() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        first, second = await asyncio.gather(rig.subscribe(), rig.subscribe())
        assert first is second

    play(scenario)


@pytest.mark.parametrize(
    ("topic", "backoff_ms", "unacked_max", "named"),
    [(TOPIC, 5, 8, "unacked_max"), (TOPIC, 6, 7, "backoff_ms"), ("other", 5, 7, "topic")],
)
def test_made_twice_with_other_settings_it_is_refused(
    topic: str, backoff_ms: int, unacked_max: int, named: str
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic("other")
        work = await rig.subscribe(backoff_ms=5, unacked_max=7)
        with pytest.raises(BrokerError, match=f"exists with another {named}") as refused:
            await rig.subscribe(topic=topic, backoff_ms=backoff_ms, unacked_max=unacked_max)
        assert refused.value.code == ErrorCode.DUPLICATE_RESOURCE
        assert rig.broker.subscriptions.known("work") is work

    play(scenario)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 2),
        ("latest", 10),
        ("offset:0", 2),
        ("offset:5", 5),
        ("offset:10", 10),
        ("time:0", 2),
        ("time:1750000000004", 4),
        ("time:1750000099999", 10),
    ],
)
def test_it_begins_where_it_is_told(start: str, first: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for _ in range(10):
            await rig.publish(b"v")
            rig.clock.advance(1)
        await rig.partition().delete_records(2)
        ann = rig.join(await rig.subscribe(start=start))
        await rig.publish(b"new")
        await rig.turns()
        assert ann.offsets == list(range(first, 11)) and ann.notices == []

    play(scenario)


def test_a_start_past_the_end_is_refused() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"v")
        with pytest.raises(BrokerError, match="is not in the log") as refused:
            await rig.subscribe(start="offset:2")
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert rig.broker.subscriptions.get("work") is None

    play(scenario)


def test_a_topic_that_is_not_there_cannot_be_subscribed_to() -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises(BrokerError) as refused:
            await rig.subscribe(topic="nowhere")
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scenario)


def test_what_could_not_be_stored_does_not_exist() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.subscribe("other")
        refuse_cursors(rig, FULL)
        with pytest.raises(BrokerError, match="cannot be written now"):
            await rig.subscribe()
        assert rig.broker.subscriptions.get("work") is None
        refuse_cursors(rig, None)
        await rig.subscribe()

    play(scenario)


def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SUBSCRIPTIONS_MAX >= 1_000
    monkeypatch.setattr("tailrace.broker.subscriptions.subscriptions.SUBSCRIPTIONS_MAX", 2)

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for name in ("a", "b"):
            await rig.subscribe(name)
        with pytest.raises(BrokerError) as refused:
            await rig.subscribe("c")
        assert refused.value.code == ErrorCode.POLICY_VIOLATION
        await rig.subscribe("a")

    play(scenario)


def test_while_the_log_is_being_read_nobody_is_told_that_nothing_is_there(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        await rig.subscribe()

    async def second(rig: Rig) -> None:
        subscriptions = rig.broker.subscriptions
        subscriptions._loaded.clear()
        for ask in (subscriptions.get, subscriptions.known):
            with pytest.raises(BrokerError) as early:
                ask("work")
            assert early.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        subscriptions._loaded.set()

    play_lives(tmp_path, first, second)


# ---- partitions that come later


def test_new_partitions_are_delivered_from_their_beginning() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(start="latest")
        ann = rig.join(work)
        await rig.broker.topics.add_partitions(TOPIC, 3)
        await rig.publish(b"a", partition=2)
        await rig.turns()
        assert [(each.source.partition, each.record.value) for each in ann.got] == [(2, b"a")]
        assert await ann.ack(0, partition=2) == 1
        await work.redrive()
        await rig.broker.topics.add_partitions(TOPIC, 4)
        assert [each.source.partition for each in work.partitions] == [0, 1, 2, 3]

    play(scenario)


def test_partitions_that_come_while_it_is_made_are_not_missed() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.subscribe("other")
        for log in rig.cursor_logs():
            log.hold()
        making = asyncio.ensure_future(rig.subscribe())
        await rig.turns()
        await rig.broker.topics.add_partitions(TOPIC, 2)
        for log in rig.cursor_logs():
            log.settle()
        ann = rig.join(await making)
        await rig.publish(b"a", partition=1)
        await rig.turns()
        assert len(ann.got) == 1

    play(scenario)


def test_new_partitions_behind_redriven_letters_are_served() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        ann.nack(0)
        await rig.wait_until(lambda: work.dead == 1)
        await work.redrive()
        await rig.broker.topics.add_partitions(TOPIC, 2)
        await rig.publish(b"b", partition=1)
        await rig.turns()
        assert [(each.source.topic, each.source.partition) for each in ann.got[1:]] == [
            ("work.dlq", 0),
            (TOPIC, 1),
        ]

    play(scenario)


def test_a_partition_without_a_cursor_is_read_from_its_beginning_after_a_restart(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        await rig.subscribe(start="latest")

    async def second(rig: Rig) -> None:
        await rig.broker.subscriptions.close()  # nothing of the new partition is stored
        await rig.broker.topics.add_partitions(TOPIC, 2)
        await rig.publish(*[b"v"] * 3, partition=1)
        await rig.partition(1).delete_records(1)

    async def third(rig: Rig) -> None:
        ann = rig.join(rig.broker.subscriptions.known("work"))
        await rig.wait_until(lambda: len(ann.got) == 2)
        assert ann.offsets == [1, 2] and [each.count for each in ann.notices] == [1]

    play_lives(tmp_path, first, second, third)


# ---- deletion


def test_a_deleted_subscription_begins_anew() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(backoff_ms=5))
        await rig.publish(b"a", b"b")
        await rig.turns()
        await ann.ack(0, 1)
        await rig.broker.subscriptions.delete("work")
        assert rig.broker.subscriptions.get("work") is None
        with pytest.raises(BrokerError) as unknown:
            await rig.broker.subscriptions.delete("work")
        assert unknown.value.code == ErrorCode.RESOURCE_NOT_FOUND
        bob = rig.join(await rig.subscribe())
        await rig.turns()
        assert bob.offsets == [0, 1]

    play(scenario)


def test_an_acknowledgement_from_before_does_not_count_for_the_next_of_its_name() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"old")
        ann = rig.join(await rig.subscribe())
        await rig.turns()
        await rig.broker.delete_topic(TOPIC)
        await rig.topic()
        await rig.publish(b"new")
        bob = rig.join(work := await rig.subscribe(), "bob")
        await rig.turns()
        late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert work.ack("", 0, ann.got[0].epoch, [(0, 1)], late) == 0
        assert bob.values == [b"new"] and work.unacked == 1
        assert await bob.ack(0, epoch=bob.got[0].epoch) == 1

    play(scenario)


def test_a_deleted_subscription_is_gone_after_a_restart(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        await rig.subscribe()
        await rig.subscribe("other")
        await rig.broker.subscriptions.delete("work")

    async def second(rig: Rig) -> None:
        assert [each.config.name for each in rig.broker.subscriptions] == ["other"]

    play_lives(tmp_path, first, second)


def test_nothing_of_a_deleted_one_comes_back_with_the_next_of_its_name(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe())
        await rig.publish(*[b"v"] * 10)
        await rig.wait_until(lambda: len(ann.got) == 10)
        for offset in range(5):
            await ann.ack(offset)
        _, under_way = ann.ack_nowait(5)
        await asyncio.sleep(0)
        _, waiting = ann.ack_nowait(6, 7, 8)  # for the next write, which must not come
        await rig.broker.subscriptions.delete("work")
        await asyncio.wait([under_way, waiting])
        for waiter in (under_way, waiting):
            waiter.exception()
        await rig.subscribe()

    async def second(rig: Rig) -> None:
        work = rig.broker.subscriptions.known("work")
        assert work.partitions[0].machine.cursor.position == 0 and work.partitions[0].lag == 10

    play_lives(tmp_path, first, second)


def test_cursors_that_a_crash_left_behind_are_not_taken_for_a_new_one_s(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        topic = await rig.topic()
        await rig.publish(*[b"v"] * 10)
        await rig.subscribe()
        await rig.broker.subscriptions.delete("work")
        key = write_cursor_key(CursorKey("work", topic.id, 0)) + b"\x05"
        delta = write_delta(CursorDelta(position=7, ranges=(), failures={}), version=40)
        cursors = rig.broker.topics.get(CURSORS_TOPIC)
        assert cursors is not None
        for partition in cursors.partitions:
            appended = partition.append(read_batch(build_batch([(rig.clock.now_ms(), key, delta, ())])))
            await partition.wait_acknowledged(appended.end_offset)

    async def second(rig: Rig) -> None:
        await rig.subscribe()

    async def third(rig: Rig) -> None:
        assert rig.broker.subscriptions.known("work").partitions[0].machine.cursor.position == 0

    play_lives(tmp_path, first, second, third)


def test_a_deletion_that_could_not_be_stored_may_be_tried_again() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann = rig.join(work)
        refuse_cursors(rig, FULL)
        with pytest.raises(BrokerError, match="cannot be written now"):
            await rig.broker.subscriptions.delete("work")
        assert ann.events == ["deleted"]
        with pytest.raises(BrokerError, match="Delete it again"):
            await rig.subscribe()
        refuse_cursors(rig, None)
        await rig.broker.subscriptions.delete("work")
        assert await rig.subscribe() is not work

    play(scenario)


def test_a_subscription_goes_with_its_topic() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic("other")
        work, other = await rig.subscribe(), await rig.subscribe("other", topic="other")
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        await rig.broker.delete_topic(TOPIC)
        assert ann.notices == [Notice(event="deleted", reason="its topic orders was deleted")]
        assert list(rig.broker.subscriptions) == [other]
        with pytest.raises(BrokerError, match="was deleted"):
            ann.ack_nowait(0)

    play(scenario)


def test_one_that_is_being_made_goes_with_its_topic_too() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic("other")
        await rig.subscribe("other", topic="other")
        for log in rig.cursor_logs():
            log.hold()
        making = asyncio.ensure_future(rig.subscribe())
        await rig.turns()
        deleting = asyncio.ensure_future(rig.broker.delete_topic(TOPIC))
        await rig.turns()
        for log in rig.cursor_logs():
            log.settle()
        await asyncio.gather(making, deleting)
        assert rig.broker.subscriptions.get("work") is None

    play(scenario)


def test_one_of_a_new_topic_with_an_old_name_stays() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.subscribe("old")
        await rig.broker.topics.delete(TOPIC)
        await rig.topic(partitions=2)
        new = await rig.subscribe("new")
        await rig.broker.subscriptions.topic_deleted(TOPIC)
        assert list(rig.broker.subscriptions) == [new] and len(new.partitions) == 2

    play(scenario)


def test_where_the_end_of_a_topic_cannot_be_stored_its_subscriptions_end_all_the_same() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for name in ("a", "b"):
            await rig.subscribe(name)
        refuse_cursors(rig, FULL)
        await rig.broker.delete_topic(TOPIC)
        assert len(rig.broker.subscriptions) == 0
        refuse_cursors(rig, None)
        await rig.topic()
        await rig.subscribe("a")

    play(scenario)


def test_subscriptions_whose_topic_went_while_the_broker_was_down_are_forgotten(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        await rig.subscribe()
        await rig.broker.topics.delete(TOPIC)  # and then the lights go out

    async def second(rig: Rig) -> None:
        assert rig.broker.subscriptions.get("work") is None
        await rig.topic()
        await rig.subscribe(backoff_ms=1)

    async def third(rig: Rig) -> None:
        assert rig.broker.subscriptions.known("work").config.backoff_ms == 1

    play_lives(tmp_path, first, second, third)


# ---- the end


def test_a_node_that_stops_tells_no_member_that_a_subscription_is_deleted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.turns()
        await rig.broker.subscriptions.close()
        assert ann.notices == []
        with pytest.raises(BrokerError, match="shutting down") as stopped:
            ann.ack_nowait(0)
        assert stopped.value.code == ErrorCode.NOT_COORDINATOR
        for attempt in (rig.broker.subscriptions.get, rig.broker.subscriptions.known):
            with pytest.raises(BrokerError, match="shutting down"):
                attempt("work")
        with pytest.raises(BrokerError, match="shutting down"):
            await rig.broker.subscriptions.create(
                SubscriptionConfig.read("new", TOPIC, {}), Start.parse("earliest")
            )
        await rig.broker.subscriptions.close()  # harmless

    play(scenario)


def test_it_closes_while_cursors_cannot_be_stored() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe())
        await rig.publish(b"a")
        await rig.turns()
        refuse_cursors(rig, FULL)
        _, waiter = ann.ack_nowait(0)
        await rig.broker.subscriptions.close()
        assert waiter.exception() is not None

    play(scenario)


def test_a_partition_of_cursors_that_cannot_be_read_is_not_served(tmp_path: Path) -> None:
    async def main() -> None:
        from tailrace.testing import FakeClock

        clock = FakeClock()
        async with opened(tmp_path, clock) as rig:
            await rig.topic()
            await rig.subscribe()
            await rig.subscribe("other")
        with pytest.MonkeyPatch.context() as patched:

            async def fail(*_: object) -> object:
                raise BrokerError("damaged", code=ErrorCode.CORRUPT_MESSAGE)

            patched.setattr("tailrace.broker.subscriptions.subscriptions.load_cursors", fail)
            async with opened(tmp_path, clock) as rig:
                with pytest.raises(BrokerError, match="could not be read") as refused:
                    rig.broker.subscriptions.get("work")
                assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                with pytest.raises(BrokerError, match="could not be read"):
                    await rig.subscribe()

    asyncio.run(asyncio.wait_for(main(), 120))
