"""Compaction on a full, failing or damaged disk, and ended in every call that it makes."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.storage.segment.cleaning.conftest import (
    DELAY_MS,
    DIRECTORY,
    LOG,
    HookedDisk,
    Pair,
    Rig,
    play,
)

from tailrace.model import LogDamaged, Offset, StorageError
from tailrace.records import iter_batches
from tailrace.testing.simulation import Crash, SimulatedLoop


def test_a_full_disk_leaves_everything_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k%d" % (n % 3), b"v" * 60) for n in range(20))
        names = rig.names()
        rig.disk.capacity_bytes = 1
        rig.disk.before = None
        with caplog.at_level(logging.WARNING, logger="tailrace.storage.segment.cleaning"):
            await rig.storage.maintain()
        assert "put off" in caplog.text
        assert rig.names() == names
        assert rig.storage.directory.failure is None
        assert await rig.offsets() == list(range(20))
        rig.disk.capacity_bytes = None
        await rig.storage.maintain()
        assert len(await rig.check()) < 10

    play(scenario)


def test_the_room_that_appends_need_is_left_alone() -> None:
    async def scenario() -> None:
        rig = await Rig(directory=replace(DIRECTORY, free_bytes_min=1000)).open()
        await rig.fill([(b"stays", b"1"), *[(b"k", b"%d" % n) for n in range(20)]])
        rig.disk.capacity_bytes = 1 << 30
        taken = rig.disk.capacity_bytes - rig.disk.free_bytes()
        rig.disk.capacity_bytes = taken + 999
        await rig.storage.maintain()
        assert await rig.offsets() == list(range(21))
        rig.disk.capacity_bytes = taken + 2000
        await rig.storage.maintain()
        assert len(await rig.check()) < 10

    play(scenario)


def test_a_failed_sync_ends_the_directory() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k", b"v" * 150) for _ in range(8))
        rig.disk.sync_error_chance = 1.0
        with pytest.raises(StorageError):
            await rig.storage.maintain()
        assert rig.storage.directory.failure is not None
        assert rig.log.compaction is None
        await rig.storage.close()

    play(scenario)


def test_a_damaged_segment_is_left_and_keeps_later_tombstones(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        rig = await Rig(directory=replace(DIRECTORY, tail_bytes_max=0)).open()
        await rig.fill(
            [(b"k", b"1" * 300), (b"k", b"2" * 300), (b"k", None), (b"x", b"4"), (b"x", b"5" * 300)]
        )
        await rig.fill([(b"x", b"6" * 300), (b"x", b"7" * 300)])
        path = rig.log.segment_path(1)
        rig.disk.flip_bit(path, position=200, bit=1)
        with caplog.at_level(logging.ERROR, logger="tailrace.storage.segment.cleaning"):
            for _ in range(3):
                rig.clock.advance(2 * DELAY_MS)
                await rig.compact()
        assert len(caplog.records) == 1
        assert path in caplog.text
        with pytest.raises(LogDamaged):
            await rig.log.read(Offset(1), bytes_max=1, up_to=rig.log.durable_offset)
        later = await rig.log.read(Offset(2), bytes_max=1, up_to=rig.log.durable_offset)
        tombstone = next(iter_batches(await later.load()))
        assert [(record.offset, record.value) for record in tombstone.records()] == [(2, None)]
        assert not rig.log.segments[0].length
        rig.disk.flip_bit(path, position=200, bit=1)
        await rig.reopen()
        await rig.compact()
        assert await rig.offsets() == [2, 6]

    play(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_no_crash_during_compaction_costs_a_record(seed: int) -> None:
    """End the process in every disk call of a compaction, with and without a power cut."""
    keys = random.Random(seed)
    values: list[bytes | None] = [None, b"", b"v" * 50, b"v" * 100]
    pairs = [(b"k%d" % keys.randrange(6), keys.choice(values)) for _ in range(16)]
    _crash_everywhere(pairs, seed)


# A delay of 30 ms is stamped without a byte more: the old and the new segment have the same length.
TOMBSTONES: list[Pair] = [(b"k%d" % n, None) for n in range(9)]


def test_no_crash_leaves_an_index_beside_another_segment() -> None:
    _crash_everywhere(TOMBSTONES, 0)


@pytest.mark.parametrize("seed", range(30))
def test_an_index_is_gone_for_sure_before_its_segment_is(seed: int) -> None:
    """Cut the power when the segment has its new name, which may have reached the disk alone."""
    rig = Rig(disk=HookedDisk(seed), log=replace(LOG, delete_retention_ms=30))

    async def crash_after(op: str, path: str) -> None:
        if op == "rename" and path.endswith(".log.tmp"):
            rig.disk.crash_at = rig.disk.calls + 2

    async def compact() -> None:
        await rig.open()
        await rig.fill(TOMBSTONES)
        rig.disk.before = crash_after
        await rig.storage.maintain()

    async def look() -> None:
        rig.disk.before = None
        await rig.open()
        assert len(await rig.check()) == len(TOMBSTONES)

    with SimulatedLoop() as loop, pytest.raises(Crash):
        loop.run(compact())
    rig.disk.power_cut()
    with SimulatedLoop(started_s=loop.time()) as loop:
        loop.run(look())


@pytest.mark.parametrize("seed", range(5))
def test_a_truncation_in_a_gap_is_recovered_before_it_was_applied(seed: int) -> None:
    rig = Rig(disk=HookedDisk(seed))

    async def truncate() -> None:
        await rig.open()
        await rig.fill((b"k", b"v" * 60) for _ in range(12))
        await rig.compact()
        assert 4 not in rig.log.segments
        await rig.log.truncate(Offset(4))

    async def look() -> None:
        await rig.open()
        assert rig.log.accepts_changes
        assert rig.log.end_offset == 4
        await rig.fill([(b"k", b"again")])
        assert await rig.offsets() == [4]

    with SimulatedLoop() as loop:
        loop.run(truncate())
        assert rig.log.unapplied
    rig.disk.power_cut()
    with SimulatedLoop(started_s=loop.time()) as loop:
        loop.run(look())


def _crash_everywhere(pairs: Sequence[Pair], seed: int) -> None:
    calls = _crash(pairs, seed, at=1 << 30)
    assert calls > 20
    for at in range(1, calls + 1):
        _crash(pairs, seed, at=at)


def _crash(pairs: Sequence[Pair], seed: int, *, at: int) -> int:
    """Compact, crash in the call `at`, recover, look; how many calls there were."""
    rig = Rig(disk=HookedDisk(seed), log=replace(LOG, delete_retention_ms=30))
    calls = 0

    async def compact() -> None:
        nonlocal calls
        await rig.open()
        await rig.fill(pairs)
        started = rig.disk.calls
        rig.disk.crash_at = started + at
        await rig.storage.maintain()
        rig.clock.advance(40)
        await rig.storage.maintain()
        calls = rig.disk.calls - started

    async def look() -> None:
        await rig.open()
        await rig.check()
        await rig.check_reads()
        assert not any(name.endswith(".tmp") for name in rig.names())
        rig.clock.advance(DELAY_MS)
        await rig.compact()
        await rig.compact()
        await rig.check()
        await rig.reopen()
        await rig.check()
        await rig.storage.close()

    with SimulatedLoop() as loop, contextlib.suppress(Crash):
        loop.run(compact())
    rig.disk.crash_at = 0
    if random.Random(at).random() < 0.3:
        rig.disk.kill()
    else:
        rig.disk.power_cut()
    with SimulatedLoop(started_s=loop.time()) as loop:
        loop.run(look())
    return calls
