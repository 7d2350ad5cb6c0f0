"""Lakes as other people's programs read them: duckdb, pandas, polars, pyarrow, deltalake, pyiceberg."""

from __future__ import annotations

import datetime
from typing import Any

import duckdb
import pandas
import pyarrow as pa
import pyarrow.dataset
import pytest
from tests.unit.spark.lake.kit import DAY_MS, NOON_MS, Kit, record_at

from tailrace.spark.lake import Table

COUNT = 60


def fill(kit: Kit, table: Table) -> None:
    """Two partitions of one topic over three days, one of another, then a compaction."""
    kit.archive(table, 0, 30, time_ms=lambda offset: NOON_MS + (offset // 10) * DAY_MS)
    kit.archive(table, 30, COUNT, time_ms=lambda offset: NOON_MS + 2 * DAY_MS)
    kit.archive(table, 0, 5, partition=1)
    kit.archive(table, 0, 7, topic="clicks")
    day = [file for file in table.snapshot().files if file.day == "2026-09-24"]
    table.commit(kit.compaction(day))
    table.recover()


def expected(offset: int) -> tuple[Any, ...]:
    _, key, value, headers = record_at(offset)
    day = datetime.date(2026, 9, 22) + datetime.timedelta(days=min(offset // 10, 2))
    return offset, key, value, [{"key": name, "value": text} for name, text in headers], day


def check(rows: list[tuple[Any, ...]]) -> None:
    assert rows == [expected(offset) for offset in range(COUNT)]


QUERY = """select "offset", key, value, headers, dt from {source}
    where topic = 'orders' and "partition" = 0 order by "offset" """


def test_duckdb_reads_a_parquet_lake_by_its_folders(kit: Kit) -> None:
    fill(kit, kit.open("parquet"))
    source = f"read_parquet('{kit.root}/**/*.parquet', hive_partitioning = true)"
    check(duckdb.sql(QUERY.format(source=source)).fetchall())
    counts = duckdb.sql(f"select topic, count(*) from {source} group by topic order by topic").fetchall()
    assert counts == [("clicks", 7), ("orders", COUNT + 5)]


@pytest.mark.parametrize("source", ["topic=*/*/*.parquet", "topic=orders"])
def test_polars_reads_a_parquet_lake_by_its_folders(kit: Kit, source: str) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    fill(kit, kit.open("parquet"))
    rows = polars.scan_parquet(f"{kit.root}/{source}", hive_partitioning=True)
    if "*" in source:
        rows = rows.filter(polars.col("topic") == "orders")
    wanted = rows.filter(polars.col("partition") == 0).sort("offset")
    check(wanted.select("offset", "key", "value", "headers", "dt").collect().rows())


def test_duckdb_reads_times_and_their_type(kit: Kit) -> None:
    fill(kit, kit.open("parquet"))
    found = duckdb.sql(
        f"select epoch_ms(min(timestamp)), max(timestampType) from '{kit.root}/topic=clicks/**/*.parquet'"
    ).fetchall()
    assert found == [(NOON_MS, 0)]


def test_pandas_reads_a_parquet_lake_by_its_folder(kit: Kit) -> None:
    fill(kit, kit.open("parquet"))
    frame = pandas.read_parquet(kit.root)
    assert len(frame) == COUNT + 12
    orders = frame[(frame.topic == "orders") & (frame.partition == 0)].sort_values("offset")
    assert list(orders.value) == [record_at(offset)[2] for offset in range(COUNT)]
    assert str(frame.timestamp.dtype) in ("datetime64[us, UTC]", "datetime64[ns, UTC]")


def test_pyarrow_reads_a_parquet_lake_and_skips_by_day(kit: Kit) -> None:
    fill(kit, kit.open("parquet"))
    found = pa.dataset.dataset(kit.root, format="parquet", partitioning="hive")
    assert all("_tailrace" not in path for path in found.files)
    wanted = (pa.dataset.field("dt") == "2026-09-23") & (pa.dataset.field("topic") == "orders")
    assert sorted(found.to_table(filter=wanted).column("offset").to_pylist()) == list(range(10, 20))


def test_deltalake_reads_a_delta_lake(kit: Kit) -> None:
    deltalake = pytest.importorskip("deltalake")
    fill(kit, kit.open("delta"))
    found = deltalake.DeltaTable(kit.root)
    rows = found.to_pyarrow_table()
    assert rows.num_rows == COUNT + 12
    check(duckdb.sql(QUERY.format(source="rows")).fetchall())


def test_duckdb_reads_a_delta_lake_through_deltalake_and_skips_files(kit: Kit) -> None:
    deltalake = pytest.importorskip("deltalake")
    fill(kit, kit.open("delta"))
    lake = deltalake.DeltaTable(kit.root).to_pyarrow_dataset()
    assert lake is not None
    found = duckdb.sql("select count(*) from lake where topic = 'orders' and \"offset\" >= 55").fetchall()
    assert found == [(5,)]


def test_a_foreign_delta_engine_may_look_at_the_history(kit: Kit) -> None:
    deltalake = pytest.importorskip("deltalake")
    fill(kit, kit.open("delta"))
    history = deltalake.DeltaTable(kit.root).history()
    assert [each["operation"] for each in history][:2] == ["compact", "archive"]


def test_pyiceberg_reads_an_iceberg_lake(kit: Kit) -> None:
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    table = kit.open("iceberg")
    fill(kit, table)
    table.close()
    catalogue = sql.SqlCatalog("tailrace", uri=f"sqlite:///{kit.root}/_tailrace/iceberg.db")
    found = catalogue.load_table("tailrace.records")
    rows = found.scan().to_arrow()
    assert rows.num_rows == COUNT + 12
    check(duckdb.sql(QUERY.format(source="rows")).fetchall())
    few = found.scan(row_filter="topic = 'orders' and dt = '2026-09-23'", selected_fields=("offset",))
    assert sorted(few.to_arrow().column("offset").to_pylist()) == list(range(10, 20))
    assert len(list(few.plan_files())) == 1
    catalogue.close()
