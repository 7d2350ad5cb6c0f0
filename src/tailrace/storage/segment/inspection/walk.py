"""From batch to batch through a segment file, in pieces.

`walk_headers` reads headers alone and skips what lies between them; `walk_batches` reads and checks every
byte. Neither holds more than a piece in memory, whatever a damaged length claims. `OffsetTrack` judges what
the batches say: offsets only grow, stay inside the segment, and counts fit.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.records import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    MAGIC,
    UNCHECKED_BYTES,
    Batch,
    Compression,
    crc32c,
)
from tailrace.storage.segment.index import NO_TIMESTAMP
from tailrace.storage.segment.inspection.source import SourceFile
from tailrace.storage.segment.shape import OFFSET_MAX

PIECE_BYTES = 1 << 20
_HEADER_PIECE_BYTES = 64 * 1024
_CODECS = frozenset(map(int, Compression))


class WalkBroken(ValueError):
    """There is no whole batch at `position`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


class Window:
    """The piece of a file that is in memory just now."""

    def __init__(self, file: SourceFile, *, end: int, piece_bytes: int = PIECE_BYTES) -> None:
        self._file = file
        self._end = end
        self._piece_bytes = piece_bytes
        self._begin = 0
        self._data = memoryview(b"")

    def view(self, position: int, size: int) -> memoryview:
        """`size` bytes, fewer where the file or the range ends."""
        skip = position - self._begin
        if skip < 0 or skip + size > len(self._data):
            wanted = min(max(size, self._piece_bytes), max(self._end - position, 0))
            self._data = self._file.read(position, wanted)
            self._begin, skip = position, 0
        return self._data[skip : skip + size]


def walk_headers(file: SourceFile, *, begin: int, end: int) -> Iterator[tuple[int, Batch]]:
    """Position and header of every batch; WalkBroken where there is none."""
    window = Window(file, end=end, piece_bytes=_HEADER_PIECE_BYTES)
    position = begin
    while position < end:
        batch = _read_header(window, position, end)
        yield position, batch
        position += batch.size


def walk_batches(file: SourceFile, *, begin: int, end: int) -> Iterator[tuple[int, Batch, bool]]:
    """Position and header of every batch, and whether its CRC holds; WalkBroken where there is none."""
    window = Window(file, end=end)
    position = begin
    while position < end:
        batch = _read_header(window, position, end)
        yield position, batch, _crc_of(window, position, batch.size) == batch.crc
        position += batch.size


def crc_of_range(file: SourceFile, *, begin: int, end: int) -> int:
    """CRC32C of the bytes, piece by piece."""
    crc = 0
    for position in range(begin, end, PIECE_BYTES):
        crc = crc32c(file.read(position, min(PIECE_BYTES, end - position)), crc)
    return crc


def _read_header(window: Window, position: int, end: int) -> Batch:
    header = window.view(position, HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        raise WalkBroken(position, f"{len(header)} bytes are too few for a batch")
    batch = Batch(header)
    if batch.magic != MAGIC:
        raise WalkBroken(position, f"the batch is of format {batch.magic}, not {MAGIC}")
    if batch.size < HEADER_BYTES or position + batch.size > end:
        raise WalkBroken(position, f"the batch says it has {batch.size} bytes, {end - position} are there")
    return batch


def _crc_of(window: Window, position: int, size: int) -> int:
    crc = 0
    place, end = position + UNCHECKED_BYTES, position + size
    while place < end:
        piece = window.view(place, min(PIECE_BYTES, end - place))
        if not piece:
            break  # the file became shorter meanwhile; the CRC will not hold
        crc = crc32c(piece, crc)
        place += len(piece)
    return crc


class OffsetTrack:
    """What the batches of one segment say, one after the other."""

    __slots__ = (
        "_limit",
        "batches",
        "first_gap",
        "first_offset",
        "max_timestamp",
        "next_offset",
        "records",
        "thinned",
    )

    def __init__(self, *, base: int, limit: int | None) -> None:
        # Where the next segment, or what was never acknowledged, begins.
        self._limit = OFFSET_MAX if limit is None else limit
        self.next_offset = base
        self.first_offset: int | None = None
        self.batches = 0
        self.records = 0
        self.max_timestamp = NO_TIMESTAMP
        self.first_gap: tuple[int, int] | None = None  # offsets that no batch holds
        self.thinned = False  # a batch lost records to compaction

    @property
    def compacted(self) -> bool:
        """Whether compaction was here."""
        return self.first_gap is not None or self.thinned or not self.batches

    def take(self, batch: Batch) -> str | None:
        """Take note of a batch; what is wrong with it, if anything is."""
        base, delta, count = batch.base_offset, batch.last_offset_delta, batch.count
        self.batches += 1
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = batch.max_timestamp
        if base < self.next_offset or not 0 <= count <= delta + 1 or base + delta >= self._limit:
            return self._explain(batch)
        if batch.attributes & COMPRESSION_MASK not in _CODECS:
            return f"its codec {batch.attributes & COMPRESSION_MASK} is unknown"
        if base > self.next_offset:
            self.close_at(base)
        if count <= delta or batch.attributes & DELETE_HORIZON_BIT:
            self.thinned = True
        if self.first_offset is None:
            self.first_offset = base
        self.next_offset = base + delta + 1
        self.records += count
        return None

    def _explain(self, batch: Batch) -> str:
        if batch.base_offset < self.next_offset:
            return f"its offset {batch.base_offset} is below {self.next_offset}, which comes next"
        if batch.next_offset > self._limit:
            return f"its offsets reach {batch.next_offset}, past the end of the segment at {self._limit}"
        return f"it has {batch.count} records and last offset delta {batch.last_offset_delta}"

    def close_at(self, offset: int) -> None:
        """Go on at `offset`; offsets before it that no batch holds are a gap, which compaction leaves."""
        if offset > self.next_offset and self.first_gap is None:
            self.first_gap = self.next_offset, offset
        self.next_offset = max(self.next_offset, offset)

    def skip_to(self, offset: int, *, max_timestamp: int) -> None:
        """Leave out offsets that cannot be read."""
        self.next_offset = max(self.next_offset, offset)
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
