"""Sql: a query over topics, once or for as long as it is wanted.

    SELECT data.city, count(*) AS n FROM STREAM orders GROUP BY data.city

Every topic that the query names is a view (sql_view.py): key and value as text, topic, partition, offset,
timestamp, timestampType, headers, and `data`, the value as JSON. With STREAM it is a stream and the query
goes on, without it is what the topic holds now. Rows go to the terminal, to a topic or into a folder
(sql_sink.py).

How far a stream has come is in Spark's checkpoint: for a terminal in a folder that is deleted at the end, for
a topic in the user's state folder under a name made of the query, for a folder inside it. A topic may get
rows of the last batch again after a run was killed, a folder does not.

Streams have a watermark on `timestamp`: windows that are older by more than that are final, and records for
them come too late. A run that is asked to stop ends with the batch it is at.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tailrace.client.offsets import LATEST
from tailrace.model import ConfigError, TailraceError, TopicPartition
from tailrace.spark.link import BrokerLink, link_to
from tailrace.spark.pipelines.failure import cause_of, is_spark_error
from tailrace.spark.pipelines.progress import Observer, Pace, Progress, ignore
from tailrace.spark.pipelines.spark_path import spark_path
from tailrace.spark.pipelines.sql_query import Views, has_session_window, is_aggregate, near_hint, plan_views
from tailrace.spark.pipelines.sql_sink import (
    Show,
    as_records,
    claim_folder,
    make_empty_folder,
    print_json,
    print_table,
    show_batch,
    show_rows,
    write_batch,
)
from tailrace.spark.pipelines.sql_view import make_view, read_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

CONSOLE = "console"
_TOPIC = "topic:"
_POLL_S = 0.25
_STOP_S_MAX = 60.0
_MODES = ("append", "update", "complete")
_PLAN = re.compile(r"=== Streaming Query ===|== SQL|;\s*\n|\n\s*\n|\n'|JVM stacktrace")
_CODES = re.compile(r"\[[A-Z][A-Z0-9_.]+\]|SQLSTATE: \w+;?")
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
_LOSS_FIX = ("failOnDataLoss=false", "fail_on_data_loss = false (--no-fail-on-data-loss)")
"""The source names its option, a query has a setting for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlConfig:
    """Which query, and where its rows go."""

    bootstrap: str = "127.0.0.1:9092"
    query: str
    to: str = CONSOLE  # or topic:NAME, or a folder
    checkpoint: str | None = None
    once: bool = False  # a stream ends with what was there when it began
    output_mode: str | None = None  # append, update or complete; by default what the query and the sink need
    trigger_s: float | None = None  # the least time between batches
    batch_rows: int = 2_000_000  # of each topic in a batch of a stream, at most
    starting: str = "earliest"  # or latest: where a stream without a checkpoint begins
    fail_on_data_loss: bool = True  # or go on with what is there, if records are gone that were to be read
    watermark: str | None = "10 minutes"
    rows_shown: int = 20  # of each batch, on the terminal
    output: str = "table"  # or json, on the terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDone:
    """What a run reached."""

    to: str
    rows: int  # that a stream has read, or that were shown of a query that ends by itself
    batches: int
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    seconds: float
    checkpoint: str | None = None


def sql(
    config: SqlConfig,
    *,
    spark: SparkSession,
    observe: Observer = ignore,
    stop: threading.Event | None = None,
    show: Show | None = None,
) -> SqlDone:
    """Run the query. `show` gets the rows that go to the terminal, in place of printing them."""
    check_config(config)
    run = _Run(config, spark=spark, observe=observe, stop=stop or threading.Event(), show=show)
    try:
        return run.run()
    except TailraceError:
        raise
    except Exception as error:  # pyspark's and py4j's have nothing else in common
        if not is_spark_error(error):
            raise
        raise run.explain(error) from error


