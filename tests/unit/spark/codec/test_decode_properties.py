"""Decoding gives what tailrace.records gives, row by row: on generated fetches, and on mutilated bytes."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.records import (
    HEADER_BYTES,
    BatchError,
    BytesLike,
    Compression,
    NewRecord,
    Record,
    build_batch,
    iter_batches,
    read_batch,
    rebuild_batch,
)
from tailrace.spark.codec import decode, decode_pieces, decode_sound

END = 1 << 60
MS_MAX = ((1 << 63) - 1) // 1000

NEAR = st.integers(min_value=1_700_000_000_000, max_value=1_700_000_020_000)
TIME = NEAR | st.integers(min_value=-MS_MAX, max_value=MS_MAX)
# Lengths around those at which a varint grows by a byte, beside any small one.
EDGE = st.sampled_from([0, 1, 63, 64, 8191, 8192, 70_000]).map(lambda size: b"x" * size)
BYTES = st.none() | st.binary(max_size=40) | EDGE
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=4)
RECORD = st.tuples(TIME, BYTES, BYTES, HEADERS)
BYTE = st.sampled_from([0x00, 0x01, 0x02, 0x03, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
EDIT = st.tuples(st.sampled_from(["set", "insert", "delete", "cut"]), st.integers(0, 2000), BYTE)


class Part(NamedTuple):
    """One batch of a generated fetch."""

    gap: int
    records: list[NewRecord]
    codec: Compression
    append_time: int | None
    kept: int | None
    """Bits that say which records compaction kept; None: never compacted."""
    is_control: bool


PART = st.builds(
    Part,
    gap=st.sampled_from([0, 0, 0, 1, 1000]),
    records=st.lists(RECORD, min_size=1, max_size=5),
    codec=st.sampled_from(list(Compression)),
    append_time=st.none() | TIME,
    kept=st.none() | st.integers(0, 31),
    is_control=st.sampled_from([False, False, False, True]),
)


def fetch_of(parts: list[Part]) -> bytes:
    data = bytearray()
    offset = 0
    for part in parts:
        offset += part.gap
        built = build_batch(
            part.records,
            base_offset=offset,
            compression=part.codec,
            log_append_time_ms=part.append_time,
            control=part.is_control,
        )
        batch = read_batch(built)
        if part.kept is not None:
            records = [record for i, record in enumerate(batch.records()) if part.kept >> i & 1]
            built = rebuild_batch(batch, records, delete_horizon_ms=None)
        data += built
        offset = batch.next_offset
    return bytes(data)


def expected_of(data: BytesLike, *, start: int = 0, end: int = END) -> list[tuple[Record, int]]:
    return [
        (record, int(batch.is_log_append_time))
        for batch in iter_batches(data)
        if not batch.is_control
        for record in batch.records()
        if start <= record.offset < end
    ]


def rows_of(batch: pa.RecordBatch) -> list[tuple[Record, int]]:
    batch.validate(full=True)
    columns = [
        batch.column(name).to_pylist() for name in ("offset", "key", "value", "headers", "timestampType")
    ]
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert all(time % 1000 == 0 for time in times)
    return [
        (Record(offset, time // 1000, key, value, tuple((h["key"], h["value"]) for h in headers)), kind)
        for offset, key, value, headers, kind, time in zip(*columns, times, strict=True)
    ]


def decoded(data: BytesLike, *, start: int = 0, end: int = END, check_crcs: bool = True) -> pa.RecordBatch:
    return decode(data, start=start, end=end, topic="t", partition=0, headers=True, check_crcs=check_crcs)


def mutilate(data: bytes, edits: list[tuple[str, int, int]], *, first: int) -> bytearray:
    out = bytearray(data)
    for kind, place, byte in edits:
        at = first + place % (len(out) - first + 1)
        if kind == "insert":
            out.insert(at, byte)
        elif kind == "cut":
            del out[at:]
        elif at < len(out):
            if kind == "set":
                out[at] = byte
            else:
                del out[at]
    return out


@settings(deadline=None, max_examples=60)
@given(st.lists(PART, max_size=4))
def test_rows_are_those_of_the_records(twin: ModuleType, parts: list[Part]) -> None:
    data = fetch_of(parts)
    assert rows_of(decoded(data)) == expected_of(data)


@settings(deadline=None, max_examples=40)
@given(st.lists(PART, min_size=1, max_size=4), st.integers(0, 25), st.integers(0, 25))
def test_a_range_gives_the_records_in_it(twin: ModuleType, parts: list[Part], start: int, end: int) -> None:
    data = fetch_of(parts)
    assert rows_of(decoded(data, start=start, end=end)) == expected_of(data, start=start, end=end)


@settings(deadline=None, max_examples=40)
@given(st.lists(PART, max_size=5), st.integers(1, 400))
def test_pieces_add_up(twin: ModuleType, parts: list[Part], piece_bytes_max: int) -> None:
    data = fetch_of(parts)
    pieces = decode_pieces(
        data, start=0, end=END, topic="t", partition=0, headers=True, piece_bytes_max=piece_bytes_max
    )
    assert [row for piece in pieces for row in rows_of(piece.rows)] == expected_of(data)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(RECORD, min_size=1, max_size=4),
    st.lists(EDIT, min_size=1, max_size=4),
    st.integers(-1, 1),
)
def test_a_mutilated_payload_is_read_or_refused_as_by_the_records(
    twin: ModuleType, records: list[NewRecord], edits: list[tuple[str, int, int]], miscounted: int
) -> None:
    data = mutilate(bytes(build_batch(records)), edits, first=HEADER_BYTES)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[57:61] = (len(records) + miscounted).to_bytes(4, "big")
    try:
        expected: object = expected_of(data)
        if any(abs(record.timestamp) > MS_MAX for record, _ in expected_of(data)):
            expected = "refused"
    except BatchError:
        expected = "refused"
    try:
        found: object = rows_of(decoded(data, check_crcs=False))
    except BatchError:
        found = "refused"
    assert found == expected


@settings(deadline=None, max_examples=150)
@given(st.lists(PART, min_size=1, max_size=3), st.lists(EDIT, min_size=1, max_size=3), st.booleans())
def test_a_mutilated_fetch_never_gives_anything_but_a_batch_error(
    twin: ModuleType, parts: list[Part], edits: list[tuple[str, int, int]], check_crcs: bool
) -> None:
    data = mutilate(fetch_of(parts), edits, first=0)
    try:
        strict: object = rows_of(decoded(data, check_crcs=check_crcs))
    except BatchError:
        strict = "refused"
    found = decode_sound(data, start=0, end=END, topic="t", partition=0, headers=True, check_crcs=check_crcs)
    lenient = [row for rows in found.rows for row in rows_of(rows)]
    assert (strict == "refused") == bool(found.bad)
    if not found.bad:
        assert strict == lenient
    # What is set aside lies in the fetch, in order, and apart.
    ends = 0
    for span in found.bad:
        assert ends <= span.position < span.position + span.size <= len(data)
        ends = span.position + span.size


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(twin: ModuleType, data: bytes) -> None:
    try:
        assert decoded(data).num_rows == 0
    except BatchError:
        return
    assert data == b""
