"""`format("tailrace")` beside Spark's own `format("kafka")`, on the same topics: same rows, schema, offsets.

The jars of Spark's source come from Maven and are kept in the user's cache; without them all of this is
skipped, with the reason. The broker is Tailrace and, among the heavy tests, Apache Kafka itself. One thing is
not the same, and is meant not to be: without headers a row has an empty list of them here, and null there.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bench.server.kafka import KafkaServer
from bench.server.process import HOST, NotHere

import tailrace
from tailrace.client import admin
from tailrace.client.kafka import KafkaClient
from tailrace.model import TopicPartition
from tailrace.records import Compression, NewRecord, build_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMATS = ("tailrace", "kafka")
BEGAN_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}  # though its records are old
CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
RICH, APPENDED, TRIMMED, COMPACTED = "parity-rich", "parity-appended", "parity-trimmed", "other-compacted"
STREAM_S_MAX = 120


@pytest.fixture(scope="module")
def sources(spark: SparkSession) -> SparkSession:
    """The session, knowing both formats."""
    from pyspark import __version__ as version

    from tailrace.bench.spark.connector import NoConnector, add_connector, find_connector

    try:
        add_connector(spark, find_connector(version))
    except NoConnector as error:
        pytest.skip(f"Spark's own Kafka source cannot be had: {error}")
    return spark


@pytest.fixture(scope="module", params=["tailrace", pytest.param("kafka", marks=pytest.mark.heavy)])
def bootstrap(
    request: pytest.FixtureRequest, sources: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where a broker with the topics below is."""
    place = tmp_path_factory.mktemp("parity")
    with ExitStack() as stack:
        address = _start_kafka(place, stack) if request.param == "kafka" else _start_tailrace(place, stack)
        asyncio.run(_fill(address))
        yield address


def _start_kafka(place: Path, stack: ExitStack) -> str:
    server = KafkaServer()
    try:
        server.find()
        stack.callback(server.stop)
        server.start(place)
    except NotHere as error:
        pytest.skip(str(error))
    return f"{HOST}:{server.port}"


def _start_tailrace(place: Path, stack: ExitStack) -> str:
    """With one more topic, of which compaction has taken records."""
    with tailrace.Broker(data_dir=place, configs={"retention.check.interval.ms": 50}) as broker:
        broker.create_topic(COMPACTED, 1, {"cleanup.policy": "compact", "segment.bytes": "20000"})
        for number in range(400):
            key = f"kept-{number}" if number % 10 == 0 else f"often-{number % 7}"
            broker.produce(COMPACTED, b"v" * 200, key.encode(), timestamp=BEGAN_MS + number)
        broker.close()  # a checkpoint: compaction works on what lies before one
        broker.start()
        deadline_s = time.monotonic() + 60
        while len(list(broker.read(COMPACTED))) == 400:
            assert time.monotonic() < deadline_s, "nothing was compacted"
            time.sleep(0.05)  # housekeeping has no event that reaches us
    # Another one for the tests, which compacts an hour later: nothing may change between two reads.
    quiet = {"log.cleaner.backoff.ms": 3_600_000, "retention.check.interval.ms": 3_600_000}
    return stack.enter_context(tailrace.Broker(data_dir=place, configs=quiet)).bootstrap_servers


async def _fill(address: str) -> None:
    async with KafkaClient(address) as client:
        await admin.create_topic(client, RICH, partitions=3, configs=KEPT)
        for number in range(15):
            batch = build_batch(_records(number), compression=CODECS[number % len(CODECS)])
            await client.produce(RICH, number % 3, batch)
        await admin.create_topic(
            client, APPENDED, partitions=1, configs={**KEPT, "message.timestamp.type": "LogAppendTime"}
        )
        await client.produce(APPENDED, 0, build_batch(_records(0)))
        await admin.create_topic(client, TRIMMED, partitions=1, configs=KEPT)
        for number in range(4):
            await client.produce(TRIMMED, 0, build_batch(_records(number)))
        await admin.delete_records(client, {TopicPartition(TRIMMED, 0): 25})  # in the middle of a batch


def _records(number: int) -> list[NewRecord]:
    """Ten records: with and without key, value and headers; times a second apart."""
    return [
        (
            BEGAN_MS + (number * 10 + each) * 1000 + each,
            None if each % 4 == 1 else f"key-{each}".encode(),
            None if each % 5 == 2 else b"" if each % 5 == 3 else f"value {number}.{each} ä".encode() * 9,
            _headers(each),
        )
        for each in range(10)
    ]


