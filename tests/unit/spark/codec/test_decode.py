"""Fetched bytes to rows, in both twins: columns, ranges, hidden batches and pieces, on batches built here."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import pyarrow as pa
import pytest

from tailrace.model import ConfigError, ErrorCode
from tailrace.records import (
    BatchError,
    Compression,
    NewRecord,
    build_batch,
    iter_batches,
    read_batch,
    rebuild_batch,
)
from tailrace.spark.codec import HEADERS_TYPE, KAFKA_SCHEMA, decode, decode_pieces, decoding
from tailrace.spark.codec.schema import TIMESTAMP_TYPE

NOW = 1_700_000_000_000
END = 1 << 60


def plain(count: int, *, size: int = 10) -> list[NewRecord]:
    return [(NOW + i, b"k%d" % i, b"%d" % i * size, ()) for i in range(count)]


def rows(data: bytes | bytearray, *, start: int = 0, end: int = END, headers: bool = True) -> pa.RecordBatch:
    batch = decode(data, start=start, end=end, topic="orders", partition=3, headers=headers)
    batch.validate(full=True)
    return batch


def offsets(data: bytes | bytearray) -> list[int]:
    return list(rows(data).column("offset").to_pylist())


def test_has_the_columns_of_sparks_kafka_source(twin: ModuleType) -> None:
    batch = rows(build_batch([(NOW, b"k", b"v", [("h", b"x")])], base_offset=7))
    assert [(field.name, str(field.type)) for field in batch.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", str(HEADERS_TYPE)),
    ]
    (row,) = batch.to_pylist()
    assert int(batch.column("timestamp").cast(pa.int64())[0].as_py()) == NOW * 1000
    del row["timestamp"]
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}],
    }


def test_leaves_headers_out_unless_asked_for(twin: ModuleType) -> None:
    data = build_batch([(NOW, b"k", b"v", [("h", b"x")])])
    assert "headers" not in rows(data, headers=False).schema.names


def test_headers_are_empty_and_never_null(twin: ModuleType) -> None:
    column = rows(build_batch(plain(3))).column("headers")
    assert column.null_count == 0
    assert column.to_pylist() == [[], [], []]


def test_keeps_null_empty_and_repeated_apart(twin: ModuleType) -> None:
    data = build_batch(
        [
            (NOW, None, None, [("", None), ("a", b""), ("a", b"1")]),
            (NOW, b"", b"", ()),
            (NOW, None, b"x" * 70_000, [("ü", b"y" * 300)]),
        ]
    )
    batch = rows(data)
    assert batch.column("key").to_pylist() == [None, b"", None]
    assert batch.column("value").to_pylist() == [None, b"", b"x" * 70_000]
    assert batch.column("headers").to_pylist() == [
        [{"key": "", "value": None}, {"key": "a", "value": b""}, {"key": "a", "value": b"1"}],
        [],
        [{"key": "ü", "value": b"y" * 300}],
    ]


def test_append_time_is_every_records_timestamp(twin: ModuleType) -> None:
    batch = rows(build_batch(plain(2)) + build_batch(plain(2), base_offset=2, log_append_time_ms=NOW + 99))
    assert batch.column("timestampType").to_pylist() == [0, 0, 1, 1]
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert times == [NOW * 1000, (NOW + 1) * 1000, (NOW + 99) * 1000, (NOW + 99) * 1000]


@pytest.mark.parametrize("codec", list(Compression))
def test_reads_every_codec(twin: ModuleType, codec: Compression) -> None:
    data = build_batch(plain(5)) + build_batch(plain(500), base_offset=5, compression=codec)
    assert offsets(data) == list(range(505))
    assert rows(data).column("value").to_pylist()[5:] == [value for _, _, value, _ in plain(500)]


def test_a_bomb_is_refused_by_its_output(twin: ModuleType) -> None:
    data = build_batch([(NOW, None, bytes(100_000), ())], compression=Compression.GZIP)
    with pytest.raises(BatchError, match=r"orders-3 at offset 0.*limit is 50000") as caught:
        decode(data, start=0, end=END, topic="orders", partition=3, headers=False, bytes_max=50_000)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(("start", "end"), [(0, 20), (3, 20), (0, 17), (12, 13), (10, 10), (5, 15), (30, 40)])
def test_gives_exactly_the_range(twin: ModuleType, start: int, end: int) -> None:
    data = build_batch(plain(10)) + build_batch(plain(10), base_offset=10, compression=Compression.LZ4)
    batch = rows(data, start=start, end=end)
    assert batch.column("offset").to_pylist() == [at for at in range(20) if start <= at < end]
    assert batch.column("key").to_pylist() == [b"k%d" % (at % 10) for at in range(20) if start <= at < end]


def test_the_range_cuts_headers_too(twin: ModuleType) -> None:
    data = build_batch([(NOW, None, None, [(f"h{i}", b"")] * i) for i in range(5)])
    batch = rows(data, start=2, end=4)
    names = [[header["key"] for header in each] for each in batch.column("headers").to_pylist()]
    assert names == [["h2", "h2"], ["h3", "h3", "h3"]]


def test_offsets_keep_the_gaps_of_compaction(twin: ModuleType) -> None:
    whole = read_batch(build_batch(plain(10), base_offset=100))
    kept = [record for record in whole.records() if record.offset % 3 == 0]
    data = rebuild_batch(whole, kept, delete_horizon_ms=None) + build_batch(plain(1), base_offset=200)
    assert offsets(data) == [102, 105, 108, 200]


def test_an_emptied_batch_has_no_rows(twin: ModuleType) -> None:
    emptied = rebuild_batch(read_batch(build_batch(plain(3))), [], delete_horizon_ms=None)
    assert offsets(emptied + build_batch(plain(1), base_offset=3)) == [3]
    assert offsets(emptied) == []


def test_nothing_fetched_is_no_rows(twin: ModuleType) -> None:
    batch = rows(b"")
    assert (batch.num_rows, batch.schema) == (0, KAFKA_SCHEMA)


def test_control_batches_are_not_shown(twin: ModuleType) -> None:
    marker = build_batch(
        [(NOW, b"\0\0\0\1", b"\0\0\0\0\0\0", ())],
        base_offset=1,
        control=True,
        transactional=True,
        producer_id=5,
    )
    data = build_batch(plain(1)) + marker + build_batch(plain(1), base_offset=2)
    assert offsets(data) == [0, 2]


def transactional(base_offset: int, *, producer_id: int) -> bytearray:
    return build_batch(
        plain(1),
        base_offset=base_offset,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )


def marker(base_offset: int, *, producer_id: int) -> bytearray:
    return build_batch(
        [(NOW, b"\0\0\0\0", b"\0\0\0\0\0\0", ())],
        base_offset=base_offset,
        control=True,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=0,
    )


@pytest.mark.parametrize(
    ("aborted", "shown"),
    [
        ([], [0, 1, 2, 4]),
        ([(7, 0)], [1, 4]),
        ([(8, 1)], [0, 2, 4]),
        ([(8, 1), (7, 0)], [4]),
        ([(7, 4)], [0, 1, 2]),
    ],
)
def test_aborted_transactions_are_left_out(
    twin: ModuleType, aborted: Sequence[tuple[int, int]], shown: list[int]
) -> None:
    data = transactional(0, producer_id=7) + transactional(1, producer_id=8) + transactional(2, producer_id=7)
    data += marker(3, producer_id=7) + transactional(4, producer_id=7)
    batch = decode(data, start=0, end=END, topic="t", partition=0, headers=False, aborted=aborted)
    assert batch.column("offset").to_pylist() == shown


def test_a_schema_chooses_and_orders_columns(twin: ModuleType) -> None:
    schema = pa.schema([("offset", pa.int64()), ("topic", pa.string())])
    batch = decode(
        build_batch(plain(2)), start=0, end=END, topic="t", partition=0, headers=True, schema=schema
    )
    assert batch.schema == schema
    assert batch.to_pylist() == [{"offset": 0, "topic": "t"}, {"offset": 1, "topic": "t"}]


def test_a_schema_may_name_the_items_of_the_headers(twin: ModuleType) -> None:
    element = pa.field("element", HEADERS_TYPE.value_type)
    schema = pa.schema([("headers", pa.list_(element))])
    data = build_batch([(NOW, None, None, [("h", b"1")])])
    batch = decode(data, start=0, end=END, topic="t", partition=0, headers=True, schema=schema)
    assert batch.schema == schema
    assert batch.to_pylist() == [{"headers": [{"key": "h", "value": b"1"}]}]


@pytest.mark.parametrize("field", [("price", pa.int64()), ("value", pa.string()), ("headers", pa.binary())])
def test_a_schema_of_other_columns_is_refused(field: tuple[str, pa.DataType]) -> None:
    with pytest.raises(ConfigError, match=field[0]):
        decode(b"", start=0, end=1, topic="t", partition=0, headers=True, schema=pa.schema([field]))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_pieces_are_bounded_and_complete(twin: ModuleType, codec: Compression) -> None:
    data = b"".join(build_batch(plain(10), base_offset=10 * i, compression=codec) for i in range(9))
    size = sum(len(batch.data) for batch in iter_batches(b"".join(build_batch(plain(10)) for _ in range(2))))
    pieces = list(
        decode_pieces(
            data,
            start=4,
            end=86,
            topic="t",
            partition=0,
            headers=False,
            piece_bytes_max=size,
            keeps_bad=False,
        )
    )
    assert [piece.rows.num_rows for piece in pieces] == [16, 20, 20, 20, 6]
    assert [piece.next_offset for piece in pieces] == [20, 40, 60, 80, 86]
    found = [at for piece in pieces for at in piece.rows.column("offset").to_pylist()]
    assert found == list(range(4, 86))


def test_a_batch_larger_than_a_piece_is_a_piece(twin: ModuleType) -> None:
    data = build_batch(plain(10)) + build_batch(plain(10), base_offset=10)
    pieces = decode_pieces(data, start=0, end=END, topic="t", partition=0, headers=False, piece_bytes_max=1)
    assert [piece.rows.num_rows for piece in pieces] == [10, 10]


def test_more_than_a_column_can_hold_is_refused(twin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "INT32_MAX", 300)
    data = build_batch(plain(10)) + build_batch(plain(10), base_offset=10)
    with pytest.raises(BatchError, match="decode_pieces") as caught:
        rows(data)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_topic_column_has_room_in_every_piece(twin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "INT32_MAX", 2490)
    data = b"".join(build_batch(plain(5, size=1), base_offset=5 * i) for i in range(4))
    pieces = decode_pieces(data, start=0, end=END, topic="t" * 249, partition=0, headers=False)
    assert [piece.rows.num_rows for piece in pieces] == [10, 10]


def test_rows_do_not_refer_to_the_fetched_bytes(twin: ModuleType) -> None:
    data = bytearray(build_batch(plain(3)))
    batch = rows(data)
    before = batch.to_pylist()
    data[:] = bytes(len(data))
    data.clear()  # a buffer that somebody still holds would refuse that
    assert batch.to_pylist() == before


def test_timestamps_beyond_microseconds_break_their_batch(twin: ModuleType) -> None:
    most = ((1 << 63) - 1) // 1000
    good = rows(build_batch([(most, None, None, ()), (-most, None, None, ())]))
    assert good.column("timestamp").cast(pa.int64()).to_pylist() == [most * 1000, -most * 1000]
    for wrong in (most + 1, -most - 1):
        with pytest.raises(BatchError, match="microseconds"):
            rows(build_batch([(wrong, None, None, ())]))
        with pytest.raises(BatchError, match="microseconds"):
            rows(build_batch(plain(1), log_append_time_ms=wrong))


def test_types_are_the_named_ones() -> None:
    assert KAFKA_SCHEMA.field("timestamp").type == TIMESTAMP_TYPE
