"""Commit rounds: a table of what goes by reference, and rounds on a simulated disk that counts its syncs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast
from uuid import UUID

import pytest

from tailrace.model import ConfigError, Epoch, Offset, PartitionId
from tailrace.records import Batch, build_batch, read_batch
from tailrace.storage import COMMIT, OS, Fsync, LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.storage.segment.commit import Reference, plan_commit
from tailrace.storage.segment.entry import LOOSE, Append, Create, Delete, Entry, Trim, Truncate
from tailrace.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop

CONFIG = DirectoryConfig(
    journal_file_bytes=256 * 1024,
    journal_bytes_max=3 * 256 * 1024,
    checkpoint_bytes=256 * 1024,
    round_bytes_max=20_000,
    inline_bytes_max=2000,
    loose_inline_bytes_max=500,
    free_bytes_min=0,
)


def batch_of(size: int, *, offset: int = 0) -> Batch:
    """A batch of exactly so many bytes."""
    made = build_batch([(0, None, bytes(max(0, size - 80)), ())], base_offset=offset)
    made = build_batch([(0, None, b"\x5a" * (max(0, size - 80) + size - len(made)), ())], base_offset=offset)
    assert len(made) == size
    return read_batch(made)


# ---- the plan


@dataclass
class StubLog:
    """What `plan_commit` asks of a log."""

    fsync: Fsync = COMMIT
    unapplied: int = 0
    owes_sync: bool = False


def plan(entries: list[Entry], **logs: StubLog) -> tuple[list[tuple[int, int, list[int]]], bool]:
    """References as (life, segment, offsets), and whether the round is synced; logs are named like life1."""
    known = {int(name.removeprefix("life")): log for name, log in logs.items()}
    found = plan_commit(entries, cast("dict[int, SegmentLog]", known), CONFIG)
    references = [
        (r.life, r.segment, [int(a.batch.base_offset) for a in r.appends]) for r in found.references
    ]
    return references, found.sync


def append(size: int, offset: int = 0, *, life: int = 1, segment: int = 0) -> Append:
    return Append(life, batch_of(size, offset=offset), segment, offset * 1000)


@pytest.mark.parametrize(
    ("sizes", "fsync", "referenced"),
    [
        ([100], COMMIT, False),
        ([2000], COMMIT, False),
        ([2001], COMMIT, True),
        ([1000, 1000], COMMIT, False),
        ([1000, 1001], COMMIT, True),
        ([500], OS, False),
        ([501], OS, True),
        ([250, 251], OS, True),
        ([501], Fsync(50), True),
        ([500], Fsync(50), False),
    ],
)
def test_size_and_mode_decide(sizes: list[int], fsync: Fsync, referenced: bool) -> None:
    entries: list[Entry] = [append(size, offset) for offset, size in enumerate(sizes)]
    expected = [(1, 0, list(range(len(sizes))))] if referenced else []
    assert plan(entries, life1=StubLog(fsync)) == (expected, fsync.awaited)


@pytest.mark.parametrize("unapplied", [1, 3])
def test_nothing_goes_by_reference_while_something_is_not_applied(unapplied: int) -> None:
    """The segment file may still hold, or lack, what those entries are about to change."""
    for fsync in (COMMIT, OS):
        assert plan([append(15_000)], life1=StubLog(fsync, unapplied))[0] == []


def test_each_partition_is_judged_by_itself() -> None:
    entries: list[Entry] = [append(1500, 0, life=1), append(1500, 0, life=2), append(1500, 1, life=2)]
    assert plan(entries, life1=StubLog(), life2=StubLog()) == ([(2, 0, [0, 1])], True)


def test_a_partition_that_rolls_is_written_segment_by_segment() -> None:
    entries: list[Entry] = [append(1500, offset, segment=offset // 2 * 2) for offset in range(4)]
    assert plan(entries, life1=StubLog())[0] == [(1, 0, [0, 1]), (1, 2, [2, 3])]


def test_a_round_of_loose_appends_alone_is_not_synced() -> None:
    entries: list[Entry] = [append(100, life=1), append(100, life=2)]
    assert plan(entries, life1=StubLog(OS), life2=StubLog(Fsync(9)))[1] is False
    assert all(isinstance(entry, Append) and entry.flags == LOOSE for entry in entries)


def test_one_append_that_waits_has_the_round_synced() -> None:
    entries: list[Entry] = [append(100, life=1), append(100, life=2)]
    assert plan(entries, life1=StubLog(OS), life2=StubLog(COMMIT))[1] is True
    assert [entry.flags for entry in entries if isinstance(entry, Append)] == [LOOSE, 0]


def transactional(size: int, offset: int, *, control: bool) -> Append:
    made = build_batch(
        [(0, None, bytes(size), ())],
        base_offset=offset,
        producer_id=1,
        producer_epoch=0,
        base_sequence=-1 if control else 0,
        transactional=True,
        control=control,
    )
    return Append(1, read_batch(made), 0, offset * 1000)


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("fsync", [OS, Fsync(50)], ids=str)
def test_a_batch_of_a_transaction_is_synced_whatever_the_topic_says(fsync: Fsync, control: bool) -> None:
    """With everything that its partition brings to the round, which lies before or behind it."""
    log = StubLog(fsync, owes_sync=True)
    entries: list[Entry] = [append(100), transactional(100, 1, control=control), append(100, 2)]
    found = plan_commit(entries, cast("dict[int, SegmentLog]", {1: log}), CONFIG)
    assert found.sync
    assert found.owing == [cast("SegmentLog", log)]
    assert [entry.flags for entry in entries if isinstance(entry, Append)] == [0, 0, 0]


def test_a_batch_of_a_transaction_goes_by_reference_as_a_synced_one_does() -> None:
    small, large = transactional(600, 0, control=False), transactional(2100, 0, control=False)
    assert plan([small], life1=StubLog(OS)) == ([], True)
    assert plan([large], life1=StubLog(OS)) == ([(1, 0, [0])], True)


@pytest.mark.parametrize(
    "control",
    [Create(1, PartitionId(UUID(int=1), 0)), Truncate(1, Offset(0), 0, 0), Trim(1, Offset(0)), Delete(1)],
    ids=lambda entry: type(entry).__name__,
)
def test_everything_but_an_append_is_always_synced(control: Entry) -> None:
    assert plan([control], life1=StubLog(OS)) == ([], True)


# ---- rounds


class Stage:
    """A storage on a simulated disk."""

    def __init__(self, disk: SimulatedDisk, storage: SegmentStorage) -> None:
        self.disk = disk
        self.storage = storage

    async def create(self, number: int = 0, *, fsync: Fsync = COMMIT) -> SegmentLog:
        log = await self.storage.create(PartitionId(UUID(int=7), number), LogConfig(fsync=fsync))
        await self.storage.wait_applied()
        return log

    def journal_syncs(self) -> int:
        return sum(self.disk.synced(path).syncs for path in self._journals())

    def journal(self, *, synced: bool = False) -> bytes:
        paths = self._journals()
        return b"".join(self.disk.synced(p).content if synced else self.disk.content(p) for p in paths)

    def segment_path(self, log: SegmentLog) -> str:
        return log.segment_path(0)

    def _journals(self) -> list[str]:
        return [path for path in self.disk.paths() if path.endswith(".journal")]


def play(
    scenario: Callable[[Stage], Awaitable[None]], *, seed: int = 1, config: DirectoryConfig = CONFIG
) -> None:
    async def main() -> None:
        storage = SegmentStorage(disk, "sim", config=config, clock=SimulatedClock(loop), rng=disk.rng)
        await storage.start()
        await scenario(Stage(disk, storage))

    disk = SimulatedDisk(random.Random(seed))
    with SimulatedLoop() as loop:
        loop.run(main())


def test_many_partitions_share_one_sync() -> None:
    async def scenario(stage: Stage) -> None:
        logs = [await stage.create(number) for number in range(50)]
        before, lsn = stage.journal_syncs(), stage.storage.directory.durable_lsn
        for log in logs:
            log.append(batch_of(100), leader_epoch=Epoch(0))
        await asyncio.gather(*(log.wait_durable(Offset(1)) for log in logs))
        assert stage.journal_syncs() == before + 1
        assert stage.storage.directory.durable_lsn == lsn + 1

    play(scenario)


def test_what_comes_while_a_round_is_in_flight_shares_the_next() -> None:
    async def scenario(stage: Stage) -> None:
        log = await stage.create()
        before = stage.journal_syncs()
        log.append(batch_of(100), leader_epoch=Epoch(0))
        await asyncio.sleep(0)  # the committer has taken it
        for _ in range(40):
            log.append(batch_of(100), leader_epoch=Epoch(0))
        await log.wait_durable(Offset(41))
        assert stage.journal_syncs() == before + 2

    play(scenario)


def test_the_queue_tells_what_is_not_durable() -> None:
    async def scenario(stage: Stage) -> None:
        log, queue = await stage.create(), stage.storage.counters.commit_queue
        assert queue() == (0, 0)
        sizes = [batch_of(size).size for size in (100, 300)]
        log.append(batch_of(100), leader_epoch=Epoch(0))
        assert queue() == (1, sizes[0])
        await asyncio.sleep(0)  # the committer has taken it
        log.append(batch_of(300), leader_epoch=Epoch(0))
        assert queue() == (2, sum(sizes)), "the round under way and what waits behind it"
        await log.wait_durable(Offset(1))
        assert queue() == (1, sizes[1])
        await log.wait_durable(Offset(2))
        await asyncio.sleep(0)
        assert queue() == (0, 0)

    play(scenario)


def test_how_long_a_round_takes_is_known_while_syncs_are_slow_and_afterwards() -> None:
    """By the average of the last ones, so that one slow sync changes little."""

    async def scenario(stage: Stage) -> None:
        log, counters = await stage.create(), stage.storage.counters

        async def rounds(count: int, *, slow_chance: float) -> float:
            stage.disk.slow_chance = slow_chance
            for _ in range(count):
                log.append(batch_of(100), leader_epoch=Epoch(0))
                await log.wait_durable(log.end_offset)
            return counters.round_s

        quick_s = await rounds(50, slow_chance=0)
        once_s = await rounds(1, slow_chance=1)
        slow_s = await rounds(50, slow_chance=1)
        assert quick_s < 0.01 < 0.05 < slow_s
        assert once_s < slow_s
        assert await rounds(50, slow_chance=0) < 0.01

    play(scenario)


async def produce(log: SegmentLog, *, turns: int, times: int) -> None:
    """Append, wait, and come back some turns of the loop after the acknowledgement."""
    for _ in range(times):
        log.append(batch_of(100), leader_epoch=Epoch(0))
        await log.wait_durable(log.end_offset)
        for _ in range(turns):
            await asyncio.sleep(0)


def test_producers_that_come_back_one_after_the_other_share_a_sync_again() -> None:
    """Else the first would be synced alone each time, and the others would wait for two."""

    async def scenario(stage: Stage) -> None:
        log = await stage.create()
        before = stage.journal_syncs()
        await asyncio.gather(*(produce(log, turns=number, times=20) for number in range(8)))
        assert log.end_offset == 160
        assert stage.journal_syncs() - before < 30  # 20 if none came late, 40 if the first went ahead

    play(scenario)


def test_who_stays_away_is_not_waited_for_long() -> None:
    async def scenario(stage: Stage) -> None:
        log = await stage.create()
        await asyncio.gather(*(produce(log, turns=0, times=1) for _ in range(50)))
        began = asyncio.get_running_loop().time()
        await produce(log, turns=0, times=3)
        assert asyncio.get_running_loop().time() - began < 1
        assert log.end_offset == 53

    play(scenario)


@pytest.mark.parametrize("size", [100, 5000], ids=["inline", "by reference"])
@pytest.mark.parametrize("seed", range(10))
def test_an_acknowledgement_comes_after_the_sync(seed: int, size: int) -> None:
    async def scenario(stage: Stage) -> None:
        log = await stage.create()
        stage.disk.slow_chance = 0.5
        for offset in range(5):
            batch = batch_of(size)
            log.append(batch, leader_epoch=Epoch(offset))
            assert log.durable_offset == offset
            await log.wait_durable(Offset(offset + 1))
            header = bytes(batch.data[:61])
            assert header in stage.journal(synced=True)
            if size == 5000:
                assert bytes(batch.data) in stage.disk.synced(stage.segment_path(log)).content

    play(scenario, seed=seed)


def test_loose_appends_are_written_and_not_synced() -> None:
    async def scenario(stage: Stage) -> None:
        log = await stage.create(fsync=OS)
        before = stage.journal_syncs()
        batch = batch_of(100)
        log.append(batch, leader_epoch=Epoch(3))
        await log.wait_durable(Offset(1))
        assert bytes(batch.data) in stage.journal()
        assert bytes(batch.data) not in stage.journal(synced=True)
        await asyncio.sleep(5)
        assert stage.journal_syncs() == before

    play(scenario)


@pytest.mark.parametrize("size", [100, 400, 5000], ids=["small", "inline", "by reference"])
def test_an_interval_is_followed_by_a_sync(size: int) -> None:
    async def scenario(stage: Stage) -> None:
        log = await stage.create(fsync=Fsync(200))
        await asyncio.sleep(2)  # the housekeeper knows of the interval now
        batch = batch_of(size)
        log.append(batch, leader_epoch=Epoch(3))
        await log.wait_durable(Offset(1))
        await asyncio.sleep(0.6)
        assert bytes(batch.data[:61]) in stage.journal(synced=True)
        in_journal = bytes(batch.data) in stage.journal(synced=True)
        assert in_journal or bytes(batch.data) in stage.disk.synced(stage.segment_path(log)).content

    play(scenario)


def test_an_interval_is_kept_beside_a_partition_that_syncs_all_the_time() -> None:
    """The journal is synced by the other's rounds; what was written by reference needs a sync of its own."""

    async def scenario(stage: Stage) -> None:
        loose, other = await stage.create(0, fsync=Fsync(50)), await stage.create(1)
        await asyncio.sleep(2)
        batch = batch_of(5000)
        loose.append(batch, leader_epoch=Epoch(3))
        other.append(batch_of(100), leader_epoch=Epoch(3))
        await loose.wait_durable(Offset(1))
        await other.wait_durable(Offset(1))
        await asyncio.sleep(1)
        assert bytes(batch.data) in stage.disk.synced(stage.segment_path(loose)).content

    play(scenario)


