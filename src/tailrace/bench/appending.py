"""How fast validated batches come into the segment files with `fsync = os`, against `os.write` of the bytes.

The clock stops when everything is applied. A window of a few MiB is in flight, as many producers together
keep it; neither side waits for the disk itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from uuid import UUID

from tailrace.bench.batch import batch_of, fresh_batches
from tailrace.bench.compare import Comparison, Turns, compare
from tailrace.model import Epoch, PartitionId
from tailrace.records import Batch
from tailrace.storage import OS, LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage

MIB = 1 << 20
WINDOW_BYTES = 8 * MIB
EPOCH = Epoch(1)


async def measure_append(path: Path, *, batch_bytes: int, bytes_per_run: int, turns: Turns) -> Comparison:
    """Appends of `batch_bytes` each, in MiB/s."""
    template = batch_of(batch_bytes)
    batches_per_run = bytes_per_run // batch_bytes
    storage = await SegmentStorage.open(path / "appends", config=DirectoryConfig(fsync=OS), owns_loop=True)
    numbers = count()

    async def ours() -> float:
        batches = fresh_batches(template, batches_per_run)
        return await _append_to_new_partition(storage, batches, next(numbers))

    def bare() -> float:
        return _write(path / "bare", fresh_batches(template, batches_per_run))

    try:
        return await compare(turns, unit="MiB/s", ours=ours, bare=bare)
    finally:
        await storage.close()


async def _append_to_new_partition(storage: SegmentStorage, batches: Sequence[Batch], number: int) -> float:
    partition_id = PartitionId(UUID(int=1), number)
    log = await storage.create(partition_id, LogConfig())
    await storage.wait_applied()
    started = time.perf_counter()
    await append_all(log, batches)
    await storage.wait_applied()
    rate = _mib_per_s(batches, time.perf_counter() - started)
    await storage.delete(partition_id)
    await storage.wait_applied()  # its pages are gone before the next run makes new ones
    return rate


async def append_all(log: SegmentLog, batches: Sequence[Batch]) -> None:
    """Append with at most a window in flight, and return when everything is durable."""
    first_half = log.end_offset
    appended = 0
    for batch in batches:
        log.append(batch, leader_epoch=EPOCH)
        appended += batch.size
        if appended >= WINDOW_BYTES // 2:
            await log.wait_durable(first_half)
            first_half, appended = log.end_offset, 0
    await log.wait_durable(log.end_offset)


def _write(path: Path, batches: Sequence[Batch]) -> float:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        started = time.perf_counter()
        for batch in batches:
            os.write(fd, batch.data)
        return _mib_per_s(batches, time.perf_counter() - started)
    finally:
        os.close(fd)
        path.unlink()


def _mib_per_s(batches: Sequence[Batch], seconds: float) -> float:
    return sum(batch.size for batch in batches) / MIB / seconds
