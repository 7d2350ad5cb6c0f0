"""Cuts of a directory that goes on: what they hold, what leaves them alone, and what ends them.

On a simulated disk: a cut is copied as a backup copies it, and the ordinary recovery opens the copy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from uuid import UUID

import pytest

from tailrace.model import Epoch, Offset, PartitionId, StorageError
from tailrace.records import build_batch, iter_batches, read_batch
from tailrace.storage import LogConfig
from tailrace.storage.api import Cut
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.storage.segment.checkpoint import read_checkpoint
from tailrace.storage.segment.cut import lengths
from tailrace.storage.segment.names import CHECKPOINT
from tailrace.testing.simulation import Crash, SimulatedClock, SimulatedDisk, SimulatedLoop

CONFIG = DirectoryConfig(
    journal_file_bytes=64 * 1024,
    journal_bytes_max=8 * 64 * 1024,
    checkpoint_bytes=64 * 1024,
    inline_bytes_max=3000,
    tail_bytes_max=1 << 20,
    free_bytes_min=0,
)
LOG = LogConfig(segment_bytes=2000, index_interval_bytes=500, delete=False)
COMPACTED = LogConfig(
    segment_bytes=2000, index_interval_bytes=500, compact=True, delete=False, dirty_ratio_min=0.0
)
FIRST, SECOND, THIRD = (PartitionId(UUID(int=7), number) for number in range(3))

Scenario = Callable[[SegmentStorage], Awaitable[None]]


def live(disk: SimulatedDisk, scenario: Scenario) -> None:
    """One life of the process; a crash ends it."""

    async def main() -> None:
        storage = SegmentStorage(disk, "sim", config=CONFIG, clock=SimulatedClock(loop), rng=disk.rng)
        await storage.start()
        await scenario(storage)

    with SimulatedLoop() as loop:
        loop.run(main())


async def append(log: SegmentLog, count: int, *, keys: int = 1000) -> None:
    for _ in range(count):
        number = int(log.end_offset)
        value = b"%06d." % number * 20
        log.append(
            read_batch(build_batch([(number, b"%d" % (number % keys), value, ())])), leader_epoch=Epoch(3)
        )
    await log.wait_durable(log.end_offset)


async def content(log: SegmentLog) -> list[bytes]:
    found: list[bytes] = []
    place = log.start_offset
    while place < log.durable_offset:
        piece = await log.read(place, bytes_max=10_000, up_to=log.durable_offset)
        found += [bytes(batch.data) for batch in iter_batches(await piece.load())]
        place = piece.next_offset
    return found


async def contents(storage: SegmentStorage) -> dict[PartitionId, tuple[int, int, list[bytes]]]:
    return {
        log.partition_id: (log.start_offset, log.end_offset, await content(log)) for log in storage.logs()
    }


def copied(disk: SimulatedDisk, cut: str) -> SimulatedDisk:
    """The cut as a backup copies it: of files that grow, the length that the checkpoint says."""
    checkpoint = read_checkpoint(memoryview(disk.content(f"{cut}/{CHECKPOINT}")))
    assert checkpoint is not None
    limits = lengths(checkpoint)
    target = SimulatedDisk(random.Random(1))

    async def copy() -> None:
        for path in disk.paths():
            if not path.startswith(f"{cut}/") or path == f"{cut}/":
                continue
            name = path.removeprefix(f"{cut}/")
            if name.endswith("/"):
                await target.make_directory(name.rstrip("/"))
                continue
            file = await target.create(name)
            data = disk.content(path)
            assert len(data) >= limits.get(name, 0)
            await file.write(0, [data[: limits.get(name, len(data))]], sync=True)

    with SimulatedLoop() as loop:
        loop.run(copy())
    return target


def opened(disk: SimulatedDisk) -> dict[PartitionId, tuple[int, int, list[bytes]]]:
    """What the ordinary recovery makes of a directory; it takes appends too."""
    found: dict[PartitionId, tuple[int, int, list[bytes]]] = {}

    async def look(storage: SegmentStorage) -> None:
        found.update(await contents(storage))
        for log in storage.logs():
            assert isinstance(log, SegmentLog)
            await append(log, 1)
        await storage.close()

    live(disk, look)
    return found


def the_cut(disk: SimulatedDisk) -> str:
    (name,) = {path.split("/")[0] for path in disk.paths() if path.startswith("cut-")}
    return name


def test_a_cut_opens_as_the_directory_was_when_it_was_made() -> None:
    disk = SimulatedDisk(random.Random(4))
    before: dict[PartitionId, tuple[int, int, list[bytes]]] = {}

    async def scenario(storage: SegmentStorage) -> None:
        for partition_id in (FIRST, SECOND):
            await append(await storage.create(partition_id, LOG), 60)
        await storage.create(THIRD, LOG)
        before.update(await contents(storage))
        await storage.cut()

    live(disk, scenario)
    assert opened(copied(disk, the_cut(disk))) == before


def test_what_is_removed_trimmed_compacted_and_appended_later_leaves_a_cut_alone() -> None:
    disk = SimulatedDisk(random.Random(4))
    before: dict[PartitionId, tuple[int, int, list[bytes]]] = {}

    async def scenario(storage: SegmentStorage) -> None:
        first, second = await storage.create(FIRST, COMPACTED), await storage.create(SECOND, LOG)
        third = await storage.create(THIRD, LOG)
        for log in (first, second, third):
            await append(log, 80, keys=3)
        before.update(await contents(storage))
        cut = await storage.cut()
        await storage.maintain()
        await second.trim(Offset(70))
        await storage.delete(THIRD)
        for log in (first, second):
            await append(log, 30, keys=3)
        await storage.checkpoint()
        assert (await contents(storage))[FIRST] != before[FIRST]  # else nothing was compacted
        assert not cut.spoiled

    live(disk, scenario)
    assert opened(copied(disk, the_cut(disk))) == before


class SlowLinks(SimulatedDisk):
    """Every link takes a second, and `meanwhile` begins with the first of them."""

    meanwhile: Callable[[], Coroutine[object, object, None]] | None = None
    busy: asyncio.Task[None] | None = None

    async def link(self, names: Sequence[tuple[str, str]]) -> Sequence[str]:
        missing: list[str] = []
        for each in names:
            if self.busy is None and self.meanwhile is not None:
                self.busy = asyncio.get_running_loop().create_task(self.meanwhile())
            await asyncio.sleep(1)
            missing += await super().link([each])
        return missing


def test_what_happens_between_two_links_is_not_in_the_cut() -> None:
    """Trims, deletions, compaction and appends wait, or go past what the cut holds."""
    disk = SlowLinks(random.Random(5))
    before: dict[PartitionId, tuple[int, int, list[bytes]]] = {}

    async def scenario(storage: SegmentStorage) -> None:
        first, second = await storage.create(FIRST, COMPACTED), await storage.create(SECOND, LOG)
        third = await storage.create(THIRD, LOG)
        for log in (first, second, third):
            await append(log, 80, keys=3)
        await storage.checkpoint()
        before.update(await contents(storage))

        async def meanwhile() -> None:
            await append(first, 20, keys=3)  # acknowledged while the links are made
            await asyncio.gather(storage.maintain(), second.trim(Offset(70)), storage.delete(THIRD))

        disk.meanwhile = meanwhile
        await storage.cut()
        assert disk.busy is not None
        assert storage.get(FIRST) is not None and first.durable_offset == 100
        await disk.busy
        await storage.checkpoint()

    live(disk, scenario)
    assert opened(copied(disk, the_cut(disk))) == before


def test_a_cut_holds_everything_durable_before_it_however_busy_the_log_is() -> None:
    for seed in range(8):
        disk = SimulatedDisk(random.Random(seed))
        promised: list[int] = []
        final: list[bytes] = []

        async def scenario(
            storage: SegmentStorage,
            rng: random.Random = disk.rng,
            promised: list[int] = promised,
            final: list[bytes] = final,
        ) -> None:
            log = await storage.create(FIRST, LOG)

            async def write() -> None:
                for _ in range(20):
                    await append(log, rng.randint(1, 20))

            busy = asyncio.ensure_future(write())
            await asyncio.sleep(rng.random() * 0.2)
            promised.append(log.durable_offset)
            await storage.cut()
            await busy
            final += await content(log)

        live(disk, scenario)
        start, end, found = opened(copied(disk, the_cut(disk)))[FIRST]
        assert start == 0 and end >= promised[0], seed
        assert found == final[: len(found)], seed


def test_a_truncation_spoils_the_cuts_that_are_held() -> None:
    disk = SimulatedDisk(random.Random(4))

    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(FIRST, LOG)
        await append(log, 40)
        cut = await storage.cut()
        spoiled = [cut.spoiled]
        await log.truncate(Offset(20))
        await storage.wait_applied()
        later = await storage.cut()
        assert [*spoiled, cut.spoiled, later.spoiled] == [False, True, False]

    live(disk, scenario)


def test_a_removed_cut_leaves_nothing_behind() -> None:
    disk = SimulatedDisk(random.Random(4))

    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(FIRST, LOG)
        await append(log, 40)
        cut = await storage.cut()
        await storage.remove_cut(cut)
        await storage.remove_cut(cut)
        assert len(await content(log)) == 40

    live(disk, scenario)
    assert not [path for path in disk.paths() if path.startswith("cut-")]


def test_a_start_removes_the_cuts_of_the_process_before() -> None:
    disk = SimulatedDisk(random.Random(4))

    async def scenario(storage: SegmentStorage) -> None:
        await append(await storage.create(FIRST, LOG), 40)
        await storage.cut()

    live(disk, scenario)
    assert the_cut(disk)
    disk.kill()

    async def again(storage: SegmentStorage) -> None:
        log = storage.get(FIRST)
        assert log is not None and len(await content(log)) == 40
        await asyncio.sleep(60)  # of simulated time: it is removed beside the work of the broker
        assert not any(path.startswith("cut-") for path in disk.paths())

    live(disk, again)


def test_a_cut_that_cannot_be_made_leaves_nothing_and_the_log_goes_on() -> None:
    class Linkless(SimulatedDisk):
        async def link(self, names: Sequence[tuple[str, str]]) -> Sequence[str]:
            raise PermissionError(1, "Operation not permitted")

    disk = Linkless(random.Random(4))

    async def scenario(storage: SegmentStorage) -> None:
        log = await storage.create(FIRST, LOG)
        await append(log, 10)
        with pytest.raises(StorageError, match="no hard links"):
            await storage.cut()
        await append(log, 10)
        await storage.checkpoint()
        assert not storage.directory.cuts

    live(disk, scenario)
    assert not [path for path in disk.paths() if path.startswith("cut-")]


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_in_any_call_of_a_cut_costs_nothing(power_cut: bool) -> None:
    """Every disk call from the beginning of the cut to its removal, one history each."""
    calls = 0

    async def fill(storage: SegmentStorage) -> None:
        for partition_id in (FIRST, SECOND):
            await append(await storage.create(partition_id, LOG), 30)

    async def cut(storage: SegmentStorage) -> None:
        made: Cut = await storage.cut()
        await storage.remove_cut(made)

    while True:
        disk = SimulatedDisk(random.Random(4))
        live(disk, fill)
        disk.kill()
        start = disk.calls
        calls += 1
        disk.crash_at = start + calls
        try:
            live(disk, cut)
            break
        except Crash:
            pass
        disk.crash_at = 0
        if power_cut:
            disk.power_cut()
        else:
            disk.kill()
        found = opened(disk)
        assert [len(found[each][2]) for each in (FIRST, SECOND)] == [30, 30], calls
    assert calls > 50
