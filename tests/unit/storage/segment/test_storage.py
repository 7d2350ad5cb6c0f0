"""The segment engine as a whole: bounds, space, fences, clean ends, the lock; on simulated and real disks."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.model import (
    BrokerError,
    Epoch,
    ErrorCode,
    LogDamaged,
    NoSpace,
    Offset,
    PartitionExists,
    PartitionId,
    StorageError,
)
from tailrace.records import Batch, build_batch, iter_batches, read_batch
from tailrace.storage import LogConfig, ProducerStates
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.storage.segment.checkpoint import Checkpoint, read_checkpoint
from tailrace.storage.segment.housekeeping import Housekeeper
from tailrace.storage.segment.journal import read_header
from tailrace.storage.segment.names import read_journal_file
from tailrace.storage.segment.plan import read_journal
from tailrace.storage.tail import BATCH_OBJECTS_BYTES
from tailrace.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedFile, SimulatedLoop

JOURNAL_FILE = 64 * 1024
TAIL = 4000


def config_with(
    *,
    free_bytes_min: int = 0,
    tail_bytes_max: int = 1 << 20,
    checkpoint_bytes: int = JOURNAL_FILE,
    inline_bytes_max: int = 3000,
) -> DirectoryConfig:
    return DirectoryConfig(
        journal_file_bytes=JOURNAL_FILE,
        journal_bytes_max=8 * JOURNAL_FILE,
        checkpoint_bytes=checkpoint_bytes,
        round_bytes_max=16_000,
        inline_bytes_max=inline_bytes_max,
        tail_bytes_max=tail_bytes_max,
        free_bytes_min=free_bytes_min,
    )


CONFIG = config_with()
LOG = LogConfig(segment_bytes=6000, index_interval_bytes=500)


def partition(number: int) -> PartitionId:
    return PartitionId(UUID(int=7), number)


def batch(size: int = 50) -> Batch:
    return read_batch(build_batch([(0, None, bytes(size), ())]))


Scenario = Callable[[SegmentStorage], Awaitable[None]]


def play(
    scenario: Scenario, *, config: DirectoryConfig = CONFIG, seed: int = 1, disk: SimulatedDisk | None = None
) -> SimulatedDisk:
    async def main() -> None:
        storage = SegmentStorage(found, "sim", config=config, clock=SimulatedClock(loop), rng=found.rng)
        await storage.start()
        await scenario(storage)

    found = disk or SimulatedDisk(random.Random(seed))
    with SimulatedLoop() as loop:
        loop.run(main())
    return found


def disk_of(storage: SegmentStorage) -> SimulatedDisk:
    assert isinstance(storage._disk, SimulatedDisk)
    return storage._disk


async def append(log: SegmentLog, count: int = 1, *, size: int = 50) -> None:
    for _ in range(count):
        log.append(batch(size), leader_epoch=Epoch(0))
    await log.wait_durable(log.end_offset)


async def count_of(log: SegmentLog) -> int:
    count, place = 0, log.start_offset
    while place < log.durable_offset:
        piece = await log.read(place, bytes_max=1 << 20, up_to=log.durable_offset)
        count += len(list(iter_batches(await piece.load())))
        place = piece.next_offset
    return count


# ---- checkpoints


@pytest.mark.parametrize(("size", "expected"), [(5000, True), (500, False)], ids=["referenced", "inline"])
def test_what_the_journal_only_refers_to_makes_a_checkpoint_due(size: int, expected: bool) -> None:
    """A recovery reads it all, though the journal hardly grows by it."""

    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(1), LOG)
        await storage.checkpoint()
        before = storage.directory.checkpointed_lsn
        for _ in range(11):
            await append(log, size=size)
        await storage.wait_applied()
        await asyncio.sleep(1)  # of simulated time, and far from the interval of checkpoints
        assert (storage.directory.checkpointed_lsn > before) is expected

    play(scenario, config=replace(CONFIG, checkpoint_referenced_bytes=50_000))


# ---- memory


def evictable(log: SegmentLog) -> int:
    """Bytes of the tail that were applied and lie in a closed span: these may go."""
    segment = log.applied_segment
    assert segment is not None
    assert segment.index is not None
    closed = segment.index.closed_offset
    return sum(
        e.batch.size + BATCH_OBJECTS_BYTES for e in log.tail.entries_from(0) if e.batch.next_offset <= closed
    )


def check_tails(storage: SegmentStorage) -> None:
    directory = storage.directory
    assert directory.tail_bytes == sum(log.tail.bytes for log in directory.logs.values())


@pytest.mark.parametrize("seed", range(12))
def test_the_bytes_of_all_tails_are_counted_right_and_bounded(seed: int) -> None:
    async def scenario(storage: SegmentStorage) -> None:
        rng = random.Random(seed)
        for step in range(120):
            await work(storage, rng, step)
            check_tails(storage)
        await storage.wait_applied()
        check_tails(storage)
        if storage.directory.tail_bytes > TAIL:
            assert not any(evictable(log) for log in storage.logs())

    play(scenario, config=config_with(tail_bytes_max=TAIL), seed=seed)


async def work(storage: SegmentStorage, rng: random.Random, step: int) -> None:
    """One random change, awaited now and then."""
    logs = list(storage.logs())
    kind = rng.choice(["append"] * 6 + ["truncate", "trim", "create", "delete", "applied", "checkpoint"])
    if kind == "create" or not logs:
        await storage.create(partition(step), LOG)
        return
    log = rng.choice(logs)
    if kind == "append":
        for _ in range(rng.randrange(1, 8)):
            log.append(batch(rng.choice([10, 100, 1200])), leader_epoch=Epoch(0))
        if rng.random() < 0.5:
            await log.wait_durable(log.end_offset)
    elif kind == "truncate":
        await log.truncate(Offset(rng.randint(log.start_offset, log.end_offset)))
    elif kind == "trim":
        await log.trim(Offset(rng.randint(log.start_offset, log.durable_offset)))
    elif kind == "delete":
        await storage.delete(log.partition_id)
    elif kind == "applied":
        await storage.wait_applied()
    else:
        await storage.checkpoint()


def test_applied_batches_leave_memory_when_the_bound_is_passed() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        logs = [await storage.create(partition(number), LOG) for number in range(3)]
        for log in logs:
            await append(log, 60, size=100)
        await storage.wait_applied()
        open_spans = sum(log.tail.bytes - evictable(log) for log in logs)
        assert storage.directory.tail_bytes <= max(TAIL, open_spans)
        for log in logs:
            assert await count_of(log) == 60

    play(scenario, config=config_with(tail_bytes_max=TAIL))


def test_logs_that_have_nothing_to_give_are_not_asked_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With thousands of partitions their open spans alone are over the bound."""

    async def scenario(storage: SegmentStorage) -> None:
        logs = [await storage.create(partition(number), LOG) for number in range(20)]
        for log in logs:
            await append(log)
        await storage.wait_applied()
        assert storage.directory.tail_bytes > 0
        asked: list[int] = []
        evict = SegmentLog.evict_tail

        def hear(self: SegmentLog, bytes_wanted: int) -> int:
            asked.append(self.life)
            return evict(self, bytes_wanted)

        monkeypatch.setattr(SegmentLog, "evict_tail", hear)
        await append(logs[3])
        await storage.wait_applied()
        assert asked == [logs[3].life]

    play(scenario, config=config_with(tail_bytes_max=0))


