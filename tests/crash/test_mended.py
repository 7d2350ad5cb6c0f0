"""Bugs that faults have shown once: each keeps the behaviour that mended it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.model import Epoch, PartitionId, StorageError
from tailrace.records import build_batch, read_batch
from tailrace.runtime import RealDisk
from tailrace.storage import LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentStorage

SMALL_JOURNAL = DirectoryConfig(
    journal_file_bytes=64 * 1024, journal_bytes_max=256 * 1024, checkpoint_bytes=64 * 1024, free_bytes_min=0
)


def partition(number: int) -> PartitionId:
    return PartitionId(UUID(int=1), number)


def test_a_round_never_outgrows_its_journal_file(tmp_path: Path) -> None:
    """Many appends at once are several rounds: one that grew the file would make its header a lie."""

    async def scenario() -> None:
        storage = await SegmentStorage.open(tmp_path, config=SMALL_JOURNAL)
        logs = [await storage.create(partition(n), LogConfig()) for n in range(4)]
        for _ in range(10):
            for log in logs:
                log.append(read_batch(build_batch([(1, None, bytes(4000), ())])), leader_epoch=Epoch(0))
        for log in logs:
            await log.wait_durable(log.end_offset)
        assert {file.stat().st_size for file in (tmp_path / "journal").iterdir()} == {64 * 1024}
        await storage.close()
        again = await SegmentStorage.open(tmp_path, config=SMALL_JOURNAL)
        assert [log.end_offset for log in again.logs()] == [10] * 4
        await again.close()

    asyncio.run(scenario())


def test_closing_what_did_not_open_leaves_the_directory_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        storage = await SegmentStorage.open(tmp_path, config=SMALL_JOURNAL)
        log = await storage.create(partition(0), LogConfig())
        log.append(read_batch(build_batch([(1, None, b"v", ())])), leader_epoch=Epoch(0))
        await storage.close()
        (journal,) = (tmp_path / "journal").iterdir()
        whole = journal.read_bytes()
        journal.write_bytes(bytes(len(whole)))
        before = (tmp_path / "CHECKPOINT").read_bytes()
        disk = RealDisk(str(tmp_path))
        failed = SegmentStorage(disk, str(tmp_path), config=SMALL_JOURNAL)
        with pytest.raises(StorageError, match="header of the journal file"):
            await failed.start()
        await failed.close()
        assert (tmp_path / "CHECKPOINT").read_bytes() == before
        journal.write_bytes(whole)
        again = await SegmentStorage.open(tmp_path, config=SMALL_JOURNAL)
        assert [log.end_offset for log in again.logs()] == [1]
        await again.close()

    asyncio.run(scenario())


def test_a_thousand_partitions_are_created_and_closed_in_reasonable_time(tmp_path: Path) -> None:
    """A generous deadline against work that grows with the square of the partitions."""

    async def scenario() -> None:
        storage = await SegmentStorage.open(tmp_path, config=DirectoryConfig(free_bytes_min=0))
        await asyncio.gather(*(storage.create(partition(n), LogConfig()) for n in range(1000)))
        await storage.close()

    started = time.monotonic()
    asyncio.run(scenario())
    assert time.monotonic() - started < 60
