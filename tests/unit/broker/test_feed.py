"""A feed over real partitions: record by record, hot and cold, over gaps and what cannot be read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.turns import counted_turns

from tailrace.broker.feed import Feed
from tailrace.broker.partition import Partition
from tailrace.broker.visible_records import read_nowait
from tailrace.model import BrokerError, ErrorCode, LogDamaged, Offset, StorageError
from tailrace.records import (
    CONTROL_BIT,
    HEADER_BYTES,
    BadSpan,
    Compression,
    build_batch,
    crc32c,
    read_batch,
    rebuild_batch,
)
from tailrace.runtime import Supervisor
from tailrace.storage import Slice
from tailrace.testing import FakeClock

from .subscriptions.rig import COLD, TOPIC, Rig, make_cold, play, play_lives

NOW_MS = FakeClock().now_ms()


class Fed:
    """A feed, and how often it called."""

    def __init__(self, partition: Partition, position: int = 0, *, limit: int | None = None) -> None:
        self.calls = 0
        self.failures: list[BaseException] = []
        self.tasks = Supervisor(self.failures.append)
        self.feed = Feed(partition, position, tasks=self.tasks, wake=self._wake, limit=limit)

    def _wake(self) -> None:
        self.calls += 1

    @property
    def skipped(self) -> int:
        return sum(skip.count for skip in self.feed.skips)

    def drain(self) -> list[int]:
        """The offsets of what is there now."""
        found = []
        while (record := self.feed.take_nowait()) is not None:
            found.append(record.offset)
        return found

    async def drain_cold(self, rig: Rig, end: int) -> list[int]:
        """The same, waiting for the disk."""
        found = self.drain()
        while self.feed.position < end:
            await rig.wait_until(lambda: not self.feed.is_loading)
            found += self.drain()
        return found


def broken_batch(count: int = 3) -> bytearray:
    """A batch with a correct checksum whose records do not add up."""
    data = build_batch([(NOW_MS, None, b"v", ())] * count)
    data[HEADER_BYTES:] = b"\xff" * (len(data) - HEADER_BYTES)
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return data


def control_batch() -> bytearray:
    data = build_batch([(NOW_MS, b"\0\0\0\0", b"v", ())])
    data[22] |= CONTROL_BIT
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return data


def test_records_come_one_after_the_other_and_new_ones_later() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        fed = Fed(rig.partition())
        assert fed.drain() == []
        await rig.publish(b"a", b"b")
        await rig.publish(b"c")
        assert fed.drain() == [0, 1, 2]
        assert fed.drain() == []
        await rig.publish(b"d")
        assert fed.drain() == [3] and fed.feed.position == 4
        assert "at 4" in repr(fed.feed)

    play(scenario)


@pytest.mark.parametrize("position", [0, 3, 5, 9, 10])
def test_it_begins_within_a_batch_too(position: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b"v"] * 5)
        await rig.publish(*[b"v"] * 5)
        assert Fed(rig.partition(), position).drain() == list(range(position, 10))

    play(scenario)


def test_it_may_be_moved_back_and_forth() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b"v"] * 10)
        fed = Fed(rig.partition())
        assert [fed.feed.take_nowait() is not None for _ in range(3)] == [True] * 3
        fed.feed.move_to(8)
        assert fed.drain() == [8, 9]
        fed.feed.move_to(1)
        assert fed.drain() == list(range(1, 10))

    play(scenario)


def test_a_feed_with_a_limit_ends_there_until_it_moves() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b"v"] * 10)
        fed = Fed(rig.partition(), limit=4)
        assert fed.drain() == [0, 1, 2, 3]
        assert fed.drain() == []
        fed.feed.limit = 6
        assert fed.drain() == [4, 5] and fed.feed.position == 6

    play(scenario)


def test_a_feed_with_a_limit_ends_there_when_its_records_come_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cold(monkeypatch)

    async def before(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b"v"] * 10)

    async def after(rig: Rig) -> None:
        fed = Fed(rig.partition(), limit=4)
        assert await fed.drain_cold(rig, 4) == [0, 1, 2, 3]
        assert fed.drain() == []

    play_lives(tmp_path, before, after, config=COLD)


def test_a_limit_within_a_gap_is_reached() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        partition = rig.partition()
        await rig.publish(b"a")
        partition.append(read_batch(control_batch()))
        await rig.publish(b"b")
        fed = Fed(partition, limit=2)
        assert fed.drain() == [0] and fed.feed.position == 2 and fed.skipped == 0

    play(scenario)


def test_control_batches_are_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"a")
        rig.partition().append(read_batch(control_batch()))
        await rig.publish(b"b")
        rig.partition().append(read_batch(control_batch()))
        fed = Fed(rig.partition())
        assert fed.drain() == [0, 2]
        assert (fed.feed.position, fed.skipped) == (4, 0)

    play(scenario)


def test_a_transaction_is_delivered_when_it_commits_and_never_when_it_is_aborted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        partition = rig.partition()
        fed = Fed(partition)
        for producer_id, commit in ((7, False), (8, True)):
            batch = build_batch(
                [(NOW_MS, b"k", b"v", ())] * 2,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            before = fed.feed.position
            partition.append(read_batch(batch), verified=True)
            await rig.publish(b"between")
            assert fed.drain() == [] and fed.feed.position == before
            partition.append_marker(producer_id, 0, commit=commit, coordinator_epoch=0)
            assert fed.drain() == ([before, before + 1, before + 2] if commit else [before + 2])
            assert (fed.feed.position, fed.skipped) == (before + 4, 0)

    play(scenario)


def test_records_that_make_no_sense_are_passed_over_and_counted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"a")
        rig.partition().append(read_batch(broken_batch(3)))
        await rig.publish(b"b")
        fed = Fed(rig.partition())
        assert fed.drain() == [0, 4]
        assert (fed.feed.position, fed.skipped) == (5, 3)

    play(scenario)


def test_a_batch_that_cannot_be_decompressed_is_passed_over_and_counted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"a")
        broken = broken_batch(3)
        broken[22] |= Compression.GZIP
        broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
        rig.partition().append(read_batch(broken))
        await rig.publish(b"b")
        fed = Fed(rig.partition())
        assert fed.drain() == [0, 4]
        assert (fed.feed.position, fed.skipped) == (5, 3)

    play(scenario)


def test_many_batches_that_cannot_be_decoded_are_passed_a_few_at_a_time_and_all_counted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for _ in range(100):
            rig.partition().append(read_batch(broken_batch(3)))
        await rig.publish(b"a")
        fed = Fed(rig.partition())
        assert fed.drain() == [] and fed.feed.is_loading
        assert 0 < fed.feed.position < 300
        await rig.wait_until(lambda: fed.drain() == [300])
        assert fed.skipped == 300 and len(fed.feed.skips) < 100
        assert fed.feed.skips[0].offset == 0 and "varint" in fed.feed.skips[0].fault
        assert fed.calls >= 6 and not fed.feed.is_loading

    play(scenario)


def test_a_feed_that_is_moved_or_closed_does_not_call_for_what_it_passed() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for _ in range(100):
            rig.partition().append(read_batch(broken_batch(1)))
        await rig.publish(b"a")
        fed = Fed(rig.partition())
        assert fed.drain() == [] and fed.feed._rest is not None
        fed.feed.move_to(100)
        assert fed.drain() == [100]
        fed.feed.move_to(0)
        assert fed.drain() == []
        fed.feed.close()
        await rig.turns()
        assert fed.calls == 0

    play(scenario)


def test_a_feed_ends_at_the_last_stable_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for _ in range(3):
            await rig.publish(b"a", b"b")
        partition = rig.partition()
        partition.last_stable_offset = Offset(4)
        fed = Fed(partition)
        assert fed.drain() == [0, 1, 2, 3] and fed.feed.position == 4
        limited = Fed(partition, limit=5)
        assert limited.drain() == [0, 1, 2, 3] and limited.feed.position == 4
        with monkeypatch.context() as patched:
            make_cold(patched)  # there is nothing to load before the end moves
            assert limited.drain() == [] and not limited.feed.is_loading
        partition.last_stable_offset = partition.high_watermark
        assert fed.drain() == [4, 5]
        assert limited.drain() == [4]

    play(scenario)


def test_a_broken_batch_behind_a_gap_counts_only_its_own() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        rig.partition().append(read_batch(control_batch()))
        rig.partition().append(read_batch(broken_batch(3)))
        fed = Fed(rig.partition())
        assert fed.drain() == [] and (fed.feed.position, fed.skipped) == (4, 3)

    play(scenario)


def test_a_batch_whose_bytes_are_no_batch_counts_from_its_own_first_offset() -> None:
    """What lies before it in the same portion holds no record for a subscription."""

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        rig.partition().append(read_batch(control_batch()))
        await rig.publish(b"a", b"b")
        portion = read_nowait(rig.partition(), 0, bytes_max=1 << 20)
        assert portion is not None
        feed = Fed(rig.partition()).feed
        feed._begin(portion)
        span = BadSpan(
            position=0, size=1, first_offset=1, next_offset=3, reason="x", code=ErrorCode.CORRUPT_MESSAGE
        )
        assert feed._pass_span(span)
        assert [(skip.offset, skip.count) for skip in feed.skips] == [(1, 2)]

    play(scenario)


def test_what_was_trimmed_is_skipped_and_counted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for _ in range(10):
            await rig.publish(b"v")
        fed = Fed(rig.partition(), 2)
        await rig.partition().delete_records(7)
        assert fed.drain() == [7, 8, 9] and fed.skipped == 5

    play(scenario)


def test_a_log_that_was_cut_is_waited_for() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"a")
        fed = Fed(rig.partition(), 3)
        assert fed.drain() == [] and (fed.feed.position, fed.skipped) == (3, 0)
        await rig.publish(b"b", b"c", b"d", b"e")
        assert fed.drain() == [3, 4]

    play(scenario)


def test_a_partition_that_is_not_served_is_an_error_until_it_is() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"a")
        partition = rig.partition()
        log = partition.log
        assert log is not None
        fed = Fed(partition)
        partition.close()
        assert fed.drain() == [] and fed.feed.error is not None
        partition.open(log)
        assert fed.drain() == [0] and fed.feed.error is None

    play(scenario)


def test_a_read_that_fails_is_shown_and_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"a")
        reads = 0

        async def fail(
            self: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
        ) -> Slice:
            nonlocal reads
            reads += 1
            raise LogDamaged("bytes are gone")

        with monkeypatch.context() as patched:
            patched.setattr(Partition, "read_nowait", lambda *_, **__: None)
            patched.setattr(Partition, "read", fail)
            fed = Fed(rig.partition())
            assert fed.drain() == []
            await rig.turns()
            assert reads == 1 and fed.calls == 0 and isinstance(fed.feed.error, LogDamaged)
        assert fed.drain() == [0]
        assert fed.failures == []

    play(scenario)


def test_a_read_that_failed_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.broker.feed._RETRY_S", 0.001)

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"a")

        async def fail(
            self: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
        ) -> Slice:
            raise LogDamaged("bytes are gone")

        with monkeypatch.context() as patched:
            patched.setattr(Partition, "read_nowait", lambda *_, **__: None)
            patched.setattr(Partition, "read", fail)
            fed = Fed(rig.partition())
            assert fed.drain() == []
            await rig.wait_until(lambda: fed.calls == 1)

    play(scenario)


def test_cold_records_come_after_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cold(monkeypatch)

    async def before(rig: Rig) -> None:
        await rig.topic()
        for _ in range(40):
            await rig.publish(*[bytes(1_000)] * 25)

    async def after(rig: Rig) -> None:
        fed = Fed(rig.partition())
        assert fed.drain() == [] and fed.feed.is_loading
        assert await fed.drain_cold(rig, 1_000) == list(range(1_000))
        assert fed.calls > 1 and fed.failures == []

    play_lives(tmp_path, before, after, config=COLD)


def test_a_cold_read_under_way_is_forgotten_when_it_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cold(monkeypatch)

    async def before(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[bytes(5_000)] * 100)

    async def after(rig: Rig) -> None:
        fed = Fed(rig.partition())
        assert fed.drain() == [] and fed.feed.is_loading
        fed.feed.move_to(90)
        assert await fed.drain_cold(rig, 100) == list(range(90, 100))
        fed.feed.move_to(0)
        fed.drain()
        fed.feed.close()
        await fed.tasks.stop()
        assert fed.failures == []

    play_lives(tmp_path, before, after, config=COLD)


def test_what_compaction_removed_is_nothing(tmp_path: Path) -> None:
    async def before(rig: Rig) -> None:
        await rig.topic(cleanup_policy="compact", segment_bytes="100000")
        for number in range(30):
            await rig.publish(bytes(10_000), key=b"%d" % (number % 2))

    async def after(rig: Rig) -> None:  # sealed segments of an earlier life may be compacted
        await rig.broker.storage.maintain()
        fed = Fed(rig.partition())
        found = await fed.drain_cold(rig, 30)
        assert 2 <= len(found) < 30 and found[-1] == 29 and found == sorted(found)
        assert (fed.feed.position, fed.skipped) == (30, 0)

    play_lives(tmp_path, before, after)


# ---- one record


def test_one_record_is_fetched_from_within_a_batch() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b"%d" % number for number in range(10)])
        fed = Fed(rig.partition())
        record = await fed.feed.fetch(7)
        assert record is not None and record.value == b"7"
        assert fed.drain() == list(range(10))  # not disturbed

    play(scenario)


def test_the_record_behind_one_that_compaction_removed_is_not_fetched_for_it() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        batch = read_batch(build_batch([(NOW_MS, None, b"%d" % n, ()) for n in range(3)]))
        kept = [record for record in batch.records() if record.offset != 1]
        rig.partition().append(read_batch(rebuild_batch(batch, kept, delete_horizon_ms=None)))
        feed = Fed(rig.partition()).feed
        assert await feed.fetch(1) is None
        third = await feed.fetch(2)
        assert third is not None and third.value == b"2"

    play(scenario)


@pytest.mark.parametrize("offset", [0, 3, 12])
def test_what_is_gone_or_was_never_there_is_not_fetched(offset: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for _ in range(10):
            await rig.publish(b"v")
        await rig.partition().delete_records(4)
        assert await Fed(rig.partition()).feed.fetch(offset) is None

    play(scenario)


def test_what_makes_no_sense_is_not_fetched() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        rig.partition().append(read_batch(broken_batch(3)))
        assert await Fed(rig.partition()).feed.fetch(1) is None

    play(scenario)


def test_what_cannot_be_read_now_is_not_taken_for_gone() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"v")
        rig.log().damage = BrokerError("busy", code=ErrorCode.KAFKA_STORAGE_ERROR)
        with pytest.raises(BrokerError, match="busy"):
            await Fed(rig.partition()).feed.fetch(0)

    play(scenario)


def test_what_was_in_a_topic_that_is_deleted_is_gone() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"v")
        fed = Fed(rig.partition())
        await rig.broker.delete_topic("orders")
        assert await fed.feed.fetch(0) is None
        await asyncio.sleep(0)

    play(scenario)


def test_a_topic_that_is_deleted_while_it_is_read_is_nobody_s_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cold(monkeypatch)

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b"v"] * 10)
        reading, deleted = asyncio.Event(), asyncio.Event()

        async def read(
            partition: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
        ) -> Slice:
            log = partition.log
            assert log is not None
            reading.set()
            await deleted.wait()
            return await log.read(offset, bytes_max=bytes_max, up_to=partition.high_watermark)

        monkeypatch.setattr(Partition, "read", read)
        fed = Fed(rig.partition())
        assert fed.drain() == []
        fetching = asyncio.ensure_future(fed.feed.fetch(3))
        await reading.wait()
        await rig.broker.delete_topic(TOPIC)
        deleted.set()
        assert await fetching is None
        await rig.wait_until(lambda: not fed.feed.is_loading)
        assert fed.drain() == [] and not fed.failures

    play_lives(tmp_path, scenario)


def test_trouble_of_the_storage_is_told_and_the_feed_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_cold(monkeypatch)

    async def fail(
        partition: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
    ) -> Slice:
        raise StorageError("read", "a disk", "it is on fire")

    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"v")
        monkeypatch.setattr(Partition, "read", fail)
        fed = Fed(rig.partition())
        assert fed.drain() == [] and fed.feed.is_loading
        await rig.wait_until(lambda: fed.failures)
        assert ["on fire" in str(each) for each in fed.failures] == [True]
        assert repr(fed.feed).endswith("at 0>") and fed.drain() == []
        await rig.wait_until(lambda: len(fed.failures) == 2)  # it was read again, and is not waited for

    play(scenario)


# ---- large batches


LARGE_BYTES = (64 << 20) - 1024


def large_batch(compression: Compression) -> bytearray:
    """A batch that decompresses to almost as much as any batch may."""
    return build_batch([(NOW_MS, None, bytes(LARGE_BYTES), ())], compression=compression)


@pytest.mark.parametrize("compression", [Compression.ZSTD, Compression.GZIP])
def test_the_loop_keeps_turning_while_a_large_batch_is_opened(compression: Compression) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(max_message_bytes="10000000")
        partition = rig.partition()
        partition.append(read_batch(large_batch(compression)))
        await rig.publish(b"next")
        fed = Fed(partition)
        async with counted_turns() as turns:
            assert fed.drain() == [] and fed.feed.is_loading
            assert fed.feed.position == 0
            assert fed.drain() == [], "the next batch does not come first"
            await rig.wait_until(lambda: fed.calls)
        assert len(turns) > 3  # else it had none, or the two before and after
        found = fed.feed.take_nowait()
        assert found is not None and len(found.value or b"") == LARGE_BYTES
        assert fed.drain() == [1] and fed.skipped == 0 and not fed.failures

    play(scenario)


def test_the_loop_keeps_turning_on_the_way_to_the_middle_of_a_batch() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b""] * 20_000)
        fed = Fed(rig.partition(), 19_998)
        async with counted_turns() as turns:
            assert fed.drain() == [] and fed.feed.is_loading
            await rig.wait_until(lambda: fed.calls)
        assert len(turns) >= 19_998 // 500
        assert fed.drain() == [19_998, 19_999]
        async with counted_turns() as turns:
            assert (found := await fed.feed.fetch(19_000)) is not None and found.offset == 19_000
        assert len(turns) >= 19_000 // 500

    play(scenario)


def test_the_loop_keeps_turning_between_two_fetches_from_one_large_batch() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b""] * 20_000)
        fed = Fed(rig.partition())
        assert await fed.feed.fetch(0) is not None
        async with counted_turns() as turns:
            first, second = await asyncio.gather(fed.feed.fetch(19_000), fed.feed.fetch(10_000))
        assert first is not None and first.offset == 19_000
        assert second is not None and second.offset == 10_000
        assert len(turns) >= 19_000 // 500

    play(scenario)


def test_a_large_batch_that_cannot_be_decoded_is_skipped() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(max_message_bytes="10000000")
        data = large_batch(Compression.GZIP)
        data[-8:] = bytes(8)  # the checksum and the length at the end of gzip
        data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
        rig.partition().append(read_batch(data))
        await rig.publish(b"next")
        fed = Fed(rig.partition())
        assert await fed.drain_cold(rig, 2) == [1]
        (skip,) = fed.feed.skips
        assert (skip.offset, skip.count) == (0, 1) and "gzip" in skip.fault

    play(scenario)


def test_a_feed_that_moves_while_a_large_batch_is_opened_forgets_it() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(max_message_bytes="10000000")
        rig.partition().append(read_batch(large_batch(Compression.GZIP)))
        await rig.publish(b"next")
        fed = Fed(rig.partition())
        assert fed.drain() == []
        fed.feed.move_to(1)
        assert fed.drain() == [1] and fed.feed.position == 2
        await rig.turns()
        assert fed.drain() == [] and not fed.failures

    play(scenario)
