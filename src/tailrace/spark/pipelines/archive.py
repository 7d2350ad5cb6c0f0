"""archive: topics to a lake of Parquet files, every record exactly once.

    what the lake has -> what the topics have -> plan a batch -> workers write it, staged -> one commit

The lake is its own checkpoint. Where a run begins is told by the table itself, and how far it has come is
part of the same atomic commit that adds the files. So a run may be killed at any moment: the next one finds
either the whole batch or nothing of it. Two archives of one topic are safe for the same reason: the slower
one meets a Conflict, throws away what it staged and goes on from where the other one is.

Memory does not depend on the backlog: a batch is bounded, workers hold a fetch in hand and one on its way,
and the driver sees one small row per task.

What may go away is tried again: a worker that died, or a range that retention overtook while it was read, a
few times; a broker that restarts a few times with `once`, else for as long as the run lasts. A topic that is
created again is none of these: its records are not those that the lake has, and none of them gets in.

What was deleted before it was archived is missing for good. The lake keeps each such range, every run names
all of them, and with `fail_on_data_loss` it fails before it passes over a new one. So that retention can
wait, a run commits how far the lake is as the offsets of a consumer group (ADR 0018).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tailrace.client.error import DataMissing, is_retriable
from tailrace.model import ConfigError, TailraceError, TopicPartition
from tailrace.model.archive_group import ARCHIVE_GROUP, is_archive_group
from tailrace.spark.lake import Advance, BadRange, Change, Conflict, Snapshot, Staging, Table, open_table
from tailrace.spark.lake.layout import resolve_root
from tailrace.spark.lake.marker import FORMATS
from tailrace.spark.lake.missing import MissingRange, find_missing, tell_missing
from tailrace.spark.lake.writing import COMPRESSIONS
from tailrace.spark.link import BrokerLink, link_to
from tailrace.spark.pipelines.archive_plan import (
    BatchPlan,
    Reach,
    check_not_anew,
    check_same_topics,
    new_topic_ids,
    plan_batch,
    plan_tasks,
    topic_ids_of,
)
from tailrace.spark.pipelines.archive_reach import parse_starting, read_reach, read_starts, read_topic_ids
from tailrace.spark.pipelines.archive_task import ArchiveWork, TaskWritten, write_ranges
from tailrace.spark.pipelines.progress import Observer, Pace, Progress, ignore
from tailrace.spark.pipelines.spread import SparkFailed, TaskFailed, count_cores, spread
from tailrace.spark.source.group import GroupProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_TRIES_MAX = {"conflict": 20, "broker": 4, "work": 4}
_RETRY_FIRST_S = 0.2
_RETRY_MOST_S = 10.0
_POLL_S = 0.5
_TELL_EVERY_S = 2.0
_RECOVER_EVERY = 200  # batches
_FILE_BYTES_MIN = 64 * 1024

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig:
    """What to archive, and where to."""

    bootstrap: str = "127.0.0.1:9092"
    topic: tuple[str, ...]
    to: str
    once: bool = False
    """Up to what the topics have at the start; else for ever."""
    format: str | None = None
    """None: what the lake is already, parquet for a new one."""
    starting: str = "earliest"
    """Where to begin with partitions that the lake does not have: earliest, latest or an ISO time."""
    batch_rows: int = 2_000_000
    file_bytes: int = 256 * 1024 * 1024
    interval_s: float = 5.0
    """The least time between two commits, unless a full batch waits: it keeps files from being tiny."""
    compression: str = "zstd"
    read_committed: bool = True
    fail_on_data_loss: bool = False
    """Fail where records are gone that the lake lacks, before it passes over them."""
    group: str | None = None
    """The consumer group that tells how far the lake is; None: tailrace-archive- and the lake's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """What a run reached."""

    lake: str
    format: str
    offsets: Mapping[str, Mapping[int, int]]
    """By topic and partition: where the lake ends now, exclusive."""
    rows: int
    files: int
    bytes: int
    batches: int
    seconds: float
    bad: Sequence[BadRange] = ()
    """What could not be archived in this run, with the reasons: damaged batches, and what was gone."""
    missing: Sequence[MissingRange] = ()
    """What the lake lacks of these topics because it was deleted before it was archived, in any run."""
    stopped: bool = False


