"""From topic to topic: the revenue of every ten seconds, kept up to date while orders arrive.

    make up SPARK=1                                           # in another terminal
    .venv/bin/python examples/spark/streaming_aggregate.py    # Ctrl-C ends it; --once takes what is there
    .venv/bin/tailrace tail revenue                           # in a third terminal

Each batch writes the windows that it touched, with the window's start as the key: the newest record of a key
is the sum so far. That suits a sink that delivers at least once, because a record that is written twice says
the same thing twice. A window is given up when orders are a minute past its end (the watermark), so the state
that Spark holds does not grow. The checkpoint remembers offsets and sums: a run that was stopped, or killed,
goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ORDER = "`order` STRING, customer STRING, product STRING, quantity INT, total DECIMAL(12, 2)"


def read_orders(spark: SparkSession, *, bootstrap: str) -> DataFrame:
    """The stream of orders from the first on; a restart takes its place from the checkpoint instead."""
    records = (
        spark.readStream.format("tailrace")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    return records.select(
        "timestamp", F.from_json(F.col("value").cast("string"), ORDER).alias("data")
    ).select("timestamp", "data.*")


def revenue(orders: DataFrame) -> DataFrame:
    """Key and value as the sink wants them: text or bytes."""
    windows = (
        orders.withWatermark("timestamp", "1 minute")
        .groupBy(F.window("timestamp", "10 seconds").alias("window"))
        .agg(F.count("*").alias("orders"), F.sum("total").alias("revenue"))
    )
    start = F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return windows.select(
        start.alias("key"),
        F.to_json(F.struct(start.alias("window"), "orders", "revenue")).alias("value"),
    )


def write_windows(rows: DataFrame, _batch: int, *, bootstrap: str, topic: str) -> None:
    """One batch to the topic. Spark hands rows that update others to Python in no other way than this."""
    (
        rows.write.format("tailrace")
        .mode("append")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .save()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="the revenue of every ten seconds, from orders to revenue")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="the broker (default %(default)s)")
    parser.add_argument("--to-topic", default="revenue", help="written to (default %(default)s)")
    parser.add_argument("--checkpoint", default="./checkpoints/revenue", help="default %(default)s")
    parser.add_argument("--once", action="store_true", help="take what is there, then end")
    arguments = parser.parse_args()
    os.environ.setdefault(
        "PYSPARK_PYTHON", sys.executable
    )  # Spark's workers need this interpreter's packages
    spark = (
        SparkSession.builder.appName("streaming aggregate")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    writer = (
        revenue(read_orders(spark, bootstrap=arguments.bootstrap))
        .writeStream.outputMode("update")
        .foreachBatch(partial(write_windows, bootstrap=arguments.bootstrap, topic=arguments.to_topic))
        .option("checkpointLocation", arguments.checkpoint)
    )
    query = (writer.trigger(availableNow=True) if arguments.once else writer).start()
    print(f"orders -> {arguments.to_topic}; Ctrl-C ends it", flush=True)
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    rows = sum(progress.numInputRows for progress in query.recentProgress)
    print(f"{rows} orders were read")
    spark.stop()


if __name__ == "__main__":
    main()
