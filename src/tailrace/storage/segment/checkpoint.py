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
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from tailrace.model import Offset, PartitionId
from tailrace.records import crc32c

_MAGIC = b"TRCHECK1"
_START = struct.Struct("<8sI")
_CRC = struct.Struct("<I")
_HEAD = struct.Struct("<QQII")
_ROW = struct.Struct("<Q16sIqqqIIIIIqq")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything at or below `lsn` is in the files."""

    lsn: int
    next_life: int
    journal_files: tuple[int, ...]
    rows: tuple[Row, ...]


def write_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The whole file."""
    files = checkpoint.journal_files
    payload = b"".join(
        (
            _HEAD.pack(checkpoint.lsn, checkpoint.next_life, len(files), len(checkpoint.rows)),
            struct.pack(f"<{len(files)}I", *files),
            *(_write_row(row) for row in checkpoint.rows),
        )
    )
    start = _START.pack(_MAGIC, len(payload))
    return start + _CRC.pack(crc32c(payload, crc32c(start))) + payload


def read_checkpoint(data: memoryview) -> Checkpoint | None:
    """None if a byte is wrong, missing or too many."""
    body = _START.size + _CRC.size
    if len(data) < body + _HEAD.size:
        return None
    magic, length = _START.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _START.size)
    payload = data[body:]
    if magic != _MAGIC or length != len(payload) or crc != crc32c(payload, crc32c(data[: _START.size])):
        return None
    lsn, next_life, file_count, row_count = _HEAD.unpack_from(payload)
    rows_at = _HEAD.size + 4 * file_count
    if rows_at + row_count * _ROW.size != length:
        return None
    files = struct.unpack_from(f"<{file_count}I", payload, _HEAD.size)
    rows = tuple(_read_row(fields) for fields in _ROW.iter_unpack(payload[rows_at:]))
    return Checkpoint(lsn=lsn, next_life=next_life, journal_files=files, rows=rows)


def _write_row(row: Row) -> bytes:
    return _ROW.pack(
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


def _read_row(fields: tuple[int, bytes, int, int, int, int, int, int, int, int, int, int, int]) -> Row:
    life, topic_id, partition, start, end, segment, length, *index, snapshot, damaged = fields
    entries, index_crc, time_crc, open_crc = index
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
    )
