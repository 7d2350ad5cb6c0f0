"""A toy log on the simulated disk: the right one keeps all that it acknowledged, each broken one is caught.

Records have one sector each, so that a torn one is told from a whole one by its length alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from tailrace.runtime import SyncError
from tailrace.testing.simulation import SECTOR_BYTES, Crash, SimulatedDisk, SimulatedLoop

_SEEDS = range(300)
_SEEDS_UNTIL_CAUGHT = range(3000)


class _Log:
    """Concurrent appends to one file; an append returns when its record is durable.

    A sync that failed takes other appenders' records along, and their own syncs succeed: so one failure ends
    the log for all of them.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.acknowledged: list[int] = []
        self.failed = False
        self.end = 0

    async def open(self) -> None:
        self.file = await self.disk.create("log")
        await self.disk.sync_directory("")

    async def append(self, number: int) -> None:
        await self.write(number)
        await self.sync()
        self.acknowledged.append(number)

    async def write(self, number: int) -> None:
        position, self.end = self.end, self.end + SECTOR_BYTES
        await self.file.write(position, [(b"%d" % number).ljust(SECTOR_BYTES, b"\0")])

    async def sync(self) -> None:
        try:
            await self.file.sync()
        except SyncError:
            self.failed = True
        if self.failed:
            raise SyncError


class _AcknowledgesBeforeSync(_Log):
    async def append(self, number: int) -> None:
        await self.write(number)
        self.acknowledged.append(number)
        await self.sync()


class _NeverSyncsTheDirectory(_Log):
    async def open(self) -> None:
        self.file = await self.disk.create("log")


class _SharesASyncInFlight(_Log):
    """Takes a sync that somebody else began, perhaps before this record was written, for its own."""

    syncing: asyncio.Task[None] | None = None

    async def sync(self) -> None:
        if self.syncing is None or self.syncing.done():
            self.syncing = asyncio.get_running_loop().create_task(super().sync())
        await self.syncing


class _BelievesTheSecondSync(_Log):
    async def sync(self) -> None:
        try:
            await self.file.sync()
        except SyncError:
            await self.file.sync()


class _FailsAlone(_Log):
    """Another appender's failed sync is not this one's business, it thinks."""

    async def sync(self) -> None:
        await self.file.sync()


def _lost(kind: type[_Log], seed: int) -> set[int]:
    """What was acknowledged and is gone after a crash at a random call."""

    async def client(log: _Log, first: int) -> None:
        for number in range(first, first + 5):
            await log.append(number)

    async def main() -> None:
        await log.open()
        await asyncio.gather(*(client(log, 1 + 10 * number) for number in range(4)))

    rng = random.Random(seed)
    disk = SimulatedDisk(rng)
    disk.crash_at = rng.randrange(1, 42)
    disk.sync_error_chance = rng.choice([0, 0.1])
    log = kind(disk)
    loop = SimulatedLoop()
    with contextlib.suppress(Crash, SyncError):
        loop.run(main())
    loop.abandon()
    disk.power_cut()
    content = disk.content("log") if "log" in disk.paths() else b""
    sectors = [content[at : at + SECTOR_BYTES].rstrip(b"\0") for at in range(0, len(content), SECTOR_BYTES)]
    return set(log.acknowledged) - {int(sector) for sector in sectors if sector}


def test_the_right_log_keeps_what_it_acknowledged() -> None:
    assert [seed for seed in _SEEDS if _lost(_Log, seed)] == []


@pytest.mark.parametrize(
    "kind",
    [
        _AcknowledgesBeforeSync,
        _NeverSyncsTheDirectory,
        _SharesASyncInFlight,
        _BelievesTheSecondSync,
        _FailsAlone,
    ],
)
def test_a_broken_log_is_caught(kind: type[_Log]) -> None:
    assert any(_lost(kind, seed) for seed in _SEEDS_UNTIL_CAUGHT)
