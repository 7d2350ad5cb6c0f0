"""Columns as Arrow buffers: what the twins fill when decoding and read when encoding.

    column         type                                 buffers
    key, value     binary                               validity bits | int32 offsets, n + 1 | bytes
    topic          string                               int32 offsets, n + 1 | bytes
    partition      int32                                int32, n
    offset         int64                                int64, n
    timestamp      timestamp[us, UTC]                   int64, n
    timestampType  int32                                int32, n         0 create time, 1 log append time
    headers        list<struct<string, binary>>         int32 offsets, n + 1, over the m headers of all rows
      .key         string                               int32 offsets, m + 1 | bytes
      .value       binary                               validity bits | int32 offsets, m + 1 | bytes

Validity bits are left out where nothing is null. `headers` is never null, and empty where a record has none:
null lists make the way from the JVM to Arrow quadratic. Buffers are copies: no array refers to the fetched
bytes.

Offsets have 32 bits, as Spark wants its columns. A piece therefore holds at most INT32_MAX bytes; decoding.py
cuts pieces between record batches, none of which can be larger than that.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.records import BatchError
from tailrace.spark.codec.schema import HEADER_TYPE, HEADERS_TYPE, TIMESTAMP_TYPE

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

INT32_MAX = (1 << 31) - 1
RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, no key, no value, no headers: a byte each."""
MICROSECONDS_MS_MAX = ((1 << 63) - 1) // 1000
"""The greatest time, in milliseconds, that 64 bits of microseconds can tell."""

# Columns of the matrix that says where the batches of a piece lie in its arena; a row per batch.
BEGIN, END, COUNT, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP, IS_APPEND, APPEND_TIME = range(8)
BATCH_FIELDS = 8


class Columns(NamedTuple):
    """The columns that records give; topic and partition are the same for all of a piece."""

    key: pa.Array
    value: pa.Array
    offset: pa.Array
    timestamp: pa.Array
    timestamp_type: pa.Array
    headers: pa.Array | None


class Binary(NamedTuple):
    """A binary column to be written: element i is data[offsets[i]:offsets[i + 1]], or null."""

    offsets: Ints
    data: Bytes
    is_null: npt.NDArray[np.bool_] | None


class Rows(NamedTuple):
    """Rows to be written. Header j of row i is header number header_offsets[i] + j of all."""

    timestamps: Ints
    """Milliseconds since 1970."""
    key: Binary
    value: Binary
    header_offsets: Ints | None
    header_key: Binary | None
    header_value: Binary | None


def binary_array(
    offsets: npt.NDArray[np.int32], data: Bytes, is_valid: Bytes | npt.NDArray[np.bool_] | None
) -> pa.Array:
    """A binary column out of its buffers; `is_valid` has a byte or a bool per element."""
    bits = None if is_valid is None else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def headers_array(offsets: npt.NDArray[np.int32], keys: pa.Array, values: pa.Array) -> pa.Array:
    """The headers column. Header names must be UTF-8, which only this looks at."""
    try:
        names = keys.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise BatchError(f"a header key is not UTF-8: {error}") from None
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    return pa.Array.from_buffers(
        HEADERS_TYPE, len(offsets) - 1, [None, pa.py_buffer(offsets)], children=[pairs]
    )


def int64_array(numbers: Ints) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def timestamp_array(microseconds: Ints) -> pa.Array:
    return pa.Array.from_buffers(TIMESTAMP_TYPE, len(microseconds), [None, pa.py_buffer(microseconds)])


def int32_array(numbers: npt.NDArray[np.int32]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])


def repeated_text(text: str, count: int) -> pa.Array:
    """The same text in every row."""
    data = text.encode()
    offsets = np.arange(count + 1, dtype=np.int64) * len(data)
    assert offsets[-1] <= INT32_MAX, "pieces are cut before that"
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def fitted(buffer: Bytes, size: int) -> Bytes:
    """The first `size` bytes; a copy where most of the buffer would be kept for nothing."""
    return buffer[:size].copy() if size < len(buffer) // 2 else buffer[:size]
