"""One engine with one compacted log on a simulated disk, and the list of everything appended to it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from tailrace.model import Epoch, Offset, PartitionId
from tailrace.records import Batch, BatchFields, build_batch, iter_batches, read_batch
from tailrace.storage import LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.testing import FakeClock
from tailrace.testing.simulation import SimulatedDisk, SimulatedFile, SimulatedLoop

FIRST = PartitionId(UUID(int=1), 0)
DELAY_MS = 1000
LOG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=100,
    compact=True,
    delete=False,
    delete_retention_ms=DELAY_MS,
    dirty_ratio_min=0.0,
)
DIRECTORY = DirectoryConfig(
    free_bytes_min=0,
    journal_file_bytes=16 * 1024,
    journal_bytes_max=48 * 1024,
    checkpoint_bytes=16 * 1024,
    round_bytes_max=4000,
)

Pair: TypeAlias = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as it was appended, and as it must be found."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class HookedDisk(SimulatedDisk):
    """A simulated disk that lets a test step in before a call."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(random.Random(seed))
        self.before: Callable[[str, str], Awaitable[None]] | None = None

    async def _step_in(self, op: str, path: str) -> None:
        if self.before is not None:
            await self.before(op, path)

    async def create(self, path: str) -> SimulatedFile:
        await self._step_in("create", path)
        return await super().create(path)

    async def rename(self, source: str, target: str) -> None:
        await self._step_in("rename", source)
        await super().rename(source, target)


class Rig:
    """One engine with one compacted log, and everything that was appended to it."""

    def __init__(
        self, *, disk: HookedDisk | None = None, log: LogConfig = LOG, directory: DirectoryConfig = DIRECTORY
    ) -> None:
        self.disk = disk or HookedDisk()
        self.clock = FakeClock()
        self.config = log
        self.directory = directory
        self.history: list[Stored] = []

    async def open(self) -> Rig:
        self.storage = SegmentStorage(
            self.disk, "sim", config=self.directory, clock=self.clock, rng=random.Random(0)
        )
        await self.storage.start()
        if self.storage.get(FIRST) is None:
            await self.storage.create(FIRST, self.config)
        self.storage.configure(FIRST, self.config)
        return self

    async def reopen(self) -> None:
        await self.storage.close()
        await self.open()

    @property
    def log(self) -> SegmentLog:
        log = self.storage.get(FIRST)
        assert log is not None
        return log

    def append(self, *pairs: Pair, fields: BatchFields | None = None, timestamp: int | None = None) -> Batch:
        time_ms = self.clock.now_ms() if timestamp is None else timestamp
        batch = read_batch(build_batch([(time_ms, key, value, ()) for key, value in pairs], **(fields or {})))
        base = self.log.append(batch, leader_epoch=Epoch(3))
        self.history += [Stored(base + n, time_ms, key, value) for n, (key, value) in enumerate(pairs)]
        return batch

    async def fill(self, pairs: Iterable[Pair], *, timestamp: int | None = None) -> None:
        for pair in pairs:
            self.append(pair, timestamp=timestamp)
        await self.settle()

    async def settle(self) -> None:
        """Everything durable, applied and checkpointed."""
        await self.log.wait_durable(self.log.end_offset)
        await self.storage.checkpoint()

    async def compact(self) -> None:
        await self.settle()
        await self.storage.maintain()

    async def batches(self) -> list[Batch]:
        found: list[Batch] = []
        offset = self.log.start_offset
        while offset < self.log.durable_offset:
            piece = await self.log.read(offset, bytes_max=700, up_to=self.log.durable_offset)
            assert piece.next_offset > offset, f"a read at {offset} does not get on"
            found += iter_batches(await piece.load())
            offset = piece.next_offset
        return found

    async def found(self) -> list[Stored]:
        return [
            Stored(record.offset, record.timestamp, record.key, record.value)
            for batch in await self.batches()
            for record in batch.records()
        ]

    async def offsets(self) -> list[int]:
        return [stored.offset for stored in await self.found()]

    def newest(self) -> dict[bytes | None, Stored]:
        """By key. What has no key is never superseded, and is left out."""
        return {stored.key: stored for stored in self.history if stored.key is not None}

    async def check(self) -> list[Stored]:
        """Nothing is there that was not appended, and nothing is missing that must be there."""
        found = await self.found()
        assert [stored.offset for stored in found] == sorted({stored.offset for stored in found})
        by_offset = {stored.offset: stored for stored in self.history}
        assert all(by_offset[stored.offset] == stored for stored in found)
        keyless = [stored for stored in self.history if stored.key is None]
        assert [stored for stored in found if stored.key is None] == keyless
        for key, stored in self.newest().items():
            of_key = [each for each in found if each.key == key]
            if stored in of_key:
                continue
            assert stored.value is None, f"the newest record of {key!r} is gone: {stored}"
            assert not of_key, f"{of_key} came back after their tombstone {stored} was gone"
            assert stored.timestamp + self.config.delete_retention_ms <= self.clock.now_ms(), (
                f"{stored} went too early"
            )
        return found

    async def check_reads(self) -> None:
        """By every offset and every time, in gaps too, the right record is found."""
        batches, found = await self.batches(), await self.found()
        for offset in range(self.log.start_offset, self.log.durable_offset):
            piece = await self.log.read(Offset(offset), bytes_max=1, up_to=self.log.durable_offset)
            wanted = next((batch for batch in batches if batch.next_offset > offset), None)
            assert await piece.load() == (bytes(wanted.data) if wanted else b"")
            assert piece.next_offset == (wanted.next_offset if wanted else self.log.durable_offset)
        for timestamp in {stored.timestamp for stored in self.history}:
            later = [(stored.offset, stored.timestamp) for stored in found if stored.timestamp >= timestamp]
            assert await self.log.find_timestamp(timestamp, up_to=self.log.durable_offset) == (
                later[0] if later else None
            )

    def sealed(self, found: Iterable[Stored]) -> list[Stored]:
        """Those that lie in segments which compaction may rewrite."""
        return [stored for stored in found if stored.offset < self.log.checkpoint_segment]

    def names(self) -> set[str]:
        return {path.rpartition("/")[2] for path in self.disk.paths() if path.startswith(self.log.path)}


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    with SimulatedLoop() as loop:
        loop.run(main())
