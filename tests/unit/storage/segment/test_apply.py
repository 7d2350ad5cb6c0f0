"""Truncations as the applier does them to files that others are using; single calls of the disk are held."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple, Unpack
from uuid import UUID

import pytest

from tailrace.model import Epoch, LogDamaged, LogTruncated, Offset, PartitionId, StorageError
from tailrace.records import Batch, build_batch, iter_batches, read_batch
from tailrace.storage import LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from tailrace.testing.simulation.file import SimulatedFile

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

PARTITION = PartitionId(UUID(int=7), 0)
OTHER = PartitionId(UUID(int=7), 1)
CONFIG = DirectoryConfig(
    journal_file_bytes=256 * 1024,
    journal_bytes_max=3 * 256 * 1024,
    checkpoint_bytes=256 * 1024,
    round_bytes_max=20_000,
    tail_bytes_max=0,
    index_cache_bytes=0,  # one sealed segment is open at a time
    free_bytes_min=0,
)


def batch(offset: int = 0) -> Batch:
    return read_batch(build_batch([(offset, None, b"v" * 40, ())], base_offset=offset))


# Ten batches to a segment, three to a span.
LOG = LogConfig(segment_bytes=10 * batch().size, index_interval_bytes=3 * batch().size)


class Hold:
    """A call that waits to take effect."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    async def wait_released(self) -> None:
        self.reached.set()
        await self._released.wait()


class HeldDisk(SimulatedDisk):
    """Holds the next call of a kind on a file when it is told to."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.cold_chance = 0.0
        self._holds: dict[tuple[str, str], Hold] = {}

    def hold(self, op: str, name: str) -> Hold:
        return self._holds.setdefault((op, name), Hold())

    async def call(self, effect: Callable[[Unpack[_Ts]], _T], *args: *_Ts) -> _T:
        hold = self._holds.pop(_op_and_name(effect, args), None)
        if hold is not None:
            await hold.wait_released()
        return await super().call(effect, *args)


def _op_and_name(effect: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, str]:
    """ "open" and "30.index", for one; a file's own calls name their effect first."""
    owner = getattr(effect, "__self__", None)
    if isinstance(owner, SimulatedFile):
        op, path = args[0].__name__, owner.path
    else:
        op, path = effect.__name__, str(args[0])
    name = path.rpartition("/")[2]
    return op.strip("_"), name.lstrip("0") if name[:1] == "0" else name


Scenario = Callable[[HeldDisk, SegmentStorage, SegmentLog], Awaitable[None]]


def play(scenario: Scenario, disk: HeldDisk | None = None) -> HeldDisk:
    """Run a scenario over a new log, or over the one that `disk` already holds."""
    found = disk or HeldDisk()

    async def main() -> None:
        storage = SegmentStorage(found, "sim", config=CONFIG, clock=SimulatedClock(loop), rng=found.rng)
        await storage.start()
        log = storage.get(PARTITION) or await storage.create(PARTITION, LOG)
        storage.configure(PARTITION, LOG)
        await storage.wait_applied()
        await scenario(found, storage, log)

    with SimulatedLoop() as loop:
        loop.run(main())
    return found


async def append(log: SegmentLog, count: int, *, epoch: int = 0) -> None:
    for _ in range(count):
        log.append(batch(), leader_epoch=Epoch(epoch))
    await log.wait_durable(log.end_offset)


async def read(log: SegmentLog, offset: int) -> tuple[int, int]:
    """Offset and epoch of the batch at `offset`."""
    data = await (await log.read(Offset(offset), bytes_max=1, up_to=log.durable_offset)).load()
    found = next(iter_batches(data))
    return found.base_offset, found.leader_epoch


async def read_all(log: SegmentLog) -> list[tuple[int, int]]:
    return [await read(log, offset) for offset in range(log.start_offset, log.durable_offset)]