def test_what_is_not_applied_stays_in_memory_whatever_the_bound() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        await storage.wait_applied()
        async with storage.directory.apply_lock:
            await append(log, 50, size=200)
            storage.directory.evict_tails()
            assert len(log.tail) == 50
            assert await count_of(log) == 50

    play(scenario, config=config_with(tail_bytes_max=0))


# ---- space


def test_appends_are_refused_while_the_disk_is_nearly_full_and_taken_again() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        disk = storage.directory.disk
        free = 10_000

        def free_bytes() -> int:
            return free

        log = await storage.create(partition(0), LOG)
        await append(log, 3)
        disk.free_bytes = free_bytes  # type: ignore[method-assign]
        free = 999
        await asyncio.sleep(2)
        with pytest.raises(NoSpace, match="999 bytes are free, 1000 are wanted") as refused:
            log.append(batch(), leader_epoch=Epoch(0))
        assert refused.value.retriable
        assert log.end_offset == 3
        assert await count_of(log) == 3
        await log.trim(Offset(2))  # this is how room is made
        free = 1000
        await asyncio.sleep(2)
        await append(log, 1)
        assert await count_of(log) == 2

    play(scenario, config=config_with(free_bytes_min=1000))


def test_a_directory_that_opens_on_a_full_disk_serves_reads() -> None:
    async def fill(storage: SegmentStorage) -> None:
        await append(await storage.create(partition(0), LOG), 5)
        await storage.close()

    async def look(storage: SegmentStorage) -> None:
        log = storage.logs()[0]
        assert await count_of(log) == 5
        with pytest.raises(NoSpace):
            log.append(batch(), leader_epoch=Epoch(0))

    disk = play(fill)
    disk.kill()
    disk.capacity_bytes = sum(len(disk.content(path)) for path in disk.paths() if path[-1] != "/") + 2000
    play(look, disk=disk, config=config_with(free_bytes_min=3000))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_acknowledged_on_a_full_disk_is_kept(seed: int) -> None:
    """The journal has its room; segments wait until there is some, and nothing is lost on the way."""

    async def fill(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        await storage.wait_applied()
        disk = disk_of(storage)
        disk.capacity_bytes = 1
        for _ in range(200):
            try:
                await append(log, 1, size=700)
            except NoSpace:
                break
            await asyncio.sleep(0.05)
        assert isinstance(storage.directory.refusal, NoSpace)
        assert storage.directory.failure is None
        counts.append(log.durable_offset)

    async def look(storage: SegmentStorage) -> None:
        assert await count_of(storage.logs()[0]) == counts[0]

    counts: list[int] = []
    disk = play(fill, seed=seed)
    disk.capacity_bytes = None
    disk.power_cut(survival_chance=0.0)
    play(look, disk=disk)


def test_a_checkpoint_that_finds_no_room_is_made_up_for() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        disk = storage.directory.disk
        create, refusals = disk.create, 3

        async def full(path: str) -> object:
            nonlocal refusals
            if path == "CHECKPOINT.tmp" and refusals:
                refusals -= 1
                raise OSError(28, "No space left on device")
            return await create(path)

        disk.create = full  # type: ignore[assignment,method-assign]
        for _ in range(300):
            try:
                await append(log, 1, size=2000)
            except NoSpace:
                await asyncio.sleep(1)
        assert not refusals
        numbers = [file.number for file in storage._journal.files]
        assert len(numbers) == len(set(numbers))

    disk = play(scenario, config=config_with(checkpoint_bytes=4 * JOURNAL_FILE))
    disk.power_cut(survival_chance=0.0)

    async def look(storage: SegmentStorage) -> None:
        log = storage.logs()[0]
        assert await count_of(log) == log.durable_offset > 200

    play(look, disk=disk)


@pytest.mark.parametrize("turns", range(0, 60, 3))
def test_a_checkpoint_whose_caller_leaves_is_made_whole(turns: int) -> None:
    """It took note of what is to be synced: left half done, the next one would promise what nobody synced."""

    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        await append(log, 60)
        await storage.wait_applied()
        leaving = asyncio.create_task(storage.checkpoint())
        for _ in range(turns):
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
        await storage.checkpoint()
        assert storage.directory.checkpointed_lsn == storage.directory.durable_lsn

    async def look(storage: SegmentStorage) -> None:
        log = storage.logs()[0]
        assert log.accepts_changes
        assert await count_of(log) == 60

    disk = play(scenario)
    disk.power_cut(survival_chance=0.0)
    play(look, disk=disk)


def test_a_segment_that_a_failed_checkpoint_was_done_with_may_be_closed() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LogConfig(segment_bytes=300))
        await append(log, 20)
        await storage.wait_applied()
        disk = storage.directory.disk
        create = disk.create

        async def full(path: str) -> object:
            if path == "CHECKPOINT.tmp":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return await create(path)

        disk.create = full  # type: ignore[assignment,method-assign]
        await storage.checkpoint()
        assert storage.directory.checkpointed_lsn < storage.directory.durable_lsn
        disk.create = create  # type: ignore[method-assign]
        assert await count_of(log) == 20  # one after the other is opened, and others are closed for it
        await storage.checkpoint()
        assert all(segment.persisted_whole for segment in list(log.segments.values())[:-1])

    play(scenario, config=replace(CONFIG, index_cache_bytes=0, tail_bytes_max=0))


