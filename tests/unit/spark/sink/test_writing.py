"""Writers as Spark uses them, without Spark: planned, pickled, run as a task against a real broker."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import Row, datasource
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import tailrace
from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.link import close_links
from tailrace.spark.sink import batch_writer, stream_writer
from tailrace.spark.sink.delivery import Written
from tailrace.spark.sink.row_batch import batches_of_rows
from tailrace.spark.sink.writer import BatchWriter, RowStreamWriter

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
SCHEMA = StructType(
    [
        StructField("key", StringType()),
        StructField("value", BinaryType()),
        StructField("partition", IntegerType()),
        StructField("timestamp", TimestampType()),
        StructField("headers", HEADERS),
    ]
)


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        running.create_topic("orders", partitions=2)
        yield running
    close_links()


def options_for(broker: tailrace.Broker, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "orders", **more}


def batch_of(*values: str, partition: int = 0) -> pa.RecordBatch:
    count = len(values)
    return pa.record_batch(
        {
            "key": pa.array(["k"] * count),
            "value": pa.array([value.encode() for value in values]),
            "partition": pa.array([partition] * count, pa.int32()),
            "timestamp": pa.array([1_000_000] * count, pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [[{"key": "h", "value": b"x"}]] * count,
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )


def test_a_task_writes_its_rows_and_tells_the_driver(
    broker: tailrace.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    planned = batch_writer(options_for(broker), SCHEMA, overwrite=False)
    assert isinstance(planned, BatchWriter)
    writer: BatchWriter = pickle.loads(pickle.dumps(planned))
    message = writer.write(iter([batch_of("1", "2"), batch_of("3", partition=1)]))
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert message == Written(rows={first: 2, second: 1}, next_offsets={first: 2, second: 1})
    got = [
        (each.key, each.value, each.headers, each.timestamp) for each in broker.read("orders", partition=0)
    ]
    assert got == [(b"k", b"1", (("h", b"x"),), 1000), (b"k", b"2", (("h", b"x"),), 1000)]
    with caplog.at_level(logging.INFO, logger="tailrace.spark.sink"):
        writer.commit([pickle.loads(pickle.dumps(message)), None])
        writer.abort([message, None])
    assert "rows=3 partitions={'orders-0': 2, 'orders-1': 1}" in caplog.text
    assert "what arrived stays: batch=- rows=3 tasks=1" in caplog.text


def test_a_task_without_rows_writes_nothing(broker: tailrace.Broker) -> None:
    writer = batch_writer(options_for(broker), SCHEMA, overwrite=False)
    assert isinstance(writer, BatchWriter)
    assert writer.write(iter([])) == Written(rows={}, next_offsets={})


def test_overwriting_a_topic_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'Use mode\("append"\)'):
        batch_writer({"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}, SCHEMA, overwrite=True)


@pytest.mark.parametrize("make", [batch_writer, stream_writer])
def test_bad_options_and_columns_are_refused_before_any_task(make: object) -> None:
    assert callable(make)
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is missing"):
        make({"topic": "t"}, SCHEMA, False)
    with pytest.raises(ConfigError, match="no column 'value'"):
        make({"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}, StructType(), False)


def test_a_topic_is_created_where_the_broker_creates_topics(broker: tailrace.Broker) -> None:
    writer = batch_writer(options_for(broker, topic="fresh"), SCHEMA, overwrite=False)
    assert isinstance(writer, BatchWriter)
    writer.write(iter([batch_of("1")]))
    assert [record.value for record in broker.read("fresh")] == [b"1"]


def test_a_topic_that_nobody_creates_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.client.kafka.CREATE_WAIT_S", 0.3)
    with tailrace.Broker(configs={"auto.create.topics.enable": "false"}) as broker:
        writer = batch_writer(options_for(broker), SCHEMA, overwrite=False)
        assert isinstance(writer, BatchWriter)
        with pytest.raises(ConfigError, match=r"topic orders does not exist.*tailrace topic create orders"):
            writer.write(iter([batch_of("1")]))
        close_links()


def test_a_task_that_fails_sends_nothing_more(broker: tailrace.Broker) -> None:
    writer = batch_writer(options_for(broker), SCHEMA, overwrite=False)
    assert isinstance(writer, BatchWriter)

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch_of("1")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer.write(rows())
    assert list(broker.read("orders")) == []


def test_partitions_added_meanwhile_are_used(broker: tailrace.Broker) -> None:
    schema = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    writer = batch_writer(options_for(broker, topic="growing"), schema, overwrite=False)
    assert isinstance(writer, BatchWriter)
    broker.create_topic("growing", partitions=1)
    rows = pa.record_batch({"key": [str(i) for i in range(50)], "value": [b"v"] * 50})
    assert set(_written(writer.write(iter([rows]))).rows) == {TopicPartition("growing", 0)}
    _add_partitions(broker, "growing", 3)
    assert len(_written(writer.write(iter([rows]))).rows) == 3


def _written(message: WriterCommitMessage) -> Written:
    assert isinstance(message, Written)
    return message


def _add_partitions(broker: tailrace.Broker, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.create_partitions([NewPartitions(topic, total)]).values():
        done.result(30)


def test_rows_of_a_query_become_the_same_records(broker: tailrace.Broker) -> None:
    """As Spark 4.0 hands them over."""
    planned = stream_writer(options_for(broker), SCHEMA, False)
    assert isinstance(planned, datasource.DataSourceStreamArrowWriter)
    writer = RowStreamWriter(planned.sink)  # type: ignore[attr-defined]
    when = datetime(2026, 11, 16, 12, 30, 0, 123000, UTC)
    local = when.astimezone().replace(tzinfo=None)
    rows = [
        Row(key="k", value=bytearray(b"1"), partition=1, timestamp=local, headers=[Row(key="h", value=b"x")]),
        Row(key=None, value=None, partition=1, timestamp=local, headers=None),
    ]
    message = writer.write(iter(rows))
    assert _written(message).rows == {TopicPartition("orders", 1): 2}
    first, second = broker.read("orders", partition=1)
    assert (first.key, first.value, first.headers) == (b"k", b"1", (("h", b"x"),))
    assert first.timestamp == int(when.timestamp() * 1000)
    assert (second.key, second.value, second.headers) == (None, None, ())
    writer.commit([message], 0)
    writer.abort([None], 1)


def test_rows_come_in_batches_of_bounded_size_without_columns_nobody_looks_at() -> None:
    rows = [Row(value=str(number), other=object()) for number in range(25)]
    batches = list(batches_of_rows(iter(rows), rows_max=10))
    assert [batch.num_rows for batch in batches] == [10, 10, 5]
    assert batches[2].to_pydict() == {"value": [b"20", b"21", b"22", b"23", b"24"]}


def test_a_time_in_a_row_with_a_zone_of_its_own_is_the_same_instant() -> None:
    zone = timezone(timedelta(hours=5))
    (batch,) = batches_of_rows([Row(value=b"", timestamp=datetime(2026, 1, 1, 5, tzinfo=zone))])
    assert batch.column("timestamp")[0].as_py() == datetime(2026, 1, 1, tzinfo=UTC)