def test_an_interval_counts_from_the_moment_it_is_set() -> None:
    async def scenario(stage: Stage) -> None:
        await asyncio.sleep(1.5)
        log = await stage.create(fsync=Fsync(10))
        batch = batch_of(100)
        log.append(batch, leader_epoch=Epoch(3))
        await log.wait_durable(Offset(1))
        await asyncio.sleep(0.3)
        assert bytes(batch.data) in stage.journal(synced=True)

    play(scenario)


def test_what_was_loose_is_synced_before_anything_that_waits_is_acknowledged_behind_it() -> None:
    """Else a power cut takes it from under what was synced, and recovery must call that damage."""

    async def scenario(stage: Stage) -> None:
        log = await stage.create(fsync=OS)
        large = batch_of(5000)
        log.append(large, leader_epoch=Epoch(3))
        await log.wait_durable(Offset(1))
        assert bytes(large.data) not in stage.disk.synced(stage.segment_path(log)).content
        stage.storage.configure(log.partition_id, LogConfig(fsync=COMMIT))
        log.append(batch_of(100), leader_epoch=Epoch(3))
        await log.wait_durable(Offset(2))
        assert bytes(large.data) in stage.disk.synced(stage.segment_path(log)).content

    play(scenario)


def test_a_sync_that_has_begun_elsewhere_is_waited_for_before_a_loose_past_counts_as_settled() -> None:
    async def scenario(stage: Stage) -> None:
        log = await stage.create(fsync=OS)
        large = batch_of(5000)
        log.append(large, leader_epoch=Epoch(3))
        await log.wait_durable(Offset(1))
        other = asyncio.create_task(log.segments[0].sync())
        await asyncio.sleep(0)
        stage.storage.configure(log.partition_id, LogConfig(fsync=COMMIT))
        log.append(batch_of(100), leader_epoch=Epoch(3))
        await log.wait_durable(Offset(2))
        assert other.done()
        assert bytes(large.data) in stage.disk.synced(stage.segment_path(log)).content

    for seed in range(10):
        play(scenario, seed=seed)