def _headers(each: int) -> Sequence[tuple[str, bytes | None]]:
    return [(), [("a", b"1"), ("a", None), ("ü", b"")], [("only", b"\x00\xff")]][each % 3]


# ---- batches


def read(spark: SparkSession, form: str, bootstrap: str, options: dict[str, str]) -> DataFrame:
    given = {"kafka.bootstrap.servers": bootstrap, **options}
    return spark.read.format(form).options(**given).load()


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """In the order of the log; no headers are an empty list, whoever says so."""
    rows = [tuple(row) for row in frame.orderBy("topic", "partition", "offset").collect()]
    if "headers" not in frame.columns:
        return rows
    return [(*row[:-1], row[-1] or []) for row in rows]


def offsets(**partitions: int) -> str:
    """The rich topic's, as the options want them: p0=5, p1=-1."""
    return json.dumps({RICH: {name.removeprefix("p"): at for name, at in partitions.items()}})


SECOND_30 = str(BEGAN_MS + 30_000)
READS: dict[str, dict[str, str]] = {
    "everything with headers": {"subscribe": RICH, "includeHeaders": "true"},
    "everything without headers": {"subscribe": f"{RICH},{TRIMMED}"},
    "from offsets to offsets": {
        "subscribe": RICH,
        "startingOffsets": offsets(p0=5, p1=-2, p2=49),
        "endingOffsets": offsets(p0=33, p1=10, p2=-1),
    },
    "offsets of an empty range": {
        "subscribe": RICH,
        "startingOffsets": offsets(p0=50, p1=7, p2=0),
        "endingOffsets": offsets(p0=-1, p1=7, p2=0),
    },
    "from a time on": {"subscribe": RICH, "startingTimestamp": SECOND_30},
    "from a time to a time": {
        "subscribe": RICH,
        "startingTimestamp": SECOND_30,
        "endingTimestamp": str(BEGAN_MS + 95_001),
    },
    "from times of partitions": {
        "subscribe": RICH,
        "startingOffsetsByTimestamp": offsets(p0=BEGAN_MS, p1=BEGAN_MS + 44_004, p2=BEGAN_MS + 140_000),
        "endingOffsetsByTimestamp": offsets(
            p0=BEGAN_MS + 2_000, p1=BEGAN_MS + 999_999, p2=BEGAN_MS + 149_000
        ),
    }
    | {"startingOffsetsByTimestampStrategy": "latest"},
    "topics by pattern": {"subscribePattern": "parity-.*", "includeHeaders": "true"},
    "partitions by name": {"assign": json.dumps({RICH: [0, 2], TRIMMED: [0]})},
    "in many tasks": {"subscribe": RICH, "minPartitions": "9"},
    "with the broker's timestamps": {"subscribe": APPENDED, "includeHeaders": "true"},
    "a log that begins later": {"subscribe": TRIMMED, "startingOffsets": "earliest"},
}


@pytest.mark.parametrize("case", READS)
def test_a_batch_read_gives_the_same_rows_and_schema(
    sources: SparkSession, bootstrap: str, case: str
) -> None:
    ours, theirs = (read(sources, form, bootstrap, READS[case]) for form in FORMATS)
    assert ours.schema == theirs.schema
    expected = rows_of(theirs)
    assert rows_of(ours) == expected
    assert (not expected) == (case == "offsets of an empty range")


def test_what_compaction_has_left_is_read_alike(sources: SparkSession, bootstrap: str) -> None:
    ours, theirs = (read(sources, form, bootstrap, {"subscribePattern": "other-.*"}) for form in FORMATS)
    expected = rows_of(theirs)
    if not expected:
        pytest.skip("Apache Kafka compacts when it likes: this topic is Tailrace's only")
    assert [row[4] for row in expected] != list(range(expected[0][4], expected[-1][4] + 1))  # there are gaps
    assert rows_of(ours) == expected


