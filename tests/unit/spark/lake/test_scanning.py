"""Files back to rows: ordered over interleaved days, filtered, with the columns asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.spark.lake.kit import DAY_MS, NOON_MS, Kit, record_at

from tailrace.model import ConfigError, StorageError
from tailrace.spark.codec import KAFKA_SCHEMA
from tailrace.spark.lake import DataFile, scan_files


@pytest.fixture(autouse=True)
def lake(kit: Kit) -> None:
    kit.open("parquet")


def alternating(kit: Kit, count: int, **options: object) -> Sequence[DataFile]:
    """Offsets that change the day with each record."""
    table = kit.open()
    snapshot = kit.archive(
        table, 0, count, time_ms=lambda offset: NOON_MS + (offset % 3) * DAY_MS + offset, **options
    )
    assert len(snapshot.files) >= 3
    return snapshot.files


def noting_opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of Parquet files that are opened from now on."""
    opened: list[str] = []
    real = pq.ParquetFile

    def noting(path: str, **options: Any) -> pq.ParquetFile:
        opened.append(path)
        return real(path, **options)

    monkeypatch.setattr(pq, "ParquetFile", noting)
    return opened


def test_rows_come_back_as_they_went_in(kit: Kit) -> None:
    files = kit.archive(kit.open(), 0, 30, topic="t.1", partition=4).files
    table = pa.Table.from_batches(scan_files(kit.root, files))
    assert table.schema.equals(KAFKA_SCHEMA)
    for offset, row in enumerate(table.to_pylist()):
        _, key, value, headers = record_at(offset)
        assert (row["topic"], row["partition"], row["offset"]) == ("t.1", 4, offset)
        assert (row["key"], row["value"]) == (key, value)
        assert row["headers"] == [{"key": name, "value": text} for name, text in headers]


@pytest.mark.parametrize("batch_rows", [1, 2, 7, 1000])
def test_days_that_interleave_are_put_in_order(kit: Kit, batch_rows: int) -> None:
    assert kit.offsets(alternating(kit, 50), batch_rows=batch_rows) == list(range(50))


def test_a_file_that_lies_within_another_is_put_in_order(kit: Kit) -> None:
    days = [0, 1, 1, 1, 0]
    files = kit.archive(kit.open(), 0, 5, time_ms=lambda offset: NOON_MS + days[offset] * DAY_MS).files
    assert kit.offsets(files, batch_rows=1) == list(range(5))


def test_files_may_be_given_in_any_order(kit: Kit) -> None:
    table = kit.open()
    for start in (0, 10, 20):
        kit.archive(table, start, start + 10)
    assert kit.offsets(list(reversed(table.snapshot().files))) == list(range(30))


def test_bounds_of_time_include_their_beginning_and_not_their_end(kit: Kit) -> None:
    files = kit.archive(kit.open(), 0, 30).files
    since, until = (NOON_MS + 5) * 1000, (NOON_MS + 9) * 1000
    assert kit.offsets(files, since_us=since, until_us=until) == [5, 6, 7, 8]
    assert kit.offsets(files, since_us=until) == list(range(9, 30))
    assert kit.offsets(files, until_us=since) == list(range(5))
    assert kit.offsets(files, since_us=until, until_us=since) == []


def test_bounds_of_offsets_include_their_beginning_and_not_their_end(kit: Kit) -> None:
    files = alternating(kit, 30)
    assert kit.offsets(files, since_offset=7, until_offset=12) == [7, 8, 9, 10, 11]
    assert kit.offsets(files, since_offset=30) == []


def test_files_out_of_bounds_are_not_even_opened(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    table = kit.open()
    for start in (0, 10, 20):
        kit.archive(table, start, start + 10)
    opened = noting_opened(monkeypatch)
    assert kit.offsets(table.snapshot().files, since_us=(NOON_MS + 25) * 1000) == list(range(25, 30))
    assert [Path(path).name[7:27].lstrip("0") for path in opened] == ["20"]


def test_files_are_opened_one_after_the_other_where_they_do_not_overlap(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = kit.open()
    for start in (0, 10, 20):
        kit.archive(table, start, start + 10)
    opened = noting_opened(monkeypatch)
    rows = scan_files(kit.root, table.snapshot().files)
    next(rows)
    assert len(opened) == 1
    assert sum(each.num_rows for each in rows) == 20


def test_columns_come_in_the_order_asked_for(kit: Kit) -> None:
    files = alternating(kit, 9)
    table = pa.Table.from_batches(scan_files(kit.root, files, columns=["value", "topic"], since_offset=4))
    assert table.column_names == ["value", "topic"]
    assert table.column("topic").to_pylist() == ["orders"] * 5
    assert table.column("value").to_pylist() == [record_at(offset)[2] for offset in range(4, 9)]


def test_an_unknown_column_is_refused_with_those_there_are(kit: Kit) -> None:
    with pytest.raises(ConfigError, match=r"no column 'colour'.*key, value, topic"):
        list(scan_files(kit.root, alternating(kit, 3), columns=["colour"]))


def test_files_of_two_partitions_have_no_common_order(kit: Kit) -> None:
    table = kit.open()
    kit.archive(table, 0, 3)
    kit.archive(table, 0, 3, partition=1)
    with pytest.raises(ValueError, match="several partitions"):
        list(scan_files(kit.root, table.snapshot().files))


def test_no_files_have_no_rows(kit: Kit) -> None:
    assert list(scan_files(kit.root, [])) == []


def test_a_file_that_is_no_parquet_is_an_error_that_names_it(kit: Kit) -> None:
    (file,) = kit.archive(kit.open(), 0, 10).files
    (kit.root / file.path).write_bytes(b"not parquet at all")
    with pytest.raises(StorageError, match=r"p00000-.*no Parquet file"):
        list(scan_files(kit.root, [file]))


def test_a_file_moved_away_while_it_is_read_is_read_to_its_end(kit: Kit) -> None:
    table = kit.open()
    kit.archive(table, 0, 10)
    before = kit.archive(table, 10, 20)
    rows = scan_files(kit.root, before.files, batch_rows=3)
    seen = next(rows).column("offset").to_pylist()
    table.commit(kit.compaction(before.files))
    seen += [offset for each in rows for offset in each.column("offset").to_pylist()]
    assert seen == list(range(20))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    days=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    piece_rows=st.integers(1, 15),
    batch_rows=st.integers(1, 12),
    file_bytes_max=st.sampled_from([1, 3000, 1 << 20]),
    bounds=st.tuples(st.integers(-2, 45), st.integers(-2, 45)),
)
def test_whatever_the_days_rows_come_in_order_once(
    kit: Kit, days: list[int], piece_rows: int, batch_rows: int, file_bytes_max: int, bounds: tuple[int, int]
) -> None:
    written = kit.stage(
        0,
        len(days),
        time_ms=lambda offset: NOON_MS + days[offset] * DAY_MS,
        piece_rows=piece_rows,
        file_bytes_max=file_bytes_max,
    )
    for staged in written.files:
        target = kit.root / staged.file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        (kit.root / staged.staged).rename(target)
    found = kit.offsets(
        [staged.file for staged in written.files],
        batch_rows=batch_rows,
        since_offset=bounds[0],
        until_offset=bounds[1],
    )
    assert found == [offset for offset in range(len(days)) if bounds[0] <= offset < bounds[1]]
