"""A process that writes to a data directory until somebody ends it, and says what it was promised.

    python -m tailrace.testing.faults.writer DIR [--seed N] [--fsync commit] [--turns N] [--kill-at N]

Reports go to standard output, a line each (ledger.py lists them), unbuffered, so that every one said before
a kill is read after it. A change is reported in the same turn of the loop in which it is made, before the
engine can write a byte of it: whatever is found on the disk later was reported.

`--turns` 0 opens, says what is there, and closes. `--kill-at` N ends the process, as kill -9 does, in the
N-th call to the disk. Exit codes: 0 closed, 3 the storage failed, 4 it did not open,
5 it failed and is not fenced.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
from collections.abc import Callable
from uuid import UUID

from tailrace.model import Epoch, NoSpace, Offset, PartitionId, StorageError
from tailrace.runtime import DirectoryLock, RealDisk
from tailrace.storage.api import Fsync
from tailrace.storage.segment import SegmentStorage
from tailrace.testing.faults.disk import FaultyDisk
from tailrace.testing.faults.ledger import digest_of, read_state, write_state
from tailrace.testing.faults.workload import LOG_CONFIG, BatchSource, small_directory

FAILED, NOT_OPENED, NOT_FENCED = 3, 4, 5
TOPIC = UUID(int=0xFA_017)
_PARTITIONS = 4
_RECORDS_KEPT = 150
_RETRY_S = 0.02
_FAILURE_S = 10


Report = Callable[[str], None]


def say(line: str) -> None:
    """A report. Nothing buffers it, so it is out before the next line of this process runs."""
    os.write(sys.stdout.fileno(), line.replace("\n", " ").encode() + b"\n")


class PartitionWriter:
    """Changes one partition, one change after the other."""

    def __init__(
        self, storage: SegmentStorage, partition: int, *, rng: random.Random, epoch: int, report: Report
    ) -> None:
        self._storage = storage
        self._partition = partition
        self._id = PartitionId(TOPIC, partition)
        self._rng = rng
        self._epoch = epoch
        self._report = report
        self._source = BatchSource(rng)
        self._made = 0

    async def turn(self) -> None:
        """A burst of batches, and now and then something else."""
        log = self._storage.get(self._id)
        if log is None:
            await self._create()
            return
        await self._append()
        draw = self._rng.random()
        if log.end_offset - log.start_offset > _RECORDS_KEPT or draw < 0.03:
            await self._trim()
        elif draw < 0.10:
            await self._truncate()
        elif draw < 0.12:
            await self._delete()
        elif draw < 0.15:
            await self._storage.maintain()

    def _tell(self, kind: str, *words: object) -> None:
        self._made += 1
        self._report(" ".join(map(str, (kind, self._partition, *words))))

    def _acknowledged(self) -> None:
        self._report(f"durable {self._partition} {self._made}")

    async def take_turns(self, turns: int) -> None:
        """So many turns, or turns for ever if that is negative; where there is no space it tries again."""
        while turns:
            try:
                await self.turn()
            except NoSpace:
                self._report(f"refused {self._partition}")
                await asyncio.sleep(_RETRY_S)
            turns -= 1

    async def _create(self) -> None:
        self._tell("create")
        await self._storage.create(self._id, LOG_CONFIG)
        self._acknowledged()

    async def _append(self) -> None:
        log = self._storage.get(self._id)
        assert log is not None
        for _ in range(self._rng.choice((1, 1, 2, 3, 8))):
            batch = self._source.draw()
            log.append(batch, leader_epoch=Epoch(self._epoch))
            self._tell("append", batch.base_offset, batch.next_offset, digest_of(batch.data))
        if self._rng.random() < 0.8:  # else the next change follows at once
            await log.wait_durable(log.end_offset)
            self._acknowledged()

    async def _trim(self) -> None:
        log = self._storage.get(self._id)
        assert log is not None
        offset = self._rng.randint(log.start_offset, log.durable_offset)
        if offset > log.start_offset:
            self._tell("trim", offset)
            await log.trim(Offset(offset))
            self._acknowledged()

    async def _truncate(self) -> None:
        log = self._storage.get(self._id)
        assert log is not None
        offset = self._rng.randint((log.start_offset + 3 * log.end_offset) // 4, log.end_offset)
        if offset < log.end_offset:
            self._tell("truncate", offset)
            await log.truncate(Offset(offset))
            self._acknowledged()
            self._source.begin_producer()
            self._epoch += 1

    async def _delete(self) -> None:
        self._tell("delete")
        await self._storage.delete(self._id)
        self._acknowledged()


async def open_directory(path: str, *, fsync: Fsync, kill_at: int, owns_loop: bool) -> SegmentStorage:
    """The storage over a real disk, or over one that kills this process."""
    config = small_directory(fsync)
    if not kill_at:
        return await SegmentStorage.open(path, config=config, owns_loop=owns_loop)
    os.makedirs(path, exist_ok=True)
    lock = DirectoryLock(path)
    storage = SegmentStorage(FaultyDisk(RealDisk(path), kill_at=kill_at), path, config=config)
    storage._lock = lock
    await storage.start()
    return storage


async def report_found(storage: SegmentStorage, report: Report) -> None:
    """Say what is there, all of it."""
    for log in storage.logs():
        assert log.damaged == -1, f"{log!r} is damaged from {log.damaged} on"
        storage.configure(log.partition_id, LOG_CONFIG)
        report(f"found {log.partition_id.partition} {write_state(await read_state(log))}")
    report("opened")


async def write_all(
    storage: SegmentStorage, rng: random.Random, *, epoch: int, turns: int, report: Report
) -> None:
    """All partitions at once, until every one had its turns or the storage has failed."""
    tasks = []
    for partition in range(_PARTITIONS):
        draws = random.Random(rng.getrandbits(64))
        writer = PartitionWriter(storage, partition, rng=draws, epoch=epoch, report=report)
        tasks.append(asyncio.create_task(writer.take_turns(turns), name=f"partition {partition}"))
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    errors = [error for task in done if (error := task.exception()) is not None]
    if errors and all(isinstance(error, StorageError) for error in errors):
        # Whoever waits is told as well; what they still hear of was acknowledged before.
        await asyncio.wait(tasks, timeout=_FAILURE_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if errors:
        raise errors[0]


async def write(arguments: argparse.Namespace) -> int:
    """Open, say what is there, write; the exit code."""
    rng = random.Random(arguments.seed)
    try:
        storage = await open_directory(
            arguments.directory,
            fsync=Fsync.parse(arguments.fsync),
            kill_at=arguments.kill_at,
            owns_loop=rng.random() < 0.5,
        )
    except StorageError as error:
        say(f"failed {error}")
        return NOT_OPENED
    try:
        await report_found(storage, say)
        await write_all(storage, rng, epoch=arguments.epoch, turns=arguments.turns, report=say)
    except StorageError as error:
        say(f"failed {error}")
        return FAILED if storage.directory.failure is not None else NOT_FENCED
    finally:
        await storage.close()
    return 0


def main() -> int:
    """Parse, run, and answer with the exit code."""
    parser = argparse.ArgumentParser(prog="tailrace.testing.faults.writer", description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fsync", default="commit")
    parser.add_argument("--turns", type=int, default=-1, help="changes per partition; -1: until the end")
    parser.add_argument("--epoch", type=int, default=0, help="leader epoch to begin with")
    parser.add_argument("--kill-at", type=int, default=0, help="end in this call to the disk; 0: never")
    return asyncio.run(write(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
