"""`spark.read.format("tailrace")` through a real Spark: rows, columns, bounds, filters, loss and errors.

Nothing registers the source here: Spark finds it by itself.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.client import admin
from tailrace.model import TopicPartition
from tailrace.spark.link import BrokerLink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def read(spark: SparkSession, broker: tailrace.Broker, **given: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders", **given}
    return spark.read.format("tailrace").options(**options).load()


def delete_before(broker: tailrace.Broker, offset: int) -> None:
    link = BrokerLink(broker.bootstrap_servers)
    link.run(lambda client: admin.delete_records(client, {TopicPartition("orders", 0): offset}))
    link.close()


def fill(broker: tailrace.Broker, count: int, *, partitions: int = 1) -> None:
    broker.create_topic("orders", partitions=partitions)
    for i in range(count):
        broker.produce("orders", b"v%d" % i, key=b"k", partition=i % partitions)


def test_rows_are_the_records_with_nulls_headers_and_times(
    spark: SparkSession, broker: tailrace.Broker
) -> None:
    broker.create_topic("orders", partitions=2)
    broker.produce("orders", b"\xff\x00", key=None, partition=0, timestamp=1_700_000_000_123)
    broker.produce("orders", None, key=b"", partition=1, headers=[("a", b"1"), ("a", None), ("é", b"")])
    found = {(row.partition, row.offset): row for row in read(spark, broker, includeHeaders="true").collect()}
    for record in broker.read("orders"):
        row = found.pop((record.partition, record.offset))
        assert (row.topic, row.timestampType) == ("orders", 0)
        assert (row.key, row.value) == (record.key, record.value)
        assert row.timestamp == datetime.fromtimestamp(record.timestamp / 1000, UTC).replace(tzinfo=None)
        assert [(header.key, header.value) for header in row.headers] == [*record.headers]
    assert found == {}


def test_the_columns_are_those_of_spark_s_kafka_source(spark: SparkSession, broker: tailrace.Broker) -> None:
    broker.create_topic("orders")
    plain = read(spark, broker)
    assert plain.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    assert plain.count() == 0
    headers = read(spark, broker, includeHeaders="true").dtypes[-1]
    assert headers == ("headers", "array<struct<key:string,value:binary>>")


def test_a_schema_chooses_columns_their_order_and_text(spark: SparkSession, broker: tailrace.Broker) -> None:
    fill(broker, 3)
    rows = (
        spark.read.format("tailrace")
        .schema("offset LONG, value STRING")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})
        .load()
        .orderBy("offset")
        .collect()
    )
    assert [tuple(row) for row in rows] == [(0, "v0"), (1, "v1"), (2, "v2")]


def test_offsets_bound_the_read_and_tasks_share_it(spark: SparkSession, broker: tailrace.Broker) -> None:
    fill(broker, 100)
    found = read(
        spark,
        broker,
        startingOffsets='{"orders": {"0": 10}}',
        endingOffsets='{"orders": {"0": 90}}',
        minPartitions="3",
    )
    assert found.rdd.getNumPartitions() == 3
    assert sorted(row.offset for row in found.select("offset").collect()) == list(range(10, 90))


def test_filters_give_the_same_rows_pushed_down_or_not(spark: SparkSession, broker: tailrace.Broker) -> None:
    """Pushed down, there is less to read: a task has ten records at most, and the tasks are counted."""
    fill(broker, 60, partitions=3)
    wanted = "partition IN (1, 2) AND offset >= 5 AND offset < 9 AND timestamp > '2020-01-01' AND key = 'k'"

    def look() -> tuple[list[Any], int]:
        found = read(spark, broker, maxRecordsPerPartition="10")
        chosen = found.where(wanted).select("partition", "offset")
        return sorted(tuple(row) for row in chosen.collect()), chosen.rdd.getNumPartitions()

    rows = [(p, offset) for p in (1, 2) for offset in range(5, 9)]
    assert look() == (rows, 3 * 2)
    spark.conf.set(PUSHDOWN, "true")
    try:
        assert look() == (rows, 2)
    finally:
        spark.conf.unset(PUSHDOWN)


def test_records_that_are_gone_fail_the_query_or_are_passed_over(
    spark: SparkSession, broker: tailrace.Broker
) -> None:
    from pyspark.errors import PySparkException

    fill(broker, 20)
    delete_before(broker, 8)
    start = '{"orders": {"0": 3}}'
    with pytest.raises(PySparkException, match=r"orders-0 offsets 3 to 7 .*failOnDataLoss=false"):
        read(spark, broker, startingOffsets=start).count()
    assert read(spark, broker, startingOffsets=start, failOnDataLoss="false").count() == 12


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOfsets": "earliest"}, "Did you mean startingOffsets"),
        ({"assign": "{}"}, "needs one of the options subscribe, subscribePattern, assign"),
        ({"kafka.group.ip": "x"}, "Did you mean kafka.group.id"),
        ({"startingOffsets": "latest"}, "startingOffsets: a batch read cannot start at the latest"),
        ({"subscribe": "nowhere"}, "topic nowhere does not exist"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_the_fix(
    spark: SparkSession, broker: tailrace.Broker, given: dict[str, str], message: str
) -> None:
    from pyspark.errors import PySparkException

    broker.create_topic("orders")
    with pytest.raises(PySparkException, match=message):
        read(spark, broker, **given).count()
