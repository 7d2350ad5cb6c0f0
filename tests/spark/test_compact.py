"""compact on a real Spark: files rewritten while they are read, and snapshots of the newest of each key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import msgspec
import pytest
from tests.spark.kill_archive import LocalSpark, as_session
from tests.unit.spark.pipelines.archive_rig import Filler, Row, lake_rows, some_records, topic_rows

import tailrace
from tailrace.spark.lake import open_table, scan_files
from tailrace.spark.link import close_links
from tailrace.spark.pipelines.archive import ArchiveConfig, archive
from tailrace.spark.pipelines.compact import CompactConfig, compact
from tailrace.spark.pipelines.latest import MARKER, write_latest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def filler(broker: tailrace.Broker) -> Iterator[Filler]:
    filler = Filler(broker.bootstrap_servers)
    yield filler
    filler.close()
    close_links()


def fill_lake(broker: tailrace.Broker, lake: Path, *, batch_rows: int = 50) -> None:
    config = ArchiveConfig(
        bootstrap=broker.bootstrap_servers, topic=("orders",), to=str(lake), once=True, batch_rows=batch_rows
    )
    archive(config, spark=as_session(LocalSpark()))


def latest_of(rows: list[Row]) -> set[tuple[int, int, bytes | None, bytes | None]]:
    """What compaction would leave, found the plain way."""
    newest: dict[tuple[int, bytes], Row] = {}
    for row in sorted(rows, key=lambda row: row.offset):
        if row.key is not None:
            newest[row.partition, row.key] = row
    return {(r.partition, r.offset, r.key, r.value) for r in newest.values() if r.value is not None}


def latest_in(folder: Path) -> set[tuple[int, int, bytes | None, bytes | None]]:
    with duckdb.connect() as base:
        query = f"select partition, \"offset\", key, value from '{folder}/topic=orders/*.parquet'"
        found = base.execute(query).fetchall()
    assert len(set(found)) == len(found)
    return set(found)


def test_a_lake_is_compacted_while_it_is_read_and_the_newest_of_each_key_are_kept(
    spark: SparkSession, broker: tailrace.Broker, filler: Filler, tmp_path: Path
) -> None:
    lake, latest = tmp_path / "lake", tmp_path / "latest"
    broker.create_topic("orders", 2)
    filler.fill("orders", 0, some_records(200))
    filler.fill("orders", 1, some_records(100))
    fill_lake(broker, lake)
    table = open_table(lake)
    files = [file for file in table.snapshot().files if file.tp == ("orders", 0)]
    assert len(files) > 4
    reading = scan_files(lake, files, batch_rows=7)
    begun = next(reading).num_rows
    done = compact(CompactConfig(lake=str(lake), snapshot=str(latest)), spark=spark)
    assert done.files_after == 2 < done.files_before
    expected = topic_rows(broker, ["orders"])
    assert lake_rows(lake) == expected
    assert begun + sum(batch.num_rows for batch in reading) == 200  # as of the older snapshot
    assert spark.read.parquet(str(lake)).count() == 300
    assert latest_in(latest) == latest_of(expected) and done.latest_rows == len(latest_of(expected))


def test_a_lake_may_lie_in_a_folder_whose_name_would_be_a_pattern(
    spark: SparkSession, broker: tailrace.Broker, filler: Filler, tmp_path: Path
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, [(1, b"a", b"1", ()), (2, b"b", b"2", ()), (3, b"a", b"3", ())])
    place = tmp_path / "of [2026] {x,y}*"
    fill_lake(broker, place / "lake")
    done = compact(CompactConfig(lake=str(place / "lake"), snapshot=str(place / "latest")), spark=spark)
    assert done.latest_rows == 2


def test_a_snapshot_takes_the_place_of_the_one_before(
    spark: SparkSession, broker: tailrace.Broker, filler: Filler, tmp_path: Path
) -> None:
    lake, latest = tmp_path / "lake", tmp_path / "deep" / "latest"
    broker.create_topic("orders", 1)
    broker.produce("orders", b"old", key=b"a")
    broker.produce("orders", b"stays", key=b"b")
    fill_lake(broker, lake)
    table = open_table(lake)
    assert write_latest(spark, table, folder=str(latest), topics=()).rows == 2
    broker.produce("orders", b"new", key=b"a")
    broker.produce("orders", None, key=b"b")
    broker.produce("orders", b"nobody's", key=None)
    fill_lake(broker, lake)
    # As if killed between the two renames: the older one lies aside, and a half-written one beside it.
    latest.rename(latest.parent / ".latest.old")
    (latest.parent / ".latest.new-half").mkdir()
    assert write_latest(spark, table, folder=str(latest), topics=("orders",)).rows == 1
    assert latest_in(latest) == {(0, 2, b"a", b"new")}
    assert [path.name for path in latest.parent.iterdir()] == ["latest"]
    told = msgspec.json.decode((latest / MARKER).read_bytes())
    assert (told["rows"], told["ends"]) == (1, {"orders": {"0": 5}})
