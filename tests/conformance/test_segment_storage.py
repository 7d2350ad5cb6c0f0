"""The segment engine against the conformance suite: as it comes, with small segments, and loose."""

from __future__ import annotations

from pathlib import Path

from tailrace.security.keys import KeyEncryptionKey
from tailrace.storage import OS, LogConfig, StorageEngine
from tailrace.storage.encryption.config import Encryption
from tailrace.storage.segment import DirectoryConfig, SegmentStorage
from tailrace.testing import FakeClock
from tailrace.testing.storage_suite import DurableStorageSuite


class TestSegmentStorage(DurableStorageSuite):
    directory = DirectoryConfig(free_bytes_min=0)

    async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
        return await SegmentStorage.open(path, clock=clock, config=self.directory)

    async def settle(self, engine: StorageEngine) -> None:
        assert isinstance(engine, SegmentStorage)
        await engine.checkpoint()


class TestSmallSegments(TestSegmentStorage):
    """Nothing stays in memory longer than it must, and every few batches are another file."""

    config = LogConfig(segment_bytes=600, index_interval_bytes=100)
    directory = DirectoryConfig(
        free_bytes_min=0,
        tail_bytes_max=0,
        apply_bytes=1,
        inline_bytes_max=200,
        journal_file_bytes=4 << 20,
        journal_bytes_max=12 << 20,
        checkpoint_bytes=4 << 20,
    )


class TestLooseStorage(TestSegmentStorage):
    """Durable means written: the same path without the syncs."""

    directory = DirectoryConfig(fsync=OS, free_bytes_min=0, loose_inline_bytes_max=200)


class TestEncryptedStorage(TestSegmentStorage):
    """Everything is stored encrypted."""

    encryption = Encryption(keys=(KeyEncryptionKey(bytes(range(32))),))

    async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
        return await SegmentStorage.open(path, clock=clock, config=self.directory, encryption=self.encryption)


class TestEncryptedSmallSegments(TestSmallSegments, TestEncryptedStorage):
    """Every read comes from a file, and is decrypted."""
