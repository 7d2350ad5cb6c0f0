"""Snapshots of the newest record per key: what a compacted topic would hold, as a folder of Parquet files.

    <folder>/topic=orders/part-....parquet     one row per key that is not deleted
    <folder>/_tailrace_latest.json             of which version of which lake, and up to which offsets

As in Kafka's compaction the newest record of a key counts within its partition, a record without a value
deletes its key, and records without a key are left out.

The folder is replaced whole: the new one is written beside it, synced, and takes its name. Rename cannot
replace a folder that has files, so the old one steps aside first; a run that is killed in between finds it
there and puts it back before anything else.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.lake import DataFile, Snapshot, Table
from tailrace.spark.pipelines.spark_path import spark_path, spark_pattern
from tailrace.spark.pipelines.spread import SparkFailed, plan_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKER = "_tailrace_latest.json"
_VERSION = 1
_COLUMNS = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, timestampType int,"
    " headers array<struct<key: string, value: binary>>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestWritten:
    """A snapshot that is in place."""

    rows: int
    version: int


def check_latest_folder(folder: str, *, lake: Path) -> None:
    """Refuse a folder that is somebody else's, or in the lake: its readers would find records twice."""
    place = Path(folder).absolute()
    if "://" in folder:
        raise ConfigError(
            f"compact: snapshot {folder!r} is no folder of this machine. Mount it, give the path"
        )
    if place == lake or lake in place.parents or place in lake.parents:
        raise ConfigError(
            f"compact: snapshot {folder} and the lake {lake} lie in each other. Name a folder beside the lake"
        )
    if place.exists() and not (place / MARKER).is_file() and (not place.is_dir() or any(place.iterdir())):
        raise ConfigError(
            f"compact: snapshot {folder} exists and is no snapshot of ours. Name another folder, or remove it"
        )


def write_latest(spark: SparkSession, table: Table, *, folder: str, topics: Sequence[str]) -> LatestWritten:
    """Write the snapshot of some topics, or of all, in place of the one before."""
    place = Path(folder).absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    _recover(place)
    snapshot = table.snapshot()
    fresh = place.parent / f".{place.name}.new-{uuid.uuid4().hex}"
    try:
        rows = _write_topics(spark, table.root, snapshot, fresh, topics)
        _write_marker(fresh, table.root, snapshot, rows)
        _sync_tree(fresh)
        _replace(place, fresh)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return LatestWritten(rows=rows, version=snapshot.version)


def _write_topics(
    spark: SparkSession, root: Path, snapshot: Snapshot, fresh: Path, topics: Sequence[str]
) -> int:
    fresh.mkdir()
    by_topic: dict[str, list[DataFile]] = {}
    for file in snapshot.files:
        if not topics or file.topic in topics:
            by_topic.setdefault(file.topic, []).append(file)
    rows = 0
    for topic, files in sorted(by_topic.items()):
        paths = [root / file.path for file in files]
        try:
            rows += _write_topic(spark, paths, fresh / f"topic={topic}")
        except Exception as error:  # py4j's, gRPC's and pyspark's have nothing in common but this
            reason = plan_reason(str(error))
            raise SparkFailed(f"the newest records of {topic} could not be written: {reason}") from error
    return rows


def _write_topic(spark: SparkSession, paths: Sequence[Path], target: Path) -> int:
    """Two passes: keys and offsets find the newest, which then pick the rows; values are never grouped."""
    from pyspark.sql import functions as sql

    rows = spark.read.schema(_COLUMNS).parquet(*map(spark_pattern, paths))
    newest = (
        rows.where(sql.col("key").isNotNull())
        .groupBy("partition", "key")
        .agg(sql.max("offset").alias("offset"))
        .select("partition", "offset")
    )
    latest = rows.join(newest, ["partition", "offset"], "left_semi").where(sql.col("value").isNotNull())
    latest.sortWithinPartitions("partition", "offset").write.parquet(spark_path(target))
    return spark.read.schema(_COLUMNS).parquet(spark_pattern(target)).count()


def _write_marker(fresh: Path, root: Path, snapshot: Snapshot, rows: int) -> None:
    told = {
        "v": _VERSION,
        "lake": str(root),
        "version": snapshot.version,
        "rows": rows,
        "ends": _by_topic(snapshot.ends),
    }
    (fresh / MARKER).write_bytes(msgspec.json.format(msgspec.json.encode(told)))


def _by_topic(ends: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for tp, end in sorted(ends.items()):
        found.setdefault(tp.topic, {})[str(tp.partition)] = end
    return found


# ---- folders


def _aside(place: Path) -> Path:
    return place.parent / f".{place.name}.old"


def _recover(place: Path) -> None:
    """Undo a replacement that was killed half-way, and clear what it left."""
    aside = _aside(place)
    if aside.exists():
        if place.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(place)
    for left in place.parent.glob(f".{place.name}.new-*"):
        shutil.rmtree(left, ignore_errors=True)


def _replace(place: Path, fresh: Path) -> None:
    aside = _aside(place)
    if place.exists():
        place.rename(aside)
    fresh.rename(place)
    _sync(place.parent)
    if aside.exists():
        shutil.rmtree(aside)


def _sync_tree(folder: Path) -> None:
    for where, _folders, files in os.walk(folder):
        for name in files:
            _sync(Path(where, name))
        _sync(Path(where))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
