"""Rebuilds of a lost checkpoint where the journal tells of more than one history of a partition.

A directory is filled by the real storage, copied while it serves as a crash would leave it, and loses both
checkpoints. The journal still holds every round, so truncations and compactions lie within the run that a
rebuild replays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.model import Epoch, Offset, PartitionId
from tailrace.records import build_batch, iter_batches, read_batch
from tailrace.storage import OS, LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.storage.segment.journal import SECTOR, read_header, read_rounds
from tailrace.storage.segment.names import SURVEY
from tailrace.storage.segment.rebuild import Rebuild, RebuildReport, rebuild_directory
from tailrace.testing.faults.disk import DirectDisk
from tailrace.testing.faults.image import (
    Image,
    ImageMaker,
    RoundPlace,
    copy_as_killed,
    open_directly,
    read_contents,
    still_directory,
)

PARTITION = PartitionId(UUID(int=7), 0)
COMPACTED = LogConfig(
    segment_bytes=1500, index_interval_bytes=400, compact=True, delete=False, dirty_ratio_min=0.0
)
Records = dict[int, tuple[bytes | None, bytes | None]]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Filled:
    """A log of records with few keys, whose segments hold three of them."""

    def __init__(self, storage: SegmentStorage, log: SegmentLog) -> None:
        self.storage = storage
        self.log = log
        self._count = 0

    async def append(self, *keys: str) -> None:
        """One batch for each key, in a round of its own; no two values are the same."""
        for key in keys:
            self._count += 1
            value = b"%d " % self._count * 200
            batch = read_batch(build_batch([(self._count, key.encode(), value[:400], ())]))
            self.log.append(batch, leader_epoch=Epoch(0))
            await self.log.wait_durable(self.log.end_offset)

    async def truncate(self, offset: int) -> None:
        await self.log.truncate(Offset(offset))

    async def compact(self) -> None:
        await self.storage.wait_applied()
        await self.storage.checkpoint()
        before = sum(segment.length for segment in self.log.segments.values())
        await self.storage.maintain()
        assert sum(segment.length for segment in self.log.segments.values()) < before


async def read_records(log: SegmentLog) -> Records:
    found: Records = {}
    offset = log.start_offset
    while offset < log.end_offset:
        piece = await log.read(offset, bytes_max=1 << 20, up_to=log.durable_offset)
        for batch in iter_batches(await piece.load()):
            found.update({int(each.offset): (each.key, each.value) for each in batch.records()})
        offset = piece.next_offset
    return found


async def crash(
    path: Path, config: DirectoryConfig, work: Callable[[Filled], Awaitable[None]]
) -> tuple[Path, Records, int]:
    """Do the work, and take a copy without checkpoints; what the log holds by then, and where it ends."""
    storage = await SegmentStorage.open(path / "served", config=config)
    filled = Filled(storage, await storage.create(PARTITION, COMPACTED))
    await storage.wait_applied()  # until then all batches are inline
    await work(filled)
    await storage.wait_applied()  # so that nothing moves while it is copied
    records, end = await read_records(filled.log), filled.log.end_offset
    copy_as_killed(path / "served", path / "lost")
    await storage.close()
    lose_checkpoint(path / "lost")
    return path / "lost", records, end


def lose_checkpoint(path: Path) -> None:
    (path / "CHECKPOINT").unlink()
    (path / "CHECKPOINT.copy").unlink()


def rebuild(path: Path, config: DirectoryConfig) -> RebuildReport:
    return asyncio.run(rebuild_directory(path, dry_run=False, advance=lambda _: None, config=config))


async def read_again(path: Path, config: DirectoryConfig) -> tuple[Records, int]:
    """What a start finds after the rebuild."""
    storage = await open_directly(path, config)
    try:
        (log,) = storage.logs()
        assert log.damaged == -1, "the partition is quarantined"
        return await read_records(log), log.end_offset
    finally:
        await storage.close()


async def truncated_then_compacted(filled: Filled) -> None:
    await filled.append(*"abcdefg")
    await filled.storage.wait_applied()
    await filled.truncate(4)
    await filled.append(*"abxyabxyabz")
    await filled.compact()
    await filled.append(*"ab")


async def compacted_then_truncated(filled: Filled) -> None:
    """The truncation cuts at a place in the compacted segment, which no entry before it names."""
    await filled.append(*"abacdecfgh")
    await filled.compact()
    await filled.truncate(5)
    await filled.append(*"ab")


async def compacted_between_truncations(filled: Filled) -> None:
    await filled.append(*"abcdefg")
    await filled.storage.wait_applied()
    await filled.truncate(4)
    await filled.append(*"pqrsabtuabz")
    await filled.compact()
    await filled.truncate(9)
    await filled.append(*"qr")


@pytest.mark.parametrize("inline_bytes_max", [100, 1000], ids=["by reference", "inline"])
@pytest.mark.parametrize(
    "work", [truncated_then_compacted, compacted_then_truncated, compacted_between_truncations]
)
def test_a_partition_that_the_run_truncates_and_compacts_comes_back_whole(
    fast_path: Path, work: Callable[[Filled], Awaitable[None]], inline_bytes_max: int
) -> None:
    config = still_directory(inline_bytes_max=inline_bytes_max)
    lost, records, end = asyncio.run(crash(fast_path, config, work))
    report = rebuild(lost, config)
    assert report.partitions[0].quarantined_from is None
    assert asyncio.run(read_again(lost, config)) == (records, end)


def test_a_compacted_segment_is_left_alone_although_its_index_is_damaged(fast_path: Path) -> None:
    """Compaction took the last batch out of it, so the others lie where the journal says."""

    async def work(filled: Filled) -> None:
        await filled.append(*"abcdefc")
        await filled.compact()
        await filled.append(*"g")

    config = still_directory(inline_bytes_max=100)
    lost, records, end = asyncio.run(crash(fast_path, config, work))
    for file in lost.glob("*/*index"):
        file.write_bytes(b"damaged")
    for file in lost.glob("*/*.snapshot"):
        file.unlink()
    rebuild(lost, config)
    assert asyncio.run(read_again(lost, config)) == (records, end)


def test_an_index_of_what_a_truncation_cut_off_is_made_again(fast_path: Path) -> None:
    """A crash in the checkpoint that replaced it left the old one, and a new index of the next segment."""
    old: dict[str, bytes] = {}

    async def work(filled: Filled) -> None:
        await filled.append(*"abcdefg")
        await filled.storage.wait_applied()
        await filled.storage.checkpoint()
        old.update(read_indexes(fast_path / "served"))
        await filled.truncate(5)
        await filled.append(*"hijklmn")
        await filled.storage.wait_applied()
        await filled.storage.checkpoint()

    config = still_directory()
    lost, records, end = asyncio.run(crash(fast_path, config, work))
    new = read_indexes(lost)
    assert len(old) == 2
    for name, data in old.items():
        assert new[name] != data
        (lost / name).write_bytes(data)
    rebuild(lost, config)
    assert asyncio.run(read_again(lost, config)) == (records, end)


def test_files_that_a_killed_recovery_was_removing_are_no_part_of_the_log(fast_path: Path) -> None:
    """The rounds of the last four batches were lost; one of their segments is gone, another one is not."""

    async def work(filled: Filled) -> None:
        await filled.append(*"abcdefghij")
        await filled.storage.wait_applied()
        await filled.storage.checkpoint()

    config = still_directory()
    lost, records, _ = asyncio.run(crash(fast_path, config, work))
    (journal,) = (lost / "journal").iterdir()
    data = bytearray(journal.read_bytes())
    header = read_header(memoryview(data))
    assert header is not None
    lost_from = [each.position for each in read_rounds(memoryview(bytes(data)), header)][-4]
    data[lost_from:] = bytes(len(data) - lost_from)
    journal.write_bytes(data)
    (removed,) = lost.glob(f"*/{6:020d}.log")
    removed.unlink()
    assert len([*lost.glob(f"*/{9:020d}.log"), *lost.glob(f"*/{10:020d}.snapshot")]) == 2
    rebuild(lost, config)
    assert asyncio.run(read_again(lost, config)) == ({o: each for o, each in records.items() if o < 6}, 6)


def read_indexes(path: Path) -> dict[str, bytes]:
    """Both index files of the segment at offset 3."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.glob(f"*/{3:020d}.*index")}


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("first", [1, 2], ids=["begins a segment", "lies within a segment"])
def test_loose_batches_that_an_earlier_recovery_had_lost_stay_lost(
    fast_path: Path, first: int, truncated: bool
) -> None:
    """The log ended before them. The journal does not hold all of those that were lost with them any more."""
    config = replace(still_directory(), loose_inline_bytes_max=1000)

    async def fill() -> None:
        log_config = LogConfig(segment_bytes=1500, fsync=OS)
        maker = await ImageMaker.begin(
            fast_path / "served", config=config, rng=random.Random(5), log_config=log_config, partitions=1
        )
        await maker.append(0, value_bytes=600)
        await maker.apply()
        await maker.checkpoint()
        length.append(maker.log(0).segments[0].length)
        for _ in range(3):
            await maker.append(0, value_bytes=600)
        if truncated:
            await maker.truncate(0, 3)
        image = await maker.take(fast_path / "lost")
        image.forget_rounds(image.path, before=image.rounds[first])
        kept.append(image.contents[0])

    kept: list[object] = []
    length: list[int] = []
    asyncio.run(fill())
    for file in fast_path.glob("lost/*/*.log"):  # as that recovery left them
        if file.stem == f"{0:020d}":
            os.truncate(file, length[0])
        else:
            file.unlink()
    lose_checkpoint(fast_path / "lost")
    rebuild(fast_path / "lost", config)
    assert asyncio.run(read_contents(fast_path / "lost", config)) == kept[0]


