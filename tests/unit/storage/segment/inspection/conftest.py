"""Data directories made by the real engine, to be looked into: closed cleanly, or as a crash leaves them."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.model import Epoch, Offset, PartitionId
from tailrace.records import build_batch, read_batch
from tailrace.storage import COMMIT, Fsync, LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.testing.faults.image import copy_as_killed

TOPIC = UUID("6f1c23456789abcdef0123456789abcd")
# Nothing happens by itself: applying and checkpointing are done when a test says so.
CONFIG = DirectoryConfig(
    journal_file_bytes=128 * 1024,
    journal_bytes_max=1 << 20,
    checkpoint_bytes=1 << 20,
    checkpoint_interval_ms=3_600_000,
    round_bytes_max=32 * 1024,
    inline_bytes_max=2048,
    apply_bytes=1 << 30,
    apply_delay_ms=3_600_000,
    free_bytes_min=0,
)
# The same, and a journal so large that it never asks for a checkpoint.
ROOMY = replace(CONFIG, journal_file_bytes=4 << 20, journal_bytes_max=16 << 20)
Story = Callable[[SegmentStorage], Awaitable[None]]


class Workshop:
    """Makes data directories below one path."""

    config = CONFIG

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self._holding = False  # the applier's lock

    def new_path(self) -> Path:
        self._count += 1
        return self._path / f"data-{self._count}"

    def closed(self, story: Story, *, path: Path | None = None) -> Path:
        """What is left after a story and a clean close; with `path` the story goes on in a directory."""
        path = path or self.new_path()

        async def run() -> None:
            storage = await SegmentStorage.open(path, config=CONFIG)
            await story(storage)
            await storage.close()

        asyncio.run(run())
        return path

    def crashed(self, story: Story) -> Path:
        """What a crash at the end of a story leaves."""
        path, crashed = self.new_path(), self.new_path()

        async def run() -> None:
            storage = await SegmentStorage.open(path, config=ROOMY)
            await story(storage)
            await self.hold_applier(storage)
            copy_as_killed(path, crashed)
            storage.directory.apply_lock.release()
            self._holding = False
            await storage.close()

        asyncio.run(run())
        return crashed

    def copy(self, path: Path) -> Path:
        return Path(shutil.copytree(path, self.new_path()))

    # ---- what stories are made of

    async def hold_applier(self, storage: SegmentStorage) -> None:
        """Let nothing be applied from here to the crash."""
        if not self._holding:
            await storage.directory.apply_lock.acquire()
            self._holding = True

    async def create(
        self,
        storage: SegmentStorage,
        partition: int = 0,
        *,
        segment_bytes: int = 20_000,
        fsync: Fsync = COMMIT,
    ) -> SegmentLog:
        """A new log, its creation applied: before that nothing goes by reference."""
        config = LogConfig(segment_bytes=segment_bytes, fsync=fsync)
        log = await storage.create(PartitionId(TOPIC, partition), config)
        if not self._holding:
            await storage.wait_applied()
        return log

    @staticmethod
    async def append(log: SegmentLog, *sizes: int, epoch: int = 0, producer_id: int = -1) -> None:
        """Append a batch of two records for each size, and wait until they are durable."""
        rng = random.Random(log.end_offset)
        for size in sizes:
            timestamp_ms = 1_700_000_000_000 + log.end_offset
            records = [(timestamp_ms, b"key", rng.randbytes(size // 2), ()) for _ in range(2)]
            sequence = log.end_offset if producer_id >= 0 else -1
            batch = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            log.append(read_batch(batch), leader_epoch=Epoch(epoch))
        await log.wait_durable(log.end_offset)

    async def tell_everything(self, storage: SegmentStorage) -> None:
        """Two partitions that show every kind of file and span."""
        log = await self.create(storage)
        for epoch in range(3):
            await self.append(log, *[300] * 40, epoch=epoch, producer_id=7)
        await self.append(log, 70_000, 300, 300)  # a batch that is a span by itself
        await self.append(log, *[2500] * 9)
        await storage.checkpoint()
        await self.append(log, *[900] * 3, 2500, 300, 300, producer_id=8)
        await log.trim(Offset(100))
        few = await self.create(storage, 1)
        await self.append(few, 40)  # a single span, still open


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.fixture(scope="session")
def clean_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workshop = Workshop(tmp_path_factory.mktemp("clean"))
    return workshop.closed(workshop.tell_everything)


@pytest.fixture
def clean(clean_template: Path, workshop: Workshop) -> Path:
    """A directory with every kind of file, closed cleanly; the test may damage it."""
    return workshop.copy(clean_template)