# What is asked, and what ours names: theirs has words of its own.
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "a topic that is not there": ({"subscribe": "parity-nowhere"}, "parity-nowhere"),
    "latest as the start of a batch": ({"subscribe": RICH, "startingOffsets": "latest"}, "startingOffsets"),
    "latest as the start of a partition": (
        {"subscribe": RICH, "startingOffsets": offsets(p0=1, p1=1, p2=-1)},
        "startingOffsets",
    ),
    "earliest as the end": ({"subscribe": RICH, "endingOffsets": "earliest"}, "endingOffsets"),
    "offsets that are no JSON": ({"subscribe": RICH, "startingOffsets": "{5"}, "startingOffsets"),
    "offsets of a partition too few": (
        {"subscribe": RICH, "startingOffsets": offsets(p0=1, p1=1)},
        "startingOffsets",
    ),
    "a time to start that is behind the end": (
        {
            "subscribe": RICH,
            "startingTimestamp": str(BEGAN_MS + 90_000),
            "endingTimestamp": SECOND_30,
        },
        "endingTimestamp",
    ),
    "times of a partition that are the wrong way round": (
        {
            "subscribe": RICH,
            "startingOffsetsByTimestamp": offsets(p0=BEGAN_MS, p1=BEGAN_MS, p2=BEGAN_MS + 9),
            "endingOffsetsByTimestamp": offsets(p0=BEGAN_MS, p1=BEGAN_MS, p2=BEGAN_MS + 8),
        },
        "endingOffsetsByTimestamp",
    ),
    "offsets of a partition that are the wrong way round": (
        {
            "subscribe": RICH,
            "startingOffsets": offsets(p0=0, p1=0, p2=9),
            "endingOffsets": offsets(p0=1, p1=1, p2=8),
        },
        "endingOffsets",
    ),
    "a start beyond the end of a log": (
        {"subscribe": RICH, "startingOffsets": offsets(p0=51, p1=40, p2=0)},
        "failOnDataLoss",
    ),
    "two ways to say which topics": ({"subscribe": RICH, "subscribePattern": "parity-.*"}, "subscribe"),
    "no topic at all": ({}, "subscribe"),
    "no number of partitions": ({"subscribe": RICH, "minPartitions": "many"}, "minPartitions"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_one_refuses_the_other_refuses_too(sources: SparkSession, bootstrap: str, case: str) -> None:
    options, named = REFUSED[case]
    with pytest.raises(Exception, match=r"."):
        read(sources, "kafka", bootstrap, options).count()
    with pytest.raises(Exception, match=named):
        read(sources, "tailrace", bootstrap, options).count()


# ---- streams


def stream(
    spark: SparkSession, form: str, bootstrap: str, place: Path, options: dict[str, str]
) -> StreamingQuery:
    """All that is there, into a table in memory that is called like the format."""
    given = {"kafka.bootstrap.servers": bootstrap, **options}
    query = (
        spark.readStream.format(form)
        .options(**given)
        .load()
        .writeStream.format("memory")
        .queryName(f"parity_{form}")
        .option("checkpointLocation", str(place / form))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(STREAM_S_MAX), "the stream did not end"
    return query


def ends_of(query: StreamingQuery) -> list[Any]:
    """Where each micro-batch with rows ended; ours says that as part of a larger object."""
    found = []
    for progress in query.recentProgress:
        if progress.numInputRows:
            end = json.loads(progress.sources[0].endOffset)
            found.append(end.get("pos", end))
    return found


STREAMS: dict[str, dict[str, str]] = {
    "everything": {"subscribe": f"{RICH},{TRIMMED}", "startingOffsets": "earliest", "includeHeaders": "true"},
    "from offsets": {"subscribe": RICH, "startingOffsets": offsets(p0=7, p1=-2, p2=-1)},
    "from a time, so many at once": {
        "subscribe": RICH,
        "startingTimestamp": SECOND_30,
        "maxOffsetsPerTrigger": "37",
    },
}


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_gives_the_same_rows_and_ends_its_batches_alike(
    sources: SparkSession, bootstrap: str, tmp_path: Path, case: str
) -> None:
    ours, theirs = (stream(sources, form, bootstrap, tmp_path, STREAMS[case]) for form in FORMATS)
    assert rows_of(sources.table("parity_tailrace")) == rows_of(sources.table("parity_kafka"))
    assert sources.table("parity_tailrace").schema == sources.table("parity_kafka").schema
    assert ends_of(ours) == ends_of(theirs)
    assert len(ends_of(theirs)) > 1 or "maxOffsetsPerTrigger" not in STREAMS[case]


TAKEN_OVER = "taken-over"


def test_a_checkpoint_of_spark_s_source_is_taken_over(sources: SparkSession, tmp_path: Path) -> None:
    """Committed batches, one that was cut short, and what came since: every record once."""
    with tailrace.Broker() as broker:
        broker.create_topic(TAKEN_OVER, 2)
        place = tmp_path / "checkpoint"
        _fill_plain(broker, count=10)
        seen = follow(sources, "kafka", broker, place)
        _fill_plain(broker, count=10)
        seen += follow(sources, "kafka", broker, place)
        latest = max((place / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        latest.unlink()  # as if it had been killed: this batch is given again
        for crc in (place / "commits").glob(f".{latest.name}.crc"):
            crc.unlink()
        again = [row for row in seen if row[1] >= 5]
        assert sorted(follow(sources, "tailrace", broker, place)) == sorted(again)
        _fill_plain(broker, count=10)
        seen += follow(sources, "tailrace", broker, place)
        assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(15)]
        assert follow(sources, "tailrace", broker, place) == []
        newest = max((place / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        assert '"ids"' in newest.read_text(encoding="utf-8")


def _fill_plain(broker: tailrace.Broker, *, count: int) -> None:
    for number in range(count):
        broker.produce(TAKEN_OVER, b"v", partition=number % 2)


def follow(
    spark: SparkSession, form: str, broker: tailrace.Broker, checkpoint: Path
) -> list[tuple[int, int]]:
    """What a query with this checkpoint reads until nothing is left: partition and offset."""
    found: list[tuple[int, int]] = []

    def keep(rows: DataFrame, _batch: int) -> None:
        found.extend((row.partition, row.offset) for row in rows.select("partition", "offset").collect())

    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": TAKEN_OVER,
        "startingOffsets": "earliest",
    }
    frame = spark.readStream.format(form).options(**options).load()
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_S_MAX), "the stream did not end"
    return found


# ---- settings of Kafka's clients


@pytest.mark.parametrize("side", ["consumer", "producer"])
def test_every_setting_of_kafka_s_clients_is_known_or_refused_with_advice(
    sources: SparkSession, side: str
) -> None:
    from tailrace.model import ConfigError
    from tailrace.spark.sink.options import read_settings
    from tailrace.spark.source.settings import includes_headers

    assert sources._jvm is not None
    loader = sources._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    name = f"org.apache.kafka.clients.{side}.{side.capitalize()}Config"
    names = loader.loadClass(name).getMethod("configNames", None).invoke(None, None)
    unknown = []
    for each in names:
        options = {"kafka.bootstrap.servers": "a:1", f"kafka.{each}": ""}
        try:
            if side == "consumer":
                includes_headers({**options, "subscribe": "orders"})
            else:
                read_settings({**options, "topic": "orders"})
        except ConfigError as error:
            if "is not known" in str(error) and not each.startswith("internal."):
                unknown.append(each)
    assert unknown == []


# ---- sinks


def test_both_sinks_write_the_same_records_to_the_same_partitions(
    sources: SparkSession, bootstrap: str
) -> None:
    from pyspark.sql import functions as f

    frame = (
        read(sources, "kafka", bootstrap, {"subscribe": RICH, "includeHeaders": "true"})
        .where("key IS NOT NULL")  # what has no key goes where either likes
        .withColumn("key", f.concat("key", f.col("offset").cast("string").cast("binary")))
    )
    for form in FORMATS:
        asyncio.run(_create(bootstrap, f"written-{form}", partitions=5))
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": f"written-{form}",
            "includeHeaders": "true",
        }
        frame.select("key", "value", "headers").write.format(form).options(**options).mode("append").save()
    written = [
        sorted(
            _plain(row)
            for row in read(
                sources, "kafka", bootstrap, {"subscribe": f"written-{form}", "includeHeaders": "true"}
            )
            .select("partition", "key", "value", "headers")
            .collect()
        )
        for form in FORMATS
    ]
    assert written[0] == written[1]
    assert len({row[0] for row in written[0]}) == 5


def test_both_sinks_take_the_topic_from_a_column(sources: SparkSession, bootstrap: str) -> None:
    for form in FORMATS:
        topics = [f"column-{form}-{number}" for number in range(2)]
        for topic in topics:
            asyncio.run(_create(bootstrap, topic, partitions=1))
        frame = sources.createDataFrame(
            [(topic, f"for {topic[-1]}") for topic in topics], "topic string, value string"
        )
        frame.write.format(form).option("kafka.bootstrap.servers", bootstrap).mode("append").save()
        found = read(sources, "kafka", bootstrap, {"subscribe": ",".join(topics)})
        assert [(row.topic, bytes(row.value)) for row in found.orderBy("topic").collect()] == [
            (topics[0], b"for 0"),
            (topics[1], b"for 1"),
        ]


def _plain(row: Any) -> tuple[int, bytes, bytes | None, str]:
    value = None if row.value is None else bytes(row.value)
    return row.partition, bytes(row.key), value, repr(row.headers or [])


async def _create(address: str, topic: str, *, partitions: int) -> None:
    async with KafkaClient(address) as client:
        await admin.create_topic(client, topic, partitions=partitions)
        await client.list_offsets(
            dict.fromkeys((TopicPartition(topic, each) for each in range(partitions)), -1)
        )
