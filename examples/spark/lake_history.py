"""History and now in one DataFrame: what the lake has, and from there on what only the topic has.

    make up SPARK=1                                  # in another terminal
    .venv/bin/python examples/spark/lake_history.py

A lake knows where it ends: for every partition the next offset, kept in the same commit that added the files.
So the two parts fit together without a gap and without an overlap, also while an archive is running beside
this, or when the topic no longer has what the lake keeps. The first run finds no lake and makes one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.client import KafkaClient
from tailrace.spark.lake import Snapshot, open_table
from tailrace.spark.pipelines import ArchiveConfig
from tailrace.spark.pipelines.archive import archive

TOPIC = "orders"
ORDER = "`order` STRING, customer STRING, product STRING, quantity INT, total DECIMAL(12, 2)"
EARLIEST = -2  # as an offset in startingOffsets
COLUMNS = ("partition", "offset", "timestamp", "value")


def make_lake(spark: SparkSession, *, lake: str, bootstrap: str) -> None:
    """What `tailrace pipeline run archive --topic orders --to LAKE --once` does."""
    print(f"no lake at {lake} yet: archiving {TOPIC}", flush=True)
    done = archive(ArchiveConfig(bootstrap=bootstrap, topic=(TOPIC,), to=lake, once=True), spark=spark)
    print(f"{done.rows} records archived", flush=True)


def history(spark: SparkSession, snapshot: Snapshot, *, lake: str) -> DataFrame:
    """The files of one snapshot: another commit may add files meanwhile, which are not ours to read."""
    files = [f"{lake}/{file.path}" for file in snapshot.files if file.topic == TOPIC]
    return spark.read.parquet(*files).select(*COLUMNS)


def tail(spark: SparkSession, snapshot: Snapshot, *, bootstrap: str) -> DataFrame:
    """The topic from where that snapshot ends; a partition that the lake does not have yet from its start."""
    ends = {tp.partition: end for tp, end in snapshot.ends.items() if tp.topic == TOPIC}
    partitions = asyncio.run(find_partitions(bootstrap))
    starts = {str(partition): ends.get(partition, EARLIEST) for partition in partitions}
    return (
        spark.read.format("tailrace")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", json.dumps({TOPIC: starts}))
        .load()
        .select(*COLUMNS)
    )


async def find_partitions(bootstrap: str) -> list[int]:
    async with KafkaClient(bootstrap) as client:
        return sorted((await client.topic(TOPIC)).partitions)


def by_minute(records: DataFrame) -> DataFrame:
    order = F.from_json(F.col("value").cast("string"), ORDER)
    return (
        records.groupBy(F.date_trunc("minute", "timestamp").alias("minute"))
        .agg(
            F.count("*").alias("orders"),
            F.sum(order["total"]).alias("revenue"),
            F.count(F.when(F.col("part") == "lake", 1)).alias("from_lake"),
            F.count(F.when(F.col("part") == "topic", 1)).alias("from_topic"),
        )
        .orderBy("minute")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="orders by the minute, from the lake and the live topic")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="the broker (default %(default)s)")
    parser.add_argument("--lake", default="./lake", help="the archive's folder (default %(default)s)")
    arguments = parser.parse_args()
    lake = str(Path(arguments.lake).absolute())
    os.environ.setdefault(
        "PYSPARK_PYTHON", sys.executable
    )  # Spark's workers need this interpreter's packages
    spark = (
        SparkSession.builder.appName("lake history")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    if not Path(lake).exists():
        make_lake(spark, lake=lake, bootstrap=arguments.bootstrap)
    snapshot = open_table(lake).snapshot()
    old = history(spark, snapshot, lake=lake).withColumn("part", F.lit("lake"))
    new = tail(spark, snapshot, bootstrap=arguments.bootstrap).withColumn("part", F.lit("topic"))
    records = old.unionByName(new).cache()  # one reading for both questions
    places = records.groupBy("partition").agg(
        F.count("*").alias("records"),
        F.countDistinct("offset").alias("offsets"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
    )
    places.orderBy("partition").show()
    by_minute(records).show(1_000, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
