"""How fast a log is read out of the page cache in pieces of 1 MiB, every byte checked, against bare calls.

The bare side reads the same file with `preadv` into one buffer that it uses again, and takes its CRC. The
log's tail is kept empty, so that memory answers nothing.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from uuid import UUID

from tailrace.bench.appending import MIB, append_all
from tailrace.bench.batch import batch_of, fresh_batches
from tailrace.bench.compare import Comparison, Turns, compare
from tailrace.model import PartitionId
from tailrace.records import crc32c
from tailrace.storage import OS, LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage

BATCH_BYTES = 16 * 1024
_READ_BYTES = 1 << 20
_PARTITION = PartitionId(UUID(int=1), 0)


async def measure_hot_read(path: Path, *, bytes_total: int, turns: Turns) -> Comparison:
    """Reads from the first offset to the last, in MiB/s."""
    directory = path / "reads"
    await _write_log(directory, bytes_total // BATCH_BYTES)
    storage = await SegmentStorage.open(
        directory, config=DirectoryConfig(fsync=OS, tail_bytes_max=0), owns_loop=True
    )
    try:
        log = storage.get(_PARTITION)
        assert log is not None
        await _read_log(log)  # opening it dropped what the page cache held
        (segment,) = directory.glob("*/*.log")
        return await compare(
            turns, unit="MiB/s", ours=lambda: _read_log(log), bare=lambda: _read_file(segment)
        )
    finally:
        await storage.close()


async def _write_log(directory: Path, count: int) -> None:
    storage = await SegmentStorage.open(directory, config=DirectoryConfig(fsync=OS), owns_loop=True)
    try:
        log = await storage.create(_PARTITION, LogConfig())
        await append_all(log, fresh_batches(batch_of(BATCH_BYTES), count))
    finally:
        await storage.close()


async def _read_log(log: SegmentLog) -> float:
    offset, done = log.start_offset, 0
    started = time.perf_counter()
    while offset < log.durable_offset:
        piece = log.read_nowait(offset, bytes_max=_READ_BYTES, up_to=log.durable_offset)
        if piece is None:
            piece = await log.read(offset, bytes_max=_READ_BYTES, up_to=log.durable_offset)
        for extent in piece.extents:
            if extent.load_nowait() is None:
                await extent.load()
            extent.release()
        done += piece.size
        offset = piece.next_offset
    return done / MIB / (time.perf_counter() - started)


def _read_file(path: Path) -> float:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        buffer = memoryview(mmap.mmap(-1, _READ_BYTES))
        done = 0
        started = time.perf_counter()
        while count := os.preadv(fd, [buffer], done):
            crc32c(buffer[:count])
            done += count
        return done / MIB / (time.perf_counter() - started)
    finally:
        os.close(fd)
