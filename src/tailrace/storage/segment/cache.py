"""Sealed segments: opened and their indexes loaded when somebody reads, let go when others are wanted more.

An index that is missing, unreadable or wrong is made again from the segment, whose batches carry their own
CRCs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

from tailrace.model import LogDamaged
from tailrace.records import HEADER_BYTES, BatchError, read_batch
from tailrace.runtime import BufferPool, Disk, File
from tailrace.storage.segment.index import SpanIndex, read_index
from tailrace.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 20
_OPEN_FILES_MAX = 512


class SegmentCache:
    """Which sealed segments are open; the least recently read are closed first."""

    def __init__(self, disk: Disk, pool: BufferPool, *, bytes_max: int) -> None:
        self._disk = disk
        self._pool = pool
        self._bytes_max = bytes_max
        self._bytes = 0
        self._open: OrderedDict[Segment, int] = OrderedDict()  # bytes of the index
        self._opening: dict[Segment, asyncio.Event] = {}

    async def open(self, segment: Segment, *, interval_bytes: int) -> None:
        """Have the file and the index of a segment in memory."""
        while (opening := self._opening.get(segment)) is not None:
            await opening.wait()
        if not segment.ready:
            opened = self._opening[segment] = asyncio.Event()
            try:
                if segment.file is None:
                    segment.file = await self._disk.open(segment.path)
                if segment.index is None:
                    segment.index = await self._load(segment, segment.file, interval_bytes)
                    segment.index.cuts = segment.cuts
            except LogDamaged as error:
                if segment.gone:  # and another one has its name by now
                    raise FileNotFoundError(f"{segment.path} was removed") from error
                raise
            finally:
                del self._opening[segment]
                opened.set()
        if segment.persisted_whole:
            self.admit(segment)

    def touch(self, segment: Segment) -> None:
        """Somebody read it just now."""
        if segment in self._open:
            self._open.move_to_end(segment)

    def forget(self, segment: Segment) -> None:
        """The segment is gone, or is no longer managed here."""
        self._bytes -= self._open.pop(segment, 0)

    def admit(self, segment: Segment) -> None:
        """From now on this open segment may be closed when others are wanted more."""
        assert segment.persisted_whole and segment.index is not None
        self.forget(segment)
        self._open[segment] = segment.index.memory_bytes
        self._bytes += segment.index.memory_bytes
        while len(self._open) > 1 and (self._bytes > self._bytes_max or len(self._open) > _OPEN_FILES_MAX):
            oldest, size = self._open.popitem(last=False)
            self._bytes -= size
            oldest.file = oldest.index = None

    async def _load(self, segment: Segment, file: File, interval_bytes: int) -> SpanIndex:
        stem = segment.path.removesuffix(".log")
        try:
            places = await read_file(self._disk, stem + ".index")
            times = await read_file(self._disk, stem + ".timeindex")
        except OSError as error:
            logger.warning("index is unreadable: %s: %s", segment.path, error.strerror)
            places = times = None
        if places is not None and times is not None:
            found = read_index(places, times, base=segment.base, interval_bytes=interval_bytes, state=None)
            if found is not None:
                return _measured(segment, found)
        logger.warning("index made again: %s", segment.path)
        return await scan_segment(
            file, segment.path, base=segment.base, length=segment.length, interval_bytes=interval_bytes
        )


def _measured(segment: Segment, index: SpanIndex) -> SpanIndex:
    """The index says how long its segment is: what follows is no part of it, what is missing is damage."""
    if index.end > segment.length:
        raise LogDamaged(
            f"{segment.path} has {segment.length} bytes, and {index.end} were acknowledged. "
            "Nothing is cut; restore the file from a copy"
        )
    segment.length = index.end
    return index


async def read_file(disk: Disk, path: str, *, fresh: bool = False) -> bytes | None:
    """A whole small file, or None if it is not there."""
    try:
        file = await disk.open(path, fresh=fresh)
    except FileNotFoundError:
        return None
    buffer = bytearray(file.size())
    done = await file.read(0, memoryview(buffer)) if buffer else 0
    file.close()
    return bytes(buffer[:done])


async def scan_segment(
    file: File, path: str, *, base: int, length: int, interval_bytes: int, seal: bool = True
) -> SpanIndex:
    """The index of a segment, made from its first `length` bytes; LogDamaged where a batch is not whole."""
    index = SpanIndex(base, interval_bytes)
    buffer = memoryview(bytearray(min(_PIECE_BYTES, max(length, 1))))
    position, next_offset = 0, base
    while position < length:
        wanted = min(len(buffer), length - position)
        done = await file.read(position, buffer[:wanted])
        taken, next_offset = _scan_piece(index, buffer[:done], next_offset)
        if not taken:
            needed = _batch_bytes(buffer[:done])
            if done < wanted or needed is None or needed <= wanted or position + needed > length:
                raise LogDamaged(
                    f"{path}: no whole batch at byte {position} (offset {next_offset} or later). It is kept "
                    "and not served; tailrace log verify shows the extent"
                )
            buffer = memoryview(bytearray(needed))
        position += taken
    if seal:
        index.close_open(next_offset)
    return index


def _scan_piece(index: SpanIndex, data: memoryview, next_offset: int) -> tuple[int, int]:
    """Add the whole batches at the front of `data`; bytes taken, and the offset that follows."""
    taken = 0
    while taken < len(data):
        try:
            batch = read_batch(data, taken)
        except BatchError:
            break
        if batch.base_offset < next_offset or not batch.check_crc():
            break
        index.add(batch)
        taken += batch.size
        next_offset = batch.next_offset
    return taken, next_offset


def _batch_bytes(data: memoryview) -> int | None:
    """How long the batch at the front says it is."""
    if len(data) < HEADER_BYTES:
        return None
    return 12 + int.from_bytes(data[8:12], "big", signed=True)