@pytest.mark.parametrize("checkpoint_at", [6, 10], ids=["batches before it replayed", "it replayed first"])
@pytest.mark.parametrize("more", [0, 1], ids=["nothing after", "a batch after"])
@pytest.mark.parametrize("offset", [8, 9, 10], ids=["begin of a segment", "within a segment", "end"])
def test_a_segment_that_a_trim_had_removed_and_a_crash_brought_back_hides_nothing(
    fast_path: Path, offset: int, more: int, checkpoint_at: int
) -> None:
    """The removals of a trim are durable in any order. The segments between it and the others stay away."""
    config = replace(still_directory(), loose_inline_bytes_max=1000)
    kept: list[object] = []

    async def fill() -> None:
        log_config = LogConfig(segment_bytes=1500, fsync=OS)
        maker = await ImageMaker.begin(
            fast_path / "served", config=config, rng=random.Random(5), log_config=log_config, partitions=1
        )
        for number in range(1, 11):
            await maker.append(0, value_bytes=600)
            if number == checkpoint_at:
                await maker.apply()
                await maker.checkpoint()
        await maker.apply()
        copy_as_killed(fast_path / "served", fast_path / "before")
        await maker.trim(0, offset)
        for _ in range(more):
            await maker.append(0, value_bytes=600)
        await maker.apply()
        image = await maker.take(fast_path / "lost")
        image.forget_rounds(image.path, before=image.rounds[0])
        kept.append(image.contents[-1])

    asyncio.run(fill())
    lost = fast_path / "lost"
    assert not [*lost.glob(f"*/{0:020d}.log"), *lost.glob(f"*/{6:020d}.log")]
    for file in (fast_path / "before").glob(f"*/{0:020d}.*"):
        shutil.copy(file, lost / file.relative_to(fast_path / "before"))
    lose_checkpoint(lost)
    report = rebuild(lost, config)
    assert (report.partitions[0].start, report.partitions[0].end) == (offset, 10 + more)
    assert asyncio.run(read_contents(lost, config)) == kept[0]


