"""The file of a snapshot: blocks with checksums, from the first byte to the end.

    block     | length u32 | CRC32C of the payload u32 | payload: its kind, one byte, and the rest |

    H  head   "TRRINGS1" | taken at, ms i64 | length u16 | cluster id
    L  log    topic id, 16 bytes | partition i32 | start i64 | end i64 | batches u32 | aborted u32 | epochs
              (`storage.epochs`)
    P         producers as of the front of the ring, form 2 (`storage.producers`)
    A         aborted transactions, 32 bytes each: producer i64, first i64, marker i64, stable i64
    B         batches: written at, ms i64 | length u32 | bytes
    E  end    logs u32 | batches u64

Big-endian. A head, then for each log L, P, A if there are any, and as many B as it takes, then the end, with
which the file ends. Nothing of a file is used before all of it was checked. Pure but for reading.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from tailrace.model import Offset, PartitionId
from tailrace.records import Batch, BatchError, crc32c, read_batch
from tailrace.storage.aborted import AbortedEntry
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.memory.ring import RingColumns
from tailrace.storage.producers import ProducerStates

BLOCK_BYTES: Final = 512 << 10
"""A block of batches is full with so many bytes, or"""
BLOCK_BATCHES: Final = 500
"""with so many batches: what is packed in one turn of the loop takes well under a millisecond."""
_PRODUCERS_FORM: Final = 2

_MAGIC: Final = b"TRRINGS1"
_BLOCK: Final = struct.Struct(">II")
_HEAD: Final = struct.Struct(">8sqH")
_LOG: Final = struct.Struct(">16siqqII")
_ABORTED: Final = struct.Struct(">qqqq")
_BATCH: Final = struct.Struct(">qI")
_END: Final = struct.Struct(">IQ")


class BadSnapshot(ValueError):
    """A file is not a whole snapshot; the text says where and why."""


@dataclass(slots=True, kw_only=True)
class RingCut:
    """One log as it was at the moment of a snapshot, or as it was read back."""

    partition_id: PartitionId
    start: Offset
    end: Offset
    epochs: LeaderEpochs
    producers: ProducerStates  # as of the front of the ring
    aborted: Sequence[AbortedEntry] = ()
    columns: RingColumns

    @property
    def count(self) -> int:
        return self.columns.end - self.columns.first

    def rows(self) -> Iterator[tuple[memoryview, int]]:
        """Every batch as bytes, with the time from which its age counts."""
        views, stamps, first, end = self.columns
        return ((views[row], stamps[row]) for row in range(first, end))

    def batches(self) -> Iterator[tuple[Batch, int]]:
        """The same with the batches taken apart, of a log that was read back."""
        return ((Batch(view), stamp) for view, stamp in self.rows())


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a file holds."""

    cluster_id: str
    taken_ms: int
    logs: list[RingCut]


# ---- writing


def write_head(cluster_id: str, taken_ms: int) -> bytes:
    name = cluster_id.encode()
    return b"H" + _HEAD.pack(_MAGIC, taken_ms, len(name)) + name


def write_log(cut: RingCut) -> Iterator[bytes]:
    """The payloads of one log. Each is made when it is asked for."""
    place = cut.partition_id
    numbers = (cut.start, cut.end, cut.count, len(cut.aborted))
    yield b"L" + _LOG.pack(place.topic_id.bytes, place.partition, *numbers) + cut.epochs.write()
    yield b"P" + cut.producers.write(_PRODUCERS_FORM)
    if cut.aborted:
        yield b"A" + b"".join(_ABORTED.pack(*entry) for entry in cut.aborted)
    yield from _batch_blocks(cut)


def write_end(cuts: Iterable[RingCut]) -> bytes:
    counts = [cut.count for cut in cuts]
    return b"E" + _END.pack(len(counts), sum(counts))


def framed(payload: bytes) -> bytes:
    """A payload as it stands in the file."""
    return _BLOCK.pack(len(payload), crc32c(payload)) + payload


def _batch_blocks(cut: RingCut) -> Iterator[bytes]:
    parts: list[bytes | memoryview] = [b"B"]
    size = 0
    for view, stamp in cut.rows():
        parts += (_BATCH.pack(stamp, len(view)), view)
        size += len(view)
        if size >= BLOCK_BYTES or len(parts) > 2 * BLOCK_BATCHES:
            yield b"".join(parts)
            parts, size = [b"B"], 0
    if len(parts) > 1:
        yield b"".join(parts)


# ---- reading


def read_snapshot(file: BinaryIO, size: int) -> Snapshot:
    """The whole file of `size` bytes; BadSnapshot if a byte of it is wrong or missing."""
    return _Reader(file, size).read()


