"""Building batches out of new and of kept records, read back through both twins."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tailrace.model import ErrorCode
from tailrace.records import (
    Batch,
    BatchBuilder,
    BatchError,
    BatchFields,
    Compression,
    NewRecord,
    Record,
    build_batch,
    read_batch,
    rebuild_batch,
    validate_batch,
)

RECORDS: list[NewRecord] = [
    (1000, b"key", b"value" * 30, [("trace", b"\x01\x02"), ("trace", None), ("größe", b"")]),
    (900, None, None, ()),
    (1500, b"", b"", ()),
    (1500, b"k" * 5000, b"x" * 20_000, ()),
]


def plain(records: list[NewRecord], *, base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, timestamp, key, value, tuple(headers))  # type: ignore[arg-type]
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]


@pytest.mark.parametrize("codec", Compression)
def test_records_come_back_as_they_were(each_twin: ModuleType, codec: Compression) -> None:
    data = build_batch(RECORDS, compression=codec, base_offset=77, leader_epoch=3)
    batch = validate_batch(data, bytes_max=100_000)
    assert (batch.base_offset, batch.leader_epoch, batch.count, batch.last_offset) == (77, 3, 4, 80)
    assert (batch.base_timestamp, batch.max_timestamp) == (1000, 1500)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert list(batch.records()) == plain(RECORDS, base_offset=77)


def test_append_time_is_set_at_building(each_twin: ModuleType) -> None:
    batch = validate_batch(build_batch(RECORDS, log_append_time_ms=7777), bytes_max=100_000)
    assert batch.is_log_append_time
    assert (batch.base_timestamp, batch.max_timestamp) == (1000, 7777)
    assert {record.timestamp for record in batch.records()} == {7777}


def test_any_iterable_of_records_will_do(each_twin: ModuleType) -> None:
    assert build_batch(record for record in RECORDS) == build_batch(tuple(RECORDS)) == build_batch(RECORDS)


def test_the_level_reaches_the_codec() -> None:
    records: list[NewRecord] = [(i, None, b"%d" % (i * i * 7919), ()) for i in range(3000)]
    for codec, low, high in ((Compression.GZIP, 1, 9), (Compression.ZSTD, 1, 19), (Compression.LZ4, 0, 12)):
        fast = build_batch(records, compression=codec, level=low)
        small = build_batch(records, compression=codec, level=high)
        assert len(small) < len(fast)
        assert list(read_batch(small).records()) == plain(records)


def test_a_batch_without_records_is_refused(each_twin: ModuleType) -> None:
    with pytest.raises(BatchError, match="at least one record") as raised:
        build_batch([])
    assert raised.value.code is ErrorCode.INVALID_RECORD


def source(**fields: Any) -> tuple[Batch, list[Record]]:
    data = build_batch(RECORDS, base_offset=50, leader_epoch=4, **fields)
    batch = read_batch(data)
    return batch, list(batch.records())


@pytest.mark.parametrize("codec", Compression)
def test_kept_records_keep_their_offsets(each_twin: ModuleType, codec: Compression) -> None:
    batch, records = source(
        compression=codec, producer_id=9, producer_epoch=2, base_sequence=2**31 - 2, transactional=True
    )
    kept = [records[1], records[3]]
    again = read_batch(rebuild_batch(batch, kept, delete_horizon_ms=None))
    assert again.check_crc()
    assert list(again.records()) == kept
    assert (again.base_offset, again.last_offset, again.count, again.leader_epoch) == (50, 53, 2, 4)
    assert (again.producer_id, again.producer_epoch, again.base_sequence) == (9, 2, 2**31 - 2)
    assert again.last_sequence == batch.last_sequence
    assert again.attributes == batch.attributes
    assert (again.base_timestamp, again.max_timestamp) == (1000, 1500)


def test_the_greatest_timestamp_is_that_of_the_kept_ones(each_twin: ModuleType) -> None:
    batch, records = source()
    assert read_batch(rebuild_batch(batch, records[:2], delete_horizon_ms=None)).max_timestamp == 1000
    assert read_batch(rebuild_batch(batch, records[1:2], delete_horizon_ms=None)).max_timestamp == 900


def test_a_delete_horizon_takes_the_base_timestamps_place_and_moves_no_record(each_twin: ModuleType) -> None:
    batch, records = source(compression=Compression.ZSTD)
    once = read_batch(rebuild_batch(batch, records[1:], delete_horizon_ms=86_400_000))
    assert once.has_delete_horizon
    assert once.delete_horizon_ms == once.base_timestamp == 86_400_000
    assert list(once.records()) == records[1:]
    twice = read_batch(rebuild_batch(once, records[2:], delete_horizon_ms=None))
    assert twice.delete_horizon_ms == 86_400_000
    assert list(twice.records()) == records[2:]


def test_append_time_stays_when_records_go(each_twin: ModuleType) -> None:
    batch, records = source(log_append_time_ms=9999)
    again = read_batch(rebuild_batch(batch, records[:1], delete_horizon_ms=5))
    assert again.is_log_append_time
    assert again.max_timestamp == 9999
    assert list(again.records()) == records[:1]


@pytest.mark.parametrize("codec", Compression)
def test_an_emptied_batch_keeps_its_header(each_twin: ModuleType, codec: Compression) -> None:
    batch, _ = source(compression=codec, producer_id=9, producer_epoch=2, base_sequence=5)
    data = rebuild_batch(batch, [], delete_horizon_ms=None)
    again = read_batch(data)
    assert len(data) == 61
    assert again.check_crc()
    assert again.compression is Compression.NONE
    assert (again.count, again.base_offset, again.last_offset, again.last_sequence) == (0, 50, 53, 8)
    assert again.max_timestamp == batch.max_timestamp
    assert list(again.records()) == []


@pytest.mark.parametrize("offsets", [[49], [54], [51, 51], [52, 51]])
def test_offsets_outside_the_batch_or_out_of_order_are_refused(
    each_twin: ModuleType, offsets: list[int]
) -> None:
    batch, _ = source()
    with pytest.raises(BatchError, match="offset"):
        rebuild_batch(batch, [Record(offset, 0, None, b"v") for offset in offsets], delete_horizon_ms=None)


def test_the_builder_builds_what_was_appended() -> None:
    builder = BatchBuilder()
    for timestamp, key, value, headers in RECORDS:
        builder.append(timestamp, key, value, headers)
    builder.append(1, b"k", None)
    fields: BatchFields = {"base_offset": 5, "compression": Compression.GZIP}
    assert builder.count == 5
    assert builder.build(**fields) == build_batch([*RECORDS, (1, b"k", None, ())], **fields)


@pytest.mark.parametrize(
    "record",
    [
        (0, None, None, ()),
        (2**62, b"k" * 10_000, b"v" * 100_000, ()),
        (-(2**62), b"k", b"v", [("ü" * 100, b"x" * 100), ("\U0001f600" * 50, None)]),
    ],
)
def test_the_builder_never_says_less_than_the_batch_takes(record: NewRecord) -> None:
    builder = BatchBuilder()
    builder.append(0, None, None)
    sizes = [builder.append(*record) for _ in range(70)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == builder.size >= len(builder.build())
