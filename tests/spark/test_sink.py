"""DataFrames and queries into topics, with a real Spark, read back by the broker and by another client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import tailrace

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEADLINE_S = 120
ALL_COLUMNS = (
    "key binary, value binary, partition int, timestamp timestamp,"
    " headers array<struct<key: string, value: binary>>"
)


def write(frame: DataFrame, broker: tailrace.Broker, **options: str) -> None:
    writer = frame.write.format("tailrace").mode("append")
    writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).options(**options).save()


def run_query(frame: DataFrame, broker: tailrace.Broker, checkpoint: Path, **options: str) -> None:
    """Run a query until it has written everything there is; raises what ends it."""
    mode = options.pop("outputMode", "append")
    query = (
        frame.writeStream.format("tailrace")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(DEADLINE_S)
    finally:
        query.stop()


def values_in(broker: tailrace.Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.read(topic)]


def consumed(broker: tailrace.Broker, topic: str, partition: int, count: int) -> list[Any]:
    """The first messages of a partition, as confluent-kafka reads them."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "test"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return consumer.consume(count, timeout=DEADLINE_S)
    finally:
        consumer.close()


def test_every_column_arrives_as_it_was(spark: SparkSession, broker: tailrace.Broker) -> None:
    broker.create_topic("orders", partitions=2)
    when = datetime(2026, 11, 16, 12, 30, 0, 123000, UTC)
    rows = [
        (b"k", b"v", 1, when, [("h", b"x"), ("h", None)]),
        (None, None, 1, when, []),
        (b"", b"", 1, when, None),
    ]
    write(spark.createDataFrame(rows, ALL_COLUMNS).coalesce(1), broker, topic="orders")
    time_ms = int(when.timestamp() * 1000)
    own = [
        (each.key, each.value, each.headers, each.timestamp) for each in broker.read("orders", partition=1)
    ]
    assert own == [
        (b"k", b"v", (("h", b"x"), ("h", None)), time_ms),
        (None, None, (), time_ms),
        (b"", b"", (), time_ms),
    ]
    theirs = [
        (each.key(), each.value(), each.headers(), each.timestamp()[1])
        for each in consumed(broker, "orders", 1, 3)
    ]
    assert theirs == [
        (b"k", b"v", [("h", b"x"), ("h", None)], time_ms),
        (None, None, None, time_ms),
        (b"", b"", None, time_ms),
    ]


def test_many_rows_of_many_tasks_go_where_their_keys_belong(
    spark: SparkSession, broker: tailrace.Broker
) -> None:
    broker.create_topic("orders", partitions=3)
    frame = spark.range(0, 50_000, 1, 4).selectExpr(
        "cast(id % 100 as string) as key", "cast(id as string) as value"
    )
    write(frame, broker, topic="orders", **{"kafka.compression.type": "lz4", "kafka.batch.size": "50000"})
    records = list(broker.read("orders"))
    assert sorted(int(each.value or b"") for each in records) == list(range(50_000))
    homes: dict[bytes | None, set[int]] = {}
    for each in records:
        homes.setdefault(each.key, set()).add(each.partition)
    assert len(homes) == 100 and all(len(partitions) == 1 for partitions in homes.values())
    assert homes[b"7"] == {broker.produce("orders", b"", key=b"7").partition}


def test_rows_name_their_topics(spark: SparkSession, broker: tailrace.Broker) -> None:
    frame = spark.range(10).selectExpr(
        "concat('topic-', id % 2) as topic", "cast(id as string) as value", "id as not_looked_at"
    )
    write(frame.coalesce(1), broker)
    assert values_in(broker, "topic-0") == [b"0", b"2", b"4", b"6", b"8"]
    assert values_in(broker, "topic-1") == [b"1", b"3", b"5", b"7", b"9"]


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["id as value"], {"topic": "t"}, "column 'value' is bigint and may be binary or string"),
        (["'v' as value"], {}, "Set the option topic, or add a column 'topic'"),
        (["'v' as value", "7 as partition"], {"topic": "t"}, "says 7, and topic t has partition 0 only"),
        (["'v' as value", "cast(null as string) as topic"], {}, "rows have null in column 'topic'"),
        (["'v' as value"], {"topic": "no spaces"}, "A name is 1 to 249 of"),
        (
            ["repeat('v', 2000) as value"],
            {"topic": "t", "kafka.max.request.size": "1000"},
            "row 0 alone takes",
        ),
    ],
)
def test_what_cannot_be_written_is_said(
    spark: SparkSession, broker: tailrace.Broker, columns: list[str], options: dict[str, str], said: str
) -> None:
    broker.create_topic("t")
    with pytest.raises(PySparkException, match=said):
        write(spark.range(0, 1, 1, 1).selectExpr(*columns), broker, **options)
    assert values_in(broker, "t") == []


