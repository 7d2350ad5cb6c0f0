"""Small files to large ones, on real lakes, with a stand-in for Spark that runs tasks in this process."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from tests.spark.kill_archive import LocalSpark, as_session
from tests.unit.spark.pipelines.archive_rig import DAY_MS, NOON_MS, Row, lake_rows, some_records, table_rows

from tailrace.model import ConfigError
from tailrace.records import build_batch
from tailrace.spark.codec import decode_pieces
from tailrace.spark.lake import Advance, Change, Conflict, Staging, open_table, scan_files, write_files
from tailrace.spark.pipelines import compact_task
from tailrace.spark.pipelines.compact import CompactConfig, Compacted, compact
from tailrace.spark.pipelines.progress import Progress
from tailrace.spark.pipelines.spread import TaskFailed

FORMATS = ["parquet", "delta", "iceberg"]


def add(lake: Path, count: int, *, topic: str = "orders", partition: int = 0, at_ms: int = NOON_MS) -> None:
    """One commit of one partition, after what is there."""
    table = open_table(lake)
    tp_ends = {(tp.topic, tp.partition): end for tp, end in table.snapshot().ends.items()}
    start = tp_ends.get((topic, partition), 0)
    data = build_batch(some_records(count, at_ms=at_ms), base_offset=start)
    with Staging(lake) as staging:
        pieces = decode_pieces(
            data, start=start, end=start + count, topic=topic, partition=partition, headers=True
        )
        written = write_files(pieces, root=str(lake), staging=staging.path, topic=topic, partition=partition)
        advance = Advance(topic=topic, partition=partition, start=start, end=start + count)
        table.commit(Change(operation="archive", add=written.files, advances=[advance]))
    table.close()


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two partitions of five files, and another topic's single one."""
    return make_lake(tmp_path / "lake", "parquet")


def make_lake(place: Path, format: str) -> Path:
    open_table(place, format=format, create=True).close()
    for _ in range(5):
        add(place, 20)
        add(place, 10, partition=1)
    add(place, 5, topic="other")
    return place


def run(lake: Path, spark: LocalSpark | None = None, **fields: object) -> Compacted:
    config = replace(CompactConfig(lake=str(lake)), **fields)  # type: ignore[arg-type]
    return compact(config, spark=as_session(spark or LocalSpark()))


