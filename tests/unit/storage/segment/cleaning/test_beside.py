"""Compaction beside readers, truncations, trims, deletions, cancellation and closing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.storage.segment.cleaning.conftest import (
    DIRECTORY,
    FIRST,
    LOG,
    Rig,
    play,
)

from tailrace.model import Offset
from tailrace.records import Batch
from tailrace.storage import Slice
from tailrace.storage.segment import DirectoryConfig
from tailrace.testing import FakeClock
from tailrace.testing.simulation import SimulatedLoop


def test_a_reader_keeps_the_bytes_that_it_found() -> None:
    async def scenario() -> None:
        rig = await Rig(directory=replace(DIRECTORY, tail_bytes_max=0, index_cache_bytes=0)).open()
        await rig.fill((b"k", b"%d" % n * 100) for n in range(12))
        slices: list[Slice] = [
            await rig.log.read(Offset(n), bytes_max=1, up_to=rig.log.durable_offset) for n in range(12)
        ]
        segments = list(rig.log.segments.values())
        before = [Batch(memoryview(await piece.load())).base_offset for piece in slices]
        await rig.compact()
        assert len(await rig.offsets()) < 4
        assert [Batch(memoryview(await piece.load())).base_offset for piece in slices] == before
        # Who holds a segment, not yet a place in it, must not find other bytes under its name either.
        assert all(segment.ready for segment in segments[:-1])

    play(scenario)


def test_a_segment_that_the_cache_closed_is_opened_before_its_name_goes() -> None:
    async def scenario() -> None:
        rig = await Rig(directory=replace(DIRECTORY, tail_bytes_max=0, index_cache_bytes=0)).open()
        await rig.fill((b"k", b"%d" % n * 100) for n in range(12))
        segments = list(rig.log.segments.values())
        closed: list[bool] = []

        async def read_elsewhere(op: str, path: str) -> None:
            if op == "create" and path.endswith(".timeindex.tmp") and not closed:
                await rig.log.read(Offset(segments[1].base), bytes_max=1, up_to=rig.log.durable_offset)
                await rig.log.read(Offset(segments[2].base), bytes_max=1, up_to=rig.log.durable_offset)
                closed.append(not segments[0].ready)

        rig.disk.before = read_elsewhere
        await rig.storage.maintain()
        assert closed == [True]
        assert segments[0].ready
        assert rig.log.segments[0].length < segments[0].length

    play(scenario)


def test_a_reader_in_a_gap_misses_nothing_that_leaves_the_tail_meanwhile() -> None:
    async def scenario() -> None:
        rig = await Rig(directory=replace(DIRECTORY, index_cache_bytes=0)).open()
        await rig.fill((b"k", b"%d" % n * 20) for n in range(20))
        await rig.compact()
        offsets = await rig.offsets()
        assert 0 < offsets[0] < offsets[-1]
        reading = asyncio.ensure_future(rig.log.read(Offset(0), bytes_max=1, up_to=rig.log.durable_offset))
        await asyncio.sleep(0)
        assert not reading.done()
        assert rig.log.evict_tail(1 << 20) > 0
        found = await (await reading).load()
        assert Batch(memoryview(found)).base_offset == offsets[0]

    play(scenario)


def test_a_truncation_waits_for_the_swap_and_finds_the_new_places() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill([(b"k", b"1" * 100), (b"a", b"2" * 100), (b"b", b"3" * 100), (b"k", b"4" * 300)])
        await rig.fill([(b"x", b"5" * 300)])
        cut: list[asyncio.Task[None]] = []

        async def cut_now(op: str, path: str) -> None:
            if op == "rename" and path.endswith(".log.tmp"):
                cut.append(asyncio.ensure_future(rig.log.truncate(Offset(2))))
                for _ in range(20):
                    await asyncio.sleep(0.01)
                assert not cut[0].done()
                assert rig.log.end_offset == 5

        rig.disk.before = cut_now
        await rig.storage.maintain()
        rig.disk.before = None
        await cut[0]
        assert rig.log.end_offset == 2
        assert await rig.offsets() == [1]
        rig.append((b"new", b"record"))
        await rig.settle()
        await rig.reopen()
        assert await rig.offsets() == [1, 2]

    play(scenario)


@pytest.mark.parametrize("change", ["truncate", "trim", "delete"])
def test_compaction_gives_way(change: str) -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k", b"v" * 150) for _ in range(8))
        before = {base: segment.length for base, segment in rig.log.segments.items()}
        log = rig.log
        changes: list[asyncio.Task[None]] = []

        async def change_now(op: str, path: str) -> None:
            if op == "create" and path.endswith(".timeindex.tmp") and not changes:
                work = {"truncate": log.truncate, "trim": log.trim}
                call = work[change](Offset(5)) if change in work else rig.storage.delete(FIRST)
                changes.append(asyncio.ensure_future(call))
                await asyncio.sleep(0)

        rig.disk.before = change_now
        await rig.storage.maintain()
        await changes[0]
        await rig.storage.wait_applied()
        assert log.compaction is None
        assert not any(path.endswith(".log.tmp") for path in rig.disk.paths())
        if change != "delete":
            assert all(before[base] == segment.length for base, segment in log.segments.items() if base < 4)
            await rig.compact()
            assert await rig.offsets() == ([4] if change == "truncate" else [7])

    play(scenario)


def test_what_a_truncation_took_meanwhile_supersedes_nothing() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill([(b"k", b"1" * 300), (b"x", b"2" * 300), (b"k", b"3" * 300), (b"y", b"4" * 300)])

        truncated = False

        async def truncate(op: str, path: str) -> None:
            nonlocal truncated
            if op == "create" and path.endswith(".timeindex.tmp") and not truncated:
                truncated = True
                await rig.log.truncate(Offset(2))
                await rig.settle()

        rig.disk.before = truncate
        await rig.storage.maintain()
        assert rig.log.end_offset == 2
        assert await rig.offsets() == [0, 1]

    play(scenario)


def test_nothing_is_rewritten_between_a_truncation_and_the_next_checkpoint() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k", b"v" * 150) for _ in range(8))
        await rig.log.truncate(Offset(6))
        await rig.storage.wait_applied()
        lengths = [segment.length for segment in rig.log.segments.values()]
        await rig.storage.maintain()
        assert [segment.length for segment in rig.log.segments.values()] == lengths
        await rig.compact()
        assert await rig.offsets() == [5]

    play(scenario)


def test_what_is_appended_after_a_truncation_is_compacted_again() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k%d" % n, b"v" * 150) for n in range(8))
        await rig.compact()
        await rig.log.truncate(Offset(2))
        await rig.fill((b"k0", b"v" * 150) for _ in range(4))
        await rig.compact()
        assert await rig.offsets() == [1, 5]

    play(scenario)


def test_two_callers_compact_once() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k%d" % (n % 3), b"v" * 60) for n in range(20))
        created: list[str] = []

        async def note(op: str, path: str) -> None:
            if op == "create":
                created.append(path)

        rig.disk.before = note
        await asyncio.gather(rig.storage.maintain(), rig.storage.maintain())
        assert len(created) == len(set(created)) > 0
        await rig.check()

    play(scenario)


def test_a_truncation_in_a_gap_that_compaction_left_begins_a_segment() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k", b"v" * 60) for _ in range(12))
        await rig.compact()
        assert (await rig.offsets())[0] > 4
        assert 4 not in rig.log.segments
        await rig.log.truncate(Offset(4))
        assert rig.log.end_offset == 4
        piece = await rig.log.read(Offset(1), bytes_max=100, up_to=rig.log.durable_offset)
        assert (piece.next_offset, piece.size) == (4, 0)
        await rig.fill([(b"k", b"again"), (b"j", b"new")])
        assert await rig.offsets() == [4, 5]
        await rig.reopen()
        assert await rig.offsets() == [4, 5]

    play(scenario)


def test_a_cancelled_caller_leaves_no_half_swap() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k", b"v" * 150) for _ in range(8))
        maintaining = asyncio.ensure_future(rig.storage.maintain())

        async def cancel(op: str, path: str) -> None:
            if op == "rename" and path.endswith(".log.tmp"):
                maintaining.cancel()
                await asyncio.sleep(0.01)

        rig.disk.before = cancel
        with pytest.raises(asyncio.CancelledError):
            await maintaining
        rig.disk.before = None
        assert rig.log.compaction is None
        sizes = {base: len(rig.disk.synced(rig.log.segment_path(base)).content) for base in rig.log.segments}
        assert sizes == {base: segment.length for base, segment in rig.log.segments.items()}
        assert sizes[0] == 0
        await rig.compact()
        assert await rig.offsets() == [7]

    play(scenario)


def test_closing_waits_for_compaction_to_stop() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k%d" % (n % 5), b"v" * 150) for n in range(40))
        maintaining = asyncio.ensure_future(rig.storage.maintain())
        await asyncio.sleep(0.01)
        await rig.storage.close()
        assert maintaining.done()
        await rig.open()
        await rig.check()

    play(scenario)


class TickingClock(FakeClock):
    """Every look at it takes a third of a turn."""

    ticks = 0

    def monotonic(self) -> float:
        self.ticks += 1
        return self.ticks * 0.00035


def test_a_large_batch_does_not_hold_the_loop() -> None:
    async def scenario() -> None:
        directory = DirectoryConfig(free_bytes_min=0)
        rig = Rig(log=replace(LOG, segment_bytes=1 << 20), directory=directory)
        rig.clock = TickingClock()
        await rig.open()
        rig.append(*[(b"k%d" % (n % 6000), b"v") for n in range(10_000)])
        await rig.fill([(b"x", b"v" * (1 << 20)), (b"y", b"v")])
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        steps = loop.steps
        await rig.storage.maintain()
        steps = loop.steps - steps
        assert (await rig.batches())[0].count == 6000
        # Three times through 10,000 records, 64 at a time, and once through 6,000; three looks make a turn.
        assert steps > (3 * 10_000 / 64 + 6_000 / 256) / 3

    play(scenario)


@pytest.mark.parametrize("key", [b"k", None])
def test_many_small_batches_do_not_hold_the_loop(key: bytes | None) -> None:
    async def scenario() -> None:
        rig = Rig(log=replace(LOG, segment_bytes=20_000))
        rig.clock = TickingClock()
        await rig.open()
        await rig.fill((key and key + b"%d" % (n % 100), b"v") for n in range(600))
        assert len(rig.log.segments) == 3
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        steps = loop.steps
        await rig.storage.maintain()
        # Once for the keys, and at least once for what stays; three looks make a turn.
        assert loop.steps - steps > (600 + 400) / 3

    play(scenario)