def test_who_waits_for_quiet_and_leaves_does_no_harm() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        log.append(batch(), leader_epoch=Epoch(0))
        await asyncio.sleep(0)  # the committer has taken it
        leaving = asyncio.create_task(storage._committer.wait_idle())
        await asyncio.sleep(0)
        leaving.cancel()
        await log.wait_durable(Offset(1))
        await append(log)
        assert storage.directory.failure is None

    play(scenario)


# ---- the journal's files


def test_the_journal_grows_to_its_bound_and_is_used_again() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        ids, sizes = set(), set()
        for _ in range(400):
            await append(log, 1, size=2000)
            ids.add(storage._journal.current_id)
            sizes.add(storage._journal.size_bytes)
        assert max(sizes) == 4 * JOURNAL_FILE  # two beyond the bytes of a checkpoint
        assert len(ids) > 8
        assert await count_of(log) == 400

    disk = play(scenario, config=config_with(checkpoint_bytes=2 * JOURNAL_FILE))
    journals = [path for path in disk.paths() if path.endswith(".journal")]
    assert len(journals) == 4
    assert {len(disk.content(path)) for path in journals} == {JOURNAL_FILE}


def test_a_full_journal_is_waited_for_and_nothing_else_is_lost() -> None:
    """While nothing is applied no file is freed, so appends wait; then they all become durable."""

    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        await storage.wait_applied()
        async with storage.directory.apply_lock:
            for _ in range(300):
                log.append(batch(2000), leader_epoch=Epoch(0))
            await asyncio.sleep(60)
            assert 0 < log.durable_offset < 300
            assert storage._journal.size_bytes <= 3 * JOURNAL_FILE
        await log.wait_durable(Offset(300))
        assert await count_of(log) == 300

    play(scenario, config=config_with(inline_bytes_max=1 << 20))