def test_small_files_become_one_and_every_row_stays(format: str, tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake", format)
    before = table_rows(lake)
    done = run(lake)
    assert (done.files_before, done.files_after, done.rows, done.waves) == (11, 3, 150, 1)
    assert done.bytes_after < done.bytes_before
    assert table_rows(lake) == before and len(before) == 155
    assert run(lake).waves == 0  # nothing is left to do
    add(lake, 7)
    assert len(table_rows(lake)) == 162


def test_plain_readers_find_every_row_once(lake: Path) -> None:
    before = lake_rows(lake)
    run(lake)
    assert lake_rows(lake) == before
    assert len(list(lake.glob("topic=*/**/*.parquet"))) == 3


def test_a_reader_with_an_older_snapshot_still_reads_all_of_it(lake: Path) -> None:
    files = [file for file in open_table(lake).snapshot().files if file.tp == ("orders", 0)]
    reading = scan_files(lake, files, batch_rows=16)
    first = next(reading)
    run(lake)
    assert first.num_rows + sum(batch.num_rows for batch in reading) == 100
    assert sum(batch.num_rows for batch in scan_files(lake, files)) == 100


def test_old_files_go_when_their_grace_is_over(lake: Path) -> None:
    assert run(lake, grace_h=1.0).expired_files == 0
    assert list(lake.glob("_tailrace/old/**/*.old"))
    assert run(lake, grace_h=0.0).expired_files == 10
    assert not list(lake.glob("_tailrace/old/**/*.old"))
    assert len(lake_rows(lake)) == 155


def test_one_topic_is_compacted_and_the_others_left_alone(lake: Path) -> None:
    add(lake, 5, topic="other")
    done = run(lake, topic=("other",))
    assert (done.files_before, done.files_after) == (2, 1)
    assert len(open_table(lake).snapshot().files) == 11


def test_waves_are_bounded_by_the_cores(lake: Path) -> None:
    for partition in range(2, 6):
        add(lake, 2, partition=partition)
        add(lake, 2, partition=partition)
    seen: list[Progress] = []
    config = CompactConfig(lake=str(lake))
    done = compact(config, spark=as_session(LocalSpark(cores=1)), observe=seen.append)
    assert (done.waves, done.files_after) == (3, 7)
    assert [(each.batch, each.lag) for each in seen] == [(0, 166), (1, 16), (2, 8), (3, 0)]


# ---- beside others


def test_an_archive_that_adds_files_meanwhile_is_not_in_the_way(lake: Path) -> None:
    spark = LocalSpark()
    spark.interfere = lambda _task: add(lake, 3) if spark.jobs < 4 else None
    done = run(lake, spark)
    assert (spark.jobs, done.rows) == (1, 150)
    rows = lake_rows(lake)
    assert len(rows) == 155 + 2 * 3 and len({row[:3] for row in rows}) == len(rows)


def test_another_compaction_meanwhile_makes_it_plan_again(lake: Path) -> None:
    before = lake_rows(lake)
    other, spark = LocalSpark(), LocalSpark()
    spark.interfere = lambda _task: None if other.jobs else void(run(lake, other))
    done = run(lake, spark)
    assert (other.jobs, done.waves, done.files_after) == (1, 0, 3)
    assert lake_rows(lake) == before
    assert not list(lake.glob("_tailrace/staging/*/*"))


def void(_value: object) -> None:
    """Nothing."""


def test_others_that_are_always_faster_are_a_conflict_in_the_end(lake: Path) -> None:
    spark = LocalSpark()

    def overtake(task: int) -> None:
        table = open_table(lake)
        files = [file for file in table.snapshot().files if file.tp == ("orders", 0)]
        if task == 0:
            table.commit(Change(operation="retain", remove=files[:1]))

    spark.interfere = overtake
    with pytest.raises(Conflict, match="not in the table any more"):
        run(lake, spark)
    assert spark.jobs == 4


def test_a_rewrite_with_other_rows_is_never_committed(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(*args: object, **kwargs: object) -> Iterator[object]:
        rows = iter(scan_files(*args, **kwargs))  # type: ignore[arg-type]
        yield next(rows).slice(1)
        yield from rows

    monkeypatch.setattr(compact_task, "scan_files", losing)
    version = open_table(lake).snapshot().version
    with pytest.raises(TaskFailed, match="should have 100 rows and have 99"):
        run(lake)
    assert open_table(lake).snapshot().version == version
    assert len(lake_rows(lake)) == 155


# ---- retention


def test_whole_days_past_retention_go_and_the_lakes_end_stays(format: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    open_table(lake, format=format, create=True).close()
    today_ms = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
    for days in (400, 9, 2, 0):
        add(lake, 10, at_ms=today_ms - days * DAY_MS)
    add(lake, 1, topic="timeless", at_ms=-1)
    ends = open_table(lake).snapshot().ends
    done = run(lake, retain_days=3)
    assert (done.dropped_files, done.dropped_rows, done.files_after) == (2, 20, 3)
    rows: list[Row] = table_rows(lake)
    assert [row.offset for row in rows if row.topic == "orders"] == [*range(20, 40)]
    assert [row.topic for row in rows if row.topic != "orders"] == ["timeless"]
    assert open_table(lake).snapshot().ends == ends


# ---- bad input


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("file_bytes", 1, "file_bytes is 1"),
        ("retain_days", 0, "retain_days is 0"),
        ("grace_h", -1.0, "grace_h is -1"),
        ("grace_h", float("nan"), "grace_h is nan"),
        ("topic", ("nobody",), "the lake has no topic nobody. It has orders, other"),
        ("snapshot", "s3://bucket/latest", "is no folder of this machine"),
    ],
)
def test_a_wrong_setting_is_named(field: str, value: object, told: str, lake: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        run(lake, None, **{field: value})


def test_a_folder_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no lake"):
        run(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("place", ["lake", "lake/latest", "."])
def test_a_snapshot_is_not_written_into_the_lake(place: str, lake: Path) -> None:
    with pytest.raises(ConfigError, match="lie in each other"):
        run(lake, snapshot=str((lake.parent / place).resolve()))


def test_a_snapshot_is_not_written_over_somebody_elses_files(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="is no snapshot of ours"):
        run(lake, snapshot=str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_duckdb_reads_a_compacted_lake_in_order(lake: Path) -> None:
    run(lake)
    with duckdb.connect() as base:
        (path,) = lake.glob("topic=orders/**/p00000-*.parquet")
        offsets = base.execute(f"select \"offset\" from '{path}'").fetchall()
    assert offsets == [(at,) for at in range(100)]
