"""Sql: a query over topics, once or for as long as it is wanted.

    SELECT data.city, count(*) AS n FROM STREAM orders GROUP BY data.city

Every topic that the query names is a view (sql_view.py): key and value as text, topic, partition, offset,
timestamp, timestampType, headers, and `data`, the value by its type. With STREAM it is a stream and the query
goes on, without it is what the topic holds now. Rows go to the terminal, to a topic or into a folder
(sql_sink.py).

The types of `data` are declared (`schema`), or guessed once from the newest records and shown. Either way
they are kept beside the checkpoint: a run that goes on has the same types (sql_types.py). What does not fit
them goes where `bad_rows` says (sql_bad.py).

A stream may be started before its topic exists or has records. With declared types it runs at once; without,
and if it uses `data`, it waits for the first records. How far it has come is in Spark's checkpoint
(sql_state.py). A topic may get rows of the last batch again after a run was killed, a folder does not.

Streams have a watermark on `timestamp`: windows that are older by more than that are final, and records for
them come too late. A run that is asked to stop ends with the batch it is at.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tailrace.client.offsets import LATEST
from tailrace.model import ConfigError, TailraceError, TopicPartition
from tailrace.spark.link import BrokerLink, link_to
from tailrace.spark.pipelines.failure import cause_of, is_spark_error
from tailrace.spark.pipelines.progress import Observer, Pace, Progress, ignore
from tailrace.spark.pipelines.session import new_session
from tailrace.spark.pipelines.spark_path import spark_path
from tailrace.spark.pipelines.sql_bad import bad_records, find_raised, read_bad_rows
from tailrace.spark.pipelines.sql_query import (
    Views,
    has_session_window,
    is_aggregate,
    near_hint,
    plan_views,
    uses_data,
)
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
from tailrace.spark.pipelines.sql_state import (
    CONSOLE,
    TOPIC,
    check_name,
    keep_query,
    local_path,
    plan_checkpoint,
)
from tailrace.spark.pipelines.sql_types import TopicType, parse_columns, plan_type, read_kept, write_kept
from tailrace.spark.pipelines.sql_view import (
    Reading,
    guess_type,
    make_view,
    metric_of,
    read_decoded,
    read_topics,
)
from tailrace.spark.value.schema import read_schema, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_POLL_S = 0.25
_LOOK_EVERY_S = 1.0  # for a topic to come, or its first record
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
    name: str | None = None  # of a query to a topic: under it its progress is found again
    state: str | None = None  # the folder of such progress; by default the user's state folder
    schema: Mapping[str, str] = field(default_factory=dict)  # topic: columns, a file, a registry
    bad_rows: str = "fail"  # or null, or topic:NAME: what becomes of values that do not fit
    widen: bool = False  # take other types than those that the query began with
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
    bad_rows: int = 0  # whose values do not fit
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
    if config.to == TOPIC or not config.to.strip():
        raise ConfigError(f"sql: to = {config.to!r} names nothing. Write console, topic:NAME or a folder")
    _check_local("to", config.to)
    for key in ("checkpoint", "state"):
        if (place := getattr(config, key)) is not None:
            _check_local(key, place)
    if config.name is not None:
        check_name(config.name)
    read_bad_rows(config.bad_rows)
    for topic, text in config.schema.items():
        try:
            read_schema(text)
        except ConfigError as error:
            raise ConfigError(f"sql: schema of {topic}: {error}") from error


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
    is_folder = config.to != CONSOLE and not config.to.startswith(TOPIC)
    if is_folder or not is_aggregate(config.query):
        return "append"
    if has_session_window(config.query):
        return "append" if config.watermark else "complete"
    return "update"


class _Run:
    """One run of a query, in a session of its own: no other run sees its views."""

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
        self._spark = new_session(spark)
        self._observe, self._stop = observe, stop
        self._show = show or (print_json if config.output == "json" else print_table)
        self._link: BrokerLink = link_to(config.bootstrap)
        self._topics: list[str] = []
        self._types: dict[str, TopicType] = {}
        self._reading = Reading(
            link=self._link,
            starting=config.starting,
            batch_rows=config.batch_rows,
            fail_on_data_loss=config.fail_on_data_loss,
            watermark=config.watermark or None,
            bad_rows=read_bad_rows(config.bad_rows),
        )
        self._pace = Pace()
        self._bad_rows = 0
        self._notes: list[str] = []
        self._told = -1
        self._offsets: dict[str, dict[int, int]] = {}
        self._began_s = time.monotonic()

    def run(self) -> SqlDone:
        place = plan_checkpoint(self._config)
        if place.notice:
            self._notify(place.notice)
        views = self._settle_types(place.path)
        if views is None:
            return self._done(batches=0)
        self._make_views(views)
        frame = self._spark.sql(self._config.query)
        if not frame.isStreaming:
            return self._run_once(frame, views)
        with _checkpoint(place.path) as checkpoint:
            return self._follow(frame, views, checkpoint)

    def explain(self, error: Exception) -> TailraceError:
        """What Spark said, in few words, and the way out where there is one."""
        if (raised := find_raised(str(error))) is not None:
            return TailraceError(f"sql: {raised}")
        cause = shorten(cause_of(error))
        condition = getattr(error, "getCondition", lambda: None)()
        if condition == _NOT_FOUND:
            parameters: Mapping[str, str] = getattr(error, "getMessageParameters", dict)()
            name = parameters.get("relationName", "").replace("`", "")
            return ConfigError(f"sql: there is no topic {name}{near_hint(name, self._topics)}")
        if _is_of_the_query(error):
            return ConfigError(f"sql: {shorten(str(error))}")
        return TailraceError(f"sql: {cause}")

    # ---- types and views

    def _settle_types(self, checkpoint: Path | None) -> Views | None:
        """The views of the query once their types are known; None if it was stopped before."""
        config = self._config
        kept = {} if checkpoint is None else read_kept(checkpoint)
        told = ""
        while True:
            self._topics = read_topics(self._link)
            views = plan_views(config.query, self._topics, awaits=not config.once)
            missing = self._plan_types(views, kept=kept)
            if missing is None:
                return views
            if config.once:
                raise ConfigError(
                    f"sql: {missing} has no records that tell the types of data. {_declare(missing)}"
                )
            if (text := self._waiting_text(missing)) != told:
                told = text
                self._notify(text)
            if self._stop.wait(_LOOK_EVERY_S):
                return None

    def _declared(self, topic: str, kept: TopicType | None) -> TopicType | None:
        """The declared type of a topic, if there is any.

        What a registry has may change without the user's doing, so a query that has begun does not ask it.
        """
        text = self._config.schema.get(topic)
        if text is None:
            return None
        schema = read_schema(text)
        if kept is not None and not schema.is_resolved and not self._config.widen:
            return replace(kept, registry=schema.registry)
        found = resolve(schema, topic)
        return TopicType(
            origin="declared",
            struct=found.struct or parse_columns(self._spark, found.ddl, topic=topic),
            format=found.format,
            definition=found.definition,
            registry=found.registry,
        )

    def _plan_types(self, views: Views, *, kept: Mapping[str, TopicType]) -> str | None:
        """Find the type of every topic; the name of the first that has to have records before."""
        for topic in (*views.streams, *views.tables):
            if topic in self._types:
                continue
            kind = plan_type(
                topic,
                declared=self._declared(topic, kept.get(topic)),
                kept=kept.get(topic),
                guess=partial(self._guess, topic),
                widen=self._config.widen,
            )
            if kind is not None:
                self._types[topic] = kind
            elif uses_data(self._config.query):
                return topic
        return None

    def _guess(self, topic: str, known: Any) -> TopicType | None:
        return guess_type(self._spark, self._link, topic, known) if topic in self._topics else None

    def _waiting_text(self, topic: str) -> str:
        if topic in self._topics:
            return f"{topic} has no records: waiting for the first ones to tell the types. {_declare(topic)}"
        return (
            f"there is no topic {topic}: waiting for it and for its first records to tell the types."
            f" {_declare(topic)}{near_hint(topic, self._topics, ask=' Or did you mean')}"
        )

    def _make_views(self, views: Views) -> None:
        counts = uses_data(self._config.query)
        bad_topic = self._reading.bad_rows.topic
        if bad_topic and bad_topic in (*views.streams, *views.tables):
            raise ConfigError(f"sql: bad_rows = topic:{bad_topic} is a topic that the query reads")
        for topic in (*views.streams, *views.tables):
            kind = self._types.get(topic)
            stream = topic in views.streams
            make_view(self._spark, topic, self._reading, stream=stream, kind=kind, counts=counts)
            if kind is not None and kind.struct is None:
                self._notes.append(f"{topic} has no column data: its newest values are no JSON objects")
            elif kind is not None and kind.origin == "guessed" and counts:
                self._notify(
                    f"{topic}: the types of data are guessed from its newest values: {kind.columns()}."
                    f" {_declare(topic)}"
                )

    # ---- a query that ends by itself

    def _run_once(self, frame: DataFrame, views: Views) -> SqlDone:
        config = self._config
        rows = 0
        if config.to == CONSOLE:
            rows = show_rows(frame, 0, rows_max=config.rows_shown, show=self._show)
        elif config.to.startswith(TOPIC):
            self._write_records(frame)
        else:
            folder = local_path(config.to)
            make_empty_folder(folder)
            write_batch(frame, 0, folder=folder)
        self._settle_bad_rows(views)
        self._tell(batch=1, rows=rows, lag=None, watermark=None)
        return self._done(rows=rows, batches=1)

    def _settle_bad_rows(self, views: Views) -> None:
        """Count the bad rows of a query that ends by itself, and write them where they go."""
        bad_rows = self._reading.bad_rows
        if bad_rows.mode == "fail" or not uses_data(self._config.query):
            return
        for topic in views.tables:
            kind = self._types.get(topic)
            if kind is not None and kind.struct is not None:
                records = bad_records(
                    read_decoded(self._spark, topic, self._reading, stream=False, kind=kind)
                )
                self._bad_rows += records.count()
                if bad_rows.topic:
                    self._to_topic(records.write.format("tailrace").mode("append"), bad_rows.topic).save()

    def _write_records(self, frame: DataFrame) -> None:
        writer = as_records(frame).write.format("tailrace").mode("append")
        self._to_topic(writer, self._config.to.removeprefix(TOPIC)).save()

    def _to_topic(self, writer: Any, topic: str) -> Any:
        """Each row is there once for readers of committed records, whatever is killed."""
        writer = writer.option("delivery", "exactly-once")
        return writer.option("kafka.bootstrap.servers", self._config.bootstrap).option("topic", topic)

    # ---- a stream

    def _follow(self, frame: DataFrame, views: Views, checkpoint: Path) -> SqlDone:
        kept = read_kept(checkpoint)
        try:
            self._run_stream(frame, views, checkpoint)
        except Exception:
            if self._told < 0 and kept:
                write_kept(checkpoint, kept)  # the query has not run with the new types: it keeps its own
            raise
        return self._done(
            rows=self._pace.rows,
            batches=self._told + 1,
            checkpoint=str(checkpoint) if self._config.checkpoint or self._config.to != CONSOLE else None,
        )

    def _run_stream(self, frame: DataFrame, views: Views, checkpoint: Path) -> None:
        """Run the query, and those for its bad rows, until they end, one fails, or a stop is asked for."""
        queries = [self._start(frame, checkpoint)]
        try:
            queries += self._start_bad_rows(views, checkpoint)
            while not self._stop.is_set() and (running := [query for query in queries if query.isActive]):
                _wait(running[0], _POLL_S)
                self._tell_of(queries[0])
                _raise_failure(queries)
        finally:
            for query in queries:
                _stop_after_batch(query)
        self._tell_of(queries[0])
        _raise_failure(queries)

    def _done(self, *, batches: int, rows: int = 0, checkpoint: str | None = None) -> SqlDone:
        return SqlDone(
            to=self._config.to,
            rows=rows,
            batches=batches,
            bad_rows=self._bad_rows,
            offsets=self._offsets,
            seconds=time.monotonic() - self._began_s,
            checkpoint=checkpoint,
        )

    def _start_bad_rows(self, views: Views, checkpoint: Path) -> Iterator[StreamingQuery]:
        """Streams beside the query that write its bad rows to their topic, with checkpoints of their own.

        One stream cannot have two results in Spark.
        """
        target = self._reading.bad_rows.topic
        if not target or not uses_data(self._config.query):
            return
        for topic in views.streams:
            kind = self._types.get(topic)
            if kind is None or kind.struct is None:
                continue
            rows = bad_records(read_decoded(self._spark, topic, self._reading, stream=True, kind=kind))
            writer = self._to_topic(rows.writeStream.format("tailrace"), target)
            place = checkpoint / "_bad_rows" / topic
            yield self._triggered(writer.option("checkpointLocation", spark_path(place))).start()

    def _start(self, frame: DataFrame, checkpoint: Path) -> StreamingQuery:
        config = self._config
        is_plain = config.to.startswith(TOPIC) and plan_output_mode(config) == "append"
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
            writer = as_records(frame).writeStream.format("tailrace")
            writer = self._to_topic(writer, config.to.removeprefix(TOPIC))
        elif config.to.startswith(TOPIC):
            # A Python sink may not be given rows that change others; batch by batch they are just records.
            writer = frame.writeStream.foreachBatch(lambda rows, _batch: self._write_records(rows))
        else:
            columns = frame.schema.simpleString()
            claim_folder(local_path(config.to), checkpoint, query=config.query, columns=columns)
            writer = frame.writeStream.foreachBatch(partial(write_batch, folder=local_path(config.to)))
        write_kept(checkpoint, self._types)
        if config.to.startswith(TOPIC):
            keep_query(config, checkpoint)
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
            self._bad_rows += _bad_rows_of(each.get("observedMetrics") or {})
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
        notes = [*self._notes]
        if self._bad_rows:
            notes.append(f"{self._bad_rows:,} bad rows ({self._config.bad_rows})")
        self._observe(
            Progress(
                pipeline="sql",
                batch=batch,
                rows=self._pace.rows,
                rows_per_s=self._pace.rows_per_s,
                lag=lag,
                offsets=self._offsets,
                watermark=watermark,
                note="; ".join(notes),
            )
        )

    def _notify(self, text: str) -> None:
        """Tell something once that a user should read."""
        self._observe(
            Progress(
                pipeline="sql",
                batch=self._told + 1,
                rows=self._pace.rows,
                rows_per_s=self._pace.rows_per_s,
                lag=None,
                notice=text,
            )
        )


def _declare(topic: str) -> str:
    return f"To declare them: --schema {topic}='COLUMN TYPE, ...', or [schemas.{topic}] in tailrace.toml"


def _bad_rows_of(metrics: Mapping[str, Any]) -> int:
    """The bad rows of a batch, as its streams have counted them."""
    prefix = metric_of("")
    return sum(int(row["bad"]) for name, row in metrics.items() if name.startswith(prefix))


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


def _raise_failure(queries: Sequence[StreamingQuery]) -> None:
    for query in queries:
        if (failure := query.exception()) is not None:
            raise failure


def _is_of_the_query(error: Exception) -> bool:
    """Whether it is the query that is wrong, and not what happened while it ran."""
    return type(error).__name__ in ("AnalysisException", "ParseException")