# ---- the end


def pending_rounds(disk: SimulatedDisk) -> tuple[Checkpoint, int]:
    """What a recovery would find: the checkpoint, and how many rounds above it."""
    checkpoint = read_checkpoint(memoryview(disk.content("CHECKPOINT")))
    assert checkpoint is not None
    files = {
        number: memoryview(disk.content(path))
        for path in disk.paths()
        if (number := read_journal_file(path.removeprefix("journal/"))) in checkpoint.journal_files
        and number is not None
    }
    assert all(read_header(data) is not None for data in files.values())
    return checkpoint, len(read_journal(files, checkpoint).rounds)


@pytest.mark.parametrize("seed", range(5))
def test_after_a_clean_end_there_is_nothing_to_replay(seed: int) -> None:
    async def scenario(storage: SegmentStorage) -> None:
        logs = [await storage.create(partition(number), LOG) for number in range(3)]
        for log in logs:
            await append(log, 10, size=400)
        await logs[0].truncate(Offset(5))
        await logs[1].trim(Offset(3))
        await storage.delete(logs[2].partition_id)
        logs[0].append(batch(), leader_epoch=Epoch(0))
        await storage.close()
        await storage.close()

    disk = play(scenario, seed=seed)
    checkpoint, rounds = pending_rounds(disk)
    assert rounds == 0
    assert {row.partition_id.partition: (row.start, row.end) for row in checkpoint.rows} == {
        0: (0, 6),
        1: (3, 10),
    }


def test_without_a_clean_end_there_is() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        await append(await storage.create(partition(0), LOG), 10)

    assert pending_rounds(play(scenario))[1] > 0


def test_a_closed_storage_refuses_everything() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        await storage.close()
        with pytest.raises(StorageError, match="closed"):
            await storage.create(partition(1), LOG)
        with pytest.raises(StorageError, match="closed"):
            await storage.delete(partition(0))
        with pytest.raises(StorageError, match="closed"):
            await storage.maintain()
        with pytest.raises(StorageError, match="closed"):
            log.append(batch(), leader_epoch=Epoch(0))
        with pytest.raises(StorageError, match="closed"):
            await log.truncate(Offset(0))

    play(scenario)


# ---- the fence


