"""The memory engine against the conformance suite that ships with the package."""

from __future__ import annotations

from pathlib import Path

from tailrace.storage import StorageEngine
from tailrace.storage.memory import MemoryStorage
from tailrace.testing import FakeClock
from tailrace.testing.storage_suite import StorageSuite


class TestMemoryStorage(StorageSuite):
    async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
        return MemoryStorage(clock=clock)
