"""Recovery of logs whose index is sparse: open spans of several hundred KiB, killed and cut off the power."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.model import Epoch, LogDamaged, Offset, PartitionId
from tailrace.records import build_batch, iter_batches, read_batch
from tailrace.storage import LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop

CONFIG = DirectoryConfig(
    journal_file_bytes=256 * 1024,
    journal_bytes_max=8 * 256 * 1024,
    checkpoint_bytes=6 * 256 * 1024,
    round_bytes_max=20_000,
    tail_bytes_max=0,
    free_bytes_min=0,
)
SPARSE = LogConfig(segment_bytes=8 << 20, index_interval_bytes=1 << 20)
FIRST = PartitionId(UUID(int=7), 0)
COUNT = 151  # of batches of about 3 KiB: smaller than those that are a span by themselves

Scenario = Callable[[SegmentStorage, SegmentLog], Awaitable[None]]


def live(
    disk: SimulatedDisk,
    scenario: Scenario,
    *,
    log_config: LogConfig = SPARSE,
    config: DirectoryConfig = CONFIG,
) -> None:
    """One life of the process, ended by nobody."""

    async def main() -> None:
        storage = SegmentStorage(disk, "sim", config=config, clock=SimulatedClock(loop), rng=disk.rng)
        await storage.start()
        log = storage.get(FIRST) or await storage.create(FIRST, log_config)
        storage.configure(FIRST, log_config)
        await scenario(storage, log)

    with SimulatedLoop() as loop:
        loop.run(main())


async def append(log: SegmentLog, count: int, *, epoch: int = 0) -> list[bytes]:
    made = []
    for number in range(count):
        value = b"%06d." % (log.end_offset * 10 + epoch) * (400 + number % 50)
        batch = read_batch(build_batch([(number, None, value, ())]))
        log.append(batch, leader_epoch=Epoch(epoch))
        made.append(bytes(batch.data))
    await log.wait_durable(log.end_offset)
    return made


async def read_all(log: SegmentLog, *, bytes_max: int, start: int = 0) -> list[bytes]:
    found, place = [], Offset(start)
    while place < log.durable_offset:
        piece = await log.read(place, bytes_max=bytes_max, up_to=log.durable_offset)
        found += [bytes(batch.data) for batch in iter_batches(await piece.load())]
        assert piece.next_offset > place, f"a read at {place} leads nowhere"
        place = piece.next_offset
    return found


def end(disk: SimulatedDisk, how: str) -> None:
    if how == "kill":
        disk.kill()
    else:
        disk.power_cut(survival_chance=0.5)


ENDS = pytest.mark.parametrize("how", ["kill", "power cut"])


@ENDS
@pytest.mark.parametrize("checkpointed", [0, 70, COUNT], ids=["nothing", "some", "all"])
def test_an_open_span_of_hundreds_of_kib_is_there_again(how: str, checkpointed: int) -> None:
    wanted: list[bytes] = []
    disk = SimulatedDisk(random.Random(3))

    async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
        for count in (checkpointed, COUNT - checkpointed):
            wanted.extend(await append(log, count))
            await storage.wait_applied()
            if len(wanted) == checkpointed:
                await storage.checkpoint()
        index = log.segments[0].index
        assert index is not None and len(index) == 0
        assert index.end > 400_000

    async def look(storage: SegmentStorage, log: SegmentLog) -> None:
        assert log.damaged == -1
        for bytes_max in (1, 50_000, 1 << 20):
            assert await read_all(log, bytes_max=bytes_max) == wanted
        assert await read_all(log, bytes_max=10_000, start=101) == wanted[101:]
        wanted.extend(await append(log, 10, epoch=1))
        assert await read_all(log, bytes_max=50_000) == wanted

    live(disk, fill)
    for _ in range(3):
        end(disk, how)
        live(disk, look)


@pytest.mark.parametrize("place", [7, 13, 14, 15], ids=["offset", "epoch", "epoch", "epoch"])
@pytest.mark.parametrize("proof", ["checkpoint", "journal"])
def test_the_bytes_that_no_batch_crc_covers_are_checked_before_they_count(proof: str, place: int) -> None:
    """The row of the checkpoint covers the open span, the header in the journal a batch by reference."""
    disk = SimulatedDisk(random.Random(5))
    config = replace(CONFIG, inline_bytes_max=1000)
    whole: list[bytes] = []

    async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
        await storage.wait_applied()
        whole.extend(await append(log, 3, epoch=2))
        if proof == "checkpoint":
            await storage.checkpoint()

    async def look(storage: SegmentStorage, log: SegmentLog) -> None:
        assert log.damaged != -1 and not log.accepts_changes
        with pytest.raises(LogDamaged):
            await read_all(log, bytes_max=1 << 20)

    live(disk, fill, config=config)
    disk.kill()
    (path,) = [path for path in disk.paths() if path.endswith(".log")]
    assert disk.content(path) == b"".join(whole)
    disk.flip_bit(path, position=len(whole[0]) + place, bit=0)
    live(disk, look, config=config)


@pytest.mark.parametrize("damage", ["bit", "short", "missing"])
@pytest.mark.parametrize("ended", ["close", "kill", "kill at once"])
def test_a_trim_to_the_end_lifts_the_quarantine(damage: str, ended: str) -> None:
    """All records of the partition are given up; the next one gets the offset that it would have got."""
    disk = SimulatedDisk(random.Random(9))

    async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 5)
        await storage.close()

    async def give_up(storage: SegmentStorage, log: SegmentLog) -> None:
        assert log.damaged != -1
        for change in (append(log, 1), log.trim(Offset(3))):
            with pytest.raises(LogDamaged, match="topic purge"):
                await change
        await log.trim(Offset(5))
        assert log.accepts_changes and (log.start_offset, log.end_offset) == (5, 5)
        if ended == "kill at once":
            return
        written.extend(await append(log, 3))
        if ended == "close":
            await storage.close()

    async def look(storage: SegmentStorage, log: SegmentLog) -> None:
        assert log.damaged == -1 and log.accepts_changes
        assert (log.start_offset, log.end_offset) == (5, 5 + len(written))
        assert await read_all(log, bytes_max=1 << 20, start=5) == written
        written.extend(await append(log, 1))

    written: list[bytes] = []
    live(disk, fill)
    disk.kill()
    path = max(path for path in disk.paths() if path.endswith(".log"))
    if damage == "bit":
        disk.flip_bit(path, position=100, bit=0)
    else:
        spoil(disk, path, is_missing=damage == "missing")
    live(disk, give_up)
    disk.kill()
    for _ in range(3):
        live(disk, look)
        disk.kill()


def spoil(disk: SimulatedDisk, path: str, *, is_missing: bool) -> None:
    """Take a file away, or the half of it."""

    async def do() -> None:
        if is_missing:
            await disk.remove(path)
            return
        file = await disk.open(path)
        await file.truncate(file.size() // 2)
        await file.sync()
        file.close()

    with SimulatedLoop() as loop:
        loop.run(do())
    disk.kill()


def test_a_partition_whose_first_segment_is_missing_is_quarantined_at_the_start() -> None:
    disk = SimulatedDisk(random.Random(7))

    async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 5)
        await storage.close()

    async def lose(storage: SegmentStorage, log: SegmentLog) -> None:
        await storage.close()
        await disk.remove(f"{log.path}/{0:020d}.log")

    async def look(storage: SegmentStorage, log: SegmentLog) -> None:
        assert log.damaged == 0 and not log.accepts_changes

    small = LogConfig(segment_bytes=4000)
    for scenario in (fill, lose, look):
        live(disk, scenario, log_config=small)
        disk.kill()


def test_a_snapshot_of_what_a_truncation_took_is_removed_by_recovery() -> None:
    """It is named by an offset that the log may reach again with other batches."""
    disk = SimulatedDisk(random.Random(6))

    async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 5, epoch=2)
        await storage.checkpoint()
        await log.truncate(Offset(2))

    async def look(storage: SegmentStorage, log: SegmentLog) -> None:
        assert log.end_offset == 2
        assert not [path for path in disk.paths() if path.endswith(f"{5:020d}.snapshot")]

    live(disk, fill)
    disk.kill()
    assert [path for path in disk.paths() if path.endswith(f"{5:020d}.snapshot")], "it was not applied"
    live(disk, look)


@ENDS
def test_a_truncation_into_a_wide_span_is_recovered(how: str) -> None:
    wanted: list[bytes] = []
    disk = SimulatedDisk(random.Random(4))

    async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
        wanted.extend(await append(log, COUNT))
        await storage.checkpoint()
        await log.truncate(Offset(93))
        wanted[93:] = await append(log, 20, epoch=1)

    async def look(storage: SegmentStorage, log: SegmentLog) -> None:
        assert await read_all(log, bytes_max=30_000) == wanted

    live(disk, fill)
    for _ in range(2):
        end(disk, how)
        live(disk, look)


@ENDS
def test_a_sealed_segment_of_one_wide_span_is_read_piece_by_piece(how: str) -> None:
    wanted: list[bytes] = []
    disk = SimulatedDisk(random.Random(5))
    config = LogConfig(segment_bytes=300_000, index_interval_bytes=1 << 20)

    async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
        wanted.extend(await append(log, COUNT))
        await storage.checkpoint()
        assert len(log.segments) == 2
        index = log.segments[0].index
        assert index is not None and len(index) == 1

    async def look(storage: SegmentStorage, log: SegmentLog) -> None:
        for bytes_max in (1, 10_000):
            assert await read_all(log, bytes_max=bytes_max) == wanted

    live(disk, fill, log_config=config)
    end(disk, how)
    live(disk, look, log_config=config)