@pytest.mark.parametrize("fsync", [COMMIT, OS], ids=str)
def test_a_setting_that_changes_under_a_round_does_not_change_what_was_planned(fsync: Fsync) -> None:
    async def scenario(stage: Stage) -> None:
        log = await stage.create(fsync=fsync)
        entry = Append(log.life, batch_of(5000), 0, 0)
        known = plan_commit([entry], stage.storage.directory.logs, CONFIG)
        log.configure(LogConfig(fsync=OS if fsync == COMMIT else COMMIT))
        assert known.references == [Reference(log.life, 0, [entry])]
        await stage.storage._committer._write_references(known)
        synced = bytes(entry.batch.data) in stage.disk.synced(stage.segment_path(log)).content
        assert synced == (fsync == COMMIT)

    play(scenario)


def test_a_large_batch_is_written_once() -> None:
    async def scenario(stage: Stage) -> None:
        log = await stage.create()
        batch = batch_of(9000)
        log.append(batch, leader_epoch=Epoch(0))
        await log.wait_durable(Offset(1))
        assert bytes(batch.data[61:]) not in stage.journal()
        assert stage.disk.content(stage.segment_path(log))[: batch.size] == batch.data

    play(scenario)


def test_a_large_batch_right_after_a_truncation_is_journalled_whole() -> None:
    async def scenario(stage: Stage) -> None:
        log = await stage.create()
        log.append(batch_of(9000), leader_epoch=Epoch(0))
        await log.wait_durable(Offset(1))
        await stage.storage.wait_applied()
        async with stage.storage.directory.apply_lock:
            await log.truncate(Offset(0))
            batch = batch_of(9000)
            log.append(batch, leader_epoch=Epoch(1))
            await log.wait_durable(Offset(1))
            assert bytes(batch.data) in stage.journal(synced=True)
            assert stage.disk.content(stage.segment_path(log))[:61] != batch.data[:61]
        await stage.storage.wait_applied()
        assert stage.disk.content(stage.segment_path(log))[: batch.size] == batch.data

    play(scenario)


