"""Batches that cannot be decoded, in a subscription: skipped with the reason, told, counted."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.poison import CODECS, bomb, undecodable

from tailrace.broker.subscriptions import CURSORS_TOPIC
from tailrace.broker.subscriptions.description import describe
from tailrace.records import HEADER_BYTES, Compression, build_batch, crc32c, read_batch

from .rig import Inbox, Rig, killed_copy, play, play_lives


def poison(rig: Rig, count: int = 3, codec: Compression = Compression.GZIP, *, partition: int = 0) -> None:
    data = undecodable(count, time_ms=rig.clock.now_ms(), codec=codec)
    rig.partition(partition).append(read_batch(data))


def skips(inbox: Inbox) -> list[tuple[int, int, str]]:
    return [(each.partition, each.count, each.reason) for each in inbox.notices if each.event == "skipped"]


@pytest.mark.parametrize("codec", [Compression.NONE, *CODECS])
def test_the_rest_is_delivered_and_members_are_told_what_was_skipped(
    codec: Compression, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        subscription = await rig.subscribe(ack_timeout_ms=1_000, backoff_ms=100)
        ann, bob = rig.join(subscription), rig.join(subscription, "bob")
        await rig.publish(b"a", b"b")
        poison(rig, 3, codec)
        await rig.publish(b"c")
        await rig.wait_until(lambda: len(ann.got) + len(bob.got) == 3)
        assert sorted(ann.offsets + bob.offsets) == [0, 1, 5]
        await rig.wait_until(lambda: ann.notices and bob.notices)
        for inbox in (ann, bob):
            ((partition, count, reason),) = skips(inbox)
            assert (partition, count) == (0, 3)
            assert reason.startswith("orders-0 cannot be read at offset 2: ")
        told = describe(subscription)
        assert (told["skipped"], told["unreadable"]) == (3, 3)
        assert subscription.skipped == {"gone": 0, "unreadable": 3}
        # Times are kept: the locks of what was delivered run out.
        for _ in range(2):
            await rig.advance(1_500)
        await rig.wait_until(lambda: len(ann.got) + len(bob.got) > 3)

    with caplog.at_level(logging.WARNING):
        play(scenario)
    (line,) = [each for each in caplog.messages if "records skipped" in each]
    assert "orders-0 offset=2 count=3" in line


def test_a_decompression_bomb_is_skipped() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe())
        rig.partition().append(read_batch(bomb(2, time_ms=rig.clock.now_ms())))
        await rig.publish(b"c")
        await rig.wait_until(lambda: ann.offsets == [2] and skips(ann))
        ((_, count, reason),) = skips(ann)
        assert count == 2 and "the limit is" in reason

    play(scenario)


def test_records_before_the_fault_are_delivered() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe())
        data = undecodable(3, time_ms=rig.clock.now_ms(), codec=Compression.NONE)
        rig.partition().append(read_batch(with_sound_first(data)))
        await rig.publish(b"c")
        await rig.wait_until(lambda: len(ann.got) == 2 and skips(ann))
        assert ann.offsets == [0, 3]
        ((_, count, reason),) = skips(ann)
        assert count == 2 and reason.startswith("orders-0 cannot be read at offset 1: ")

    play(scenario)


def with_sound_first(data: bytearray) -> bytearray:
    """The same batch with a first record that is sound."""
    first = build_batch([(0, b"k", b"value", ())])[HEADER_BYTES:]
    data[HEADER_BYTES : HEADER_BYTES + len(first)] = first
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return data


def test_the_cursor_passes_it_durably_without_an_acknowledgement(tmp_path: Path) -> None:
    def stored(rig: Rig) -> int:
        topic = rig.broker.topics.get(CURSORS_TOPIC)
        assert topic is not None
        return sum(each.high_watermark for each in topic.partitions)

    async def first(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe())
        before = stored(rig)
        poison(rig, 3)
        await rig.wait_until(lambda: skips(ann))
        await rig.wait_until(lambda: stored(rig) > before)
        killed_copy(rig, tmp_path / "killed")

    async def second(rig: Rig) -> None:
        subscription = rig.broker.subscriptions.known("work")
        assert describe(subscription)["partitions"][0]["position"] == 3
        bob = rig.join(subscription, "bob")
        await rig.publish(b"a")
        await rig.wait_until(lambda: bob.offsets == [3])
        assert skips(bob) == []

    play_lives(tmp_path / "first", first)
    play_lives(tmp_path / "killed", second)


def test_many_such_batches_leave_the_loop_to_others_and_hold_up_no_partition() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(partitions=2)
        for _ in range(200):
            poison(rig, 2)
        await rig.publish(b"after")
        await rig.publish(b"beside", partition=1)
        subscription = await rig.subscribe()
        ann = rig.join(subscription)
        await rig.turns(3)  # not enough to go over all of them
        assert 0 < describe(subscription)["unreadable"] < 400
        await rig.wait_until(lambda: ann.has(2))
        assert sorted(each.record.value or b"" for each in ann.got) == [b"after", b"beside"]
        await rig.wait_until(lambda: sum(count for _, count, _ in skips(ann)) == 400)
        assert describe(subscription)["unreadable"] == 400

    play(scenario)


def test_messages_stay_in_order_of_time_over_many_such_batches() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(partitions=2)
        for _ in range(50):
            poison(rig, 1)
        await rig.publish(b"first")
        rig.clock.advance(10)
        await rig.publish(b"second", partition=1)
        ann = rig.join(await rig.subscribe(order="timestamp"))
        await rig.wait_until(lambda: ann.has(2))
        assert ann.values == [b"first", b"second"]

    play(scenario)
