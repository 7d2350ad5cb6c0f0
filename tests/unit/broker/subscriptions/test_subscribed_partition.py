"""One partition of a subscription: what is taken as new, what is passed over, and what is made durable."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.broker.feed import Feed, Skip
from tailrace.broker.subscriptions.codec import read_delta, read_snapshot
from tailrace.broker.subscriptions.cursor import Cursor
from tailrace.broker.subscriptions.definition import Start
from tailrace.broker.subscriptions.delivery import Source
from tailrace.broker.subscriptions.journal import CursorRecords
from tailrace.broker.subscriptions.machine import PartitionMachine, Rules
from tailrace.broker.subscriptions.start import resolve_start
from tailrace.broker.subscriptions.stored import CursorKey
from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition, is_expired, priority_of
from tailrace.model import Offset, OffsetOutOfRange
from tailrace.records import Record, build_batch, read_batch
from tailrace.runtime import Supervisor

from .rig import Rig, play, play_lives

RULES = Rules(ack_timeout_ms=100, max_deliveries=3, backoff_ms=10, backoff_ms_max=10)


def subscribed(
    rig: Rig, position: int = 0, *, beyond: Sequence[tuple[int, int]] = (), limit: int | None = None
) -> SubscribedPartition:
    tasks = Supervisor(lambda _: None)
    partition = rig.partition()
    feed = Feed(partition, position, tasks=tasks, wake=lambda: None, limit=limit)
    return SubscribedPartition(
        0,
        Source("orders", 0, id_prefix="x-0-"),
        partition,
        machine=PartitionMachine(Cursor(position, beyond), rules=RULES),
        feed=feed,
        records=CursorRecords(CursorKey("work", UUID(int=1), 0)),
    )


def take_all(partition: SubscribedPartition, now_ms: int = 0) -> list[int]:
    found = []
    while (record := partition.take_new(now_ms)) is not None:
        found.append(record.offset)
    return found


def record(*headers: tuple[str, bytes | None], timestamp: int = 1_000) -> Record:
    (made,) = read_batch(build_batch([(timestamp, None, b"v", headers)])).records()
    return made


# ---- what is new


def test_one_call_passes_over_a_bounded_number_of_expired_messages() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b"v"] * 5_000, ttl_ms="1")
        await rig.publish(b"new")
        part = subscribed(rig)
        calls = 1
        while (found := part.take_new(rig.clock.now_ms() + 60_000)) is None:
            assert part.feed.is_loading, "the loop has its turn, and the subscription is woken"
            await asyncio.sleep(0)
            calls += 1
        assert (found.offset, part.expired) == (5_000, 5_000)
        assert calls > 5_000 // 500

    play(scenario)


def test_what_is_done_or_under_way_is_not_new() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b"v"] * 10)
        part = subscribed(rig, 2, beyond=[(4, 6)])
        part.machine.deliver(7, member=1, now_ms=0)
        assert take_all(part) == [2, 3, 6, 8, 9]

    play(scenario)


def test_messages_behind_the_last_stable_offset_are_not_there_yet() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for _ in range(3):
            rig.clock.advance(1000)
            await rig.publish(b"v", b"v")
        last_ms = rig.clock.now_ms()
        part = subscribed(rig, 1)
        part.partition.last_stable_offset = Offset(4)
        assert (part.end, part.lag) == (4, 3)
        assert take_all(part) == [1, 2, 3]
        assert await resolve_start(Start.parse("latest"), part.partition) == 4
        assert await resolve_start(Start.parse("time:0"), part.partition) == 0
        assert await resolve_start(Start.parse(f"time:{last_ms}"), part.partition) == 4
        assert await resolve_start(Start.parse("offset:5"), part.partition) == 5
        with pytest.raises(OffsetOutOfRange):
            await resolve_start(Start.parse("offset:7"), part.partition)
        part.partition.last_stable_offset = part.partition.high_watermark
        assert (part.end, part.lag) == (6, 5)
        assert take_all(part) == [4, 5]

    play(scenario)


def test_many_that_are_done_are_leapt_over() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for _ in range(20):
            await rig.publish(*[bytes(100)] * 5_000)
        part = subscribed(rig, 0, beyond=[(1, 99_998)])
        read = 0

        def counted(*args: object, **kwargs: object) -> object:
            nonlocal read
            read += 1
            return original(*args, **kwargs)  # type: ignore[arg-type]

        original = Feed.take_nowait
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Feed, "take_nowait", counted)
            assert take_all(part) == [0]
            await rig.wait_until(lambda: not part.feed.is_loading)  # the way into the middle of a batch
            assert take_all(part) == [99_998, 99_999]
        assert read < 100

    play(scenario)


def test_offsets_without_a_record_are_done_with() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for _ in range(5):
            await rig.publish(b"v")
        await rig.partition().delete_records(3)
        part = subscribed(rig)
        assert take_all(part) == [3, 4]
        assert part.machine.cursor.position == 3
        assert part.take_skips() == [Skip(0, 3, "")]
        assert part.take_skips() == [] and (part.skipped, part.unreadable) == (3, 0)

    play(scenario)


def test_expired_messages_are_done_with_and_counted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"a", ttl_ms="10")
        await rig.publish(b"b")
        part = subscribed(rig)
        assert take_all(part, rig.clock.now_ms() + 11) == [1]
        assert (part.expired, part.machine.cursor.position) == (1, 1)

    play(scenario)


def test_its_lag_is_what_is_not_done() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b"v"] * 10)
        assert subscribed(rig, 2, beyond=[(4, 6)]).lag == 6
        limited = subscribed(rig, 2, limit=5)
        assert (limited.end, limited.lag) == (5, 3)
        assert subscribed(rig, 10).lag == 0

    play(scenario)


def test_what_is_gone_from_the_log_is_no_lag() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for _ in range(10):
            await rig.publish(b"v")
        await rig.partition().delete_records(5)
        assert subscribed(rig, 2, beyond=[(3, 7), (8, 9)]).lag == 2  # 7 and 9
        assert subscribed(rig, 6).lag == 4

    play(scenario)


def test_a_partition_that_is_not_served_has_no_lag() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"v")
        part = subscribed(rig)
        await rig.broker.delete_topic("orders")
        assert (part.end, part.lag) == (0, 0)
        assert "orders-0" in repr(part)

    play(scenario)


# ---- what is made durable


def test_small_changes_are_small_records() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        part = subscribed(rig)
        assert part.write_changes(0) is None
        for offset in range(4):
            part.machine.deliver(offset, member=1, now_ms=0)
        part.machine.ack([(0, 1), (2, 3)], epoch=0)
        part.machine.nack(3, member=1, epoch=0, now_ms=0)
        written = part.write_changes(5)
        assert written is not None
        time_ms, _, value, _ = written
        assert value is not None and time_ms == 5
        version, delta = read_delta(value)
        assert (version, delta.position, list(delta.ranges), dict(delta.failures)) == (1, 1, [(2, 3)], {3: 1})
        assert part.write_changes(6) is None

    play(scenario)


def test_after_a_seek_everything_is_written() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        part = subscribed(rig, 5, beyond=[(7, 9)], limit=50)
        part.machine.seek(2)
        written = part.write_changes(0)
        assert written is not None and written[2] is not None
        snapshot = read_snapshot(written[2])
        assert (snapshot.epoch, snapshot.position, snapshot.ranges, snapshot.limit) == (1, 2, (), 50)

    play(scenario)


def test_a_snapshot_holds_what_was_not_written_yet() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        part = subscribed(rig, 5)
        part.machine.deliver(7, member=1, now_ms=0)
        part.machine.ack([(7, 8)], epoch=0)
        _, _, value, _ = part.write_snapshot(0)
        assert value is not None
        snapshot = read_snapshot(value)
        assert (snapshot.version, snapshot.position, snapshot.ranges) == (1, 5, ((7, 8),))
        assert part.write_changes(0) is None

    play(scenario)


def test_a_million_acknowledged_behind_one_that_is_stuck_are_one_range() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        part = subscribed(rig)
        machine, sizes = part.machine, []
        machine.deliver(0, member=1, now_ms=0)
        for first in range(1, 1_000_001, 1_000):
            for offset in range(first, first + 1_000):
                machine.deliver(offset, member=1, now_ms=0)
            assert len(machine.ack([(first, first + 1_000)], epoch=0)) == 1_000
            written = part.write_changes(0)
            assert written is not None and written[2] is not None
            sizes.append(len(written[2]))
        assert list(machine.cursor.beyond) == [(1, 1_000_001)] and machine.unacked == 1
        assert sys.getsizeof(machine.cursor.beyond._bounds) < 1_000
        assert max(sizes) < 100

    play(scenario)


# ---- what messages say of themselves


@pytest.mark.parametrize(
    ("headers", "now_ms", "over"),
    [
        ([("ttl_ms", b"100")], 1_100, False),
        ([("ttl_ms", b"100")], 1_101, True),
        ([("ttl_ms", b"0")], 1_001, True),
        ([("other", b"1"), ("ttl_ms", b"100")], 5_000, True),
        ([("ttl_ms", b"")], 5_000, False),
        ([("ttl_ms", None)], 5_000, False),
        ([("ttl_ms", b"-5")], 5_000, False),
        ([("ttl_ms", b"1.5")], 5_000, False),
        ([("ttl_ms", b"\xb2")], 5_000, False),
        ([("ttl_ms", b"9" * 5_000)], 5_000, False),
        ([("TTL_MS", b"1")], 5_000, False),
        ([], 5_000, False),
    ],
)
def test_the_time_to_live_of_a_message(
    headers: list[tuple[str, bytes | None]], now_ms: int, over: bool
) -> None:
    assert is_expired(record(*headers), now_ms) is over


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"0", 0),
        (b"9", 9),
        (b"10", 9),
        (b"99999999999999999999", 9),
        (b"", 4),
        (b"-1", 4),
        (b"high", 4),
        (None, 4),
        (b"\xb3", 4),
    ],
)
def test_the_priority_of_a_message(value: bytes | None, expected: int) -> None:
    assert priority_of(record(("priority", value))) == expected
    assert priority_of(record()) == 4


def test_it_is_served_over_both_engines(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"a", b"b")
        assert take_all(subscribed(rig)) == [0, 1]

    play(scenario)
    play_lives(tmp_path, scenario)
