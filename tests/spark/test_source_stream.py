"""`spark.readStream.format("tailrace")` through a real Spark: every record once, over restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.client import admin
from tailrace.spark.link import BrokerLink
from tailrace.testing.port import free_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S = 120

Batches = list[tuple[int, list[tuple[int, int]]]]


def fill(broker: tailrace.Broker, count: int, *, partition: int = 0) -> None:
    for _ in range(count):
        broker.produce("orders", b"v", partition=partition)


def start(
    spark: SparkSession,
    bootstrap: str,
    checkpoint: Path,
    use: Callable[[DataFrame, int], None],
    *,
    available_now: bool = True,
    **given: str,
) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "orders", **given}
    stream = spark.readStream.format("tailrace").options(**options).load()
    writer = stream.writeStream.foreachBatch(use).option("checkpointLocation", str(checkpoint))
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start()


class Collector:
    """What each batch held, as (partition, offset), by number; waits until so many rows have come."""

    def __init__(self) -> None:
        self.batches: Batches = []
        self._changed = threading.Condition()

    def __call__(self, rows: DataFrame, number: int) -> None:
        found = sorted((row.partition, row.offset) for row in rows.select("partition", "offset").collect())
        with self._changed:
            self.batches.append((number, found))
            self._changed.notify_all()

    @property
    def rows(self) -> list[tuple[int, int]]:
        return sorted(row for _, found in self.batches for row in found)

    def wait_rows(self, count: int, query: StreamingQuery) -> None:
        deadline = time.monotonic() + DEADLINE_S
        with self._changed:
            while len(self.rows) < count:
                assert query.isActive, query.exception()
                assert time.monotonic() < deadline, f"only {len(self.rows)} of {count} rows came"
                self._changed.wait(1.0)


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(DEADLINE_S)


def test_available_now_reads_all_there_is_in_batches_of_bounded_size(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    broker.create_topic("orders", partitions=2)
    fill(broker, 10)
    fill(broker, 10, partition=1)
    found = Collector()
    finish(
        start(
            spark,
            broker.bootstrap_servers,
            tmp_path / "cp",
            found,
            startingOffsets="earliest",
            maxOffsetsPerTrigger="8",
            publishGroup="counting",
        )
    )
    assert [len(rows) for _, rows in found.batches] == [8, 8, 4]
    assert found.rows == [(p, offset) for p in (0, 1) for offset in range(10)]
    link = BrokerLink(broker.bootstrap_servers)
    committed = link.run(lambda client: client.committed("counting"))
    link.close()
    assert {tp.partition: each.offset for tp, each in committed.items()} == {0: 10, 1: 10}


def test_a_query_goes_on_from_its_checkpoint_and_a_replayed_batch_is_the_same_batch(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    broker.create_topic("orders")
    options: dict[str, Any] = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    checkpoint = tmp_path / "cp"

    def run() -> Collector:
        found = Collector()
        finish(start(spark, broker.bootstrap_servers, checkpoint, found, **options))
        return found

    fill(broker, 7)
    first = run()
    assert [rows for _, rows in first.batches] == [[(0, i) for i in range(4)], [(0, i) for i in range(4, 7)]]
    fill(broker, 2)
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    again = run()
    assert again.batches == [first.batches[1], (2, [(0, 7), (0, 8)])]


def test_a_query_that_began_at_latest_and_failed_at_once_still_began_there(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    broker.create_topic("orders")
    fill(broker, 3)

    def fail(rows: DataFrame, _number: int) -> None:
        raise RuntimeError(f"this batch of {rows.count()} is lost")

    with pytest.raises(Exception, match="this batch of 0 is lost"):
        finish(start(spark, broker.bootstrap_servers, tmp_path / "cp", fail, available_now=False))
    fill(broker, 2)
    found = Collector()
    finish(start(spark, broker.bootstrap_servers, tmp_path / "cp", found))
    assert found.rows == [(0, 3), (0, 4)]


def test_a_running_query_outlives_its_broker_and_finds_new_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = Collector()
    port = free_port()
    with tailrace.Broker(data_dir=tmp_path / "broker", port=port) as broker:
        bootstrap = broker.bootstrap_servers
        broker.create_topic("orders")
        fill(broker, 5)
        query = start(
            spark, bootstrap, tmp_path / "cp", found, available_now=False, startingOffsets="earliest"
        )
        found.wait_rows(5, query)
    with tailrace.Broker(data_dir=tmp_path / "broker", port=port) as broker:
        fill(broker, 5)
        found.wait_rows(10, query)
        link = BrokerLink(bootstrap)
        link.run(lambda client: admin.add_partitions(client, "orders", 2))
        link.close()
        fill(broker, 3, partition=1)
        found.wait_rows(13, query)
        query.stop()
    assert found.rows == [*((0, offset) for offset in range(10)), *((1, offset) for offset in range(3))]


def test_a_topic_made_anew_stops_the_query_or_is_read_from_its_start(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    broker.create_topic("orders")
    fill(broker, 5)
    options: dict[str, Any] = {"startingOffsets": "earliest"}
    finish(start(spark, broker.bootstrap_servers, tmp_path / "cp", Collector(), **options))
    link = BrokerLink(broker.bootstrap_servers)
    link.run(lambda client: admin.delete_topic(client, "orders"))
    link.close()
    broker.create_topic("orders")
    fill(broker, 6)
    with pytest.raises(Exception, match=r"orders-0 offsets 5 .*failOnDataLoss=false"):
        finish(start(spark, broker.bootstrap_servers, tmp_path / "cp", Collector(), **options))
    found = Collector()
    options["failOnDataLoss"] = "false"
    finish(start(spark, broker.bootstrap_servers, tmp_path / "cp", found, **options))
    assert found.rows == [(0, offset) for offset in range(6)]


def test_options_of_a_batch_are_refused_by_a_stream(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    broker.create_topic("orders")
    with pytest.raises(Exception, match="option endingOffsets is for batch reads"):
        finish(start(spark, broker.bootstrap_servers, tmp_path / "cp", Collector(), endingOffsets="latest"))