def test_a_failed_sync_ends_the_directory() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        disk = disk_of(storage)
        log, other, third = [await storage.create(partition(number), LOG) for number in range(3)]
        for each in (log, other, third):
            await append(each, 3)
        disk.sync_error_chance = 1.0
        failed = asyncio.ensure_future(storage.wait_failed())
        log.append(batch(), leader_epoch=Epoch(0))
        waits = [
            log.wait_durable(Offset(4)),
            log.wait_durable(Offset(9)),
            other.wait_durable(Offset(9)),
            storage.create(partition(5), LOG),
            other.truncate(Offset(1)),
            third.trim(Offset(2)),
            storage.delete(partition(0)),
        ]
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StorageError] * len(waits)
        assert isinstance(await failed, StorageError)
        assert "Nothing more is acknowledged" in str(await failed)
        assert log.durable_offset == 3
        for call in (
            lambda: log.append(batch(), leader_epoch=Epoch(0)),
            lambda: storage.directory.check_fence(),
        ):
            with pytest.raises(StorageError):
                call()
        with pytest.raises(StorageError):
            await log.read(Offset(0), bytes_max=100, up_to=log.durable_offset)
        for refused in (storage.create(partition(6), LOG), storage.maintain(), storage.delete(partition(1))):
            with pytest.raises(StorageError):
                await refused
        await storage.close()
        assert disk.syncs_after_failure == 0

    play(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_the_first_failure_is_the_one_that_is_told(seed: int) -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        storage.directory.fence(OSError(5, "the first"))
        storage.directory.fence(OSError(5, "the second"))
        assert "the first" in str(await storage.wait_failed())
        with pytest.raises(StorageError, match="the first"):
            log.append(batch(), leader_epoch=Epoch(0))
        await storage.close()

    play(scenario, seed=seed)


def test_space_that_comes_back_does_not_lift_a_fence() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        storage.directory.refuse_for_space("none left")
        storage.directory.fence(OSError(5, "broken"))
        storage.directory.check_space()
        with pytest.raises(StorageError, match="broken"):
            log.append(batch(), leader_epoch=Epoch(0))

    play(scenario)


def test_who_waits_for_a_checkpoint_is_told_of_the_fence() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        disk = disk_of(storage)
        log = await storage.create(partition(0), LOG)
        await append(log, 3)
        disk.sync_error_chance = 1.0
        log.append(batch(5000), leader_epoch=Epoch(0))
        with pytest.raises(StorageError):
            await asyncio.wait_for(storage.checkpoint(), 60)

    play(scenario)


def test_a_failed_task_is_a_fence_too() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)

        async def broken(path: str) -> None:
            raise RuntimeError("a bug")

        storage.directory.disk.sync_directory = broken  # type: ignore[method-assign]
        log.append(batch(5000), leader_epoch=Epoch(0))
        failure = await asyncio.wait_for(storage.wait_failed(), 60)
        assert "RuntimeError: a bug" in str(failure)
        await storage.close()

    play(scenario)


def break_segments(monkeypatch: pytest.MonkeyPatch, op: str, suffix: str, code: int) -> Callable[[], None]:
    """Have one kind of call on files that end so fail; what is returned mends them."""
    whole = getattr(SimulatedFile, op)

    def fail(self: SimulatedFile, *args: object) -> object:
        if self.path.endswith(suffix) and broken:
            raise OSError(code, os.strerror(code))
        return whole(self, *args)

    broken = [True]
    monkeypatch.setattr(SimulatedFile, op, fail)
    return broken.clear


