"""When compaction is due, and when a tombstone may go, on a clock that the test moves."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.unit.storage.segment.cleaning.conftest import (
    DELAY_MS,
    DIRECTORY,
    LOG,
    Rig,
    play,
)

from tailrace.records import Batch
from tailrace.storage.segment.compaction import Newest
from tailrace.storage.segment.pace import Steps


def test_a_tombstone_stays_for_its_delay_and_then_goes() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill([(b"k", b"1"), (b"k", None), (b"x", b"3" * 300), (b"y", b"4" * 300)])
        rig.clock.advance(5 * DELAY_MS)  # its age does not count before it was compacted
        await rig.compact()
        assert await rig.offsets() == [1, 2, 3]
        horizon_ms = rig.clock.now_ms() + DELAY_MS
        assert (await rig.batches())[0].delete_horizon_ms == horizon_ms
        rig.clock.advance(DELAY_MS - 1)
        await rig.compact()
        assert await rig.offsets() == [1, 2, 3]
        assert (await rig.batches())[0].delete_horizon_ms == horizon_ms
        rig.clock.advance(1)
        await rig.compact()
        assert await rig.offsets() == [2, 3]

    play(scenario)


def test_a_horizon_outlives_a_restart() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill([(b"k", None), (b"x", b"3" * 300), (b"y", b"4" * 300)])
        await rig.compact()
        rig.clock.advance(DELAY_MS - 1)
        await rig.reopen()
        await rig.compact()
        assert await rig.offsets() == [0, 1, 2]
        rig.clock.advance(1)
        await rig.compact()
        assert await rig.offsets() == [1, 2]

    play(scenario)


def test_a_superseded_tombstone_goes_at_once() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill([(b"k", None), (b"k", b"2" * 300), (b"x", b"3" * 300)])
        await rig.compact()
        assert await rig.offsets() == [1, 2]

    play(scenario)


def test_records_younger_than_the_lag_stay() -> None:
    async def scenario() -> None:
        rig = await Rig(log=replace(LOG, min_compaction_lag_ms=500)).open()
        await rig.fill([(b"k", b"1" * 300), (b"k", b"2" * 300)])
        rig.clock.advance(499)
        await rig.fill([(b"k", b"3" * 300), (b"k", b"4" * 300), (b"k", b"5" * 300)])
        await rig.storage.maintain()
        assert await rig.offsets() == [0, 1, 2, 3, 4]
        rig.clock.advance(1)
        await rig.storage.maintain()
        assert await rig.offsets() == [2, 3, 4]
        rig.clock.advance(499)
        await rig.storage.maintain()
        assert await rig.offsets() == [4]

    play(scenario)


def test_the_lag_of_records_without_a_timestamp_counts_from_their_write() -> None:
    async def scenario() -> None:
        rig = await Rig(log=replace(LOG, min_compaction_lag_ms=500)).open()
        await rig.fill([(b"k", b"%d" % n * 300) for n in range(3)], timestamp=-1)
        rig.clock.advance(499)
        await rig.storage.maintain()
        assert await rig.offsets() == [0, 1, 2]
        rig.clock.advance(1)
        await rig.storage.maintain()
        assert await rig.offsets() == [2]

    play(scenario)


def test_a_log_without_compact_is_left_alone() -> None:
    async def scenario() -> None:
        rig = await Rig(log=replace(LOG, compact=False)).open()
        await rig.fill((b"k", b"v" * 300) for _ in range(4))
        await rig.compact()
        assert await rig.offsets() == [0, 1, 2, 3]

    play(scenario)


def test_little_that_is_new_waits_for_more() -> None:
    async def scenario() -> None:
        rig = await Rig(log=replace(LOG, dirty_ratio_min=0.5)).open()
        await rig.fill((b"k%d" % n, b"v" * 300) for n in range(5))
        await rig.compact()
        await rig.fill([(b"k1", b"v" * 300)])
        await rig.compact()
        assert 1 in await rig.offsets()
        await rig.fill((b"k%d" % n, b"v" * 300) for n in range(5))
        await rig.compact()
        assert await rig.offsets() == [6, 7, 8, 9, 10]

    play(scenario)


def test_compaction_does_not_wait_for_a_checkpoint_that_comes_by_itself() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        for number in range(4):
            rig.append((b"k", b"%d" % number * 300))
        await rig.log.wait_durable(rig.log.end_offset)
        await rig.storage.wait_applied()
        await rig.storage.compact()
        assert await rig.offsets() == [3]

    play(scenario)


def test_no_checkpoint_is_asked_for_while_too_little_is_new() -> None:
    async def scenario() -> None:
        rig = await Rig(log=replace(LOG, dirty_ratio_min=0.5)).open()
        await rig.fill((b"k%d" % number, b"v" * 300) for number in range(6))
        await rig.compact()
        rig.append((b"k1", b"v" * 300))
        await rig.log.wait_durable(rig.log.end_offset)
        await rig.storage.wait_applied()
        calls = rig.disk.calls
        await rig.storage.compact()
        assert rig.disk.calls == calls

    play(scenario)


def test_old_segments_are_compacted_though_little_is_new() -> None:
    async def scenario() -> None:
        rig = await Rig(log=replace(LOG, dirty_ratio_min=1.0, max_compaction_lag_ms=500)).open()
        await rig.fill((b"k%d" % number, b"v" * 300) for number in range(6))
        await rig.compact()
        rig.clock.advance(499)
        await rig.fill([(b"k1", b"v" * 300), (b"k2", b"v" * 300)])
        await rig.storage.compact()
        assert await rig.offsets() == list(range(8))
        rig.clock.advance(500)
        await rig.storage.compact()
        assert await rig.offsets() == [0, 3, 4, 5, 6, 7]

    play(scenario)


@pytest.mark.parametrize(("compact", "rolls"), [(True, True), (False, False)])
def test_a_segment_is_sealed_when_its_records_must_be_compacted(compact: bool, rolls: bool) -> None:
    async def scenario() -> None:
        rig = await Rig(
            log=replace(LOG, compact=compact, segment_bytes=10_000, max_compaction_lag_ms=500)
        ).open()
        await rig.fill([(b"k", b"1")])
        rig.clock.advance(500)
        await rig.storage.maintain()
        await rig.fill([(b"k", b"2")])
        assert list(rig.log.segments) == ([0, 1] if rolls else [0])

    play(scenario)


def test_maintaining_again_does_nothing_to_the_disk() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k%d" % (n % 3), b"v" * 100) for n in range(20))
        await rig.compact()
        calls = rig.disk.calls
        await rig.storage.maintain()
        assert rig.disk.calls == calls

    play(scenario)


def test_no_more_keys_are_held_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    class Watched(Newest):
        def take(self, batch: Batch) -> Steps[None]:
            yield from super().take(batch)
            held.append(len(self.offsets))

    monkeypatch.setattr("tailrace.storage.segment.cleaning.Newest", Watched)

    async def scenario() -> None:
        rig = await Rig(directory=replace(DIRECTORY, compaction_keys_max=5)).open()
        await rig.fill((b"k%d" % n, b"v") for n in range(40))
        await rig.compact()
        assert max(held) == 5
        assert len(held) == 40

    play(scenario)


def test_one_pass_for_every_few_keys_comes_to_the_same() -> None:
    async def offsets(keys_max: int) -> list[int]:
        rig = await Rig(directory=replace(DIRECTORY, compaction_keys_max=keys_max)).open()
        rng = random.Random(5)
        await rig.fill((b"k%d" % rng.randrange(20), b"v" * rng.randrange(60)) for _ in range(100))
        await rig.compact()
        await rig.check()
        return await rig.offsets()

    async def scenario() -> None:
        assert await offsets(1) == await offsets(7) == await offsets(500_000)

    play(scenario)
