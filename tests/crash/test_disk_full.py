"""A disk without space: appends are refused until there is some, reads go on, nothing acknowledged is lost.

A small tmpfs runs out where space is reserved, which is met before a batch depends on it. A thin device runs
out in the sync itself: the file system promised what the storage below it does not have, and the directory is
fenced.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.model import Epoch, NoSpace, Offset, PartitionId
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.testing.faults import (
    LOG_CONFIG,
    BatchSource,
    Ledger,
    State,
    WriterProcess,
    read_state,
    small_directory,
)
from tailrace.testing.faults.ledger import held
from tailrace.testing.faults.mount import LoopFile, Unavailable, fill, mounted_tmpfs

_MIB = 1 << 20
_PARTITION = PartitionId(UUID(int=0xF011), 0)
_DEADLINE_S = 60
_APPENDS_MAX = 2000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MiB."""
    try:
        with mounted_tmpfs(tmp_path / "small", size_bytes=6 * _MIB) as path:
            yield path
    except Unavailable as reason:
        pytest.skip(str(reason))


class Producer:
    """Appends, and knows what it was promised."""

    def __init__(self, log: SegmentLog) -> None:
        self.log = log
        self.state = State()
        self._source = BatchSource(random.Random(5))

    async def append(self, value_bytes: int = 3000) -> None:
        """One batch, durably; NoSpace if there is none."""
        batch = self._source.build(1, value_bytes)
        self.log.append(batch, leader_epoch=Epoch(0))
        await asyncio.wait_for(self.log.wait_durable(batch.next_offset), _DEADLINE_S)
        self.state = self.state.appended(held(batch))

    async def fill(self) -> NoSpace:
        """Append until that is refused."""
        for _ in range(_APPENDS_MAX):
            try:
                await self.append()
            except NoSpace as refusal:
                return refusal
        raise AssertionError(f"{_APPENDS_MAX} appends were taken by a full disk")

    async def append_again(self) -> None:
        """Try until it is taken, as a client does after a retriable error."""
        started = time.monotonic()
        while True:
            try:
                await self.append()
            except NoSpace:
                assert time.monotonic() - started < _DEADLINE_S, "appends are still refused"
                await asyncio.sleep(0.05)
            else:
                return

    async def check(self, log: SegmentLog | None = None) -> None:
        assert await read_state(log or self.log) == self.state


async def begin(path: Path, config: DirectoryConfig) -> tuple[SegmentStorage, Producer]:
    storage = await SegmentStorage.open(path, config=config)
    producer = Producer(await storage.create(_PARTITION, LOG_CONFIG))
    for _ in range(20):
        await producer.append()
    return storage, producer


async def reopen(path: Path, config: DirectoryConfig, producer: Producer) -> SegmentStorage:
    """Open once more; the log must be what the producer was promised."""
    storage = await SegmentStorage.open(path, config=config)
    log = storage.get(_PARTITION)
    assert log is not None
    storage.configure(_PARTITION, LOG_CONFIG)
    producer.log = log
    await producer.check()
    return storage


def test_a_nearly_full_disk_refuses_appends_until_space_is_freed(small_disk: Path) -> None:
    config = small_directory()

    async def scenario() -> None:
        storage, producer = await begin(small_disk / "data", config)
        ballast = fill(small_disk, leave_bytes=config.free_bytes_min + 300_000)
        refusal = await producer.fill()
        assert refusal.retriable
        assert "Free some" in str(refusal)
        assert storage.directory.failure is None
        await producer.check()
        ballast.unlink()
        await producer.append_again()
        await producer.check()
        await storage.close()
        storage = await reopen(small_disk / "data", config, producer)
        await storage.close()

    asyncio.run(scenario())


def test_a_disk_without_a_byte_keeps_what_was_acknowledged(small_disk: Path) -> None:
    config = replace(small_directory(), free_bytes_min=0)  # so that the file system itself says no

    async def scenario() -> None:
        storage, producer = await begin(small_disk / "data", config)
        ballast = fill(small_disk, leave_bytes=0)
        await producer.fill()
        assert storage.directory.failure is None
        await producer.check()
        ballast.unlink()
        await producer.append_again()
        for _ in range(50):
            await producer.append()
        await storage.close()
        storage = await reopen(small_disk / "data", config, producer)
        await storage.close()

    asyncio.run(scenario())


def test_a_full_disk_is_opened_and_read_and_refuses_at_once(small_disk: Path) -> None:
    config = small_directory()

    async def scenario() -> None:
        storage, producer = await begin(small_disk / "data", config)
        await storage.close()
        # The start may remove a journal file that was made ahead, half of what must be free.
        ballast = fill(small_disk, leave_bytes=config.free_bytes_min // 4)
        storage = await reopen(small_disk / "data", config, producer)
        with pytest.raises(NoSpace):
            await producer.append()
        await producer.log.trim(Offset(1))  # giving space back is not refused
        producer.state = producer.state.trimmed(1)
        ballast.unlink()
        await producer.append_again()
        await producer.check()
        await storage.close()

    asyncio.run(scenario())


def test_a_writer_killed_on_a_full_disk_lost_nothing(small_disk: Path, seed: int) -> None:
    ledger, data = Ledger(), small_disk / "data"
    with WriterProcess(data, ledger, f"--seed={seed}", deadline_s=15) as writer:
        assert writer.listen_for(100), writer.last_words()
        ballast = fill(small_disk, leave_bytes=0)
        # A batch that was taken before the disk was full may wait for room in the journal, with its writer.
        # That others are refused is shown above, so here the kill comes after a refusal or a silence.
        with suppress(AssertionError):
            writer.listen(lambda report: ledger.refusals > 0)
        writer.kill()
    with WriterProcess(data, ledger, "--turns=0") as writer:
        # There may be no room for what recovery writes; then it says so, and is made again later.
        assert writer.wait() == 0 or "No space left" in (ledger.failure or ""), writer.last_words()
    ballast.unlink()
    with WriterProcess(data, ledger, "--turns=20", "--epoch=1000") as writer:
        assert writer.wait() == 0, writer.last_words()
    assert ledger.openings >= 2


@pytest.fixture
def thin_disk(tmp_path: Path) -> Iterator[tuple[Path, LoopFile]]:
    """An ext4 that believes to have 64 MiB, over a file system that has far less."""
    try:
        with mounted_tmpfs(tmp_path / "below", size_bytes=24 * _MIB) as below:
            file = LoopFile(below / "image", tmp_path / "thin", size_bytes=64 * _MIB)
            with file.mounted():
                pass
            yield below, file
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_a_sync_without_space_fences_the_directory(thin_disk: tuple[Path, LoopFile], seed: int) -> None:
    below, file = thin_disk
    ledger = Ledger()
    with file.mounted() as path, WriterProcess(path / "data", ledger, f"--seed={seed}") as writer:
        assert writer.listen_for(200), writer.last_words()
        ballast = fill(below, leave_bytes=0)
        assert writer.wait() == 3, writer.last_words()
        assert ledger.failure is not None
        assert "Nothing more is acknowledged" in ledger.failure
    ballast.unlink()
    with file.mounted() as path, WriterProcess(path / "data", ledger, "--turns=20", "--epoch=1000") as writer:
        assert writer.wait() == 0, writer.last_words()
    assert ledger.openings == 2