def test_a_log_that_was_empty_behind_a_trim_begins_where_it_was_cut(fast_path: Path) -> None:
    """The truncation took the batch that the trim was within. No epoch in the snapshot tells the start."""
    config = still_directory()

    async def work(filled: Filled) -> None:
        await filled.append("a")
        both = build_batch([(1, b"b", b"1", ()), (2, b"c", b"2", ())])
        filled.log.append(read_batch(both), leader_epoch=Epoch(0))
        await filled.log.wait_durable(filled.log.end_offset)
        await filled.log.trim(Offset(2))
        await filled.truncate(2)
        await filled.storage.wait_applied()
        await filled.storage.checkpoint()
        used = {file: file.read_bytes() for file in (fast_path / "served" / "journal").iterdir()}
        for file, data in used.items():
            forgotten[file.name] = data
        await filled.append(*"de")

    forgotten: dict[str, bytes] = {}
    lost, records, end = asyncio.run(crash(fast_path, config, work))
    forget_rounds_of(lost, forgotten)
    report = rebuild(lost, config)
    assert report.partitions[0].start == 1
    assert asyncio.run(read_again(lost, config)) == (records, end)


def forget_rounds_of(path: Path, before: dict[str, bytes]) -> None:
    """Have the journal begin behind the rounds that it held before."""
    (file,) = [each for each in (path / "journal").iterdir() if each.read_bytes() != before.get(each.name)]
    data = memoryview(file.read_bytes())
    header = read_header(data)
    assert header is not None
    rounds = list(read_rounds(data, header))
    old = len(list(read_rounds(memoryview(before[file.name]), header)))
    place = RoundPlace(lsn=rounds[old].lsn, path=f"journal/{file.name}", begin=rounds[old].position, end=0)
    Image.forget_rounds(path, before=place)


