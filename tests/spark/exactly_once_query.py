"""A query that writes exactly once, in a Spark of its own that is to be killed; for tests that run it.

    python -m tests.spark.exactly_once_query '{"bootstrap": "...", "folder": "...", "query": true}'

It reads the files of <folder>/in, one of them per micro-batch, and writes their lines to the topic `rows`,
with speculation and adaptive execution on. Without "query" it writes all lines as one DataFrame. It says
"batch N" as it goes on, and "done" at the end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec


def main(job: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = Path(job["folder"])
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.sql.adaptive.enabled", "true")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "10ms")
        .config("spark.speculation.multiplier", "1.01")
        .config("spark.speculation.quantile", "0.01")
        .config("spark.speculation.minTaskRuntime", "1ms")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    options = {
        "kafka.bootstrap.servers": job["bootstrap"],
        "topic": "rows",
        "delivery": "exactly-once",
    }
    if not job["query"]:
        rows = spark.read.text(str(folder / "in")).repartition(4)
        rows.write.format("tailrace").mode("append").options(**options).save()
    else:
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
        query = (
            lines.repartition(3)
            .writeStream.format("tailrace")
            .options(**options)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        said = -1
        while not query.awaitTermination(0.05):  # type: ignore[arg-type]  # it takes fractions, too
            progress = query.lastProgress
            if progress is not None and progress["batchId"] > said:
                said = progress["batchId"]
                print(f"batch {said}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1]))
