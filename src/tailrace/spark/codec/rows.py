"""The columns of an Arrow record batch as rows to be written, whatever types they came in.

Bytes may be binary or text, of any width of offsets, of fixed size, as views, or by dictionary. Times may
have any unit. All become 64-bit offsets over bytes and 64-bit milliseconds, mostly without a copy, so that
the twins know one shape only.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model import ConfigError, ErrorCode
from tailrace.records import BatchError
from tailrace.spark.codec.columns import Binary, Ints, Rows

HEADERS_MAX = 65536
"""Of one record, as in tailrace.records."""

_INT64_MAX = (1 << 63) - 1
_UNITS_PER_MS = {"ms": 1, "us": 1000, "ns": 1_000_000}


def read_rows(batch: pa.RecordBatch, *, now_ms: int) -> Rows:
    """Columns key, value, headers and timestamp of `batch`; all but the value may be missing."""
    names = batch.schema.names
    if "value" not in names:
        raise ConfigError(
            f"rows need a column 'value' and have {', '.join(names) or 'none'}. Add or rename one"
        )
    key = batch.column("key") if "key" in names else pa.nulls(batch.num_rows, pa.binary())
    offsets = header_key = header_value = None
    if "headers" in names:
        offsets, header_key, header_value = _header_columns(batch.column("headers"))
    return Rows(
        timestamps=_milliseconds(batch, now_ms=now_ms),
        key=binary_column(key, "key"),
        value=binary_column(batch.column("value"), "value"),
        header_offsets=offsets,
        header_key=header_key,
        header_value=header_value,
    )


def binary_column(array: pa.Array | pa.ChunkedArray, name: str) -> Binary:
    """A column of bytes or text as offsets and bytes."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not _holds_bytes(array.type):
        raise ConfigError(f"column {name!r} is {array.type}. Cast it to binary or string")
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    count = len(array)
    if offsets is None or not count:
        places = np.zeros(count + 1, dtype=np.int64)
    else:
        places = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + count + 1]
    is_null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return Binary(places, np.frombuffer(data or b"", dtype=np.uint8), is_null)


def _holds_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    checks = (types.is_binary, types.is_large_binary, types.is_string, types.is_large_string, types.is_null)
    views = (types.is_fixed_size_binary, types.is_binary_view, types.is_string_view)
    return any(check(kind) for check in (*checks, *views))


def _header_columns(column: pa.Array) -> tuple[Ints, Binary, Binary]:
    """Where the headers of every row lie among all headers, and their names and values."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_struct(kind.value_type):
        raise ConfigError(f"column 'headers' is {kind}. Make it a list of struct<key: string, value: binary>")
    fields = [kind.value_type.get_field_index(name) for name in ("key", "value")]
    if min(fields) < 0:
        raise ConfigError(f"column 'headers' is {kind}: its structs need the fields key and value")
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if counts.max(initial=0) > HEADERS_MAX:
        raise BatchError(f"{counts.max()} headers are too many for a record", code=ErrorCode.INVALID_RECORD)
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    # Both calls leave out what lies under a null list, and pass a null struct on to its fields.
    children = column.flatten().flatten()
    return offsets, _header_names(children[fields[0]]), binary_column(children[fields[1]], "headers.value")


def _header_names(names: pa.Array) -> Binary:
    if names.null_count:
        raise BatchError("a header needs a name: null is none", code=ErrorCode.INVALID_RECORD)
    if not (pa.types.is_string(names.type) or pa.types.is_large_string(names.type)):
        try:
            names = names.cast(pa.large_string())
        except pa.ArrowInvalid as error:
            raise BatchError(f"a header key is not UTF-8: {error}", code=ErrorCode.INVALID_RECORD) from None
    return binary_column(names, "headers.key")


def _milliseconds(batch: pa.RecordBatch, *, now_ms: int) -> Ints:
    """The time of every row, rounded down; now, where it has none."""
    if "timestamp" not in batch.schema.names:
        return np.full(batch.num_rows, now_ms, dtype=np.int64)
    column = batch.column("timestamp")
    if pa.types.is_null(column.type):
        return np.full(batch.num_rows, now_ms, dtype=np.int64)
    if not pa.types.is_timestamp(column.type):
        raise ConfigError(f"column 'timestamp' is {column.type}. Cast it to timestamp")
    unit = column.type.unit
    numbers = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    if unit == "s":
        if len(numbers) and max(int(numbers.max()), -int(numbers.min())) > _INT64_MAX // 1000:
            raise BatchError("a timestamp is beyond 64 bits of milliseconds", code=ErrorCode.INVALID_RECORD)
        times = numbers * 1000
    else:
        times = numbers // _UNITS_PER_MS[unit]
    if column.null_count:
        times = np.where(column.is_null().to_numpy(zero_copy_only=False), now_ms, times)
    if len(times) and int(times.max()) - int(times.min()) > _INT64_MAX:
        raise BatchError("timestamps lie further apart than 64 bits", code=ErrorCode.INVALID_RECORD)
    return np.ascontiguousarray(times, dtype=np.int64)