def check_config(config: SqlConfig) -> None:
    """ConfigError for what can be seen to be wrong before anything is started."""
    if not config.query.strip():
        raise ConfigError("sql: the query is empty. Write one: SELECT key, value FROM STREAM orders")
    if config.output_mode is not None and config.output_mode not in _MODES:
        raise ConfigError(f"sql: output_mode = {config.output_mode!r} is none of {', '.join(_MODES)}")
    if config.starting not in ("earliest", "latest"):
        raise ConfigError(f"sql: starting = {config.starting!r} is neither earliest nor latest")
    if config.output not in ("table", "json"):
        raise ConfigError(f"sql: output = {config.output!r} is neither table nor json")
    if config.rows_shown < 1:
        raise ConfigError(f"sql: rows_shown = {config.rows_shown} is not a number from 1 on")
    if config.batch_rows < 1:
        raise ConfigError(f"sql: batch_rows = {config.batch_rows} is not a number from 1 on")
    if config.trigger_s is not None and not 0 <= config.trigger_s < 1e9:
        raise ConfigError(f"sql: trigger_s = {config.trigger_s} is no number of seconds")
    if config.to == _TOPIC or not config.to.strip():
        raise ConfigError(f"sql: to = {config.to!r} names nothing. Write console, topic:NAME or a folder")
    _check_local("to", config.to)
    if config.checkpoint is not None:
        _check_local("checkpoint", config.checkpoint)


def _check_local(key: str, place: str) -> None:
    scheme, found, _ = place.partition("://")
    if found and scheme != "file":
        raise ConfigError(
            f"sql: {key} = {place!r} is not a folder of this machine. Mount it, and name the path"
        )


def plan_output_mode(config: SqlConfig) -> str:
    """What is written of every batch, unless it was said: an aggregation changes rows, others only add.

    Sessions merge, so Spark gives them when they are final or, without a watermark, all of them each time.
    """
    if config.output_mode is not None:
        return config.output_mode
    is_folder = config.to != CONSOLE and not config.to.startswith(_TOPIC)
    if is_folder or not is_aggregate(config.query):
        return "append"
    if has_session_window(config.query):
        return "append" if config.watermark else "complete"
    return "update"


def plan_checkpoint(config: SqlConfig, *, state_home: Path) -> Path | None:
    """Where the checkpoint goes; None for a temporary one."""
    if config.checkpoint is not None:
        return _local(config.checkpoint)
    if config.to == CONSOLE:
        return None
    if config.to.startswith(_TOPIC):
        name = hashlib.sha256(repr((config.bootstrap, config.query, config.to)).encode()).hexdigest()[:20]
        return state_home / "tailrace" / "sql" / name
    return _folder(config) / "_checkpoint"


def _folder(config: SqlConfig) -> Path:
    return _local(config.to)


def _local(place: str) -> Path:
    return Path(place.removeprefix("file://")).absolute()


