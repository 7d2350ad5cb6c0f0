"""What bounds a subscription, over real topics: messages, bytes, turns."""

from __future__ import annotations

import asyncio
import sys
from functools import partial

from tailrace.broker.subscriptions import Start
from tailrace.broker.subscriptions.delivery import Notice

from .rig import Rig, play


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