class _Reader:
    """Reads the blocks of one file in their order."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size
        self._at = 0
        self._pending: tuple[bytes, memoryview] | None = None

    def read(self) -> Snapshot:
        try:
            return self._read()
        except (struct.error, UnicodeDecodeError, BatchError, ValueError) as error:
            if isinstance(error, BadSnapshot):
                raise
            raise BadSnapshot(f"the block before byte {self._at} makes no sense: {error}") from error

    def _read(self) -> Snapshot:
        head = self._take(b"H")
        magic, taken_ms, length = _HEAD.unpack_from(head)
        name = bytes(head[_HEAD.size :])
        if magic != _MAGIC or len(name) != length:
            raise BadSnapshot("it does not begin as a snapshot does")
        logs: dict[PartitionId, RingCut] = {}
        while self._next_kind() == b"L":
            cut = self._read_log()
            if cut.partition_id in logs:
                raise BadSnapshot(f"{cut.partition_id} is in it twice")
            logs[cut.partition_id] = cut
        if _END.unpack(self._take(b"E")) != (len(logs), sum(cut.count for cut in logs.values())):
            raise BadSnapshot("its end counts other logs or batches than are in it")
        if self._left:
            raise BadSnapshot(f"{self._left} bytes follow its end")
        return Snapshot(cluster_id=name.decode(), taken_ms=taken_ms, logs=list(logs.values()))

    def _read_log(self) -> RingCut:
        data = self._take(b"L")
        topic, partition, start, end, batches, aborted = _LOG.unpack_from(data)
        place = PartitionId(uuid.UUID(bytes=topic), partition)
        if not 0 <= start <= end or partition < 0:
            raise BadSnapshot(f"{place} goes from {start} to {end}")
        epochs = LeaderEpochs.read(data[_LOG.size :])
        producers = ProducerStates.read(self._take(b"P"), _PRODUCERS_FORM)
        entries = _read_aborted(self._take(b"A"), aborted, end=end) if aborted else []
        views: list[memoryview] = []
        stamps: list[int] = []
        next_offset = 0
        while len(views) < batches:
            next_offset = _read_batches(self._take(b"B"), views, stamps, next_offset=next_offset)
        if len(views) != batches or next_offset > end:
            raise BadSnapshot(
                f"{place} has {len(views)} batches up to {next_offset}, of {batches} up to {end}"
            )
        return RingCut(
            partition_id=place,
            start=Offset(start),
            end=Offset(end),
            epochs=epochs,
            producers=producers,
            aborted=entries,
            columns=RingColumns(views, stamps, 0, len(views)),
        )

    # ---- blocks

    def _next_kind(self) -> bytes:
        if self._pending is None:
            self._pending = self._read_block()
        return self._pending[0]

    def _take(self, kind: bytes) -> memoryview:
        found = self._next_kind()
        assert self._pending is not None
        if found != kind:
            raise BadSnapshot(
                f"a block of kind {found!r} stands where {kind!r} belongs, before byte {self._at}"
            )
        _, data = self._pending
        self._pending = None
        return data

    def _read_block(self) -> tuple[bytes, memoryview]:
        if self._left < _BLOCK.size:
            raise BadSnapshot(f"it ends at byte {self._at}, before its end was written")
        length, crc = _BLOCK.unpack(self._file.read(_BLOCK.size))
        self._left -= _BLOCK.size
        if not 0 < length <= self._left:  # before anything is allocated for it
            raise BadSnapshot(
                f"the block at byte {self._at} would take {length} bytes, and {self._left} follow"
            )
        payload = self._file.read(length)
        if len(payload) != length or crc32c(payload) != crc:
            raise BadSnapshot(f"the block at byte {self._at} does not have its checksum")
        self._left -= length
        self._at += _BLOCK.size + length
        return payload[:1], memoryview(payload)[1:]


def _read_aborted(data: memoryview, count: int, *, end: int) -> list[AbortedEntry]:
    entries = [AbortedEntry(*each) for each in _ABORTED.iter_unpack(data)]
    markers = [entry.marker_offset for entry in entries]
    if len(entries) != count or markers != sorted(set(markers)) or markers[-1] >= end:
        raise BadSnapshot("its aborted transactions are out of order")
    return entries


def _read_batches(data: memoryview, views: list[memoryview], stamps: list[int], *, next_offset: int) -> int:
    """Add the batches of one block; the offset behind the last."""
    at = 0
    while at < len(data):
        stamp, length = _BATCH.unpack_from(data, at)
        at += _BATCH.size
        batch = read_batch(data[at : at + length])
        if batch.size != length or batch.base_offset < next_offset:
            raise BadSnapshot(f"a batch of {length} bytes is out of place at offset {batch.base_offset}")
        next_offset = batch.next_offset
        # A copy of its own: the ring must not pin the block when the batch is all that is left of it.
        views.append(memoryview(bytearray(data[at : at + length])))
        stamps.append(stamp)
        at += length
    return next_offset