class _Run:
    """One run of a query, in a session of its own: its views are nobody else's."""

    def __init__(
        self,
        config: SqlConfig,
        *,
        spark: SparkSession,
        observe: Observer,
        stop: threading.Event,
        show: Show | None,
    ) -> None:
        self._config = config
        self._spark = spark.newSession()
        self._observe, self._stop = observe, stop
        self._show = show or (print_json if config.output == "json" else print_table)
        self._link: BrokerLink = link_to(config.bootstrap)
        self._topics: list[str] = []
        self._pace = Pace()
        self._notes: list[str] = []
        self._told = -1
        self._offsets: dict[str, dict[int, int]] = {}
        self._began_s = time.monotonic()

    def run(self) -> SqlDone:
        self._topics = read_topics(self._link)
        views = plan_views(self._config.query, self._topics)
        self._make_views(views)
        frame = self._spark.sql(self._config.query)
        if not frame.isStreaming:
            return self._run_once(frame)
        state_home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        with _checkpoint(plan_checkpoint(self._config, state_home=state_home)) as checkpoint:
            return self._follow(frame, checkpoint)

    def explain(self, error: Exception) -> TailraceError:
        """What Spark said, in few words, and the way out where there is one."""
        cause = shorten(cause_of(error))
        condition = getattr(error, "getCondition", lambda: None)()
        if condition == _NOT_FOUND:
            parameters: Mapping[str, str] = getattr(error, "getMessageParameters", dict)()
            name = parameters.get("relationName", "").replace("`", "")
            return ConfigError(f"sql: there is no topic {name}{near_hint(name, self._topics)}")
        if _is_of_the_query(error):
            return ConfigError(f"sql: {shorten(str(error))}")
        return TailraceError(f"sql: {cause}")

    def _make_views(self, views: Views) -> None:
        for topic in (*views.streams, *views.tables):
            data_type = make_view(
                self._spark,
                topic,
                link=self._link,
                stream=topic in views.streams,
                starting=self._config.starting,
                batch_rows=self._config.batch_rows,
                fail_on_data_loss=self._config.fail_on_data_loss,
                watermark=self._config.watermark or None,
            )
            if data_type is None:
                self._notes.append(f"{topic} has no column data: its newest values are no JSON objects")

    # ---- a query that ends by itself

    def _run_once(self, frame: DataFrame) -> SqlDone:
        config = self._config
        rows = 0
        if config.to == CONSOLE:
            rows = show_rows(frame, 0, rows_max=config.rows_shown, show=self._show)
        elif config.to.startswith(_TOPIC):
            self._write_records(frame)
        else:
            folder = _folder(config)
            make_empty_folder(folder)
            write_batch(frame, 0, folder=folder)
        self._tell(batch=1, rows=rows, lag=None, watermark=None)
        return SqlDone(to=config.to, rows=rows, batches=1, seconds=time.monotonic() - self._began_s)

    def _write_records(self, frame: DataFrame) -> None:
        self._to_topic(as_records(frame).write.format("tailrace").mode("append")).save()

    def _to_topic(self, writer: Any) -> Any:
        return writer.option("kafka.bootstrap.servers", self._config.bootstrap).option(
            "topic", self._config.to.removeprefix(_TOPIC)
        )

    # ---- a stream

    def _follow(self, frame: DataFrame, checkpoint: Path) -> SqlDone:
        query = self._start(frame, checkpoint)
        try:
            while query.isActive and not self._stop.is_set():
                _wait(query, _POLL_S)
                self._tell_of(query)
        finally:
            _stop_after_batch(query)
        self._tell_of(query)
        if (failure := query.exception()) is not None:
            raise failure
        return SqlDone(
            to=self._config.to,
            rows=self._pace.rows,
            batches=self._told + 1,
            offsets=self._offsets,
            seconds=time.monotonic() - self._began_s,
            checkpoint=str(checkpoint) if self._config.checkpoint or self._config.to != CONSOLE else None,
        )

    def _start(self, frame: DataFrame, checkpoint: Path) -> StreamingQuery:
        config = self._config
        is_plain = config.to.startswith(_TOPIC) and plan_output_mode(config) == "append"
        if not is_plain and type(self._spark).__module__.startswith("pyspark.sql.connect"):
            raise ConfigError(
                "sql: over Spark Connect a stream can only go to a topic, in append mode, since its batches"
                " are not seen here. Use --master in place of --remote"
            )
        if config.to == CONSOLE:
            writer = frame.writeStream.foreachBatch(
                partial(show_batch, rows_max=config.rows_shown, show=self._show)
            )
        elif is_plain:
            writer = self._to_topic(as_records(frame).writeStream.format("tailrace"))
        elif config.to.startswith(_TOPIC):
            # A Python sink may not be given rows that change others; batch by batch they are just records.
            writer = frame.writeStream.foreachBatch(lambda rows, _batch: self._write_records(rows))
        else:
            claim_folder(_folder(config), checkpoint, query=config.query)
            writer = frame.writeStream.foreachBatch(partial(write_batch, folder=_folder(config)))
        writer = writer.outputMode(plan_output_mode(config)).option(
            "checkpointLocation", spark_path(checkpoint)
        )
        return self._triggered(writer).start()

    def _triggered(self, writer: DataStreamWriter) -> DataStreamWriter:
        if self._config.once:
            return writer.trigger(availableNow=True)
        if self._config.trigger_s:
            return writer.trigger(processingTime=f"{round(self._config.trigger_s * 1000)} milliseconds")
        return writer

    def _tell_of(self, query: StreamingQuery) -> None:
        """Tell of the batches since the last look."""
        last = query.lastProgress
        if last is None or int(last["batchId"]) <= self._told:
            return
        for each in query.recentProgress:
            batch = int(each["batchId"])
            if batch <= self._told:
                continue
            self._told = batch
            for source in each["sources"]:
                self._offsets.update(read_position(source["endOffset"]))
            watermark = (each.get("eventTime") or {}).get("watermark")
            self._tell(
                batch=batch + 1,
                rows=int(each["numInputRows"]),
                lag=self._read_lag(),
                watermark=None if watermark is None or watermark.startswith("1970-01-01T00") else watermark,
            )

    def _read_lag(self) -> int | None:
        ends = {
            TopicPartition(topic, at): end
            for topic, parts in self._offsets.items()
            for at, end in parts.items()
        }
        if not ends:
            return None
        found = self._link.run(lambda client: client.list_offsets(dict.fromkeys(ends, LATEST)))
        return sum(max(found[each].offset - end, 0) for each, end in ends.items())

    def _tell(self, *, batch: int, rows: int, lag: int | None, watermark: str | None) -> None:
        self._pace.add(rows)
        self._observe(
            Progress(
                pipeline="sql",
                batch=batch,
                rows=self._pace.rows,
                rows_per_s=self._pace.rows_per_s,
                lag=lag,
                offsets=self._offsets,
                watermark=watermark,
                note="; ".join(self._notes),
            )
        )