def test_rounds_are_split_at_their_bound() -> None:
    async def scenario(stage: Stage) -> None:
        logs = [await stage.create(number) for number in range(30)]
        lsn = stage.storage.directory.durable_lsn
        for log in logs:
            log.append(batch_of(1900), leader_epoch=Epoch(0))
        await asyncio.gather(*(log.wait_durable(Offset(1)) for log in logs))
        assert stage.storage.directory.durable_lsn == lsn + 3

    play(scenario)


def test_a_batch_over_the_bound_of_a_round_is_one_by_itself() -> None:
    async def scenario(stage: Stage) -> None:
        log = await stage.create()
        sizes = [100, 30_000, 100]
        for size in sizes:
            log.append(batch_of(size), leader_epoch=Epoch(0))
        lsn = stage.storage.directory.durable_lsn
        await log.wait_durable(Offset(3))
        assert stage.storage.directory.durable_lsn == lsn + 3

    play(scenario)


def test_without_room_in_its_segment_a_large_batch_stays_in_the_journal() -> None:
    async def scenario(stage: Stage) -> None:
        log = await stage.create()
        stage.disk.capacity_bytes = 1
        batch = batch_of(9000)
        log.append(batch, leader_epoch=Epoch(0))
        await log.wait_durable(Offset(1))
        assert bytes(batch.data) in stage.journal(synced=True)
        assert (
            bytes(await (await log.read(Offset(0), bytes_max=1, up_to=log.durable_offset)).load())
            == batch.data
        )
        stage.disk.capacity_bytes = None
        await stage.storage.wait_applied()
        assert stage.disk.content(stage.segment_path(log))[: batch.size] == batch.data

    play(scenario)