def archive(
    config: ArchiveConfig,
    *,
    spark: SparkSession,
    observe: Observer = ignore,
    stop: threading.Event | None = None,
    on_step: OnStep | None = None,
) -> Archived:
    """Run until the topics' present ends are in the lake (`once`), or until `stop` is set.

    `on_step` is called with the name of each step of each commit; tests kill the process there.
    """
    check_config(config)
    link = link_to(config.bootstrap)
    reach = read_reach(link, config.topic, read_committed=config.read_committed)  # before a lake is made
    with closing(open_table(config.to, format=config.format, create=True)) as table:
        table.recover()
        run = _Archive(
            config, table=table, link=link, spark=spark, observe=observe, stop=stop or threading.Event()
        )
        run.on_step = on_step or _no_step
        return run.run(reach)


def check_config(config: ArchiveConfig) -> None:
    """ConfigError with the key and the fix."""
    if not config.topic:
        raise ConfigError("archive: topic names nothing. Give at least one topic to archive")
    if not config.to:
        raise ConfigError("archive: to is empty. Name the folder of the lake")
    resolve_root(config.to)
    _check_choice("format", config.format, (None, *FORMATS))
    _check_choice("compression", config.compression, COMPRESSIONS)
    _check_least("batch_rows", config.batch_rows, 1)
    _check_least("file_bytes", config.file_bytes, _FILE_BYTES_MIN)
    _check_least("interval_s", config.interval_s, 0)
    if config.starting not in ("earliest", "latest"):
        parse_starting(config.starting)
    if config.group is not None and not is_archive_group(config.group):
        raise ConfigError(
            f"archive: group is {config.group!r}. Choose a name that begins with {ARCHIVE_GROUP}:"
            " retention waits for groups of such names"
        )


def _check_choice(key: str, value: str | None, choices: Sequence[str | None]) -> None:
    if value not in choices:
        there = ", ".join(each for each in choices if each is not None)
        raise ConfigError(f"archive: {key} is {value!r}. Choose one of {there}")


def _check_least(key: str, value: float, least: float) -> None:
    if not value >= least:
        raise ConfigError(f"archive: {key} is {value}. Give at least {least}")


def _no_step(_name: str) -> None:
    """For runs without an observer of steps."""


@dataclass(slots=True)
class _Tally:
    """What this run has done so far."""

    batches: int = 0
    files: int = 0
    bytes: int = 0
    bad: list[BadRange] = field(default_factory=list)


