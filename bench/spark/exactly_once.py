"""The sink's two deliveries in turns: python -m bench.spark.exactly_once [--rows N] [--turns N]

A DataFrame that Spark holds in memory is written as a whole, and a topic is copied by a query in ten
micro-batches. Each turn measures both deliveries, in alternating order. The figure of a load is the median of
its turns; the ratio is the median of the ratios within a turn, so that a slow minute counts for both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.client.kafka import KafkaClient
from tailrace.client.offsets import LATEST
from tailrace.model import TopicPartition
from tailrace.spark.link import link_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELIVERIES = ("at-least-once", "exactly-once")
PARTITIONS = 4
BATCHES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="a broker that has nothing else to do")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    spark = _session()
    value = "rpad(cast(id as string), 100, 'x') as value"
    frame = spark.range(0, asked.rows, 1, 2).selectExpr("cast(id as string) as key", value).persist()
    frame.count()
    took: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        _write(frame, asked.bootstrap, topic="warm", delivery="exactly-once")  # and what the queries read
        for turn in range(-1, asked.turns):
            for delivery in DELIVERIES if turn % 2 else reversed(DELIVERIES):
                name = f"{delivery}-{turn}"
                began = time.monotonic()
                _write(frame, asked.bootstrap, topic=f"written-{name}", delivery=delivery)
                batch_s = time.monotonic() - began
                began = time.monotonic()
                _copy(spark, asked.bootstrap, Path(folder) / name, rows=asked.rows, delivery=delivery)
                stream_s = time.monotonic() - began
                if turn >= 0:  # the first turn warms up
                    took.setdefault(("batch", delivery), []).append(batch_s)
                    took.setdefault(("stream", delivery), []).append(stream_s)
                print(f"turn {turn} {delivery}: batch {batch_s:.2f} s, stream {stream_s:.2f} s", flush=True)
    for kind in ("batch", "stream"):
        ours, theirs = took[kind, "exactly-once"], took[kind, "at-least-once"]
        rates = ", ".join(
            f"{delivery} {asked.rows / statistics.median(took[kind, delivery]):,.0f} rows/s"
            for delivery in DELIVERIES
        )
        ratio = statistics.median(other / own for own, other in zip(ours, theirs, strict=True))
        print(f"{kind}: {rates}, ratio {ratio:.2f}")
    spark.stop()


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def _write(frame: DataFrame, bootstrap: str, *, topic: str, delivery: str) -> None:
    _make(bootstrap, topic)
    writer = frame.write.format("tailrace").mode("append")
    writer.option("kafka.bootstrap.servers", bootstrap).options(topic=topic, delivery=delivery).save()


def _copy(spark: SparkSession, bootstrap: str, checkpoint: Path, *, rows: int, delivery: str) -> None:
    topic = f"copied-{checkpoint.name}"
    _make(bootstrap, topic)
    read = spark.readStream.format("tailrace").option("kafka.bootstrap.servers", bootstrap)
    read = read.options(subscribe="warm", startingOffsets="earliest", maxOffsetsPerTrigger=rows // BATCHES)
    frame = read.option("isolation.level", "read_committed").load().select("key", "value")
    query = frame.writeStream.format("tailrace").option("kafka.bootstrap.servers", bootstrap)
    query = query.options(topic=topic, delivery=delivery, checkpointLocation=str(checkpoint))
    running = query.trigger(availableNow=True).start()
    if not running.awaitTermination(600):
        raise SystemExit("the query did not end within 600 s")
    if _count(bootstrap, topic) < rows:
        raise SystemExit(f"{topic} has fewer than {rows} rows")


def _make(bootstrap: str, topic: str) -> None:
    from tailrace.client.admin import create_topic

    async def make(client: KafkaClient) -> None:
        await create_topic(client, topic, partitions=PARTITIONS)

    link_to(bootstrap).run(make)


def _count(bootstrap: str, topic: str) -> int:
    """Offsets that readers of committed records see; markers of transactions are among them."""
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]

    async def ask(client: KafkaClient) -> int:
        found = await client.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)
        return sum(each.offset for each in found.values())

    return link_to(bootstrap).run(ask)


if __name__ == "__main__":
    main()
