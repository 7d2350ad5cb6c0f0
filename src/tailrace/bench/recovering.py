"""How long a directory takes to serve again after a crash, per GiB that the last checkpoint does not know.

A process of its own writes 16 KiB batches in rounds of several MiB, each durable before the next, and dies
without closing. Opening what it left drops the page cache first, so this reads the disk.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from uuid import UUID

from tailrace.bench.appending import EPOCH, MIB
from tailrace.bench.batch import batch_of, fresh_batches
from tailrace.bench.process import run_python
from tailrace.model import PartitionId, StorageError
from tailrace.records import read_batch
from tailrace.storage import LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentStorage

BATCH_BYTES = 16 * 1024
ROUND_BYTES = 4 * MIB
_PARTITION = PartitionId(UUID(int=1), 0)
_NEVER_MS = 10**9
# The journal takes about 100 bytes per batch by reference; half a file of it would ask for a checkpoint.
_CONFIG = DirectoryConfig(checkpoint_interval_ms=_NEVER_MS, journal_file_bytes=32 * MIB)


async def measure_recovery(path: Path, *, bytes_total: int, runs: int) -> list[float]:
    """Seconds to open the directory of a writer that died, run by run."""
    return [await _measure_once(path / f"crash-{run}", bytes_total) for run in range(runs)]


async def _measure_once(directory: Path, bytes_total: int) -> float:
    await run_python("tailrace.bench.child", "crash", str(directory), str(bytes_total))
    started = time.perf_counter()
    storage = await SegmentStorage.open(directory, config=_CONFIG, owns_loop=True)
    seconds = time.perf_counter() - started
    try:
        _check_end(storage, bytes_total)
    finally:
        await storage.close()
    shutil.rmtree(directory)
    return seconds


def _check_end(storage: SegmentStorage, bytes_total: int) -> None:
    """A recovery that lost something is no figure."""
    log = storage.get(_PARTITION)
    found = -1 if log is None else log.end_offset
    expected = bytes_total // BATCH_BYTES * read_batch(batch_of(BATCH_BYTES)).count
    if found != expected:
        raise StorageError(
            "recover", storage.directory.path, f"the log ends at {found}, {expected} was acknowledged"
        )


async def write_without_closing(directory: Path, bytes_total: int) -> None:
    """The writer's part, in a process of its own; it returns with everything durable and nothing closed."""
    template = batch_of(BATCH_BYTES)
    storage = await SegmentStorage.open(directory, config=_CONFIG, owns_loop=True)
    log = await storage.create(_PARTITION, LogConfig())
    await storage.wait_applied()  # until then batches would go into the journal whole
    left = bytes_total // BATCH_BYTES
    while left:
        batches = fresh_batches(template, min(left, ROUND_BYTES // BATCH_BYTES))
        for batch in batches:
            log.append(batch, leader_epoch=EPOCH)
        await log.wait_durable(log.end_offset)
        left -= len(batches)
