"""A small directory as a crash leaves it, to be damaged in thousands of ways: prepared once, copied for each.

The copy is taken while the storage serves and nothing moves, so no clean shutdown is in it. Every append
waits for its own round, so that each state that a torn journal may leave is known.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from tailrace.model import Epoch, LogDamaged, Offset, PartitionId
from tailrace.records import iter_batches
from tailrace.storage import LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.storage.segment.checkpoint import read_checkpoint
from tailrace.storage.segment.journal import (
    SECTOR,
    JournalHeader,
    read_header,
    read_rounds,
    write_header,
)
from tailrace.storage.segment.names import CHECKPOINT, journal_file
from tailrace.testing.faults.disk import DirectDisk
from tailrace.testing.faults.ledger import Held, State, held, read_state
from tailrace.testing.faults.workload import BatchSource

TOPIC = UUID(int=0x1_4A6E)
_KIB = 1024
_NEVER_MS = 1 << 40
_ROUND_START_BYTES = 16  # id, length and CRC, before what the length counts

Contents = dict[int, State]
"""Every partition, by its number."""


def still_directory(*, inline_bytes_max: int = 400) -> DirectoryConfig:
    """Nothing is applied or checkpointed until it is asked for."""
    return DirectoryConfig(
        journal_file_bytes=64 * _KIB,
        journal_bytes_max=256 * _KIB,
        checkpoint_bytes=128 * _KIB,
        checkpoint_interval_ms=_NEVER_MS,
        round_bytes_max=32 * _KIB,
        tail_bytes_max=1 * _KIB,
        inline_bytes_max=inline_bytes_max,
        apply_bytes=1 << 30,
        apply_delay_ms=_NEVER_MS,
        reserve_bytes=4 * _KIB,
        free_bytes_min=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlace:
    """Where a round lies: the bytes from `begin` to `end` are its own, padding follows."""

    lsn: int
    path: str
    begin: int
    end: int


@dataclass(slots=True)
class Image:
    """The files, and what they hold after each of the rounds that lie above the checkpoint."""

    path: Path
    config: DirectoryConfig
    rounds: list[RoundPlace] = field(default_factory=list)
    contents: list[Contents] = field(
        default_factory=list
    )  # before the first of `rounds`, and after each of them

    @property
    def final(self) -> Contents:
        return self.contents[-1]

    def copy_to(self, path: Path) -> Path:
        """A copy to be damaged; what was there is replaced."""
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.path, path)
        return path

    @staticmethod
    def forget_rounds(path: Path, *, before: RoundPlace) -> None:
        """Make the journal file that holds `before` begin with that round, as if it had been used anew."""
        file = path / before.path
        data = memoryview(file.read_bytes())
        header = read_header(data)
        assert header is not None
        new = write_header(JournalHeader(header.journal_id, before.lsn, header.size)).ljust(SECTOR, b"\0")
        file.write_bytes((new + data[before.begin :]).ljust(len(data), b"\0"))

    def files(self, suffix: str) -> list[str]:
        """Relative paths of all files of a kind, sorted."""
        return sorted(str(path.relative_to(self.path)) for path in self.path.glob(f"**/*{suffix}"))


class ImageMaker:
    """Fills a directory step by step, and takes the copy."""

    def __init__(self, storage: SegmentStorage, *, config: DirectoryConfig, rng: random.Random) -> None:
        self._storage = storage
        self._config = config
        self._source = BatchSource(rng)
        self._contents: list[Contents] = [{}]

    @classmethod
    async def begin(
        cls,
        path: Path,
        *,
        config: DirectoryConfig,
        rng: random.Random,
        log_config: LogConfig,
        partitions: int,
    ) -> ImageMaker:
        storage = await SegmentStorage.open(path, config=config)
        for partition in range(partitions):
            await storage.create(PartitionId(TOPIC, partition), log_config)
        maker = cls(storage, config=config, rng=rng)
        maker._contents = [{partition: State() for partition in range(partitions)}]
        return maker

    def log(self, partition: int) -> SegmentLog:
        log = self._storage.get(PartitionId(TOPIC, partition))
        assert log is not None
        return log

    async def append(self, partition: int, *, value_bytes: int, count: int = 1, epoch: int = 0) -> None:
        """One batch, in a round of its own."""
        log = self.log(partition)
        batch = self._source.build(count, value_bytes)
        log.append(batch, leader_epoch=Epoch(epoch))
        await log.wait_durable(log.end_offset)
        self._note(partition, self._contents[-1][partition].appended(held(batch)))

    async def truncate(self, partition: int, offset: int) -> None:
        await self.log(partition).truncate(Offset(offset))
        self._source.begin_producer()
        self._note(partition, self._contents[-1][partition].truncated(offset))

    async def trim(self, partition: int, offset: int) -> None:
        await self.log(partition).trim(Offset(offset))
        self._note(partition, self._contents[-1][partition].trimmed(offset))

    def _note(self, partition: int, state: State) -> None:
        self._contents.append({**self._contents[-1], partition: state})

    async def checkpoint(self) -> None:
        """Everything so far is in the files; what follows is in the journal, too."""
        await self._storage.checkpoint()
        del self._contents[:-1]

    async def apply(self) -> None:
        """Let the segment files follow."""
        await self._storage.wait_applied()

    async def take(self, path: Path) -> Image:
        """Copy what is there now, as if the process ended here."""
        copy_as_killed(Path(self._storage.directory.path), path)
        await self._storage.close()
        rounds = find_rounds(path)
        image = Image(path=path, config=self._config, rounds=rounds, contents=self._contents)
        assert len(self._contents) == len(rounds) + 1, "a round for every change since the checkpoint"
        return image


def copy_as_killed(source: Path, target: Path) -> Path:
    """Copies a directory that is in use, and returns the copy. A file that goes meanwhile is not in it."""

    def copy_if_there(file: str, place: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(file, place)

    shutil.copytree(source, target, copy_function=copy_if_there)
    return target


def find_rounds(path: Path) -> list[RoundPlace]:
    """The rounds above the checkpoint, in order."""
    checkpoint = read_checkpoint(memoryview((path / CHECKPOINT).read_bytes()))
    assert checkpoint is not None
    found: list[RoundPlace] = []
    for number in checkpoint.journal_files:
        data = memoryview((path / journal_file(number)).read_bytes())
        header = read_header(data)
        assert header is not None
        for each in read_rounds(data, header):
            length = int.from_bytes(data[each.position + 8 : each.position + 12], "little")
            end = each.position + _ROUND_START_BYTES + length
            place = RoundPlace(lsn=each.lsn, path=journal_file(number), begin=each.position, end=end)
            if each.lsn > checkpoint.lsn:
                found.append(place)
    return sorted(found, key=lambda place: place.lsn)


async def open_directly(path: Path, config: DirectoryConfig) -> SegmentStorage:
    """Recover a copy in this thread; nobody else has it, so it is not locked."""
    storage = SegmentStorage(DirectDisk(str(path)), str(path), config=config)
    await storage.start()
    return storage


async def read_contents(path: Path, config: DirectoryConfig) -> Contents:
    """Open a directory that must be sound, read all of it, and close it."""
    storage = await open_directly(path, config)
    try:
        assert all(log.damaged == -1 for log in storage.logs()), "a partition is quarantined"
        return {log.partition_id.partition: await read_state(log) for log in storage.logs()}
    finally:
        await storage.close()


async def read_held(log: SegmentLog, offset: int) -> Held | None:
    """The batch at an offset; None if reading says that it is damaged."""
    try:
        piece = await log.read(Offset(offset), bytes_max=1, up_to=log.durable_offset)
        batches = list(iter_batches(await piece.load()))
    except LogDamaged:
        return None
    assert len(batches) == 1, f"one byte at {offset} brought {len(batches)} batches"
    return held(batches[0])


async def unreadable(log: SegmentLog, batches: Sequence[Held]) -> list[Held]:
    """Which of the batches are reported as damaged; all others must be as they were written."""
    missing = []
    for batch in batches:
        found = await read_held(log, max(batch.base_offset, log.start_offset))
        assert found in (None, batch), f"{found} was served in place of {batch}"
        if found is None:
            missing.append(batch)
    return missing


async def make_mixed_image(path: Path, *, rng: random.Random, partitions: int) -> Image:
    """Several segments, a trim, a truncation; then a checkpoint; then rounds of both kinds above it."""
    maker = await ImageMaker.begin(
        path / "served",
        config=still_directory(),
        rng=rng,
        log_config=LogConfig(segment_bytes=3000, index_interval_bytes=512),
        partitions=partitions,
    )
    for number in range(44):
        await maker.append(number % 2, value_bytes=rng.randint(1, 500), count=rng.choice((1, 2)))
    await maker.truncate(0, maker.log(0).end_offset - 3)
    await maker.trim(1, 5)
    await maker.checkpoint()
    for number in range(14):
        await maker.append(number % 2, value_bytes=rng.choice((10, 40, 600)), epoch=number)
        if number == 6:
            await maker.apply()
    await maker.append(0, value_bytes=10, epoch=14)
    return await maker.take(path / "image")
