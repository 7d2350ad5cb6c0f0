"""A topic as a DataFrame: the best-selling products of the demo's orders, as a table.

    make up SPARK=1                                  # in another terminal
    .venv/bin/python examples/spark/batch_read.py

The format `tailrace` comes with the package: nothing is imported for it, and no jar is fetched. Options and
columns are those of Spark's own Kafka source. Every run reads from the topic's first record to the last one
there is when it begins.
"""

from __future__ import annotations

import argparse
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ORDER = "`order` STRING, customer STRING, product STRING, quantity INT, total DECIMAL(12, 2)"


def read_orders(spark: SparkSession, *, bootstrap: str) -> DataFrame:
    """One row for each order; `value` is bytes until somebody says what they mean."""
    records = (
        spark.read.format("tailrace")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .load()
    )
    return records.select(
        "timestamp", F.from_json(F.col("value").cast("string"), ORDER).alias("data")
    ).select("timestamp", "data.*")


def best_sellers(orders: DataFrame) -> DataFrame:
    return (
        orders.groupBy("product")
        .agg(
            F.count("*").alias("orders"),
            F.sum("quantity").alias("pieces"),
            F.sum("total").alias("revenue"),
            F.max("timestamp").alias("last_sold_at"),
        )
        .orderBy(F.desc("revenue"), "product")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="the best-selling products of the topic orders")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="the broker (default %(default)s)")
    arguments = parser.parse_args()
    os.environ.setdefault(
        "PYSPARK_PYTHON", sys.executable
    )  # Spark's workers need this interpreter's packages
    spark = (
        SparkSession.builder.appName("batch read")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    orders = read_orders(spark, bootstrap=arguments.bootstrap).cache()  # two questions, one reading
    print(f"{orders.count()} orders")
    best_sellers(orders).show(10, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
