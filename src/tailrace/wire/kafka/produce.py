"""Produce (API 0), versions 3-12, by hand: record bytes are slices of the frame, never copies.

    request     transactional_id | acks:int16 | timeout_ms:int32 | [ name | [ index:int32 | records ] ]
    response    [ name | [ index:int32 | error_code:int16 | base_offset:int64 | log_append_time_ms:int64
                         | log_start_offset:int64 (5+) | record_errors (8+) | error_message (8+) ] ]
                | throttle_time_ms:int32

    record_errors   [ batch_index:int32 | batch_index_error_message ] (8+)

Version 9 is flexible: compact lengths, and a tag buffer behind every struct. Version 10 may tell of a new
leader in tags (KIP-951), which are not written and skipped; from version 11 errors may be
TRANSACTION_ABORTABLE, and version 12 adds the partitions to the transaction too (KIP-890). A request with
acks 0 has no response. `record_errors` names the records for which a batch was refused (KIP-467).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias

import msgspec

from tailrace.model import ProtocolError
from tailrace.wire.kafka.cursor import Cursor, cursor_errors, write_count, write_string
from tailrace.wire.kafka.tag import skip_tags
from tailrace.wire.kafka.varint import read_uvarint_tail, write_uvarint

FLEXIBLE_FROM = 9

# A slice of the frame is an object of some 200 bytes, and a Produce request may have 100 MiB: tiny partitions
# would be the cheapest way to fill our memory. No client sends one request to so many.
PARTITIONS_MAX = 100_000

Buffer: TypeAlias = bytes | bytearray | memoryview


class ProducePartition(msgspec.Struct, gc=False):
    """The records for one partition, as they lie in the frame."""

    index: int
    records: memoryview | None


class ProduceTopic(msgspec.Struct, gc=False):
    """The partitions of one topic in a request."""

    name: str
    partitions: list[ProducePartition]


class ProduceRequest(msgspec.Struct, gc=False):
    """A request to append records."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProduceResult(msgspec.Struct, gc=False):
    """What became of the records for one partition."""

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()  # number in the batch, what is wrong with it


class ProduceResponse(msgspec.Struct, gc=False):
    """An answer, as our client reads it."""

    topics: list[tuple[str, list[ProduceResult]]]
    throttle_time_ms: int


_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ACKS = struct.Struct(">hi")
_ACKS_AND_COUNT = struct.Struct(">hii")
_INDEX_AND_SIZE = struct.Struct(">ii")
_ACKS_AND_VARINT = struct.Struct(">hiB")  # a varint's first byte, which is mostly all of it
_INDEX_AND_VARINT = struct.Struct(">iB")
_RESULT_3 = struct.Struct(">ihqq")
_RESULT_5 = struct.Struct(">ihqqq")

_int16_at = _INT16.unpack_from
_int32_at = _INT32.unpack_from
_acks_and_count_at = _ACKS_AND_COUNT.unpack_from
_acks_and_varint_at = _ACKS_AND_VARINT.unpack_from
_index_and_size_at = _INDEX_AND_SIZE.unpack_from
_index_and_varint_at = _INDEX_AND_VARINT.unpack_from


def read_produce_request(body: memoryview, version: int) -> ProduceRequest:
    """The request in a frame, behind its header. ProtocolError for anything else, a longer one included."""
    try:
        return _read_flexible(body) if version >= FLEXIBLE_FROM else _read_classic(body)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"ProduceRequest version {version}: cut short") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"ProduceRequest version {version}: a string is not UTF-8") from error


def _read_classic(d: memoryview) -> ProduceRequest:
    n = len(d)
    (size,) = _int16_at(d)
    transactional_id, p = None, 2
    if size != -1:
        p = _checked_end(p, size, n)
        transactional_id = str(d[2:p], "utf-8")
    acks, timeout_ms, count = _acks_and_count_at(d, p)
    p += 10
    if count < 0 or count * 6 > n - p:
        _refuse_count()
    partitions_left = PARTITIONS_MAX
    topics = []
    for _ in range(count):
        (size,) = _int16_at(d, p)
        q = _checked_end(p + 2, size, n)
        name = str(d[p + 2 : q], "utf-8")
        (partition_count,) = _int32_at(d, q)
        p = q + 4
        if partition_count < 0 or partition_count * 8 > n - p:
            _refuse_count()
        partitions_left -= partition_count
        if partitions_left < 0:
            _refuse_count()
        partitions = []
        for _ in range(partition_count):
            index, size = _index_and_size_at(d, p)
            p += 8
            if size == -1:
                partitions.append(ProducePartition(index, None))
                continue
            q = _checked_end(p, size, n)
            partitions.append(ProducePartition(index, d[p:q]))
            p = q
        topics.append(ProduceTopic(name, partitions))
    if p != n:
        _refuse_rest()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_flexible(d: memoryview) -> ProduceRequest:
    n = len(d)
    size, p = d[0], 1
    if size > 127:
        size, p = read_uvarint_tail(d, p, size)
    transactional_id = None
    if size:
        q = _checked_end(p, size - 1, n)
        transactional_id = str(d[p:q], "utf-8")
        p = q
    acks, timeout_ms, count = _acks_and_varint_at(d, p)
    p += 7
    if count > 127:
        count, p = read_uvarint_tail(d, p, count)
    if not count or (count - 1) * 3 > n - p:
        _refuse_count()
    partitions_left = PARTITIONS_MAX
    topics = []
    for _ in range(count - 1):
        size = d[p]
        p += 1
        if size > 127:
            size, p = read_uvarint_tail(d, p, size)
        q = _checked_end(p, size - 1, n)
        name = str(d[p:q], "utf-8")
        partition_count, p = d[q], q + 1
        if partition_count > 127:
            partition_count, p = read_uvarint_tail(d, p, partition_count)
        if not partition_count or (partition_count - 1) * 6 > n - p:
            _refuse_count()
        partitions_left -= partition_count - 1
        if partitions_left < 0:
            _refuse_count()
        partitions = []
        for _ in range(partition_count - 1):
            index, size = _index_and_varint_at(d, p)
            p += 5
            if size > 127:
                size, p = read_uvarint_tail(d, p, size)
            records = None
            if size:
                q = _checked_end(p, size - 1, n)
                records = d[p:q]
                p = q
            p = skip_tags(d, p) if d[p] else p + 1
            partitions.append(ProducePartition(index, records))
        p = skip_tags(d, p) if d[p] else p + 1
        topics.append(ProduceTopic(name, partitions))
    if skip_tags(d, p) != n:
        _refuse_rest()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _checked_end(start: int, size: int, limit: int) -> int:
    """Where a value of this size ends, if it has a size and ends inside the message."""
    end = start + size
    if size < 0 or end > limit:
        raise ProtocolError("ProduceRequest: a length goes past the end")
    return end


