"""Subscriptions over restarts, and where their log cannot be written or read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.broker.publishing import id_prefix
from tailrace.broker.subscriptions import Start
from tailrace.broker.subscriptions.stored import CURSORS_TOPIC
from tailrace.model import BrokerError, ErrorCode

from .rig import COLD, TOPIC, Rig, killed_copy, play, play_lives

FULL = BrokerError("the disk is full", code=ErrorCode.KAFKA_STORAGE_ERROR)


def refuse_cursors(rig: Rig, refusal: BrokerError | None) -> None:
    for log in rig.cursor_logs():
        log.refusal = refusal


# ---- restarts


def test_progress_outlives_a_restart(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic(partitions=2)
        work = await rig.subscribe(max_deliveries=3, ack_timeout_ms=50, mode="failover")
        ann = rig.join(work)
        await rig.publish(*[b"%d" % number for number in range(10)])
        await rig.publish(*[b"v"] * 3, partition=1)
        await rig.wait_until(lambda: len(ann.got) == 13)
        await ann.ack(0, 1, 4, 5, 7)
        await ann.ack(0, 1, 2, partition=1)
        ann.nack(2, 3)
        await work.seek(Start.parse("earliest"), 1)

    async def second(rig: Rig) -> None:
        work = rig.broker.subscriptions.known("work")
        assert work.config.settings() == {"max_deliveries": "3", "ack_timeout_ms": "50", "mode": "failover"}
        one, other = (each.machine for each in work.partitions)
        assert (one.cursor.position, list(one.cursor.beyond)) == (2, [(4, 6), (7, 8)])
        assert (one.epoch, dict(one.failures)) == (0, {2: 1, 3: 1})
        assert (other.cursor.position, other.epoch) == (0, 1)
        ann = rig.join(work)
        await rig.wait_until(lambda: len(ann.got) == 8)
        mine = sorted((each.record.offset, each.count) for each in ann.got if each.source.partition == 0)
        assert mine == [(2, 2), (3, 2), (6, 1), (8, 1), (9, 1)]
        topic = rig.broker.topics.get(TOPIC)
        assert topic is not None and ann.got[0].source.id_prefix.startswith(id_prefix(topic.id, 0)[:12])

    play_lives(tmp_path, first, second)


def test_many_small_acknowledgements_outlive_a_restart(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe())
        await rig.publish(*[b"v"] * 60)
        await rig.wait_until(lambda: len(ann.got) == 60)
        for offset in range(1, 60, 2):
            await ann.ack(offset)

    async def second(rig: Rig) -> None:
        ann = rig.join(rig.broker.subscriptions.known("work"))
        await rig.wait_until(lambda: len(ann.got) == 30)
        assert ann.offsets == list(range(0, 60, 2))
        await ann.ack(*range(0, 30, 2))

    async def third(rig: Rig) -> None:
        ann = rig.join(rig.broker.subscriptions.known("work"))
        await rig.wait_until(lambda: len(ann.got) == 15)
        assert ann.offsets == list(range(30, 60, 2))

    play_lives(tmp_path, first, second, third)


def test_cold_messages_are_delivered_after_a_restart(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        await rig.subscribe()
        for number in range(40):
            await rig.publish(*[b"%d" % number + bytes(2_000)] * 25)

    async def second(rig: Rig) -> None:
        ann = rig.join(rig.broker.subscriptions.known("work"), credit=2_000)
        await rig.wait_until(lambda: len(ann.got) == 1_000)
        assert ann.offsets == list(range(1_000))

    play_lives(tmp_path, first, second, config=COLD)


def test_a_message_that_was_dead_is_buried_after_a_restart(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        await rig.topic("work.dlq", cleanup_policy="compact")  # takes no letter without a key
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.wait_until(lambda: len(ann.got) == 1)
        ann.nack(0)
        await rig.turns()
        assert work.dead == 0

    async def second(rig: Rig) -> None:
        work = rig.broker.subscriptions.known("work")
        assert work.partitions[0].machine.unacked == 1
        await rig.broker.topics.delete("work.dlq")
        await rig.broker.subscriptions.close()

    async def third(rig: Rig) -> None:
        work = rig.broker.subscriptions.known("work")
        await rig.wait_until(lambda: work.dead == 1)
        (letter,) = await rig.broker.subscriptions.dead_letters("work", 5)
        assert letter["reason"] == "given up before the broker was started again"
        await rig.wait_until(lambda: work.partitions[0].machine.cursor.position == 1)

    play_lives(tmp_path, first, second, third)


def test_a_key_keeps_its_order_when_its_dead_message_is_buried_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.broker.subscriptions.burial._RETRY_S", 0.01)

    async def first(rig: Rig) -> None:
        await rig.topic()
        await rig.topic("work.dlq", max_message_bytes="1")  # takes no letter
        work = await rig.subscribe(mode="key_shared", max_deliveries=1)
        ann = rig.join(work)
        await rig.publish_keys((b"a", b"0"), (b"a", b"1"), (b"a", b"2"))
        await rig.wait_until(lambda: ann.has(1))
        ann.nack(0)
        await rig.turns()
        assert work.dead == 0

    async def second(rig: Rig) -> None:
        work = rig.broker.subscriptions.known("work")
        bob = rig.join(work, "bob")
        await rig.wait_until(lambda: bob.has(1))
        await rig.broker.topics.delete("work.dlq")
        await rig.wait_until(lambda: work.partitions[0].machine.cursor.position == 1)
        await rig.turns()
        assert bob.offsets == [1], "the message that is out is not the one that was buried"
        await bob.ack(1)
        await rig.wait_until(lambda: bob.has(2))
        assert bob.offsets == [1, 2]

    play_lives(tmp_path, first, second)


def test_how_far_letters_were_redriven_outlives_a_restart(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"0", b"1", b"2")
        await rig.wait_until(lambda: len(ann.got) == 3)
        ann.nack(0, 1, 2)
        await rig.wait_until(lambda: work.dead == 3)
        await work.redrive(2)
        await rig.wait_until(lambda: len(ann.got) == 5)
        await ann.ack(0, topic="work.dlq")

    async def second(rig: Rig) -> None:
        work = rig.broker.subscriptions.known("work")
        assert work.redriven_to == 2
        ann = rig.join(work)
        await rig.wait_until(lambda: len(ann.got) == 1)
        assert ann.values == [b"1"] and ann.got[0].source.topic == "work.dlq"
        assert await work.redrive() == 1
        await rig.wait_until(lambda: len(ann.got) == 2)

    play_lives(tmp_path, first, second)


def test_at_most_once_nothing_is_delivered_twice_over_a_restart(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(delivery="at_most_once"), credit=2)
        await rig.publish(b"a", b"b")
        await rig.wait_until(lambda: len(ann.got) == 2)
        killed_copy(rig, tmp_path / "killed")

    async def second(rig: Rig) -> None:
        ann = rig.join(rig.broker.subscriptions.known("work"))
        await rig.publish(b"c")
        await rig.wait_until(lambda: ann.got)
        assert ann.values == [b"c"]

    play_lives(tmp_path / "data", first, second)
    play_lives(tmp_path / "killed", second)


def test_what_was_confirmed_is_not_delivered_again_after_a_kill(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe())
        await rig.publish(*[b"v"] * 100)
        await rig.wait_until(lambda: len(ann.got) == 100)
        for offset in (*range(0, 100, 3), *range(1, 100, 7)):
            await ann.ack(offset)
        ann.nack(2)
        await rig.broker.subscriptions.known("work").writer.wait()  # type: ignore[union-attr]
        killed_copy(rig, tmp_path / "killed")

    async def after(rig: Rig) -> None:
        ann = rig.join(rig.broker.subscriptions.known("work"))
        confirmed = {*range(0, 100, 3), *range(1, 100, 7)}
        await rig.wait_until(lambda: len(ann.got) == 100 - len(confirmed))
        await rig.turns()
        assert set(ann.offsets) == set(range(100)) - confirmed
        assert dict(ann.take())[2] == 2

    play_lives(tmp_path / "data", first)
    play_lives(tmp_path / "killed", after)


# ---- trouble with the log of cursors


def test_an_acknowledgement_that_could_not_be_stored_is_told_and_stored_with_the_next() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe()
        ann = rig.join(work)
        await rig.publish(b"a", b"b", b"c")
        await rig.turns()
        refuse_cursors(rig, FULL)
        with pytest.raises(BrokerError, match="could not be stored") as refused:
            await ann.ack(1)
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        refuse_cursors(rig, None)
        assert await ann.ack(1) == 0  # known already, and durable now
        (cursor,) = await stored_cursors(rig)
        assert cursor == (0, ((1, 2),))
        await ann.ack(0)
        assert await stored_cursors(rig) == [(2, ())]
        assert work.unacked == 1

    play(scenario)


def test_an_acknowledgement_is_confirmed_when_it_is_durable() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe())
        await rig.publish(b"a")
        await rig.turns()
        for log in rig.cursor_logs():
            log.hold()
        _, waiter = ann.ack_nowait(0)
        await rig.turns()
        assert not waiter.done()
        for log in rig.cursor_logs():
            log.settle()
        await waiter

    play(scenario)


async def stored_cursors(rig: Rig) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    """What a start would find now."""
    from tailrace.broker.internal.topic import InternalTopic
    from tailrace.broker.subscriptions.loading import load_cursors

    log = InternalTopic(rig.broker.topics, name=CURSORS_TOPIC, partitions=4)
    found = []
    for partition in range(log.partitions):
        loaded = await load_cursors(log, partition)
        found += [(each.position, each.ranges) for each in loaded.cursors.values()]
    return found