class UnsyncedRemoval(DirectDisk):
    """A disk as after a power cut that undid the removal of the survey."""

    async def remove(self, path: str) -> None:
        if path != SURVEY:
            await super().remove(path)


def test_the_survey_of_an_earlier_rebuild_is_not_believed(fast_path: Path) -> None:
    """It names the start that a trim set. A power cut had undone the trim together with loose batches."""
    config = replace(still_directory(), loose_inline_bytes_max=0)
    lost, again = fast_path / "lost", fast_path / "again"

    async def fill() -> None:
        log_config = LogConfig(fsync=OS)
        maker = await ImageMaker.begin(
            fast_path / "served", config=config, rng=random.Random(5), log_config=log_config, partitions=1
        )
        await maker.checkpoint()
        for _ in range(2):
            await maker.append(0, value_bytes=600)
        await maker.trim(0, 1)
        await maker.take(lost)

    async def serve() -> None:
        """Use the journal file anew, so that it does not hold the trim any more."""
        storage = await open_directly(lost, config)
        (log,) = storage.logs()
        assert (log.start_offset, log.end_offset) == (0, 0)
        storage.configure(log.partition_id, LogConfig(fsync=OS))
        log.append(read_batch(build_batch([(1, b"a", b"1", ())])), leader_epoch=Epoch(0))
        await log.wait_durable(log.end_offset)
        copy_as_killed(lost, again)
        await storage.close()

    asyncio.run(fill())
    lose_unsynced(lost)
    lose_checkpoint(lost)
    asyncio.run(Rebuild(UnsyncedRemoval(str(lost)), str(lost), config=config).run())
    assert (lost / SURVEY).exists()
    asyncio.run(serve())
    lose_unsynced(again)
    (journal,) = (again / "journal").iterdir()
    journal.write_bytes(journal.read_bytes()[:SECTOR].ljust(journal.stat().st_size, b"\0"))
    lose_checkpoint(again)
    report = rebuild(again, config)
    assert [(each.start, each.end) for each in report.partitions] == [(0, 0)]


def lose_unsynced(path: Path) -> None:
    """Empty the segment, none of whose batches was synced."""
    (segment,) = path.glob("*/*.log")
    os.truncate(segment, 0)
