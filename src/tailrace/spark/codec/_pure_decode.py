"""Records to columns with numpy and Arrow's own kernels: half of the pure twin.

Finding. Where records end can only be told one after the other, since each begins with its length; that is
the one loop of Python, a table look-up per record. Everything else is done to all records at once: field by
field, the positions of all rows step over one varint. Positions only grow and reads past the arena give its
last byte, so one comparison with the ends of the records at last refuses every length that was wrong.

Copying. Keys and values lie between other bytes. The arena as a whole is a binary array without any copy if
its offsets are key begin, key end, value begin, value end of all records in turn: elements 0, 4, 8 are the
keys, elements 2, 6, 10 the values, and Arrow's `take` packs them.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.records import BatchError, BytesLike
from tailrace.spark.codec.columns import (
    APPEND_TIME,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BEGIN,
    COUNT,
    END,
    IS_APPEND,
    LAST_DELTA,
    MICROSECONDS_MS_MAX,
    Bytes,
    Columns,
    Ints,
    binary_array,
    headers_array,
    int32_array,
    int64_array,
    timestamp_array,
)

HEADERS_MAX = 65536
"""Of one record, as in tailrace.records."""

# A length that cannot be sends the position so far away that the next read fails.
_NOWHERE = 1 << 62
# What the length of a record, in one byte or in two, moves the position by: the varint and the record itself.
_STEP_ONE = tuple(_NOWHERE if raw & 1 else 1 + (raw >> 1) for raw in range(0x80))
_STEP_TWO = tuple(_NOWHERE if raw & 1 else 2 + (raw >> 1) for raw in range(0x4000))


def read_columns(arena: BytesLike, batches: Ints, *, start: int, end: int, headers: bool) -> Columns:
    """The records of all batches with offsets in the range, as columns; BatchError if any batch is broken.

    Every record is checked, also those out of range. Header names are looked at where they are asked for.
    """
    data = np.frombuffer(arena, dtype=np.uint8)
    counts = batches[:, COUNT]
    if not counts.sum():
        return _no_rows(headers=headers)
    starts, ends = _find_records(arena, batches)
    fields = _read_fields(data, starts)
    found = _read_headers(data, fields, ends)
    if (fields.after != ends).any():
        row = int(np.flatnonzero(fields.after != ends)[0])
        raise BatchError(f"record {row} says it ends at byte {ends[row]}, not {fields.after[row]}")
    offsets = _offsets_of(fields.offset_delta, batches)
    microseconds = _microseconds_of(fields.timestamp_delta, batches)
    kinds = np.repeat(batches[:, IS_APPEND].astype(np.int32), counts)
    # Offsets grow, within batches and from batch to batch, so the rows of a range lie together.
    rows = slice(int(np.searchsorted(offsets, start)), int(np.searchsorted(offsets, end)))
    key, value = _take_pairs(data, fields.key, fields.value, rows)
    return Columns(
        key=key,
        value=value,
        offset=int64_array(offsets[rows]),
        timestamp=timestamp_array(microseconds[rows]),
        timestamp_type=int32_array(kinds[rows]),
        headers=_headers_column(data, found, fields.header_count, rows) if headers else None,
    )


class _Spans(NamedTuple):
    """Where something lies in the arena, for every row."""

    begin: Ints
    end: Ints
    is_null: npt.NDArray[np.bool_]


class _Fields(NamedTuple):
    timestamp_delta: Ints
    offset_delta: Ints
    key: _Spans
    value: _Spans
    header_count: Ints
    after: Ints
    """Where the header count ends; `_read_headers` moves it behind the headers."""


class _Headers(NamedTuple):
    """All headers of all rows, in order."""

    key: _Spans
    value: _Spans


def _no_rows(*, headers: bool) -> Columns:
    none = np.zeros(0, dtype=np.int64)
    offsets = np.zeros(1, dtype=np.int32)
    empty = binary_array(offsets, np.zeros(0, dtype=np.uint8), None)
    return Columns(
        key=empty,
        value=empty,
        offset=int64_array(none),
        timestamp=timestamp_array(none),
        timestamp_type=int32_array(np.zeros(0, dtype=np.int32)),
        headers=headers_array(offsets, empty, empty) if headers else None,
    )


def _find_records(arena: BytesLike, batches: Ints) -> tuple[Ints, Ints]:
    """Where every record begins and ends. The records of a batch fill its payload exactly."""
    data = arena if isinstance(arena, bytes) else bytes(arena)  # the fastest to look at byte by byte
    one, two = _STEP_ONE, _STEP_TWO
    found = array("q")
    append = found.append
    position = 0
    try:
        for begin, end, count in batches[:, [BEGIN, END, COUNT]].tolist():
            position = begin
            for _ in range(count):
                byte = data[position]
                if byte < 0x80:
                    position += one[byte]
                elif (second := data[position + 1]) < 0x80:
                    position += two[byte & 0x7F | second << 7]
                else:
                    position = _step_far(data, position)
                append(position)
            if position != end:
                raise BatchError(f"{count} records end at byte {position}, their payload at {end}")
    except IndexError:
        raise BatchError(f"record {len(found)} runs past the end at byte {len(data)}") from None
    ends = np.frombuffer(found, dtype=np.int64)
    starts = np.empty_like(ends)
    starts[1:] = ends[:-1]
    counts = batches[:, COUNT]
    starts[(np.cumsum(counts) - counts)[counts > 0]] = batches[counts > 0, BEGIN]
    return starts, ends


def _step_far(data: bytes, position: int) -> int:
    """The end of a record whose length takes three bytes or more."""
    raw = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise BatchError(f"a varint before byte {position} has too many bytes")
    if raw >> 32 or raw & 1:
        raise BatchError(f"a record before byte {position} has a length that cannot be")
    return position + (raw >> 1)


def _read_varints(data: Bytes, positions: Ints, bits: int) -> tuple[Ints, Ints]:
    """The zigzag varints at all positions, and the positions after them."""
    last = data.take(positions, mode="clip")
    raw = last.astype(np.uint64)
    after = positions + 1
    more = np.flatnonzero(last >= 0x80)
    if len(more):
        raw &= np.uint64(0x7F)
        for shift in range(7, bits, 7):
            at = after[more]
            last = data.take(at, mode="clip")
            # The tenth byte of a 64-bit varint has room for one bit, the fifth of a 32-bit one for four.
            if shift + 7 > bits and (last >> (bits - shift)).any():
                raise BatchError(f"a varint at record {more[0]} does not fit into {bits} bits")
            raw[more] |= (last & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[more] = at + 1
            more = more[last >= 0x80]
            if not len(more):
                break
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), after


def _read_fields(data: Bytes, starts: Ints) -> _Fields:
    _, at = _read_varints(data, starts, 32)
    at += 1  # attributes: one byte without a meaning so far
    timestamp_delta, at = _read_varints(data, at, 64)
    offset_delta, at = _read_varints(data, at, 32)
    key, at = _read_spans(data, at, "key")
    value, at = _read_spans(data, at, "value")
    header_count, at = _read_varints(data, at, 32)
    return _Fields(timestamp_delta, offset_delta, key, value, header_count, at)


def _read_spans(data: Bytes, positions: Ints, what: str) -> tuple[_Spans, Ints]:
    lengths, begin = _read_varints(data, positions, 32)
    is_null = lengths < 0
    if is_null.any():
        if (lengths < -1).any():
            raise BatchError(f"a record has a {what} of {lengths.min()} bytes")
        np.maximum(lengths, 0, out=lengths)
    end = begin + lengths
    return _Spans(begin, end, is_null), end


def _read_headers(data: Bytes, fields: _Fields, ends: Ints) -> _Headers:
    """All headers; the first of every row that has one, then the second, and so on, put in their places."""
    counts, after = fields.header_count, fields.after
    rows = np.flatnonzero(counts)
    # The smallest header has two bytes: a count that cannot be true is refused before any work.
    if ((counts < 0) | (counts > HEADERS_MAX) | (counts > (ends - after) // 2))[rows].any():
        raise BatchError(f"a record claims {counts[rows].max()} headers")
    key, value = _empty_spans(int(counts.sum())), _empty_spans(int(counts.sum()))
    left, at, slot = counts[rows], after[rows], (np.cumsum(counts) - counts)[rows]
    while len(rows):
        at = _read_into(data, at, key, slot, "header key")
        if key.is_null[slot].any():
            raise BatchError("a record has a header key of -1 bytes")
        at = _read_into(data, at, value, slot, "header value")
        after[rows] = at
        goes_on = left > 1
        rows, left, at, slot = rows[goes_on], left[goes_on] - 1, at[goes_on], slot[goes_on] + 1
    return _Headers(key, value)


def _empty_spans(count: int) -> _Spans:
    empty = np.empty(count, dtype=np.int64)
    return _Spans(empty, np.empty_like(empty), np.zeros(count, dtype=np.bool_))


def _read_into(data: Bytes, positions: Ints, spans: _Spans, slot: Ints, what: str) -> Ints:
    found, after = _read_spans(data, positions, what)
    spans.begin[slot] = found.begin
    spans.end[slot] = found.end
    spans.is_null[slot] = found.is_null
    return after


def _offsets_of(deltas: Ints, batches: Ints) -> Ints:
    """Absolute offsets. Deltas must grow and stay within the batch, so that none is given out twice."""
    counts = batches[:, COUNT]
    before = np.empty_like(deltas)
    before[1:] = deltas[:-1]
    before[(np.cumsum(counts) - counts)[counts > 0]] = -1
    if (deltas <= before).any() or (deltas > np.repeat(batches[:, LAST_DELTA], counts)).any():
        raise BatchError("offsets do not grow within their batch")
    return np.repeat(batches[:, BASE_OFFSET], counts) + deltas


def _microseconds_of(deltas: Ints, batches: Ints) -> Ints:
    counts = batches[:, COUNT]
    base = np.repeat(batches[:, BASE_TIMESTAMP], counts)
    times = base + deltas
    is_wrong = ((base ^ times) & (deltas ^ times)) < 0  # beyond 64 bits, by the signs
    if batches[:, IS_APPEND].any():
        stamped = np.repeat(batches[:, IS_APPEND] != 0, counts)
        times = np.where(stamped, np.repeat(batches[:, APPEND_TIME], counts), times)
        is_wrong &= ~stamped
    is_wrong |= (times > MICROSECONDS_MS_MAX) | (times < -MICROSECONDS_MS_MAX)
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        raise BatchError(f"record {row} has timestamp {times[row]}, which microseconds cannot tell")
    return times * 1000


def _take_pairs(data: Bytes, first: _Spans, second: _Spans, rows: slice) -> tuple[pa.Array, pa.Array]:
    """Two columns whose spans lie in the arena in turn, packed."""
    bounds = np.stack([first.begin[rows], first.end[rows], second.begin[rows], second.end[rows]], axis=1)
    count = len(bounds)
    if not count:
        empty = binary_array(np.zeros(1, dtype=np.int32), np.zeros(0, dtype=np.uint8), None)
        return empty, empty
    pieces = binary_array(bounds.astype(np.int32).reshape(-1), data, None)
    at = np.arange(0, 4 * count, 4, dtype=np.int32)
    return _take(pieces, at, first.is_null[rows]), _take(pieces, at + 2, second.is_null[rows])


def _take(pieces: pa.Array, at: npt.NDArray[np.int32], is_null: npt.NDArray[np.bool_]) -> pa.Array:
    if is_null.all():
        return pa.nulls(len(at), pa.binary())
    return pieces.take(pa.array(at, mask=is_null if is_null.any() else None))


def _headers_column(data: Bytes, found: _Headers, counts: Ints, rows: slice) -> pa.Array:
    chosen = counts[rows]
    offsets = np.zeros(len(chosen) + 1, dtype=np.int64)
    np.cumsum(chosen, out=offsets[1:])
    skipped = int(counts[: rows.start].sum())
    keys, values = _take_pairs(data, found.key, found.value, slice(skipped, skipped + int(offsets[-1])))
    return headers_array(offsets.astype(np.int32), keys, values)
