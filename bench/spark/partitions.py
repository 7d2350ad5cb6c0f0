"""What partitions and wide rows cost: python -m bench.spark.partitions [--rounds N] [--partitions 1,16]

For each number of partitions a topic of small records is read as a stream in micro-batches of 1,000 records,
by Tailrace's source and by Spark's own, in alternating order; the figure is the median trigger of the median
round. Then a topic of 1 KiB values is read to a sink that drops the rows, and the figure is the processor
time of the driver, of Java and of the Python workers, without the broker's.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.server.process import HOST
from bench.server.tailrace import TailraceServer
from tailrace.bench.spark.connector import NoConnector, add_connector, find_connector
from tailrace.bench.spark.filling import fill_topic
from tailrace.bench.spark.load import OURS, THEIRS, Scene, count, to_noop
from tailrace.bench.spark.micro_batch import BATCH_ROWS, measure_trigger_ms
from tailrace.bench.wire.accounting import tree_usage
from tailrace.bench.wire.reader import LoadError
from tailrace.bench.wire.subject import Subject, create_topic, delete_topic, find_subject
from tailrace.spark.pipelines.session import check_spark, open_session
from tailrace.spark.pipelines.spark_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = "1,16,128,1000"
_BATCHES = 15
_WARM_BATCHES = 10  # of measure_trigger_ms, with room to spare
_WIDE_ROWS = 500_000
_WIDE_BYTES = 1_024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--partitions", default=PARTITIONS)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    server = TailraceServer(fsync="commit")
    server.find()
    with tempfile.TemporaryDirectory(prefix="spark-", dir=Path.cwd()) as made:
        server.start(Path(made) / "broker")
        try:
            subject = find_subject(f"{HOST}:{server.port}", timeout_s=30.0)
            with open_session(SparkSettings(master="local[2]"), name="cost of partitions") as spark:
                forms = _forms(spark)
                for partitions in map(int, asked.partitions.split(",")):
                    with _scene(spark, subject, Path(made), partitions=partitions) as scene:
                        _print_triggers(scene, forms, rounds=asked.rounds)
                with _scene(
                    spark, subject, Path(made), partitions=2, records=_WIDE_ROWS, value_bytes=_WIDE_BYTES
                ) as scene:
                    _print_cpu(scene, forms, server, rounds=asked.rounds)
        finally:
            server.stop()


def _forms(spark: SparkSession) -> Sequence[str]:
    try:
        add_connector(spark, find_connector(check_spark()))
    except NoConnector as error:
        print(f"Spark's own source is not measured: {error}")
        return (OURS,)
    return (OURS, THEIRS)


@contextmanager
def _scene(
    spark: SparkSession,
    subject: Subject,
    place: Path,
    *,
    partitions: int,
    records: int = BATCH_ROWS * (_BATCHES + _WARM_BATCHES),
    value_bytes: int = 100,
) -> Iterator[Scene]:
    """A topic with records in all of its partitions."""
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    create_topic(subject, topic, partitions=partitions)
    fill_topic(subject.bootstrap, topic, partitions=partitions, records=records, value_bytes=value_bytes)
    try:
        yield Scene(
            spark=spark, subject=subject, topic=topic, partitions=partitions, records=records, place=place
        )
    finally:
        delete_topic(subject, topic)


def _print_triggers(scene: Scene, forms: Sequence[str], *, rounds: int) -> None:
    found: dict[str, list[float]] = {form: [] for form in forms}
    for number in range(rounds):
        for form in forms if number % 2 else reversed(forms):
            try:
                found[form].append(measure_trigger_ms(scene, form, batches=_BATCHES))
            except LoadError as error:
                print(f"{form} over {scene.partitions:,} partitions is not measured: {error}")
    _print(f"micro-batch of {BATCH_ROWS:,} over {scene.partitions:,} partitions, ms", found)


def _print_cpu(scene: Scene, forms: Sequence[str], server: TailraceServer, *, rounds: int) -> None:
    found: dict[str, list[float]] = {form: [] for form in forms}
    for form in forms:
        count(scene, form)  # warms up
    for number in range(rounds):
        for form in forms if number % 2 else reversed(forms):
            began = _cpu_s(server)
            to_noop(scene, form)
            found[form].append(_cpu_s(server) - began)
    _print(f"{scene.records:,} rows of {_WIDE_BYTES:,} bytes to noop, CPU s", found)


def _cpu_s(server: TailraceServer) -> float:
    """Processor time of this process and all below it but the broker."""
    whole, broker = tree_usage(os.getpid()), server.usage()
    return (whole.cpu_s if whole else 0.0) - (broker.cpu_s if broker else 0.0)


def _print(what: str, found: dict[str, list[float]]) -> None:
    medians = {form: median(values) for form, values in found.items() if values}
    ratio = f", ratio {medians[OURS] / medians[THEIRS]:.2f}" if len(medians) == 2 else ""
    figures = ", ".join(f"{form} {value:,.2f}" for form, value in medians.items())
    print(f"{what}: {figures}{ratio}", flush=True)


if __name__ == "__main__":
    main()