@pytest.mark.parametrize("size", [50, 5000], ids=["inline", "by reference"])
def test_a_segment_that_the_disk_cannot_write_is_a_fence(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        await storage.wait_applied()
        break_segments(monkeypatch, "_write", ".log", errno.EIO)
        log.append(batch(size), leader_epoch=Epoch(0))
        failure = await asyncio.wait_for(storage.wait_failed(), 60)
        assert "Input/output error" in str(failure)
        await asyncio.wait_for(storage.close(), 60)

    play(scenario)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_a_segment_that_something_is_short_for_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        await storage.wait_applied()
        mend = break_segments(monkeypatch, "_write", ".log", code)
        await append(log, 1)
        await asyncio.sleep(5)
        assert storage.directory.failure is None
        mend()
        await storage.wait_applied()
        assert storage.directory.applied_lsn == storage.directory.durable_lsn

    play(scenario)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_the_disk_cannot_read_is_made_again(
    monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    async def fill(storage: SegmentStorage) -> None:
        await append(await storage.create(partition(0), LogConfig(segment_bytes=300)), 20)
        await storage.close()

    async def look(storage: SegmentStorage) -> None:
        break_segments(monkeypatch, "_read", suffix, errno.EIO)
        assert await count_of(storage.logs()[0]) == 20

    disk = play(fill)
    disk.kill()
    play(look, disk=disk)


def test_a_segment_that_the_disk_cannot_read_is_told_of_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fill(storage: SegmentStorage) -> None:
        await append(await storage.create(partition(0), LogConfig(segment_bytes=300)), 20)
        await storage.close()

    async def look(storage: SegmentStorage) -> None:
        log = storage.logs()[0]
        disk_of(storage).cold_chance = 1.0
        for suffix in ("log", "index"):
            break_segments(monkeypatch, "_read", suffix, errno.EIO)
        with pytest.raises(LogDamaged, match="cannot be read: Input/output error"):
            await log.read(Offset(0), bytes_max=1, up_to=log.durable_offset)
        await storage.maintain()
        assert storage.directory.failure is None
        await append(log, 1)

    disk = play(fill)
    disk.kill()
    play(look, disk=disk)


@pytest.mark.parametrize("seed", range(10))
def test_maintenance_beside_a_trim_does_no_harm(seed: int) -> None:
    async def fill(storage: SegmentStorage) -> None:
        await append(await storage.create(partition(0), LogConfig(segment_bytes=300)), 20)
        await storage.close()

    async def race(storage: SegmentStorage) -> None:
        log = storage.logs()[0]
        await asyncio.gather(storage.maintain(), log.trim(Offset(15)))
        assert storage.directory.failure is None
        await append(log, 1)

    disk = play(fill, seed=seed)
    disk.kill()
    play(race, disk=disk)


# ---- lives


def test_what_exists_is_not_created_and_what_does_not_is_not_deleted() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        await storage.create(partition(0), LOG)
        with pytest.raises(BrokerError) as exists:
            await storage.create(partition(0), LOG)
        assert exists.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(BrokerError) as missing:
            await storage.delete(partition(1))
        assert missing.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await storage.delete(partition(0))
        with pytest.raises(BrokerError):
            await storage.delete(partition(0))

    play(scenario)


def test_every_creation_is_another_life() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        lives = []
        for _ in range(3):
            log = await storage.create(partition(0), LOG)
            lives.append(log.life)
            await storage.delete(partition(0))
        assert lives == sorted(set(lives))
        await storage.close()
        seen.extend(lives)

    async def again(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        await storage.wait_applied()
        assert log.life > max(seen)

    seen: list[int] = []
    disk = play(scenario)
    disk.kill()
    play(again, disk=disk)
    assert len([path for path in disk.paths() if path.endswith("/") and path != "journal/"]) == 1


def test_two_creations_at_once_make_one_log() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        outcomes = await asyncio.gather(
            *(storage.create(partition(0), LOG) for _ in range(3)), return_exceptions=True
        )
        assert [isinstance(outcome, SegmentLog) for outcome in outcomes] == [True, False, False]
        assert all(isinstance(outcome, BrokerError) for outcome in outcomes[1:])
        assert len(storage.logs()) == 1

    play(scenario)


def test_a_creation_that_nobody_waits_for_any_more_is_not_begun_twice() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        first = asyncio.create_task(storage.create(partition(0), LOG))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first})
        assert first.cancelled()
        with pytest.raises(PartitionExists):
            await storage.create(partition(0), LOG)
        await storage.create(partition(1), LOG)  # which is durable after the first
        assert [log.partition_id for log in storage.directory.logs.values()] == [partition(0), partition(1)]
        await storage.delete(partition(0))
        await append(await storage.create(partition(0), LOG))

    play(scenario)


def test_settings_of_a_partition_that_is_not_there_are_refused() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        with pytest.raises((BrokerError, StorageError)):
            storage.configure(partition(0), LOG)

    play(scenario)


def test_new_settings_are_in_force_at_once() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LogConfig())
        await append(log, 10)
        storage.configure(partition(0), LogConfig(segment_bytes=200))
        await append(log, 3)
        await storage.wait_applied()
        assert log.config.segment_bytes == 200
        assert len(log.segments) > 1

    play(scenario)


# ---- real directories


def test_a_second_storage_on_one_directory_is_told_the_pid(tmp_path: Path) -> None:
    async def main() -> None:
        storage = await SegmentStorage.open(tmp_path / "data", config=CONFIG)
        with pytest.raises(StorageError, match=f"in use by pid {os.getpid()}"):
            await SegmentStorage.open(tmp_path / "data", config=CONFIG)
        await storage.close()
        await (await SegmentStorage.open(tmp_path / "data", config=CONFIG)).close()

    asyncio.run(main())