def test_a_topic_cannot_be_overwritten(spark: SparkSession, broker: tailrace.Broker) -> None:
    writer = spark.range(1).selectExpr("'v' as value").write.format("tailrace").mode("overwrite")
    with pytest.raises(PySparkException, match=r'Use mode\("append"\)'):
        writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", "t").save()


def test_a_query_goes_on_where_it_ended(spark: SparkSession, broker: tailrace.Broker, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = spark.readStream.schema("value string").text(str(tmp_path / "in"))
    for name, text in (("a", "1\n2\n"), ("b", "3\n")):
        (tmp_path / "in" / name).write_text(text)
        run_query(lines, broker, tmp_path / "checkpoint", topic="lines", queryName="lines")
    assert sorted(values_in(broker, "lines"), key=str) == [b"1", b"2", b"3"]


def test_a_topic_is_copied_by_a_query(spark: SparkSession, broker: tailrace.Broker, tmp_path: Path) -> None:
    broker.create_topic("from", partitions=2)
    broker.create_topic("to", partitions=2)
    for number in range(20):
        headers = [("n", b"%d" % number)] if number % 3 else []
        key = b"%d" % number if number % 4 else None
        value = b"%d" % number if number % 5 else None
        broker.produce(
            "from", value, key, headers, partition=number % 2, timestamp=1_700_000_000_000 + number
        )
    source = spark.readStream.format("tailrace").option("includeHeaders", "true")
    source = source.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    rows = source.option("subscribe", "from").option("startingOffsets", "earliest").load()
    run_query(rows, broker, tmp_path / "checkpoint", topic="to")
    copied = [each._replace(topic="from") for each in broker.read("to")]
    assert copied == list(broker.read("from"))


def test_a_query_may_write_its_whole_result_each_time(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("x\ny\nx\n")
    lines = spark.readStream.schema("value string").text(str(tmp_path / "in"))
    counts = lines.groupBy("value").count().select(F.concat_ws("=", "value", "count").alias("value"))
    run_query(counts, broker, tmp_path / "complete", topic="complete", outputMode="complete")
    (tmp_path / "in" / "b").write_text("y\n")
    run_query(counts, broker, tmp_path / "complete", topic="complete", outputMode="complete")
    assert sorted(values_in(broker, "complete"), key=str) == [b"x=2", b"x=2", b"y=1", b"y=2"]


def test_a_micro_batch_that_failed_is_written_again_and_nothing_is_missing(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    broker.create_topic("rows")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("".join(f"{number}\n" for number in range(1000)))
    marker = tmp_path / "fails"
    marker.touch()
    path = str(marker)

    def fail_half_way(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        for batch in batches:
            yield batch.slice(0, 900)
            if os.path.exists(path):
                raise RuntimeError("this task fails")
            yield batch.slice(900)

    lines = spark.readStream.schema("value string").text(str(tmp_path / "in"))
    failing = lines.mapInArrow(fail_half_way, "value string")
    small = {"topic": "rows", "kafka.batch.size": "1000"}
    with pytest.raises(PySparkException, match="this task fails"):
        run_query(failing, broker, tmp_path / "checkpoint", **small)
    marker.unlink()
    run_query(failing, broker, tmp_path / "checkpoint", **small)
    counts = Counter(values_in(broker, "rows"))
    assert counts.keys() == {b"%d" % number for number in range(1000)}
    assert values_in(broker, "rows")[-1000:] == [b"%d" % number for number in range(1000)]


def test_a_query_writes_row_by_row_where_spark_is_old(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    class RowByRow(DataSource):
        @classmethod
        def name(cls) -> str:
            return "tailrace_rows"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            from tailrace.spark.sink import stream_writer
            from tailrace.spark.sink.writer import RowStreamWriter

            return RowStreamWriter(stream_writer(self.options, schema, overwrite).sink)  # type: ignore[attr-defined]

    spark.dataSource.register(RowByRow)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("1\n")
    lines = spark.readStream.schema("value string").text(str(tmp_path / "in"))
    frame = lines.selectExpr(
        "value as key",
        "cast(value as binary) as value",
        "timestamp'2026-11-16 12:30:00.123' as timestamp",
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers",
    )
    query = frame.writeStream.format("tailrace_rows").option("topic", "rows")
    query = query.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    (record,) = broker.read("rows")
    assert (record.key, record.value, record.headers) == (b"1", b"1", (("h", b"x"),))
    assert record.timestamp == int(datetime(2026, 11, 16, 12, 30, 0, 123000, UTC).timestamp() * 1000)
