"""Pieces to files: split by day, rolled by size, few open at once, nothing left behind by a failure."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.unit.spark.lake.kit import DAY_MS, NOON_MS, Kit, record_at

from tailrace.model import ConfigError
from tailrace.records import build_batch
from tailrace.spark.codec import Piece, decode_pieces
from tailrace.spark.lake import ROW_SCHEMA, StagedFile, Staging, Written, writing
from tailrace.spark.lake.row_file import RowFile


@pytest.fixture(autouse=True)
def lake(kit: Kit) -> None:
    kit.open("parquet")


def read(kit: Kit, written: Written) -> list[dict[str, object]]:
    return [
        row for staged in written.files for row in pq.ParquetFile(kit.root / staged.staged).read().to_pylist()
    ]


def test_every_field_of_a_record_is_in_the_file(kit: Kit) -> None:
    rows = read(kit, kit.stage(0, 30, partition=7))
    for offset, row in enumerate(rows):
        time_ms, key, value, headers = record_at(offset, time_ms=NOON_MS + offset)
        at = datetime.datetime.fromtimestamp(time_ms / 1000, tz=datetime.UTC)
        assert row == {
            "key": key,
            "value": value,
            "partition": 7,
            "offset": offset,
            "timestamp": at,
            "timestampType": 0,
            "headers": [{"key": name, "value": text} for name, text in headers],
        }
    assert len(rows) == 30


def test_a_piece_may_have_only_the_columns_that_files_take(kit: Kit) -> None:
    data = build_batch([record_at(offset) for offset in range(5)])
    pieces = decode_pieces(data, start=0, end=5, topic="orders", partition=0, headers=True, schema=ROW_SCHEMA)
    with Staging(kit.root) as staging:
        written = kit.write(staging.path, pieces)
    assert [row["offset"] for row in read(kit, written)] == list(range(5))


def test_days_go_to_files_of_their_own_in_the_order_of_offsets(kit: Kit) -> None:
    written = kit.stage(0, 40, time_ms=lambda offset: NOON_MS + (offset % 2) * DAY_MS, piece_rows=10)
    assert [(each.file.day, each.file.first_offset, each.file.last_offset) for each in written.files] == [
        ("2026-09-22", 0, 38),
        ("2026-09-23", 1, 39),
    ]
    for staged in written.files:
        offsets = pq.ParquetFile(kit.root / staged.staged).read().column("offset").to_pylist()
        assert offsets == list(range(staged.file.first_offset, 40, 2))
    assert (written.rows, written.next_offset) == (40, 40)


def test_midnight_in_utc_parts_the_days(kit: Kit) -> None:
    midnight = NOON_MS + DAY_MS // 2
    written = kit.stage(0, 4, time_ms=lambda offset: midnight - 2 + offset)
    assert [(each.file.day, each.file.rows) for each in written.files] == [
        ("2026-09-22", 2),
        ("2026-09-23", 2),
    ]


def test_records_without_a_time_have_the_day_before_1970(kit: Kit) -> None:
    written = kit.stage(0, 3, time_ms=lambda _: -1)
    assert [each.file.day for each in written.files] == ["1969-12-31"]


def test_years_beyond_the_calendar_share_its_last_day(kit: Kit) -> None:
    far = 253_402_300_800_000  # 10000-01-01
    written = kit.stage(0, 6, time_ms=lambda offset: far + (offset - 1) * DAY_MS)
    (staged,) = written.files
    assert (staged.file.day, staged.file.rows) == ("9999-12-31", 6)
    assert staged.file.max_timestamp_us == (far + 4 * DAY_MS) * 1000


def test_a_file_that_is_full_is_followed_by_another(kit: Kit) -> None:
    written = kit.stage(0, 1000, file_bytes_max=2000, piece_rows=50)
    assert len(written.files) > 3
    ranges = [(each.file.first_offset, each.file.last_offset) for each in written.files]
    assert ranges[0][0] == 0 and ranges[-1][1] == 999
    assert all(left[1] + 1 == right[0] for left, right in pairwise(ranges))
    assert [row["offset"] for row in read(kit, written)] == list(range(1000))


def test_few_files_are_open_however_many_days_there_are(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "GROUP_BYTES_MAX", 1)  # every piece is written at once
    open_now: set[str] = set()
    most = [0]

    class Counted(RowFile):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            open_now.add(self.staged)
            most[0] = max(most[0], len(open_now))

        def finish(self) -> StagedFile:
            open_now.discard(self.staged)
            return super().finish()

    monkeypatch.setattr(writing, "RowFile", Counted)
    written = kit.stage(0, 60, time_ms=lambda offset: NOON_MS + (offset % 20) * DAY_MS, piece_rows=10)
    assert most[0] <= writing.FILES_OPEN_MAX
    assert not open_now
    assert sorted(row["offset"] for row in read(kit, written)) == list(range(60))  # type: ignore[type-var]


def test_scattered_times_are_held_back_into_one_file_a_day(kit: Kit) -> None:
    written = kit.stage(0, 200, time_ms=lambda offset: NOON_MS + (offset % 20) * DAY_MS, piece_rows=10)
    assert len(written.files) == 20


def test_without_rows_there_is_no_file(kit: Kit) -> None:
    with Staging(kit.root) as staging:
        nothing = kit.write(staging.path, iter(()))
        empty = decode_pieces(b"", start=7, end=9, topic="orders", partition=0, headers=True)
        passed = kit.write(staging.path, empty)
    assert (nothing.files, nothing.next_offset, nothing.rows) == ([], -1, 0)
    assert (passed.files, passed.next_offset, passed.rows) == ([], 7, 0)


def test_a_failure_leaves_no_file_behind(kit: Kit) -> None:
    def failing() -> Iterator[Piece]:
        yield from kit.pieces(0, 100, time_ms=lambda offset: NOON_MS + (offset % 3) * DAY_MS)
        raise ConnectionError("the broker went away")

    with Staging(kit.root) as staging:
        with pytest.raises(ConnectionError):
            kit.write(staging.path, failing(), file_bytes_max=100)
        assert list(kit.root.rglob("*.staged")) == []


def test_staged_files_do_not_look_like_parquet_to_those_who_list(kit: Kit) -> None:
    kit.stage(0, 10)
    assert kit.visible() == []


@pytest.mark.parametrize("compression", writing.COMPRESSIONS)
def test_every_compression_can_be_read_back(kit: Kit, compression: str) -> None:
    written = kit.stage(0, 50, compression=compression)
    assert [row["offset"] for row in read(kit, written)] == list(range(50))


def test_an_unknown_compression_is_refused_with_those_there_are(kit: Kit) -> None:
    with pytest.raises(ConfigError, match="'rar' is not one of zstd, snappy"):
        kit.stage(0, 1, compression="rar")


def test_a_topic_that_cannot_be_a_folder_is_refused(kit: Kit) -> None:
    with Staging(kit.root) as staging, pytest.raises(ConfigError, match="cannot be a topic"):
        kit.write(staging.path, iter(()), topic="../orders")


def test_a_footer_has_statistics_where_they_help_and_no_record(kit: Kit) -> None:
    (staged,) = kit.stage(0, 50).files
    group = pq.ParquetFile(kit.root / staged.staged).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert {column.path_in_schema for column in columns if column.is_stats_set} == {
        "partition",
        "offset",
        "timestamp",
    }