def test_a_directory_that_does_not_open_is_let_go(tmp_path: Path) -> None:
    async def main() -> None:
        await (await SegmentStorage.open(tmp_path, config=CONFIG)).close()
        whole = (tmp_path / "CHECKPOINT").read_bytes()
        for name in ("CHECKPOINT", "CHECKPOINT.copy"):
            (tmp_path / name).write_bytes(whole[:-1])
        for _ in range(2):
            with pytest.raises(StorageError, match="the checkpoint is unreadable"):
                await SegmentStorage.open(tmp_path, config=CONFIG)
        (tmp_path / "CHECKPOINT").write_bytes(whole)
        await (await SegmentStorage.open(tmp_path, config=CONFIG)).close()

    asyncio.run(main())


@pytest.mark.parametrize("owns_loop", [False, True])
def test_what_was_acknowledged_is_there_after_reopening(tmp_path: Path, owns_loop: bool) -> None:
    async def main() -> None:
        storage = await SegmentStorage.open(tmp_path, config=CONFIG, owns_loop=owns_loop)
        log = await storage.create(partition(0), LOG)
        await append(log, 40, size=700)
        await storage.close()
        storage = await SegmentStorage.open(tmp_path, config=CONFIG, owns_loop=owns_loop)
        found = storage.get(partition(0))
        assert found is not None
        assert await count_of(found) == 40
        await storage.close()

    asyncio.run(main())


# ---- producers that clients invent


def batch_by(producer: int, sequence: int = 0) -> Batch:
    data = build_batch([(0, None, b"v", ())], producer_id=producer, producer_epoch=0, base_sequence=sequence)
    return read_batch(data)


def test_the_logs_with_the_most_producers_forget_the_oldest_first() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        crowded, quiet = [await storage.create(partition(number), LOG) for number in range(2)]
        for producer in range(300):
            crowded.append(batch_by(producer), leader_epoch=Epoch(0))
        for producer in range(5):
            quiet.append(batch_by(producer), leader_epoch=Epoch(0))
        await crowded.wait_durable(crowded.end_offset)
        await storage.checkpoint()
        await storage._housekeeper.bound_producers(100)
        assert len(quiet.producers) == len(quiet.applied_producers) == 5
        assert len(crowded.producers) == len(crowded.applied_producers) == 95
        assert 299 in crowded.producers and 0 not in crowded.producers
        await storage.close()

    disk = play(scenario)

    async def later(storage: SegmentStorage) -> None:
        log = storage.get(partition(0))
        assert log is not None and 299 in log.producers
        await storage.close()

    play(later, disk=disk)


def test_the_housekeeper_bounds_the_producers_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Housekeeper.bound_producers, "__defaults__", (100,))

    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        for producer in range(300):
            log.append(batch_by(producer), leader_epoch=Epoch(0))
        await log.wait_durable(log.end_offset)
        await asyncio.sleep(3)  # of virtual time; the housekeeper has a turn every second
        assert len(log.producers) == 100
        await storage.close()

    play(scenario)


def test_a_producer_is_not_forgotten_while_its_batch_is_not_durable() -> None:
    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        for producer in range(300):
            log.append(batch_by(producer), leader_epoch=Epoch(0))
        await storage._housekeeper.bound_producers(100)
        assert len(log.producers) == 300, "none of the batches is durable yet"
        await log.wait_durable(log.end_offset)
        await storage._housekeeper.bound_producers(100)
        assert len(log.producers) == 100
        await storage.close()

    play(scenario)


def test_others_get_turns_while_a_checkpoint_packs_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    real = ProducerStates.write_slices

    def write_slices(states: ProducerStates, form: int) -> Iterator[bytes]:
        for part in real(states, form):
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimulatedLoop)
            steps.append(loop.steps)
            yield part

    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(partition(0), LOG)
        for producer in range(1_500):
            log.append(batch_by(producer), leader_epoch=Epoch(0))
        await log.wait_durable(log.end_offset)
        monkeypatch.setattr(ProducerStates, "write_slices", write_slices)
        await storage.checkpoint()
        assert len(steps) > 5 and len(set(steps)) > len(steps) // 3
        await storage.close()

    play(scenario, config=replace(CONFIG, journal_file_bytes=1 << 20, journal_bytes_max=8 << 20))