class _Archive:
    """One run. `ends` is where the table ends, as of the last look at it."""

    def __init__(
        self,
        config: ArchiveConfig,
        *,
        table: Table,
        link: BrokerLink,
        spark: SparkSession,
        observe: Observer,
        stop: threading.Event,
    ) -> None:
        self.config = config
        self.table = table
        self.link = link
        self.spark = spark
        self.observe = observe
        self.stop = stop
        self.on_step: OnStep = _no_step
        self.cores = count_cores(spark)
        self.pace = Pace()
        self.tally = _Tally()
        self.ends: dict[TopicPartition, int] = {}
        self.began_ids: dict[str, str] = {}  # of the topics that this run is about
        self.topic_ids: dict[str, str] = {}  # as the table has them
        self.new_ids: dict[str, str] = {}  # those that the next commit brings
        self.known_bad: set[BadRange] = set()
        self.missing: tuple[MissingRange, ...] = ()
        self.group = GroupProgress(config.group or f"{ARCHIVE_GROUP}-{table.root.name}")
        self.committed_at = float("-inf")
        self.told_at = float("-inf")
        self.failures: Counter[str] = Counter()  # by kind, since the last commit

    # ---- the loop

    def run(self, reach: Mapping[TopicPartition, Reach]) -> Archived:
        began = time.monotonic()
        self.began_ids = topic_ids_of(reach)
        self._look()
        self._compare(reach)
        if self.missing:
            logger.warning(
                "archive of %s: missing from the lake: %s", self._topics(), tell_missing(self.missing)
            )
        if self.config.starting != "earliest":
            self._begin(reach, starting=self.config.starting)
        self._publish()
        self._tell(lag=sum(max(0, each.end - self.ends.get(tp, each.start)) for tp, each in reach.items()))
        goal = {tp: each.end for tp, each in reach.items()} if self.config.once else None
        done = False
        while not done and not self.stop.is_set():
            try:
                done = self._step(goal)
            except TailraceError as error:
                self._wait_retry(error)
        return self._result(seconds=time.monotonic() - began, stopped=not done)

    def _step(self, goal: Mapping[TopicPartition, int] | None) -> bool:
        """One batch, or one wait for it; True when there is no more to do."""
        plan = self._plan(goal)
        if plan.gaps and self.config.fail_on_data_loss:
            raise _data_missing(plan.gaps)
        if not plan.advances and goal is not None:
            return True
        due_s = self.committed_at + self.config.interval_s - time.monotonic()
        is_full = plan.backlog >= self.config.batch_rows
        if plan.advances and (goal is not None or is_full or due_s <= 0):
            self._apply(plan)
        else:
            self._publish()  # a group without commits expires
            self._tell_waiting(plan.backlog)
            self.stop.wait(_POLL_S if not plan.advances else min(_POLL_S, max(due_s, 0)))
        return False

    def _wait_retry(self, error: TailraceError) -> None:
        """Wait a little before the next try, or raise what no further try mends."""
        kind = _kind_of(error)
        if kind is None:
            raise error
        self.failures[kind] += 1
        count = self.failures[kind]
        is_patient = kind == "broker" and not self.config.once
        if not is_patient and count >= _TRIES_MAX[kind]:
            raise error
        if kind == "conflict":
            note = f"another archive writes this lake, planning again: {error}"
            wait_s = random.uniform(0, _RETRY_FIRST_S)  # so that two archives do not stay in step
        else:
            note = f"trying again: {error}"
            wait_s = min(_RETRY_MOST_S, _RETRY_FIRST_S * 2 ** min(count, 10))
        logger.warning("archive of %s: %s", self._topics(), note)
        self._recover()
        self._tell(lag=None, note=note)
        self.stop.wait(wait_s)

    # ---- one batch

    def _plan(self, goal: Mapping[TopicPartition, int] | None) -> BatchPlan:
        reach = read_reach(self.link, self.config.topic, read_committed=self.config.read_committed)
        self._compare(reach)
        # A partition that came during the run was empty then: all of it is new, whatever `starting` says.
        self._begin(reach, starting="earliest")
        return plan_batch(self.ends, reach, goal=goal, rows_max=self.config.batch_rows)

    def _apply(self, plan: BatchPlan) -> None:
        """Write a batch and commit it: the table has all of it afterwards, or nothing."""
        with Staging(self.table.root) as staging:
            written = self._write(plan, staging.path)
            # An id never comes back: one that is the same now was the same all the time that was read.
            check_not_anew(self.began_ids, read_topic_ids(self.link, self.config.topic))
            files = [file for task in written for file in task.files]
            found = [*plan.gaps, *(bad for task in written for bad in task.bad)]
            # A damaged batch that lies across two ranges is met twice.
            bad = [each for each in dict.fromkeys(found) if each not in self.known_bad]
            self._commit(
                Change(operation="archive", add=files, advances=plan.advances, bad=bad, topics=self.new_ids)
            )
        self.tally.batches += 1
        if self.tally.batches % _RECOVER_EVERY == 0:
            self._recover()  # attempts that came second left files too
        self.tally.files += len(files)
        self.tally.bytes += sum(each.file.bytes for each in files)
        self.tally.bad += bad
        if plan.gaps:
            logger.warning("archive of %s: %s", self._topics(), _gone_text(plan.gaps))
        self._publish()
        self.pace.add(sum(task.rows for task in written))
        self._tell(lag=max(0, plan.backlog - plan.count), note=_bad_note(self.tally.bad))

    def _write(self, plan: BatchPlan, staging: str) -> list[TaskWritten]:
        work = ArchiveWork(
            bootstrap=self.config.bootstrap,
            root=str(self.table.root),
            staging=staging,
            file_bytes_max=self.config.file_bytes,
            compression=self.config.compression,
            read_committed=self.config.read_committed,
        )
        tasks = plan_tasks(plan.ranges, cores=self.cores)
        return spread(self.spark, partial(write_ranges, work), tasks, result=TaskWritten)

    def _commit(self, change: Change) -> None:
        snapshot = self.table.commit(change, on_step=self.on_step)
        self._learn(snapshot)
        self.committed_at = time.monotonic()
        self.failures.clear()

    # ---- positions

    def _recover(self) -> None:
        """Clear what a failed attempt staged, and look where the table ends by now."""
        self.table.recover()
        self._look()

    def _look(self) -> None:
        self._learn(self.table.snapshot())

    def _learn(self, snapshot: Snapshot) -> None:
        self.ends = dict(snapshot.ends)
        self.topic_ids = dict(snapshot.topics)
        self.known_bad = set(snapshot.bad)
        self.missing = find_missing(snapshot.bad, topics=self.config.topic)

    def _publish(self) -> None:
        """Tell how far the lake is: retention may wait for it, and its lag shows as that of a group."""
        ours = {tp: end for tp, end in self.ends.items() if tp.topic in self.config.topic}
        self.group.publish(self.link, ours)

    def _compare(self, reach: Mapping[TopicPartition, Reach]) -> None:
        """Refuse another topic of the same name, and note which ids the table does not have yet."""
        check_same_topics(self.ends, reach, topic_ids=self.topic_ids)
        check_not_anew(self.began_ids, topic_ids_of(reach))
        self.new_ids = new_topic_ids(reach, topic_ids=self.topic_ids)

    def _begin(self, reach: Mapping[TopicPartition, Reach], *, starting: str) -> None:
        """Commit where the partitions begin that the lake does not have yet.

        What is deleted from then on is named as missing, also if this run finds nothing to archive or is
        killed before its first batch, and the next run begins at the same offset whatever it is told.
        """
        lacking = sorted(reach.keys() - self.ends.keys())
        if not lacking:
            return
        starts = read_starts(self.link, reach, lacking, starting=starting)
        advances = [
            Advance(topic=tp.topic, partition=tp.partition, start=at, end=at) for tp, at in starts.items()
        ]
        # An offset above 0 is that of one log, not of every topic of that name.
        of_one_log = {tp.topic for tp, at in starts.items() if at > 0}
        ids = {topic: topic_id for topic, topic_id in self.new_ids.items() if topic in of_one_log}
        committed_at = self.committed_at
        try:
            self._commit(Change(operation="begin", advances=advances, topics=ids))
        except Conflict:  # another archive began at the same moment: its beginning counts
            self._look()
            self._begin(reach, starting=starting)
        self.committed_at = committed_at  # the first batch need not wait for the interval

    # ---- words

    def _tell_waiting(self, lag: int) -> None:
        """Now and then while there is nothing to do: an observer sees the rate sink."""
        if time.monotonic() >= self.told_at + _TELL_EVERY_S:
            self._tell(lag=lag, note="" if lag else "waiting for records")

    def _tell(self, *, lag: int | None, note: str = "") -> None:
        self.told_at = time.monotonic()
        self.observe(
            Progress(
                pipeline="archive",
                batch=self.tally.batches,
                rows=self.pace.rows,
                rows_per_s=self.pace.rows_per_s,
                lag=lag,
                offsets=self._offsets(),
                bytes=self.tally.bytes,
                eta_s=self.pace.eta_s(lag),
                note=note,
                missing=self.missing,
            )
        )

    def _topics(self) -> str:
        return ", ".join(self.config.topic)

    def _offsets(self) -> dict[str, dict[int, int]]:
        offsets: dict[str, dict[int, int]] = {name: {} for name in self.config.topic}
        for tp, end in sorted(self.ends.items()):
            if tp.topic in offsets:
                offsets[tp.topic][tp.partition] = end
        return offsets

    def _result(self, *, seconds: float, stopped: bool) -> Archived:
        return Archived(
            lake=str(self.table.root),
            format=self.table.format,
            offsets=self._offsets(),
            rows=self.pace.rows,
            files=self.tally.files,
            bytes=self.tally.bytes,
            batches=self.tally.batches,
            seconds=seconds,
            bad=tuple(self.tally.bad),
            missing=self.missing,
            stopped=stopped,
        )


