"""Report: one HTML page about a lake, with plots.

    snapshot -> a task for each partition counts in one pass (report_measure.py)
             -> put together by topic (report_summary.py) -> page (report_page.py)

The files are read once, by Spark's Python workers with Arrow; only figures come back, so memory is bounded
whatever the lake holds. Files that a compaction replaces meanwhile are still found. With `bootstrap` the
broker is asked where the topics end, and the page says how far the lake is behind.

A run that is stopped ends after the topic it is at, with a page of those it has read.
"""

from __future__ import annotations

import difflib
import os
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.client.offsets import LATEST
from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.lake import DataFile, Snapshot, open_table
from tailrace.spark.link import link_to
from tailrace.spark.pipelines.progress import Observer, Pace, Progress, ignore
from tailrace.spark.pipelines.repeat import check_every
from tailrace.spark.pipelines.report_measure import Figures, MeasureTask, measure_partition
from tailrace.spark.pipelines.report_page import write_report
from tailrace.spark.pipelines.report_summary import LakeSummary, TopicSummary, plan_span, summarize
from tailrace.spark.pipelines.spread import spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.client.kafka import KafkaClient


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfig:
    """Of which lake, and where the page goes."""

    lake: str
    out: str = "report.html"
    topic: tuple[str, ...] = ()  # all
    bootstrap: str | None = None  # with it the page has the lag
    every_s: float | None = None  # how long after its end a runner does it again (repeat.py); None: once


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a run wrote."""

    out: str
    topics: tuple[str, ...]
    rows: int
    files: int
    seconds: float
    is_complete: bool


def report(
    config: ReportConfig,
    *,
    spark: SparkSession,
    observe: Observer = ignore,
    stop: threading.Event | None = None,
) -> Reported:
    """Write the page."""
    check_config(config)
    began_s = time.monotonic()
    out = _check_out(config.out)
    with closing(open_table(config.lake)) as table:
        snapshot, root, format = table.snapshot(), str(table.root), table.format
    topics = plan_topics(snapshot, config.topic, lake=config.lake)
    latest = None if config.bootstrap is None else _read_latest(config.bootstrap, topics)
    found: list[TopicSummary] = []
    pace = Pace()
    for topic in topics:
        if stop is not None and stop.is_set():
            break
        found.append(_measure_topic(spark, snapshot, topic, root=root, latest=latest))
        pace.add(found[-1].rows)
        left = sum(file.rows for file in snapshot.files if file.topic in topics[len(found) :])
        observe(
            Progress(
                pipeline="report",
                batch=len(found),
                rows=pace.rows,
                rows_per_s=pace.rows_per_s,
                lag=left,
                eta_s=pace.eta_s(left),
                note=topic,
            )
        )
    is_complete = len(found) == len(topics)
    summary = LakeSummary(
        root=root,
        format=format,
        version=snapshot.version,
        topics=found,
        bootstrap=config.bootstrap,
        is_complete=is_complete,
    )
    _write_whole(out, write_report(summary, measured_at=datetime.now(UTC)))
    return Reported(
        out=str(out),
        topics=tuple(each.topic for each in found),
        rows=summary.rows,
        files=sum(each.files for each in found),
        seconds=time.monotonic() - began_s,
        is_complete=is_complete,
    )


def check_config(config: ReportConfig) -> None:
    """ConfigError with the key and the fix."""
    check_every("report", config.every_s)


def plan_topics(snapshot: Snapshot, wanted: Sequence[str], *, lake: str) -> list[str]:
    """The topics to report on, by name; ConfigError with what there is, if one is not in the lake."""
    there = sorted({each.topic for each in snapshot.ends} | {file.topic for file in snapshot.files})
    for topic in wanted:
        if topic not in there:
            near = difflib.get_close_matches(topic, there, n=1)
            hint = (
                f"did you mean {near[0]}?" if near else f"there is {', '.join(there[:20]) or 'nothing yet'}"
            )
            raise ConfigError(f"report: topic {topic} is not in the lake {lake}: {hint}")
    return sorted(set(wanted)) if wanted else there


def _measure_topic(
    spark: SparkSession,
    snapshot: Snapshot,
    topic: str,
    *,
    root: str,
    latest: dict[TopicPartition, int] | None,
) -> TopicSummary:
    files: dict[int, list[DataFile]] = {}
    for file in snapshot.files:
        if file.topic == topic:
            files.setdefault(file.partition, []).append(file)
    mine = [file for each in files.values() for file in each]
    span = plan_span(mine, now_us=time.time_ns() // 1000)
    tasks = [
        MeasureTask(root=root, partition=partition, files=tuple(files[partition]), span=span)
        for partition in sorted(files)
    ]
    figures = spread(spark, measure_partition, tasks, result=Figures)
    return summarize(snapshot, topic, figures, span=span, latest=latest)


def _read_latest(bootstrap: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
    """Where the partitions end of those topics that the broker still has."""

    async def ask(client: KafkaClient) -> dict[TopicPartition, int]:
        found = await client.metadata(topics) if topics else {}
        wanted = {
            TopicPartition(topic.name, partition): LATEST
            for topic in found.values()
            if not topic.error
            for partition in topic.partitions
        }
        offsets = await client.list_offsets(wanted) if wanted else {}
        return {each: found.offset for each, found in offsets.items()}

    return link_to(bootstrap).run(ask)


def _check_out(out: str) -> Path:
    """Refuse before an hour of reading what could not be written after it."""
    path = Path(out).absolute()
    if path.is_dir():
        raise ConfigError(f"report: out = {out!r} is a folder. Name a file: {path / 'report.html'}")
    if not path.parent.is_dir():
        raise ConfigError(f"report: out = {out!r} is in no folder that exists. Make it first: {path.parent}")
    return path


def _write_whole(path: Path, text: str) -> None:
    """Replace the file at once: whoever looks sees the old page or the new one."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        made.write_text(text, encoding="utf-8")
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
