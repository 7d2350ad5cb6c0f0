"""The first read of a session that has just started: what a person waits for after typing a query.

Each measurement is a process of its own, with a Java of its own. Starting Spark is not counted, the jars of
its Kafka source are given to every session, and the page cache of the broker is warm. Then one small topic is
counted.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

from tailrace.bench.process import run_python
from tailrace.bench.spark.connector import Connector, add_connector, find_connector
from tailrace.bench.wire.reader import LoadError


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdRead:
    """What is to be read, and by whom."""

    form: str
    bootstrap: str
    topic: str
    master: str
    records: int
    connector_for: str = ""  # the version of Spark whose Kafka source is added; none if it cannot be had


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdTimes:
    """Seconds."""

    session_s: float
    first_s: float
    second_s: float


def measure_cold(read: ColdRead) -> ColdTimes:
    """In a new process; TailraceError with its last words if that fails."""
    words = (read.form, read.bootstrap, read.topic, read.master, str(read.records), read.connector_for)
    printed = asyncio.run(run_python("tailrace.bench.spark.child", "cold", *words))
    return ColdTimes(**json.loads(printed.strip().splitlines()[-1]))


def read_cold(read: ColdRead) -> ColdTimes:
    """In this process, which has not used Spark yet."""
    from tailrace.spark.pipelines.session import open_session
    from tailrace.spark.pipelines.spark_settings import SparkSettings

    connector: Connector | None = find_connector(read.connector_for) if read.connector_for else None
    began = time.perf_counter()
    with open_session(SparkSettings(master=read.master), name="tailrace bench spark: first read") as spark:
        if connector is not None:
            add_connector(spark, connector)
        marks = [time.perf_counter()]
        for _ in range(2):
            options = {"kafka.bootstrap.servers": read.bootstrap, "subscribe": read.topic}
            found = spark.read.format(read.form).options(**options).load().count()
            if found != read.records:
                raise LoadError(f"the topic has {read.records:,} records, and {found:,} were read")
            marks.append(time.perf_counter())
    return ColdTimes(session_s=marks[0] - began, first_s=marks[1] - marks[0], second_s=marks[2] - marks[1])
