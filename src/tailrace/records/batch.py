"""A view over one record batch: header fields parsed once, bytes never copied.

`read_batch` trusts nothing but the layout: the whole batch lies inside the buffer and is of format 2.
`validate_batch` is what a producer's batch must satisfy before it gets an offset: one unpack, one CRC, no
decompression. Records are decoded only by `Batch.records`, which does not check the CRC again.

A batch's first 21 bytes lie outside its CRC, so offset and leader epoch are patched in place and the
producer's checksum stays true. The byte diagram stands in the package's docstring.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tailrace.model import Epoch, ErrorCode, Offset
from tailrace.records.compression import Compression, check_magic, decompress
from tailrace.records.crc import crc32c
from tailrace.records.error import BatchError
from tailrace.records.record import BytesLike, Record
from tailrace.records.twin import decode_records

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""Base offset and batch length: what precedes the bytes that batch_length counts."""
UNCHECKED_BYTES = 21
"""Everything before the attributes, where the CRC's range begins."""
MAGIC = 2
BATCH_BYTES_MAX = (1 << 31) - 1
"""The most that any batch may take, header included, whatever a topic allows."""
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""What a reader of records accepts out of one compressed batch unless it says otherwise."""

# Bits of the attributes field; plain ints, because they are tested on every produce request.
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
ENCRYPTED_BIT = -0x8000
"""Bit 15, the sign: the batch is stored encrypted. No reader ever gets one, and no client may send one."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_ASSIGNED = struct.Struct(">qii")
_CRC_AND_ATTRIBUTES = struct.Struct(">Ih")
_CRC_AT = 17
_MAGIC_AT = 16
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_BATCH_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES
_SEQUENCE_MASK = 0x7FFF_FFFF


