"""Rows to record batches, ready to be produced: the way back of decoding.py.

Rows keep their order. They are cut into batches by what their records take at most, so that no batch is
larger than the limit whatever its deltas turn out to be. What a codec would only make larger is sent as it
is, so the limit holds for compressed batches too.
"""

from __future__ import annotations

import struct
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tailrace.model import NO_PRODUCER, ErrorCode
from tailrace.records import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    UNCHECKED_BYTES,
    BatchError,
    Compression,
    compress,
    crc32c,
)
from tailrace.spark.codec.columns import INT32_MAX, Binary, Ints, Rows
from tailrace.spark.codec.rows import read_rows
from tailrace.spark.codec.twin import write_payloads

_BEFORE_CRC = struct.Struct(">qiib")
_CRC = struct.Struct(">I")
_CRC_AT = 17
_FROM_ATTRIBUTES = struct.Struct(">hiqqqhii")
_SEQUENCE_MASK = 0x7FFF_FFFF


def encode(
    batch: pa.RecordBatch,
    *,
    batch_bytes_max: int,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    now_ms: int | None = None,
) -> list[bytearray]:
    """The rows of `batch` as record batches of at most `batch_bytes_max` bytes; none for no rows.

    Columns: value and, where there are any, key, headers and timestamp; others are not looked at. A row
    without a timestamp gets `now_ms`, by default the time now. Offsets and sequences go on over all batches.
    """
    rows = read_rows(batch, now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms)
    if not len(rows.timestamps):
        return []
    bounds = plan_batches(rows, batch_bytes_max=batch_bytes_max)
    greatest: list[int] = np.maximum.reduceat(rows.timestamps, bounds[:-1]).tolist()
    written = write_payloads(rows, bounds, reserve=HEADER_BYTES)
    out = []
    for payload, (first, last), max_timestamp in zip(written, pairwise(bounds), greatest, strict=True):
        packed, codec = _smaller(payload, compression, level)
        if len(packed) > batch_bytes_max:
            raise BatchError(
                f"row {first} alone takes {len(packed)} bytes, the limit of a batch is {batch_bytes_max}",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )
        length = len(packed) - LOG_OVERHEAD_BYTES
        _BEFORE_CRC.pack_into(packed, 0, base_offset + first, length, leader_epoch, MAGIC)
        _FROM_ATTRIBUTES.pack_into(
            packed,
            UNCHECKED_BYTES,
            codec | (TRANSACTIONAL_BIT if transactional else 0),
            last - first - 1,
            int(rows.timestamps[first]),
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence if base_sequence < 0 else (base_sequence + first) & _SEQUENCE_MASK,
            last - first,
        )
        _CRC.pack_into(packed, _CRC_AT, crc32c(memoryview(packed)[UNCHECKED_BYTES:]))
        out.append(packed)
    return out


def plan_batches(rows: Rows, *, batch_bytes_max: int) -> list[int]:
    """Between which rows to cut: 0, the first row of every further batch, and the number of rows."""
    sizes = _sizes_at_most(rows)
    if int(sizes.max()) > INT32_MAX:
        row = int(sizes.argmax())
        raise BatchError(f"row {row} of {sizes[row]} bytes is too large", code=ErrorCode.MESSAGE_TOO_LARGE)
    ends = np.cumsum(sizes)
    room = min(batch_bytes_max, INT32_MAX) - HEADER_BYTES
    bounds = [0]
    while bounds[-1] < len(sizes):
        first = bounds[-1]
        before = int(ends[first - 1]) if first else 0
        bounds.append(max(first + 1, int(np.searchsorted(ends, before + room, side="right"))))
    return bounds


def _sizes_at_most(rows: Rows) -> Ints:
    """What the record of every row takes, with deltas as large as any in these rows can be."""
    times = rows.timestamps
    spread = int(times.max()) - int(times.min())
    deltas = _varint_bytes(spread) + _varint_bytes(len(times))
    sizes = _bytes_of(rows.key) + _bytes_of(rows.value) + (1 + deltas)
    if rows.header_offsets is None or rows.header_key is None or rows.header_value is None:
        sizes += 1
    else:
        ends = np.zeros(int(rows.header_offsets[-1]) + 1, dtype=np.int64)
        np.cumsum(_bytes_of(rows.header_key) + _bytes_of(rows.header_value), out=ends[1:])
        sizes += np.diff(ends[rows.header_offsets]) + _length_bytes(np.diff(rows.header_offsets))
    return sizes + _varint_bytes(int(sizes.max()))


def _bytes_of(column: Binary) -> Ints:
    """What every element takes with its length; null is a length alone."""
    lengths = np.diff(column.offsets)
    if column.is_null is not None:
        lengths[column.is_null] = 0
    return lengths + _length_bytes(lengths)


def _length_bytes(lengths: Ints) -> Ints:
    """What lengths take as varints: a byte per seven bits, one bit of them for the sign."""
    sizes = np.ones_like(lengths)
    for bits in (6, 13, 20, 27):
        sizes += lengths >= 1 << bits
    return sizes


def _varint_bytes(number: int) -> int:
    return -(-((abs(number) << 1) | 1).bit_length() // 7)


def _smaller(payload: bytearray, compression: Compression, level: int | None) -> tuple[bytearray, int]:
    """The batch with its records compressed, unless that makes it no smaller; and the codec it now has."""
    if compression == Compression.NONE:
        return payload, 0
    packed = bytearray(HEADER_BYTES)
    packed += compress(compression, memoryview(payload)[HEADER_BYTES:], level)
    return (packed, int(compression)) if len(packed) < len(payload) else (payload, 0)
