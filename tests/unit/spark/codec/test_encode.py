"""Rows to record batches, in both twins: what tailrace.records reads from them is what the rows said."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model import ConfigError, ErrorCode
from tailrace.records import BatchError, Compression, Record, build_batch, iter_batches, validate_batch
from tailrace.spark.codec import HEADERS_TYPE, decode, encode

NOW = 1_700_000_000_000
MILLION = 1_000_000

NEAR = st.integers(min_value=NOW, max_value=NOW + 20_000)
TIME = NEAR | st.integers(min_value=-(1 << 62), max_value=(1 << 62) - 1)
EDGE = st.sampled_from([0, 1, 63, 64, 8191, 8192, 70_000]).map(lambda size: b"x" * size)
BYTES = st.none() | st.binary(max_size=40) | EDGE
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=4)
ROW = st.tuples(TIME, BYTES, BYTES, HEADERS)

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def table(rows: list[Row]) -> pa.RecordBatch:
    times, keys, values, headers = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.record_batch(
        {
            "timestamp": pa.array(times, pa.timestamp("ms", tz="UTC")),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(
                [each and [{"key": key, "value": value} for key, value in each] for each in headers],
                HEADERS_TYPE,
            ),
        }
    )


def records_of(batches: list[bytearray], **limits: int) -> list[Record]:
    for data in batches:
        validate_batch(data, bytes_max=limits.get("bytes_max", 1 << 30))
    return [record for batch in iter_batches(b"".join(batches)) for record in batch.records()]


def expected_of(rows: list[Row]) -> list[Record]:
    return [
        Record(offset, time, key, value, tuple(headers or ()))
        for offset, (time, key, value, headers) in enumerate(rows)
    ]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(ROW, max_size=8), st.sampled_from(list(Compression)), st.sampled_from([80_000, 150_000, MILLION])
)
def test_records_are_the_rows(
    twin: ModuleType, rows: list[Row], codec: Compression, batch_bytes_max: int
) -> None:
    row_bytes = [sum(len(part or b"") for part in (row[1], row[2])) for row in rows]
    header_bytes = [sum(len(value or b"") for _, value in row[3] or ()) for row in rows]
    if any(a + b > 79_000 for a, b in zip(row_bytes, header_bytes, strict=True)):
        batch_bytes_max = MILLION
    batches = encode(table(rows), batch_bytes_max=batch_bytes_max, compression=codec)
    assert all(len(batch) <= batch_bytes_max for batch in batches)
    assert records_of(batches) == expected_of(rows)


@settings(deadline=None, max_examples=60)
@given(st.lists(ROW, min_size=1, max_size=8))
def test_a_batch_is_byte_for_byte_that_of_the_records(twin: ModuleType, rows: list[Row]) -> None:
    (batch,) = encode(table(rows), batch_bytes_max=1 << 30)
    assert batch == build_batch([(time, key, value, headers or ()) for time, key, value, headers in rows])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(NEAR, BYTES, BYTES, HEADERS), min_size=1, max_size=8), st.integers(0, 7))
def test_a_slice_gives_its_rows_only(twin: ModuleType, rows: list[Row], skipped: int) -> None:
    batches = encode(table(rows).slice(skipped), batch_bytes_max=1 << 30)
    assert records_of(batches) == expected_of(rows[skipped:])


def test_what_is_encoded_is_decoded(twin: ModuleType) -> None:
    rows: list[Row] = [(NOW + i, b"%d" % i, b"v" * i, [("h", b"x")] * (i % 3)) for i in range(300)]
    data = b"".join(encode(table(rows), batch_bytes_max=5000, compression=Compression.LZ4))
    found = decode(data, start=0, end=1000, topic="t", partition=0, headers=True)
    for name in ("key", "value", "headers"):
        assert found.column(name).to_pylist() == table(rows).column(name).to_pylist()


def test_batches_are_full_but_never_over_the_limit(twin: ModuleType) -> None:
    rows: list[Row] = [(NOW, None, b"v" * 100, None)] * 1000
    batches = encode(table(rows), batch_bytes_max=10_000)
    assert [len(batch) > 9_700 for batch in batches[:-1]] == [True] * (len(batches) - 1)
    assert all(len(batch) <= 10_000 for batch in batches)


def test_offsets_and_sequences_go_on_from_batch_to_batch(twin: ModuleType) -> None:
    rows: list[Row] = [(NOW, None, b"v" * 100, None)] * 10
    last = (1 << 31) - 1
    data = encode(
        table(rows),
        batch_bytes_max=400,
        base_offset=70,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=2,
        base_sequence=last - 2,
        transactional=True,
    )
    batches = [validate_batch(each, bytes_max=400) for each in data]
    assert [batch.count for batch in batches] == [3, 3, 3, 1]
    assert [batch.base_offset for batch in batches] == [70, 73, 76, 79]
    assert [batch.base_sequence for batch in batches] == [last - 2, 0, 3, 6]
    assert {(batch.producer_id, batch.producer_epoch, batch.leader_epoch) for batch in batches} == {(9, 2, 4)}
    assert all(batch.is_transactional for batch in batches)


def test_the_greatest_timestamp_is_that_of_each_batch(twin: ModuleType) -> None:
    rows: list[Row] = [(NOW + at, None, b"v" * 100, None) for at in (5, 9, 1, 3, 2, 8)]
    batches = [validate_batch(each, bytes_max=400) for each in encode(table(rows), batch_bytes_max=400)]
    assert [(batch.base_timestamp - NOW, batch.max_timestamp - NOW) for batch in batches] == [(5, 9), (3, 8)]


def test_a_row_over_the_limit_is_refused(twin: ModuleType) -> None:
    rows: list[Row] = [(NOW, None, b"v", None), (NOW, None, np.random.default_rng(1).bytes(2000), None)]
    for codec in (Compression.NONE, Compression.ZSTD):
        with pytest.raises(BatchError, match="row 1 alone takes 20") as caught:
            encode(table(rows), batch_bytes_max=1500, compression=codec)
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_row_that_compresses_below_the_limit_passes(twin: ModuleType) -> None:
    rows: list[Row] = [(NOW, None, bytes(20_000), None)]
    (batch,) = encode(table(rows), batch_bytes_max=1500, compression=Compression.ZSTD)
    assert len(batch) <= 1500
    assert records_of([batch]) == expected_of(rows)


def test_what_does_not_shrink_is_not_compressed(twin: ModuleType) -> None:
    (batch,) = encode(table([(NOW, None, b"v", None)]), batch_bytes_max=1500, compression=Compression.GZIP)
    assert validate_batch(batch, bytes_max=1500).compression == Compression.NONE


def test_no_rows_are_no_batches(twin: ModuleType) -> None:
    assert encode(table([]), batch_bytes_max=1500) == []


def test_only_a_value_is_needed(twin: ModuleType) -> None:
    batch = pa.record_batch({"value": pa.array([b"a", None])})
    expected = [Record(0, NOW, None, b"a"), Record(1, NOW, None, None)]
    assert records_of(encode(batch, batch_bytes_max=1500, now_ms=NOW)) == expected


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.large_binary(),
        pa.binary(2),
        pa.dictionary(pa.int32(), pa.string()),
        pa.binary_view(),
        pa.string_view(),
    ],
    ids=str,
)
def test_text_and_bytes_of_any_kind_are_bytes(twin: ModuleType, kind: pa.DataType) -> None:
    texts = ["ab", None, "cd", "ab"]
    values: list[Any] = [text and text.encode() for text in texts]
    made = pa.array(values, pa.binary())
    if pa.types.is_dictionary(kind):
        column = pa.array(texts, pa.string()).dictionary_encode()
    elif pa.types.is_string_view(kind):
        column = pa.array(texts, kind)
    elif pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        column = pa.array(values, kind)
    else:
        column = made.cast(kind)
    batch = pa.record_batch({"key": column, "value": column}).slice(1)
    found = records_of(encode(batch, batch_bytes_max=1500, now_ms=NOW))
    assert [(record.key, record.value) for record in found] == [(each, each) for each in values[1:]]


def test_columns_of_nothing_are_null(twin: ModuleType) -> None:
    batch = pa.record_batch({"key": pa.nulls(2), "value": pa.nulls(2), "timestamp": pa.nulls(2)})
    expected = [Record(0, NOW, None, None), Record(1, NOW, None, None)]
    assert records_of(encode(batch, batch_bytes_max=1500, now_ms=NOW)) == expected


def test_bytes_under_a_null_are_not_written(twin: ModuleType) -> None:
    bits = pa.py_buffer(bytes([0b101]))
    places = pa.py_buffer(np.array([0, 2, 4, 6], dtype=np.int32))
    column = pa.Array.from_buffers(pa.binary(), 3, [bits, places, pa.py_buffer(b"aabbcc")])
    batch = pa.record_batch({"key": column, "value": column})
    found = records_of(encode(batch, batch_bytes_max=1500, now_ms=NOW))
    assert [(record.key, record.value) for record in found] == [(b"aa", b"aa"), (None, None), (b"cc", b"cc")]


@pytest.mark.parametrize(
    ("unit", "number", "expected"),
    [("s", 3, 3000), ("ms", 3, 3), ("us", 3999, 3), ("ns", 3_999_999, 3), ("us", -1, -1), ("s", -3, -3000)],
)
def test_times_are_milliseconds_rounded_down(twin: ModuleType, unit: str, number: int, expected: int) -> None:
    times = pa.array([number, None], pa.int64()).cast(pa.timestamp(unit))
    batch = pa.record_batch({"value": pa.nulls(2, pa.binary()), "timestamp": times})
    found = records_of(encode(batch, batch_bytes_max=1500, now_ms=NOW))
    assert [record.timestamp for record in found] == [expected, NOW]


@pytest.mark.parametrize("number", [(1 << 63) - 1, -(1 << 63)])
def test_seconds_beyond_64_bits_of_milliseconds_are_refused(number: int) -> None:
    times = pa.array([number], pa.int64()).cast(pa.timestamp("s"))
    with pytest.raises(BatchError, match="beyond 64 bits"):
        encode(pa.record_batch({"value": pa.nulls(1), "timestamp": times}), batch_bytes_max=1500)


def test_times_too_far_apart_are_refused() -> None:
    times = pa.array([(1 << 63) - 1, -2], pa.int64()).cast(pa.timestamp("ms"))
    with pytest.raises(BatchError, match="further apart"):
        encode(pa.record_batch({"value": pa.nulls(2), "timestamp": times}), batch_bytes_max=1500)


HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": pa.array([b"k"])}, "'value'"),
        ({"value": pa.array([1])}, "'value' is int64"),
        ({"value": pa.array([b"v"]), "key": pa.array([1.5])}, "'key' is double"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array(["now"])}, "'timestamp' is string"),
        ({"value": pa.array([b"v"]), "headers": pa.array([b"h"])}, "'headers' is binary"),
        ({"value": pa.array([b"v"]), "headers": pa.array([["h"]])}, "'headers' is list"),
        ({"value": pa.array([b"v"]), "headers": pa.array([[{"name": "h"}]])}, "key and value"),
    ],
)
def test_columns_of_other_types_are_refused(columns: dict[str, pa.Array], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        encode(pa.record_batch(columns), batch_bytes_max=1500)


@pytest.mark.parametrize(
    "headers",
    [
        pa.array([[{"key": None, "value": b"x"}]], pa.list_(HEADER)),
        pa.array([[None]], pa.list_(HEADER)),
        pa.array([[{"key": b"\xff", "value": b"x"}]]),
    ],
)
def test_headers_need_names(headers: pa.Array) -> None:
    with pytest.raises(BatchError, match="header") as caught:
        encode(pa.record_batch({"value": pa.array([b"v"]), "headers": headers}), batch_bytes_max=1500)
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_too_many_headers_are_refused() -> None:
    headers = pa.array([[{"key": "h", "value": b""}] * 65_537])
    with pytest.raises(BatchError, match="65537 headers"):
        encode(pa.record_batch({"value": pa.array([b"v"]), "headers": headers}), batch_bytes_max=1 << 20)


def test_lists_under_a_null_are_not_written(twin: ModuleType) -> None:
    pairs = pa.array([{"key": name, "value": b""} for name in "abc"], HEADER)
    places = pa.array([0, 1, None, 3], pa.int32())
    headers = pa.ListArray.from_arrays(places, pairs)
    batch = pa.record_batch({"value": pa.nulls(3), "headers": headers})
    found = records_of(encode(batch, batch_bytes_max=1500))
    expected = [tuple((each["key"], b"") for each in row or ()) for row in headers.to_pylist()]
    assert [record.headers for record in found] == expected


def test_large_lists_are_lists(twin: ModuleType) -> None:
    headers = pa.array([[{"key": "h", "value": b"1"}], []], pa.large_list(HEADER))
    batch = pa.record_batch({"value": pa.nulls(2), "headers": headers})
    found = records_of(encode(batch, batch_bytes_max=1500))
    assert [record.headers for record in found] == [(("h", b"1"),), ()]


def test_both_kinds_of_limit_are_seen_together(twin: ModuleType) -> None:
    # Timestamps far apart make every delta ten bytes; batches must not grow over the limit for that.
    far = itertools.cycle([0, 1 << 61])
    rows: list[Row] = [(next(far), b"k", b"v" * 20, [("h", b"x")]) for _ in range(500)]
    batches = encode(table(rows), batch_bytes_max=1000)
    assert all(len(batch) <= 1000 for batch in batches)
    assert records_of(batches) == expected_of(rows)
