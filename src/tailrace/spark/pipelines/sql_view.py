"""Topics as views: key and value as text, and `data`, the value as its type says.

The type of `data` is declared, or guessed from the newest records (sql_types.py), and stays for as long as
the query runs. The column is not there where nothing is declared and the newest values are no JSON objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.client.admin import extents
from tailrace.model import TopicPartition
from tailrace.spark.link import BrokerLink
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.pipelines.spread import count_cores
from tailrace.spark.pipelines.sql_bad import BAD, BadRows, decode_json, settle
from tailrace.spark.pipelines.sql_schema import Shape, infer_shape, struct_text
from tailrace.spark.pipelines.sql_types import TopicType, columns_text, parse_columns
from tailrace.spark.reading import read_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.client.kafka import KafkaClient

SAMPLE_ROWS = 500
_SAMPLE_BYTES = 1024 * 1024
_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "headers")


def read_topics(link: BrokerLink) -> list[str]:
    """The names of all topics."""

    async def ask(client: KafkaClient) -> list[str]:
        return sorted(name for name, topic in (await client.metadata()).items() if not topic.error)

    return link.run(ask)


def sample_values(link: BrokerLink, topic: str) -> Iterator[bytes | None]:
    """Values of some of the newest records, from every partition."""

    async def ask(client: KafkaClient) -> dict[TopicPartition, tuple[int, int]]:
        partitions = [TopicPartition(topic, each) for each in (await client.topic(topic)).partitions]
        found = await extents(client, partitions, read_committed=True)
        return {each: (found[each].start, found[each].end) for each in partitions}

    reaches = link.run(ask)
    share = max(SAMPLE_ROWS // len(reaches), 1)
    for (name, partition), (start, end) in reaches.items():
        wanted = OffsetRange(topic=name, partition=partition, start=max(start, end - share), end=end)
        if wanted.count:
            for piece in read_range(
                link,
                wanted,
                headers=False,
                fail_on_data_loss=False,
                keeps_bad=True,
                fetch_bytes=_SAMPLE_BYTES,
            ):
                yield from piece.rows.column("value").to_pylist()


def guess_type(session: SparkSession, link: BrokerLink, topic: str, known: Shape) -> TopicType | None:
    """A type that holds the newest values of a topic and a shape; None if the topic has no values."""
    values = [value for value in sample_values(link, topic) if value is not None]
    if not values:
        return None
    shape = infer_shape(values, known)
    text = struct_text(shape)
    if text is None:
        return TopicType(origin="guessed", struct=None)
    struct = parse_columns(session, text.removeprefix("struct<").removesuffix(">"), topic=topic)
    return TopicType(origin="guessed", struct=struct, shape=shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the topics of a query are read."""

    link: BrokerLink
    starting: str
    batch_rows: int
    fail_on_data_loss: bool
    watermark: str | None
    bad_rows: BadRows


def read_topic(
    session: SparkSession,
    topic: str,
    reading: Reading,
    *,
    stream: bool,
    values: Mapping[str, str] | None = None,
) -> DataFrame:
    """The records of a topic, as its source gives them; `values` are options that decode their values."""
    reader = (session.readStream if stream else session.read).format("tailrace")
    options = {
        "kafka.bootstrap.servers": reading.link.bootstrap_servers,
        "subscribe": topic,
        "includeHeaders": "true",
        "failOnDataLoss": str(reading.fail_on_data_loss).lower(),
        "isolation.level": "read_committed",
    }
    if stream:
        options |= {
            "startingOffsets": reading.starting,
            "maxOffsetsPerTrigger": str(reading.batch_rows),
            "waitForTopics": "true",
        }
    options["parallelism"] = str(count_cores(session))
    return reader.options(**options, **(values or {})).load()


def read_decoded(
    session: SparkSession, topic: str, reading: Reading, *, stream: bool, kind: TopicType
) -> DataFrame:
    """The records of a topic with `data`, and BAD where a value does not fit."""
    struct = kind.spark_type()
    assert struct is not None, "without a type there is nothing to decode"
    if kind.is_plain_json:
        return decode_json(read_topic(session, topic, reading, stream=stream), struct)
    values = {
        "valueFormat": kind.format,
        "valueSchema": kind.definition or columns_text(struct),
        "badRows": "null",
        **({"schemaRegistry": kind.registry} if kind.registry else {}),
    }
    frame = read_topic(session, topic, reading, stream=stream, values=values)
    return frame.withColumnRenamed("dataError", BAD)


def make_view(
    session: SparkSession, topic: str, reading: Reading, *, stream: bool, kind: TopicType | None, counts: bool
) -> None:
    """Make the view of a topic in a session. `counts` has a stream count its bad rows, as `metric_of`."""
    from pyspark.sql import functions as f

    has_data = kind is not None and kind.struct is not None and (counts or kind.is_plain_json)
    if has_data:
        assert kind is not None
        frame = read_decoded(session, topic, reading, stream=stream, kind=kind)
    else:
        frame = read_topic(session, topic, reading, stream=stream)
    columns = [f.col("key").cast("string").alias("key"), f.col("value").cast("string").alias("value")]
    columns += [f.col(name) for name in _COLUMNS]
    if has_data and kind is not None:
        if stream and counts and reading.bad_rows.mode != "fail":
            frame = frame.observe(metric_of(topic), f.count(f.col(BAD)).alias("bad"))
        frame = settle(frame, reading.bad_rows, columns=kind.columns())
        columns.append(f.col("data"))
    frame = frame.select(*columns)
    if stream and reading.watermark is not None:
        frame = frame.withWatermark("timestamp", reading.watermark)
    frame.createOrReplaceTempView("`" + topic.replace("`", "``") + "`")


def metric_of(topic: str) -> str:
    """The name under which a stream counts the bad rows of a topic."""
    return f"bad rows of {topic}"
