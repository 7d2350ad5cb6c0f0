"""Builds batches: from new records, or from those that compaction kept.

New records get the offsets base_offset, base_offset + 1, and so on. Kept records keep theirs: the rebuilt
batch spans the same offsets with fewer records, so that neither offsets nor producer sequences ever move.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TypedDict, Unpack

from tailrace.model import NO_PRODUCER, ErrorCode
from tailrace.records.batch import (
    BATCH_BYTES_MAX,
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    UNCHECKED_BYTES,
    Batch,
    codec_of,
)
from tailrace.records.compression import Compression, compress
from tailrace.records.crc import crc32c
from tailrace.records.error import BatchError
from tailrace.records.record import BytesLike, NewRecord, Record
from tailrace.records.twin import encode_kept, encode_records

_BEFORE_CRC = struct.Struct(">qiib")
_CRC = struct.Struct(">I")
_CRC_AT = 17
_FROM_ATTRIBUTES = struct.Struct(">hiqqqhii")

# Length, attributes, both deltas, the lengths of key and value and the number of headers at their longest.
_RECORD_OVERHEAD_BYTES_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER_OVERHEAD_BYTES_MAX = 5 + 5


class BatchFields(TypedDict, total=False):
    """What a batch carries beside its records; see `build_batch` for the defaults."""

    base_offset: int
    leader_epoch: int
    compression: Compression
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    log_append_time_ms: int | None
    level: int | None


def build_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    level: int | None = None,
) -> bytearray:
    """One batch of (timestamp, key, value, headers) records, ready to be sent or appended.

    With `log_append_time_ms` readers see that as every record's timestamp. `level` is the codec's own.
    """
    out, count, base_timestamp, max_timestamp = encode_records(records, reserve=HEADER_BYTES)
    if count == 0:
        raise BatchError("a batch needs at least one record", code=ErrorCode.INVALID_RECORD)
    attributes = (
        int(compression) | (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    )
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    if compression:
        out = _compress_payload(out, compression, level)
    _BEFORE_CRC.pack_into(out, 0, base_offset, _checked_length(out), leader_epoch, MAGIC)
    _FROM_ATTRIBUTES.pack_into(
        out,
        UNCHECKED_BYTES,
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    _CRC.pack_into(out, _CRC_AT, crc32c(memoryview(out)[UNCHECKED_BYTES:]))
    return out


def rebuild_batch(
    batch: Batch, records: Sequence[Record], *, delete_horizon_ms: int | None, level: int | None = None
) -> bytearray:
    """`batch` with only `records` left in it, perhaps none; everything else about it stays.

    Offsets spanned, leader epoch, producer id, epoch and sequence, codec, kind of timestamp and flags are
    those of `batch`. A delete horizon (KIP-534) takes the place of the base timestamp; None keeps the one
    that the batch may have.
    """
    attributes = batch.attributes
    base_timestamp = batch.base_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    out, greatest = encode_kept(
        records, base_offset=batch.base_offset, base_timestamp=base_timestamp, reserve=HEADER_BYTES
    )
    _check_kept(batch, records)
    # The header of an emptied batch stays for the producer's sequence; there is nothing left to compress.
    if not records:
        attributes &= ~COMPRESSION_MASK
    elif attributes & COMPRESSION_MASK:
        out = _compress_payload(out, codec_of(attributes), level)
    keeps_max = batch.is_log_append_time or not records
    _BEFORE_CRC.pack_into(out, 0, batch.base_offset, _checked_length(out), batch.leader_epoch, MAGIC)
    _FROM_ATTRIBUTES.pack_into(
        out,
        UNCHECKED_BYTES,
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        batch.max_timestamp if keeps_max else greatest,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(records),
    )
    _CRC.pack_into(out, _CRC_AT, crc32c(memoryview(out)[UNCHECKED_BYTES:]))
    return out


class BatchBuilder:
    """Collects records until somebody finds the batch large enough.

    `size` never says less than the uncompressed batch will take, so a limit held here is held.
    """

    __slots__ = ("_records", "size")

    def __init__(self) -> None:
        self._records: list[NewRecord] = []
        self.size = HEADER_BYTES

    @property
    def count(self) -> int:
        return len(self._records)

    def append(
        self,
        timestamp: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[tuple[str, BytesLike | None]] = (),
    ) -> int:
        """Add one record; the size of the batch so far, rounded up."""
        self._records.append((timestamp, key, value, headers))
        self.size += _RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
        for header_key, header_value in headers:
            # A character takes at most four bytes in UTF-8.
            self.size += _HEADER_OVERHEAD_BYTES_MAX + 4 * len(header_key) + len(header_value or b"")
        return self.size

    def build(self, **fields: Unpack[BatchFields]) -> bytearray:
        """The batch of everything appended so far. The builder keeps its records."""
        return build_batch(self._records, **fields)


def _compress_payload(out: bytearray, codec: Compression, level: int | None) -> bytearray:
    packed = bytearray(HEADER_BYTES)
    packed += compress(codec, memoryview(out)[HEADER_BYTES:], level)
    return packed


def _checked_length(out: bytearray) -> int:
    if len(out) > BATCH_BYTES_MAX:
        raise BatchError(
            f"batch of {len(out)} bytes is over the format's limit of {BATCH_BYTES_MAX}",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )
    return len(out) - LOG_OVERHEAD_BYTES


def _check_kept(batch: Batch, records: Sequence[Record]) -> None:
    previous = batch.base_offset - 1
    for record in records:
        if not previous < record.offset <= batch.last_offset:
            raise BatchError(
                f"kept offset {record.offset} after {previous} is not one of {batch.base_offset}"
                f" to {batch.last_offset}",
                code=ErrorCode.INVALID_RECORD,
            )
        previous = record.offset