def _refuse_count() -> NoReturn:
    raise ProtocolError("ProduceRequest: an array has more elements than the message can hold, or is null")


def _refuse_rest() -> NoReturn:
    raise ProtocolError("ProduceRequest: bytes are left over")


def write_produce_response(
    version: int, topics: Sequence[tuple[str, Sequence[ProduceResult]]], throttle_time_ms: int = 0
) -> bytes:
    """The body of a response."""
    if version >= FLEXIBLE_FROM:
        return _write_flexible(topics, throttle_time_ms)
    out = [_INT32.pack(len(topics))]
    for name, results in topics:
        encoded = name.encode()
        out += (_INT16.pack(len(encoded)), encoded, _INT32.pack(len(results)))
        for r in results:
            if version < 5:
                out.append(_RESULT_3.pack(r.index, r.error_code, r.base_offset, r.log_append_time_ms))
                continue
            out.append(
                _RESULT_5.pack(r.index, r.error_code, r.base_offset, r.log_append_time_ms, r.log_start_offset)
            )
            if version == 8:
                _write_classic_errors(out, r)
    out.append(_INT32.pack(throttle_time_ms))
    return b"".join(out)


def _write_classic_errors(out: list[bytes], r: ProduceResult) -> None:
    out.append(_INT32.pack(len(r.record_errors)))
    for number, message in r.record_errors:
        out += (_INT32.pack(number), write_string(message, flexible=False))
    out.append(write_string(r.error_message, flexible=False))


def _write_flexible(topics: Sequence[tuple[str, Sequence[ProduceResult]]], throttle_time_ms: int) -> bytes:
    out = [write_uvarint(len(topics) + 1)]
    for name, results in topics:
        encoded = name.encode()
        out += (write_uvarint(len(encoded) + 1), encoded, write_uvarint(len(results) + 1))
        for r in results:
            out.append(
                _RESULT_5.pack(r.index, r.error_code, r.base_offset, r.log_append_time_ms, r.log_start_offset)
            )
            if r.error_message is None and not r.record_errors:
                out.append(b"\x01\x00\x00")  # no bad records, no message, no tags
                continue
            out.append(write_uvarint(len(r.record_errors) + 1))
            for number, message in r.record_errors:
                out += (_INT32.pack(number), write_string(message, flexible=True), b"\0")
            out += (write_string(r.error_message, flexible=True), b"\0")
        out.append(b"\0")
    out.append(_INT32.pack(throttle_time_ms) + b"\0")
    return b"".join(out)


def write_produce_request(
    version: int,
    *,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Mapping[str, Mapping[int, Buffer]],
) -> list[Buffer]:
    """The body of a request in pieces: the records are the caller's own buffers."""
    flexible = version >= FLEXIBLE_FROM
    tags = b"\0" if flexible else b""
    pieces: list[Buffer] = []
    head = (
        write_string(transactional_id, flexible=flexible)
        + _ACKS.pack(acks, timeout_ms)
        + write_count(len(topics), flexible=flexible)
    )
    for name, partitions in topics.items():
        head += write_string(name, flexible=flexible) + write_count(len(partitions), flexible=flexible)
        for index, records in partitions.items():
            pieces += (head + _INT32.pack(index) + write_count(len(records), flexible=flexible), records)
            head = tags
        head += tags
    pieces.append(head + tags)
    return pieces


def read_produce_response(body: memoryview, version: int) -> ProduceResponse:
    """The answer in a frame, behind its header."""
    with cursor_errors("ProduceResponse", version):
        cursor = Cursor(body, flexible=version >= FLEXIBLE_FROM)
        topics = []
        for _ in range(cursor.count(size_min=3)):
            name = cursor.string()
            results = [_read_result(cursor, version) for _ in range(cursor.count(size_min=22))]
            cursor.tags()
            topics.append((name, results))
        (throttle_time_ms,) = cursor.unpack(_INT32)
        cursor.tags()
        cursor.end()
        return ProduceResponse(topics, throttle_time_ms)


def _read_result(cursor: Cursor, version: int) -> ProduceResult:
    result = ProduceResult(*cursor.unpack(_RESULT_5 if version >= 5 else _RESULT_3))
    if version >= 8:
        errors = []
        for _ in range(cursor.count(size_min=5)):
            (number,) = cursor.unpack(_INT32)
            errors.append((number, cursor.nullable_string()))
            cursor.tags()
        result.record_errors = errors or ()
        result.error_message = cursor.nullable_string()
    cursor.tags()
    return result
