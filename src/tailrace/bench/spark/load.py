"""One way of moving records through Spark each, timed; every one counts what arrived.

A load is a function of a `Scene` and a format, "tailrace" or "kafka", and returns the seconds that it took.
What it left behind is counted and removed when the clock has stopped. A count that is not the topic's is a
LoadError: a fast read that loses records is no read.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.bench.spark.filling import count_records
from tailrace.bench.wire.reader import LoadError
from tailrace.bench.wire.subject import Subject, create_topic, delete_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, THEIRS = "tailrace", "kafka"
"""The formats, by the names that Spark knows them by."""

_STREAM_S_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where loads run: a session, a broker, a filled topic, and a folder for what they write."""

    spark: SparkSession
    subject: Subject
    topic: str
    partitions: int
    records: int
    place: Path

    def options(self) -> dict[str, str]:
        """What both formats are given."""
        return {"kafka.bootstrap.servers": self.subject.bootstrap, "subscribe": self.topic}

    def read(self, form: str) -> DataFrame:
        """The whole topic as a batch."""
        return self.spark.read.format(form).options(**self.options()).load()

    def read_stream(self, form: str, **options: str) -> DataFrame:
        """The topic from its beginning, as a stream."""
        given = {**self.options(), "startingOffsets": "earliest", **options}
        return self.spark.readStream.format(form).options(**given).load()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder that does not exist yet, and does not any more afterwards."""
        made = self.place / uuid.uuid4().hex[:12]
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)


Load = Callable[[Scene, str], float]


def check_count(found: int, scene: Scene, what: str) -> None:
    """LoadError unless it is all of the topic."""
    if found != scene.records:
        raise LoadError(f"{what} has {found:,} records, and the topic has {scene.records:,}")


def count(scene: Scene, form: str) -> float:
    """Count the rows; not one of the figures, but what tells that a format reads the topic at all."""
    began = time.perf_counter()
    found = scene.read(form).count()
    took_s = time.perf_counter() - began
    check_count(found, scene, f"a read by format({form!r})")
    return took_s


def to_noop(scene: Scene, form: str) -> float:
    """Every row to a sink that drops it."""
    began = time.perf_counter()
    scene.read(form).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def to_parquet(scene: Scene, form: str) -> float:
    """Every row into Parquet files, written by Spark, compressed as the archive does it."""
    with scene.folder() as folder:
        began = time.perf_counter()
        scene.read(form).write.option("compression", "zstd").parquet(str(folder))
        took_s = time.perf_counter() - began
        check_count(count_parquet(folder), scene, "what Spark wrote as Parquet")
    return took_s


def to_lake(scene: Scene, form: str) -> float:
    """The archive pipeline, once, into a lake of its own."""
    from tailrace.spark.pipelines.archive import ArchiveConfig, archive

    assert form == OURS, "the archive has one source"
    with scene.folder() as folder:
        config = ArchiveConfig(
            bootstrap=scene.subject.bootstrap, topic=(scene.topic,), to=str(folder), once=True
        )
        began = time.perf_counter()
        archive(config, spark=scene.spark)
        took_s = time.perf_counter() - began
        check_count(count_parquet(folder), scene, "the lake")
    return took_s


def stream_to_noop(scene: Scene, form: str) -> float:
    """All that is there, as a stream that then ends."""
    with scene.folder() as folder:
        began = time.perf_counter()
        query = (
            scene.read_stream(form)
            .writeStream.format("noop")
            .option("checkpointLocation", str(folder))
            .trigger(availableNow=True)
            .start()
        )
        try:
            if not query.awaitTermination(_STREAM_S_MAX):
                raise LoadError(f"the stream did not end within {_STREAM_S_MAX} s")
            took_s = time.perf_counter() - began
            check_count(sum(rows_of(each) for each in query.recentProgress), scene, "the stream")
        finally:
            query.stop()
    return took_s


def to_topic(scene: Scene, form: str) -> float:
    """Every value into another topic of the same broker, which then is deleted."""
    target = create_topic(scene.subject, f"{scene.topic}-copy", partitions=scene.partitions).name
    try:
        options = {"kafka.bootstrap.servers": scene.subject.bootstrap, "topic": target}
        began = time.perf_counter()
        scene.read(form).select("key", "value").write.format(form).options(**options).mode("append").save()
        took_s = time.perf_counter() - began
        found = count_records(scene.subject.bootstrap, target, partitions=scene.partitions)
        check_count(found, scene, "the other topic")
    finally:
        delete_topic(scene.subject, target)
    return took_s


def rows_of(progress: Any) -> int:
    """The rows of one micro-batch; progress is an object in some releases of pyspark, a dict in others."""
    found = progress["numInputRows"] if isinstance(progress, dict) else progress.numInputRows
    return int(found)


def count_parquet(folder: Path) -> int:
    """The rows of all Parquet files below a folder that a plain reader would see."""
    import pyarrow.parquet as pq

    return sum(
        pq.read_metadata(file).num_rows
        for file in folder.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in file.relative_to(folder).parts)
    )