def shorten(text: str) -> str:
    """What Spark says of an error, without what it says to programs and without the plan of the query."""
    text = _PLAN.split(text.strip(), maxsplit=1)[0].replace(*_LOSS_FIX)
    return " ".join(_CODES.sub(" ", text).split()).removesuffix(";")


def read_position(offset: object) -> dict[str, dict[int, int]]:
    """Where a source is, as its offset says: topic, partition, next offset. Nothing for another source."""
    try:
        found = msgspec.json.decode(offset) if isinstance(offset, str | bytes) else offset
        position = msgspec.convert(found, dict[str, Any])["pos"]
        return msgspec.convert(position, dict[str, dict[int, int]], strict=False)
    except (msgspec.DecodeError, KeyError, TypeError):
        return {}


@contextmanager
def _checkpoint(place: Path | None) -> Iterator[Path]:
    """The folder of the checkpoint; a temporary one is deleted at the end."""
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
        yield place
        return
    made = Path(tempfile.mkdtemp(prefix="tailrace-sql-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _stop_after_batch(query: StreamingQuery) -> None:
    """Stop a query when the batch it is at is done; one that takes too long is cut off, and given again."""
    last = query.lastProgress
    deadline_s = time.monotonic() + _STOP_S_MAX
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
        now = query.lastProgress
        if (now and now["batchId"]) != (last and last["batchId"]):
            break
        _wait(query, 0.05)
    query.stop()


def _wait(query: StreamingQuery, seconds: float) -> None:
    """Wait for the end of a query, but not for long; its failure is raised here."""
    query.awaitTermination(seconds)  # type: ignore[arg-type]  # pyspark takes fractions, its types do not


def _is_of_the_query(error: Exception) -> bool:
    """Whether it is the query that is wrong, and not what happened while it ran."""
    return type(error).__name__ in ("AnalysisException", "ParseException")
