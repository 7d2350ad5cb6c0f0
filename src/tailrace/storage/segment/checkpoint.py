"""CHECKPOINT: what the segment files hold for sure, as of one LSN.

Replaced as a whole: written beside, synced, renamed, the directory synced. One CRC covers all of it.

    0  8s   "TRCHECK1"
    8  u32  length of the rest from 16     12  u32  CRC32C of bytes 0-11 and 16 on
   16  u64  LSN applied last               24  u64  next life
   32  u32  journal files                  36  u32  partitions
   40       numbers of the journal files, u32 each
            a row per partition:
              u64 life, 16s topic id, u32 partition
              i64 start, i64 end, i64 last segment, u32 its length
              u32 entries in its index, u32 CRC of those in .index, u32 of those in .timeindex,
              u32 checksum of the bytes behind the last entry
              i64 snapshot that holds the derived state at `end` (-1: none)
              i64 first damaged offset (-1: none)

A directory with data keys (KEYS) has format 2, "TRCHECK2", where each row has another u32: 1 if the segment
is stored encrypted. So a build that knows nothing of encryption refuses it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from tailrace.model import Offset, PartitionId
from tailrace.records import crc32c

_MAGICS = {1: b"TRCHECK1", 2: b"TRCHECK2"}
_FORMATS = {magic: number for number, magic in _MAGICS.items()}
_START = struct.Struct("<8sI")
_CRC = struct.Struct("<I")
_HEAD = struct.Struct("<QQII")
_ROW = struct.Struct("<Q16sIqqqIIIIIqq")
_FLAGGED_ROW = struct.Struct(_ROW.format + "I")
_ENCRYPTED = 1
NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One partition as the checkpoint found it."""

    life: int
    partition_id: PartitionId
    start: Offset
    end: Offset
    segment: int
    length: int
    index_entries: int = 0
    index_crc: int = 0
    time_crc: int = 0
    open_crc: int = 0
    snapshot: int = NONE
    damaged: int = NONE
    encrypted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything at or below `lsn` is in the files."""

    lsn: int
    next_life: int
    journal_files: tuple[int, ...]
    rows: tuple[Row, ...]
    format: int = 1


def write_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The whole file."""
    files = checkpoint.journal_files
    payload = b"".join(
        (
            _HEAD.pack(checkpoint.lsn, checkpoint.next_life, len(files), len(checkpoint.rows)),
            struct.pack(f"<{len(files)}I", *files),
            *(_write_row(row, checkpoint.format) for row in checkpoint.rows),
        )
    )
    start = _START.pack(_MAGICS[checkpoint.format], len(payload))
    return start + _CRC.pack(crc32c(payload, crc32c(start))) + payload


def read_checkpoint(data: memoryview) -> Checkpoint | None:
    """None if a byte is wrong, missing or too many."""
    body = _START.size + _CRC.size
    if len(data) < body + _HEAD.size:
        return None
    magic, length = _START.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _START.size)
    payload = data[body:]
    number = _FORMATS.get(magic)
    if number is None or length != len(payload) or crc != crc32c(payload, crc32c(data[: _START.size])):
        return None
    lsn, next_life, file_count, row_count = _HEAD.unpack_from(payload)
    rows_at = _HEAD.size + 4 * file_count
    row_struct = _ROW if number == 1 else _FLAGGED_ROW
    if rows_at + row_count * row_struct.size != length:
        return None
    files = struct.unpack_from(f"<{file_count}I", payload, _HEAD.size)
    rows = tuple(_read_row(*fields) for fields in row_struct.iter_unpack(payload[rows_at:]))
    return Checkpoint(lsn=lsn, next_life=next_life, journal_files=files, rows=rows, format=number)


def _write_row(row: Row, number: int) -> bytes:
    fields = (
        row.life,
        row.partition_id.topic_id.bytes,
        row.partition_id.partition,
        row.start,
        row.end,
        row.segment,
        row.length,
        row.index_entries,
        row.index_crc,
        row.time_crc,
        row.open_crc,
        row.snapshot,
        row.damaged,
    )
    return _ROW.pack(*fields) if number == 1 else _FLAGGED_ROW.pack(*fields, _ENCRYPTED * row.encrypted)


def _read_row(
    life: int,
    topic_id: bytes,
    partition: int,
    start: int,
    end: int,
    segment: int,
    length: int,
    entries: int,
    index_crc: int,
    time_crc: int,
    open_crc: int,
    snapshot: int,
    damaged: int,
    flags: int = 0,
) -> Row:
    return Row(
        life=life,
        partition_id=PartitionId(UUID(bytes=topic_id), partition),
        start=Offset(start),
        end=Offset(end),
        segment=segment,
        length=length,
        index_entries=entries,
        index_crc=index_crc,
        time_crc=time_crc,
        open_crc=open_crc,
        snapshot=snapshot,
        damaged=damaged,
        encrypted=flags & _ENCRYPTED != 0,
    )
