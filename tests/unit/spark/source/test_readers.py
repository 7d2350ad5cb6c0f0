"""The readers as Spark calls them, against a broker in this process and without Spark itself."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest

import tailrace
from tailrace.client import admin
from tailrace.model import BrokerError, ConfigError, TopicPartition
from tailrace.spark.data_loss import DataLoss
from tailrace.spark.link import close_links, link_to

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from tailrace.spark.source.batch import BatchReader
from tailrace.spark.source.data_source import TailraceDataSource
from tailrace.spark.source.schema import spark_schema
from tailrace.spark.source.stream import StreamReader

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        running.create_topic("orders", partitions=2)
        yield running
        close_links()


def source(broker: tailrace.Broker, **given: str) -> TailraceDataSource:
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    if not {"subscribePattern", "assign"} & set(given):
        base["subscribe"] = "orders"
    return TailraceDataSource({**base, **given})


def batch(broker: tailrace.Broker, **given: str) -> BatchReader:
    return source(broker, **given).reader(spark_schema(headers=False))


def stream(broker: tailrace.Broker, **given: str) -> StreamReader:
    return source(broker, **given).streamReader(spark_schema(headers=False))


def fill(broker: tailrace.Broker, count: int, *, partition: int = 0, topic: str = "orders") -> None:
    for i in range(count):
        broker.produce(topic, b"%d" % i, partition=partition)


def rows(reader: BatchReader | StreamReader, parts: Any) -> list[tuple[str, int, int]]:
    """(topic, partition, offset) of everything, read by a reader that travelled to a worker."""
    worker = pickle.loads(pickle.dumps(reader))
    return sorted(
        (row["topic"], row["partition"], row["offset"])
        for part in parts
        for found in worker.read(pickle.loads(pickle.dumps(part)))
        for row in found.to_pylist()
    )


def spans(parts: Any) -> list[str]:
    return sorted(str(each) for part in parts for each in part.value)


# ---- batch


def test_a_batch_reads_every_partition_from_first_to_last(broker: tailrace.Broker) -> None:
    fill(broker, 3)
    fill(broker, 2, partition=1)
    reader = batch(broker)
    assert rows(reader, reader.partitions()) == [("orders", 0, i) for i in range(3)] + [
        ("orders", 1, i) for i in range(2)
    ]


def test_a_batch_of_nothing_has_no_tasks_and_the_one_spark_makes_of_that_is_empty(
    broker: tailrace.Broker,
) -> None:
    reader = batch(broker)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_offsets_choose_a_part(broker: tailrace.Broker) -> None:
    fill(broker, 9)
    fill(broker, 9, partition=1)
    reader = batch(
        broker,
        startingOffsets='{"orders": {"0": 2, "1": -2}}',
        endingOffsets='{"orders": {"0": -1, "1": 4}}',
    )
    assert spans(reader.partitions()) == ["orders-0 [2, 9)", "orders-1 [0, 4)"]


@pytest.mark.parametrize(
    "ending",
    [
        {},
        {"endingOffsets": '{"orders": {"0": -1, "1": -1}}'},
        {"endingOffsets": '{"orders": {"0": 7, "1": 9}}'},
    ],
    ids=["latest", "-1", "offsets beyond the end too"],
)
def test_a_batch_that_starts_beyond_the_end_of_a_log_is_a_loss_or_reads_nothing_there(
    broker: tailrace.Broker, ending: dict[str, str]
) -> None:
    fill(broker, 5)
    fill(broker, 3, partition=1)
    starts = '{"orders": {"0": 6, "1": 1}}'
    with pytest.raises(DataLoss, match=r"orders-0 .*the log ends at 5, before 6 .*failOnDataLoss=false"):
        batch(broker, startingOffsets=starts, **ending).partitions()
    reader = batch(broker, startingOffsets=starts, failOnDataLoss="false", **ending)
    assert rows(reader, reader.partitions()) == [("orders", 1, 1), ("orders", 1, 2)]


def test_a_batch_that_starts_at_the_end_of_a_log_or_after_its_own_end_has_lost_nothing(
    broker: tailrace.Broker,
) -> None:
    fill(broker, 5)
    assert batch(broker, startingOffsets='{"orders": {"0": 5, "1": 0}}').partitions() == []
    passed = batch(broker, startingOffsets='{"orders": {"0": 4, "1": 0}}', endingTimestamp="1")
    assert passed.partitions() == []


def test_a_filter_does_not_hide_that_a_batch_starts_beyond_the_end(broker: tailrace.Broker) -> None:
    from pyspark.sql.datasource import EqualTo

    fill(broker, 5)
    reader = batch(broker, startingOffsets='{"orders": {"0": 0, "1": 4}}')
    reader.narrow([EqualTo(("partition",), 0)])
    with pytest.raises(DataLoss, match="orders-1"):
        reader.partitions()


def test_times_choose_a_part(broker: tailrace.Broker) -> None:
    now_ms = time.time_ns() // 1_000_000
    for i in range(10):
        broker.produce("orders", b"x", partition=i % 2, timestamp=now_ms + i)
    reader = batch(broker, startingTimestamp=str(now_ms + 4), endingTimestamp=str(now_ms + 8))
    assert spans(reader.partitions()) == ["orders-0 [2, 4)", "orders-1 [2, 4)"]


def test_a_time_after_every_record_is_an_error_or_the_end(broker: tailrace.Broker) -> None:
    fill(broker, 3)
    late = {"startingTimestamp": str(time.time_ns() // 1_000_000 + 60_000)}
    with pytest.raises(ConfigError, match=r"startingTimestamp: orders-0 .*Strategy=latest"):
        batch(broker, **late).partitions()
    assert batch(broker, **late, startingOffsetsByTimestampStrategy="latest").partitions() == []


@pytest.mark.parametrize(
    ("offsets", "message"),
    [('{"orders": {"0": 1}}', "says nothing of orders-1"), ('{"a": {"0": 1}}', "says nothing of orders-0")],
)
def test_offsets_must_name_the_partitions_that_are_read(
    broker: tailrace.Broker, offsets: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"option startingOffsets {message}"):
        batch(broker, startingOffsets=offsets).partitions()


def test_topics_can_be_found_by_pattern_and_partitions_be_assigned(broker: tailrace.Broker) -> None:
    broker.create_topic("orders-eu")
    fill(broker, 1, topic="orders-eu")
    fill(broker, 1, partition=1)
    assert spans(batch(broker, subscribePattern="orders.*").partitions()) == [
        "orders-1 [0, 1)",
        "orders-eu-0 [0, 1)",
    ]
    assert spans(batch(broker, assign='{"orders": [1]}').partitions()) == ["orders-1 [0, 1)"]


def test_a_pattern_matches_internal_topics_where_it_is_told_to(broker: tailrace.Broker) -> None:
    link_to(broker.bootstrap_servers).run(lambda client: client.commit("group", {A: 0}))
    pattern = "__consumer_.*"
    assert batch(broker, subscribePattern=pattern).partitions() == []
    given = {"kafka.exclude.internal.topics": "false"}
    found = batch(broker, subscribePattern=pattern, **given).partitions()
    assert found
    assert all(each.startswith("__consumer_offsets-") for each in spans(found))


def test_what_does_not_exist_is_named(broker: tailrace.Broker) -> None:
    with pytest.raises(BrokerError, match="topic nowhere does not exist"):
        batch(broker, subscribe="nowhere").partitions()
    with pytest.raises(ConfigError, match="there is no partition orders-7"):
        batch(broker, assign='{"orders": [0, 7]}').partitions()


def test_large_partitions_are_cut_as_asked(broker: tailrace.Broker) -> None:
    fill(broker, 10)
    assert len(batch(broker, minPartitions="4").partitions()) == 4
    assert spans(batch(broker, maxRecordsPerPartition="4").partitions()) == [
        "orders-0 [0, 3)",
        "orders-0 [3, 6)",
        "orders-0 [6, 10)",
    ]


def test_a_schema_chooses_columns_and_text(broker: tailrace.Broker) -> None:
    broker.produce("orders", b"\xff\x00", key=None, partition=0)
    schema = StructType().add("value", "string").add("offset", "long").add("key", "string")
    reader = source(broker).reader(schema)
    (found,) = [each for part in reader.partitions() for each in reader.read(part)]
    assert found.schema.names == ["value", "offset", "key"]
    assert found.column("value").cast("binary").to_pylist() == [b"\xff\x00"]
    assert found.column("key").to_pylist() == [None]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (StructType().add("colour", "string"), "no column 'colour'"),
        (StructType().add("offset", "integer"), "'offset' is int64, not int32"),
        (StructType().add("value", "double"), "'value' is binary, not double"),
        (StructType().add("value", "string").add("value", "binary"), "has a column twice"),
    ],
)
def test_a_schema_that_records_do_not_have_is_refused(
    broker: tailrace.Broker, schema: StructType, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        source(broker).reader(schema)


def test_filters_are_taken_where_spark_offers_them_and_hidden_where_it_does_not(
    broker: tailrace.Broker,
) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual

    fill(broker, 9)
    fill(broker, 9, partition=1)
    reader = batch(broker)
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
    value = EqualTo(("value",), b"5")
    assert list(
        reader.pushFilters([EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 7), value])
    ) == [value]
    assert spans(reader.partitions()) == ["orders-1 [7, 9)"]


def test_a_filter_on_time_skips_what_is_older(broker: tailrace.Broker) -> None:
    from datetime import UTC, datetime

    from pyspark.sql.datasource import GreaterThan

    now_ms = time.time_ns() // 1_000_000
    for i in range(10):
        broker.produce("orders", b"x", partition=0, timestamp=now_ms + i)
    reader = batch(broker)
    later = GreaterThan(("timestamp",), datetime.fromtimestamp((now_ms + 6) / 1000, UTC))
    assert list(reader.pushFilters([later])) == [later]
    (only,) = reader.partitions()
    assert only.value[0].start in (5, 6)  # a float of seconds may round the millisecond down


# ---- stream


def through_json(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def test_a_stream_goes_from_batch_to_batch(broker: tailrace.Broker) -> None:
    fill(broker, 5)
    reader = stream(broker, startingOffsets="earliest")
    start = through_json(reader.initialOffset())
    end = through_json(reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert rows(reader, reader.partitions(start, end)) == [("orders", 0, i) for i in range(5)]
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    fill(broker, 2, partition=1)
    after = through_json(reader.latestOffset(end, ReadAllAvailable()))
    assert rows(reader, reader.partitions(end, after)) == [("orders", 1, 0), ("orders", 1, 1)]


def test_the_first_batch_is_the_same_after_a_restart_though_it_began_at_latest(
    broker: tailrace.Broker,
) -> None:
    fill(broker, 5)
    first = stream(broker)
    start = through_json(first.initialOffset())
    fill(broker, 3)
    end = through_json(first.latestOffset(start, ReadAllAvailable()))
    fill(broker, 4)
    again = stream(broker)
    restarted = through_json(again.initialOffset())
    assert restarted != start
    assert spans(again.partitions(restarted, end)) == ["orders-0 [5, 8)"]


def test_a_limit_bounds_a_batch_unless_spark_asks_for_everything(broker: tailrace.Broker) -> None:
    fill(broker, 10)
    fill(broker, 10, partition=1)
    reader = stream(broker, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    assert reader.latestOffset(start, ReadMaxRows(6))["pos"] == {"orders": {"0": 3, "1": 3}}
    assert reader.latestOffset(start, ReadAllAvailable())["pos"] == {"orders": {"0": 10, "1": 10}}


def test_a_limit_in_bytes_is_estimated_from_what_comes_next(broker: tailrace.Broker) -> None:
    for _ in range(40):
        broker.produce("orders", bytes(1000), partition=0)
    reader = stream(broker, startingOffsets="earliest", maxBytesPerTrigger="10000")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert 8 <= end["pos"]["orders"]["0"] <= 10


def test_a_small_batch_waits_but_the_first_one_does_not(broker: tailrace.Broker) -> None:
    fill(broker, 2)
    reader = stream(broker, startingOffsets="earliest", minOffsetsPerTrigger="3")
    assert reader.getDefaultReadLimit() == ReadMinRows(3)
    first = reader.latestOffset(reader.initialOffset(), ReadMinRows(3))
    assert first["pos"]["orders"]["0"] == 2
    fill(broker, 2)
    assert reader.latestOffset(first, ReadMinRows(3)) == first
    fill(broker, 1)
    assert reader.latestOffset(first, ReadMinRows(3))["pos"]["orders"]["0"] == 5


def test_a_small_batch_goes_when_it_has_waited_long_enough(broker: tailrace.Broker) -> None:
    reader = stream(broker, minOffsetsPerTrigger="3", maxTriggerDelay="0ms")
    start = reader.initialOffset()
    fill(broker, 1)
    first = reader.latestOffset(start, ReadMinRows(3))
    fill(broker, 1)
    assert reader.latestOffset(first, ReadMinRows(3))["pos"]["orders"]["0"] == 2


def test_available_now_ends_where_the_log_ended_then(broker: tailrace.Broker) -> None:
    fill(broker, 10)
    reader = stream(broker, startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="6")
    reader.prepareForTriggerAvailableNow()
    fill(broker, 10)
    offset = reader.initialOffset()
    seen = []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        seen.append(end["pos"]["orders"]["0"])
        offset = end
    assert seen == [6, 10]


def test_available_now_that_starts_at_latest_reads_nothing(broker: tailrace.Broker) -> None:
    fill(broker, 5)
    reader = stream(broker)
    reader.prepareForTriggerAvailableNow()
    fill(broker, 5)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start


def test_a_new_partition_is_found_and_read_from_its_beginning(broker: tailrace.Broker) -> None:
    reader = stream(broker)
    start = reader.initialOffset()
    link_to(broker.bootstrap_servers).run(lambda client: admin.add_partitions(client, "orders", 3))
    fill(broker, 2, partition=2)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert spans(reader.partitions(start, end)) == ["orders-2 [0, 2)"]


def recreate(broker: tailrace.Broker) -> None:
    link_to(broker.bootstrap_servers).run(lambda client: admin.delete_topic(client, "orders"))
    broker.create_topic("orders", partitions=2)


@pytest.mark.parametrize("count", [2, 5, 9], ids=["shorter", "as long", "longer"])
def test_a_topic_made_anew_is_a_loss_however_long_it_is(broker: tailrace.Broker, count: int) -> None:
    fill(broker, 5)
    reader = stream(broker)
    start = reader.initialOffset()
    recreate(broker)
    fill(broker, count)
    with pytest.raises(DataLoss, match=r"orders-0 offsets 5 .*failOnDataLoss=false"):
        reader.latestOffset(start, ReadAllAvailable())
    reader = stream(broker, failOnDataLoss="false")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert spans(reader.partitions(start, end)) == [f"orders-0 [0, {count})"]


def test_a_batch_that_is_given_again_is_not_read_from_a_topic_made_anew(broker: tailrace.Broker) -> None:
    fill(broker, 5)
    reader = stream(broker, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    recreate(broker)
    fill(broker, 9)
    with pytest.raises(DataLoss, match=r"orders-0 offsets 0 to 4 .*deleted and created again"):
        stream(broker).partitions(start, end)
    going_on = stream(broker, failOnDataLoss="false")
    assert spans(going_on.partitions(start, end)) == []
    following = going_on.latestOffset(end, ReadAllAvailable())
    assert spans(going_on.partitions(end, following)) == ["orders-0 [0, 9)"]


def test_a_topic_that_is_gone_is_a_loss_or_waited_for(broker: tailrace.Broker) -> None:
    fill(broker, 5)
    start = stream(broker).initialOffset()
    link_to(broker.bootstrap_servers).run(lambda client: admin.delete_topic(client, "orders"))
    with pytest.raises(DataLoss, match="does not exist any more"):
        stream(broker).latestOffset(start, ReadAllAvailable())
    assert stream(broker, failOnDataLoss="false").latestOffset(start, ReadAllAvailable()) == start


# ---- a checkpoint that format("kafka") wrote


def test_a_kafka_checkpoint_is_gone_on_with_and_ours_is_written_from_the_next_batch_on(
    broker: tailrace.Broker,
) -> None:
    fill(broker, 5)
    reader = stream(broker, startingOffsets="latest")
    start = {"orders": {"0": 3, "1": 0}}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert spans(reader.partitions(start, end)) == ["orders-0 [3, 5)"]
    assert end["pos"] == {"orders": {"0": 5, "1": 0}}
    assert end["ids"].keys() == {"orders"}


def test_a_kafka_checkpoint_without_anything_new_becomes_ours_in_an_empty_batch(
    broker: tailrace.Broker,
) -> None:
    fill(broker, 5)
    start = {"orders": {"0": 5}}  # the other partition is new
    reader = stream(broker)
    end = reader.latestOffset(start, ReadMinRows(1))
    assert (end["v"], end["pos"], end["ids"].keys()) == (1, {"orders": {"0": 5}}, {"orders"})
    assert reader.partitions(start, end) == []
    assert reader.latestOffset(end, ReadMinRows(1)) == end


def test_a_batch_that_a_kafka_checkpoint_names_is_given_again(broker: tailrace.Broker) -> None:
    fill(broker, 5)
    fill(broker, 4, partition=1)
    parts = stream(broker).partitions({"orders": {"0": 1}}, {"orders": {"0": 4, "1": 3}})
    assert spans(parts) == ["orders-0 [1, 4)", "orders-1 [0, 3)"]  # the second one was new


def test_the_first_batch_of_a_kafka_checkpoint_needs_a_start_that_does_not_move(
    broker: tailrace.Broker,
) -> None:
    fill(broker, 5)
    end = {"orders": {"0": 4, "1": 0}}
    reader = stream(broker, startingOffsets='{"orders": {"0": 2, "1": 0}}')
    assert spans(reader.partitions(reader.initialOffset(), end)) == ["orders-0 [2, 4)"]
    for moving in ("latest", '{"orders": {"0": -1, "1": 0}}'):
        reader = stream(broker, startingOffsets=moving)
        with pytest.raises(ConfigError, match="sources/0/0"):
            reader.partitions(reader.initialOffset(), end)


@pytest.mark.parametrize("fails", [True, False])
def test_a_kafka_checkpoint_beyond_the_end_of_the_log_is_a_loss(broker: tailrace.Broker, fails: bool) -> None:
    fill(broker, 5)
    start = {"orders": {"0": 9, "1": 0}}
    reader = stream(broker, failOnDataLoss=str(fails).lower())
    if fails:
        with pytest.raises(DataLoss, match="the log ends at 5, before 9"):
            reader.latestOffset(start, ReadAllAvailable())
    else:
        assert spans(reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))) == [
            "orders-0 [0, 5)"
        ]


def test_an_empty_log_that_a_kafka_checkpoint_is_beyond_of_is_read_from_its_start_when_it_grows(
    broker: tailrace.Broker,
) -> None:
    reader = stream(broker, failOnDataLoss="false")
    end = reader.latestOffset({"orders": {"0": 3, "1": 0}}, ReadAllAvailable())
    fill(broker, 5)
    following = reader.latestOffset(end, ReadAllAvailable())
    assert spans(reader.partitions(end, following)) == ["orders-0 [0, 5)"]


def test_an_older_spark_goes_on_with_a_kafka_checkpoint_too(broker: tailrace.Broker) -> None:
    fill(broker, 5)
    reader = stream(broker)
    end = reader.latestOffset()
    assert spans(reader.partitions({"orders": {"0": 2, "1": 0}}, end)) == ["orders-0 [2, 5)"]


def test_the_end_of_the_log_is_reported(broker: tailrace.Broker) -> None:
    fill(broker, 5)
    reader = stream(broker, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert reader.reportLatestOffset() is None
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
    latest = reader.reportLatestOffset()
    assert latest is not None
    assert latest["pos"] == {"orders": {"0": 5, "1": 0}}


def test_a_finished_batch_is_published_as_a_group_s_offsets(broker: tailrace.Broker) -> None:
    fill(broker, 5)
    reader = stream(broker, startingOffsets="earliest", publishGroup="reporting")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    link = link_to(broker.bootstrap_servers)
    assert link.run(lambda client: client.committed("reporting")) == {}
    reader.latestOffset(end, ReadAllAvailable())
    found = link.run(lambda client: client.committed("reporting"))
    assert {tp: each.offset for tp, each in found.items()} == {A: 5, B: 0}


def test_a_group_that_refuses_the_progress_stops_nothing(
    broker: tailrace.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    reader = stream(broker, startingOffsets="earliest", publishGroup="x" * 40_000)
    fill(broker, 1)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert "progress could not be committed" in caplog.text


def test_an_older_spark_that_tells_no_start_is_served_too(broker: tailrace.Broker) -> None:
    fill(broker, 5)
    reader = stream(broker, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    start = reader.initialOffset()
    first = reader.latestOffset()
    assert spans(reader.partitions(start, first)) == ["orders-0 [0, 3)"]
    second = reader.latestOffset()
    assert spans(reader.partitions(first, second)) == ["orders-0 [3, 5)"]
    assert reader.latestOffset() == second
    fill(broker, 1, partition=1)
    restarted = stream(broker, startingOffsets="earliest")
    third = restarted.latestOffset()
    assert spans(restarted.partitions(second, third)) == ["orders-1 [0, 1)"]


@pytest.mark.parametrize("count", [2, 5, 9], ids=["shorter", "as long", "longer"])
def test_a_topic_made_anew_while_an_older_spark_was_down_is_a_loss(
    broker: tailrace.Broker, count: int
) -> None:
    fill(broker, 5)
    stopped_at = through_json(stream(broker).initialOffset())
    recreate(broker)
    fill(broker, count)
    restarted = stream(broker)
    end = through_json(restarted.latestOffset())
    with pytest.raises(
        DataLoss, match=r"orders-0 offsets 5 .*deleted and created again.*failOnDataLoss=false"
    ):
        restarted.partitions(stopped_at, end)
    going_on = stream(broker, failOnDataLoss="false")
    assert spans(going_on.partitions(stopped_at, end)) == [f"orders-0 [0, {count})"]


def test_a_topic_deleted_while_an_older_spark_was_down_is_a_loss_or_nothing(broker: tailrace.Broker) -> None:
    fill(broker, 5)
    stopped_at = through_json(stream(broker).initialOffset())
    link_to(broker.bootstrap_servers).run(lambda client: admin.delete_topic(client, "orders"))
    restarted = stream(broker)
    end = through_json(restarted.latestOffset())
    with pytest.raises(DataLoss, match=r"orders-0 .*does not exist any more"):
        restarted.partitions(stopped_at, end)
    assert stream(broker, failOnDataLoss="false").partitions(stopped_at, end) == []


def test_an_idle_stream_waits_a_little_and_is_woken_by_a_record(broker: tailrace.Broker) -> None:
    import threading

    reader = stream(broker)
    start = reader.initialOffset()
    writer = threading.Timer(0.05, fill, (broker, 1))
    writer.start()
    deadline = time.monotonic() + 60
    while (end := reader.latestOffset(start, ReadAllAvailable())) == start:
        assert time.monotonic() < deadline
    writer.join()
    assert end["pos"]["orders"]["0"] == 1