async def wait_either(work: asyncio.Task[Any], event: asyncio.Event) -> None:
    """Return when the work is done or has come to a held call."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def truncate_up_to_open_span(
    disk: HeldDisk, storage: SegmentStorage, log: SegmentLog, *, offset: int, name: str
) -> Hold:
    """Have the applier cut the segment `name`, and wait for the batches that are in an open span again."""
    async with storage.directory.apply_lock:
        await log.truncate(Offset(offset))
        cutting = disk.hold("read", name)
    await cutting.reached.wait()
    return cutting


async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
    """Segments 0 to 40, sealed, with their index files, and the open one that begins with 50."""
    await append(log, 60)
    await storage.checkpoint()
    assert list(log.segments) == [0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize("more", [0, 3, 30])
def test_a_reader_who_comes_while_a_segment_is_cut_finds_what_stays_of_it(more: int) -> None:
    """Not the index of the whole segment, whether or not the segment has grown again when that is read."""
    expected = [(offset, int(offset >= 37)) for offset in range(37 + more)]

    async def scenario(disk: HeldDisk, storage: SegmentStorage, log: SegmentLog) -> None:
        await fill(storage, log)
        cutting = await truncate_up_to_open_span(disk, storage, log, offset=37, name="30.log")
        assert await read(log, 3) == (3, 0)  # another segment is opened: one too many
        loading = disk.hold("open", "30.timeindex")
        reader = asyncio.create_task(read(log, 33))
        await wait_either(reader, loading.reached)
        cutting.release()
        await storage.wait_applied()
        await append(log, more, epoch=1)
        await storage.wait_applied()
        loading.release()
        assert await reader == (33, 0)
        assert await read_all(log) == expected
        await storage.checkpoint()

    async def afterwards(_: HeldDisk, __: SegmentStorage, log: SegmentLog) -> None:
        assert log.damaged == -1
        assert await read_all(log) == expected

    disk = play(scenario)
    disk.kill()
    play(afterwards, disk)


def test_a_cut_segment_is_not_closed_by_a_checkpoint_that_began_before() -> None:
    """Its index files hold what is cut off."""

    async def scenario(disk: HeldDisk, storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 60)
        await storage.wait_applied()
        writing = disk.hold("sync", "30.timeindex")
        checkpoint = asyncio.create_task(storage.checkpoint())
        await writing.reached.wait()
        cutting = await truncate_up_to_open_span(disk, storage, log, offset=37, name="30.log")
        writing.release()
        await checkpoint
        assert await read(log, 3) == (3, 0)
        assert log.segments[30].ready
        cutting.release()
        await append(log, 30, epoch=1)
        await storage.checkpoint()
        assert await read_all(log) == [(offset, int(offset >= 37)) for offset in range(67)]

    play(scenario)


def test_an_empty_segment_that_was_written_to_again_is_not_opened_as_an_empty_one() -> None:
    """Its index files had no entry when the checkpoint sealed it, and still have none: that tells nothing."""
    far = 1 << 31

    async def scenario(disk: HeldDisk, storage: SegmentStorage, log: SegmentLog) -> None:
        other = await storage.create(OTHER, LOG)
        await append(other, 15)
        log.append(batch(far))  # past what an index reaches: segment 0 stays empty
        await log.wait_durable(log.end_offset)
        await storage.wait_applied()
        assert list(log.segments) == [0, far]
        writing = disk.hold("sync", ".timeindex")
        checkpoint = asyncio.create_task(storage.checkpoint())
        await writing.reached.wait()
        await log.truncate(Offset(0))
        await append(log, 25)
        await storage.wait_applied()
        writing.release()
        await checkpoint
        assert await read(other, 3) == (3, 0)  # another segment is opened
        assert await read_all(log) == [(offset, 0) for offset in range(25)]

    play(scenario)


def test_what_a_truncation_took_is_no_damage_to_who_found_it_before() -> None:
    """Even if the segment was closed since, and the file that he reads is not the one that was cut."""

    async def scenario(disk: HeldDisk, storage: SegmentStorage, log: SegmentLog) -> None:
        await fill(storage, log)
        found = await log.read(Offset(36), bytes_max=1 << 20, up_to=log.durable_offset)
        assert await read(log, 3) == (3, 0)
        assert not log.segments[30].ready
        await log.truncate(Offset(37))
        await storage.wait_applied()
        with pytest.raises(LogTruncated, match=r"30\.log was truncated while it was read"):
            await found.load()

    play(scenario)


def test_segments_that_a_truncation_is_removing_are_not_missed() -> None:
    """A reader in a gap goes on to the next segment, and comes when only the first of several is gone."""

    async def scenario(disk: HeldDisk, storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 20)
        log.append(batch(25))
        await append(log, 25)
        await storage.checkpoint()
        assert list(log.segments) == [0, 10, 25, 35, 45]
        assert await read(log, 3) == (3, 0)
        removing = disk.hold("remove", "25.log")
        await log.truncate(Offset(23))
        await removing.reached.wait()
        opening = disk.hold("open", "10.index")
        reader = asyncio.create_task(log.read(Offset(21), bytes_max=100, up_to=log.durable_offset))
        await opening.reached.wait()
        removing.release()
        await storage.wait_applied()
        opening.release()
        found = await reader
        assert (found.next_offset, found.size) == (23, 0)

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_damage_in_a_segment_that_was_cut_before_is_damage(restarted: bool, closed: bool) -> None:
    async def cut(_: HeldDisk, storage: SegmentStorage, log: SegmentLog) -> None:
        await fill(storage, log)
        await log.truncate(Offset(37))
        if not restarted:
            await damage(disk, storage, log)

    async def damage(disk: HeldDisk, storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 10, epoch=1)
        await storage.checkpoint()
        if closed:
            assert await read(log, 3) == (3, 0)
        assert log.segments[30].ready != closed
        disk.flip_bit(log.segments[30].path, position=70, bit=3)
        with pytest.raises(LogDamaged, match=r"30\.log: bytes 0 to 323 .* are not what was written"):
            await read(log, 31)

    disk = HeldDisk()
    play(cut, disk)
    if restarted:
        disk.kill()
        play(damage, disk)


@pytest.mark.parametrize("name", ["30.log", "30.index", "30.timeindex"])
@pytest.mark.parametrize("more", [2, 8, 30])
def test_another_segment_under_the_name_of_a_removed_one_is_no_damage(name: str, more: int) -> None:
    """Who was about to open the removed one reads either, or is told of the truncation."""

    async def scenario(disk: HeldDisk, storage: SegmentStorage, log: SegmentLog) -> None:
        await fill(storage, log)
        assert await read(log, 3) == (3, 0)
        opening = disk.hold("open", name)
        reader = asyncio.create_task(read(log, 31))
        await opening.reached.wait()
        await log.truncate(Offset(25))
        await append(log, 5 + more, epoch=1)
        await storage.checkpoint()
        opening.release()
        with suppress(LogTruncated):
            assert await reader in ((31, 0), (31, 1))
        assert await read_all(log) == [(offset, int(offset >= 25)) for offset in range(30 + more)]

    play(scenario)


@pytest.mark.parametrize(("name", "finds"), [("30.log", False), ("30.index", True)])
def test_a_log_that_is_deleted_while_somebody_opens_a_segment_is_no_damage(name: str, finds: bool) -> None:
    """Who has the file already reads it to the end; who has not is told that the log is gone."""

    async def scenario(disk: HeldDisk, storage: SegmentStorage, log: SegmentLog) -> None:
        await fill(storage, log)
        assert await read(log, 3) == (3, 0)
        opening = disk.hold("open", name)
        reader = asyncio.create_task(read(log, 31))
        await opening.reached.wait()
        await storage.delete(PARTITION)
        await storage.wait_applied()
        opening.release()
        if finds:
            assert await reader == (31, 0)
        else:
            with pytest.raises(StorageError, match="the log is deleted"):
                await reader

    play(scenario)