class Batch:
    """One whole batch. Construct it with `read_batch` or `validate_batch`, which check the layout first.

    The fields are plain attributes and mirror the header; change them through `assign` and
    `stamp_append_time` only, which keep the bytes and the attributes the same.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "count",
        "crc",
        "data",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "size",
    )

    data: memoryview
    """Exactly the bytes of this batch, `size` of them."""
    size: int
    base_offset: Offset
    batch_length: int
    leader_epoch: Epoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    """Of the first record; the delete horizon in a batch that compaction has rewritten (KIP-534)."""
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    """Records inside; fewer than the offsets spanned once compaction took some out, even 0."""

    def __init__(self, data: memoryview) -> None:
        (
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = _HEADER.unpack_from(data)
        self.data = data
        self.size = LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta + 1  # type: ignore[return-value]  # a call less

    @property
    def compression(self) -> Compression:
        return codec_of(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may go, once compaction has fixed that (KIP-534)."""
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping from 2^31-1 to 0; -1 where there are no sequences."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK

    def assign(self, base_offset: Offset, leader_epoch: Epoch) -> None:
        """Give the batch its place in the log: patch bytes 0-7 and 12-15, which no CRC covers.

        In place where the buffer is writable. Over a read-only buffer `data` becomes a writable copy first,
        and the caller's buffer stays as it was.
        """
        if self.data.readonly:
            self.data = memoryview(bytearray(self.data))
        # One call writes the length between the two as well, as it already is: cheaper than two calls.
        _ASSIGNED.pack_into(self.data, 0, base_offset, self.batch_length, leader_epoch)
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch

    def stamp_append_time(self, timestamp_ms: int) -> None:
        """Make the broker's time every record's timestamp. Costs a new CRC over the whole batch.

        Like `assign`, works on a copy where the buffer is read-only.
        """
        if self.data.readonly:
            self.data = memoryview(bytearray(self.data))
        attributes = self.attributes | LOG_APPEND_TIME_BIT
        _CRC_AND_ATTRIBUTES.pack_into(self.data, _CRC_AT, 0, attributes)
        _MAX_TIMESTAMP.pack_into(self.data, _MAX_TIMESTAMP_AT, timestamp_ms)
        self.crc = crc32c(self.data[UNCHECKED_BYTES:])
        _CRC_AND_ATTRIBUTES.pack_into(self.data, _CRC_AT, self.crc, attributes)
        self.attributes = attributes
        self.max_timestamp = timestamp_ms

    def check_crc(self) -> bool:
        """Whether the bytes from the attributes on are the ones that were written."""
        return crc32c(self.data[UNCHECKED_BYTES:]) == self.crc

    def records(self, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """The records, decoded one at a time; BatchError where the bytes stop making sense.

        A compressed batch is decompressed whole first, into at most `bytes_max` bytes.
        """
        payload: BytesLike = self.data[HEADER_BYTES:]
        codec = self.attributes & COMPRESSION_MASK
        if codec and payload:
            payload = decompress(codec_of(codec), payload, bytes_max=bytes_max)
        return decode_records(
            payload,
            base_offset=self.base_offset,
            base_timestamp=self.base_timestamp,
            append_time=self.max_timestamp if self.attributes & LOG_APPEND_TIME_BIT else None,
            count=self.count,
            last_delta=self.last_offset_delta,
        )

    def __repr__(self) -> str:
        words = [f"offsets {self.base_offset}-{self.last_offset}", f"{self.count} records"]
        words += [f"{self.size} bytes", f"epoch {self.leader_epoch}"]
        codec = self.attributes & COMPRESSION_MASK
        if codec:
            words.append(Compression(codec).name.lower() if codec in _CODECS else f"codec {codec}")
        if self.producer_id >= 0:
            words.append(f"producer {self.producer_id}/{self.producer_epoch} from {self.base_sequence}")
        words += [name for bit, name in _FLAG_NAMES if self.attributes & bit]
        return f"<Batch {', '.join(words)}>"


_CODECS = frozenset(Compression)
_FLAG_NAMES = (
    (LOG_APPEND_TIME_BIT, "append time"),
    (TRANSACTIONAL_BIT, "transactional"),
    (CONTROL_BIT, "control"),
    (DELETE_HORIZON_BIT, "delete horizon"),
)


def codec_of(attributes: int) -> Compression:
    """The codec that the attributes name; 5 to 7 are nobody's."""
    codec = attributes & COMPRESSION_MASK
    if codec not in _CODECS:
        raise BatchError(f"compression codec {codec} is unknown", code=ErrorCode.INVALID_RECORD)
    return Compression(codec)


def read_batch(buffer: BytesLike, position: int = 0) -> Batch:
    """The batch that starts at `position`; bytes after it may be anything. The CRC is not checked."""
    view = memoryview(buffer)
    if position:
        view = view[position:]
    if len(view) < HEADER_BYTES:
        raise _refuse_stub(view)
    batch = Batch(view)
    size = batch.size
    if batch.magic != MAGIC:
        raise _refuse_magic(batch.magic)
    if size < HEADER_BYTES:
        raise BatchError(
            f"batch length {batch.batch_length} is less than the {_BATCH_LENGTH_MIN} of a header"
        )
    if size != len(view):
        if size > len(view):
            raise BatchError(f"batch of {size} bytes is cut off after {len(view)}")
        batch.data = view[:size]
    return batch


def max_timestamp_at(buffer: BytesLike, position: int = 0) -> int:
    """The greatest timestamp of the batch that begins at `position`, in milliseconds; -1 if it has none."""
    found: int = _MAX_TIMESTAMP.unpack_from(buffer, position + _MAX_TIMESTAMP_AT)[0]
    return found


def iter_batches(buffer: BytesLike) -> Iterator[Batch]:
    """The batches that lie one after the other; BatchError at one that is malformed or cut off."""
    view = memoryview(buffer)
    position = 0
    while position < len(view):
        batch = read_batch(view, position)
        yield batch
        position += batch.size


def validate_batch(
    data: BytesLike, *, bytes_max: int, allow_control: bool = False, allow_transactional: bool = True
) -> Batch:
    """Everything that a producer's batch must satisfy: `data` is exactly one sound batch.

    Not looked at: offsets and epoch, which are the broker's to assign, and what needs the records decoded. Of
    compressed records only the first bytes are checked (ADR 0016).
    """
    view = memoryview(data)
    size = len(view)
    if size < HEADER_BYTES:
        raise _refuse_stub(view)
    batch = Batch(view)
    if batch.magic != MAGIC:
        raise _refuse_magic(batch.magic)
    if batch.size != size:
        raise _refuse_size(batch)
    if size > bytes_max:
        raise BatchError(
            f"batch of {size} bytes is over the limit of {bytes_max}", code=ErrorCode.MESSAGE_TOO_LARGE
        )
    found = crc32c(view[UNCHECKED_BYTES:])
    if found != batch.crc:
        raise BatchError(f"CRC of the batch is {found:#010x}, its header says {batch.crc:#010x}")
    if batch.count <= 0 or batch.last_offset_delta + 1 != batch.count:
        raise BatchError(
            f"batch of {batch.count} records has last offset delta {batch.last_offset_delta}",
            code=ErrorCode.INVALID_RECORD,
        )
    # A plain batch of a producer without idempotence, which is most of them, is done here.
    if batch.attributes & ~LOG_APPEND_TIME_BIT or batch.producer_id != -1:
        _check_flags(batch, allow_control=allow_control, allow_transactional=allow_transactional)
        _check_producer(batch)
    return batch


def _check_flags(batch: Batch, *, allow_control: bool, allow_transactional: bool) -> None:
    attributes = batch.attributes
    if codec := codec_of(attributes):
        check_magic(codec, batch.data[HEADER_BYTES:])
    if attributes & CONTROL_BIT and not allow_control:
        raise BatchError("control batches are the broker's own to write", code=ErrorCode.INVALID_RECORD)
    if attributes & ENCRYPTED_BIT:
        raise BatchError("bit 15 of the attributes is the broker's own", code=ErrorCode.INVALID_RECORD)
    if attributes & DELETE_HORIZON_BIT:
        raise BatchError("the delete horizon is compaction's own to set", code=ErrorCode.INVALID_RECORD)
    if attributes & TRANSACTIONAL_BIT:
        if not allow_transactional:
            raise BatchError("a transactional batch is not allowed here", code=ErrorCode.INVALID_RECORD)
        if batch.producer_id < 0:
            raise BatchError("a transactional batch needs a producer id", code=ErrorCode.INVALID_RECORD)


def _check_producer(batch: Batch) -> None:
    """Idempotence (KIP-98): an id comes with epoch and sequence. Markers have no sequence."""
    if batch.producer_id == -1:
        return
    has_sequence = batch.base_sequence >= 0 or batch.attributes & CONTROL_BIT
    if batch.producer_id < 0 or batch.producer_epoch < 0 or not has_sequence:
        raise BatchError(
            f"producer id {batch.producer_id} comes with epoch {batch.producer_epoch}"
            f" and sequence {batch.base_sequence}",
            code=ErrorCode.INVALID_RECORD,
        )


def _refuse_stub(view: memoryview) -> BatchError:
    if len(view) > _MAGIC_AT and view[_MAGIC_AT] < MAGIC:
        return _refuse_magic(view[_MAGIC_AT])
    return BatchError(f"{len(view)} bytes are too few for a batch header of {HEADER_BYTES}")


def _refuse_magic(magic: int) -> BatchError:
    if 0 <= magic < MAGIC:
        return BatchError(
            f"message format {magic} is not supported: use a client of Kafka 0.11 or later",
            code=ErrorCode.INVALID_RECORD,
        )
    return BatchError(f"magic byte is {magic}, not {MAGIC}")


def _refuse_size(batch: Batch) -> BatchError:
    if batch.size < HEADER_BYTES or batch.size > len(batch.data):
        return BatchError(f"batch length {batch.batch_length} does not fit {len(batch.data)} bytes of batch")
    return BatchError(
        f"{len(batch.data) - batch.size} bytes follow the batch: a request carries one batch per partition",
        code=ErrorCode.INVALID_RECORD,
    )
