"""archive on a real Spark: what three plain readers find, workers that die, and a driver that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pandas
import pytest
from tests.unit.spark.pipelines.archive_rig import (
    DAY_MS,
    NOON_MS,
    Filler,
    Row,
    lake_rows,
    some_records,
    topic_rows,
)

import tailrace
from tailrace.records import Compression
from tailrace.spark.link import close_links
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.pipelines import archive as archiving
from tailrace.spark.pipelines.archive import ArchiveConfig, archive
from tailrace.spark.pipelines.archive_task import ArchiveWork, TaskWritten, write_ranges
from tailrace.spark.pipelines.progress import Progress
from tailrace.spark.pipelines.spread import SparkFailed, TaskFailed, count_cores, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
TOPICS = ("orders", "payments.eu", "17")


@pytest.fixture
def filler(broker: tailrace.Broker) -> Iterator[Filler]:
    filler = Filler(broker.bootstrap_servers)
    yield filler
    filler.close()
    close_links()


@pytest.fixture
def config(broker: tailrace.Broker, tmp_path: Path) -> ArchiveConfig:
    return ArchiveConfig(
        bootstrap=broker.bootstrap_servers, topic=("orders",), to=str(tmp_path / "lake"), once=True
    )


def test_three_readers_find_in_the_lake_what_is_in_the_topics(
    spark: SparkSession, broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 3)
    broker.create_topic("payments.eu", 1)
    broker.create_topic("17", 1)
    for partition, codec in enumerate([Compression.ZSTD, Compression.SNAPPY, Compression.GZIP]):
        filler.fill("orders", partition, some_records(400, step_ms=DAY_MS // 150), compression=codec)
    filler.fill("payments.eu", 0, some_records(200), compression=Compression.LZ4)
    filler.fill("17", 0, some_records(30, at_ms=NOON_MS - 900 * DAY_MS))
    seen: list[Progress] = []
    done = archive(replace(config, topic=TOPICS, batch_rows=800), spark=spark, observe=seen.append)
    assert (done.rows, done.batches, done.bad) == (1430, 2, ())
    assert (seen[-1].rows, seen[-1].lag) == (1430, 0)
    expected = topic_rows(broker, TOPICS)
    assert lake_rows(Path(config.to)) == expected
    assert pandas_rows(config.to) == expected
    assert spark_rows(spark, config.to) == expected


def pandas_rows(lake: str) -> list[Row]:
    frame = pandas.read_parquet(lake, partitioning="hive")
    rows = [
        Row(
            str(row.topic),
            row.partition,
            row.offset,
            row.timestamp.value // 1_000_000,
            row.key,
            row.value,
            tuple((header["key"], header["value"]) for header in row.headers),
        )
        for row in frame.itertuples(index=False)
    ]
    return sorted(rows, key=lambda row: row[:3])


def spark_rows(spark: SparkSession, lake: str) -> list[Row]:
    """Without a schema: what Spark finds out by itself has to do."""
    frame = spark.read.parquet(lake)
    found = frame.selectExpr(
        "cast(topic as string)", "partition", "offset", "unix_millis(timestamp)", "key", "value", "headers"
    ).collect()
    rows = [
        Row(
            row[0],
            row[1],
            row[2],
            row[3],
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            tuple((h.key, None if h.value is None else bytes(h.value)) for h in row.headers),
        )
        for row in found
    ]
    return sorted(rows, key=lambda row: row[:3])


def test_spark_says_how_many_cores_it_has(spark: SparkSession) -> None:
    assert count_cores(spark) == 2


def test_an_error_of_a_worker_arrives_in_its_own_words(spark: SparkSession) -> None:
    work = ArchiveWork(
        bootstrap="127.0.0.1:1",
        root="/nowhere",
        staging="_tailrace/staging/x",
        file_bytes_max=1 << 20,
        compression="zstd",
        read_committed=True,
    )
    wanted = [OffsetRange(topic="../orders", partition=0, start=0, end=1)]
    with pytest.raises(TaskFailed, match=r"^'\.\./orders' cannot be a topic[^\n]*$") as failed:
        spread(spark, partial(write_ranges, work), [wanted], result=TaskWritten)
    assert (failed.value.kind, failed.value.retriable) == ("ConfigError", False)


def die_first(mark: str, work: ArchiveWork, ranges: Sequence[OffsetRange]) -> TaskWritten:
    """Write everything, and the first time end the worker before it can say so."""
    written = write_ranges(work, ranges)
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return written
    os._exit(1)


def test_a_worker_that_dies_after_writing_leaves_no_record_twice(
    spark: SparkSession,
    broker: tailrace.Broker,
    filler: Filler,
    config: ArchiveConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(100))
    mark = tmp_path / "died"
    monkeypatch.setattr(archiving, "write_ranges", partial(die_first, str(mark)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    seen: list[Progress] = []
    done = archive(config, spark=spark, observe=seen.append)
    assert mark.exists() and "trying again" in seen[1].note
    assert done.rows == 100
    assert lake_rows(Path(config.to)) == topic_rows(broker, ["orders"])
    assert not list(Path(config.to, "_tailrace", "staging").glob("*/*"))


def break_down(_task: int) -> int:
    raise ZeroDivisionError("a bug of ours")


def test_a_bug_in_a_worker_is_told_in_one_line(spark: SparkSession) -> None:
    with pytest.raises(
        SparkFailed, match=r"^Spark could not finish a job: ZeroDivisionError: a bug of ours$"
    ):
        spread(spark, break_down, [1], result=int)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "in_sight", "left"),
    [
        ("staged", False, 400),  # in no commit
        ("logged", False, 0),  # committed, and not in the folders yet
        ("moved", True, 0),
    ],
)
def test_a_driver_killed_at_a_step_of_its_commit_is_mended_by_the_next_run(
    spark: SparkSession,
    broker: tailrace.Broker,
    filler: Filler,
    config: ArchiveConfig,
    step: str,
    in_sight: bool,
    left: int,
) -> None:
    broker.create_topic("orders", 2)
    filler.fill("orders", 0, some_records(300))
    filler.fill("orders", 1, some_records(100))
    settings = {"bootstrap": config.bootstrap, "topic": ["orders"], "to": config.to, "once": True}
    # Its first commit says where it begins, and adds nothing.
    job = {"pipeline": "archive", "config": settings, "step": step, "nth": 2, "master": "local[1]"}
    killed = subprocess.run(
        [sys.executable, "-m", "tests.spark.kill_archive", msgspec.json.encode(job).decode()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    expected = topic_rows(broker, ["orders"])
    assert lake_rows(Path(config.to)) == (expected if in_sight else [])
    assert archive(config, spark=spark).rows == left
    assert lake_rows(Path(config.to)) == expected
