"""Topics as views: key and value as text, and `data`, the value as JSON has it.

The type of `data` comes from the newest records of the topic (sql_schema.py) and stays for as long as the
query runs. It is null where a value is no JSON object, and is not there at all where the sample had none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tailrace.client.admin import extents
from tailrace.model import TopicPartition
from tailrace.spark.link import BrokerLink
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.pipelines.spread import count_cores
from tailrace.spark.pipelines.sql_schema import infer_type
from tailrace.spark.reading import read_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.client.kafka import KafkaClient

SAMPLE_ROWS = 500
_SAMPLE_BYTES = 1024 * 1024


def read_topics(link: BrokerLink) -> list[str]:
    """The names of all topics."""

    async def ask(client: KafkaClient) -> list[str]:
        return sorted(name for name, topic in (await client.metadata()).items() if not topic.error)

    return link.run(ask)


def sample_values(link: BrokerLink, topic: str) -> Iterable[bytes | None]:
    """Values of some of the newest records, from every partition."""

    async def ask(client: KafkaClient) -> dict[TopicPartition, tuple[int, int]]:
        partitions = [TopicPartition(topic, each) for each in (await client.topic(topic)).partitions]
        found = await extents(client, partitions)
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


def make_view(
    session: SparkSession,
    topic: str,
    *,
    link: BrokerLink,
    stream: bool,
    starting: str,
    batch_rows: int,
    fail_on_data_loss: bool,
    watermark: str | None,
) -> str | None:
    """Make the view of a topic in a session; the type of its `data`, if it has any."""
    reader = (session.readStream if stream else session.read).format("tailrace")
    options = {
        "kafka.bootstrap.servers": link.bootstrap_servers,
        "subscribe": topic,
        "includeHeaders": "true",
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    if stream:
        options |= {"startingOffsets": starting, "maxOffsetsPerTrigger": str(batch_rows)}
    options["parallelism"] = str(count_cores(session))
    frame = reader.options(**options).load()
    data_type = infer_type(sample_values(link, topic))
    frame = _with_text(frame, data_type)
    if stream and watermark is not None:
        frame = frame.withWatermark("timestamp", watermark)
    frame.createOrReplaceTempView("`" + topic.replace("`", "``") + "`")
    return data_type


def _with_text(frame: DataFrame, data_type: str | None) -> DataFrame:
    from pyspark.sql import functions as f

    names = ("topic", "partition", "offset", "timestamp", "timestampType", "headers")
    columns = [f.col("key").cast("string").alias("key"), f.col("value").cast("string").alias("value")]
    columns += [f.col(name) for name in names]
    if data_type is not None:
        text = f.col("value").cast("string")
        # from_json gives an object of nulls for what is no object; a null says it plainly.
        is_object = f.ltrim(text).startswith("{") & f.get_json_object(text, "$").isNotNull()
        columns.append(f.when(is_object, f.from_json(text, data_type)).alias("data"))
    return frame.select(*columns)
