"""Bronze: the topics as they are, every record once, with where it came from."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


def read_topic(topic: str) -> DataFrame:
    """A stream of the topic's records from the oldest on; the next run goes on where this one ends."""
    return (
        spark.readStream.format("tailrace")
        .option("kafka.bootstrap.servers", spark.conf.get("spark.tailrace.bootstrap"))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


@dp.table(comment="The topic orders, one row for each record.")
def bronze_orders() -> DataFrame:
    return read_topic("orders")


@dp.table(comment="The topic payments, one row for each record.")
def bronze_payments() -> DataFrame:
    return read_topic("payments")
