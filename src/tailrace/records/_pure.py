"""Varints and records in plain Python: the twin that is always there.

`_compiled.pyx` holds the same functions with the same results; a change here is a change there. Both are
strict: every length is checked before it is used, and the bytes must be used up exactly.

    record  = length varint | attributes 1 | timestamp delta varlong | offset delta varint
              | key length varint, key | value length varint, value | header count varint | headers
    header  = key length varint, key (UTF-8) | value length varint, value

A length of -1 stands for None where None is allowed. Varints are zigzag, 7 bits a byte, lowest first: at most
5 bytes for 32 bits, 10 bytes for 64. A longer form than needed is accepted within that, as every client does.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

from tailrace.model import ErrorCode
from tailrace.records.crc import crc32c
from tailrace.records.error import BatchError
from tailrace.records.record import BytesLike, NewRecord, Record

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
RECORD_BYTES_MAX = (1 << 31) - 1
HEADERS_MAX = 65536
"""More than anybody writes. Each costs an object, and a bomb could hold a million in a few kilobytes."""

_UNCHECKED_BYTES = 21
_CRC_AT = 17  # the batch's own CRC, the last four of its unchecked bytes

_new_tuple = tuple.__new__
# Decoded values of all varints of one and two bytes.
_ZIGZAG = tuple(raw >> 1 ^ -(raw & 1) for raw in range(0x4000))


def read_varint(data: BytesLike, position: int) -> tuple[int, int]:
    """The 32-bit zigzag varint at `position`, and the position after it."""
    try:
        return _read_zigzag(data, position, 32)
    except IndexError:
        raise BatchError(f"a varint runs past the end at byte {len(data)}") from None


def read_varlong(data: BytesLike, position: int) -> tuple[int, int]:
    """The 64-bit zigzag varint at `position`, and the position after it."""
    try:
        return _read_zigzag(data, position, 64)
    except IndexError:
        raise BatchError(f"a varint runs past the end at byte {len(data)}") from None


def write_varint(out: bytearray, value: int) -> None:
    """Append `value`, 64 bits at most; the bytes of a 32-bit value are the same for both widths."""
    if not INT64_MIN <= value <= INT64_MAX:
        raise BatchError(f"{value} does not fit into 64 bits", code=ErrorCode.INVALID_RECORD)
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def decode_records(
    payload: BytesLike,
    *,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    count: int,
    last_delta: int,
) -> Iterator[Record]:
    """The `count` records of an uncompressed payload, one at a time; BatchError where they end being sound.

    Offset deltas must grow and stay within `last_delta`, so that no offset is ever given out twice or beyond
    the batch. With `append_time` every record carries it as its timestamp.
    """
    if count < 0:
        raise BatchError(f"a batch cannot hold {count} records")
    if last_delta < 0 or base_offset > INT64_MAX - last_delta:
        raise BatchError(f"offsets {base_offset} + {last_delta} are out of range")
    return _decode(bytes(payload), base_offset, base_timestamp, append_time, count, last_delta)


def encode_records(records: Iterable[NewRecord], *, reserve: int) -> tuple[bytearray, int, int, int]:
    """(`reserve` zero bytes and the records, count, timestamp of the first, greatest timestamp).

    Offset deltas count from 0 and timestamp deltas from the first record's. No record at all gives -1 twice.
    """
    out = bytearray(reserve)
    count = 0
    base = greatest = -1
    for timestamp, key, value, headers in records:
        if count == 0:
            base = greatest = timestamp
        elif timestamp > greatest:
            greatest = timestamp
        _encode(out, timestamp, timestamp - base, count, key, value, headers)
        count += 1
    return out, count, base, greatest


def encode_kept(
    records: Sequence[Record], *, base_offset: int, base_timestamp: int, reserve: int
) -> tuple[bytearray, int]:
    """Like encode_records for records that keep their offsets: (bytes, greatest timestamp or -1)."""
    out = bytearray(reserve)
    greatest = -1
    for index, (offset, timestamp, key, value, headers) in enumerate(records):
        if index == 0 or timestamp > greatest:
            greatest = timestamp
        _encode(out, timestamp, timestamp - base_timestamp, offset - base_offset, key, value, headers)
    return out, greatest


def _read_zigzag(data: BytesLike, position: int, bits: int) -> tuple[int, int]:
    """Raises IndexError at the end of the data, which the callers turn into a BatchError."""
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise BatchError(f"a {bits}-bit varint before byte {position} has too many bytes")
    if raw >> bits:
        raise BatchError(f"a varint before byte {position} does not fit into {bits} bits")
    return raw >> 1 ^ -(raw & 1), position


def _decode(
    data: bytes, base_offset: int, base_timestamp: int, append_time: int | None, count: int, last_delta: int
) -> Iterator[Record]:
    """The hot loop, long because calls are what costs: varints of one and two bytes are read inline."""
    position = start = index = 0
    previous = -1
    size = len(data)
    zigzag = _ZIGZAG
    try:
        for index in range(count):
            start = position
            if (byte := data[position]) < 0x80:
                length = zigzag[byte]
                position += 1
            elif (byte := byte - 0x80 | data[position + 1] << 7) < 0x4000:
                length = zigzag[byte]
                position += 2
            else:
                length, position = _read_zigzag(data, position, 32)
            end = position + length
            if length < 0 or end > size:
                raise BatchError(f"record {index} at byte {start} claims {length} bytes of {size - position}")

            position += 1  # attributes: one byte without a meaning so far
            if (byte := data[position]) < 0x80:
                delta = zigzag[byte]
                position += 1
            elif (byte := byte - 0x80 | data[position + 1] << 7) < 0x4000:
                delta = zigzag[byte]
                position += 2
            else:
                delta, position = _read_zigzag(data, position, 64)
            if append_time is not None:
                timestamp = append_time
            else:
                timestamp = base_timestamp + delta
                if not INT64_MIN <= timestamp <= INT64_MAX:
                    raise BatchError(f"record {index} has timestamp {timestamp}, beyond 64 bits")

            if (byte := data[position]) < 0x80:
                delta = zigzag[byte]
                position += 1
            elif (byte := byte - 0x80 | data[position + 1] << 7) < 0x4000:
                delta = zigzag[byte]
                position += 2
            else:
                delta, position = _read_zigzag(data, position, 32)
            if not previous < delta <= last_delta:
                raise BatchError(f"record {index} has offset delta {delta} after {previous} of {last_delta}")
            previous = delta

            if (byte := data[position]) < 0x80:
                length = zigzag[byte]
                position += 1
            else:
                length, position = _read_zigzag(data, position, 32)
            if length >= 0:
                key = data[position : position + length]
                position += length
            elif length == -1:
                key = None
            else:
                raise BatchError(f"record {index} has a key of {length} bytes")

            if (byte := data[position]) < 0x80:
                length = zigzag[byte]
                position += 1
            elif (byte := byte - 0x80 | data[position + 1] << 7) < 0x4000:
                length = zigzag[byte]
                position += 2
            else:
                length, position = _read_zigzag(data, position, 32)
            if length >= 0:
                value = data[position : (position := position + length)]
            elif length == -1:
                value = None
            else:
                raise BatchError(f"record {index} has a value of {length} bytes")

            if data[position] == 0:
                headers: tuple[tuple[str, bytes | None], ...] = ()
                position += 1
            else:
                headers, position = _decode_headers(data, position, end, index)
            # Reads may have strayed past `end`, and slices past the data; positions only grow, so this
            # one comparison refuses all of it before anything is handed out.
            if position != end:
                raise BatchError(f"record {index} at byte {start} says it ends at byte {end}, not {position}")
            yield _new_tuple(Record, (base_offset + delta, timestamp, key, value, headers))
    except IndexError:
        raise BatchError(f"record {index} at byte {start} runs past the end at byte {size}") from None
    if position != size:
        raise BatchError(f"{size - position} bytes follow the last of {count} records")


def _decode_headers(
    data: bytes, position: int, end: int, index: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = _read_zigzag(data, position, 32)
    # The smallest header has two bytes: a count that cannot be true is refused before any work.
    if not 0 <= count <= min(HEADERS_MAX, (end - position) // 2):
        raise BatchError(f"record {index} claims {count} headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = _read_zigzag(data, position, 32)
        if length < 0 or length > end - position:
            raise BatchError(f"record {index} has a header key of {length} bytes")
        try:
            key = str(data[position : position + length], "utf-8")
        except UnicodeDecodeError as error:
            raise BatchError(f"record {index} has a header key that is not UTF-8: {error.reason}") from None
        position += length
        length, position = _read_zigzag(data, position, 32)
        if length < -1 or length > end - position:
            raise BatchError(f"record {index} has a header value of {length} bytes")
        if length == -1:
            headers.append((key, None))
        else:
            headers.append((key, data[position : position + length]))
            position += length
    return tuple(headers), position


def _encode(
    out: bytearray,
    timestamp: int,
    timestamp_delta: int,
    offset_delta: int,
    key: BytesLike | None,
    value: BytesLike | None,
    headers: Sequence[tuple[str, BytesLike | None]],
) -> None:
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise BatchError(f"timestamp {timestamp} is beyond 64 bits", code=ErrorCode.INVALID_RECORD)
    if not 0 <= offset_delta < 1 << 31:
        raise BatchError(f"offset delta {offset_delta} is out of range", code=ErrorCode.INVALID_RECORD)
    body = bytearray(1)  # attributes
    if 0 <= timestamp_delta < 0x40:
        body.append(timestamp_delta << 1)
    else:
        write_varint(body, timestamp_delta)
    if offset_delta < 0x40:
        body.append(offset_delta << 1)
    else:
        write_varint(body, offset_delta)
    _encode_bytes(body, key)
    _encode_bytes(body, value)
    if headers:
        if len(headers) > HEADERS_MAX:
            raise BatchError(
                f"{len(headers)} headers are too many for a record", code=ErrorCode.INVALID_RECORD
            )
        write_varint(body, len(headers))
        for header_key, header_value in headers:
            _encode_bytes(body, _encode_text(header_key))
            _encode_bytes(body, header_value)
    else:
        body.append(0)
    if len(body) > RECORD_BYTES_MAX:
        raise BatchError(f"a record of {len(body)} bytes is too large", code=ErrorCode.MESSAGE_TOO_LARGE)
    write_varint(out, len(body))
    out += body


def _encode_bytes(body: bytearray, data: BytesLike | None) -> None:
    if data is None:
        body.append(1)
        return
    if type(data) is not bytes:
        data = bytes(memoryview(data))  # through a view, so that an int or a str is a TypeError
    size = len(data)
    if size < 0x40:
        body.append(size << 1)
    else:
        write_varint(body, size)
    body += data


def _encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BatchError(
            f"a header key is not UTF-8: {error.reason}", code=ErrorCode.INVALID_RECORD
        ) from None


def check_spans(
    data: memoryview, positions: array[int], checksums: array[int], singles: bytearray, first: int, last: int
) -> int:
    """The first of the spans `first` to `last` - 1 that is not what was written, or -1.

    Spans are runs of whole batches; span k lies between `positions[k]` and `positions[k + 1]`, and `data`
    holds the asked ones from the first on. `checksums[k + 1]` covers all of its bytes or, where
    `singles[k + 1]` is set, those of a single batch that its own CRC leaves out.
    """
    start = begin = positions[first]
    for entry in range(first + 1, last + 1):
        end = positions[entry]
        span = data[begin - start : end - start]
        if end < begin or len(span) != end - begin:
            return entry - 1
        begin = end
        if not singles[entry]:
            if crc32c(span) != checksums[entry]:
                return entry - 1
        elif (
            len(span) <= _UNCHECKED_BYTES
            or crc32c(span[:_UNCHECKED_BYTES]) != checksums[entry]
            or crc32c(span[_UNCHECKED_BYTES:]) != int.from_bytes(span[_CRC_AT:_UNCHECKED_BYTES], "big")
        ):
            return entry - 1
    return -1
