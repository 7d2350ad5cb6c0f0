"""A lake replayed through a real Spark: equal record by record, and resumed after its job was cut off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import tailrace
from tailrace.model import TailraceError
from tailrace.spark.codec import KAFKA_SCHEMA, Piece
from tailrace.spark.lake import Advance, Change, Staging, open_table, write_files
from tailrace.spark.pipelines import replay as replay_module
from tailrace.spark.pipelines.progress import Progress
from tailrace.spark.pipelines.replay import ReplayConfig, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = 1_700_000_000_000
ROWS = 30_000
PARTITIONS = 3


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Three partitions; every third record has headers, every fifth no key, every seventh no value."""
    root = tmp_path / "lake"
    table = open_table(root, create=True)
    with Staging(root) as staging:
        files, advances = [], []
        for partition in range(PARTITIONS):
            written = write_files(
                [Piece(rows=_rows(partition), bad=[], next_offset=ROWS)],
                root=str(root),
                staging=staging.path,
                topic="orders",
                partition=partition,
            )
            files += written.files
            advances.append(Advance(topic="orders", partition=partition, start=0, end=ROWS))
        table.commit(Change(operation="archive", add=files, advances=advances))
    table.close()
    return root


def _rows(partition: int) -> pa.RecordBatch:
    columns = {
        "key": [None if at % 5 == 0 else b"k%d" % (at % 97) for at in range(ROWS)],
        "value": [None if at % 7 == 0 else b"v%d-%d" % (partition, at) for at in range(ROWS)],
        "topic": ["orders"] * ROWS,
        "partition": [partition] * ROWS,
        "offset": range(ROWS),
        "timestamp": [(T0 + at + (at % 3) * 50) * 1000 for at in range(ROWS)],
        "timestampType": [0] * ROWS,
        "headers": [[{"key": "h", "value": b"%d" % at}] if at % 3 == 0 else [] for at in range(ROWS)],
    }
    arrays = [pa.array(columns[each.name], each.type) for each in KAFKA_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=KAFKA_SCHEMA)


def _same(broker: tailrace.Broker, topic: str) -> bool:
    for partition in range(PARTITIONS):
        expected = _rows(partition).to_pylist()
        found = list(broker.read(topic, partition=partition))
        assert len(found) == len(expected)
        for record, row in zip(found, expected, strict=True):
            headers = tuple((each["key"], each["value"]) for each in row["headers"])
            time_ms = round(row["timestamp"].timestamp() * 1000)
            assert (record.key, record.value, record.headers) == (row["key"], row["value"], headers)
            assert (record.timestamp, record.offset) == (time_ms, row["offset"])
    return True


def test_a_replay_gives_the_same_records_and_a_second_one_nothing(
    spark: SparkSession, broker: tailrace.Broker, lake: Path
) -> None:
    config = ReplayConfig(bootstrap=broker.bootstrap_servers, lake=str(lake), topic="orders")
    told: list[Progress] = []
    done = replay(config, spark=spark, observe=told.append)
    assert (done.rows, done.is_complete) == (PARTITIONS * ROWS, True)
    assert _same(broker, "orders-replay")
    assert (told[-1].rows, told[-1].lag) == (PARTITIONS * ROWS, 0)
    again = replay(config, spark=spark)
    assert (again.rows, again.skipped) == (0, PARTITIONS * ROWS)


def test_a_run_that_is_cut_off_in_its_job_is_finished_by_the_next(
    spark: SparkSession, broker: tailrace.Broker, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is cancelled when the first records have arrived; at this speed that is before the last."""
    monkeypatch.setattr(replay_module, "_POLL_S", 0.1)
    slow = ReplayConfig(bootstrap=broker.bootstrap_servers, lake=str(lake), topic="orders", speed="5x")

    def cut_off(progress: Progress) -> None:
        if progress.rows:
            spark.sparkContext.cancelAllJobs()

    with pytest.raises(TailraceError, match="Spark could not finish a job"):
        replay(slow, spark=spark, observe=cut_off)
    arrived = sum(1 for _ in broker.read("orders-replay"))
    done = replay(replace(slow, speed="max"), spark=spark)
    assert 0 < arrived < PARTITIONS * ROWS
    assert (done.is_complete, done.skipped + done.rows) == (True, PARTITIONS * ROWS)
    assert done.skipped >= arrived
    assert _same(broker, done.to_topic)