def test_the_largest_batch_fits_inline_into_a_journal_file() -> None:
    small = DirectoryConfig(
        journal_file_bytes=16 * 1024,
        journal_bytes_max=3 * 16 * 1024,
        checkpoint_bytes=16 * 1024,
        round_bytes_max=4096,
        inline_bytes_max=1 << 20,
        free_bytes_min=0,
    )

    async def scenario(stage: Stage) -> None:
        log = await stage.create()
        for offset in range(6):
            batch = batch_of(small.batch_bytes_max)
            log.append(batch, leader_epoch=Epoch(offset))
            await log.wait_durable(Offset(offset + 1))
            assert bytes(batch.data) in stage.journal(synced=True)
        assert {len(stage.disk.content(path)) for path in stage._journals()} == {16 * 1024}

    play(scenario, config=small)


def test_no_round_is_longer_than_a_journal_file() -> None:
    """One that does not fit would leave a file that nobody can read. Refusing the settings is right too."""
    try:
        config = DirectoryConfig(
            journal_file_bytes=16 * 1024, journal_bytes_max=3 * 16 * 1024, free_bytes_min=0
        )
    except ConfigError:
        return

    async def scenario(stage: Stage) -> None:
        logs = [await stage.create(number) for number in range(20)]
        for log in logs:
            log.append(batch_of(1000), leader_epoch=Epoch(0))
        await asyncio.gather(*(log.wait_durable(Offset(1)) for log in logs))
        assert {len(stage.disk.content(path)) for path in stage._journals()} == {16 * 1024}

    play(scenario, config=config)