def _kind_of(error: TailraceError) -> str | None:
    """Which way an error may go away by itself; None if it does not."""
    if isinstance(error, Conflict):
        return "conflict"
    if is_retriable(error) or (isinstance(error, TaskFailed) and error.retriable):
        return "broker"
    # A range that retention overtook is planned anew, and a Spark that lost a worker may have another.
    is_passing = isinstance(error, TaskFailed) and error.kind in ("DataLoss", "ShortRead")
    is_spark = isinstance(error, SparkFailed) and error.retriable
    return "work" if is_passing or is_spark else None


def _gone_text(gaps: Sequence[BadRange]) -> str:
    missing = find_missing(gaps, topics={each.topic for each in gaps})
    return f"these records were deleted before they were archived: {tell_missing(missing)}"


def _data_missing(gaps: Sequence[BadRange]) -> DataMissing:
    return DataMissing(
        f"{_gone_text(gaps)}. To archive the rest, run without --fail-on-data-loss: the lake keeps which"
        " ranges it misses. To have retention wait for the archive, set retention.archive.wait of the topic"
    )


def _bad_note(bad: Sequence[BadRange]) -> str:
    if not bad:
        return ""
    last = bad[-1]
    where = f"{last.topic}-{last.partition} {last.first_offset} to {last.last_offset}"
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"not archived: {where} ({last.reason}){more}"
